"""The choice of a pilot and of a model, and the normalisation of samples whose scale varies."""

import math

import numpy as np
import pytest
from scipy.stats import norm

from elldict.samples.arrays import ArraySamples
from elldict.samples.normalization import Normalization
from elldict.samples.order import find_order
from elldict.samples.subsample import compute_second_moments, gather
from elldict.samples.whitening import Whitening
from elldict.solver.climb import Reason, State
from elldict.solver.density import Density
from elldict.solver.objectives import SignedLp, SmoothNorm
from elldict.solver.select import (
    FLAT,
    L1,
    PILOT_ITER,
    Candidate,
    Climber,
    Pilot,
    are_flat,
    choose_candidate,
    choose_model,
    cross_validate,
    judge,
    judge_on,
    list_pilots,
    repeat_pilot,
    view,
)
from tests.fits import share

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


def make_gather(samples):
    """Make a function that collects the samples of an order, in their own coordinates."""
    n, moments = samples.shape[1], compute_second_moments(samples)
    whitening = Whitening(np.zeros(n), np.eye(n), np.eye(n), False, 1.0, n, 1.0, is_scaling=True)
    return lambda order: gather(samples, whitening, order, moments)


def prepare(X, weights=None):
    samples = ArraySamples(X, weights=weights)
    order = find_order(samples)
    return make_gather(samples)(order), order, [None, Normalization(order.median)]


def choose(X, **options):
    subset, order, models = prepare(X)
    pilots = list_pilots(3.0, models, flat=are_flat(order, X.shape[1]), refine=True)
    return choose_candidate(subset, order, pilots, Climber(1000, **options)), models


def begin(A):
    return Density.begin(len(A))


def compute_value(subset, order, A, model):
    return judge(subset, order, A, model, begin(A))[0]


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
    Z = draw("laplace", 200)
    subset, order, (_, scaled) = prepare(Z)
    np.testing.assert_array_equal(subset.samples.X, Z[order.index])
    X = scaled.apply(subset.samples.X)
    other = view(subset, scaled)
    codes = other.encode(np.eye(N))
    np.testing.assert_allclose(codes.samples.X, X, rtol=1e-14)
    np.testing.assert_allclose(codes.std, np.sqrt(np.mean(X * X, axis=0)), rtol=1e-13)
    np.testing.assert_allclose(other.moments, X.T @ X / 200, atol=1e-14)
    np.testing.assert_array_equal(codes.half, subset.half)
    np.testing.assert_array_equal(subset.few.X, subset.samples.X)  # all of these
    np.testing.assert_allclose(codes.few.X, X, rtol=1e-14)
    assert view(subset, None) is subset


# --- pilots and models ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", [0, 1, 2])
@pytest.mark.parametrize(
    ("law", "expected"),
    [("sparse", {"l1"}), ("laplace", {"l1", "l3"}), ("uniform", {"l3", FLAT}), ("signs", {"l3", FLAT})],
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
    pilots = list_pilots(3.0, models, flat=True, refine=True)
    assert [pilot.name for pilot in pilots] == [L1, "l3", FLAT] == ["l1", "l3", "-l4"]
    chosen = choose_candidate(subset, order, pilots, Climber(1000))
    for pilot in pilots:
        A = Climber(1000).climb_pilot(subset, np.linalg.eigh(np.cov(X.T))[1], pilot).A
        for model in models if pilot.name == L1 else models[:1]:
            # from another start, the same maximum up to a small share of what chance makes
            assert compute_value(subset, order, A, model) < chosen.value + 0.01
    assert (chosen.density.value == chosen.value) == (chosen.model is None)
    # whoever is judged first has no pooled weights to start from: likelihoods per code agree to the change by SMOOTHING
    value = compute_value(subset, order, chosen.A, chosen.model)
    np.testing.assert_allclose(value, chosen.value, atol=1e-3 * N)


def test_list_pilots_shows_normalised_samples_to_l1_alone_and_l4_to_flat_ones_alone():
    models = [None, Normalization(1.0)]
    l1, lp = list_pilots(3.5, models, flat=False, refine=True)
    assert (l1.name, lp.name) == ("l1", "l3.5")
    assert isinstance(l1.objective, SmoothNorm)
    assert l1.objective.p == 1
    assert isinstance(lp.objective, SignedLp)
    assert not lp.objective.flat
    assert l1.sees is models[1]
    assert lp.sees is None
    assert lp.objective.p == 3.5
    assert (l1.suits, lp.suits) == (models, [None])
    l4 = list_pilots(3.0, models, flat=True, refine=True)[2]
    assert l4.name == FLAT
    assert (l4.objective.p, l4.objective.flat) == (4, True)
    assert l4.sees is None
    assert l4.suits == [None]
    assert list_pilots(3.0, models[:1], flat=True, refine=True)[0].sees is None
    # where users set normalised samples, all pilots see these
    assert all(pilot.sees is models[1] for pilot in list_pilots(3.0, models[1:], flat=True, refine=True))


@pytest.mark.parametrize("flat", [False, True])
@pytest.mark.parametrize("p", [1.0, 1.5, 3.0, 4.0])
def test_list_pilots_without_refinement_is_lp_alone(p, flat):
    (pilot,) = list_pilots(p, [None], flat=flat, refine=False)
    assert pilot.name == f"l{p:g}"
    assert isinstance(pilot.objective, SmoothNorm if p < 2 else SignedLp)
    assert pilot.objective.p == p
    if p < 2:  # below 2, the smooth norm is the pilot of any name
        assert pilot in list_pilots(p, [None], flat=False, refine=True)


@pytest.mark.parametrize("flat", [False, True])
def test_list_pilots_of_l1_has_one_pilot_of_this_name(flat):
    models = [None, Normalization(1.0)]
    pilots = list_pilots(1.0, models, flat=flat, refine=True)
    assert [pilot.name for pilot in pilots] == [L1, FLAT][: 1 + flat]
    # the one that suits all models
    assert pilots[0].sees is models[1]
    assert pilots[0].suits == models
    (alone,) = list_pilots(1.0, models, flat=flat, refine=False)
    assert alone.sees is None
    assert alone.suits == [None]


@pytest.mark.parametrize("p", [0.5, 1.0, 1.5, 2.5, 3.0, 4.0])
def test_list_pilots_have_names_of_their_own(p):
    names = [pilot.name for pilot in list_pilots(p, [None, Normalization(1.0)], flat=True, refine=True)]
    assert len(set(names)) == len(names) == 2 + (p != 1)


def describe(pilot):
    objective = pilot.objective
    return pilot.name, pilot.sees, type(objective), objective.p, getattr(objective, "flat", None)


@pytest.mark.parametrize("p", [1.0, 1.5, 2.5, 3.0, 4.0])
@pytest.mark.parametrize("flat", [False, True])
@pytest.mark.parametrize("refine", [False, True])
@pytest.mark.parametrize("which", [0, 1])
def test_repeat_pilot_finds_every_pilot_for_one_model(p, flat, refine, which):
    models = [None, Normalization(1.0)]
    for pilot in list_pilots(p, models, flat=flat, refine=refine):
        again = repeat_pilot(pilot.name, p, models, models[which], refine=refine)
        assert again.suits == [models[which]]
        assert describe(again) == describe(pilot)


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
    plain, scaled = (compute_value(subset, order, np.eye(3), model) for model in models)
    # codes are judged at the centres of bins
    exact = np.mean(np.sum(share(norm.logpdf, Density.begin(3).grid, X), axis=1))
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
        values.append(compute_value(subset, order, np.eye(4), models[which]))
    np.testing.assert_allclose(values[1], values[0] - 4 * math.log(c), rtol=1e-10)


def test_judge_prefers_true_atoms_to_others():
    A = draw_atoms(N)
    subset, order, _ = prepare(draw("laplace", 2000) @ A)
    other = draw_atoms(N, seed=8)
    assert compute_value(subset, order, A, None) > compute_value(subset, order, other, None) + 0.1


@pytest.mark.parametrize("which", [0, 1])
def test_judge_returns_the_value_with_the_density_that_was_judged(which):
    subset, order, models = prepare(draw("laplace", 500))
    value, density = judge(subset, order, np.eye(N), models[which], Density.begin(N))
    codes = view(subset, models[which]).encode(np.eye(N))
    assert density.value == Density.begin(N).judge(codes).value
    np.testing.assert_array_equal(density.std, codes.std)
    volume = 0.0 if which == 0 else np.mean(models[1].log_determinant(order.squares, N))
    np.testing.assert_allclose(value, density.value + volume, rtol=1e-12)
    assert (value == density.value) == (which == 0)


@pytest.mark.parametrize(("law", "which"), [("scaled laplace", 1), ("laplace", 0)])
def test_choose_model_takes_the_one_with_the_higher_value(law, which):
    subset, order, models = prepare(draw(law, 1500))
    state = State(np.eye(N), Density.begin(N).refit(subset.encode(np.eye(N)), choose=True))
    assert choose_model(subset, order, state, models) is models[which]
    assert choose_model(subset, order, state, models[1:]) is models[1]


def test_judge_on_is_the_log_likelihood_of_samples_to_which_nothing_was_fitted():
    A = draw_atoms(N)
    kept, held_out = (prepare(draw("laplace", 1000, seed=seed) @ A)[0] for seed in (0, 1))
    values = judge_on(kept, held_out, A, None, begin(A))
    assert values.shape == (1000,)
    # of Laplace codes of variance 1: -n (1 + log 2 / 2) within chance, and what fitting and bins lose
    expected = -N * (1 + math.log(2) / 2)
    np.testing.assert_allclose(np.mean(values), expected, atol=4 * math.sqrt(N / 1000) + 0.05 * N)
    Z = held_out.samples.X @ A.T
    density = Density.begin(N).refit(kept.encode(A), choose=True)
    np.testing.assert_allclose(values, np.sum(density.log_density(Z), axis=1), rtol=1e-10)


# --- the climber ------------------------------------------------------------------------------------------------------


def test_climber_notes_samples_and_iterations_of_each_climb():
    subset, _, models = prepare(draw("laplace", 500) @ draw_atoms(N))
    seen = []
    climber = Climber(1000, observers=[lambda state: seen.append(state.iteration) or False])
    A = climber.climb_pilot(subset, np.eye(N), list_pilots(3.0, models, flat=False, refine=True)[0]).A
    n_pilot = len(seen)
    state = climber.climb_likelihood(subset, State(A, Density.begin(N)), None)
    assert [each[:2] for each in climber.climbs] == [(500, n_pilot), (500, state.iteration)]
    assert climber.climbs[1][2] is state.reason is Reason.SMALL_RISE
    assert not climber.was_stopped
    assert len(seen) == n_pilot + state.iteration


def test_climber_stops_at_max_iter_and_pilots_at_their_own():
    subset, _, models = prepare(draw("laplace", 500) @ draw_atoms(N))
    pilot = list_pilots(3.0, models, flat=False, refine=True)[0]
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
    A = climber.climb_pilot(subset, np.eye(N), list_pilots(3.0, models, flat=False, refine=True)[0]).A
    assert climber.was_stopped
    state = climber.climb_likelihood(subset, State(A, Density.begin(N)), None)
    assert len(seen) == 3
    assert state.reason is Reason.STOPPED
    np.testing.assert_array_equal(state.A, A)


def make_small(law, r, weights=None):
    """Few samples, with a candidate at their true atoms."""
    rng = np.random.default_rng(0)
    X = rng.exponential(size=(r, 12)) - 1 if law == "exponential" else rng.standard_normal((r, 12))
    samples = ArraySamples(X @ draw_atoms(12), weights=weights)
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
    n_folds = len(seen) // 2
    assert n_folds < 4
    for kept, held_out in zip(seen[::2], seen[1::2], strict=True):
        np.testing.assert_array_equal(np.sort(np.r_[kept.index, held_out.index]), np.sort(order.index))
        assert len(held_out.index) == 90
    seen.clear()
    monkeypatch.setattr("elldict.solver.select.CLEAR", math.inf)
    cross_validate(lambda part: seen.append(part) or collect(part), order, candidate, Climber(200))
    held_out = np.concatenate([part.index for part in seen[1::2]])
    assert len(seen) == 8
    np.testing.assert_array_equal(np.sort(held_out), np.sort(order.index))


# --- weights ----------------------------------------------------------------------------------------------------------


def prepare_both(law, r=200):
    """Prepare weighted samples, and copies of them."""
    X, w = draw(law, r) @ draw_atoms(N), np.random.default_rng(3).integers(1, 4, r)
    return prepare(X, w.astype(float)), prepare(np.repeat(X, w, axis=0)), w


@pytest.mark.parametrize("law", ["laplace", "scaled laplace", "uniform"])
def test_weighted_samples_are_judged_and_chosen_like_copies(law):
    (*one, models), (*other, same), _ = prepare_both(law)
    assert models == same
    assert are_flat(one[1], N) == are_flat(other[1], N) == (law == "uniform")
    for model in models:
        values = [compute_value(*each, draw_atoms(N), model) for each in (one, other)]
        # sums of 400 log-densities, after some thousand rounds of expectation-maximisation
        np.testing.assert_allclose(values[0], values[1], rtol=1e-11)
    pilots = list_pilots(3.0, models, flat=law == "uniform", refine=True)
    chosen = [choose_candidate(*each, pilots, Climber(1000)) for each in (one, other)]
    assert chosen[0].pilot.name == chosen[1].pilot.name
    assert chosen[0].model is chosen[1].model
    # every step is rounded to 1e-16, and steps of a climb are added up
    np.testing.assert_allclose(chosen[0].A, chosen[1].A, atol=1e-9)
    np.testing.assert_allclose(chosen[0].value, chosen[1].value, rtol=1e-9)


def test_climber_notes_the_weight_of_samples():
    (subset, _, models), (copies, _, _), w = prepare_both("laplace")
    counts = []
    for each in (subset, copies):
        climber = Climber(1000)
        climber.climb_pilot(each, np.eye(N), list_pilots(3.0, models, flat=False, refine=True)[0])
        counts.append(climber.climbs)
    assert counts[0] == counts[1]
    assert counts[0][0][0] == np.sum(w)


@pytest.mark.parametrize(("law", "r", "gains"), [("exponential", 180, True), ("gauss", 60, False)])
def test_cross_validate_of_weighted_samples_is_that_of_copies(law, r, gains):
    w = np.random.default_rng(1).integers(1, 4, r)
    samples, _, candidate = make_small(law, r)
    counts = []
    for each in (ArraySamples(samples.X, weights=w.astype(float)), ArraySamples(np.repeat(samples.X, w, axis=0))):
        climber = Climber(200)
        assert cross_validate(make_gather(each), find_order(each), candidate, climber) is gains
        counts.append(climber.climbs)
    assert counts[0] == counts[1]
