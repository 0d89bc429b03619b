"""Rows of an HDF5 dataset, MAT files of version 7.3 among them.

h5py says where the numbers of a dataset lie. They are read from there without it: contiguous ones as those of a .npy
file, chunks one by one. So no damaged file reaches the decoders of HDF5, and nothing outside the file is opened.
"""

from __future__ import annotations

import os
import zlib
from bisect import bisect_left, bisect_right
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from elldict._old.data.dataset import start_digest
from elldict._old.data.file import (
    DRAWN_BLOCKS,
    Cursor,
    Cursors,
    Stamp,
    check_content,
    check_shape,
    check_stamp,
    choose_array,
    describe_error,
    find_dtype,
    import_optional,
    prepare_out,
    sum_blocks,
)
from elldict._old.data.npy import RawReader
from elldict.exceptions import SamplesFileError

SIGNATURE = b"\x89HDF\r\n\x1a\n"
MATLAB = b"MATLAB 7.3 MAT-file"
"""First bytes of a MAT file of version 7.3, whose HDF5 begins at byte 512; MATLAB's columns are rows there."""

GZIP, SHUFFLE, FLETCHER = 1, 2, 3
"""Numbers of the filters that are undone here."""

MOST_BAND_BYTES = 2**29
"""Bytes of chunks that lie side by side: they are decoded together."""

MOST_ARRAYS = 1000
"""Datasets that are looked at when none is named."""


@dataclass(frozen=True)
class Chunk:
    """Where a chunk lies in the file."""

    start: int
    n_bytes: int
    skipped: int  # bits of the filters that were not applied to it


@dataclass(frozen=True)
class Hdf5Reader:
    """Rows of a dataset in chunks."""

    path: str
    array: str
    n_samples: int
    n_features: int
    stored: str
    transposed: bool  # samples are columns of the dataset, as MATLAB writes them
    chunk_shape: tuple[int, int]  # samples and features of a chunk
    filters: tuple[int, ...]
    chunks: dict[tuple[int, int], Chunk]  # by number among the samples, and among the features
    stamp: Stamp
    blocks: int
    cursors: Cursors = field(default_factory=Cursors, compare=False)

    feature_names: None = None

    @property
    def dtype(self) -> str:
        """Precision of the rows."""
        return find_dtype(np.dtype(self.stored), self.path)

    def read(self, start: int, stop: int, out: NDArray[Any] | None = None) -> NDArray[Any]:
        """Rows from start to stop; what is decoded beyond is left for the read that goes on there."""
        out, at, rows = prepare_out(self, start, stop, out), start, self.chunk_shape[0]
        while at < stop:
            cursor = self.cursors.find(at - at % rows, at)
            if cursor is None or cursor.position + len(cursor.rows) <= at:
                cursor = Cursor(at - at % rows, self._decode_band(at // rows))
            have = cursor.rows[at - cursor.position : stop - cursor.position]
            out[at - start :][: len(have)] = have
            at += len(have)
            if at < cursor.position + len(cursor.rows):
                self.cursors.leave(Cursor(at, cursor.rows[at - cursor.position :]))
        return out

    def take(self, index: NDArray[np.int64]) -> NDArray[Any]:
        """Rows by sorted index; bands of chunks without any are passed over."""
        out = np.empty((len(index), self.n_features), self.dtype)
        numbers: list[int] = index.tolist()
        rows = self.chunk_shape[0]
        for band in np.unique(index // rows).tolist():
            first, last = bisect_left(numbers, band * rows), bisect_right(numbers, band * rows + rows - 1)
            out[first:last] = self._decode_band(band)[index[first:last] - band * rows]
        return out

    def locate(self, sample: int) -> str:
        """File, dataset, and row of a sample."""
        return f"{self.path}, array {self.array!r}, {'column' if self.transposed else 'row'} {sample}"

    def fingerprint(self) -> str:
        """Digest of shape, dtype, size and date, of where chunks lie, and of the first and the last row."""
        facts = (self.array, self.stored, self.transposed, self.stamp.size, self.stamp.modified)
        digest = start_digest("hdf5", self.n_samples, self.n_features, *facts, sorted(self.chunks))
        digest.update(self.take(np.unique([0, self.n_samples - 1])).data)
        return digest.hexdigest()

    def check_unchanged(self) -> None:
        """Raise if the file has changed."""
        check_stamp(self.path, self.stamp)
        check_content(self.path, self.blocks, DRAWN_BLOCKS)

    def _decode_band(self, band: int) -> NDArray[Any]:
        """Rows of all chunks that lie side by side."""
        rows, columns = self.chunk_shape
        first = band * rows
        out = np.empty((min(rows, self.n_samples - first), self.n_features), self.dtype)
        with Path(self.path).open("rb", buffering=0) as stream:
            check_stamp(self.path, self.stamp, os.fstat(stream.fileno()))
            for number in range(-(-self.n_features // columns)):
                chunk = self.chunks[band, number]
                stream.seek(chunk.start)
                where = f"{self.path}, array {self.array!r}, chunk at byte {chunk.start}"
                values = self._decode(stream.read(chunk.n_bytes), chunk, where)
                here = out[:, number * columns : (number + 1) * columns]
                here[...] = values[: here.shape[0], : here.shape[1]]
        return out

    def _decode(self, content: bytes, chunk: Chunk, where: str) -> NDArray[Any]:
        """Numbers of a chunk, by samples and features; filters are undone from the last to the first."""
        dtype = np.dtype(self.stored)
        size = self.chunk_shape[0] * self.chunk_shape[1] * dtype.itemsize
        for place, kind in reversed(list(enumerate(self.filters))):
            if not chunk.skipped >> place & 1:
                content = UNDO[kind](content, size, dtype.itemsize, where)
        if len(content) != size:
            raise SamplesFileError(f"{where} is damaged: it has {len(content)} bytes, expected {size}.")
        values = np.frombuffer(content, dtype)
        if self.transposed:
            return values.reshape(self.chunk_shape[::-1]).T
        return values.reshape(self.chunk_shape)


def _inflate(content: bytes, size: int, item: int, where: str) -> bytes:  # noqa: ARG001
    decoder = zlib.decompressobj()
    try:
        found = decoder.decompress(content, size + 5)  # a checksum of four bytes may follow, and one byte is too many
    except zlib.error as error:
        raise SamplesFileError(f"{where} is damaged: {error}.") from error
    if not decoder.eof:
        raise SamplesFileError(f"{where} is damaged: it is cut off, or has more than {size} bytes.")
    return found


def _unshuffle(content: bytes, size: int, item: int, where: str) -> bytes:  # noqa: ARG001
    """Bytes of one number side by side again; what does not make a whole number stands at the end as it was."""
    n_items = len(content) // item
    numbers = np.frombuffer(content[: n_items * item], np.uint8).reshape(item, n_items)
    return numbers.T.tobytes() + content[n_items * item :]


def _check_fletcher(content: bytes, size: int, item: int, where: str) -> bytes:  # noqa: ARG001
    """Content without its checksum, which has to be right."""
    content, found = content[:-4], int.from_bytes(content[-4:], "little")
    if compute_fletcher32(content) != found:
        raise SamplesFileError(f"{where} is damaged: its checksum is wrong. Copy or write it again.")
    return content


def compute_fletcher32(content: bytes) -> int:
    """Fletcher's checksum as HDF5 has it: of words of two bytes, the first being the higher one, modulo 65535."""
    words = np.frombuffer(content[: len(content) // 2 * 2], ">u2").astype(np.uint64)
    if len(content) % 2:
        words = np.append(words, np.uint64(content[-1] << 8))
    first, second = 0, 0
    for start in range(0, len(words), 2**20):  # products stay below 2^57
        part = words[start : start + 2**20]
        weights = np.arange(len(part), 0, -1, dtype=np.uint64)
        second = (second + len(part) * first + int(np.sum(part * weights))) % 65535
        first = (first + int(np.sum(part))) % 65535
    # the format folds carries instead of dividing: what is not zero stays between 1 and 65535
    first, second = (value or (65535 if np.any(words) else 0) for value in (first, second))
    return second << 16 | first


UNDO: dict[int, Callable[[bytes, int, int, str], bytes]] = {
    GZIP: _inflate,
    SHUFFLE: _unshuffle,
    FLETCHER: _check_fletcher,
}


def open_hdf5(path: str | os.PathLike[str], name: str | None) -> RawReader | Hdf5Reader:
    """Reader of a dataset: the one of this name, or the only one with rows and columns."""
    h5py = import_optional("h5py", "files")
    path = str(Path(path).absolute())
    stamp, blocks = Stamp.of(Path(path).stat()), sum_blocks(path)
    with Path(path).open("rb") as stream:
        matlab = stream.read(len(MATLAB)) == MATLAB
    try:
        with h5py.File(path, "r") as file:
            name = name.strip("/") if name else choose_array(path, _list_shapes(h5py, file), None)
            dataset = _find_dataset(h5py, file, name, path)
            return _make_reader(h5py, dataset, (path, name, stamp, blocks), matlab=matlab)
    except (FileNotFoundError, MemoryError, SamplesFileError):
        raise
    except Exception as error:  # of a damaged file, HDF5 raises what it likes
        raise SamplesFileError(f"{path} cannot be read as HDF5: {describe_error(error)}") from error


def _list_shapes(h5py: Any, file: Any) -> dict[str, tuple[int, ...]]:
    """Shapes of the datasets of a file, whose links to others are not followed."""
    shapes: dict[str, tuple[int, ...]] = {}

    def note(name: str, thing: Any) -> bool | None:
        if isinstance(thing, h5py.Dataset) and thing.shape is not None and not name.startswith("#"):
            shapes[name] = thing.shape if thing.dtype.kind in "fiub" else ()
        return True if len(shapes) >= MOST_ARRAYS else None

    file.visititems(note)  # hard links alone
    return shapes


def _find_dataset(h5py: Any, file: Any, name: str, path: str) -> Any:
    """Dataset of a name, if no part of the way to it leads elsewhere."""
    thing = file
    for part in name.split("/"):
        link = thing.get(part, getlink=True) if isinstance(thing, h5py.Group) else None
        if link is None:
            choose_array(path, _list_shapes(h5py, file), name)
            raise SamplesFileError(f"{path} has no array {name!r}.")
        if not isinstance(link, h5py.HardLink):
            raise SamplesFileError(
                f"{path}: {part!r} in {name!r} is a link, which may lead elsewhere. Name its target."
            )
        thing = thing[part]
    if not isinstance(thing, h5py.Dataset):
        raise SamplesFileError(f"{path}, {name!r} is a group (a structure, or a sparse matrix), expected one array.")
    return thing


def _make_reader(
    h5py: Any, dataset: Any, facts: tuple[str, str, Stamp, int], *, matlab: bool
) -> RawReader | Hdf5Reader:
    """Reader of a dataset that lies in the file as a whole, or in chunks."""
    path, name, stamp, blocks = facts
    where, dtype = f"{path}, array {name!r}", dataset.dtype
    find_dtype(dtype, where)
    if not dataset.id.get_type().equal(h5py.h5t.py_create(dtype, logical=True)):
        raise SamplesFileError(f"{where} holds numbers that NumPy knows no type for, expected those of a processor.")
    if dataset.is_virtual or dataset.external:
        raise SamplesFileError(f"{where} is stored in other files, which are not opened. Copy it into one.")
    n_samples, n_features = check_shape((dataset.shape or ())[:: -1 if matlab else 1], where)
    if dataset.chunks is None:
        offset, size = dataset.id.get_offset(), n_samples * n_features * dtype.itemsize
        if offset is None or dataset.id.get_storage_size() != size or offset + size > stamp.size:
            raise SamplesFileError(f"{where} is damaged or was never written: its {size} bytes are not in the file.")
        offset += _find_shift(dataset, path, offset, np.asarray(dataset[0, :1]).tobytes())
        stored: tuple[Any, ...] = (dtype.str, matlab and n_features > 1, stamp, blocks, None, name)
        return RawReader(path, offset, n_samples, n_features, *stored)
    plist = dataset.id.get_create_plist()
    filters = tuple(plist.get_filter(number)[0] for number in range(plist.get_nfilters()))
    if not set(filters) <= set(UNDO):
        raise SamplesFileError(
            f"{where} is compressed by filter {max(set(filters) - set(UNDO))}, expected gzip or none. Write it so."
        )
    chunk_rows, chunk_columns = dataset.chunks[:: -1 if matlab else 1]
    n_bands, n_across = -(-n_samples // chunk_rows), -(-n_features // chunk_columns)
    if chunk_rows * chunk_columns * n_across * dtype.itemsize > MOST_BAND_BYTES:
        raise SamplesFileError(
            f"{where} has chunks of {dataset.chunks}, which are too large to decode. Write smaller ones."
        )
    chunks = _list_chunks(dataset, path, (chunk_rows, chunk_columns), matlab=matlab)
    if len(chunks) != n_bands * n_across or any(key not in chunks for key in product(range(n_bands), range(n_across))):
        raise SamplesFileError(
            f"{where} has {len(chunks)} chunks, expected {n_bands * n_across}: some were not written."
        )
    if any(chunk.start + chunk.n_bytes > stamp.size for chunk in chunks.values()):
        raise SamplesFileError(f"{where} is truncated: chunks lie beyond the end of the file.")
    shape = (n_samples, n_features)
    return Hdf5Reader(
        path, name, *shape, dtype.str, matlab, (chunk_rows, chunk_columns), filters, chunks, stamp, blocks
    )


def _list_chunks(dataset: Any, path: str, shape: tuple[int, int], *, matlab: bool) -> dict[tuple[int, int], Chunk]:
    found = {}

    def note(info: Any) -> None:
        first, second = info.chunk_offset[:: -1 if matlab else 1]
        found[first // shape[0], second // shape[1]] = Chunk(info.byte_offset, info.size, info.filter_mask)

    dataset.id.chunk_iter(note)
    first = found.get((0, 0))
    if first is not None:
        _, content = dataset.id.read_direct_chunk((0, 0))
        shift = _find_shift(dataset, path, first.start, content)
        found = {key: replace(chunk, start=chunk.start + shift) for key, chunk in found.items()}
    return found


def _find_shift(dataset: Any, path: str, start: int, content: bytes) -> int:
    """Bytes before the HDF5 of a file, if this version of the library does not count them in `start`."""
    block = dataset.file.userblock_size
    with Path(path).open("rb") as stream:
        for shift in {0, block}:
            stream.seek(start + shift)
            if stream.read(len(content)) == content:
                return int(shift)
    raise SamplesFileError(f"{path} is damaged: numbers are not where HDF5 says, at byte {start}.")
