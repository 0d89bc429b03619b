"""The quick road: from few samples to all, with as few looks at all of them as the error bar allows.

The l_p answer and its refinement come to rest on a few of the samples; a Newton step on all of them then removes most
of the error that the few left. If the evidence on all samples is for the refined answer, that is all; otherwise the
l_p answer is sought on all samples, and what follows is the same as without this road.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from elldict.backend.base import Array, to_numpy, total
from elldict.data.dataset import Dataset
from elldict.data.statistics import Whitening
from elldict.data.subsample import GROWTH, Minibatches, Subsampler
from elldict.result import Iteration, Solution
from elldict.solver.code_subsample import CodeSubsample
from elldict.solver.directions import PairwiseNewton, pairwise_angles
from elldict.solver.loop import FitLog, Phase, Problem, mean_error, run_phase, solve, solve_from, sparsity
from elldict.solver.model_selection import AS_ASKED, EXACT, Decision, error_bar, exact, hausman
from elldict.solver.objective import Lp, Objective, Quantities, Statistics, WithSecondary, code_moments, primary_of
from elldict.solver.refine import Estimate, Refiner, few_samples, law_of, make_estimate, secondary
from elldict.solver.spike_slab import SpikeSlabLikelihood
from elldict.theory import chance

Starts = Iterable[NDArray[np.float64]]
Outcome = tuple[Estimate, tuple[Iteration, ...]]

SMALL_ERROR = 0.08
"""Error bar of l_p from which its answer is good enough to refine, and to look at more samples."""

FINAL_NOISE_FRACTION = 0.25
"""Steps on all samples that are this share of what the error bar leaves in doubt are the last."""

MOST_LOOKS = 8
MOST_STEPS = 50
"""On all samples, and on fewer."""

SUBSAMPLE_NOISE_FRACTION = 0.3
LP_SUBSAMPLE_NOISE_FRACTION = 0.6
"""The same on fewer samples, where what is left is left to the next level; and of l_p, where it is left to the
likelihood."""

LIKELY, UNLIKELY = 0.75, 1.5
"""Error bars that are expected of a level, relative to a small one. Those of batches, from where they are expected, are
too large by up to a third."""

LEAST_SCORE = 5.0
"""Standard errors by which codes have to be sparser than Gaussian ones for steps on batches to lead anywhere."""

LARGEST_P = 6.0
"""Beyond, few samples decide, and the power step takes as few iterations."""

LP_CURVATURE = 0.15
LP_NOISE_FRACTION = 0.02
"""From a random start, curvature needs a higher floor than close to the truth."""


@dataclass(frozen=True)
class FitContext:
    """What a fit is about."""

    samples: Dataset
    whitening: Whitening
    log: FitLog
    phases: Sequence[Phase]  # of l_p
    rng: np.random.Generator
    refine: str | None
    draw_seed: int
    n_starts: int = 1

    @cached_property
    def drawn(self) -> CodeSubsample:
        """Samples drawn from all, the same ones whatever phases came before."""
        return CodeSubsample.draw(self.samples, self.whitening, np.random.default_rng(self.draw_seed))

    def estimate(self, pilot: Solution, problem: Problem) -> Estimate:
        """The l_p answer on all samples, refined if asked."""
        drawn = self.drawn
        if self.refine is None:
            return make_estimate(pilot, drawn)
        return Refiner(problem, drawn, self.phases[-1], self.rng).estimate(pilot, self.refine)


def solved(context: FitContext, starts: Starts) -> Outcome:
    """All samples in every iteration."""
    pilot, history = solve(context.samples, context.whitening, context.phases, starts, context.log)
    problem = Problem(context.samples, context.whitening.move_to(context.samples.backend), context.log)
    problem.start, problem.first_phase = pilot.iterations[-1].start, len(context.phases)
    problem.iterations.extend(pilot.iterations)
    return context.estimate(pilot, problem), (*history, *problem.iterations[len(pilot.iterations) :])


def quickly_solved(context: FitContext, starts: Starts) -> Outcome:
    """Few samples first."""
    road = Schedule(context, Subsampler(context.samples, context.rng, several=context.n_starts > 1))
    pilot, problem, history = road.pilot(starts)
    n_seen = sum(iteration.start == problem.start for iteration in history)
    estimate = None
    if road.hopeful:
        estimate = road.refined(pilot, problem, on_evidence=context.refine == "auto")
    if estimate is None:
        estimate = context.estimate(*road.on_all(pilot, problem))
    return estimate, (*history, *problem.iterations[n_seen:])


@dataclass
class Schedule:
    """A fit on its way from few samples to all."""

    context: FitContext  # its stages by Newton's step
    subsampler: Subsampler

    def pilot(self, starts: Starts) -> tuple[Solution, Problem, tuple[Iteration, ...]]:
        """The l_p answer on as few samples as give it a small error bar; the run it belongs to, and all iterations."""
        level = self.subsampler.begin()
        pilot, history = solve(
            level,
            self.context.whitening,
            self._stages_on(level),
            starts,
            self.context.log,
            self._share(level),
            self._score if isinstance(level, Minibatches) else None,
        )
        problem = self._run_on(level, pilot)
        while (
            level is not self.context.samples
            and not pilot.stopped
            and (isinstance(level, Minibatches) or not small(pilot))
        ):
            level = self._after(level, pilot)
            problem = replace(problem, samples=level, share=self._share(level), first_phase=problem.first_phase + 1)
            pilot = solve_from(pilot.A, problem, self._stages_on(level)[-1:])
        return pilot, problem, history

    def _score(self, end: Solution) -> float:
        """Objective by which starts are compared: on samples that none of them has seen.

        Each start saw other samples last, and those that it saw speak for it.
        """
        level = self.subsampler.held_out()
        problem = Problem(level, self.context.whitening.move_to(level.backend), self.context.log, self._share(level))
        return problem.evaluate(end.A, end.objective, Quantities.MOMENTS, self.context.phases[-1].precision).mean_value

    def _after(self, level: Dataset, pilot: Solution) -> Dataset:
        """What to look at next: after batches that led somewhere, as many samples as give a small error bar."""
        size = level.n_samples
        if not isinstance(level, Minibatches):
            return self.subsampler.level(GROWTH * size)
        if not pilot.converged:
            return self.subsampler.batches(2 * size) or self.subsampler.level(GROWTH * size)
        error = float(mean_error(pilot.stats)) * pilot.stats.weight
        sizes = [candidate for candidate in self.subsampler.sizes if candidate >= size]
        likely = [candidate for candidate in sizes if error < LIKELY * SMALL_ERROR * candidate]
        if not likely and sizes and error < UNLIKELY * SMALL_ERROR * sizes[-1]:
            likely = sizes[-1:]  # worth a try, since all samples cost more
        return self.subsampler.level(likely[0]) if likely else self.context.samples

    def on_all(self, pilot: Solution, problem: Problem) -> tuple[Solution, Problem]:
        """The l_p answer on all samples."""
        if pilot.stopped or (problem.samples is self.context.samples and not self.hopeful):
            return pilot, problem
        problem = replace(problem, samples=self.context.samples, share=1.0, first_phase=problem.first_phase + 1)
        return solve_from(pilot.A, problem, self.context.phases[-1:]), replace(
            problem, first_phase=problem.first_phase + 1
        )

    def refined(self, pilot: Solution, problem: Problem, *, on_evidence: bool) -> Estimate | None:
        """The refined answer by the quick road, or None if it leads nowhere."""
        m, k = pilot.A.shape
        r, n = problem.samples.n_samples, problem.samples.n_features
        if pilot.stopped or m < k or not small(pilot) or few_samples(r, n):
            return None
        later = problem.samples is not self.context.samples
        few = Refiner(
            problem,
            self._witnesses_of(problem.samples),
            self.context.phases[-1],
            self.context.rng,
            SUBSAMPLE_NOISE_FRACTION,
            skip_final_evaluation=later and not problem.samples.backend.on_gpu,
        )
        found = self._found_on(problem.samples, few, pilot)
        if found is None or found.stopped:
            return None if found is None else stopped_at(pilot, few.drawn, found.status)
        everything = replace(problem, samples=self.context.samples, share=1.0, first_phase=problem.first_phase + later)
        phase = self._last_stage(found, pilot, few.drawn, problem.samples)
        end = run_phase(everything, 0, phase, found.A)
        if end.stopped:
            return stopped_at(pilot, few.drawn, end.status)
        if end.stats.secondary is None:
            stats = everything.evaluate(
                end.A, WithSecondary(end.objective, pilot.objective), phase.quantities, phase.precision
            )
            end = replace(end, stats=stats)
        model = self.context.drawn.fitted(end.A)
        decision = EXACT if exact(model, end.stats.weight) else AS_ASKED
        if on_evidence and not decision.exact:
            decision = self._evidence(end.stats, end.A)
        doubtful = few.drawn.mixed_pairs(end.A, model) or (
            on_evidence and not decision.exact and few.suspicious(end.A, model)
        )
        if not (end.converged and decision.accepted) or doubtful:
            return None
        estimate = replace(found, A=end.A, stats=end.stats, status=end.status)
        return few.refined(estimate, secondary(end.stats), model, "bernoulli-gaussian", decision.reason)

    def _found_on(self, level: Dataset, few: Refiner, pilot: Solution) -> Solution | None:
        """The refined answer on the samples of a level, or None; on all of them, where to begin."""
        if level is self.context.samples:
            return replace(pilot, objective=SpikeSlabLikelihood(few.drawn.rough(pilot.A)))
        found = few.climbed(pilot)  # which takes mixed pairs apart as well
        if found.stopped:
            return found
        if not found.converged or few.drawn.mixed_pairs(found.A, law_of(found)):
            return None
        return replace(found, objective=few.drawn.refit_freely(found.objective, found.A, 0.0))  # atoms are at rest

    def _witnesses_of(self, level: Dataset) -> CodeSubsample:
        if level is self.context.samples:
            return self.context.drawn
        return CodeSubsample.draw(level, self.context.whitening, self.context.rng)

    def _last_stage(self, found: Solution, pilot: Solution, drawn: CodeSubsample, level: Dataset) -> Phase:
        """Newton's steps on all samples, with l_p beside at the last look, for the evidence.

        The first look is not the last unless the answer on fewer samples is exact: all samples move it by more than
        they leave in doubt. So l_p, a third of the price, is left out there. A card looks at both in one go.
        """

        def refit(before: Objective, A: Array, moved: float) -> Objective:
            old = primary_of(before)
            new = drawn.refit(old, A, moved)
            return before if isinstance(before, WithSecondary) and new is old else WithSecondary(new, pilot.objective)

        at_once = level.backend.on_gpu or exact(law_of(found), level.n_samples)
        return Phase(
            WithSecondary(found.objective, pilot.objective) if at_once else found.objective,
            PairwiseNewton(),
            self.context.phases[-1].precision,
            self.context.phases[-1].tol,
            min(self.context.phases[-1].max_iter, MOST_LOOKS),
            quantities=Quantities.GRADIENT | Quantities.MOMENTS,
            refit=refit,
            objective_slack=1e-3,
            noise_fraction=FINAL_NOISE_FRACTION,
        )

    def _evidence(self, stats: Statistics, A: Array) -> Decision:
        """Hausman's test, the l_p answer on all samples taken to be a Newton step away."""
        lp = secondary(stats)
        between = pairwise_angles(lp, stats.secondary, A, 0.1) - pairwise_angles(stats, stats.G, A, 0.1)
        return hausman(code_moments(lp), stats, 2 * total(between * between) / int(A.shape[0]))

    def _stages_on(self, level: Dataset) -> list[Phase]:
        """Stages for a level; if they do not end soon, samples are too few."""
        if level is self.context.samples:
            return [
                replace(phase, noise_fraction=SUBSAMPLE_NOISE_FRACTION if self.hopeful else phase.noise_fraction)
                for phase in self.context.phases
            ]
        most = min(self.context.phases[-1].max_iter, MOST_STEPS)
        if isinstance(level, Minibatches):
            return [replace(phase, max_iter=most, minibatches=True, give_up=unseen) for phase in self.context.phases]
        # a card begins with a level, which is then all that l_p sees; and it writes over the sums of the last look
        on_gpu = level.backend.on_gpu
        noise_fraction = SUBSAMPLE_NOISE_FRACTION if on_gpu else LP_SUBSAMPLE_NOISE_FRACTION
        phases = [
            replace(
                phase,
                max_iter=most,
                noise_fraction=noise_fraction,
                give_up=like_noise,
                skip_final_evaluation=not on_gpu,
            )
            for phase in self.context.phases
        ]
        return [replace(phase, precision=coarse(phase.precision, level)) for phase in phases]

    @property
    def hopeful(self) -> bool:
        """Whether a refinement is tried, so that the l_p answer need not be a fine one."""
        return self.context.refine in ("auto", "bernoulli-gaussian")

    def _run_on(self, level: Dataset, pilot: Solution) -> Problem:
        start = pilot.iterations[-1].start
        problem = Problem(
            level,
            self.context.whitening.move_to(level.backend),
            self.context.log,
            self._share(level),
            start,
            len(self.context.phases),
        )
        problem.iterations.extend(pilot.iterations)
        return problem

    def _share(self, level: Dataset) -> float:
        return level.n_samples / self.context.samples.n_samples


def like_noise(stats: Statistics) -> bool:
    """Whether no code is sparser than Gaussian noise looks after the same search: samples are too few to find any."""
    magnitude, z2 = (to_numpy(total) / stats.weight for total in (stats.extra["magnitude"], stats.z2))
    score = chance.sparsity_score(magnitude, z2, stats.weight)
    return bool(np.max(score) < chance.chance_score(len(score)))


def unseen(stats: Statistics) -> bool:
    """Whether codes of samples that A has never seen are no sparser than Gaussian ones: such batches are too small.

    Any mixture of sparse codes is a little sparser, atoms or not.
    """
    return sparsity(stats) < LEAST_SCORE


def coarse(precision: str, level: Dataset) -> str:
    """Precision of products that are only to come close: on a graphics card, that of its fast ones."""
    return "tfloat32" if precision == "float32" and level.backend.on_gpu else precision


def small(pilot: Solution) -> bool:
    """Whether the error bar of an l_p answer is small."""
    return error_bar(code_moments(pilot.stats), pilot.stats.weight) < SMALL_ERROR


def stopped_at(pilot: Solution, drawn: CodeSubsample, status: str) -> Estimate:
    """The l_p answer of a fit that was stopped before its refinement could be judged."""
    return replace(make_estimate(pilot, drawn), stopped=True, converged=False, status=f"{status}; kept l_p")


def by_newton(phase: Phase) -> Phase:
    """The same l_p stage with Newton's step, ending when that is of no more use."""
    assert isinstance(phase.objective, Lp)
    if phase.objective.p > LARGEST_P:
        return replace(phase, quantities=Quantities.GRADIENT | Quantities.MOMENTS)
    step = PairwiseNewton(least_curvature=LP_CURVATURE)
    return replace(
        phase, step=step, quantities=Quantities.GRADIENT | Quantities.MOMENTS, noise_fraction=LP_NOISE_FRACTION
    )
