"""The order of samples, the parts and subsamples that follow from it, with weights and without."""

import itertools

import numpy as np
import pytest

from elldict.atoms import Options
from elldict.fit import fit
from elldict.metrics import recovery_error
from elldict.samples import order as order_module
from elldict.samples import subsample
from elldict.samples.arrays import ArraySamples, SelectedSamples
from elldict.samples.base import MappedSamples
from elldict.samples.normalization import Normalization
from elldict.samples.order import find_order
from elldict.samples.statistics import compute_statistics
from elldict.samples.subsample import FEWEST, PER_DIRECTION, choose_strides, gather
from elldict.samples.whitening import make_whitening, whiten_samples
from tests.fits import DRAW, draw_atoms, keep_coordinates


def order_rows(X, weights=None):
    return find_order(ArraySamples(X, weights=weights))


def make_rows(r, n, seed=0):
    return np.random.default_rng(seed).laplace(size=(r, n))


def make_large_rows(r, n):
    """Samples of which none is small."""
    X = make_rows(r, n)
    return (X + np.sign(X)) * np.arange(1, n + 1)


def make_unit_rows(r, n):
    X = make_rows(r, n)
    return X / np.linalg.norm(X, axis=1, keepdims=True)


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
    assert order.n_samples == order.n_distinct == len(order.index) == 500


def test_find_order_of_equal_norms_sorts_by_fourth_moments_of_the_largest_samples(monkeypatch):
    monkeypatch.setattr(order_module, "LARGEST", 100)
    X = np.r_[make_unit_rows(300, 3), 2 * make_unit_rows(200, 3) * np.linspace(1, 2, 200)[:, None]]
    largest = X[400:]
    M = (largest * np.sum(largest * largest, axis=1)[:, None]).T @ largest
    order = order_rows(X)
    np.testing.assert_array_equal(order.index[:300], np.argsort(np.sum(X[:300] @ M * X[:300], axis=1)))
    np.testing.assert_array_equal(order.index[300:], np.arange(300, 500))
    permutation = np.random.default_rng(3).permutation(500)
    np.testing.assert_array_equal(permutation[order_rows(X[permutation]).index], order.index)


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
    order, other = order_rows(X), order_rows(X @ draw_atoms(8))
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
    order = order_rows(X[number] @ draw_atoms(8))  # rounding of copies may differ from row to row
    assert order.n_distinct == 100
    assert order.n_samples == 400
    part = order.assign_parts(n_parts)
    parts_of = [set(part[number[order.index] == k]) for k in range(100)]
    assert all(len(each) == 1 for each in parts_of)
    np.testing.assert_array_equal(np.bincount(part), np.full(n_parts, 400 // n_parts))


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
    for name in ("index", "squares", "group"):
        np.testing.assert_array_equal(getattr(thin, name), getattr(order, name)[5::10], err_msg=name)
    assert len(order.thin_out(1000).index) == 1


@pytest.mark.parametrize("first", [0, 1, 2, 7, 8, 16, 100, 1000, 10**5])
def test_choose_strides_grow_to_all_samples_by_at_most_about_the_growth(first):
    strides = choose_strides(first, 8)
    assert strides[0] == max(1, first)
    assert strides[-1] == 1
    # the last factor may be up to four times the growth, less one
    assert all(large >= small and large < 32 * small for large, small in itertools.pairwise(strides))


def test_gather_reads_samples_in_their_order_with_alternating_halves():
    X = make_rows(200, 3)
    order, whitening = order_rows(X).thin_out(3), keep_coordinates(3, X.T @ X / 200)
    assert gather(ArraySamples(X), whitening, order_rows(X)).moments is whitening.moments  # without another pass
    subset = gather(ArraySamples(X), whitening, order)
    np.testing.assert_array_equal(subset.samples.X, X[order.index])
    np.testing.assert_array_equal(subset.half, np.arange(len(order.index)) % 2)
    np.testing.assert_array_equal(subset.squares, order.squares)
    np.testing.assert_allclose(subset.moments, X[order.index].T @ X[order.index] / len(order.index), atol=1e-13)


@pytest.mark.parametrize("n", [3, 120])
def test_gather_takes_few_samples_evenly_from_the_smallest_to_the_largest(n):
    r = 5 * max(FEWEST, PER_DIRECTION * n)
    X = make_rows(r, n)
    order = order_rows(X)
    few = gather(ArraySamples(X), keep_coordinates(n, np.eye(n)), order).few
    np.testing.assert_array_equal(few.X, X[order.index[2::5]])


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("normalized", [False, True])
def test_gather_encodes_few_samples_like_the_others(dtype, weighted, normalized):
    r = 4 * FEWEST
    X, w = make_large_rows(r, 3).astype(dtype), draw_weights(r).astype(float) if weighted else None
    subset, order, _ = collect(ArraySamples(X, weights=w), center=True)
    if normalized:
        subset = subset.normalize(Normalization(order.median))
    codes = subset.encode(draw_atoms(3))
    some = order.thin_out(max(1, round(order.n_samples / FEWEST)))
    place = np.flatnonzero(np.isin(order.index, some.index))
    assert 0.15 < len(place) / r < 0.35
    assert codes.samples.dtype == codes.samples.X.dtype == codes.few.dtype == codes.few.X.dtype == dtype
    assert codes.rounding == (4 * 2.0**-23 if dtype == np.float32 else 1e-13)
    # codes of some units take a dozen operations
    rounding = 30 * np.finfo(dtype).eps
    np.testing.assert_allclose(codes.few.X, codes.samples.X[place], rtol=rounding, atol=10 * rounding)
    np.testing.assert_array_equal(codes.few.weights, some.weights)


def collect(samples, stride=1, **options):
    """Gather every s-th sample in the order of white ones."""
    whitening = make_whitening(compute_statistics(samples), **{"center": False, "whiten": True, **options})
    order = find_order(whiten_samples(samples, whitening)).thin_out(stride)
    return gather(samples, whitening, order), order, whitening


def test_gather_encodes_samples_with_the_standard_deviation_of_their_codes():
    X = make_large_rows(300, 3)
    subset, order, whitening = collect(ArraySamples(X), whiten=False)
    A = draw_atoms(3)[:2]
    codes = subset.encode(A)
    Z = X[order.index] @ A.T / whitening.unit
    np.testing.assert_allclose(codes.samples.X, Z, atol=1e-13)
    np.testing.assert_allclose(codes.std, np.sqrt(np.mean(Z**2, axis=0)), rtol=1e-12)
    np.testing.assert_array_equal(codes.half, np.arange(300) % 2)
    assert codes.shape == (300, 2)


@pytest.mark.parametrize("options", [{"whiten": False}, {"center": True}], ids=str)
@pytest.mark.parametrize(
    ("stride", "n_zeros", "kind"), [(1, 0, MappedSamples), (1, 40, MappedSamples), (9, 0, SelectedSamples)]
)
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("normalized", [False, True])
def test_gather_of_samples_read_in_every_pass_finds_the_codes_of_a_copy(
    monkeypatch, options, stride, n_zeros, kind, weighted, normalized
):
    """They are read by their index, or in consecutive rows where these are at least half of all."""
    X = make_large_rows(400, 3)
    X[:n_zeros] = 0  # left out by the order
    samples = ArraySamples(X, weights=draw_weights(400).astype(float) if weighted else None)
    copied, order, whitening = collect(samples, stride, **options)
    for name in ("STORED_BYTES", "COPIED_BYTES"):
        monkeypatch.setattr(subsample, name, 0)
    streamed = collect(samples, stride, **options)[0]
    assert isinstance(copied.samples, ArraySamples)
    assert isinstance(streamed.samples, kind)
    assert stride > 1 or len(order.index) == 400 - n_zeros
    np.testing.assert_allclose(copied.samples.X, whitening.apply(X[order.index]), atol=1e-14)
    if normalized:
        copied, streamed = (each.normalize(Normalization(order.median)) for each in (copied, streamed))
    # other products of the same numbers, rounded to 1e-16 of their size: some tens for white samples
    np.testing.assert_allclose(streamed.moments, copied.moments, atol=1e-13)
    np.testing.assert_array_equal(streamed.few.X, copied.few.X)
    A = draw_atoms(3)

    def sum_codes(subset):
        codes = subset.encode(A)

        def visit(Z, half, weights):
            each = np.ones(len(Z)) if weights is None else weights
            return np.stack([(each * (half == k)) @ Z**power for k in (0, 1) for power in (1, 2, 3)])

        return codes.sum(visit), codes.std, codes.n_samples

    for one, other in zip(sum_codes(streamed), sum_codes(copied), strict=True):
        # sums of a thousand cubes, of 1e3 at most: 1e-16 of 1e6
        np.testing.assert_allclose(one, other, rtol=1e-12, atol=1e-10)


# --- weights ----------------------------------------------------------------------------------------------------------


def draw_weights(r, seed=2):
    return np.random.default_rng(seed).integers(1, 6, r)


def order_both(X, w):
    """Find the order of weighted samples, and that of as many copies of each, with the samples that these copy."""
    number = np.repeat(np.arange(len(X)), w)
    return order_rows(X, w.astype(float)), order_rows(X[number]), number


def check_same(weighted, copies, number):
    """Compare an order of weighted samples with that of copies."""
    each = weighted.weights.astype(int)
    np.testing.assert_array_equal(weighted.weights, each)
    np.testing.assert_array_equal(np.repeat(weighted.index, each), number[copies.index])
    np.testing.assert_array_equal(np.repeat(weighted.squares, each), copies.squares)
    # labels of distinct samples may be others, if some of these are left out
    np.testing.assert_array_equal(np.diff(np.repeat(weighted.group, each)) > 0, np.diff(copies.group) > 0)
    assert weighted.n_samples == copies.n_samples == np.sum(each)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("stride", [1, 2, 3, 7, 50, 600, 1200])
def test_thin_out_of_weighted_samples_is_that_of_copies(kind, stride):
    weighted, copies, number = order_both(KINDS[kind], draw_weights(500))
    assert 1200 < weighted.n_samples < 2400
    check_same(weighted.thin_out(stride), copies.thin_out(stride), number)
    # copies that are left are counted again where a subsample is thinned out
    check_same(weighted.thin_out(stride).thin_out(3), copies.thin_out(stride).thin_out(3), number)


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


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("n_parts", [2, 4])
def test_assign_parts_of_weighted_samples_are_those_of_copies(kind, n_parts):
    weighted, copies, _ = order_both(KINDS[kind], draw_weights(500))
    for stride in (1, 3, 40):
        thin = weighted.thin_out(stride)
        part = np.repeat(thin.assign_parts(n_parts), thin.weights.astype(int))
        np.testing.assert_array_equal(part, copies.thin_out(stride).assign_parts(n_parts))


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("scale", [1.0, 0.1, 1e-3])
def test_median_and_average_of_weighted_samples_are_those_of_copies(seed, scale):
    X, w = make_rows(20 + seed % 3, 3), draw_weights(20 + seed % 3, seed)
    weighted, copies, _ = order_both(X, w)
    assert copies.median == np.median(copies.squares)
    other = order_rows(X, scale * w)
    # sums of weights .1 are rounded: their half is where that of whole ones is
    assert weighted.median == other.median == copies.median
    # of some 60 positive terms
    np.testing.assert_allclose(weighted.average(weighted.squares), np.mean(copies.squares), rtol=60 * 2.3e-16)
    np.testing.assert_allclose(other.average(other.squares), np.mean(copies.squares), rtol=60 * 2.3e-16)


def test_median_of_an_even_number_of_weighted_samples_lies_between_two():
    order = order_rows(np.diag([1.0, 2.0, 3.0, 4.0]), np.array([1.0, 2.0, 2.0, 1.0]))
    np.testing.assert_array_equal(order.squares, [1, 4, 9, 16])
    assert order.median == 6.5
    assert order_rows(np.diag([1.0, 2.0, 3.0, 4.0]), np.array([1.0, 2.0, 1.0, 1.0])).median == 4
    assert order_rows(np.eye(1), np.array([0.3])).median == 1


def test_find_order_of_weighted_outliers_leaves_out_what_it_leaves_out_of_copies():
    # three outliers are 1 % of the samples: were they part of the mean, all others would be small
    X = make_rows(300, 3)
    X[:3] *= 1e6
    weighted, copies, number = order_both(X, np.full(300, 4))
    assert len(weighted.index) > 290
    check_same(weighted, copies, number)


def test_find_order_of_an_outlier_of_more_than_their_share_leaves_out_what_it_leaves_out_of_copies():
    """One copy of the outlier is part of the mean: a hundredth of this is 6, of the mean with both copies 12."""
    X, w = make_rows(100, 3), np.ones(100, dtype=int)
    X[0] *= 100
    w[0] = 2
    check_same(*order_both(X, w))


@pytest.mark.parametrize("options", [{"whiten": False}, {"center": True}, {"standardize": True}], ids=str)
def test_gather_of_weighted_samples_encodes_them_as_copies(options):
    X, w = make_large_rows(400, 3), draw_weights(400)
    (one, _, _), (other, _, _) = (
        collect(each, **options)
        for each in (ArraySamples(X, weights=w.astype(float)), ArraySamples(np.repeat(X, w, axis=0)))
    )
    codes, copies = (each.encode(draw_atoms(3)) for each in (one, other))
    each = codes.samples.weights.astype(int)
    assert copies.samples.weights is None
    assert codes.n_samples == copies.n_samples == len(copies.half) == np.sum(each)
    # of moments, and thus of coordinates, some ten roundings differ
    np.testing.assert_allclose(one.moments, other.moments, atol=1e-13)
    np.testing.assert_allclose(codes.std, copies.std, rtol=1e-13)
    np.testing.assert_allclose(np.repeat(codes.samples.X, each, axis=0), copies.samples.X, atol=1e-13)
    np.testing.assert_array_equal(np.repeat(codes.half, each), copies.half)


# --- more samples than are sorted -------------------------------------------------------------------------------------


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("kind", ["noisy", "sparse", "laplace of varying scale"])
def test_fit_of_drawn_order_uses_all_samples(kind, weighted, monkeypatch):
    """Errors of a fit to all 20000 samples are about a third of those of a fit to the 2500 drawn ones."""
    rng, n = np.random.default_rng(3), 8
    codes = DRAW[kind.split()[0]](rng, (20_000, n))
    if kind.endswith("scale"):
        codes *= np.exp(rng.standard_normal((len(codes), 1)))
    A = draw_atoms(n)
    weights = rng.integers(1, 3, len(codes)).astype(float) if weighted else None
    samples = ArraySamples(codes @ A, weights=weights)
    sorted_all = fit(samples, Options(error_bars=False))
    monkeypatch.setattr(order_module, "MOST_SORTED", 2500)
    drawn = fit(samples, Options(error_bars=False))
    few = fit(
        ArraySamples(samples.X[order_module.draw_positions(len(codes), order_module.MOST_SORTED)]),
        Options(error_bars=False),
    )
    error, expected, of_few = (recovery_error(found.unmixing, A) for found in (drawn, sorted_all, few))
    assert error < max(1.3 * expected, 1e-12)
    assert kind == "sparse" or error < of_few / 2
    assert (drawn.normalization is None) == (sorted_all.normalization is None)
    np.testing.assert_allclose(drawn.objective, sorted_all.objective, rtol=1e-2)


def test_draw_positions_spread_evenly_over_all_samples():
    positions = order_module.draw_positions(1234, 100)
    assert len(positions) == 100
    assert np.all(np.diff(positions) > 0)
    starts = np.arange(101) * 1234 // 100
    assert np.all((starts[:-1] <= positions) & (positions < starts[1:]))
    np.testing.assert_array_equal(positions, order_module.draw_positions(1234, 100))


def test_fit_of_drawn_order_leaves_out_zeros_as_that_of_all_samples_does(monkeypatch):
    """Zeros among noisy samples would make densities narrow, with ten times the error."""
    rng, A = np.random.default_rng(0), draw_atoms(8)
    codes = rng.standard_normal((20_000, 8)) * (rng.random((20_000, 8)) < 0.02)
    codes[np.any(codes, axis=1)] += 0.1 * rng.standard_normal((np.sum(np.any(codes, axis=1)), 8))
    samples = ArraySamples(codes @ A)
    expected = recovery_error(fit(samples, Options(error_bars=False)).unmixing, A)
    monkeypatch.setattr(order_module, "MOST_SORTED", 2500)
    assert recovery_error(fit(samples, Options(error_bars=False)).unmixing, A) < 1.1 * expected
