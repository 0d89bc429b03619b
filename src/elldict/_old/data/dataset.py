"""Datasets: samples cut into tiles, summed along a fixed tree; and samples that lie in memory."""

from __future__ import annotations

import hashlib
import math
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Protocol, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from elldict._old.backend.base import NUMPY, Array, Backend, name_precision, to_numpy
from elldict._old.backend.threads import map_in_order
from elldict._old.data.weights import bind_by_row
from elldict.exceptions import SmallerTilesWarning

TILE_ROWS = 1024
"""Rows from which a product runs at full speed."""

TILE_WORK = 4 * 10**7
"""Least rows times n^2 of a tile: a few milliseconds of products, beside which the call for a tile does not show."""

TILE_BYTES = 2**22
"""Most bytes of a tile: every core holds one, its codes and their powers."""

SPLIT_WORK, FLOAT32_SPLIT_WORK = 4 * 10**6, 12 * 10**6
"""Rows times n^2 from which few samples are cut into tiles too: half a millisecond of products, worth a second core. Of
float32 it takes more: products are twice as fast, and the calls for four tiles take as long."""

TILES_MULTIPLE = 4
"""Tiles come in multiples of this, so that two or four cores have equal work."""

GPU_TILE_BYTES = 2**28
"""Most bytes of a tile on a graphics card: milliseconds of products, beside which the calls for a tile do not show."""

GPU_TILE_LEAST_ROWS = 64
"""Rows below which a tile is not halved any more when a card runs out of memory."""

DIGEST_WHOLE_BYTES = 2**26
"""Bytes of samples up to which every value goes into a fingerprint: a tenth of a second."""

DIGEST_BLOCKS = 64
DIGEST_BLOCK_BYTES = 2**16
"""Beyond, so many blocks of so many bytes do: the first, the last, and others evenly between them."""


class Addable(Protocol):
    """Anything a pass can add up."""

    def __add__(self, other: Self, /) -> Self: ...


S = TypeVar("S", bound=Addable)
T = TypeVar("T")
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


class Described(Locatable, Protocol):
    """Anything that knows shape and precision of samples."""

    @property
    def n_samples(self) -> int: ...
    @property
    def n_features(self) -> int: ...
    @property
    def dtype(self) -> str:
        """Precision of the tiles, "float32" or "float64": integers, booleans and half precision are widened."""
        ...


class Dataset(Described, Protocol):
    """A source of samples, sample-major: shape (n_samples, n_features)."""

    @property
    def backend(self) -> Backend:
        """Library and device of the tiles."""
        ...

    def fingerprint(self) -> str:
        """Tell these samples from others, without a look at all of them."""
        ...

    def sum(self, kernel: Kernel[S]) -> S:
        """Add up what the kernel makes of every tile, in tile order, by `tree_sum`."""
        ...

    def map_rows(self, kernel: Kernel[Array], n_columns: int) -> Any:
        """Put together what the kernel makes of every tile, a row a sample."""
        ...

    def write_rows(self, kernel: Kernel[Array], writer: RowWriter) -> None:
        """Give the writer what the kernel makes of every tile."""
        ...

    def take(self, index: NDArray[np.int64]) -> NDArray[np.float64]:
        """Some samples, by sorted index, on the host."""
        ...


class DescribedBySource:
    """A dataset whose samples another object holds: a reader, or another dataset."""

    source: Any

    @property
    def n_samples(self) -> int:
        """Number of rows."""
        return int(self.source.n_samples)

    @property
    def n_features(self) -> int:
        """Number of columns."""
        return int(self.source.n_features)

    @property
    def dtype(self) -> str:
        """Precision of the tiles."""
        return str(self.source.dtype)

    @property
    def path(self) -> str:
        """File or folder; empty if there is none."""
        return str(getattr(self.source, "path", ""))

    @property
    def feature_names(self) -> tuple[str, ...] | None:
        """Names of the features, if there are any."""
        return getattr(self.source, "feature_names", None)

    def locate(self, sample: int) -> str:
        """Say where a sample is found."""
        return str(self.source.locate(sample))

    def fingerprint(self) -> str:
        """That of the source."""
        return str(self.source.fingerprint())

    def map_rows(self, kernel: Kernel[Array], n_columns: int) -> Any:
        """What the source makes of every tile by the kernel."""
        return self.source.map_rows(kernel, n_columns)

    def write_rows(self, kernel: Kernel[Array], writer: RowWriter) -> None:
        """Let the source write what the kernel makes of every tile."""
        self.source.write_rows(kernel, writer)


def count_row_bytes(samples: Described) -> int:
    """Bytes of a sample in a tile."""
    return samples.n_features * (4 if samples.dtype == "float32" else 8)


def rows_per_tile(n_samples: int, n_features: int, dtype: str, *, on_gpu: bool = False) -> int:
    """Rows of a tile. They depend on the shape of the data and the kind of device, never on how a source stores it.

    So every source adds up the same partial sums in the same order and gets the same answer.
    """
    row_bytes = n_features * (4 if dtype == "float32" else 8)
    if on_gpu:
        return -(-n_samples // -(-n_samples * row_bytes // GPU_TILE_BYTES))
    most = TILE_BYTES // row_bytes
    rows = max(64, min(max(TILE_ROWS, TILE_WORK // n_features**2), most))
    split_work = FLOAT32_SPLIT_WORK if dtype == "float32" else SPLIT_WORK
    if n_samples <= rows and n_samples * n_features**2 < split_work:
        return n_samples
    rows = min(rows, -(-n_samples // TILES_MULTIPLE))
    n_tiles = TILES_MULTIPLE * -(-n_samples // (TILES_MULTIPLE * rows))
    return -(-n_samples // n_tiles)


def tile_bounds(n_samples: int, tile_rows: int) -> list[tuple[int, int]]:
    """First and last-plus-one row of each tile, in order."""
    return list(zip(range(0, n_samples, tile_rows), [*range(tile_rows, n_samples, tile_rows), n_samples], strict=False))


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
    """Make the error that says where a NaN or infinity stands."""
    found = "NaN" if math.isnan(non_finite.value) else "infinity"
    names = getattr(samples, "feature_names", None)
    column = "" if names is None else f", column {names[non_finite.feature]!r}"
    return ValueError(
        f"X holds {found} in sample {non_finite.sample}, feature {non_finite.feature}{column} "
        f"({samples.locate(non_finite.sample)}). Drop or impute it first."
    )


def refuse_non_finite(samples: Locatable, start: int, tile: Array, xp: Any) -> None:
    """Raise if a tile, whose first sample is number `start`, holds NaN or infinity."""
    non_finite = find_non_finite(tile, xp)
    if non_finite is not None:
        raise non_finite_error(samples, replace(non_finite, sample=start + non_finite.sample))


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


def start_digest(*facts: object) -> hashlib.blake2b:
    """Return a digest that has seen some facts."""
    return hashlib.blake2b("\n".join(map(str, facts)).encode(), digest_size=16)


def choose_digest_ranges(n_samples: int, row_bytes: int) -> Iterator[tuple[int, int]]:
    """First and last-plus-one row of each range that goes into a fingerprint."""
    rows = min(n_samples, max(1, DIGEST_BLOCK_BYTES // row_bytes))
    whole = n_samples * row_bytes <= DIGEST_WHOLE_BYTES or n_samples <= DIGEST_BLOCKS * rows
    step = rows if whole else (n_samples - rows) / (DIGEST_BLOCKS - 1)
    for number in range(-(-n_samples // rows) if whole else DIGEST_BLOCKS):
        start = int(number * step)
        yield start, min(start + rows, n_samples)


def retry_on_oom(samples: Any, work: Callable[[], T]) -> T:
    """Result of a pass over samples; where memory of a card runs out, tiles become half as large, once and for all."""
    rows = samples.tile_rows
    while True:
        try:
            result = work()
            break
        except Exception as error:
            # torch and CuPy each have an error of their own
            theirs = type(error).__module__.split(".")[0] in {"torch", "cupy"}
            if not (theirs and type(error).__name__ == "OutOfMemoryError" and samples.tile_rows > GPU_TILE_LEAST_ROWS):
                raise
        # not in the handler, where the error still holds what was in the way
        samples.tile_rows = max(GPU_TILE_LEAST_ROWS, min(samples.tile_rows, samples.n_samples) // 2)
        torch = sys.modules.get("torch")
        if torch is not None and torch.cuda.is_available():
            torch.cuda.empty_cache()
    if samples.tile_rows < rows:
        warnings.warn(
            f"The card ran out of memory with {rows} samples at a time and was given {samples.tile_rows} instead. "
            "Other programs may hold its memory.",
            SmallerTilesWarning,
            stacklevel=2,
        )
    return result


@dataclass
class ArrayDataset:
    """An array of shape (n_samples, n_features); it is read tile by tile and never written or copied whole."""

    X: Array
    tile_rows: int = 0  # 0 for those of `rows_per_tile`
    feature_names: Sequence[str] | None = None
    white: bool = False  # rows are samples in whitened coordinates, not as they were given
    n_samples: int = field(init=False)
    n_features: int = field(init=False)
    dtype: str = field(init=False)  # of the tiles: integers, booleans and half precision are widened
    backend: Backend = field(init=False)

    def __post_init__(self) -> None:
        self.n_samples, self.n_features = int(self.X.shape[0]), int(self.X.shape[1])
        self.dtype = name_precision(self.X.dtype)
        self.backend = Backend.of(self.X)
        self.tile_rows = self.tile_rows or rows_per_tile(
            self.n_samples, self.n_features, self.dtype, on_gpu=self.backend.on_gpu
        )

    def fingerprint(self) -> str:
        """Digest of shape, dtype and all values, by all cores: no date says that they are the same."""
        digest = start_digest("memory", self.n_samples, self.n_features, self.dtype, self.X.dtype)
        bounds = tile_bounds(self.n_samples, max(1, TILE_BYTES // count_row_bytes(self)))
        in_threads = self.backend == NUMPY
        for part in map_in_order(lambda: self._digest, bounds) if in_threads else map(self._digest, bounds):
            digest.update(part)
        return digest.hexdigest()

    def sum(self, kernel: Kernel[S]) -> S:
        """Add up what the kernel makes of every tile, by `tree_sum`."""
        if self.backend == NUMPY:  # which has no card to run out of memory on
            bounds = tile_bounds(self.n_samples, self.tile_rows)
            return tree_sum(map_in_order(partial(bind_by_row, kernel, NUMPY), bounds, self._numbered_tile))

        def add_up() -> S:
            tiles = map(self._numbered_tile, tile_bounds(self.n_samples, self.tile_rows))
            return tree_sum(map(bind_by_row(kernel, self.backend), tiles))

        return retry_on_oom(self, add_up)

    def map_rows(self, kernel: Kernel[Array], n_columns: int) -> Array:
        """Array of shape (n_samples, n_columns) with what the kernel makes of every tile."""
        xp = self.backend.xp
        out = xp.empty((self.n_samples, n_columns), dtype=getattr(xp, self.dtype), device=self.backend.device)
        self.write_rows(kernel, ArrayWriter(out))
        return out

    def write_rows(self, kernel: Kernel[Array], writer: RowWriter) -> None:
        """Give the writer what the kernel makes of every tile."""

        def make_worker() -> Callable[[tuple[int, int]], None]:
            write = make_checked_writer(self, kernel, writer)
            return lambda bounds: write(bounds[0], self._tile(bounds))

        def write_all() -> None:
            bounds = tile_bounds(self.n_samples, self.tile_rows)
            for _ in map_in_order(make_worker, bounds) if self.backend == NUMPY else map(make_worker(), bounds):
                pass

        retry_on_oom(self, write_all)

    def take(self, index: NDArray[np.int64]) -> NDArray[np.float64]:
        """Some samples, by sorted index, on the host."""
        xp = self.backend.xp
        rows = xp.take(self.X, xp.asarray(index, device=self.backend.device), axis=0)
        return to_numpy(xp.astype(rows, xp.float64, copy=False))

    def locate(self, sample: int) -> str:
        """Block of a sample."""
        return f"block {sample // self.tile_rows + 1} of {-(-self.n_samples // self.tile_rows)}"

    def _digest(self, bounds: tuple[int, int]) -> bytes:
        values = np.ascontiguousarray(to_numpy(self._tile(bounds)))
        return hashlib.blake2b(values.data, digest_size=16).digest()  # other threads go on meanwhile

    def _numbered_tile(self, bounds: tuple[int, int]) -> tuple[int, Array]:
        return bounds[0], self._tile(bounds)

    def _tile(self, bounds: tuple[int, int]) -> Array:
        xp = self.backend.xp
        return xp.astype(self.X[bounds[0] : bounds[1], :], getattr(xp, self.dtype), copy=False)


def is_white(samples: Dataset) -> bool:
    """Whether rows are samples in whitened coordinates already."""
    return isinstance(samples, ArrayDataset) and samples.white


@dataclass(frozen=True)
class ArrayWriter:
    """An array in memory."""

    array: Array

    def write(self, start: int, rows: Array) -> None:
        """Put rows into their place."""
        self.array[start : start + int(rows.shape[0]), :] = rows


def make_checked_writer(samples: Dataset, kernel: Kernel[Array], writer: RowWriter) -> Callable[[int, Array], None]:
    """Return what makes rows of one tile and writes them; it raises if the tile holds NaN or infinity."""
    visit = kernel.bind(samples.backend)

    def write(start: int, tile: Array) -> None:
        refuse_non_finite(samples, start, tile, samples.backend.xp)
        writer.write(start, visit(tile))

    return write
