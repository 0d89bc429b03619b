"""The samples used by a climb: all, or every s-th, kept in memory and assigned to one of two halves."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Self

import numpy as np

from elldict.samples.arrays import ArraySamples
from elldict.samples.base import Array, Index, S, Samples
from elldict.samples.normalization import Normalization
from elldict.samples.order import Order

NO_VARIANCE = 1e-24
"""Smallest variance of a code, relative to the mean one of a direction: it may vanish on a subsample."""

LEAST_VARIANCE = 1e-9
"""Smallest variance, relative to the largest, of a direction in which samples vary."""


@dataclass(frozen=True)
class Codes:
    """Codes of samples for given atoms, and the half that each sample belongs to."""

    samples: Samples  # (r, m)
    half: Index  # (r,) 0 or 1
    std: Array  # (m,)

    @property
    def shape(self) -> tuple[int, int]:
        """Number of samples and of atoms."""
        return self.samples.shape

    def sum(self, visit: Callable[[Array, Index], S]) -> S:
        """Sum the results of a visit to the codes and halves of each block."""
        return self.samples.sum(lambda rows, start: visit(rows, self.half[start : start + len(rows)]))


@dataclass(frozen=True)
class Subset:
    """Samples in memory, their halves, and their second moments."""

    samples: ArraySamples
    half: Index  # (r,) 0 or 1
    moments: Array  # (n, n) mean of y y^T

    @property
    def shape(self) -> tuple[int, int]:
        """Number of samples and of features."""
        return self.samples.shape

    @property
    def has_full_rank(self) -> bool:
        """Whether the samples vary in every direction."""
        variances = np.linalg.eigvalsh(self.moments)
        return bool(variances[0] > LEAST_VARIANCE * variances[-1])

    def normalize(self, normalization: Normalization) -> Self:
        """Return the normalised samples."""
        samples = map_blocks(self.samples, normalization.apply, self.shape[1])
        return type(self)(samples, self.half, compute_second_moments(samples))

    def encode(self, A: Array) -> Codes:
        """Compute the codes for atoms A (m, n)."""
        std = np.sqrt(np.maximum(np.sum(A @ self.moments * A, axis=1), NO_VARIANCE))
        return Codes(map_blocks(self.samples, lambda rows: rows @ A.T, len(A)), self.half, std)


def map_blocks(samples: ArraySamples, function: Callable[[Array], Array], n_features: int) -> ArraySamples:
    """Apply a function to every block, and keep the result in memory."""
    out = np.empty((samples.shape[0], n_features))

    def visit(rows: Array, start: int) -> int:
        out[start : start + len(rows)] = function(rows)
        return len(rows)

    samples.sum(visit)
    return ArraySamples(out, samples.n_threads)


def gather(samples: Samples, order: Order) -> Subset:
    """Read samples into memory in the given order."""
    rows = ArraySamples(samples.take(order.index), samples.n_threads)
    return Subset(rows, order.assign_parts(2), compute_second_moments(rows))


def compute_second_moments(samples: Samples) -> Array:
    """Compute the mean of y y^T (n, n)."""
    return samples.sum(lambda rows, start: rows.T @ rows) / samples.shape[0]  # noqa: ARG005


def choose_strides(first: int, growth: int) -> list[int]:
    """Choose strides: the first, then `growth` times as many samples each time, up to all of them."""
    strides = [max(1, first)]
    while strides[-1] > 1:
        strides.append(strides[-1] // growth if strides[-1] >= 2 * growth else 1)
    return strides


def is_white(moments: Array, n_samples: int) -> bool:
    """Return whether samples were whitened by their own moments; if not, chance correlations are 1 / sqrt(r)."""
    scale = np.trace(moments) / len(moments)
    return bool(np.max(np.abs(moments / scale - np.eye(len(moments)))) < 0.01 / np.sqrt(n_samples))
