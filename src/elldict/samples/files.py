"""Samples in files that may be larger than memory.

What is held at a time: DEPTH blocks of rows, what the reader holds of its file (a band of chunks for zarr, a batch of
rows for parquet, nothing for .npy), and for each core the scratch memory of a tile.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from elldict.kernels.threads import in_order
from elldict.samples.ahead import ReadAhead
from elldict.samples.base import Kernel, S, Sink, rows_per_tile, tile_bounds
from elldict.samples.fold import folded
from elldict.samples.reader import Reader
from elldict.samples.sinks import ArraySink, checked_writer
from elldict.space import HOST, Array, Space

T = TypeVar("T")

BLOCK_BYTES = 2**24
"""Of rows read in one piece, at least: enough for a disk to run at full speed."""


@dataclass(frozen=True)
class FileSamples:
    """Rows of a reader, a few blocks at a time."""

    reader: Reader
    block_size: int | None = None  # rows that are read at a time, rounded up to whole tiles

    @property
    def n_samples(self) -> int:
        """Number of rows."""
        return self.reader.n_samples

    @property
    def n_features(self) -> int:
        """Number of columns."""
        return self.reader.n_features

    @property
    def dtype(self) -> str:
        """Precision of the tiles."""
        return self.reader.dtype

    @property
    def space(self) -> Space:
        """NumPy, on the host."""
        return HOST

    @property
    def path(self) -> str:
        """File or folder; empty if there is none."""
        return self.reader.path

    @property
    def feature_names(self) -> tuple[str, ...] | None:
        """Names of the features, if the file has them."""
        return self.reader.feature_names

    @cached_property
    def tile_rows(self) -> int:
        """Rows of a tile, the same as for samples in memory."""
        return rows_per_tile(self.n_samples, self.n_features, self.dtype)

    @cached_property
    def block_rows(self) -> int:
        """Rows of a block: whole tiles, as many as were asked for; if nobody asked, one for every core at least."""
        wanted = self.block_size or max(
            BLOCK_BYTES // (self.n_features * np.dtype(self.dtype).itemsize), (os.cpu_count() or 1) * self.tile_rows
        )
        return self.tile_rows * -(-min(wanted, self.n_samples) // self.tile_rows)

    def fingerprint(self) -> str:
        """Digest of the file."""
        return self.reader.fingerprint()

    def sum_over(self, kernel: Kernel[S]) -> S:
        """Add up what the kernel makes of every tile, along the tree."""

        def make_visitor() -> Callable[[int, Array], S]:
            visit = kernel.bind(self.space)
            return lambda _, tile: visit(tile)

        return folded(self._visited(make_visitor))

    def map_rows(self, kernel: Kernel[Array], n_columns: int) -> NDArray[np.floating]:
        """Array of shape (n_samples, n_columns), in memory, with what the kernel makes of every tile."""
        out = np.empty((self.n_samples, n_columns), self.dtype)
        self.write_rows(kernel, ArraySink(out))
        return out

    def write_rows(self, kernel: Kernel[Array], sink: Sink) -> None:
        """Give the sink what the kernel makes of every tile."""
        for _ in self._visited(lambda: checked_writer(self, kernel, sink)):
            pass

    def rows(self, index: NDArray[np.int64]) -> NDArray[np.float64]:
        """Some samples, by sorted index."""
        return self.reader.take(index).astype(np.float64, copy=False)

    def place(self, sample: int) -> str:
        """File, and where the sample stands in it."""
        return self.reader.place(sample)

    def _visited(self, make_visitor: Callable[[], Callable[[int, Array], T]]) -> Iterator[T]:
        """What a visitor makes of the first row and the rows of every tile, in tile order, by all cores."""
        self.reader.check_unchanged()
        with ReadAhead(self.reader, self.block_rows) as ahead:

            def make_worker() -> Callable[[tuple[int, int]], T]:
                visit: Callable[[int, Array], T] | None = None

                def work(bounds: tuple[int, int]) -> T:
                    nonlocal visit
                    with ahead.rows(*bounds) as tile:  # given back whatever fails: others wait for the memory
                        visit = visit or make_visitor()
                        return visit(bounds[0], tile)

                return work

            yield from in_order(make_worker, list(tile_bounds(self.n_samples, self.tile_rows)))
        self.reader.check_unchanged()  # before anybody gets the sum: it may hold rows of two files
