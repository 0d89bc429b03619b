"""The likelihood of held-out samples: what it is, and what it chooses."""

import warnings

import numpy as np
import pytest
from scipy.stats import multivariate_normal

import elldict
from elldict import LpDictionaryLearning
from elldict.datasets import make_bernoulli_gaussian
from elldict.exceptions import NotIdentifiableWarning, NotWhiteWarning


def fit(X, **options):
    return LpDictionaryLearning(**{"random_state": 0, **options}).fit(X)


@pytest.mark.parametrize("options", [{}, {"whiten": True, "center": True}, {"n_components": 1}], ids=str)
def test_the_likelihood_is_a_density(options):
    """Over the plane it integrates to one, whatever the whitening."""
    X, _, _ = make_bernoulli_gaussian(3000, 2, density=0.3, noise_std=0.3, orthogonal=False, random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NotWhiteWarning)
        warnings.simplefilter("ignore", NotIdentifiableWarning)
        model = fit(X, **options)
    grid = np.linspace(-8, 8, 801)
    points = np.stack(np.meshgrid(grid, grid), axis=-1).reshape(-1, 2)
    assert np.sum(np.exp(model.score_samples(points))) * (grid[1] - grid[0]) ** 2 == pytest.approx(1, abs=1e-3)


def test_the_likelihood_of_gaussian_samples_is_gaussian(rng):
    """A mixture of two Gaussians of like width is a Gaussian; what the fit adds is its own sampling error."""
    X = rng.standard_normal((20_000, 3)) @ np.diag([1.0, 2.0, 3.0])
    with pytest.warns(NotIdentifiableWarning, match="3 of 3"):
        model = fit(X, whiten=True, tol=1e-2)
    expected = multivariate_normal(np.zeros(3), np.cov(X.T)).logpdf(X[:500])
    np.testing.assert_allclose(np.mean(model.score_samples(X[:500])), np.mean(expected), atol=0.02)


def test_score_is_the_mean_and_takes_the_true_law(easy):
    """Held-out samples score as the law that made them scores them, up to the error of the fit."""
    setting = {"density": 0.3, "noise_std": 0.2}
    X, dictionary, _ = make_bernoulli_gaussian(30_000, 8, **setting, random_state=0)
    model = fit(X[:15_000], refine="auto")
    held_out = X[15_000:]
    z = held_out @ dictionary.T
    wide, narrow = 1 + 0.2**2, 0.2**2
    density = 0.3 * np.exp(-0.5 * z**2 / wide) / np.sqrt(2 * np.pi * wide)
    density += 0.7 * np.exp(-0.5 * z**2 / narrow) / np.sqrt(2 * np.pi * narrow)
    assert model.score(held_out) == pytest.approx(np.mean(np.sum(np.log(density), axis=1)), abs=0.01)
    assert model.score(held_out) == pytest.approx(np.mean(model.score_samples(held_out)))


def test_scaling_the_samples_shifts_the_score_by_the_volume(easy):
    X, _, _ = make_bernoulli_gaussian(5000, 6, density=0.3, noise_std=0.2, random_state=0)
    for options in ({}, {"whiten": True}, {"n_components": 3}):
        one, other = fit(X, **options), fit(10 * X, **options)
        assert other.score(10 * X) == pytest.approx(one.score(X) - 6 * np.log(10), abs=1e-3)


def test_the_score_prefers_small_p_and_all_atoms():
    X, _, _ = make_bernoulli_gaussian(8000, 16, density=0.2, noise_std=0.1, random_state=0)
    train, test = X[:4000], X[4000:]
    by_p = [fit(train, p=p, refine=None).score(test) for p in (2.5, 3, 5)]
    assert by_p == sorted(by_p, reverse=True)
    by_m = [fit(train, n_components=m).score(test) for m in (4, 8, 16)]
    assert by_m == sorted(by_m)
    assert fit(train).score(test) > fit(train, refine=None).score(test)


def test_atoms_beyond_the_rank_do_not_spoil_the_score(easy):
    noisy = easy[0] + 0.1 * np.random.default_rng(0).standard_normal(easy[0].shape)  # exact codes have no density
    X = np.column_stack([noisy, np.zeros(4000)])
    with pytest.warns(UserWarning, match="12 of 13"):
        model = fit(X)
    assert np.isfinite(model.score(X))
    assert model.score(X) == pytest.approx(fit(noisy).score(noisy), rel=1e-3)


def test_scores_survive_saving(easy, tmp_path):
    model = fit(easy[0], n_components=5)
    model.save(tmp_path / "m.npz")
    assert elldict.load(tmp_path / "m.npz").score(easy[0]) == model.score(easy[0])


def test_nan_is_found(easy):
    model = fit(easy[0])
    X = easy[0].copy()
    X[17, 3] = np.nan
    with pytest.raises(ValueError, match="NaN in sample 17"):
        model.score(X)
