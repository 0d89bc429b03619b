"""Standard errors of rotated loadings, to first order.

Rotating the factors by antisymmetric angles W changes a row z of loadings by W z. The rotation is found where the slope
S_ab = E g_a z_b - E g_b z_a of the criterion vanishes for all pairs of factors. Other rows, or other loadings, change
the slopes, and the angles follow by minus the inverse of their Jacobian.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from elldict.rotation.criteria import Criterion
from elldict.samples.base import Array, Index, cut_blocks

MAX_FACTORS = 48
"""Factors up to which errors over rows are computed: they have 1128 angles, whose products are summed over rows."""

NO_EIGENVALUE = 1e-10
"""Smallest singular value of the Jacobian, relative to the largest, that is not due to rounding of the rotation."""

LEAST_DRAWS = 20
"""Bootstrap samples needed: a standard error from n of them has itself a relative error of 1 / sqrt(2 n), here 16 %."""

LARGEST_ANGLE = math.pi / math.sqrt(48)
"""Standard deviation of an angle that is uniform between -45 and 45 degrees: 26 degrees. Beyond 45 degrees, factors
only change their order and signs."""


@dataclass(frozen=True)
class Rotated:
    """Rotated loadings as the criterion has them, normalised and in units of their mean square, with derivatives."""

    Z: Array  # (p, k)
    g: Array  # (p, k)
    slope: Array  # (p, k)
    D: Array  # (k, k) means of z_a z_b
    gamma: float
    pairs: tuple[Index, Index]  # first and second factors of all K pairs


def differentiate(Z: Array, criterion: Criterion) -> Rotated:
    """Compute the derivatives of a criterion at rotated loadings (p, k)."""
    D = np.asarray(Z.T @ Z / len(Z))
    _, g, slope = criterion.terms(Z, np.diag(D).copy())
    return Rotated(Z, np.asarray(g), np.asarray(slope), D, criterion.gamma, np.triu_indices(len(D), 1))


def estimate_row_errors(loadings: Array, rotated: Rotated) -> tuple[Array, Array]:
    """Estimate the errors due to the choice of rows, for rotated `loadings` (p, k) that are exact before rotation.

    These are the standard errors of the loadings, and those of the angles (k, k) of all pairs of factors in radians.
    """
    values, vectors = np.linalg.eigh(compute_slope_covariance(rotated))
    slopes = vectors * np.sqrt(np.maximum(values, 0))  # (K, K) of which the covariance is the sum of products
    W = make_rotations(invert(compute_jacobian(rotated)) @ slopes, rotated)
    changes = [W[:, j].T @ W[:, j] for j in range(loadings.shape[1])]  # of a factor, by its angles with all factors
    variances = np.stack([np.sum((loadings @ change) * loadings, axis=1) for change in changes], axis=1)
    return np.sqrt(np.maximum(variances, 0)), np.sqrt(np.sum(W * W, axis=0))


def estimate_observation_errors(
    deviations: Array, loadings: Array, rotated: Rotated, unit: Array, normalize: bool
) -> tuple[Array, Array]:
    """Estimate the same errors due to the choice of observations.

    `deviations` (B, p, k) of the loadings before rotation are given for the rotated factors; the sum of their products
    is the covariance. `unit` (p, 1) is what rotated `loadings` (p, k) were divided by for the criterion.
    """
    scaled = (project(deviation / unit, rotated.Z, 1 if normalize else None) for deviation in deviations)
    slopes = np.stack([change_slopes(rotated, each) for each in scaled], axis=1)
    W = make_rotations(-invert(compute_jacobian(rotated)) @ slopes, rotated)
    squares = np.sum(loadings**2, axis=0)
    sizes = np.where(squares[:, None] + squares > 0, squares[:, None] + squares, 1)
    variances, angle_variances = np.zeros(loadings.shape), np.zeros(sizes.shape)
    for deviation, angles in zip(deviations, W, strict=True):
        change = deviation + loadings @ angles.T
        C = change.T @ loadings
        variances += change**2
        angle_variances += ((C - C.T) / sizes) ** 2  # of the rotation that explains most of the change
    return np.sqrt(variances), np.sqrt(angle_variances)


def find_deviations(draws: Any, loadings: Array) -> Array:
    """Return deviations (B, p, k) of the loadings, whose sum of products is their covariance.

    The rotation of the draws (B, p, k) does not matter: each is rotated, or reflected, to be as close as possible to
    the loadings (p, k).
    """
    draws = np.asarray(draws, dtype=np.float64)
    p, k = loadings.shape
    if draws.ndim != 3 or draws.shape[1:] != (p, k) or len(draws) < LEAST_DRAWS or not np.all(np.isfinite(draws)):
        raise ValueError(
            f"bootstrap_loadings must hold finite numbers in the shape (B, {p}, {k}): the loadings before rotation of "
            f"each of B >= {LEAST_DRAWS} bootstrap samples. Its shape is {draws.shape}."
        )
    U, _, V = np.linalg.svd(draws.transpose(0, 2, 1) @ loadings)
    aligned = draws @ (U @ V)
    return np.asarray((aligned - np.mean(aligned, axis=0)) / np.sqrt(len(draws) - 1))


def make_rotations(angles: Array, rotated: Rotated) -> Array:
    """Return antisymmetric matrices (B, k, k) with the angles (K, B) of all pairs."""
    (a, b), W = rotated.pairs, np.zeros((angles.shape[1], *rotated.D.shape))
    W[:, a, b], W[:, b, a] = angles.T, -angles.T
    return W


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
    K = len(rotated.pairs[0])
    jacobian = np.empty((K, K))
    for n, (a, b, W) in enumerate(zip(*rotated.pairs, make_rotations(np.eye(K), rotated), strict=True)):
        change = U @ W.T - 8 * rotated.gamma * np.sum(W * D, axis=1)[:, None] * D
        change[a] += M[a, b]
        change[b] -= M[b, a]
        jacobian[:, n] = (change - change.T)[rotated.pairs]
    return jacobian


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


def invert(jacobian: Array) -> Array:
    """Invert the Jacobian (K, K) of the slopes; angles that do not change them have large errors."""
    U, values, V = np.linalg.svd(jacobian)
    return np.asarray((V.T / np.maximum(values, NO_EIGENVALUE * np.max(values, initial=1e-200))) @ U.T)


def find_mixed_pairs(angles: Array) -> list[tuple[int, int]]:
    """Find pairs of factors that are as uncertain as any of their mixtures, the worst first."""
    a, b = np.triu_indices(len(angles), 1)
    order = np.argsort(-angles[a, b], kind="stable")
    return [(int(a[n]), int(b[n])) for n in order if angles[a[n], b[n]] >= LARGEST_ANGLE]
