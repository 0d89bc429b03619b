"""Samples held in memory, as an array of any library."""

from __future__ import annotations

import functools
import operator
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from elldict.samples.base import Kernel, S, find_misfit, not_finite, rows_per_tile, tile_bounds
from elldict.space import Array, Space, real_dtype, to_numpy


@dataclass(frozen=True)
class MemorySamples:
    """An array of shape (n_samples, n_features); it is read tile by tile and never written or copied whole."""

    X: Array
    tile_rows: int = 0

    def __post_init__(self) -> None:
        if not self.tile_rows:
            object.__setattr__(self, "tile_rows", rows_per_tile(self.n_features, self.dtype))

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

    def sum_over(self, kernel: Kernel[S]) -> S:
        """Add up what the kernel makes of every tile, in tile order."""
        visit = kernel.bind(self.space)
        return functools.reduce(operator.add, (visit(tile) for _, _, tile in self._tiles()))

    def map_rows(self, kernel: Kernel[Array], n_columns: int) -> Array:
        """Array of shape (n_samples, n_columns) with what the kernel makes of every tile."""
        xp = self.space.xp
        visit = kernel.bind(self.space)
        out = xp.empty((self.n_samples, n_columns), dtype=getattr(xp, self.dtype), device=self.space.device)
        for start, stop, tile in self._tiles():
            misfit = find_misfit(tile, xp)
            if misfit is not None:
                raise not_finite(self, replace(misfit, sample=start + misfit.sample))
            out[start:stop, :] = visit(tile)
        return out

    def rows(self, index: NDArray[np.int64]) -> NDArray[np.float64]:
        """Some samples, by sorted index, on the host."""
        xp = self.space.xp
        chosen = xp.take(self.X, xp.asarray(index, device=self.space.device), axis=0)
        return to_numpy(chosen).astype(np.float64)

    def place(self, sample: int) -> str:
        """Block of a sample."""
        n_tiles = -(-self.n_samples // self.tile_rows)
        return f"block {sample // self.tile_rows + 1} of {n_tiles}"

    def _tiles(self) -> Iterator[tuple[int, int, Array]]:
        xp = self.space.xp
        dtype = getattr(xp, self.dtype)
        for start, stop in tile_bounds(self.n_samples, self.tile_rows):
            yield start, stop, xp.astype(self.X[start:stop, :], dtype, copy=False)
