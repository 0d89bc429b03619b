"""Samples held in memory, as an array of any library."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TypeVar

import array_api_compat
import numpy as np
from numpy.typing import NDArray

from elldict.kernels.threads import in_order
from elldict.samples.base import Kernel, S, Sink, rows_per_tile, tile_bounds
from elldict.samples.digest import sampled_ranges, started_digest
from elldict.samples.fold import folded
from elldict.samples.room import with_room
from elldict.samples.sinks import ArraySink, checked_writer
from elldict.space import Array, Space, real_dtype, to_numpy

T = TypeVar("T")


@dataclass(frozen=True)
class MemorySamples:
    """An array of shape (n_samples, n_features); it is read tile by tile and never written or copied whole."""

    X: Array
    tile_rows: int = 0

    def __post_init__(self) -> None:
        if not self.tile_rows:
            shape, on_gpu = (self.n_samples, self.n_features), self.space.on_gpu
            object.__setattr__(self, "tile_rows", rows_per_tile(*shape, self.dtype, on_gpu=on_gpu))

    @property
    def n_samples(self) -> int:
        """Number of rows."""
        return int(self.X.shape[0])

    @property
    def n_features(self) -> int:
        """Number of columns."""
        return int(self.X.shape[1])

    @property
    def dtype(self) -> str:
        """Precision of the tiles: integers, booleans and half precision are widened, a tile at a time."""
        return real_dtype(self.X)

    @property
    def space(self) -> Space:
        """Library and device of the array."""
        return Space.of(self.X)

    def fingerprint(self) -> str:
        """Digest of shape, dtype and values: of all values up to 64 MB, of blocks spread over them beyond."""
        digest = started_digest("memory", self.n_samples, self.n_features, self.dtype, self.X.dtype)
        row_bytes = self.n_features * (4 if self.dtype == "float32" else 8)
        for start, stop in sampled_ranges(self.n_samples, row_bytes):
            digest.update(to_numpy(self._tile((start, stop))).tobytes())
        return digest.hexdigest()

    def sum_over(self, kernel: Kernel[S]) -> S:
        """Add up what the kernel makes of every tile, along the tree."""
        return with_room(self, lambda: folded(self._visited(lambda: self._visitor(kernel))))

    def map_rows(self, kernel: Kernel[Array], n_columns: int) -> Array:
        """Array of shape (n_samples, n_columns) with what the kernel makes of every tile."""
        xp = self.space.xp
        out = xp.empty((self.n_samples, n_columns), dtype=getattr(xp, self.dtype), device=self.space.device)
        self.write_rows(kernel, ArraySink(out))
        return out

    def write_rows(self, kernel: Kernel[Array], sink: Sink) -> None:
        """Give the sink what the kernel makes of every tile."""

        def make_writer() -> Callable[[tuple[int, int]], None]:
            write = checked_writer(self, kernel, sink)
            return lambda bounds: write(bounds[0], self._tile(bounds))

        with_room(self, lambda: list(self._visited(make_writer)))

    def rows(self, index: NDArray[np.int64]) -> NDArray[np.float64]:
        """Some samples, by sorted index, on the host."""
        return to_numpy(self._taken(index)).astype(np.float64)

    def part(self, index: NDArray[np.int64], dtype: str) -> Array:
        """Some samples, by sorted index, where they are."""
        return self.space.xp.astype(self._taken(index), getattr(self.space.xp, dtype), copy=False)

    def _taken(self, index: NDArray[np.int64]) -> Array:
        return self.space.xp.take(self.X, self.space.xp.asarray(index, device=self.space.device), axis=0)

    def place(self, sample: int) -> str:
        """Block of a sample."""
        n_tiles = -(-self.n_samples // self.tile_rows)
        return f"block {sample // self.tile_rows + 1} of {n_tiles}"

    def _visited(self, make_visitor: Callable[[], Callable[[tuple[int, int]], T]]) -> Iterator[T]:
        """What a visitor makes of the bounds of every tile, in tile order; on the host, by all cores."""
        bounds = list(tile_bounds(self.n_samples, self.tile_rows))
        if array_api_compat.is_numpy_namespace(self.space.xp):
            return in_order(make_visitor, bounds)
        return map(make_visitor(), bounds)

    def _visitor(self, kernel: Kernel[T]) -> Callable[[tuple[int, int]], T]:
        visit = kernel.bind(self.space)
        return lambda bounds: visit(self._tile(bounds))

    def _tile(self, bounds: tuple[int, int]) -> Array:
        xp = self.space.xp
        return xp.astype(self.X[bounds[0] : bounds[1], :], getattr(xp, self.dtype), copy=False)
