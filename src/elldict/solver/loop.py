"""The only loop: a pass, a step, a look at how far A moved."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from elldict.backend.base import Array, Backend, to_numpy, total
from elldict.data.dataset import Dataset
from elldict.data.statistics import Whitening
from elldict.result import Callback, Iteration, Solution
from elldict.solver.directions import Step, polar, power_step
from elldict.solver.objective import (
    Objective,
    Quantities,
    Statistics,
    WithSecondary,
    code_moments,
    evaluate,
    primary_of,
)
from elldict.theory import chance
from elldict.theory.accuracy import atom_errors

Refit = Callable[[Objective, Array, float], Objective]
"""From the contrast in use, A, and the longest move of an atom on the way there, to the contrast that fits at A."""


class Follow(Protocol):
    """Writes the law of codes that fits at A, or the old one if it hardly differs, and its coefficients."""

    def __call__(self, A: Array, old: Array, squares: Array, law: Array, coefficients: tuple[Array, Array]) -> Array:
        """Return 1 if it is the old law, otherwise 0, as an array of one number."""
        ...


@dataclass(frozen=True)
class Phase:
    """What the loop does until A stops moving."""

    objective: Objective
    step: Step
    precision: str  # of the products; sums are float64
    tol: float  # on the root mean square, over atoms, of the length of the step
    max_iter: int
    quantities: Quantities = Quantities.GRADIENT
    refit: Refit | None = None
    objective_slack: float = 0.0  # fall of the objective that a refit alone can cause
    noise_fraction: float = 0.0  # share of the angle that the error bar speaks of, below which steps are of no use
    give_up: Callable[[Statistics], bool] | None = None  # asked once, whether to go on is of no use
    follow: Follow | None = None  # the same as refit, for whoever cannot leave the device
    skip_final_evaluation: bool = False  # where it ends, the next one begins: nobody has to look there
    minibatches: bool = False  # other samples in every look: objectives do not compare, and steps never come to rest


@dataclass(frozen=True)
class Iterate:
    """Where a run is: A, the contrast in use, and its sums there."""

    A: Array
    objective: Objective
    stats: Statistics
    doubt: float | None = None  # angle that the error bar leaves in doubt, if it is known


@dataclass(frozen=True)
class PhaseResult:
    """Where a stage ended, and why."""

    A: Array
    objective: Objective
    stats: Statistics  # of the last look, a step before A
    converged: bool
    stopped: bool
    status: str


SAFE_DIGITS = {"float32": 30, "float64": 280}
"""Powers of ten left for the largest term, g^2 = |z|^(2p-2): the range of the type, less what a sum needs."""


def precision_for(p: float, *, dtype: str, bound_codes: float) -> str:
    """Precision in which the contrast of codes of this size does not overflow.

    Parameters
    ----------
    p : float
        Exponent of the contrast.
    dtype : str
        Precision of the samples.
    code_bound : float
        Largest code possible, in units of the root mean square.
    """
    digits = (2 * p - 2) * math.log10(bound_codes)
    if dtype == "float32" and digits <= SAFE_DIGITS["float32"]:
        return "float32"
    if digits <= SAFE_DIGITS["float64"]:
        return "float64"
    largest_p = 1 + SAFE_DIGITS["float64"] / math.log10(bound_codes) / 2
    raise ValueError(
        f"p={p:g} is too large for these samples: the largest is {bound_codes:.3g} times the root mean square, and "
        f"{bound_codes:.3g}**(2 p - 2) overflows. Use p <= {largest_p:.0f}, or remove outliers."
    )


DEFAULT_TOL = 1e-6

EXACT_ANGLE = 1e-4
"""An error bar this small is on its way to zero: recovery is exact, and worth the last steps."""

LARGEST_ANGLE = 0.5
MIN_STEP_WHEN_LOST = 0.01
"""An error bar larger than this is that of a place far from any maximum, where it means nothing, or of samples that do
not tell one maximum from another, where steps of this length are of no use."""


def smallest_useful_step(phase: Phase, before: Iterate, here: Iterate, step: float) -> float:
    """Length of a step from `here` that is the last, `step` being the one at hand.

    While the contrast still follows A, the error bar falls from look to look and says nothing; and whoever asks for
    more than the usual digits gets them.
    """
    settled = primary_of(here.objective) is primary_of(before.objective)
    if (
        not settled
        or not phase.noise_fraction
        or phase.tol < DEFAULT_TOL
        or step > phase.noise_fraction * LARGEST_ANGLE
    ):
        return phase.tol
    angle = rms_standard_error(here.stats) if here.doubt is None else here.doubt
    if angle > LARGEST_ANGLE:
        return max(phase.tol, MIN_STEP_WHEN_LOST)
    return phase.tol if angle < EXACT_ANGLE else max(phase.tol, phase.noise_fraction * angle)


def rms_standard_error(stats: Statistics) -> float:
    """Root mean square, over atoms, of the distance that the error bar gives them; zero if it gives none."""
    return standard_error_of(float(mean_error(stats)))


def mean_error(stats: Statistics) -> Array:
    """Mean error bar of the atoms, as an array of one number."""
    kernels = Backend.of(stats.z2).kernels
    if kernels is not None:
        found: Array = kernels.mean_error(stats.gz, stats.g2, stats.slope, stats.z2, stats.weight)
        return found
    return Backend.of(stats.z2).xp.mean(atom_errors(code_moments(stats), stats.weight))


def standard_error_of(error: float) -> float:
    """Root mean square, over atoms, of the distance that the error bar gives them; zero if it gives none."""
    return math.sqrt(error / 2) if math.isfinite(error) else 0.0


def sparsity(stats: Statistics) -> float:
    """Standard errors by which codes are sparser than Gaussian ones, taken together; sums of l_p.

    The scores of m atoms are independent and standard normal if codes are Gaussian, and their samples have never been
    seen before.
    """
    magnitude, z2 = (to_numpy(total) / stats.weight for total in (stats.extra["magnitude"], stats.z2))
    score = chance.sparsity_score(magnitude, z2, stats.weight)
    return float(np.sum(score)) / math.sqrt(len(score))


ROUNDING = {"tfloat32": 1e-4, "float32": 1e-5, "float64": 1e-11}
"""Relative fall of the objective that rounding alone can explain."""

GIVE_UP_AFTER_ITERATIONS = 8
"""Iterations after which a stage may be found to be hopeless."""

MIN_SPARSITY_GAIN = 1.06
"""Of the sparsity of codes in two steps, while a walk that sees other samples at every step gets anywhere."""


class CheckpointHook(Protocol):
    """Whoever keeps the place of a stage, so that it can be taken up again there."""

    def recalled(self, problem: Problem, number: int, phase: Phase, A: Array) -> PhasePosition | None:
        """Where the stage that begins at A was when it was interrupted."""
        ...

    def reached(self, problem: Problem, number: int, phase: Phase, A: Array, iteration: int, here: Array) -> None:
        """Take note that the stage that began at A will take its next step, of this number, from `here`."""
        ...


@dataclass(frozen=True)
class PhasePosition:
    """Where a run is in a stage: the step to come, and what lies behind it."""

    iteration: int
    A: Array
    passes: float
    iterations: tuple[Iteration, ...]


@dataclass
class FitLog:
    """Passes and seconds over a whole fit, and who wants to know."""

    callback: Callback | None = None
    hook: CheckpointHook | None = None
    capture: Callable[[Problem, Phase, Array], Stepper | None] = lambda *_: (
        None
    )  # a walk on a card, if it can be captured
    passes: float = 0.0
    began: float = field(default_factory=time.perf_counter)

    @property
    def seconds(self) -> float:
        """Time since the fit began."""
        return time.perf_counter() - self.began


@dataclass
class Problem:
    """One start on its way through the stages."""

    samples: Dataset
    whitening: Whitening
    log: FitLog
    share: float = 1.0  # of all samples, that a look at `samples` is
    start: int = 0
    first_phase: int = 0
    iterations: list[Iteration] = field(default_factory=list)

    def evaluate(self, A: Array, objective: Objective, quantities: Quantities, precision: str) -> Statistics:
        """One counted pass over all samples."""
        stats = evaluate(self.samples, self.whitening, objective, A, quantities, precision)
        self.count_pass(stats.mean_value)
        return stats

    def count_pass(self, value: float) -> None:
        """Count one pass, and refuse a mean value of the objective that is not finite."""
        self.log.passes += self.share
        if not math.isfinite(value):
            raise FloatingPointError(
                f"The objective became {value} in iteration {len(self.iterations) + 1} although all samples "
                "are finite. Please report this with your p and the scale of your data."
            )

    def record(self, stage_number: int, stats: Statistics, step: float, A: Array) -> bool:
        """Write one iteration down; True says that the callback wants to stop."""
        iteration = Iteration(
            start=self.start,
            stage=self.first_phase + stage_number,
            iteration=len(self.iterations) + 1,
            objective=stats.mean_value,
            step=step,
            passes=self.log.passes,
            seconds=self.log.seconds,
        )
        self.iterations.append(iteration)
        callback = self.log.callback
        return callback is not None and bool(callback(replace(iteration, components=self.whitening.components(A + 0))))


def solve(
    samples: Dataset,
    whitening: Whitening,
    phases: Sequence[Phase],
    starts: Iterable[NDArray[np.float64]],
    log: FitLog,
    share: float = 1.0,
    score: Callable[[Solution], float] | None = None,
) -> tuple[Solution, tuple[Iteration, ...]]:
    """Go through the stages from every start (m, k); return the best end and all iterations of all starts.

    Starts were orthonormal before they were moved into the frame. Ends are compared by objective, or by `score`.
    """
    ends: list[Solution] = []
    for number, start in enumerate(starts):
        problem = Problem(samples, whitening.move_to(samples.backend), log, share, start=number)
        inside = start if whitening.to_white is None else polar(start)  # rows in a span are no longer orthonormal
        ends.append(solve_from(samples.backend.asarray(inside, "float64"), problem, phases))
        if ends[-1].stopped:
            break
    best = ends[0] if len(ends) == 1 else max(ends, key=score or (lambda end: end.value))
    return best, tuple(iteration for end in ends for iteration in end.iterations)


def solve_from(A: Array, problem: Problem, phases: Sequence[Phase], secondary: Objective | None = None) -> Solution:
    """Go through the stages from A, and measure where it ends, with a second contrast `secondary` the one maximised.

    Of an end that is provisional, the sums are those of the last look, a step before it.
    """
    end: PhaseResult | None = None
    for number, phase in enumerate(phases):
        if end is not None and phase.refit is not None and isinstance(end.objective, type(phase.objective)):
            phase = replace(phase, objective=end.objective)  # noqa: PLW2901  # what was fitted goes on
        end = run_phase(problem, number, phase, A)
        A = end.A
        if end.stopped:
            break
    assert end is not None, "no stage was given"
    stats = end.stats
    if not phase.skip_final_evaluation:
        judged = end.objective if secondary is None else WithSecondary(end.objective, secondary)
        stats = problem.evaluate(A, judged, Quantities.MOMENTS, phase.precision)
    return Solution(A, end.objective, stats, tuple(problem.iterations), end.converged, end.stopped, end.status)


def run_phase(problem: Problem, number: int, phase: Phase, A: Array) -> PhaseResult:
    """Step until A stands still, the callback says stop, or max_iter is reached."""
    stepper = problem.log.capture(problem, phase, A) or (MinibatchStepper if phase.minibatches else Stepper)(
        problem, phase
    )
    first, here = begin(problem, stepper, number, A)
    before = here
    for iteration in range(first, phase.max_iter + 1):
        moved, step = stepper.step(here)
        stopped = problem.record(number, here.stats, step, here.A)
        enough = stepper.enough(before, here, step)
        if step <= enough:
            status = f"converged: step {step:.2g} <= tol {enough:.2g}"
            return stepper.end(PhaseResult(moved, here.objective, here.stats, True, stopped, status))
        if stopped:
            status = f"stopped by the callback after iteration {iteration}, step {step:.2g}"
            return stepper.end(PhaseResult(safest(phase, here, moved), here.objective, here.stats, False, True, status))
        if iteration == GIVE_UP_AFTER_ITERATIONS and phase.give_up is not None and phase.give_up(here.stats):
            status = f"no use after {iteration} iterations"
            return stepper.end(PhaseResult(here.A, here.objective, here.stats, False, False, status))
        if iteration < phase.max_iter:
            before, here = here, stepper.follow(here, moved)
            if problem.log.hook is not None:
                problem.log.hook.reached(problem, number, phase, A, iteration + 1, here.A)
    status = f"max_iter: step {step:.2g} > tol {phase.tol:.2g} after {phase.max_iter} iterations"
    return stepper.end(PhaseResult(safest(phase, here, moved), here.objective, here.stats, False, False, status))


def begin(problem: Problem, stepper: Stepper, number: int, A: Array) -> tuple[int, Iterate]:
    """First step to take and where from: at A, or where a stage that was interrupted left off."""
    hook = problem.log.hook
    place = None if hook is None else hook.recalled(problem, number, stepper.phase, A)
    if place is None:
        return 1, stepper.begin(A)
    problem.iterations[:] = place.iterations
    here = stepper.begin(place.A)
    problem.log.passes = place.passes
    return place.iteration, here


@dataclass
class Stepper:
    """How a stage gets from one point to the next: step by step, the host looking at each."""

    problem: Problem
    phase: Phase

    def begin(self, A: Array) -> Iterate:
        """The contrast of the stage, and its sums at A."""
        return evaluate_at(self.problem, self.phase, self.phase.objective, A, came_from=A)

    def step(self, here: Iterate) -> tuple[Array, float]:
        """Where the step leads, and how far that is."""
        moved = self.phase.step(here.stats, here.A)
        return moved, distance(moved, here.A)

    def follow(self, here: Iterate, moved: Array) -> Iterate:
        """Take the step, unless it lowers the objective."""
        return take_step(self.problem, self.phase, here, moved)

    def enough(self, before: Iterate, here: Iterate, step: float) -> float:
        """Length of a step from `here` that is the last, `step` being the one at hand."""
        return smallest_useful_step(self.phase, before, here, step)

    def end(self, end: PhaseResult) -> PhaseResult:
        """What is left to do at the end: nothing."""
        return end


class MinibatchStepper(Stepper):
    """A walk that sees other samples at every step."""

    def __init__(self, problem: Problem, phase: Phase) -> None:
        super().__init__(problem, phase)
        self.scores: list[float] = []

    def follow(self, here: Iterate, moved: Array) -> Iterate:
        """Take the step: whether the objective has fallen, other samples do not tell."""
        return evaluate_at(self.problem, self.phase, here.objective, moved, here.A)

    def enough(self, before: Iterate, here: Iterate, step: float) -> float:  # noqa: ARG002
        """Any step, once codes become no sparser: from there on it goes to and fro, as chance has it."""
        self.scores.append(sparsity(here.stats))
        slow = len(self.scores) > 2 and self.scores[-1] < MIN_SPARSITY_GAIN * self.scores[-3]
        return step if slow and 0 < rms_standard_error(here.stats) < LARGEST_ANGLE else 0.0


def safest(phase: Phase, here: Iterate, moved: Array) -> Array:
    """Where to stop when nobody will look at the last step: after it only if it cannot have lowered the objective."""
    return moved if phase.step is power_step else here.A


def evaluate_at(problem: Problem, phase: Phase, objective: Objective, A: Array, came_from: Array) -> Iterate:
    """The contrast, fitted to A if the stage fits it and A has moved, and its sums."""
    if phase.refit is not None and came_from is not A:
        objective = phase.refit(objective, A, longest_move(A, came_from))
    return Iterate(A, objective, problem.evaluate(A, objective, phase.quantities, phase.precision))


def take_step(problem: Problem, phase: Phase, here: Iterate, moved: Array) -> Iterate:
    """Accept a step that does not lower the objective; otherwise take the plain step, which cannot."""
    there = evaluate_at(problem, phase, here.objective, moved, here.A)
    before = here.stats.mean_value
    fall = before - there.stats.mean_value
    if fall <= ROUNDING[phase.precision] * abs(before) + phase.objective_slack or phase.step is power_step:
        return there
    return evaluate_at(problem, phase, here.objective, power_step(here.stats, here.A), here.A)


def distance(A: Array, B: Array) -> float:
    """Root mean square, over rows, of the distance between two matrices."""
    return math.sqrt(total((A - B) ** 2) / int(A.shape[0]))


def longest_move(A: Array, B: Array) -> float:
    """Largest distance between two rows."""
    xp = Backend.of(A).xp
    return math.sqrt(float(xp.max(xp.sum((A - B) ** 2, axis=1))))
