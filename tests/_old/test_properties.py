"""Symmetries of the problem, on random data.

One step is compared tightly (float64 1e-12, float32 1e-5); whole fits up to a signed permutation.
"""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from elldict import LpDictionaryLearning
from elldict._old.solver.directions import random_orthonormal
from elldict.datasets import make_bernoulli_gaussian
from tests._old.helpers import assert_same_atoms, one_step, sums_at

quick = settings(max_examples=30, deadline=None)
seeds = st.integers(0, 2**31)
exponents = st.sampled_from([2.2, 2.5, 3.0, 3.3, 4.0, 5.0, 8.0])
precisions = st.sampled_from([("float64", 1e-12), ("float32", 1e-5)])


@st.composite
def problems(draw, precision=precisions):
    """(X, A, tolerance): noisy sparse samples and a start with 1 <= m <= n rows."""
    rng = np.random.default_rng(draw(seeds))
    n = draw(st.integers(2, 9))
    m = draw(st.integers(1, n))
    dtype, tolerance = draw(precision)
    X = rng.standard_normal((draw(st.integers(4 * n, 60)), n)) ** 3
    return X.astype(dtype), random_orthonormal(m, n, rng), tolerance


@quick
@given(problems(), exponents)
def test_orthonormality(problem, p):
    X, A, _ = problem
    after = one_step(X, A, p, precision=str(X.dtype))
    np.testing.assert_allclose(after @ after.T, np.eye(len(A)), atol=1e-12)


@quick
@given(problems(), exponents)
def test_monotone_objective(problem, p):
    X, A, tolerance = problem
    before = sums_at(X, A, p, precision=str(X.dtype))
    after = sums_at(X, one_step(X, A, p, precision=str(X.dtype)), p, precision=str(X.dtype))
    assert after.mean_value >= before.mean_value * (1 - tolerance)


@quick
@given(problems(), exponents, seeds)
def test_rotation_equivariance(problem, p, seed):
    X, A, tolerance = problem
    R = random_orthonormal(X.shape[1], X.shape[1], np.random.default_rng(seed))
    turned = (X.astype("float64") @ R.T).astype(X.dtype)
    expected = sums_at(X, A, p, precision=str(X.dtype)).G @ R.T
    scale = np.max(np.abs(expected))
    np.testing.assert_allclose(
        sums_at(turned, A @ R.T, p, precision=str(X.dtype)).G / scale, expected / scale, atol=10 * p * tolerance
    )


@quick
@given(problems(), exponents, seeds)
def test_signed_permutation_equivariance_of_the_start(problem, p, seed):
    X, A, tolerance = problem
    rng = np.random.default_rng(seed)
    order, signs = rng.permutation(len(A)), rng.choice([-1.0, 1.0], (len(A), 1))
    expected = sums_at(X, A, p, precision=str(X.dtype)).G
    scale = np.max(np.abs(expected))
    shuffled = sums_at(X, signs * A[order], p, precision=str(X.dtype)).G
    np.testing.assert_allclose(shuffled / scale, signs * expected[order] / scale, atol=tolerance)


@quick
@given(problems(), exponents, st.integers(-60, 60), st.floats(0.1, 10))
def test_scale_invariance(problem, p, power_of_two, factor):
    X, A, tolerance = problem
    before = sums_at(X, A, p, precision=str(X.dtype)).G
    doubled = sums_at(np.ldexp(X, power_of_two), A, p, precision=str(X.dtype)).G
    np.testing.assert_array_equal(doubled, before)  # a power of two rounds nothing
    scaled = sums_at((X * factor).astype(X.dtype), A, p, precision=str(X.dtype)).G
    scale = np.max(np.abs(before))
    np.testing.assert_allclose(scaled / scale, before / scale, atol=10 * p * tolerance)


@quick
@given(problems(), exponents, seeds, st.integers(1, 70))
def test_sample_order_sign_and_block_size_do_not_matter(problem, p, seed, tile_rows):
    X, A, tolerance = problem
    rng = np.random.default_rng(seed)
    other = rng.choice([-1.0, 1.0], (len(X), 1)).astype(X.dtype) * X[rng.permutation(len(X))]
    expected = sums_at(X, A, p, precision=str(X.dtype)).G
    scale = np.max(np.abs(expected))
    np.testing.assert_allclose(
        sums_at(other, A, p, precision=str(X.dtype), tile_rows=tile_rows).G / scale,
        expected / scale,
        atol=10 * tolerance,
    )


@settings(max_examples=8, deadline=None)
@given(seeds, st.sampled_from([2.5, 3.0, 4.0]))
def test_whole_fits_find_the_same_atoms(seed, p):
    """Rotated, rescaled, reordered and sign-flipped samples from another start: the same dictionary, rotated."""
    X, _, _ = make_bernoulli_gaussian(3000, 6, density=0.2, random_state=seed % 1000)
    rng = np.random.default_rng(seed)
    R = random_orthonormal(6, 6, rng)
    other = 1e5 * rng.choice([-1.0, 1.0], (3000, 1)) * X[rng.permutation(3000)] @ R.T
    one = LpDictionaryLearning(p=p, tol=1e-12, random_state=0).fit(X).components_
    two = LpDictionaryLearning(p=p, tol=1e-12, random_state=1).fit(other).components_
    assert_same_atoms(one @ R.T, two, 1e-9)


def test_the_strategy_covers_the_sphere_the_stiefel_manifold_and_the_orthogonal_group():
    shapes = set()

    @settings(max_examples=60, deadline=None)
    @given(problems())
    def collect(problem):
        X, A, _ = problem
        shapes.add("sphere" if len(A) == 1 else "group" if len(A) == X.shape[1] else "stiefel")

    collect()
    assert shapes == {"sphere", "stiefel", "group"}


@pytest.fixture(scope="module")
def noisy():
    return make_bernoulli_gaussian(4000, 12, density=0.3, noise_std=0.3, random_state=0)[0]


@pytest.mark.parametrize("options", [{}, {"refine": None}, {"solver": "power", "refine": None}])
def test_a_smaller_tolerance_never_ends_earlier(noisy, options):
    """Neither after fewer iterations, nor with a larger last step; the smallest is met."""
    tolerances = (1e-2, 1e-3, 1e-4, 1e-5, 1e-6, 9e-7, 1e-8, 1e-10)
    models = [LpDictionaryLearning(tol=tol, random_state=0, **options).fit(noisy) for tol in tolerances]
    assert all(model.converged_ for model in models)
    assert np.all(np.diff([model.history_[-1].step for model in models]) <= 0)
    assert np.all(np.diff([model.n_iter_ for model in models]) >= 0)
    assert models[-1].history_[-1].step <= 1e-10
    assert models[-1].n_iter_ > models[0].n_iter_


@pytest.mark.parametrize("options", [{}, {"refine": None}])
def test_a_tolerance_hardly_smaller_ends_hardly_later(noisy, options):
    """Steps shrink by a constant factor or faster near the maximum: 1 % less takes one more at most."""
    for tol in (1e-3, 1e-4, 1e-5, 1e-6, 1e-7):
        models = (LpDictionaryLearning(tol=each, random_state=0, **options) for each in (tol, 0.99 * tol))
        one, other = (model.fit(noisy).n_iter_ for model in models)
        assert one <= other <= one + 1
