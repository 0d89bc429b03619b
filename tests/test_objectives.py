"""Objectives: values, derivatives, and the sign of codes less sparse than Gaussian ones."""

import math

import numpy as np
import pytest
from scipy.stats import norm

from elldict.solver.evaluate import evaluate
from elldict.solver.objectives import Lp, SignedLp, SmoothNorm
from elldict.solver.steps import rotate
from tests.fits import encode

DRAW = {
    "laplace": lambda rng, shape: rng.laplace(size=shape),
    "gauss": lambda rng, shape: rng.standard_normal(shape),
    "uniform": lambda rng, shape: rng.uniform(-1, 1, shape),
    "sparse": lambda rng, shape: rng.standard_normal(shape) * (rng.random(shape) < 0.2),
}


def draw_white(r, laws, seed=0):
    """Codes of several kinds, whose second moments are exactly the identity."""
    rng = np.random.default_rng(seed)
    Z = np.column_stack([DRAW[law](rng, r) for law in laws])
    values, vectors = np.linalg.eigh(Z.T @ Z / r)
    return Z @ (vectors / np.sqrt(values)) @ vectors.T


def differentiate(function, x, h=1e-5):
    """Central differences of fourth order of a function of one number."""
    return (8 * (function(x + h) - function(x - h)) - function(x + 2 * h) + function(x - 2 * h)) / (12 * h)


def differentiate_angles(function, n, h=1e-4):
    """Derivatives of a function of a rotation (n, n) along the angle of each pair."""
    slope = np.zeros((n, n))
    for i in range(n):
        for j in range(i):
            unit = np.zeros((n, n))
            unit[i, j], unit[j, i] = 1, -1
            slope[i, j] = differentiate(lambda t, unit=unit: function(rotate(np.eye(n), t * unit)), 0.0, h)
    return slope - slope.T


def standardize(Z):
    return Z / np.sqrt(np.mean(Z * Z, axis=0))


# --- functions whose value and derivatives belong together ------------------------------------------------------------

PLAIN = {
    "p=2.5": Lp(2.5),
    "p=3": Lp(3.0),
    "p=4": Lp(4.0),
    "p=7": Lp(7.0),
    "p=1": SmoothNorm(),
    "p=1 in other units": SmoothNorm(1.0, 3.0),
    "p=0.5": SmoothNorm(0.5),
    "p=1.5": SmoothNorm(1.5, 0.5),
}


@pytest.mark.parametrize("name", PLAIN)
def test_terms_of_a_plain_objective_are_its_derivatives(name):
    objective = PLAIN[name]
    rng = np.random.default_rng(0)
    Z = rng.uniform(0.2, 3, (20, 3)) * rng.choice([-1, 1], (20, 3))
    terms = objective.terms(Z, second=True)
    for row, column in np.ndindex(Z.shape):
        found = differentiate(lambda t, z=Z[row, column]: objective.terms(np.array([[z + t]])).value, 0.0, 1e-3)
        np.testing.assert_allclose(terms.g[row, column], found, rtol=1e-6, atol=1e-8)
    np.testing.assert_allclose(terms.value, sum(objective.terms(z[None]).value for z in Z), rtol=1e-12)
    slope = differentiate(lambda t: objective.terms(Z + t).g, 0.0, 1e-3)
    np.testing.assert_allclose(terms.slope, slope, rtol=1e-6)


@pytest.mark.parametrize("p", [2.5, 3.0, 4.0])
def test_lp_value_is_the_sum_of_powers_also_at_zero(p):
    Z = np.array([[0.0, -2.0], [1.5, 0.0]])
    terms = Lp(p).terms(Z, second=True)
    np.testing.assert_allclose(terms.value, 2**p + 1.5**p, rtol=1e-14)
    np.testing.assert_array_equal(terms.g[[0, 1], [0, 1]], 0)
    np.testing.assert_array_equal(terms.slope[[0, 1], [0, 1]], 0)


@pytest.mark.parametrize("p", [0.5, 1.0, 1.5])
def test_smooth_norm_refit_takes_the_root_mean_square_of_all_codes_as_its_unit(p):
    Z = np.random.default_rng(0).laplace(size=(50, 3)) * [1, 2, 5]
    objective = SmoothNorm(p).refit(encode(Z))
    np.testing.assert_allclose(objective.unit, math.sqrt(np.mean(Z**2)), rtol=1e-12)
    np.testing.assert_allclose(objective.terms(Z).value, -np.sum((Z**2 / np.mean(Z**2) + 1) ** (p / 2)), rtol=1e-12)


# --- objectives of standardised codes ---------------------------------------------------------------------------------
#
# The derivative of E |x|^p / p, x = z / sqrt(E z^2), is (|x|^(p-2) x - E|x|^p x) / std. To this, or to minus this, all
# atoms add E|x|^p x / std, whose slopes are zero where codes are white: so E g z = E|x|^p, whatever the sign.


@pytest.mark.parametrize(("p", "flat"), [(2.5, False), (3.0, False), (4.0, False), (4.0, True)])
@pytest.mark.parametrize("laws", [("laplace", "uniform", "sparse", "uniform"), ("laplace",) * 3, ("uniform",) * 3])
def test_signed_lp_along_rotations_of_white_codes_has_the_slope_of_signed_moments(p, flat, laws):
    Z = draw_white(400, laws)
    objective = SignedLp(p, flat).refit(encode(Z))
    sign = objective.sign
    np.testing.assert_array_equal(sign < 0, flat | (np.array(laws) == "uniform"))
    expected = differentiate_angles(
        lambda R: np.sum(sign * np.mean(np.abs(standardize(Z @ R.T)) ** p, axis=0)) / p, len(laws)
    )
    assert np.max(np.abs(expected)) > 0.01
    np.testing.assert_allclose(evaluate(encode(Z), objective).slope, expected, atol=1e-8)


@pytest.mark.parametrize("law", ["uniform", "laplace"])
@pytest.mark.parametrize("objective", [SignedLp(2.5), SignedLp(3.0), SignedLp(4.0), SignedLp(4.0, flat=True)])
def test_objectives_of_standardised_codes_have_equal_linear_parts(objective, law):
    # so that their curvature, E g z - E g' E z^2 for each atom, is |kappa|: here from the terms themselves
    Z = DRAW[law](np.random.default_rng(0), (200, 3)) * [1, 10, 100]
    objective = objective.refit(encode(Z))
    terms = objective.terms(Z, second=True)
    own, curved = np.mean(terms.g * Z, axis=0), np.mean(terms.slope, axis=0) * np.mean(Z**2, axis=0)
    moment = np.mean(np.abs(standardize(Z)) ** objective.p, axis=0)
    np.testing.assert_allclose(own, moment, rtol=1e-12)
    sign = -1 if law == "uniform" or objective.flat else 1
    np.testing.assert_allclose(own - curved, sign * compute_kappa(Z, objective.p), rtol=1e-10)
    # |x|^(p-2) has no second derivative at zero: steps are short beside the codes
    up, down = (objective.terms(Z * (1 + h)).g for h in (1e-6, -1e-6))
    np.testing.assert_allclose(terms.slope * Z, (up - down) / 2e-6, rtol=1e-7, atol=1e-7)
    # the value is the distance from Gaussian codes
    gaussian = norm.expect(lambda x: np.abs(x) ** objective.p)
    np.testing.assert_allclose(terms.value, 200 * sign * np.sum(moment - gaussian) / objective.p, rtol=1e-8)


@pytest.mark.parametrize("objective", [SignedLp(3.0), SignedLp(2.5), SmoothNorm(), SignedLp(4.0, flat=True)])
def test_objective_refitted_to_scaled_codes_is_the_same_function_of_standardised_ones(objective):
    Z = np.random.default_rng(0).laplace(size=(100, 3))
    terms, scaled = (objective.refit(encode(each)).terms(each, second=True) for each in (Z, Z * 2.0**40))
    np.testing.assert_allclose(scaled.value, terms.value, rtol=1e-13)
    np.testing.assert_allclose(scaled.g * 2.0**40, terms.g, rtol=1e-12, atol=1e-13)
    np.testing.assert_allclose(scaled.slope * 2.0**80, terms.slope, rtol=1e-12, atol=1e-13)


# --- the sign ---------------------------------------------------------------------------------------------------------


def compute_kappa(Z, p):
    """E g x - E g' of g = |x|^(p-2) x for standardised codes: zero if they are Gaussian."""
    x = np.abs(standardize(Z))
    return np.mean(x**p, axis=0) - (p - 1) * np.mean(x ** (p - 2), axis=0)


@pytest.mark.parametrize("p", [2.5, 3.0, 4.0])
def test_signed_lp_sign_of_codes_close_to_gaussian_is_that_of_kappa(p):
    Z = np.random.default_rng(0).standard_normal((5000, 40))
    sign = SignedLp(p).refit(encode(Z)).sign
    np.testing.assert_array_equal(sign, np.sign(compute_kappa(Z, p)))
    assert set(sign) == {-1, 1}


@pytest.mark.parametrize("p", [2.5, 3.0, 4.0])
@pytest.mark.parametrize(("law", "sign"), [("uniform", -1), ("laplace", 1), ("sparse", 1)])
def test_signed_lp_sign_tells_flat_from_sparse_codes(p, law, sign):
    Z = DRAW[law](np.random.default_rng(0), (2000, 10))
    np.testing.assert_array_equal(SignedLp(p).refit(encode(Z)).sign, sign)
    np.testing.assert_array_equal(SignedLp(p, flat=True).refit(encode(Z)).sign, -1)


@pytest.mark.parametrize("p", [2.5, 3.0, 4.0])
def test_signed_lp_has_changed_where_the_last_refit_reversed_a_sign(p):
    sparse, mixed = draw_white(400, ["laplace"] * 3), draw_white(400, ["laplace", "uniform", "laplace"])
    first = SignedLp(p).refit(encode(sparse))
    assert not first.has_changed  # there were no signs before
    assert not first.refit(encode(2 * sparse)).has_changed
    assert not first.refit(encode(draw_white(400, ["sparse"] * 3))).has_changed
    second = first.refit(encode(mixed))
    assert second.has_changed
    assert not second.refit(encode(mixed)).has_changed
    assert second.refit(encode(sparse)).has_changed


@pytest.mark.parametrize("objective", [Lp(3.0), SignedLp(3.0), SignedLp(4.0, flat=True), SmoothNorm(1.5)])
def test_terms_of_weighted_samples_count_each_with_its_weight(objective):
    Z, w = np.random.default_rng(0).laplace(size=(60, 3)), np.random.default_rng(1).uniform(0, 3, 60)
    objective = objective.refit(encode(Z, w))
    terms, plain = objective.terms(Z, w, second=True), objective.terms(Z, second=True)
    # derivatives are those of a single code: sums over samples are weighted where they are formed
    np.testing.assert_array_equal(terms.g, plain.g)
    np.testing.assert_array_equal(terms.slope, plain.slope)
    expected = sum(weight * objective.terms(z[None]).value for weight, z in zip(w, Z, strict=True))
    np.testing.assert_allclose(terms.value, expected, rtol=1e-12)


@pytest.mark.parametrize("objective", [Lp(3.0), SignedLp(3.0), SignedLp(4.0, flat=True), SmoothNorm(1.5)])
def test_terms_have_second_derivatives_where_they_are_asked_for(objective):
    Z = np.random.default_rng(0).laplace(size=(61, 3))
    objective = objective.refit(encode(Z))
    terms, every = objective.terms(Z), objective.terms(Z, second=True)
    assert terms.slope.shape == (0, 0)
    np.testing.assert_array_equal(terms.g, every.g)
    assert terms.value == every.value
