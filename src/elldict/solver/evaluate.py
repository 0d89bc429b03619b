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
    gz: Array  # (m, m) of g_i z_j


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

    def compute_blur(self, code_variances: Array, angles: Array, per_angle: float, per_error: float) -> Array:
        """Compute the standard deviation (m,) of crosstalk from all other codes, relative to each code.

        It results from the `angles` of the last step and from the standard errors of all angles.
        """
        variance = per_angle**2 * angles**2 + per_error**2 * self.variance / self.curvature**2
        return np.asarray(np.sqrt(variance @ code_variances / code_variances))


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
