"""Codes, thresholds, posterior means and likelihoods, compared with their definitions."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.stats import multivariate_normal

from elldict import LpDictionaryLearning, LpICA, transform
from elldict.datasets import make_bernoulli_gaussian
from elldict.denoising import Distribution, SpikeSlab, find_thresholds, fit_spike_slab, limit_noise
from elldict.exceptions import NotIdentifiableWarning, NotWhiteWarning
from elldict.samples import base
from elldict.samples.normalization import Normalization
from tests.fits import draw, draw_atoms

DENSITY, SCALE, NOISE = 0.3, 1.5, 0.2
LAW = SpikeSlab(np.array([DENSITY]), np.array([SCALE]), NOISE)


def compute_gaussian(z, std):
    return np.exp(-0.5 * (z / std) ** 2) / (np.sqrt(2 * np.pi) * std)


def compute_posterior_mean(z):
    """Integrate over the code x, given z = x + noise: x is zero, or Gaussian."""
    x, dx = np.linspace(-12, 12, 40_001, retstep=True)
    slab = DENSITY * compute_gaussian(x, SCALE) * compute_gaussian(z[:, None] - x, NOISE)
    total = dx * slab.sum(axis=1) + (1 - DENSITY) * compute_gaussian(z, NOISE)
    return dx * (slab @ x) / total


# Distribution of codes


def test_spike_slab_density_integrates_to_one():
    z, dz = np.linspace(-15, 15, 30_001, retstep=True)
    assert np.sum(np.exp(LAW.log_density(z[:, None]))) * dz == pytest.approx(1, abs=1e-9)


@pytest.mark.parametrize("scale", [1.0, 30.0])
def test_spike_slab_score_is_the_derivative_of_the_log_density(scale):
    law, h = SpikeSlab(LAW.density, scale * LAW.scale, scale * LAW.noise_std), 1e-5 * scale
    z = np.linspace(-5, 5, 101)[:, None] * scale
    assert_allclose(law.score(z), (law.log_density(z + h) - law.log_density(z - h)) / (2 * h), rtol=1e-6, atol=1e-6)


def test_spike_slab_fit_recovers_density_scale_and_noise(rng):
    density, scale = np.array([0.1, 0.3, 0.5]), np.array([1.0, 2.0, 0.7])
    Z = rng.standard_normal((60_000, 3)) * scale * (rng.random((60_000, 3)) < density)
    found = fit_spike_slab(Z + 0.3 * rng.standard_normal(Z.shape))
    assert_allclose(found.density, density, rtol=0.1)
    assert_allclose(found.scale, scale, rtol=0.03)
    assert found.noise_std == pytest.approx(0.3, rel=0.02)


def test_spike_slab_fit_of_exact_codes_has_no_noise(rng):
    Z = rng.standard_normal((20_000, 4)) * (rng.random((20_000, 4)) < DENSITY)
    found = fit_spike_slab(Z)
    assert found.noise_std == 0
    assert_allclose(found.density, np.mean(Z != 0, axis=0), atol=1e-6)
    assert_allclose(found.scale**2, np.sum(Z**2, axis=0) / np.sum(Z != 0, axis=0), rtol=5e-3)  # from bins


def test_spike_slab_fit_of_sub_gaussian_codes_has_density_one(rng):
    found = fit_spike_slab(rng.uniform(-1, 1, (5000, 3)))
    assert_array_equal(found.density, 1)
    assert_allclose(found.scale, 1 / np.sqrt(3), rtol=0.03)
    assert found.noise_std == 0


def test_spike_slab_fit_with_weights_is_that_of_repeated_codes(rng):
    Z, weights = draw("noisy", 3000, 2), rng.integers(0, 4, 3000)
    one, other = fit_spike_slab(Z, weights.astype(float)), fit_spike_slab(np.repeat(Z, weights, axis=0))
    assert_allclose(one.density, other.density, rtol=1e-9)
    assert_allclose(one.scale, other.scale, rtol=1e-9)


# Posterior means


def test_posterior_mean_of_bernoulli_gaussian_codes_is_that_by_quadrature():
    z = np.linspace(-4, 4, 81)
    rule = Distribution(LAW).make_posterior_mean(np.array([NOISE]))
    assert_allclose(rule(z[:, None])[:, 0], compute_posterior_mean(z), atol=1e-6)


def test_posterior_mean_without_noise_is_the_code():
    z = np.linspace(-4, 4, 9)[:, None]
    assert_array_equal(Distribution(LAW).make_posterior_mean(np.zeros(1))(z), z)


def test_posterior_mean_increases_where_the_noise_is_larger_than_the_density_allows():
    """Without the limit, small codes would change their sign."""
    z = np.linspace(-3, 3, 601)[:, None]
    assert limit_noise(LAW, np.array([1.0])) < 1.2 * NOISE
    found = Distribution(LAW).make_posterior_mean(np.array([1.0]), is_known=False)(z)
    assert np.all(np.diff(found[:, 0]) > -1e-3)
    assert np.any(np.diff((z + 1.0 * LAW.score(z))[:, 0]) < -0.05)


def test_posterior_mean_for_known_noise_lies_between_zero_and_the_code():
    """Also where the density is narrower than the noise, as that of samples without noise is."""
    z = np.linspace(-3, 3, 601)[:, None]
    found = Distribution(LAW).make_posterior_mean(np.array([1.0]))(z)
    assert np.all(found * z >= 0)
    assert np.all(np.abs(found) <= np.abs(z))


def test_posterior_mean_of_normalised_samples_has_less_error_than_codes(rng):
    """Codes of all sizes, with a common factor for each sample, and noise of one size."""
    m, median = 50, 25.0
    clean = draw("sparse", 4000, m) * np.exp(rng.standard_normal((4000, 1)))
    Z = clean + 0.3 * rng.standard_normal(clean.shape)
    x = Normalization(median).apply(Z)
    found = fit_spike_slab(x)
    rule = Distribution(found, Normalization(median)).make_posterior_mean(np.full(m, 0.3))
    assert np.mean((rule(Z) - clean) ** 2) < 0.8 * np.mean((Z - clean) ** 2)


# Thresholds


@pytest.mark.parametrize("soft", [True, False])
def test_automatic_threshold_has_the_smallest_error_of_all(soft, rng):
    """Up to the sampling error of the error, measured with the same codes for all thresholds."""
    x = SCALE * rng.standard_normal(200_000) * (rng.random(200_000) < DENSITY)
    z = x + NOISE * rng.standard_normal(200_000)
    rule = transform.shrink if soft else transform.keep_above
    errors = {t: np.mean((rule(z, t) - x) ** 2) for t in np.linspace(0.02, 1.2, 60)}
    found = float(find_thresholds(LAW, np.array([NOISE]), soft=soft)[0])
    assert np.mean((rule(z, found) - x) ** 2) < 1.002 * min(errors.values())
    assert abs(found - min(errors, key=errors.get)) < 0.06


def test_thresholds_without_noise_are_zero():
    assert_array_equal(find_thresholds(LAW, np.zeros(1), soft=True), 0)


def test_largest_codes_of_each_sample_are_kept():
    Z = np.array([[3.0, -5, 1, 4], [0, 0, 2, -2], [1, 1, 1, 1]])
    assert_array_equal(transform.keep_largest(Z, 2), [[0, -5, 0, 4], [0, 0, 2, -2], [1, 1, 0, 0]])


def test_transform_algorithms_make_sparse_codes():
    X = draw("noisy", 1000, 6)
    model = LpDictionaryLearning(error_bars=False).fit(X)
    linear = model.transform(X)

    def compute(algorithm, alpha):
        return model.set_params(transform_algorithm=algorithm, transform_alpha=alpha).transform(X)

    assert_array_equal(compute("hard_threshold", 0.5), np.where(np.abs(linear) > 0.5, linear, 0))
    assert_allclose(compute("threshold", 0.5), np.sign(linear) * np.maximum(np.abs(linear) - 0.5, 0))
    assert np.all(np.sum(compute("top_k", 2) != 0, axis=1) == 2)
    assert np.all(np.sum(compute("top_k", None) != 0, axis=1) == 1)  # a tenth of six features, at least one
    assert_allclose(model.inverse_transform(compute("posterior", None)), model.denoise(X), atol=1e-12)


@pytest.mark.parametrize("normalize", [None, "samples"])
def test_automatic_thresholds_have_less_error_than_linear_codes(normalize):
    X, dictionary, codes = make_bernoulli_gaussian(2000, 6, density=0.3, noise_std=0.1, random_state=0)
    model = LpDictionaryLearning(normalize=normalize, error_bars=False, transform_alpha="auto").fit(X)
    true = codes @ dictionary @ model.components_.T
    linear = np.mean((model.transform(X) - true) ** 2)
    for algorithm in ("threshold", "hard_threshold"):
        model.set_params(transform_algorithm=algorithm)
        assert np.mean((model.transform(X) - true) ** 2) < 0.75 * linear


# Likelihood


@pytest.mark.parametrize("normalization", [None, Normalization(2.0)])
def test_likelihood_integrates_to_one(normalization):
    """Over the plane, for a map to codes that is not orthogonal; normalised codes lie within a circle."""
    law = SpikeSlab(np.array([0.3, 0.6]), np.array([1.0, 0.6]), 0.3)
    if normalization is not None:  # a density on the circle
        law = Uniform()
    unmixing = np.array([[1.0, 0.4], [-0.3, 0.8]])
    likelihood = Distribution(law, normalization).make_log_likelihood(unmixing)
    end = 12 if normalization is None else 200
    u = np.sinh(np.linspace(-np.arcsinh(end), np.arcsinh(end), 2001))
    du = np.gradient(u)
    points = np.stack(np.meshgrid(u, u, indexing="ij"), axis=-1).reshape(-1, 2)
    density = np.exp(likelihood(points @ unmixing.T)).reshape(2001, 2001)
    assert du @ density @ du == pytest.approx(1, abs=2e-3)


class Uniform:
    """Codes whose densities multiply to one over the area of the unit circle."""

    def log_density(self, Z):
        return np.full(Z.shape, -0.5 * np.log(np.pi))


def test_score_of_gaussian_samples_is_the_gaussian_likelihood(rng):
    X = rng.standard_normal((20_000, 3)) @ np.array([[1, 0.5, 0], [0, 2, 1], [0, 0, 3]])
    with pytest.warns(NotIdentifiableWarning):
        model = LpICA(error_bars=False).fit(X)
    expected = multivariate_normal(X.mean(axis=0), np.cov(X.T)).logpdf(X[:2000])
    assert model.score(X[:2000]) == pytest.approx(np.mean(expected), abs=0.02)


def test_score_of_held_out_samples_is_that_of_the_true_density():
    X, dictionary, _ = make_bernoulli_gaussian(20_000, 6, density=0.3, noise_std=0.2, random_state=0)
    model = LpDictionaryLearning(error_bars=False).fit(X[:10_000])
    law = SpikeSlab(np.full(6, 0.3), np.ones(6), 0.2)
    expected = np.mean(np.sum(law.log_density(X[10_000:] @ dictionary.T), axis=1))
    assert model.score(X[10_000:]) == pytest.approx(expected, abs=0.02)


@pytest.mark.parametrize("options", [{}, {"whiten": True}, {"normalize": "samples"}, {"standardize": True}], ids=str)
def test_score_of_scaled_samples_differs_by_the_volume(options):
    X, _, _ = make_bernoulli_gaussian(3000, 5, density=0.3, noise_std=0.2, random_state=0)
    one, other = (LpDictionaryLearning(error_bars=False, **options).fit(c * X) for c in (1, 8))
    assert other.score(8 * X) == pytest.approx(one.score(X) - 5 * np.log(8), abs=1e-6)
    assert_allclose(other.denoise(8 * X, noise_std=1.6), 8 * one.denoise(X, noise_std=0.2), atol=1e-6)


def test_score_does_not_depend_on_the_unit_of_sources():
    X, weights = draw("laplace", 2000, 4) @ draw_atoms(4) + 3, np.full(2000, 2.0)
    for options in ({}, {"normalize": "samples"}):
        one = LpICA(error_bars=False, **options).fit(X, sample_weight=weights)
        other = LpICA(error_bars=False, whiten="arbitrary-variance", **options).fit(X, sample_weight=weights)
        assert_allclose(one.score_samples(X), other.score_samples(X), rtol=1e-9)
        assert_allclose(one.denoise(X), other.denoise(X), rtol=1e-7, atol=1e-7)
        assert_allclose(one.scale_, other.scale_ * np.sqrt(4000), rtol=1e-9)


def test_weighted_score_is_the_weighted_mean(rng):
    X, weights = draw("noisy", 500, 4), rng.integers(0, 3, 500)
    model = LpDictionaryLearning(error_bars=False).fit(X)
    assert model.score(X, sample_weight=weights) == pytest.approx(model.score(np.repeat(X, weights, axis=0)))


def test_score_of_fewer_components_is_that_of_their_projection(rng):
    X = draw("noisy", 2000, 6) @ np.diag([3, 2, 1.5, 1, 1, 1.0]) @ draw_atoms(6)
    with pytest.warns(NotWhiteWarning):
        model = LpDictionaryLearning(n_components=2, error_bars=False).fit(X)
    other = rng.standard_normal((len(X), 6))
    other -= other @ model.components_.T @ model.components_
    assert_allclose(model.score_samples(X), model.score_samples(X + other), atol=1e-9)


# Denoising


@pytest.mark.filterwarnings("ignore::elldict.exceptions.NotIdentifiableWarning")  # noise of the size of the codes
@pytest.mark.parametrize(("density", "noise"), [(0.3, 1.0), (0.2, 0.05), (0.1, 0.4), (0.3, 0.3)])
def test_denoised_samples_have_nearly_the_smallest_error(density, noise):
    X, dictionary, codes = make_bernoulli_gaussian(6000, 16, density=density, noise_std=noise, random_state=1)
    Z, clean = X @ dictionary.T, codes @ dictionary
    slab, spike = (np.exp(-0.5 * Z**2 / v) / np.sqrt(v) for v in (1 + noise**2, noise**2))
    best = density * slab / (density * slab + (1 - density) * spike) * Z / (1 + noise**2)
    model, smallest = LpDictionaryLearning(error_bars=False).fit(X), np.mean((best - codes) ** 2)
    rotated = 1 + 3 * 15 * noise**2 / 6000  # at most: codes of the fitted atoms have a little more noise
    assert smallest < np.mean((model.denoise(X, noise_std=noise) - clean) ** 2) < 1.12 * rotated * smallest
    if noise == 0.3:  # it is estimated, too
        error = np.mean((model.denoise(X) - clean) ** 2)
        assert smallest < error < smallest + 0.1 * (noise**2 - smallest)  # of linear codes


def test_exact_samples_are_not_changed_by_denoising(easy):
    model = LpDictionaryLearning(error_bars=False).fit(easy[0])
    assert_allclose(model.denoise(easy[0]), easy[0], atol=1e-12)


# Blocks


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_codes_do_not_depend_on_blocks(dtype, monkeypatch):
    X = draw("noisy", 3000, 5).astype(dtype)
    model = LpICA(error_bars=False).fit(X)
    whole = model.transform(X), model.score_samples(X)
    monkeypatch.setattr(base, "cut_blocks", lambda r, *_: [(i, min(i + 700, r)) for i in range(0, r, 700)])
    assert whole[0].dtype == dtype
    assert_allclose(model.transform(X), whole[0], rtol=1e-5)
    assert_allclose(model.score_samples(X), whole[1], rtol=1e-5)


@pytest.mark.parametrize(("method", "bad"), [("transform", np.nan), ("score_samples", np.inf), ("denoise", np.nan)])
def test_bad_entry_is_named(method, bad):
    X = draw("noisy", 40_000, 5)
    model = LpICA(error_bars=False).fit(X[:2000])
    X[33_333, 2] = bad
    with pytest.raises(ValueError, match=r"contains (NaN|infinity) \(sample 33333, feature 2\)"):
        getattr(model, method)(X)


@pytest.mark.parametrize("law", ["noisy", "uniform", "exponential"])
def test_fitted_densities_integrate_to_one_and_have_their_score(law):
    model = LpICA(error_bars=False).fit(draw(law, 4000, 3))
    density = model._distribution.density
    z, dz = np.linspace(-30, 30, 60_001, retstep=True)
    logs = density.log_density(np.repeat(z[:, None], 3, axis=1))
    assert_allclose(np.sum(np.exp(logs), axis=0) * dz, 1, atol=0.01)  # log q is quadratic within a bin
    some = np.abs(z[1:-1]) < 3
    slope = (logs[2:] - logs[:-2]) / (2 * dz)
    error = density.score(np.repeat(z[1:-1, None], 3, axis=1)) - slope
    assert np.median(np.abs(error[some])) < 1e-3  # it jumps between bins
