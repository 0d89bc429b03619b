"""Sinks: where rows go that are made tile by tile, in memory or in a file that is complete or not there."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.lib import format as npy

from elldict.atomic import atomic_file, atomic_folder
from elldict.backend.base import Array, to_numpy
from elldict.data.file import import_optional


@dataclass(frozen=True)
class NpyWriter:
    """A .npy file whose header has been written."""

    stream: IO[bytes]
    offset: int
    dtype: str
    lock: threading.Lock = field(default_factory=threading.Lock)

    def write(self, start: int, rows: Array) -> None:
        """Write rows at their place."""
        values = np.ascontiguousarray(to_numpy(rows), self.dtype)
        with self.lock:
            self.stream.seek(self.offset + start * values.shape[1] * values.itemsize)
            self.stream.write(values.data)


@dataclass(frozen=True)
class ZarrWriter:
    """A zarr array whose chunks are tiles: two threads never write to the same one."""

    array: Any

    def write(self, start: int, rows: Array) -> None:
        """Write rows, as a chunk of their own."""
        self.array[start : start + int(rows.shape[0]), :] = to_numpy(rows)


@contextmanager
def open_writer(
    path: str | os.PathLike[str], shape: tuple[int, int], dtype: str, tile_rows: int
) -> Iterator[NpyWriter | ZarrWriter]:
    """Sink that becomes the file at `path` (.npy, .zarr) when the block ends, and nothing at all if it fails."""
    check_output_name(path)
    if Path(path).suffix != ".zarr":
        with atomic_file(Path(path)) as stream:
            header = {"shape": shape, "fortran_order": False, "descr": npy.dtype_to_descr(np.dtype(dtype))}
            npy.write_array_header_1_0(stream, header)
            yield NpyWriter(stream, stream.tell(), dtype)
    else:
        zarr = import_optional("zarr", "files")
        with atomic_folder(Path(path), _is_array) as folder:
            chunks = (min(tile_rows, shape[0]), shape[1])
            # a chunk of zeros is a chunk too: whoever reads the array shall see that none is missing
            config = {"write_empty_chunks": True}
            yield ZarrWriter(zarr.create_array(folder, shape=shape, chunks=chunks, dtype=dtype, config=config))


def reopen(path: str | os.PathLike[str]) -> Any:
    """What a sink has written, as an array that is left on disk."""
    if Path(path).suffix != ".zarr":
        return np.load(path, mmap_mode="r", allow_pickle=False)
    return import_optional("zarr", "files").open_array(str(path), mode="r")


def check_output_name(path: str | os.PathLike[str]) -> None:
    """Raise if the name says that another format is wanted."""
    if Path(path).suffix not in (".npy", ".zarr", ""):
        raise ValueError(f"output {os.fspath(path)} should end in .npy or .zarr: nothing else is written.")


def _is_array(folder: Path) -> bool:
    """Whether a folder is a zarr array and nothing more: of a group, other arrays would go with it."""
    if (folder / ".zarray").is_file():
        return True
    try:
        return bool(json.loads((folder / "zarr.json").read_bytes())["node_type"] == "array")
    except (OSError, ValueError, KeyError, TypeError):
        return False
