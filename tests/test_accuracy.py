"""Whole fits: exact recovery, the Cramer-Rao bound, errors that fall like one over the number of samples, weights."""

import math

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.stats import norm

from elldict.atoms import Options
from elldict.fit import fit
from elldict.samples.arrays import ArraySamples, scale_weights
from elldict.samples.order import find_order
from elldict.solver.climb import Reason
from elldict.theory import cramer_rao_bound
from tests.fits import DENSITY, NOISE, draw, draw_atoms, measure_errors, run


@pytest.mark.parametrize(("r", "n", "density"), [(200, 6, 0.3), (2000, 10, 0.1), (2000, 10, 0.4), (9000, 4, 0.5)])
def test_fit_of_noiseless_sparse_codes_is_exact(r, n, density):
    rng, A = np.random.default_rng(1), draw_atoms(n)
    Z = rng.standard_normal((r, n)) * (rng.random((r, n)) < density)
    result = run(Z @ A)
    assert np.max(measure_errors(A.T, result.mixing)) < 1e-14
    assert result.state.reason is Reason.ROUNDING
    assert result.converged
    assert result.is_exact
    np.testing.assert_array_equal(result.component_errors, 1e-15)


def test_whitened_fit_keeps_densities_as_wide_as_whitening_blurs_codes():
    # second moments are off by 1 / sqrt(r) for each of k codes
    X = draw("sparse", 1500, 6) @ draw_atoms(6)
    blur = math.sqrt(6 / 1500)
    whitened, raw = run(X, whiten=True, orthogonal=True), run(X)
    assert np.min(whitened.state.blur) >= blur * (1 - 1e-9)
    assert np.min(whitened.state.objective.narrowest) >= blur * (1 - 1e-9)
    assert np.max(raw.state.blur) < 1e-9


def find_bound(law, n, r):
    """Mean error 1 - cos^4 of an efficient estimate of an orthonormal basis.

    Scores g of codes of variance v have E g z = 1, so the angle of a pair has the information
    r E (g_i z_j - g_j z_i)^2 = 2 r (J v - 1), J = E g^2; and an error is twice the sum of n - 1 squared angles.
    """
    if law == "laplace":
        return (n - 1) / r  # J v = 2
    variances, weights = np.array([NOISE**2, 1 + NOISE**2]), np.array([1 - DENSITY, DENSITY])

    def integrand(z):
        parts = weights * norm.pdf(z, 0, np.sqrt(variances))
        return np.sum(parts * z / variances) ** 2 / np.sum(parts)

    J = 2 * quad(integrand, 0, 8, points=[0.1, 0.3, 1], limit=200)[0]
    return (n - 1) / (r * (J * np.sum(weights * variances) - 1))


@pytest.mark.parametrize("law", ["noisy", "laplace"])
def test_fit_reaches_the_cramer_rao_bound(law):
    n, r, seeds, A = 8, 5000, range(6), draw_atoms(8)
    errors = [np.mean(measure_errors(A.T, run(draw(law, r, n, seed) @ A).mixing)) for seed in seeds]
    if law == "noisy":
        bound = cramer_rao_bound(n_features=n, n_samples=r, density=DENSITY, noise_std=NOISE)
        assert bound == pytest.approx(find_bound(law, n, r), rel=1e-6)
    # 28 angles in each of 6 fits; estimated densities cost a few per cent
    chance = math.sqrt(2 / (len(seeds) * n * (n - 1) / 2))
    ratio = np.mean(errors) / find_bound(law, n, r)
    assert 1 - 4 * chance < ratio < 1.1 + 4 * chance


@pytest.mark.parametrize(
    ("law", "per_feature", "factor"),
    [
        # at 10 n the errors of Laplace codes, .45, are far from small: errors times samples are 36, 22 and 8 there
        ("laplace", (10, 30, 500), 8.0),
        ("noisy", (10, 30, 500), 4.0),
        # below some 30 n, flat and skewed codes are found in some draws of samples and not in others
        ("uniform", (50, 150, 500), 4.0),
        ("exponential", (50, 150, 500), 4.0),
    ],
)
def test_fit_error_times_samples_is_almost_constant(law, per_feature, factor):
    n, A, scaled = 8, draw_atoms(8), []
    for ratio in per_feature:
        errors = [np.mean(measure_errors(A.T, run(draw(law, ratio * n, n, seed) @ A).mixing)) for seed in range(3)]
        scaled.append(np.median(errors) * ratio * n)
    # chance: 84 angles, 16%, about three times as much for the sixty quarters of a median
    assert max(scaled) / min(scaled) < factor
    assert scaled[-1] <= scaled[0] * 1.5


@pytest.mark.parametrize("law", ["laplace", "noisy"])
def test_fit_error_does_not_jump_where_cross_validation_begins(law):
    n, A = 6, draw_atoms(6)
    below, above = (
        np.mean([measure_errors(A.T, run(draw(law, 60, n, seed)[:r] @ A).mixing) for seed in range(4)])
        for r in (59, 60)
    )
    # the same samples but for one: two ways to decide, of which neither may be much worse
    assert 0.5 < above / below < 2


def test_fit_of_a_common_scale_normalises_samples():
    A, errors = draw_atoms(6), []
    for seed in (1, 2, 3):
        scale = np.exp(np.random.default_rng(seed + 3).standard_normal((1000, 1)))
        X = draw("laplace", 1000, 6, seed) * scale @ A
        result = run(X)
        # of all samples but those of almost no length
        np.testing.assert_allclose(result.normalization.median, find_order(ArraySamples(X)).median, rtol=1e-12)
        errors.append(np.mean(measure_errors(A.T, result.mixing)))
    # 45 angles, a fifth; scales that are unknown cost up to a half
    assert np.mean(errors) < 2.5 * find_bound("laplace", 6, 1000)
    assert run(X, normalize=None).normalization is None
    plain = draw("laplace", 1000, 6) @ A
    assert run(plain).normalization is None
    assert run(plain, normalize="samples").normalization is not None


# --- weights ----------------------------------------------------------------------------------------------------------


def fit_weighted(X, weights=None, groups=None, n_threads=1, **options):
    return fit(ArraySamples(X, n_threads, weights), Options(**{"error_bars": False, **options}), groups=groups)


def draw_copied(law, r, n=5, low=1):
    """Samples with whole weights."""
    X, w = draw(law, r, n) @ draw_atoms(n), np.random.default_rng(7).integers(low, 4, r).astype(float)
    for each in (X, w):
        each.setflags(write=False)
    return X, w


def check_same(one, other, tolerance=1e-9):
    """Compare all that two results state.

    Atoms and errors depend on sums that are rounded to 1e-16, in other orders; every step of a climb repeats that, and
    some of them are as far from a maximum as chance is.
    """
    for name in ("mixing", "unmixing", "mean", "code_std", "objective", "n_passes"):
        ours, theirs = getattr(one, name), getattr(other, name)
        np.testing.assert_allclose(ours, theirs, rtol=tolerance, atol=tolerance, err_msg=name)
    np.testing.assert_allclose(one.component_errors, other.component_errors, rtol=100 * tolerance)
    for name in ("pilot", "is_pilot", "n_iter", "status", "findings", "is_exact", "has_replicates"):
        assert getattr(one, name) == getattr(other, name), name
    assert (one.normalization is None) == (other.normalization is None)
    if one.pilot:  # of a fit by power, the codes of all samples are not looked at
        np.testing.assert_array_equal(one.density.has_offsets, other.density.has_offsets)
        np.testing.assert_allclose(one.density.value, other.density.value, rtol=tolerance)


COPIED = {"laplace": 900, "exponential": 900, "uniform": 900, "sparse": 900, "few": 70}


@pytest.mark.parametrize("kind", COPIED)
@pytest.mark.parametrize(
    "options",
    [
        {"error_bars": True},
        {"whiten": True, "center": True},
        {"refine": None},
        {"normalize": "samples"},
        {"solver": "power"},
        {"n_components": 3},
    ],
    ids=str,
)
def test_fit_of_weighted_samples_is_that_of_copies(kind, options):
    X, w = draw_copied("laplace" if kind == "few" else kind, COPIED[kind], low=0)
    copies = np.repeat(X, w.astype(int), axis=0)
    if kind == "few":
        assert len(copies) < 32 * 5  # cross-validated
    check_same(fit_weighted(X, w, **options), fit_weighted(copies, **options))


@pytest.mark.parametrize("law", ["laplace", "noisy"])
def test_fit_of_many_weighted_samples_is_that_of_copies(law):
    # some sixty thousand copies, forty times those that curvatures are computed from; without noise, the densities of
    # zeros, which are rounded to a share of the narrowest width, would not be known to 1e-9
    X, w = draw_copied(law, 30_000)
    check_same(fit_weighted(X, w), fit_weighted(np.repeat(X, w.astype(int), axis=0)))


@pytest.mark.parametrize("w", [np.arange(900) % 3 * 0.7, np.random.default_rng(0).uniform(-1, 1, 900)])
def test_fit_leaves_out_samples_of_weight_zero(w):
    X, w, groups = draw_copied("laplace", 900)[0], np.maximum(w, 0.0), np.random.default_rng(1).permutation(900) % 30
    hidden, kept = np.where(w[:, None] > 0, X, 1e6), w > 0
    one = fit_weighted(hidden, w, groups, error_bars=True)
    other = fit_weighted(X[kept], w[kept], groups[kept], error_bars=True)
    for name in ("mixing", "unmixing", "mean", "code_std", "component_errors"):
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name), err_msg=name)
    assert one.findings == other.findings


@pytest.mark.parametrize("factor", [1e-200, 0.3, 1e3])
def test_fit_of_fractional_weights_does_not_depend_on_their_scale(factor):
    X, w = draw_copied("laplace", 900)[0], np.random.default_rng(1).exponential(size=900)
    check_same(fit_weighted(X, w, error_bars=True), fit_weighted(X, factor * w, error_bars=True))
    # as many as have the same effect if they have equal weights
    few = fit_weighted(X[:9], w[:9]).findings[-1].message
    assert few.startswith(f"{np.sum(w[:9]) ** 2 / np.sum(w[:9] ** 2):g} samples of 5 features are too few")
    np.testing.assert_allclose(np.sum(scale_weights(factor * w)), np.sum(w) ** 2 / np.sum(w**2), rtol=1e-12)


@pytest.mark.parametrize("weight", [1.0, 0.3])
@pytest.mark.parametrize("law", ["laplace", "exponential"])
def test_fit_of_equal_weights_has_the_bits_of_a_fit_without_weights(law, weight):
    X, _ = draw_copied(law, 900)
    np.testing.assert_array_equal(fit_weighted(X, np.full(900, weight)).mixing, fit_weighted(X).mixing)


def test_fit_of_weighted_samples_with_more_threads_gives_the_same_bits():
    X, w = draw_copied("noisy", 70_000)  # more than one block
    for weights in (w, w / 3 + 0.1):
        one, other = (fit_weighted(X, weights, n_threads=n) for n in (1, 2))
        np.testing.assert_array_equal(one.mixing, other.mixing)


@pytest.mark.parametrize("law", ["laplace", "noisy"])
def test_stated_error_of_samples_with_fractional_weights_is_within_a_factor_of_the_true_one(law):
    """Weights have nothing to do with codes: they lower the effective sample size, by half if exponential."""
    n, r, A, stated, true, equal = 6, 6000, draw_atoms(6), [], [], []
    for seed in range(4):
        X, w = draw(law, r, n, seed) @ A, np.random.default_rng(seed + 50).exponential(size=r)
        result = fit(ArraySamples(X, weights=w), Options())
        stated.append(np.mean(result.component_errors))
        true.append(np.mean(measure_errors(A.T, result.mixing)))
        equal.append(np.mean(measure_errors(A.T, run(X).mixing)))
    # 60 angles: a relative error of sqrt(2 / 60) for the true ones, half as much again for the stated ones
    assert 1 / 2.5 < np.mean(stated) / np.mean(true) < 2.5
    # E w^2 / (E w)^2 = 2 times as large as with equal weights, within four errors of the ratio, sqrt(4 / 60) each
    assert 1 < np.mean(true) / np.mean(equal) < 2 * (1 + 4 * math.sqrt(4 / 60))
