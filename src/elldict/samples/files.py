"""Samples in files: whatever has a shape and is read by slices, a few blocks at a time."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from copy import copy
from pathlib import Path
from typing import Any

import numpy as np

from elldict.exceptions import FileContentError, SamplesChangedError, SamplesFileError
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

GAP_BYTES = 2**18
"""Size of rows of which several are read together, with what is between them: a disk reads it as fast as one row."""

Column = str | Sequence[str] | None
"""Columns of a table to read, or the array of a file; None for all columns, or the only matrix."""


class FileSamples(LocalSamples):
    """Rows of a file, read in the calling thread while others visit the blocks read before.

    The rows are any array (r, n) that is read by slices; rows stored together in chunks are read together. The origins
    are files and folders that must not be overwritten, nor change, except if the rows are a copy.
    """

    def __init__(
        self,
        rows: Any,
        source: str,
        origins: Sequence[Path] = (),
        names: Sequence[str] | None = None,
        *,
        is_copy: bool = False,
    ) -> None:
        check_matrix(rows, source)
        self.rows, self.source, self.origins = rows, source, tuple(origins)
        self.feature_names = None if names is None else list(names)
        self.shape = self.n_samples, self.n_features = int(rows.shape[0]), int(rows.shape[1])
        self.dtype = choose_precision(rows.dtype)
        self.n_threads = 1
        self.weights: Weights = None
        self.device: Any = None  # of torch, to which fits move blocks; None: the CPU, without torch
        self._watched = () if is_copy else self.origins
        self._stamp = stamp(self._watched)
        chunks = getattr(rows, "chunks", None)
        self._chunk = 1 if chunks is None else int(chunks[0])  # rows that are stored together

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
            rows = self._fetch(0, self.n_samples)
            used = np.arange(self.n_samples) if weights is None else np.flatnonzero(weights)
            refuse_not_finite(rows[used], used, self.feature_names, self.source)
            self.check_unchanged()
            return ArraySamples(rows, n_threads, weights)
        bound = copy(self)
        bound.n_threads, bound.weights = n_threads, weights
        return bound

    def sum(self, visit: Visit[S], index: Index | None = None) -> S:
        """Sum the results of a visit to each block, along a fixed tree."""
        blocks = self._read_blocks(index)
        total = sum_along_tree(map_in_order(lambda block: visit(*block), blocks, self.n_threads))
        self.check_unchanged()
        return total

    def take(self, index: Index) -> Array:
        """Return the samples of an index, in its order."""
        order = np.argsort(index, kind="stable")
        out = np.empty((len(order), self.n_features), dtype=self.dtype)
        start = 0
        for rows in self._read_sorted(np.asarray(index)[order]):
            out[order[start : start + len(rows)]] = rows
            start += len(rows)
        self.check_unchanged()
        return out

    def read(self, start: int, stop: int) -> Array:
        """Return consecutive samples."""
        rows = self._fetch(start, stop)
        refuse_not_finite(rows, start, self.feature_names, self.source)
        return rows

    def _fetch(self, start: int, stop: int) -> Array:
        """Read consecutive rows, some of which may have no weight, so that they need not be finite."""
        try:
            with explain(f"{self.source}: samples {start} to {stop - 1} cannot be read"):
                return np.ascontiguousarray(self.rows[start:stop], dtype=self.dtype)
        except (SamplesFileError, OSError):
            self.check_unchanged()
            raise

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

    def _read_blocks(self, index: Index | None) -> Iterator[tuple[Array, int]]:
        """Read blocks of all samples, or of an index; yield them with the index of the first row."""
        bounds = cut_blocks(self.n_samples if index is None else len(index), self.n_features, self.block_numbers)
        if index is None:
            n_rows = self._chunk * math.ceil(bounds[0][1] / self._chunk)  # each chunk is read once
            starts = range(0, self.n_samples, n_rows)
            return cut((self.read(k, min(k + n_rows, self.n_samples)) for k in starts), bounds)
        if np.any(np.diff(index) < 0):
            return cut((self.take(index[start:stop]) for start, stop in bounds), bounds)
        return cut(self._read_sorted(index), bounds)

    def _read_sorted(self, index: Index) -> Iterator[Array]:
        """Read the samples of a sorted index, with what is between those that are close to each other."""
        n_together = self._chunk * max(1, GAP_BYTES // (self._chunk * self.n_features * self.dtype.itemsize))
        first = np.flatnonzero(np.diff(index // n_together, prepend=-1))
        for run in np.split(index, first[1:]) if len(index) else ():
            rows = self._fetch(int(run[0]), int(run[-1]) + 1)[run - run[0]]
            refuse_not_finite(rows, run, self.feature_names, self.source)
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


def check_matrix(rows: Any, source: str) -> None:
    """Raise an error if an array is not a matrix of real numbers."""
    shape, dtype = tuple(rows.shape), np.dtype(rows.dtype)
    if len(shape) != 2 or dtype.kind not in "fiub":
        raise SamplesFileError(
            f"{source} has the shape {shape} and holds {dtype}, expected real numbers (n_samples, n_features)."
        )
    if 0 in shape:
        raise SamplesFileError(f"{source} is empty: it has {shape[0]} samples of {shape[1]} features.")


def stamp(paths: Sequence[Path]) -> dict[str, tuple[int, int]]:
    """Return the size and modification time (ns) of files, and of all that is in folders, by name."""
    names = [str(path) for path in paths]
    names += [f"{folder}/{name}" for path in paths for folder, _, inside in os.walk(path) for name in inside]
    found = {}
    for name in names:
        with suppress(FileNotFoundError):
            status = os.stat(name)  # noqa: PTH116  there may be 10^5 chunks
            found[name] = status.st_size, status.st_mtime_ns
    return found


@contextmanager
def explain(problem: str) -> Iterator[None]:
    """Turn what a library raises for a damaged file into an error that says what cannot be read, and what to do."""
    try:
        yield
    except (FileContentError, ImportError, FileNotFoundError, PermissionError):
        raise
    except Exception as error:  # libraries raise whatever they find
        found = " ".join(f"{type(error).__name__}: {error}".split())
        other = "needs more memory than there is" if isinstance(error, MemoryError) else "is of another format"
        raise SamplesFileError(
            f"{problem} ({found}). The file is damaged, or {other}: copy or write it again."
        ) from error
