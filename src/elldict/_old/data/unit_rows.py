"""Samples scaled to length one, each by itself: Kaiser's normalisation of loadings. Zeros stay zeros."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Generic

import numpy as np
from numpy.typing import NDArray

from elldict._old.backend.base import Array, Backend
from elldict._old.data.dataset import ArrayDataset, Dataset, DescribedBySource, Kernel, S, T_co


def compute_lengths(Y: Array, xp: Any) -> Array:
    """Lengths (b, 1) of rows Y (b, n), one for a row of zeros; no size of entries overflows."""
    largest = xp.max(xp.abs(Y), axis=1, keepdims=True)
    largest = xp.where(largest > 0, largest, xp.ones_like(largest))
    lengths = largest * xp.sqrt(xp.sum((Y / largest) ** 2, axis=1, keepdims=True))
    return xp.where(lengths > 0, lengths, xp.ones_like(lengths))


@dataclass(frozen=True)
class UnitRowKernel(Generic[T_co]):
    """What another kernel makes of a tile of unit rows."""

    kernel: Kernel[T_co]

    def bind(self, backend: Backend) -> Callable[[Array], T_co]:
        """Return the function of one tile."""
        visit, xp = self.kernel.bind(backend), backend.xp
        return lambda Y: visit(Y / compute_lengths(Y, xp))


@dataclass(frozen=True)
class KeepRows:
    """The kernel that leaves a tile as it is."""

    def bind(self, backend: Backend) -> Callable[[Array], Array]:  # noqa: ARG002
        """Return the identity."""
        return lambda Y: Y


@dataclass
class UnitRows(DescribedBySource):
    """The samples of a source, scaled as they are read."""

    source: Any
    backend: Backend = field(init=False)

    def __post_init__(self) -> None:
        self.backend = self.source.backend

    def sum(self, kernel: Kernel[S]) -> S:
        """Add up what the kernel makes of every tile."""
        result: S = self.source.sum(UnitRowKernel(kernel))
        return result

    def map_rows(self, kernel: Kernel[Array], n_columns: int) -> Any:
        """Put together what the kernel makes of every tile."""
        return self.source.map_rows(UnitRowKernel(kernel), n_columns)

    def write_rows(self, kernel: Kernel[Array], writer: Any) -> None:
        """Give the writer what the kernel makes of every tile."""
        self.source.write_rows(UnitRowKernel(kernel), writer)

    def take(self, index: NDArray[np.int64]) -> NDArray[np.float64]:
        """Some samples, by sorted index, on the host."""
        rows = self.source.take(index)
        # in the precision of the tiles, so that a subsample has their bits
        rows = np.asarray(rows, self.dtype)
        return np.asarray(rows / compute_lengths(rows, np), np.float64)


def scale_to_unit_rows(samples: Dataset) -> Dataset:
    """The samples with rows of length one: a copy of an array in memory, otherwise scaled as they are read."""
    if isinstance(samples, ArrayDataset):
        return ArrayDataset(UnitRows(samples).map_rows(KeepRows(), samples.n_features))
    return UnitRows(samples)
