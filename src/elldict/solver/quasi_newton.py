"""Quasi-Newton steps: for objectives of samples whose codes depend on each other, sought to many digits.

Newton's step for each pair of atoms by itself takes hundreds of iterations there, because the angles of pairs depend on
each other too. What the last steps have shown of that (L-BFGS) brings it down to tens. Angles are those of the atoms
with each other at A, so that those of one iterate need not be moved to the next.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace

from elldict.backend.base import Array, Backend, total
from elldict.data.dataset import Dataset
from elldict.data.statistics import Whitening
from elldict.data.subsample import Subsampler
from elldict.result import Estimate, Iterate
from elldict.solver.directions import FAR_CURVATURE, MAX_ANGLE, PairwiseNewton, pairwise_curvature, turn
from elldict.solver.evaluate import Statistics
from elldict.solver.loop import (
    DEFAULT_TOL,
    LOST_ERROR,
    SHORTER_STEPS,
    FitLog,
    Phase,
    Problem,
    Stepper,
    measure_step,
    run_phases,
)
from elldict.solver.objective import Objective, Quantities

N_REMEMBERED = 20
"""Steps that are remembered: more would cost time in small problems and save few passes in large ones."""

FAR_STEP = 0.3
"""Root mean square angle of a step, in radians, above which curvatures change so much that none is remembered."""

REFRESH_STEPS = 8
"""Steps between two passes that sum up the curvatures of pairs, half the price of a gradient; far off all passes do."""

LEAST_CURVATURE = 1e-10
"""Of a pair, relative to the mean over atoms of E g z. Codes smaller than others by a factor of 300 are below it: those
of directions without samples, whose turns change nothing."""

NOISE_FRACTION = 0.04
"""Share of the standard error below which steps are the last, where it is asked for: other rows of the same kind would
move the atoms 25 times as far. Large problems would climb from one flat maximum to the next for hundreds of
passes."""

SUBSAMPLE_TOL, COARSE_TOL = 0.03, 1e-4
"""Steps, in radians, down to which a subsample is used, where more samples take over; and down to which float32 is,
whose rounding moves the atoms by 1e-5."""

MAX_SUBSAMPLE_STEPS = 60
"""Steps on a subsample: if they are still long, more samples help more."""


@dataclass
class CurvatureMemory:
    """What a start has learned of the curvature: angles of the last steps, the change of the slope along them."""

    curvature: Array = None  # (m, m) of pairs
    steps: list[tuple[Array, Array, float]] = field(default_factory=list)
    at_noise: bool = False  # the last phase ended because steps were small beside the standard error

    def add(self, angles: Array, change: Array) -> None:
        """Remember a step by antisymmetric angles (m, m) over which the slope fell by `change` (m, m)."""
        product = total(angles * change)
        if product > 1e-10 * math.sqrt(total(angles * angles) * total(change * change)):  # it curves downwards
            self.steps = [*self.steps[1 - N_REMEMBERED :], (angles, change, product)]

    def choose_angles(self, slope: Array) -> Array:
        """Angles (m, m) of the quasi-Newton step for this slope (m, m)."""
        angles, shares = slope, []
        for along, change, product in reversed(self.steps):
            shares.append(total(along * angles) / product)
            angles = angles - shares[-1] * change
        angles = angles / self.curvature
        for along, change, product in self.steps:
            angles = angles + (shares.pop() - total(change * angles) / product) * along
        return angles


@dataclass
class QuasiNewtonStepper(Stepper):
    """Steps by the curvature of pairs and the memory of the last steps; none lowers the objective."""

    memory: CurvatureMemory = field(kw_only=True)
    n_evaluated: int = 0
    far: bool = True
    max_angle: float = MAX_ANGLE
    angles: Array = None  # of the step at hand
    slope: Array = None  # where it begins
    came_from: Iterate | None = None
    last_length: float = math.inf  # of the step before, which chance may make short
    noise: float = 0.0  # root mean square angle of the error bar when curvatures were summed up last

    def evaluate(self, A: Array, objective: Objective, came_from: Array | None = None) -> Iterate:  # noqa: ARG002
        """The iterate at A, with the curvature of pairs if it is time for it."""
        quantities = Quantities.GRADIENT
        if self.far or self.memory.curvature is None or self.n_evaluated % REFRESH_STEPS == 0:
            quantities |= Quantities.MOMENTS | Quantities.CROSSED
        self.n_evaluated += 1
        return Iterate(A, objective, self.problem.evaluate(A, objective, quantities, self.phase.precision))

    def propose(self, here: Iterate) -> tuple[Array, float]:
        """Where the step leads, and how far that is."""
        self._learn(here)
        angles = self.memory.choose_angles(self.slope)
        if total(angles * self.slope) <= 0:  # what was remembered is of no use any more
            self.memory.steps = []
            angles = self.slope / self.memory.curvature
        length = math.sqrt(total(angles * angles) / int(here.A.shape[0]))
        self.angles = angles if length <= self.max_angle else self.max_angle / length * angles
        self.far = length > FAR_STEP
        moved = turn(here.A, self.angles)
        return moved, measure_step(here.A, moved)

    def take_step(self, here: Iterate, moved: Array) -> Iterate:
        """Take the step if it does not lower the objective, otherwise a shorter one, or none."""
        self.came_from, length = here, measure_step(here.A, moved)
        there = self.evaluate(moved, here.objective)
        if not self._is_lower(there, here):
            self.max_angle = min(MAX_ANGLE, 2 * self.max_angle)
            return there
        self.memory.steps, self.came_from = [], None
        for share in SHORTER_STEPS:
            there, self.max_angle = self.evaluate(turn(here.A, share * self.angles), here.objective), share * length
            if not self._is_lower(there, here):
                return there
        return here

    def find_reason_to_end(self, before: Iterate, here: Iterate, step: float) -> str | None:  # noqa: ARG002
        """End when steps are shorter than the tolerance, or two of them than their share of the standard error."""
        tol, noise = self.phase.tol, min(self.noise, LOST_ERROR)
        limit = self.phase.noise_fraction * noise
        longer, self.last_length = max(step, self.last_length), step
        if step <= tol:
            return f"step {step:.2g} <= tol {tol:.2g}"
        self.memory.at_noise = longer <= limit
        return f"step {step:.2g} is small beside the standard error {noise:.2g}" if longer <= limit else None

    def _learn(self, here: Iterate) -> None:
        """Take in the statistics of this iterate."""
        xp, stats = Backend.of(here.A).xp, here.stats
        C = stats.G @ here.A.T / stats.weight
        if stats.crossed is not None:
            floor = FAR_CURVATURE if self.far else PairwiseNewton.least_curvature
            C, curvature = pairwise_curvature(stats, stats.G, here.A, floor, stats.crossed / stats.weight)
            least = LEAST_CURVATURE * xp.mean(xp.abs(xp.linalg.diagonal(C)))
            curvature = xp.maximum(curvature, xp.zeros_like(curvature) + least)
            # where no rotation changes the objective there is no slope either
            self.memory.curvature = xp.where(curvature > 0, curvature, xp.ones_like(curvature))
            self.noise = measure_noise(stats, self.memory.curvature)
        before, self.slope = self.slope, C - C.T
        if self.came_from is not None and not self.far:
            self.memory.add(self.angles, before - self.slope)
        self.came_from = None


def measure_noise(stats: Statistics, curvature: Array) -> float:
    """Root mean square, over atoms, of the standard error of an atom in radians, by the curvature of pairs (m, m)."""
    xp, r = Backend.of(curvature).xp, stats.weight
    g2, z2, gz = stats.g2 / r, stats.z2 / r, stats.gz / r
    squares = g2[:, None] * z2[None, :]
    variances = (squares + squares.T - 2 * gz[:, None] * gz[None, :]) / curvature**2 / r
    return math.sqrt(max(0.0, total(variances) - total(xp.linalg.diagonal(variances))) / int(curvature.shape[0]))


@dataclass(frozen=True)
class QuasiNewtonSearch:
    """Maxima of an objective over all rotations (k, k), from several starts: few samples first, then all."""

    samples: Dataset
    whitening: Whitening
    objective: Objective
    precision: str  # of the last steps
    coarse_precision: str  # of all others
    tol: float
    max_iter: int
    to_noise: bool  # end where steps are small beside the standard error
    subsampler: Subsampler
    log: FitLog

    def approach(self, A: Array, number: int) -> tuple[Array, CurvatureMemory]:
        """Where start `number` leads on fewer samples: A itself if there are none."""
        memory = CurvatureMemory()
        for size in self.subsampler.sizes:
            few = self.subsampler.subsample(size)
            phase = self._make_phase(
                memory, self.coarse_precision, SUBSAMPLE_TOL, min(self.max_iter, MAX_SUBSAMPLE_STEPS)
            )
            share = few.n_samples / self.samples.n_samples
            A = run_phases(A, Problem(few, self._local, self.log, share, number), [phase]).A
        return A, memory

    def finish(self, A: Array, memory: CurvatureMemory, number: int) -> Estimate:
        """The maximum on all samples that is next to A."""
        problem = Problem(self.samples, self._local, self.log, 1.0, number)
        if self.precision != self.coarse_precision and self.tol < COARSE_TOL:
            memory.at_noise = False
            end = run_phases(A, problem, [self._make_phase(memory, self.coarse_precision, COARSE_TOL, self.max_iter)])
            if memory.at_noise:
                return replace(end, stats=problem.evaluate(end.A, self.objective, Quantities.MOMENTS, self.precision))
            A = end.A
        return run_phases(A, problem, [self._make_phase(memory, self.precision, self.tol, self.max_iter)])

    def evaluate(self, A: Array) -> float:
        """Mean value of the objective at A on all samples."""
        problem = Problem(self.samples, self._local, self.log)
        return problem.evaluate(A, self.objective, Quantities.MOMENTS, self.coarse_precision).mean_value

    @property
    def _local(self) -> Whitening:
        return self.whitening.move_to(self.samples.backend)

    def _make_phase(self, memory: CurvatureMemory, precision: str, tol: float, max_iter: int) -> Phase:
        return Phase(
            self.objective,
            PairwiseNewton(),
            precision,
            tol,
            max_iter,
            # by the tolerance of the search, not of this phase: a small one asks for more digits
            noise_fraction=NOISE_FRACTION * min(1.0, self.tol / DEFAULT_TOL) ** 2 if self.to_noise else 0.0,
            make_stepper=lambda problem, phase: QuasiNewtonStepper(problem, phase, memory=memory),
            skip_final_evaluation=tol > self.tol,
        )
