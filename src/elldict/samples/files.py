"""Samples in files: whatever has a shape and is read by slices, a few blocks at a time."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Iterator, Sequence
from copy import copy
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from elldict.exceptions import SamplesChangedError, SamplesFileError
from elldict.samples.arrays import ArraySamples, choose_precision
from elldict.samples.base import (
    STORED_BYTES,
    Array,
    Index,
    LocalSamples,
    S,
    Samples,
    Visit,
    Weights,
    cut_blocks,
    map_in_order,
    refuse_not_finite,
    sum_along_tree,
)

GAP_BYTES = 2**16
"""Size of a gap between rows that is read and dropped: at the speed of a disk, it takes as long as another read."""

RUN_BYTES = 2**22
"""Size of rows of an index that are read at once, if they are not stored together in a larger chunk."""

Stamp = dict[str, tuple[int, int]]
"""Size and modification time (ns) of files, by path."""


class Rows(Protocol):
    """Stored rows: a NumPy array, or one of h5py or zarr; arrays whose rows are stored in chunks have `chunks`."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Number of rows and of columns."""

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of the numbers."""

    def __getitem__(self, rows: Any, /) -> Any:
        """Read consecutive rows."""


class FileSamples(LocalSamples):
    """Rows of a file, read in the calling thread while others visit the blocks read before.

    Parameters
    ----------
    rows : object
        Array (r, n), of which slices are read.
    source : str
        Name of the file, and of the array in it, for messages.
    origins : sequence of Path
        Files and folders that the samples come from, which must not be overwritten.
    names : sequence of str, default=None
        Names of the columns.
    is_copy : bool, default=False
        Whether the rows are a copy, to which later changes of the files do not matter.
    """

    def __init__(
        self,
        rows: Rows,
        source: str,
        origins: Sequence[Path] = (),
        names: Sequence[str] | None = None,
        *,
        is_copy: bool = False,
    ) -> None:
        check_matrix(rows, source)
        self.rows, self.source, self.origins = rows, source, tuple(origins)
        self.feature_names = None if names is None else list(names)
        self.dtype = choose_precision(rows.dtype)
        self.n_threads = 1
        self.weights: Weights = None
        self.device: Any = None  # of torch, to which fits move blocks; None: the CPU, without torch
        self._watched = () if is_copy else self.origins
        self._stamp = stamp(self._watched)
        chunks = getattr(rows, "chunks", None)
        n_together = max(1, GAP_BYTES // (self.shape[1] * self.dtype.itemsize)) if chunks is None else int(chunks[0])
        self._n_together = n_together  # rows that cost as much to read as one of them
        self._is_finite = False  # all samples are known to be finite

    @property
    def shape(self) -> tuple[int, int]:
        """Number of samples and of features."""
        return int(self.rows.shape[0]), int(self.rows.shape[1])

    @property
    def n_samples(self) -> int:
        """Number of samples."""
        return self.shape[0]

    @property
    def n_features(self) -> int:
        """Number of features."""
        return self.shape[1]

    @property
    def columns(self) -> Any:
        """What scikit-learn reads the number and names of features from: an empty table if columns have names."""
        if self.feature_names is None:
            return self
        from pyarrow import table  # noqa: PLC0415  read by pyarrow, so that it is there

        return table({name: [] for name in self.feature_names})

    def bind(self, n_threads: int = 1, weights: Weights = None) -> Samples:
        """Return the samples with weights, visited by several threads; few of them are read into memory."""
        if math.prod(self.shape) * self.dtype.itemsize <= STORED_BYTES:
            rows, used = self._fetch(0, self.n_samples), slice(None) if weights is None else np.flatnonzero(weights)
            self._refuse_not_finite(rows[used], 0 if isinstance(used, slice) else used)
            self.check_unchanged()
            return ArraySamples(rows, n_threads, weights)
        bound = copy(self)
        bound.n_threads, bound.weights = n_threads, weights
        return bound

    def sum(self, visit: Visit[S], index: Index | None = None) -> S:
        """Sum the results of a visit to each block, along a fixed tree."""
        bounds = cut_blocks(self.n_samples if index is None else len(index), self.n_features, self.block_numbers)
        blocks = self._read_blocks(bounds, index)
        total = sum_along_tree(map_in_order(lambda block: visit(*block), blocks, self.n_threads))
        self.check_unchanged()
        self._is_finite |= index is None
        return total

    def take(self, index: Index) -> Array:
        """Return the samples of an index, in its order."""
        index = np.asarray(index)
        out = np.empty((len(index), self.n_features), dtype=self.dtype)
        order, start = np.argsort(index, kind="stable"), 0
        for rows in self._read_sorted(index[order]):
            out[order[start : start + len(rows)]] = rows
            start += len(rows)
        self.check_unchanged()
        return out

    def read(self, start: int, stop: int) -> Array:
        """Return consecutive samples."""
        rows = self._fetch(start, stop)
        self._refuse_not_finite(rows, start)
        return rows

    def _fetch(self, start: int, stop: int) -> Array:
        """Read consecutive rows, some of which may have no weight, so that they need not be finite."""
        try:
            rows = np.asarray(self.rows[start:stop])
        except MemoryError:
            raise
        except Exception as error:  # libraries raise whatever they find in a damaged file
            self.check_unchanged()
            raise SamplesFileError(
                f"{self.source}: samples {start} to {stop - 1} cannot be read ({describe(error)}). The file is "
                "probably damaged: copy or write it again."
            ) from error
        return np.ascontiguousarray(rows, dtype=self.dtype)

    def _refuse_not_finite(self, rows: Array, where: int | Index) -> None:
        """Raise an error for NaN or infinity, until a pass over all samples has found none."""
        if not self._is_finite:
            refuse_not_finite(rows, where, self.feature_names, self.source)

    def check_unchanged(self) -> None:
        """Raise an error if a file has changed since it was opened."""
        now = stamp(self._watched)
        if now != self._stamp:
            path = min(name for name, _ in self._stamp.items() ^ now.items())
            change = "has been removed" if path not in now else "has been written to"
            raise SamplesChangedError(
                f"{path} {change} since {self.source} was opened. Results would mix old and new samples: start again "
                "when the file is complete."
            )

    def _read_blocks(self, bounds: list[tuple[int, int]], index: Index | None) -> Iterator[tuple[Array, int]]:
        """Read blocks of consecutive samples, or of an index; yield them with the index of the first row."""
        if index is not None and np.any(np.diff(index) < 0):
            for start, stop in bounds:
                yield self.take(index[start:stop]), start
        elif index is not None:
            yield from cut(self._read_sorted(index), bounds)
        else:
            n_rows = bounds[0][1] if bounds else 1
            if getattr(self.rows, "chunks", None) is not None:  # whole chunks, each of them once
                n_rows = self._n_together * math.ceil(n_rows / self._n_together)
            starts = range(0, self.n_samples, n_rows)
            yield from cut((self.read(k, min(k + n_rows, self.n_samples)) for k in starts), bounds)

    def _read_sorted(self, index: Index) -> Iterator[Array]:
        """Read the samples of a sorted index, in runs of rows that are close to each other."""
        cells = index // self._n_together
        n_cells = max(1, RUN_BYTES // (self._n_together * self.n_features * self.dtype.itemsize))
        is_apart = (np.diff(cells) > 1) | (np.diff(cells // n_cells) > 0)
        for run in np.split(index, np.flatnonzero(is_apart) + 1) if len(index) else ():
            rows = self._fetch(int(run[0]), int(run[-1]) + 1)[run - run[0]]
            self._refuse_not_finite(rows, run)
            yield rows


def cut(parts: Iterable[Array], bounds: list[tuple[int, int]]) -> Iterator[tuple[Array, int]]:
    """Cut rows that come in parts of any length into blocks; yield them with the index of the first row."""
    parts, held = iter(parts), list[Array]()
    for start, stop in bounds:
        while sum(len(rows) for rows in held) < stop - start:
            held.append(next(parts))
        rows = held[0] if len(held) == 1 else np.concatenate(held)
        yield rows[: stop - start], start
        held = [rows[stop - start :]] if len(rows) > stop - start else []


def check_matrix(rows: Rows, source: str) -> None:
    """Raise an error if an array is not a matrix of real numbers."""
    if len(rows.shape) != 2:
        raise SamplesFileError(f"{source} has the shape {tuple(rows.shape)}, expected (n_samples, n_features).")
    if 0 in rows.shape:
        raise SamplesFileError(f"{source} is empty: it has {rows.shape[0]} samples of {rows.shape[1]} features.")
    if np.dtype(rows.dtype).kind not in "fiub":
        raise SamplesFileError(f"{source} holds entries of type {rows.dtype}, expected real numbers.")


def stamp(paths: Sequence[Path]) -> Stamp:
    """Return the size and modification time of files, and of all files in folders."""
    found: Stamp = {}
    for path in paths:
        for file in list_files(path):
            try:
                status = os.stat(file)  # noqa: PTH116  there may be 10^5 chunks
            except FileNotFoundError:
                continue
            found[file] = status.st_size, status.st_mtime_ns
    return found


def list_files(path: Path) -> Iterator[str]:
    """List a file, or all files of a folder."""
    if not path.is_dir():
        yield str(path)
    for folder, _, names in os.walk(path):
        yield from (f"{folder}/{name}" for name in names)


def describe(error: BaseException) -> str:
    """Format the error of another library in one line."""
    return " ".join(f"{type(error).__name__}: {error}".split())
