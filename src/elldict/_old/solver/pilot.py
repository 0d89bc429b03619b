"""The l_p estimate: minibatches, then subsamples, then all samples, as few as give it a small error bar."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from elldict._old.backend.base import NUMPY, Array, Backend
from elldict._old.backend.matrices import take_rows
from elldict._old.data.dataset import Dataset
from elldict._old.data.subsample import GROWTH, Minibatches, Subsampler
from elldict._old.data.whitening import Whitening
from elldict._old.result import Estimate, Iteration
from elldict._old.solver.code_subsample import CodeSubsample
from elldict._old.solver.directions import FAR_CURVATURE, PairwiseNewton, random_orthonormal
from elldict._old.solver.evaluate import Statistics, score_sparsity
from elldict._old.solver.law_tests import LawTests
from elldict._old.solver.loop import (
    DEFAULT_TOL,
    LOST_ERROR,
    NOISE_FRACTION,
    FitLog,
    Phase,
    Problem,
    mean_error,
    measure_sparsity,
    rms_standard_error,
    run_phases,
    run_starts,
)
from elldict._old.solver.model_selection import error_bar
from elldict._old.solver.objective import Lp, Quantities
from elldict._old.solver.refine import Refinement
from elldict._old.solver.sample_size import ENOUGH, count_needed_samples, is_worth_a_look
from elldict._old.theory.error_bars import SURE_SCORE, chance_score, find_gaussian

Starts = Iterable[NDArray[np.float64]]

SUBSAMPLE_NOISE_FRACTION = 0.3
"""Share of the standard error below which steps on a subsample are the last: the rest is left to more samples. Twice
that for l_p there, where the rest is left to the likelihood too."""

MAX_SUBSAMPLE_STEPS, MAX_SMALL_BATCH_STEPS = 50, 25
"""Iterations on some of the samples after which they are too few; and on minibatches, if larger ones take no longer."""

SMALL_ERROR = 0.08
"""Error bar of l_p from which its estimate is good enough to refine, and to evaluate more samples."""

LIKELY = 0.75
"""Error bar that is expected of a subsample, relative to a small one, up to which it is tried. Those of minibatches,
from which they are expected, are too large by up to a third. The largest subsample is tried up to twice that."""

MIN_MINIBATCH_SCORE = 5.0
"""Standard errors by which codes have to be sparser than Gaussian ones for steps on minibatches to lead anywhere."""

LOOK_AFTER = 25
"""Steps on all samples after which codes are looked at: if they follow no spike-and-slab law, l_p leads nowhere."""

MAX_NEWTON_EXPONENT = 6.0
"""Beyond, few samples decide, and the power step takes as few iterations."""


@dataclass(frozen=True)
class FitContext:
    """What a fit is about."""

    samples: Dataset
    whitening: Whitening
    log: FitLog
    phases: Sequence[Phase]  # of l_p
    rng: np.random.Generator
    refine: str | None
    drawn: CodeSubsample
    n_starts: int = 1
    normalize: str | None = None

    def choose(self, pilot: Estimate, problem: Problem) -> Estimate:
        """The l_p estimate on all samples, refined if asked."""
        if self.refine is None:
            return self.drawn.complete(pilot)
        return Refinement(problem, self.drawn, self.phases[-1], self.rng).choose(pilot, self.refine)


@dataclass(frozen=True)
class PilotSearch:
    """Seeks the l_p estimate: on few samples first, then on more."""

    context: FitContext  # its phases by Newton's step
    subsampler: Subsampler

    @cached_property
    def tests(self) -> LawTests:
        """Of the codes of drawn samples."""
        context = self.context
        return LawTests(context.drawn, context.whitening, context.samples.n_samples, context.rng)

    @property
    def tests_laws(self) -> bool:
        """Whether codes are tested for another law than that of the refinement."""
        return self.context.refine == "auto" and self.tests.can_apply

    def refuses_law(self, pilot: Estimate, problem: Problem) -> bool:
        """Whether codes follow another law; those of atoms that have not settled on few samples tell nothing."""
        settled = problem.samples is self.context.samples or pilot.converged
        return self.tests_laws and settled and self.tests.refuses_law(pilot)

    @property
    def will_refine(self) -> bool:
        """Whether a refinement is tried, so that the l_p estimate need not be a fine one."""
        return self.context.refine in ("auto", "bernoulli-gaussian")

    def run_pilot(self, starts: Starts) -> tuple[Estimate, Problem, list[Iteration], int]:
        """The l_p estimate on as few samples as give it a small error bar.

        Also its problem, the iterations of all starts before one was chosen, and how many of them are its own.
        """
        context = self.context
        samples = self.subsampler.begin()
        score = self._score_held_out if isinstance(samples, Minibatches) else None
        phases, share = self._make_phases(samples), self._share_of(samples)
        phases = [self._cut_short(phase, samples) for phase in phases]
        pilot, problem, history = run_starts(samples, context.whitening, phases, starts, context.log, share, score)
        n_before = len(problem.iterations)
        if samples is not context.samples and not pilot.stopped and self._needs_more_samples(pilot):
            problem = self._move_to(context.samples, problem)
            return self._give_up(pilot, problem), problem, history, n_before
        pilot = self._seek_less_sparse(pilot, problem, phases[-1])
        while samples is not context.samples and not pilot.stopped:
            if not isinstance(samples, Minibatches) and (is_small(pilot) or self.refuses_law(pilot, problem)):
                break
            samples = self._choose_next(samples, pilot)
            problem = self._move_to(samples, problem)
            phase = self._cut_short(self._make_phases(samples)[-1], samples)
            pilot = self._seek_less_sparse(run_phases(pilot.A, problem, [phase]), problem, phase)
        phase = self._make_phases(samples)[-1]
        going_on = self._cut_short(phase, samples) is not phase and not (pilot.converged or pilot.stopped)
        if going_on and not self.refuses_law(pilot, problem):
            problem = replace(problem, first_phase=problem.first_phase + 1)
            pilot = run_phases(pilot.A, problem, [replace(phase, max_iter=phase.max_iter - LOOK_AFTER)])
        return pilot, problem, history, n_before

    def _needs_more_samples(self, pilot: Estimate) -> bool:
        """Whether the first samples show no atom, and all of them are too few to find any; told of long fits only."""
        context, (m, k) = self.context, pilot.A.shape
        r = context.samples.n_samples
        if is_on_the_way(pilot) or m < k or not is_worth_a_look(r, int(k)):
            return False
        return r < count_needed_samples(context.drawn) and looks_gaussian(pilot.stats)

    def _give_up(self, pilot: Estimate, problem: Problem) -> Estimate:
        """The l_p estimate as it is, evaluated on all samples, with what it would take."""
        precision = self._make_phases(self.context.samples)[-1].precision
        stats = problem.evaluate(pilot.A, pilot.objective, Quantities.MOMENTS, precision)
        needed = ENOUGH * count_needed_samples(self.context.drawn)
        status = (
            f"stopped after {pilot.n_iter} iterations: the first gradients lie within their noise, and about "
            f"{needed:.2g} samples would be needed"
        )
        return replace(pilot, stats=stats, status=status, given_up=True)

    def _cut_short(self, phase: Phase, samples: Dataset) -> Phase:
        """The phase with so few steps on all samples that codes can be looked at before the others are taken."""
        if samples is not self.context.samples or not self.tests_laws or phase.max_iter <= LOOK_AFTER:
            return phase
        return replace(phase, max_iter=LOOK_AFTER)

    def _seek_less_sparse(self, pilot: Estimate, problem: Problem, phase: Phase) -> Estimate:
        """The l_p estimate, again with a negative sign of the atoms that look Gaussian if that leaves fewer of them.

        Directions that hold less sparse codes alone have maxima of l_p where their mixtures look Gaussian. These atoms
        begin at a random rotation of each other, where chance has no part in how they look.
        """
        objective = phase.objective
        # steps on minibatches that were too few, and lead somewhere, go on with larger ones
        goes_on = phase.minibatches and not (pilot.converged or looks_gaussian_unseen(pilot.stats))
        if pilot.stopped or goes_on or not (isinstance(objective, Lp) and objective.signed):
            return pilot
        which = np.flatnonzero(look_gaussian(pilot, unseen=phase.minibatches))
        if len(which) < 2:
            return pilot
        A = rotate_rows(pilot.A, which, self.context.rng)
        phase = replace(phase, objective=replace(objective, if_in_doubt=-1.0))
        other = run_phases(A, problem, [phase])
        if other.stopped or np.sum(look_gaussian(other, unseen=phase.minibatches)) < len(which):
            return replace(other, objective=pilot.objective)
        return replace(pilot, n_iter=other.n_iter)

    def _make_phases(self, samples: Dataset) -> list[Phase]:
        """Phases of l_p on some samples; if they do not end soon, samples are too few."""
        phases, few_calls = list(self.context.phases), samples.backend.prefers_few_calls
        options: dict[str, Any] = {"max_iter": min(phases[-1].max_iter, MAX_SUBSAMPLE_STEPS)}
        if samples is self.context.samples:
            if not self.will_refine:
                return phases
            # what refines this estimate, or seeks it again, makes products in full
            coarse = samples.backend.coarse_precision(phases[-1].precision)
            options = {"noise_fraction": SUBSAMPLE_NOISE_FRACTION, "precision": coarse}
        elif isinstance(samples, Minibatches):
            options |= {"minibatches": True, "give_up": looks_gaussian_unseen}
            if self.subsampler.are_small(samples.n_samples):
                options["max_iter"] = min(phases[-1].max_iter, MAX_SMALL_BATCH_STEPS)
            options["precision"] = samples.backend.coarse_precision(phases[-1].precision)
        else:
            # a device that begins with a subsample settles l_p there, and writes over the statistics of the last pass
            fraction = SUBSAMPLE_NOISE_FRACTION if few_calls else 2 * SUBSAMPLE_NOISE_FRACTION
            options |= {"noise_fraction": fraction, "give_up": looks_gaussian, "skip_final_evaluation": not few_calls}
            options["precision"] = samples.backend.coarse_precision(phases[-1].precision)
        for number, phase in enumerate(phases):  # digits beyond the default are left to the final phase
            if isinstance(phase.direction, PairwiseNewton):
                options["direction"] = phase.direction.make_coarse(options["precision"])
            phases[number] = replace(phase, tol=max(phase.tol, DEFAULT_TOL), **options)
        return phases

    def _choose_next(self, samples: Dataset, pilot: Estimate) -> Dataset:
        """Samples to evaluate next: after minibatches that led somewhere, as many as give a small error bar."""
        size, subsampler = samples.n_samples, self.subsampler
        if not isinstance(samples, Minibatches):
            return subsampler.subsample(GROWTH * size)
        if not is_on_the_way(pilot):  # it tells no number of samples
            return subsampler.minibatches(subsampler.grow_batch(size)) or subsampler.subsample(GROWTH * size)
        error = float(mean_error(pilot.stats)) * pilot.stats.weight
        largest = 0
        for candidate in subsampler.sizes:
            if candidate >= size:
                largest = candidate
                if error < LIKELY * SMALL_ERROR * candidate:
                    return subsampler.subsample(candidate)
        if error < 2 * LIKELY * SMALL_ERROR * largest:  # worth a try, since all samples cost more
            return subsampler.subsample(largest)
        return self.context.samples

    def _score_held_out(self, end: Estimate) -> float:
        """Objective by which starts are compared: on samples that none of them has seen.

        Each start saw other samples last, and is better on those that it saw.
        """
        samples = self.subsampler.held_out()
        whitening = self.context.whitening.move_to(samples.backend)
        problem = Problem(samples, whitening, self.context.log, self._share_of(samples))
        return problem.evaluate(end.A, end.objective, Quantities.MOMENTS, self.context.phases[-1].precision).mean_value

    def _move_to(self, samples: Dataset, problem: Problem) -> Problem:
        """The same start on other samples, a phase later."""
        return replace(problem, samples=samples, share=self._share_of(samples), first_phase=problem.first_phase + 1)

    def _share_of(self, samples: Dataset) -> float:
        return samples.n_samples / self.context.samples.n_samples


def rotate_rows(A: Array, which: NDArray[np.int64], rng: np.random.Generator) -> Array:
    """A (m, k) with some of its rows replaced by a random rotation of them."""
    own = Backend.of(A)
    backend = own if own.prefers_products else NUMPY
    A = backend.asarray(A, "float64")
    others = np.setdiff1d(np.arange(int(A.shape[0])), which)
    rotated = random_orthonormal(len(which), len(which), rng, backend) @ take_rows(A, which)
    both = backend.xp.concat([rotated, take_rows(A, others)], axis=0)
    return own.asarray(take_rows(both, np.argsort(np.concatenate([which, others]))), "float64")


def use_newton(phase: Phase, *, signed: bool) -> Phase:
    """The same l_p phase with Newton's step, and signs of atoms, ending when that is of no more use."""
    assert isinstance(phase.objective, Lp)
    quantities = Quantities.GRADIENT | Quantities.MOMENTS
    if phase.objective.p > MAX_NEWTON_EXPONENT:
        return replace(phase, quantities=quantities)
    objective, direction = replace(phase.objective, signed=signed), PairwiseNewton(least_curvature=FAR_CURVATURE)
    return replace(
        phase, objective=objective, direction=direction, quantities=quantities, noise_fraction=NOISE_FRACTION
    )


def is_on_the_way(pilot: Estimate) -> bool:
    """Whether steps on minibatches ended where samples tell a maximum from others."""
    return pilot.converged and 0 < rms_standard_error(pilot.stats) < LOST_ERROR


def is_small(pilot: Estimate) -> bool:
    """Whether the error bar of an l_p estimate is small."""
    return error_bar(pilot.stats.moments, pilot.stats.weight) < SMALL_ERROR


def look_gaussian(pilot: Estimate, *, unseen: bool) -> NDArray[np.bool_]:
    """Which atoms of an l_p estimate have codes that look Gaussian; atoms were not sought in `unseen` samples."""
    scores = score_sparsity(pilot.stats)
    return scores < SURE_SCORE if unseen else find_gaussian(scores, int(pilot.A.shape[1]))


def looks_gaussian(stats: Statistics) -> bool:
    """Whether no code is sparser than Gaussian noise looks after the same search: samples are too few to find any."""
    scores = score_sparsity(stats)
    return bool(np.max(scores) < chance_score(len(scores)))


def looks_gaussian_unseen(stats: Statistics) -> bool:
    """Whether codes of samples that A has never seen are no sparser than Gaussian ones: minibatches are too small.

    Any mixture of sparse codes is a little sparser, atoms or not.
    """
    return measure_sparsity(stats) < MIN_MINIBATCH_SCORE
