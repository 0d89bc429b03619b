"""The change from the coordinates of raw samples to those in which atoms are orthonormal."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from elldict.samples.base import Array, Index, MappedSamples, Samples
from elldict.samples.statistics import EqualSamplesError, Statistics

RANK_TOLERANCE = 1e-10
"""Largest variance of a direction, relative to the largest one, due to rounding; features have unit variance."""

NO_VARIANCE = 1e-28
"""Largest variance of equal samples due to rounding, relative to the squared largest entry."""


@dataclass(frozen=True)
class Whitening:
    """y = to_white (x - mean): white samples, or raw ones scaled to unit mean square where they vary."""

    mean: Array  # (n,), zeros if samples are not centred
    to_white: Array  # (k, n)
    from_white: Array  # (n, k), its pseudo-inverse
    moments: Array  # (k, k) mean of y y^T
    is_white: bool
    unit: float  # root mean square by which samples are divided if not whitened
    rank: int  # number of directions in which samples vary: k, or more if reduced
    condition: float  # ratio of the largest to the smallest variance of such a direction
    scales: Array | None = None  # (n,) standard deviations of features if they are standardised
    is_scaling: bool = False  # whether all that happens is a division by the unit

    def apply(self, rows: Array) -> Array:
        """Whiten samples (b, n)."""
        y = rows.astype(np.float64)
        y -= self.mean
        if not self.is_scaling:
            return y @ self.to_white.T
        y /= self.unit
        return y

    def make_unmixing(self, A: Array) -> Array:
        """Compute the matrix (m, n) that maps centred samples to codes, from atoms (m, k)."""
        return A @ self.to_white

    def make_mixing(self, A: Array) -> Array:
        """Compute the matrix (n, m) that maps these codes to centred samples; atoms of white ones may be oblique."""
        return self.from_white @ (np.linalg.inv(A) if self.is_white else A.T)


def make_whitening(
    statistics: Statistics, *, center: bool, whiten: bool, standardize: bool = False, n_components: int | None = None
) -> Whitening:
    """Choose coordinates: principal components of unit variance if whitened, else those of the samples, scaled.

    Whitened samples are reduced to `n_components` principal directions. Directions without variance are dropped.
    Standardised features have unit variance before anything else.
    """
    moments = statistics.second_moments(center=center)
    if np.max(np.diag(moments)) <= NO_VARIANCE:
        raise EqualSamplesError("All samples are equal: after centring, they do not vary in any direction.")
    scales = find_scales(np.diag(moments))
    n, rank = len(moments), count_directions(moments / np.outer(scales, scales))
    if standardize:
        scales = find_scales(np.diag(statistics.covariance))
    elif not whiten or (n_components or rank) < rank:
        scales = np.ones(n)  # principal directions depend on the units of features
    variances, directions = np.linalg.eigh(moments / np.outer(scales, scales))
    variances, directions = variances[::-1], directions[:, ::-1]
    mean = statistics.mean * statistics.largest if center else np.zeros(n)
    condition = float(variances[0] / max(variances[rank - 1], NO_VARIANCE))
    units = scales[:, None] * statistics.largest
    if whiten:
        k, unit = min(rank, n_components or rank), 1.0
        stds = np.sqrt(variances[:k])
        to_white, from_white = directions[:, :k].T / stds[:, None] / units.T, directions[:, :k] * stds * units
    else:
        size = math.sqrt(np.sum(variances[:rank]) / rank)
        span = np.eye(n) if rank == n else directions[:, :rank]
        to_white, from_white = span.T / size / units.T, span * size * units
        unit = size if standardize else size * statistics.largest
    is_scaling = not whiten and not standardize and rank == n
    found = scales * statistics.largest if standardize else None
    W = to_white * statistics.largest
    return Whitening(mean, to_white, from_white, W @ moments @ W.T, whiten, unit, rank, condition, found, is_scaling)


def find_scales(variances: Array) -> Array:
    """Compute standard deviations; one where there is no variance."""
    scales = np.sqrt(variances)
    return np.asarray(np.where(scales > 0, scales, 1))


def count_directions(correlations: Array) -> int:
    """Count the directions in which features of unit variance vary."""
    variances = np.linalg.eigvalsh(correlations)
    return int(np.sum(variances > RANK_TOLERANCE * variances[-1]))


def whiten_samples(samples: Samples, whitening: Whitening) -> Samples:
    """Return the samples in whitened coordinates, computed in double precision when they are read."""

    def whiten(rows: Array, where: slice | Index) -> Array:  # noqa: ARG001
        return whitening.apply(rows)

    return MappedSamples(samples, whiten, len(whitening.to_white), samples.weights)
