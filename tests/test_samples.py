"""Samples in memory: sums over blocks, statistics of a first pass, whitening, weights."""

import threading

import numpy as np
import pytest

from elldict.samples.arrays import ArraySamples, scale_weights
from elldict.samples.base import BLOCK_NUMBERS, cut_blocks, map_in_order, sum_along_tree
from elldict.samples.order import find_order, sum_fourth_moments
from elldict.samples.statistics import compute_statistics
from elldict.samples.subsample import compute_second_moments, gather, is_white
from elldict.samples.whitening import make_whitening, whiten_samples

N_ROWS, N_FEATURES = 150_000, 5  # three blocks


@pytest.fixture(scope="module")
def X():  # noqa: N802
    X = np.random.default_rng(0).standard_normal((N_ROWS, N_FEATURES))
    X.setflags(write=False)
    return X


def make_mixed(r, n, condition, seed=0):
    """Gaussian samples whose principal variances fall from 1 to 1 / condition, and a mean of ones."""
    rng = np.random.default_rng(seed)
    Q = np.linalg.qr(rng.standard_normal((n, n)))[0]
    return rng.standard_normal((r, n)) * condition ** (-0.5 * np.arange(n) / (n - 1)) @ Q + 1


# --- blocks and sums --------------------------------------------------------------------------------------------------


class Leaf(str):
    """A term whose sums show how they were put in brackets."""

    def __add__(self, other):
        return Leaf(f"({self[:]}{other[:]})")


@pytest.mark.parametrize("shape", [(1, 1), (64, 10**6), (65, 10**6), (1000, 3), (300_000, 3), (BLOCK_NUMBERS + 1, 1)])
def test_cut_blocks_of_any_shape_cover_all_rows_once(shape):
    blocks = cut_blocks(*shape)
    assert [start for start, _ in blocks] == [0, *[stop for _, stop in blocks[:-1]]]
    assert blocks[-1][1] == shape[0]
    assert all(0 < stop - start <= max(64, BLOCK_NUMBERS // shape[1]) for start, stop in blocks)


@pytest.mark.parametrize(
    ("n_leaves", "expected"),
    [(1, "0"), (2, "(01)"), (3, "((01)2)"), (5, "(((01)(23))4)"), (7, "(((01)(23))((45)6))")],
)
def test_sum_along_tree_adds_neighbours_pair_by_pair(n_leaves, expected):
    assert sum_along_tree(Leaf(k) for k in range(n_leaves)) == expected


def test_map_in_order_keeps_the_order_when_later_items_finish_first():
    second_is_done = threading.Event()

    def wait_for_the_second(item):
        if item == 0:
            assert second_is_done.wait(timeout=10)
        elif item == 1:
            second_is_done.set()
        return item

    assert list(map_in_order(wait_for_the_second, range(6), 2)) == list(range(6))


def test_array_samples_sum_shows_every_row_once_with_its_number(X):
    seen = np.zeros(len(X), dtype=int)

    def visit(rows, start):
        np.testing.assert_array_equal(rows, X[start : start + len(rows)])
        seen[start : start + len(rows)] += 1
        return len(rows)

    assert ArraySamples(X).sum(visit) == len(X)
    assert np.all(seen == 1)


@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.int64, np.bool_])
def test_array_samples_are_seen_in_double_precision_unless_they_are_single(dtype):
    samples = ArraySamples(np.ones((50, 3), dtype))
    expected = np.float32 if dtype in (np.float16, np.float32) else np.float64
    assert samples.dtype == samples.take(np.arange(2)).dtype == expected
    samples.sum(lambda rows, start: 0 if rows.dtype == expected else pytest.fail("rows have another type"))


@pytest.mark.parametrize("library", ["array_api_strict", "torch"])
@pytest.mark.parametrize("dtype", ["float32", "float64", "int16"])
def test_array_samples_of_other_libraries_are_those_of_numpy(library, dtype):
    xp = pytest.importorskip(library)
    rows = np.random.default_rng(0).integers(-9, 9, (1000, 4)).astype(dtype)
    ours, theirs = ArraySamples(rows), ArraySamples(xp.asarray(rows))
    assert theirs.shape == (1000, 4)
    index = np.array([5, 0, 999])
    np.testing.assert_array_equal(theirs.take(index), ours.take(index))
    np.testing.assert_array_equal(compute_second_moments(theirs), compute_second_moments(ours))
    assert theirs.dtype == theirs.take(index).dtype == ("float32" if dtype == "float32" else "float64")


# --- statistics -------------------------------------------------------------------------------------------------------


def test_compute_statistics_with_threads_names_the_first_of_several(X):
    spoiled = X.copy()
    spoiled[[60_000, 140_000], [4, 0]] = np.nan, np.inf
    spoiled[60_001] = np.inf
    with pytest.raises(ValueError, match=r"contains NaN \(sample 60000, feature 4\)"):
        compute_statistics(ArraySamples(spoiled, 3))


def test_compute_statistics_equals_those_of_numpy(X):
    X = X * [1, 2, 3, 4, 5] - [0, 1, 0, -1, 2]
    s = compute_statistics(ArraySamples(X))
    assert s.largest == np.max(np.abs(X))
    # sums of 1.5e5 terms in blocks: rounding of 1e-16 for each, and a factor of a few
    np.testing.assert_allclose(s.mean * s.largest, X.mean(axis=0), atol=1e-14)
    np.testing.assert_allclose(s.covariance * s.largest**2, np.cov(X.T, bias=True), atol=1e-12)
    np.testing.assert_allclose(s.second_moments(center=False) * s.largest**2, X.T @ X / N_ROWS, atol=1e-12)
    np.testing.assert_array_equal(s.second_moments(center=True), s.covariance)


def test_compute_statistics_with_a_large_offset_keeps_the_covariance(X):
    # samples are rounded to 1e-16 of their size, 1e-8 of their standard deviation: products to 1e-8 at worst;
    # sums that are not relative to an offset would leave no digit
    Y = X[:5000] + 1e8
    s = compute_statistics(ArraySamples(Y))
    expected = np.cov((Y - 1e8).T, bias=True)
    np.testing.assert_allclose(s.covariance * s.largest**2, expected, atol=2e-8)


# --- whitening --------------------------------------------------------------------------------------------------------


def whiten(X, **options):
    options = {"center": True, "whiten": True, **options}
    whitening = make_whitening(compute_statistics(ArraySamples(X)), **options)
    return whitening, whiten_samples(ArraySamples(X), whitening)


@pytest.mark.parametrize("center", [True, False])
@pytest.mark.parametrize("scale", [1e-300, 1.0, 1e300])
def test_whitened_samples_have_the_identity_as_second_moments(center, scale):
    X = make_mixed(3000, 6, condition=1e4) * scale
    whitening, white = whiten(X, center=center)
    assert whitening.is_white
    assert whitening.rank == 6
    Y = white.take(np.arange(3000))
    # small variances are known to 1e-16 of the largest: 1e-12 of themselves, and a factor of a few
    np.testing.assert_allclose(Y.T @ Y / 3000, np.eye(6), atol=1e-10)
    np.testing.assert_allclose(Y.mean(axis=0), 0 if center else whitening.to_white @ X.mean(axis=0), atol=1e-11)
    np.testing.assert_allclose(whitening.to_white @ whitening.from_white, np.eye(6), atol=1e-10)
    np.testing.assert_allclose(whitening.mean / scale, X.mean(axis=0) / scale * center, atol=1e-13)
    np.testing.assert_allclose((Y @ whitening.from_white.T + whitening.mean) / scale, X / scale, atol=1e-12)


@pytest.mark.parametrize("whitened", [True, False])
def test_make_whitening_of_standardised_features_does_not_depend_on_their_units(whitened):
    X, units = make_mixed(500, 4, condition=10), np.array([1e-3, 1.0, 30.0, 1e5])
    one, other = (whiten(each, whiten=whitened, standardize=True) for each in (X, X * units))
    index = np.arange(500)
    # variances are rounded to 1e-16 of the largest, ten times that of the smallest; signs of directions are arbitrary
    np.testing.assert_allclose(np.abs(one[1].take(index)), np.abs(other[1].take(index)), atol=1e-11)
    np.testing.assert_allclose(other[1].take(index) @ other[0].from_white.T + other[0].mean, X * units, rtol=1e-9)
    np.testing.assert_allclose(np.mean(one[1].take(index) ** 2), 1, rtol=1e-12)
    if not whitened:
        np.testing.assert_allclose(one[1].take(index), (X - X.mean(axis=0)) / X.std(axis=0), atol=1e-11)
        assert not one[0].is_scaling


# --- subsamples -------------------------------------------------------------------------------------------------------


def test_is_white_tells_samples_whitened_by_their_own_moments_from_white_ones():
    X = np.random.default_rng(0).standard_normal((2000, 5))
    assert is_white(7 * compute_second_moments(whiten(X)[1]), 2000)
    assert not is_white(compute_second_moments(ArraySamples(X)), 2000)  # off by 1 / sqrt(r)


def test_samples_are_never_written_to(X):
    Y = X[:2000]  # not writeable
    before = Y.copy()
    whitening, white = whiten(Y)
    white.sum(lambda rows, start: np.sum(np.multiply(rows, 2, out=rows)))  # a visit may use its rows as it likes
    gather(ArraySamples(Y), whitening, find_order(ArraySamples(Y))).encode(np.eye(N_FEATURES))
    np.testing.assert_array_equal(Y, before)


# --- weights ----------------------------------------------------------------------------------------------------------


def test_moments_of_weighted_samples_in_any_blocks_are_those_of_copies(monkeypatch):
    X, w = make_mixed(500, 4, condition=10), np.random.default_rng(1).integers(0, 4, 500)
    monkeypatch.setattr("elldict.samples.base.BLOCK_NUMBERS", 100)  # blocks of 64 rows
    one, other = ArraySamples(X, weights=w.astype(float)), ArraySamples(np.repeat(X, w, axis=0))
    np.testing.assert_allclose(compute_second_moments(one), compute_second_moments(other), atol=1e-13)
    np.testing.assert_allclose(sum_fourth_moments(one), sum_fourth_moments(other), rtol=1e-11, atol=1e-9)
    one, other = compute_statistics(one), compute_statistics(other)
    assert one.n_samples == other.n_samples == np.sum(w)
    # sums of 750 numbers below one, relative to another offset: the first sample may have a weight of zero
    np.testing.assert_allclose(one.mean * one.largest, other.mean * other.largest, atol=1e-13)
    np.testing.assert_allclose(one.covariance * one.largest**2, other.covariance * other.largest**2, atol=1e-13)


@pytest.mark.parametrize("factor", [1e-300, 0.1, 1e3])
def test_scale_weights_that_are_not_whole_sum_to_the_effective_sample_size(factor):
    weights = np.random.default_rng(0).exponential(size=200)
    scaled = scale_weights(factor * weights)
    # Kish: the number of equally weighted samples whose mean has the same variance
    np.testing.assert_allclose(np.sum(scaled), np.sum(weights) ** 2 / np.sum(weights**2), rtol=1e-13)
    np.testing.assert_allclose(scaled / scaled[0], weights / weights[0], rtol=1e-13)
