"""Objectives: values, derivatives, and the sign of codes less sparse than Gaussian ones."""

import math

import numpy as np
import pytest
from scipy.special import gamma

from elldict.solver.evaluate import evaluate
from elldict.solver.objectives import Lp, SignedLp, SmoothNorm
from elldict.solver.steps import rotate
from tests.fits import DRAW, encode


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
    for row in range(len(Z)):
        for column in range(Z.shape[1]):

            def value(t, row=row, column=column):
                moved = Z.copy()
                moved[row, column] = t
                return objective.terms(moved).value

            # the value of 60 codes below 3^7 is rounded to 1e-12 at worst, and divided by the step, 1e-3
            np.testing.assert_allclose(
                terms.g[row, column], differentiate(value, Z[row, column], 1e-3), rtol=1e-6, atol=1e-8
            )
    slope = differentiate(lambda t: objective.terms(Z + t).g, 0.0, 1e-3)
    np.testing.assert_allclose(terms.slope, slope, rtol=1e-6)


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


@pytest.mark.parametrize("p", [2.5, 3.0, 4.0])
@pytest.mark.parametrize("laws", [("laplace", "uniform", "sparse", "uniform"), ("laplace",) * 3, ("uniform",) * 3])
def test_signed_lp_along_rotations_of_white_codes_has_the_slope_of_signed_moments(p, laws):
    Z = draw_white(400, laws)
    objective = SignedLp(p).refit(encode(Z))
    sign = objective.sign
    np.testing.assert_array_equal(sign < 0, np.array(laws) == "uniform")
    expected = differentiate_angles(
        lambda R: np.sum(sign * np.mean(np.abs(standardize(Z @ R.T)) ** p, axis=0)) / p, len(laws)
    )
    assert np.max(np.abs(expected)) > 0.01
    np.testing.assert_allclose(evaluate(encode(Z), objective).slope, expected, atol=1e-8)


@pytest.mark.parametrize("laws", [("uniform",) * 3, ("laplace", "uniform", "gauss")])
def test_flat_signed_lp_along_rotations_of_white_codes_has_the_slope_of_minus_fourth_moments(laws):
    Z = draw_white(400, laws)
    objective = SignedLp(4.0, flat=True).refit(encode(Z))
    expected = differentiate_angles(lambda R: -np.mean(standardize(Z @ R.T) ** 4) * len(laws) / 4, len(laws))
    assert np.max(np.abs(expected)) > 0.01
    np.testing.assert_allclose(evaluate(encode(Z), objective).slope, expected, atol=1e-8)


def make_signed(p, Z):
    """g and its derivative from their formula, for codes Z with any standard deviations and correlations."""
    std = np.sqrt(np.mean(Z**2, axis=0))
    x = Z / std
    moment, low = np.mean(np.abs(x) ** p, axis=0), np.mean(np.abs(x) ** (p - 2), axis=0)
    sign = np.where(moment < (p - 1) * low, -1.0, 1.0)

    def g(z):
        x = z / std
        return (sign * (np.abs(x) ** (p - 2) * x - moment * x) + moment * x) / std

    return g


@pytest.mark.parametrize("p", [2.5, 3.0, 4.0])
def test_signed_lp_terms_mirror_g_at_its_linear_part(p):
    Z = np.random.default_rng(0).laplace(size=(100, 3)) * [1, 5, 2]
    Z[:, 1:] = np.random.default_rng(1).uniform(-1, 1, (100, 2)) * [7, 0.1] + 0.3 * Z[:, :1]
    terms, g = SignedLp(p).refit(encode(Z)).terms(Z, second=True), make_signed(p, Z)
    np.testing.assert_allclose(terms.g, g(Z), rtol=1e-10)
    # |x|^(p-2) has no second derivative at zero: steps are short beside the codes
    np.testing.assert_allclose(terms.slope, (g(Z * (1 + 1e-6)) - g(Z * (1 - 1e-6))) / (2e-6 * Z), rtol=1e-7, atol=1e-7)
    own = np.mean(terms.g * Z, axis=0)
    np.testing.assert_allclose(own, np.mean(np.abs(standardize(Z)) ** p, axis=0), rtol=1e-12)


# --- the sign ---------------------------------------------------------------------------------------------------------


def compute_kappa(Z, p):
    """E g x - E g' of g = |x|^(p-2) x for standardised codes: zero if they are Gaussian."""
    x = np.abs(standardize(Z))
    return np.mean(x**p, axis=0) - (p - 1) * np.mean(x ** (p - 2), axis=0)


def find_kappa_error(p, r):
    """Standard error of kappa for Gaussian codes that are standardised by their own moments.

    kappa = E|x|^p - (p-1) E|x|^(p-2), and a standard deviation that is off by d changes it by -2 M d, M = E|x|^p; so
    each code contributes |x|^p - (p-1)|x|^(p-2) - M (x^2 - 1), whose variance follows from Gaussian moments.
    """

    def moment(q):
        return 2 ** (q / 2) * gamma((q + 1) / 2) / math.sqrt(math.pi)

    terms = [(1.0, p), (-(p - 1), p - 2), (-moment(p), 2.0), (moment(p), 0.0)]
    return math.sqrt(sum(a * b * moment(q + s) for a, q in terms for b, s in terms) / r)


@pytest.mark.parametrize("p", [2.5, 3.0, 4.0])
def test_signed_lp_sign_of_codes_close_to_gaussian_is_that_of_kappa(p):
    r, m = 5000, 40
    Z = np.random.default_rng(0).standard_normal((r, m))
    kappa = compute_kappa(Z, p)
    z = kappa / find_kappa_error(p, r)
    assert np.max(np.abs(z)) < 4.5  # of 40: 3e-4 by chance
    # their mean square is 1 with a standard error of sqrt(2 / 40), so that the standard error is the right one
    assert abs(np.mean(z**2) - 1) < 4 * math.sqrt(2 / m)
    sign = SignedLp(p).refit(encode(Z)).sign
    np.testing.assert_array_equal(sign, np.sign(kappa))
    assert set(sign) == {-1, 1}


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
