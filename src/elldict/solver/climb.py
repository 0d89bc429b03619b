"""The only loop: maximise an objective until the distance to its maximum is within sampling error."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any, TypeVar

import numpy as np

from elldict.samples.base import Array, Samples
from elldict.samples.statistics import count_samples
from elldict.samples.subsample import Subset
from elldict.solver.evaluate import compute_blur, compute_gradient, evaluate, evaluate_shears
from elldict.solver.objectives import Objective
from elldict.solver.steps import QuasiNewton, polar

PER_ANGLE, PER_ERROR = 2.0, 0.5
"""Narrowest width of a density, relative to the last angles and to standard errors."""

NEAR = 16.0
"""Predicted rise of invertible atoms, relative to that by chance, above which densities do not become narrower: they
would follow a step that is still to be corrected."""

RESOLUTION = 10.0
"""Length of a step that is due to rounding errors alone, relative to the size of these errors."""


class Reason(Enum):
    """Reason why a climb ended."""

    RUNNING = "running"
    SMALL_RISE = "the predicted increase is small compared with chance"
    NO_RISE = "no step in the direction of the slope increases the objective"
    ROUNDING = "the step is within rounding errors"
    SMALL_STEP = "the step is below tol"
    MAX_ITER = "max_iter was reached"
    STOPPED = "stopped by the callback"
    TOO_FEW = "too few samples to determine the rotation"


@dataclass(frozen=True)
class State:
    """State of a climb: all that is needed to resume it."""

    A: Array
    objective: Objective
    iteration: int = 0
    step: QuasiNewton = field(default_factory=QuasiNewton)
    blur: Array | None = None  # (m,) of the codes, from the last step and standard errors
    reason: Reason = Reason.RUNNING
    length: float = np.inf  # of the last step: root mean square over atoms
    value: float = -np.inf  # per sample, at the atoms before the last step


Advance = Callable[[State], State]
"""Takes one step."""

Observer = Callable[[State], bool | None]
"""Called with every state; returning True stops the climb."""


T = TypeVar("T")


@dataclass(eq=False)
class Journal:
    """Runs the loops of a fit. A subclass may store their values, and resume them."""

    show_part: Callable[[int, int], None] = lambda number, n_parts: None  # noqa: ARG005  called before a part is fitted

    def repeat(self, step: Callable[[T], T], value: T, has_ended: Callable[[T], bool]) -> T:
        """Apply a step to a value until the loop has ended."""
        while not has_ended(value):
            value = step(value)
        return value

    def once(self, compute: Callable[[], T]) -> T:
        """Compute a result, which replaces all that is stored of the loops inside."""
        result: tuple[Any, ...] = self.repeat(lambda _: (compute(),), (), bool)
        return result[0]  # type: ignore[no-any-return]


NO_JOURNAL = Journal()


def climb(
    state: State,
    advance: Advance,
    max_iter: int,
    observers: Sequence[Observer] = (),
    journal: Journal = NO_JOURNAL,
) -> State:
    """Advance a state until there is a reason to stop."""

    def step(state: State) -> State:
        state = advance(state)
        stopped = [observer(state) for observer in observers]
        if any(stopped):
            state = replace(state, reason=Reason.STOPPED)
        elif state.reason is Reason.RUNNING and state.iteration >= max_iter:
            state = replace(state, reason=Reason.MAX_ITER)
        return state if state.reason is Reason.RUNNING else replace(state, step=QuasiNewton())  # frees memory

    return journal.repeat(step, state, lambda state: state.reason is not Reason.RUNNING)


@dataclass(frozen=True)
class PowerAscent:
    """The generalized power method of the paper (Algorithm 2)."""

    samples: Samples
    tol: float

    def __call__(self, state: State) -> State:
        """Move to the polar factor of the gradient."""
        gradient = compute_gradient(self.samples, state.A, state.objective)
        A = polar(gradient.G)
        length = measure_length(A - state.A)
        reason = Reason.SMALL_STEP if length <= self.tol else Reason.RUNNING
        value = gradient.value / count_samples(self.samples)
        return replace(state, A=A, iteration=state.iteration + 1, value=value, length=length, reason=reason)


@dataclass(frozen=True)
class NewtonAscent:
    """Quasi-Newton steps on rotations or invertible matrices; the objective is refitted to codes before each step."""

    samples: Subset
    done: float  # stop if the predicted rise is below this fraction of that by chance
    least_blur: float = 0.0  # blur of codes that no rotation removes

    def __call__(self, state: State) -> State:
        """Change all pairs of atoms, or shorten the last step if it lowered the value."""
        is_free = not state.step.is_orthogonal
        A = self.samples.standardize(state.A) if is_free else state.A
        codes = self.samples.encode(A)
        objective = state.objective.refit(codes, state.blur, choose=state.iteration == 0)
        at = evaluate_shears(codes, objective, A) if is_free else evaluate(codes, objective)
        state = replace(state, objective=objective, iteration=state.iteration + 1, value=at.value)
        least = self.done * at.rise_by_chance
        has_fallen = at.rise > least and state.step.gained(at.value) < -least  # at a maximum, refits lower the value
        if has_fallen and not objective.has_changed:
            step, A = state.step.shorten()
            return replace(state, A=A, step=step, reason=Reason.NO_RISE if step.is_exhausted else Reason.RUNNING)
        is_stuck = not objective.has_changed and state.step.n_shortened > 0 and state.step.gained(at.value) < least
        step, A = state.step.take(A, at, forget=objective.has_changed)
        assert step.last is not None
        blur, is_settled = state.blur, False
        if not is_free or is_stuck or at.rise < NEAR * at.rise_by_chance:
            blur = compute_blur(step.last.angles, at.error_variance, codes.std**2, PER_ANGLE, PER_ERROR)
            blur = np.maximum(blur, self.least_blur)
            is_settled = objective.is_settled(state.blur, blur)
        length, reason = measure_length(step.last.angles), Reason.RUNNING
        if at.rise < least and is_settled:
            reason = Reason.SMALL_RISE
        elif is_stuck and is_settled:
            reason = Reason.NO_RISE
        elif length < RESOLUTION * codes.rounding:
            reason = Reason.ROUNDING
        return replace(state, A=A, step=step, blur=blur, length=length, reason=reason)


def measure_length(step: Array) -> float:
    """Compute the root mean square, over atoms, of the length of a step (m, n)."""
    return float(np.sqrt(np.sum(step * step) / len(step)))
