"""Numbers of a file that cannot be read where they lie: kept in memory, or in a temporary file without a name."""

from __future__ import annotations

import io
import tempfile
import threading
import warnings
from typing import IO, Any

from elldict._old.atomic import NAMELESS_ERRORS
from elldict.exceptions import ConvertedFileWarning, SamplesFileError

SPOOL_BYTES = 2**26
"""Bytes of numbers that are kept in memory; more go to a temporary file."""


class Spool:
    """Bytes that are written once, in order, and read by several threads.

    The temporary file has no name: it is gone when this object is, however the process ends.
    """

    def __init__(self, path: str) -> None:
        self._path = path  # of the file that is converted, for messages
        self._stream: IO[bytes] = io.BytesIO()
        self._in_memory = True
        self._lock = threading.Lock()
        self.size = 0

    def write(self, content: Any) -> None:
        """Append bytes; when there are too many for memory, all of them move to the temporary file."""
        n_bytes = memoryview(content).nbytes
        try:
            if self._in_memory and self.size + n_bytes > SPOOL_BYTES:
                self._move()
            self._stream.write(content)
        except OSError as error:
            if error.errno in NAMELESS_ERRORS:
                raise OSError(error.errno, self._describe(str(error.strerror)), tempfile.gettempdir()) from error
            raise
        self.size += n_bytes

    def read_into(self, start: int, memory: memoryview) -> int:
        """Fill memory from a byte on; returns how much of it."""
        with self._lock:
            self._stream.seek(start)
            return int(self._stream.readinto(memory))  # type: ignore[attr-defined]

    def _move(self) -> None:
        warnings.warn(
            f"{self._path} holds numbers that cannot be read where they lie. They are converted once, to a temporary "
            f"file in {tempfile.gettempdir()}. Write them as .npy, zarr or parquet to save that.",
            ConvertedFileWarning,
            stacklevel=2,
        )
        content = self._stream
        self._stream = tempfile.TemporaryFile(prefix="elldict")  # noqa: SIM115  closed with this object
        self._in_memory = False
        self._stream.write(content.getbuffer())  # type: ignore[attr-defined]

    def _describe(self, reason: str) -> str:
        return (
            f"{reason}: the numbers of {self._path} are converted in this folder, and do not fit. Set TMPDIR to "
            "another one, or write them as .npy"
        )

    def __reduce__(self) -> tuple[Any, ...]:
        if not self._in_memory:
            raise SamplesFileError(
                f"{self._path} was converted to a temporary file of this process, which other processes cannot read. "
                "Write it as .npy, zarr or parquet for them."
            )
        return _restore, (self._path, self._stream.getvalue())  # type: ignore[attr-defined]


def _restore(path: str, content: bytes) -> Spool:
    spool = Spool(path)
    spool.write(content)
    return spool


class SpoolStream:
    """A place in a spool from which bytes are read, for one thread."""

    def __init__(self, spool: Spool) -> None:
        self._spool, self._position = spool, 0

    def seek(self, position: int) -> None:
        """Go to a byte."""
        self._position = position

    def readinto(self, memory: memoryview) -> int:
        """Fill memory from here on."""
        got = self._spool.read_into(self._position, memory)
        self._position += got
        return got
