"""Stretches: wherever samples are cut, and in whatever groups they are joined, the sum is that of the one tree."""

import itertools
import pickle

import numpy as np
import pytest

from elldict._old.data.dask_tasks import Grid, Node, Rows, StretchBuilder, add_up_nodes
from elldict._old.data.dataset import tree_sum


class Trace:
    """A sum that remembers how it came about."""

    def __init__(self, text):
        self.text = text

    def __add__(self, other):
        return Trace(f"({self.text}{other.text})")


def visit(numbered):
    tile = numbered[1]  # the number of its first sample is for weights
    return Trace(f"[{','.join(str(int(k)) for k in tile[:, 0])}]")


def stretch_of(grid, Y, start, stop):
    builder = StretchBuilder(grid, visit)
    builder.add_samples(start, Y[start:stop])
    return builder.pieces()


def joined(grid, stretches):
    builder = StretchBuilder(grid, visit)
    for stretch in stretches:
        for piece in stretch:
            builder.add(piece)
    return builder.pieces()


def expected(grid, Y):
    bounds = range(0, grid.n_samples, grid.tile_rows)
    return tree_sum(visit((start, Y[start : start + grid.tile_rows])) for start in bounds).text


@pytest.mark.parametrize(("n", "tile_rows"), [(1, 1), (10, 3), (64, 4), (101, 7), (50, 50), (37, 1)])
def test_any_cuts_and_any_grouping_give_the_one_tree(n, tile_rows):
    rng = np.random.default_rng(n)
    grid, Y = Grid(n, tile_rows, "float64"), np.arange(n)[:, None]
    for n_cuts in (0, 1, min(5, n - 1), n - 1):
        cuts = [0, *sorted(rng.choice(np.arange(1, n), n_cuts, replace=False).tolist()), n] if n > 1 else [0, n]
        stretches = [stretch_of(grid, Y, a, b) for a, b in itertools.pairwise(cuts)]
        while len(stretches) > 1:  # in groups of random size, as a cluster's tree may have them
            size = int(rng.integers(2, 4))
            stretches = [joined(grid, stretches[k : k + size]) for k in range(0, len(stretches), size)]
        assert add_up_nodes(stretches[0], grid).text == expected(grid, Y)


def test_a_stretch_is_small_and_owns_its_rows():
    grid, Y = Grid(10_000, 10, "float64"), np.zeros((10_000, 3))
    pieces = stretch_of(grid, Y, 5, 9_995)
    rows = [piece for piece in pieces if isinstance(piece, Rows)]
    assert [(piece.start, piece.stop) for piece in rows] == [(5, 10), (9_990, 9_995)]
    assert all(part.base is None for piece in rows for part in piece.parts)
    assert len(pieces) <= 2 + 2 * 10  # of 998 tiles, at most two nodes a level


def test_rows_keep_the_type_they_are_stored_in():
    grid, Y = Grid(30, 10, "float64"), np.arange(30, dtype=np.int8)[:, None]
    (piece,) = stretch_of(grid, Y, 3, 8)
    assert piece.parts[0].dtype == np.int8
    assert len(pickle.dumps(piece)) < 500


def test_a_missing_stretch_is_an_error_not_another_sum():
    grid, Y = Grid(30, 10, "float64"), np.arange(30)[:, None]
    first, last = stretch_of(grid, Y, 0, 10), stretch_of(grid, Y, 20, 30)
    with pytest.raises(ValueError, match="samples 10 to 20 are missing"):
        joined(grid, [first, last])
    with pytest.raises(ValueError, match="lacks the first or the last"):
        add_up_nodes(last, grid)


def test_whole_tiles_are_not_copied():
    seen = []
    grid, Y = Grid(40, 10, "float64"), np.zeros((40, 2))
    builder = StretchBuilder(grid, lambda numbered: seen.append(numbered[1]) or Trace(""))
    builder.add_samples(0, Y)
    assert all(tile.base is Y for tile in seen)
    assert all(isinstance(piece, Node) for piece in builder.pieces())


def test_dask_is_told_how_much_a_stretch_weighs():
    sizeof = pytest.importorskip("dask.sizeof").sizeof
    rows = Rows(0, 100, (np.zeros((100, 50)),))
    node = Node(0, 100, 0, {"G": np.zeros((200, 200)), "value": np.zeros(200)})
    assert 40_000 <= sizeof(rows) < 41_000
    assert 321_600 <= sizeof(node) < 323_000
    assert sizeof((rows, node)) >= 361_600
