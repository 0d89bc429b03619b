"""Tables in files, read by pyarrow: parquet, Feather, CSV and TSV, one or several with the same columns.

A table is read once, from the beginning to the end, and kept as a matrix: a fit takes samples from anywhere, for which
whole row groups would have to be decoded, or a text parsed, in every pass.
"""

from __future__ import annotations

import csv
import re
import tempfile
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, cast

import numpy as np
from numpy.typing import NDArray

from elldict.exceptions import ConvertedFileWarning, SamplesChangedError, SamplesFileError, find_stack_level
from elldict.samples.arrays import choose_precision
from elldict.samples.base import STORED_BYTES, Array, refuse_not_finite
from elldict.samples.files import RUN_BYTES, FileSamples, Rows, stamp
from elldict.samples.formats import MOST_NAMED, RawRows, explain, import_optional

DELIMITERS = {".csv": ",", ".tsv": "\t"}
"""Characters between the fields of a line, by suffix."""

PARSED_BYTES = 2**22
"""Size of the parts in which a text is parsed; a line of 10^5 numbers fits into one."""

Names = list[str]


@dataclass(frozen=True)
class Table:
    """Some columns of a file, all of numbers, or one of lists of numbers."""

    path: Path
    names: Names
    has_names: bool  # otherwise, features are entries of lists, or columns without names
    dtype: np.dtype[Any]
    batches: Callable[[], Iterable[Any]]  # of rows, in their order


def open_table(paths: Sequence[Path], column: str | Sequence[str] | None) -> FileSamples:
    """Read some or all columns of files with the same columns, and keep them as a matrix."""
    before = stamp(paths)
    source = str(paths[0]) if len(paths) == 1 else f"{paths[0]} and {len(paths) - 1} more"
    first = open_part(paths[0], [column] if isinstance(column, str) else None if column is None else list(column))
    rows = keep(read_parts(paths, first), source)
    if stamp(paths) != before:
        raise SamplesChangedError(f"{source} was written to while it was read. Start again when it is complete.")
    return FileSamples(rows, source, paths, first.names if first.has_names else None, is_copy=True)


def open_part(path: Path, wanted: Names | None) -> Table:
    """Open a file, and choose its columns."""
    if path.suffix.lower() in DELIMITERS:
        return open_text(path, wanted)
    with path.open("rb") as stream:
        is_parquet = stream.read(4) == b"PAR1"
    return (open_parquet if is_parquet else open_arrow)(path, wanted)


def open_parquet(path: Path, wanted: Names | None) -> Table:
    """Open a parquet file, of which a page of each column is read at a time."""
    parquet = import_optional("pyarrow.parquet")
    with explain(path, "parquet"):
        file = parquet.ParquetFile(path, pre_buffer=False, buffer_size=2**16)
        names, dtype, has_names = choose_numbers(path, file.schema_arrow, wanted)
    size = max(1, RUN_BYTES // (8 * len(names)))
    options = {"columns": names, "use_threads": False}
    return Table(path, names, has_names, dtype, lambda: file.iter_batches(size, **options))


def open_arrow(path: Path, wanted: Names | None) -> Table:
    """Open an Arrow file (Feather), of which a record batch is read at a time."""
    arrow = import_optional("pyarrow")
    with explain(path, "Arrow (Feather)"):
        file = arrow.ipc.open_file(arrow.OSFile(str(path)))
        names, dtype, has_names = choose_numbers(path, file.schema, wanted)
    return Table(path, names, has_names, dtype, lambda: map(file.get_batch, range(file.num_record_batches)))


def open_text(path: Path, wanted: Names | None) -> Table:
    """Open a text, which is parsed part by part; columns that pandas has numbered have names, too."""
    arrow, text = import_optional("pyarrow"), import_optional("pyarrow.csv")
    fields = read_fields(path)
    has_names = not are_numbers(fields) or (len(fields) > 1 and fields == [str(k) for k in range(len(fields))])
    if not has_names and wanted is not None:
        raise SamplesFileError(f"{path} has no names of columns, since its first line holds numbers. Omit `column`.")
    known = fields if has_names else [str(k) for k in range(len(fields))]
    names = choose_columns(path, known, wanted)
    options = {
        "parse_options": text.ParseOptions(delimiter=find_delimiter(path)),
        "convert_options": text.ConvertOptions(
            column_types=dict.fromkeys(names, arrow.float64()), include_columns=names
        ),
        "read_options": text.ReadOptions(
            use_threads=False,  # otherwise errors do not name the row
            block_size=PARSED_BYTES,
            column_names=known,
            skip_rows=int(has_names),
        ),
    }

    def parse() -> Iterator[Any]:
        with explain_text(path, known), text.open_csv(path, **options) as reader:
            yield from reader

    return Table(path, names, has_names, np.dtype(np.float64), parse)


@contextmanager
def explain_text(path: Path, names: Names) -> Iterator[None]:
    """Name the column and row of an entry that is not a number."""
    try:
        with explain(path, f"text with {DELIMITERS[path.suffix.lower()]!r} between fields"):
            yield
    except SamplesFileError as error:
        found = re.search(r"CSV column #(\d+): Row #(\d+):.*invalid value '(.*)'", str(error), re.DOTALL)
        if found is None:
            raise
        where = f"column {names[int(found[1])]!r} holds {found[3]!r} in row {found[2]}"
        raise SamplesFileError(f"{path}: {where}, expected a number. {advise(names)}") from error


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


def choose_columns(path: Path, names: Names, wanted: Names | None) -> Names:
    """Return the columns to read: those asked for, or all."""
    chosen = names if wanted is None else wanted
    counts = Counter(names)
    for name in chosen:
        if name not in counts:
            raise SamplesFileError(f"{path} has no column {name!r}. {advise(names)}")
        if counts[name] > 1 or chosen.count(name) > 1:
            raise SamplesFileError(f"{path}: column {name!r} is there twice. Give each column a name of its own.")
        if not name or name.startswith("__index_level_"):
            raise SamplesFileError(f"{path}: column {name!r} is probably an index of rows. {advise(names)}")
    if not chosen:
        raise SamplesFileError(f"{path}: no columns are selected. {advise(names)}")
    return chosen


def advise(names: Sequence[str]) -> str:
    """List the columns to select from."""
    more = f", ... ({len(names) - MOST_NAMED} more)" if len(names) > MOST_NAMED else ""
    return f"Select columns of numbers with column=[...]: {', '.join(map(repr, names[:MOST_NAMED]))}{more}."


def choose_numbers(path: Path, schema: Any, wanted: Names | None) -> tuple[Names, np.dtype[Any], bool]:
    """Choose columns of numbers, or one of lists; return their names and precision, and whether they are features."""
    names = choose_columns(path, list(schema.names), wanted)
    dtypes = []
    for name in names:
        kind = schema.field(name).type
        dtype = find_dtype(kind)
        if dtype is None or (len(names) > 1 and is_list(kind)):
            raise SamplesFileError(f"{path}: column {name!r} holds {kind}, expected numbers. {advise(schema.names)}")
        dtypes.append(choose_precision(dtype))
    return names, np.result_type(*dtypes), not is_list(schema.field(names[0]).type)


def is_list(kind: Any) -> bool:
    """Return whether a type of Arrow is that of lists."""
    types = import_optional("pyarrow").types
    return bool(types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind))


def find_dtype(kind: Any) -> np.dtype[Any] | None:
    """Return the type of NumPy for numbers, or lists of numbers, of a type of Arrow; None for others."""
    types = import_optional("pyarrow").types
    kind = kind.value_type if is_list(kind) else kind
    is_number = types.is_integer(kind) or types.is_floating(kind) or types.is_boolean(kind)
    return np.dtype(kind.to_pandas_dtype()) if is_number else None


def read_parts(paths: Sequence[Path], first: Table) -> Iterator[Array]:
    """Read the rows of all files in their order, a few at a time."""
    for path in paths:
        table = first if path is paths[0] else open_part(path, first.names if first.has_names else None)
        if (table.names, table.dtype) != (first.names, first.dtype):
            raise SamplesFileError(
                f"{path} and {first.path} differ in their columns or types, expected parts of a single table."
            )
        start = 0
        for batch in read_batches(table):
            if len(batch):
                yield convert_batch(batch, start, table)
            start += len(batch)


def read_batches(table: Table) -> Iterator[Any]:
    """Read and check the batches of a file."""
    with explain(table.path, "a table"):
        for batch in table.batches():
            batch.validate(full=True)  # lengths in a damaged file may exceed what is there
            yield batch


def convert_batch(batch: Any, start: int, table: Table) -> Array:
    """Convert a batch of rows, whose first has the number `start`, to finite numbers."""
    columns = [convert(batch.column(name), name, start, table.path) for name in table.names]
    rows = columns[0] if columns[0].ndim == 2 else np.stack(columns, axis=1)
    rows = np.ascontiguousarray(rows, dtype=table.dtype)
    refuse_not_finite(rows, start, table.names if table.has_names else None, str(table.path))
    return rows


def convert(column: Any, name: str, start: int, path: Path) -> NDArray[Any]:
    """Convert numbers (r,), or lists of them (r, n), to NumPy; raise an error if one is missing."""
    values, n_features = column, None
    if column.null_count == 0 and is_list(column.type):
        values = column.flatten()
        lengths = import_optional("pyarrow.compute").list_value_length(column).to_numpy(zero_copy_only=False)
        n_features = int(lengths[0])
        if np.any(lengths != n_features):
            row = int(np.flatnonzero(lengths != n_features)[0])
            raise SamplesFileError(
                f"{path}: column {name!r} holds {lengths[row]} numbers for sample {start + row}, but {n_features} for "
                f"sample {start}. Expected lists of equal length."
            )
    if values.null_count:
        row = int(np.flatnonzero(values.is_null().to_numpy(zero_copy_only=False))[0]) // (n_features or 1)
        raise SamplesFileError(
            f"{path}: column {name!r} has a missing value or NaN for sample {start + row}. Drop such samples, or "
            "impute these entries."
        )
    found: NDArray[Any] = values.to_numpy(zero_copy_only=False)
    return found if n_features is None else found.reshape(len(column), n_features)


def keep(parts: Iterator[Array], source: str) -> Rows:
    """Keep rows in memory, or many of them in a temporary file without a name, which ends with the process."""
    held, first, n_rows = list[Array](), np.empty((0, 0)), 0
    with ExitStack() as stack:
        stream: BinaryIO | None = None
        for rows in parts:
            first = first if n_rows else rows[:1]
            if rows.shape[1] != first.shape[1]:
                lengths = f"{first.shape[1]} numbers, and later of {rows.shape[1]}"
                raise SamplesFileError(f"{source} holds lists of {lengths}. Expected lists of equal length.")
            n_rows += len(rows)
            held.append(rows)
            if stream is None and n_rows * first.nbytes > STORED_BYTES:
                stream = stack.enter_context(open_temporary(source))
            if stream is not None:
                write(stream, held)
                held.clear()
        if stream is not None:
            return RawRows(stream, 0, (n_rows, first.shape[1]), first.dtype)
    return np.concatenate(held) if held else first


def open_temporary(source: str) -> BinaryIO:
    """Open a file without a name for the numbers of a table, with a warning, since it may fill the disk."""
    warnings.warn(
        f"{source} is converted to a temporary file in {tempfile.gettempdir()}, from which rows are read in any order. "
        "TMPDIR chooses another folder. Save it as .npy if it is used often.",
        ConvertedFileWarning,
        stacklevel=find_stack_level(),
    )
    return cast(BinaryIO, tempfile.TemporaryFile(buffering=0))


def write(stream: BinaryIO, parts: Sequence[Array]) -> None:
    """Append rows to a temporary file; if there is no space, say where."""
    try:
        for rows in parts:
            memory = rows.data.cast("B")
            while len(memory):
                memory = memory[stream.write(memory) :]
    except OSError as error:
        raise OSError(error.errno, f"{error.strerror} (set TMPDIR to another folder)", tempfile.gettempdir()) from error
