"""Expectations over supports against enumeration and simulation; the population power method against the paper."""

import itertools
import math

import numpy as np
import pytest
from scipy import stats

from elldict import theory

EXPONENTS = [2.2, 2.5, 3, 3.7, 4, 5, 6, 7.3]
DENSITIES = [0.1, 0.8]


def supports(n, density):
    """All 2^n supports (as rows of zeros and ones) and their probabilities."""
    B = np.array(list(itertools.product([0.0, 1.0], repeat=n)))
    active = B.sum(axis=1)
    return B, density**active * (1 - density) ** (n - active)


def enumerated_power(x, density, power, offset=0.0):
    B, weights = supports(len(x), density)
    return weights @ (offset + B @ x) ** power


def enumerated_rates(a, p, density):
    """Proposition 3.1 as printed, support by support; the last coordinate is the signal."""
    s, squares, rates = p / 2 - 1, np.square(a), []
    for i in range(len(a) - 1):
        rest = np.delete(squares[:-1], i)
        with_n, with_i, both = (
            enumerated_power(rest, density, s, c) for c in (squares[-1], squares[i], squares[i] + squares[-1])
        )
        rates.append((with_n - with_i) / (density / (1 - density) * both + with_i))
    return np.array(rates)


def start(n, seed=0):
    """A unit vector whose largest coordinate is the last one, and positive."""
    a = np.random.default_rng(seed).standard_normal(n)
    k = np.argmax(np.abs(a))
    a[[k, -1]] = a[[-1, k]]
    a[-1] = abs(a[-1])
    return a / np.linalg.norm(a)


def orthogonal(n, seed=0):
    return np.linalg.qr(np.random.default_rng(seed).standard_normal((n, n)))[0]


SQUARES = {
    "even": np.full(12, 1 / 12),
    "random": np.random.default_rng(1).random(11),
    "many scales": 10.0 ** -np.arange(0, 40, 4),
    "one large": np.array([1e-3, 1e-3, 1.0, 1e-3, 1e-120]),
    "with zeros": np.array([0.0, 0.5, 0.0, 0.2]),
}


@pytest.mark.parametrize("name", SQUARES)
@pytest.mark.parametrize("power", [0.1, 0.5, 0.85, 0.999, 1, 1.5, 2, 2.65, 3.65, 5])
def test_expected_power_is_the_sum_over_all_supports(name, power):
    for density, offset in itertools.product([0.01, 0.5, 0.99], [0.0, 0.3]):
        value = theory.expected_power(SQUARES[name], density, power, offset=offset)
        assert value == pytest.approx(enumerated_power(SQUARES[name], density, power, offset), rel=1e-12)


@pytest.mark.parametrize("power", [0.1, 0.5, 1.5, 2, 3.65])
def test_expected_power_of_equal_squares_is_a_binomial_moment(power):
    """n = 400, where no enumeration reaches."""
    count = np.arange(401)
    expected = stats.binom.pmf(count, 400, 0.3) @ (count / 400.0) ** power
    assert theory.expected_power(np.full(400, 1 / 400), 0.3, power) == pytest.approx(expected, rel=1e-11)


def test_expected_power_works_on_many_vectors_at_once():
    squares, offset = np.random.default_rng(0).random((2, 3, 5)), np.array([0.0, 1.0, 1e-9])
    values = theory.expected_power(squares, 0.4, 0.7, offset=offset)
    one_by_one = [
        [theory.expected_power(squares[i, j], 0.4, 0.7, offset=offset[j]) for j in range(3)] for i in range(2)
    ]
    np.testing.assert_allclose(values, one_by_one, rtol=1e-13)
    assert theory.expected_power([0.0, 0.0], 0.4, 0.7) == 0


@pytest.mark.parametrize("p", EXPONENTS)
@pytest.mark.parametrize("density", DENSITIES)
def test_gradient_is_the_sum_over_all_supports(p, density):
    A = orthogonal(8)[:3]
    B, weights = supports(8, density)
    for a, gradient in zip(A, theory.population_gradient(A, p, density), strict=True):
        parts = B * a  # a_Omega, one row a support
        expected = p * theory.gaussian_moment(p) * (weights * np.linalg.norm(parts, axis=1) ** (p - 2)) @ parts
        np.testing.assert_allclose(gradient, expected, rtol=1e-12)
        np.testing.assert_allclose(theory.population_gradient(a, p, density), gradient, rtol=1e-13)


@pytest.mark.parametrize("p", EXPONENTS)
def test_gradient_is_that_of_the_objective(p):
    """Central differences: error about h^2 / 6 times a third derivative of order 10, and 1e-15 / h of rounding."""
    A, h = orthogonal(30)[:2], 1e-5
    direction = np.random.default_rng(3).standard_normal(A.shape)
    ahead, behind = (theory.population_objective(A + t * direction, p, 0.3) for t in (h, -h))
    slope = np.sum(theory.population_gradient(A, p, 0.3) * direction)
    assert (ahead - behind) / (2 * h) == pytest.approx(slope, rel=1e-7, abs=1e-8)


@pytest.mark.parametrize("p", [2.5, 3, 4])
def test_objective_and_gradient_are_means_over_samples(p):
    """200 000 Bernoulli-Gaussian samples; each of the 21 numbers within five of its standard errors."""
    rng = np.random.default_rng(0)
    a, X = start(20), rng.standard_normal((200_000, 20)) * (rng.random((200_000, 20)) < 0.3)
    z = X @ a
    terms = np.column_stack([np.abs(z) ** p, (p * np.sign(z) * np.abs(z) ** (p - 1))[:, None] * X])
    exact = np.append(theory.population_objective(a, p, 0.3), theory.population_gradient(a, p, 0.3))
    assert np.all(np.abs(terms.mean(axis=0) - exact) < 5 * terms.std(axis=0) / math.sqrt(len(X)))


@pytest.mark.parametrize("p", EXPONENTS)
def test_objective_is_largest_at_unit_vectors(p):
    largest = 30 * theory.gaussian_moment(p) * 0.3
    assert theory.population_objective(np.eye(30)[::-1], p, 0.3) == pytest.approx(largest, rel=1e-13)
    assert theory.population_objective(orthogonal(30), p, 0.3) < largest


@pytest.mark.parametrize("m", [1, 4, 10])
@pytest.mark.parametrize("p", [2.5, 3, 5])
def test_step_keeps_rows_orthonormal_and_never_lowers_the_objective(p, m):
    A = orthogonal(10)[:m]
    for _ in range(4):
        new = theory.population_step(A, p, 0.3)
        np.testing.assert_allclose(new @ new.T, np.eye(m), atol=1e-13)
        before, after = (theory.population_objective(B, p, 0.3) for B in (A, new))
        assert after >= before * (1 - 1e-13)
        A = new


def test_step_on_a_vector_is_the_step_on_a_matrix_of_one_row():
    a = start(10)
    np.testing.assert_allclose(
        theory.population_step(a[None], 3, 0.3)[0], theory.population_step(a, 3, 0.3), rtol=1e-12
    )


def test_signal_ratio_gives_the_error():
    a = start(10)
    ratio = theory.signal_ratio(a)
    assert 2 - 2 / math.sqrt(1 + ratio**-2) == pytest.approx(np.sum((a - np.eye(10)[-1]) ** 2), rel=1e-12)
    assert ratio**-2 == pytest.approx(np.sum(theory.signal_ratios(a) ** -2.0), rel=1e-12)
    assert theory.signal_ratio([0, -1.0]) == math.inf
    assert theory.signal_ratios([0, -1.0]) == math.inf


@pytest.mark.parametrize("p", EXPONENTS)
@pytest.mark.parametrize("density", DENSITIES)
def test_growth_rates_are_those_of_proposition_3_1(p, density):
    a = start(8)
    np.testing.assert_allclose(theory.growth_rates(a, p, density), enumerated_rates(a, p, density), rtol=1e-11)


@pytest.mark.parametrize("p", EXPONENTS)
@pytest.mark.parametrize("density", DENSITIES)
@pytest.mark.parametrize("n", [2, 100])
def test_a_step_multiplies_signal_ratios_by_one_plus_the_rate(p, density, n):
    a = start(n, seed=n)
    rates = theory.growth_rates(a, p, density)
    after = theory.signal_ratios(theory.population_step(a, p, density))
    np.testing.assert_allclose(after, theory.signal_ratios(a) * (1 + rates), rtol=1e-9)
    assert np.all((rates > 0) & (rates <= (1 - density) / density))


@pytest.mark.parametrize("p", EXPONENTS)
def test_growth_rates_rise_with_the_signal_and_fall_with_the_other_coordinate(p):
    a = np.abs(start(10))
    for factor in (1.01, 1.5, 10):
        louder, competitor = a.copy(), a.copy()
        louder[-1] *= factor
        competitor[0] /= factor
        assert np.all(theory.growth_rates(louder, p, 0.3) > theory.growth_rates(a, p, 0.3))
        assert theory.growth_rates(competitor, p, 0.3)[0] > theory.growth_rates(a, p, 0.3)[0]


def test_growth_rates_at_their_ends():
    assert theory.growth_rates([1.0, 0.5, -1.0], 3, 0.3)[-1] == 0
    np.testing.assert_allclose(theory.growth_rates([0, 0, 2.0], 3.3, 0.2), 4.0, rtol=1e-12)
    assert theory.first_stage_bound([1.0, 0.5, -1.0], 3, 0.3) == math.inf


def population_run(a, p, density, n_iter):
    run = [a]
    for _ in range(n_iter):
        run.append(theory.population_step(run[-1], p, density))
    return run


@pytest.mark.parametrize("p", [2.5, 3, 4, 6])
@pytest.mark.parametrize("density", [0.1, 0.5])
@pytest.mark.parametrize("seed", range(2))
def test_both_stages_of_theorem_3_1(p, density, seed):
    """SOR above 1 within the bound; then an error below (1 + tau)^(T - t), tau taken at the end of stage one."""
    n = 20
    a = start(n, seed)
    run = population_run(a, p, density, 30)
    passed = [theory.signal_ratio(b) > 1 for b in run]
    first = passed.index(True)
    assert first <= math.ceil(theory.first_stage_bound(a, p, density))
    slowest = np.min(theory.growth_rates(run[first], p, density))
    for t in range(first, len(run)):
        assert np.linalg.norm(run[t] - np.eye(n)[-1]) <= (1 + slowest) ** (first - t) + 1e-15


@pytest.mark.parametrize("p", [2.2, 3, 4])
@pytest.mark.parametrize("density", [0.1, 0.9])
def test_slowest_rate_never_falls_for_p_up_to_four(p, density):
    run = population_run(start(30), p, density, 8)
    slowest = [np.min(theory.growth_rates(a, p, density)) for a in run]
    assert np.all(np.diff(slowest) >= -1e-12)


def test_slowest_rate_can_fall_for_large_p():
    """A gap in the proof of Theorem 3.1, here by enumeration: tau falls from .003835 to .003810, in the first stage."""
    a = np.array([0.13617806, 0.15110329, 0.40189656, 0.83637932, 0.94418824])
    a /= np.linalg.norm(a)
    after = theory.population_step(a, 14, 0.9)
    assert theory.signal_ratio(a) < 1
    assert np.min(enumerated_rates(after, 14, 0.9)) < 0.994 * np.min(enumerated_rates(a, 14, 0.9))


@pytest.mark.parametrize(("p", "closeness"), [(2.2, 1e-40), (2.5, 1e-20), (3, 1e-9), (4, 1e-6), (7.3, 1e-3)])
@pytest.mark.parametrize("density", DENSITIES)
def test_error_falls_by_the_factor_theta_on_the_sphere(p, closeness, density):
    """Not by 1/theta, as printed. The ratio is off by closeness^(p-2): at most 1e-8 here, 1e-6 for p = 7.3."""
    error = closeness * np.random.default_rng(0).standard_normal(9)  # a - e_n, to first order
    after = theory.population_step(np.append(error, 1.0), p, density)[:-1]
    ratio = np.linalg.norm(after) / np.linalg.norm(error)
    assert ratio == pytest.approx(density, rel=1e-5)


@pytest.mark.parametrize(("p", "tolerance"), [(3, 1e-3), (4, 1e-4), (5, 1e-4)])
def test_error_falls_by_the_factor_theta_on_the_orthogonal_group(p, tolerance):
    A = theory.population_step(np.eye(6) + 1e-5 * np.random.default_rng(0).standard_normal((6, 6)), p, 0.1)
    before, after = np.linalg.norm(A - np.eye(6)), np.linalg.norm(theory.population_step(A, p, 0.1) - np.eye(6))
    assert after / before == pytest.approx(0.1, rel=tolerance)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: theory.population_gradient([1.0, 0], 2, 0.3), "p=2"),
        (lambda: theory.population_objective([1.0, 0], 3, 0), "density=0"),
        (lambda: theory.population_step([1.0, 0], 3, 1), "density=1"),
        (lambda: theory.population_gradient(np.ones((2, 2, 2)), 3, 0.3), r"shape \(2, 2, 2\)"),
        (lambda: theory.population_gradient([1.0, math.nan], 3, 0.3), "NaN"),
        (lambda: theory.population_step(np.ones((3, 2)), 3, 0.3), "no more rows"),
        (lambda: theory.population_step([0.0, 0.0], 3, 0.3), "zero"),
        (lambda: theory.signal_ratio(np.eye(2)), r"shape \(2, 2\)"),
        (lambda: theory.signal_ratios([0.0, 0.0]), "not zero"),
        (lambda: theory.first_stage_bound([1.0], 3, 0.3), "two or more"),
        (lambda: theory.expected_power([-1.0], 0.3, 1), ">= 0"),
        (lambda: theory.expected_power([1.0], 0.3, 0), "power=0"),
    ],
)
def test_arguments_without_meaning_are_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call()
