"""Samples in files: readers of rows, prefetching, and the dataset that sums over a reader."""

from __future__ import annotations

import importlib
import os
import threading
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from queue import SimpleQueue
from typing import Any, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from elldict._old.backend.base import NUMPY, Array, Backend, name_precision
from elldict._old.backend.threads import map_in_order
from elldict._old.data.dataset import (
    ArrayWriter,
    Described,
    DescribedBySource,
    Kernel,
    RowWriter,
    S,
    T,
    count_row_bytes,
    make_checked_writer,
    rows_per_tile,
    tile_bounds,
    tree_sum,
)
from elldict._old.data.weights import bind_by_row
from elldict.exceptions import SamplesChangedError, SamplesFileError


def import_optional(module: str, extra: str) -> Any:
    """Import a package, or say how it is installed."""
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        package = module.partition(".")[0]
        if error.name is None or error.name.partition(".")[0] != package:
            raise  # it is there, and lacks something itself
        message = f"{package} is needed for this: pip install '.[{extra}]' in a clone of elldict"
        raise ImportError(message, name=package) from error


class Reader(Described, Protocol):
    """Rows of a file or a folder of files, as real numbers.

    A reader can be pickled, opens its file when it needs it, and is read by several threads at once.
    """

    @property
    def path(self) -> str:
        """File or folder; empty if the rows come from elsewhere."""
        ...

    @property
    def feature_names(self) -> tuple[str, ...] | None:
        """Names of the features, if the file has them."""
        ...

    def read(self, start: int, stop: int, out: NDArray[Any] | None = None) -> NDArray[Any]:
        """Rows from start to stop, in C order, of `dtype`; in `out` (stop - start, n_features) if it is given."""
        ...

    def take(self, index: NDArray[np.int64]) -> NDArray[Any]:
        """Rows by sorted index; nothing is read twice."""
        ...

    def fingerprint(self) -> str:
        """Digest of shape, dtype, size, date and some of the content."""
        ...

    def check_unchanged(self) -> None:
        """Raise SamplesChangedError if the file is not the one that was opened."""
        ...


def find_dtype(dtype: np.dtype[Any], where: str) -> str:
    """Precision in which stored numbers are multiplied; refuses what is not a real number."""
    if dtype.kind not in "fiub":
        raise SamplesFileError(f"{where} holds {dtype}, expected real numbers: floats, integers or booleans.")
    return name_precision(dtype)


def check_shape(shape: tuple[int, ...], where: str) -> tuple[int, int]:
    """Shape of samples; refuses any other."""
    if len(shape) != 2:
        raise SamplesFileError(f"{where} holds an array of shape {shape}, expected (n_samples, n_features).")
    if 0 in shape:
        raise SamplesFileError(f"{where} holds {shape[0]} samples of {shape[1]} features: it is empty.")
    return int(shape[0]), int(shape[1])


def choose_array(path: str, shapes: Mapping[str, tuple[Any, ...]], name: str | None) -> str:
    """Name of the array to read: the one asked for, or the only one with rows and columns."""
    if name is not None and name in shapes:
        return name
    known = ", ".join(f"{key!r} {shape}" for key, shape in list(shapes.items())[:10]) or "none at all"
    if name is not None:
        raise SamplesFileError(f"{path} has no array {name!r}; its arrays are {known}.")
    found = [key for key, shape in shapes.items() if len(shape) == 2]
    if len(found) != 1:
        raise SamplesFileError(
            f"{path} holds {len(found) or 'no'} arrays of rows and columns, expected one: its arrays are {known}. "
            f"Name the one with the samples, as in {Path(path).name}:NAME."
        )
    return found[0]


def prepare_out(reader: Reader, start: int, stop: int, out: NDArray[Any] | None) -> NDArray[Any]:
    """Memory for some rows: what was given, or new."""
    if not 0 <= start <= stop <= reader.n_samples:
        raise IndexError(f"rows {start} to {stop} of {reader.n_samples}")
    return np.empty((stop - start, reader.n_features), reader.dtype) if out is None else out


def split_runs(index: NDArray[np.int64], gap: int, longest: int) -> Iterator[NDArray[np.int64]]:
    """Sorted indices, in runs that are worth reading in one piece: gaps of at most `gap`, spans of about `longest`."""
    if not len(index):
        return
    apart = (np.diff(index) > gap) | (np.diff(index // max(1, longest)) > 0)
    yield from np.split(index, np.flatnonzero(apart) + 1)


def list_names(names: Sequence[str], most: int = 10) -> str:
    """Names, the first of them if there are many."""
    shown = ", ".join(map(repr, names[:most]))
    return shown if len(names) <= most else f"{shown}, ... ({len(names) - most} more)"


def describe_error(error: Exception) -> str:
    """What another library says of a file, in one line."""
    return " ".join(f"{type(error).__name__}: {error}".split())


@dataclass(frozen=True)
class Stamp:
    """What the system knows of a file; if its inode, size or dates differ, it is another file."""

    size: int
    modified: int
    changed: int  # of content, name or mode: whoever sets `modified` back cannot set this
    inode: int

    @classmethod
    def of(cls, status: os.stat_result) -> Stamp:
        """Stamp from what `os.stat` returns."""
        return cls(status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino)


def check_stamp(path: str, opened: Stamp, status: os.stat_result | None = None) -> None:
    """Raise if the file at `path` is no longer the one of the stamp."""
    try:
        now = Stamp.of(Path(path).stat() if status is None else status)
    except FileNotFoundError:
        raise SamplesChangedError(f"{path} has been removed since it was opened.") from None
    if now == opened:
        return
    if now.size != opened.size:
        change = f"it has {now.size} bytes, and had {opened.size}"
    elif now.inode != opened.inode:
        change = "it has been replaced"
    elif now.modified != opened.modified:
        change = "it has been written to"
    else:
        change = "its date was set back after it was written to, or it has got another mode, owner or link"
    raise _changed(path, change)


def check_content(path: str, opened: int, n_blocks: int) -> None:
    """Raise if blocks of the file at `path` hold something else than when it was opened.

    What another process writes through a map shows there at once, and in the dates of the file only later.
    """
    if sum_blocks(path, n_blocks) != opened:
        raise _changed(path, "it has been written to")


def _changed(path: str, change: str) -> SamplesChangedError:
    return SamplesChangedError(
        f"{path} has changed since it was opened: {change}. Whatever was computed from it is not to be trusted; start "
        "again when nobody writes to it any more."
    )


DRAWN_BLOCKS = 64
DRAWN_BYTES = 2**12
"""Blocks of a file that are compared before and after each pass, a page each: a fifth of a millisecond. If a twentieth
of the pages has changed, at least one is found in 96 of 100 files."""


def sum_blocks(path: str, n_blocks: int = DRAWN_BLOCKS) -> int:
    """Checksum of blocks of a file: one drawn from each of so many equal parts, the same ones for the same size."""
    with Path(path).open("rb", buffering=0) as stream:
        size = os.fstat(stream.fileno()).st_size
        part = max(DRAWN_BYTES, -(-size // n_blocks))
        draws = np.random.default_rng(size).random(n_blocks)
        checksum = 0
        for number in range(-(-size // part)):
            room = max(0, min(part, size - number * part) - DRAWN_BYTES)
            stream.seek(number * part + int(draws[number] * (room + 1)))
            checksum = zlib.crc32(stream.read(DRAWN_BYTES), checksum)
    return checksum


@dataclass
class Cursor:
    """Where a read ended: rows that are decoded and not yet asked for, and those after them."""

    position: int
    rows: NDArray[Any]
    batches: Iterator[NDArray[Any]] = field(default_factory=lambda: iter(()))


@dataclass
class Cursors:
    """Where reads ended, for those that go on there; left behind when a reader is pickled."""

    ended: list[Cursor] = field(default_factory=list)  # the latest last
    lock: threading.Lock = field(default_factory=threading.Lock)

    def __reduce__(self) -> tuple[type[Cursors], tuple[()]]:
        return Cursors, ()

    def find(self, first: int, last: int) -> Cursor | None:
        """Take the cursor that is furthest on among those from row `first` to row `last`: no two threads get it."""
        with self.lock:
            found = [cursor for cursor in self.ended if first <= cursor.position <= last]
            best = max(found, key=lambda cursor: cursor.position, default=None)
            self.ended = [cursor for cursor in self.ended if cursor is not best]
        return best

    def leave(self, cursor: Cursor) -> None:
        """Leave a cursor for whoever goes on there.

        Eight passes over a file may go on at a time, with 512 MB of decoded rows: the largest band of zarr chunks.
        """
        with self.lock:
            self.ended.append(cursor)
            while len(self.ended) > 8 or sum(left.rows.nbytes for left in self.ended) > 2**29:
                self.ended.pop(0)


PREFETCHED_BLOCKS = 3
"""Blocks in memory: one being multiplied, one waiting, one being read."""

BLOCK_BYTES = 2**24
"""Least bytes of rows read in one piece: enough for a disk to run at full speed."""


class Prefetcher:
    """Blocks of rows, read once each and in order, into memory that is used again.

    Those who work on the rows have to ask for them in about the same order, and all of them: a block is read when one
    before it is done with.
    """

    def __init__(self, reader: Reader, block_rows: int) -> None:
        self._reader = reader
        self._block_rows = block_rows
        self._bounds = tile_bounds(reader.n_samples, block_rows)
        self._blocks: list[Future[NDArray[Any]]] = [Future() for _ in self._bounds]
        self._rows_left = [stop - start for start, stop in self._bounds]
        self._free: SimpleQueue[NDArray[Any] | None] = SimpleQueue()
        self._lock = threading.Lock()
        self._closed = False
        self._thread = threading.Thread(target=self._read_all, name="elldict reading ahead", daemon=True)

    def __enter__(self) -> Self:
        rows = min(self._block_rows, self._reader.n_samples)
        for _ in range(min(PREFETCHED_BLOCKS, len(self._bounds))):
            self._free.put(np.empty((rows, self._reader.n_features), self._reader.dtype))
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._closed = True
        self._free.put(None)  # wakes the thread if it waits for memory
        self._thread.join()
        for block in self._blocks:  # a worker may be waiting for one that nobody will read
            block.cancel()

    @contextmanager
    def rows(self, start: int, stop: int) -> Iterator[NDArray[Any]]:
        """Some rows of one block, for as long as they are needed."""
        number = start // self._block_rows
        memory = self._blocks[number].result()
        first = number * self._block_rows
        try:
            yield memory[start - first : stop - first]
        finally:
            with self._lock:
                self._rows_left[number] -= stop - start
                done = not self._rows_left[number]
            if done:
                self._free.put(memory)

    def _read_all(self) -> None:
        for number, (start, stop) in enumerate(self._bounds):
            memory = self._free.get()
            if self._closed or memory is None:
                return
            try:
                self._reader.read(start, stop, memory[: stop - start])
            except BaseException as error:  # raised where these rows, or later ones, are asked for
                for block in self._blocks[number:]:
                    block.set_exception(error)
                return
            self._blocks[number].set_result(memory)


@dataclass(frozen=True)
class FileDataset(DescribedBySource):
    """Rows of a reader, a few blocks at a time."""

    reader: Reader
    block_size: int | None = None  # rows that are read at a time, rounded up to whole tiles
    backend: Backend = NUMPY

    @property
    def source(self) -> Reader:
        """The reader."""
        return self.reader

    @cached_property
    def tile_rows(self) -> int:
        """Rows of a tile, the same as for samples in memory."""
        return rows_per_tile(self.n_samples, self.n_features, self.dtype)

    @cached_property
    def block_rows(self) -> int:
        """Rows of a block: whole tiles, as many as were asked for; if nobody asked, one for every core at least."""
        wanted = self.block_size or max(BLOCK_BYTES // count_row_bytes(self), (os.cpu_count() or 1) * self.tile_rows)
        return self.tile_rows * -(-min(wanted, self.n_samples) // self.tile_rows)

    def sum(self, kernel: Kernel[S]) -> S:
        """Add up what the kernel makes of every tile, by `tree_sum`."""

        def bind() -> Callable[[int, Array], S]:
            visit = bind_by_row(kernel, self.backend)
            return lambda start, tile: visit((start, tile))

        return tree_sum(self._map_tiles(bind))

    def map_rows(self, kernel: Kernel[Array], n_columns: int) -> NDArray[np.floating]:
        """Array of shape (n_samples, n_columns), in memory, with what the kernel makes of every tile."""
        out = np.empty((self.n_samples, n_columns), self.dtype)
        self.write_rows(kernel, ArrayWriter(out))
        return out

    def write_rows(self, kernel: Kernel[Array], writer: RowWriter) -> None:
        """Give the writer what the kernel makes of every tile."""
        for _ in self._map_tiles(lambda: make_checked_writer(self, kernel, writer)):
            pass

    def take(self, index: NDArray[np.int64]) -> NDArray[np.float64]:
        """Some samples, by sorted index."""
        return self.reader.take(index).astype(np.float64, copy=False)

    def _map_tiles(self, bind: Callable[[], Callable[[int, Array], T]]) -> Iterator[T]:
        """What is made of the first row and the rows of every tile, in tile order, by all cores."""
        self.reader.check_unchanged()
        with Prefetcher(self.reader, self.block_rows) as prefetcher:

            def make_worker() -> Callable[[tuple[int, int]], T]:
                visit: Callable[[int, Array], T] | None = None

                def work(bounds: tuple[int, int]) -> T:
                    nonlocal visit
                    with prefetcher.rows(*bounds) as tile:  # given back whatever fails: others wait for the memory
                        visit = visit or bind()
                        return visit(bounds[0], tile)

                return work

            yield from map_in_order(make_worker, tile_bounds(self.n_samples, self.tile_rows))
        self.reader.check_unchanged()  # before anybody gets the sum: it may hold rows of two files
