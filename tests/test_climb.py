"""Steps of atoms, and the climb: polar factors, rotations, slopes, quasi-Newton steps, reasons to end."""

from dataclasses import dataclass, replace

import numpy as np
import pytest
from scipy.linalg import expm

from elldict.samples.arrays import ArraySamples
from elldict.solver.climb import NewtonAscent, PowerAscent, Reason, State, climb, measure_length
from elldict.solver.density import Density
from elldict.solver.evaluate import LEAST_CURVATURE, Angles, compute_blur, compute_gradient, evaluate
from elldict.solver.objectives import FixedFunction, Lp, SignedLp, SmoothNorm
from elldict.solver.starts import find_start
from elldict.solver.steps import (
    LONGEST,
    LONGEST_ANGLE,
    MAX_SHORTER,
    SHORTER,
    QuasiNewton,
    Trial,
    limit,
    rotate,
    solve_two_loops,
)
from tests.fits import draw, draw_atoms, encode, make_subset


def draw_antisymmetric(n, size, seed=0):
    angles = np.random.default_rng(seed).standard_normal((n, n))
    return size * (angles - angles.T)


def turn_pair(n, i, j, angle):
    """Rotate i towards j."""
    R = np.eye(n)
    R[[i, j], [i, j]] = np.cos(angle)
    R[i, j], R[j, i] = np.sin(angle), -np.sin(angle)
    return R


def test_rotate_equals_the_exponential_of_angles_up_to_third_order():
    angles = draw_antisymmetric(5, 0.01)
    A = draw_atoms(5)
    size = np.linalg.norm(angles, 2)
    assert 0 < np.linalg.norm(rotate(A, angles) - expm(angles) @ A, 2) < size**3 / 6
    np.testing.assert_allclose(rotate(rotate(A, angles), -angles), A, atol=1e-14)


# --- slopes, curvatures and their chance ------------------------------------------------------------------------------


def draw_codes(r, n, seed=0):
    return np.random.default_rng(seed).laplace(size=(r, n)) * np.arange(1, n + 1)


def draw_independent_codes():
    """All combinations of five values of each of four codes, whose products have the means of independent ones."""
    values = np.random.default_rng(0).laplace(size=(4, 5)) * np.arange(1, 5)[:, None]
    return np.stack(np.meshgrid(*values), axis=-1).reshape(-1, 4)


@dataclass(frozen=True)
class LpLikelihood(Lp):
    """l_p, as if it was the logarithm of a density."""

    is_likelihood = True


@dataclass(frozen=True)
class SmoothLikelihood(SmoothNorm):
    """The smooth norm, as if it was the logarithm of a density."""

    is_likelihood = True


def compute_least_curvature(objective, Z):
    own = np.abs(np.mean(objective.terms(Z).g * Z, axis=0))
    return LEAST_CURVATURE / 2 * (own[:, None] + own)


# of objectives that are no likelihoods, only independent codes have the curvatures that are computed
CASES = {
    "l_3": (Lp(3.0), draw_independent_codes()),
    "l_4": (Lp(4.0), draw_independent_codes()),
    "smooth l_1": (SmoothNorm(1.0, 3.0), draw_independent_codes()),
    # codes so small that their slopes, which are squared in variances, do not hide all second derivatives
    "likelihood l_3": (LpLikelihood(3.0), 0.05 * draw_codes(150, 4) @ draw_atoms(4)),
    "likelihood l_4": (LpLikelihood(4.0), 0.05 * draw_codes(150, 4) @ draw_atoms(4)),
    "likelihood l_1": (SmoothLikelihood(1.0, 3.0), draw_codes(150, 4) @ draw_atoms(4)),
    "likelihood of independent codes": (SmoothLikelihood(1.0, 3.0), draw_independent_codes()),
}


@pytest.mark.parametrize("case", CASES)
def test_evaluate_equals_finite_differences_of_the_objective_along_rotations(case):
    (objective, Z), h = CASES[case], 1e-3
    r = len(Z)
    at = evaluate(encode(Z), objective)
    np.testing.assert_allclose(at.value, objective.terms(Z).value / r, rtol=1e-12)
    np.testing.assert_array_equal(at.slope, -at.slope.T)
    np.testing.assert_allclose(at.curvature, at.curvature.T, rtol=1e-14)
    np.testing.assert_array_equal(np.diag(at.curvature), np.inf)  # an atom has no angle with itself
    least = compute_least_curvature(objective, Z)
    if objective.is_likelihood:  # the variance of the slope of a single sample
        least = np.maximum(least, r * at.variance)
    for i in range(4):
        for j in range(i):
            up, here, down = (objective.terms(Z @ turn_pair(4, i, j, t).T).value / r for t in (h, 0.0, -h))
            # differences of the order h^2 / 6 and h^2 / 12 of derivatives that grow by p^2 at most
            scale = abs(here)
            np.testing.assert_allclose(at.slope[i, j], (up - down) / (2 * h), atol=1e-5 * scale)
            bend = (up + down - 2 * here) / h**2
            np.testing.assert_allclose(at.curvature[i, j], max(abs(bend), least[i, j]), rtol=1e-4, atol=1e-5 * scale)


def compute_means(objective, Z, w):
    """Means over samples of weights w of g_i' z_j^2 and (g_i z_j - g_j z_i)^2, for pairs of atoms."""
    _, g, slope = objective.terms(Z, second=True)
    if objective.is_likelihood:
        each = g[:, :, None] * Z[:, None] - Z[:, :, None] * g[:, None]
        return np.einsum("r,ri,rj->ij", w, slope, Z**2) / np.sum(w), np.einsum("r,rij->ij", w, each**2) / np.sum(w)
    curved, square, own, z2 = (w @ each / np.sum(w) for each in (slope, g * g, g * Z, Z**2))
    product = np.outer(square, z2)
    return np.outer(curved, z2), product + product.T - 2 * np.outer(own, own)


@pytest.mark.parametrize("objective", [Lp(3.0), SmoothNorm(1.0, 2.0), LpLikelihood(3.0), SmoothLikelihood(1.0, 2.0)])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("block", [300, 2**18])
def test_evaluate_equals_sums_written_out(monkeypatch, objective, weighted, block):
    """Slopes and the value are those of all samples, curvatures and variances those of some."""
    monkeypatch.setattr("elldict.samples.base.BLOCK_NUMBERS", block)  # a hundred rows, or all
    Z, some = draw_codes(2000, 3), slice(3, None, 10)
    w = np.random.default_rng(1).uniform(0.1, 3, 2000) if weighted else None
    each = np.ones(2000) if w is None else w
    at = evaluate(encode(Z, w, some), objective)
    C = (each[:, None] * objective.terms(Z).g).T @ Z / np.sum(each)
    np.testing.assert_allclose(at.slope, C - C.T, rtol=1e-10, atol=1e-12)
    value = sum(v * objective.terms(z[None]).value for v, z in zip(each, Z, strict=True)) / np.sum(each)
    np.testing.assert_allclose(at.value, value, rtol=1e-12)
    X, variance = compute_means(objective, Z[some], each[some])
    own, pairs = np.diag(C), np.triu_indices(3, 1)
    expected = np.maximum(np.abs(own[:, None] + own - X - X.T), compute_least_curvature(objective, Z))
    if objective.is_likelihood:
        expected = np.maximum(expected, variance)
    np.testing.assert_allclose(at.curvature[pairs], expected[pairs], rtol=1e-10)
    # variances belong to means over all samples
    np.testing.assert_allclose(at.variance[pairs], variance[pairs] / np.sum(each), rtol=1e-10)
    assert np.max(np.abs(at.slope - evaluate(encode(Z[some]), objective).slope)) > 0.01


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


def test_compute_blur_adds_up_what_other_codes_leak_into_a_code():
    rng = np.random.default_rng(0)
    Z = rng.standard_normal((200_000, 3)) * [1.0, 2.0, 5.0]
    angles = np.array([[0, 0.01, 0.02], [-0.01, 0, 0.03], [-0.02, -0.03, 0]])
    zeros = np.zeros((3, 3))
    leaked, variances = np.std(Z @ angles.T, axis=0) / np.std(Z, axis=0), np.var(Z, axis=0)
    np.testing.assert_allclose(compute_blur(angles, zeros, variances, 2.0, 1.0), 2 * leaked, rtol=0.02)
    # the standard error of an angle is that of its slope over its curvature
    by_error = Angles(0.0, zeros, np.full((3, 3), 4.0), (4 * angles) ** 2).error_variance
    np.testing.assert_allclose(compute_blur(zeros, by_error, variances, 1.0, 0.5), leaked / 2, rtol=0.02)
    # a constant is a code of size one
    with_constant = np.column_stack([zeros, [0.1, 0.2, 0.3]])
    blur = compute_blur(with_constant, 0 * with_constant, variances, 1.0, 1.0)
    np.testing.assert_allclose(blur, [0.1, 0.2, 0.3] / np.sqrt(variances), rtol=1e-12)


def test_compute_gradient_of_weighted_samples_sums_each_with_its_weight():
    X, A, w = draw_codes(200, 4), draw_atoms(4)[:2], np.random.default_rng(1).uniform(0, 3, 200)
    gradient = compute_gradient(ArraySamples(X, weights=w), A, Lp(3.0))
    Z = X @ A.T
    np.testing.assert_allclose(gradient.value, np.sum(w[:, None] * np.abs(Z) ** 3), rtol=1e-12)
    np.testing.assert_allclose(gradient.G, (3 * w[:, None] * np.abs(Z) * Z).T @ X, rtol=1e-10)


# --- quasi-Newton steps -----------------------------------------------------------------------------------------------


def make_angles(slope, curvature, value=0.0):
    return Angles(value, slope, curvature, np.zeros_like(slope))


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
    found = solve_two_loops(make_angles(spread(slope), curvature), tuple(pairs))
    np.testing.assert_allclose(found, spread(inverse @ slope), atol=1e-12)


def test_quasi_newton_remembers_only_steps_along_which_the_slope_falls():
    curvature, before = np.ones((3, 3)), draw_antisymmetric(3, 0.01)
    step, A = QuasiNewton().take(np.eye(3), make_angles(before, curvature))
    risen, _ = step.take(A, make_angles(2 * before, curvature))
    assert risen.pairs == ()
    fallen, _ = step.take(A, make_angles(before / 2, curvature))
    ((angles, change, product),) = fallen.pairs
    np.testing.assert_array_equal(angles, step.last.angles)
    np.testing.assert_array_equal(change, before / 2)
    np.testing.assert_allclose(product, np.sum(angles * change))


def test_quasi_newton_shortens_a_step_from_where_it_began():
    A, angles = draw_atoms(3), draw_antisymmetric(3, 0.1)
    step = QuasiNewton(Trial(A, 1.0, angles, angles))
    np.testing.assert_allclose([step.gained(0.9), step.gained(1.5)], [-0.1, 0.5])
    for number in range(1, MAX_SHORTER + 2):
        assert not step.is_exhausted
        step, B = step.shorten()
        np.testing.assert_allclose(B, rotate(A, SHORTER**number * angles), atol=1e-14)
        np.testing.assert_allclose(step.longest, 2 * SHORTER**number * measure_length(angles))
    assert step.is_exhausted
    assert not step.take(B, make_angles(angles, np.ones((3, 3))))[0].is_exhausted


def test_quasi_newton_step_that_rises_only_beyond_its_limit_is_replaced():
    """The stored pair makes a step of 50 along one angle, where the slope is small, and of -.4 along a steep one."""
    slope, angles, curvature = np.zeros((3, 3)), np.zeros((3, 3)), np.full((3, 3), 2.0)
    slope[1, 0], slope[2, 0], slope[2, 1] = 0.01, 0.1, 0.02
    angles[1, 0], angles[2, 0] = 50.0, -0.4
    slope, angles = slope - slope.T, angles - angles.T
    pair = (angles, slope, float(np.sum(angles * slope)))
    secant = solve_two_loops(make_angles(slope, curvature), (pair,))
    np.testing.assert_allclose(secant, angles, atol=1e-12)
    assert np.sum(angles * slope) > 0 > np.sum(limit(angles) * slope)
    step, A = QuasiNewton(pairs=(pair,)).take(np.eye(3), make_angles(slope, curvature))
    assert step.pairs == ()
    np.testing.assert_allclose(step.last.angles, slope / 2, rtol=1e-14)
    np.testing.assert_allclose(A, rotate(np.eye(3), slope / 2), rtol=1e-14)


# --- climbs -----------------------------------------------------------------------------------------------------------


def draw_subset(law):
    """Draw samples without noise, and their atoms."""
    A = draw_atoms(6)
    return make_subset(draw(law, 2000, 6) @ A), A


def measure_error(A, B):
    return 1 - np.mean(np.max((A @ B.T) ** 4, axis=1))


@dataclass(frozen=True)
class Falling(FixedFunction):
    """An objective whose value is lower with every refit, whatever the step."""

    n_refits: int = 0

    def refit(self, codes, blur=None, *, choose=False):
        return replace(self, n_refits=self.n_refits + 1)

    def terms(self, Z, weights=None, *, second=False):
        return SmoothNorm().terms(Z, weights, second=second)._replace(value=-float(self.n_refits * len(Z)))


def test_newton_ascent_ends_where_a_step_has_been_shortened_too_often():
    subset, A = draw_subset("laplace")
    start = rotate(A, draw_antisymmetric(6, 0.05))
    seen = []
    state = climb(State(start, Falling()), NewtonAscent(subset, done=0.0), 100, [seen.append])
    assert state.reason is Reason.NO_RISE
    assert [each.step.n_shortened for each in seen] == list(range(MAX_SHORTER + 2))
    # it ends next to where the step began
    length = SHORTER ** (MAX_SHORTER + 1) * seen[0].length
    assert measure_length(state.A - start) < length * (1 + 1e-9)


@pytest.mark.parametrize("is_reversed", [False, True])
def test_newton_ascent_does_not_compare_values_where_a_sign_has_been_reversed(is_reversed):
    subset, A = draw_subset("laplace")
    fitted = SignedLp(3.0).refit(subset.encode(A))
    before = replace(fitted, sign=-fitted.sign) if is_reversed else fitted
    angles = draw_antisymmetric(6, 0.01)
    last = QuasiNewton(Trial(A, 1e9, angles, angles), pairs=((angles, angles, float(np.sum(angles**2))),))
    state = NewtonAscent(subset, done=0.0)(State(rotate(A, angles), before, iteration=3, step=last))
    np.testing.assert_array_equal(state.objective.sign, 1)
    assert state.objective.has_changed == is_reversed
    assert state.step.n_shortened == (not is_reversed)
    if is_reversed:  # a step from here, without what is known of the other function
        np.testing.assert_array_equal(state.step.last.A, rotate(A, angles))
        assert state.step.last.value < 1e9
        assert state.step.pairs == ()
    else:
        np.testing.assert_array_equal(state.step.last.A, A)


@pytest.mark.parametrize("objective", [SmoothNorm(), SignedLp(3.0), Density.begin(6)])
def test_newton_ascent_finds_the_atoms_and_ends_by_a_small_rise(objective):
    subset, A = draw_subset("laplace")
    state = climb(State(find_start(subset.samples), objective), NewtonAscent(subset, 1 / 256), 100)
    assert state.reason is Reason.SMALL_RISE
    # 2000 samples leave an error of some 5 (n - 1) / r
    assert measure_error(state.A, A) < 0.03
    np.testing.assert_allclose(state.A @ state.A.T, np.eye(6), atol=1e-12)
    # what is left is small beside chance
    at = evaluate(subset.encode(state.A), state.objective.refit(subset.encode(state.A), state.blur))
    assert at.rise < at.rise_by_chance / 100


def test_newton_ascent_does_not_end_while_narrower_widths_are_to_be_tried():
    subset, A = draw_subset("sparse")
    state = NewtonAscent(subset, done=1e9)(State(rotate(A, draw_antisymmetric(6, 1e-4)), Density.begin(6)))
    assert np.max(state.blur) < 1 / 8 / 3.5
    assert state.reason is Reason.RUNNING
    plain = NewtonAscent(subset, done=1e9)(State(rotate(A, draw_antisymmetric(6, 1e-4)), SmoothNorm()))
    assert plain.reason is Reason.SMALL_RISE


@pytest.mark.parametrize("m", [2, 5])
@pytest.mark.parametrize("p", [3.0, 4.0])
def test_power_ascent_takes_the_step_of_the_paper_with_its_value_and_length(m, p):
    X, A = draw_codes(500, 5), draw_atoms(5)[:m]
    Z = X @ A.T
    state = PowerAscent(ArraySamples(X), 0.0)(State(A, Lp(p)))
    U, _, V = np.linalg.svd((np.abs(Z) ** (p - 1) * np.sign(Z)).T @ X, full_matrices=False)
    np.testing.assert_allclose(state.A, U @ V, atol=1e-12)
    np.testing.assert_allclose(state.value, np.mean(np.sum(np.abs(Z) ** p, axis=1)), rtol=1e-12)
    np.testing.assert_allclose(state.length, np.linalg.norm(state.A - A) / np.sqrt(m), rtol=1e-12)


# --- starts -----------------------------------------------------------------------------------------------------------


def test_find_start_is_orthonormal_and_rotates_with_the_samples():
    X, Q = draw_codes(500, 5), draw_atoms(5)
    A, B = find_start(ArraySamples(X)), find_start(ArraySamples(X @ Q))
    np.testing.assert_allclose(A @ A.T, np.eye(5), atol=1e-12)
    np.testing.assert_allclose(np.abs(B @ Q.T @ A.T), np.eye(5), atol=1e-8)


def test_find_start_takes_the_largest_fourth_moments_first():
    X = draw_codes(2000, 5)
    A = find_start(ArraySamples(X), 2)
    M = (X * np.sum(X * X, axis=1)[:, None]).T @ X
    values = np.linalg.eigvalsh(M)[::-1]
    np.testing.assert_allclose(A @ M @ A.T, np.diag(values[:2]), atol=1e-8 * values[0])
