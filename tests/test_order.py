"""The order of samples, and the parts that follow from it."""

import itertools

import numpy as np
import pytest

from elldict.samples.arrays import ArraySamples
from elldict.samples.order import find_order, map_rows, sum_fourth_moments
from elldict.samples.subsample import choose_strides, gather


def order_rows(X):
    return find_order(ArraySamples(X))


def make_rows(r, n, seed=0):
    return np.random.default_rng(seed).laplace(size=(r, n))


def make_unit_rows(r, n):
    X = make_rows(r, n)
    return X / np.linalg.norm(X, axis=1, keepdims=True)


def draw_rotation(n, seed=1):
    return np.linalg.qr(np.random.default_rng(seed).standard_normal((n, n)))[0]


KINDS = {
    "norms that vary": make_rows(500, 8),
    "unit norms": make_unit_rows(500, 8),
    "two norms": make_unit_rows(500, 8) * np.where(np.arange(500) % 3, 1.0, 2.0)[:, None],
}


def test_find_order_sorts_by_norm():
    X = make_rows(500, 8)
    order = order_rows(X)
    squares = np.sum(X * X, axis=1)
    np.testing.assert_array_equal(order.index, np.argsort(squares))
    np.testing.assert_array_equal(order.squares, np.sort(squares))
    np.testing.assert_array_equal(order.group, np.arange(500))
    assert len(order) == 500


def test_find_order_of_unit_norms_sorts_by_fourth_moments():
    X = make_unit_rows(300, 3)
    M = (X * np.sum(X * X, axis=1)[:, None]).T @ X
    np.testing.assert_allclose(sum_fourth_moments(ArraySamples(X)), M, atol=1e-12)
    np.testing.assert_array_equal(order_rows(X).index, np.argsort(np.sum(X @ M * X, axis=1)))


@pytest.mark.parametrize("kind", KINDS)
def test_find_order_of_permuted_samples_gives_the_same_sequence_and_parts(kind):
    X = KINDS[kind]
    order = order_rows(X)
    permutation = np.random.default_rng(3).permutation(len(X))
    other = order_rows(X[permutation])
    np.testing.assert_array_equal(permutation[other.index], order.index)
    assert not np.array_equal(other.index, order.index)
    for n_parts in (2, 4):
        np.testing.assert_array_equal(other.assign_parts(n_parts), order.assign_parts(n_parts))
    np.testing.assert_array_equal(permutation[other.thin_out(7).index], order.thin_out(7).index)


@pytest.mark.parametrize("kind", KINDS)
def test_find_order_of_rotated_samples_is_the_same(kind):
    X = KINDS[kind]
    order, other = order_rows(X), order_rows(X @ draw_rotation(8))
    np.testing.assert_array_equal(other.index, order.index)
    np.testing.assert_array_equal(other.group, order.group)
    assert len(np.unique(order.group)) == len(X)


@pytest.mark.parametrize("scale", [2.0**-200, 2.0**200])
def test_find_order_of_scaled_samples_is_the_same(scale):
    X = KINDS["norms that vary"]
    np.testing.assert_array_equal(order_rows(X * scale).index, order_rows(X).index)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("n_parts", [2, 4])
def test_assign_parts_of_repeated_rows_puts_copies_into_the_same_part(kind, n_parts):
    X = KINDS[kind][:100]
    number = np.random.default_rng(5).permutation(np.repeat(np.arange(100), 4))
    order = order_rows(X[number] @ draw_rotation(8))  # rounding of copies may differ from row to row
    assert len(np.unique(order.group)) == 100
    part = order.assign_parts(n_parts)
    parts_of = [set(part[number[order.index] == k]) for k in range(100)]
    assert all(len(each) == 1 for each in parts_of)
    np.testing.assert_array_equal(np.bincount(part), np.full(n_parts, 400 // n_parts))


def test_assign_parts_of_a_subsample_takes_turns_among_its_own_rows():
    # every second sample is in the same half of all: parts are those of the subsample, not of the whole
    order = order_rows(make_rows(400, 3)).thin_out(2)
    np.testing.assert_array_equal(order.assign_parts(2), np.arange(200) % 2)


def test_assign_parts_of_identical_rows_leaves_no_part_empty():
    np.testing.assert_array_equal(order_rows(np.ones((50, 3))).assign_parts(2), np.arange(50) % 2)


def test_find_order_leaves_out_zeros_and_what_centring_makes_of_them():
    X = make_rows(1000, 5)
    zero = np.random.default_rng(1).random(1000) < 0.4
    X[zero] = 0
    np.testing.assert_array_equal(np.sort(order_rows(X).index), np.flatnonzero(~zero))
    # after centring, zeros are minus the mean, whose square is about 1 / r of the mean square
    centred = X - X.mean(axis=0)
    left_out = np.setdiff1d(np.arange(1000), order_rows(centred).index)
    assert set(np.flatnonzero(zero)) <= set(left_out)
    assert len(left_out) < np.sum(zero) + 10


@pytest.mark.parametrize("n_samples", [1, 2, 4, 5, 20])
def test_find_order_of_few_equal_samples_keeps_all(n_samples):
    # 4 / r of the mean square, which all of them have, is no limit for few
    assert len(order_rows(np.ones((n_samples, 3)))) == n_samples


def test_thin_out_keeps_samples_evenly_from_the_smallest_to_the_largest():
    order = order_rows(make_rows(1000, 3))
    np.testing.assert_array_equal(order.thin_out(1).index, order.index)
    thin = order.thin_out(10)
    np.testing.assert_array_equal(thin.index, order.index[5::10])
    np.testing.assert_array_equal(thin.squares, order.squares[5::10])
    np.testing.assert_array_equal(thin.group, order.group[5::10])
    assert len(order.thin_out(1000)) == 1


def test_thin_out_by_odd_strides_that_divide_each_other_is_nested():
    order = order_rows(make_rows(1000, 3))
    assert set(order.thin_out(45).index) < set(order.thin_out(9).index) < set(order.thin_out(3).index)


@pytest.mark.parametrize("first", [0, 1, 2, 7, 8, 16, 100, 1000, 10**5])
def test_choose_strides_grow_to_all_samples_by_at_most_about_the_growth(first):
    strides = choose_strides(first, 8)
    assert strides[0] == max(1, first)
    assert strides[-1] == 1
    # the last factor may be up to twice the growth, less one
    assert all(large >= small and large < 16 * small for large, small in itertools.pairwise(strides))


def test_gather_reads_samples_in_their_order_with_alternating_halves():
    X = make_rows(200, 3)
    order = order_rows(X).thin_out(3)
    subset = gather(ArraySamples(X), order)
    np.testing.assert_array_equal(subset.samples.X, X[order.index])
    np.testing.assert_array_equal(subset.half, np.arange(len(order)) % 2)
    np.testing.assert_allclose(subset.moments, X[order.index].T @ X[order.index] / len(order), atol=1e-13)


def test_map_rows_computes_one_number_for_each_row_in_all_blocks():
    X = make_rows(100_000, 4)  # two blocks
    np.testing.assert_array_equal(map_rows(ArraySamples(X, 2), lambda rows: rows[:, 2]), X[:, 2])
