"""Samples in dask arrays and data frames: blocks are visited where the chunks are, by the scheduler in use.

A pass over the samples is one graph of `dask.delayed` calls. A task visits a group of 2^k consecutive blocks and adds
their sums, and further tasks add the sums of groups. Both follow the tree of `sum_along_tree`, so that the total has
the same bits as for an array in memory. What is lost with a worker, dask computes again.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from elldict.blas import one_blas_thread
from elldict.samples.arrays import ArraySamples, choose_precision, to_numpy
from elldict.samples.base import STORED_BYTES, Array, Index, S, Samples, Visit, Weights, cut_blocks, sum_along_tree
from elldict.samples.cluster import compute, send

MIN_GROUPS = 64
"""Number of groups of blocks for samples in few chunks: enough for the cores of a few machines."""

FAN_IN = 16
"""Number of sums added by one task: a power of two, as the tree requires."""


def is_dask(X: Any) -> bool:
    """Return whether X is an object of dask."""
    return type(X).__module__.partition(".")[0] == "dask"


def open_dask(X: Any, n_threads: int = 1, weights: Weights = None) -> Samples:
    """Return the samples of an array made by `prepare`; a few of them are read into memory, by a single graph."""
    samples = DaskSamples(X, n_threads, weights)
    if math.prod(samples.shape) * samples.dtype.itemsize > STORED_BYTES:
        return samples
    return ArraySamples(read_numbers(samples.X), n_threads, weights)


class DaskSamples:
    """Rows of a dask array with chunks of known size, which have all features."""

    def __init__(self, X: Any, n_threads: int = 1, weights: Weights = None) -> None:
        self.n_threads = n_threads
        self.weights = weights
        self.shape = int(X.shape[0]), int(X.shape[1])
        self.dtype = choose_precision(X.dtype)
        precision = self.dtype.name
        self.X = map_chunks(X, lambda rows, _: np.ascontiguousarray(rows, precision), self.shape[1], precision)

    def __reduce__(self) -> Any:
        """Refuse to be sent to workers as part of a visit."""
        raise TypeError("A visit must not hold the samples.")

    def sum(self, visit: Visit[S], index: Index | None = None) -> S:
        """Sum the results of a visit to each block, along a fixed tree."""
        import dask  # noqa: PLC0415

        add = dask.delayed(add_up, pure=False)
        sums, n_bytes = self._plan(visit, sum_along_tree, index)
        while len(sums) > 1:
            sums = [add(*sums[k : k + FAN_IN]) for k in range(0, len(sums), FAN_IN)]
        (total,) = compute(sums, n_bytes)
        return total  # type: ignore[no-any-return]

    def map(self, visit: Visit[Array], out: Array, index: Index | None = None) -> Array:
        """Write what a visit returns for each block to an array."""
        start = 0
        for rows in compute(*self._plan(visit, np.concatenate, index)):
            out[start : start + len(rows)] = rows
            start += len(rows)
        return out

    def take(self, index: Index) -> Array:
        """Return the samples of an index, in its order; chunks without any of them are not computed."""
        order = np.argsort(index, kind="stable")
        return read_numbers(self.X[np.asarray(index)[order]])[np.argsort(order)]

    def _plan(self, visit: Visit[Any], join: Callable[[list[Any]], Any], index: Index | None) -> tuple[list[Any], int]:
        """Make the tasks that visit groups of blocks and join the results; return them and the bytes sent with them."""
        import dask  # noqa: PLC0415

        rows = self.X if index is None else self.X[index]
        blocks = cut_blocks(len(rows), self.shape[1])
        n_rows = blocks[0][1]
        step = n_rows * 2 ** int(math.log2(max(1, len(blocks) / max(MIN_GROUPS, self.X.numblocks[0]))))
        groups = rows.rechunk((step, -1), method="tasks").to_delayed()[:, 0]
        sent, n_bytes = send(visit)
        apply = dask.delayed(visit_blocks, pure=False)
        tasks = [apply(sent, join, group, k * step, n_rows) for k, group in enumerate(groups)]
        return tasks, n_bytes + (0 if index is None else index.nbytes)


def visit_blocks(visit: Visit[S], join: Callable[[list[S]], S], rows: Array, start: int, n_rows: int) -> S:
    """Visit blocks of rows, of which the first has the number `start`, and join the results."""
    with one_blas_thread():
        return join([visit(rows[k : k + n_rows], start + k) for k in range(0, len(rows), n_rows)])


def add_up(*sums: S) -> S:
    """Add the sums of consecutive groups."""
    return sum_along_tree(sums)


def prepare(X: Any) -> Any:
    """Return an array or data frame as an array of numbers, with chunks of known size that have all features."""
    if hasattr(X, "columns"):
        X = convert_frame(X)
    if not hasattr(X, "chunks"):
        raise TypeError(f"X must be a dask array or data frame. Got a {type(X).__name__} of dask instead.")
    if X.dtype.kind not in "fiubc":
        raise ValueError(f"X must hold real numbers, not entries of dtype {X.dtype}. Convert it with X.astype(float).")
    if np.any(np.isnan(X.shape)):
        X = X.copy().compute_chunk_sizes()  # it would change X itself
    return X.rechunk({1: -1}) if math.prod(X.numblocks[1:]) > 1 else X


def convert_frame(frame: Any) -> Any:
    """Return the columns of a data frame as an array, in single precision if all of them have that."""
    for name, dtype in frame.dtypes.items():
        if dtype.kind not in "fiub":
            raise ValueError(f"X holds {dtype} in column {name!r}, not numbers. Drop or encode the column.")
    return (frame if np.all(frame.dtypes == np.float32) else frame.astype("float64")).to_dask_array()


def map_chunks(X: Any, function: Visit[Array], n_columns: int, dtype: str) -> Any:
    """Return the array (r, n_columns) of what a function returns for chunks and the numbers of their first samples."""
    chunks, meta = (X.chunks[0], (n_columns,)), np.empty((0, 0), dtype)
    return X.map_blocks(apply_to_chunk, function=send(function)[0], chunks=chunks, dtype=dtype, meta=meta)


def apply_to_chunk(chunk: Any, function: Visit[Array], block_info: Any = None) -> Array:
    """Apply a function to a chunk; raise an error if it is not a matrix of numbers."""
    first = int(block_info[0]["array-location"][0][0])
    where = f"in the chunk of X that starts at sample {first}"
    if np.ma.isMaskedArray(chunk) and np.ma.is_masked(chunk):
        raise ValueError(f"X has masked entries {where}. Impute or drop them first.")
    if not hasattr(chunk, "__dlpack__") or chunk.ndim != 2:
        raise TypeError(
            f"Found a {type(chunk).__name__} {where}, not a dense matrix. Convert chunks with X.map_blocks."
        )
    with one_blas_thread():
        return function(to_numpy(chunk), first)


def read_numbers(X: Any) -> Array:
    """Compute an array (r,), or (r, n) with chunks that have all columns."""
    return np.concatenate(list(compute(X.to_delayed().ravel())))
