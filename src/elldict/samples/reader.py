"""Readers: rows out of a file, and where they stand in it. What is done with them is nobody's business here."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from elldict.exceptions import SamplesChangedError, SamplesFileError


class Reader(Protocol):
    """Rows of a file or a folder of files, as real numbers.

    A reader can be pickled, opens its file when it needs it, and is read by several threads at once.
    """

    @property
    def path(self) -> str:
        """File or folder; empty if the rows come from elsewhere."""
        ...

    @property
    def n_samples(self) -> int: ...  # noqa: D102
    @property
    def n_features(self) -> int: ...  # noqa: D102

    @property
    def dtype(self) -> str:
        """Precision of the rows, "float32" or "float64": integers, booleans and half precision are widened."""
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

    def place(self, sample: int) -> str:
        """Say where a sample is stored, for error messages."""
        ...

    def fingerprint(self) -> str:
        """Digest of shape, dtype, size, date and some of the content; see `digest`."""
        ...

    def check_unchanged(self) -> None:
        """Raise SamplesChangedError if the file is not the one that was opened."""
        ...


def widened(dtype: np.dtype[Any], where: str) -> str:
    """Precision in which stored numbers are multiplied; refuses what is not a real number."""
    if dtype.kind not in "fiub":
        raise SamplesFileError(f"{where} holds {dtype}, expected real numbers: floats, integers or booleans.")
    return "float32" if dtype == np.float32 else "float64"


def checked_shape(shape: tuple[int, ...], where: str) -> tuple[int, int]:
    """Shape of samples; refuses any other."""
    if len(shape) != 2:
        raise SamplesFileError(f"{where} holds an array of shape {shape}, expected (n_samples, n_features).")
    if 0 in shape:
        raise SamplesFileError(f"{where} holds {shape[0]} samples of {shape[1]} features: it is empty.")
    return int(shape[0]), int(shape[1])


def prepared_out(reader: Reader, start: int, stop: int, out: NDArray[Any] | None) -> NDArray[Any]:
    """Memory for some rows: what was given, or new."""
    if not 0 <= start <= stop <= reader.n_samples:
        raise IndexError(f"rows {start} to {stop} of {reader.n_samples}")
    return np.empty((stop - start, reader.n_features), reader.dtype) if out is None else out


def runs(index: NDArray[np.int64], gap: int, longest: int) -> Iterator[NDArray[np.int64]]:
    """Sorted indices, in runs that are worth reading in one piece: gaps of at most `gap`, spans of about `longest`."""
    apart = (np.diff(index) > gap) | (np.diff(index // max(1, longest)) > 0)
    yield from np.split(index, np.flatnonzero(apart) + 1)


def in_words(error: Exception) -> str:
    """What another library says of a file, in one line."""
    return " ".join(f"{type(error).__name__}: {error}".split())


@dataclass(frozen=True)
class Stamp:
    """What the system knows of a file: another inode, size or date of change, and it is another file."""

    size: int
    modified: int
    inode: int

    @classmethod
    def of(cls, status: os.stat_result) -> Stamp:
        """Stamp from what `os.stat` returns."""
        return cls(status.st_size, status.st_mtime_ns, status.st_ino)


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
    else:
        change = "it has been replaced" if now.inode != opened.inode else "it has been written to"
    raise SamplesChangedError(
        f"{path} has changed since it was opened: {change}. Whatever was computed from it is not to be trusted; start "
        "again when nobody writes to it any more."
    )
