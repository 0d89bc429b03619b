"""Writers of tables: rows in the order of the samples, under the names of their columns."""

from __future__ import annotations

import csv
import io
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from elldict._old.atomic import atomic_file
from elldict._old.backend.base import Array, to_numpy
from elldict._old.data.file import import_optional

DELIMITERS = {".csv": ",", ".tsv": "\t"}
SUFFIXES = (*DELIMITERS, ".parquet", ".feather", ".arrow")
"""Of files that are tables."""


class TableWriter:
    """Rows that come in any order and are appended in theirs; those that come early wait."""

    def __init__(self, append: Callable[[NDArray[Any]], None]) -> None:
        self._append = append
        self._waiting: dict[int, NDArray[Any]] = {}
        self._next = 0
        self._lock = threading.Lock()

    def write(self, start: int, rows: Array) -> None:
        """Take some rows."""
        with self._lock:
            self._waiting[start] = np.array(to_numpy(rows))
            while self._next in self._waiting:
                values = self._waiting.pop(self._next)
                self._append(values)
                self._next += len(values)


@contextmanager
def open_table(path: str | os.PathLike[str], names: Sequence[str], dtype: str) -> Iterator[TableWriter]:
    """Writer that becomes the file at `path` when the block ends, and nothing at all if it fails."""
    suffix = Path(path).suffix
    with atomic_file(Path(path)) as stream:
        if suffix in DELIMITERS:
            stream.write(format_names(names, DELIMITERS[suffix]))
            yield TableWriter(lambda values: _append_text(stream, values, DELIMITERS[suffix]))
            return
        arrow = import_optional("pyarrow", "files")
        schema = arrow.schema([(str(name), arrow.from_numpy_dtype(np.dtype(dtype))) for name in names])
        if suffix == ".parquet":
            file = import_optional("pyarrow.parquet", "files").ParquetWriter(stream, schema)
        else:
            file = import_optional("pyarrow.ipc", "files").new_file(stream, schema)
        with file:
            yield TableWriter(
                lambda values: file.write_batch(
                    arrow.record_batch([arrow.array(column, schema.types[0]) for column in values.T], schema=schema)
                )
            )


def format_names(names: Sequence[str], delimiter: str) -> bytes:
    """First line of a text, with quotes where they are needed."""
    line = io.StringIO()
    csv.writer(line, delimiter=delimiter, lineterminator="\n").writerow(names)
    return line.getvalue().encode()


def _append_text(stream: IO[bytes], values: NDArray[Any], delimiter: str) -> None:
    """Numbers with as many digits as it takes to read the same ones again."""
    show: Callable[[float], str] = "{:.9g}".format if values.dtype == np.float32 else repr
    lines = (delimiter.join(map(show, row)) for row in values.tolist())
    stream.write(("\n".join(lines) + "\n").encode())
