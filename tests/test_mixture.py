"""Weights of a mixture with fixed components: conditions of the maximum, and agreement with many rounds of EM."""

from __future__ import annotations

import numpy as np
import pytest

from elldict.solver.density import get_grid
from elldict.solver.kernels import count_bins, fit_weights
from elldict.solver.mixture import TOLERANCE, maximize_likelihood
from tests.fits import draw

LAWS = ["gauss", "laplace", "sparse", "noisy", "uniform", "exponential"]


def count(law, n_widths=13):
    grid, Z = get_grid(n_widths), draw(law, 4000, 1)
    counts = count_bins(Z, np.ones(1), grid.unit, len(grid.centres), np.zeros(len(Z), np.int8))[0]
    q, both = grid.fold(counts)
    return q, both[0]


def fit(q, counts, begin=None):
    return maximize_likelihood(np.full(len(q), 1 / len(q)) if begin is None else begin, counts, q)


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


def test_maximize_likelihood_does_not_depend_on_the_number_of_counts_or_empty_bins():
    q, counts = count("laplace")
    weights = fit(q, counts)
    np.testing.assert_allclose(fit(q, 1e6 * counts), weights, atol=1e-9)
    more = np.concatenate([q, q[:, :5]], axis=1)
    np.testing.assert_allclose(fit(more, np.r_[counts, np.zeros(5)]), weights, atol=1e-12)
