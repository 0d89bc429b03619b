"""Samples on a dask cluster: dask arrays, and files that all workers can read."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, Protocol

try:
    import dask
    import dask.array
except ModuleNotFoundError as error:
    raise ImportError(f"Samples on a cluster need dask ({error}): pip install 'elldict[dask]'") from error
import numpy as np
from numpy.typing import NDArray

from elldict.backend.base import NUMPY, Array, Backend
from elldict.data.dask_tasks import (
    Coding,
    Engine,
    Graph,
    Grid,
    Job,
    LocalEngine,
    Plan,
    code_chunk,
    code_read,
    finish,
    join,
    new_name,
    root_of,
    stack,
    sum_chunks,
    sum_read,
    take_rows,
    tree,
    unpacked,
    unpacked_coding,
)
from elldict.data.dataset import Kernel, Locatable, RowWriter, S, rows_per_tile, sampled_ranges, started_digest
from elldict.data.file import Reader

TASKS_PER_THREAD = 4
"""Of a pass over a file: enough that a slow worker does not keep the others waiting."""

BLOCK_BYTES = 2**25
"""Samples of a file that are read at a time, and of small chunks that make a task: a few tiles at least."""


class Source(Locatable, Protocol):
    """Samples, seen by those who make tasks of them."""

    @property
    def n_samples(self) -> int: ...  # noqa: D102
    @property
    def n_features(self) -> int: ...  # noqa: D102
    @property
    def dtype(self) -> str: ...  # noqa: D102

    @property
    def path(self) -> str:
        """File or folder; empty if there is none."""
        ...

    @property
    def feature_names(self) -> tuple[str, ...] | None:
        """Names of the features, if there are any."""
        ...

    @property
    def dependencies(self) -> Sequence[Any]:
        """Collections whose keys the tasks refer to."""
        ...

    def job(self, kernel: Kernel[S], grid: Grid) -> Job[S]:
        """All that the tasks of a pass need to know."""
        ...

    def stretches(self, job: str, name: str, grid: Grid, engine: Engine) -> Graph:
        """Tasks that add up one stretch each, in order, given the key of the job."""
        ...

    def take(self, index: NDArray[np.int64], engine: Engine) -> NDArray[Any]:
        """Some samples, by sorted index."""
        ...

    def mapped(self, kernel: Kernel[Array], grid: Grid, n_columns: int) -> Any:
        """Lazy dask array with what the kernel makes of every sample."""
        ...

    def check_unchanged(self) -> None:
        """Raise if the samples are no longer what they were."""
        ...


@dataclass(frozen=True)
class Layout:
    """Where the chunks of an array begin."""

    starts: NDArray[np.int64]  # and the number of samples at the end

    @classmethod
    def of(cls, X: Any) -> Layout:
        """Layout of an array."""
        return cls(np.concatenate([[0], np.cumsum(X.chunks[0])]).astype(np.int64))

    def split_runs(self, rows: int) -> list[tuple[int, list[int]]]:
        """Start and chunks of each task: one chunk, or as many small ones as have so many rows together."""
        found: list[tuple[int, list[int]]] = []
        room = 0
        for chunk, size in enumerate(np.diff(self.starts).tolist()):
            if size > room or not found:
                found.append((int(self.starts[chunk]), []))
                room = rows
            found[-1][1].append(chunk)
            room -= size
        return found

    def whiten(self, index: NDArray[np.int64]) -> list[tuple[int, int, NDArray[np.int64]]]:
        """For each chunk that holds some of the sorted indices: its number, its start, and where they are in it."""
        cuts = np.searchsorted(index, self.starts)
        return [
            (chunk, int(start), index[a:b] - start)
            for chunk, (start, a, b) in enumerate(zip(self.starts[:-1], cuts[:-1], cuts[1:], strict=True))
            if b > a
        ]

    def locate(self, sample: int) -> str:
        """Chunk of a sample."""
        chunk = int(np.searchsorted(self.starts, sample, side="right")) - 1
        return f"row {sample - int(self.starts[chunk])} of chunk {chunk}, X.blocks[{chunk}]"


@dataclass(frozen=True)
class Chunks:
    """Chunks of a dask array, each with all features."""

    X: Any
    block_size: int | None = None  # samples in small chunks that make one task

    path: str = ""
    feature_names: None = None

    @classmethod
    def of(cls, X: Any, block_size: int | None) -> Chunks:
        """Chunks of an array; refuses one that cannot hold samples."""
        if X.ndim != 2:
            raise ValueError(f"Expected a 2D array (n_samples, n_features), got {X.ndim}D with shape {X.shape}.")
        if X.dtype.kind == "c":
            raise ValueError(f"Complex data not supported: X has dtype {X.dtype}.")
        if X.dtype.kind not in "fiub":
            raise ValueError(f"X has dtype {X.dtype}, expected real numbers.")
        if any(np.isnan(size) for sizes in X.chunks for size in sizes):
            raise ValueError(
                "X is a dask array with chunks of unknown size. Call X.compute_chunk_sizes() first: it takes one look "
                "at all of them."
            )
        whole = X.rechunk({1: -1}) if X.numblocks[1] > 1 else X
        return cls(_optimized(whole), block_size)

    @property
    def n_samples(self) -> int:
        """Number of rows."""
        return int(self.X.shape[0])

    @property
    def n_features(self) -> int:
        """Number of columns."""
        return int(self.X.shape[1])

    @property
    def dtype(self) -> str:
        """Precision of the tiles."""
        return "float32" if self.X.dtype == np.float32 else "float64"

    @property
    def dependencies(self) -> Sequence[Any]:
        """The array."""
        return (self.X,)

    @cached_property
    def layout(self) -> Layout:
        """Where chunks begin."""
        return Layout.of(self.X)

    def job(self, kernel: Kernel[S], grid: Grid) -> Job[S]:
        """Kernel and tiles; samples come as chunks."""
        return Job(kernel, grid)

    def stretches(self, job: str, name: str, grid: Grid, engine: Engine) -> Graph:  # noqa: ARG002
        """One task a chunk, for that is where the samples are; small chunks go together."""
        rows = self.block_size or BLOCK_BYTES // (self.n_features * self.X.dtype.itemsize)
        return {
            (name, 0, number): (sum_chunks, job, start, [(self.X.name, k, 0) for k in chunks])
            for number, (start, chunks) in enumerate(self.layout.split_runs(rows))
        }

    def take(self, index: NDArray[np.int64], engine: Engine) -> NDArray[Any]:
        """Picked where the chunks are; chunks that hold none of the rows are not computed."""
        if len(index) == 0:
            return np.empty((0, self.n_features))

        def plan() -> Plan:
            name = new_name("rows")
            tasks: Graph = {
                (name, 0, number): (take_rows, (self.X.name, chunk, 0), local, start)
                for number, (chunk, start, local) in enumerate(self.layout.whiten(index))
            }
            tasks = tree(tasks, name, lambda keys: (stack, keys), lambda keys: (stack, keys))
            return Plan(name, tasks, self.dependencies)

        picked: NDArray[Any] = engine.result(plan)
        return picked

    def mapped(self, kernel: Kernel[Array], grid: Grid, n_columns: int) -> Any:
        """Chunks as those of the array."""
        coding = Coding(kernel, grid.dtype, grid.tile_rows, self.layout)
        return self.X.map_blocks(
            code_chunk,
            coding=_travelling(coding),
            dtype=coding.dtype,
            chunks=(self.X.chunks[0], (n_columns,)),
            meta=np.empty((0, 0), coding.dtype),
        )

    def locate(self, sample: int) -> str:
        """Chunk of a sample."""
        return self.layout.locate(sample)

    def check_unchanged(self) -> None:
        """Nothing: what is computed again is what its source is, and dask cannot tell whether that has changed."""


@dataclass(frozen=True)
class Blocks:
    """Blocks of a file."""

    reader: Reader
    block_size: int | None = None  # samples read at a time, rounded up to whole tiles

    @property
    def n_samples(self) -> int:
        """Number of rows."""
        return self.reader.n_samples

    @property
    def n_features(self) -> int:
        """Number of columns."""
        return self.reader.n_features

    @property
    def dtype(self) -> str:
        """Precision of the tiles."""
        return self.reader.dtype

    @property
    def path(self) -> str:
        """File or folder."""
        return self.reader.path

    @property
    def feature_names(self) -> tuple[str, ...] | None:
        """Names of the features, if the file has them."""
        return self.reader.feature_names

    @property
    def dependencies(self) -> Sequence[Any]:
        """None: each task reads for itself."""
        return ()

    def job(self, kernel: Kernel[S], grid: Grid) -> Job[S]:
        """Kernel, tiles, and how to read."""
        return Job(kernel, grid, self.reader, self._block_rows(grid))

    def stretches(self, job: str, name: str, grid: Grid, engine: Engine) -> Graph:
        """A few tasks a thread, each a whole node of the tree: one sum is all that is left of it."""
        n_tiles = -(-grid.n_samples // grid.tile_rows)
        tiles = 2 ** max(0, (n_tiles // (TASKS_PER_THREAD * engine.n_threads)).bit_length() - 1)
        starts = range(0, grid.n_samples, tiles * grid.tile_rows)
        return {
            (name, 0, number): (sum_read, job, start, min(start + starts.step, grid.n_samples))
            for number, start in enumerate(starts)
        }

    def take(self, index: NDArray[np.int64], engine: Engine) -> NDArray[Any]:  # noqa: ARG002
        """Read here: this process has opened the file."""
        return self.reader.take(index)

    def mapped(self, kernel: Kernel[Array], grid: Grid, n_columns: int) -> Any:
        """A chunk for each block that is read."""
        rows = self._block_rows(grid)
        sizes = tuple(min(rows, self.n_samples - start) for start in range(0, self.n_samples, rows))
        coding = Coding(kernel, grid.dtype, grid.tile_rows, self.reader)
        return dask.array.map_blocks(
            code_read,
            coding=_travelling(coding),
            reader=self.reader,
            dtype=coding.dtype,
            chunks=(sizes, (n_columns,)),
            meta=np.empty((0, 0), coding.dtype),
        )

    def locate(self, sample: int) -> str:
        """Place in the file."""
        return self.reader.locate(sample)

    def check_unchanged(self) -> None:
        """Raise if the file is no longer the one that was opened."""
        self.reader.check_unchanged()

    def _block_rows(self, grid: Grid) -> int:
        wanted = self.block_size or BLOCK_BYTES // (self.n_features * np.dtype(self.dtype).itemsize)
        return grid.tile_rows * -(-min(wanted, self.n_samples) // grid.tile_rows)


def _optimized(X: Any) -> Any:
    """The array with its graph made ready once, not in each pass; one that holds futures as it is.

    Dask drops them on the way, and with the last reference to a future its chunk is gone from the cluster.
    """
    distributed = sys.modules.get("distributed")
    if distributed is not None and distributed.futures_of(X):
        return X
    return dask.optimize(X)[0]


def _travelling(coding: Coding) -> Any:
    """A coding as a task of its own, so that it goes once to each worker, not once with each chunk."""
    return dask.delayed(unpacked_coding, pure=True)(coding.packed())


WRITTEN_BYTES = 2**26
"""Of codes that come here at a time, on their way to a file."""

PATIENCE = 120.0
"""Seconds that a cluster may be without a worker that takes tasks, or its scheduler without an answer."""


def make_dask_dataset(
    source: Any, client: Any = None, block_size: int | None = None, *, patience: float = PATIENCE
) -> DaskDataset:
    """Samples that the workers of a cluster, or the threads of this process, look at.

    Parameters
    ----------
    source : dask array of shape (n_samples, n_features), or Reader
        Where the samples are. Chunks stay on their workers if the array is persisted, otherwise they are computed
        again in each pass. A file has to be found under the same path by all workers.
    client : distributed.Client, optional
        Cluster to use; None means the current one if there is one, otherwise the threads of this process.
    block_size : int, optional
        Samples of a file that a task reads at a time, or of small chunks that one task takes together. The answer is
        the same for any number.
    patience : float, default=120
        Seconds that the cluster may be without a worker before that is an error.

    Returns
    -------
    ClusterSamples
        The samples.
    """
    opened = Chunks.of(source, block_size) if hasattr(source, "dask") else Blocks(source, block_size)
    return DaskDataset(opened, _engine(client or _current_client(), patience))


@dataclass(frozen=True)
class DaskDataset:
    """Samples of a source, looked at by an engine."""

    source: Source
    engine: Engine

    @property
    def n_samples(self) -> int:
        """Number of samples."""
        return self.source.n_samples

    @property
    def n_features(self) -> int:
        """Number of features."""
        return self.source.n_features

    @property
    def dtype(self) -> str:
        """Precision of the tiles."""
        return self.source.dtype

    @property
    def backend(self) -> Backend:
        """Workers multiply with NumPy."""
        return NUMPY

    @property
    def path(self) -> str:
        """File or folder; empty if there is none."""
        return self.source.path

    @property
    def feature_names(self) -> tuple[str, ...] | None:
        """Names of the features, if there are any."""
        return self.source.feature_names

    @cached_property
    def grid(self) -> Grid:
        """Tiles, the same as for samples in memory."""
        tile_rows = rows_per_tile(self.n_samples, self.n_features, self.dtype)
        return Grid(self.n_samples, tile_rows, self.dtype)

    def fingerprint(self) -> str:
        """Digest of shape, dtype and values: of all values up to 64 MB, of blocks spread over them beyond."""
        digest = started_digest("cluster", self.n_samples, self.n_features, self.dtype)
        row_bytes = self.n_features * (4 if self.dtype == "float32" else 8)
        ranges = [np.arange(start, stop) for start, stop in sampled_ranges(self.n_samples, row_bytes)]
        digest.update(self.take(np.unique(np.concatenate(ranges))).tobytes())
        return digest.hexdigest()

    def sum(self, kernel: Kernel[S]) -> S:
        """Add up what the kernel makes of every tile, along the tree."""
        packed = self.source.job(kernel, self.grid).packed()

        def plan() -> Plan:
            name = new_name("sum")
            job = f"{name}-job"
            tasks = self.source.stretches(job, name, self.grid, self.engine)
            tasks = tree(tasks, name, lambda keys: (join, job, keys), lambda keys: (finish, job, keys))
            return Plan(name, {job: (unpacked, packed), **tasks}, self.source.dependencies, len(packed))

        total: S = self.engine.result(plan)
        self.source.check_unchanged()
        return total

    def map_rows(self, kernel: Kernel[Array], n_columns: int) -> Any:
        """Lazy dask array with what the kernel makes of every sample; NaN is found when it is computed."""
        return self.source.mapped(kernel, self.grid, n_columns)

    def write_rows(self, kernel: Kernel[Array], writer: RowWriter) -> None:
        """Give the sink what the kernel makes of every sample, some chunks at a time.

        All of it comes to this process. To write from the workers, call `to_zarr` of what `map_rows` returns.
        """
        n_columns = int(kernel.bind(self.backend)(np.zeros((1, self.n_features), self.dtype)).shape[1])
        lazy = self.map_rows(kernel, n_columns)
        rows = WRITTEN_BYTES // (n_columns * np.dtype(self.dtype).itemsize)
        for start, chunks in Layout.of(lazy).split_runs(rows):
            writer.write(start, self.engine.result(partial(_stacked, lazy, chunks)))
        self.source.check_unchanged()

    def take(self, index: NDArray[np.int64]) -> NDArray[np.float64]:
        """Some samples, by sorted index, on the host."""
        return self.source.take(index, self.engine).astype(np.float64, copy=False)

    def locate(self, sample: int) -> str:
        """Chunk or file of a sample."""
        return self.source.locate(sample)


def _stacked(array: Any, chunks: list[int]) -> Plan:
    """Some chunks of an array, one below the other."""
    name = new_name("codes")
    tasks: Graph = {root_of(name): (stack, [(array.name, k, 0) for k in chunks])}
    return Plan(name, tasks, (array,))


def _engine(client: Any, patience: float) -> Engine:
    if client is None:
        return LocalEngine()
    if getattr(client, "asynchronous", False):
        raise ValueError("The client is asynchronous, and a fit waits for its sums: pass a synchronous Client.")
    from elldict.data.distributed import DistributedEngine  # noqa: PLC0415  (whoever has a client has distributed)

    return DistributedEngine(client, patience)


def _current_client() -> Any:
    """The client in use, if there is one; whoever made it has imported distributed."""
    distributed = sys.modules.get("distributed")
    if distributed is None:
        return None
    try:
        return distributed.default_client()
    except ValueError:
        return None
