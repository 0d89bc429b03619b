"""Opening: from whatever holds samples to `Dataset`."""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable, Sequence
from numbers import Integral
from pathlib import Path
from typing import Any

import numpy as np

from elldict._old.atomic import refuse_special
from elldict._old.backend.base import detach, is_foreign
from elldict._old.data import arrow, hdf5, joined, mat, npy, npz, parquet, safetensors, text, zarr
from elldict._old.data.dataset import ArrayDataset, Dataset
from elldict._old.data.file import FileDataset, Reader, import_optional
from elldict.exceptions import SamplesFileError

FIRST_BYTES = 1024
"""Bytes by which a file is known: the signature of HDF5 stands at byte 512 of MAT files."""

KNOWN = ".npy, .npz, .csv, .tsv, .txt, .mat, HDF5, zarr, parquet, Arrow (Feather) or safetensors"

ARRAYS: tuple[tuple[Callable[[Path, str | None], Reader], Callable[[bytes], bool]], ...] = (
    (npz.open_npz, lambda first: first.startswith(npz.MAGIC)),
    (hdf5.open_hdf5, lambda first: hdf5.SIGNATURE in (first[:8], first[512:520])),
    (mat.open_mat, mat.is_mat),
    (safetensors.open_safetensors, safetensors.is_safetensors),
)
"""What opens files that hold arrays by name, and how they begin."""


def open_samples(
    source: Any,
    *,
    column: str | Sequence[str] | None = None,
    client: Any = None,
    block_size: int | None = None,
) -> Dataset:
    """Open samples that may be larger than memory.

    What needs no options can be given to :meth:`elldict.LpDictionaryLearning.fit` as it is.

    Parameters
    ----------
    source : str, path-like, list of them, array or Dataset
        The name of a file: ``.npy``, ``.npz``, ``.csv``, ``.tsv``, ``.txt``, ``.mat``, HDF5, zarr, parquet, Arrow
        (Feather) or safetensors; one array of several is named after a colon, as in ``file.npz:X`` or
        ``file.h5:/group/x``. A folder of parquet, Arrow, safetensors or ``.npy`` files, or a list of names: their
        samples follow one another. An open `numpy.memmap`, zarr or dask array; or an array in memory.
    column : str or sequence of str, default=None
        Of a table (text, parquet, Arrow): the columns that are the features; or, of parquet and Arrow, the one that
        holds a sample as a list of numbers. Of a file that holds several arrays: the name of one.
    client : dask.distributed.Client, default=None
        Cluster whose workers read and multiply the samples.
    block_size : int, default=None
        Samples that are read at a time. None reads 16 MB, or more if there are many cores. Three blocks are in memory
        at a time; the answer is the same for any size.

    Returns
    -------
    Dataset
        What `fit`, `transform`, `score` and `score_samples` take.

    Raises
    ------
    SamplesFileError
        If the file is damaged, or holds anything but samples. It is a ValueError.

    Examples
    --------
    >>> import tempfile, numpy, elldict
    >>> X, _, _ = elldict.datasets.make_bernoulli_gaussian(2000, 8, density=0.3, random_state=0)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     numpy.save(f"{folder}/samples.npy", X)
    ...     samples = elldict.open_samples(f"{folder}/samples.npy", block_size=500)
    ...     model = elldict.LpDictionaryLearning(random_state=0).fit(samples)
    >>> bool((model.components_ == elldict.LpDictionaryLearning(random_state=0).fit(X).components_).all())
    True
    """
    if block_size is not None and (not isinstance(block_size, Integral) or block_size < 1):
        raise ValueError(f"block_size={block_size!r}, expected a number of samples, at least 1.")
    reader = find_reader(source, column)
    if client is not None or is_dask(source):
        import_optional("dask", "dask")
        cluster = importlib.import_module("elldict._old.data.dask")
        samples: Dataset = cluster.make_dask_dataset(source if reader is None else reader, client, block_size)
        return samples
    if reader is not None:
        return FileDataset(reader, block_size)
    if is_dataset(source):
        return source  # type: ignore[no-any-return]
    if is_foreign(source) or isinstance(source, np.ndarray):
        return ArrayDataset(detach(source))
    raise TypeError(
        f"Samples cannot be opened from a {type(source).__name__}, expected the name of a file ({KNOWN}), a list of "
        "names, or an array."
    )


def is_source(X: Any) -> bool:
    """Whether X is something to be opened rather than an array in memory; nothing is imported to find out."""
    if type(X) is np.ndarray:
        return False
    return isinstance(X, (str, os.PathLike, np.memmap)) or is_dataset(X) or is_dask(X) or zarr.is_zarr(X)


def is_dataset(X: Any) -> bool:
    """Whether X has been opened before."""
    return hasattr(X, "write_rows") and hasattr(X, "map_rows")


def is_dask(X: Any) -> bool:
    """Whether X is a dask array."""
    return type(X).__module__.startswith("dask.array")


def find_reader(source: Any, column: str | Sequence[str] | None) -> Reader | None:
    """Reader of a file, or None for what is in memory."""
    if isinstance(source, (str, os.PathLike)):
        return _open_path(Path(source), column)
    if isinstance(source, (list, tuple)) and source and all(isinstance(part, (str, os.PathLike)) for part in source):
        return joined.join_readers("", [_open_path(Path(part), column) for part in source])
    if zarr.is_zarr(source):
        return zarr.open_zarr(source, _check_one_name(column))
    if column is not None:
        raise ValueError(f"column={column!r} was given, and a {type(source).__name__} has no columns to choose from.")
    if isinstance(source, np.memmap):
        return npy.open_memmap(source)
    return None


def split_array_name(path: Path) -> tuple[Path, str | None]:
    """File, and the array in it that is named after a colon: ``file.npz:X``, ``file.h5:/group/x``."""
    name = str(path)
    places = [at for at, character in enumerate(name) if character == ":" and at > 0]
    if not places or path.exists():
        return path, None
    for at in reversed(places):
        if Path(name[:at]).is_file() or Path(name[:at]).is_dir():
            return Path(name[:at]), name[at + 1 :]
    return path, None


def _open_path(given: Path, column: str | Sequence[str] | None) -> Reader:
    """Reader of what a user names: a file or folder, and perhaps an array in it."""
    path, name = split_array_name(given)
    if name is not None:
        if column is not None:
            raise ValueError(f"column={column!r} was given, and {given} names {name!r} already. Leave out one of them.")
        if not name:
            raise ValueError(f"{given} ends in a colon, expected the name of an array after it.")
        column = name
    if not path.is_dir():
        return _open_file(path, column)
    if any((path / name).is_file() for name in zarr.METADATA):
        return zarr.open_zarr(path, _check_one_name(column))
    shards = joined.list_files(str(path.absolute()))
    if shards and not any(path.rglob("*.parquet")):
        return joined.join_readers(str(path.absolute()), [_open_file(Path(shard), column) for shard in shards])
    return parquet.open_parquet(path, column)


def _open_file(path: Path, column: str | Sequence[str] | None) -> Reader:
    """Reader by what the file is, not by what it is called; only a text is known by its name."""
    refuse_special(path)  # a pipe would wait for somebody to write
    with path.open("rb") as stream:
        first = stream.read(FIRST_BYTES)
    if first.startswith((parquet.MAGIC, arrow.MAGIC)):
        return parquet.open_parquet(path, column)
    for open_arrays, is_kind in ARRAYS:
        if is_kind(first):
            return open_arrays(path, _check_one_name(column))
    if first.startswith(npy.MAGIC):
        if column is not None:
            raise ValueError(f"column={column!r} was given, and {path} is a .npy file, which has no columns.")
        return npy.open_npy(path)
    if first and path.suffix.lower() in text.DELIMITERS:
        return text.open_text(path, column)
    found = f"is not a file of samples: {KNOWN}. Write one, for example with numpy.save."
    if not first:
        found = f"is empty: it is not a file of samples, {KNOWN}."
    elif first.startswith(arrow.FEATHER_1):
        found = "is Feather of version 1. Write it again, as version 2."
    raise SamplesFileError(f"{path} {found}")


def _check_one_name(column: str | Sequence[str] | None) -> str | None:
    if column is None or isinstance(column, str):
        return column
    raise ValueError(f"column={column!r}: expected the name of one array.")
