"""Progress of a fit: no forecast without a basis, and none that is far off."""

import math
import re
import time
from dataclasses import replace

import pytest

from elldict import Iteration, LpDictionaryLearning
from elldict._old.progress import MAX_EXTRAPOLATION, RATE_ITERATIONS, Forecast, progress_bar, track_share
from elldict.datasets import make_bernoulli_gaussian

TOL = 1e-6


def iterations(steps, *, seconds=2.0, stage=0, first=1):
    for k, step in enumerate(steps, start=first):
        yield Iteration(0, stage, k, objective=1.0, step=step, passes=k, seconds=seconds * k)


def forecasts(steps, tol=TOL, **more):
    forecast = Forecast(tol)
    return [forecast.update(iteration) for iteration in iterations(steps, **more)]


def test_linear_convergence_is_forecast_exactly():
    steps = [0.1 * 0.3**k for k in range(9)]  # above tol, all of them
    told = forecasts(steps)
    assert told[:RATE_ITERATIONS] == [None] * RATE_ITERATIONS
    expected = [2.0 * math.log(step / TOL) / -math.log(0.3) for step in steps]
    assert told[RATE_ITERATIONS:] == pytest.approx(expected[RATE_ITERATIONS:])


def test_a_plateau_is_no_basis():
    # at this rate it would take log(1e-6 / 0.3) / log(0.9995) = 25 000 iterations: 14 hours, for 200 seconds seen
    assert forecasts([0.3 * 0.9995**k for k in range(100)]) == [None] * 100
    assert forecasts([0.3] * 100) == [None] * 100


def test_the_basis_is_the_present_phase_since_the_step_last_rose():
    forecast = Forecast(TOL)
    falling = [1e-2, 1e-3, 1e-4, 1e-5]
    assert [forecast.update(it) for it in iterations(falling)][-1] == pytest.approx(2.0)
    after_a_rise = [forecast.update(it) for it in iterations([2e-5, 1.5e-5, 1e-5], first=5)]
    other_phase = [forecast.update(it) for it in iterations([9e-6, 8e-6, 7e-6], first=8, stage=1)]
    assert after_a_rise + other_phase == [None] * 6


@pytest.mark.parametrize("slow", range(40))
def test_a_slow_iteration_does_not_make_a_forecast_of_hours(slow):
    """By a clock that stands for a thousand seconds in one iteration and goes on by a second in all others.

    At most MAX_EXTRAPOLATION times what the clock has shown is forecast, and without such an iteration what is right.
    """
    forecast, clock = Forecast(TOL), 0.0
    for k in range(40):
        clock += 1000.0 if k == slow else 1.0
        left = forecast.update(Iteration(0, 0, k + 1, objective=1.0, step=0.5 * 0.75**k, passes=k, seconds=clock))
        n_left = math.log(0.5 * 0.75**k / TOL) / -math.log(0.75)
        if left is not None:
            assert left <= MAX_EXTRAPOLATION * clock
            assert left >= n_left * 0.999
        if left is not None and (k < slow or slow == 0):
            assert left == pytest.approx(n_left)


@pytest.mark.parametrize("parameters", [{}, {"p": 1}, {"whiten": True}, {"n_init": 3}, {"solver": "power", "p": 4}])
def test_forecasts_of_any_fit_are_less_than_three_times_what_has_passed(parameters):
    """An iteration counts as a second."""
    X = make_bernoulli_gaussian(4000, 12, density=0.2, noise_std=0.1, random_state=0)[0]
    forecast, clock = Forecast(TOL), iter(range(1, 10_000))

    def check(iteration):
        now = next(clock)
        left = forecast.update(replace(iteration, seconds=now))
        assert left is None or left <= MAX_EXTRAPOLATION * now

    LpDictionaryLearning(tol=TOL, random_state=0, **parameters).fit(X, callback=check)
    assert next(clock) > 5, "the callback was called"


@pytest.mark.parametrize("tol", [0.0, 1e-2])
def test_nothing_is_left_to_forecast_at_tol_and_no_tol_is_never_reached(tol):
    assert forecasts([1e-2, 1e-3, 1e-4, 1e-5, 0.0], tol) == [None] * 5


@pytest.mark.parametrize("p", [2.5, 3, 4])
def test_forecasts_of_a_fit_are_never_far_off(p):
    """An iteration counts as a second; a forecast covers at most MAX_EXTRAPOLATION times the iterations so far."""
    X = make_bernoulli_gaussian(10_000, 20, density=0.3, noise_std=0.2, random_state=0)[0]
    forecast, told = Forecast(TOL), []

    def keep(iteration):
        told.append(forecast.update(replace(iteration, seconds=iteration.iteration)))

    n_iter = (
        LpDictionaryLearning(p=p, solver="power", refine=None, tol=TOL, random_state=0).fit(X, callback=keep).n_iter_
    )
    assert told[0] is None
    ends = [k + seconds for k, seconds in enumerate(told, start=1) if seconds is not None]
    assert len(ends) > 5
    assert max(ends) <= (1 + MAX_EXTRAPOLATION) * n_iter
    assert ends[-5:] == pytest.approx([n_iter] * 5, abs=1.5), (
        "convergence is linear at the end; steps are whole numbers"
    )


def test_the_bar_shows_a_forecast_once_there_is_one(monkeypatch, capsys):
    monkeypatch.setenv("FORCE_COLOR", "1")  # or rich draws the last state alone

    def read_until(words):
        shown, deadline = "", time.monotonic() + 30
        while words not in shown and time.monotonic() < deadline:
            time.sleep(0.02)
            shown += re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", capsys.readouterr().err)
        return shown

    seen = []
    first, *others = iterations([1e-1, 1e-2, 1e-3, 1e-4], seconds=19.9)
    with progress_bar("l_3", TOL, seen.append) as show:
        show(first)
        shown = read_until("iteration 1,")
        assert "iteration 1, step 1.0e-01" in shown
        assert "to tol" not in shown
        for iteration in others:
            show(iteration)
        assert "about 0:00:40 to tol" in read_until("to tol")
    assert seen == [first, *others]


def test_the_share_that_is_done_never_goes_back():
    measure = track_share(TOL)
    shares = [measure(it) for it in iterations([1.0, 1e-2, 1e-1, 1e-3, 1e-7, 0.0])]
    assert shares == pytest.approx([0, 1 / 3, 1 / 3, 1 / 2, 1, 1])
