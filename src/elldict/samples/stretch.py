"""A stretch: consecutive samples, added up as far as can be told without their neighbours.

The chunks of a cluster end where they like, in the middle of tiles and of nodes of the tree. So what a chunk amounts to
is kept in pieces: whole nodes, each as high up the tree as the chunk fills it, and at both ends the rows of tiles that
the next chunk has the rest of. Stretches that follow each other are joined by joining their pieces; that of all samples
is one sum, along the same tree as everywhere.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Generic

import numpy as np
from numpy.typing import NDArray

from elldict.samples.base import S
from elldict.space import Array


@dataclass(frozen=True)
class Grid:
    """Where tiles begin and end."""

    n_samples: int
    tile_rows: int
    dtype: str  # in which tiles are multiplied

    def stop_of(self, start: int) -> int:
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
        return travelling_bytes(self.total)


def travelling_bytes(thing: object) -> int:
    """Bytes that something takes on its way to another process; dask weighs by them where to run a task."""
    buffers: list[pickle.PickleBuffer] = []
    frame = pickle.dumps(thing, protocol=5, buffer_callback=buffers.append)
    return len(frame) + sum(buffer.raw().nbytes for buffer in buffers)


Piece = Rows | Node[S]
Stretch = tuple[Piece[S], ...]


class Stretching(Generic[S]):
    """A stretch that grows at its end."""

    def __init__(self, grid: Grid, visit: Callable[[Array], S]) -> None:
        self._grid = grid
        self._visit = visit
        self._pieces: list[Piece[S]] = []

    def add_samples(self, start: int, Y: NDArray[Any]) -> None:
        """Go on with the samples Y, of which the first is number `start`."""
        stop = start + len(Y)
        begin = start
        while begin < stop:
            end = min(self._grid.stop_of(begin), stop)
            self.add(Rows(begin, end, (Y[begin - start : end - start],)))
            begin = end

    def add(self, piece: Piece[S]) -> None:
        """Go on with a piece."""
        if self._pieces and self._pieces[-1].stop != piece.start:
            raise ValueError(f"samples {self._pieces[-1].stop} to {piece.start} are missing from a sum")
        self._pieces.append(self._summed_if_whole(piece))
        while len(self._pieces) > 1:
            joined = self._joined(*self._pieces[-2:])
            if joined is None:
                break
            self._pieces[-2:] = [joined]

    def pieces(self) -> Stretch[S]:
        """All pieces, fit to travel: rows are copies, or they would hold on to the whole chunk."""
        return tuple(
            Rows(piece.start, piece.stop, (np.concatenate(piece.parts),)) if isinstance(piece, Rows) else piece
            for piece in self._pieces
        )

    def _joined(self, a: Piece[S], b: Piece[S]) -> Piece[S] | None:
        """Two pieces as one, if they are parts of a tile or halves of a node."""
        if isinstance(a, Rows) and isinstance(b, Rows):
            if a.stop == self._grid.stop_of(a.start):
                return None
            return self._summed_if_whole(Rows(a.start, b.stop, (*a.parts, *b.parts)))
        if isinstance(a, Node) and isinstance(b, Node) and a.level == b.level and self._is_left(a):
            return Node(a.start, b.stop, a.level + 1, a.total + b.total)
        return None

    def _summed_if_whole(self, piece: Piece[S]) -> Piece[S]:
        if isinstance(piece, Node):
            return piece
        whole = piece.start % self._grid.tile_rows == 0 and piece.stop == self._grid.stop_of(piece.start)
        if not whole:
            return piece
        tile = piece.parts[0] if len(piece.parts) == 1 else np.concatenate(piece.parts)
        return Node(piece.start, piece.stop, 0, self._visit(tile.astype(self._grid.dtype, copy=False)))

    def _is_left(self, node: Node[S]) -> bool:
        return (node.start // self._grid.tile_rows >> node.level) % 2 == 0


def whole_sum(stretch: Iterable[Piece[S]], grid: Grid) -> S:
    """Sum over all samples, of the stretch that holds them all."""
    nodes = list(stretch)
    if not nodes or nodes[0].start != 0 or nodes[-1].stop != grid.n_samples:
        raise ValueError(f"a sum over {grid.n_samples} samples lacks the first or the last of them")
    total: S | None = None
    for node in reversed(nodes):  # what is left over is added from the right, as `folded` does
        assert isinstance(node, Node), "the ends of all samples are ends of tiles"
        total = node.total if total is None else node.total + total
    assert total is not None
    return total
