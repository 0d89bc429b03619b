"""The protocol for samples, and sums over blocks that do not depend on the number of threads."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import fields
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
"""Computes the sums of one block from its rows (b, n) and the index of the first row.

It may be sent to another process: it holds what it needs, but no samples, and changes nothing but its own result.
"""


class Samples(Protocol):
    """Samples as rows, processed block by block in single or double precision."""

    shape: tuple[int, int]  # number of samples and of features
    dtype: np.dtype[Any]  # float32 or float64
    weights: Weights
    n_threads: int  # that visit blocks in parallel

    def sum(self, visit: Visit[S], index: Index | None = None) -> S:
        """Sum the results of a visit to each block of all samples, or of those of an index, along a fixed tree."""

    def map(self, visit: Visit[Array], out: Array, index: Index | None = None) -> Array:
        """Write what a visit returns for each block, one row or number per sample, to `out`; return `out`."""

    def take(self, index: Index) -> Array:
        """Return the samples of an index, in its order."""


class LocalSamples(ABC):
    """Samples whose blocks are read and visited in this process."""

    shape: tuple[int, int]
    n_threads: int
    block_numbers: int | None = None  # entries per block; None: as many as suit a CPU

    @abstractmethod
    def read(self, start: int, stop: int) -> Array:
        """Return consecutive samples."""

    @abstractmethod
    def take(self, index: Index) -> Array:
        """Return the samples of an index, in its order."""

    def sum(self, visit: Visit[S], index: Index | None = None) -> S:
        """Sum the results of a visit to each block, along a fixed tree."""

        def read_and_visit(bounds: tuple[int, int]) -> S:
            rows = self.read(*bounds) if index is None else self.take(index[slice(*bounds)])
            return visit(rows, bounds[0])

        n_samples, n_features = self.shape
        blocks = cut_blocks(n_samples if index is None else len(index), n_features, self.block_numbers)
        return sum_along_tree(map_in_order(read_and_visit, blocks, self.n_threads))

    def map(self, visit: Visit[Array], out: Array, index: Index | None = None) -> Array:
        """Write what a visit returns for each block to an array."""

        def write(rows: Array, start: int) -> int:
            out[start : start + len(rows)] = visit(rows, start)
            return 0

        self.sum(write, index)
        return out


class MappedSamples:
    """Samples to which a function is applied when they are read: rows (b, k) of rows (b, n) and their positions."""

    def __init__(
        self, samples: Samples, function: Callable[[Array, slice | Index], Array], n_features: int, weights: Weights
    ) -> None:
        self.samples, self.function, self.weights = samples, function, weights
        self.shape = samples.shape[0], n_features
        self.dtype, self.n_threads = samples.dtype, samples.n_threads

    def sum(self, visit: Visit[S], index: Index | None = None) -> S:
        """Sum the results of a visit to each block."""
        return self.samples.sum(self._compose(visit, index), index)

    def map(self, visit: Visit[Array], out: Array, index: Index | None = None) -> Array:
        """Write what a visit returns for each block to an array."""
        return self.samples.map(self._compose(visit, index), out, index)

    def _compose(self, visit: Visit[S], index: Index | None) -> Visit[S]:
        """Return a visit to blocks of the underlying samples."""
        function = self.function

        def visit_mapped(rows: Array, start: int) -> S:
            where = slice(start, start + len(rows))
            return visit(function(rows, where if index is None else index[where]), start)

        return visit_mapped

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


def refuse_not_finite(
    rows: NDArray[Any], start: int | Index, names: Sequence[Any] | None = None, source: str = ""
) -> None:
    """Raise an error that names the first NaN or infinity in rows, whose numbers are an index or begin at `start`."""
    if rows.dtype.kind != "f" or np.all(np.isfinite(rows)):
        return
    row, column = np.argwhere(~np.isfinite(rows))[0]
    found = "NaN" if np.isnan(rows[row, column]) else "infinity"
    where = f"sample {start + row if isinstance(start, int) else start[row]}, feature {column}"
    where += ("" if names is None else f", column {names[column]!r}") + (f" of {source}" if source else "")
    raise ValueError(f"Input X contains {found} ({where}). Drop such samples, or impute these entries.")


def cut_blocks(n_samples: int, n_features: int, numbers: int | None = None) -> list[tuple[int, int]]:
    """Compute the bounds of all blocks, which depend only on the shape, and on the entries per block if given."""
    rows = max(64, (numbers or BLOCK_NUMBERS) // max(1, n_features))
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
