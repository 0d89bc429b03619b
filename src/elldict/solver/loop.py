"""The only loop: a pass, a step, a look at how far A moved."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from elldict.backend.base import Array, Space, to_numpy, total
from elldict.data.dataset import Samples
from elldict.data.statistics import Frame
from elldict.result import Callback, Iteration, Solution
from elldict.solver.directions import Step, polar, power_step
from elldict.solver.objective import Both, Contrast, Needs, Sums, maximised, measure, moments
from elldict.theory import chance
from elldict.theory.accuracy import atom_errors

Refit = Callable[[Contrast, Array, float], Contrast]
"""From the contrast in use, A, and the longest move of an atom on the way there, to the contrast that fits at A."""


class Follow(Protocol):
    """Writes the law of codes that fits at A, or the old one if it hardly differs, and its lines; see `Witnesses`."""

    def __call__(self, A: Array, old: Array, squares: Array, law: Array, lines: tuple[Array, Array]) -> Array:
        """Return 1 if it is the old law, otherwise 0, as an array of one number."""
        ...


@dataclass(frozen=True)
class Stage:
    """What the loop does until A stops moving."""

    contrast: Contrast
    step: Step
    precision: str  # of the products; sums are float64
    tol: float  # on the root mean square, over atoms, of the length of the step
    max_iter: int
    need: Needs = Needs.GRADIENT
    refit: Refit | None = None
    slack: float = 0.0  # fall of the objective that a refit alone can cause
    resolution: float = 0.0  # share of the angle that the error bar speaks of, below which steps are of no use
    hopeless: Callable[[Sums], bool] | None = None  # asked once, whether to go on is of no use
    follow: Follow | None = None  # the same as refit, for whoever cannot leave the device
    provisional: bool = False  # where it ends, the next one begins: nobody has to look there
    restless: bool = False  # other samples in every look: objectives do not compare, and steps never come to rest


@dataclass(frozen=True)
class Point:
    """Where a run is: A, the contrast in use, and its sums there."""

    A: Array
    contrast: Contrast
    sums: Sums
    doubt: float | None = None  # angle that the error bar leaves in doubt, if it is known


@dataclass(frozen=True)
class Halt:
    """Where a stage ended, and why."""

    A: Array
    contrast: Contrast
    sums: Sums  # of the last look, a step before A
    converged: bool
    stopped: bool
    status: str


SAFE_DIGITS = {"float32": 30, "float64": 280}
"""Powers of ten left for the largest term, g^2 = |z|^(2p-2): the range of the type, less what a sum needs."""


def precision_for(p: float, *, dtype: str, code_bound: float) -> str:
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
    digits = (2 * p - 2) * math.log10(code_bound)
    if dtype == "float32" and digits <= SAFE_DIGITS["float32"]:
        return "float32"
    if digits <= SAFE_DIGITS["float64"]:
        return "float64"
    largest_p = 1 + SAFE_DIGITS["float64"] / math.log10(code_bound) / 2
    raise ValueError(
        f"p={p:g} is too large for these samples: the largest is {code_bound:.3g} times the root mean square, and "
        f"{code_bound:.3g}**(2 p - 2) overflows. Use p <= {largest_p:.0f}, or remove outliers."
    )


USUAL_TOL = 1e-6

EXACT_ANGLE = 1e-4
"""An error bar this small is on its way to zero: recovery is exact, and worth the last steps."""

LARGEST_ANGLE = 0.5
LOST_STEP = 0.01
"""An error bar larger than this is that of a place far from any maximum, where it means nothing, or of samples that do
not tell one maximum from another, where steps of this length are of no use."""


def last_step(stage: Stage, before: Point, here: Point, step: float) -> float:
    """Length of a step from `here` that is the last, `step` being the one at hand.

    While the contrast still follows A, the error bar falls from look to look and says nothing; and whoever asks for
    more than the usual digits gets them.
    """
    settled = maximised(here.contrast) is maximised(before.contrast)
    if not settled or not stage.resolution or stage.tol < USUAL_TOL or step > stage.resolution * LARGEST_ANGLE:
        return stage.tol
    angle = angle_in_doubt(here.sums) if here.doubt is None else here.doubt
    if angle > LARGEST_ANGLE:
        return max(stage.tol, LOST_STEP)
    return stage.tol if angle < EXACT_ANGLE else max(stage.tol, stage.resolution * angle)


def angle_in_doubt(sums: Sums) -> float:
    """Root mean square, over atoms, of the distance that the error bar gives them; zero if it gives none."""
    return doubtful_angle(float(mean_error(sums)))


def mean_error(sums: Sums) -> Array:
    """Mean error bar of the atoms, as an array of one number."""
    kernels = Space.of(sums.z2).kernels
    if kernels is not None:
        found: Array = kernels.mean_error(sums.gz, sums.g2, sums.slope, sums.z2, sums.weight)
        return found
    return Space.of(sums.z2).xp.mean(atom_errors(moments(sums), sums.weight))


def doubtful_angle(error: float) -> float:
    """Root mean square, over atoms, of the distance that the error bar gives them; zero if it gives none."""
    return math.sqrt(error / 2) if math.isfinite(error) else 0.0


def sparsity(sums: Sums) -> float:
    """Standard errors by which codes are sparser than Gaussian ones, taken together; sums of l_p.

    The scores of m atoms are independent and standard normal if codes are Gaussian, and their samples have never been
    seen before.
    """
    magnitude, z2 = (to_numpy(total) / sums.weight for total in (sums.extra["magnitude"], sums.z2))
    score = chance.sparsity_score(magnitude, z2, sums.weight)
    return float(np.sum(score)) / math.sqrt(len(score))


ROUNDING = {"tfloat32": 1e-4, "float32": 1e-5, "float64": 1e-11}
"""Relative fall of the objective that rounding alone can explain."""

PATIENCE = 8
"""Iterations after which a stage may be found to be hopeless."""

LEAST_GAIN = 1.06
"""Of the sparsity of codes in two steps, while a walk that sees other samples at every step gets anywhere."""


class Keeper(Protocol):
    """Whoever keeps the place of a stage, so that it can be taken up again there."""

    def recalled(self, run: Run, number: int, stage: Stage, A: Array) -> Position | None:
        """Where the stage that begins at A was when it was interrupted."""
        ...

    def reached(self, run: Run, number: int, stage: Stage, A: Array, iteration: int, here: Array) -> None:
        """Take note that the stage that began at A will take its next step, of this number, from `here`."""
        ...


@dataclass(frozen=True)
class Position:
    """Where a run is in a stage: the step to come, and what lies behind it."""

    iteration: int
    A: Array
    passes: float
    iterations: tuple[Iteration, ...]


@dataclass
class Journal:
    """Passes and seconds over a whole fit, and who wants to know."""

    callback: Callback | None = None
    keeper: Keeper | None = None
    capture: Callable[[Run, Stage, Array], Walk | None] = lambda *_: None  # a walk on a card, if it can be captured
    passes: float = 0.0
    began: float = field(default_factory=time.perf_counter)

    @property
    def seconds(self) -> float:
        """Time since the fit began."""
        return time.perf_counter() - self.began


@dataclass
class Run:
    """One start on its way through the stages."""

    samples: Samples
    frame: Frame
    journal: Journal
    share: float = 1.0  # of all samples, that a look at `samples` is
    start: int = 0
    first_stage: int = 0
    iterations: list[Iteration] = field(default_factory=list)

    def look(self, A: Array, contrast: Contrast, need: Needs, precision: str) -> Sums:
        """One counted pass over all samples."""
        sums = measure(self.samples, self.frame, contrast, A, need, precision)
        self.seen(sums.objective)
        return sums

    def seen(self, objective: float) -> None:
        """Count one pass, at whose end the objective was this."""
        self.journal.passes += self.share
        if not math.isfinite(objective):
            raise FloatingPointError(
                f"The objective became {objective} in iteration {len(self.iterations) + 1} although all samples "
                "are finite. Please report this with your p and the scale of your data."
            )

    def record(self, stage_number: int, sums: Sums, step: float, A: Array) -> bool:
        """Write one iteration down; True says that the callback wants to stop."""
        iteration = Iteration(
            start=self.start,
            stage=self.first_stage + stage_number,
            iteration=len(self.iterations) + 1,
            objective=sums.objective,
            step=step,
            passes=self.journal.passes,
            seconds=self.journal.seconds,
        )
        self.iterations.append(iteration)
        callback = self.journal.callback
        return callback is not None and bool(callback(replace(iteration, components=self.frame.components(A + 0))))


def solve(
    samples: Samples,
    frame: Frame,
    stages: Sequence[Stage],
    starts: Iterable[NDArray[np.float64]],
    journal: Journal,
    share: float = 1.0,
    score: Callable[[Solution], float] | None = None,
) -> tuple[Solution, tuple[Iteration, ...]]:
    """Go through the stages from every start (m, k); return the best end and all iterations of all starts.

    Starts were orthonormal before they were moved into the frame. Ends are compared by objective, or by `score`.
    """
    ends: list[Solution] = []
    for number, start in enumerate(starts):
        run = Run(samples, frame.moved_to(samples.space), journal, share, start=number)
        inside = start if frame.inner is None else polar(start)  # rows in a span are no longer orthonormal
        ends.append(solve_from(samples.space.asarray(inside, "float64"), run, stages))
        if ends[-1].stopped:
            break
    best = ends[0] if len(ends) == 1 else max(ends, key=score or (lambda end: end.objective))
    return best, tuple(iteration for end in ends for iteration in end.iterations)


def solve_from(A: Array, run: Run, stages: Sequence[Stage], beside: Contrast | None = None) -> Solution:
    """Go through the stages from A, and measure where it ends, with a second contrast `beside` the one maximised.

    Of an end that is provisional, the sums are those of the last look, a step before it.
    """
    halt: Halt | None = None
    for number, stage in enumerate(stages):
        if halt is not None and stage.refit is not None and isinstance(halt.contrast, type(stage.contrast)):
            stage = replace(stage, contrast=halt.contrast)  # noqa: PLW2901  # what was fitted goes on
        halt = run_stage(run, number, stage, A)
        A = halt.A
        if halt.stopped:
            break
    assert halt is not None, "no stage was given"
    sums = halt.sums
    if not stage.provisional:
        judged = halt.contrast if beside is None else Both(halt.contrast, beside)
        sums = run.look(A, judged, Needs.MOMENTS, stage.precision)
    return Solution(A, halt.contrast, sums, tuple(run.iterations), halt.converged, halt.stopped, halt.status)


def run_stage(run: Run, number: int, stage: Stage, A: Array) -> Halt:
    """Step until A stands still, the callback says stop, or max_iter is reached."""
    walk = run.journal.capture(run, stage, A) or (RestlessWalk if stage.restless else Walk)(run, stage)
    first, here = begun(run, walk, number, A)
    before = here
    for iteration in range(first, stage.max_iter + 1):
        moved, step = walk.step(here)
        stopped = run.record(number, here.sums, step, here.A)
        enough = walk.enough(before, here, step)
        if step <= enough:
            status = f"converged: step {step:.2g} <= tol {enough:.2g}"
            return walk.end(Halt(moved, here.contrast, here.sums, True, stopped, status))
        if stopped:
            status = f"stopped by the callback after iteration {iteration}, step {step:.2g}"
            return walk.end(Halt(safest(stage, here, moved), here.contrast, here.sums, False, True, status))
        if iteration == PATIENCE and stage.hopeless is not None and stage.hopeless(here.sums):
            status = f"no use after {iteration} iterations"
            return walk.end(Halt(here.A, here.contrast, here.sums, False, False, status))
        if iteration < stage.max_iter:
            before, here = here, walk.follow(here, moved)
            if run.journal.keeper is not None:
                run.journal.keeper.reached(run, number, stage, A, iteration + 1, here.A)
    status = f"max_iter: step {step:.2g} > tol {stage.tol:.2g} after {stage.max_iter} iterations"
    return walk.end(Halt(safest(stage, here, moved), here.contrast, here.sums, False, False, status))


def begun(run: Run, walk: Walk, number: int, A: Array) -> tuple[int, Point]:
    """First step to take and where from: at A, or where a stage that was interrupted left off."""
    keeper = run.journal.keeper
    place = None if keeper is None else keeper.recalled(run, number, walk.stage, A)
    if place is None:
        return 1, walk.begin(A)
    run.iterations[:] = place.iterations
    here = walk.begin(place.A)
    run.journal.passes = place.passes
    return place.iteration, here


@dataclass
class Walk:
    """How a stage gets from one point to the next: step by step, the host looking at each."""

    run: Run
    stage: Stage

    def begin(self, A: Array) -> Point:
        """The contrast of the stage, and its sums at A."""
        return looked(self.run, self.stage, self.stage.contrast, A, came_from=A)

    def step(self, here: Point) -> tuple[Array, float]:
        """Where the step leads, and how far that is."""
        moved = self.stage.step(here.sums, here.A)
        return moved, distance(moved, here.A)

    def follow(self, here: Point, moved: Array) -> Point:
        """Take the step, unless it lowers the objective."""
        return guarded(self.run, self.stage, here, moved)

    def enough(self, before: Point, here: Point, step: float) -> float:
        """Length of a step from `here` that is the last, `step` being the one at hand."""
        return last_step(self.stage, before, here, step)

    def end(self, halt: Halt) -> Halt:
        """What is left to do at the end: nothing."""
        return halt


class RestlessWalk(Walk):
    """A walk that sees other samples at every step."""

    def __init__(self, run: Run, stage: Stage) -> None:
        super().__init__(run, stage)
        self.scores: list[float] = []

    def follow(self, here: Point, moved: Array) -> Point:
        """Take the step: whether the objective has fallen, other samples do not tell."""
        return looked(self.run, self.stage, here.contrast, moved, here.A)

    def enough(self, before: Point, here: Point, step: float) -> float:  # noqa: ARG002
        """Any step, once codes become no sparser: from there on it goes to and fro, as chance has it."""
        self.scores.append(sparsity(here.sums))
        slow = len(self.scores) > 2 and self.scores[-1] < LEAST_GAIN * self.scores[-3]
        return step if slow and 0 < angle_in_doubt(here.sums) < LARGEST_ANGLE else 0.0


def safest(stage: Stage, here: Point, moved: Array) -> Array:
    """Where to stop when nobody will look at the last step: after it only if it cannot have lowered the objective."""
    return moved if stage.step is power_step else here.A


def looked(run: Run, stage: Stage, contrast: Contrast, A: Array, came_from: Array) -> Point:
    """The contrast, fitted to A if the stage fits it and A has moved, and its sums."""
    if stage.refit is not None and came_from is not A:
        contrast = stage.refit(contrast, A, longest_move(A, came_from))
    return Point(A, contrast, run.look(A, contrast, stage.need, stage.precision))


def guarded(run: Run, stage: Stage, here: Point, moved: Array) -> Point:
    """Accept a step that does not lower the objective; otherwise take the plain step, which cannot."""
    there = looked(run, stage, here.contrast, moved, here.A)
    before = here.sums.objective
    fall = before - there.sums.objective
    if fall <= ROUNDING[stage.precision] * abs(before) + stage.slack or stage.step is power_step:
        return there
    return looked(run, stage, here.contrast, power_step(here.sums, here.A), here.A)


def distance(A: Array, B: Array) -> float:
    """Root mean square, over rows, of the distance between two matrices."""
    return math.sqrt(total((A - B) ** 2) / int(A.shape[0]))


def longest_move(A: Array, B: Array) -> float:
    """Largest distance between two rows."""
    xp = Space.of(A).xp
    return math.sqrt(float(xp.max(xp.sum((A - B) ** 2, axis=1))))
