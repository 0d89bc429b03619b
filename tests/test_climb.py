"""Steps of atoms, and the climb: polar factors, rotations, slopes, quasi-Newton steps, reasons to end."""

import pickle
from dataclasses import dataclass, replace

import numpy as np
import pytest
from scipy.linalg import expm, null_space

from elldict.samples.arrays import ArraySamples
from elldict.samples.subsample import Subset
from elldict.solver.climb import NewtonAscent, PowerAscent, Reason, State, climb, measure_length
from elldict.solver.density import Density
from elldict.solver.evaluate import LEAST_CURVATURE, Angles, compute_gradient, evaluate
from elldict.solver.objectives import FixedFunction, Lp, SignedLp, SmoothL1, Terms
from elldict.solver.starts import draw_start, find_start
from elldict.solver.steps import (
    LONGEST,
    LONGEST_ANGLE,
    MAX_SHORTER,
    MEMORY,
    SHORTER,
    QuasiNewton,
    Trial,
    polar,
    rotate,
    solve_two_loops,
)


def draw_atoms(m, n, seed=0):
    return np.linalg.qr(np.random.default_rng(seed).standard_normal((n, n)))[0][:m]


def make_subset(X):
    return Subset(ArraySamples(X), np.arange(len(X)) % 2, X.T @ X / len(X))


def encode(Z):
    return make_subset(Z).encode(np.eye(Z.shape[1]))


def draw_antisymmetric(n, size, seed=0):
    angles = np.random.default_rng(seed).standard_normal((n, n))
    return size * (angles - angles.T)


def turn_pair(n, i, j, angle):
    """Rotate i towards j."""
    R = np.eye(n)
    R[[i, j], [i, j]] = np.cos(angle)
    R[i, j], R[j, i] = np.sin(angle), -np.sin(angle)
    return R


# --- polar factors and rotations --------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(6, 6), (3, 8), (1, 1), (1, 5)])
@pytest.mark.parametrize("condition", [1.0, 1e8, 1e15])
@pytest.mark.parametrize("scale", [1e-200, 1.0, 1e200])
def test_polar_of_ill_conditioned_matrices_is_orthonormal(shape, condition, scale):
    m, n = shape
    G = draw_atoms(m, m) * condition ** -np.linspace(0, 1, m) @ draw_atoms(m, n, seed=1) * scale
    P = polar(G)
    assert P.shape == (m, n)
    np.testing.assert_allclose(P @ P.T, np.eye(m), atol=1e-12)


@pytest.mark.parametrize("shape", [(5, 5), (3, 8)])
def test_polar_is_the_factor_that_leaves_a_positive_symmetric_one(shape):
    G = np.random.default_rng(0).standard_normal(shape)
    H = G @ polar(G).T
    np.testing.assert_allclose(H, H.T, atol=1e-12)
    assert np.min(np.linalg.eigvalsh(H)) > 0
    np.testing.assert_allclose(H @ polar(G), G, atol=1e-12)


@pytest.mark.parametrize("size", [1e-6, 0.1, 3.0])
def test_rotate_keeps_atoms_orthonormal_and_their_handedness(size):
    A = draw_atoms(5, 5)
    B = rotate(A, draw_antisymmetric(5, size))
    np.testing.assert_allclose(B @ B.T, np.eye(5), atol=1e-12)
    np.testing.assert_allclose(np.linalg.det(B), np.linalg.det(A), atol=1e-12)


def test_rotate_equals_the_exponential_of_angles_up_to_third_order():
    angles = draw_antisymmetric(5, 0.01)
    A = draw_atoms(5, 5)
    size = np.linalg.norm(angles, 2)
    assert 0 < np.linalg.norm(rotate(A, angles) - expm(angles) @ A, 2) < size**3 / 6
    np.testing.assert_allclose(rotate(rotate(A, angles), -angles), A, atol=1e-14)


def test_measure_length_is_the_root_mean_square_over_atoms():
    np.testing.assert_allclose(measure_length(np.array([[3.0, 0, 4.0], [0, 0, 0]])), 5 / np.sqrt(2))


# --- slopes, curvatures and their chance ------------------------------------------------------------------------------


def draw_codes(r, n, seed=0):
    return np.random.default_rng(seed).laplace(size=(r, n)) * np.arange(1, n + 1)


@pytest.mark.parametrize("objective", [Lp(3.0), Lp(4.0), SmoothL1(3.0)])
def test_evaluate_equals_finite_differences_of_the_objective_along_rotations(objective):
    Z, h = draw_codes(150, 4) @ draw_atoms(4, 4), 1e-3
    at = evaluate(encode(Z), objective)
    np.testing.assert_allclose(at.value, objective.terms(Z).value / 150, rtol=1e-12)
    np.testing.assert_array_equal(at.slope, -at.slope.T)
    np.testing.assert_allclose(at.curvature, at.curvature.T, rtol=1e-14)
    own = np.mean(objective.terms(Z).g * Z, axis=0)
    for i in range(4):
        for j in range(i):
            up, here, down = (objective.terms(Z @ turn_pair(4, i, j, t).T).value / 150 for t in (h, 0.0, -h))
            # differences of the order h^2 / 6 and h^2 / 12 of derivatives that grow by p^2 at most
            scale = abs(here)
            np.testing.assert_allclose(at.slope[i, j], (up - down) / (2 * h), atol=1e-5 * scale)
            bend = (up + down - 2 * here) / h**2
            least = LEAST_CURVATURE / 2 * (abs(own[i]) + abs(own[j]))
            np.testing.assert_allclose(at.curvature[i, j], max(abs(bend), least), rtol=1e-4, atol=1e-5 * scale)


def test_evaluate_of_objectives_that_bend_little_has_the_least_curvature():
    # no rotation changes a sum of squares: its curvature is zero
    Z = np.random.default_rng(0).laplace(size=(150, 3))
    at = evaluate(encode(Z), Lp(2.0))
    own = 2 * np.mean(Z**2, axis=0)
    least = LEAST_CURVATURE / 2 * (own[:, None] + own)
    pairs = ~np.eye(3, dtype=bool)
    np.testing.assert_allclose(at.curvature[pairs], least[pairs], rtol=1e-12)
    assert np.all(np.isinf(np.diag(at.curvature)))
    np.testing.assert_array_equal(np.diag(at.variance), 0)


def test_evaluate_of_many_samples_takes_slopes_from_all_and_curvatures_from_some():
    Z = draw_codes(50_000, 3)
    at, objective = evaluate(encode(Z), Lp(3.0)), Lp(3.0)
    some = evaluate(encode(Z[::10]), objective)  # 5000 of them
    C = objective.terms(Z).g.T @ Z / 50_000
    np.testing.assert_allclose(at.slope, C - C.T, rtol=1e-10, atol=1e-12)
    assert np.max(np.abs(at.slope - some.slope)) > 0.01
    X = objective.terms(Z[::10]).slope.T @ Z[::10] ** 2 / 5000
    own = np.diag(C)
    expected = np.abs(own[:, None] + own - X - X.T)
    pairs = ~np.eye(3, dtype=bool)
    np.testing.assert_allclose(at.curvature[pairs], expected[pairs], rtol=1e-10)
    # variances belong to slopes of all samples
    np.testing.assert_allclose(at.variance, some.variance / 10, rtol=1e-10, atol=1e-12)


def test_evaluate_variance_and_rise_by_chance_equal_those_of_simulated_samples():
    r, n, n_draws = 400, 4, 500
    runs = [evaluate(encode(draw_codes(r, n, seed)), Lp(3.0)) for seed in range(n_draws)]
    slopes = np.array([each.slope for each in runs])
    variance = np.mean([each.variance for each in runs], axis=0)
    pairs = np.triu_indices(n, 1)
    # relative standard error of a variance: sqrt(2 / 500), 6%, and twice that for slopes with heavy tails; four of it
    np.testing.assert_allclose(np.mean(slopes**2, axis=0)[pairs], variance[pairs], rtol=0.5)
    ratio = np.mean(slopes**2, axis=0)[pairs] / variance[pairs]
    np.testing.assert_allclose(np.mean(ratio), 1, atol=4 * 0.12 / np.sqrt(len(ratio)))
    # six angles, whose rises have a relative standard deviation of sqrt(2) each; again twice for tails
    rises, chance = np.array([[each.rise, each.rise_by_chance] for each in runs]).T
    np.testing.assert_allclose(np.mean(rises) / np.mean(chance), 1, atol=4 * 2 * np.sqrt(2 / 6 / n_draws))


def test_evaluate_rise_predicts_that_of_a_newton_step():
    # sparse codes with equal variances, a little away from their atoms: curvatures of pairs are almost the Hessian
    rng = np.random.default_rng(0)
    Z = rng.laplace(size=(50_000, 4)) @ rotate(np.eye(4), draw_antisymmetric(4, 0.02)).T
    at = evaluate(encode(Z), SmoothL1())
    moved = Z @ rotate(np.eye(4), at.slope / at.curvature).T
    rise = evaluate(encode(moved), SmoothL1()).value - at.value
    assert rise > 0
    # third-order terms of angles of .03, chance in curvatures from 400 samples of sqrt(3 / 400)
    np.testing.assert_allclose(rise, at.rise, rtol=0.3)


def test_compute_blur_adds_up_what_other_codes_leak_into_a_code():
    rng = np.random.default_rng(0)
    Z = rng.standard_normal((200_000, 3)) * [1.0, 2.0, 5.0]
    angles = np.array([[0, 0.01, 0.02], [-0.01, 0, 0.03], [-0.02, -0.03, 0]])
    zeros = np.zeros((3, 3))
    at = Angles(0.0, zeros, np.ones((3, 3)), zeros)
    leaked = np.std(Z @ angles.T, axis=0) / np.std(Z, axis=0)
    np.testing.assert_allclose(at.compute_blur(np.var(Z, axis=0), angles, 1.0, 1.0), leaked, rtol=0.02)
    np.testing.assert_allclose(at.compute_blur(np.var(Z, axis=0), angles, 2.0, 1.0), 2 * leaked, rtol=0.02)
    # the standard error of an angle is that of its slope over its curvature
    by_error = Angles(0.0, zeros, np.full((3, 3), 4.0), (4 * angles) ** 2)
    np.testing.assert_allclose(by_error.compute_blur(np.var(Z, axis=0), zeros, 1.0, 0.5), leaked / 2, rtol=0.02)


def test_compute_gradient_is_the_derivative_with_respect_to_atoms():
    X, A = draw_codes(200, 4), draw_atoms(2, 4)
    gradient = compute_gradient(ArraySamples(X), A, Lp(3.0))
    np.testing.assert_allclose(gradient.value, np.sum(np.abs(X @ A.T) ** 3), rtol=1e-12)
    D = np.random.default_rng(1).standard_normal((2, 4))
    up, down = (np.sum(np.abs(X @ (A + h * D).T) ** 3) for h in (1e-6, -1e-6))
    np.testing.assert_allclose(np.sum(gradient.G * D), (up - down) / 2e-6, rtol=1e-7)


# --- quasi-Newton steps -----------------------------------------------------------------------------------------------


def make_angles(slope, curvature, value=0.0):
    return Angles(value, slope, curvature, np.zeros_like(slope))


def test_quasi_newton_first_step_divides_slopes_by_curvatures():
    slope, curvature = draw_antisymmetric(4, 0.01), 1 + np.ones((4, 4))
    np.fill_diagonal(curvature, np.inf)
    step, A = QuasiNewton().take(np.eye(4), make_angles(slope, curvature))
    np.testing.assert_allclose(step.last.angles, slope / curvature, rtol=1e-14)
    np.testing.assert_allclose(A, rotate(np.eye(4), slope / curvature), rtol=1e-14)
    assert step.pairs == ()


def test_quasi_newton_steps_are_limited():
    curvature = np.ones((4, 4))
    long, _ = QuasiNewton().take(np.eye(4), make_angles(draw_antisymmetric(4, 100.0), curvature))
    np.testing.assert_allclose(measure_length(long.last.angles), LONGEST, rtol=1e-12)
    single = np.zeros((30, 30))
    single[0, 1], single[1, 0] = 5.0, -5.0
    one, _ = QuasiNewton().take(np.eye(30), make_angles(single, np.ones((30, 30))))
    np.testing.assert_allclose(np.max(one.last.angles), LONGEST_ANGLE)


def test_solve_two_loops_equals_the_dense_update_of_broyden_fletcher_goldfarb_and_shanno():
    rng = np.random.default_rng(0)
    n, rows = 4, np.tril_indices(4, -1)
    root = rng.standard_normal((6, 6))
    hessian = root @ root.T + np.eye(6)

    def spread(x):
        full = np.zeros((n, n))
        full[rows] = x
        return full - full.T

    curvature = np.ones((n, n))
    curvature[rows] = rng.uniform(1, 5, 6)
    curvature = np.where(np.tri(n, k=-1) > 0, curvature, curvature.T)
    pairs, steps = [], rng.standard_normal((3, 6))
    for s in steps:
        angles, change = spread(s), spread(hessian @ s)
        pairs.append((angles, change, float(np.sum(angles * change))))
    s, y = steps[-1], hessian @ steps[-1]
    inverse = np.diag(1 / curvature[rows])
    inverse *= (s @ y) / (y @ inverse @ y)
    for s in steps:
        y = hessian @ s
        left = np.eye(6) - np.outer(s, y) / (s @ y)
        inverse = left @ inverse @ left.T + np.outer(s, s) / (s @ y)
    slope = rng.standard_normal(6)
    found = solve_two_loops(spread(slope), curvature, tuple(pairs))
    np.testing.assert_allclose(found, spread(inverse @ slope), atol=1e-12)
    np.testing.assert_allclose(found, -found.T, atol=1e-14)
    # the secant condition: the last change of the slope gives back the last step
    np.testing.assert_allclose(solve_two_loops(pairs[-1][1], curvature, tuple(pairs)), pairs[-1][0], atol=1e-12)


def test_quasi_newton_steps_on_a_quadratic_converge_faster_than_diagonal_ones():
    """Angles are small, so that they add up: a concave quadratic with a Hessian that is far from diagonal."""
    n, rows = 4, np.tril_indices(4, -1)
    root = np.random.default_rng(3).standard_normal((6, 6))
    hessian = root @ root.T / 6 + 0.3 * np.eye(6)
    goal = 1e-6 * np.random.default_rng(1).standard_normal(6)

    def spread(x):
        full = np.zeros((n, n))
        full[rows] = x
        return full - full.T

    def run(forget):
        A, step = np.eye(n), QuasiNewton()
        curvature = np.full((n, n), np.linalg.norm(hessian, 2))
        for _ in range(25):
            away = goal - ((A - A.T) / 2)[rows]
            step, A = step.take(A, make_angles(spread(hessian @ away), curvature), forget=forget)
        assert len(step.pairs) == (0 if forget else MEMORY)
        return np.linalg.norm(goal - ((A - A.T) / 2)[rows]) / np.linalg.norm(goal)

    # six directions: after 25 steps of a quasi-Newton method what is left is next to nothing
    assert run(forget=False) < 1e-6
    assert run(forget=True) > 1e-4


def test_quasi_newton_forgets_pairs_that_point_downwards():
    slope, curvature = draw_antisymmetric(3, 0.01), np.ones((3, 3))
    # a remembered pair of negative product: the quadratic model has its minimum ahead
    pair = (slope, -slope, -float(np.sum(slope * slope)))
    step, _ = QuasiNewton(pairs=(pair,)).take(np.eye(3), make_angles(slope, curvature))
    assert step.pairs == ()
    np.testing.assert_allclose(step.last.angles, slope)


def test_quasi_newton_remembers_only_steps_along_which_the_slope_falls():
    curvature, before = np.ones((3, 3)), draw_antisymmetric(3, 0.01)
    step, A = QuasiNewton().take(np.eye(3), make_angles(before, curvature))
    risen, _ = step.take(A, make_angles(2 * before, curvature))
    assert risen.pairs == ()
    fallen, _ = step.take(A, make_angles(before / 2, curvature))
    assert len(fallen.pairs) == 1
    angles, change, product = fallen.pairs[0]
    np.testing.assert_array_equal(angles, step.last.angles)
    np.testing.assert_array_equal(change, before / 2)
    np.testing.assert_allclose(product, np.sum(angles * change))


def test_quasi_newton_shortens_a_step_from_where_it_began():
    A, angles = draw_atoms(3, 3), draw_antisymmetric(3, 0.1)
    step = QuasiNewton(Trial(A, 1.0, angles, angles))
    assert step.fell(0.9)
    assert not step.fell(1.0)
    assert not step.fell(1 - 1e-10)  # rounding
    assert not QuasiNewton().fell(-1.0)
    for number in range(1, MAX_SHORTER + 1):
        step, B = step.shorten()
        np.testing.assert_allclose(B, rotate(A, SHORTER**number * angles), atol=1e-14)
        assert step.n_shortened == number
        np.testing.assert_allclose(step.longest, 2 * SHORTER**number * measure_length(angles))
    assert not step.fell(0.9)  # no more than that


# --- climbs -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Overconfident(FixedFunction):
    """An objective that understates its curvature, so that steps go far beyond its maximum.

    A linear part of g leaves slopes as they are where codes have equal variances, and takes E g z away.
    """

    curvature: float
    linear: float = 0.0

    def refit(self, codes, blur=None):
        sums = codes.sum(lambda Z, half: np.array([np.sum(SmoothL1().terms(Z).g * Z), np.sum(Z * Z)]))
        return replace(self, linear=-float(sums[0] / sums[1]))

    def terms(self, Z):
        value, g, _ = SmoothL1().terms(Z)
        return Terms(value, g + self.linear * Z, np.full(Z.shape, -self.curvature / 2))


@pytest.fixture(scope="module")
def sparse():
    """Noiseless sparse samples, and their atoms."""
    rng = np.random.default_rng(0)
    A = draw_atoms(6, 6, seed=5)
    return make_subset((rng.standard_normal((2000, 6)) * (rng.random((2000, 6)) < 0.3)) @ A), A


@pytest.fixture(scope="module")
def laplace():
    A = draw_atoms(6, 6, seed=5)
    return make_subset(np.random.default_rng(0).laplace(size=(2000, 6)) @ A), A


def measure_error(A, B):
    return 1 - np.mean(np.max((A @ B.T) ** 4, axis=1))


def test_newton_ascent_shortens_a_step_that_lowers_the_value(laplace):
    subset, A = laplace
    ascent = NewtonAscent(subset, done=0.0)
    start = rotate(A, draw_antisymmetric(6, 0.01))
    first = ascent(State(start, Overconfident(0.02)))
    at = evaluate(subset.encode(first.A), SmoothL1()).value
    assert at < first.value  # so the step was too long
    second = ascent(first)
    assert second.step.n_shortened == 1
    np.testing.assert_allclose(second.value, at, rtol=1e-12)
    np.testing.assert_allclose(second.A, rotate(start, SHORTER * first.step.last.angles), atol=1e-13)
    assert second.reason is Reason.RUNNING


def test_newton_ascent_with_steps_too_long_never_accepts_a_lower_value(laplace):
    subset, A = laplace
    ascent, state = NewtonAscent(subset, done=0.0), State(rotate(A, draw_antisymmetric(6, 0.05)), Overconfident(0.02))
    accepted, n_shortened = [], 0
    for _ in range(25):
        state = ascent(state)
        n_shortened += state.step.n_shortened > 0
        if state.step.n_shortened == 0:
            accepted.append(state.step.last.value)
    assert n_shortened >= 2
    assert np.all(np.diff(accepted) >= -1e-9 * np.abs(accepted[:-1]))
    assert accepted[-1] > accepted[0]


@pytest.mark.parametrize("objective", [SmoothL1(), SignedLp(3.0), Density.begin(6)])
@pytest.mark.parametrize("n_before", [1, 4])
def test_climb_from_a_stored_state_ends_with_the_same_bits(laplace, objective, n_before):
    subset, _ = laplace
    ascent, start = NewtonAscent(subset, 1 / 256), State(find_start(subset.samples), objective)
    whole = climb(start, ascent, 100)
    cut = climb(start, ascent, n_before)
    assert cut.reason is Reason.MAX_ITER
    stored = pickle.loads(pickle.dumps(replace(cut, reason=Reason.RUNNING)))
    again = climb(stored, ascent, 100)
    np.testing.assert_array_equal(again.A, whole.A)
    assert (again.iteration, again.value, again.reason) == (whole.iteration, whole.value, whole.reason)


@pytest.mark.parametrize("objective", [SmoothL1(), SignedLp(3.0), Density.begin(6)])
def test_newton_ascent_finds_the_atoms_and_ends_by_a_small_rise(laplace, objective):
    subset, A = laplace
    state = climb(State(find_start(subset.samples), objective), NewtonAscent(subset, 1 / 256), 100)
    assert state.reason is Reason.SMALL_RISE
    # 2000 samples leave an error of some 5 (n - 1) / r
    assert measure_error(state.A, A) < 0.03
    np.testing.assert_allclose(state.A @ state.A.T, np.eye(6), atol=1e-12)
    # what is left is small beside chance
    at = evaluate(subset.encode(state.A), state.objective.refit(subset.encode(state.A), state.blur))
    assert at.rise < at.rise_by_chance / 100


def test_newton_ascent_without_noise_ends_by_rounding(sparse):
    subset, A = sparse
    state = climb(State(find_start(subset.samples), SmoothL1()), NewtonAscent(subset, 1 / 256), 60)
    assert state.reason is Reason.SMALL_RISE
    state = climb(State(state.A, Density.begin(6)), NewtonAscent(subset, 1 / 4), 200)
    assert state.reason is Reason.ROUNDING
    assert state.length < 1e-12
    assert measure_error(state.A, A) < 1e-15
    # codes are rounded to 1e-16, and the last angles of 1e-12 blur them by a few times as much: far below 1e-10
    assert np.all(state.objective.narrowest < 1e-10)


def test_newton_ascent_with_a_least_blur_keeps_widths_above_it(sparse):
    subset, A = sparse
    begin = State(rotate(A, draw_antisymmetric(6, 0.01)), Density.begin(6))
    state = climb(begin, NewtonAscent(subset, 1 / 4, least_blur=0.02), 200)
    assert np.all(state.blur >= 0.02)
    assert np.all(state.objective.narrowest >= 0.02)
    assert np.any(state.objective.narrowest < 0.06)


def test_newton_ascent_does_not_end_while_narrower_widths_are_to_be_tried(sparse):
    subset, A = sparse
    state = NewtonAscent(subset, done=1e9)(State(rotate(A, draw_antisymmetric(6, 1e-4)), Density.begin(6)))
    assert np.max(state.blur) < 1 / 8 / 3.5
    assert state.reason is Reason.RUNNING
    plain = NewtonAscent(subset, done=1e9)(State(rotate(A, draw_antisymmetric(6, 1e-4)), SmoothL1()))
    assert plain.reason is Reason.SMALL_RISE


def count_up(state):
    return replace(state, iteration=state.iteration + 1)


def test_climb_ends_at_max_iter():
    state = climb(State(np.eye(2), Lp()), count_up, 7)
    assert state.iteration == 7
    assert state.reason is Reason.MAX_ITER


def test_climb_ends_when_an_observer_returns_true_and_all_have_seen_every_state():
    one, other = [], []

    def stop_third(state):
        one.append(state.iteration)
        return state.iteration == 3

    state = climb(State(np.eye(2), Lp()), count_up, 7, (stop_third, lambda state: other.append(state.iteration)))
    assert state.reason is Reason.STOPPED
    assert one == other == [1, 2, 3]


def test_climb_keeps_the_reason_of_a_step_at_max_iter():
    def end(state):
        return replace(state, iteration=state.iteration + 1, reason=Reason.SMALL_RISE)

    assert climb(State(np.eye(2), Lp()), end, 1).reason is Reason.SMALL_RISE
    # a state with a reason is not moved
    assert climb(State(np.eye(2), Lp(), reason=Reason.ROUNDING), end, 9).iteration == 0


# --- the paper's algorithm --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("m", [2, 5])
@pytest.mark.parametrize("p", [3.0, 4.0])
def test_power_ascent_equals_a_plain_iteration(m, p):
    X, n_iter = draw_codes(500, 5) @ draw_atoms(5, 5, seed=3), 8
    A, start, seen = draw_atoms(m, 5), draw_atoms(m, 5), []
    state = climb(
        State(start, Lp(p)), PowerAscent(ArraySamples(X), 0.0), n_iter, [lambda state: seen.append(state) or False]
    )
    values = []
    for k in range(n_iter):
        Z = X @ A.T
        values.append(np.mean(np.sum(np.abs(Z) ** p, axis=1)))
        np.testing.assert_allclose(seen[k].value, values[-1], rtol=1e-12)
        U, _, V = np.linalg.svd((np.abs(Z) ** (p - 1) * np.sign(Z)).T @ X, full_matrices=False)
        before, A = A, U @ V
        np.testing.assert_allclose(seen[k].A, A, atol=1e-10)
        np.testing.assert_allclose(seen[k].length, np.linalg.norm(A - before) / np.sqrt(m), rtol=1e-6)
    assert np.all(np.diff(values) > -1e-12 * np.array(values[1:]))
    assert state.reason is Reason.MAX_ITER
    np.testing.assert_allclose(state.A @ state.A.T, np.eye(m), atol=1e-12)


@pytest.mark.parametrize("m", [2, 6])
def test_power_ascent_ends_at_a_step_below_tol_in_a_maximum(laplace, m):
    subset, _ = laplace
    state = climb(State(draw_atoms(m, 6), Lp()), PowerAscent(subset.samples, 1e-7), 2000)
    assert state.reason is Reason.SMALL_STEP
    assert state.length <= 1e-7
    # first-order conditions of a maximum on the Stiefel manifold: G = S A with S symmetric and positive
    G = compute_gradient(subset.samples, state.A, Lp()).G
    S = G @ state.A.T
    np.testing.assert_allclose(S, S.T, atol=1e-4 * np.max(S))
    np.testing.assert_allclose(G, S @ state.A, atol=1e-4 * np.max(S))
    assert np.min(np.linalg.eigvalsh(S)) > 0


# --- starts -----------------------------------------------------------------------------------------------------------


def test_find_start_is_orthonormal_and_rotates_with_the_samples():
    X, Q = draw_codes(500, 5), draw_atoms(5, 5)
    A, B = find_start(ArraySamples(X)), find_start(ArraySamples(X @ Q))
    np.testing.assert_allclose(A @ A.T, np.eye(5), atol=1e-12)
    np.testing.assert_allclose(np.abs(B @ Q.T @ A.T), np.eye(5), atol=1e-8)


def test_find_start_takes_the_largest_fourth_moments_first():
    X = draw_codes(2000, 5)
    A = find_start(ArraySamples(X), 2)
    M = (X * np.sum(X * X, axis=1)[:, None]).T @ X
    values = np.linalg.eigvalsh(M)[::-1]
    np.testing.assert_allclose(A @ M @ A.T, np.diag(values[:2]), atol=1e-8 * values[0])


def test_draw_start_is_orthonormal_and_belongs_to_its_seed():
    one, again, other = (draw_start(3, 7, np.random.default_rng(seed)) for seed in (0, 0, 1))
    np.testing.assert_allclose(one @ one.T, np.eye(3), atol=1e-14)
    np.testing.assert_array_equal(one, again)
    assert null_space(np.r_[one, other]).shape == (7, 1)
