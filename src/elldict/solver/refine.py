"""Refinement: maximum likelihood after l_p, and the evidence that decides between the two.

This is not a loop: it sets up a stage for the one there is, and judges where that ended.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from elldict.samples.base import Samples
from elldict.samples.frame import Frame
from elldict.solver.basins import Pair, plainly_mixed, suspicious_pairs, unmixed
from elldict.solver.code_model import CodeModel, Counts, fit_code_model, followed_code_model, rough_code_model
from elldict.solver.contrasts import BernoulliGaussian, Contrast, Lp, SparseCorruption
from elldict.solver.corrupted import Suspects, corrupted_solution, looks_corrupted
from elldict.solver.loop import Run, solve_from
from elldict.solver.messages import CorruptedModel
from elldict.solver.result import Solution
from elldict.solver.stage import Stage
from elldict.solver.steps import IdleStep, PairwiseNewton
from elldict.solver.sums import Sums, moments
from elldict.solver.terms import Needs
from elldict.space import Array, Space, to_numpy
from elldict.theory.accuracy import CodeMoments, atom_errors, with_small_sample_correction

FEW_VALUES = 2**16
WITNESS_VALUES = 2**18
"""Values in the samples kept at hand for fitting the law of codes; their product with A costs next to nothing."""

WITNESS_ROWS = 8192

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

MOST_ERROR = 0.5
"""Error bar from which an l_p answer is no start for a refinement, unless that turns out to be exact."""

NOTHING_FOUND = "kept l_p: its error bar leaves nothing to refine"

STEADY = 2.0
"""The standard deviation of the noise stays above this many times the last move of any atom."""

MOST_ITERATIONS = 60
"""Five to twelve are enough where the law is right, and where it is not more are of no use."""

FINE_ENOUGH = 0.02
"""Steps that are this share of what the error bar leaves in doubt are the last."""

LEAST_NOISE = {"float32": 1e-12, "float64": 1e-18}
"""Variance of the noise, in units of the mean square, that rounding of the codes alone produces."""


@dataclass(frozen=True)
class Witnesses:
    """A random few of the samples, inside the frame: from their codes the law of all codes is fitted."""

    rows: NDArray[np.float64]  # (b, k)
    least_noise: float
    known: dict[int, tuple[Array, CodeModel]] = field(default_factory=dict)  # the last law fitted, by its A

    @property
    def few(self) -> NDArray[np.float64]:
        """A few of them, for what is done again and again."""
        return self.rows[:: max(1, self.rows.size // FEW_VALUES)]

    @classmethod
    def drawn(cls, samples: Samples, frame: Frame, rng: np.random.Generator) -> Witnesses:
        """Draw rows uniformly, so that sorted or grouped samples do not matter."""
        number = min(samples.n_samples, WITNESS_ROWS, max(256, WITNESS_VALUES // samples.n_features))
        index = np.sort(rng.choice(samples.n_samples, number, replace=False)).astype(np.int64)
        return cls(frame.inside(samples.rows(index)), LEAST_NOISE[samples.dtype])

    def fitted(self, A: Array) -> CodeModel:
        """Law of the codes at A; asked again for the same A, the same."""
        if id(A) not in self.known:
            model = fit_code_model(Counts.of(self.rows @ to_numpy(A).T), least_noise=self.least_noise)
            self.known.clear()
            self.known[id(A)] = (A, model)  # A is held, so that its id stays its own
        return self.known[id(A)][1]

    def rough(self, A: Array) -> CodeModel:
        """Law of the codes at A while that is on its way."""
        return rough_code_model(Counts.of(self.few @ to_numpy(A).T), least_noise=self.least_noise)

    def mixed_pairs(self, A: Array, model: CodeModel) -> list[Pair]:
        """Pairs of atoms whose codes are active together more often than chance has it."""
        Z = self.few @ to_numpy(A).T
        return suspicious_pairs(model.activity((Z**2).T).T)

    def unmixed(self, A: Array, model: CodeModel) -> tuple[Array, int]:
        """A with mixed pairs taken apart, and how many there were."""
        pairs = self.mixed_pairs(A, model)
        if not pairs:
            return A, 0
        host = to_numpy(A)
        moved, n_moved = unmixed(host, self.few @ host.T, pairs)
        return Space.of(A).asarray(moved, "float64"), n_moved

    def refit(self, contrast: Contrast, A: Array, moved: float) -> Contrast:
        """The contrast that fits the codes at A; the same one as before if it hardly differs.

        A contrast that never stood still would never let A stand still either. A pair of atoms still turned against
        each other blurs their zeros, and pulls them apart only while that blur passes for noise. So noise is not let
        down faster than atoms come to rest.
        """
        return self._refit(contrast, A, (STEADY * moved) ** 2)

    def refit_freely(self, contrast: Contrast, A: Array, moved: float) -> Contrast:  # noqa: ARG002
        """The same with noise let down as fast as it falls, for steps that do not go by pairs."""
        return self._refit(contrast, A, 0.0)

    def _refit(self, contrast: Contrast, A: Array, least: float) -> Contrast:
        assert isinstance(contrast, BernoulliGaussian)
        model = followed_code_model(Counts.of(self.few @ to_numpy(A).T), contrast.model)
        model = replace(model, noise=max(model.noise, min(contrast.model.noise, least)))
        return contrast if _alike(model, contrast.model) else BernoulliGaussian(model)


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
        ),
        newton,
    ]


def few_samples(n_samples: int, n_features: int) -> bool:
    """Whether samples are so few that atoms feel each other, and the idle step is worth and within its price."""
    return n_samples <= FEW_PER_FEATURE * n_features and n_samples * n_features**3 <= MOST_IDLE_WORK


@dataclass(frozen=True)
class Verdict:
    """Whether the refined answer is to be believed, and the numbers behind it."""

    accepted: bool
    reason: str
    error: float = math.inf  # error bar and bias
    exact: bool = False


AS_ASKED = Verdict(True, "refined: as asked")
EXACT = Verdict(True, "refined: codes are exactly sparse", 0.0, exact=True)


def judge(pilot: Solution, refined: Solution, model: CodeModel, n_mixed: int) -> Verdict:
    """Choose between the l_p answer and the refined one, whose `sums` have the pilot's contrast beside their own.

    `model` is the law of the codes at the refined answer.
    """
    if exact(model, refined.sums.weight) and n_mixed == 0:
        return EXACT
    if not refined.converged:
        return Verdict(False, "kept l_p: the refinement did not converge")
    return hausman(moments(pilot.sums), refined.sums, apart(pilot.A, refined.A))


def hausman(one: CodeMoments, sums: Sums, seen: float) -> Verdict:
    """Choose between the l_p answer, of these moments, and the refined one, of these sums, by what lies between them.

    If the likelihood is right, the two answers differ by no more than their error bars say. If it is wrong, the refined
    answer is biased, and the excess of the difference `seen` shows by how much. The refined answer is taken if its
    error bar and its bias together are smaller than the error bar of the pilot.
    """
    r, two = sums.weight, moments(sums)
    pilot_error, refined_error = (error_bar(m, r) for m in (one, two))
    if pilot_error > MOST_ERROR:
        return Verdict(False, NOTHING_FOUND)
    if not math.isfinite(refined_error):
        return Verdict(False, "kept l_p: the refined answer is not a maximum")
    cross = to_numpy(sums.extra["cross"]) / r
    shared = float(np.mean(2 * np.sum(two.angle_covariances(one, cross, r), axis=1)))
    return _weighed(refined_error, seen - (pilot_error + refined_error - 2 * shared), pilot_error)


def judge_cleaned(pilot: Solution, cleaned: Solution, noise: float) -> Verdict:
    """Choose between the l_p answer and that for cleaned samples, which look corrupted.

    Corruption biases the pilot by as much as it likes, so a large difference alone is not held against the cleaned
    answer if the cleaning took most of the `noise` away, which codes of another law than assumed would not let it.
    """
    r = cleaned.sums.weight
    pilot_error, error = (error_bar(moments(found.sums), r) for found in (pilot, cleaned))
    if not (cleaned.converged and math.isfinite(error)):
        return Verdict(False, "kept l_p: the answer for cleaned samples is not a maximum")
    assert isinstance(cleaned.contrast, SparseCorruption)
    left, law = cleaned.contrast.model.noise, cleaned.contrast.law
    if left < 0.5 * noise:
        hits = f"{100 * law.rate:.2g} % of the entries were hit"
        return Verdict(True, f"refined: {hits}; cleaning takes the noise from {noise:.2g} to {left:.2g}", error)
    return _weighed(error, apart(pilot.A, cleaned.A) - max(pilot_error - error, 0.0), pilot_error)


def apart(A: Array, B: Array) -> float:
    """Difference of two answers as a recovery error."""
    return 1 - float(np.sum((to_numpy(A) @ to_numpy(B).T) ** 4)) / int(A.shape[0])


def _weighed(error: float, excess: float, pilot_error: float) -> Verdict:
    """Verdict on a refined answer of this error bar whose difference from l_p exceeds what is expected by `excess`.

    That counts more than once: what made the refined answer biased has biased the pilot too, which the difference does
    not show.
    """
    bias = 2.5 * max(0.0, excess)
    numbers = f"error bar {error:.2g} + bias {bias:.2g}, l_p {pilot_error:.2g}"
    if error + bias < 0.95 * pilot_error:
        return Verdict(True, f"refined: {numbers}", error + bias)
    return Verdict(False, f"kept l_p: refined {numbers}")


def error_bar(of: CodeMoments, n_samples: float) -> float:
    """Expected error of an answer with these moments, infinite where it is no maximum."""
    errors = atom_errors(of, n_samples)
    if not np.all(np.isfinite(errors)):
        return math.inf
    return float(np.mean(with_small_sample_correction(errors, len(errors), n_samples)))


def exact(model: CodeModel, n_samples: float) -> bool:
    """Tell whether the codes of every atom have so many zeros that the atom must be a true one.

    A direction can be chosen orthogonal to n - 1 samples, and then to no others by chance: atoms with half as many
    zero codes again are no accident.
    """
    zeros = (1 - model.density) * n_samples
    tiny = model.noise <= 1e-10 * float(np.mean(model.density * model.power))
    return bool(tiny and np.all(zeros > 1.5 * len(zeros)))


def _alike(new: CodeModel, old: CodeModel) -> bool:
    drift = float(np.mean(np.abs(np.log(new.density / old.density))))
    return abs(math.log(new.noise / old.noise)) < 0.1 and drift < 0.05


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
