"""Refinement: maximum likelihood after l_p, if the evidence is for it.

This is not a loop: it sets up a stage for the one there is, and looks at where that ended.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from elldict.backend.base import Array, to_numpy
from elldict.result import Solution
from elldict.solver.amp import CorruptedModel
from elldict.solver.code_subsample import Witnesses
from elldict.solver.corruption import SparseCorruption, Suspects, corrupted_solution, looks_corrupted
from elldict.solver.directions import IdleStep, PairwiseNewton
from elldict.solver.loop import Run, Stage, solve_from
from elldict.solver.mixed_atoms import Pair, plainly_mixed
from elldict.solver.model_selection import AS_ASKED, MOST_ERROR, NOTHING_FOUND, error_bar, judge, judge_cleaned
from elldict.solver.objective import Lp, Needs, Sums, moments
from elldict.solver.spike_slab import BernoulliGaussian, CodeModel
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

FINE_ENOUGH = 0.02
"""Steps that are this share of what the error bar leaves in doubt are the last."""


def likelihood_stages(
    witnesses: Witnesses, A: Array, lp_stage: Stage, n_samples: int, resolution: float
) -> list[Stage]:
    """Stages that climb the likelihood from A, in the precision and to the tolerance of the l_p stage before them."""
    newton = Stage(
        BernoulliGaussian(witnesses.rough(A)),
        PairwiseNewton(),
        lp_stage.precision,
        lp_stage.tol,
        min(lp_stage.max_iter, MOST_ITERATIONS),
        need=Needs.GRADIENT | Needs.MOMENTS,
        refit=witnesses.refit,
        follow=witnesses.follow,
        slack=1e-3,
        resolution=resolution,
    )
    if not few_samples(n_samples, int(A.shape[1])):
        return [newton]
    need, most = newton.need | Needs.IDLE, min(lp_stage.max_iter, MOST_IDLE_STEPS)
    return [
        replace(
            newton,
            step=IdleStep(LEAST_IDLE[lp_stage.precision]),
            need=need,
            max_iter=most,
            refit=witnesses.refit_freely,
            follow=None,
        ),
        newton,
    ]


def few_samples(n_samples: int, n_features: int) -> bool:
    """Whether samples are so few that atoms feel each other, and the idle step is worth and within its price."""
    return n_samples <= FEW_PER_FEATURE * n_features and n_samples * n_features**3 <= MOST_IDLE_WORK


@dataclass(frozen=True)
class Answer:
    """What a fit found, and what it knows of it."""

    A: Array  # (m, k)
    sums: Sums  # of the l_p contrast at A
    moments: CodeMoments  # under the contrast that A maximises
    model: CodeModel  # law of the codes at A
    refined: str | None
    converged: bool
    stopped: bool
    status: str
    n_iter: int
    corruption: CorruptedModel | None = None
    mixed: tuple[Pair, ...] = ()  # atoms that still seem to be mixed with each other
    dependent: NDArray[np.float64] | None = None  # (m,) error where codes that depend on each other add to it, or zero
    correlated: NDArray[np.float64] | None = None  # (m,) error that shows in codes that are correlated, or zero
    least_error: float = 0.0  # of a fit that was cut off


def answer_of(pilot: Solution, witnesses: Witnesses) -> Answer:
    """The l_p answer as it is."""
    return Answer(
        A=pilot.A,
        sums=pilot.sums,
        moments=moments(pilot.sums),
        model=witnesses.fitted(pilot.A),
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

    run: Run
    witnesses: Witnesses
    stage: Stage
    rng: np.random.Generator
    resolution: float = FINE_ENOUGH
    provisional: bool = False  # whether the answer is only where to begin on more samples

    def answer(self, pilot: Solution, wanted: str) -> Answer:
        """The refined answer, or with 'auto' the l_p answer if the evidence is against it; `status` says why."""
        obstacle = self._obstacle(pilot, wanted)
        if obstacle is not None:
            return self._kept(pilot, obstacle)
        pilot = self.repaired(pilot)
        if wanted == "sparse-corruption":
            return self._corrupted(self._cleaned(pilot), "refined: as asked")
        refined = self.climbed(pilot)
        model = self.witnesses.fitted(refined.A)
        mixed = self.witnesses.mixed_pairs(refined.A, model)
        verdict = AS_ASKED if wanted != "auto" else judge(pilot, refined, model, len(mixed))
        before = self.witnesses.fitted(pilot.A)
        if wanted == "auto" and not verdict.exact and not refined.stopped and self.suspicious(pilot.A, before):
            other = self._cleaned(pilot)
            evidence = judge_cleaned(pilot, other, before.noise)
            if evidence.accepted and (evidence.error < verdict.error or not verdict.accepted):
                return self._corrupted(other, evidence.reason)
        if not verdict.accepted:
            return replace(self._kept(pilot, verdict.reason), stopped=refined.stopped)
        answer = self.refined(refined, beside(refined.sums), model, "bernoulli-gaussian", verdict.reason)
        return replace(answer, mixed=plainly_mixed(mixed, self.witnesses.few @ to_numpy(refined.A).T))

    def _obstacle(self, pilot: Solution, wanted: str) -> str | None:
        """What stands in the way of a refinement."""
        m, k = pilot.A.shape
        if m < k:
            return f"kept l_p: {m} of {k} directions are sought, and the likelihood needs all"
        if pilot.stopped:
            return "kept l_p: stopped before the refinement"
        if wanted == "sparse-corruption" and self.run.frame.inner is not None:
            return "kept l_p: samples vary in fewer directions than they have entries"
        if wanted == "auto" and not self._few() and error_bar(moments(pilot.sums), pilot.sums.weight) > MOST_ERROR:
            return NOTHING_FOUND
        return None

    def _few(self) -> bool:
        return few_samples(self.run.samples.n_samples, int(self.run.samples.n_features))

    def _kept(self, pilot: Solution, reason: str) -> Answer:
        plain = answer_of(pilot, self.witnesses)
        return replace(plain, status=f"{plain.status}; {reason}", n_iter=len(self.run.iterations))

    def repaired(self, pilot: Solution) -> Solution:
        """The l_p answer from where mixed pairs are taken apart, as long as that raises the objective."""
        for _ in range(MOST_REPAIRS):
            A, n_moved = self.witnesses.unmixed(pilot.A, self.witnesses.fitted(pilot.A))
            if n_moved == 0:
                break
            other = solve_from(A, self.run, [self.stage])
            if other.objective <= pilot.objective * (1 + 1e-9):
                break
            pilot = other
        return pilot

    def climbed(self, pilot: Solution) -> Solution:
        """The likelihood's answer, again from where mixed pairs are taken apart, as long as there are any."""
        A = self._annealed(pilot)
        for _ in range(1 + MOST_REPAIRS):
            stages = likelihood_stages(self.witnesses, A, self.stage, self.run.samples.n_samples, self.resolution)
            stages[-1] = replace(stages[-1], provisional=self.provisional)
            refined = solve_from(A, self.run, stages, beside=pilot.contrast)
            A, n_moved = self.witnesses.unmixed(refined.A, law_of(refined))
            if n_moved == 0 or refined.stopped:
                break
        return refined

    def _annealed(self, pilot: Solution) -> Array:
        """Where small exponents lead from the l_p answer if samples are few: they need fewest."""
        assert isinstance(pilot.contrast, Lp)
        exponents = [p for p in SMALL_EXPONENTS if p < pilot.contrast.p]
        if not self._few() or not exponents:
            return pilot.A
        most = min(self.stage.max_iter, MOST_SMALL_STEPS)
        stages = [replace(self.stage, contrast=Lp(p), tol=max(self.stage.tol, 1e-3), max_iter=most) for p in exponents]
        return solve_from(pilot.A, self.run, stages).A

    def suspicious(self, A: Array, model: CodeModel) -> bool:
        """Whether samples look corrupted. Only the entries of samples as they are can have been hit, so no frame."""
        return self.run.frame.inner is None and looks_corrupted(self.witnesses.few, A, model, self.rng)

    def _cleaned(self, pilot: Solution) -> Solution:
        """The answer for samples cleaned from corruption."""
        suspects = Suspects.drawn(self.run, self.rng, self.witnesses.least_noise)
        return corrupted_solution(pilot.A, suspects.contrast(pilot.A), self.run, suspects, self.stage)

    def _corrupted(self, found: Solution, reason: str) -> Answer:
        sums = self.run.look(found.A, self.stage.contrast, Needs.MOMENTS, self.stage.precision)
        answer = self.refined(found, sums, self.witnesses.fitted(found.A), "sparse-corruption", reason)
        assert isinstance(found.contrast, SparseCorruption)
        return replace(answer, corruption=found.contrast.law)

    def refined(self, found: Solution, lp_sums: Sums, model: CodeModel, name: str, reason: str) -> Answer:
        """A refined answer, with the sums of l_p and the law of the codes there."""
        return Answer(
            A=found.A,
            sums=lp_sums,
            moments=moments(found.sums),
            model=model,
            refined=name,
            converged=found.converged,
            stopped=found.stopped,
            status=f"{found.status}; {reason}",
            n_iter=len(self.run.iterations),
        )


def law_of(solution: Solution) -> CodeModel:
    """The law of codes that a likelihood was climbed with, as it stood at the end."""
    assert isinstance(solution.contrast, BernoulliGaussian)
    return solution.contrast.model


def beside(sums: Sums) -> Sums:
    """Sums of the contrast that stood beside the one maximised."""
    return Sums(
        weight=sums.weight,
        value=sums.extra["beside_value"],
        gz=sums.extra["beside_value"],
        slope=sums.extra["beside_slope"],
        g2=sums.extra["beside_g2"],
        z2=sums.z2,
        extra={"magnitude": sums.extra["beside_magnitude"]},
    )
