"""Samples in memory: arrays of NumPy or of another library that implements the array API standard."""

from __future__ import annotations

from typing import Any

import array_api_compat
import numpy as np

from elldict.samples.base import Array, Index, S, Visit, cut_blocks, map_in_order, sum_along_tree


class ArraySamples:
    """Rows of a real array, which is never written to; torch and CuPy arrays are copied to the CPU by block."""

    def __init__(self, X: Any, n_threads: int = 1) -> None:
        self.X = X
        self.n_threads = n_threads

    @property
    def shape(self) -> tuple[int, int]:
        """Number of samples and of features."""
        return int(self.X.shape[0]), int(self.X.shape[1])

    def sum(self, visit: Visit[S]) -> S:
        """Sum the results of a visit to each block, along a fixed tree."""

        def read_and_visit(bounds: tuple[int, int]) -> S:
            return visit(to_numpy(self.X[slice(*bounds), :]), bounds[0])

        return sum_along_tree(map_in_order(read_and_visit, cut_blocks(*self.shape), self.n_threads))

    def take(self, index: Index) -> Array:
        """Return the samples of an index, in its order."""
        if isinstance(self.X, np.ndarray):
            return np.asarray(self.X[index], dtype=np.float64)
        xp = array_api_compat.array_namespace(self.X)
        return to_numpy(xp.take(self.X, xp.asarray(index, device=array_api_compat.device(self.X)), axis=0))


def to_numpy(array: Any) -> Array:
    """Convert an array of any library to a NumPy array of double precision."""
    if array_api_compat.is_torch_array(array):
        array = array.detach().double().cpu().numpy()
    elif array_api_compat.is_cupy_array(array):
        array = array.get()
    elif not isinstance(array, np.ndarray):
        array = np.from_dlpack(array)
    return np.asarray(array, dtype=np.float64)
