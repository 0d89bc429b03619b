"""The schedule of a fit: minibatches, then subsamples, then all samples, then refinement.

The l_p estimate and its refinement settle on a few of the samples; a Newton step on all of them then removes most of
the error that the few left. If the evidence on all samples is for the refined estimate, that is all; otherwise the l_p
estimate is sought on all samples, and what follows is the same as without subsamples.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from elldict._old.backend.base import Array, total
from elldict._old.data.dataset import Dataset, is_white
from elldict._old.data.subsample import Subsampler
from elldict._old.data.whitening import MIN_BLUR
from elldict._old.result import Estimate, Iteration
from elldict._old.solver.code_subsample import CodeSubsample
from elldict._old.solver.corruption import suspects_corruption
from elldict._old.solver.directions import PairwiseNewton, leave_out, pairwise_angles
from elldict._old.solver.evaluate import Statistics, find_unidentifiable
from elldict._old.solver.law_tests import has_few_samples
from elldict._old.solver.loop import (
    DEFAULT_TOL,
    Phase,
    Problem,
    run_phase,
    run_phases,
    run_starts,
)
from elldict._old.solver.model_selection import AS_ASKED, EXACT, Decision, apply_hausman_test, is_exact
from elldict._old.solver.objective import Lp, Quantities, WithSecondary, primary_of
from elldict._old.solver.pilot import LOOK_AFTER, SUBSAMPLE_NOISE_FRACTION, FitContext, PilotSearch, Starts, is_small
from elldict._old.solver.refine import LAW_SLACK, Refinement
from elldict._old.solver.robust import SUBSAMPLE_ROWS, RobustEstimator, draw_rows
from elldict._old.solver.spike_slab import MAX_LIKELIHOOD_STEPS, SpikeSlabLikelihood

Outcome = tuple[Estimate, tuple[Iteration, ...]]

FINAL_NOISE_FRACTION = 0.25
"""Share of the standard error below which steps on all samples after a subsample are the last."""

MAX_FINAL_PASSES, MAX_ONLY_PASSES = 8, 20
"""Iterations on all samples after which a refinement leads nowhere, if it was begun on fewer and if not. Codes without
noise take 8 to 13 from the l_p estimate of a few hundred samples."""


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
    will_refine = schedule.will_refine and not schedule.rules_out_refinement(pilot)
    estimate = schedule.refine(pilot, problem) if will_refine else None
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
class Schedule(PilotSearch):
    """A fit on its way from few samples to all: the l_p estimate, its refinement, or that for codes of any law."""

    def rules_out_refinement(self, pilot: Estimate) -> bool:
        """Whether samples differ much in loudness, or differ in it and codes follow no spike-and-slab law."""
        return self.tests_laws and (self.tests.is_very_loud(pilot) or self.tests.refuses_pilot(pilot))

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
        samples, r = context.samples, context.samples.n_samples
        if is_white(samples):
            blurred = context.whitening.measure_blur(r) > MIN_BLUR
        else:
            blurred = context.whitening.bears_fast_products(r)
        return samples.backend.coarse_precision(precision) if blurred else precision

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


def is_exact_estimate(estimate: Estimate) -> bool:
    """Whether an estimate is known to be exact."""
    return estimate.law is not None and is_exact(estimate.law, estimate.stats.weight)


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
