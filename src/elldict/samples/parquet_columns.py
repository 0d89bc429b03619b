"""Columns of parquet files: which of them hold samples, and their values as arrays."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from elldict.exceptions import SamplesFileError
from elldict.samples.packages import needed

Where = Callable[[int], str]
"""Says where a row of a batch is stored."""


@dataclass(frozen=True)
class Kind:
    """Type of a column: numbers, or lists of numbers, of one length if the type says so."""

    dtype: str
    listed: bool
    length: int | None = None


def kind_of(schema: Any, name: str, path: str) -> Kind:
    """Type of a column; refuses what holds no numbers."""
    types = needed("pyarrow", "files").types
    if name not in schema.names:
        raise SamplesFileError(f"{path} has no column {name!r}; its columns are {_listed(schema.names)}.")
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


def chosen_columns(schema: Any, column: str | Sequence[str] | None, path: str) -> list[str]:
    """Names of the columns to read: those asked for, or all but the index of a data frame."""
    if isinstance(column, str):
        if not kind_of(schema, column, path).listed:
            raise SamplesFileError(
                f"{path}: column {column!r} holds numbers, expected lists. Name all that are wanted."
            )
        return [column]
    index = {name for name in (schema.pandas_metadata or {}).get("index_columns", ()) if isinstance(name, str)}
    names = [name for name in schema.names if name not in index] if column is None else list(column)
    if not names:
        raise SamplesFileError(f"{path}: no columns are left to read.")
    if len(set(names)) < len(names):
        raise SamplesFileError(f"{path}: columns {_listed(names)} are not all different.")
    if len(names) > 1 and any(kind_of(schema, name, path).listed for name in names):
        raise SamplesFileError(f"{path} has columns {_listed(names)}: name the one with the samples by column=.")
    return names


def scalar_values(column: Any, name: str, where: Where) -> NDArray[Any]:
    """Values of a column of numbers; refuses nulls."""
    if column.null_count:
        row = int(np.flatnonzero(np.asarray(column.is_null()))[0])
        raise SamplesFileError(f"{where(row)}: column {name!r} is null. Drop or impute it first.")
    return np.asarray(column.to_numpy(zero_copy_only=False))


def list_values(column: Any, name: str, length: int, where: Where) -> NDArray[Any]:
    """Values (b, length) of a column of lists; refuses nulls, and lists of another length."""
    column = getattr(column, "storage", column)
    lengths = column.value_lengths().to_numpy(zero_copy_only=False)  # NaN, which is no length, where a list is null
    if np.any(lengths != length):
        row = int(np.flatnonzero(lengths != length)[0])
        found = "is null" if not column[row].is_valid else f"holds a list of {lengths[row]:g} values"
        raise SamplesFileError(
            f"{where(row)}: column {name!r} {found}, expected lists of {length} as in the first row."
        )
    if column.null_count:
        row = int(np.flatnonzero(np.asarray(column.is_null()))[0])
        raise SamplesFileError(f"{where(row)}: column {name!r} is null. Drop or impute it first.")
    values = column.flatten()
    if values.null_count:
        row, feature = divmod(int(np.flatnonzero(np.asarray(values.is_null()))[0]), length)
        raise SamplesFileError(f"{where(row)}: column {name!r} is null in feature {feature}. Drop or impute it first.")
    return np.asarray(values.to_numpy(zero_copy_only=False)).reshape(-1, length)


def _listed(names: Sequence[str], most: int = 10) -> str:
    shown = ", ".join(map(repr, names[:most]))
    return shown if len(names) <= most else f"{shown}, ... ({len(names) - most} more)"
