"""Arrays in files of several formats, as objects of which slices are read."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any, BinaryIO
from weakref import finalize

import numpy as np
from numpy.typing import NDArray

from elldict.exceptions import SamplesFileError
from elldict.samples.files import Column, FileSamples, explain

SAFETENSORS_TYPES = {
    **{"F64": "<f8", "F32": "<f4", "F16": "<f2", "BF16": "<u2", "BOOL": "|b1"},
    **{f"{kind}{8 * size}": f"<{kind.lower()}{size}" for kind in "IU" for size in (1, 2, 4, 8)},
}
"""Types of real numbers in safetensors, as those of NumPy; bfloat16 is the upper half of float32."""

MOST_NAMED = 10
"""Maximum number of names listed in an error."""


class RawRows:
    """Numbers stored one after another, read by position: pages of a memory map would count as memory."""

    def __init__(
        self, stream: BinaryIO, offset: int, shape: tuple[int, ...], dtype: np.dtype[Any], order: str = "C"
    ) -> None:
        self._descriptor, self._offset, self._order = os.dup(stream.fileno()), offset, order
        self.shape, self.dtype = shape, dtype
        finalize(self, os.close, self._descriptor)

    def __reduce__(self) -> Any:
        """Refuse to be sent to another process, where the descriptor belongs to another file."""
        raise TypeError("Open files are not sent to other processes. Send the name of the file instead.")

    def __getitem__(self, rows: slice) -> NDArray[Any]:
        """Read consecutive rows."""
        start, stop, _ = rows.indices(self.shape[0])
        n_rows, n = stop - start, self.shape[1]
        if self._order == "C":
            return self._read(start * n, n_rows * n).reshape(n_rows, n)
        return np.stack([self._read(k * self.shape[0] + start, n_rows) for k in range(n)], axis=1)

    def _read(self, first: int, count: int) -> NDArray[Any]:
        """Read numbers from a position, which does not depend on what other threads read."""
        size = self.dtype.itemsize
        found = os.pread(self._descriptor, count * size, self._offset + first * size)
        return np.frombuffer(found, self.dtype, count)  # raises an error if there are fewer


class BrainFloatRows:
    """Numbers of type bfloat16, each stored as the upper half of a number in single precision."""

    dtype = np.dtype(np.float32)

    def __init__(self, halves: RawRows) -> None:
        self._halves, self.shape = halves, halves.shape

    def __getitem__(self, rows: slice) -> NDArray[Any]:
        """Read consecutive rows."""
        return (self._halves[rows].astype(np.uint32) << 16).view(np.float32)


class TransposedRows:
    """Columns of an HDF5 dataset written by MATLAB, which are rows there."""

    def __init__(self, dataset: Any) -> None:
        self._dataset = dataset
        self.shape, self.dtype = dataset.shape[::-1], dataset.dtype
        self.chunks = dataset.chunks and dataset.chunks[::-1]

    def __getitem__(self, rows: slice) -> NDArray[Any]:
        """Read consecutive rows."""
        return np.asarray(self._dataset[:, rows].T)


def open_npy(path: Path, name: Column) -> FileSamples:
    """Open a .npy file."""
    refuse_name(path, name)
    with explain(f"{path} cannot be read as .npy"):
        array = np.load(path, mmap_mode="r", allow_pickle=False)  # for its header
    size, expected = path.stat().st_size, array.offset + array.nbytes
    if size != expected:
        raise SamplesFileError(
            f"{path} has {size} bytes, but its header says {expected}: it is damaged, or still being written. Copy or "
            "write it again."
        )
    order = "F" if array.flags.f_contiguous and not array.flags.c_contiguous else "C"
    with path.open("rb") as stream:
        rows = RawRows(stream, array.offset, array.shape, array.dtype, order)
    return FileSamples(rows, str(path), [path])


def open_npz(path: Path, name: Column) -> FileSamples:
    """Read an array of a .npz archive into memory."""
    with explain(f"{path} cannot be read as .npz"), np.load(path, allow_pickle=False) as archive:
        name = choose_array(path, {key: read_shape(archive, key) for key in archive.files}, name)
        return FileSamples(archive[name], f"{path}:{name}", [path], is_copy=True)


def read_shape(archive: Any, name: str) -> tuple[int, ...]:
    """Read the shape of an array from its header."""
    with archive.zip.open(f"{name}.npy") as stream:
        is_first = np.lib.format.read_magic(stream) == (1, 0)
        read = np.lib.format.read_array_header_1_0 if is_first else np.lib.format.read_array_header_2_0
        return tuple(read(stream)[0])


def open_mat(path: Path, name: Column) -> FileSamples:
    """Read an array of a MAT file, of a version before 7.3, into memory."""
    import scipy.io  # noqa: PLC0415  it is slow to import

    with explain(f"{path} cannot be read as a MAT file"):
        shapes = {key: shape for key, shape, kind in scipy.io.whosmat(path) if kind not in ("cell", "struct", "char")}
        if name is None:  # every number is a matrix there
            shapes = {key: shape for key, shape in shapes.items() if min(shape) > 1} or shapes
        name = choose_array(path, shapes, name)
        found = scipy.io.loadmat(path, variable_names=[name])[name]
    if not isinstance(found, np.ndarray):
        raise SamplesFileError(f"{path}:{name} is sparse, expected a full matrix. Save full({name}) instead.")
    return FileSamples(found, f"{path}:{name}", [path], is_copy=True)


def open_text(path: Path, name: Column) -> FileSamples:
    """Read numbers separated by white space into memory."""
    refuse_name(path, name)
    with explain(f"{path} cannot be read as text with numbers separated by white space"):
        return FileSamples(np.loadtxt(path, ndmin=2), str(path), [path], is_copy=True)


def open_hdf5(path: Path, name: Column, *, is_matlab: bool = False) -> FileSamples:
    """Open a dataset of an HDF5 file; MATLAB, from version 7.3 of its files, writes columns as rows."""
    h5py = import_optional("h5py")
    shapes: dict[str, tuple[int, ...]] = {}

    def list_shape(key: str, item: Any) -> None:
        if isinstance(item, h5py.Dataset):
            shapes[key] = tuple(item.shape or ())

    with explain(f"{path} cannot be read as HDF5"):
        file = h5py.File(path, "r")
        file.visititems(list_shape)
        name = choose_array(path, shapes, name.strip("/") if isinstance(name, str) else name)
        dataset = file[name]
        if dataset.is_virtual or dataset.external:
            raise SamplesFileError(f"{path}:{name} is stored in other files. Copy its content into one file.")
        return FileSamples(TransposedRows(dataset) if is_matlab else dataset, f"{path}:{name}", [path])


def open_zarr(path: Path, name: Column) -> FileSamples:
    """Open a zarr array, or one of a group."""
    zarr = import_optional("zarr")
    with explain(f"{path} cannot be read as zarr"):
        found = zarr.open(str(path), mode="r")
        if not isinstance(found, zarr.Group):
            refuse_name(path, name)
            return wrap_zarr(found, str(path), [path])
        arrays = {key: item for key, item in found.members(max_depth=None) if isinstance(item, zarr.Array)}
        name = choose_array(path, {key: array.shape for key, array in arrays.items()}, name)
        return wrap_zarr(arrays[name], f"{path}:{name}", [path])


def wrap_zarr(array: Any, source: str, origins: list[Path]) -> FileSamples:
    """Make samples of a zarr array; a chunk that is missing would be read as the fill value."""
    n_missing = array.nchunks - array.nchunks_initialized
    if n_missing > 0:
        raise SamplesFileError(
            f"{source}: {n_missing} of {array.nchunks} chunks are missing. They were lost, or not stored because they "
            "hold nothing but the fill value: then write the array again with config={'write_empty_chunks': True}."
        )
    return FileSamples(array, source, origins)


def open_safetensors(path: Path, name: Column) -> FileSamples:
    """Open a tensor of a .safetensors file: after eight bytes with its length, the header says where each one is."""
    with explain(f"{path} cannot be read as safetensors"), path.open("rb") as stream:
        n_bytes, size = int.from_bytes(stream.read(8), "little"), path.stat().st_size
        if n_bytes > size:
            raise EOFError(f"its header ends beyond its {size} bytes")
        tensors = json.loads(stream.read(n_bytes))
        tensors.pop("__metadata__", None)
        name = choose_array(path, {key: tuple(tensor["shape"]) for key, tensor in tensors.items()}, name)
        kind, shape = tensors[name]["dtype"], tuple(map(int, tensors[name]["shape"]))
        if kind not in SAFETENSORS_TYPES:
            raise SamplesFileError(f"{path}:{name} holds entries of type {kind}, expected real numbers.")
        dtype = np.dtype(SAFETENSORS_TYPES[kind])
        first, last = (8 + n_bytes + int(offset) for offset in tensors[name]["data_offsets"])
        if last > size or last - first != math.prod(shape) * dtype.itemsize:
            raise EOFError(f"{name!r} should be in bytes {first} to {last} of {size}")
        rows = RawRows(stream, first, shape, dtype)
        return FileSamples(BrainFloatRows(rows) if kind == "BF16" else rows, f"{path}:{name}", [path])


def refuse_name(path: Path, name: Column) -> None:
    """Raise an error if an array is asked for by name, in a file that holds a single one."""
    if name is not None:
        raise SamplesFileError(f"{path} has no names of columns or arrays. Omit {name!r}.")


def choose_array(path: Path, shapes: Mapping[str, tuple[int, ...]], name: Column) -> str:
    """Return the name of the array to read: the one asked for, or the only matrix."""
    listed = ", ".join(f"{key} {shape}" for key, shape in list(shapes.items())[:MOST_NAMED]) or "none"
    if name is None:
        matrices = [key for key, shape in shapes.items() if len(shape) == 2]
        if len(matrices) == 1:
            return matrices[0]
        raise SamplesFileError(
            f"{path} holds {len(matrices)} matrices, expected one; its arrays are: {listed}. Name the one with the "
            f"samples: '{path.name}:NAME'."
        )
    if isinstance(name, str) and name in shapes:
        return name
    raise SamplesFileError(f"{path} has no array {name!r}. Its arrays are: {listed}.")


def import_optional(module: str) -> Any:
    """Import a library for files, or say how to install it."""
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        raise ImportError(
            f"{error.name} is needed to read or write this file: pip install {error.name}", name=error.name
        ) from error
