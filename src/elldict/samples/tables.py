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
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
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

PARSED_BYTES = 2**24
"""Size of the parts in which a text is parsed; a line of 10^6 numbers fits into one."""

Names = list[str]


def open_table(paths: Sequence[Path], column: str | Sequence[str] | None) -> FileSamples:
    """Read some or all columns of files with the same columns, and keep them as a matrix."""
    before = stamp(paths)
    source = str(paths[0]) if len(paths) == 1 else f"{paths[0]} and {len(paths) - 1} more"
    wanted = [column] if isinstance(column, str) else None if column is None else list(column)
    is_text = paths[0].suffix.lower() in DELIMITERS
    dataset, names = (open_text if is_text else open_columns)(paths, wanted)
    kinds = [dataset.schema.field(name).type for name in names]
    has_names = not is_list(kinds[0]) and not (is_text and read_names(paths[0]) is None)
    dtype = np.result_type(*{choose_precision(find_dtype(kind)) for kind in kinds})
    parts = read_parts(dataset, names, dtype, has_names=has_names)
    with explain_text(paths[0], names) if is_text else explain(paths[0], "a table"):
        rows = keep(parts, source)
    if stamp(paths) != before:
        raise SamplesChangedError(f"{source} was written to while it was read. Start again when it is complete.")
    return FileSamples(rows, source, paths, names if has_names else None, is_copy=True)


def open_columns(paths: Sequence[Path], wanted: Names | None) -> tuple[Any, Names]:
    """Open files of parquet or Arrow, and choose columns of numbers, or one of lists of numbers."""
    dataset = import_optional("pyarrow.dataset")
    path = paths[0]
    with path.open("rb") as stream:
        is_parquet = stream.read(4) == b"PAR1"
    with explain(path, "a table"):
        options = dataset.ParquetFragmentScanOptions(use_buffered_stream=True, pre_buffer=False)  # bounds the memory
        kind = dataset.ParquetFileFormat(default_fragment_scan_options=options) if is_parquet else "feather"
        found = dataset.dataset([str(each) for each in paths], format=kind)
    schema = found.schema
    names = choose_columns(path, list(schema.names), wanted)
    for name in names:
        held = schema.field(name).type
        if find_dtype(held) is None or (len(names) > 1 and is_list(held)):
            raise SamplesFileError(f"{path}: column {name!r} holds {held}, not numbers. {advise(schema.names)}")
    return found, names


def open_text(paths: Sequence[Path], wanted: Names | None) -> tuple[Any, Names]:
    """Open files of text, and choose columns, which all have to hold numbers."""
    csv_format, dataset = import_optional("pyarrow.csv"), import_optional("pyarrow.dataset")
    arrow, path = import_optional("pyarrow"), paths[0]
    header = read_names(path)
    if header is None and wanted is not None:
        raise SamplesFileError(f"{path} has no names of columns, since its first line holds numbers. Omit `column`.")
    known = [f"f{k}" for k in range(len(read_fields(path)))] if header is None else header  # pyarrow's names
    names = choose_columns(path, known, wanted)
    kind = dataset.CsvFileFormat(
        parse_options=csv_format.ParseOptions(delimiter=find_delimiter(path)),
        convert_options=csv_format.ConvertOptions(column_types=dict.fromkeys(names, arrow.float64())),
        read_options=csv_format.ReadOptions(
            use_threads=False,  # otherwise errors do not name the row
            block_size=PARSED_BYTES,
            autogenerate_column_names=header is None,
        ),
    )
    with explain_text(path, known):
        return dataset.dataset([str(each) for each in paths], format=kind), names


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
        name, where = names[int(found[1])], f"row {found[2]} of the file"
        raise SamplesFileError(
            f"{path}: column {name!r} holds {found[3]!r} in {where}, not a number. {advise(names)}"
        ) from error


def read_fields(path: Path) -> Names:
    """Read the fields of the first line of a text."""
    try:
        with path.open(encoding="utf-8-sig", newline="") as stream:
            return [field.strip(" ") for field in next(csv.reader(stream, delimiter=find_delimiter(path)))]
    except (StopIteration, UnicodeDecodeError, csv.Error):
        raise SamplesFileError(f"{path} is empty, or not a text in UTF-8. Convert it first.") from None


def read_names(path: Path) -> Names | None:
    """Read the names of columns; None if the first line holds numbers only."""
    fields = read_fields(path)
    try:
        list(map(float, fields))
    except ValueError:
        return fields
    return None


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


def is_list(kind: Any) -> bool:
    """Return whether a type of Arrow is that of lists."""
    types = import_optional("pyarrow").types
    return bool(types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind))


def find_dtype(kind: Any) -> np.dtype[Any] | None:
    """Return the type of NumPy for numbers, or lists of numbers, of a type of Arrow; None for others."""
    types = import_optional("pyarrow").types
    kind = kind.value_type if is_list(kind) else kind
    if types.is_decimal(kind):
        return np.dtype(np.float64)
    is_number = types.is_integer(kind) or types.is_floating(kind) or types.is_boolean(kind)
    return np.dtype(kind.to_pandas_dtype()) if is_number else None


def read_parts(dataset: Any, names: Names, dtype: np.dtype[Any], *, has_names: bool) -> Iterator[Array]:
    """Read all rows in their order, a few at a time."""
    options = {"use_threads": False, "batch_readahead": 0, "fragment_readahead": 0}
    size = max(1, RUN_BYTES // (8 * len(names)))
    for fragment in dataset.get_fragments():
        start = 0
        for batch in fragment.to_batches(schema=dataset.schema, columns=names, batch_size=size, **options):
            if len(batch):
                columns = [convert(batch.column(name), name, start, fragment.path) for name in names]
                rows = columns[0] if columns[0].ndim == 2 else np.stack(columns, axis=1)
                rows = np.ascontiguousarray(rows, dtype=dtype)
                refuse_not_finite(rows, start, names if has_names else None, fragment.path)
                yield rows
            start += len(batch)


def convert(column: Any, name: str, start: int, path: str) -> NDArray[Any]:
    """Convert numbers (r,), or lists of them (r, n), to NumPy; raise an error if one is missing."""
    arrow, values, n_features = import_optional("pyarrow"), column, None
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
    if arrow.types.is_decimal(values.type):
        values = values.cast(arrow.float64())
    found: NDArray[Any] = values.to_numpy(zero_copy_only=False)
    return found if n_features is None else found.reshape(len(column), n_features)


def keep(parts: Iterator[Array], source: str) -> Rows:
    """Keep rows in memory, or many of them in a temporary file without a name, which ends with the process."""
    held: list[Array] = []
    stream: BinaryIO | None = None
    n_rows, first = 0, np.empty((0, 0))
    for rows in parts:
        first = first if n_rows else rows[:1]
        if rows.shape[1] != first.shape[1]:
            raise SamplesFileError(
                f"{source} holds lists of {first.shape[1]} numbers first, and of {rows.shape[1]} later."
            )
        n_rows += len(rows)
        held.append(rows)
        if stream is None and n_rows * first.nbytes > STORED_BYTES:
            stream = open_temporary(source)
        if stream is not None:
            write(stream, held)
            held.clear()
    if stream is None:
        return np.concatenate(held) if held else first
    return RawRows(stream, 0, (n_rows, first.shape[1]), first.dtype)


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
