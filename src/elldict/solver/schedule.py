"""The quick road: from few samples to all, with as few looks at all of them as the error bar allows.

The l_p answer and its refinement come to rest on a few of the samples; a Newton step on all of them then removes most
of the error that the few left. If the evidence on all samples is for the refined answer, that is all; otherwise the
l_p answer is sought on all samples, and what follows is the same as without this road.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from elldict.backend.base import Array, to_numpy, total
from elldict.data.dataset import Samples
from elldict.data.statistics import Frame
from elldict.data.subsample import GROWTH, Batches, Growth
from elldict.result import Iteration, Solution
from elldict.solver.code_subsample import Witnesses
from elldict.solver.directions import PairwiseNewton, pairwise_angles
from elldict.solver.loop import Journal, Run, Stage, mean_error, run_stage, solve, solve_from, sparsity
from elldict.solver.model_selection import AS_ASKED, EXACT, Verdict, error_bar, exact, hausman
from elldict.solver.objective import Both, Contrast, Lp, Needs, Sums, maximised, moments
from elldict.solver.refine import Answer, Refiner, answer_of, beside, few_samples, law_of
from elldict.solver.spike_slab import BernoulliGaussian
from elldict.theory import chance

Starts = Iterable[NDArray[np.float64]]
Outcome = tuple[Answer, tuple[Iteration, ...]]

SMALL_ERROR = 0.08
"""Error bar of l_p from which its answer is good enough to refine, and to look at more samples."""

FINE_ENOUGH = 0.25
"""Steps on all samples that are this share of what the error bar leaves in doubt are the last."""

MOST_LOOKS = 8
MOST_STEPS = 50
"""On all samples, and on fewer."""

COARSE = 0.3
LP_COARSE = 0.6
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
LP_FINE_ENOUGH = 0.02
"""From a random start, curvature needs a higher floor than close to the truth."""


@dataclass(frozen=True)
class Task:
    """What a fit is about."""

    samples: Samples
    frame: Frame
    journal: Journal
    stages: Sequence[Stage]  # of l_p
    rng: np.random.Generator
    refine: str | None
    witness_seed: int
    n_starts: int = 1
    drawn: list[Witnesses] = field(default_factory=list)

    def witnesses(self) -> Witnesses:
        """Witnesses among all samples, the same ones whatever road was taken."""
        if not self.drawn:
            rng = np.random.default_rng(self.witness_seed)
            self.drawn.append(Witnesses.drawn(self.samples, self.frame, rng))
        return self.drawn[0]

    def answer(self, pilot: Solution, run: Run) -> Answer:
        """The l_p answer on all samples, refined if asked."""
        witnesses = self.witnesses()
        if self.refine is None:
            return answer_of(pilot, witnesses)
        return Refiner(run, witnesses, self.stages[-1], self.rng).answer(pilot, self.refine)


def solved(task: Task, starts: Starts) -> Outcome:
    """All samples in every iteration."""
    pilot, history = solve(task.samples, task.frame, task.stages, starts, task.journal)
    run = Run(task.samples, task.frame.moved_to(task.samples.space), task.journal)
    run.start, run.first_stage = pilot.iterations[-1].start, len(task.stages)
    run.iterations.extend(pilot.iterations)
    return task.answer(pilot, run), (*history, *run.iterations[len(pilot.iterations) :])


def quickly_solved(task: Task, starts: Starts) -> Outcome:
    """Few samples first."""
    road = QuickRoad(task, Growth(task.samples, task.rng, several=task.n_starts > 1))
    pilot, run, history = road.pilot(starts)
    n_seen = sum(iteration.start == run.start for iteration in history)
    answer = None
    if road.hopeful:
        answer = road.refined(pilot, run, on_evidence=task.refine == "auto")
    if answer is None:
        answer = task.answer(*road.on_all(pilot, run))
    return answer, (*history, *run.iterations[n_seen:])


@dataclass
class QuickRoad:
    """A fit on its way from few samples to all."""

    task: Task  # its stages by Newton's step
    growth: Growth

    def pilot(self, starts: Starts) -> tuple[Solution, Run, tuple[Iteration, ...]]:
        """The l_p answer on as few samples as give it a small error bar; the run it belongs to, and all iterations."""
        level = self.growth.begun()
        pilot, history = solve(
            level,
            self.task.frame,
            self._stages_on(level),
            starts,
            self.task.journal,
            self._share(level),
            self._score if isinstance(level, Batches) else None,
        )
        run = self._run_on(level, pilot)
        while level is not self.task.samples and not pilot.stopped and (isinstance(level, Batches) or not small(pilot)):
            level = self._after(level, pilot)
            run = replace(run, samples=level, share=self._share(level), first_stage=run.first_stage + 1)
            pilot = solve_from(pilot.A, run, self._stages_on(level)[-1:])
        return pilot, run, history

    def _score(self, end: Solution) -> float:
        """Objective by which starts are compared: on samples that none of them has seen.

        Each start saw other samples last, and those that it saw speak for it.
        """
        level = self.growth.held_out()
        run = Run(level, self.task.frame.moved_to(level.space), self.task.journal, self._share(level))
        return run.look(end.A, end.contrast, Needs.MOMENTS, self.task.stages[-1].precision).objective

    def _after(self, level: Samples, pilot: Solution) -> Samples:
        """What to look at next: after batches that led somewhere, as many samples as give a small error bar."""
        size = level.n_samples
        if not isinstance(level, Batches):
            return self.growth.level(GROWTH * size)
        if not pilot.converged:
            return self.growth.batches(2 * size) or self.growth.level(GROWTH * size)
        error = float(mean_error(pilot.sums)) * pilot.sums.weight
        sizes = [candidate for candidate in self.growth.sizes if candidate >= size]
        likely = [candidate for candidate in sizes if error < LIKELY * SMALL_ERROR * candidate]
        if not likely and sizes and error < UNLIKELY * SMALL_ERROR * sizes[-1]:
            likely = sizes[-1:]  # worth a try, since all samples cost more
        return self.growth.level(likely[0]) if likely else self.task.samples

    def on_all(self, pilot: Solution, run: Run) -> tuple[Solution, Run]:
        """The l_p answer on all samples."""
        if pilot.stopped or (run.samples is self.task.samples and not self.hopeful):
            return pilot, run
        run = replace(run, samples=self.task.samples, share=1.0, first_stage=run.first_stage + 1)
        return solve_from(pilot.A, run, self.task.stages[-1:]), replace(run, first_stage=run.first_stage + 1)

    def refined(self, pilot: Solution, run: Run, *, on_evidence: bool) -> Answer | None:
        """The refined answer by the quick road, or None if it leads nowhere."""
        m, k = pilot.A.shape
        r, n = run.samples.n_samples, run.samples.n_features
        if pilot.stopped or m < k or not small(pilot) or few_samples(r, n):
            return None
        later = run.samples is not self.task.samples
        few = Refiner(
            run,
            self._witnesses_of(run.samples),
            self.task.stages[-1],
            self.task.rng,
            COARSE,
            provisional=later and not run.samples.space.on_gpu,
        )
        found = self._found_on(run.samples, few, pilot)
        if found is None or found.stopped:
            return None if found is None else stopped_at(pilot, few.witnesses, found.status)
        everything = replace(run, samples=self.task.samples, share=1.0, first_stage=run.first_stage + later)
        stage = self._last_stage(found, pilot, few.witnesses, run.samples)
        halt = run_stage(everything, 0, stage, found.A)
        if halt.stopped:
            return stopped_at(pilot, few.witnesses, halt.status)
        if halt.sums.beside is None:
            sums = everything.look(halt.A, Both(halt.contrast, pilot.contrast), stage.need, stage.precision)
            halt = replace(halt, sums=sums)
        model = self.task.witnesses().fitted(halt.A)
        verdict = EXACT if exact(model, halt.sums.weight) else AS_ASKED
        if on_evidence and not verdict.exact:
            verdict = self._evidence(halt.sums, halt.A)
        doubtful = few.witnesses.mixed_pairs(halt.A, model) or (
            on_evidence and not verdict.exact and few.suspicious(halt.A, model)
        )
        if not (halt.converged and verdict.accepted) or doubtful:
            return None
        answer = replace(found, A=halt.A, sums=halt.sums, status=halt.status)
        return few.refined(answer, beside(halt.sums), model, "bernoulli-gaussian", verdict.reason)

    def _found_on(self, level: Samples, few: Refiner, pilot: Solution) -> Solution | None:
        """The refined answer on the samples of a level, or None; on all of them, where to begin."""
        if level is self.task.samples:
            return replace(pilot, contrast=BernoulliGaussian(few.witnesses.rough(pilot.A)))
        found = few.climbed(pilot)  # which takes mixed pairs apart as well
        if found.stopped:
            return found
        if not found.converged or few.witnesses.mixed_pairs(found.A, law_of(found)):
            return None
        return replace(found, contrast=few.witnesses.refit_freely(found.contrast, found.A, 0.0))  # atoms are at rest

    def _witnesses_of(self, level: Samples) -> Witnesses:
        if level is self.task.samples:
            return self.task.witnesses()
        return Witnesses.drawn(level, self.task.frame, self.task.rng)

    def _last_stage(self, found: Solution, pilot: Solution, witnesses: Witnesses, level: Samples) -> Stage:
        """Newton's steps on all samples, with l_p beside at the last look, for the evidence.

        The first look is not the last unless the answer on fewer samples is exact: all samples move it by more than
        they leave in doubt. So l_p, a third of the price, is left out there. A card looks at both in one go.
        """

        def refit(before: Contrast, A: Array, moved: float) -> Contrast:
            old = maximised(before)
            new = witnesses.refit(old, A, moved)
            return before if isinstance(before, Both) and new is old else Both(new, pilot.contrast)

        at_once = level.space.on_gpu or exact(law_of(found), level.n_samples)
        return Stage(
            Both(found.contrast, pilot.contrast) if at_once else found.contrast,
            PairwiseNewton(),
            self.task.stages[-1].precision,
            self.task.stages[-1].tol,
            min(self.task.stages[-1].max_iter, MOST_LOOKS),
            need=Needs.GRADIENT | Needs.MOMENTS,
            refit=refit,
            slack=1e-3,
            resolution=FINE_ENOUGH,
        )

    def _evidence(self, sums: Sums, A: Array) -> Verdict:
        """Hausman's test, the l_p answer on all samples taken to be a Newton step away."""
        lp = beside(sums)
        between = pairwise_angles(lp, sums.beside, A, 0.1) - pairwise_angles(sums, sums.G, A, 0.1)
        return hausman(moments(lp), sums, 2 * total(between * between) / int(A.shape[0]))

    def _stages_on(self, level: Samples) -> list[Stage]:
        """Stages for a level; if they do not end soon, samples are too few."""
        if level is self.task.samples:
            return [
                replace(stage, resolution=COARSE if self.hopeful else stage.resolution) for stage in self.task.stages
            ]
        most = min(self.task.stages[-1].max_iter, MOST_STEPS)
        if isinstance(level, Batches):
            return [replace(stage, max_iter=most, restless=True, hopeless=unseen) for stage in self.task.stages]
        # a card begins with a level, which is then all that l_p sees; and it writes over the sums of the last look
        on_gpu = level.space.on_gpu
        resolution = COARSE if on_gpu else LP_COARSE
        stages = [
            replace(stage, max_iter=most, resolution=resolution, hopeless=like_noise, provisional=not on_gpu)
            for stage in self.task.stages
        ]
        return [replace(stage, precision=coarse(stage.precision, level)) for stage in stages]

    @property
    def hopeful(self) -> bool:
        """Whether a refinement is tried, so that the l_p answer need not be a fine one."""
        return self.task.refine in ("auto", "bernoulli-gaussian")

    def _run_on(self, level: Samples, pilot: Solution) -> Run:
        start = pilot.iterations[-1].start
        run = Run(
            level,
            self.task.frame.moved_to(level.space),
            self.task.journal,
            self._share(level),
            start,
            len(self.task.stages),
        )
        run.iterations.extend(pilot.iterations)
        return run

    def _share(self, level: Samples) -> float:
        return level.n_samples / self.task.samples.n_samples


def like_noise(sums: Sums) -> bool:
    """Whether no code is sparser than Gaussian noise looks after the same search: samples are too few to find any."""
    magnitude, z2 = (to_numpy(total) / sums.weight for total in (sums.extra["magnitude"], sums.z2))
    score = chance.sparsity_score(magnitude, z2, sums.weight)
    return bool(np.max(score) < chance.chance_score(len(score)))


def unseen(sums: Sums) -> bool:
    """Whether codes of samples that A has never seen are no sparser than Gaussian ones: such batches are too small.

    Any mixture of sparse codes is a little sparser, atoms or not.
    """
    return sparsity(sums) < LEAST_SCORE


def coarse(precision: str, level: Samples) -> str:
    """Precision of products that are only to come close: on a graphics card, that of its fast ones."""
    return "tfloat32" if precision == "float32" and level.space.on_gpu else precision


def small(pilot: Solution) -> bool:
    """Whether the error bar of an l_p answer is small."""
    return error_bar(moments(pilot.sums), pilot.sums.weight) < SMALL_ERROR


def stopped_at(pilot: Solution, witnesses: Witnesses, status: str) -> Answer:
    """The l_p answer of a fit that was stopped before its refinement could be judged."""
    return replace(answer_of(pilot, witnesses), stopped=True, converged=False, status=f"{status}; kept l_p")


def by_newton(stage: Stage) -> Stage:
    """The same l_p stage with Newton's step, ending when that is of no more use."""
    assert isinstance(stage.contrast, Lp)
    if stage.contrast.p > LARGEST_P:
        return replace(stage, need=Needs.GRADIENT | Needs.MOMENTS)
    step = PairwiseNewton(least_curvature=LP_CURVATURE)
    return replace(stage, step=step, need=Needs.GRADIENT | Needs.MOMENTS, resolution=LP_FINE_ENOUGH)
