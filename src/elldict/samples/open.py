"""One way to samples from whatever users pass: a file, a table, an object that is read by slices, or an array."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from array_api_compat import is_cupy_array, is_torch_array

from elldict.atomic import refuse_special
from elldict.exceptions import SamplesFileError
from elldict.samples import formats
from elldict.samples.arrays import ArraySamples
from elldict.samples.base import Samples, Weights
from elldict.samples.dask import is_dask, open_dask
from elldict.samples.files import Column, FileSamples
from elldict.samples.tables import DELIMITERS, open_table

__all__ = ["open_samples"]

Open = Callable[[Path, Column], FileSamples]

TABLES = (*DELIMITERS, ".parquet", ".feather", ".arrow")
"""Suffixes of tables."""

BY_CONTENT: dict[bytes, Open] = {
    b"\x93NUMPY": formats.open_npy,
    b"PK\x03\x04": formats.open_npz,
    b"\x89HDF\r\n\x1a\n": formats.open_hdf5,
    b"MATLAB 7.3 MAT-file": partial(formats.open_hdf5, is_matlab=True),
    b"PAR1": open_table,
    b"ARROW1": open_table,
}
"""What opens files that begin with certain bytes."""

BY_SUFFIX: dict[str, Open] = {
    **dict.fromkeys(DELIMITERS, open_table),
    ".txt": formats.open_text,
    ".mat": formats.open_mat,
    ".safetensors": formats.open_safetensors,
}
"""What opens other files, by suffix."""

KNOWN = ".npy, .npz, .csv, .tsv, .txt, .parquet, .feather, .arrow, .h5 or .hdf5, .zarr, .mat, .safetensors"
"""Formats, for messages."""


def open_samples(source: Any, *, column: str | Sequence[str] | None = None, device: str | None = None) -> FileSamples:
    """Open samples that are stored in files, for estimators.

    Estimators accept names of files as well. Opening them first selects columns, and saves time if samples are used
    more than once.

    Parameters
    ----------
    source : str, path-like, sequence of these, or array-like
        File with one sample per row: .npy, .npz, .csv, .tsv, .txt (numbers separated by white space), .parquet,
        .feather, .arrow, HDF5, zarr, .mat or .safetensors. ``file.npz:NAME`` is one of several arrays. A folder or a
        sequence of tables with the same columns is a single table. Also an object that is read by slices and has a
        shape and dtype, such as a dataset of h5py, an array of zarr or a memory map.
    column : str or sequence of str, default=None
        Columns of a table to read, in this order; a column of lists holds one sample per list. For a file of arrays,
        the name of the array. None: all columns, or the only matrix.
    device : str, default=None
        Device of torch that fits move the samples to, such as 'cuda', where most is then computed. Samples that take up
        more than a quarter of its free memory are moved in every pass. None: the CPU, without torch.

    Returns
    -------
    FileSamples
        Samples with `n_samples`, `n_features`, `dtype`, `feature_names` (None if there are none) and `source`, which
        estimators take in place of X.

    Raises
    ------
    SamplesFileError
        If a file is damaged, or does not hold numbers. It is a ValueError.

    Warns
    -----
    ConvertedFileWarning
        If a large table is converted to a temporary file, since a fit reads it many times.

    Examples
    --------
    >>> import os, tempfile
    >>> import numpy as np
    >>> from elldict.datasets import make_bernoulli_gaussian
    >>> from elldict import LpDictionaryLearning, open_samples
    >>> X, _, _ = make_bernoulli_gaussian(2000, 8, density=0.3, random_state=0)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     np.save(os.path.join(folder, "samples.npy"), X)
    ...     samples = open_samples(os.path.join(folder, "samples.npy"))
    ...     model = LpDictionaryLearning().fit(samples)
    >>> samples.n_samples, samples.n_features
    (2000, 8)
    >>> bool((model.components_ == LpDictionaryLearning().fit(X).components_).all())
    True
    """
    samples = source if isinstance(source, FileSamples) else open_any(source, column)
    if device is None:
        return samples
    from elldict.gpu.samples import place  # noqa: PLC0415  optional

    return place(samples, device)


def open_any(source: Any, column: str | Sequence[str] | None) -> FileSamples:
    """Open files, or an object that is read by slices."""
    if isinstance(source, (str, os.PathLike)):
        return open_path(Path(source), column)
    if isinstance(source, (list, tuple)) and source and all(isinstance(part, (str, os.PathLike)) for part in source):
        return open_tables([Path(part) for part in source], column)
    if column is not None:
        raise ValueError(f"column={column!r} selects from files. Got a {type(source).__name__} instead.")
    is_array = all(hasattr(source, name) for name in ("shape", "dtype", "__getitem__"))
    if not is_array or is_torch_array(source) or is_cupy_array(source):  # these are fitted where they are
        raise TypeError(
            f"Expected the name of a file, or an array that is read by slices into NumPy. Got {source!r:.100} instead."
        )
    if is_of("zarr", source):
        folder = getattr(source.store, "root", None)
        origins = [] if folder is None else [Path(folder) / source.path]
        return formats.wrap_zarr(source, str(source.store_path), origins)
    if is_of("h5py", source):
        return FileSamples(source, f"{source.file.filename}:{source.name}", [Path(source.file.filename)])
    return FileSamples(source, f"a {type(source).__name__}", is_copy=True)


def open_source(X: Any, n_threads: int = 1, weights: Weights = None) -> Samples:
    """Return samples that have been checked, with weights, as blocks that are visited by several threads."""
    if isinstance(X, np.ndarray):
        return ArraySamples(X, n_threads, weights)
    if is_dask(X):
        return open_dask(X, n_threads, weights)
    if is_on_gpu(X) or (isinstance(X, FileSamples) and X.device is not None):
        from elldict.gpu.samples import open_on_device  # noqa: PLC0415  optional

        return open_on_device(X, weights)
    if isinstance(X, FileSamples):
        return X.bind(n_threads, weights)
    return ArraySamples(X, n_threads, weights)


def is_on_gpu(X: Any) -> bool:
    """Return whether X is a tensor of torch, or an array of CuPy, in the memory of a GPU."""
    if is_cupy_array(X):
        return find_spec("torch") is not None  # otherwise, blocks are copied to the CPU
    return is_torch_array(X) and X.device.type == "cuda"


def is_stored(X: Any) -> bool:
    """Return whether X is opened by `open_samples` rather than an array: a name, or an object of h5py or zarr."""
    return isinstance(X, (str, os.PathLike, FileSamples)) or is_of("h5py", X) or is_of("zarr", X)


def is_of(library: str, X: Any) -> bool:
    """Return whether X is an object of a library, which is not imported to find out."""
    return type(X).__module__.partition(".")[0] == library


def open_path(given: Path, column: Column) -> FileSamples:
    """Open a file or folder, or an array whose name follows a colon."""
    path, name = split_name(given)
    if name is not None and column is not None:
        raise ValueError(f"{given} names the array {name!r}, and column={column!r} another one. Omit one of them.")
    column = column if name is None else name
    if not path.is_dir():
        return open_file(path, column)
    if any((path / known).exists() for known in ("zarr.json", ".zarray", ".zgroup")):
        return formats.open_zarr(path, column)
    found = sorted(part for part in path.iterdir() if part.suffix.lower() in TABLES)
    if not found:
        raise SamplesFileError(f"{path} is a folder without tables: {', '.join(TABLES)}.")
    return open_tables(found, column)


def split_name(path: Path) -> tuple[Path, str | None]:
    """Split ``file.h5:group/data`` into a file that exists and the name of an array in it."""
    file, _, name = str(path).rpartition(":")
    if file and name and not path.exists() and Path(file).exists():
        return Path(file), name
    return path, None


def open_tables(paths: Sequence[Path], column: Column) -> FileSamples:
    """Open tables of one format."""
    for path in paths:
        refuse_special(path)
    if len({path.suffix.lower() for path in paths}) > 1 or paths[0].suffix.lower() not in TABLES:
        raise SamplesFileError(
            f"{paths[0]} and others: several files are read together if all are tables of one format "
            f"({', '.join(TABLES)}). Join arrays into one file, or pass the files that belong together."
        )
    return open_table(paths[0], column, *paths[1:])


def open_file(path: Path, column: Column) -> FileSamples:
    """Open a file, whose format is known by its first bytes or its suffix."""
    refuse_special(path)  # a pipe would wait for somebody to write
    with path.open("rb") as stream:
        first = stream.read(max(map(len, BY_CONTENT)))
    known = [open_format for start, open_format in BY_CONTENT.items() if first.startswith(start)]
    open_format = known[0] if known else BY_SUFFIX.get(path.suffix.lower())
    if open_format is None:
        found = "not a file of samples, or damaged" if first else "empty"
        raise SamplesFileError(f"{path} is {found}. Expected one of {KNOWN}.")
    return open_format(path, column)
