"""Rows of a .npy file, or of any file in which an array lies as it does in memory.

Files are read, not mapped: mapped pages count as memory of the process, and a mapped file that is truncated ends the
process instead of raising an error.
"""

from __future__ import annotations

import mmap
import os
from bisect import bisect_right
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from elldict._old.data.dataset import choose_digest_ranges, start_digest
from elldict._old.data.file import (
    DRAWN_BLOCKS,
    Stamp,
    check_content,
    check_shape,
    check_stamp,
    find_dtype,
    prepare_out,
    split_runs,
    sum_blocks,
)
from elldict._old.data.spool import Spool, SpoolStream
from elldict.exceptions import SamplesFileError

MAGIC = npy.MAGIC_PREFIX
VERSIONS = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0, (3, 0): npy.read_array_header_2_0}
"""Versions of the format, and what reads their headers; that of 3.0 differs from 2.0 in names of fields alone."""


BFLOAT16 = "bfloat16"
"""Type of numbers that are the first half of float32, and that NumPy does not know."""


def widen_bfloat16(halves: NDArray[np.uint16]) -> NDArray[np.float32]:
    """Numbers whose first 16 bits these are, the others being zero."""
    return np.asarray(halves.astype(np.uint32) << np.uint32(16)).view(np.float32)


@dataclass(frozen=True)
class Lines:
    """Lines of a text in which samples stand: runs of samples in consecutive lines."""

    samples: tuple[int, ...]  # first one of each run
    lines: tuple[int, ...]  # and its line, counted from 1

    def find(self, sample: int) -> int:
        """Line of a sample."""
        run = bisect_right(self.samples, sample) - 1
        return self.lines[run] + sample - self.samples[run]


@dataclass(frozen=True)
class RawReader:
    """Rows of an array that starts at a byte of a file, or of a spool; opened for each read, and may be unpickled."""

    path: str
    offset: int
    n_samples: int
    n_features: int
    stored: str  # dtype in the file, with its byte order
    fortran: bool  # columns lie one after another, instead of rows
    stamp: Stamp
    blocks: int  # checksum of some blocks of the file
    feature_names: tuple[str, ...] | None = None
    array: str = ""  # name of the array, if the file holds several
    spool: Spool | None = None  # where the numbers are instead, if they had to be converted
    lines: Lines | None = None  # of the samples, if they stand in a text
    precision: str = ""  # if it is not that of the stored numbers

    @property
    def dtype(self) -> str:
        """Precision of the rows."""
        return self.precision or (
            "float32" if self.stored == BFLOAT16 else find_dtype(np.dtype(self.stored), self.path)
        )

    def read(self, start: int, stop: int, out: NDArray[Any] | None = None) -> NDArray[Any]:
        """Rows from start to stop."""
        out = prepare_out(self, start, stop, out)
        with self._open() as stream:
            self._fill(stream, start, out)
        return out

    def take(self, index: NDArray[np.int64]) -> NDArray[Any]:
        """Rows by sorted index; neighbours in one piece."""
        out = np.empty((len(index), self.n_features), self.dtype)
        done = 0
        with self._open() as stream:
            # a second read costs more than 16 kB between two rows; what is read in one piece is all in memory
            for run in split_runs(index, 2**14 // self._row_bytes, 2**20 // self._row_bytes):
                rows = np.empty((int(run[-1] - run[0]) + 1, self.n_features), self.dtype)
                self._fill(stream, int(run[0]), rows)
                out[done : done + len(run)] = rows[run - run[0]]
                done += len(run)
        return out

    def locate(self, sample: int) -> str:
        """File and byte of a sample, or where it stood before it was converted."""
        if self.lines is not None:
            return f"{self.path}, line {self.lines.find(sample)}"
        if self.spool is not None:
            return f"{self.path}, array {self.array!r}, row {sample}"
        step = self._item_bytes if self.fortran else self._row_bytes
        return f"{self.path}, byte {self.offset + sample * step}"

    def fingerprint(self) -> str:
        """Digest of shape, dtype, size and date of the file and of some of its rows."""
        facts = (
            *filter(None, (self.array, self.feature_names)),
            self.stored,
            self.fortran,
            self.offset,
            self.stamp.size,
            self.stamp.modified,
        )
        digest = start_digest("raw", self.n_samples, self.n_features, *facts)
        for start, stop in choose_digest_ranges(self.n_samples, self._row_bytes):
            digest.update(self.read(start, stop).data)
        return digest.hexdigest()

    def check_unchanged(self) -> None:
        """Raise if the file has changed."""
        check_stamp(self.path, self.stamp)
        check_content(self.path, self.blocks, DRAWN_BLOCKS)

    @property
    def _stored_dtype(self) -> np.dtype[Any]:
        return np.dtype("<u2" if self.stored == BFLOAT16 else self.stored)

    @property
    def _item_bytes(self) -> int:
        return self._stored_dtype.itemsize

    @property
    def _row_bytes(self) -> int:
        return self.n_features * self._item_bytes

    @contextmanager
    def _open(self) -> Iterator[IO[bytes] | SpoolStream]:
        if self.spool is not None:
            yield SpoolStream(self.spool)
            return
        with Path(self.path).open("rb", buffering=0) as stream:
            check_stamp(self.path, self.stamp, os.fstat(stream.fileno()))
            yield stream

    def _fill(self, stream: IO[bytes] | SpoolStream, start: int, out: NDArray[Any]) -> None:
        """Fill `out` with rows, in the byte order and precision of `out`."""
        stored = self._stored_dtype
        plain = out.dtype == stored and out.flags.c_contiguous and not self.fortran
        rows = out if plain else np.empty(out.shape, stored, order="F" if self.fortran else "C")
        if self.fortran:
            for feature in range(self.n_features):
                self._read_into(stream, (feature * self.n_samples + start) * self._item_bytes, rows[:, feature])
        else:
            self._read_into(stream, start * self._row_bytes, rows)
        if self.stored == BFLOAT16:
            out[...] = widen_bfloat16(rows)
        elif not plain:
            out[...] = rows

    def _read_into(self, stream: IO[bytes] | SpoolStream, where: int, values: NDArray[Any]) -> None:
        """Fill contiguous memory from a byte of the array."""
        memory = values.reshape(-1, order="A").view(np.uint8).data
        stream.seek(self.offset + where)
        done = 0
        while done < len(memory):
            got = stream.readinto(memory[done:])  # type: ignore[union-attr]
            if not got:
                end = self.offset + where + done
                raise SamplesFileError(f"{self.path} ends at byte {end}, {len(memory) - done} bytes early.")
            done += got


def open_npy(path: str | os.PathLike[str]) -> RawReader:
    """Reader of a .npy file; whatever is wrong with its header or its size is found here."""
    path = str(Path(path).absolute())
    with Path(path).open("rb") as stream:
        status = os.fstat(stream.fileno())
        shape, fortran, dtype = read_header(stream, path)
        offset = stream.tell()
    check_dtype(dtype, path)
    n_samples, n_features = check_shape(shape, path)
    expected = offset + n_samples * n_features * dtype.itemsize
    if status.st_size != expected:
        found = "is truncated" if status.st_size < expected else "is longer than its header says"
        raise SamplesFileError(
            f"{path} {found}: it ends at byte {status.st_size}, and an array of shape {shape} of {dtype} ends at byte "
            f"{expected}. Copy or write it again."
        )
    facts = (Stamp.of(status), sum_blocks(path))
    return RawReader(path, offset, n_samples, n_features, dtype.str, fortran and n_features > 1, *facts)


def open_memmap(array: np.memmap[Any, Any]) -> RawReader | None:
    """Reader of the file behind a mapped array, or None if its rows do not lie there one after another."""
    if array.filename is None or array.mode == "c":  # whose changes are in memory only
        return None
    in_line = array.flags.c_contiguous or array.flags.f_contiguous
    if not in_line or array.ndim != 2 or array.dtype.kind not in "fiub" or not array.size:
        return None
    path = Path(array.filename).absolute()
    try:
        facts = (Stamp.of(path.stat()), sum_blocks(str(path)))
    except OSError:  # the map outlives its name
        return None
    n_samples, n_features = array.shape
    # a view keeps the attributes of the map that it was cut from: its place follows from its address alone
    mapped: Any = array._mmap  # type: ignore[attr-defined]
    begin, here = (view.__array_interface__["data"][0] for view in (np.frombuffer(mapped, np.uint8), array))
    offset = array.offset - array.offset % mmap.ALLOCATIONGRANULARITY + here - begin
    fortran = not array.flags.c_contiguous
    reader = RawReader(str(path), offset, n_samples, n_features, array.dtype.str, fortran, *facts)
    ends = np.unique([0, n_samples - 1])  # a file may have been replaced under the name of the one mapped
    try:
        same = np.array_equal(reader.take(ends), array[ends].astype(reader.dtype), equal_nan=True)
    except SamplesFileError:
        return None
    return reader if same else None


def check_dtype(dtype: np.dtype[Any], where: str) -> None:
    """Raise if an array holds anything but real numbers."""
    if dtype.hasobject:
        raise SamplesFileError(
            f"{where} holds pickled Python objects, which are not loaded: they could run any code. Save numbers, "
            "numpy.save(path, X.astype(float), allow_pickle=False)."
        )
    find_dtype(dtype, where)


def read_header(stream: IO[bytes], path: str) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    """Shape, order and dtype, from a header that may be damaged."""
    try:
        version = npy.read_magic(stream)
        if version not in VERSIONS:
            known = ", ".join(f"{major}.{minor}" for major, minor in VERSIONS)
            raise ValueError(f"it is of version {version[0]}.{version[1]} of the format, expected one of {known}.")
        shape, fortran, dtype = VERSIONS[version](stream)
    except MemoryError:
        raise
    except Exception as error:  # NumPy's parser of headers raises what it likes on damaged files
        raise SamplesFileError(f"{path} has no valid .npy header: {' '.join(str(error).split())}") from error
    if any(length < 0 for length in shape):
        raise SamplesFileError(f"{path} claims an array of shape {shape}.")
    return shape, bool(fortran), dtype
