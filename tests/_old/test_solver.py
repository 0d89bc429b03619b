"""The solver does what the paper's Algorithm 2 says, and says what it did."""

import math
from dataclasses import dataclass

import numpy as np
import pytest

from elldict._old.backend.base import BufferedWork, FreshWork
from elldict._old.result import Iterate
from elldict._old.solver.directions import polar, random_orthonormal
from elldict._old.solver.evaluate import Statistics, evaluate
from elldict._old.solver.loop import Phase, Stepper, choose_precision
from elldict._old.solver.objective import LinearCodes, Lp, Quantities, Terms, raise_to_power
from tests._old.helpers import one_step, plain_power_step, prepared, run_from, sums_at


@pytest.mark.parametrize("p", [2.2, 2.5, 3, 3.5, 4, 5, 6.7, 8, 20])
def test_gradient_is_the_derivative_of_the_objective(p, rng):
    X, A, direction = rng.standard_normal((50, 6)), random_orthonormal(4, 6, rng), rng.standard_normal((4, 6))
    slope = p * np.sum(sums_at(X, A, p).G * direction)  # g leaves out the factor p
    h = 1e-5
    rise = np.sum(sums_at(X, A + h * direction, p).value) - np.sum(sums_at(X, A - h * direction, p).value)
    assert rise / (2 * h) == pytest.approx(slope, rel=1e-6)


@pytest.mark.parametrize("p", [2.2, 3, 4, 5.5])
def test_contrast_terms_are_derivatives_of_each_other(p):
    z, h = np.linspace(-3, 3, 40)[:, None], 1e-6
    at = {shift: Lp(p).terms(z + shift, Quantities.MOMENTS, FreshWork(), np) for shift in (-h, 0.0, h)}
    value = {shift: at[shift].g * (z + shift) for shift in (-h, h)}  # F = g z
    np.testing.assert_allclose((value[h] - value[-h]) / (2 * h), p * at[0.0].g, rtol=1e-6, atol=1e-8)
    np.testing.assert_allclose((at[h].g - at[-h].g) / (2 * h), at[0.0].slope.expand(), rtol=1e-5, atol=1e-8)


@pytest.mark.parametrize("exponent", [0.2, 0.5, 1, 1.5, 2, 2.5, 3, 6, 7.5, 18, 58.25])
@pytest.mark.parametrize("work", [BufferedWork, FreshWork])
def test_power_equals_the_general_power(exponent, work, rng):
    x = rng.random((30, 4))
    np.testing.assert_allclose(raise_to_power(x, exponent, work(), np, into="w"), x**exponent, rtol=1e-13)


def test_power_leaves_its_argument_alone(rng):
    x = rng.random((30, 4))
    before = x.copy()
    for exponent in (0.5, 1, 2, 2.5, 4):
        raise_to_power(x, exponent, BufferedWork(), np, into="w")
    np.testing.assert_array_equal(x, before)


@pytest.mark.parametrize("p", [2.5, 3, 4, 5])
@pytest.mark.parametrize("m", [1, 4, 9])
def test_one_step_is_algorithm_2(p, m, rng):
    X, A = rng.standard_normal((200, 9)), random_orthonormal(m, 9, rng)
    np.testing.assert_allclose(one_step(X, A, p, tile_rows=37), plain_power_step(X, A, p), atol=1e-12)


def test_moments_are_those_of_the_codes(easy, rng):
    X, A = easy[0], random_orthonormal(5, 12, rng)
    stats = sums_at(X, A, 3.5, Quantities.MOMENTS, tile_rows=999)
    Z = X @ A.T / np.sqrt(np.mean(X**2))
    assert stats.weight == len(X)
    np.testing.assert_allclose(stats.value, np.sum(np.abs(Z) ** 3.5, axis=0))
    np.testing.assert_allclose(stats.slope, np.sum(2.5 * np.abs(Z) ** 1.5, axis=0))
    np.testing.assert_allclose(stats.g2, np.sum(np.abs(Z) ** 5, axis=0))
    np.testing.assert_allclose(stats.z2, np.sum(Z**2, axis=0))
    np.testing.assert_allclose(stats.extra["magnitude"], np.sum(np.abs(Z), axis=0))
    assert stats.G is None


def test_value_from_the_gradient_equals_the_value(easy, rng):
    A = random_orthonormal(5, 12, rng)
    quick, full = (
        sums_at(easy[0] + 3, A, 3, quantities, center=True) for quantities in (Quantities.GRADIENT, Quantities.MOMENTS)
    )
    np.testing.assert_allclose(quick.value, full.value, rtol=1e-12)


def test_centred_and_whitened_sums_are_those_of_rewritten_data(rng):
    X = rng.standard_normal((500, 6)) ** 3 @ rng.standard_normal((6, 6)) + 10 * rng.standard_normal(6)
    _, whitening = prepared(X, center=True, whiten=True)
    white = (X - X.mean(axis=0)) @ (whitening.scale * whitening.to_white).T
    np.testing.assert_allclose(white.T @ white / len(X), np.eye(6), atol=1e-10)
    A = random_orthonormal(6, 6, rng)
    Z = white @ A.T
    expected = (Z * np.abs(Z)).T @ white
    np.testing.assert_allclose(sums_at(X, A, 3, center=True, whiten=True).G, expected, rtol=1e-9)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_float32_products_keep_float64_sums(dtype, easy):
    X = easy[0].astype(dtype)
    stats = sums_at(X, np.eye(12), precision=dtype)
    assert stats.G.dtype == np.float64
    np.testing.assert_allclose(
        stats.G, sums_at(easy[0], np.eye(12)).G, rtol=1e-5 if dtype == "float32" else 1e-12, atol=1e-3
    )


def test_the_objective_never_falls(easy, rng):
    for p in (2.3, 3, 4, 6):
        _, history = run_from(easy[0], random_orthonormal(12, 12, rng), p)
        objective = np.array([iteration.objective for iteration in history])
        assert np.all(np.diff(objective) >= -1e-12 * objective[1:])


def test_history_tells_what_happened(easy, rng):
    solution, history = run_from(easy[0], random_orthonormal(12, 12, rng), tol=1e-8)
    assert [it.iteration for it in history] == list(range(1, len(history) + 1))
    assert [it.passes for it in history] == list(range(1, len(history) + 1))
    assert np.all(np.diff([it.seconds for it in history]) >= 0)
    assert history[-1].step <= 1e-8 < history[-2].step
    assert all(it.components is None for it in history)
    assert solution.converged
    assert solution.status.startswith("converged: step")


def test_callback_sees_atoms_and_can_stop(easy, rng):
    seen = []

    def callback(iteration):
        np.testing.assert_allclose(iteration.components @ iteration.components.T, np.eye(12), atol=1e-12)
        seen.append(iteration)
        return iteration.iteration == 4

    solution, history = run_from(easy[0], random_orthonormal(12, 12, rng), callback=callback)
    assert len(history) == len(seen) == 4
    assert solution.stopped
    assert not solution.converged
    assert "callback" in solution.status


def test_fault_16_a_step_that_lowers_the_objective_is_replaced_by_the_plain_step(easy, rng):
    start = random_orthonormal(12, 12, rng)
    calls = []

    class Spoiled:
        """The power step, except that every third one runs away from the maximum."""

        monotone = False
        needs = Quantities.GRADIENT

        def __call__(self, stats, A):
            calls.append(A)
            good = polar(stats.G)
            return good if len(calls) % 3 else random_orthonormal(12, 12, np.random.default_rng(len(calls)))

    solution, history = run_from(easy[0], start, direction=Spoiled(), tol=1e-7, max_iter=200)
    plain, _ = run_from(easy[0], start, tol=1e-7)
    objective = np.array([iteration.objective for iteration in history])
    assert np.all(np.diff(objective) >= -1e-11 * objective[1:])
    assert solution.converged
    assert solution.stats.mean_value == pytest.approx(plain.stats.mean_value, rel=1e-10)
    assert history[-1].passes > len(history)  # looking at a rejected step is counted


@pytest.mark.parametrize("by", ["max_iter", "callback"])
def test_fault_16_the_last_step_is_not_trusted_unseen(easy, rng, by):
    """A step that is not the power step and that no pass will look at is not taken."""
    start = random_orthonormal(12, 12, rng)
    away = random_orthonormal(12, 12, rng)
    steps = []

    class Spoiled:
        monotone = False
        needs = Quantities.GRADIENT

        def __call__(self, stats, A):
            steps.append(A)
            return away if len(steps) == 8 else polar(stats.G)

    how = {"max_iter": 8} if by == "max_iter" else {"callback": lambda it: it.iteration == 8}
    solution, history = run_from(easy[0], start, direction=Spoiled(), **how)
    assert solution.stats.mean_value == pytest.approx(history[-1].objective)


def test_a_contrast_may_leave_its_value_to_the_product_of_g_and_z(easy):
    @dataclass(frozen=True)
    class Cubic(LinearCodes):
        def terms(self, Z, quantities, work, xp):
            return Terms(g=Z * abs(Z), slope=2 * abs(Z))

    samples, whitening = prepared(easy[0])
    one, two = (
        evaluate(samples, whitening, objective, np.eye(12), Quantities.MOMENTS, "float64").value
        for objective in (Cubic(), Lp(3))
    )
    np.testing.assert_allclose(one, two)


def test_steps_are_measured_per_atom():
    phase = Phase(Lp(3), lambda stats, A: -A, "float64", 1e-6, 1)
    _, step = Stepper(None, phase).propose(Iterate(np.eye(4), Lp(3), Statistics(1.0)))
    assert step == pytest.approx(2.0)


def test_precision_follows_the_size_of_the_codes():
    kind = {"code_bound": 20.0}
    assert choose_precision(3, dtype="float32", **kind) == "float32"
    assert choose_precision(60, dtype="float32", **kind) == "float64"
    assert choose_precision(3, dtype="float64", **kind) == "float64"
    with pytest.raises(ValueError, match=r"p=300 is too large for these samples.*Use p <= 109"):
        choose_precision(300, dtype="float64", **kind)
    assert math.isfinite(20.0 ** (2 * 109 - 2) * 1e8)
