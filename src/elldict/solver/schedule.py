"""The schedule of a fit: minibatches, then subsamples, then all samples, then refinement.

The l_p estimate and its refinement settle on a few of the samples; a Newton step on all of them then removes most of
the error that the few left. If the evidence on all samples is for the refined estimate, that is all; otherwise the l_p
estimate is sought on all samples, and what follows is the same as without subsamples.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from elldict.backend.base import Array, Backend, to_numpy, total
from elldict.data.dataset import Dataset
from elldict.data.statistics import Whitening
from elldict.data.subsample import GROWTH, Minibatches, Subsampler
from elldict.result import Estimate, Iteration
from elldict.solver.code_subsample import CodeSubsample
from elldict.solver.corruption import suspects_corruption
from elldict.solver.directions import FAR_CURVATURE, PairwiseNewton, leave_out, pairwise_angles, random_orthonormal
from elldict.solver.evaluate import Statistics, find_unidentifiable, score_sparsity
from elldict.solver.law_tests import LawTests, has_few_samples
from elldict.solver.loop import (
    DEFAULT_TOL,
    NOISE_FRACTION,
    FitLog,
    Phase,
    Problem,
    mean_error,
    measure_sparsity,
    run_phase,
    run_phases,
    run_starts,
)
from elldict.solver.model_selection import AS_ASKED, EXACT, Decision, apply_hausman_test, error_bar, is_exact
from elldict.solver.objective import Lp, Quantities, WithSecondary, primary_of
from elldict.solver.refine import LAW_SLACK, Refinement
from elldict.solver.robust import SUBSAMPLE_ROWS, RobustEstimator, draw_rows
from elldict.solver.sample_size import count_needed_samples, is_worth_a_look
from elldict.solver.spike_slab import MAX_LIKELIHOOD_STEPS, SpikeSlabLikelihood
from elldict.theory.error_bars import SURE_SCORE, chance_score, find_gaussian

Starts = Iterable[NDArray[np.float64]]
Outcome = tuple[Estimate, tuple[Iteration, ...]]

SMALL_ERROR = 0.08
"""Error bar of l_p from which its estimate is good enough to refine, and to evaluate more samples."""

LIKELY = 0.75
"""Error bar that is expected of a subsample, relative to a small one, up to which it is tried. Those of minibatches,
from which they are expected, are too large by up to a third. The largest subsample is tried up to twice that."""

FINAL_NOISE_FRACTION, SUBSAMPLE_NOISE_FRACTION = 0.25, 0.3
"""Shares of the standard error below which steps are the last: on all samples after a subsample, and on a subsample,
where the rest is left to more samples. Twice that for l_p there, where the rest is left to the likelihood too."""

MAX_FINAL_PASSES, MAX_ONLY_PASSES, MAX_SUBSAMPLE_STEPS = 8, 20, 50
"""Iterations on all samples after which a refinement leads nowhere, if it was begun on fewer and if not, and on fewer
after which they are too few. Codes without noise take 8 to 13 from the l_p estimate of a few hundred samples."""

MIN_MINIBATCH_SCORE = 5.0
"""Standard errors by which codes have to be sparser than Gaussian ones for steps on minibatches to lead anywhere."""

LOOK_AFTER = 25
"""Steps on all samples after which codes are looked at: if they follow no spike-and-slab law, l_p leads nowhere."""

MIN_BLUR = 1e-4
"""Variance of what whitening leaves in codes from which fast products do: rounding them adds 2e-7."""

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


def estimate_on_all(context: FitContext, starts: Starts) -> Outcome:
    """Evaluate all samples in every iteration."""
    pilot, problem, history = run_starts(context.samples, context.whitening, context.phases, starts, context.log)
    n_before = len(problem.iterations)
    estimate = context.choose(pilot, problem)
    return estimate, (*history, *problem.iterations[n_before:])


def estimate_by_subsamples(context: FitContext, starts: Starts) -> Outcome:
    """Evaluate few samples first."""
    schedule = Schedule(context, Subsampler(context.samples, context.rng, several=context.n_starts > 1))
    pilot, problem, history, n_before = schedule.run_pilot(starts)
    if pilot.given_up:
        return context.drawn.complete(pilot), (*history, *problem.iterations[n_before:])
    estimate = schedule.refine(pilot, problem) if schedule.will_refine and not schedule.is_loud(pilot) else None
    refined = estimate or pilot
    tried = not is_exact_estimate(refined) and schedule.refuses_law(refined, problem)
    if tried:
        estimate = schedule.estimate_robustly(refined, problem) or estimate
    if estimate is None:
        estimate = schedule.estimate_on_all(pilot, problem, tried=tried)
    return estimate, (*history, *problem.iterations[n_before:])


def approach_any_law(context: FitContext) -> Outcome:
    """Where l_1 leads atoms of codes of any law, roughly, without an estimate before."""
    robust, start = _prepare_any_law(context)
    return _without_codes(robust.climb_l1(start)), tuple(robust.problem.iterations)


def finish_any_law(context: FitContext, A: Array) -> Outcome:
    """Where the likelihood leads from there."""
    robust, _ = _prepare_any_law(context)
    found = robust.climb_likelihood(A, robust.measure_loudness())
    return _without_codes(found), tuple(robust.problem.iterations)


def _prepare_any_law(context: FitContext) -> tuple[RobustEstimator, Array]:
    schedule = Schedule(context, Subsampler(context.samples, context.rng))
    problem = Problem(context.samples, context.whitening.move_to(context.samples.backend), context.log)
    rows, start = draw_rows(context.samples, context.whitening)
    return schedule.make_robust_estimator(problem, rows), start


def _without_codes(estimate: Estimate) -> Estimate:
    """An estimate whose atoms alone are of interest."""
    return replace(estimate, lp_stats=estimate.stats)


@dataclass(frozen=True)
class Schedule:
    """A fit on its way from few samples to all."""

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

    def is_loud(self, pilot: Estimate) -> bool:
        """Whether samples differ in loudness so much, or in so many ways, that no refinement needs to be tried."""
        return self.tests_laws and (self.tests.is_very_loud(pilot) or self.tests.refuses_pilot(pilot))

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
        if pilot.converged or m < k or not is_worth_a_look(r, int(k)):
            return False
        return r < count_needed_samples(context.drawn) and looks_gaussian(pilot.stats)

    def _give_up(self, pilot: Estimate, problem: Problem) -> Estimate:
        """The l_p estimate as it is, evaluated on all samples, with what it would take."""
        precision = self._make_phases(self.context.samples)[-1].precision
        stats = problem.evaluate(pilot.A, pilot.objective, Quantities.MOMENTS, precision)
        needed = count_needed_samples(self.context.drawn)
        status = (
            f"stopped after {pilot.n_iter} iterations: the first gradients lie within their noise, and about "
            f"{needed:.1g} samples would be needed"
        )
        return replace(pilot, stats=stats, status=status, given_up=True)

    def _cut_short(self, phase: Phase, samples: Dataset) -> Phase:
        """The phase with so few steps on all samples that codes can be looked at before the others are taken."""
        if samples is not self.context.samples or not self.tests_laws or phase.max_iter <= LOOK_AFTER:
            return phase
        return replace(phase, max_iter=LOOK_AFTER)

    def estimate_robustly(self, pilot: Estimate, problem: Problem, *, at_last: bool = False) -> Estimate | None:
        """The estimate for codes of any law; None if the one before it is better.

        Or if atoms are less sparse than Gaussian ones: that of l_p on all samples is a better start for these, where it
        begins `at_last`.
        """
        context, A = self.context, pilot.A
        loud = context.normalize is not None and self.tests.is_loud(A)
        less_sparse = bool(pilot.stats.n_negative) and not loud
        if less_sparse and not at_last:
            return None
        settled = less_sparse or (not loud and is_small(pilot))
        rows, start = draw_rows(context.samples, context.whitening)
        robust = self.make_robust_estimator(self._move_to(context.samples, problem), rows)
        # unless it has settled, a few samples may have decided where it is
        found = robust.estimate(A if settled else start, loud=loud, settled=settled)
        return None if not found.stopped and self.tests.is_worse(found, pilot, rows) else found

    def make_robust_estimator(self, problem: Problem, rows: NDArray[np.float64]) -> RobustEstimator:
        """That of atoms for codes of any law, by drawn samples (b, k)."""
        context = self.context
        subsample = self.subsampler.subsample(max(SUBSAMPLE_ROWS, rows.shape[1] ** 2))
        return RobustEstimator(problem, subsample, rows, context.drawn, context.phases[-1], context.normalize)

    def _seek_less_sparse(self, pilot: Estimate, problem: Problem, phase: Phase) -> Estimate:
        """The l_p estimate, again with a negative sign of the atoms that look Gaussian if that leaves fewer of them.

        Directions that hold less sparse codes alone have maxima of l_p where their mixtures look Gaussian. These atoms
        begin at a random rotation of each other, where chance has no part in how they look.
        """
        objective = phase.objective
        if pilot.stopped or not (isinstance(objective, Lp) and objective.signed):
            return pilot
        which = np.flatnonzero(look_gaussian(pilot, unseen=phase.minibatches))
        if len(which) < 2:
            return pilot
        A, backend = to_numpy(pilot.A).copy(), Backend.of(pilot.A)
        A[which] = random_orthonormal(len(which), len(which), self.context.rng) @ A[which]
        phase = replace(phase, objective=replace(objective, if_in_doubt=-1.0))
        other = run_phases(backend.asarray(A, "float64"), problem, [phase])
        if other.stopped or np.sum(look_gaussian(other, unseen=phase.minibatches)) < len(which):
            return replace(other, objective=pilot.objective)
        return replace(pilot, n_iter=other.n_iter)

    def estimate_on_all(self, pilot: Estimate, problem: Problem, *, tried: bool) -> Estimate:
        """The l_p estimate on all samples, refined if asked.

        Or that for codes of any law, unless it was `tried` before, if l_p does not settle or is kept for want of a law.
        """
        context, phase = self.context, self.context.phases[-1]
        if not (pilot.stopped or (problem.samples is context.samples and not self.will_refine)):
            problem = self._move_to(context.samples, problem)
            short = phase if tried else self._cut_short(phase, context.samples)
            pilot = run_phases(pilot.A, problem, [short])
            problem = replace(problem, first_phase=problem.first_phase + 1)
            if short is not phase and not (pilot.converged or pilot.stopped):
                tried = nowhere = self.tests.refuses_unsettled(pilot)
                if nowhere and self.tests.suspects_corruption(pilot):
                    tried = False  # cleaned samples come first
                found = self.estimate_robustly(pilot, problem, at_last=True) if tried else None
                if found is not None:
                    return found
                if nowhere:
                    note = f"stopped after {LOOK_AFTER} iterations: steps of l_p do not become small"
                    pilot = replace(pilot, status=note)
                else:
                    pilot = run_phases(pilot.A, problem, [replace(phase, max_iter=phase.max_iter - LOOK_AFTER)])
                    problem = replace(problem, first_phase=problem.first_phase + 1)
        estimate = context.choose(pilot, problem)
        if tried or estimate.refined is not None or not self.tests_laws or not self.tests.refuses_kept(estimate):
            return estimate
        return self.estimate_robustly(estimate, problem, at_last=True) or estimate

    def refine(self, pilot: Estimate, problem: Problem) -> Estimate | None:
        """The refined estimate, begun on few samples; None if that leads nowhere."""
        context, few = self.context, problem.samples
        m, k = pilot.A.shape
        if pilot.stopped or m < k or pilot.stats.n_negative or not is_small(pilot) or has_few_samples(few.n_samples, k):
            return None
        on_all = few is context.samples
        drawn = context.drawn if on_all else CodeSubsample.draw(few, context.whitening, context.rng)
        skip = not on_all and not few.backend.prefers_few_calls
        lp_phase = context.phases[-1]
        if not on_all:  # the digits that a small tolerance asks for are left to the final phase
            lp_phase = replace(lp_phase, tol=max(lp_phase.tol, DEFAULT_TOL), precision=self._precision_of_steps)
        refinement = Refinement(problem, drawn, lp_phase, context.rng, SUBSAMPLE_NOISE_FRACTION, skip)
        found = self._find_start(refinement, pilot, on_all=on_all)
        if found is None or found.stopped:
            return None if found is None else _stop_at(pilot, drawn, found.status)
        assert isinstance(found.objective, SpikeSlabLikelihood)
        assert isinstance(pilot.objective, Lp)
        problem = problem if on_all else self._move_to(context.samples, problem)
        phase = self._make_final_phase(found.objective, pilot.objective, few)
        end = run_phase(problem, 0, phase, found.A)
        if end.stopped:
            return _stop_at(pilot, drawn, end.status)
        if end.stats.secondary is None:
            both = WithSecondary(primary_of(end.objective), pilot.objective)
            end = replace(end, stats=problem.evaluate(end.A, both, phase.quantities, phase.precision))
        law = context.drawn.fit_law(end.A)
        decision = EXACT if is_exact(law, end.stats.weight) else AS_ASKED
        if context.refine == "auto" and not decision.exact:
            decision = _weigh_evidence(end.stats, end.A)
        doubtful = bool(drawn.find_mixed_pairs(end.A, law))
        if not doubtful and context.refine == "auto" and not decision.exact:
            doubtful = suspects_corruption(drawn.rows, problem.whitening, end.A, law, context.rng)
        if doubtful or not (end.converged and decision.accepted):
            return None
        completed = refinement.complete(end, law, decision.reason)
        return refinement.note_hits(completed) if context.refine == "auto" else completed

    @property
    def _precision_of_steps(self) -> str:
        """Precision of the products of a refinement: fast ones where whitening blurs codes by more than these do."""
        context, precision = self.context, self.context.phases[-1].precision
        blurred = context.whitening.measure_blur(context.samples.n_samples) > MIN_BLUR
        return context.samples.backend.coarse_precision(precision) if blurred else precision

    def _find_start(self, refinement: Refinement, pilot: Estimate, *, on_all: bool) -> Estimate | None:
        """The refined estimate on few samples, or None; where these are all there are, only where to begin."""
        drawn = refinement.drawn
        if on_all:
            return replace(pilot, objective=SpikeSlabLikelihood(drawn.fit_start_law(pilot), drawn))
        found = refinement.climb(pilot, asked=self.context.refine != "auto")  # which separates mixed pairs as well
        assert isinstance(found.objective, SpikeSlabLikelihood)
        if found.stopped:
            return found
        if not found.converged or drawn.find_mixed_pairs(found.A, found.objective.law):
            return None
        return replace(found, objective=found.objective.updated(found.A, 0.0))  # atoms have settled

    def _make_final_phase(self, likelihood: SpikeSlabLikelihood, lp: Lp, few: Dataset) -> Phase:
        """Newton's steps on all samples, with l_p as secondary objective at the last, for the evidence.

        The first pass is not the last unless the estimate on fewer samples is exact: all samples move it by more than
        they leave in doubt. So l_p, a third of the price, is left out there, except where both come in one call.
        """
        last = self.context.phases[-1]
        at_once = few.backend.prefers_few_calls or is_exact(likelihood.law, few.n_samples)
        most = MAX_ONLY_PASSES if few is self.context.samples else MAX_FINAL_PASSES
        most = most if last.tol >= DEFAULT_TOL else MAX_LIKELIHOOD_STEPS  # more digits take more passes
        return Phase(
            WithSecondary(likelihood, lp, from_next_step=not at_once),
            PairwiseNewton(),
            last.precision if few is self.context.samples else self._precision_of_steps,
            last.tol,
            min(last.max_iter, most),
            quantities=Quantities.GRADIENT | Quantities.MOMENTS,
            objective_slack=LAW_SLACK,
            noise_fraction=FINAL_NOISE_FRACTION,
        )

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
            options["precision"] = samples.backend.coarse_precision(phases[-1].precision)
        else:
            # a device that begins with a subsample settles l_p there, and writes over the statistics of the last pass
            fraction = SUBSAMPLE_NOISE_FRACTION if few_calls else 2 * SUBSAMPLE_NOISE_FRACTION
            options |= {"noise_fraction": fraction, "give_up": looks_gaussian, "skip_final_evaluation": not few_calls}
            options["precision"] = samples.backend.coarse_precision(phases[-1].precision)
        for number, phase in enumerate(phases):  # digits beyond the default are left to the final phase
            phases[number] = replace(phase, tol=max(phase.tol, DEFAULT_TOL), **options)
        return phases

    def _choose_next(self, samples: Dataset, pilot: Estimate) -> Dataset:
        """Samples to evaluate next: after minibatches that led somewhere, as many as give a small error bar."""
        size, subsampler = samples.n_samples, self.subsampler
        if not isinstance(samples, Minibatches):
            return subsampler.subsample(GROWTH * size)
        if not pilot.converged:
            return subsampler.minibatches(2 * size) or subsampler.subsample(GROWTH * size)
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


def is_exact_estimate(estimate: Estimate) -> bool:
    """Whether an estimate is known to be exact."""
    return estimate.law is not None and is_exact(estimate.law, estimate.stats.weight)


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


def _weigh_evidence(stats: Statistics, A: Array) -> Decision:
    """Hausman's test, the l_p estimate on all samples taken to be a Newton step away."""
    lp = stats.of_secondary()
    between = pairwise_angles(lp, stats.secondary, A, 0.1) - pairwise_angles(stats, stats.G, A, 0.1)
    unidentifiable = find_unidentifiable(lp, int(A.shape[1]))
    between = leave_out(between, unidentifiable)
    return apply_hausman_test(lp.moments, stats, 2 * total(between * between) / int(A.shape[0]), unidentifiable)


def _stop_at(pilot: Estimate, drawn: CodeSubsample, status: str) -> Estimate:
    """The l_p estimate of a fit that was stopped before its refinement was evaluated."""
    if status.startswith("converged"):  # in the same iteration: that is said of the refinement, which is not kept
        status = f"stopped by the callback when the refinement had {status}"
    return replace(drawn.complete(pilot), stopped=True, converged=False, status=f"{status}; kept l_p")
