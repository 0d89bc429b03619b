"""The change from the coordinates of raw samples to those in which atoms are orthonormal."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from elldict.samples.base import Array, Index, S, Samples, Visit
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
    is_white: bool
    unit: float  # root mean square by which samples are divided if not whitened
    rank: int  # number of directions in which samples vary: k, or more if reduced
    condition: float  # ratio of the largest to the smallest variance of such a direction

    def apply(self, rows: Array) -> Array:
        """Whiten samples (b, n)."""
        return (rows - self.mean) @ self.to_white.T

    def make_unmixing(self, A: Array) -> Array:
        """Compute the matrix (m, n) that maps centred samples to codes, from atoms (m, k)."""
        return A @ self.to_white

    def make_mixing(self, A: Array) -> Array:
        """Compute the matrix (n, m) that maps these codes to centred samples."""
        return self.from_white @ A.T


def make_whitening(statistics: Statistics, *, center: bool, whiten: bool, n_components: int | None = None) -> Whitening:
    """Choose coordinates: principal components of unit variance if whitened, else those of the samples, scaled.

    Whitened samples are reduced to `n_components` principal directions. Directions without variance are dropped.
    """
    moments = statistics.second_moments(center=center)
    if np.max(np.diag(moments)) <= NO_VARIANCE:
        raise EqualSamplesError("All samples are equal: after centring, they do not vary in any direction.")
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
    """Samples in whitened coordinates."""

    samples: Samples
    whitening: Whitening

    @property
    def shape(self) -> tuple[int, int]:
        """Number of samples and of directions."""
        return self.samples.shape[0], len(self.whitening.to_white)

    @property
    def n_threads(self) -> int:
        """Number of threads that visit blocks in parallel."""
        return self.samples.n_threads

    def sum(self, visit: Visit[S]) -> S:
        """Sum the results of a visit to each block."""
        return self.samples.sum(lambda rows, start: visit(self.whitening.apply(rows), start))

    def take(self, index: Index) -> Array:
        """Return the samples of an index, in its order."""
        return self.whitening.apply(self.samples.take(index))
