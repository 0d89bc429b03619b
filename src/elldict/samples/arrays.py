"""Samples in memory: arrays of NumPy or of another library that implements the array API standard."""

from __future__ import annotations

from typing import Any

import array_api_compat
import numpy as np
from numpy.typing import NDArray

from elldict.samples.base import Array, Index, LocalSamples, S, Samples, Visit, Weights


class ArraySamples(LocalSamples):
    """Rows of a real array, which is never written to; those of other libraries are converted by block."""

    def __init__(self, X: Any, n_threads: int = 1, weights: Weights = None) -> None:
        self.X, self.n_threads, self.weights = X, n_threads, weights
        self.shape = int(X.shape[0]), int(X.shape[1])
        self.dtype = self.read(0, 1).dtype

    def read(self, start: int, stop: int) -> Array:
        """Return consecutive samples."""
        return to_numpy(self.X[start:stop, :])

    def take(self, index: Index) -> Array:
        """Return the samples of an index, in its order."""
        if isinstance(self.X, np.ndarray):
            return to_numpy(self.X[index])
        xp = array_api_compat.array_namespace(self.X)
        return to_numpy(xp.take(self.X, xp.asarray(index, device=array_api_compat.device(self.X)), axis=0))


def hold(rows: Any, n_threads: int = 1, weights: Weights = None) -> ArraySamples:
    """Return samples in memory, or on the device where these rows are."""
    if isinstance(rows, np.ndarray):
        return ArraySamples(rows, n_threads, weights)
    return rows.device.hold(rows, weights)  # type: ignore[no-any-return]


class SelectedSamples:
    """Some of the samples, selected when they are read, with weights of their own."""

    def __init__(self, samples: Samples, index: Index, weights: Weights = None) -> None:
        self.samples, self.index, self.weights = samples, index, weights
        self.shape = len(index), samples.shape[1]
        self.dtype, self.n_threads = samples.dtype, samples.n_threads

    def sum(self, visit: Visit[S], index: Index | None = None) -> S:
        """Sum the results of a visit to each block, along a fixed tree."""
        return self.samples.sum(visit, self.index if index is None else self.index[index])

    def map(self, visit: Visit[Array], out: Array, index: Index | None = None) -> Array:
        """Write what a visit returns for each block to an array."""
        return self.samples.map(visit, out, self.index if index is None else self.index[index])

    def take(self, index: Index) -> Array:
        """Return the samples of an index, in its order."""
        return self.samples.take(self.index[index])


def scale_weights(weights: Array) -> Array:
    """Scale weights that are not whole numbers of copies, so that their sum is the effective sample size (Kish)."""
    if np.all(weights == np.round(weights)):
        return weights
    weights = weights / np.max(weights)
    return np.asarray(weights * (np.sum(weights) / np.sum(weights**2)))


def drop_weightless(samples: Samples, groups: NDArray[Any] | None) -> tuple[Samples, NDArray[Any] | None]:
    """Leave out samples of weight zero, and bring weights to their final scale."""
    assert samples.weights is not None
    index = np.flatnonzero(samples.weights)
    weights = scale_weights(samples.weights[index])
    kept = SelectedSamples(samples, index, None if np.all(weights == 1) else weights)
    return kept, None if groups is None else groups[index]


def to_numpy(array: Any) -> Array:
    """Convert an array of any library to NumPy, in single precision if it has that or less, otherwise in double."""
    if isinstance(array, np.ndarray):
        return np.asarray(array, dtype=choose_precision(array.dtype))
    if array_api_compat.is_torch_array(array):
        is_single = str(array.dtype).endswith(("float16", "float32"))  # bfloat16, too
        array = array.detach()
        array = (array.float() if is_single else array.double()).cpu().numpy()
    elif array_api_compat.is_cupy_array(array):
        array = array.get()
    else:
        array = np.from_dlpack(array)
    return np.asarray(array, dtype=choose_precision(array.dtype))


def choose_precision(dtype: Any) -> np.dtype[Any]:
    """Return the precision in which numbers of a type are read: half and single are single, all others double."""
    return np.dtype(np.float32 if np.dtype(dtype).type in (np.float16, np.float32) else np.float64)
