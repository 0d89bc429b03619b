"""Writers: files of rows that are complete or not there, and never replace the samples that the rows are made from."""

from __future__ import annotations

import importlib
import importlib.util
import io
import json
import os
import pickle
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.lib import format as npy

from elldict._old.atomic import atomic_file, atomic_folder
from elldict._old.backend.base import Array, Backend, is_foreign, to_numpy
from elldict._old.data import tables
from elldict._old.data.dataset import ArrayWriter
from elldict._old.data.file import import_optional
from elldict._old.data.tables import TableWriter, open_table
from elldict._old.data.zarr import is_zarr

MEMORY_MAPS = Path("/proc/self/maps")
"""Where Linux says which file lies at which address."""


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


class ZarrWriter(ArrayWriter):
    """A zarr array whose chunks are tiles: two threads never write to the same one."""

    def write(self, start: int, rows: Array) -> None:
        """Write rows, as a chunk of their own."""
        super().write(start, to_numpy(rows))


@contextmanager
def open_writer(
    path: str | os.PathLike[str], shape: tuple[int, int], dtype: str, tile_rows: int, names: Sequence[str] | None = None
) -> Iterator[NpyWriter | ZarrWriter | TableWriter]:
    """Writer that becomes the file at `path` when the block ends, and nothing at all if it fails.

    Of a table `names` are those of its columns.
    """
    check_output_name(path)
    if Path(path).suffix in tables.SUFFIXES:
        with open_table(path, [f"x{k}" for k in range(shape[1])] if names is None else names, dtype) as table:
            yield table
    elif Path(path).suffix != ".zarr":
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
    """Open what a writer has written, as an array that is left on disk; of a table, its name."""
    if Path(path).suffix in tables.SUFFIXES:
        return Path(path)
    if Path(path).suffix != ".zarr":
        return np.load(path, mmap_mode="r", allow_pickle=False)
    return import_optional("zarr", "files").open_array(str(path), mode="r")


def check_output_name(path: str | os.PathLike[str]) -> None:
    """Raise if the name says that another format is wanted."""
    known = (".npy", ".zarr", *tables.SUFFIXES)
    if Path(path).suffix not in (*known, ""):
        raise ValueError(f"output {os.fspath(path)} should end in {', '.join(known[:-1])} or {known[-1]}.")


def _is_array(folder: Path) -> bool:
    """Whether a folder is a zarr array and nothing more: of a group, other arrays would go with it."""
    if (folder / ".zarray").is_file():
        return True
    try:
        return bool(json.loads((folder / "zarr.json").read_bytes())["node_type"] == "array")
    except (OSError, ValueError, KeyError, TypeError):
        return False


def refuse_input(path: str | os.PathLike[str], samples: Any) -> None:
    """Raise if a file written to `path` would replace a file that the samples are read from, or a part of it.

    Whatever name that file has: it may be a link, it may be mapped into an array of which X is a view, and it may be
    opened by a task in the graph of a dask array.
    """
    target = Path(path).resolve()
    if not target.exists():
        return
    replaced = set(_identify_files(target))
    for origin in _find_origins(samples):
        found = Path(origin).resolve()
        if (
            found.is_relative_to(target)
            or (found.is_file() and _identify(found.stat()) in replaced)
            or (_is_array(found) and target.is_relative_to(found))
        ):
            raise ValueError(f"out={os.fspath(path)} is also the input, or holds it. Choose another name.")


def _identify(status: os.stat_result) -> tuple[int, int]:
    return status.st_dev, status.st_ino


def _identify_files(target: Path) -> Iterator[tuple[int, int]]:
    """Device and inode of a file, or of every file of a folder; links in a folder are not followed, nor replaced."""
    if not target.is_dir():
        yield _identify(target.stat())
        return
    for parent, _, names in os.walk(target):
        for name in names:
            yield _identify((Path(parent) / name).lstat())


def _find_origins(samples: Any) -> set[str]:
    """Names of the files and folders that samples are read from, as far as they can be known."""
    parts = getattr(getattr(samples, "source", None), "readers", ())
    origins = {str(getattr(part, "path", "") or "") for part in (samples, *parts)} - {""}
    maps = _list_memory_maps()
    base: Any = pickle.Pickler
    if importlib.util.find_spec("cloudpickle") is not None:  # comes with dask, whose graphs hold functions
        base = importlib.import_module("cloudpickle").Pickler

    class Finder(base):
        """Visits whatever the samples refer to, as pickling does."""

        def persistent_id(self, thing: Any) -> str | None:
            if isinstance(thing, np.ndarray) or is_foreign(thing):
                origins.update(_find_mapped_files(thing, maps))
                return "array"
            if is_zarr(thing):
                root = getattr(thing.store, "root", None) or getattr(thing.store, "path", None)
                if root is not None:
                    origins.add(os.path.join(root, thing.path))  # noqa: PTH118  # root may be the name of a bucket
            elif isinstance(thing, (str, os.PathLike)):
                name = os.fspath(thing)
                if isinstance(name, str) and "\0" not in name and (Path(name).is_absolute() or Path(name).suffix):
                    origins.add(name)
            return "cluster" if type(thing).__module__.startswith("distributed.") else None

    class Nowhere(io.RawIOBase):
        def write(self, data: Any) -> int:
            return len(data)

    try:
        Finder(Nowhere(), protocol=5, buffer_callback=lambda _: None).dump(getattr(samples, "source", samples))
    except Exception:  # what cannot be pickled cannot be searched either, and what was found before counts
        return origins
    return origins


def _list_memory_maps() -> list[tuple[int, int, str]] | None:
    """Begin, end and file of the mapped memory of this process; None where the system does not tell."""
    if not MEMORY_MAPS.exists():
        return None
    found = []
    for line in MEMORY_MAPS.read_text(errors="surrogateescape").splitlines():
        bounds, *_, name = line.split(maxsplit=5)
        if name.startswith("/") and not name.endswith(" (deleted)"):
            begin, end = (int(address, 16) for address in bounds.split("-"))
            found.append((begin, end, name.replace("\\012", "\n")))
    return found


def _find_mapped_files(array: Any, maps: list[tuple[int, int, str]] | None) -> Iterator[str]:
    """Names of the files in whose mapped memory an array of the host lies."""
    if is_foreign(array) and Backend.of(array).on_gpu:
        return
    values = to_numpy(array)
    if maps is not None:
        first, last = np.lib.array_utils.byte_bounds(values)
        yield from (name for begin, end, name in maps if begin < last and first < end)
        return
    base: Any = values  # a map knows the name by which it was opened
    while base is not None:
        if isinstance(base, np.memmap) and base.filename is not None:
            yield str(base.filename)
        base = base.obj if isinstance(base, memoryview) else getattr(base, "base", None)
