"""Datasets: samples cut into tiles, summed along a fixed tree; and samples that lie in memory."""

from __future__ import annotations

import hashlib
import math
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Protocol, Self, TypeVar

import array_api_compat
import numpy as np
from numpy.typing import NDArray

from elldict.backend.base import Array, Backend, real_dtype, to_numpy
from elldict.backend.threads import map_in_order
from elldict.exceptions import SmallerTilesWarning

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

    def bind(self, backend: Backend) -> Callable[[Array], T_co]:
        """Prepare for a pass in `backend`: move the small matrices there and set up scratch memory."""
        ...


class RowWriter(Protocol):
    """Where rows go: it takes them by the number of the first, from several threads and in any order."""

    def write(self, start: int, rows: Array) -> None:
        """Take some rows."""
        ...


class Locatable(Protocol):
    """Anything that knows where a sample is found."""

    def locate(self, sample: int) -> str:
        """Say where a sample is found, for error messages."""
        ...


class Dataset(Locatable, Protocol):
    """A source of samples, sample-major: shape (n_samples, n_features)."""

    @property
    def n_samples(self) -> int: ...  # noqa: D102
    @property
    def n_features(self) -> int: ...  # noqa: D102
    @property
    def dtype(self) -> str: ...  # noqa: D102
    @property
    def backend(self) -> Backend: ...  # noqa: D102

    def fingerprint(self) -> str:
        """Tell these samples from others, without a look at all of them."""
        ...

    def sum(self, kernel: Kernel[S]) -> S:
        """Add up what the kernel makes of every tile, in tile order, along the tree of `samples.fold`."""
        ...

    def map_rows(self, kernel: Kernel[Array], n_columns: int) -> Any:
        """Put together what the kernel makes of every tile, a row a sample."""
        ...

    def write_rows(self, kernel: Kernel[Array], writer: RowWriter) -> None:
        """Give the sink what the kernel makes of every tile."""
        ...

    def take(self, index: NDArray[np.int64]) -> NDArray[np.float64]:
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
class NonFinite:
    """A value that is not a finite number, and where it stands."""

    sample: int
    feature: int
    value: float


def find_non_finite(Y: Array, xp: Any) -> NonFinite | None:
    """First NaN or infinity of a tile, if there is one."""
    if bool(xp.all(xp.isfinite(Y))):
        return None
    tile = to_numpy(Y)
    sample, feature = (int(k) for k in np.argwhere(~np.isfinite(tile))[0])
    return NonFinite(sample, feature, float(tile[sample, feature]))


def non_finite_error(samples: Locatable, non_finite: NonFinite) -> ValueError:
    """Error that says where the misfit stands."""
    found = "NaN" if math.isnan(non_finite.value) else "infinity"
    return ValueError(
        f"X holds {found} in sample {non_finite.sample}, feature {non_finite.feature} "
        f"({samples.locate(non_finite.sample)}). Drop or impute it first."
    )


def tree_sum(totals: Iterable[S]) -> S:
    """Add up, along the tree, what consecutive tiles amount to; no more than one total a level is held at a time.

    Also for totals of runs of 2**k tiles, the same k for each: the tree is the same, cut off k levels above its leaves.
    """
    waiting: list[tuple[int, S]] = []  # whole nodes, each of a lower level than the one before
    for total in totals:
        level = 0
        while waiting and waiting[-1][0] == level:
            total = waiting.pop()[1] + total  # noqa: PLW2901
            level += 1
        waiting.append((level, total))
    if not waiting:
        raise ValueError("there are no tiles to add up")
    total = waiting.pop()[1]
    while waiting:  # the number of tiles need not be a power of two: what is left over is added from the right
        total = waiting.pop()[1] + total
    return total


DIGESTED_WHOLE = 2**26
"""Bytes up to which every value goes into a fingerprint."""

N_BLOCKS = 64
BLOCK_BYTES = 2**16
"""Beyond, blocks of these many bytes do: the first, the last, and others evenly between them."""


def started_digest(*facts: object) -> hashlib.blake2b:
    """A digest that has seen some facts."""
    return hashlib.blake2b("\n".join(map(str, facts)).encode(), digest_size=16)


def sampled_ranges(n_samples: int, row_bytes: int) -> Iterator[tuple[int, int]]:
    """First and last-plus-one row of each range that goes into a fingerprint."""
    rows = min(n_samples, max(1, BLOCK_BYTES // row_bytes))
    whole = n_samples * row_bytes <= DIGESTED_WHOLE or n_samples <= N_BLOCKS * rows
    step = rows if whole else (n_samples - rows) / (N_BLOCKS - 1)
    for number in range(-(-n_samples // rows) if whole else N_BLOCKS):
        start = int(number * step)
        yield start, min(start + rows, n_samples)


T = TypeVar("T")

FEWEST_ROWS = 64


def retry_on_oom(samples: Any, work: Callable[[], T]) -> T:
    """Result of a pass over samples; where memory of a card runs out, tiles become half as large, once and for all."""
    rows = samples.tile_rows
    while True:
        try:
            result = work()
            break
        except Exception as error:
            if not is_out_of_memory(error) or samples.tile_rows <= FEWEST_ROWS:
                raise
        # not in the handler, where the error still holds what was in the way
        smaller = max(FEWEST_ROWS, min(samples.tile_rows, samples.n_samples) // 2)
        object.__setattr__(samples, "tile_rows", smaller)
        _free_cache()
    if samples.tile_rows < rows:
        warnings.warn(
            f"The card ran out of memory with {rows} samples at a time and was given {samples.tile_rows} instead. "
            "Other programs may hold its memory.",
            SmallerTilesWarning,
            stacklevel=2,
        )
    return result


def is_out_of_memory(error: Exception) -> bool:
    """Whether a card has run out of memory; torch and CuPy each have an error of their own for that."""
    return type(error).__name__ in {"OutOfMemoryError"} and type(error).__module__.split(".")[0] in {"torch", "cupy"}


def _free_cache() -> None:
    """Give the card back what torch holds without need."""
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_available():
        torch.cuda.empty_cache()


@dataclass(frozen=True)
class ArrayDataset:
    """An array of shape (n_samples, n_features); it is read tile by tile and never written or copied whole."""

    X: Array
    tile_rows: int = 0

    def __post_init__(self) -> None:
        if not self.tile_rows:
            shape, on_gpu = (self.n_samples, self.n_features), self.backend.on_gpu
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
    def backend(self) -> Backend:
        """Library and device of the array."""
        return Backend.of(self.X)

    def fingerprint(self) -> str:
        """Digest of shape, dtype and values: of all values up to 64 MB, of blocks spread over them beyond."""
        digest = started_digest("memory", self.n_samples, self.n_features, self.dtype, self.X.dtype)
        row_bytes = self.n_features * (4 if self.dtype == "float32" else 8)
        for start, stop in sampled_ranges(self.n_samples, row_bytes):
            digest.update(to_numpy(self._tile((start, stop))).tobytes())
        return digest.hexdigest()

    def sum(self, kernel: Kernel[S]) -> S:
        """Add up what the kernel makes of every tile, along the tree."""
        return retry_on_oom(self, lambda: tree_sum(self._visited(lambda: self._visitor(kernel))))

    def map_rows(self, kernel: Kernel[Array], n_columns: int) -> Array:
        """Array of shape (n_samples, n_columns) with what the kernel makes of every tile."""
        xp = self.backend.xp
        out = xp.empty((self.n_samples, n_columns), dtype=getattr(xp, self.dtype), device=self.backend.device)
        self.write_rows(kernel, ArrayWriter(out))
        return out

    def write_rows(self, kernel: Kernel[Array], writer: RowWriter) -> None:
        """Give the sink what the kernel makes of every tile."""

        def make_writer() -> Callable[[tuple[int, int]], None]:
            write = make_checked_writer(self, kernel, writer)
            return lambda bounds: write(bounds[0], self._tile(bounds))

        retry_on_oom(self, lambda: list(self._visited(make_writer)))

    def take(self, index: NDArray[np.int64]) -> NDArray[np.float64]:
        """Some samples, by sorted index, on the host."""
        return to_numpy(self._taken(index)).astype(np.float64)

    def part(self, index: NDArray[np.int64], dtype: str) -> Array:
        """Some samples, by sorted index, where they are."""
        return self.backend.xp.astype(self._taken(index), getattr(self.backend.xp, dtype), copy=False)

    def _taken(self, index: NDArray[np.int64]) -> Array:
        return self.backend.xp.take(self.X, self.backend.xp.asarray(index, device=self.backend.device), axis=0)

    def locate(self, sample: int) -> str:
        """Block of a sample."""
        n_tiles = -(-self.n_samples // self.tile_rows)
        return f"block {sample // self.tile_rows + 1} of {n_tiles}"

    def _visited(self, make_visitor: Callable[[], Callable[[tuple[int, int]], T]]) -> Iterator[T]:
        """What a visitor makes of the bounds of every tile, in tile order; on the host, by all cores."""
        bounds = list(tile_bounds(self.n_samples, self.tile_rows))
        if array_api_compat.is_numpy_namespace(self.backend.xp):
            return map_in_order(make_visitor, bounds)
        return map(make_visitor(), bounds)

    def _visitor(self, kernel: Kernel[T]) -> Callable[[tuple[int, int]], T]:
        visit = kernel.bind(self.backend)
        return lambda bounds: visit(self._tile(bounds))

    def _tile(self, bounds: tuple[int, int]) -> Array:
        xp = self.backend.xp
        return xp.astype(self.X[bounds[0] : bounds[1], :], getattr(xp, self.dtype), copy=False)


@dataclass(frozen=True)
class ArrayWriter:
    """An array in memory."""

    array: Array

    def write(self, start: int, rows: Array) -> None:
        """Put rows into their place."""
        self.array[start : start + int(rows.shape[0]), :] = rows


def make_checked_writer(samples: Dataset, kernel: Kernel[Array], writer: RowWriter) -> Callable[[int, Array], None]:
    """What makes rows of one tile and gives them to the sink; raises if the tile holds NaN or infinity."""
    visit = kernel.bind(samples.backend)

    def write(start: int, tile: Array) -> None:
        non_finite = find_non_finite(tile, samples.backend.xp)
        if non_finite is not None:
            raise non_finite_error(samples, replace(non_finite, sample=start + non_finite.sample))
        writer.write(start, visit(tile))

    return write
