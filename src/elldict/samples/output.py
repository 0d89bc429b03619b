"""Files to which codes or samples are written block by block, and which never replace the input."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from elldict.atomic import open_atomic
from elldict.samples.dask import is_dask
from elldict.samples.files import FileSamples
from elldict.samples.formats import import_optional
from elldict.samples.tables import DELIMITERS

SUFFIXES = (".npy", *DELIMITERS, ".parquet", ".feather")
"""Formats that are written, by suffix."""

FORMULAS = ("=", "+", "-", "@", "\t", "\r")
"""First characters of a cell that a spreadsheet computes as a formula."""

MEMORY_MAPS = Path("/proc/self/maps")
"""List of the mapped files of this process, on Linux."""

Append = Callable[[NDArray[Any]], Any]
PathLike = str | os.PathLike[str]


@contextmanager
def open_output(path: PathLike, shape: tuple[int, int], dtype: str, names: Sequence[str]) -> Iterator[Append]:
    """Yield a function that appends rows to a file, which appears at `path` when all are written; or nothing does."""
    suffix = Path(path).suffix.lower()
    with open_atomic(path) as stream:
        if suffix == ".npy":
            header = {"shape": shape, "fortran_order": False, "descr": np.lib.format.dtype_to_descr(np.dtype(dtype))}
            np.lib.format.write_array_header_1_0(stream, header)
            yield lambda rows: stream.write(np.ascontiguousarray(rows, dtype=dtype).data)
        else:
            if suffix in DELIMITERS:
                names = [f"'{name}" if name.startswith(FORMULAS) else name for name in names]
            arrow = import_optional("pyarrow")
            schema = arrow.schema([(name, arrow.from_numpy_dtype(np.dtype(dtype))) for name in names])
            with open_writer(stream, suffix, schema) as writer:
                yield lambda rows: writer.write(arrow.record_batch(list(rows.T.astype(dtype)), schema=schema))


def open_writer(stream: BinaryIO, suffix: str, schema: Any) -> Any:
    """Begin a table with these columns, in the format of a suffix."""
    if suffix == ".parquet":
        return import_optional("pyarrow.parquet").ParquetWriter(stream, schema)
    if suffix == ".feather":
        return import_optional("pyarrow").ipc.new_file(stream, schema)
    text = import_optional("pyarrow.csv")
    return text.CSVWriter(stream, schema, write_options=text.WriteOptions(delimiter=DELIMITERS[suffix]))


def reopen(path: PathLike) -> Any:
    """Return what has been written: a memory map of a .npy file, or the path of a table."""
    path = Path(path)
    return np.load(path, mmap_mode="r") if path.suffix.lower() == ".npy" else path


def check_output(path: PathLike, X: Any) -> None:
    """Raise an error if results cannot be written to `path`, or if X is stored there."""
    if Path(path).suffix.lower() not in SUFFIXES:
        raise ValueError(f"out={os.fspath(path)!r} must end in one of {', '.join(SUFFIXES)}.")
    if is_dask(X):
        raise ValueError("out writes samples of files and arrays. Store the result for dask with its own methods.")
    target = Path(path).resolve()
    if not target.exists():
        return
    origins, rows = (X.origins, X.rows) if isinstance(X, FileSamples) else ((), X)
    if any(is_within(target, origin) for origin in origins) or is_mapped(target, rows):
        raise ValueError(f"out={os.fspath(path)!r} is the file of X, which would be lost. Choose another name.")


def is_within(target: Path, origin: Path) -> bool:
    """Return whether a file is another one, by whatever name, or lies in a folder."""
    if not origin.exists():
        return False
    return target.samefile(origin) or target.is_relative_to(origin.resolve())


def is_mapped(target: Path, X: Any) -> bool:
    """Return whether an array rests on a memory map of a file, by whatever name.

    Arrays of NumPy know it. Linux tells it of those of other libraries in the memory of the CPU, by their address.
    """
    base = X
    while base is not None:
        if isinstance(base, np.memmap) and base.filename is not None:
            return target.samefile(base.filename)
        base = getattr(base, "base", None)
    try:
        address = np.from_dlpack(X.detach() if hasattr(X, "detach") else X, copy=False).ctypes.data
    except (AttributeError, BufferError, RuntimeError, TypeError, ValueError):
        return False
    for line in MEMORY_MAPS.read_text(errors="replace").splitlines() if MEMORY_MAPS.exists() else ():
        bounds, _, _, _, inode, *_ = line.split()
        begin, end = (int(bound, 16) for bound in bounds.split("-"))
        if begin <= address < end:
            return int(inode) == target.stat().st_ino
    return False
