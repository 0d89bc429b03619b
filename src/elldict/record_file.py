"""Record files: arrays with a few words about them, appended one record after the other.

Each record carries its length and a checksum. What a kill or a power cut left half written at the end is dropped when
the file is opened; damage anywhere else is refused. Reading executes nothing and believes nothing: sizes are checked
against the file itself before memory is taken. This module does not know what the records mean.
"""

from __future__ import annotations

import json
import os
import struct
import time
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from io import FileIO
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from elldict.atomic import refuse_special, write_atomically

FILE_MAGIC = b"elldict records 1\n"
MARK = b"\xe2\x89\xabR"
HEAD = struct.Struct("<4sIQQII")
"""Mark, bytes of words, bytes in all, bytes of the file known to be on disk, checksum of the record, of this head."""

DTYPES = ("<f8", "<f4", "<i8")
MOST_WORDS = 2**20

SYNC_SECONDS = 1.0
"""A record is with the operating system at once, and survives a kill; a power cut may cost the last second."""


class RecordFileError(ValueError):
    """The file is not a record file, or is damaged."""


@dataclass(frozen=True)
class Record:
    """Words of a record, and where it stands in the file."""

    words: Mapping[str, Any]
    offset: int
    size: int


@dataclass(frozen=True)
class Draft:
    """A record that is not written yet."""

    words: Mapping[str, Any]
    arrays: Sequence[NDArray[Any]] = ()


class RecordFile:
    """An open file of records; the first of them is the header."""

    def __init__(self, path: Path, header: Mapping[str, Any], records: list[Record], end: int) -> None:
        self.path, self.header, self.records, self._end = path, header, records, end
        self._stream = path.open("r+b", buffering=0)
        self._synced, self._synced_at = end, time.monotonic()

    @classmethod
    def create(cls, path: str | os.PathLike[str], header: Mapping[str, Any]) -> RecordFile:
        """Begin a new file, which is not there before its header is complete."""
        path = Path(path).resolve()
        first = FILE_MAGIC + _encoded(header, (), durable=0)
        write_atomically(path, lambda stream: stream.write(first))
        return cls(path, header, [], len(first))

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> RecordFile:
        """Open a file and read what its records say; drop a torn end."""
        path = Path(path).resolve()
        refuse_special(path)
        header, records, end = _scanned(path)
        os.truncate(path, end)
        return cls(path, header, records, end)

    def append(self, words: Mapping[str, Any], arrays: Sequence[NDArray[Any]] = ()) -> Record:
        """Add a record; if that fails, the file is as it was."""
        data = _encoded(words, arrays, durable=self._synced)
        try:
            _write(self._stream, data, self._end)
        except BaseException as error:
            self._stream.truncate(self._end)
            if isinstance(error, OSError):
                raise OSError(error.errno, error.strerror, str(self.path)) from error
            raise
        record = Record(_as_read(words), self._end, len(data))
        self._end += len(data)
        self.records.append(record)
        if time.monotonic() - self._synced_at > SYNC_SECONDS:
            self.sync()
        return record

    def arrays(self, record: Record) -> list[NDArray[Any]]:
        """Arrays of a record, read now."""
        _, arrays = _decoded(self._bytes(record))
        return arrays

    def rewrite(self, content: Sequence[Record | Draft]) -> None:
        """Write the file anew, with some of its records and new ones; until that is complete the old one stays."""

        def write(stream: IO[bytes]) -> None:
            stream.write(FILE_MAGIC + _encoded(self.header, (), durable=0))
            for item in content:
                if isinstance(item, Draft):
                    data: bytes | bytearray = _encoded(item.words, item.arrays, durable=0)
                else:
                    data = self._bytes(item)
                records.append(Record(_as_read(item.words), stream.tell(), len(data)))
                stream.write(data)

        records: list[Record] = []
        write_atomically(self.path, write)
        self._stream.close()
        self._stream = self.path.open("r+b", buffering=0)
        self.records = records
        self._end = self._synced = self.path.stat().st_size

    def _bytes(self, record: Record) -> bytearray:
        return _read(self._stream, record.offset, record.size)

    def sync(self) -> None:
        """Wait until all records are on disk."""
        os.fsync(self._stream.fileno())
        self._synced, self._synced_at = self._end, time.monotonic()

    def close(self) -> None:
        """Bring everything to disk."""
        try:
            self.sync()
        finally:
            self._stream.close()


def _scanned(path: Path) -> tuple[Mapping[str, Any], list[Record], int]:
    """Header, records, and where the last complete one ends."""
    size = path.stat().st_size
    with path.open("rb", buffering=0) as stream:
        if stream.read(len(FILE_MAGIC)) != FILE_MAGIC:
            raise RecordFileError(f"{path} does not begin as a file of records of this version does.")
        records = list(_read_records(stream, len(FILE_MAGIC), size))
        end = records[-1].offset + records[-1].size if records else len(FILE_MAGIC)
        if not records or _on_disk_before(stream, end, size):
            raise RecordFileError(f"{path} is damaged at byte {end} of {size}: what was written there has changed.")
    return records[0].words, records[1:], end


def _read_records(stream: FileIO, offset: int, size: int) -> Iterator[Record]:
    """All records from `offset` on, up to the first that is not complete."""
    while (length := _length_at(stream, offset, size)) is not None:
        try:
            words, _ = _decoded(_read(stream, offset, length))
        except ValueError:
            return
        yield Record(words, offset, length)
        offset += length


def _length_at(stream: FileIO, offset: int, size: int) -> int | None:
    """Length of the record that begins here, by its head; None if there is none or the file is too short for it."""
    if size - offset < HEAD.size:
        return None
    head = _read(stream, offset, HEAD.size)
    if zlib.crc32(head[:-4]) != HEAD.unpack(head)[-1]:
        return None
    mark, _, length, *_ = HEAD.unpack(head)
    return length if mark == MARK and HEAD.size <= length <= size - offset else None


def _on_disk_before(stream: FileIO, end: int, size: int) -> bool:
    """Whether a record after `end` knows that the file was on disk beyond it: then it was not torn but changed."""
    for offset in _marks(stream, end, size):
        for record in _read_records(stream, offset, size):
            if HEAD.unpack(_read(stream, record.offset, HEAD.size))[3] > end:
                return True
    return False


def _marks(stream: FileIO, offset: int, size: int, chunk: int = 2**20) -> Iterator[int]:
    """Places after `offset` where a record might begin."""
    while offset < size:
        data = _read(stream, offset, min(chunk + len(MARK) - 1, size - offset))
        found = data.find(MARK)
        while found >= 0:
            yield offset + found
            found = data.find(MARK, found + 1)
        offset += chunk


def _encoded(words: Mapping[str, Any], arrays: Iterable[NDArray[Any]], *, durable: int) -> bytes:
    """A record as bytes. Arrays keep the order of their entries in memory, on which products may depend."""
    plain = [_plain_order(array) for array in arrays]
    about = [[array.dtype.str, list(array.shape), _order(array)] for array in plain]
    text = json.dumps([words, about]).encode()
    body = b"".join([text, *(array.tobytes(order="A") for array in plain)])
    head = HEAD.pack(MARK, len(text), HEAD.size + len(body), durable, zlib.crc32(body), 0)[:-4]
    return head + struct.pack("<I", zlib.crc32(head)) + body


def _decoded(data: bytearray) -> tuple[dict[str, Any], list[NDArray[Any]]]:
    """Words and arrays of a record; ValueError if anything about it is wrong."""
    _, n_words, _, _, checksum, _ = HEAD.unpack_from(data)
    body = memoryview(data)[HEAD.size :]
    if zlib.crc32(body) != checksum or n_words > min(len(body), MOST_WORDS):
        raise ValueError("checksum")
    words, about = json.loads(bytes(body[:n_words]))
    arrays, at = [], n_words
    for dtype, shape, order in about:
        n_bytes = int(np.prod(shape, dtype=object)) * np.dtype(dtype).itemsize
        if dtype not in DTYPES or min(shape, default=1) < 0 or n_bytes > len(body) - at:
            raise ValueError(f"array of shape {shape} of {dtype}")
        array = np.empty(shape, dtype, order=order)
        array.reshape(-1, order="A")[:] = np.frombuffer(body, dtype, n_bytes // array.itemsize, at)
        arrays.append(array)
        at += n_bytes
    if not isinstance(words, dict) or at != len(body):
        raise ValueError("words")
    return words, arrays


def _as_read(words: Mapping[str, Any]) -> Mapping[str, Any]:
    """Words as they will be read back: tuples are lists then."""
    read: Mapping[str, Any] = json.loads(json.dumps(words))
    return read


def _plain_order(array: NDArray[Any]) -> NDArray[Any]:
    """The array with its entries side by side in memory, as they are if they are."""
    return array if array.flags.c_contiguous or array.flags.f_contiguous else np.ascontiguousarray(array)


def _order(array: NDArray[Any]) -> str:
    return "C" if array.flags.c_contiguous else "F"


def _read(stream: FileIO, offset: int, size: int) -> bytearray:
    data = bytearray(size)
    stream.seek(offset)
    at = 0
    while at < size:
        n_read = stream.readinto(memoryview(data)[at:])
        if not n_read:
            raise RecordFileError(f"{stream.name!r} ends at byte {offset + at}, expected {size - at} more.")
        at += n_read
    return data


def _write(stream: FileIO, data: bytes, offset: int) -> None:
    stream.seek(offset)
    view = memoryview(data)
    while view:
        view = view[stream.write(view) :]
