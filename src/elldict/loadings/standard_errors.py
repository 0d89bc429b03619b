"""Standard errors of rotated loadings, to first order.

Rotating the factors by antisymmetric angles W changes a row z of loadings by W z. The rotation is found where the slope
S_ab = E g_a z_b - E g_b z_a of the criterion vanishes for all pairs of factors. Other rows, or other loadings, change
the slopes, and the angles follow by minus the inverse of their Jacobian.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from elldict.loadings.criteria import get_gamma, set_means
from elldict.samples.base import Array, Index, cut_blocks
from elldict.solver.objectives import Objective

MAX_FACTORS = 48
"""Factors up to which errors over rows are computed: they have 1128 angles, whose products are summed over rows."""

NO_EIGENVALUE = 1e-10
"""Smallest singular value of the Jacobian, relative to the largest; rotations of empty factors change nothing."""

LARGEST_ANGLE = math.pi / math.sqrt(48)
"""Standard deviation of an angle that is uniform between -45 and 45 degrees: 26 degrees. Beyond 45 degrees, factors
only change their order and signs."""


@dataclass(frozen=True)
class Errors:
    """Standard errors of rotated loadings (p, k), and of the angles (k, k) of all pairs of factors in radians."""

    loadings: Array
    angles: Array


@dataclass(frozen=True)
class Rotated:
    """Rotated loadings as the criterion has them, normalised and in units of their mean square, with derivatives."""

    Z: Array  # (p, k)
    g: Array  # (p, k)
    slope: Array  # (p, k)
    D: Array  # (k, k) means of z_a z_b
    gamma: float

    @property
    def pairs(self) -> tuple[Index, Index]:
        """First and second factors of all pairs."""
        return np.triu_indices(self.Z.shape[1], 1)


def differentiate(Z: Array, objective: Objective) -> Rotated:
    """Compute the derivatives of a criterion at rotated loadings (p, k)."""
    D = np.asarray(Z.T @ Z / len(Z))
    _, g, slope = set_means(objective, np.diag(D).copy()).terms(Z, second=True)
    return Rotated(Z, np.asarray(g), np.asarray(slope), D, get_gamma(objective))


def estimate_row_errors(loadings: Array, rotated: Rotated) -> Errors:
    """Estimate the errors due to the choice of rows, for rotated `loadings` (p, k) that are exact before rotation."""
    p, k = loadings.shape
    if k == 1:
        return Errors(np.zeros((p, 1)), np.zeros((1, 1)))
    inverse, flat = invert(compute_jacobian(rotated), rotated)
    covariance = inverse @ compute_slope_covariance(rotated) @ inverse.T
    number, sign = number_pairs(k)
    variances, angles = np.empty((p, k)), np.zeros((k, k))
    for j in range(k):  # factor j changes by its angles with all factors
        spread = np.outer(sign[j], sign[j]) * covariance[np.ix_(number[j], number[j])]
        variances[:, j] = np.sum((loadings @ spread) * loadings, axis=1)
        angles[j] = np.diag(spread)
    return Errors(np.sqrt(np.maximum(variances, 0)), np.where(flat, np.inf, np.sqrt(np.maximum(angles, 0))))


def estimate_observation_errors(
    deviations: Array, loadings: Array, rotated: Rotated, unit: Array, normalize: bool
) -> Errors:
    """Estimate the errors due to the choice of observations.

    `deviations` (B, p, k) of the loadings before rotation are given for the rotated factors; the sum of their products
    is the covariance. `unit` (p, 1) is what rotated `loadings` (p, k) were divided by for the criterion.
    """
    k = loadings.shape[1]
    inverse, flat = invert(compute_jacobian(rotated), rotated)
    squares = np.sum(loadings**2, axis=0)
    sizes = np.where(squares[:, None] + squares > 0, squares[:, None] + squares, 1)
    variances, angle_variances = np.zeros(loadings.shape), np.zeros((k, k))
    for deviation in deviations:
        slopes = change_slopes(rotated, project(deviation / unit, rotated.Z, 1 if normalize else None))
        change = deviation + loadings @ rotate_pairs(-inverse @ slopes, k).T
        C = change.T @ loadings
        variances += change**2
        angle_variances += ((C - C.T) / sizes) ** 2  # of the rotation that explains most of the change
    return Errors(np.sqrt(variances), np.where(flat, np.inf, np.sqrt(angle_variances)))


def rotate_pairs(angles: Array, k: int) -> Array:
    """Return the antisymmetric matrix (k, k) with the angles of all pairs."""
    W = np.zeros((k, k))
    W[np.triu_indices(k, 1)] = angles
    return W - W.T


def project(changes: Array, Z: Array, axis: int | None) -> Array:
    """Remove from changes (p, k) what changes the length of rows (axis 1) or the mean square of all loadings (None).

    Normalised rows of zeros do not change.
    """
    squares = np.sum(Z * Z, axis=axis, keepdims=True)
    parallel = np.sum(changes * Z, axis=axis, keepdims=True) / np.where(squares > 0, squares, 1)
    return np.where(squares > 0, changes - parallel * Z, 0)


def change_slopes(rotated: Rotated, changes: Array) -> Array:
    """Compute the changes (K,) of the slopes of all K pairs if rotated loadings change by (p, k)."""
    Z, D = rotated.Z, rotated.D
    change = (rotated.slope * changes).T @ Z + rotated.g.T @ changes
    change = change / len(Z) - 8 * rotated.gamma * np.mean(Z * changes, axis=0)[:, None] * D
    return np.asarray((change - change.T)[rotated.pairs])


def compute_jacobian(rotated: Rotated) -> Array:
    """Compute the derivatives (K, K) of the slopes of all K pairs with respect to their angles."""
    Z, D, p = rotated.Z, rotated.D, len(rotated.Z)
    k = Z.shape[1]
    U = rotated.g.T @ Z / p
    M = np.stack([(rotated.slope[:, [a]] * Z).T @ Z / p for a in range(k)])  # E g_a' z_b z_c
    columns = []
    for a, b in zip(*rotated.pairs, strict=True):
        W = np.zeros((k, k))
        W[a, b], W[b, a] = 1, -1
        change = U @ W.T - 8 * rotated.gamma * np.sum(W * D, axis=1)[:, None] * D
        change[a] += M[a, b]
        change[b] -= M[b, a]
        columns.append((change - change.T)[rotated.pairs])
    return np.stack(columns, axis=1)


def compute_slope_covariance(rotated: Rotated) -> Array:
    """Compute the covariance (K, K) of the slopes of all K pairs over rows drawn independently."""
    (a, b), p = rotated.pairs, len(rotated.Z)
    v, between = np.diag(rotated.D), 4 * rotated.gamma * rotated.D[rotated.pairs]
    total = np.zeros((len(a), len(a)))
    for start, stop in cut_blocks(p, len(a)):
        Z, g = rotated.Z[start:stop], rotated.g[start:stop]
        centred = Z * Z - v
        influence = g[:, a] * Z[:, b] - g[:, b] * Z[:, a] - between * (centred[:, a] - centred[:, b])
        total += influence.T @ influence
    return total / p**2


def invert(jacobian: Array, rotated: Rotated) -> tuple[Array, NDArray[np.bool_]]:
    """Invert the Jacobian (K, K), and find the pairs (k, k) whose rotation does not change the criterion.

    Pairs of empty factors are not among them: rotating these does not change the loadings either.
    """
    (a, b), squares = rotated.pairs, np.diag(rotated.D)
    flat = np.zeros(rotated.D.shape, dtype=bool)
    if not len(a):
        return jacobian, flat
    _, values, V = np.linalg.svd(jacobian)
    share = np.sum(V[values <= NO_EIGENVALUE * values[0]] ** 2, axis=0)
    empty = squares[a] + squares[b] <= NO_EIGENVALUE * np.max(squares)
    flat[a, b] = flat[b, a] = (share > 0.5) & ~empty  # most of the rotation is in the null space
    return np.asarray(np.linalg.pinv(jacobian, rcond=NO_EIGENVALUE), dtype=np.float64), flat


def number_pairs(k: int) -> tuple[Index, Array]:
    """Return the number (k, k) of the pair of two factors, and the sign of their angle: antisymmetric."""
    number, sign = np.zeros((k, k), dtype=np.intp), np.sign(np.subtract.outer(-np.arange(k), -np.arange(k)))
    number[np.triu_indices(k, 1)] = np.arange(k * (k - 1) // 2)
    return number + number.T, sign.astype(np.float64)


def find_mixed_pairs(angles: Array) -> list[tuple[int, int]]:
    """Find pairs of factors that are as uncertain as any of their mixtures, the worst first."""
    a, b = np.triu_indices(len(angles), 1)
    order = np.argsort(-angles[a, b], kind="stable")
    return [(int(a[n]), int(b[n])) for n in order if angles[a[n], b[n]] >= LARGEST_ANGLE]
