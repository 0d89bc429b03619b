"""The protocol of samples, and sums over blocks that are the same for any number of threads."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import fields
from typing import Any, Protocol, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Index = NDArray[np.intp]

BLOCK_NUMBERS = 2**18
"""Numbers in a block: with its codes and their derivatives it fits into the cache of a core."""


class Additive(Protocol):
    """What a visit to a block returns: the same type is added up over all blocks."""

    def __add__(self, other: Self, /) -> Self:
        """Add the sums of two blocks."""


S = TypeVar("S", bound=Additive)
T = TypeVar("T")
Visit = Callable[[Array, int], S]
"""Computes the sums of one block, given its rows (b, n) and the number of the first one."""


class Samples(Protocol):
    """Samples as rows, seen block by block in double precision."""

    @property
    def shape(self) -> tuple[int, int]:
        """Number of samples and of features."""

    @property
    def n_threads(self) -> int:
        """Number of threads that visit blocks at the same time."""

    def sum(self, visit: Visit[S]) -> S:
        """Add up what a visit to each block returns, along a fixed tree."""

    def take(self, index: Index) -> Array:
        """Return single samples, in the order of the index."""


class FieldwiseSum:
    """Adds two instances of a dataclass field by field."""

    def __add__(self, other: Self) -> Self:
        """Add every field."""
        names = [field.name for field in fields(self)]  # type: ignore[arg-type]
        return type(self)(*(getattr(self, name) + getattr(other, name) for name in names))


def cut_blocks(n_samples: int, n_features: int) -> list[tuple[int, int]]:
    """Bounds of all blocks, which depend on the shape alone."""
    rows = max(64, BLOCK_NUMBERS // max(1, n_features))
    return [(start, min(start + rows, n_samples)) for start in range(0, n_samples, rows)]


def sum_along_tree(sums: Iterable[S]) -> S:
    """Add up in pairs, pairs of pairs and so on: rounding grows with the depth of the tree, not with its leaves."""
    waiting: list[tuple[int, S]] = []  # levels decrease; at most one sum a level
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
    """Apply a function to items in several threads; results come in the order of the items."""
    if n_threads == 1:
        yield from map(function, items)
        return
    with ThreadPoolExecutor(n_threads) as pool:
        running: deque[Future[Any]] = deque()
        for item in items:
            if len(running) == 2 * n_threads:  # results that wait take memory
                yield running.popleft().result()
            running.append(pool.submit(function, item))
        while running:
            yield running.popleft().result()
