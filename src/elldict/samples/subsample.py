"""The samples used by a climb: all, or every s-th, each assigned to one of two halves."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from elldict.samples.arrays import ArraySamples, SelectedSamples, hold
from elldict.samples.base import STORED_BYTES, Array, Index, MappedSamples, S, Samples, Weights, weigh
from elldict.samples.normalization import Normalization
from elldict.samples.order import Order, map_rows
from elldict.samples.statistics import count_samples
from elldict.samples.whitening import Whitening, whiten_samples

NO_VARIANCE = 1e-24
"""Smallest variance of a code, relative to the mean one of a direction: it may vanish on a subsample."""

LEAST_VARIANCE = 1e-9
"""Smallest variance, relative to the largest, of a direction in which samples vary."""

COPIED_BYTES = 2**22
"""Size up to which all samples are whitened once, in a copy."""

ROUNDING, ROUNDING_DIGITS = 1e-13, 4.0
"""Size of a zero code after rounding errors, in standard deviations: at least, and in units of the last digit."""


FEWEST, PER_DIRECTION = 1500, 15
"""Samples used for second derivatives and variances: minimum, and per direction."""


@dataclass(frozen=True)
class Codes:
    """Codes of samples for given atoms, and the half that each sample belongs to."""

    samples: Samples  # (r, m)
    few: Samples  # evenly spaced in their order, for second derivatives and variances
    half: Index  # (r,) 0 or 1
    std: Array  # (m,)

    @property
    def shape(self) -> tuple[int, int]:
        """Number of distinct samples and of atoms."""
        return self.samples.shape

    @property
    def n_samples(self) -> float:
        """Number of samples, each counted with its weight."""
        return count_samples(self.samples)

    @property
    def rounding(self) -> float:
        """Size of a zero code after rounding errors, in standard deviations."""
        return max(ROUNDING, ROUNDING_DIGITS * float(np.spacing(self.samples.dtype.type(1))))

    def sum(self, visit: Callable[[Array, Index, Weights], S]) -> S:
        """Sum the results of a visit to the codes, halves and weights of each block."""
        half, weights = self.half, self.samples.weights

        def visit_block(Z: Array, start: int) -> S:
            where = slice(start, start + len(Z))
            return visit(Z, half[where], None if weights is None else weights[where])

        return self.samples.sum(visit_block)


@dataclass(frozen=True)
class Subset:
    """Samples, whitened in memory or whitened when they are read, with their halves and second moments."""

    samples: Samples
    few: ArraySamples  # whitened
    whitening: Whitening | None  # if samples are not whitened yet
    half: Index  # (r,) 0 or 1
    squares: Array  # (r,) squared norms of whitened samples
    moments: Array  # (n, n) mean of y y^T
    scale: Array | None = None  # (r,) factors of normalised samples

    @property
    def shape(self) -> tuple[int, int]:
        """Number of distinct samples and of features."""
        return self.samples.shape[0], len(self.moments)

    @property
    def white(self) -> Samples:
        """Samples in whitened coordinates, not normalised."""
        return self.samples if self.whitening is None else whiten_samples(self.samples, self.whitening)

    @property
    def has_full_rank(self) -> bool:
        """Whether the samples vary in every direction."""
        variances = np.linalg.eigvalsh(self.moments)
        return bool(variances[0] > LEAST_VARIANCE * variances[-1])

    def normalize(self, normalization: Normalization) -> Subset:
        """Return the normalised samples."""
        scale = normalization.find_scale(self.squares)
        few = hold(normalization.apply(self.few.X), self.few.n_threads, self.few.weights)
        return replace(self, few=few, scale=scale, moments=compute_second_moments(self.white, scale))

    def measure_std(self, A: Array) -> Array:
        """Compute the standard deviation (m,) of the codes for atoms A (m, n), without a constant."""
        A = A[:, : len(self.moments)]
        return np.asarray(np.sqrt(np.maximum(np.einsum("ij,ij->i", A @ self.moments, A), NO_VARIANCE)))

    def standardize(self, A: Array) -> Array:
        """Scale atoms A (m, n) so that their codes have unit variance."""
        return np.asarray(A / self.measure_std(A)[:, None])

    def encode(self, A: Array) -> Codes:
        """Compute the codes for atoms A (m, n): at once if they fit into memory, otherwise when they are read.

        In one more column, A may have a constant that is added to each code of samples that are not normalised.
        """
        std, dtype, scale = self.measure_std(A), self.samples.dtype, self.scale
        k = len(self.moments)
        A, offset = A[:, :k], np.sum(A[:, k:], axis=1)
        few = (A.astype(dtype) @ self.few.X.T).T + offset.astype(dtype)
        if self.whitening is not None:
            A = A @ self.whitening.to_white  # one product with raw samples
            offset = offset - A @ self.whitening.mean
        has_offset = bool(np.any(offset))
        A, offset = A.astype(dtype), offset.astype(dtype)[:, None]

        def compute(rows: Array, where: slice | Index) -> Array:
            Zt = A @ rows.T
            if has_offset:
                Zt += offset
            if scale is not None:
                Zt *= scale[where].astype(dtype)
            return Zt.T

        codes: Samples = MappedSamples(self.samples, compute, len(A), self.samples.weights)
        if self.shape[0] * len(A) * dtype.itemsize <= STORED_BYTES:
            codes = store(codes, self.few.X)
        return Codes(codes, hold(few, self.few.n_threads, self.few.weights), self.half, std)


def store(samples: Samples, like: Array | None = None) -> ArraySamples:
    """Read all samples into memory, or where an array `like` theirs is, so that each feature is contiguous."""
    out = np.empty(samples.shape[::-1], dtype=samples.dtype, like=like).T
    return hold(samples.map(lambda rows, start: rows, out), samples.n_threads, samples.weights)  # noqa: ARG005


def gather(samples: Samples, whitening: Whitening, order: Order) -> Subset:
    """Collect the whitened samples of an order; many are read from where they are in every pass."""
    moments = whitening.moments
    r, half, squares, weights = len(order.index), order.assign_parts(2), order.squares, order.weights
    size = r * len(moments) * samples.dtype.itemsize
    found: Samples
    is_all = r == samples.shape[0]
    if size > (COPIED_BYTES if is_all else STORED_BYTES) and 2 * r >= samples.shape[0]:  # consecutive rows: no copy
        if weights is not None or not is_all:
            weights = spread(np.ones(r) if weights is None else weights, order.index, samples.shape[0])
        half, squares = (spread(values, order.index, samples.shape[0]) for values in (half, squares))
        found, pending = replace_weights(samples, weights), whitening
    elif size > STORED_BYTES:
        rank = np.argsort(order.index)  # samples are read in the order in which they are stored
        half, squares, weights = half[rank], squares[rank], None if weights is None else weights[rank]
        found, pending = SelectedSamples(samples, order.index[rank], weights), whitening
    else:
        found, pending = read(samples, whitening, order), None
    subset = Subset(found, read_few(samples, whitening, order), pending, half, squares, moments)
    return subset if is_all else replace(subset, moments=compute_second_moments(subset.white))


def gather_all(
    samples: Samples, whitening: Whitening, order: Order | None = None, model: Normalization | None = None
) -> Subset:
    """Collect all samples by their position, to be read in every pass; every other is in the second half.

    With an order, small samples are left out as there, and its samples are used for second derivatives. A `model` will
    need norms.
    """
    r, white, squares = samples.shape[0], whiten_samples(samples, whitening), np.zeros(0)
    moments = whitening.moments
    half: Any = np.zeros(r, dtype=np.int8)
    half[1::2] = 1
    if order is None:
        return Subset(samples, hold(white.take(np.arange(0))), whitening, half, squares, moments)
    least, few = order.least, read_few(samples, whitening, order)
    if model is not None:
        squares = map_rows(white, lambda rows: np.vecdot(rows, rows))
    kept = white.map(lambda rows, start: np.vecdot(rows, rows) > least, np.empty(r, dtype=bool))  # noqa: ARG005
    if np.all(kept):
        return Subset(samples, few, whitening, half, squares, moments)
    weights = kept.astype(np.float64) if samples.weights is None else kept * samples.weights
    subset = Subset(replace_weights(samples, weights), few, whitening, half, squares, moments)
    return replace(subset, moments=compute_second_moments(subset.white))


def read_few(samples: Samples, whitening: Whitening, order: Order) -> ArraySamples:
    """Read evenly spaced samples of an order for second derivatives."""
    n = len(whitening.to_white)
    return read(samples, whitening, order.thin_out(max(1, round(order.n_samples / max(FEWEST, PER_DIRECTION * n)))))


def read(samples: Samples, whitening: Whitening, order: Order) -> ArraySamples:
    """Read the samples of an order into memory, and whiten them."""
    rows = whitening.apply(samples.take(order.index)).astype(samples.dtype)
    return hold(rows, samples.n_threads, order.weights)


def spread(values: Any, index: Index, size: int) -> Any:
    """Put values (r,) to the positions of an index; all other positions hold zeros."""
    out = np.zeros(size, dtype=values.dtype)
    out[index] = values
    return out


def replace_weights(samples: Samples, weights: Weights) -> Samples:
    """Return the same samples with other weights."""
    return MappedSamples(samples, lambda rows, where: rows, samples.shape[1], weights)  # noqa: ARG005


def compute_second_moments(samples: Samples, scale: Array | None = None) -> Array:
    """Compute the weighted mean of y y^T (n, n), of samples multiplied by a factor each if there is one."""
    weights = samples.weights

    def visit(rows: Array, start: int) -> Array:
        y = rows if scale is None else rows * scale[start : start + len(rows), None].astype(rows.dtype)
        return np.asarray(weigh(y, weights, start).T @ y, dtype=np.float64)

    return samples.sum(visit) / count_samples(samples)


def choose_strides(first: int, growth: int) -> list[int]:
    """Choose strides: the first, then `growth` times as many samples each time, up to all of them.

    More than a fourth of the samples are all of them: this takes little longer.
    """
    strides = [max(1, first)]
    while strides[-1] > 1:
        strides.append(strides[-1] // growth if strides[-1] >= 4 * growth else 1)
    return strides


def is_white(moments: Array, n_samples: float) -> bool:
    """Return whether samples were whitened by their own moments; if not, chance correlations are 1 / sqrt(r)."""
    scale = np.trace(moments) / len(moments)
    return bool(np.max(np.abs(moments / scale - np.eye(len(moments)))) < 0.01 / np.sqrt(n_samples))
