"""Quasi-Newton steps: for objectives of samples whose codes depend on each other, sought to many digits.

The power step takes hundreds of iterations there, because the angles of pairs of atoms depend on each other. What the
last steps have shown of that (L-BFGS), on top of the curvature that the power step takes for granted, brings it down to
tens. Angles are those of the atoms with each other at A, so that those of one iterate need not be moved to the next.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace

from elldict._old.backend.base import Array, Backend, total
from elldict._old.data.dataset import Dataset
from elldict._old.data.subsample import Subsampler, copy_coarse
from elldict._old.data.whitening import Whitening
from elldict._old.result import Estimate, Iterate
from elldict._old.solver.directions import MAX_ANGLE, PairwiseNewton, pairwise_curvature, polar, turn
from elldict._old.solver.evaluate import Statistics
from elldict._old.solver.loop import (
    DEFAULT_TOL,
    LOST_ERROR,
    FitLog,
    Phase,
    Problem,
    Stepper,
    measure_step,
    run_phases,
)
from elldict._old.solver.objective import Objective, Quantities

N_REMEMBERED = 20
"""Steps that are remembered: more would cost time in small problems and save few passes in large ones."""

N_POWER_STEPS = 16
"""Power steps on minibatches, the first of all: they lead within 15 % of the maximum of real loadings, and the noise of
a batch keeps further ones from coming closer."""

FAR_STEP = 0.3
"""Length of a power step, root mean square over atoms in radians, above which power steps are taken: curvatures change
so much from one to the next that none is remembered."""

MAX_PAIR_ANGLE = 0.5
"""Angle of one pair, in radians. Pairs in which the objective is flat would otherwise make the whole step too long, and
all other pairs wait for them."""

LEAST_CURVATURE = 1e-10
"""Of a pair, relative to the mean over atoms of E g z. Codes smaller than others by a factor of 300 are below it: those
of directions without samples, whose turns change nothing."""

NOISE_FRACTION = 0.02
"""Share of the standard error below which steps are the last, where it is asked for: other rows of the same kind would
move the atoms 50 times as far. Large problems would climb from one flat maximum to the next for hundreds of
passes."""

LEAST_GAIN, FAST_DECREASE = 1e-9, 0.3
"""Expected relative rise of the objective by one more step, above which it is taken in spite of the noise if steps
shrink to less than this share from one to the next: then it is the last but one, and cheap."""

REFRESH_STEPS = 8
"""Steps between two passes that measure the noise, half the price of a gradient."""

N_SHORTER_STEPS = 4
"""Shorter steps that are tried where one lowers the objective."""

MIN_SHARE, MAX_SHARE = 0.1, 0.6
"""Of a step that lowers the objective, to be tried instead: two slopes do not tell more."""

SUBSAMPLE_TOL, COARSE_TOL = 0.03, 1e-4
"""Steps, in radians, down to which a subsample is used, where more samples take over; and down to which float32 is,
whose rounding moves the atoms by 1e-5."""

MAX_SUBSAMPLE_STEPS, MAX_SUBSAMPLE_SHARE = 60, 1 / 9
"""Steps on a subsample: if they are still long, more samples help more. And its share of all samples: its chance
fluctuations lead astray by more than steps on a larger one save."""


@dataclass
class CurvatureMemory:
    """What a start has learned of the curvature: angles of the last steps, the change of the slope along them."""

    curvature: Array = None  # (m, m) of pairs, as the power step has it
    steps: list[tuple[Array, Array, float]] = field(default_factory=list)
    far: bool = True  # power steps are long
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
        if self.steps:  # the curvature in units of what the last step has shown
            _, change, product = self.steps[-1]
            angles = product / total(change * change / self.curvature) * angles
        for along, change, product in self.steps:
            angles = angles + (shares.pop() - total(change * angles) / product) * along
        return angles


@dataclass
class QuasiNewtonStepper(Stepper):
    """Power steps while they are long, then steps by the memory of the last ones; none lowers the objective."""

    memory: CurvatureMemory = field(kw_only=True)
    max_angle: float = MAX_ANGLE
    angles: Array = None  # of the step at hand; None for a power step
    slope: Array = None  # where it begins
    came_from: Iterate | None = None
    length: float = math.inf  # of the step at hand
    last_length: float = math.inf  # of the step before, which chance may make short
    noise: float = 0.0  # root mean square angle of the error bar when it was measured last
    n_since: int = REFRESH_STEPS  # steps since then

    def evaluate(self, A: Array, objective: Objective, came_from: Array | None = None) -> Iterate:  # noqa: ARG002
        """The iterate at A, with what the noise follows from if it is time for it."""
        quantities, self.n_since = Quantities.GRADIENT, self.n_since + 1
        if self.length <= self.phase.noise_fraction * LOST_ERROR and self.n_since >= REFRESH_STEPS:
            quantities, self.n_since = quantities | Quantities.MOMENTS | Quantities.CROSSED, 0
        return Iterate(A, objective, self.problem.evaluate(A, objective, quantities, self.phase.precision))

    def propose(self, here: Iterate) -> tuple[Array, float]:
        """Where the step leads, and how far that is."""
        self._learn(here)
        self.last_length = self.length
        if self.memory.far:
            self.angles, moved = None, take_power_step(here.stats, here.A)
            self.length = measure_step(here.A, moved)
            self.memory.far = self.length > FAR_STEP
            if self.memory.far:
                return moved, self.length
        self.angles = self._choose_angles()
        moved = turn(here.A, self.angles)
        self.length = measure_step(here.A, moved)
        return moved, self.length

    def take_step(self, here: Iterate, moved: Array) -> Iterate:
        """Take the step if it does not lower the objective, otherwise a shorter one, or none."""
        there = self.evaluate(moved, here.objective)
        if not self._is_lower(there, here):
            self.came_from, self.max_angle = here, min(MAX_ANGLE, 2 * self.max_angle)
            return there
        self.memory.far = False
        if self.angles is None:
            there, self.angles = here, self._choose_angles()
        for _ in range(N_SHORTER_STEPS):
            share = MIN_SHARE if there is here else self._choose_share(there)
            self.angles = share * self.angles
            self.max_angle = 2 * math.sqrt(total(self.angles * self.angles) / int(here.A.shape[0]))
            there = self.evaluate(turn(here.A, self.angles), here.objective)
            if not self._is_lower(there, here):
                self.came_from = here
                return there
        self.memory.steps = []  # what was remembered is of no use any more
        return here

    def find_reason_to_end(self, before: Iterate, here: Iterate, step: float) -> str | None:  # noqa: ARG002
        """End when two steps are shorter than the tolerance, or than their share of the standard error.

        Where noise counts one below the tolerance is enough.
        """
        tol, noise = self.phase.tol, min(self.noise, LOST_ERROR)
        limit = self.phase.noise_fraction * noise
        self.memory.at_noise = max(step, self.last_length) <= limit and not self._is_nearly_there(here)
        if (step if self.phase.noise_fraction else max(step, self.last_length)) <= tol:
            return f"step {step:.2g} <= tol {tol:.2g}"
        return f"step {step:.2g} is small beside the standard error {noise:.2g}" if self.memory.at_noise else None

    def _is_nearly_there(self, here: Iterate) -> bool:
        """Whether a step more is worth its price although noise is larger."""
        gain = 0.0 if self.angles is None else total(self.angles * self.slope)
        return self.length < FAST_DECREASE * self.last_length and gain > LEAST_GAIN * abs(total(here.stats.G * here.A))

    def _choose_angles(self) -> Array:
        """Angles of the quasi-Newton step, none too large."""
        angles = limit_angles(self.memory.choose_angles(self.slope), self.max_angle)
        if total(angles * self.slope) <= 0:  # what was remembered is of no use any more
            self.memory.steps = []
            angles = limit_angles(self.slope / self.memory.curvature, self.max_angle)
        return angles

    def _choose_share(self, there: Iterate) -> float:
        """Share of the step to `there` at which the slope along it is zero, if it changes linearly."""
        first, last = total(self.angles * self.slope), total(self.angles * measure_slope(there))
        return min(max(first / (first - last) if last < first else 0.0, MIN_SHARE), MAX_SHARE)

    def _learn(self, here: Iterate) -> None:
        """Take in the statistics of this iterate."""
        xp, stats = Backend.of(here.A).xp, here.stats
        own = xp.sum(stats.G * here.A, axis=1) / stats.weight
        curvature = own[:, None] + own[None, :]
        curvature = xp.maximum(curvature, xp.zeros_like(curvature) + LEAST_CURVATURE * xp.mean(xp.abs(own)))
        # where no rotation changes the objective there is no slope either
        self.memory.curvature = xp.where(curvature > 0, curvature, xp.ones_like(curvature))
        if stats.crossed is not None:
            self.noise = measure_noise(stats, here.A)
        before, self.slope = self.slope, measure_slope(here)
        if self.came_from is not None and self.angles is not None:
            self.memory.add(self.angles, before - self.slope)
        self.came_from = None


def take_power_step(stats: Statistics, A: Array) -> Array:
    """Where the power step leads from A (m, k); atoms along which there are no samples stay where they are."""
    least = LEAST_CURVATURE * total(stats.G * A) / int(A.shape[0])
    return polar(stats.G + least * A)


def limit_angles(angles: Array, max_length: float) -> Array:
    """Angles (m, m), none above that of a pair, in a step of this length at most."""
    xp = Backend.of(angles).xp
    angles = xp.clip(angles, -MAX_PAIR_ANGLE, MAX_PAIR_ANGLE)
    length = math.sqrt(total(angles * angles) / int(angles.shape[0]))
    return angles if length <= max_length else max_length / length * angles


def measure_slope(here: Iterate) -> Array:
    """Slopes (m, m) of the objective by the angles of pairs, in units of g."""
    C = here.stats.G @ here.A.T / here.stats.weight
    return C - C.T


def measure_noise(stats: Statistics, A: Array) -> float:
    """Root mean square, over atoms A (m, k), of the standard error of an atom in radians, by the curvature of pairs."""
    xp, r = Backend.of(A).xp, stats.weight
    C, curvature = pairwise_curvature(stats, stats.G, A, PairwiseNewton.least_curvature, stats.crossed / r)
    least = LEAST_CURVATURE * xp.mean(xp.abs(xp.linalg.diagonal(C)))
    curvature = xp.maximum(curvature, xp.zeros_like(curvature) + least)
    curvature = xp.where(curvature > 0, curvature, xp.ones_like(curvature))
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
        memory, sizes, r = CurvatureMemory(), self.subsampler.sizes, self.samples.n_samples
        batches = self.subsampler.minibatches(sizes[0]) if sizes else None
        if batches is not None:
            problem = Problem(batches, self._local, self.log, sizes[0] / r, number)
            for _ in range(min(self.max_iter, N_POWER_STEPS)):
                A = take_power_step(problem.evaluate(A, self.objective, Quantities.GRADIENT, self.coarse_precision), A)
        for size in sizes[1:]:
            if size <= MAX_SUBSAMPLE_SHARE * r:
                steps = min(self.max_iter, MAX_SUBSAMPLE_STEPS)
                phase = self._make_phase(memory, self.coarse_precision, SUBSAMPLE_TOL, steps)
                few = self.subsampler.subsample(size)
                A = run_phases(A, Problem(few, self._local, self.log, few.n_samples / r, number), [phase]).A
        return A, memory

    def finish(self, A: Array, memory: CurvatureMemory, number: int) -> Estimate:
        """The maximum on all samples that is next to A."""
        problem = Problem(self.samples, self._local, self.log, 1.0, number)
        coarse = replace(problem, samples=copy_coarse(self.samples, self.coarse_precision))
        if self.precision != self.coarse_precision and self.tol < COARSE_TOL:
            memory.at_noise = False
            end = run_phases(A, coarse, [self._make_phase(memory, self.coarse_precision, COARSE_TOL, self.max_iter)])
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
