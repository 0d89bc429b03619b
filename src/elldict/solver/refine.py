"""Refinement: maximum likelihood after l_p, if the evidence is for it.

This is not a loop: it sets up a stage for the one there is, and looks at where that ended.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from elldict.backend.base import Array, to_numpy
from elldict.result import Solution
from elldict.solver.amp import CorruptionLaw
from elldict.solver.code_subsample import CodeSubsample
from elldict.solver.corruption import CorruptionSubsample, SparseCorruption, looks_corrupted, solve_corrupted
from elldict.solver.directions import IdleStep, PairwiseNewton
from elldict.solver.loop import Phase, Problem, solve_from
from elldict.solver.mixed_atoms import MixedPair, keep_plain_mixtures
from elldict.solver.model_selection import AS_ASKED, MOST_ERROR, NOTHING_FOUND, error_bar, judge, judge_cleaned
from elldict.solver.objective import Lp, Quantities, Statistics, code_moments
from elldict.solver.spike_slab import SpikeSlab, SpikeSlabLikelihood
from elldict.theory.accuracy import CodeMoments

MOST_REPAIRS = 4
"""Times that mixed pairs are taken apart before they are reported instead."""

FEW_PER_FEATURE = 20
MOST_IDLE_WORK = 2e10
"""Samples a feature, and samples times the cube of features, up to which the idle step is taken."""

MOST_IDLE_STEPS = 40
"""Six are enough where recovery is exact."""

LEAST_IDLE = {"float32": 1e-7, "float64": 1e-15}
"""Variance of idle codes, in units of that of all directions together, that rounding alone produces."""

SMALL_EXPONENTS = (2.5, 2.2)
MOST_SMALL_STEPS = 300

MOST_ITERATIONS = 60
"""Five to twelve are enough where the law is right, and where it is not more are of no use."""

FINAL_NOISE_FRACTION = 0.02
"""Steps that are this share of what the error bar leaves in doubt are the last."""


def likelihood_stages(
    drawn: CodeSubsample, A: Array, lp_stage: Phase, n_samples: int, noise_fraction: float
) -> list[Phase]:
    """Stages that climb the likelihood from A, in the precision and to the tolerance of the l_p stage before them."""
    newton = Phase(
        SpikeSlabLikelihood(drawn.rough(A)),
        PairwiseNewton(),
        lp_stage.precision,
        lp_stage.tol,
        min(lp_stage.max_iter, MOST_ITERATIONS),
        quantities=Quantities.GRADIENT | Quantities.MOMENTS,
        refit=drawn.refit,
        follow=drawn.follow,
        objective_slack=1e-3,
        noise_fraction=noise_fraction,
    )
    if not few_samples(n_samples, int(A.shape[1])):
        return [newton]
    quantities, most = newton.quantities | Quantities.INACTIVE, min(lp_stage.max_iter, MOST_IDLE_STEPS)
    return [
        replace(
            newton,
            step=IdleStep(LEAST_IDLE[lp_stage.precision]),
            quantities=quantities,
            max_iter=most,
            refit=drawn.refit_freely,
            follow=None,
        ),
        newton,
    ]


def few_samples(n_samples: int, n_features: int) -> bool:
    """Whether samples are so few that atoms feel each other, and the idle step is worth and within its price."""
    return n_samples <= FEW_PER_FEATURE * n_features and n_samples * n_features**3 <= MOST_IDLE_WORK


@dataclass(frozen=True)
class Estimate:
    """What a fit found, and what it knows of it."""

    A: Array  # (m, k)
    stats: Statistics  # of the l_p contrast at A
    moments: CodeMoments  # under the contrast that A maximises
    model: SpikeSlab  # law of the codes at A
    refined: str | None
    converged: bool
    stopped: bool
    status: str
    n_iter: int
    corruption: CorruptionLaw | None = None
    mixed: tuple[MixedPair, ...] = ()  # atoms that still seem to be mixed with each other
    dependent: NDArray[np.float64] | None = None  # (m,) error where codes that depend on each other add to it, or zero
    correlated: NDArray[np.float64] | None = None  # (m,) error that shows in codes that are correlated, or zero
    least_error: float = 0.0  # of a fit that was cut off


def make_estimate(pilot: Solution, drawn: CodeSubsample) -> Estimate:
    """The l_p answer as it is."""
    return Estimate(
        A=pilot.A,
        stats=pilot.stats,
        moments=code_moments(pilot.stats),
        model=drawn.fitted(pilot.A),
        refined=None,
        converged=pilot.converged,
        stopped=pilot.stopped,
        status=pilot.status,
        n_iter=len(pilot.iterations),
    )


@dataclass(frozen=True)
class Refiner:
    """All that a refinement needs: a run to continue, witnesses, and the last l_p stage.

    Mixed atoms that are taken apart go through that stage again.
    """

    problem: Problem
    drawn: CodeSubsample
    phase: Phase
    rng: np.random.Generator
    noise_fraction: float = FINAL_NOISE_FRACTION
    skip_final_evaluation: bool = False  # whether the answer is only where to begin on more samples

    def estimate(self, pilot: Solution, wanted: str) -> Estimate:
        """The refined answer, or with 'auto' the l_p answer if the evidence is against it; `status` says why."""
        obstacle = self._obstacle(pilot, wanted)
        if obstacle is not None:
            return self._kept(pilot, obstacle)
        pilot = self.repaired(pilot)
        if wanted == "sparse-corruption":
            return self._corrupted(self._cleaned(pilot), "refined: as asked")
        refined = self.climbed(pilot)
        model = self.drawn.fitted(refined.A)
        mixed = self.drawn.mixed_pairs(refined.A, model)
        decision = AS_ASKED if wanted != "auto" else judge(pilot, refined, model, len(mixed))
        before = self.drawn.fitted(pilot.A)
        if wanted == "auto" and not decision.exact and not refined.stopped and self.suspicious(pilot.A, before):
            other = self._cleaned(pilot)
            evidence = judge_cleaned(pilot, other, before.noise)
            if evidence.accepted and (evidence.error < decision.error or not decision.accepted):
                return self._corrupted(other, evidence.reason)
        if not decision.accepted:
            return replace(self._kept(pilot, decision.reason), stopped=refined.stopped)
        estimate = self.refined(refined, secondary(refined.stats), model, "bernoulli-gaussian", decision.reason)
        return replace(estimate, mixed=keep_plain_mixtures(mixed, self.drawn.few @ to_numpy(refined.A).T))

    def _obstacle(self, pilot: Solution, wanted: str) -> str | None:
        """What stands in the way of a refinement."""
        m, k = pilot.A.shape
        if m < k:
            return f"kept l_p: {m} of {k} directions are sought, and the likelihood needs all"
        if pilot.stopped:
            return "kept l_p: stopped before the refinement"
        if wanted == "sparse-corruption" and self.problem.whitening.to_white is not None:
            return "kept l_p: samples vary in fewer directions than they have entries"
        if (
            wanted == "auto"
            and not self._few()
            and error_bar(code_moments(pilot.stats), pilot.stats.weight) > MOST_ERROR
        ):
            return NOTHING_FOUND
        return None

    def _few(self) -> bool:
        return few_samples(self.problem.samples.n_samples, int(self.problem.samples.n_features))

    def _kept(self, pilot: Solution, reason: str) -> Estimate:
        plain = make_estimate(pilot, self.drawn)
        return replace(plain, status=f"{plain.status}; {reason}", n_iter=len(self.problem.iterations))

    def repaired(self, pilot: Solution) -> Solution:
        """The l_p answer from where mixed pairs are taken apart, as long as that raises the objective."""
        for _ in range(MOST_REPAIRS):
            A, n_moved = self.drawn.separate_pairs(pilot.A, self.drawn.fitted(pilot.A))
            if n_moved == 0:
                break
            other = solve_from(A, self.problem, [self.phase])
            if other.value <= pilot.value * (1 + 1e-9):
                break
            pilot = other
        return pilot

    def climbed(self, pilot: Solution) -> Solution:
        """The likelihood's answer, again from where mixed pairs are taken apart, as long as there are any."""
        A = self._annealed(pilot)
        for _ in range(1 + MOST_REPAIRS):
            phases = likelihood_stages(self.drawn, A, self.phase, self.problem.samples.n_samples, self.noise_fraction)
            phases[-1] = replace(phases[-1], skip_final_evaluation=self.skip_final_evaluation)
            refined = solve_from(A, self.problem, phases, secondary=pilot.objective)
            A, n_moved = self.drawn.separate_pairs(refined.A, law_of(refined))
            if n_moved == 0 or refined.stopped:
                break
        return refined

    def _annealed(self, pilot: Solution) -> Array:
        """Where small exponents lead from the l_p answer if samples are few: they need fewest."""
        assert isinstance(pilot.objective, Lp)
        exponents = [p for p in SMALL_EXPONENTS if p < pilot.objective.p]
        if not self._few() or not exponents:
            return pilot.A
        most = min(self.phase.max_iter, MOST_SMALL_STEPS)
        phases = [replace(self.phase, objective=Lp(p), tol=max(self.phase.tol, 1e-3), max_iter=most) for p in exponents]
        return solve_from(pilot.A, self.problem, phases).A

    def suspicious(self, A: Array, model: SpikeSlab) -> bool:
        """Whether samples look corrupted. Only the entries of samples as they are can have been hit, so no frame."""
        return self.problem.whitening.to_white is None and looks_corrupted(self.drawn.few, A, model, self.rng)

    def _cleaned(self, pilot: Solution) -> Solution:
        """The answer for samples cleaned from corruption."""
        drawn_corrupted = CorruptionSubsample.draw(self.problem, self.rng, self.drawn.least_noise)
        return solve_corrupted(pilot.A, drawn_corrupted.objective(pilot.A), self.problem, drawn_corrupted, self.phase)

    def _corrupted(self, found: Solution, reason: str) -> Estimate:
        stats = self.problem.evaluate(found.A, self.phase.objective, Quantities.MOMENTS, self.phase.precision)
        estimate = self.refined(found, stats, self.drawn.fitted(found.A), "sparse-corruption", reason)
        assert isinstance(found.objective, SparseCorruption)
        return replace(estimate, corruption=found.objective.law)

    def refined(self, found: Solution, lp_sums: Statistics, model: SpikeSlab, name: str, reason: str) -> Estimate:
        """A refined answer, with the sums of l_p and the law of the codes there."""
        return Estimate(
            A=found.A,
            stats=lp_sums,
            moments=code_moments(found.stats),
            model=model,
            refined=name,
            converged=found.converged,
            stopped=found.stopped,
            status=f"{found.status}; {reason}",
            n_iter=len(self.problem.iterations),
        )


def law_of(solution: Solution) -> SpikeSlab:
    """The law of codes that a likelihood was climbed with, as it stood at the end."""
    assert isinstance(solution.objective, SpikeSlabLikelihood)
    return solution.objective.model


def secondary(stats: Statistics) -> Statistics:
    """Sums of the contrast that stood beside the one maximised."""
    return Statistics(
        weight=stats.weight,
        value=stats.extra["beside_value"],
        gz=stats.extra["beside_value"],
        slope=stats.extra["beside_slope"],
        g2=stats.extra["beside_g2"],
        z2=stats.z2,
        extra={"magnitude": stats.extra["beside_magnitude"]},
    )
