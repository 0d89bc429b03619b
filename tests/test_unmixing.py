"""Limits of accuracy for whole mixing matrices, and fits that reach them."""

from dataclasses import replace

import numpy as np
import pytest

from elldict import LpDictionaryLearning, LpICA, load
from elldict.exceptions import NotIdentifiableWarning
from elldict.metrics import match_atoms
from elldict.solver.density import Density
from elldict.solver.evaluate import LEAST_EIGENVALUE, Shears, evaluate_shears
from elldict.solver.steps import shear
from elldict.theory import bernoulli_gaussian_information, cramer_rao_bound, crosstalk_bound
from elldict.warnings import list_numbers
from tests.fits import draw, make_subset, measure_errors, run

SLAB, NOISE = 0.3, 0.4


def score_noisy(s):
    """Score psi = -q'/q, and its derivative, of noisy Bernoulli-Gaussian codes of unit variance."""
    total = SLAB + NOISE**2
    wide, narrow = (1 + NOISE**2) / total, NOISE**2 / total
    active = SLAB / np.sqrt(wide) * np.exp(-0.5 * s * s / wide)
    idle = (1 - SLAB) / np.sqrt(narrow) * np.exp(-0.5 * s * s / narrow)
    p = active / (active + idle)
    rate = p / wide + (1 - p) / narrow
    return s * rate, rate - s * s * p * (1 - p) * (1 / wide - 1 / narrow) ** 2


def score_sech(s):
    """Score, and its derivative, of the hyperbolic secant distribution, whose variance is one."""
    t = np.tanh(np.pi / 2 * s)
    return np.pi / 2 * t, np.pi**2 / 4 * (1 - t * t)


def draw_sources(rng, r):
    """Draw sources (3, r): noisy, sech, noisy."""
    noisy = rng.standard_normal((2, r)) * (rng.random((2, r)) < SLAB) + NOISE * rng.standard_normal((2, r))
    noisy /= np.sqrt(SLAB + NOISE**2)
    return np.stack([noisy[0], 2 / np.pi * np.log(np.tan(np.pi / 2 * rng.random(r))), noisy[1]])


def estimate_unmixing(S):
    """Maximise the likelihood of the known densities over invertible matrices, by Newton steps from the truth."""
    W = np.eye(3)
    for _ in range(20):
        Z = W @ S
        g, slope = np.stack([score_noisy(Z[0]), score_sech(Z[1]), score_noisy(Z[2])], axis=1)
        gradient = np.eye(3) - g @ Z.T / S.shape[1]
        hessian = slope @ (Z * Z).T / S.shape[1]
        step = gradient / (hessian + np.eye(3))
        for i, j in ((0, 1), (0, 2), (1, 2)):
            block = np.array([[hessian[i, j], 1], [1, hessian[j, i]]])
            step[i, j], step[j, i] = np.linalg.solve(block, [gradient[i, j], gradient[j, i]])
        W = W + step @ W
        if np.max(np.abs(step)) < 1e-9:
            break
    return W


def test_crosstalk_bound_is_the_variance_of_maximum_likelihood():
    rng, r, n_draws = np.random.default_rng(0), 2000, 400
    found = np.array([estimate_unmixing(draw_sources(rng, r)) for _ in range(n_draws)])
    variances = np.var(found, axis=0)
    noisy, sech = bernoulli_gaussian_information(SLAB, NOISE), np.pi**2 / 8
    bound = crosstalk_bound([noisy, sech, noisy], n_samples=r)
    off_diagonal = ~np.eye(3, dtype=bool)
    # a variance of 400 normal numbers has the relative error sqrt(2 / 400) = 7 %; terms of higher order are n / r
    np.testing.assert_allclose(variances[off_diagonal] / bound[off_diagonal], 1, atol=4 * 0.07)


def test_crosstalk_bound_of_orthogonal_matrices_is_not_above_that_of_all():
    k = np.array([1.1, 1.5, 4.0, np.inf])
    free, orthogonal = (crosstalk_bound(k, n_samples=10, orthogonal=each) for each in (False, True))
    assert np.all(orthogonal <= free + 1e-15)
    np.testing.assert_allclose(free[2, 3], 0.1 / 4)  # noise of the third source is all that blurs zeros of the fourth
    np.testing.assert_array_equal(free[3], 0)


def test_crosstalk_bound_of_two_gaussian_sources_is_infinite():
    for orthogonal in (False, True):
        bound = crosstalk_bound([1, 1, 2], n_samples=10, orthogonal=orthogonal)
        assert bound[0, 1] == bound[1, 0] == np.inf
        assert np.all(np.isfinite(bound[2]))
        np.testing.assert_array_equal(np.diag(bound), 0)


def test_cramer_rao_bound_of_invertible_matrices_is_the_sum_of_crosstalk():
    known = {"n_features": 5, "n_samples": 1000, "density": SLAB, "noise_std": NOISE}
    k = bernoulli_gaussian_information(SLAB, NOISE)
    for orthogonal in (False, True):
        columns = 2 * crosstalk_bound(np.full(5, k), n_samples=1000, orthogonal=orthogonal).sum(axis=0)
        np.testing.assert_allclose(cramer_rao_bound(**known, orthogonal=orthogonal), columns, rtol=1e-12)


@pytest.mark.parametrize("information", [[0.9, 2], [[1.0, 2.0]], [np.nan, 2]], ids=str)
def test_crosstalk_bound_of_no_information_is_refused(information):
    with pytest.raises(ValueError, match="expected numbers >= 1"):
        crosstalk_bound(information, n_samples=10)


# --- derivatives and steps --------------------------------------------------------------------------------------------


def make_atoms(subset, seed=1, size=0.05):
    """Invertible atoms of codes of unit variance, with a constant."""
    n = subset.shape[1]
    rng = np.random.default_rng(seed)
    A = np.column_stack([np.eye(n) + size * rng.standard_normal((n, n)), 0.1 * rng.standard_normal(n)])
    return subset.standardize(A)


def value_of(subset, density, A):
    """Log-likelihood per sample under densities that are not fitted again."""
    Z = subset.samples.X @ A[:, :-1].T + A[:, -1]
    return np.mean(np.sum(density.log_density(Z), axis=1)) + np.linalg.slogdet(A[:, :-1])[1]


def test_evaluate_shears_has_the_slopes_of_the_log_likelihood():
    subset = make_subset(draw("laplace", 3000, 4))
    A = make_atoms(subset)
    codes = subset.encode(A)
    density = Density.begin(4).refit(codes, choose=True)
    at = evaluate_shears(codes, density, A)
    np.testing.assert_allclose(at.value, value_of(subset, density, A), rtol=1e-10)
    # log q is a parabola within a bin, and continuous up to the second order of the width of bins: 6 to 12 %
    for i, j in ((0, 1), (1, 0), (3, 2), (2, 4)):
        D = np.zeros((4, 5))
        D[i, j] = h = 1e-4
        up, down = (value_of(subset, density, shear(A, sign * D)) for sign in (1, -1))
        np.testing.assert_allclose(at.slope[i, j], (up - down) / (2 * h), rtol=0.02, atol=2e-3)
    np.testing.assert_array_equal(np.diag(at.slope), 0)


def draw_shears(n=4, seed=0):
    rng = np.random.default_rng(seed)
    return Shears(0.0, rng.standard_normal((n, n + 1)), rng.uniform(1.2, 5, (n, n + 1)), np.ones((n, n + 1)), 100.0)


def test_shears_solve_is_the_newton_step_of_each_pair_and_constant():
    at = draw_shears()
    D = at.solve(at.slope)
    for i, j in ((0, 1), (2, 3)):
        block = np.array([[at.bend[i, j], 1], [1, at.bend[j, i]]])
        np.testing.assert_allclose(block @ [D[i, j], D[j, i]], [at.slope[i, j], at.slope[j, i]], rtol=1e-12)
    np.testing.assert_allclose(D[:, -1], at.slope[:, -1] / at.bend[:, -1], rtol=1e-14)
    np.testing.assert_array_equal(np.diag(D), 0)
    pairs = at.slope.copy()
    np.fill_diagonal(pairs, 0)
    np.testing.assert_allclose(at.rise, np.sum(pairs * D) / 2, rtol=1e-12)


def test_shears_chance_and_errors_are_those_of_maximum_likelihood():
    """At the truth, slopes have the information as their variance: a coefficient gains half a nat in all samples."""
    at = draw_shears()
    at = replace(at, variance=at.bend / at.n_samples)
    n = len(at.bend)
    np.testing.assert_allclose(at.rise_by_chance, (n * (n - 1) + n) / 2 / at.n_samples, rtol=1e-12)
    k = np.array([1.3, 2.0, 7.0])
    equal = Shears(0.0, np.zeros((3, 3)), np.tile(k[:, None], 3), np.ones((3, 3)), 50.0)
    np.testing.assert_allclose(equal.error_variance, crosstalk_bound(k, n_samples=50), rtol=1e-12)


def test_evaluate_shears_of_gaussian_codes_bounds_the_curvature_of_pairs():
    subset = make_subset(draw("gauss", 500, 3))
    codes = subset.encode(A := make_atoms(subset, size=0.0))
    at = evaluate_shears(codes, Density.begin(3).refit(codes, choose=True), A)
    for i, j in ((0, 1), (0, 2), (1, 2)):
        block = np.array([[at.bend[i, j], 1], [1, at.bend[j, i]]])
        assert np.linalg.eigvalsh(block)[0] > LEAST_EIGENVALUE * (1 - 1e-9)


@pytest.mark.parametrize("with_constant", [False, True])
def test_shear_adds_rows_and_constants(with_constant):
    rng = np.random.default_rng(0)
    A, D = rng.standard_normal((2, 3, 3 + with_constant))
    Y = rng.standard_normal((10, 3))

    def encode(B):
        return Y @ B[:, :3].T + B[:, 3:].sum(axis=1)

    Z = encode(A)
    np.testing.assert_allclose(encode(shear(A, D)), Z + Z @ D[:, :3].T + D[:, 3:].sum(axis=1), atol=1e-12)


# --- fits -------------------------------------------------------------------------------------------------------------

WHITE = {"whiten": True, "center": True}


def mix(law, r, n, seed=0):
    """Sources mixed by a random matrix, with a mean; returns samples and the matrix."""
    mixing = np.random.default_rng(seed + 100).standard_normal((n, n))
    return draw(law, r, n, seed) @ mixing.T + 3, mixing


@pytest.mark.parametrize(("n", "r"), [(4, 800), (12, 1500)])
@pytest.mark.parametrize("scale", [1.0, 1e-3])
def test_whitened_fit_of_sparse_sources_without_noise_is_exact(n, r, scale):
    X, mixing = mix("sparse", r, n)
    result = run(scale * X, error_bars=True, **WHITE)
    assert result.is_exact
    assert not result.is_orthogonal
    np.testing.assert_array_equal(result.component_errors, 1e-15)
    assert np.max(measure_errors(mixing, result.mixing)) < 1e-13
    assert "over all invertible matrices" in result.status
    orthogonal = run(scale * X, orthogonal=True, **WHITE)
    assert orthogonal.is_orthogonal
    assert np.mean(measure_errors(mixing, orthogonal.mixing)) > 1e-4


@pytest.mark.parametrize("law", ["noisy", "exponential", "uniform"])
def test_whitened_fit_is_more_accurate_than_the_best_rotation(law):
    """Their information is above 4, for which theory says 0.65 of the error, or they have edges."""
    errors = np.zeros(2)
    for seed in range(4):
        X, mixing = mix(law, 3000, 6, seed)
        errors += [np.mean(measure_errors(mixing, run(X, orthogonal=each, **WHITE).mixing)) for each in (False, True)]
    assert errors[0] < 0.8 * errors[1]


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("options", [{}, {"orthogonal": True}], ids=str)
def test_whitened_fit_of_skewed_sources_separates_all_of_them(seed, options):
    """FastICA has errors of about 0.01; those of two sources that are mixed equally would be 0.75 in two of five."""
    X, mixing = mix("exponential", 1500, 5, seed)
    assert np.max(measure_errors(mixing, run(X, **WHITE, **options).mixing)) < 0.05


@pytest.mark.parametrize("law", ["laplace", "gauss"])
def test_whitened_fit_of_codes_close_to_gaussian_is_about_as_accurate(law):
    X, mixing = mix(law, 3000, 6)
    free, orthogonal = (run(X, orthogonal=each, **WHITE) for each in (False, True))
    assert np.mean(measure_errors(mixing, free.mixing)) < 1.2 * np.mean(measure_errors(mixing, orthogonal.mixing))


def test_fit_without_whitening_keeps_atoms_orthonormal():
    X = draw("sparse", 800, 5)
    one, other = (run(X, orthogonal=each) for each in (False, True))
    np.testing.assert_array_equal(one.mixing, other.mixing)
    assert one.is_orthogonal
    np.testing.assert_allclose(one.mixing.T @ one.mixing, np.eye(5), atol=1e-12)


@pytest.mark.parametrize("law", ["noisy", "exponential"])
def test_whitened_fit_is_equivariant_to_invertible_maps_and_the_order_of_rows(law):
    X, _ = mix(law, 2000, 5)
    rng = np.random.default_rng(4)
    B, order = rng.standard_normal((5, 5)), rng.permutation(len(X))
    one, other = run(X, **WHITE), run(X[order] @ B.T - 7, **WHITE)
    np.testing.assert_allclose(measure_errors(B @ one.mixing, other.mixing), 0, atol=1e-8)


def draw_scaled(r=4000, n=6, seed=0):
    """Samples of varying scale, whose normalised codes are independent."""
    rng = np.random.default_rng(seed)
    mixing = rng.standard_normal((n, n))
    return rng.laplace(size=(r, n)) * np.exp(rng.standard_normal((r, 1))) @ mixing.T, mixing


def test_whitened_fit_of_samples_of_varying_scale_measures_norms_in_white_coordinates(tmp_path):
    X, mixing = draw_scaled()
    model = LpICA(error_bars=False).fit(X)
    normalization = model._distribution.normalization
    assert normalization.metric is not None
    white = (X - model.mean_) @ model.whitening_.T * np.sqrt(len(X))
    Z = model.transform(X)
    np.testing.assert_allclose(normalization.measure(Z)[:, 0], np.sum(white**2, axis=1), rtol=1e-8)
    assert np.mean(measure_errors(mixing, model.mixing_)) < np.mean(
        measure_errors(mixing, LpICA(error_bars=False, orthogonal=True).fit(X).mixing_)
    )
    model.save(tmp_path / "model.npz")
    again = load(tmp_path / "model.npz")
    np.testing.assert_array_equal(again.score_samples(X), model.score_samples(X))
    np.testing.assert_array_equal(again.whitening_, model.whitening_)


@pytest.mark.parametrize("law", ["noisy", "exponential"])
def test_score_of_a_whitened_fit_is_a_density(law):
    """Its mean over draws of a wide density, divided by that density, is the integral: one."""
    X, _ = mix(law, 4000, 3)
    model = LpICA(error_bars=False).fit(X)
    rng, wide = np.random.default_rng(1), np.linalg.cholesky(2 * np.cov(X.T))
    t = rng.standard_t(2, (400_000, 3))
    logs = np.sum(-1.5 * np.log1p(t**2 / 2) - 1.5 * np.log(2), axis=1) - np.linalg.slogdet(wide)[1]
    ratio = np.exp(model.score_samples(X.mean(axis=0) + t @ wide.T) - logs)
    assert abs(np.mean(ratio) - 1) < 5 * np.std(ratio) / np.sqrt(len(ratio)) + 0.01


def test_ica_that_is_not_orthogonal_keeps_the_conventions():
    X, _ = mix("exponential", 3000, 4)
    model = LpICA(random_state=0, error_bars=False).fit(X)
    Z = model.transform(X)
    np.testing.assert_allclose(Z.mean(axis=0), 0, atol=1e-10)
    np.testing.assert_allclose(Z.var(axis=0), 1, atol=1e-10)
    np.testing.assert_allclose(model.inverse_transform(Z), X, atol=1e-10)
    np.testing.assert_allclose(model.mixing_, np.linalg.inv(model.components_), atol=1e-10)
    dictionary = LpDictionaryLearning(center=True, whiten=True, error_bars=False).fit(X)
    np.testing.assert_allclose(match_atoms(dictionary.mixing_.T, model.mixing_.T).cosines, 1, atol=1e-12)


def test_error_bars_of_a_whitened_fit_are_about_the_error():
    """Estimates that compare a few fits are within a factor 3 in the mean over twelve components."""
    X, mixing = mix("exponential", 6000, 12)
    result = run(X, error_bars=True, **WHITE)
    ratio = np.mean(result.component_errors) / np.mean(measure_errors(mixing, result.mixing))
    assert 1 / 3 < ratio < 3


@pytest.mark.parametrize(("n", "r"), [(4, 1000), (10, 10_000), (30, 3000)])
def test_whitened_fit_of_gaussian_sources_names_all_of_them(n, r):
    X, _ = mix("gauss", r, n)
    (finding,) = run(X, **WHITE).findings
    assert finding.category is NotIdentifiableWarning
    assert list_numbers(np.arange(n)) in finding.message


def test_whitened_fit_names_gaussian_sources_alone():
    sources = np.c_[draw("gauss", 3000, 3), draw("laplace", 3000, 5)]
    result = run(sources @ np.random.default_rng(1).standard_normal((8, 8)).T, **WHITE)
    (finding,) = result.findings
    assert len(finding.message.split(" are not")[0].split(",")) == 3
