"""What one task on a worker does: read a stretch of samples and add it up, join stretches, pick rows, make codes.

Plain functions of plain values, so that they can be sent anywhere. No task holds more than the chunks it was given, or
the block that it reads, and the scratch memory of a tile.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic

import numpy as np
from numpy.typing import NDArray

from elldict.kernels.threads import one_blas_thread
from elldict.samples.base import Kernel, Placed, S, find_misfit, not_finite, tile_bounds
from elldict.samples.reader import Reader
from elldict.samples.stretch import Grid, Stretch, Stretching, travelling_bytes, whole_sum
from elldict.space import HOST, Array, to_numpy


@dataclass(frozen=True)
class Job(Generic[S]):
    """What all tasks of a pass need to know: it travels once to every worker."""

    kernel: Kernel[S]
    grid: Grid
    reader: Reader | None = None  # None if samples come as chunks
    block_rows: int = 0  # samples that a reader is asked for at a time

    def packed(self) -> bytes:
        """The job as bytes, that a graph holds like a number."""
        return pickle.dumps(self, protocol=pickle.HIGHEST_PROTOCOL)

    def __sizeof__(self) -> int:
        return travelling_bytes(self.kernel)


def unpacked(packed: bytes) -> Job[Any]:
    """The job again. A task of its own: its result stays on the worker for all tasks there."""
    job: Job[Any] = pickle.loads(packed)
    return job


def sum_chunks(job: Job[S], start: int, chunks: Sequence[Any]) -> Stretch[S]:
    """Stretch of the samples in consecutive chunks, from sample `start` on."""

    def blocks() -> Iterable[tuple[int, NDArray[Any]]]:
        begin = start
        for chunk in chunks:
            yield begin, as_samples(chunk, begin)
            begin += len(chunk)

    return _summed(job, blocks())


def sum_read(job: Job[S], start: int, stop: int) -> Stretch[S]:
    """Stretch of the samples from start to stop, read a block at a time."""
    reader = job.reader
    assert reader is not None
    bounds = ((start + a, start + b) for a, b in tile_bounds(stop - start, job.block_rows))
    return _summed(job, ((a, reader.read(a, b)) for a, b in bounds))


def join(job: Job[S], stretches: Sequence[Stretch[S]]) -> Stretch[S]:
    """Stretches that follow each other, as one."""
    with one_blas_thread():
        stretching = Stretching(job.grid, _visitor(job))
        for stretch in stretches:
            for piece in stretch:
                stretching.add(piece)
    return stretching.pieces()


def finish(job: Job[S], stretches: Sequence[Stretch[S]]) -> S:
    """Sum over all samples."""
    return whole_sum(join(job, stretches), job.grid)


def take_rows(chunk: Any, index: NDArray[np.int64], start: int) -> NDArray[Any]:
    """Some rows of a chunk."""
    return as_samples(chunk, start)[index]


def stack(parts: Sequence[NDArray[Any]]) -> NDArray[Any]:
    """Rows of several chunks, one below the other."""
    return np.concatenate(parts)


def as_samples(chunk: Any, start: int) -> NDArray[Any]:
    """A chunk as a NumPy array; `start` is the number of its first sample."""
    if np.ma.isMaskedArray(chunk) and np.ma.is_masked(chunk):
        raise ValueError(
            f"X holds masked entries in the chunk that starts at sample {start}, which cannot be left out. Impute or "
            "drop them first."
        )
    rows = to_numpy(chunk)
    if rows.ndim != 2 or rows.dtype.kind not in "fiub":
        raise ValueError(
            f"The chunk of X that starts at sample {start} is a {type(chunk).__name__} of {rows.ndim} dimensions and "
            f"dtype {rows.dtype}, expected a matrix of real numbers. Convert it with X.map_blocks."
        )
    return rows


@dataclass(frozen=True)
class Coding:
    """What is made of every sample, a row each, and where samples are found."""

    kernel: Kernel[Array]
    dtype: str
    tile_rows: int
    where: Placed

    def packed(self) -> bytes:
        """The same as bytes."""
        return pickle.dumps(self, protocol=pickle.HIGHEST_PROTOCOL)

    def of(self, Y: NDArray[Any], start: int) -> NDArray[Any]:
        """Rows for the samples Y, of which the first is number `start`."""
        with one_blas_thread():
            visit = self.kernel.bind(HOST)
            made = [visit(self._tile(Y[a:b], start + a)) for a, b in tile_bounds(max(1, len(Y)), self.tile_rows)]
        return np.concatenate(made)

    def _tile(self, Y: NDArray[Any], start: int) -> NDArray[Any]:
        tile = Y.astype(self.dtype, copy=False)
        misfit = find_misfit(tile, HOST.xp)
        if misfit is not None:
            raise not_finite(self.where, replace(misfit, sample=start + misfit.sample))
        return tile


def unpacked_coding(packed: bytes) -> Coding:
    """The coding again."""
    coding: Coding = pickle.loads(packed)
    return coding


def code_chunk(chunk: Any, coding: Coding, block_info: Any = None) -> NDArray[Any]:
    """Rows for one chunk of an array."""
    start = _start(block_info)
    return coding.of(as_samples(chunk, start), start)


def code_read(coding: Coding, reader: Reader, block_info: Any = None) -> NDArray[Any]:
    """Rows for one block of a reader."""
    start, stop = block_info[None]["array-location"][0]
    return coding.of(reader.read(start, stop), start)


def _start(block_info: Any) -> int:
    """Number of the first sample of a block, as dask tells it."""
    return int(block_info[0]["array-location"][0][0]) if block_info else 0


def _summed(job: Job[S], blocks: Iterable[tuple[int, NDArray[Any]]]) -> Stretch[S]:
    with one_blas_thread():
        stretching = Stretching(job.grid, _visitor(job))
        for start, Y in blocks:
            stretching.add_samples(start, Y)
    return stretching.pieces()


def _visitor(job: Job[S]) -> Callable[[Array], S]:
    """The kernel, bound when the first tile comes: to join whole nodes it is not needed."""
    bound: list[Callable[[Array], S]] = []

    def visit(tile: Array) -> S:
        if not bound:
            bound.append(job.kernel.bind(HOST))
        return bound[0](tile)

    return visit
