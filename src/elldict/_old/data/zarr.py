"""Rows of a zarr array.

Rows whose chunks lie side by side are a band; a band is decoded whole, and once in a pass, however blocks cut it. Zarr
gives the fill value for a chunk that is not there; here it is an error.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from elldict._old.atomic import refuse_special
from elldict._old.data.chunk_sizes import Encoding
from elldict._old.data.dataset import start_digest
from elldict._old.data.file import (
    DRAWN_BLOCKS,
    Cursor,
    Cursors,
    Stamp,
    check_shape,
    describe_error,
    find_dtype,
    import_optional,
    prepare_out,
    sum_blocks,
)
from elldict.exceptions import SamplesChangedError, SamplesFileError

ARRAY_METADATA = ("zarr.json", ".zarray")
METADATA = (*ARRAY_METADATA, ".zgroup")
OTHER_METADATA = (".zgroup", ".zattrs", ".zmetadata")

SAFE_CODECS = frozenset(
    (
        *("bytes", "endian", "transpose", "sharding_indexed", "astype", "bitround", "delta", "fixedscaleoffset"),
        *("packbits", "quantize", "shuffle", "blosc", "bz2", "gzip", "lz4", "lzma", "pcodec", "zfpy", "zlib", "zstd"),
        *("adler32", "crc32", "crc32c", "fletcher32", "jenkins_lookup3", "base64"),
    )
)
"""Codecs of numbers that run nothing of what they decode; numcodecs' own are called numcodecs.NAME in format 3."""

MOST_COUNTED_CHUNKS = 10**6
"""Chunks that are looked for in a store that is no folder: zarr compares each with the names of all."""

MOST_BAND_BYTES = 2**29
"""Most bytes of a band of chunks, decoded: all of it has to be in memory at a time."""


@dataclass(frozen=True)
class FolderState:
    """What tells whether files of a folder have changed."""

    digest: str = ""  # of names, sizes and dates, which a copy may keep
    rest: str = ""  # of what a copy does not keep, and of some of the content
    newest: str = ""


@dataclass(frozen=True)
class ZarrReader:
    """Rows of a zarr array, opened for reading."""

    array: Any
    path: str  # folder, empty if the store is not one
    n_samples: int
    n_features: int
    dtype: str
    folder: FolderState  # empty if the store is not one
    encoding: Encoding
    cursors: Cursors = field(default_factory=Cursors, compare=False)
    checked: set[tuple[int, int]] = field(default_factory=set, compare=False)  # chunks whose size is known

    feature_names: None = None

    def read(self, start: int, stop: int, out: NDArray[Any] | None = None) -> NDArray[Any]:
        """Rows from start to stop; what is left of the last band is kept for the next rows."""
        out = prepare_out(self, start, stop, out)
        band_rows = int(self.array.chunks[0])
        cursor = self.cursors.find(start - start % band_rows, start)
        known = out[:0] if cursor is None else cursor.rows[start - cursor.position :]
        n_known = min(len(known), len(out))
        out[:n_known] = known[:n_known]
        rest = known[n_known:]
        if n_known < len(out):
            begin, end = start + n_known, min(self.n_samples, band_rows * -(-stop // band_rows))
            stored = np.arange(begin // self._stored_shape[0], -(-end // self._stored_shape[0]))
            rows = np.asarray(self._read_carefully(lambda: self.array[begin:end, :], stored))
            out[n_known:] = rows[: len(out) - n_known]
            rest = rows[len(out) - n_known :].copy()  # so that the rows before can be forgotten
        if len(rest):
            self.cursors.leave(Cursor(stop, rest))
        return out

    def take(self, index: NDArray[np.int64]) -> NDArray[Any]:
        """Rows by sorted index, each chunk decoded once."""
        chosen = self._read_carefully(lambda: self.array.oindex[index, :], np.unique(index // self._stored_shape[0]))
        return np.ascontiguousarray(chosen, self.dtype)

    def locate(self, sample: int) -> str:
        """Array and chunks of a sample."""
        keys = [self._name_chunk((sample // self._stored_shape[0], column)) for column in range(self._n_columns)]
        return f"{self._name}, {'chunk' if len(keys) == 1 else 'chunks'} {' '.join(keys[:4])}"

    def fingerprint(self) -> str:
        """Digest of shape, dtype, name, size and date of every file of the array, and of its first and last row."""
        digest = start_digest("zarr", self.n_samples, self.n_features, self.array.dtype, self.folder.digest)
        digest.update(self.take(np.unique([0, self.n_samples - 1])).data)
        return digest.hexdigest()

    def check_unchanged(self) -> None:
        """Raise if a file of the array has changed; of a store that is not a folder, nothing is known."""
        if not self.path:
            return
        found = look_at_folder(self.path)
        if (found.digest, found.rest) != (self.folder.digest, self.folder.rest):
            raise SamplesChangedError(
                f"{self.path} has changed since it was opened; its newest file is {found.newest}. Whatever was "
                "computed from it is not to be trusted; start again when nobody writes to it any more."
            )

    @property
    def _name(self) -> str:
        return self.path or str(self.array.store_path)

    @cached_property
    def _stored_shape(self) -> tuple[int, int]:
        """Shape of what is stored under one name: a shard, or a chunk."""
        rows, columns = self.array.shards or self.array.chunks
        return int(rows), int(columns)

    def _read_carefully(self, read: Callable[[], Any], stored: NDArray[np.int64]) -> Any:
        """What `read` gives; if it fails, an error that says which chunk in these rows of chunks is damaged."""
        coordinates = [(int(row), column) for row in stored for column in range(self._n_columns)]
        if (missing := self.find_missing(coordinates)) is not None:
            raise SamplesChangedError(f"{self.path}, chunk {missing} has been removed since it was opened.")
        for chunk in coordinates if self.path else ():
            if chunk not in self.checked:
                name = self._name_chunk(chunk)
                self.encoding.check(Path(self.path) / name, f"{self.path}, chunk {name}")
                self.checked.add(chunk)
        try:
            return read()
        except MemoryError:
            raise
        except Exception as error:  # codecs raise what they like on damaged chunks
            rows, columns = self._stored_shape
            for row, column in coordinates:
                try:
                    self.array[row * rows : (row + 1) * rows, column * columns : (column + 1) * columns]
                except Exception as fault:
                    where = f"{self._name}, chunk {self._name_chunk((row, column))}"
                    raise SamplesFileError(f"{where} is damaged: {describe_error(fault)}") from fault
            raise SamplesFileError(f"{self._name} cannot be read: {describe_error(error)}") from error

    def find_missing(self, coordinates: Iterable[tuple[int, int]]) -> str | None:
        """Name of the first chunk that is not in the folder, if there is a folder."""
        keys = map(self._name_chunk, coordinates) if self.path else ()
        return next((key for key in keys if not (Path(self.path) / key).is_file()), None)

    @cached_property
    def _n_columns(self) -> int:
        """Chunks, or shards, beside each other."""
        return -(-self.n_features // self._stored_shape[1])

    def _name_chunk(self, coordinates: tuple[int, int]) -> str:
        return str(self.array.metadata.encode_chunk_key(coordinates))


def open_zarr(source: Any, column: str | None = None) -> ZarrReader:
    """Reader of an open array, or of a folder with an array or a group, of which `column` names the array."""
    try:
        array = _open_array(source, column)
    except RecursionError as error:  # metadata that are nested more deeply than any, in whichever function meets them
        raise SamplesFileError(f"{source} cannot be opened as zarr: {describe_error(error)}") from error
    folder = _find_folder(array)
    name = str(folder or array.store_path)
    shape = check_shape(array.shape, name)
    dtype = find_dtype(np.dtype(array.dtype), name)
    itemsize = np.dtype(array.dtype).itemsize
    if min(*array.chunks, *(array.shards or (1,))) < 1:
        raise SamplesFileError(f"{name} claims chunks of {array.chunks}, expected at least one row and one column.")
    chunk = math.prod(array.chunks) * itemsize
    band = max(chunk, int(array.chunks[0]) * shape[1] * itemsize)
    if max(chunk, min(band, shape[0] * shape[1] * itemsize)) > MOST_BAND_BYTES:
        raise SamplesFileError(
            f"{name} has chunks of {array.chunks[0]} rows: rows that are stored together have {band / 1e9:.3g} GB, and "
            f"at most {MOST_BAND_BYTES / 1e9:.3g} GB are held in memory at a time. Write it again with fewer rows a "
            "chunk, or give array[:] if memory is large enough."
        )
    n_inner = math.prod(-(-s // c) for s, c in zip(array.shards, array.chunks, strict=True)) if array.shards else 0
    encoding = Encoding.of(array.metadata.to_dict(), name, chunk, n_inner)
    state = look_at_folder(folder) if folder else FolderState()
    reader = ZarrReader(array, str(folder or ""), *shape, dtype, state, encoding)
    _check_complete(reader)
    return reader


def _open_array(source: Any, column: str | None) -> Any:
    """An array whose codecs are known, by its full name if it has one, which holds wherever it is unpickled."""
    zarr = import_optional("zarr", "files")
    array = None if isinstance(source, (str, os.PathLike)) else _choose_array(source, column, zarr)
    folder = _find_array(Path(source).absolute(), column) if array is None else _find_folder(array)
    if array is None or not (folder is None or (array.read_only and Path(array.store.root).is_absolute())):
        try:
            array = zarr.open_array(str(folder), mode="r")
        except Exception as error:
            raise SamplesFileError(f"{folder} cannot be opened as zarr: {describe_error(error)}") from error
    _check_codecs(array.metadata.to_dict(), str(folder or array.store_path))
    return array


def _choose_array(source: Any, column: str | None, zarr: Any) -> Any:
    """An open array, or the one that `column` names in an open group."""
    if isinstance(source, zarr.Group):
        names = sorted(name for name, _ in source.arrays())
        if column not in names:
            raise _no_array(str(source.store_path), column, names)
        return source[column]
    if column is not None:
        raise SamplesFileError(f"{source.store_path} is one array: it has no column {column!r}.")
    return source


def _find_array(folder: Path, column: str | None) -> Path:
    """Folder of the array in a folder; its codecs are known before zarr sees it."""
    metadata = _read_metadata(folder)
    if not metadata:
        names = sorted(path.name for path in folder.iterdir() if path.is_dir() and _read_metadata(path))
        if column not in names:
            raise _no_array(str(folder), column, names)
        folder /= column
        metadata = _read_metadata(folder)
    elif column is not None:
        raise SamplesFileError(f"{folder} is one array: it has no column {column!r}.")
    for part in metadata:
        _check_codecs(part, str(folder))
    return folder


def _read_metadata(folder: Path) -> list[dict[str, Any]]:
    """What a folder says of the array that it is, in one format or both; nothing if it is none."""
    found = []
    for name in OTHER_METADATA:
        refuse_special(folder / name)
    for path in (folder / name for name in ARRAY_METADATA):
        refuse_special(path)
        if path.is_file():
            try:
                metadata = json.loads(path.read_bytes())
                if path.name == ".zarray" or metadata["node_type"] == "array":
                    found.append(dict(metadata))
            except (ValueError, TypeError, KeyError, RecursionError) as error:
                raise SamplesFileError(f"{folder} cannot be opened as zarr: {describe_error(error)}") from error
    return found


def _check_codecs(metadata: Any, where: str) -> None:
    """Raise if metadata name a codec that might run what the file holds, as pickle does."""
    for key in ("compressor", "filters", "codecs"):
        for codec in _list_codecs(metadata.get(key)):
            if not isinstance(codec, str) or codec.removeprefix("numcodecs.") not in SAFE_CODECS:
                raise SamplesFileError(
                    f"{where} is encoded by {codec!r}, which is none of the codecs of numbers that are known to run "
                    f"nothing of what they decode: {', '.join(sorted(SAFE_CODECS))}. Write it again with one of them, "
                    "or give array[:] if you trust it."
                )


def _list_codecs(part: Any) -> Iterator[Any]:
    """Names of codecs, and of those that they hold; a name is a string, or what an object has as its name or id."""
    if isinstance(part, dict):
        yield from (part[key] for key in ("id", "name") if key in part)
        for value in part.values():
            yield from () if isinstance(value, str) else _list_codecs(value)
    elif isinstance(part, (list, tuple)):
        for codec in part:
            yield from (codec,) if isinstance(codec, str) else _list_codecs(codec)
    elif hasattr(part, "codec_id"):  # zarr 3.0 keeps the codecs of numcodecs themselves in the metadata
        yield part.codec_id


def _no_array(where: str, column: str | None, names: list[str]) -> SamplesFileError:
    remedy = "choose one of them by column=" if column is None else f"none is named {column!r}"
    return SamplesFileError(f"{where} is a group of arrays ({', '.join(names)}): {remedy}.")


def is_zarr(X: Any) -> bool:
    """Whether X is an open zarr array or group; nothing is imported to find out."""
    return type(X).__module__.partition(".")[0] == "zarr" and hasattr(X, "store_path")


def _find_folder(array: Any) -> Path | None:
    """Folder of an array that lies in one on this machine."""
    root = getattr(array.store, "root", None)
    if root is None or type(array.store).__name__ != "LocalStore":
        return None
    return Path(root).absolute().joinpath(array.path)


def _check_complete(reader: ZarrReader) -> None:
    """Raise if a chunk is not there."""
    array = reader.array
    n_rows, n_columns = (-(-size // step) for size, step in zip(array.shape, reader._stored_shape, strict=True))
    n_stored, found = n_rows * n_columns, ""
    coordinates = (
        (row, column) for row in range(n_rows) for column in range(n_columns)
    )  # the first that is missing ends it
    if (missing := reader.find_missing(coordinates)) is not None:
        found = f"chunk {missing} of {n_stored} is missing"
    elif not reader.path and n_stored > MOST_COUNTED_CHUNKS:
        raise SamplesFileError(
            f"{reader._name} claims {n_stored} chunks, and at most {MOST_COUNTED_CHUNKS} are counted in a store that "
            "is no folder. Write it again with more rows a chunk, or into a folder."
        )
    elif not reader.path and array.shards is None and array.nchunks_initialized < n_stored:
        found = f"{n_stored - array.nchunks_initialized} of {n_stored} chunks are missing"
    if found:
        raise SamplesFileError(
            f"{reader._name}: {found}. Either it was lost, or it was left out because it holds the fill value "
            f"{array.fill_value} only; if so, write it again with config={{'write_empty_chunks': True}}."
        )


def look_at_folder(folder: str | os.PathLike[str]) -> FolderState:
    """Look at all files of a folder, and into some of them."""
    found = []
    for parent, _, names in os.walk(folder):
        for name in names:
            path = os.path.join(parent, name)  # noqa: PTH118  # a hundred thousand of them, and Path takes its time
            try:
                found.append((os.path.relpath(path, folder), Stamp.of(os.stat(path))))  # noqa: PTH116
            except FileNotFoundError:
                continue
    found.sort(key=lambda file: file[0])
    digest = start_digest(*(f"{name} {stamp.size} {stamp.modified}" for name, stamp in found)).hexdigest()
    rest = start_digest(*(f"{stamp.changed} {stamp.inode}" for _, stamp in found))
    for name, _ in found[:: -(-len(found) // DRAWN_BLOCKS) or 1]:
        file = Path(folder) / name
        rest.update(b"%d " % (sum_blocks(str(file), 1) if file.is_file() else 0))
    newest = max(found, key=lambda file: file[1].changed, default=("", None))[0]
    return FolderState(digest, rest.hexdigest(), str(Path(folder) / newest))
