"""Samples in memory."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from elldict.samples.base import Array, Index, S, Visit, cut_blocks, map_in_order, sum_along_tree


class ArraySamples:
    """Rows of an array of real numbers, which is only read."""

    def __init__(self, X: NDArray[Any], n_threads: int = 1) -> None:
        self.X = X
        self.n_threads = n_threads

    @property
    def shape(self) -> tuple[int, int]:
        """Number of samples and of features."""
        return self.X.shape[0], self.X.shape[1]

    def sum(self, visit: Visit[S]) -> S:
        """Add up what a visit to each block returns, along a fixed tree."""

        def read_and_visit(bounds: tuple[int, int]) -> S:
            return visit(np.asarray(self.X[slice(*bounds)], dtype=np.float64), bounds[0])

        return sum_along_tree(map_in_order(read_and_visit, cut_blocks(*self.shape), self.n_threads))

    def take(self, index: Index) -> Array:
        """Return single samples, in the order of the index."""
        return np.asarray(self.X[index], dtype=np.float64)
