"""Refinement: maximum likelihood after l_p, if the evidence is for it."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from elldict._old.backend.base import Array, to_numpy
from elldict._old.result import Estimate
from elldict._old.solver.amp import CorruptionLaw, measure_evidence
from elldict._old.solver.code_subsample import CodeSubsample, compute_codes
from elldict._old.solver.corruption import (
    CorruptionSubsample,
    SparseCorruption,
    estimate_corrupted,
    measure_cleaning_factor,
    suspects_corruption,
)
from elldict._old.solver.directions import InverseIteration, PairwiseNewton
from elldict._old.solver.hits import explains_dense_samples, has_dense_samples, learn_hits
from elldict._old.solver.law_tests import follows_spike_slab, has_few_samples, is_nearly_white, score_laws
from elldict._old.solver.loop import NOISE_FRACTION, PILOT_TOL, Phase, Problem, run_phases
from elldict._old.solver.mixed_atoms import keep_plain_mixtures
from elldict._old.solver.mixture import MixtureLikelihood
from elldict._old.solver.model_selection import (
    AS_ASKED,
    CHANCE_SD,
    MAX_PILOT_ERROR,
    NOTHING_TO_REFINE,
    decide,
    decide_on_cleaned,
    decide_on_converged,
    error_bar,
    find_left_out,
)
from elldict._old.solver.objective import Lp, Objective, Quantities, WithSecondary
from elldict._old.solver.spike_slab import MAX_LIKELIHOOD_STEPS, SpikeSlab, SpikeSlabLikelihood

MAX_SEPARATIONS = 4
"""Times that mixed pairs are separated before they are reported instead."""

MAX_INVERSE_STEPS = 40
"""Six are enough where recovery is exact."""

LEAST_INACTIVE_VARIANCE = {"float32": 1e-7, "float64": 1e-15}
"""Variance of inactive codes, in units of that of all directions together, that rounding alone produces."""

SMALL_EXPONENTS, MAX_SMALL_STEPS = (2.5, 2.2), 300
"""Exponents that need the fewest samples, solved in turn where samples are few, and the most steps of each."""

HITS_SEED = 60
"""Of the samples in which hits are sought once atoms are found: the fit has drawn all it needs before."""

LAW_SLACK = 1e-3
"""Fall of the mean log-likelihood that an update of the law alone can cause."""


@dataclass(frozen=True)
class Refinement:
    """All that a refinement needs: a problem to go on with, drawn samples, and the last l_p phase."""

    problem: Problem
    drawn: CodeSubsample
    lp_phase: Phase  # mixed atoms that are separated go through it again
    rng: np.random.Generator
    noise_fraction: float = NOISE_FRACTION
    skip_final_evaluation: bool = False  # the estimate is only where to begin on more samples

    def choose(self, pilot: Estimate, wanted: str) -> Estimate:
        """The refined estimate, or with 'auto' the l_p estimate if the evidence is against it; `status` says why."""
        obstacle = self._find_obstacle(pilot, wanted)
        if obstacle is not None:
            return self._keep(pilot, obstacle)
        if wanted == "mixture" or (wanted == "auto" and pilot.stats.n_negative):
            return self._choose_mixture(pilot, wanted)
        pilot = self._separate_atoms(pilot)
        if wanted == "sparse-corruption":
            return self.complete_cleaned(self.clean(pilot.A), "refined: as asked")
        refined = self.climb(pilot, self._find_left_out(pilot, wanted), asked=wanted != "auto")
        law = self.drawn.fit_law(refined.A, pilot.stats.signs)
        mixed = self.drawn.find_mixed_pairs(refined.A, law)
        decision = AS_ASKED if wanted != "auto" else decide(pilot, refined, law, len(mixed))
        before, uncleaned = self.drawn.fit_law(pilot.A), False
        if (
            wanted == "auto"
            and not decision.exact
            and not refined.stopped
            and suspects_corruption(self.drawn.rows, self.problem.whitening, pilot.A, before, self.rng)
        ):
            other = self.clean(pilot.A)
            on_cleaned = decide_on_cleaned(pilot, other, before.noise)
            better = on_cleaned.accepted and (on_cleaned.error < decision.error or not decision.accepted)
            explains = (better or not other.converged) and self._explains_better(other, pilot)
            if better and explains:
                return self.complete_cleaned(other, on_cleaned.reason)
            uncleaned = explains and not other.stopped
        if not decision.accepted:
            kept = replace(self._keep(pilot, decision.reason), stopped=refined.stopped)
            return replace(self._choose_other(pilot, before, kept), uncleaned=uncleaned)
        plain = keep_plain_mixtures(mixed, self.drawn.codes_of_pairs(refined.A, mixed)) if mixed else ()
        completed = replace(self.complete(refined, law, decision.reason), mixed=plain, uncleaned=uncleaned)
        return self.note_hits(completed) if wanted == "auto" else completed

    def note_hits(self, found: Estimate) -> Estimate:
        """The estimate, with the law of corruption if so few entries were hit that atoms do not suffer."""
        law = found.law
        assert law is not None
        if self.problem.whitening.to_white is not None:
            return found
        codes = to_numpy(compute_codes(self.drawn.often, found.A))
        if not has_dense_samples(codes, law):
            return found
        A = to_numpy(found.A)
        drawn = CorruptionSubsample.draw(self.problem, np.random.default_rng(HITS_SEED), self.drawn.least_noise)
        cleaning = learn_hits(drawn.rows, A, drawn.learn_law(found.A))
        return self._add_cleaning(found, cleaning) if explains_dense_samples(drawn.rows, A, law, cleaning) else found

    def _add_cleaning(self, found: Estimate, law: CorruptionLaw) -> Estimate:
        """An estimate with the law by which samples are cleaned."""
        return replace(found, cleaning=law, status=f"{found.status}; {100 * law.rate:.2g} % of the entries were hit")

    def _choose_other(self, pilot: Estimate, law: SpikeSlab, kept: Estimate) -> Estimate:
        """The l_p estimate that was kept, or that of mixtures if its codes do not follow the spike-and-slab law."""
        white = is_nearly_white(self.problem.whitening, self.drawn, self.problem.samples.n_samples)
        if kept.stopped or not white or follows_spike_slab(self.drawn, pilot.A, law):
            return kept
        return self._choose_mixture(pilot, "auto")

    def climb(
        self, pilot: Estimate, unidentifiable: NDArray[np.bool_] | None = None, *, asked: bool = False
    ) -> Estimate:
        """The estimate of the likelihood, again from where mixed pairs are separated, as long as there are any.

        Atoms that are `unidentifiable` (m,) are not turned towards each other. Of codes of another law no pair is known
        to be mixed, unless the law was `asked` for.
        """
        assert isinstance(pilot.objective, Lp)
        A = self._anneal(pilot)
        law = self.drawn.fit_start_law(pilot) if A is pilot.A else self.drawn.fit_rough_law(A)
        for _ in range(1 + MAX_SEPARATIONS):
            refined = run_phases(A, self.problem, self._make_phases(law, unidentifiable), secondary=pilot.objective)
            assert isinstance(refined.objective, SpikeSlabLikelihood)
            A, n_moved = self.drawn.separate_pairs(refined.A, refined.objective.law)
            if n_moved == 0 or refined.stopped:
                break
            if not asked and not follows_spike_slab(self.drawn, refined.A, refined.objective.law):
                break
            law = self.drawn.fit_rough_law(A)
        return refined

    def _choose_mixture(self, pilot: Estimate, wanted: str) -> Estimate:
        """The estimate of the likelihood of mixtures, or that of l_p if the evidence is against it."""
        assert isinstance(pilot.objective, Lp)
        objective = MixtureLikelihood(self.drawn.fit_mixture(pilot), self.drawn.rows)
        phase = self._make_newton_phase(objective, self._find_left_out(pilot, wanted))
        phase = replace(phase, objective_slack=0.0)
        refined = run_phases(pilot.A, self.problem, [phase], secondary=pilot.objective)
        decision = AS_ASKED if wanted != "auto" else decide_on_converged(pilot, refined, CHANCE_SD)
        if not decision.accepted:
            return replace(self._keep(pilot, decision.reason), stopped=refined.stopped)
        law = self.drawn.fit_law(refined.A, refined.stats.of_secondary().signs)
        completed = self.complete(refined, law, decision.reason)
        assert isinstance(refined.objective, MixtureLikelihood)
        return replace(completed, refined="mixture", mixture=refined.objective.law)

    def complete(self, found: Estimate, law: SpikeSlab, reason: str) -> Estimate:
        """A refined estimate, with the law of the codes and the statistics of l_p there."""
        return replace(
            found,
            lp_stats=found.stats.of_secondary(),
            law=law,
            refined="bernoulli-gaussian",
            status=f"{found.status}; {reason}",
            n_iter=len(self.problem.iterations),
        )

    def _find_obstacle(self, pilot: Estimate, wanted: str) -> str | None:
        """What stands in the way of a refinement."""
        m, k = pilot.A.shape
        if m < k:
            return f"kept l_p: {m} of {k} directions are sought, and the likelihood needs all"
        if pilot.stopped:
            return "kept l_p: stopped before the refinement"
        if wanted == "sparse-corruption" and self.problem.whitening.to_white is not None:
            return "kept l_p: samples vary in fewer directions than they have entries"
        few = has_few_samples(self.problem.samples.n_samples, k)
        error = error_bar(pilot.stats.moments, pilot.stats.weight, find_left_out(pilot))
        if wanted == "auto" and not few and error > MAX_PILOT_ERROR:
            return NOTHING_TO_REFINE
        return None

    def _find_left_out(self, pilot: Estimate, wanted: str) -> NDArray[np.bool_] | None:
        """Atoms (m,) that the likelihood leaves as they are among each other, if there are any.

        There its maxima are chance, and none may be reached. With few samples, where l_p is lost, or asked for by
        name, it is free to find what l_p does not.
        """
        if wanted != "auto" or has_few_samples(self.problem.samples.n_samples, int(pilot.A.shape[1])):
            return None
        found = find_left_out(pilot)
        return found if np.any(found) else None

    def _keep(self, pilot: Estimate, reason: str) -> Estimate:
        plain = self.drawn.complete(pilot)
        return replace(plain, status=f"{plain.status}; {reason}", n_iter=len(self.problem.iterations))

    def _separate_atoms(self, pilot: Estimate) -> Estimate:
        """The l_p estimate from where mixed pairs are separated, as long as that raises the objective."""
        for _ in range(MAX_SEPARATIONS):
            A, n_moved = self.drawn.separate_pairs(pilot.A, self.drawn.fit_law(pilot.A))
            if n_moved == 0:
                break
            other = run_phases(A, self.problem, [self.lp_phase])
            if other.stats.mean_value <= pilot.stats.mean_value * (1 + 1e-9):
                break
            pilot = other
        return pilot

    def _anneal(self, pilot: Estimate) -> Array:
        """Where small exponents lead from the l_p estimate if samples are few."""
        assert isinstance(pilot.objective, Lp)
        if not has_few_samples(self.problem.samples.n_samples, int(pilot.A.shape[1])):
            return pilot.A
        tol, most = max(self.lp_phase.tol, PILOT_TOL), min(self.lp_phase.max_iter, MAX_SMALL_STEPS)
        phases = [
            replace(self.lp_phase, objective=Lp(p), tol=tol, max_iter=most)
            for p in SMALL_EXPONENTS
            if p < pilot.objective.p
        ]
        return run_phases(pilot.A, self.problem, phases).A if phases else pilot.A

    def _make_phases(self, law: SpikeSlab, unidentifiable: NDArray[np.bool_] | None) -> list[Phase]:
        """Phases that climb the likelihood from a law, in the precision and to the tolerance of the l_p phase."""
        objective, lp = SpikeSlabLikelihood(law, self.drawn), self.lp_phase
        newton = self._make_newton_phase(objective, unidentifiable)
        if not has_few_samples(self.problem.samples.n_samples, int(self.drawn.rows.shape[1])):
            return [newton]
        inverse = replace(
            newton,
            objective=replace(objective, min_noise_per_move=0.0),  # these steps do not go by pairs
            direction=InverseIteration(LEAST_INACTIVE_VARIANCE[lp.precision]),
            quantities=newton.quantities | Quantities.INACTIVE,
            max_iter=min(lp.max_iter, MAX_INVERSE_STEPS),
        )
        return [inverse, newton]

    def _make_newton_phase(self, objective: Objective, unidentifiable: NDArray[np.bool_] | None) -> Phase:
        lp = self.lp_phase
        return Phase(
            objective,
            PairwiseNewton(unidentifiable=unidentifiable),
            lp.precision,
            lp.tol,
            min(lp.max_iter, MAX_LIKELIHOOD_STEPS),
            quantities=Quantities.GRADIENT | Quantities.MOMENTS,
            objective_slack=LAW_SLACK,
            noise_fraction=self.noise_fraction,
            skip_final_evaluation=self.skip_final_evaluation,
        )

    def clean(self, A: Array, law: CorruptionLaw | None = None) -> Estimate:
        """The estimate for samples cleaned from corruption, begun at A and at a law, if one is known."""
        drawn = CorruptionSubsample.draw(self.problem, self.rng, self.drawn.least_noise)
        return estimate_corrupted(A, self.problem, drawn, self.lp_phase, law)

    def _explains_better(self, cleaned: Estimate, pilot: Estimate) -> bool:
        """Whether drawn samples are more likely under corruption than if codes at the l_p estimate follow any law.

        Error bars alone do not tell: those of an answer that explains nothing can be as small as one likes.
        """
        assert isinstance(cleaned.objective, SparseCorruption)
        rows = cleaned.objective.source.rows
        evidence = measure_evidence(rows, to_numpy(cleaned.A), cleaned.objective.corruption)
        return bool(evidence > score_laws(rows, pilot.A))

    def complete_cleaned(self, found: Estimate, reason: str) -> Estimate:
        """The estimate for cleaned samples, with the law of the codes and the statistics of l_p there."""
        lp = self.lp_phase
        assert isinstance(found.objective, SparseCorruption)
        assert isinstance(lp.objective, Lp)
        both = WithSecondary(found.objective, lp.objective)
        cleaning = learn_hits(found.objective.source.rows, to_numpy(found.A), found.objective.corruption)
        completed = replace(
            found,
            lp_stats=self.problem.evaluate(found.A, both, Quantities.MOMENTS, lp.precision).of_secondary(),
            law=self.drawn.fit_law(found.A),
            refined="sparse-corruption",
            corruption=found.objective.corruption,
            cleaning_factor=measure_cleaning_factor(found.A, self.problem, found.objective, lp.precision),
            status=f"{found.status}; {reason}",
            n_iter=len(self.problem.iterations),
        )
        return self._add_cleaning(completed, cleaning)
