"""Record files: arrays with a few words about them, appended one record after the other to an SQLite database.

A record is one transaction: a kill leaves it complete or absent. A checksum of all records is written with each, so
that one that was changed or dropped is noticed when the file is opened. Opening a file runs nothing that stands in it,
and takes no more memory than it has bytes. This module does not know what the records mean.
"""

from __future__ import annotations

import errno
import json
import os
import sqlite3
import time
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from io import BytesIO
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from elldict._old.atomic import refuse_special, write_atomically
from elldict.exceptions import FileContentError

APPLICATION_ID = b"elld"
"""Tells these files from other SQLite databases: bytes 68 to 71 of a database are there for such a mark."""

TABLE = "CREATE TABLE part (number INTEGER PRIMARY KEY, words TEXT, arrays BLOB NOT NULL)"
"""A record is a row with words and the rows without words that follow it; the first record is the header."""

PART_BYTES = 2**24
"""Arrays in one row: SQLite allows no row of 1 GB, which the results of a pass over 11,000 features exceed."""

MAX_WORDS_BYTES = 2**20
"""Words of one record; the longest in use, the state of a Mersenne twister, take 2**13."""

SYNC_SECONDS = 1.0
"""A record is with the operating system at once, and survives a kill; a power cut may cost the last second."""

NPY_HEADERS = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0, (3, 0): npy.read_array_header_2_0}
"""What reads the headers of .npy files, by version; that of 3.0 differs from 2.0 in names of fields alone."""

READING = ("trusted_schema = OFF", "cell_size_check = ON", "query_only = ON", "locking_mode = EXCLUSIVE")
WRITING = ("query_only = OFF", "journal_mode = WAL", "synchronous = NORMAL")
"""A write-ahead log takes 0.03 ms a small record; a rollback journal 0.5 ms, since it waits for the disk at each."""

SYSTEM_ERRORS = {
    sqlite3.SQLITE_FULL: (errno.ENOSPC, "No space left on device"),
    sqlite3.SQLITE_IOERR: (errno.EIO, "Input/output error"),
    sqlite3.SQLITE_READONLY: (errno.EACCES, "Permission denied"),
    sqlite3.SQLITE_CANTOPEN: (errno.EACCES, "Permission denied"),
    sqlite3.SQLITE_BUSY: (errno.EBUSY, "Another process has it open"),
}
"""Errors of SQLite that are not the file's fault; all others say that it is damaged."""


class RecordFileError(FileContentError):
    """The file is not a record file, or is damaged."""


@dataclass(frozen=True)
class Record:
    """Words of a record, its rows in the file, and the checksum of the file up to its end."""

    words: Mapping[str, Any]
    first_row: int
    end_row: int
    n_bytes: int
    checksum: int


Draft = tuple[Mapping[str, Any], Sequence[NDArray[Any]]]
"""A record to be written: words and arrays."""

START = Record({}, 0, 0, 0, 0)


class RecordFile:
    """An open file: a header and records."""

    def __init__(self, path: Path, connection: sqlite3.Connection) -> None:
        self.path, self._connection = path, connection
        self._header, *self.records = _read_records(connection)
        self.header = self._header.words
        self._synced_at = time.monotonic()

    @classmethod
    def create(cls, path: str | os.PathLike[str], header: Mapping[str, Any]) -> RecordFile:
        """Begin a new file, which is not there before its header is complete."""
        path = Path(path).resolve()
        with closing(sqlite3.connect(":memory:", isolation_level=None)) as database:
            database.execute(f"PRAGMA application_id = {int.from_bytes(APPLICATION_ID, 'big')}")
            database.execute(TABLE)
            _write_checksum(database, _insert(database, (header, ()), START))
            content = bytearray(database.serialize())
        content[18:20] = b"\2\2"  # the mark of a write-ahead log, which a database in memory cannot have
        for ending in ("-wal", "-journal"):  # of a file deleted after a kill: SQLite would apply it to this one
            Path(f"{path}{ending}").unlink(missing_ok=True)
        write_atomically(path, lambda stream: stream.write(content))
        return cls.open(path)

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> RecordFile:
        """Open a file, check all of it, and read what its records say."""
        path = Path(path).resolve()
        refuse_special(path)
        with path.open("r+b") as stream:  # raises if it must not be written
            start = stream.read(100)
        if start[:16] != b"SQLite format 3\0" or start[68:72] != APPLICATION_ID:
            raise RecordFileError("it does not begin as a record file does")
        with _translate_errors(path):
            connection = sqlite3.connect(f"{path.as_uri()}?mode=rw", uri=True, isolation_level=None, timeout=0)
            try:
                _check_database(connection)
                file = cls(path, connection)
                _set_pragmas(connection, WRITING)
                with connection:  # a log that cannot be written is an error now, not at the first record
                    connection.execute("BEGIN IMMEDIATE")
            except BaseException:
                connection.close()
                raise
        return file

    def append(self, words: Mapping[str, Any], arrays: Sequence[NDArray[Any]] = ()) -> Record:
        """Add a record; if that fails, the file is as it was."""
        self.replace(len(self.records), [(words, arrays)])
        return self.records[-1]

    def replace(self, first: int, drafts: Sequence[Draft]) -> None:
        """Put other records in the place of those from `first` on; if that fails, the file is as it was."""
        records = [self._header, *self.records[:first]]
        with _translate_errors(self.path):
            with self._connection as connection:  # commits at its end, rolls back on any exception
                connection.execute("BEGIN IMMEDIATE")
                connection.execute("DELETE FROM part WHERE number >= ?", (records[-1].end_row,))
                for draft in drafts:
                    records.append(_insert(connection, draft, records[-1]))
                _write_checksum(connection, records[-1])
            self.records = records[1:]
            if time.monotonic() - self._synced_at > SYNC_SECONDS:
                self._sync()

    def arrays(self, record: Record) -> list[NDArray[Any]]:
        """Arrays of a record, read now."""
        stream, arrays = BytesIO(), []
        query = "SELECT arrays FROM part WHERE number >= ? AND number < ? ORDER BY number"
        with _translate_errors(self.path):
            for (data,) in self._connection.execute(query, (record.first_row, record.end_row)):
                stream.write(data)
        stream.seek(0)
        try:
            while stream.tell() < record.n_bytes:
                arrays.append(read_array(stream, record.n_bytes - stream.tell()))
        except MemoryError:
            raise
        except Exception as error:  # NumPy raises what it likes on a header that makes no sense
            raise RecordFileError(f"a record holds an array that cannot be read: {error}") from error
        return arrays

    def close(self) -> None:
        """Bring everything to disk, in one file."""
        try:
            with _translate_errors(self.path):
                self._sync()
        finally:
            self._connection.close()

    def _sync(self) -> None:
        """Move all records from the log to the file, and wait until they are on disk."""
        self._connection.execute("PRAGMA wal_checkpoint(PASSIVE)")
        self._synced_at = time.monotonic()


def read_array(stream: IO[bytes], max_bytes: int) -> NDArray[Any]:
    """Read numbers in the format of .npy files; ValueError if they claim more than `max_bytes`.

    Entries keep their order in memory, on which the rounding of products may depend.
    """
    start = stream.tell()
    version = npy.read_magic(stream)
    if version not in NPY_HEADERS:
        raise ValueError(f"an array has version {version[0]}.{version[1]} of the .npy format, which is not known.")
    shape, fortran, dtype = NPY_HEADERS[version](stream)
    max_bytes -= stream.tell() - start
    if dtype.kind not in "fiub":
        raise ValueError(f"an array has dtype {dtype}, expected plain numbers.")
    if min(shape, default=1) < 0 or int(np.prod(shape, dtype=object)) * dtype.itemsize > max_bytes:
        raise ValueError(f"an array claims shape {shape} of {dtype} and has {max_bytes} bytes.")
    array = np.empty(shape, dtype, order="F" if fortran else "C")
    if stream.readinto(array.reshape(-1, order="A").view(np.uint8)) != array.nbytes:  # type: ignore[attr-defined]
        raise ValueError(f"an array ends before its {array.nbytes} bytes do.")
    return array


def _check_database(connection: sqlite3.Connection) -> None:
    """Raise if the database could be anything but what this module writes."""
    connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, PART_BYTES + MAX_WORDS_BYTES + 2**10)
    _set_pragmas(connection, READING)
    if connection.execute("SELECT sql FROM sqlite_master LIMIT 2").fetchall() != [(TABLE,)]:
        raise RecordFileError("it has other tables, views or triggers than a record file")
    ((found,),) = connection.execute("PRAGMA quick_check(1)")  # finds unused pages that are in use, too
    if found != "ok":
        raise RecordFileError(f"it is damaged: {found}")


def _set_pragmas(connection: sqlite3.Connection, pragmas: Sequence[str]) -> None:
    for pragma in pragmas:
        connection.execute(f"PRAGMA {pragma}")


def _read_records(connection: sqlite3.Connection) -> list[Record]:
    """All records; RecordFileError if they are not those that were written."""
    records = [START]
    for number, text, data in connection.execute("SELECT number, words, arrays FROM part ORDER BY number"):
        if not isinstance(text, str | None) or not isinstance(data, bytes):
            raise RecordFileError(f"row {number} holds other types than words and arrays")
        last, checksum = records[-1], _add_to_checksum(records[-1].checksum, number, text, data)
        if text is not None:
            records.append(Record(_parse(text), number, number + 1, len(data), checksum))
        else:
            records[-1] = replace(last, end_row=number + 1, n_bytes=last.n_bytes + len(data), checksum=checksum)
    ((expected,),) = connection.execute("PRAGMA user_version")
    if len(records) == 1 or records[-1].checksum != expected + 2**31:
        raise RecordFileError("its checksum is wrong: something in it was changed or lost")
    return records[1:]


def _insert(connection: sqlite3.Connection, draft: Draft, before: Record) -> Record:
    """Write a record behind another one."""
    words, stream = json.dumps(draft[0]), BytesIO()
    for array in draft[1]:
        npy.write_array(stream, array, allow_pickle=False)
    data, number, checksum = stream.getbuffer(), before.end_row, before.checksum
    for start in range(0, max(len(data), 1), PART_BYTES):
        row = (number, words if start == 0 else None, data[start : start + PART_BYTES])
        connection.execute("INSERT INTO part VALUES (?, ?, ?)", row)
        number, checksum = number + 1, _add_to_checksum(checksum, *row)
    return Record(_parse(words), before.end_row, number, len(data), checksum)


def _add_to_checksum(checksum: int, number: int, text: str | None, data: bytes | memoryview) -> int:
    """Checksum of the file with one more row: any flipped bit changes it."""
    words = b"" if text is None else text.encode()
    return zlib.crc32(data, zlib.crc32(b"%d %d %d %b" % (number, len(words), len(data), words), checksum))


def _write_checksum(connection: sqlite3.Connection, last: Record) -> None:
    """Keep the checksum where a database has a number for its user: from -2**31 to 2**31 - 1."""
    connection.execute(f"PRAGMA user_version = {last.checksum - 2**31}")


def _parse(text: str) -> dict[str, Any]:
    try:
        words = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise RecordFileError(f"words of a record are no JSON: {error}") from error
    if not isinstance(words, dict):
        raise RecordFileError(f"words of a record are a {type(words).__name__}, expected an object")
    return words


@contextmanager
def _translate_errors(path: Path) -> Iterator[None]:
    """Raise errors of SQLite as errors of the system with the name of the file, or as damage."""
    try:
        yield
    except sqlite3.Error as error:
        code = getattr(error, "sqlite_errorcode", 0) & 0xFF  # without what tells variants of an error apart
        if code not in SYSTEM_ERRORS:
            raise RecordFileError(str(error)) from error
        raise OSError(*SYSTEM_ERRORS[code], str(path)) from error
    except UnicodeDecodeError as error:  # SQLite quotes the file, damaged as it is, in what it says of it
        raise RecordFileError(f"it holds words that are no text: {error}") from error
