"""The law of noisy codes and its fit."""

import numpy as np
import pytest
from scipy import stats
from scipy.optimize import check_grad

from elldict._old.backend.base import FreshWork
from elldict._old.solver.code_histogram import CodeHistogram
from elldict._old.solver.objective import Quantities
from elldict._old.solver.spike_slab import SpikeSlab, SpikeSlabLikelihood, fit_spike_slab, negative_log_likelihood

MODEL = SpikeSlab(np.array([0.1, 0.3, 0.7]), np.array([1.0, 4.0, 0.5]), 0.04)


def draw(model, n_samples, seed=0):
    rng = np.random.default_rng(seed)
    shape = (n_samples, len(model.density))
    codes = (rng.random(shape) < model.density) * rng.standard_normal(shape) * np.sqrt(model.power)
    return codes + np.sqrt(model.noise) * rng.standard_normal(shape)


def test_log_density_is_that_of_the_mixture():
    z = np.linspace(-4, 4, 50)
    for i in range(3):
        wide = stats.norm.pdf(z, scale=np.sqrt(MODEL.power[i] + MODEL.noise))
        narrow = stats.norm.pdf(z, scale=np.sqrt(MODEL.noise))
        expected = np.log(MODEL.density[i] * wide + (1 - MODEL.density[i]) * narrow)
        terms = SpikeSlabLikelihood(MODEL).terms(np.tile(z, (3, 1)).T, Quantities.GRADIENT, FreshWork(), np)
        np.testing.assert_allclose(terms.value.expand()[:, i], expected, rtol=1e-10)
        share = MODEL.density[i] * wide / np.exp(expected)
        np.testing.assert_allclose(MODEL.activity(np.tile(z**2, (3, 1)))[i], share, rtol=1e-9, atol=1e-12)


def test_slopes_are_those_of_the_likelihood():
    counts = CodeHistogram.of(draw(MODEL, 500))
    x = np.concatenate([[-1.4, 0.0, 0.4], np.log([2.0, 3.0, 1.0]), [np.log(0.1)]])
    slopes = negative_log_likelihood(x, counts)[1]
    error = check_grad(
        lambda x: negative_log_likelihood(x, counts)[0], lambda x: negative_log_likelihood(x, counts)[1], x
    )
    assert error < 1e-4 * np.linalg.norm(slopes)


def test_the_likelihood_that_is_climbed_is_that_of_the_law():
    codes = draw(MODEL, 500)
    exact = CodeHistogram(np.ones((3, 500)), codes.T**2)
    x = np.concatenate([np.log(MODEL.density / (1 - MODEL.density)), np.log(MODEL.power), [np.log(MODEL.noise)]])
    value = SpikeSlabLikelihood(MODEL).terms(codes, Quantities.GRADIENT, FreshWork(), np).value.expand()
    assert negative_log_likelihood(x, exact)[0] == pytest.approx(-np.mean(value), rel=1e-12)


def test_counts_keep_number_and_mean_square(rng):
    Z = rng.standard_normal((1000, 4)) * [1, 10, 0.1, 1e-9]
    counts = CodeHistogram.of(Z)
    np.testing.assert_allclose(counts.count.sum(axis=1), 1000)
    np.testing.assert_allclose(counts.mean_square, np.mean(Z**2, axis=0))


@pytest.mark.parametrize("noise_std", [0.1, 0.3, 0.5])
@pytest.mark.parametrize("density", [0.1, 0.3, 0.6])
def test_parameters_are_found_again(density, noise_std):
    """80 000 codes. The worst case, .1 and .5, has a relative spread of 5 % in density; the bound is four of it."""
    truth = SpikeSlab(np.full(10, density), np.full(10, 1.0), noise_std**2)
    fitted = fit_spike_slab(CodeHistogram.of(draw(truth, 8000)), least_noise=1e-18)
    assert np.mean(fitted.density) == pytest.approx(density, rel=0.2 if noise_std == 0.5 else 0.05)
    assert np.sqrt(fitted.noise) == pytest.approx(noise_std, rel=0.02)


def test_exact_zeros_are_counted_exactly(rng):
    Z = (rng.random((4000, 6)) < 0.3) * rng.standard_normal((4000, 6)) + 1e-14 * rng.standard_normal((4000, 6))
    fitted = fit_spike_slab(CodeHistogram.of(Z), least_noise=1e-18)
    np.testing.assert_allclose(fitted.density, np.mean(np.abs(Z) > 1e-7, axis=0), rtol=1e-3)
    assert fitted.noise == pytest.approx(1e-18)


def test_one_blurred_atom_does_not_lose_its_zeros(rng):
    """Zeros of five atoms at 1e-8 and of the sixth at 1e-3: a shared noise of 1e-8 would call all of them active."""
    blur = np.array([1e-8] * 5 + [1e-3])
    Z = (rng.random((4000, 6)) < 0.3) * rng.standard_normal((4000, 6)) + blur * rng.standard_normal((4000, 6))
    fitted = fit_spike_slab(CodeHistogram.of(Z), least_noise=1e-18)
    np.testing.assert_allclose(fitted.density, 0.3, atol=0.04)
    assert 1e-4 < np.sqrt(fitted.noise) < 1e-2


@pytest.mark.parametrize("noise", [0.04, 1e-12])
def test_likelihood_contrast_is_the_derivative_of_the_log_density(noise):
    """g leaves out the factor 1/noise and the linear term -z/noise."""
    model = SpikeSlab(MODEL.density, MODEL.power, noise)
    z = np.sqrt(noise) * np.linspace(-9, 9, 60)[:, None] * np.ones(3)
    h = 1e-6 * np.sqrt(noise)
    at = {
        shift: SpikeSlabLikelihood(model).terms(z + shift, Quantities.MOMENTS, FreshWork(), np)
        for shift in (-h, 0.0, h)
    }
    value, g = ({shift: pick(terms) for shift, terms in at.items()} for pick in (lambda t: t.value.expand(), whole_g))
    score = (value[h] - value[-h]) / (2 * h)
    np.testing.assert_allclose((score * noise + z) / np.sqrt(noise), g[0.0] / np.sqrt(noise), atol=1e-5)
    np.testing.assert_allclose((g[h] - g[-h]) / (2 * h), at[0.0].slope.expand(), rtol=1e-4, atol=1e-5)


def whole_g(terms):
    """The derivative with its factor."""
    return terms.gain * terms.g


def test_large_codes_do_not_overflow():
    terms = SpikeSlabLikelihood(MODEL).terms(np.array([[1e150, -1e150, 0.0]]), Quantities.MOMENTS, FreshWork(), np)
    assert all(np.all(np.isfinite(array)) for array in (terms.g, terms.slope.expand()))
