"""The only loop: a pass over the samples, a step of A, a test whether that was the last.

A phase is an objective, a direction, a precision and rules for stopping. `run_phase` takes steps until one of the rules
holds; `run_phases` goes through several phases from one start; `run_starts` does so from several starts.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from elldict._old.backend.base import NUMPY, Array, Backend, total
from elldict._old.data.dataset import Dataset
from elldict._old.data.whitening import IDENTITY, Whitening
from elldict._old.result import Callback, Estimate, Iterate, Iteration
from elldict._old.solver.directions import Direction, orthonormalize, polar, power_step
from elldict._old.solver.evaluate import Statistics, evaluate, score_sparsity, sign_secondary
from elldict._old.solver.objective import Lp, Objective, Quantities, WithSecondary, primary_of
from elldict._old.theory.error_bars import atom_errors

DEFAULT_TOL = 1e-6
"""Tolerance down to which phases end at their share of the standard error. Below, the share shrinks with its square: a
fit asks for more digits the smaller `tol` is, without a jump; four powers of ten further down `tol` alone decides."""

PILOT_TOL = 1e-3
"""Tolerance of phases that are only where another exponent begins."""

NOISE_FRACTION = 0.02
"""Share of the standard error below which steps on all samples are the last, for l_p and the likelihood alone."""

EXACT_ERROR, LOST_ERROR = 1e-4, 0.5
"""Standard errors of the atoms, in radians. Below the first, recovery is on its way to exact and worth the last steps;
beyond the second, the formula means nothing, or samples do not tell one maximum from another."""

MIN_STEP_WHEN_LOST = 0.01
"""Steps, in radians, that are of no use where samples do not tell one maximum from another."""

GIVE_UP_AFTER = 8
"""Iterations after which a phase may be given up."""

MIN_SPARSITY_GAIN = 1.06
"""Growth of the sparsity z-score over two iterations below which a minibatch phase ends: from there on it goes to and
fro as chance has it."""

SHORTER_STEPS = (0.25, 0.06)
"""Shares of a step that lowers the objective which are tried instead, where the power step may lower it as well."""

OBJECTIVE_ROUNDING = {"tfloat32": 1e-4, "float32": 1e-5, "float64": 1e-11}
"""Relative fall of the objective that rounding alone can explain."""

MAX_DIGITS = {"float32": 30, "float64": 280}
"""Powers of ten left for the largest term, g^2 = |z|^(2p-2): the range of the type, less what a sum needs."""


@dataclass(frozen=True)
class Phase:
    """What the loop does until A stops moving."""

    objective: Objective
    direction: Direction
    precision: str  # of the products; sums over tiles are float64
    tol: float  # on the root mean square, over atoms, of the length of the step
    max_iter: int
    quantities: Quantities = Quantities.GRADIENT
    objective_slack: float = 0.0  # fall that an update of the objective alone can cause; 0: they do not compare
    noise_fraction: float = 0.0  # steps below this share of the standard error are of no use
    give_up: Callable[[Statistics], bool] | None = None  # called after iteration `GIVE_UP_AFTER`; True ends the phase
    skip_final_evaluation: bool = False  # where it ends, the next phase begins: its statistics are not needed
    minibatches: bool = False  # other samples in every pass: objectives do not compare, and steps never become small
    make_stepper: Callable[[Problem, Phase], Stepper] | None = (
        None  # steps of another kind, which remember those before
    )


class CheckpointHook(Protocol):
    """Whoever keeps the position of a phase, so that it can be resumed there."""

    def recall(self, problem: Problem, number: int, phase: Phase, A: Array) -> PhasePosition | None:
        """Where the phase that begins at A was when it was interrupted."""
        ...

    def save(self, problem: Problem, number: int, phase: Phase, A: Array, iteration: int, here: Array) -> None:
        """Take note that the phase that began at A will take its next step, of this number, from `here`."""
        ...


@dataclass(frozen=True)
class PhasePosition:
    """Where a start is in a phase: the step to come, and what lies behind it."""

    iteration: int
    A: Array
    passes: float
    iterations: tuple[Iteration, ...]


@dataclass
class FitLog:
    """Passes and seconds over a whole fit, and whom to tell of them."""

    callback: Callback | None = None
    checkpoint: CheckpointHook | None = None
    capture: Callable[[Problem, Phase, Array], Stepper | None] | None = None  # a stepper by a CUDA graph, if it can be
    passes: float = 0.0
    began: float = field(default_factory=time.perf_counter)


@dataclass
class Problem:
    """The samples of a phase, and one start on its way through the phases."""

    samples: Dataset
    whitening: Whitening
    log: FitLog
    share: float = 1.0  # of all samples, that `samples` are
    start: int = 0
    first_phase: int = 0
    iterations: list[Iteration] = field(default_factory=list)
    white: Dataset | None = None  # the same samples as `whitening` makes them, to be evaluated instead

    def evaluate(self, A: Array, objective: Objective, quantities: Quantities, precision: str) -> Statistics:
        """One counted pass over the samples, and all that follows from it."""
        return self.sign_secondary(self.pass_over(A, objective, quantities, precision), objective, A)

    def pass_over(self, A: Array, objective: Objective, quantities: Quantities, precision: str) -> Statistics:
        """One counted pass over the samples, for a step: signs of a secondary objective are left open."""
        samples, whitening = (self.samples, self.whitening) if self.white is None else (self.white, IDENTITY)
        stats = evaluate(samples, whitening, objective, A, quantities, precision)
        self.log.passes += self.share
        if not math.isfinite(stats.mean_value):
            raise self.make_overflow_error(stats.mean_value)
        return stats

    def sign_secondary(self, stats: Statistics, objective: Objective, A: Array) -> Statistics:
        """Statistics at A with signs for a secondary objective, if there is one."""
        return sign_secondary(stats, self.whitening if self.white is None else IDENTITY, objective, A)

    def make_overflow_error(self, value: float) -> FloatingPointError:
        """Error for a mean value of the objective that is not finite."""
        return FloatingPointError(
            f"The objective became {value} in iteration {len(self.iterations) + 1} although all samples are finite. "
            "Please report this with the objective and the scale of your data."
        )

    def record(self, number: int, iterate: Iterate, step: float) -> bool:
        """Write one iteration down; True says that the callback wants to stop."""
        log = self.log
        iteration = Iteration(
            start=self.start,
            stage=self.first_phase + number,
            iteration=len(self.iterations) + 1,
            objective=iterate.stats.mean_value,
            step=step,
            passes=log.passes,
            seconds=time.perf_counter() - log.began,
        )
        self.iterations.append(iteration)
        if log.callback is None:
            return False
        return bool(log.callback(replace(iteration, components=self.whitening.components(iterate.A + 0))))


def run_starts(
    samples: Dataset,
    whitening: Whitening,
    phases: Sequence[Phase],
    starts: Iterable[NDArray[np.float64]],
    log: FitLog,
    share: float = 1.0,
    score: Callable[[Estimate], float] | None = None,
) -> tuple[Estimate, Problem, list[Iteration]]:
    """Go through the phases from every start (m, k).

    Returns the best estimate, the problem to go on with from there, and all iterations of all starts. Starts were
    orthonormal before they were moved to whitened coordinates. Estimates are compared by objective, or by `score`.
    """
    ends: list[tuple[Estimate, Problem]] = []
    history: list[Iteration] = []
    whitening = whitening if samples.backend == NUMPY else whitening.move_to(samples.backend)
    for number, start in enumerate(starts):
        problem = Problem(samples, whitening, log, share, start=number)
        if whitening.to_white is None:
            first = start
        else:  # projected rows are no longer orthonormal
            first = orthonormalize(start) if samples.backend.prefers_products else polar(start)
        end = run_phases(samples.backend.asarray(first, "float64"), problem, phases)
        ends.append((end, problem))
        history.extend(problem.iterations)
        if end.stopped:
            break
    best, problem = ends[0]
    if len(ends) > 1:
        best, problem = max(ends, key=lambda pair: score(pair[0]) if score else pair[0].stats.mean_value)
    return best, replace(problem, first_phase=len(phases)), history


def run_phases(A: Array, problem: Problem, phases: Sequence[Phase], secondary: Lp | None = None) -> Estimate:
    """Go through the phases from A, and evaluate where it ends, with l_p as a `secondary` objective if asked."""
    end: Estimate | None = None
    for number, phase in enumerate(phases):
        if end is not None:
            phase = replace(phase, objective=phase.objective.resumed(end.objective))  # noqa: PLW2901
        end = run_phase(problem, number, phase, A)
        A = end.A
        if end.stopped:
            break
    assert end is not None, "no phase was given"
    if not phase.skip_final_evaluation:
        objective = end.objective if secondary is None else WithSecondary(end.objective, secondary)
        end = replace(end, stats=problem.evaluate(A, objective, Quantities.MOMENTS, phase.precision))
    return replace(end, n_iter=len(problem.iterations))


def run_phase(problem: Problem, number: int, phase: Phase, A: Array) -> Estimate:
    """Step until A stands still, the callback says stop, or max_iter is reached."""
    log = problem.log
    if phase.direction.monotone and not phase.objective.convex:
        raise ValueError(
            f"The power step may lower {phase.objective}, which is not convex. Add a multiple of z^2/2, whose sum no "
            "rotation changes, until it is, and say so by convex = True; or take PairwiseNewton."
        )
    needs = phase.direction.needs | (Quantities.MOMENTS if phase.noise_fraction else phase.direction.needs)
    if needs not in phase.quantities:
        phase = replace(phase, quantities=phase.quantities | needs)
    make_stepper = phase.make_stepper or (MinibatchStepper if phase.minibatches else Stepper)
    captured = log.capture(problem, phase, A) if log.capture is not None and phase.make_stepper is None else None
    stepper = captured or make_stepper(problem, phase)
    position = None if log.checkpoint is None else log.checkpoint.recall(problem, number, phase, A)
    first = 1
    if position is None:
        here = stepper.evaluate(A, phase.objective)
    else:
        first, problem.iterations[:] = position.iteration, position.iterations
        here = stepper.evaluate(position.A, phase.objective)
        log.passes = position.passes
    before = here
    for iteration in range(first, phase.max_iter + 1):
        moved, step = stepper.propose(here)
        stopped = problem.record(number, here, step)
        reason = stepper.find_reason_to_end(before, here, step)
        if reason:
            return stepper.finish(moved, here, f"converged: {reason}", converged=True, stopped=stopped)
        if stopped:
            status = f"stopped by the callback after iteration {iteration}, step {step:.2g}"
            return stepper.finish(moved, here, status, stopped=True)
        if iteration == GIVE_UP_AFTER and phase.give_up is not None and phase.give_up(here.stats):
            return stepper.finish(here.A, here, f"given up after {iteration} iterations")
        if iteration < phase.max_iter:
            before, here = here, stepper.take_step(here, moved)
            if log.checkpoint is not None:
                log.checkpoint.save(problem, number, phase, A, iteration + 1, here.A)
    status = f"max_iter: step {step:.2g} > tol {phase.tol:.2g} after {phase.max_iter} iterations"
    return stepper.finish(moved, here, status)


@dataclass
class Stepper:
    """How a phase gets from one iterate to the next: step by step, the host looking at each."""

    problem: Problem
    phase: Phase
    scores: list[float] = field(default_factory=list)  # sparsity at each iterate, of minibatches

    def evaluate(self, A: Array, objective: Objective, came_from: Array | None = None) -> Iterate:
        """The iterate at A; the objective is updated if A is a step away from where it `came_from`."""
        if came_from is not None and not objective.fixed:
            xp = Backend.of(A).xp
            largest_move = math.sqrt(float(xp.max(xp.sum((A - came_from) ** 2, axis=1))))
            objective = objective.updated(A, largest_move)
        phase = self.phase
        return Iterate(A, objective, self.problem.pass_over(A, objective, phase.quantities, phase.precision))

    def propose(self, here: Iterate) -> tuple[Array, float]:
        """Where the step leads, and how far that is."""
        moved = self.phase.direction(here.stats, here.A)
        return moved, measure_step(here.A, moved)

    def take_step(self, here: Iterate, moved: Array) -> Iterate:
        """Evaluate the step, and take it unless it lowers the objective; then the power step, which cannot."""
        there = self.evaluate(moved, here.objective, here.A)
        if self.phase.direction.monotone or not self._is_lower(there, here):
            return there
        if here.objective.convex and here.stats.n_negative == 0:
            return self.evaluate(power_step(here.stats, here.A), here.objective, here.A)
        for share in SHORTER_STEPS:  # where the power step may lower it too
            there = self.evaluate(polar((1 - share) * here.A + share * moved), here.objective, here.A)
            if not self._is_lower(there, here):
                break
        return there

    def _is_lower(self, there: Iterate, here: Iterate) -> bool:
        """Whether the objective has fallen by more than rounding explains, or an update of it."""
        before = here.stats.mean_value
        allowed = OBJECTIVE_ROUNDING[self.phase.precision] * abs(before) + self.phase.objective_slack
        return before - there.stats.mean_value > allowed and self._do_compare(here, there)

    def _do_compare(self, here: Iterate, there: Iterate) -> bool:
        """Whether the values of two iterates are those of the same objective."""
        if not self.phase.objective_slack and primary_of(there.objective) is not primary_of(here.objective):
            return False
        if here.stats.n_negative + there.stats.n_negative == 0:
            return True
        # linear parts of l_p with signs stay the same if samples are white
        return self.problem.whitening.second_moments is None and not have_other_signs(here.stats, there.stats)

    def find_reason_to_end(self, before: Iterate, here: Iterate, step: float) -> str | None:
        """Why the step at hand, from `here`, is the last; None if it is not.

        While the objective is being refitted, the error bar falls from pass to pass and says nothing.
        """
        phase = self.phase
        if step <= phase.tol:
            return f"step {step:.2g} <= tol {phase.tol:.2g}"
        if not phase.noise_fraction:
            return None
        eager = min(1.0, phase.tol / DEFAULT_TOL) ** 2
        fraction = phase.noise_fraction * eager
        if step > fraction * LOST_ERROR or primary_of(here.objective) is not primary_of(before.objective):
            return None
        error = here.standard_error
        if error is None:
            error = rms_standard_error(here.stats, phase.direction.unidentifiable)
        if error > LOST_ERROR:
            lost = step <= MIN_STEP_WHEN_LOST * eager
            return (
                f"step {step:.2g}, and a standard error of {error:.2g} tells no maximum from others" if lost else None
            )
        if error >= EXACT_ERROR and step <= fraction * error:
            return f"step {step:.2g} is within {fraction:.2g} of the standard error {error:.2g}"
        return None

    def finish(
        self, moved: Array, here: Iterate, status: str, *, converged: bool = False, stopped: bool = False
    ) -> Estimate:
        """End the phase: after the last step only if it cannot have lowered the objective, or is small."""
        A = moved if converged or self.phase.direction.monotone else here.A
        A = orthonormalize(A) if getattr(self.phase.direction, "coarse", False) else A
        stats = self.problem.sign_secondary(here.stats, here.objective, here.A)
        return Estimate(A, here.objective, stats, converged, stopped, status)


def measure_step(A: Array, moved: Array) -> float:
    """Root mean square, over atoms (m, k), of the length of a step."""
    return math.sqrt(total((moved - A) ** 2) / int(A.shape[0]))


class MinibatchStepper(Stepper):
    """Steps that see other samples in every pass."""

    def take_step(self, here: Iterate, moved: Array) -> Iterate:
        """Take the step: whether the objective has fallen, other samples do not tell."""
        return self.evaluate(moved, here.objective, here.A)

    def find_reason_to_end(self, before: Iterate, here: Iterate, step: float) -> str | None:  # noqa: ARG002
        """End once codes become no sparser: over two iterations, or in the mean over more if atoms are not told yet."""
        scores, few = self.scores, GIVE_UP_AFTER // 2
        scores.append(measure_sparsity(here.stats))
        slow = len(scores) > 2 and scores[-1] < MIN_SPARSITY_GAIN * scores[-3]
        last, before_last = sum(scores[-few:]), sum(scores[-2 * few : -few])
        least_seen = 2 * math.sqrt(2 * few) / (MIN_SPARSITY_GAIN - 1)  # whose growth exceeds chance, one a score, twice
        steady = len(scores) >= 2 * few and least_seen < last < MIN_SPARSITY_GAIN * before_last
        if (slow or steady) and 0 < rms_standard_error(here.stats) < (math.inf if steady else LOST_ERROR):
            return f"step {step:.2g}, codes become no sparser"
        return None


def have_other_signs(before: Statistics, after: Statistics) -> bool:
    """Whether an atom has changed its sign."""
    if before.n_negative == after.n_negative == 0:
        return False
    return total(before.signs * after.signs) < int(before.signs.shape[0])


def rms_standard_error(stats: Statistics, unidentifiable: NDArray[np.bool_] | None = None) -> float:
    """Root mean square, over atoms, of the angle that the error bar gives them; zero if it gives none."""
    return to_standard_error(float(mean_error(stats, unidentifiable)))


def to_standard_error(error: float) -> float:
    """Angle, in radians, of a mean error bar; zero where that is not finite."""
    return math.sqrt(error / 2) if math.isfinite(error) else 0.0


def mean_error(stats: Statistics, unidentifiable: NDArray[np.bool_] | None = None) -> Array:
    """Mean error bar of the atoms, as an array of one number; without angles between `unidentifiable` ones (m,)."""
    backend = Backend.of(stats.z2)
    if backend.kernels is not None and unidentifiable is None:
        found: Array = backend.kernels.mean_error(stats.gz, stats.g2, stats.slope, stats.z2, stats.weight)
        return found
    return backend.xp.mean(atom_errors(stats.moments, stats.weight, unidentifiable=unidentifiable))


def measure_sparsity(stats: Statistics) -> float:
    """The same, taken together.

    The scores of m atoms are independent and standard normal if codes are Gaussian, and their samples have never been
    seen before.
    """
    scores = score_sparsity(stats)
    return float(np.sum(scores)) / math.sqrt(len(scores))


def choose_precision(p: float, *, dtype: str, code_bound: float) -> str:
    """Precision in which |z|^p does not overflow, for codes up to `code_bound` root mean squares; nor z^2, if p < 2."""
    digits = (2 * max(p, 2.0) - 2) * math.log10(code_bound)
    if dtype == "float32" and digits <= MAX_DIGITS["float32"]:
        return "float32"
    if digits <= MAX_DIGITS["float64"]:
        return "float64"
    largest_p = 1 + MAX_DIGITS["float64"] / math.log10(code_bound) / 2
    if largest_p < 2:
        raise ValueError(
            f"The largest sample is {code_bound:.3g} times the root mean square, and its square overflows. Remove "
            "outliers."
        )
    raise ValueError(
        f"p={p:g} is too large for these samples: the largest is {code_bound:.3g} times the root mean square, and "
        f"{code_bound:.3g}**(2 p - 2) overflows. Use p <= {largest_p:.0f}, or remove outliers."
    )
