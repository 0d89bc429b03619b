"""The order of samples, the parts and subsamples that follow from it, with weights and without."""

import itertools

import numpy as np
import pytest

from elldict.samples import order as order_module
from elldict.samples.arrays import ArraySamples
from elldict.samples.order import find_order, sum_fourth_moments
from elldict.samples.subsample import FEWEST, PER_DIRECTION, choose_strides, gather
from elldict.samples.whitening import Whitening


def order_rows(X, weights=None):
    return find_order(ArraySamples(X, weights=weights))


def leave_as_they_are(n):
    """Coordinates of raw samples."""
    return Whitening(np.zeros(n), np.eye(n), np.eye(n), False, 1.0, n, 1.0, is_scaling=True)


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
    # sums of 8 positive terms in another order: 8 roundings of 1.1e-16 at most
    np.testing.assert_allclose(order.squares, np.sort(squares), rtol=1e-15)
    np.testing.assert_array_equal(order.group, np.arange(500))
    assert order.n_samples == order.n_distinct == len(order.index) == 500
    assert order.weights is None


def test_find_order_of_unit_norms_sorts_by_fourth_moments():
    X = make_unit_rows(300, 3)
    M = (X * np.sum(X * X, axis=1)[:, None]).T @ X
    np.testing.assert_allclose(sum_fourth_moments(ArraySamples(X)), M, atol=1e-12)
    np.testing.assert_array_equal(order_rows(X).index, np.argsort(np.sum(X @ M * X, axis=1)))


@pytest.mark.parametrize("kind", KINDS)
def test_find_order_of_permuted_and_rotated_samples_gives_the_same_sequence_and_parts(kind):
    X = KINDS[kind]
    order = order_rows(X)
    permutation = np.random.default_rng(3).permutation(len(X))
    other = order_rows(X[permutation] @ draw_rotation(8))
    np.testing.assert_array_equal(permutation[other.index], order.index)
    assert not np.array_equal(other.index, order.index)
    for n_parts in (2, 4):
        np.testing.assert_array_equal(other.assign_parts(n_parts), order.assign_parts(n_parts))
    np.testing.assert_array_equal(permutation[other.thin_out(7).index], order.thin_out(7).index)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("n_parts", [2, 4])
def test_assign_parts_of_repeated_rows_puts_copies_into_the_same_part(kind, n_parts):
    X = KINDS[kind][:100]
    number = np.random.default_rng(5).permutation(np.repeat(np.arange(100), 4))
    order = order_rows(X[number] @ draw_rotation(8))  # rounding of copies may differ from row to row
    assert order.n_distinct == 100
    assert order.n_samples == 400
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
    order = order_rows(np.ones((n_samples, 3)))
    assert order.n_samples == len(order.index) == n_samples
    assert order.n_distinct == 1


def test_thin_out_keeps_samples_evenly_from_the_smallest_to_the_largest():
    order = order_rows(make_rows(1000, 3))
    np.testing.assert_array_equal(order.thin_out(1).index, order.index)
    thin = order.thin_out(10)
    np.testing.assert_array_equal(thin.index, order.index[5::10])
    np.testing.assert_array_equal(thin.squares, order.squares[5::10])
    np.testing.assert_array_equal(thin.group, order.group[5::10])
    assert len(order.thin_out(1000).index) == 1
    assert thin.n_samples == len(thin.index) == 100


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


@pytest.mark.parametrize("n", [3, 120])
def test_gather_takes_few_samples_evenly_from_the_smallest_to_the_largest(n):
    X = make_rows(5 * max(FEWEST, PER_DIRECTION * n), n)
    permuted = np.random.default_rng(1).permutation(X)
    for rows in (X, permuted):  # the same ones in any order
        few = gather(ArraySamples(rows), leave_as_they_are(n), order_rows(rows), np.eye(n)).few
        np.testing.assert_array_equal(few.X, X[order_rows(X).index[2::5]])
        assert few.weights is None


def test_find_order_of_equal_norms_sorts_by_fourth_moments_of_the_largest_samples(monkeypatch):
    monkeypatch.setattr(order_module, "LARGEST", 100)
    X = np.r_[make_unit_rows(300, 3), 2 * make_unit_rows(200, 3) * np.linspace(1, 2, 200)[:, None]]
    M = sum_fourth_moments(ArraySamples(X[400:]))
    order = order_rows(X)
    np.testing.assert_array_equal(order.index[:300], np.argsort(np.sum(X[:300] @ M * X[:300], axis=1)))
    np.testing.assert_array_equal(order.index[300:], np.arange(300, 500))


# --- weights ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("n_zeros", [0, 200])
def test_find_order_of_weighted_samples_is_that_of_copies(kind, n_zeros):
    # the squared error of the mean is 1 / r only of samples with about equal weights
    w, X = np.random.default_rng(2).integers(1, 3, 500), KINDS[kind].copy()
    X[:n_zeros] = 0
    number = np.repeat(np.arange(500), w)
    for shift in (0, np.average(X, axis=0, weights=w)):  # zeros are left out, and what centring makes of them
        weighted, copies = order_rows(X - shift, w.astype(float)), order_rows((X - shift)[number])
        each = weighted.weights.astype(int)
        np.testing.assert_array_equal(np.repeat(weighted.index, each), number[copies.index])
        np.testing.assert_array_equal(np.diff(np.repeat(weighted.group, each)) > 0, np.diff(copies.group) > 0)
        assert np.min(weighted.index) >= n_zeros
        assert len(weighted.index) > 490 - n_zeros
        for thin in (3, 50):
            np.testing.assert_array_equal(
                np.repeat(weighted.thin_out(thin).index, weighted.thin_out(thin).weights.astype(int)),
                number[copies.thin_out(thin).index],
            )


def test_find_order_of_an_outlier_of_more_than_their_share_leaves_out_what_it_leaves_out_of_copies():
    """One copy of the outlier is part of the mean: a hundredth of this is 6, of the mean with both copies 12."""
    X, w = make_rows(100, 3), np.ones(100)
    X[0], w[0] = 100 * X[0], 2
    weighted, copies = order_rows(X, w), order_rows(np.r_[X, X[:1]])
    np.testing.assert_array_equal(weighted.index, copies.index[:-1] % 100)


@pytest.mark.parametrize("stride", [2, 5, 30])
def test_thin_out_of_fractional_weights_keeps_each_sample_in_proportion(stride):
    w = np.random.default_rng(1).exponential(3.0, 400)
    order = order_rows(make_rows(400, 3), w)
    thin = order.thin_out(stride)
    kept = np.zeros(400)
    kept[thin.index] = thin.weights
    # from an interval of length w, every stride-th number is taken: w / stride of them, rounded up or down
    assert np.all(np.abs(kept - w / stride) < 1)
    assert abs(thin.n_samples - np.sum(w) / stride) < 1
    assert np.all(thin.weights > 0)


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("scale", [1.0, 0.1, 1e-3])
def test_median_and_average_of_weighted_samples_are_those_of_copies(seed, scale):
    X, w = make_rows(20 + seed % 3, 3), np.random.default_rng(seed).integers(1, 6, 20 + seed % 3)
    weighted, copies = order_rows(X, w.astype(float)), order_rows(np.repeat(X, w, axis=0))
    assert copies.median == np.median(copies.squares)
    other = order_rows(X, scale * w)
    # sums of weights .1 are rounded: their half is where that of whole ones is
    assert weighted.median == other.median == copies.median
    # of some 60 positive terms
    np.testing.assert_allclose(weighted.average(weighted.squares), np.mean(copies.squares), rtol=60 * 2.3e-16)
    np.testing.assert_allclose(other.average(other.squares), np.mean(copies.squares), rtol=60 * 2.3e-16)
