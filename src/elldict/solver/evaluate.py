"""One pass over the samples: the value of an objective, and its derivatives with respect to atoms."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from elldict.samples.base import Array, FieldwiseSum, Index, Samples, Weights, weigh
from elldict.samples.subsample import Codes
from elldict.solver.objectives import Objective

FEWEST, PER_DIRECTION = 1500, 15
"""Samples used for curvatures and variances: minimum, and per direction. Slopes use all samples."""

LEAST_CURVATURE = 0.1
"""Smallest curvature of an angle, as a fraction of E g z of its two atoms."""


@dataclass(frozen=True)
class Gradient(FieldwiseSum):
    """An objective and its gradient G = sum of g(z) y^T with respect to atoms."""

    value: float
    G: Array  # (m, n)


def compute_gradient(samples: Samples, A: Array, objective: Objective) -> Gradient:
    """Sum an objective and its gradient over all samples."""

    def visit(rows: Array, start: int) -> Gradient:
        weights = None if samples.weights is None else samples.weights[start : start + len(rows)]
        terms = objective.terms((A @ rows.T).T, weights)
        return Gradient(terms.value, terms.g.T @ weigh(rows, samples.weights, start))

    return samples.sum(visit)


@dataclass(frozen=True)
class _Sums(FieldwiseSum):
    """Sums over all samples, and over those used for curvatures."""

    value: float
    gz: Array  # (m, m) of g_i z_j
    n_some: float
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
    """Compute value, slopes, curvatures and variances for a full basis of atoms; codes may be dependent."""
    (r, n), n_samples = codes.shape, codes.n_samples
    stride = max(1, round(r / max(FEWEST, PER_DIRECTION * n)))

    def visit(Z: Array, half: Index, weights: Weights) -> _Sums:  # noqa: ARG001
        value, g, slope = objective.terms(Z, weights, stride)
        few, g_few = Z[::stride], g[::stride]
        some = None if weights is None else weights[::stride]
        z2, own, g2 = few * few, g_few * few, g_few * g_few
        sums = (
            weigh(a, w, 0).T @ b for a, w, b in ((g, weights, Z), (slope, some, z2), (g2, some, z2), (own, some, own))
        )
        n_some = float(len(few) if some is None else np.sum(some))
        gz, *others = (np.asarray(each, dtype=np.float64) for each in sums)
        return _Sums(value, gz, n_some, *others)

    sums = codes.sum(visit)
    C, own = sums.gz / n_samples, np.diag(sums.gz) / n_samples
    X, P = sums.slope_z2 / sums.n_some, sums.g2_z2 / sums.n_some
    size = np.abs(own)[:, None] + np.abs(own)
    curvature = np.maximum(np.abs(own[:, None] + own - X - X.T), LEAST_CURVATURE / 2 * size)
    variance = np.maximum(P + P.T - 2 * sums.own2 / sums.n_some, 0) / n_samples
    np.fill_diagonal(variance, 0)
    np.fill_diagonal(curvature, math.inf)
    return Angles(sums.value / n_samples, C - C.T, curvature, variance)
