"""The tree along which sums are added: the same whoever adds, and however many hands there are."""

import numpy as np
import pytest

from elldict._old.data.dataset import ArrayDataset, tree_sum
from elldict._old.data.statistics import StatisticsKernel


def by_definition(totals):
    """The tree in so many words: the left half has as many tiles as the largest power of two below their number."""
    if len(totals) == 1:
        return totals[0]
    half = 2 ** ((len(totals) - 1).bit_length() - 1)
    return f"({by_definition(totals[:half])}{by_definition(totals[half:])})"


class Word(str):
    """Text whose sum shows in which order it was added."""

    __slots__ = ()

    def __add__(self, other):
        return Word(f"({self!s}{other!s})")


@pytest.mark.parametrize("n_tiles", [1, 2, 3, 4, 5, 7, 8, 21, 64, 100])
def test_the_tree_is_the_one_defined(n_tiles):
    tiles = [Word(f"{k},") for k in range(n_tiles)]
    assert tree_sum(tiles) == by_definition(tiles)


@pytest.mark.parametrize("n_tiles", [1, 6, 16, 37])
@pytest.mark.parametrize("level", [0, 1, 2, 3, 6])
def test_runs_of_a_power_of_two_tiles_leave_the_tree_as_it_is(n_tiles, level):
    tiles = [Word(f"{k},") for k in range(n_tiles)]
    runs = [tree_sum(tiles[start : start + 2**level]) for start in range(0, n_tiles, 2**level)]
    assert tree_sum(runs) == tree_sum(tiles)


def test_at_most_one_total_a_level_is_held():
    class Counted:
        alive = most = 0

        def __init__(self):
            Counted.alive += 1
            Counted.most = max(Counted.most, Counted.alive)

        def __del__(self):
            Counted.alive -= 1

        def __add__(self, other):
            return Counted()

    tree_sum(Counted() for _ in range(1024))
    assert Counted.most <= 10 + 3  # one for each of the ten levels, and those just being added


def test_nothing_to_add_up_is_an_error():
    with pytest.raises(ValueError, match="no tiles"):
        tree_sum([])


def test_memory_folds_along_the_tree(rng):
    X = rng.standard_normal((1000, 4))
    visit = StatisticsKernel("float64").bind(ArrayDataset(X).backend)
    expected = tree_sum(visit(X[start : start + 130]) for start in range(0, 1000, 130))
    found = ArrayDataset(X, tile_rows=130).sum(StatisticsKernel("float64"))
    np.testing.assert_array_equal(found.scatter, expected.scatter)
