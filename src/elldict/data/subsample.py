"""Growing samples: most of the way to the answer is walked on a few of the samples, drawn at random."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from elldict.backend.base import Array, Backend
from elldict.data.dataset import ArrayDataset, Dataset, Kernel, RowWriter, S

FIRST_PER_FEATURE = 40
FEWEST = 1000
"""Samples of the first level."""

GROWTH = 3
"""How many times as many the next level has."""

BATCH_PER_FEATURE = 20
SMALLEST_BATCH = 1000
"""Samples of the first batches. Fewer would need more steps, which cost more than samples where problems are small."""

FEWEST_BATCHES = 2
"""Of samples that are divided into batches."""

SMALL_VALUES = 2**17
"""Of samples that are looked at in less than a millisecond, so that fewer would save nothing."""

MOST_BYTES = 2**25
MOST_GPU_BYTES = 2**30
"""Of the largest level short of all samples: levels are copies."""


@dataclass
class Minibatches:
    """Some of the samples, others in every pass.

    What a few samples show by chance leads astray whoever goes on looking at them. From batch to batch it averages
    out, so that batches of a third of the size lead as far.
    """

    source: ArrayDataset
    order: NDArray[np.int64]  # rows, in the order in which batches take them
    n_samples: int  # of a batch
    number: int = 0  # of passes so far

    @property
    def n_features(self) -> int:
        """Number of columns."""
        return self.source.n_features

    @property
    def dtype(self) -> str:
        """Precision of the tiles."""
        return self.source.dtype

    @property
    def backend(self) -> Backend:
        """Library and device."""
        return self.source.backend

    def sum(self, kernel: Kernel[S]) -> S:
        """Add up what the kernel makes of the next batch."""
        batch = self._batch(self.number)
        self.number += 1
        return batch.sum(kernel)

    def map_rows(self, kernel: Kernel[Array], n_columns: int) -> Any:
        """What the kernel makes of the batch to come, a row a sample."""
        return self._batch(self.number).map_rows(kernel, n_columns)

    def write_rows(self, kernel: Kernel[Array], writer: RowWriter) -> None:
        """Give the sink what the kernel makes of the batch to come."""
        self._batch(self.number).write_rows(kernel, writer)

    def take(self, index: NDArray[np.int64]) -> NDArray[np.float64]:
        """Some samples of the batch to come, by sorted index, on the host."""
        return self._batch(self.number).take(index)

    def fingerprint(self) -> str:
        """That of the samples that batches are drawn from."""
        return self.source.fingerprint()

    def locate(self, sample: int) -> str:
        """Where a sample of the batch to come is found."""
        return self._batch(self.number).locate(sample)

    def _batch(self, number: int) -> ArrayDataset:
        first = number % (len(self.order) // self.n_samples) * self.n_samples
        index = np.sort(self.order[first : first + self.n_samples])
        return ArrayDataset(self.source.part(index, self.dtype))


class Subsampler:
    """What a fit looks at on its way: batches while it is far off, then more and more samples, then all of them.

    Rows are drawn uniformly, so that sorted, grouped or drifting samples do not matter. Each level holds the one
    before. Where several starts will be compared, batches leave some samples alone, by which to compare them.
    """

    def __init__(self, samples: Dataset, rng: np.random.Generator, *, several: bool = False) -> None:
        self.samples = samples
        r, n = samples.n_samples, samples.n_features
        self.first = max(FEWEST, FIRST_PER_FEATURE * n)
        self.n_held_out = self.first if several else 0
        most_bytes = MOST_GPU_BYTES if samples.backend.on_gpu else MOST_BYTES
        most = min(r, most_bytes // (n * (4 if samples.dtype == "float32" else 8)))
        if 3 * self.first > r or r * n <= SMALL_VALUES:
            most = 0
        self.most = min(2 * r // 3, most)
        self.order = self._drawn(most, rng)

    @property
    def sizes(self) -> list[int]:
        """Of levels short of all samples."""
        sizes = [self.first]
        while GROWTH * sizes[-1] <= self.most:
            sizes.append(GROWTH * sizes[-1])
        return sizes if self.first <= self.most else []

    def begin(self) -> Dataset:
        """Where to begin. A graphics card replays a pass over the same samples faster than it is told of others."""
        if self.samples.backend.on_gpu:
            return self.level(self.first)
        n = self.samples.n_features
        return self.batches(max(SMALLEST_BATCH, BATCH_PER_FEATURE * n)) or self.level(self.first)

    def batches(self, size: int) -> Minibatches | None:
        """Batches of this size; None if there would be too few of them."""
        n_rows = len(self.order) - self.n_held_out
        if FEWEST_BATCHES * size > n_rows:
            return None
        source, order = self._at_hand
        assert isinstance(source, ArrayDataset)
        return Minibatches(source, order[:n_rows], size)

    def held_out(self) -> Dataset:
        """Samples that no batch has seen."""
        source, order = self._at_hand
        return ArrayDataset(take_as(source, np.sort(order[-self.n_held_out :]), self.samples.dtype))

    def level(self, size: int) -> Dataset:
        """So many samples, or all."""
        if size > self.most:
            return self.samples
        source, order = self._at_hand
        return ArrayDataset(take_as(source, np.sort(order[:size]), self.samples.dtype))

    @cached_property
    def _at_hand(self) -> tuple[Dataset, NDArray[np.int64]]:
        """Where rows are drawn from, and their order there. A file is read through once, not once for every draw."""
        if isinstance(self.samples, ArrayDataset) or self.samples.backend.on_gpu:
            return self.samples, self.order
        index = np.sort(self.order)
        return ArrayDataset(take_as(self.samples, index, self.samples.dtype)), np.searchsorted(index, self.order)

    def _drawn(self, most: int, rng: np.random.Generator) -> NDArray[np.int64]:
        """At most so many rows, in the order in which batches and levels take them."""
        r = self.samples.n_samples
        if not self.samples.backend.on_gpu:
            if r < 2**24:
                return rng.permutation(r)[:most].copy()  # so that the numbers of all the others are forgotten
            return rng.choice(r, most, replace=False, shuffle=True).astype(np.int64)
        return rng.choice(r, self.sizes[-1] if self.sizes else 0, replace=False, shuffle=True).astype(np.int64)


def take_as(samples: Dataset, index: NDArray[np.int64], dtype: str) -> Array:
    """Some of the samples, by sorted index, in their space."""
    if isinstance(samples, ArrayDataset):
        return samples.part(index, dtype)
    return samples.backend.asarray(samples.take(index), dtype)
