"""The choice of a pilot and of a model, and the normalisation of samples whose scale varies."""

import math

import numpy as np
import pytest
from scipy.stats import norm

from elldict.samples.arrays import ArraySamples
from elldict.samples.normalization import Normalization
from elldict.samples.order import find_order
from elldict.samples.subsample import compute_second_moments, gather
from elldict.solver.climb import State
from elldict.solver.density import Density
from elldict.solver.objectives import SignedLp, SmoothNorm
from elldict.solver.select import (
    FLAT,
    Candidate,
    Climber,
    Pilot,
    are_flat,
    choose_candidate,
    choose_model,
    cross_validate,
    judge,
    list_pilots,
)
from tests import fits
from tests.fits import draw_atoms, keep_coordinates, measure_errors, share

N = 6


def draw(law, r, n=N, seed=0):
    """Codes of unit variance."""
    rng = np.random.default_rng(seed)
    if law == "signs":
        return rng.choice([-1.0, 1.0], (r, n))
    if law == "scaled laplace":
        return fits.draw("laplace", r, n, seed) * np.exp(rng.standard_normal((r, 1)))
    return fits.draw(law, r, n, seed)


def make_gather(samples):
    """Make a function that collects the samples of an order, in their own coordinates."""
    whitening = keep_coordinates(samples.shape[1], compute_second_moments(samples))
    return lambda order: gather(samples, whitening, order)


def prepare(X):
    samples = ArraySamples(X)
    order = find_order(samples)
    return make_gather(samples)(order), order, [None, Normalization(order.median)]


def test_normalization_log_determinant_equals_that_of_numerical_derivatives():
    normalization, h = Normalization(2.3), 1e-5
    for y in np.random.default_rng(0).standard_normal((5, 3)) * [[0.1], [1], [3], [10], [30]]:
        moved = np.r_[y + h * np.eye(3), y - h * np.eye(3)]
        x = normalization.apply(moved)
        jacobian = (x[:3] - x[3:]) / (2 * h)
        _, expected = np.linalg.slogdet(jacobian)
        # a determinant of (1 + |y|^2)^(-5/2) from differences that are rounded to 1e-16 / h
        np.testing.assert_allclose(normalization.log_determinant(np.sum(y * y), 3), expected, atol=1e-3)


# --- pilots and models ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", [0, 1, 2])
@pytest.mark.parametrize(
    ("law", "expected"),
    [("sparse", {"l1"}), ("laplace", {"l1", "l3"}), ("uniform", {"l3", FLAT}), ("signs", {"l3", FLAT})],
)
def test_choose_candidate_takes_a_pilot_that_suits_the_codes(law, expected, seed):
    A = draw_atoms(N)
    subset, order, models = prepare(draw(law, 1500, seed=seed) @ A)
    pilots = list_pilots(3.0, models, flat=are_flat(order, N), refine=True)
    candidate = choose_candidate(subset, order, pilots, Climber(1000))
    assert candidate.pilot.name in expected
    # errors of l_p for 5 angles an atom: some 10 / r for Laplace codes, less for others
    assert np.mean(measure_errors(A.T, candidate.A.T)) < 0.05


@pytest.mark.parametrize("flat", [False, True])
@pytest.mark.parametrize("p", [1.0, 1.5, 3.0, 4.0])
def test_list_pilots_without_refinement_is_lp_alone(p, flat):
    (pilot,) = list_pilots(p, [None], flat=flat, refine=False)
    assert pilot.name == f"l{p:g}"
    assert isinstance(pilot.objective, SmoothNorm if p < 2 else SignedLp)
    assert pilot.objective.p == p
    if p < 2:  # below 2, the smooth norm is the pilot of any name
        assert pilot in list_pilots(p, [None], flat=False, refine=True)


@pytest.mark.parametrize(("law", "flat"), [("uniform", True), ("signs", True), ("laplace", False), ("sparse", False)])
def test_are_flat_tells_samples_whose_norms_vary_less_than_gaussian_ones(law, flat):
    for n in (6, 20):
        assert are_flat(find_order(ArraySamples(draw(law, 2000, n))), n) is flat


# --- values that can be compared --------------------------------------------------------------------------------------


def test_judge_of_either_model_is_a_log_density_of_the_same_samples():
    # samples are Gaussian, with a log-density known exactly: no model may gain on it by more than chance
    r = 20_000
    X = draw("gauss", r, 3)
    subset, order, models = prepare(X)
    plain, scaled = (judge(subset, order, np.eye(3), model, Density.begin(3))[0] for model in models)
    # codes are judged at the centres of bins
    exact = np.mean(np.sum(share(norm.logpdf, Density.begin(3).grid, X), axis=1))
    np.testing.assert_allclose(plain, exact, atol=3 * 12 / r)
    assert scaled < exact
    # codes of normalised samples are bounded, and not independent: some tenths of a nat, but not more
    assert scaled > exact - 1


@pytest.mark.parametrize(("law", "which"), [("scaled laplace", 1), ("laplace", 0)])
def test_choose_model_takes_the_one_with_the_higher_value(law, which):
    subset, order, models = prepare(draw(law, 1500))
    state = State(np.eye(N), Density.begin(N).refit(subset.encode(np.eye(N)), choose=True))
    assert choose_model(subset, order, state, models) is models[which]
    assert choose_model(subset, order, state, models[1:]) is models[1]


# --- the climber ------------------------------------------------------------------------------------------------------


def make_small(law, r):
    """Few samples, with a candidate at their true atoms."""
    samples = ArraySamples(draw(law, r, 12) @ draw_atoms(12))
    pilot = Pilot("l3", SignedLp(3.0), None, [None])
    return samples, find_order(samples), Candidate(pilot, np.eye(12), None, 0.0, Density.begin(12))


@pytest.mark.parametrize(("law", "r", "gains"), [("exponential", 180, True), ("gauss", 60, False)])
def test_cross_validate_where_the_likelihood_gains_much_and_where_it_overfits(law, r, gains):
    # exponential codes: their edge tells much more of angles than l_3 does, even with few samples
    samples, order, candidate = make_small(law, r)
    assert cross_validate(make_gather(samples), order, candidate, Climber(200)) is gains


def test_cross_validate_uses_no_more_folds_than_are_needed(monkeypatch):
    samples, order, candidate = make_small("exponential", 360)
    seen, collect = [], make_gather(samples)
    cross_validate(lambda part: seen.append(part) or collect(part), order, candidate, Climber(200))
    assert len(seen) < 8
    seen.clear()
    monkeypatch.setattr("elldict.solver.select.CLEAR", math.inf)
    cross_validate(lambda part: seen.append(part) or collect(part), order, candidate, Climber(200))
    for kept, held_out in zip(seen[::2], seen[1::2], strict=True):
        np.testing.assert_array_equal(np.sort(np.r_[kept.index, held_out.index]), np.sort(order.index))
    np.testing.assert_array_equal(np.sort(np.concatenate([part.index for part in seen[1::2]])), np.sort(order.index))
