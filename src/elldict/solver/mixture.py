"""Weights of a mixture with fixed components: a convex problem, solved by sequential quadratic programming.

Expectation-maximisation needs thousands of rounds where components overlap, as those of noisy codes do.
"""

from __future__ import annotations

import numpy as np
from scipy.optimize import nnls

from elldict.samples.base import Array

TOLERANCE = 1e-4
"""Largest excess of the mean ratio of a component to the mixture over one, which it is at the maximum."""

MAX_ITER, MAX_HALVED = 30, 20
"""Maximum number of steps, and how often a step is halved."""

INSIDE = 0.95
"""Length of a full step: weights that would become zero stay positive, and can grow again."""

RIDGE = 1e-8
"""Keeps the Hessian of components that are alike positive definite, relative to its trace."""


def maximize_likelihood(weights: Array, counts: Array, q: Array) -> Array:
    """Fit weights (K,) of components of densities q (K, B) to counts (B,), from positive weights.

    The sum of weights is added to the negative log-likelihood per count, so that it is one at the minimum without a
    constraint. Every step minimises a quadratic model over weights that are not negative (Kim, Carbonetto, Stephens and
    Anitescu, "A fast algorithm for maximum likelihood estimation of mixture proportions", 2020).
    """
    used = counts > 0
    q, shares = q[:, used], counts[used] / np.sum(counts)
    density = weights @ q
    for _ in range(MAX_ITER):
        ratio = q @ (shares / density)
        if np.max(ratio) < 1 + TOLERANCE:
            break
        scaled = q * (np.sqrt(shares) / density)
        hessian = scaled @ scaled.T
        lower = np.linalg.cholesky(hessian + RIDGE * np.trace(hessian) / len(q) * np.eye(len(q)))
        step = nnls(lower.T, np.linalg.solve(lower, 2 * ratio - 1))[0] - weights
        weights, density = take_step(weights, INSIDE * step, shares, q)
    return weights


def take_step(weights: Array, step: Array, shares: Array, q: Array) -> tuple[Array, Array]:
    """Take a step, halved until it increases the likelihood; return weights and the density (B,) of the mixture."""
    value = shares @ np.log(weights @ q)
    for _ in range(MAX_HALVED):
        new = weights + step
        new /= np.sum(new)
        density = new @ q
        if shares @ np.log(density) > value:
            return new, density
        step = step / 2
    return weights, weights @ q
