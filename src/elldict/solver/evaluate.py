"""One pass over the samples: the value of an objective, and its derivatives with respect to atoms."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from elldict.samples.base import Array, FieldwiseSum, Index, Samples, Weights, weigh
from elldict.samples.statistics import count_samples
from elldict.samples.subsample import Codes
from elldict.solver.objectives import Objective

LEAST_CURVATURE = 0.1
"""Smallest curvature of an angle, as a fraction of E g z of its two atoms."""

LEAST_EIGENVALUE = 0.05
"""Smallest curvature along a direction of the two coefficients of a pair, which is zero for two Gaussian codes."""


@dataclass(frozen=True)
class Gradient(FieldwiseSum):
    """An objective and its gradient G = sum of g(z) y^T with respect to atoms."""

    value: float
    G: Array  # (m, n)


def compute_gradient(samples: Samples, A: Array, objective: Objective) -> Gradient:
    """Sum an objective and its gradient over all samples."""
    weights = samples.weights

    def visit(rows: Array, start: int) -> Gradient:
        terms = objective.terms((A @ rows.T).T, None if weights is None else weights[start : start + len(rows)])
        return Gradient(terms.value, np.asarray(terms.g.T @ weigh(rows, weights, start)))

    return samples.sum(visit)


@dataclass(frozen=True)
class _Slopes(FieldwiseSum):
    """Sums over all samples."""

    value: float
    gz: Array  # (m, m) of g_i z_j; one more column if there is a constant


@dataclass(frozen=True)
class Products(FieldwiseSum):
    """Means or sums of products over the samples used for curvatures and variances."""

    slope_z2: Array  # (m, m) of g_i' z_j^2
    g2_z2: Array  # (m, m) of g_i^2 z_j^2
    own2: Array  # (m, m) of g_i z_i g_j z_j


@dataclass(frozen=True)
class Angles:
    """An objective, per sample, as a function of the rotation angles of pairs of atoms."""

    value: float
    slope: Array  # (m, m) antisymmetric
    curvature: Array  # (m, m) symmetric, positive: minus the second derivative
    variance: Array  # (m, m) sampling variance of the slope

    @property
    def rise(self) -> float:
        """Increase of the objective predicted for a Newton step."""
        return float(np.sum(self.slope**2 / self.curvature)) / 4

    @property
    def rise_by_chance(self) -> float:
        """Predicted increase at the true atoms, where slopes are due to chance alone."""
        return float(np.sum(self.variance / self.curvature)) / 4

    @property
    def error_variance(self) -> Array:
        """Sampling variance (m, m) of the angles at the maximum."""
        return np.asarray(self.variance / self.curvature**2)

    def solve(self, slope: Array) -> Array:
        """Compute the angles of a Newton step for a slope."""
        return np.asarray(slope / self.curvature)


@dataclass(frozen=True)
class Shears:
    """A log-likelihood, per sample, as a function of coefficients D (m, m') of changes of invertible atoms.

    Atom i changes by the sum of D_ij times atom j, and with m' = m + 1 its constant by D_im. Codes have unit variance.
    The coefficients of a pair depend on each other by log |det A|: minus the second derivatives are
    [[b_ij, 1], [1, b_ji]].
    """

    value: float  # with log |det A|
    slope: Array  # (m, m'), zero for i = j
    bend: Array  # (m, m'), b_ij b_ji > 1
    variance: Array  # (m, m') sampling variance of the slope
    n_samples: float

    @property
    def rise(self) -> float:
        """Increase of the objective predicted for a Newton step."""
        return float(np.vdot(self.slope, self.solve(self.slope))) / 2

    @property
    def rise_by_chance(self) -> float:
        """Predicted increase at the true atoms, where slopes are due to chance; those of a pair covary by 1 / r."""
        return float(np.sum(np.maximum(self._invert(self.variance, 1 / self.n_samples), 0))) / 2

    @property
    def error_variance(self) -> Array:
        """Sampling variance (m, m') of the coefficients at the maximum: the inverse of the information."""
        return self._invert(np.full_like(self.bend, 1 / self.n_samples), 0.0)

    def solve(self, slope: Array) -> Array:
        """Compute the coefficients of a Newton step for a slope."""
        return self._invert(slope, slope[:, : len(slope)].T)

    def _invert(self, own: Array, other: Array | float) -> Array:
        """Apply the inverse of the block of each pair to two numbers, and keep the first result."""
        m = len(self.bend)
        bend = self.bend[:, :m]
        pairs = (bend.T * own[:, :m] - other) / (bend * bend.T - 1)
        np.fill_diagonal(pairs, 0)
        return np.column_stack([pairs, own[:, m:] / self.bend[:, m:]])


def compute_blur(step: Array, error_variance: Array, variances: Array, per_step: float, per_error: float) -> Array:
    """Compute the standard deviation (m,) of crosstalk from all other codes, relative to each code.

    It results from the last `step` (m, m') and from the standard errors of all its coefficients; m' > m if there is a
    constant, of size one.
    """
    m, n_others = step.shape
    others = np.concatenate([variances, np.ones(n_others - m)])
    return np.asarray(np.sqrt((per_step**2 * step**2 + per_error**2 * error_variance) @ others / variances))


def evaluate(codes: Codes, objective: Objective) -> Angles:
    """Compute value, slopes, curvatures and variances for a full basis of atoms.

    The curvature of a log-likelihood is at least the variance of its slope. Where the densities fit the codes, they are
    equal; elsewhere the larger one keeps steps short, and rounding errors from growing with every step.
    """

    def visit(Z: Array, half: Index, weights: Weights) -> _Slopes:  # noqa: ARG001
        terms = objective.terms(Z, weights)
        return _Slopes(terms.value, np.asarray(weigh(terms.g, weights, 0).T @ Z, dtype=np.float64))

    sums, n_samples = codes.sum(visit), codes.n_samples
    C, own = sums.gz / n_samples, np.diag(sums.gz) / n_samples
    mean = average_products(codes.few, objective) if objective.is_likelihood else multiply_means(codes.few, objective)
    size = np.abs(own)[:, None] + np.abs(own)
    second = own[:, None] + own - mean.slope_z2 - mean.slope_z2.T
    curvature = np.maximum(np.abs(second), LEAST_CURVATURE / 2 * size)
    variance = np.maximum(mean.g2_z2 + mean.g2_z2.T - 2 * mean.own2, 0)
    if objective.is_likelihood:
        curvature = np.maximum(curvature, variance)
    np.fill_diagonal(variance, 0)
    np.fill_diagonal(curvature, math.inf)
    return Angles(sums.value / n_samples, C - C.T, curvature, variance / n_samples)


def evaluate_shears(codes: Codes, objective: Objective, A: Array) -> Shears:
    """Compute the value of a log-likelihood and its derivatives for invertible atoms A (m, m'), with a constant or not.

    The second derivatives are at least the variances of slopes, as in `evaluate`, and blocks are positive definite.
    """

    def visit(Z: Array, half: Index, weights: Weights) -> _Slopes:  # noqa: ARG001
        terms = objective.terms(Z, weights)
        return _Slopes(terms.value, multiply(weigh(terms.g, weights, 0), Z, n_others))

    m, n_others = A.shape
    sums, r = codes.sum(visit), codes.n_samples
    slope_z2, g2_z2 = average_squares(codes.few, objective, n_others)
    bend = np.maximum(np.abs(slope_z2), g2_z2)
    pairs = bend[:, :m]
    least = (pairs + pairs.T) / 2 - np.hypot((pairs - pairs.T) / 2, 1)  # eigenvalue of the block of a pair
    pairs += np.maximum(LEAST_EIGENVALUE - least, 0)
    slope = sums.gz / r
    np.fill_diagonal(slope, 0)
    return Shears(sums.value / r + float(np.linalg.slogdet(A[:, :m])[1]), slope, bend, g2_z2 / r, r)


def average_squares(codes: Samples, objective: Objective, n_others: int) -> Array:
    """Compute the means (2, m, m') of g_i' z_j^2 and g_i^2 z_j^2 over codes."""
    weights = codes.weights

    def visit(Z: Array, start: int) -> Array:
        _, g, slope = objective.terms(Z, second=True)
        return np.stack([multiply(weigh(each, weights, start), Z * Z, n_others) for each in (slope, g * g)])

    return np.asarray(codes.sum(visit) / count_samples(codes))


def multiply(first: Array, second: Array, n_others: int) -> Array:
    """Sum the products (m, m') of columns of two blocks (b, m); with m' = m + 1, the last is that with a constant."""
    alone = np.asarray(np.sum(first, axis=0, dtype=np.float64))
    return np.column_stack([np.asarray(first.T @ second, dtype=np.float64), alone])[:, :n_others]


def average_products(codes: Samples, objective: Objective) -> Products:
    """Compute the means of products of codes."""
    weights = codes.weights

    def visit(Z: Array, start: int) -> Products:
        _, g, slope = objective.terms(Z, second=True)
        z2, own, g2 = Z * Z, g * Z, g * g
        pairs = ((slope, z2), (g2, z2), (own, own))
        return Products(*(np.asarray(weigh(a, weights, start).T @ b, dtype=np.float64) for a, b in pairs))

    sums, n = codes.sum(visit), count_samples(codes)
    return Products(sums.slope_z2 / n, sums.g2_z2 / n, sums.own2 / n)


def multiply_means(codes: Samples, objective: Objective) -> Products:
    """Compute the means of products as if codes were independent, without products of matrices."""
    weights = codes.weights

    def visit(Z: Array, start: int) -> Array:
        _, g, slope = objective.terms(Z, second=True)
        factors = (weigh(each, weights, start) for each in (slope, Z * Z, g * g, g * Z))
        return np.stack([np.asarray(np.sum(each, axis=0, dtype=np.float64)) for each in factors])

    slope, z2, g2, own = codes.sum(visit) / count_samples(codes)
    return Products(np.outer(slope, z2), np.outer(g2, z2), np.outer(own, own))
