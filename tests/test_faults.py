"""Bad inputs and numerical limits of one fit in memory; numbers are those of the list of faults.

Faults 23 and 60, of threads and processes, are in `test_blas.py`.
"""

import pickle
import tracemalloc
import warnings
from contextlib import nullcontext

import numpy as np
import pytest
import sklearn.datasets
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning

from elldict import LpDictionaryLearning, LpICA
from elldict.datasets import make_bernoulli_gaussian
from elldict.exceptions import NotIdentifiableWarning, NotWhiteWarning, RankWarning
from elldict.metrics import recovery_error
from elldict.samples import base
from elldict.samples.base import cut_blocks
from elldict.solver import steps
from tests.fits import draw, draw_atoms, measure_errors

BOTH = pytest.mark.parametrize("kind", [LpDictionaryLearning, LpICA])
POWER = {"solver": "power", "random_state": 0, "max_iter": 3000}


@pytest.fixture(scope="module", name="X")
def samples():
    X = make_bernoulli_gaussian(2000, 6, density=0.3, noise_std=0.1, random_state=0)[0]
    X.setflags(write=False)
    return X


@pytest.fixture(scope="module")
def expected(X):
    return {kind: fit(kind, X).components_ for kind in (LpDictionaryLearning, LpICA)}


def fit(kind, X, **options):
    return kind(**{"error_bars": False, **options}).fit(X)


def is_orthonormal(A):
    return np.allclose(A @ A.T, np.eye(len(A)), atol=1e-12)


@BOTH
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("sample", [0, 71_234, 99_999])
def test_fault_01_bad_entry_is_named(kind, bad, sample):
    X = np.ones((100_000, 3))
    X[sample, 1] = bad
    found = "NaN" if np.isnan(bad) else "infinity"
    with pytest.raises(ValueError, match=rf"contains {found} \(sample {sample}, feature 1\)"):
        fit(kind, X)


@pytest.mark.parametrize("kind", [LpDictionaryLearning, LpICA])
@pytest.mark.parametrize("value", [0.0, 0.1])
def test_fault_02_equal_samples_raise_an_error(kind, value):
    with pytest.raises(ValueError, match="do not vary"):
        fit(kind, np.full((100, 4), value), **({"center": True} if kind is LpDictionaryLearning else {}))


@BOTH
@pytest.mark.parametrize(
    ("scale", "dtype"), [(1e-300, "f8"), (1e-12, "f8"), (1e300, "f8"), (1e-30, "f4"), (1e30, "f4")]
)
def test_fault_02_any_scale_gives_the_same_atoms(kind, scale, dtype, X, expected):
    samples, tolerance = (X * scale).astype(dtype), 1e-9 if dtype == "f8" else 1e-4
    found = fit(kind, samples)
    factor = scale if kind is LpICA else 1
    assert_allclose(found.components_.astype(float) * factor, expected[kind], atol=tolerance)
    back = found.inverse_transform(found.transform(samples))
    assert_allclose(back / scale, X, atol=tolerance)
    assert_allclose(found.density_, 0.3, atol=0.05)


@pytest.mark.parametrize("scale", [1e-100, 1e100])
def test_fault_50_samples_of_extreme_size_have_a_score(scale, X):
    one, other = fit(LpDictionaryLearning, X), fit(LpDictionaryLearning, X * scale)
    assert other.score(X * scale) == pytest.approx(one.score(X) - 6 * np.log(scale), rel=1e-6)


@pytest.mark.parametrize("options", [{"refine": None}, POWER], ids=["auto", "power"])
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.filterwarnings("ignore::elldict.exceptions.DependentComponentsWarning")  # mixtures have larger norms
def test_fault_03_large_p_does_not_overflow(options, X):
    with np.errstate(over="raise", invalid="raise"):
        model = fit(LpDictionaryLearning, X, p=60, **options)
    assert is_orthonormal(model.components_)
    assert np.isfinite(model.objective_)


@pytest.mark.parametrize("p", [0.5, 1, 1.9])
def test_fault_04_p_below_2_finds_the_dictionary(p):
    X, dictionary, _ = make_bernoulli_gaussian(4000, 6, density=0.2, random_state=0)
    assert recovery_error(fit(LpDictionaryLearning, X, p=p, refine=None).components_, dictionary) < 0.02


@BOTH
@pytest.mark.parametrize("dtype", ["int8", "int64", "uint16", "bool", "float16", ">f8", "longdouble"])
def test_fault_05_other_types_equal_the_float64_fit(kind, dtype, X):
    other = (X > 0.5) if dtype == "bool" else (20 * X + (100 if dtype == "uint16" else 0)).clip(-100, 500).astype(dtype)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of samples that are not white, or no sums of atoms any more
        one, two = fit(kind, other), fit(kind, other.astype(np.float64))
    rtol = 1e-3 if dtype == "float16" else 1e-7  # attributes are float32
    assert_allclose(one.components_, two.components_, rtol=rtol, atol=1e-6 if dtype == "float16" else 1e-9)


@BOTH
def test_fault_06_objects_that_are_numbers_are_converted(kind, X, expected):
    assert_array_equal(fit(kind, X.astype(object)).components_, expected[kind])
    assert_array_equal(fit(kind, X.tolist()).components_, expected[kind])


@pytest.mark.parametrize(
    ("shape", "words"),
    [
        ((1, 5), r"1 sample\(s\)"),
        ((50, 1), r"1 feature\(s\)"),
        ((50,), "Expected 2D array, got 1D"),
        ((5, 5, 5), "dim 3"),
    ],
)
def test_fault_07_samples_of_no_matrix_are_refused(shape, words, rng):
    with pytest.raises(ValueError, match=words):
        LpICA().fit(rng.standard_normal(shape))


def test_fault_08_fewer_samples_than_features_are_warned_of(rng):
    with pytest.warns(NotIdentifiableWarning, match="too few"):
        model = fit(LpDictionaryLearning, rng.standard_normal((5, 12)))
    assert is_orthonormal(model.components_)


def test_fault_08_more_components_than_features_raise_an_error(X):
    with pytest.raises(ValueError, match="n_components=7 is larger than the number of features, 6"):
        fit(LpDictionaryLearning, X, n_components=7)


def test_fault_09_samples_far_from_white_are_warned_of(X):
    with pytest.warns(NotWhiteWarning, match="whiten=True") as caught:
        fit(LpDictionaryLearning, X * np.array([1, 1, 1, 1, 1, 10]))
    ratio = float(str(caught[0].message).split(" is ")[2].split(" times")[0])
    assert 80 < ratio < 130


@pytest.mark.parametrize("n_gaussian", [0, 1, 2, 4])
def test_fault_10_gaussian_sources_are_named_if_there_are_two(n_gaussian):
    S = np.c_[draw("laplace", 4000, 4 - n_gaussian), draw("gauss", 4000, n_gaussian, seed=1)]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model = fit(LpICA, S @ draw_atoms(4))
    assert [w.category for w in caught] == [NotIdentifiableWarning] * (n_gaussian > 1)
    if n_gaussian > 1:
        codes = np.abs(np.corrcoef(model.transform(S @ draw_atoms(4)).T, S.T)[:4, 4:])
        gaussian = np.flatnonzero(np.argmax(codes, axis=1) >= 4 - n_gaussian)
        assert f"Components {', '.join(map(str, gaussian))} are" in str(caught[0].message)


@pytest.mark.parametrize(("p", "n_samples", "fails"), [(5, 500, True), (4, 300, True), (3, 2000, False)])
def test_fault_10_power_method_that_fails_names_components(p, n_samples, fails):
    """With too few samples for the norm, its maximum is a rotation of the atoms, whose codes look Gaussian."""
    X, dictionary, _ = make_bernoulli_gaussian(n_samples, 30, density=0.3, random_state=0)
    expected = pytest.warns(NotIdentifiableWarning, match="Gaussian") if fails else nullcontext()
    with expected:
        model = LpDictionaryLearning(p=p, solver="power", random_state=0).fit(X)
    assert (recovery_error(model.components_, dictionary) > 0.3) == fails


@pytest.mark.parametrize("scale", [1e-200, 1, 1e200])
@pytest.mark.filterwarnings("ignore::elldict.exceptions.NotWhiteWarning")
@BOTH
def test_fault_11_rank_is_found_at_any_scale(kind, scale, X):
    deficient = scale * np.c_[X, X[:, :2], np.zeros(len(X))]
    with pytest.warns(RankWarning, match="rank 6 < 9"):
        model = fit(kind, deficient)
    assert model.n_components_ == 6
    assert_allclose(model.inverse_transform(model.transform(deficient)), deficient, atol=1e-9 * scale)


@BOTH
@pytest.mark.parametrize("position", [0, 3, 6])
def test_fault_12_zero_feature_may_be_anywhere(kind, position, X, expected):
    with pytest.warns(RankWarning):
        model = fit(kind, np.insert(X, position, 0, axis=1))
    assert_allclose(np.delete(model.components_, position, axis=1), expected[kind], atol=1e-9)
    assert_allclose(model.mixing_[position], 0, atol=1e-12)


@pytest.mark.parametrize("condition", [1e3, 1e9, 1e15, np.inf])
def test_fault_13_polar_factor_of_a_gradient_is_orthonormal(condition, rng):
    U, V = (np.linalg.qr(rng.standard_normal((8, 8)))[0] for _ in range(2))
    G = U * np.r_[np.ones(7), 1 / condition] @ V
    assert is_orthonormal(steps.polar(G))


def test_fault_14_polar_factor_is_found_by_another_driver_if_the_first_one_fails(monkeypatch, rng):
    G = rng.standard_normal((4, 6))
    expected = steps.polar(G)

    def fail(*arguments, **options):
        raise np.linalg.LinAlgError("SVD did not converge")

    monkeypatch.setattr(np.linalg, "svd", fail)
    assert_allclose(steps.polar(G), expected, atol=1e-12)


def test_fault_15_max_iter_is_warned_of(X):
    with pytest.warns(ConvergenceWarning, match=r"did not converge within max_iter=3 .* Increase max_iter"):
        model = fit(LpDictionaryLearning, X, solver="power", max_iter=3, random_state=0)
    assert not model.converged_
    assert is_orthonormal(model.components_)


@pytest.mark.parametrize("law", ["laplace", "uniform", "sparse"])
def test_fault_16_objective_of_a_climb_never_falls(law):
    """The step after a fall is a shorter one, from where the last one began."""
    best, model = {}, fit(LpDictionaryLearning, draw(law, 1000, 5) @ draw_atoms(5), refine=None)
    for iteration in model.history_:
        best[iteration.stage] = max(best.get(iteration.stage, -np.inf), iteration.objective)
    last = {iteration.stage: iteration.objective for iteration in model.history_}
    for stage, value in last.items():
        assert value >= best[stage] - 1e-6 * abs(best[stage])


@BOTH
@pytest.mark.parametrize("options", [{}, POWER], ids=["auto", "power"])
def test_fault_17_equal_fits_have_the_same_bits(kind, options, X):
    one, other = (fit(kind, X, **options) for _ in range(2))
    assert_array_equal(one.components_, other.components_)
    assert one.objective_ == other.objective_


@BOTH
def test_fault_18_copies_and_fit_transform_are_identical(kind, X, expected):
    model = fit(kind, X)
    codes = model.transform(X)
    assert_array_equal(clone(model).fit_transform(X), codes)
    assert_array_equal(pickle.loads(pickle.dumps(model)).transform(X), codes)


@BOTH
def test_fault_19_memory_maps_and_views_give_the_same_atoms(kind, X, expected, tmp_path):
    np.save(tmp_path / "x.npy", X)
    wide = np.repeat(X, 2, axis=1)
    for view in (np.load(tmp_path / "x.npy", mmap_mode="r"), np.asfortranarray(X), wide[:, ::2]):
        before = np.array(view)
        model = fit(kind, view)
        assert_allclose(model.components_, expected[kind], atol=1e-10)
        assert_allclose(model.transform(view), model.transform(X), atol=1e-12)
        assert_array_equal(view, before)


@pytest.mark.parametrize("dtype", [np.float32, np.int16])
def test_fault_20_transform_takes_memory_for_codes_and_a_few_blocks(dtype):
    X = (100 * draw("noisy", 200_000, 8)).astype(dtype)
    model = LpICA(error_bars=False).fit(X[:2000])
    tracemalloc.start()
    codes = model.transform(X)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < codes.nbytes + 20e6


@BOTH
@pytest.mark.parametrize("rows", [1, 7, 1999, 2000, 2001])
def test_fault_21_block_size_does_not_matter(kind, rows, X, expected, monkeypatch):
    X = X[:300] if rows == 1 else X  # blocks of one row take long
    reference = fit(kind, X).components_
    seen = []

    def cut(r, n, numbers=None):
        seen.append(r)
        return [(i, min(i + rows, r)) for i in range(0, r, rows)]

    monkeypatch.setattr(base, "cut_blocks", cut)
    assert_allclose(fit(kind, X).components_, reference, atol=1e-9)
    assert len(X) in seen


def test_fault_22_blocks_of_more_than_2_to_31_numbers_are_addressed():
    blocks = cut_blocks(2**33, 3)
    assert blocks[-1][1] == 2**33
    assert all(one[1] == other[0] for one, other in zip(blocks[-5:-1], blocks[-4:], strict=True))


# Rows 52 to 63, as far as they concern one fit


@pytest.mark.parametrize("ratio", [1, 10, 100])
def test_fault_52_error_of_weak_sources_is_that_of_their_columns(ratio):
    """2 strong and 4 weak sources."""
    strengths = np.r_[np.full(2, float(ratio)), np.ones(4)]
    mixing = draw_atoms(6) * strengths
    model = LpICA().fit(draw("laplace", 5000, 6) @ mixing.T)
    true = float(np.mean(measure_errors(mixing, model.mixing_)))
    assert 1 / 3 < model.expected_error_ / true < 3


def test_fault_53_error_bars_do_not_jump_between_numbers_of_components():
    X = sklearn.datasets.load_digits().data.astype(float)[:900]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        stated = [LpICA(k, max_iter=200).fit(X).expected_error_ for k in (9, 10, 11)]
    assert max(stated) < 4 * min(stated)


def test_fault_63_low_rank_is_warned_of(rng):
    X = rng.laplace(size=(500, 2)) @ rng.standard_normal((2, 10))
    with pytest.warns(RankWarning, match="rank 2 < 10"):
        assert fit(LpICA, X).n_components_ == 2
