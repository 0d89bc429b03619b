"""Every array library takes the same road and gives NumPy's answer."""

import array_api_strict
import numpy as np
import pytest

from elldict import LpDictionaryLearning, LpICA
from elldict._old.backend import matrices
from elldict._old.backend.base import Backend, is_foreign, to_numpy
from elldict._old.solver.directions import polar
from elldict._old.solver.evaluate import evaluate
from elldict._old.solver.objective import Lp, Quantities
from elldict.metrics import recovery_error
from tests._old.helpers import prepared


@pytest.fixture(params=["array_api_strict", "torch"])
def xp(request):
    return pytest.importorskip(request.param)


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize(
    "options",
    [{}, {"center": True}, {"center": True, "whiten": True}, {"n_components": 4}, {"p": (3, 1), "refine": None}],
)
def test_the_answer_is_numpys_and_of_the_kind_of_the_samples(xp, easy, dtype, options):
    X = easy[0].astype(dtype) + np.asarray(0.5 if options.get("center") else 0, dtype)
    ours = LpDictionaryLearning(random_state=0, **options).fit(X)
    theirs = LpDictionaryLearning(random_state=0, **options).fit(xp.asarray(X))
    tolerance = 1e-10 if dtype == "float64" else 1e-5
    for name in ("components_", "unmixing_", "mean_"):
        array = getattr(theirs, name)
        assert type(array) is type(xp.asarray(X))
        assert array.dtype == getattr(xp, dtype)
        np.testing.assert_allclose(to_numpy(array), getattr(ours, name), atol=tolerance)
    codes = theirs.transform(xp.asarray(X))
    assert type(codes) is type(xp.asarray(X))
    np.testing.assert_allclose(to_numpy(codes), ours.transform(X), atol=10 * tolerance)
    np.testing.assert_allclose(
        to_numpy(theirs.inverse_transform(codes)), ours.inverse_transform(to_numpy(codes)), atol=tolerance * 10
    )


@pytest.mark.parametrize("whiten", ["unit-variance", "arbitrary-variance", False])
def test_sources_are_numpys_and_of_the_kind_of_the_samples(xp, easy, whiten):
    X = easy[0]
    ours = LpICA(whiten=whiten, random_state=0).fit(X)
    theirs = LpICA(whiten=whiten, random_state=0).fit(xp.asarray(X.copy()))
    for name in ("components_", "mixing_", "mean_", "whitening_") if whiten else ("components_", "mixing_"):
        array = getattr(theirs, name)
        assert type(array) is type(xp.asarray(X.copy()))
        np.testing.assert_allclose(to_numpy(array), getattr(ours, name), rtol=1e-7, atol=1e-9 * len(X) ** 0.5)
    codes = theirs.transform(xp.asarray(X.copy()))
    assert type(codes) is type(xp.asarray(X.copy()))
    np.testing.assert_allclose(to_numpy(theirs.inverse_transform(codes)), X, atol=1e-9)


@pytest.mark.parametrize("p", [0.5, 1, 1.5, 2.5, 2.7, 3, 4, 5.5])
def test_one_pass_agrees_to_rounding(xp, easy, p):
    needs = Quantities.GRADIENT | Quantities.MOMENTS
    host, foreign = (
        evaluate(*prepared(X, tile_rows=700), Lp(p), A, needs, "float64")
        for X, A in ((easy[0], np.eye(12)), (xp.asarray(easy[0].copy()), xp.asarray(np.eye(12))))
    )
    for name in ("G", "value", "slope", "g2", "z2"):
        np.testing.assert_allclose(to_numpy(getattr(foreign, name)), getattr(host, name), rtol=1e-12, atol=1e-9)


@pytest.mark.parametrize(
    "how",
    [
        {"transform_algorithm": "threshold", "transform_alpha": 0.2},
        {"transform_algorithm": "hard_threshold", "transform_alpha": 0.2},
        {"transform_algorithm": "omp", "transform_n_nonzero_coefs": 3},
        {"transform_algorithm": "omp", "transform_n_nonzero_coefs": 3, "whiten": True},
    ],
)
def test_every_way_of_coding_works(xp, easy, how):
    X = easy[0]
    ours = LpDictionaryLearning(random_state=0, **how).fit(X)
    theirs = LpDictionaryLearning(random_state=0, **how).fit(xp.asarray(X.copy()))
    np.testing.assert_allclose(to_numpy(theirs.transform(xp.asarray(X.copy()))), ours.transform(X), atol=1e-8)


def test_integers_are_converted(xp, rng):
    counts = rng.integers(-3, 4, (500, 4)) ** 3
    model = LpDictionaryLearning(random_state=0).fit(xp.asarray(counts))
    expected = LpDictionaryLearning(random_state=0).fit(counts.astype(float))
    np.testing.assert_allclose(to_numpy(model.components_), expected.components_, atol=1e-10)


def test_metrics_take_foreign_arrays(xp, easy):
    assert recovery_error(xp.asarray(easy[1].copy()), xp.asarray(easy[1].copy())) == pytest.approx(0, abs=1e-12)


def test_samples_of_another_library_are_refused_by_name(xp, easy):
    model = LpDictionaryLearning(random_state=0).fit(xp.asarray(easy[0].copy()))
    with pytest.raises(ValueError, match=r"LpDictionaryLearning.transform\(\) must use the same namespace"):
        model.transform(easy[0])


@pytest.mark.parametrize(
    ("shape", "message"), [((5,), "2D"), ((5, 2, 2), "2D"), ((1, 4), "minimum of 2"), ((4, 1), "minimum of 2")]
)
def test_wrong_shapes_are_refused(xp, shape, message):
    with pytest.raises(ValueError, match=message):
        LpDictionaryLearning().fit(xp.ones(shape))


def test_complex_numbers_are_refused(xp):
    with pytest.raises(ValueError, match="Complex data not supported"):
        LpDictionaryLearning().fit(xp.ones((5, 3), dtype=xp.complex128))


def test_nan_is_found(xp, easy):
    X = easy[0].copy()
    X[123, 4] = np.nan
    with pytest.raises(ValueError, match="NaN in sample 123, feature 4"):
        LpDictionaryLearning().fit(xp.asarray(X))


def test_a_failing_decomposition_falls_back_to_the_host(monkeypatch, rng):
    G = rng.standard_normal((4, 6))
    foreign = array_api_strict.asarray(G)

    def fail(*args, **kwargs):
        raise RuntimeError("linalg.svd: the algorithm failed to converge")

    monkeypatch.setattr(array_api_strict.linalg, "svd", fail)
    assert matrices.svd(foreign)[0].dtype == array_api_strict.float64
    np.testing.assert_allclose(to_numpy(polar(foreign)), polar(G), atol=1e-13)


def test_the_kind_of_array_is_told_apart():
    assert is_foreign(array_api_strict.ones(3))
    assert not is_foreign(np.ones(3))
    assert not is_foreign([1.0, 2.0])
    assert str(Backend.of(np.ones(3))) == "numpy (cpu)"


@pytest.mark.parametrize("kind", ["float32", "int64"])
def test_codes_of_another_precision_are_taken(xp, easy, kind):
    model = LpDictionaryLearning(random_state=0).fit(xp.asarray(easy[0].copy()))
    codes = np.arange(24).reshape(2, 12).astype(kind)
    expected = codes @ to_numpy(model.components_)
    np.testing.assert_allclose(to_numpy(model.inverse_transform(xp.asarray(codes))), expected, rtol=1e-5, atol=1e-5)


def test_codes_with_nan_are_refused(xp, easy):
    model = LpDictionaryLearning(random_state=0).fit(xp.asarray(easy[0].copy()))
    with pytest.raises(ValueError, match="NaN"):
        model.inverse_transform(xp.asarray(np.full((2, 12), np.nan)))


def test_torch_tensors_that_require_grad_are_only_read(easy):
    torch = pytest.importorskip("torch")
    X = torch.tensor(easy[0], requires_grad=True)
    model = LpDictionaryLearning(random_state=0).fit(X)
    assert not model.components_.requires_grad
    assert not model.transform(X).requires_grad
