"""Files that commands read and write."""

from __future__ import annotations

import tempfile
import zipfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import elldict
from elldict.atomic import refuse_special
from elldict.cli.messages import Mistake


def check_output(path: Path, inputs: Iterable[Path | None], *, force: bool) -> None:
    """Raise what would otherwise be found out after the work is done."""
    if not path.parent.is_dir():
        raise Mistake(f"the folder {path.parent} of the output does not exist. Create it first.")
    if any(given is not None and is_same(path, given) for given in inputs):
        raise Mistake(f"output {path} is also an input. Choose another name.")
    if path.exists() and not path.is_file():
        raise Mistake(f"output {path} is not a regular file. Choose another name.")
    if path.exists() and not force:
        raise Mistake(f"output {path} exists. Overwrite it with --force, or choose another name.")
    try:
        tempfile.TemporaryFile(dir=path.parent).close()  # permissions, quotas and read-only disks all have a say
    except OSError as error:
        raise Mistake(f"output {path} cannot be written: {error.strerror}.") from error


def is_same(path: Path, given: Path) -> bool:
    """Return whether an input is this file, or an array in it."""
    file = given if given.exists() else Path(str(given).rpartition(":")[0])
    return path.exists() and file.exists() and path.samefile(file)


def open_data(path: Path, columns: Sequence[str] | None) -> Any:
    """Open samples, which stay on disk."""
    return elldict.open_samples(path, column=columns[0] if columns and len(columns) == 1 else columns or None)


def read_version(path: Path) -> str:
    """Read the version of elldict that has written a model."""
    from elldict.archive import read_header  # noqa: PLC0415

    with zipfile.ZipFile(path) as archive:
        return str(read_header(archive)["elldict"])


def read_groups(groups: str | None, data: Path, columns: list[str] | None) -> tuple[Any, list[str] | None]:
    """Read the labels of samples from a file, or from a column of the data; return them and the columns to use."""
    import numpy as np  # noqa: PLC0415

    if groups is None:
        return None, columns
    path = Path(groups)
    if not path.exists():
        labels, others = read_column(data, groups)
        return labels, columns or others
    refuse_special(path)
    try:
        if path.suffix.lower() == ".npy":
            return np.load(path, allow_pickle=False), columns
        return np.array([line.strip() for line in path.read_text("utf-8").rstrip().split("\n")]), columns
    except ValueError as error:
        raise Mistake(f"--groups {path}: {error}.") from error


def read_column(data: Path, name: str) -> tuple[Any, list[str]]:
    """Read a column of a table; return it and the names of the others."""
    from elldict.samples.formats import import_optional  # noqa: PLC0415
    from elldict.samples.open import TABLES  # noqa: PLC0415
    from elldict.samples.tables import DELIMITERS, find_delimiter, open_part  # noqa: PLC0415

    suffix = data.suffix.lower()
    names = open_part(data).schema.names if suffix in TABLES else []
    if name not in names:
        raise Mistake(f"--groups {name}: there is no such file, and no such column in {data}.")
    kind: Any = suffix.removeprefix(".")
    if suffix in DELIMITERS:
        options = import_optional("pyarrow.csv").ParseOptions(delimiter=find_delimiter(data))
        kind = import_optional("pyarrow.dataset").CsvFileFormat(parse_options=options)
    column = import_optional("pyarrow.dataset").dataset(data, format=kind).to_table([name])[name]
    if column.null_count:
        raise Mistake(f"{data}: column {name!r} has no group for {column.null_count} of the samples.")
    return column.to_numpy(), [other for other in names if other != name]


def write_components(model: Any, path: Path) -> None:
    """Write the components (m, n) as rows."""
    from elldict.samples import output  # noqa: PLC0415

    components = model.mixing_.T
    output.check_output(path, components)
    with output.open_output(path, components.shape, str(components.dtype), model._feature_names) as append:
        append(components)
