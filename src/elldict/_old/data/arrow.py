"""Arrow files (Feather, version 2), in the words in which pyarrow speaks of parquet files."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any, Self

from elldict._old.data.file import import_optional
from elldict.exceptions import SamplesFileError

MAGIC = b"ARROW1"
FEATHER_1 = b"FEA1"
"""First bytes of Feather of version 1, which pandas no longer writes."""

MOST_COMPRESSION = 10**6
"""Times by which numbers may shrink when they are compressed: more than any method reaches."""


class ArrowFile:
    """An open file; it is read, not mapped: if somebody truncates a mapped file, the process ends."""

    def __init__(self, path: str) -> None:
        self._arrow = import_optional("pyarrow", "files")
        self._ipc = import_optional("pyarrow.ipc", "files")
        self._stream = self._arrow.OSFile(path)
        try:
            self.schema_arrow = self._open().schema
        except BaseException:
            self._stream.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stream.close()

    def _open(self, columns: Sequence[str] = ()) -> Any:
        """Open the file for some columns, or for all if none is named."""
        wanted = [self.schema_arrow.get_field_index(name) for name in columns]
        return self._ipc.open_file(self._stream, options=self._ipc.IpcReadOptions(included_fields=wanted))

    def count_rows(self) -> list[int]:
        """Rows of each record batch, of which one column is read for it."""
        file = self._open(self.schema_arrow.names[:1])
        return [self._read_batch(file, number).num_rows for number in range(file.num_record_batches)]

    def iter_batches(
        self, size: int, groups: Sequence[int] | None = None, columns: Sequence[str] = ()
    ) -> Iterator[Any]:
        """Rows of some record batches and columns, at most so many at a time."""
        file = self._open(columns)
        for number in range(file.num_record_batches) if groups is None else groups:
            batch = self._read_batch(file, number)
            batch.validate(full=True)  # a damaged file may count in more than there is
            batch = batch.select(list(columns))
            for start in range(0, batch.num_rows, size):
                yield batch.slice(start, size)

    def _read_batch(self, file: Any, number: int) -> Any:
        """Read a record batch; one that would be larger than anything becomes by compression has a damaged length."""
        try:
            return file.get_batch(number)
        except MemoryError as error:
            asked = re.search(r"size (\d+)", str(error))
            if asked is None or int(asked[1]) <= MOST_COMPRESSION * self._stream.size():
                raise
        raise SamplesFileError(f"record batch {number} is damaged: it claims to have {asked[1]} bytes.")
