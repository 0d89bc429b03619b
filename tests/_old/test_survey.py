"""The first pass: mean, spread, rank and scale of the samples."""

import itertools

import numpy as np
import pytest

from elldict._old.data.dataset import ArrayDataset, rows_per_tile, tile_bounds
from elldict._old.data.statistics import compute_statistics
from elldict._old.solver.directions import random_orthonormal


@pytest.mark.parametrize("center", [False, True])
@pytest.mark.parametrize("tile_rows", [1, 7, 300, 301])
def test_spread_is_the_covariance(center, tile_rows, rng):
    X = rng.standard_normal((300, 5)) @ rng.standard_normal((5, 5)) + [1, 2, 3, 4, 1e6]
    found = compute_statistics(ArrayDataset(X, tile_rows), center=center, precise=True)
    expected = np.cov(X.T, bias=True) if center else X.T @ X / 300
    np.testing.assert_allclose(found.scatter * found.unit**2, expected, rtol=1e-9, atol=1e-9 * np.max(expected))
    np.testing.assert_allclose(found.mean, X.mean(axis=0), rtol=1e-13)


def test_a_large_mean_costs_no_digits(rng):
    """Relative to the mean the spread is 1e-8: a sum of raw squares would lose every digit of it."""
    noise = rng.standard_normal((1000, 3))
    found = compute_statistics(ArrayDataset(noise + 1e8, 100), center=True, precise=True)
    np.testing.assert_allclose(found.scatter * found.unit**2, np.cov(noise.T, bias=True), atol=1e-6)


@pytest.mark.parametrize("scale", [1e-300, 1e-12, 1.0, 1e12, 1e300])
def test_rank_and_condition_do_not_depend_on_scale(scale, rng):
    X = rng.standard_normal((200, 4)) @ rng.standard_normal((4, 6))
    one, other = (compute_statistics(ArrayDataset(X * s), center=False, precise=True) for s in (1.0, scale))
    assert one.rank == other.rank == 4
    assert other.condition_number == pytest.approx(one.condition_number)
    assert other.rms * other.unit == pytest.approx(one.rms * one.unit * scale)


@pytest.mark.parametrize(("dtype", "precise"), [("float32", True), ("float32", False), ("float64", True)])
def test_rounding_is_not_taken_for_rank(dtype, precise, rng):
    X = (rng.standard_normal((500, 10)) @ rng.standard_normal((10, 30))).astype(dtype)
    assert compute_statistics(ArrayDataset(X), center=False, precise=precise).rank == 10


def test_full_rank_is_seen_through_a_large_condition_number(rng):
    X = rng.standard_normal((500, 10)) * np.geomspace(1, 1e-5, 10)
    assert compute_statistics(ArrayDataset(X), center=False, precise=True).rank == 10


@pytest.mark.parametrize("n", [2, 8, 30])
@pytest.mark.parametrize("condition", [1.0, 5.0, 50.0, 1e4])
def test_the_quick_test_of_the_condition_number_is_never_wrong(n, condition, rng):
    X = (rng.standard_normal((4000, n)) * np.geomspace(1, condition**-0.5, n)) @ random_orthonormal(n, n, rng)
    found = compute_statistics(ArrayDataset(X), center=False, precise=True)
    exact = found.eigenvalues[0] / found.eigenvalues[-1]
    assert not found.is_well_conditioned(0.999 * exact)
    assert found.is_well_conditioned(1.001 * np.sqrt(n) * exact)  # row sums are at most so much above eigenvalues
    assert found.rank == n


def test_tiles_cover_all_rows_once():
    for n_samples, rows in ((1, 1), (10, 3), (10, 10), (10, 11), (2**33, 2**32 - 1)):
        bounds = list(tile_bounds(n_samples, rows))
        assert bounds[0][0] == 0
        assert bounds[-1][1] == n_samples
        assert all(a[1] == b[0] for a, b in itertools.pairwise(bounds))


def test_tiles_are_neither_too_small_nor_too_large():
    assert rows_per_tile(300, 100, "float32") == 300
    assert rows_per_tile(4001, 100, "float32") == 1001  # four tiles, so that cores have equal work
    assert rows_per_tile(40_000, 100, "float32") == rows_per_tile(40_000, 100, "float64") == 3334
    assert rows_per_tile(2000, 32, "float32") == 2000  # too little work to share out
    assert rows_per_tile(10_000, 32, "float64") == 2500
    assert rows_per_tile(10_000, 32, "float32") == 10_000  # products are faster
    assert rows_per_tile(12_000, 32, "float32") == 3000
    assert rows_per_tile(10**6, 8, "float32") == 125_000
    assert rows_per_tile(10**6, 10**6, "float32") == 64


@pytest.mark.parametrize("r", [1, 63, 4096, 4097, 10_000, 99_991, 10**9])
@pytest.mark.parametrize("n", [2, 100, 5000])
def test_tiles_hold_all_samples_in_equal_parts(r, n):
    rows = rows_per_tile(r, n, "float32")
    n_tiles = -(-r // rows)
    assert n_tiles == 1 or n_tiles % 4 == 0 or n_tiles > 100
    assert rows * n * 4 <= 2**22 or rows <= 64
