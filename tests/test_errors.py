"""Estimated errors: replication on parts of the samples, and exact recovery."""

import math
from dataclasses import replace

import numpy as np
import pytest
from sklearn.datasets import load_digits

from elldict.atoms import Options
from elldict.errors.exact import find_exact
from elldict.errors.splits import (
    BLOCKS,
    MANY,
    MIN_PER_COMPONENT,
    convert_difference,
    estimate_errors,
    list_splits,
    match,
    share_samples,
)
from elldict.fit import fit
from elldict.samples.arrays import ArraySamples
from tests.fits import draw_atoms

# --- parts of the samples ---------------------------------------------------------------------------------------------


def rotate_first(n, angle):
    """Columns of the identity, the first two rotated by an angle."""
    R = np.eye(n)
    R[:2, :2] = [[math.cos(angle), -math.sin(angle)], [math.sin(angle), math.cos(angle)]]
    return R


def number(r):
    """Samples that are their own numbers."""
    return ArraySamples(np.arange(float(r))[:, None])


def find_numbers(part):
    """Numbers of the samples of a part."""
    return part.take(np.arange(part.shape[0]))[:, 0].astype(int)


def estimate(columns, r, fit_columns, groups=None):
    """Estimate errors with a function of the numbers of samples."""
    splits = list_splits(r, columns.shape[1], number(r), groups)
    return estimate_errors(columns, splits, lambda part: fit_columns(find_numbers(part)))


def assign(r, n_blocks, n_parts, groups=None):
    """Number the part of each sample."""
    shares = np.array(share_samples(number(r), n_blocks, n_parts, groups))
    np.testing.assert_array_equal(np.sort(shares, axis=0)[:-1], 0)
    np.testing.assert_allclose(shares.sum(axis=0), 1, atol=1e-9)
    return np.argmax(shares, axis=0)


def count_samples(m, n_parts):
    """Number of samples with m codes each that are cut into this many parts."""
    return math.ceil(MANY / m) if n_parts == 2 else 600


@pytest.mark.parametrize("angle", [0.0, 0.1, 0.5])
@pytest.mark.parametrize("n", [3, 20])
@pytest.mark.parametrize("n_parts", [2, 3])
def test_estimate_errors_of_parts_of_which_one_differs_has_the_closed_form(n_parts, n, angle):
    r = count_samples(n, n_parts)
    errors = estimate(np.eye(n), r, lambda index: rotate_first(n, 0.0 if index[0] == 0 else angle))
    d = 1 - math.cos(angle) ** 4
    # one of three fits is off: two of three differences are d, and a difference is 3/2 of the error of all samples
    expected = d / (4 - 3 * d) if n_parts == 2 else 2 / 3 * d / (1.5 - 0.5 * 2 / 3 * d)
    np.testing.assert_allclose(errors[:2], expected, atol=1e-14)
    np.testing.assert_array_equal(errors[2:], 0)


@pytest.mark.parametrize("n_parts", [2, 3])
@pytest.mark.parametrize("n", [3, 20])
def test_estimate_errors_fits_all_samples_but_those_of_one_part(n, n_parts):
    r, seen = count_samples(n, n_parts), []
    estimate(np.eye(n), r, lambda index: seen.append(index) or np.eye(n))
    # few components and few samples: two splits
    assert len(seen) == n_parts * (2 if (n, n_parts) == (3, 3) else 1)
    for first in range(0, len(seen), n_parts):
        counts = np.bincount(np.concatenate(seen[first : first + n_parts]), minlength=r)
        np.testing.assert_array_equal(counts, n_parts - 1)
    assert len({index.tobytes() for index in seen}) == len(seen)


@pytest.mark.parametrize("n_parts", [2, 3])
def test_estimate_errors_of_averages_has_the_mean_of_their_true_error(n_parts):
    """Columns whose angles are averages of noise: their errors 1 - cos^4, 2 angle^2 where small, are known."""
    n, n_draws = 3, 300 if n_parts == 3 else 60
    r = count_samples(n, n_parts)
    stated = []
    for seed in range(n_draws):
        noise = np.random.default_rng(seed).standard_normal(r)
        stated.append(estimate(np.eye(n), r, lambda index, noise=noise: rotate_first(n, noise[index].mean()))[0])
    # chi-squares of one degree of freedom for halves, of two for two splits in thirds: a relative error of sqrt(2 / 60)
    # and sqrt(1 / 300); the means of the formula and of 1 - cos^4 differ by a share of 1 / r
    chance = math.sqrt(2 / n_draws) if n_parts == 2 else math.sqrt(1 / n_draws)
    np.testing.assert_allclose(np.mean(stated) / (2 / r), 1, atol=4 * chance)


def test_estimate_errors_does_not_depend_on_order_sign_and_scale_of_columns():
    rng = np.random.default_rng(0)
    columns = rng.standard_normal((13, 13))

    def fit_columns(index):
        near = columns + 0.01 * np.random.default_rng(len(index) + int(index[0])).standard_normal((13, 13))
        if not shuffled:
            return near
        order = rng.permutation(13)
        return (near * rng.choice([-1, 1], 13) * rng.uniform(0.1, 10, 13))[:, order]

    shuffled = False
    plain = estimate(columns, 999, fit_columns)
    shuffled = True
    np.testing.assert_allclose(estimate(columns, 999, fit_columns), plain, rtol=1e-9)
    np.testing.assert_allclose(estimate(columns * 7, 999, fit_columns), plain, rtol=1e-9)
    assert np.all(plain > 0)


@pytest.mark.parametrize(("n_samples", "enough"), [(14, False), (18, True)])
def test_estimate_errors_with_too_few_samples_is_none(n_samples, enough):
    # two thirds of the samples have to be two for each of five components
    assert MIN_PER_COMPONENT == 2
    errors = estimate(np.eye(5), n_samples, lambda index: np.eye(5))
    assert (errors is not None) == enough


@pytest.mark.parametrize("n_parts", [2, 3])
def test_share_samples_alternates_between_blocks_of_consecutive_samples(n_parts):
    part = assign(50 * BLOCKS, BLOCKS, n_parts)
    np.testing.assert_array_equal(part, np.repeat(np.arange(BLOCKS) % n_parts, 50))
    np.testing.assert_array_equal(np.bincount(part), np.full(n_parts, 50 * BLOCKS // n_parts))


@pytest.mark.parametrize("groups", [[3, 1, 3, 2, 2, 1, 4], ["c", "a", "c", "b", "b", "a", "d"]])
def test_share_samples_of_groups_keeps_them_whole_and_takes_turns_in_the_order_of_labels(groups):
    np.testing.assert_array_equal(assign(7, BLOCKS, 2, np.array(groups)), [0, 0, 0, 1, 1, 0, 1])
    np.testing.assert_array_equal(assign(7, BLOCKS, 3, np.array(groups)), [2, 0, 2, 1, 1, 0, 0])


def test_match_finds_the_partner_of_each_column_one_to_one():
    rng = np.random.default_rng(0)
    columns = np.linalg.qr(rng.standard_normal((8, 8)))[0][:, :5] * [1, 2, 3, 4, 5]
    order, signs = rng.permutation(5), np.array([1, -1, -1, 1, -1])
    partners = match(columns, (columns * signs)[:, order] * 1e-3)
    np.testing.assert_allclose(partners, columns * signs / [1, 2, 3, 4, 5], atol=1e-12)
    # two columns close to the same other one: only one gets it
    close = np.array([[1.0, 1.0], [0.0, 0.1]])
    found = match(close, np.array([[1.0, 0.0], [0.0, 1.0]]))
    np.testing.assert_array_equal(found, np.eye(2))


# --- real samples, with several maxima --------------------------------------------------------------------------------


@pytest.mark.parametrize("k", [10, 18, 20, 22])
def test_fit_of_digits_states_at_least_a_third_of_what_fits_to_fresh_halves_differ_by(k):
    """The likelihood has several maxima. Fits to parts that start from the atoms of all samples do not see this."""
    X = load_digits().data
    U, _, _ = np.linalg.svd(X - X.mean(axis=0), full_matrices=False)
    X = np.ascontiguousarray(U[:, :k])  # white: columns are not similar because a few directions have most variance
    options = Options(whiten=True, center=True)
    result, differences = fit(ArraySamples(X), options), []
    for seed in range(3):
        order = np.random.default_rng(seed).permutation(len(X))
        halves = [
            fit(ArraySamples(X[index]), replace(options, error_bars=False)).mixing for index in np.array_split(order, 2)
        ]
        one, other = (match(result.mixing, half) for half in halves)
        differences.append(1 - np.sum(one * other, axis=0) ** 4)
    fresh = np.mean(convert_difference(np.mean(differences, axis=0), 2))
    assert fresh > 0.1  # far above the sampling error of a single maximum
    assert np.mean(result.component_errors) > fresh / 3


# --- exact recovery ---------------------------------------------------------------------------------------------------

M = 6


def draw_sparse(r, m=M, density=0.4, seed=0):
    rng = np.random.default_rng(seed)
    return rng.standard_normal((r, m)) * (rng.random((r, m)) < density) * rng.uniform(0.5, 2, m)


@pytest.mark.parametrize("angle", [math.pi / 4, 0.3, 1e-6])
def test_find_exact_after_a_rotation_of_two_atoms_finds_the_others_only(angle):
    # rotated codes are zero where both were: four directions are left to them, and not five
    Z = draw_sparse(2000, density=0.3) @ rotate_first(M, angle)
    np.testing.assert_array_equal(find_exact(Z), [False, False, True, True, True, True])


def test_find_exact_needs_more_zeros_than_any_atom_has():
    # any five samples have a direction orthogonal to them: zeros of six rows say nothing
    Z = np.random.default_rng(0).standard_normal((500, M))
    Z[: M - 1, 0] = 0
    assert not np.any(find_exact(Z))
    Z[: 2 * M, 0] = 0
    np.testing.assert_array_equal(find_exact(Z), [True] + [False] * (M - 1))


@pytest.mark.parametrize(
    ("noise", "options", "is_exact"),
    [
        (0.0, {}, True),
        (1e-6, {}, False),
        (0.0, {"whiten": True, "center": True}, True),
        (0.0, {"whiten": True, "center": True, "orthogonal": True}, False),
        (1e-6, {"whiten": True, "center": True}, False),
    ],
)
def test_fit_states_exact_recovery_without_noise_and_whitening_errors_only(noise, options, is_exact):
    A = draw_atoms(M)
    X = (draw_sparse(1500) / np.linspace(0.5, 2, M) + noise * np.random.default_rng(1).standard_normal((1500, M))) @ A
    result = fit(ArraySamples(X), Options(**options))
    assert result.is_exact == is_exact
    assert result.has_replicates != is_exact
    error = 1 - np.mean(np.max((A @ result.mixing / np.linalg.norm(result.mixing, axis=0)) ** 4, axis=1))
    if is_exact:
        assert error < 1e-14
        np.testing.assert_array_equal(result.component_errors, 1e-15)
    else:
        assert np.all(result.component_errors > 1e-15)
