"""Minibatches, subsamples and copies: most iterations of a fit evaluate few of the samples, or in few digits."""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from elldict._old.backend.base import NUMPY, Array, Backend, to_numpy
from elldict._old.backend.matrices import multiply_coarsely
from elldict._old.data.dataset import ArrayDataset, Dataset, Kernel, S, count_row_bytes, is_white, tile_bounds
from elldict._old.data.weighted import WeightedDataset
from elldict._old.data.whitening import IDENTITY, Whitening

SUBSAMPLE_ROWS_PER_FEATURE, MIN_SUBSAMPLE_ROWS = 40, 1000
"""Samples of the first subsample."""

GROWTH = 3
"""Ratio of the sizes of a subsample and the one before."""

BATCH_ROWS_PER_FEATURE, MIN_BATCH_ROWS = 20, 1000
"""Samples of the first minibatches. Fewer would need more steps, which cost more than samples in small problems."""

MIN_BATCH_WORK = 1e10
"""Samples of the first subsample times the square of features from which a card begins with minibatches, n = 630 on:
products of a step take about as long as its calls there, and a subsample misleads where samples are few."""

MIN_BATCHES = 3
"""Batches that differ: with fewer, steps see the same samples again before these have averaged out."""

MAX_BYTES, MAX_GPU_BYTES, MAX_GPU_SHARE, MAX_WHITE_SHARE = 2**25, 2**33, 1 / 12, 1 / 4
"""Size of the largest subsample short of all samples: subsamples are copies. And shares of the memory of a card, for
these and for whitened copies of all samples."""

BATCH_WORK = 1e11
"""Samples of a minibatch times the square of features up to which its products take a card no longer than its calls."""

MIN_COPY, MAX_COPY = 2**17, 2**23
"""Values of samples from which, if they are float64, and up to which, steps are taken on a copy of them: of fewer,
products take no time and float64 keeps digits; of more, it would take more than 32 MB."""


class Minibatches(ArrayDataset):
    """Some of the samples, others in every pass.

    What a few samples show by chance misleads a fit that evaluates them again and again. From batch to batch it
    averages out, so that batches of a third of the size lead as far.
    """

    def __init__(self, source: Dataset, order: NDArray[np.int64], size: int) -> None:
        self.source, self.order, self.n_passes = source, order, 0  # rows are taken in this order
        self.indices: dict[int, Array] = {}  # sorted, of the batches so far
        super().__init__(self._batch(0, size), white=is_white(source))

    def sum(self, kernel: Kernel[S]) -> S:
        """Add up what the kernel makes of the next batch."""
        if self.n_passes:
            self.X = self._batch(self.n_passes, self.n_samples)
        self.n_passes += 1
        return super().sum(kernel)

    def _batch(self, number: int, size: int) -> Array:
        number %= len(self.order) // size
        if number not in self.indices:  # they come again
            index = np.sort(self.order[number * size : (number + 1) * size])
            self.indices[number] = move_index(index, self.source.backend)
        return take_as(self.source, self.indices[number], self.source.dtype)


class Subsampler:
    """What a fit evaluates: minibatches while it is far off, then larger and larger subsamples, then all samples.

    Rows are drawn uniformly, so that sorted, grouped or drifting samples do not matter. Each subsample holds the
    one before. Where several starts will be compared, batches leave some samples alone, by which to compare them.
    """

    def __init__(
        self,
        samples: Dataset,
        rng: np.random.Generator,
        *,
        several: bool = False,
        rows_per_feature: int = SUBSAMPLE_ROWS_PER_FEATURE,
    ) -> None:
        self.samples = samples
        r, n = samples.n_samples, samples.n_features
        self.first = max(MIN_SUBSAMPLE_ROWS, rows_per_feature * n)
        self.n_held_out = self.first if several else 0
        most_bytes = MAX_BYTES
        if samples.backend.on_gpu:
            most_bytes = min(MAX_GPU_BYTES, int(MAX_GPU_SHARE * samples.backend.memory_bytes))
        most = min(r, most_bytes // count_row_bytes(samples))
        if 3 * self.first > r or r * n <= 2**17:  # evaluated in less than a millisecond: fewer would save nothing
            most = 0
        self.most = min(2 * r // 3, most)
        if samples.backend.on_gpu:  # which takes batches of samples at hand without a copy of all of them
            at_hand = isinstance(getattr(samples, "unrecorded", samples), ArrayDataset)
            most = 0 if not self.sizes else max(self.sizes[-1], 2 * r // 3) if at_hand else self.sizes[-1]
        # rows in the order in which batches and levels take them; a copy, so that all the others are forgotten
        few = r < 2**24 and not samples.backend.on_gpu
        self.order = rng.permutation(r)[:most].copy() if few else rng.choice(r, most, replace=False).astype(np.int64)

    @property
    def sizes(self) -> list[int]:
        """Sizes of subsamples short of all samples."""
        sizes = [self.first]
        while GROWTH * sizes[-1] <= self.most:
            sizes.append(GROWTH * sizes[-1])
        return sizes if self.first <= self.most else []

    def begin(self) -> Dataset:
        """Where to begin. What prefers few calls replays a short pass over the same samples faster than over others."""
        n = self.samples.n_features
        if self.samples.backend.prefers_few_calls and self.first * n * n < MIN_BATCH_WORK:
            return self.subsample(self.first)
        return self.minibatches(max(MIN_BATCH_ROWS, BATCH_ROWS_PER_FEATURE * n)) or self.subsample(self.first)

    def are_small(self, size: int) -> bool:
        """Whether batches of more than twice this size would take hardly longer: calls take the time."""
        return self.grow_batch(size) > 2 * size

    def grow_batch(self, size: int) -> int:
        """Size of the batches that follow where those of this size lead on slowly."""
        if not self.samples.backend.prefers_few_calls:
            return 2 * size
        cheap = round(BATCH_WORK / self.samples.n_features**2)
        return max(2 * size, min(cheap, (len(self.order) - self.n_held_out) // MIN_BATCHES))

    def minibatches(self, size: int) -> Minibatches | None:
        """Batches of this size; None if there would not be two of them."""
        n_rows = len(self.order) - self.n_held_out
        if 2 * size > n_rows:
            return None
        source, order = self._source
        assert isinstance(source, ArrayDataset)
        return Minibatches(source, order[:n_rows], size)

    def held_out(self) -> Dataset:
        """Samples that no batch has seen."""
        source, order = self._source
        return take_some(source, np.sort(order[-self.n_held_out :]), self.samples.dtype)

    def subsample(self, size: int) -> Dataset:
        """So many samples, or all."""
        if size > self.most:
            return self.samples
        source, order = self._source
        return take_some(source, np.sort(order[:size]), self.samples.dtype)

    @cached_property
    def _source(self) -> tuple[Dataset, NDArray[np.int64]]:
        """Where rows are drawn from, and their order there. A file is read through once, not once for every draw."""
        if isinstance(self.samples, ArrayDataset) or self.samples.backend.on_gpu:
            return self.samples, self.order
        index = np.sort(self.order)
        return take_some(self.samples, index, self.samples.dtype), np.searchsorted(index, self.order)


def take_some(samples: Dataset, index: NDArray[np.int64], dtype: str) -> ArrayDataset:
    """Some of the samples, by sorted index, as samples of their own."""
    return ArrayDataset(take_as(samples, index, dtype), white=is_white(samples))


def move_index(index: NDArray[np.int64], backend: Backend) -> Array:
    """Numbers of samples, where these are."""
    return backend.xp.asarray(index, device=backend.device)


def take_as(samples: Dataset, index: Array, dtype: str) -> Array:
    """Some of the samples, by sorted index, on their backend."""
    backend = samples.backend
    if not isinstance(samples, ArrayDataset):
        return backend.asarray(samples.take(index), dtype)
    rows = backend.xp.take(samples.X, move_index(index, backend), axis=0)
    return backend.xp.astype(rows, getattr(backend.xp, dtype), copy=False)


def find_at_hand(samples: Dataset) -> Dataset | None:
    """The samples, without a record of passes, if rows can be drawn of them again and again; or None.

    They are on a card, or so few that a file or a cluster has them at once: by their number alone, wherever they are,
    so that the same samples give the same bits.
    """
    samples = getattr(samples, "unrecorded", samples)
    held = samples.source if isinstance(samples, WeightedDataset) else samples
    on_card = held.backend.on_gpu and isinstance(held, ArrayDataset)
    return samples if on_card or held.n_samples * held.n_features <= MAX_COPY else None


def copy_coarse(samples: Dataset, precision: str) -> Dataset:
    """The samples in float32, if that is the precision of many passes and not too much to hold; or as they are."""
    if not isinstance(samples, ArrayDataset) or samples.backend != NUMPY or samples.dtype != "float64":
        return samples
    if precision != "float32" or not MIN_COPY <= samples.n_samples * samples.n_features <= MAX_COPY:
        return samples
    return ArrayDataset(np.asarray(samples.X, dtype=np.float32))


def whiten_on_card(samples: Dataset, whitening: Whitening) -> Dataset:
    """A copy of samples on a card in whitened coordinates, and normalised if asked; as they are if it cannot be held.

    Its passes need no products of matrices to whiten gradients, and its rounding by fast products is not that of large
    directions in small ones.
    """
    held = getattr(samples, "unrecorded", samples)
    backend, known = held.backend, is_white(held)
    if not backend.prefers_products or not isinstance(held, ArrayDataset) or not (known or whitening.whitened):
        return samples
    if str(held.X.dtype).endswith("16"):  # who gives half precision has no room for twice the bytes
        return samples
    k = held.n_features if known or whitening.to_white is None else int(whitening.to_white.shape[0])
    if held.n_samples * k * (4 if held.dtype == "float32" else 8) > MAX_WHITE_SHARE * backend.memory_bytes:
        return samples
    xp, dtype = backend.xp, getattr(backend.xp, held.dtype)
    white = xp.empty((held.n_samples, k), dtype=dtype, device=backend.device)
    local = replace(IDENTITY, loudness=whitening.loudness) if known else whitening.move_to(backend)
    fast = held.dtype == "float32" and not known and local.bears_fast_products(held.n_samples)
    for first, last in tile_bounds(held.n_samples, held.tile_rows):
        rows = xp.astype(held.X[first:last, :], dtype if known or fast else xp.float64, copy=False)
        white[first:last, :] = whiten_coarsely(rows, local) if fast else local.whiten(rows)
    return ArrayDataset(white, white=True)


def whiten_coarsely(rows: Array, whitening: Whitening) -> Array:
    """Float32 samples (b, n) in whitened coordinates, by fast products."""
    xp = Backend.of(rows).xp
    centred = rows if whitening.mean is None else rows - xp.astype(whitening.mean, rows.dtype)
    white = whitening.scale * multiply_coarsely(centred, xp.astype(whitening.to_white, rows.dtype).T)
    return white if whitening.loudness is None else whitening.loudness.normalize(white)


def copy_white(samples: Dataset, whitening: Whitening) -> Dataset | None:
    """The samples in whitened coordinates, normalised, in float32; None if that is too much to hold.

    Dozens of steps are taken on them, which need neither the features of samples nor more digits than noise leaves. By
    NumPy, whatever library the samples are of: sums of float32 values would differ in the last digits of these. Or by a
    card, on which they are.
    """
    r, n = samples.n_samples, samples.n_features
    k = n if whitening.to_white is None else int(whitening.to_white.shape[0])
    least = MIN_COPY if samples.dtype == "float64" else 0
    if samples.backend.prefers_products:
        if is_white(samples) and whitening.loudness is None:
            return samples
        copied = whiten_on_card(samples, whitening)
        return copied if is_white(copied) else None
    if samples.backend.on_gpu or isinstance(samples, WeightedDataset) or not least <= r * k <= MAX_COPY:
        return None
    whitening = whitening.move_to(NUMPY)
    white = np.empty((r, k), dtype=np.float32)
    rows = max(1, MAX_COPY // 32 // n)  # in float64, and more than once
    for first in range(0, r, rows):
        index = np.arange(first, min(first + rows, r), dtype=np.int64)
        white[index] = whitening.whiten(to_numpy(samples.take(index)).astype(np.float64, copy=False))
    return ArrayDataset(white)
