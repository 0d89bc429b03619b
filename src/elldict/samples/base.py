"""What a source of samples offers, and how samples are cut into tiles."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from elldict.space import Array, Space, to_numpy

TILE_ROWS = 1024
"""Enough rows for a product at full speed."""

TILE_WORK = 4 * 10**7
"""Least rows times n^2: a few milliseconds of products, beside which the call for a tile does not show."""

TILE_BYTES = 2**22
"""Most bytes of a tile: every core holds one, its codes and their powers."""

SPLIT_WORK = 4 * 10**6
"""Rows times n^2 from which few samples are cut into tiles too: half a millisecond of products, worth a second core."""

CORES = 4
"""Tiles come in multiples of this, so that two or four cores have equal work."""

GPU_TILE_BYTES = 2**28
"""Bytes of a tile on a graphics card: milliseconds of products, beside which the calls for a tile do not show."""


class Addable(Protocol):
    """Anything a pass can add up."""

    def __add__(self, other: Self, /) -> Self: ...


S = TypeVar("S", bound=Addable)
T_co = TypeVar("T_co", covariant=True)


class Kernel(Protocol[T_co]):
    """What is done with each tile in one pass."""

    def bind(self, space: Space) -> Callable[[Array], T_co]:
        """Prepare for a pass in `space`: move the small matrices there and set up scratch memory."""
        ...


class Sink(Protocol):
    """Where rows go: it takes them by the number of the first, from several threads and in any order."""

    def write(self, start: int, rows: Array) -> None:
        """Take some rows."""
        ...


class Placed(Protocol):
    """Anything that knows where a sample is found."""

    def place(self, sample: int) -> str:
        """Say where a sample is found, for error messages."""
        ...


class Samples(Placed, Protocol):
    """A source of samples, sample-major: shape (n_samples, n_features)."""

    @property
    def n_samples(self) -> int: ...  # noqa: D102
    @property
    def n_features(self) -> int: ...  # noqa: D102
    @property
    def dtype(self) -> str: ...  # noqa: D102
    @property
    def space(self) -> Space: ...  # noqa: D102

    def fingerprint(self) -> str:
        """Tell these samples from others, without a look at all of them."""
        ...

    def sum_over(self, kernel: Kernel[S]) -> S:
        """Add up what the kernel makes of every tile, in tile order, along the tree of `samples.fold`."""
        ...

    def map_rows(self, kernel: Kernel[Array], n_columns: int) -> Any:
        """Put together what the kernel makes of every tile, a row a sample."""
        ...

    def write_rows(self, kernel: Kernel[Array], sink: Sink) -> None:
        """Give the sink what the kernel makes of every tile."""
        ...

    def rows(self, index: NDArray[np.int64]) -> NDArray[np.float64]:
        """Some samples, by sorted index, on the host."""
        ...


def rows_per_tile(n_samples: int, n_features: int, dtype: str, *, on_gpu: bool = False) -> int:
    """Rows of a tile. They depend on the shape of the data and the kind of device, never on how a source stores it.

    So every source adds up the same partial sums in the same order and gets the same answer.
    """
    row_bytes = n_features * (4 if dtype == "float32" else 8)
    if on_gpu:
        return -(-n_samples // -(-n_samples * row_bytes // GPU_TILE_BYTES))
    most = TILE_BYTES // row_bytes
    rows = max(64, min(max(TILE_ROWS, TILE_WORK // n_features**2), most))
    if n_samples <= rows and n_samples * n_features**2 < SPLIT_WORK:
        return n_samples
    rows = min(rows, -(-n_samples // CORES))
    n_tiles = CORES * -(-n_samples // (CORES * rows))
    return -(-n_samples // n_tiles)


def tile_bounds(n_samples: int, tile_rows: int) -> Iterator[tuple[int, int]]:
    """First and last-plus-one row of each tile, in order."""
    for start in range(0, n_samples, tile_rows):
        yield start, min(start + tile_rows, n_samples)


@dataclass(frozen=True)
class Misfit:
    """A value that is not a finite number, and where it stands."""

    sample: int
    feature: int
    value: float


def find_misfit(Y: Array, xp: Any) -> Misfit | None:
    """First NaN or infinity of a tile, if there is one."""
    if bool(xp.all(xp.isfinite(Y))):
        return None
    tile = to_numpy(Y)
    sample, feature = (int(k) for k in np.argwhere(~np.isfinite(tile))[0])
    return Misfit(sample, feature, float(tile[sample, feature]))


def not_finite(samples: Placed, misfit: Misfit) -> ValueError:
    """Error that says where the misfit stands."""
    found = "NaN" if math.isnan(misfit.value) else "infinity"
    return ValueError(
        f"X holds {found} in sample {misfit.sample}, feature {misfit.feature} ({samples.place(misfit.sample)}). "
        "Drop or impute it first."
    )
