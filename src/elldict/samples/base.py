"""The protocol for samples, and sums over blocks that do not depend on the number of threads."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, fields
from typing import Any, Protocol, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Index = NDArray[np.intp]
Weights = Array | None
"""Numbers of copies (r,) of samples, not necessarily whole; None if all are one."""

BLOCK_NUMBERS = 2**18
"""Entries per block: with its codes and their derivatives, a block fits into the cache of one CPU core."""

STORED_BYTES = 2**25
"""Size up to which arrays of one row per sample are kept in memory; beyond, they are recomputed block by block."""


class Additive(Protocol):
    """Result of a visit to a block; results of all blocks are summed."""

    def __add__(self, other: Self, /) -> Self:
        """Add the sums of two blocks."""


S = TypeVar("S", bound=Additive)
T = TypeVar("T")
Visit = Callable[[Array, int], S]
"""Computes the sums of one block from its rows (b, n) and the index of the first row."""


class Samples(Protocol):
    """Samples as rows, processed block by block in single or double precision."""

    @property
    def shape(self) -> tuple[int, int]:
        """Number of samples and of features."""

    @property
    def dtype(self) -> np.dtype[Any]:
        """Precision of the samples: float32 or float64."""

    @property
    def weights(self) -> Weights:
        """Weights (r,) of the samples; None if all are one."""

    @property
    def n_threads(self) -> int:
        """Number of threads that visit blocks in parallel."""

    def sum(self, visit: Visit[S]) -> S:
        """Sum the results of a visit to each block, along a fixed tree."""

    def take(self, index: Index) -> Array:
        """Return the samples of an index, in its order."""


@dataclass(frozen=True)
class MappedSamples:
    """Samples to which a function is applied when they are read: rows (b, k) of rows (b, n) and their positions."""

    samples: Samples
    function: Callable[[Array, slice | Index], Array]
    n_features: int
    weights: Weights

    @property
    def shape(self) -> tuple[int, int]:
        """Number of samples and of features."""
        return self.samples.shape[0], self.n_features

    @property
    def dtype(self) -> np.dtype[Any]:
        """Precision of the samples."""
        return self.samples.dtype

    @property
    def n_threads(self) -> int:
        """Number of threads that visit blocks in parallel."""
        return self.samples.n_threads

    def sum(self, visit: Visit[S]) -> S:
        """Sum the results of a visit to each block."""
        return self.samples.sum(lambda rows, start: visit(self.function(rows, slice(start, start + len(rows))), start))

    def take(self, index: Index) -> Array:
        """Return the samples of an index, in its order."""
        return self.function(self.samples.take(index), index)


class FieldwiseSum:
    """Adds two instances of a dataclass field by field."""

    def __add__(self, other: Self) -> Self:
        """Add every field."""
        names = [field.name for field in fields(self)]  # type: ignore[arg-type]
        return type(self)(*(getattr(self, name) + getattr(other, name) for name in names))


def weigh(rows: Array, weights: Weights, start: int) -> Array:
    """Multiply the rows of a block, which begins at `start`, with the weights of its samples."""
    return rows if weights is None else rows * weights[start : start + len(rows), None].astype(rows.dtype)


def cut_blocks(n_samples: int, n_features: int) -> list[tuple[int, int]]:
    """Compute the bounds of all blocks, which depend only on the shape."""
    rows = max(64, BLOCK_NUMBERS // max(1, n_features))
    return [(start, min(start + rows, n_samples)) for start in range(0, n_samples, rows)]


def sum_along_tree(sums: Iterable[S]) -> S:
    """Sum pairwise, so that rounding errors grow with the depth of the tree, not with the number of leaves."""
    waiting: list[tuple[int, S]] = []  # levels decrease; at most one sum per level
    for value in sums:
        level, total = 0, value
        while waiting and waiting[-1][0] == level:
            total = waiting.pop()[1] + total
            level += 1
        waiting.append((level, total))
    total = waiting.pop()[1]
    while waiting:
        total = waiting.pop()[1] + total
    return total


def map_in_order(function: Callable[[T], S], items: Iterable[T], n_threads: int) -> Iterator[S]:
    """Apply a function to items in several threads; yield results in the order of the items."""
    if n_threads == 1:
        yield from map(function, items)
        return
    with ThreadPoolExecutor(n_threads) as pool:
        running: deque[Future[Any]] = deque()
        for item in items:
            if len(running) == 2 * n_threads:  # pending results take up memory
                yield running.popleft().result()
            running.append(pool.submit(function, item))
        while running:
            yield running.popleft().result()
