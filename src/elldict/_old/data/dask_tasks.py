"""Tasks of a pass on a cluster: partial sums of stretches of samples, joined as `tree_sum` would add them.

A stretch is what is known of consecutive samples: sums over nodes of the tree, and rows of tiles that are not whole.
"""

from __future__ import annotations

import pickle
import uuid
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache, partial
from itertools import accumulate
from typing import Any, Generic

import numpy as np
from numpy.typing import NDArray

from elldict._old.backend.base import NUMPY, Array, to_numpy
from elldict._old.backend.threads import one_blas_thread
from elldict._old.data.dataset import Kernel, Locatable, S, refuse_non_finite, tile_bounds
from elldict._old.data.file import Reader
from elldict._old.data.weights import bind_by_row

Graph = dict[Any, Any]

FAN_IN = 16
"""Results that one task puts together: a few levels of tasks, none of which waits for many."""


@dataclass(frozen=True)
class Plan:
    """Tasks to run, for the sake of one result."""

    name: str
    tasks: Graph  # a tree
    dependencies: Sequence[Any]  # collections whose keys the tasks refer to
    n_bytes: int = 0  # of what the tasks are told

    @property
    def delayed(self) -> Any:
        """The result, as dask speaks of it before it is there."""
        from dask.delayed import Delayed  # noqa: PLC0415  (other engines run these tasks without dask)
        from dask.highlevelgraph import HighLevelGraph  # noqa: PLC0415

        graph = HighLevelGraph.from_collections(self.name, self.tasks, dependencies=self.dependencies)
        return Delayed(name_root(self.name), graph, layer=self.name)


class Engine:
    """Where plans are carried out: by the threads of this process, or what else dask's configuration says."""

    @property
    def n_threads(self) -> int:
        """Tasks that run at the same time."""
        from dask.system import CPU_COUNT  # noqa: PLC0415

        return int(CPU_COUNT)

    def result(self, plan: Callable[[], Plan]) -> Any:
        """What a plan comes to. It is drawn up again, under another name, for each attempt."""
        return plan().delayed.compute()


def make_name(what: str) -> str:
    """Name of the tasks of a pass, on dask's dashboard too; never given twice."""
    return f"elldict-{what}-{uuid.uuid4().hex}"


def add_joins(tasks: Graph, name: str, join_some: tuple[Any, ...], join_last: tuple[Any, ...]) -> Graph:
    """Tasks, and those that put neighbours together until one is left, which has the key `name_root(name)`.

    A task to join is a function and its arguments, but for the last: the keys of the neighbours.
    """
    graph, keys, level = dict(tasks), list(tasks), 0
    while len(keys) > FAN_IN:
        level += 1
        groups = [keys[k : k + FAN_IN] for k in range(0, len(keys), FAN_IN)]
        keys = [(name, level, number) for number in range(len(groups))]
        graph.update({key: (*join_some, group) for key, group in zip(keys, groups, strict=True)})
    return {**graph, name_root(name): (*join_last, keys)}


def name_root(name: str) -> Hashable:
    """Key of the task whose result is that of the whole tree."""
    return f"{name}-root"


@dataclass(frozen=True)
class Grid:
    """Where tiles begin and end."""

    n_samples: int
    tile_rows: int
    dtype: str  # in which tiles are multiplied

    def find_stop(self, start: int) -> int:
        """End of the tile that holds sample `start`."""
        return min(start - start % self.tile_rows + self.tile_rows, self.n_samples)


@dataclass(frozen=True)
class Rows:
    """Some samples of one tile, as they are stored: converted, small integers would travel as large numbers."""

    start: int
    stop: int
    parts: tuple[NDArray[Any], ...]

    def __sizeof__(self) -> int:
        return sum(part.nbytes for part in self.parts)


@dataclass(frozen=True)
class Node(Generic[S]):
    """Sum over the samples of 2**level tiles, or over fewer where these are the last."""

    start: int
    stop: int
    level: int
    total: S

    def __sizeof__(self) -> int:
        return count_pickled_bytes(self.total)


def count_pickled_bytes(thing: object) -> int:
    """Bytes that something takes on its way to another process; dask weighs by them where to run a task."""
    buffers: list[pickle.PickleBuffer] = []
    pickled = pickle.dumps(thing, protocol=5, buffer_callback=buffers.append)
    return len(pickled) + sum(buffer.raw().nbytes for buffer in buffers)


Piece = Rows | Node[S]
Stretch = tuple[Piece[S], ...]


class StretchBuilder(Generic[S]):
    """A stretch that grows at its end."""

    def __init__(self, grid: Grid, visit: Callable[[tuple[int, Array]], S]) -> None:
        self._grid = grid
        self._visit = visit
        self._pieces: list[Piece[S]] = []

    def add_samples(self, start: int, Y: NDArray[Any]) -> None:
        """Go on with the samples Y, of which the first is number `start`."""
        stop = start + len(Y)
        begin = start
        while begin < stop:
            end = min(self._grid.find_stop(begin), stop)
            self.add(Rows(begin, end, (Y[begin - start : end - start],)))
            begin = end

    def add(self, piece: Piece[S]) -> None:
        """Go on with a piece."""
        if self._pieces and self._pieces[-1].stop != piece.start:
            raise ValueError(f"samples {self._pieces[-1].stop} to {piece.start} are missing from a sum")
        self._pieces.append(self._sum_if_whole(piece))
        while len(self._pieces) > 1:
            joined = self._join(*self._pieces[-2:])
            if joined is None:
                break
            self._pieces[-2:] = [joined]

    def pieces(self) -> Stretch[S]:
        """All pieces, fit to travel: rows are copies, or they would hold on to the whole chunk."""
        return tuple(
            Rows(piece.start, piece.stop, (np.concatenate(piece.parts),)) if isinstance(piece, Rows) else piece
            for piece in self._pieces
        )

    def _join(self, a: Piece[S], b: Piece[S]) -> Piece[S] | None:
        """Two pieces as one, if they are parts of a tile or halves of a node."""
        if isinstance(a, Rows) and isinstance(b, Rows):
            if a.stop == self._grid.find_stop(a.start):
                return None
            return self._sum_if_whole(Rows(a.start, b.stop, (*a.parts, *b.parts)))
        if isinstance(a, Node) and isinstance(b, Node) and a.level == b.level:
            is_left = (a.start // self._grid.tile_rows >> a.level) % 2 == 0
            return Node(a.start, b.stop, a.level + 1, a.total + b.total) if is_left else None
        return None

    def _sum_if_whole(self, piece: Piece[S]) -> Piece[S]:
        if isinstance(piece, Node):
            return piece
        if piece.start % self._grid.tile_rows or piece.stop != self._grid.find_stop(piece.start):
            return piece
        tile = piece.parts[0] if len(piece.parts) == 1 else np.concatenate(piece.parts)
        total = self._visit((piece.start, tile.astype(self._grid.dtype, copy=False)))
        return Node(piece.start, piece.stop, 0, total)


def add_up_nodes(stretch: Iterable[Piece[S]], grid: Grid) -> S:
    """Sum over all samples, of the stretch that holds them all."""
    nodes = [piece for piece in stretch if isinstance(piece, Node)]  # the ends of all samples are ends of tiles
    if not nodes or nodes[0].start != 0 or nodes[-1].stop != grid.n_samples:
        raise ValueError(f"a sum over {grid.n_samples} samples lacks the first or the last of them")
    total: S = nodes.pop().total
    while nodes:  # what is left over is added from the right, as `tree_sum` does
        total = nodes.pop().total + total
    return total


@dataclass(frozen=True)
class Job(Generic[S]):
    """What all tasks of a pass need to know: it travels once to every worker."""

    kernel: Kernel[S]
    grid: Grid
    reader: Reader | None = None  # None if samples come as chunks
    block_rows: int = 0  # samples that a reader is asked for at a time

    def __sizeof__(self) -> int:
        return count_pickled_bytes(self.kernel)


def pack(thing: Any) -> bytes:
    """A job or a coding as bytes, that a graph holds like a number."""
    return pickle.dumps(thing, protocol=pickle.HIGHEST_PROTOCOL)


def unpack(packed: bytes) -> Any:
    """A job or a coding again. A task of its own: its result stays on the worker for all tasks there."""
    return pickle.loads(packed)


def sum_chunks(job: Job[S], start: int, chunks: Sequence[Any]) -> Stretch[S]:
    """Stretch of the samples in consecutive chunks, from sample `start` on."""
    starts = accumulate(map(len, chunks), initial=start)
    return _sum_blocks(job, ((begin, check_chunk(chunk, begin)) for begin, chunk in zip(starts, chunks, strict=False)))


def sum_read(job: Job[S], start: int, stop: int) -> Stretch[S]:
    """Stretch of the samples from start to stop, read a block at a time."""
    reader = job.reader
    assert reader is not None
    bounds = ((start + a, start + b) for a, b in tile_bounds(stop - start, job.block_rows))
    return _sum_blocks(job, ((a, reader.read(a, b)) for a, b in bounds))


def join(job: Job[S], stretches: Sequence[Stretch[S]]) -> Stretch[S]:
    """Stretches that follow each other, as one."""
    with one_blas_thread():
        builder = _begin_stretch(job)
        for stretch in stretches:
            for piece in stretch:
                builder.add(piece)
    return builder.pieces()


def finish(job: Job[S], stretches: Sequence[Stretch[S]]) -> S:
    """Sum over all samples."""
    return add_up_nodes(join(job, stretches), job.grid)


def take_rows(chunk: Any, index: NDArray[np.int64], start: int) -> NDArray[Any]:
    """Some samples of a chunk whose first is number `start`."""
    return check_chunk(chunk, start)[index - start]


def check_chunk(chunk: Any, start: int) -> NDArray[Any]:
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
    where: Locatable

    def make_rows(self, Y: NDArray[Any], start: int) -> NDArray[Any]:
        """Rows for the samples Y, of which the first is number `start`."""
        made = []
        with one_blas_thread():
            visit = self.kernel.bind(NUMPY)
            for a, b in tile_bounds(max(1, len(Y)), self.tile_rows):
                tile = Y[a:b].astype(self.dtype, copy=False)
                refuse_non_finite(self.where, start + a, tile, NUMPY.xp)
                made.append(visit(tile))
        return np.concatenate(made)


def code_chunk(chunk: Any, coding: Coding, block_info: Any = None) -> NDArray[Any]:
    """Rows for one chunk of an array."""
    start = int(block_info[0]["array-location"][0][0]) if block_info else 0
    return coding.make_rows(check_chunk(chunk, start), start)


def code_read(coding: Coding, reader: Reader, block_info: Any = None) -> NDArray[Any]:
    """Rows for one block of a reader."""
    start, stop = block_info[None]["array-location"][0]
    return coding.make_rows(reader.read(start, stop), start)


def _sum_blocks(job: Job[S], blocks: Iterable[tuple[int, NDArray[Any]]]) -> Stretch[S]:
    with one_blas_thread():
        builder = _begin_stretch(job)
        for start, Y in blocks:
            builder.add_samples(start, Y)
    return builder.pieces()


def _begin_stretch(job: Job[S]) -> StretchBuilder[S]:
    """Nothing yet; the kernel is bound when the first tile comes: to join whole nodes it is not needed."""
    bind = cache(partial(bind_by_row, job.kernel, NUMPY))

    def visit(numbered: tuple[int, Array]) -> S:
        return bind()(numbered)

    return StretchBuilder(job.grid, visit)
