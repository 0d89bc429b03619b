"""Tables in files, read by pyarrow: parquet, Feather, CSV and TSV, one or several with the same columns.

A table is read once, from the beginning to the end, and kept as a matrix: a fit takes samples from anywhere, for which
whole row groups would have to be decoded, or a text parsed, in every pass.
"""

from __future__ import annotations

import csv
import re
import tempfile
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from elldict.atomic import NAMELESS
from elldict.exceptions import ConvertedFileWarning, SamplesChangedError, SamplesFileError, find_stack_level
from elldict.samples.arrays import choose_precision
from elldict.samples.base import STORED_BYTES, Array, refuse_not_finite
from elldict.samples.files import Column, FileSamples, explain, stamp
from elldict.samples.formats import MOST_NAMED, RawRows, import_optional

DELIMITERS = {".csv": ",", ".tsv": "\t"}
"""Characters between the fields of a line, by suffix."""

PARSED_BYTES = 2**22
"""Size of the parts in which a text is parsed; a line of 10^5 numbers fits into one."""

READ_ROWS = 2**11
"""Number of rows of a parquet file that are decoded at once: 16 MB for 1000 features."""

Names = list[str]


@dataclass(frozen=True)
class Table:
    """A file of columns."""

    path: Path
    kind: str  # its format, for messages
    schema: Any  # names and types of all columns, as in Arrow
    read: Callable[[Names], Iterable[Any]]  # reads batches of rows with these columns
    has_names: bool = True


def open_table(path: Path, column: Column, *others: Path) -> FileSamples:
    """Read some or all columns of a file, or of several with the same columns, and keep them as a matrix."""
    paths = [path, *others]
    before, first = stamp(paths), open_part(path)
    source = f"{path} and {len(others)} more" if others else str(path)
    if column is not None and not first.has_names:
        raise SamplesFileError(f"{path} has no names of columns, since its first line holds numbers. Omit `column`.")
    names, dtype = choose_columns(first, [column] if isinstance(column, str) else column)
    features = names if first.has_names and not is_list(first.schema.field(names[0]).type) else None
    rows = keep(read_parts(paths, names, dtype, features), source)
    if stamp(paths) != before:
        raise SamplesChangedError(f"{source} was written to while it was read. Start again when it is complete.")
    return FileSamples(rows, source, paths, features, is_copy=True)


def open_part(path: Path) -> Table:
    """Open a file by its suffix if it is a text, otherwise by its first bytes."""
    if path.suffix.lower() in DELIMITERS:
        return open_text(path)
    with path.open("rb") as stream:
        is_parquet = stream.read(4) == b"PAR1"
    with explain(f"{path} cannot be read as {'parquet' if is_parquet else 'Arrow (Feather)'}"):
        return open_parquet(path) if is_parquet else open_arrow(path)


def open_parquet(path: Path) -> Table:
    """Open a parquet file, of which a page of each column is read at a time."""
    file = import_optional("pyarrow.parquet").ParquetFile(path, pre_buffer=False, buffer_size=2**16)
    options = {"batch_size": READ_ROWS, "use_threads": False}
    return Table(path, "parquet", file.schema_arrow, lambda names: file.iter_batches(columns=names, **options))


def open_arrow(path: Path) -> Table:
    """Open an Arrow file (Feather), of which a record batch is read at a time."""
    arrow = import_optional("pyarrow")
    file = arrow.ipc.open_file(arrow.OSFile(str(path)))
    batches = range(file.num_record_batches)
    return Table(path, "Arrow (Feather)", file.schema, lambda _: map(file.get_batch, batches))


def open_text(path: Path) -> Table:
    """Open a text, which is parsed part by part; columns that pandas has numbered have names, too."""
    arrow, text = import_optional("pyarrow"), import_optional("pyarrow.csv")
    fields, delimiter = read_fields(path), find_delimiter(path)
    numbers = [str(k) for k in range(len(fields))]
    has_names = not are_numbers(fields) or (len(fields) > 1 and fields == numbers)
    schema = arrow.schema([(name, arrow.float64()) for name in (fields if has_names else numbers)])

    def read(names: Names) -> Iterator[Any]:
        reader = text.open_csv(
            path,
            parse_options=text.ParseOptions(delimiter=delimiter),
            convert_options=text.ConvertOptions(column_types=schema, include_columns=names),
            read_options=text.ReadOptions(
                use_threads=False,  # otherwise errors do not name the row
                block_size=PARSED_BYTES,
                column_names=schema.names,
                skip_rows=int(has_names),
            ),
        )
        with reader:
            yield from reader

    return Table(path, f"text with {delimiter!r} between fields", schema, read, has_names)


def read_fields(path: Path) -> Names:
    """Read the fields of the first line of a text."""
    try:
        with path.open(encoding="utf-8-sig", newline="") as stream:
            return [field.strip(" ") for field in next(csv.reader(stream, delimiter=find_delimiter(path)))]
    except (StopIteration, UnicodeDecodeError, csv.Error):
        raise SamplesFileError(f"{path} is empty, or not a text in UTF-8. Convert it first.") from None


def are_numbers(fields: Names) -> bool:
    """Return whether all fields are numbers."""
    try:
        list(map(float, fields))
    except ValueError:
        return False
    return True


def find_delimiter(path: Path) -> str:
    """Find the delimiter by the suffix; semicolons where a first line has no comma."""
    delimiter = DELIMITERS[path.suffix.lower()]
    with path.open("rb") as stream:
        line = stream.readline(PARSED_BYTES)
    return ";" if delimiter == "," and b"," not in line and b";" in line else delimiter


def choose_columns(table: Table, wanted: Sequence[str] | None) -> tuple[Names, np.dtype[Any]]:
    """Choose columns of numbers, or one of lists, those asked for or all; return their names and precision."""
    path, names = table.path, table.schema.names
    chosen, dtypes = list(names if wanted is None else wanted), []
    for name in chosen:
        if name not in names:
            raise SamplesFileError(f"{path} has no column {name!r}. {advise(names)}")
        if names.count(name) > 1 or chosen.count(name) > 1:
            raise SamplesFileError(f"{path}: column {name!r} is there twice. Give each column a name of its own.")
        if not name or name.startswith("__index_level_"):
            raise SamplesFileError(f"{path}: column {name!r} is probably an index of rows. {advise(names)}")
        kind = table.schema.field(name).type
        dtype = find_dtype(kind)
        if dtype is None or (len(chosen) > 1 and is_list(kind)):
            raise SamplesFileError(f"{path}: column {name!r} holds {kind}, expected numbers. {advise(names)}")
        dtypes.append(dtype)
    if not chosen:
        raise SamplesFileError(f"{path}: no columns are selected. {advise(names)}")
    return chosen, np.result_type(*dtypes)


def advise(names: Sequence[str]) -> str:
    """List the columns to select from."""
    more = f", ... ({len(names) - MOST_NAMED} more)" if len(names) > MOST_NAMED else ""
    return f"Select columns of numbers with column=[...]: {', '.join(map(repr, names[:MOST_NAMED]))}{more}."


def is_list(kind: Any) -> bool:
    """Return whether a type of Arrow is that of lists."""
    return hasattr(kind, "value_field")


def find_dtype(kind: Any) -> np.dtype[Any] | None:
    """Return the precision for numbers, or lists of numbers, of a type of Arrow; None for others."""
    types = import_optional("pyarrow").types
    kind = kind.value_type if is_list(kind) else kind
    is_number = types.is_integer(kind) or types.is_floating(kind) or types.is_boolean(kind)
    return choose_precision(kind.to_pandas_dtype()) if is_number else None


def read_parts(paths: Sequence[Path], names: Names, dtype: Any, features: Names | None) -> Iterator[Array]:
    """Read the rows of all files in their order, a few at a time."""
    n_features = 0
    for path in paths:
        table, start = open_part(path), 0
        if choose_columns(table, names) != (names, dtype):
            raise SamplesFileError(
                f"{path} and {paths[0]} differ in their columns or types, expected parts of a single table."
            )
        for batch in read_batches(table, names):
            rows = np.ascontiguousarray(convert(batch, names, n_features, start, path), dtype)
            refuse_not_finite(rows, start, features, str(path))
            yield rows
            n_features = rows.shape[1]
            start += len(rows)


def read_batches(table: Table, names: Names) -> Iterator[Any]:
    """Read and check the batches of a file; name the column and row of an entry of a text that is not a number."""
    with explain(f"{table.path} cannot be read as {table.kind}"):
        try:
            for batch in table.read(names):
                batch.validate(full=True)  # lengths in a damaged file may exceed what is there
                if len(batch):
                    yield batch
        except ValueError as error:
            found = re.search(r"CSV column #(\d+): Row #(\d+):.*invalid value '(.*)'", str(error), re.DOTALL)
            if found is None:
                raise
            where = f"column {table.schema.names[int(found[1])]!r} holds {found[3]!r} in row {found[2]}"
            advice = advise(table.schema.names)
            raise SamplesFileError(f"{table.path}: {where}, expected a number. {advice}") from error


def convert(batch: Any, names: Names, n_features: int, start: int, path: Path) -> NDArray[Any]:
    """Convert a batch of rows, whose first has the number `start`, to NumPy; raise an error if a number is missing."""
    arrays = []
    for name in names:
        values, n_entries = batch.column(name), 1
        if is_list(values.type):
            lengths = import_optional("pyarrow.compute").list_value_length(values).fill_null(0).to_numpy()
            values, n_entries = values.flatten(), n_features or int(lengths[0])
            if np.any(lengths != n_entries):
                row = int(np.flatnonzero(lengths != n_entries)[0])
                raise SamplesFileError(
                    f"{path}: column {name!r} holds {lengths[row]} numbers for sample {start + row}, but {n_entries} "
                    "for sample 0. Expected lists of equal length."
                )
        if values.null_count:
            row = int(np.flatnonzero(values.is_null().to_numpy(zero_copy_only=False))[0]) // n_entries
            raise SamplesFileError(
                f"{path}: column {name!r} has a missing value or NaN for sample {start + row}. Drop such samples, or "
                "impute these entries."
            )
        arrays.append(values.to_numpy(zero_copy_only=False))
    return np.stack(arrays, axis=1).reshape(len(batch), -1)


def keep(parts: Iterator[Array], source: str) -> Any:
    """Keep rows in memory, or many of them in a temporary file."""
    held = list[Array]()
    for rows in parts:
        held.append(rows)
        if sum(part.nbytes for part in held) > STORED_BYTES:
            return write_temporary(chain(held, parts), source)
    return np.concatenate(held) if held else np.empty((0, 0))


def write_temporary(parts: Iterable[Array], source: str) -> RawRows:
    """Write rows to a file without a name, which ends with the process; warn, since it may fill the disk."""
    folder, n_rows = tempfile.gettempdir(), 0
    warnings.warn(
        f"{source} is converted to a temporary file in {folder}, from which rows are read in any order. "
        "TMPDIR chooses another folder. Save it as .npy if it is used often.",
        ConvertedFileWarning,
        stacklevel=find_stack_level(),
    )
    try:
        with tempfile.TemporaryFile() as stream:
            for rows in parts:
                stream.write(rows.data)
                n_rows += len(rows)
            stream.flush()
            return RawRows(stream, 0, (n_rows, rows.shape[1]), rows.dtype)
    except OSError as error:
        if error.errno not in NAMELESS:
            raise
        raise OSError(error.errno, f"{error.strerror} (set TMPDIR to another folder)", folder) from error
