"""Samples on a cluster: dask arrays, and files that all workers can read.

A pass is a graph of few tasks. Each adds up a stretch of samples where they are; a tree of joins makes one sum of them.
What travels: the job (A, the contrast, where the file is) through the scheduler to one worker, and from there once to
each other; stretches (sums, and the rows of tiles that were cut) between workers; one sum to this process. The samples
do not.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from elldict.samples.base import Kernel, S, Sink, rows_per_tile
from elldict.samples.digest import sampled_ranges, started_digest
from elldict.samples.engine import Engine, Graph, LocalEngine, Plan, new_name, root_of, tree
from elldict.samples.sources import Blocks, Chunks, Layout, Source
from elldict.samples.stretch import Grid
from elldict.samples.tasks import finish, join, stack, unpacked
from elldict.space import HOST, Array, Space

WRITTEN_BYTES = 2**26
"""Of codes that come here at a time, on their way to a file."""

PATIENCE = 120.0
"""Seconds that a cluster may be without a worker that takes tasks, or its scheduler without an answer."""


def dask_samples(
    source: Any, client: Any = None, block_size: int | None = None, *, patience: float = PATIENCE
) -> ClusterSamples:
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
    return ClusterSamples(opened, _engine(client or _current_client(), patience))


@dataclass(frozen=True)
class ClusterSamples:
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
    def space(self) -> Space:
        """Workers multiply with NumPy."""
        return HOST

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
        digest.update(self.rows(np.unique(np.concatenate(ranges))).tobytes())
        return digest.hexdigest()

    def sum_over(self, kernel: Kernel[S]) -> S:
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

    def write_rows(self, kernel: Kernel[Array], sink: Sink) -> None:
        """Give the sink what the kernel makes of every sample, some chunks at a time.

        All of it comes to this process. To write from the workers, call `to_zarr` of what `map_rows` returns.
        """
        n_columns = int(kernel.bind(self.space)(np.zeros((1, self.n_features), self.dtype)).shape[1])
        lazy = self.map_rows(kernel, n_columns)
        rows = WRITTEN_BYTES // (n_columns * np.dtype(self.dtype).itemsize)
        for start, chunks in Layout.of(lazy).runs(rows):
            sink.write(start, self.engine.result(partial(_stacked, lazy, chunks)))
        self.source.check_unchanged()

    def rows(self, index: NDArray[np.int64]) -> NDArray[np.float64]:
        """Some samples, by sorted index, on the host."""
        return self.source.rows(index, self.engine).astype(np.float64, copy=False)

    def place(self, sample: int) -> str:
        """Chunk or file of a sample."""
        return self.source.place(sample)


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
    from elldict.samples.workers import DistributedEngine  # noqa: PLC0415  (whoever has a client has distributed)

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
