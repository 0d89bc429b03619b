"""Samples in memory: sums over blocks, statistics of a first pass, whitening, subsamples, weights."""

import threading

import numpy as np
import pytest

from elldict.samples.arrays import ArraySamples, SelectedSamples, scale_weights
from elldict.samples.base import BLOCK_NUMBERS, MappedSamples, cut_blocks, map_in_order, sum_along_tree, weigh
from elldict.samples.order import find_order
from elldict.samples.statistics import compute_statistics, count_samples
from elldict.samples.subsample import compute_second_moments, gather, is_white, store
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


def test_sum_along_tree_of_equal_terms_is_free_of_rounding():
    # every sum of two equal numbers is exact; one after the other they are off in the tenth digit
    assert sum_along_tree([0.1] * 2**14) == 0.1 * 2**14


def test_map_in_order_keeps_the_order_when_later_items_finish_first():
    second_is_done = threading.Event()

    def wait_for_the_second(item):
        if item == 0:
            assert second_is_done.wait(timeout=10)
        elif item == 1:
            second_is_done.set()
        return item

    assert list(map_in_order(wait_for_the_second, range(6), 2)) == list(range(6))


@pytest.mark.parametrize("n_threads", [1, 2])
def test_map_in_order_does_not_read_far_ahead(n_threads):
    n_read = 0

    def count():
        nonlocal n_read
        for item in range(100):
            n_read += 1
            yield item

    next(map_in_order(lambda item: item, count(), n_threads))
    assert n_read <= 2 * n_threads + 1


@pytest.mark.parametrize("n_threads", [1, 3])
def test_array_samples_sum_raises_the_error_of_a_visit(X, n_threads):
    def fail(rows, start):
        if start > 0:
            raise ZeroDivisionError
        return 0

    with pytest.raises(ZeroDivisionError):
        ArraySamples(X, n_threads).sum(fail)


def test_array_samples_sum_shows_every_row_once_with_its_number(X):
    seen = np.zeros(len(X), dtype=int)

    def visit(rows, start):
        np.testing.assert_array_equal(rows, X[start : start + len(rows)])
        seen[start : start + len(rows)] += 1
        return len(rows)

    assert ArraySamples(X).sum(visit) == len(X)
    assert np.all(seen == 1)


@pytest.mark.parametrize("n_threads", [2, 3])
def test_array_samples_sum_with_more_threads_gives_the_same_bits(X, n_threads):
    one, many = ArraySamples(X), ArraySamples(X, n_threads)
    assert len(cut_blocks(*X.shape)) > 2
    np.testing.assert_array_equal(compute_second_moments(one), compute_second_moments(many))
    for name in ("largest", "mean", "covariance"):
        np.testing.assert_array_equal(
            getattr(compute_statistics(one), name), getattr(compute_statistics(many), name), err_msg=name
        )
    doubled = [store(MappedSamples(each, lambda rows, where: 2 * rows, N_FEATURES, None)).X for each in (one, many)]
    np.testing.assert_array_equal(doubled, [2 * X, 2 * X])


@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.int64, np.uint8, np.bool_])
def test_array_samples_are_seen_in_double_precision_unless_they_are_single(dtype):
    X = np.random.default_rng(0).integers(0, 2, (50, 3)).astype(dtype)
    samples = ArraySamples(X)
    assert (
        samples.dtype
        == samples.take(np.arange(2)).dtype
        == (np.float32 if dtype in (np.float16, np.float32) else np.float64)
    )
    samples.sum(lambda rows, start: 0 if rows.dtype == samples.dtype else pytest.fail("rows have another type"))
    np.testing.assert_array_equal(samples.sum(lambda rows, start: rows.T @ rows), X.astype(float).T @ X.astype(float))


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


def test_array_samples_of_torch_in_bfloat16_that_require_grad_are_read():
    torch = pytest.importorskip("torch")
    rows = torch.asarray([[1.0, 2.0], [0.5, -3.0]]).bfloat16().requires_grad_()
    np.testing.assert_array_equal(ArraySamples(rows).take(np.arange(2)), [[1.0, 2.0], [0.5, -3.0]])


def test_store_keeps_numbers_precision_weights_and_threads(X):
    weights = np.arange(float(N_ROWS))
    for dtype in (np.float32, np.float64):
        mapped = MappedSamples(ArraySamples(X.astype(dtype), 2), lambda rows, where: rows[:, 1:3], 2, weights)
        stored = store(mapped)
        np.testing.assert_array_equal(stored.X, X[:, 1:3].astype(dtype))
        assert stored.dtype == stored.X.dtype == dtype
        assert stored.X.flags.f_contiguous
        assert stored.weights is weights
        assert stored.n_threads == 2


def test_mapped_samples_show_the_positions_of_their_rows(X):
    number = np.arange(N_ROWS)

    def write(rows, where):
        return np.c_[rows[:, 0], number[where]]

    mapped = MappedSamples(ArraySamples(X), write, 2, None)
    assert mapped.shape == (N_ROWS, 2)
    np.testing.assert_array_equal(store(mapped).X, np.c_[X[:, 0], number])
    index = np.array([7, 140_000, 3])
    np.testing.assert_array_equal(mapped.take(index), np.c_[X[index, 0], index])


def test_selected_samples_are_those_of_their_index(X):
    index = np.random.default_rng(0).permutation(N_ROWS)[:120_000]  # more than two blocks
    weights = np.arange(120_000.0)
    for n_threads in (1, 2):
        selected = SelectedSamples(ArraySamples(X, n_threads), index, weights)
        assert selected.shape == (120_000, N_FEATURES)
        assert selected.n_threads == n_threads
        assert selected.dtype == np.float64
        np.testing.assert_array_equal(store(selected).X, X[index])
        np.testing.assert_array_equal(selected.take(np.array([5, 0])), X[index[[5, 0]]])
        again = SelectedSamples(selected, np.array([1, 119_999]))
        np.testing.assert_array_equal(again.take(np.arange(2)), X[index[[1, 119_999]]])
        assert again.weights is None


# --- statistics -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("value", "name"), [(np.nan, "NaN"), (np.inf, "infinity"), (-np.inf, "infinity")])
@pytest.mark.parametrize("row", [0, 70_000, N_ROWS - 1])
def test_compute_statistics_names_sample_and_feature_that_are_not_finite(X, value, name, row):
    spoiled = X.copy()
    spoiled[row, 3] = value
    with pytest.raises(ValueError, match=rf"contains {name} \(sample {row}, feature 3\)"):
        compute_statistics(ArraySamples(spoiled))


def test_compute_statistics_with_threads_names_the_first_of_several(X):
    spoiled = X.copy()
    spoiled[[60_000, 140_000], [4, 0]] = np.nan, np.inf
    spoiled[60_001] = np.inf
    with pytest.raises(ValueError, match=r"contains NaN \(sample 60000, feature 4\)"):
        compute_statistics(ArraySamples(spoiled, 3))


def test_compute_statistics_equals_those_of_numpy(X):
    X = X * [1, 2, 3, 4, 5] - [0, 1, 0, -1, 2]
    s = compute_statistics(ArraySamples(X))
    assert s.n_samples == N_ROWS
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


@pytest.mark.parametrize("scale", [1e-300, 1e300])
def test_compute_statistics_at_extreme_scales_neither_overflow_nor_underflow(X, scale):
    Y = X[:1000]
    with np.errstate(over="raise", invalid="raise", divide="raise"):
        s, expected = compute_statistics(ArraySamples(Y * scale)), compute_statistics(ArraySamples(Y))
    assert s.largest == expected.largest * scale
    np.testing.assert_allclose(s.mean, expected.mean, atol=1e-14)
    np.testing.assert_allclose(s.covariance, expected.covariance, atol=1e-14)


def test_compute_statistics_of_zeros_is_refused():
    with pytest.raises(ValueError, match="All entries of X are zero"):
        compute_statistics(ArraySamples(np.zeros((100_000, 4))))


# --- whitening --------------------------------------------------------------------------------------------------------


def whiten(X, **options):
    options = {"center": True, "whiten": True, **options}
    whitening = make_whitening(compute_statistics(ArraySamples(X)), **options)
    return whitening, whiten_samples(ArraySamples(X), whitening)


def check_pseudo_inverse(whitening):
    """Conditions of Moore and Penrose; what samples do not show is projected along other directions."""
    W, V = whitening.to_white, whitening.from_white
    scale = np.linalg.norm(W, 2) * np.linalg.norm(V, 2) * 1e-14
    np.testing.assert_allclose(W @ V, np.eye(len(W)), atol=scale)
    np.testing.assert_allclose(V @ W @ V, V, atol=scale * np.max(np.abs(V)))
    np.testing.assert_allclose(W @ V @ W, W, atol=scale * np.max(np.abs(W)))


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
    check_pseudo_inverse(whitening)
    np.testing.assert_allclose(whitening.mean / scale, X.mean(axis=0) / scale * center, atol=1e-13)
    np.testing.assert_allclose((Y @ whitening.from_white.T + whitening.mean) / scale, X / scale, atol=1e-12)


def test_whitened_samples_sum_and_take_agree():
    X = make_mixed(2000, 4, condition=10)
    _, white = whiten(X)
    assert white.shape == (2000, 4)
    Y = white.take(np.arange(2000))
    np.testing.assert_allclose(white.sum(lambda rows, start: rows.T @ rows), Y.T @ Y, atol=1e-9)
    np.testing.assert_array_equal(white.take(np.array([7, 3])), Y[[7, 3]])


@pytest.mark.parametrize("whitened", [True, False])
def test_make_whitening_of_rank_deficient_samples_keeps_the_directions_that_vary(whitened):
    X = make_mixed(1000, 4, condition=10) @ np.random.default_rng(1).standard_normal((4, 7))
    whitening, white = whiten(X, whiten=whitened, center=False)
    assert whitening.rank == 4
    assert white.shape == (1000, 4)
    np.testing.assert_allclose(white.take(np.arange(9)) @ whitening.from_white.T, X[:9], atol=1e-12)
    check_pseudo_inverse(whitening)
    # three times the third power of the mixing, and not the infinity of a variance that is zero
    assert whitening.condition < 1e6


def test_make_whitening_of_a_constant_feature_leaves_it_out_when_centred():
    X = np.c_[make_mixed(500, 3, condition=2), np.full(500, 7.0)]
    whitening, _ = whiten(X)
    assert whitening.rank == 3
    np.testing.assert_allclose(whitening.to_white[:, 3], 0, atol=1e-12)
    assert whiten(X, center=False)[0].rank == 4


def test_make_whitening_to_fewer_components_keeps_the_largest_principal_ones():
    X = make_mixed(2000, 6, condition=100)
    whitening, white = whiten(X, n_components=2)
    assert white.shape == (2000, 2)
    assert whitening.rank == 6
    _, s, V = np.linalg.svd(X - X.mean(axis=0), full_matrices=False)
    np.testing.assert_allclose(np.abs(whitening.from_white.T @ V.T[:, :2]), np.diag(s[:2] / np.sqrt(2000)), atol=1e-9)
    np.testing.assert_allclose(whitening.condition, (s[0] / s[-1]) ** 2, rtol=1e-9)
    check_pseudo_inverse(whitening)


def test_make_whitening_with_more_components_than_directions_takes_all():
    assert whiten(make_mixed(100, 3, condition=2), n_components=9)[1].shape == (100, 3)


@pytest.mark.parametrize("center", [True, False])
def test_make_whitening_without_whitening_only_scales(center):
    X = make_mixed(1000, 5, condition=100) * 1e3
    whitening, white = whiten(X, whiten=False, center=center)
    assert not whitening.is_white
    assert whitening.is_scaling
    unit = whitening.unit
    # one rounding for the unit, one for the quotient
    np.testing.assert_allclose(whitening.to_white, np.eye(5) / unit, rtol=2.3e-16)
    Y = white.take(np.arange(1000))
    np.testing.assert_allclose(np.mean(Y**2), 1, rtol=1e-12)
    np.testing.assert_allclose(Y * unit, X - X.mean(axis=0) * center, atol=1e-9)


def test_make_whitening_without_whitening_of_few_directions_has_an_orthonormal_span():
    X = np.random.default_rng(0).standard_normal((400, 3)) @ np.random.default_rng(1).standard_normal((3, 8))
    whitening, white = whiten(X, whiten=False, center=False)
    span = whitening.to_white * np.linalg.norm(whitening.from_white[:, 0])
    np.testing.assert_allclose(span @ span.T, np.eye(3), atol=1e-13)
    np.testing.assert_allclose(X @ span.T @ span, X, atol=1e-12)
    np.testing.assert_allclose(np.mean(white.take(np.arange(400)) ** 2), 1, rtol=1e-12)


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


def test_whitening_makes_rows_and_columns_that_are_inverse_to_each_other():
    whitening, _ = whiten(make_mixed(500, 4, condition=50))
    A = np.linalg.qr(np.random.default_rng(2).standard_normal((4, 4)))[0]
    rows, columns = whitening.make_unmixing(A), whitening.make_mixing(A)
    np.testing.assert_allclose(rows @ columns, np.eye(4), atol=1e-12)
    X = make_mixed(500, 4, condition=50)
    np.testing.assert_allclose(whitening.apply(X) @ A.T, (X - X.mean(axis=0)) @ rows.T, atol=1e-10)


# --- subsamples -------------------------------------------------------------------------------------------------------


def test_is_white_tells_samples_whitened_by_their_own_moments_from_white_ones():
    r, n = 2000, 5
    X = np.random.default_rng(0).standard_normal((r, n))
    _, white = whiten(X)
    assert is_white(compute_second_moments(white), r)
    assert is_white(7 * compute_second_moments(white), r)
    assert not is_white(compute_second_moments(ArraySamples(X)), r)  # off by 1 / sqrt(r)


def test_samples_are_never_written_to(X):
    Y = X[:2000]  # not writeable
    before = Y.copy()
    whitening, white = whiten(Y)
    white.sum(lambda rows, start: np.sum(np.multiply(rows, 2, out=rows)))  # a visit may use its rows as it likes
    gather(ArraySamples(Y), whitening, find_order(ArraySamples(Y)), np.eye(N_FEATURES)).encode(np.eye(N_FEATURES))
    np.testing.assert_array_equal(Y, before)


# --- weights ----------------------------------------------------------------------------------------------------------


def draw_weighted(seed=0):
    """Samples with whole weights, some of which are zero, and copies of them."""
    X = make_mixed(500, 4, condition=10, seed=seed)
    w = np.random.default_rng(seed + 1).integers(0, 4, 500)
    return ArraySamples(X, weights=w.astype(float)), ArraySamples(np.repeat(X, w, axis=0))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_weigh_multiplies_the_rows_of_a_block_with_their_weights_in_the_precision_of_rows(dtype):
    rows, weights = np.ones((3, 2), dtype=dtype), np.arange(10.0)
    assert weigh(rows, None, 5) is rows
    weighted = weigh(rows, weights, 5)
    np.testing.assert_array_equal(weighted, [[5, 5], [6, 6], [7, 7]])
    assert weighted.dtype == dtype


def test_compute_statistics_of_weighted_samples_are_those_of_copies():
    weighted, copies = draw_weighted()
    one, other = compute_statistics(weighted), compute_statistics(copies)
    assert one.n_samples == other.n_samples == count_samples(weighted) == copies.shape[0]
    # sums of 750 numbers below one, relative to another offset: the first sample may have a weight of zero
    np.testing.assert_allclose(one.mean * one.largest, other.mean * other.largest, atol=1e-13)
    np.testing.assert_allclose(one.covariance * one.largest**2, other.covariance * other.largest**2, atol=1e-13)


def test_compute_statistics_of_scaled_weights_are_the_same():
    weighted, _ = draw_weighted()
    one, other = (compute_statistics(ArraySamples(weighted.X, weights=c * weighted.weights)) for c in (1.0, 0.01))
    np.testing.assert_allclose(other.n_samples, 0.01 * one.n_samples, rtol=1e-14)
    np.testing.assert_allclose(other.covariance, one.covariance, rtol=1e-11)
    np.testing.assert_allclose(other.mean, one.mean, rtol=1e-11)


@pytest.mark.parametrize("block", [100, BLOCK_NUMBERS])
def test_compute_second_moments_of_weighted_samples_are_those_of_copies(monkeypatch, block):
    monkeypatch.setattr("elldict.samples.base.BLOCK_NUMBERS", block)  # 25 rows, but 64 at least, or all
    weighted, copies = draw_weighted()
    np.testing.assert_allclose(compute_second_moments(weighted), compute_second_moments(copies), atol=1e-13)
    # of samples multiplied by factors, which every copy has
    scale = np.random.default_rng(3).uniform(1, 2, 500)
    np.testing.assert_allclose(
        compute_second_moments(weighted, scale),
        compute_second_moments(copies, np.repeat(scale, weighted.weights.astype(int))),
        atol=1e-13,
    )


def test_scale_weights_leaves_whole_numbers_of_copies():
    weights = np.array([0.0, 1.0, 5.0, 2.0])
    assert scale_weights(weights) is weights


@pytest.mark.parametrize("factor", [1e-300, 0.1, 1e3])
def test_scale_weights_that_are_not_whole_sum_to_the_effective_sample_size(factor):
    weights = np.random.default_rng(0).exponential(size=200)
    scaled = scale_weights(factor * weights)
    # Kish: the number of equally weighted samples whose mean has the same variance
    np.testing.assert_allclose(np.sum(scaled), np.sum(weights) ** 2 / np.sum(weights**2), rtol=1e-13)
    np.testing.assert_allclose(scaled / scaled[0], weights / weights[0], rtol=1e-13)


def test_scale_weights_that_are_all_equal_are_one():
    np.testing.assert_array_equal(scale_weights(np.full(7, 0.3)), np.ones(7))
