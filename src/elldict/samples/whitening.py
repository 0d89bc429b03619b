"""The change of coordinates from raw samples to those in which atoms are orthonormal."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from elldict.samples.base import Array, Index, S, Samples, Visit
from elldict.samples.statistics import EqualSamplesError, Statistics

RANK_TOLERANCE = 1e-10
"""Variance of a direction, in units of the largest, features having unit variance, that rounding may have made."""

NO_VARIANCE = 1e-28
"""Largest variance, in units of the squared largest entry, that rounding makes of equal samples."""


@dataclass(frozen=True)
class Whitening:
    """y = to_white (x - mean): white samples, or raw ones of unit mean square in the directions in which they vary."""

    mean: Array  # (n,), zeros if samples are not centred
    to_white: Array  # (k, n)
    from_white: Array  # (n, k), its pseudo-inverse
    is_white: bool
    unit: float  # root mean square by which samples that are not whitened were divided
    rank: int  # number of directions in which samples vary: k, or more if they were reduced
    condition: float  # largest variance of such a direction, in units of the smallest

    def apply(self, rows: Array) -> Array:
        """Whiten samples (b, n)."""
        return (rows - self.mean) @ self.to_white.T

    def make_unmixing(self, A: Array) -> Array:
        """Rows (m, n) that make codes of centred samples from atoms (m, k)."""
        return A @ self.to_white

    def make_mixing(self, A: Array) -> Array:
        """Columns (n, m) that make centred samples from those codes."""
        return self.from_white @ A.T


def make_whitening(statistics: Statistics, *, center: bool, whiten: bool, n_components: int | None = None) -> Whitening:
    """Choose coordinates: principal ones of unit variance if whitened, those of the samples, scaled, if not.

    Whitened samples are reduced to `n_components` principal directions. Directions without variance are left out.
    """
    moments = statistics.second_moments(center=center)
    if np.max(np.diag(moments)) <= NO_VARIANCE:
        raise EqualSamplesError("All samples are equal: once centred, there is no direction in which they vary.")
    scales = np.sqrt(np.diag(moments))
    scales = np.where(scales > 0, scales, 1)
    n, rank = len(moments), count_directions(moments / np.outer(scales, scales))
    if not whiten or (n_components or rank) < rank:
        scales = np.ones(n)  # principal directions depend on the units of features
    variances, directions = np.linalg.eigh(moments / np.outer(scales, scales))
    variances, directions = variances[::-1], directions[:, ::-1]
    mean = statistics.mean * statistics.largest if center else np.zeros(n)
    condition = float(variances[0] / max(variances[rank - 1], NO_VARIANCE))
    if whiten:
        k, unit = min(rank, n_components or rank), 1.0
        stds, units = np.sqrt(variances[:k]), scales[:, None] * statistics.largest
        to_white, from_white = directions[:, :k].T / stds[:, None] / units.T, directions[:, :k] * stds * units
    else:
        unit = statistics.largest * math.sqrt(np.sum(variances[:rank]) / rank)
        span = np.eye(n) if rank == n else directions[:, :rank]
        to_white, from_white = span.T / unit, span * unit
    return Whitening(mean, to_white, from_white, whiten, unit, rank, condition)


def count_directions(correlations: Array) -> int:
    """Count the directions in which features of unit variance vary."""
    variances = np.linalg.eigvalsh(correlations)
    return int(np.sum(variances > RANK_TOLERANCE * variances[-1]))


@dataclass(frozen=True)
class WhitenedSamples:
    """Samples in the coordinates of a whitening."""

    samples: Samples
    whitening: Whitening

    @property
    def shape(self) -> tuple[int, int]:
        """Number of samples and of directions."""
        return self.samples.shape[0], len(self.whitening.to_white)

    @property
    def n_threads(self) -> int:
        """Number of threads that visit blocks at the same time."""
        return self.samples.n_threads

    def sum(self, visit: Visit[S]) -> S:
        """Add up what a visit to each block returns."""
        return self.samples.sum(lambda rows, start: visit(self.whitening.apply(rows), start))

    def take(self, index: Index) -> Array:
        """Return single samples, in the order of the index."""
        return self.whitening.apply(self.samples.take(index))
