"""Opening: from whatever holds samples to `Dataset`."""

from __future__ import annotations

import importlib
import os
from collections.abc import Sequence
from numbers import Integral
from pathlib import Path
from typing import Any

import numpy as np

from elldict.atomic import refuse_special
from elldict.backend.base import detach, is_foreign
from elldict.data import npy, parquet, zarr
from elldict.data.dataset import ArrayDataset, Dataset
from elldict.data.file import FileDataset, Reader, import_optional
from elldict.exceptions import SamplesFileError


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
    source : str, path-like, array or Dataset
        A ``.npy`` file, a zarr array or group, a parquet file or a folder of them, by name; an open `numpy.memmap`,
        zarr or dask array; or an array in memory.
    column : str or sequence of str, default=None
        Of a parquet file: the column that holds a sample as a list of numbers, or the columns that are the features.
        Of a zarr group: the array.
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
        cluster = importlib.import_module("elldict.data.dask")
        samples: Dataset = cluster.make_dask_dataset(source if reader is None else reader, client, block_size)
        return samples
    if reader is not None:
        return FileDataset(reader, block_size)
    if is_dataset(source):
        return source  # type: ignore[no-any-return]
    if is_foreign(source) or isinstance(source, np.ndarray):
        return ArrayDataset(detach(source))
    raise TypeError(
        f"Samples cannot be opened from a {type(source).__name__}, expected the name of a .npy, zarr or parquet file, "
        "or an array."
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
        return _open_file(Path(source), column)
    if zarr.is_zarr(source):
        return zarr.open_zarr(source, _check_one_name(column))
    if column is not None:
        raise ValueError(f"column={column!r} was given, and a {type(source).__name__} has no columns to choose from.")
    if isinstance(source, np.memmap):
        return npy.open_memmap(source)
    return None


def _open_file(path: Path, column: str | Sequence[str] | None) -> Reader:
    """Reader by what the file is, not by what it is called."""
    if path.is_dir():
        if any((path / name).is_file() for name in zarr.METADATA):
            return zarr.open_zarr(path, _check_one_name(column))
        return parquet.open_parquet(path, column)
    refuse_special(path)  # a pipe would wait for somebody to write
    with path.open("rb") as stream:
        magic = stream.read(len(npy.MAGIC))
    if magic.startswith(parquet.MAGIC):
        return parquet.open_parquet(path, column)
    if magic != npy.MAGIC:
        found = "is not a .npy file, a zarr array or a parquet file. Write one, for example with numpy.save."
        if not magic:
            found = "is empty: it is not a .npy file, a zarr array or a parquet file."
        elif magic.startswith(b"PK"):
            found = "is an archive (.npz?), expected one array. Write it with numpy.save."
        raise SamplesFileError(f"{path} {found}")
    if column is not None:
        raise ValueError(f"column={column!r} was given, and {path} is a .npy file, which has no columns.")
    return npy.open_npy(path)


def _check_one_name(column: str | Sequence[str] | None) -> str | None:
    if column is None or isinstance(column, str):
        return column
    raise ValueError(f"column={column!r}: expected the name of one array of a zarr group.")
