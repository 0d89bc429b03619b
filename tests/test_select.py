"""The choice of a pilot and of a model, and the normalisation of samples whose scale varies."""

import math

import numpy as np
import pytest

from elldict.samples.arrays import ArraySamples
from elldict.samples.normalization import Normalization
from elldict.samples.order import find_order
from elldict.samples.subsample import gather
from elldict.solver.climb import Reason, State
from elldict.solver.density import Density
from elldict.solver.objectives import MinusL4, SignedLp, SmoothL1
from elldict.solver.select import (
    PILOT_ITER,
    Candidate,
    Climber,
    Pilot,
    are_flat,
    choose_candidate,
    is_worth_climbing,
    judge,
    judge_on,
    list_pilots,
    view,
)

N = 6


def draw_atoms(n, seed=7):
    return np.linalg.qr(np.random.default_rng(seed).standard_normal((n, n)))[0]


def draw(law, r, n=N, seed=0):
    """Codes of unit variance."""
    rng = np.random.default_rng(seed)
    if law == "uniform":
        return rng.uniform(-1, 1, (r, n)) * math.sqrt(3)
    if law == "sparse":
        return rng.standard_normal((r, n)) * (rng.random((r, n)) < 0.2) / math.sqrt(0.2)
    if law == "signs":
        return rng.choice([-1.0, 1.0], (r, n))
    if law == "gauss":
        return rng.standard_normal((r, n))
    Z = rng.laplace(size=(r, n)) / math.sqrt(2)
    return Z * np.exp(rng.standard_normal((r, 1))) if law == "scaled laplace" else Z


def prepare(X):
    order = find_order(ArraySamples(X))
    models = [None, Normalization(float(np.median(order.squares)))]
    return gather(ArraySamples(X), order), order, models


def choose(X, **options):
    subset, order, models = prepare(X)
    pilots = list_pilots(3.0, models, flat=are_flat(order, X.shape[1]))
    return choose_candidate(subset, order, pilots, Climber(1000, **options)), models


def measure_error(A, B):
    return 1 - np.mean(np.max((A @ B.T) ** 4, axis=1))


# --- normalisation ----------------------------------------------------------------------------------------------------


def test_normalization_log_determinant_equals_that_of_numerical_derivatives():
    normalization, h = Normalization(2.3), 1e-5
    for y in np.random.default_rng(0).standard_normal((5, 3)) * [[0.1], [1], [3], [10], [30]]:
        moved = np.r_[y + h * np.eye(3), y - h * np.eye(3)]
        x = normalization.apply(moved)
        jacobian = (x[:3] - x[3:]) / (2 * h)
        _, expected = np.linalg.slogdet(jacobian)
        # a determinant of (1 + |y|^2)^(-5/2) from differences that are rounded to 1e-16 / h
        np.testing.assert_allclose(normalization.log_determinant(np.sum(y * y), 3), expected, atol=1e-3)


def test_normalization_gives_the_median_sample_the_length_of_half_a_square():
    X = draw("laplace", 101)
    squares = np.sum(X * X, axis=1)
    normalization = Normalization(float(np.median(squares)))
    lengths = np.sum(normalization.apply(X) ** 2, axis=1)
    np.testing.assert_allclose(np.median(lengths), 0.5, rtol=1e-12)
    assert np.max(lengths) < 1
    np.testing.assert_array_equal(np.argsort(lengths), np.argsort(squares))  # one-to-one along each ray
    np.testing.assert_allclose(normalization.apply(X) / np.sqrt(lengths)[:, None], X / np.sqrt(squares)[:, None])


def test_subset_normalize_has_the_moments_of_normalised_samples():
    subset, _, (_, scaled) = prepare(draw("laplace", 200))
    X = scaled.apply(subset.samples.X)
    other = view(subset, scaled)
    np.testing.assert_allclose(other.samples.X, X, rtol=1e-14)
    np.testing.assert_allclose(other.moments, X.T @ X / 200, atol=1e-14)
    np.testing.assert_array_equal(other.half, subset.half)
    assert view(subset, None) is subset


# --- pilots and models ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", [0, 1, 2])
@pytest.mark.parametrize(
    ("law", "expected"),
    [("sparse", {"l1"}), ("laplace", {"l1", "l3"}), ("uniform", {"l3", "l4"}), ("signs", {"l3", "l4"})],
)
def test_choose_candidate_takes_a_pilot_that_suits_the_codes(law, expected, seed):
    A = draw_atoms(N)
    candidate, _ = choose(draw(law, 1500, seed=seed) @ A)
    assert candidate.pilot.name in expected
    # errors of l_p for 5 angles an atom: some 10 / r for Laplace codes, less for others
    assert measure_error(candidate.A, A) < 0.05


@pytest.mark.parametrize("seed", [0, 1, 2])
@pytest.mark.parametrize(("law", "is_normalized"), [("scaled laplace", True), ("laplace", False), ("uniform", False)])
def test_choose_candidate_normalises_samples_of_a_varying_scale_only(law, is_normalized, seed):
    candidate, models = choose(draw(law, 1500, seed=seed) @ draw_atoms(N))
    assert candidate.model is models[int(is_normalized)]


def test_choose_candidate_takes_the_highest_value_of_all():
    X = draw("laplace", 800) @ draw_atoms(N)
    subset, order, models = prepare(X)
    pilots = list_pilots(3.0, models, flat=True)
    assert [pilot.name for pilot in pilots] == ["l1", "l3", "l4"]
    chosen = choose_candidate(subset, order, pilots, Climber(1000))
    for pilot in pilots:
        A = Climber(1000).climb_pilot(subset, np.linalg.eigh(np.cov(X.T))[1], pilot).A
        for model in models if pilot.name == "l1" else models[:1]:
            # from another start, the same maximum up to a small share of what chance makes
            assert judge(subset, order, A, model) < chosen.value + 0.01
    np.testing.assert_allclose(judge(subset, order, chosen.A, chosen.model), chosen.value, rtol=1e-12)


def test_list_pilots_shows_normalised_samples_to_l1_alone_and_l4_to_flat_ones_alone():
    models = [None, Normalization(1.0)]
    l1, lp = list_pilots(3.5, models, flat=False)
    assert (l1.name, lp.name) == ("l1", "l3.5")
    assert isinstance(l1.objective, SmoothL1)
    assert isinstance(lp.objective, SignedLp)
    assert l1.sees is models[1]
    assert lp.sees is None
    assert lp.objective.p == 3.5
    l4 = list_pilots(3.0, models[:1], flat=True)[2]
    assert isinstance(l4.objective, MinusL4)
    assert list_pilots(3.0, models[:1], flat=True)[0].sees is None


@pytest.mark.parametrize(("law", "flat"), [("uniform", True), ("signs", True), ("laplace", False), ("sparse", False)])
def test_are_flat_tells_samples_whose_norms_vary_less_than_gaussian_ones(law, flat):
    for n in (6, 20):
        assert are_flat(find_order(ArraySamples(draw(law, 2000, n))), n) is flat


def test_are_flat_of_gaussian_samples_is_true_about_half_of_the_time():
    n_flat = sum(are_flat(find_order(ArraySamples(draw("gauss", 300, seed=seed))), N) for seed in range(100))
    # leaving out nothing; the square of the mean norm is biased by 2 / (n r): half, within four standard errors of 5
    assert 30 <= n_flat <= 70


# --- values that can be compared --------------------------------------------------------------------------------------


def test_judge_of_either_model_is_a_log_density_of_the_same_samples():
    # samples are Gaussian, with a log-density known exactly: no model may gain on it by more than chance
    r = 20_000
    X = draw("gauss", r, 3)
    subset, order, models = prepare(X)
    exact = np.mean(-0.5 * np.sum(X**2, axis=1)) - 1.5 * math.log(2 * math.pi)
    plain, scaled = (judge(subset, order, np.eye(3), model) for model in models)
    np.testing.assert_allclose(plain, exact, atol=3 * 12 / r)
    assert scaled < exact
    # codes of normalised samples are bounded, and not independent: some tenths of a nat, but not more
    assert scaled > exact - 1


@pytest.mark.parametrize("which", [0, 1])
def test_judge_of_scaled_samples_changes_by_the_volume_alone(which):
    X, c = draw("scaled laplace", 500, 4), 8.0
    values = []
    for each in (X, c * X):
        subset, order, models = prepare(each)
        values.append(judge(subset, order, np.eye(4), models[which]))
    np.testing.assert_allclose(values[1], values[0] - 4 * math.log(c), rtol=1e-10)


def test_judge_prefers_true_atoms_to_others():
    A = draw_atoms(N)
    subset, order, _ = prepare(draw("laplace", 2000) @ A)
    assert judge(subset, order, A, None) > judge(subset, order, draw_atoms(N, seed=8), None) + 0.1


def test_judge_on_is_the_log_likelihood_of_samples_to_which_nothing_was_fitted():
    A = draw_atoms(N)
    kept, held_out = (prepare(draw("laplace", 1000, seed=seed) @ A)[0] for seed in (0, 1))
    value = judge_on(kept, held_out, A, None, None) / 1000
    # of Laplace codes of variance 1: -n (1 + log 2 / 2) within chance, and what fitting and bins lose
    expected = -N * (1 + math.log(2) / 2)
    np.testing.assert_allclose(value, expected, atol=4 * math.sqrt(N / 1000) + 0.05 * N)
    Z = held_out.samples.X @ A.T
    density = Density.begin(N).refit(kept.encode(A))
    np.testing.assert_allclose(value, density.judge(Z) / 1000, rtol=1e-12)


# --- the climber ------------------------------------------------------------------------------------------------------


def test_climber_notes_samples_and_iterations_of_each_climb():
    subset, _, models = prepare(draw("laplace", 500) @ draw_atoms(N))
    seen = []
    climber = Climber(1000, observers=[lambda state: seen.append(state.iteration) or False])
    A = climber.climb_pilot(subset, np.eye(N), list_pilots(3.0, models, flat=False)[0]).A
    n_pilot = len(seen)
    state = climber.climb_likelihood(subset, State(A, Density.begin(N)), None)
    assert [each[:2] for each in climber.climbs] == [(500, n_pilot), (500, state.iteration)]
    assert climber.climbs[1][2] is state.reason is Reason.SMALL_RISE
    assert not climber.was_stopped
    assert len(seen) == n_pilot + state.iteration


def test_climber_stops_at_max_iter_and_pilots_at_their_own():
    subset, _, models = prepare(draw("laplace", 500) @ draw_atoms(N))
    pilot = list_pilots(3.0, models, flat=False)[0]
    few = Climber(2)
    A = few.climb_pilot(subset, np.eye(N), pilot).A
    state = few.climb_likelihood(subset, State(A, Density.begin(N)), None)
    assert state.reason is Reason.MAX_ITER
    assert few.climbs == [(500, 2, Reason.MAX_ITER)] * 2
    endless = Climber(1000)
    gauss, *_ = prepare(draw("gauss", 500))
    endless.climb_pilot(gauss, np.eye(N), pilot)
    assert endless.climbs[0][1] <= PILOT_ITER


def test_climber_that_was_stopped_begins_no_other_climb():
    subset, _, models = prepare(draw("laplace", 500) @ draw_atoms(N))
    seen = []
    climber = Climber(1000, observers=[lambda state: seen.append(state) or len(seen) == 3])
    A = climber.climb_pilot(subset, np.eye(N), list_pilots(3.0, models, flat=False)[0]).A
    assert climber.was_stopped
    state = climber.climb_likelihood(subset, State(A, Density.begin(N)), None)
    assert len(seen) == 3
    assert state.reason is Reason.STOPPED
    np.testing.assert_array_equal(state.A, A)


def test_is_worth_climbing_where_the_likelihood_gains_much_and_not_where_it_overfits():
    # exponential codes: their edge tells much more of angles than l_3 does, even with few samples
    rng = np.random.default_rng(0)
    gains = []
    for law in (rng.exponential(size=(180, 12)) - 1, rng.standard_normal((60, 12))):
        X = law @ draw_atoms(12)
        samples = ArraySamples(X)
        pilot = Pilot("l3", SignedLp(3.0), None, [None])
        gains.append(
            is_worth_climbing(samples, find_order(samples), Candidate(pilot, np.eye(12), None, 0.0), Climber(200))
        )
    assert gains == [True, False]
