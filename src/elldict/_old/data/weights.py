"""Weights of samples, on their way to the tiles of a pass."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from elldict._old.backend.base import Array, Backend

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)

NumberedTile = tuple[int, Array]
"""Number of the first sample of a tile, and its samples."""


class TileKernel(Protocol[T_co]):
    """A kernel as `data/dataset.py` has it."""

    def bind(self, backend: Backend) -> Callable[[Array], T_co]:
        """Return the function that looks at one tile."""
        ...


@dataclass(frozen=True)
class WeightedKernel(Generic[T]):
    """A kernel whose sums are over weighted samples: what it binds takes a tile and the weights (b,) of its samples."""

    kernel: TileKernel[T]
    weights: NDArray[np.float64]  # (r,)

    def bind(self, backend: Backend) -> Callable[[Array], T]:
        """Refuse tiles of which nobody says where they begin."""
        raise TypeError(f"weights of samples need the number of a sample: use bind_by_row in {backend}")

    def bind_by_row(self, backend: Backend) -> Callable[[NumberedTile], T]:
        """Return the function that looks at one tile. Samples of weight zero are left out, whatever they hold."""
        visit: Callable[..., T] = self.kernel.bind(backend)
        xp = backend.xp

        def visit_weighted(numbered: NumberedTile) -> T:
            start, Y = numbered
            weights = self.weights[start : start + int(Y.shape[0])]
            there: Any = backend.asarray(weights, "float64")
            if not np.all(weights):
                Y = xp.where((there > 0)[:, None], Y, xp.zeros_like(Y))
            return visit(Y, there)

        return visit_weighted


def bind_by_row(kernel: TileKernel[T], backend: Backend) -> Callable[[NumberedTile], T]:
    """Bind a kernel to numbered tiles: the number tells the weights of their samples, if these have any."""
    if hasattr(kernel, "bind_by_row"):
        return cast("Callable[[NumberedTile], T]", kernel.bind_by_row(backend))
    visit = kernel.bind(backend)
    return lambda numbered: visit(numbered[1])
