"""Samples on a dask cluster: dask arrays, and files that all workers can read."""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import pairwise
from typing import Any

try:
    import dask
    import dask.array
except ModuleNotFoundError as error:
    raise ImportError(
        f"Samples on a cluster need dask ({error}): pip install '.[dask]' in a clone of elldict"
    ) from error
import numpy as np
from numpy.typing import NDArray

from elldict._old.backend.base import NUMPY, Array, Backend, name_precision
from elldict._old.data import dask_tasks as tasks
from elldict._old.data.dask_tasks import Coding, Engine, Graph, Grid, Job, Plan, make_name
from elldict._old.data.dataset import (
    DescribedBySource,
    Kernel,
    RowWriter,
    S,
    choose_digest_ranges,
    count_row_bytes,
    rows_per_tile,
    start_digest,
)
from elldict._old.data.file import Reader

TASKS_PER_THREAD = 4
"""Tasks of a pass over a file, for each thread: enough that a slow worker does not keep the others waiting."""

BLOCK_BYTES = 2**25
"""Bytes of a file that are read at a time, and of small chunks that make a task: a few tiles at least."""

WRITTEN_BYTES = 2**26
"""Bytes of codes that come to this process at a time, on their way to a file."""

STACK = (np.concatenate,)
"""Task that puts rows of several chunks one below the other, given their keys."""


def make_dask_dataset(
    source: Any, client: Any = None, block_size: int | None = None, *, patience: float = 120.0
) -> DaskDataset:
    """Samples that the workers of a cluster, or the threads of this process if there is none, look at.

    `source` is a dask array of shape (n_samples, n_features), or a reader. Chunks stay on their workers if the array is
    persisted, otherwise they are computed again in each pass; a file has to be found under the same path by all
    workers. `block_size` are the samples of a file that a task reads at a time, or of small chunks that it takes
    together: the answer is the same for any number. `patience` are the seconds that the cluster may be without a worker
    that takes tasks, or its scheduler without an answer, before that is an error.
    """
    engine = _choose_engine(client, patience)
    if hasattr(source, "dask"):
        return ChunkDataset(_prepare_array(source), engine, block_size)
    return ReaderDataset(source, engine, block_size)


@dataclass(frozen=True)
class DaskDataset(DescribedBySource, ABC):
    """Samples that an engine looks at; what depends on where they are is left to the two kinds below."""

    source: Any
    engine: Engine
    block_size: int | None = None  # samples that a task reads at a time, or of small chunks that it takes together
    backend: Backend = NUMPY  # with which workers multiply

    @cached_property
    def grid(self) -> Grid:
        """Tiles, the same as for samples in memory."""
        tile_rows = rows_per_tile(self.n_samples, self.n_features, self.dtype)
        return Grid(self.n_samples, tile_rows, self.dtype)

    def fingerprint(self) -> str:
        """Digest of shape, dtype and values: of all values up to 64 MB, of blocks spread over them beyond."""
        digest = start_digest("cluster", self.n_samples, self.n_features, self.dtype)
        ranges = [np.arange(*bounds) for bounds in choose_digest_ranges(self.n_samples, count_row_bytes(self))]
        digest.update(self.take(np.unique(np.concatenate(ranges))).tobytes())
        return digest.hexdigest()

    def sum(self, kernel: Kernel[S]) -> S:
        """Add up what the kernel makes of every tile, by the same tree as in memory."""
        packed = tasks.pack(self._make_job(kernel))

        def plan() -> Plan:
            name = make_name("sum")
            job = f"{name}-job"
            graph = tasks.add_joins(self._make_tasks(job, name), name, (tasks.join, job), (tasks.finish, job))
            arrays = [self.source] if hasattr(self.source, "dask") else []
            return Plan(name, {job: (tasks.unpack, packed), **graph}, arrays, len(packed))

        total: S = self.engine.result(plan)
        self._check_unchanged()
        return total

    @abstractmethod
    def map_rows(self, kernel: Kernel[Array], n_columns: int) -> Any:
        """Lazy dask array with what the kernel makes of every sample; NaN is found when it is computed."""

    def write_rows(self, kernel: Kernel[Array], writer: RowWriter) -> None:
        """Give the writer what the kernel makes of every sample, some chunks at a time.

        All of it comes to this process. To write from the workers, call `to_zarr` of what `map_rows` returns.
        """
        n_columns = int(kernel.bind(self.backend)(np.zeros((1, self.n_features), self.dtype)).shape[1])
        lazy = self.map_rows(kernel, n_columns)
        rows = WRITTEN_BYTES // (n_columns * np.dtype(self.dtype).itemsize)

        def plan(chunks: list[int]) -> Plan:
            name = make_name("codes")
            return Plan(name, {tasks.name_root(name): (*STACK, [(lazy.name, k, 0) for k in chunks])}, (lazy,))

        for start, chunks in Layout.of(lazy).group_chunks(rows):
            writer.write(start, self.engine.result(partial(plan, chunks)))
        self._check_unchanged()

    @abstractmethod
    def take(self, index: NDArray[np.int64]) -> NDArray[np.float64]:
        """Some samples, by sorted index, on the host."""

    def _make_job(self, kernel: Kernel[S]) -> Job[S]:
        """All that the tasks of a pass need to know."""
        return Job(kernel, self.grid)

    @abstractmethod
    def _make_tasks(self, job: str, name: str) -> Graph:
        """Tasks that add up one stretch each, in order, given the key of the job."""

    def _check_unchanged(self) -> None:  # of an array, nothing is known
        """Raise if the samples are no longer what they were."""


@dataclass(frozen=True)
class Layout:
    """Where the chunks of an array begin."""

    starts: NDArray[np.int64]  # and the number of samples at the end

    @classmethod
    def of(cls, X: Any) -> Layout:
        """Layout of an array."""
        return cls(np.concatenate([[0], np.cumsum(X.chunks[0])]).astype(np.int64))

    def group_chunks(self, rows: int) -> list[tuple[int, list[int]]]:
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

    def locate(self, sample: int) -> str:
        """Chunk of a sample."""
        chunk = int(np.searchsorted(self.starts, sample, side="right")) - 1
        return f"row {sample - int(self.starts[chunk])} of chunk {chunk}, X.blocks[{chunk}]"


@dataclass(frozen=True)
class ChunkDataset(DaskDataset):
    """Chunks of a dask array, each with all features. Dask cannot tell whether what they are read from has changed."""

    @property
    def n_samples(self) -> int:
        """Number of rows."""
        return int(self.source.shape[0])

    @property
    def n_features(self) -> int:
        """Number of columns."""
        return int(self.source.shape[1])

    @property
    def dtype(self) -> str:
        """Precision of the tiles."""
        return name_precision(self.source.dtype)

    @cached_property
    def layout(self) -> Layout:
        """Where chunks begin."""
        return Layout.of(self.source)

    def take(self, index: NDArray[np.int64]) -> NDArray[np.float64]:
        """Picked where the chunks are; chunks that hold none of the rows are not computed."""
        if len(index) == 0:
            return np.empty((0, self.n_features))

        def plan() -> Plan:
            name = make_name("rows")
            starts = self.layout.starts
            cuts = np.searchsorted(index, starts)
            graph: Graph = {
                (name, 0, chunk): (tasks.take_rows, (self.source.name, chunk, 0), index[a:b], int(starts[chunk]))
                for chunk, (a, b) in enumerate(pairwise(cuts))
                if b > a
            }
            return Plan(name, tasks.add_joins(graph, name, STACK, STACK), [self.source])

        picked: NDArray[Any] = self.engine.result(plan)
        return picked.astype(np.float64, copy=False)

    def map_rows(self, kernel: Kernel[Array], n_columns: int) -> Any:
        """Lazy dask array, with chunks as those of the samples; NaN is found when it is computed."""
        coding = Coding(kernel, self.dtype, self.grid.tile_rows, self.layout)
        chunks = (self.source.chunks[0], (n_columns,))
        return self.source.map_blocks(tasks.code_chunk, **_describe_blocks(coding, chunks))

    def locate(self, sample: int) -> str:
        """Chunk of a sample."""
        return self.layout.locate(sample)

    def _make_tasks(self, job: str, name: str) -> Graph:
        """One task a chunk, for that is where the samples are; small chunks go together."""
        rows = self.block_size or BLOCK_BYTES // (self.n_features * self.source.dtype.itemsize)
        return {
            (name, 0, number): (tasks.sum_chunks, job, start, [(self.source.name, k, 0) for k in chunks])
            for number, (start, chunks) in enumerate(self.layout.group_chunks(rows))
        }


@dataclass(frozen=True)
class ReaderDataset(DaskDataset):
    """Blocks of a file that each task reads for itself."""

    source: Reader

    def take(self, index: NDArray[np.int64]) -> NDArray[np.float64]:
        """Some samples, by sorted index; read here, where the file has been opened."""
        return self.source.take(index).astype(np.float64, copy=False)

    def map_rows(self, kernel: Kernel[Array], n_columns: int) -> Any:
        """Lazy dask array, a chunk for each block that is read; NaN is found when it is computed."""
        rows = self._block_rows
        sizes = tuple(min(rows, self.n_samples - start) for start in range(0, self.n_samples, rows))
        coding = Coding(kernel, self.dtype, self.grid.tile_rows, self.source)
        blocks = _describe_blocks(coding, (sizes, (n_columns,)))
        return dask.array.map_blocks(tasks.code_read, reader=self.source, **blocks)

    def _make_job(self, kernel: Kernel[S]) -> Job[S]:
        return Job(kernel, self.grid, self.source, self._block_rows)

    def _make_tasks(self, job: str, name: str) -> Graph:
        """A few tasks a thread, each a whole node of the tree: one sum is all that is left of it."""
        n_tiles = -(-self.n_samples // self.grid.tile_rows)
        tiles = 2 ** max(0, (n_tiles // (TASKS_PER_THREAD * self.engine.n_threads)).bit_length() - 1)
        starts = range(0, self.n_samples, tiles * self.grid.tile_rows)
        return {
            (name, 0, number): (tasks.sum_read, job, start, min(start + starts.step, self.n_samples))
            for number, start in enumerate(starts)
        }

    @property
    def _block_rows(self) -> int:
        wanted = self.block_size or BLOCK_BYTES // count_row_bytes(self)
        return self.grid.tile_rows * -(-min(wanted, self.n_samples) // self.grid.tile_rows)

    def _check_unchanged(self) -> None:
        self.source.check_unchanged()


def _prepare_array(X: Any) -> Any:
    """A dask array whose chunks have all features and whose graph is made ready once, not in each pass."""
    if X.ndim != 2:
        raise ValueError(f"Expected a 2D array (n_samples, n_features), got {X.ndim}D with shape {X.shape}.")
    if X.dtype.kind == "c":
        raise ValueError(f"Complex data not supported: X has dtype {X.dtype}.")
    if X.dtype.kind not in "fiub":
        raise ValueError(f"X has dtype {X.dtype}, expected real numbers.")
    if any(np.isnan(size) for sizes in X.chunks for size in sizes):
        raise ValueError(
            "X is a dask array with chunks of unknown size. Call X.compute_chunk_sizes() first: it takes one look at "
            "all of them."
        )
    X = X.rechunk({1: -1}) if X.numblocks[1] > 1 else X
    distributed = sys.modules.get("distributed")
    if distributed is not None and distributed.futures_of(X):
        return X  # dask would drop the futures, and with the last reference to one its chunk is gone from the cluster
    return dask.optimize(X)[0]


def _describe_blocks(coding: Coding, chunks: Any) -> dict[str, Any]:
    """Arguments of `map_blocks`; the coding is a task of its own, so that it goes once to each worker."""
    delayed = dask.delayed(tasks.unpack, pure=True)(tasks.pack(coding))
    return {"coding": delayed, "dtype": coding.dtype, "chunks": chunks, "meta": np.empty((0, 0), coding.dtype)}


def _choose_engine(client: Any, patience: float) -> Engine:
    """The cluster of the client given, or of the one in use: whoever made it has imported distributed."""
    distributed = sys.modules.get("distributed")
    if client is None and distributed is not None:
        with suppress(ValueError):
            client = distributed.default_client()
    if client is None:
        return Engine()
    if getattr(client, "asynchronous", False):
        raise ValueError("The client is asynchronous, and a fit waits for its sums: pass a synchronous Client.")
    from elldict._old.data.distributed import DistributedEngine  # noqa: PLC0415  (whoever has a client has distributed)

    return DistributedEngine(client, patience)
