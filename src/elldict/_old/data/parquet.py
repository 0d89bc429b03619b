"""Rows of parquet files, and of Arrow files, whose record batches are row groups here.

A row group can only be decoded from its beginning. Where a read ends, its cursor is left for the one that goes on
there, so that passes that go on at the same time decode each row once.
"""

from __future__ import annotations

import os
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from elldict._old.atomic import refuse_special
from elldict._old.data import arrow
from elldict._old.data.arrow import ArrowFile
from elldict._old.data.dataset import start_digest
from elldict._old.data.file import (
    Cursor,
    Cursors,
    Stamp,
    check_content,
    check_stamp,
    describe_error,
    find_dtype,
    import_optional,
    list_names,
    prepare_out,
    sum_blocks,
)
from elldict.exceptions import SamplesChangedError, SamplesFileError

MAGIC = b"PAR1"

SUFFIXES = (".parquet", ".arrow", ".feather")
"""Of the files of a folder that are read."""

PART_BLOCKS = 8
"""Blocks of a file that are compared before and after a pass: few, since there may be thousands of files."""

BATCH_BYTES = 2**22
"""Of rows that are decoded at a time: a tile at most."""


@dataclass(frozen=True)
class Kind:
    """Type of a column: numbers, or lists of numbers, of one length if the type says so."""

    dtype: str
    listed: bool
    length: int | None = None


@dataclass(frozen=True)
class Part:
    """One file."""

    path: str
    stamp: Stamp
    blocks: int  # checksum of PART_BLOCKS of its blocks
    group_rows: tuple[int, ...]  # rows of each row group

    @cached_property
    def starts(self) -> list[int]:
        """First row of each row group, and the number of rows."""
        return list(accumulate(self.group_rows, initial=0))

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return self.starts[-1]

    def find_group(self, row: int) -> int:
        """Row group of a row."""
        return bisect_right(self.starts, row) - 1

    def locate(self, row: int) -> str:
        """File, row group and row."""
        return f"{self.path}, row group {self.find_group(row)}, row {row}"


@dataclass(frozen=True)
class ParquetReader:
    """Rows of one parquet file, or of all files of a folder in the order of their names."""

    path: str
    parts: tuple[Part, ...]
    columns: tuple[str, ...]
    listed: bool  # one column of lists, instead of one column a feature
    n_features: int
    dtype: str
    cursors: Cursors = field(default_factory=Cursors, compare=False)

    @cached_property
    def _starts(self) -> list[int]:
        """First sample of each file, and the number of samples."""
        return list(accumulate((part.n_rows for part in self.parts), initial=0))

    @property
    def n_samples(self) -> int:
        """Number of rows of all files."""
        return self._starts[-1]

    @property
    def feature_names(self) -> tuple[str, ...] | None:
        """Names of the columns, if there is one for each feature."""
        return None if self.listed else self.columns

    def read(self, start: int, stop: int, out: NDArray[Any] | None = None) -> NDArray[Any]:
        """Rows from start to stop."""
        out = prepare_out(self, start, stop, out)
        if not len(out):
            return out
        number, row = self._find_part(start)
        part = self.parts[number]
        group = part.find_group(row)
        begin = self._starts[number] + part.starts[group]
        cursor = self.cursors.find(begin, start) or Cursor(begin, out[:0], self._decode_from(number, group))
        while cursor.position < stop:
            if not len(cursor.rows):
                cursor.rows = next(cursor.batches)
            n_rows = min(len(cursor.rows), (start if cursor.position < start else stop) - cursor.position)
            if cursor.position >= start:
                out[cursor.position - start :][:n_rows] = cursor.rows[:n_rows]
            cursor.rows = cursor.rows[n_rows:]
            cursor.position += n_rows
        if stop < self.n_samples:
            self.cursors.leave(cursor)
        else:
            next(cursor.batches, None)  # there is none, and the last file is closed and looked at once more
        return out

    def take(self, index: NDArray[np.int64]) -> NDArray[Any]:
        """Rows by sorted index; row groups without any are passed over."""
        out = np.empty((len(index), self.n_features), self.dtype)
        done = 0
        for begin, part in zip(self._starts, self.parts, strict=False):
            wanted = index[(index >= begin) & (index < begin + part.n_rows)] - begin
            for group in np.unique(np.searchsorted(part.starts, wanted, side="right") - 1):
                for row, rows in self._decode(part, int(group), int(group) + 1):
                    chosen = rows[wanted[(wanted >= row) & (wanted < row + len(rows))] - row]
                    out[done : done + len(chosen)] = chosen
                    done += len(chosen)
        return out

    def locate(self, sample: int) -> str:
        """File, row group and row of a sample."""
        number, row = self._find_part(sample)
        return self.parts[number].locate(row)

    def fingerprint(self) -> str:
        """Digest of columns and dtype, of size and date of every file, and of the first and the last row."""
        facts = [(part.group_rows, part.stamp.size, part.stamp.modified) for part in self.parts]
        digest = start_digest("parquet", self.columns, self.n_features, self.dtype, *facts)
        digest.update(self.take(np.unique([0, self.n_samples - 1])).data)
        return digest.hexdigest()

    def check_unchanged(self) -> None:
        """Raise if a file has changed, or there are others."""
        for part in self.parts:
            check_stamp(part.path, part.stamp)
            check_content(part.path, part.blocks, PART_BLOCKS)
        if [part.path for part in self.parts] != _list_files(self.path):
            raise SamplesChangedError(f"{self.path} does not hold the same files as when it was opened.")

    def _find_part(self, sample: int) -> tuple[int, int]:
        """Number of the file of a sample, and its row there."""
        number = bisect_right(self._starts, sample) - 1
        return number, sample - self._starts[number]

    def _decode_from(self, number: int, group: int) -> Iterator[NDArray[Any]]:
        """All rows from a row group of a file on, in batches."""
        for part in self.parts[number:]:
            for _, rows in self._decode(part, group, len(part.group_rows)):
                yield rows
            group = 0

    def _decode(self, part: Part, first: int, last: int) -> Iterator[tuple[int, NDArray[Any]]]:
        """Rows of some row groups of a file, in batches, each with the number of its first row."""
        row = part.starts[first]
        size = max(1, BATCH_BYTES // (8 * self.n_features))
        with _open_file(part.path) as file:
            batches = file.iter_batches(size, list(range(first, last)), list(self.columns))
            while (batch := _read_next(batches, part, row)) is not None:
                yield row, self._convert(batch, part, row)
                row += batch.num_rows
        check_stamp(part.path, part.stamp)
        if row != part.starts[last]:
            raise SamplesFileError(f"{part.path} ends after row {row}, and claims to have {part.starts[last]}.")

    def _convert(self, batch: Any, part: Part, first: int) -> NDArray[Any]:
        """Rows of a batch as an array; `first` is the number of its first row."""

        def locate(row: int) -> str:
            return part.locate(first + row)

        if self.listed:
            values = convert_lists(batch.column(0), self.columns[0], self.n_features, locate)
            return values.astype(self.dtype, copy=False)
        rows = np.empty((batch.num_rows, self.n_features), self.dtype)
        for feature, name in enumerate(self.columns):
            column = batch.column(feature)
            if column.null_count:
                raise _null(column, name, locate)
            rows[:, feature] = column.to_numpy(zero_copy_only=False)
        return rows


def convert_lists(column: Any, name: str, length: int, locate: Callable[[int], str]) -> NDArray[Any]:
    """Values (b, length) of a column of lists; refuses nulls, and lists of another length."""
    column = getattr(column, "storage", column)
    if column.null_count:
        raise _null(column, name, locate)
    lengths = column.value_lengths().to_numpy(zero_copy_only=False)
    if np.any(lengths != length):
        row = int(np.flatnonzero(lengths != length)[0])
        raise SamplesFileError(
            f"{locate(row)}: column {name!r} holds a list of {lengths[row]} values, expected lists of {length} as in "
            "the first row."
        )
    values = column.flatten()
    if values.null_count:
        raise _null(values, name, locate, length)
    return np.asarray(values.to_numpy(zero_copy_only=False)).reshape(-1, length)


def _null(values: Any, name: str, locate: Callable[[int], str], length: int = 1) -> SamplesFileError:
    """Error that says where the first null of a column is, or of what its lists of this length hold."""
    row, feature = divmod(int(np.flatnonzero(np.asarray(values.is_null()))[0]), length)
    within = f" in feature {feature}" if length > 1 else ""
    return SamplesFileError(f"{locate(row)}: column {name!r} is null{within}. Drop or impute it first.")


def find_kind(schema: Any, name: str, path: str) -> Kind:
    """Type of a column; refuses what holds no numbers."""
    types = import_optional("pyarrow", "files").types
    if name not in schema.names:
        raise SamplesFileError(f"{path} has no column {name!r}; its columns are {list_names(schema.names)}.")
    found = schema.field(name).type
    found = getattr(found, "storage_type", found)  # tensors of fixed shape are stored as lists
    fixed = types.is_fixed_size_list(found)
    listed = fixed or types.is_list(found) or types.is_large_list(found)
    value = found.value_type if listed else found
    if not (types.is_integer(value) or types.is_floating(value) or types.is_boolean(value)):
        raise SamplesFileError(
            f"{path}: column {name!r} is of type {found}, expected numbers or lists of numbers. Choose columns by "
            "column=."
        )
    return Kind(str(np.dtype(value.to_pandas_dtype())), listed, found.list_size if fixed else None)


def choose_columns(schema: Any, column: str | Sequence[str] | None, path: str) -> list[str]:
    """Names of the columns to read: those asked for, or all but the index of a data frame."""
    if isinstance(column, str):
        if not find_kind(schema, column, path).listed:
            raise SamplesFileError(
                f"{path}: column {column!r} holds numbers, expected lists. Name all that are wanted."
            )
        return [column]
    index = {name for name in (schema.pandas_metadata or {}).get("index_columns", ()) if isinstance(name, str)}
    names = [name for name in schema.names if name not in index] if column is None else list(column)
    if not names:
        raise SamplesFileError(f"{path}: no columns are left to read.")
    if len(set(names)) < len(names):
        raise SamplesFileError(f"{path}: columns {list_names(names)} are not all different.")
    if len(names) > 1 and any(find_kind(schema, name, path).listed for name in names):
        raise SamplesFileError(f"{path} has columns {list_names(names)}: name the one with the samples by column=.")
    return names


def open_parquet(path: str | os.PathLike[str], column: str | Sequence[str] | None = None) -> ParquetReader:
    """Reader of a parquet file or a folder of them.

    `column` names a column of lists, or the columns that are the features; without it a file has to be one or the
    other altogether.
    """
    path = str(Path(path).absolute())
    files = [_open_part(name) for name in _list_files(path)]
    parts = tuple(part for part, _ in files)
    columns = choose_columns(files[0][1], column, parts[0].path)
    kinds = [[find_kind(schema, name, part.path) for name in columns] for part, schema in files]
    for found, part in zip(kinds, parts, strict=True):
        if found != kinds[0]:
            raise SamplesFileError(f"{part.path} has columns of other types than {parts[0].path}.")
    if not any(part.n_rows for part in parts):
        raise SamplesFileError(f"{path} has no rows, expected samples.")
    dtype = find_dtype(np.result_type(*(kind.dtype for kind in kinds[0])), path)
    listed = kinds[0][0].listed
    n_features = len(columns) if not listed else kinds[0][0].length or _find_length(parts, columns[0])
    return ParquetReader(path, parts, tuple(columns), listed, n_features, dtype)


def list_group_rows(file: Any, path: str) -> Sequence[int]:
    """Rows of each row group, or record batch."""
    if isinstance(file, ArrowFile):
        try:
            return file.count_rows()
        except MemoryError:
            raise
        except Exception as error:
            raise SamplesFileError(f"{path} cannot be opened as Arrow: {describe_error(error)}") from error
    return [file.metadata.row_group(k).num_rows for k in range(file.metadata.num_row_groups)]


def _open_part(path: str) -> tuple[Part, Any]:
    """A file, and the types of its columns."""
    with _open_file(path) as file:
        if not isinstance(file, ArrowFile):
            _check_types(path, file)
        groups = list_group_rows(file, path)
        part = Part(path, Stamp.of(Path(path).stat()), sum_blocks(path, PART_BLOCKS), tuple(groups))
        return part, file.schema_arrow


def _check_types(path: str, file: Any) -> None:
    """Raise if a column is stored as another type than the schema says: pyarrow may take one for the other."""
    schema, metadata = file.schema, file.metadata
    expected = [schema.column(number).physical_type for number in range(len(schema))]
    for group in range(metadata.num_row_groups):
        row_group = metadata.row_group(group)
        found = [row_group.column(number).physical_type for number in range(row_group.num_columns)]
        if found != expected:
            raise SamplesFileError(
                f"{path}, row group {group} is damaged: it has columns of {list_names(found)}, expected "
                f"{list_names(expected)}, as the schema says. Copy or write it again."
            )


def _list_files(path: str) -> list[str]:
    """Files of a folder and the folders in it, by name; hidden ones, and those that begin with _, are not data."""
    if not Path(path).is_dir():
        return [path]
    for suffix in SUFFIXES:
        found = [file for file in Path(path).rglob(f"*{suffix}") if not file.name.startswith((".", "_"))]
        if found:
            return sorted(map(str, found))
    raise SamplesFileError(
        f"{path} is a folder that holds neither a zarr array nor files of samples (.parquet, .arrow, .feather, "
        ".safetensors, .npy)."
    )


def _open_file(path: str) -> Any:
    parquet = import_optional("pyarrow.parquet", "files")
    refuse_special(Path(path))
    with Path(path).open("rb") as stream:
        is_arrow = stream.read(len(arrow.MAGIC)) == arrow.MAGIC
    try:
        if is_arrow:
            return ArrowFile(path)
        # 256 kB of a column are read in one piece
        return parquet.ParquetFile(path, buffer_size=2**18, page_checksum_verification=True)
    except (FileNotFoundError, MemoryError):
        raise
    except Exception as error:  # a damaged footer
        kind = "Arrow" if is_arrow else "parquet"
        raise SamplesFileError(f"{path} cannot be opened as {kind}: {describe_error(error)}") from error


def _read_next(batches: Iterator[Any], part: Part, row: int) -> Any:
    try:
        return next(batches, None)
    except MemoryError:
        raise
    except Exception as error:  # damage beyond the footer shows when rows are decoded
        check_stamp(part.path, part.stamp)
        where = part.locate(min(row, part.n_rows - 1))
        raise SamplesFileError(f"{where}, or a row after it, cannot be read: {describe_error(error)}") from error


def _find_length(parts: Sequence[Part], name: str) -> int:
    """Length of the first list of all."""
    part = next(part for part in parts if part.n_rows)
    with _open_file(part.path) as file:
        first = _read_next(file.iter_batches(1, columns=[name]), part, 0).column(0)[0]
    if not first.is_valid or not len(first):
        raise SamplesFileError(f"{part.locate(0)}: column {name!r} is null or empty, expected a list of features.")
    return len(first)
