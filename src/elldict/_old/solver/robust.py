"""Estimates for samples whose codes follow no spike-and-slab law, as recordings, images, genes and word vectors do.

The codes of such samples have heavy tails of many kinds, and all codes of a sample may be large together. A few loud
samples and large codes then decide sum |z|^p for p > 2. So samples are normalised, the l_1 norm is minimised, which
small codes decide, and the likelihood of mixtures of Gaussians, a law that fits any code, is climbed from
there. If samples do not differ in loudness, the last steps are taken without normalisation, which would bias them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np
from numpy.typing import NDArray

from elldict._old.backend.base import NUMPY, STORED, Array, Backend, to_numpy
from elldict._old.backend.matrices import find_principal_axes
from elldict._old.data.dataset import ArrayDataset, Dataset
from elldict._old.data.subsample import Minibatches, copy_white, find_at_hand, take_as
from elldict._old.data.whitening import IDENTITY, Loudness, Whitening
from elldict._old.result import Estimate, Iterate
from elldict._old.solver.code_subsample import CodeSubsample, compute_codes
from elldict._old.solver.directions import MAX_ANGLE, PairwiseNewton, polar
from elldict._old.solver.evaluate import evaluate
from elldict._old.solver.law_tests import TEST_ROWS, count_thinned
from elldict._old.solver.loop import SHORTER_STEPS, Phase, Problem, Stepper, measure_step, run_phase
from elldict._old.solver.mixture import MixtureLaw, MixtureLikelihood, fit_mixture, update_mixture
from elldict._old.solver.objective import Lp, Objective, Quantities, WithSecondary, compute_derivatives

SUBSAMPLE_ROWS = 25_000
"""Samples, at least, of the first steps, or the square of the directions. Fewer find atoms that fit others worse, and
far fewer find none: at a random start the slope of a pair is lost in the noise of its sum."""

REFRESH_STEPS = 5
"""Steps between two estimates of the curvature of pairs and of the law of codes, from drawn samples."""

BATCH_SHARES, BATCH_STEPS, BATCH_ROWS_PER_DIRECTION = (1 / 8, 1 / 4), 10, 12
"""Of the first steps of l_1, each on other samples: shares of the samples, one after the other, steps with each, and
samples for each direction at least. Far from a maximum they lead as far as steps on all samples."""

BATCH_SEED = 0
"""Of the order in which samples come in batches: the same for all fits, as the start is."""

MOMENTUM = 0.6
"""Share of the last step that is taken again with the next. Where codes depend on each other so do the angles of pairs,
and Newton's step for each pair by itself falls short."""

MAX_VALUES = 2**20
"""Values of the samples from which the start is computed, 8 MB, unless these are fewer samples than curvatures need: by
a few hundred, steps for hundreds of directions become longer and longer, and lead nowhere."""

MIN_PART_ROWS = 1024
"""Of these samples, fewest that are looked at together."""

FIRST_ROUNDS = 60
"""Rounds of expectation maximisation for the first law, which is followed by others every few steps."""

LEAST_CURVATURE = 0.5
"""Of Newton's steps for the likelihood, relative to its size; more than elsewhere, because curvatures are those of few
samples."""

L1_END, LIKELIHOOD_END, SETTLED_END = (0.02, 0.05), (0.25, 0.05), (0.1, 0.02)
"""Share of the standard error below which steps are the last, and share of the rise of the objective so far below which
that of the last few is of no more use. The likelihood ends earlier, because its last steps fit noise, unless the error
bar of l_p was small already."""

LAW_SLACK = 1e-4
"""Fall of the log-likelihood of a code, in nats, that a new law can cause: it fits drawn samples better, not all."""

MAX_STEPS = 200
"""Steps after which an objective that still rises is left."""


@dataclass
class DependentStepper(Stepper):
    """Newton's steps for codes that depend on each other, with momentum.

    The curvature of pairs, and the law of a mixture, are estimated anew from drawn samples every few steps.
    """

    rows: Array = field(kw_only=True)  # drawn samples (b, k), normalised if the others are
    min_rise: float = field(kw_only=True)
    values: list[float] = field(default_factory=list)  # of the objective at each iterate
    direction: PairwiseNewton = field(default_factory=PairwiseNewton)
    came_from: Array | None = None  # A before the last step; None: it was too long, or there was none
    began_at: float | None = None  # value from which the objective has risen; None: that of the first iterate

    def evaluate(self, A: Array, objective: Objective, came_from: Array | None = None) -> Iterate:  # noqa: ARG002
        """The iterate at A. The moments of codes, which the standard error needs, are summed up every few steps."""
        seldom = (len(self.values) + 1) % REFRESH_STEPS and len(self.values) > 0 and A.shape[0] == A.shape[1]
        wanted = Quantities.GRADIENT if seldom else Quantities.GRADIENT | Quantities.MOMENTS
        return Iterate(A, objective, self.problem.evaluate(A, objective, wanted, self.phase.precision))

    def propose(self, here: Iterate) -> tuple[Array, float]:
        """Where the step leads, and how far that is."""
        if len(self.values) % REFRESH_STEPS == 0:
            half = self.rows[::2, :]  # which tells curvatures as well
            crossed = estimate_crossed(here.objective, compute_codes(half, here.A))
            self.direction = replace(self.direction, crossed=Backend.of(here.A).asarray(crossed, "float64"))
        self.values.append(here.stats.mean_value)
        further = None
        if self.came_from is not None:
            between = here.A @ self.came_from.T
            further = MOMENTUM / 2 * (between - between.T)
        moved = self.direction.move(here.stats, here.A, further)
        return moved, measure_step(here.A, moved)

    def take_step(self, here: Iterate, moved: Array) -> Iterate:
        """Take the step if it does not lower the objective, otherwise a shorter one without momentum."""
        objective = here.objective
        if len(self.values) % REFRESH_STEPS == 0 and isinstance(objective, MixtureLikelihood):
            objective = MixtureLikelihood(update_mixture(objective.law, compute_codes(self.rows, moved)))
        there = self.evaluate(moved, objective)
        if not self._is_lower(there, here):
            self.came_from, longest = here.A, min(MAX_ANGLE, 2 * self.direction.max_angle)
            self.direction = replace(self.direction, max_angle=longest)
            return there
        self.came_from, moved = None, self.direction(here.stats, here.A)
        for share in SHORTER_STEPS:
            there = self.evaluate(polar((1 - share) * here.A + share * moved), objective)
            if not self._is_lower(there, here):
                break
        # the next will be no longer than twice this one
        longest = share * min(self.direction.max_angle, measure_step(here.A, moved))
        self.direction = replace(self.direction, max_angle=longest)
        return there

    def find_reason_to_end(self, before: Iterate, here: Iterate, step: float) -> str | None:
        """End also when the last few steps have hardly raised the objective."""
        values, few = self.values, REFRESH_STEPS
        began_at, least = (values[0], 2 * few) if self.began_at is None else (self.began_at, few)
        if len(values) > least and values[-1] - values[-1 - few] < self.min_rise * (values[-1] - began_at):
            return f"{few} steps raise the objective by less than {100 * self.min_rise:.2g} % of its rise"
        return None if here.stats.slope is None else super().find_reason_to_end(before, here, step)


class BatchStepper(DependentStepper):
    """The same steps on other samples every time, whose values do not compare."""

    def take_step(self, here: Iterate, moved: Array) -> Iterate:
        """Take the step."""
        self.came_from = here.A
        return self.evaluate(moved, here.objective)

    def find_reason_to_end(self, before: Iterate, here: Iterate, step: float) -> str | None:  # noqa: ARG002
        """Go on: so many steps are taken."""
        return None


@dataclass(frozen=True)
class Climb:
    """Samples on which steps are taken, normalised if asked, and the drawn ones (b, k) among them."""

    problem: Problem
    rows: Array
    backend: Backend
    precision: str
    lp_phase: Phase

    def approach(self, A: Array, objective: Objective) -> tuple[Estimate | None, float | None]:
        """Where steps on batches of the samples lead from A (m, k), each on other samples; and the objective at A.

        None if samples are too few, or not at hand.
        """
        problem, k = self.problem, int(A.shape[1])
        samples = find_at_hand(problem.white or problem.samples)
        found: Estimate | None = None
        began_at: float | None = None
        if samples is None:
            return found, began_at
        r = samples.n_samples
        order = np.random.default_rng(BATCH_SEED).permutation(r)
        for share in BATCH_SHARES:
            size = max(round(share * r), BATCH_ROWS_PER_DIRECTION * k)
            if 2 * size > r:
                break
            batches = Minibatches(samples, order, size)
            some = replace(problem, share=problem.share * size / r)
            some = replace(some, samples=batches) if problem.white is None else replace(some, white=batches)
            newton = PairwiseNewton().make_coarse(self.precision)
            stepper = partial(BatchStepper, rows=self.rows, min_rise=0.0, direction=newton)
            phase = replace(self._make_phase(objective, stepper), max_iter=BATCH_STEPS)
            n_before = len(problem.iterations)
            found = run_phase(some, 0, phase, A)
            A, began_at = found.A, began_at or problem.iterations[n_before].objective
            if found.stopped:
                break
        return found, began_at

    def run(self, A: Array, objective: Objective, end: tuple[float, float], began_at: float | None = None) -> Estimate:
        """Take steps from A (m, k) as long as they are of use."""
        noise_fraction, min_rise = end
        newton = PairwiseNewton() if isinstance(objective, Lp) else PairwiseNewton(LEAST_CURVATURE)
        newton = newton.make_coarse(self.precision)
        stepper = partial(DependentStepper, rows=self.rows, min_rise=min_rise, direction=newton, began_at=began_at)
        phase = replace(self._make_phase(objective, stepper), noise_fraction=noise_fraction)
        found = run_phase(self.problem, 0, phase, self.backend.asarray(A, "float64"))
        return replace(found, A=Backend.of(A).asarray(found.A, "float64"))

    def _make_phase(self, objective: Objective, make_stepper: Callable[[Problem, Phase], Stepper]) -> Phase:
        lp = self.lp_phase
        return Phase(
            objective,
            PairwiseNewton().make_coarse(self.precision),
            self.precision,
            max(lp.tol, 1e-4),
            min(lp.max_iter, MAX_STEPS),
            objective_slack=LAW_SLACK,
            make_stepper=make_stepper,
        )


@dataclass(frozen=True)
class RobustEstimator:
    """Climbs l_1, then the likelihood of mixtures, on samples that are normalised if asked."""

    problem: Problem  # on all samples, not normalised
    subsample: Dataset
    rows: NDArray[np.float64]  # drawn samples (b, k) in whitened coordinates
    drawn: CodeSubsample
    lp_phase: Phase
    normalize: str | None
    copies: dict[tuple[int, bool], Dataset | None] = field(
        default_factory=dict, repr=False, compare=False
    )  # the last copy of samples that steps were taken on

    def estimate(self, A: Array, *, loud: bool, settled: bool) -> Estimate:
        """The estimate, begun at A (m, k); `loud` says that samples differ in loudness, `settled` that A is close."""
        loudness = self.measure_loudness() if loud or self.normalize != "auto" else None
        pilot = None if settled else self.climb_l1(A)
        if pilot is not None and pilot.stopped:
            rows = normalize_rows(self.rows, loudness)
            law = MixtureLikelihood(self._fit_law(pilot.A, rows))
            return self._complete(replace(pilot, objective=law), loudness)
        found = (
            self.climb_likelihood(A, loudness, SETTLED_END)
            if pilot is None
            else self.climb_likelihood(pilot.A, loudness)
        )
        return self._complete(found, loudness)

    def climb_l1(self, A: Array) -> Estimate:
        """Where l_1 leads from A (m, k).

        l_1 has no signs here: on the sphere, to which normalisation brings samples closer, every mixture of codes is
        less sparse than a Gaussian one.
        """
        problem = self.problem
        share = problem.share * self.subsample.n_samples / problem.samples.n_samples
        few = replace(problem, samples=self.subsample, share=share)
        climb, objective = self._prepare(few, self.measure_loudness(), A), Lp(1.0)
        found, began_at = climb.approach(climb.backend.asarray(A, "float64"), objective)
        if found is not None:
            found = replace(found, A=Backend.of(A).asarray(found.A, "float64"))
            if found.stopped:
                return found
            A = found.A
        return climb.run(A, objective, L1_END, began_at)

    def climb_likelihood(
        self, A: Array, loudness: Loudness | None, end: tuple[float, float] = LIKELIHOOD_END
    ) -> Estimate:
        """Where the likelihood leads from A (m, k)."""
        problem = self.problem
        first_phase = 1 + max([problem.first_phase, *(iteration.stage for iteration in problem.iterations)])
        problem = replace(problem, first_phase=first_phase)
        climb = self._prepare(problem, loudness, A)
        return climb.run(A, MixtureLikelihood(self._fit_law(A, climb.rows)), end)

    def measure_loudness(self) -> Loudness | None:
        """How samples are normalised."""
        return None if self.normalize is None else Loudness.of(self.rows)

    def _fit_law(self, A: Array, rows: Array) -> MixtureLaw:
        """Law of codes at A, of drawn samples `rows` (b, k)."""
        return fit_mixture(compute_codes(rows, A), self._choose_signs(A), FIRST_ROUNDS)

    def _choose_signs(self, A: Array) -> NDArray[np.float64]:
        """Signs of the atoms, by the codes of drawn samples as they are."""
        lp, drawn = self.lp_phase.objective, ArrayDataset(self.drawn.rows)
        assert isinstance(lp, Lp)
        A = drawn.backend.asarray(A, "float64")
        return to_numpy(evaluate(drawn, IDENTITY, replace(lp, signed=True), A, Quantities.MOMENTS, "float64").signs)

    def _prepare(self, problem: Problem, loudness: Loudness | None, A: Array) -> Climb:
        """Samples of this loudness to take steps on."""
        problem, backend = self._normalize(problem, loudness), Backend.of(A)
        key = (id(problem.samples), loudness is None)
        if key not in self.copies:
            self.copies.clear()  # one at a time, before the next is made
            self.copies[key] = copy_white(problem.samples, problem.whitening)
        copied = self.copies[key]
        lp = self.lp_phase
        # the narrowest component is a hundred times wider than fast products round
        precision = backend.coarse_precision(lp.precision)
        if copied is not None:
            if not backend.prefers_products:
                backend, precision = NUMPY, copied.dtype
            problem = replace(problem, whitening=problem.whitening.move_to(backend), white=copied)
        rows = normalize_rows(backend.asarray(self.rows, "float64"), loudness)
        return Climb(problem, backend.asarray(rows, STORED[precision]), backend, precision, lp)

    def _normalize(self, problem: Problem, loudness: Loudness | None) -> Problem:
        """The problem with normalised samples."""
        if loudness is None:
            return problem
        return replace(problem, whitening=replace(problem.whitening, loudness=loudness, second_moments=None))

    def _complete(self, end: Estimate, loudness: Loudness | None) -> Estimate:
        """The estimate with the statistics of both objectives, and the law of codes of samples as they are."""
        lp, problem = self.lp_phase, self.problem
        both = WithSecondary(end.objective, lp.objective)  # type: ignore[arg-type]
        stats = self._normalize(problem, loudness).evaluate(end.A, both, Quantities.MOMENTS, lp.precision)
        lp_stats = stats.of_secondary()
        assert isinstance(end.objective, MixtureLikelihood)
        law = end.objective.law
        if loudness is not None:
            backend = Backend.of(end.A) if Backend.of(end.A).prefers_products else NUMPY
            law = update_mixture(law, compute_codes(backend.asarray(self.rows, "float64"), end.A))
        note = "as they are" if loudness is None else "normalised, because they differ in loudness"
        return replace(
            end,
            stats=stats,
            lp_stats=lp_stats,
            law=self.drawn.fit_law(end.A, lp_stats.signs),
            mixture=law,
            refined="mixture",
            loudness=loudness,
            status=f"{end.status}; refined: codes follow no spike-and-slab law; samples {note}",
            n_iter=len(problem.iterations),
        )


def draw_rows(samples: Dataset, whitening: Whitening) -> tuple[NDArray[np.float64], Array]:
    """Some samples in whitened coordinates (b, k), and a start (k, k) from more; the same whatever the seed of a fit.

    The start is the eigenvectors of E |y|^2 y y^T. Were codes independent, they would be the atoms, as far as these
    differ in kurtosis.
    """
    r, n, backend = samples.n_samples, samples.n_features, samples.backend
    b = min(r, max(TEST_ROWS, MAX_VALUES // n))
    index = np.arange(r) if b == r else np.sort(np.random.default_rng(0).choice(r, b, replace=False))
    index, step = index.astype(np.int64, copy=False), count_thinned(b)
    if backend.prefers_products and isinstance(samples, ArrayDataset):
        taken = take_as(samples, index, "float64")
        white = taken if samples.white else whitening.move_to(backend).whiten(taken)
        weighted = white * backend.xp.sum(white * white, axis=1, keepdims=True)
        axes = backend.xp.linalg.eigh(weighted.T @ white)[1]
        return np.ascontiguousarray(to_numpy(white[::step, :])), axes.T + 0.0
    n_rows = step * max(1, max(MIN_PART_ROWS, MAX_VALUES // 8 // n) // step)
    parts, moments = [], 0.0
    for first in range(0, b, n_rows):  # part by part, which caches hold
        part = to_numpy(samples.take(index[first : first + n_rows]))
        rows = to_numpy(whitening.whiten(part.astype(np.float64, copy=False)))
        moments = moments + (rows * np.einsum("bi,bi->b", rows, rows)[:, None]).T @ rows
        parts.append(rows[::step])
    axes = find_principal_axes(np.asarray(moments), backend)[1]
    return np.concatenate(parts), backend.asarray(axes[:, ::-1].T, "float64")


def normalize_rows(rows: Array, loudness: Loudness | None) -> Array:
    """Drawn samples in whitened coordinates, normalised if asked."""
    return rows if loudness is None else loudness.normalize(rows)


def estimate_crossed(objective: Objective, Z: Array) -> NDArray[np.float64]:
    """E g_i' z_j^2 (m, m) of codes Z (b, m) that depend on each other."""
    z2, xp = Z * Z, Backend.of(Z).xp
    if isinstance(objective, MixtureLikelihood):
        slope = objective.compute_slopes(Z)
    elif objective == Lp(1.0):
        slope = 1 - 1 / ((z2 + 1) * xp.sqrt(z2 + 1))
    else:
        slope = compute_derivatives(objective, Z)[1]
    return to_numpy(slope.T @ z2) / int(Z.shape[0])
