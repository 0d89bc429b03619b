"""Weights of a mixture with fixed components: conditions of the maximum, and agreement with many rounds of EM."""

import numpy as np
import pytest

from elldict.solver.density import get_grid
from elldict.solver.kernels import count_bins, fit_weights
from elldict.solver.mixture import TOLERANCE, maximize_likelihood
from tests import fits

LAWS = ["gauss", "laplace", "sparse", "noisy", "t3", "two spikes"]


def draw(law, r=4000):
    rng = np.random.default_rng(0)
    if law in fits.DRAW:
        Z = fits.draw(law, r, 1)
    else:
        Z = rng.standard_t(3, (r, 1)) if law == "t3" else rng.choice([0.0, 3.0], (r, 1))
    return Z / np.sqrt(np.mean(Z * Z))


def count(law, n_widths=13):
    grid, Z = get_grid(n_widths), draw(law)
    counts = count_bins(Z, np.ones(1), grid.unit, len(grid.centres), np.zeros(len(Z), np.int8))[0]
    q, both = grid.fold(counts)
    return q, both[0]


def fit(q, counts):
    return maximize_likelihood(np.full(len(q), 1 / len(q)), counts, q)


@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("n_widths", [9, 13, 30])
def test_maximize_likelihood_meets_the_conditions_of_the_maximum(law, n_widths):
    q, counts = count(law, n_widths)
    weights = fit(q, counts)
    assert np.all(weights >= 0)
    np.testing.assert_allclose(np.sum(weights), 1, rtol=1e-12)
    ratio = q @ (counts / (weights @ q)) / np.sum(counts)
    # a bound for the distance of a convex function from its maximum: the largest slope towards a single component
    assert np.max(ratio) < 1 + TOLERANCE
    np.testing.assert_allclose(weights @ ratio, 1, rtol=1e-12)


@pytest.mark.parametrize("law", LAWS)
def test_maximize_likelihood_is_not_below_many_rounds_of_expectation_maximisation(law):
    q, counts = count(law)
    weights = fit(q, counts)
    rounds = fit_weights(np.full((1, len(q)), 1 / len(q)), counts[None], q, 5000)[0]
    # by the bound above, the mean log-likelihood is within the tolerance of the maximum
    assert counts @ np.log(weights @ q) >= counts @ np.log(rounds @ q) - TOLERANCE * np.sum(counts)


def test_maximize_likelihood_recovers_the_weights_of_components_apart():
    q = np.eye(3)[:, [0, 0, 1, 1, 2]] / np.array([2, 2, 2, 2, 1.0])
    counts = np.array([10.0, 10, 15, 15, 50])
    # components do not overlap: the weights are the shares of the counts
    np.testing.assert_allclose(fit(q, counts), [0.2, 0.3, 0.5], atol=1e-4)


def test_maximize_likelihood_does_not_depend_on_the_number_of_counts_or_empty_bins():
    q, counts = count("laplace")
    weights = fit(q, counts)
    np.testing.assert_allclose(fit(q, 1e6 * counts), weights, atol=1e-9)
    more = np.concatenate([q, q[:, :5]], axis=1)
    np.testing.assert_allclose(fit(more, np.r_[counts, np.zeros(5)]), weights, atol=1e-12)


def test_maximize_likelihood_of_a_warm_start_agrees_with_a_cold_one():
    q, counts = count("noisy")
    cold = fit(q, counts)
    begin = cold + 1e-3
    warm = maximize_likelihood(begin / np.sum(begin), counts, q)
    assert abs(counts @ np.log((warm @ q) / (cold @ q))) < 2 * TOLERANCE * np.sum(counts)


def test_maximize_likelihood_writes_to_none_of_its_inputs():
    q, counts = count("sparse")
    for array in (q, counts, begin := np.full(len(q), 1 / len(q))):
        array.setflags(write=False)
    maximize_likelihood(begin, counts, q)
