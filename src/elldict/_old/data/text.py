"""Rows of a text: numbers with commas (.csv), tabs (.tsv) or spaces (.txt) between them, a line a sample.

A text is read once, from the beginning to the end and block by block, and its numbers go to a `Spool`.
"""

from __future__ import annotations

import csv
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from elldict._old.data.file import Stamp, list_names, sum_blocks
from elldict._old.data.npy import Lines, RawReader
from elldict._old.data.spool import Spool
from elldict.exceptions import SamplesFileError

DELIMITERS: dict[str, str | None] = {".csv": ",", ".tsv": "\t", ".txt": None}
"""What stands between numbers, by the suffix of the file; None for any white space."""

BLOCK_BYTES = 2**18
"""Of text that is read and converted at a time."""

LONGEST_LINE = 2**26
"""Bytes of a line beyond which a file is no table of numbers."""

MOST_RUNS = 10_000
"""Runs of lines without a blank one between them that are remembered for messages."""

ENCODINGS = {b"\xff\xfe": "UTF-16", b"\xfe\xff": "UTF-16", b"\x1f\x8b": "a compressed file (gzip)"}
"""First bytes of what is no text in UTF-8, and what it is."""


@dataclass(frozen=True)
class Table:
    """What the first lines of a text say of all of them."""

    path: str
    delimiter: str | None
    names: tuple[str, ...] | None
    n_columns: int
    wanted: tuple[int, ...]  # columns that are features

    def describe(self, column: int) -> str:
        """Number and name of a column, counted from 1 as lines are."""
        return f"column {column + 1}" + ("" if self.names is None else f" ({self.names[column]!r})")


def open_text(path: str | os.PathLike[str], column: str | Sequence[str] | None) -> RawReader:
    """Reader of a text; all of it is converted here, and whatever is no number is found."""
    path = str(Path(path).absolute())
    stamp, blocks = Stamp.of(Path(path).stat()), sum_blocks(path)
    spool, samples, lines = Spool(path), [0], [1]
    table, n_samples = None, 0
    with Path(path).open("rb") as stream:
        for numbers, texts in _read_lines(stream, path):
            if table is None:
                table = _find_table(path, numbers, texts, column)
                if table.names is not None:
                    del numbers[0], texts[0]
            if not texts:
                continue
            spool.write(_convert(table, numbers, texts).data)
            _add_runs(samples, lines, n_samples, numbers)
            n_samples += len(texts)
    if table is None or not n_samples:
        found = "is empty" if table is None else "holds a line of names and no samples"
        raise SamplesFileError(f"{path} {found}, expected a line of numbers for each sample.")
    names = None if table.names is None else tuple(table.names[k] for k in table.wanted)
    places = Lines(tuple(samples), tuple(lines))
    facts: tuple[Any, ...] = ("<f8", False, stamp, blocks, names, "", spool, places)
    return RawReader(path, 0, n_samples, len(table.wanted), *facts)


def _read_lines(stream: IO[bytes], path: str) -> Iterator[tuple[list[int], list[str]]]:
    """Blocks of lines that are not blank, with their numbers."""
    number, rest = 1, b""
    while True:
        content = stream.read(BLOCK_BYTES)
        *lines, rest = (rest + content).split(b"\n") if content else (rest, b"")
        if number == 1 and lines:
            found = next((kind for first, kind in ENCODINGS.items() if lines[0].startswith(first)), None)
            if found is not None:
                raise SamplesFileError(f"{path} is {found}, expected text in UTF-8. Convert it first.")
            lines[0] = lines[0].removeprefix(b"\xef\xbb\xbf")
        if len(rest) > LONGEST_LINE:
            raise SamplesFileError(f"{path}: line {number + len(lines)} is longer than {LONGEST_LINE} bytes.")
        kept = [(k, line) for k, line in enumerate(lines, start=number) if line.strip()]
        if kept:
            yield [k for k, _ in kept], [line.decode("utf-8", "replace").strip("\r\n ") for _, line in kept]
        number += len(lines)
        if not content:
            return


def _find_table(path: str, numbers: list[int], texts: list[str], column: str | Sequence[str] | None) -> Table:
    """Delimiter, names and columns, from the first lines."""
    delimiter, first = DELIMITERS[Path(path).suffix.lower()], texts[0]
    if delimiter == "," and "," not in first and ";" in first:
        delimiter = ";"  # where commas stand for decimal points, these stand for commas
    fields = _split(first.removeprefix("#").strip(" "), delimiter)
    are_numbers = [_is_number(field) for field in fields]
    quoted = first.startswith('"') and first.count('"') >= 2 * len(fields)
    if all(are_numbers) and not (quoted and len(texts) > 1 and '"' not in texts[1]):
        if column is not None:
            raise SamplesFileError(f"column={column!r} was given, and {path} begins with numbers, not with names.")
        return Table(path, delimiter, None, len(fields), tuple(range(len(fields))))
    if any(are_numbers) and not quoted:
        odd = are_numbers.index(False)
        raise SamplesFileError(
            f"{path}, line {numbers[0]} holds numbers and, in column {odd + 1}, {fields[odd]!r}: expected numbers, or "
            "a name for each column."
        )
    names = tuple(fields)
    if len(set(names)) < len(names):
        raise SamplesFileError(f"{path}: columns {list_names(names)} are not all different.")
    wanted = names if column is None else (column,) if isinstance(column, str) else tuple(column)
    for name in wanted:
        if name not in names:
            raise SamplesFileError(f"{path} has no column {name!r}; its columns are {list_names(names)}.")
        if not name:
            raise SamplesFileError(
                f"{path}: column {names.index(name) + 1} has no name. If it numbers the samples, name the other "
                "columns by column=, or write the file without it."
            )
    return Table(path, delimiter, names, len(names), tuple(names.index(name) for name in wanted))


def _split(text: str, delimiter: str | None) -> list[str]:
    """Fields of a line; names may be quoted."""
    if delimiter is None:
        reader = csv.reader([" ".join(text.split())], delimiter=" ")
    else:
        reader = csv.reader([text], delimiter=delimiter, skipinitialspace=True)
    try:
        return [field.strip() for field in next(reader)]
    except (csv.Error, StopIteration):  # what is no text: the bytes of something else
        return [text]


def _is_number(text: str) -> bool:
    """Whether a field is a number as all programs write it: Python's own may have underscores and other digits."""
    try:
        float(text)
    except ValueError:
        return False
    return text.isascii() and "_" not in text


def _convert(table: Table, numbers: list[int], texts: list[str]) -> NDArray[np.float64]:
    """Numbers of some lines; NumPy reads whole blocks, and lines are looked at one by one where it finds fault."""
    whole = len(table.wanted) == table.n_columns
    plain = whole or (table.delimiter is not None and not any('"' in text for text in texts))
    if plain and not whole:
        plain = all(text.count(table.delimiter or "") == table.n_columns - 1 for text in texts)
    if plain:
        how: dict[str, Any] = {"delimiter": table.delimiter, "usecols": None if whole else table.wanted}
        try:
            rows = np.loadtxt(texts, dtype=np.float64, comments=None, quotechar='"', ndmin=2, **how)
        except (ValueError, IndexError):
            rows = np.empty((0, 0))
        if rows.shape == (len(texts), len(table.wanted)):
            return np.ascontiguousarray(rows)
    return np.array([_convert_line(table, number, text) for number, text in zip(numbers, texts, strict=True)])


def _convert_line(table: Table, number: int, text: str) -> list[float]:
    fields = _split(text, table.delimiter)
    if len(fields) != table.n_columns:
        raise SamplesFileError(
            f"{table.path}, line {number} has {len(fields)} columns, expected {table.n_columns} as in the first line."
        )
    for column in table.wanted:
        if not _is_number(fields[column]):
            found = f"holds {fields[column]!r}, expected a number" if fields[column] else "is empty"
            raise SamplesFileError(
                f"{table.path}, line {number}: {table.describe(column)} {found}. Drop or impute it first."
            )
    return [float(fields[column]) for column in table.wanted]


def _add_runs(samples: list[int], lines: list[int], n_samples: int, numbers: list[int]) -> None:
    """Note where lines were passed over."""
    places = np.asarray(numbers) - np.arange(n_samples, n_samples + len(numbers))
    before = lines[-1] - samples[-1] if n_samples else None
    for k in np.flatnonzero(np.diff(places, prepend=places[0] + 1 if before is None else before)):
        if n_samples == k == 0:
            samples[:], lines[:] = [0], [numbers[0]]
        elif len(samples) < MOST_RUNS:
            samples.append(n_samples + int(k))
            lines.append(numbers[k])
