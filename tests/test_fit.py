"""Whole fits: invariances, few samples and other edge cases, options, what a result holds."""

import importlib
import math

import numpy as np
import pytest

from elldict.exceptions import NotIdentifiableWarning, RankWarning
from elldict.samples import subsample
from elldict.samples.subsample import FEWEST
from elldict.solver.climb import Reason
from elldict.solver.starts import draw_start
from tests.fits import draw, draw_atoms, measure_errors, run

SAME = 1e-12
"""Error of a column that is off by a millionth: 2 sin^2."""

KINDS = {
    "laplace": draw("laplace", 1200, 5) @ draw_atoms(5),
    "exponential": draw("exponential", 1200, 5) @ draw_atoms(5),
    "few": draw("laplace", 40, 5) @ draw_atoms(5),  # cross-validated
    "unit norms": draw("laplace", 1200, 5) @ draw_atoms(5),
}
KINDS["unit norms"] /= np.linalg.norm(KINDS["unit norms"], axis=1, keepdims=True)


@pytest.fixture(scope="module", params=KINDS)
def fitted(request):
    X = KINDS[request.param]
    return X, run(X).mixing


def test_fit_does_not_depend_on_the_order_of_rows(fitted):
    X, mixing = fitted
    other = run(np.random.default_rng(1).permutation(X)).mixing
    assert np.max(measure_errors(mixing, other)) < SAME


@pytest.mark.parametrize("law", ["laplace", "exponential", "sparse"])
@pytest.mark.parametrize("options", [{}, {"normalize": "samples"}, {"refine": None}], ids=str)
@pytest.mark.parametrize("limits", [["COPIED_BYTES"], ["COPIED_BYTES", "STORED_BYTES"]], ids=str)
def test_fit_of_samples_read_in_place_does_not_depend_on_the_order_of_rows(monkeypatch, law, options, limits):
    """Where samples are many, a pass reads them in the order of rows; subsamples and halves are those of norms."""
    X = draw(law, 4 * FEWEST, 5) @ draw_atoms(5)
    copied = run(X, **options)
    for name in limits:
        monkeypatch.setattr(subsample, name, 1000)
    one, other = (run(each, **options) for each in (X, np.random.default_rng(1).permutation(X)))
    # sums are rounded to 1e-16 in another order, and every step of a climb repeats that
    for result in (other, copied):
        np.testing.assert_allclose(result.mixing, one.mixing, atol=1e-9)
        assert (result.pilot, result.n_iter, result.status) == (one.pilot, one.n_iter, one.status)


def test_fit_rotates_with_the_samples(fitted):
    X, mixing = fitted
    Q = draw_atoms(5, seed=9)
    assert np.max(measure_errors(Q.T @ mixing, run(X @ Q).mixing)) < SAME


@pytest.mark.parametrize("whiten", [False, True])
def test_fit_of_single_precision_is_that_of_the_same_numbers_in_double_precision(whiten):
    X = KINDS["laplace"].astype(np.float32)
    one, other = (run(each, whiten=whiten) for each in (X, X.astype(np.float64)))
    # Codes and scores g are rounded to 6e-8, and so are partial sums of g z over 1200 samples: the slope of an angle is
    # off by sqrt(1200) 6e-8 = 2e-6 of E |g z| = 1, if all these errors add up like random ones. The angle is off by as
    # much over its curvature, 2 (E g^2 - 1) = 2 for Laplace codes: 1e-6, with a factor of ten for chance.
    np.testing.assert_allclose(one.mixing, other.mixing, atol=1e-5 * np.max(np.abs(other.mixing)))
    np.testing.assert_allclose(one.unmixing @ other.mixing, np.eye(5), atol=1e-5)
    assert (one.pilot, one.n_iter, one.state.reason) == (other.pilot, other.n_iter, other.state.reason)
    # so does the rounding of samples: angles are averages over 1200 of them, and not those of another maximum
    np.testing.assert_allclose(one.mixing, run(KINDS["laplace"], whiten=whiten).mixing, atol=1e-5)


# --- edge cases -------------------------------------------------------------------------------------------------------


def check_finite(result, n, m):
    assert result.mixing.shape == (n, m)
    assert result.unmixing.shape == (m, n)
    for name in ("mixing", "unmixing", "mean", "code_std"):
        assert np.all(np.isfinite(getattr(result, name))), name
    np.testing.assert_allclose(result.unmixing @ result.mixing, np.eye(m), atol=1e-8)


@pytest.mark.parametrize("r", [1, 2, 3, 5, 6])
@pytest.mark.parametrize("whiten", [False, True])
def test_fit_of_few_samples_gives_orthonormal_atoms_and_a_warning(r, whiten):
    result = run(draw("laplace", r, 6), whiten=whiten)
    check_finite(result, 6, min(r, 6))
    warned_of = RankWarning if r == 1 else NotIdentifiableWarning  # a single component has no rotation
    assert warned_of in [finding.category for finding in result.findings]


@pytest.mark.parametrize(
    "n",
    [pytest.param(n, marks=pytest.mark.xfail(reason="2 and 4 samples differ in more than sign")) for n in (2, 3)]
    + [4, 6],
)
def test_fit_of_binary_sources_finds_them(n):
    A = draw_atoms(n)
    result = run(np.random.default_rng(0).choice([-1.0, 1.0], (2000, n)) @ A)
    assert np.max(measure_errors(A.T, result.mixing)) < 1e-14
    assert result.findings == ()


@pytest.mark.parametrize("whiten", [False, True])
@pytest.mark.parametrize("n", [1, 2, 3])
def test_fit_of_few_features_finds_their_atoms(n, whiten):
    A = draw_atoms(n)
    result = run(draw("laplace", 3000, n) @ A, whiten=whiten)
    check_finite(result, n, n)
    # at most six times (n - 1) / r: three angles for n = 3, and whitening adds as much again
    assert np.mean(measure_errors(A.T, result.mixing)) <= 6 * (n - 1) / 3000 + 1e-15
    assert np.all(result.code_std > 0)


def test_fit_of_identical_rows_finds_their_direction():
    X = np.ones((50, 3)) * [1.0, 2.0, 2.0]
    result = run(X)
    np.testing.assert_allclose(np.abs(result.mixing), np.array([[1], [2], [2]]) / 3, atol=1e-12)
    assert RankWarning in [finding.category for finding in result.findings]


def test_fit_of_12_sources_in_60_features_finds_them_after_whitening():
    rng = np.random.default_rng(0)
    columns = rng.standard_normal((60, 12))
    X = draw("laplace", 4000, 12) @ columns.T + 0.01 * rng.standard_normal((4000, 60)) + 3
    result = run(X, whiten=True, center=True, n_components=12)
    check_finite(result, 60, 12)
    # an efficient estimate of orthonormal atoms is off by (n - 1) / r, and columns are almost orthogonal;
    # correlations by chance, of variance 1 / r, add half as much again; to this a factor of 2
    assert np.mean(measure_errors(columns, result.mixing)) < 3 * 11 / 4000
    assert result.findings == ()


# --- the paper's algorithm, and fewer components ----------------------------------------------------------------------


@pytest.mark.parametrize("n_components", [None, 3])
def test_fit_by_power_follows_algorithm_2(n_components):
    X, p, tol = KINDS["laplace"], 4.0, 1e-4
    m, seen = n_components or 5, []
    options = {"solver": "power", "p": p, "tol": tol, "random_state": 3, "n_components": n_components}
    result = run(X, [lambda state: seen.append(state.A)], **options)
    A, n_iter, length = draw_start(m, 5, np.random.default_rng(3)), 0, math.inf
    while length > tol:
        Z = X @ A.T
        U, _, V = np.linalg.svd((np.abs(Z) ** (p - 1) * np.sign(Z)).T @ X, full_matrices=False)
        length, A, n_iter = np.linalg.norm(U @ V - A) / math.sqrt(m), U @ V, n_iter + 1
        np.testing.assert_allclose(seen[n_iter - 1], A, atol=1e-8)
    assert result.n_iter == n_iter > 3
    assert result.state.reason is Reason.SMALL_STEP
    assert np.max(measure_errors(A.T, result.mixing)) < SAME
    assert result.n_passes == 4 + n_iter  # two for statistics, one for the order, one for the codes


@pytest.mark.parametrize("random_state", [0, 1])
def test_fit_of_fewer_components_finds_some_of_the_atoms(random_state):
    A = draw_atoms(8)
    result = run(draw("sparse", 4000, 8) @ A, n_components=3, p=4, random_state=random_state, error_bars=True)
    check_finite(result, 8, 3)
    np.testing.assert_allclose(result.mixing.T @ result.mixing, np.eye(3), atol=1e-10)
    # l_4: E of 8 codes of density .3 leaves an error of some 20 / r for each angle
    assert np.max(measure_errors(result.mixing, A.T)) < 0.05
    assert np.all(np.isnan(result.component_errors))
    # without a seed: the start is that of fourth moments
    np.testing.assert_array_equal(result.mixing, run(draw("sparse", 4000, 8) @ A, n_components=3, p=4).mixing)


# --- results, warnings and observers ----------------------------------------------------------------------------------


@pytest.mark.parametrize("whiten", [False, True])
def test_result_orders_components_and_holds_their_codes(whiten):
    Z = draw("laplace", 2000, 5) * [1.0, 1.1, 1.2, 1.3, 1.4]
    X = Z @ draw_atoms(5) + [5, 0, 0, 0, 0]
    result = run(X, whiten=whiten, center=True)
    check_finite(result, 5, 5)
    codes = (X - result.mean) @ result.unmixing.T
    np.testing.assert_allclose(result.mean, X.mean(axis=0), atol=1e-10)
    np.testing.assert_allclose(codes @ result.mixing.T + result.mean, X, atol=1e-10)
    np.testing.assert_allclose(result.code_std, codes.std(axis=0), rtol=1e-9)
    powers = np.mean(np.abs(codes) ** 3, axis=0)
    assert np.all(np.diff(powers) <= 1e-9 * powers[0])
    assert np.all(result.mixing[np.argmax(np.abs(result.mixing), axis=0), np.arange(5)] > 0)


def test_fit_without_refinement_ends_with_its_pilot():
    X = KINDS["laplace"]
    result = run(X, refine=None)
    assert result.pilot == "l3"  # the paper's objective, of whatever kind codes are
    assert result.n_iter < run(X).n_iter
    assert np.mean(measure_errors(draw_atoms(5).T, result.mixing)) < 0.05
    assert np.max(measure_errors(result.mixing, run(X).mixing)) > SAME


def test_observer_that_stops_always_ends_the_fit():
    result = run(KINDS["laplace"], [lambda state: True], error_bars=True)
    assert result.state.reason is Reason.STOPPED
    assert not result.converged
    assert not result.has_replicates
    check_finite(result, 5, 5)


# --- hostile samples --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("factor", [1e2, 1e4])
def test_fit_with_one_outlier_is_still_climbed(factor):
    X = draw("laplace", 1000, 5) @ draw_atoms(5)
    X[0] *= factor
    result = run(X)
    assert result.state.reason is not Reason.TOO_FEW
    # (n - 1) / r is the bound; normalised samples cost about as much again
    assert np.mean(measure_errors(draw_atoms(5).T, result.mixing)) < 10 * 4 / 1000


def test_fit_with_a_silent_part_states_that_nothing_is_known():
    X = np.zeros((9000, 3))
    X[:200] = draw("laplace", 200, 3)
    result = run(X, error_bars=True)
    assert np.all(result.component_errors > 0.5)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("options", [{}, {"refine": None}, {"normalize": "samples"}, {"p": 1.5}], ids=str)
def test_error_bars_come_from_fits_with_the_pilot_and_the_model_of_all_samples(monkeypatch, kind, options):
    module, found = importlib.import_module("elldict.fit"), []
    find_atoms = module.find_atoms
    monkeypatch.setattr(module, "find_atoms", lambda *a, **k: found.append(find_atoms(*a, **k)) or found[-1])
    result = run(KINDS[kind], error_bars=True, max_iter=20, **options)
    whole, *parts = found
    assert len(parts) == 6  # two splits in thirds
    assert whole.pilot == result.pilot
    for part in parts:
        assert (part.pilot, part.is_pilot) == (whole.pilot, whole.is_pilot)
        assert (part.model is None) == (whole.model is None)
        # parts of 1/3 are made of 14 or 15 blocks
        assert part.statistics.n_samples == pytest.approx(len(KINDS[kind]) * 2 / 3, abs=len(KINDS[kind]) / 42 + 1)
