"""Refinement: maximum likelihood after l_p, and the evidence that decides between the two.

This is not a loop: it sets up a stage for the one there is, and judges where that ended.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from elldict.samples.base import Samples
from elldict.samples.frame import Frame
from elldict.solver.basins import Pair, suspicious_pairs, unmixed
from elldict.solver.code_model import CodeModel, Counts, fit_code_model
from elldict.solver.contrasts import BernoulliGaussian, Contrast, Needs
from elldict.solver.loop import Run, solve_from
from elldict.solver.result import Solution
from elldict.solver.stage import Stage
from elldict.solver.steps import PairwiseNewton
from elldict.solver.sums import Sums
from elldict.space import Array, Space, to_numpy
from elldict.theory.accuracy import CodeMoments, atom_errors, with_small_sample_correction

WITNESS_VALUES = 2**20
"""Values in the samples kept at hand for fitting the law of codes; their product with A costs next to nothing."""

WITNESS_ROWS = 8192

MOST_REPAIRS = 4
"""Times that mixed pairs are taken apart before they are reported instead."""

STEADY = 2.0
"""The standard deviation of the noise stays above this many times the last move of any atom."""

MOST_ITERATIONS = 300
"""Five to twelve are enough with many samples; with six a feature, up to two hundred."""

LEAST_NOISE = {"float32": 1e-12, "float64": 1e-18}
"""Variance of the noise, in units of the mean square, that rounding of the codes alone produces."""


@dataclass(frozen=True)
class Witnesses:
    """A random few of the samples, inside the frame: from their codes the law of all codes is fitted."""

    rows: NDArray[np.float64]  # (b, k)
    least_noise: float

    @classmethod
    def drawn(cls, samples: Samples, frame: Frame, rng: np.random.Generator) -> Witnesses:
        """Draw rows uniformly, so that sorted or grouped samples do not matter."""
        number = min(samples.n_samples, WITNESS_ROWS, max(256, WITNESS_VALUES // samples.n_features))
        index = np.sort(rng.choice(samples.n_samples, number, replace=False)).astype(np.int64)
        return cls(frame.inside(samples.rows(index)), LEAST_NOISE[samples.dtype])

    def fitted(self, A: Array) -> CodeModel:
        """Law of the codes at A."""
        return fit_code_model(Counts.of(self.rows @ to_numpy(A).T), least_noise=self.least_noise)

    def mixed_pairs(self, A: Array, model: CodeModel) -> list[Pair]:
        """Pairs of atoms whose codes are active together more often than chance has it."""
        Z = self.rows @ to_numpy(A).T
        return suspicious_pairs(model.activity((Z**2).T).T)

    def unmixed(self, A: Array, model: CodeModel) -> tuple[Array, int]:
        """A with mixed pairs taken apart, and how many there were."""
        host = to_numpy(A)
        moved, n_moved = unmixed(host, self.rows @ host.T, self.mixed_pairs(A, model))
        return Space.of(A).asarray(moved, "float64"), n_moved

    def refit(self, contrast: Contrast, A: Array, moved: float) -> Contrast:
        """The contrast that fits the codes at A; the same one as before if it hardly differs.

        A contrast that never stood still would never let A stand still either.
        """
        assert isinstance(contrast, BernoulliGaussian)
        model = self.fitted(A)
        # A pair of atoms still turned against each other blurs their zeros, and pulls them apart only while that blur
        # passes for noise. So noise is not let down faster than atoms come to rest.
        least = min(contrast.model.noise, (STEADY * moved) ** 2)
        model = replace(model, noise=max(model.noise, least))
        return contrast if _alike(model, contrast.model) else BernoulliGaussian(model)


def likelihood_stage(witnesses: Witnesses, A: Array, lp_stage: Stage) -> Stage:
    """Stage that climbs the likelihood from A, in the precision and to the tolerance of the l_p stage before it."""
    return Stage(
        BernoulliGaussian(witnesses.fitted(A)),
        PairwiseNewton(),
        lp_stage.precision,
        lp_stage.tol,
        min(lp_stage.max_iter, MOST_ITERATIONS),
        need=Needs.GRADIENT | Needs.MOMENTS,
        refit=witnesses.refit,
        slack=1e-3,
    )


@dataclass(frozen=True)
class Verdict:
    """Whether the refined answer is to be believed, and the numbers behind it."""

    accepted: bool
    reason: str


def judge(pilot: Solution, refined: Solution, model: CodeModel, n_mixed: int) -> Verdict:
    """Choose between the l_p answer and the refined one (Hausman's test).

    If the likelihood is right, the two answers differ by no more than their error bars say. If it is wrong, the refined
    answer is biased, and the excess of the difference shows by how much. The refined answer is taken if its error bar
    and its bias together are smaller than the error bar of the pilot.

    `refined.sums` has the pilot's contrast beside its own; `model` is the law of the codes at the refined answer.
    """
    r = refined.sums.weight
    if exact(model, r) and n_mixed == 0:
        return Verdict(True, "refined: codes are exactly sparse")
    one, two = moments(pilot.sums), moments(refined.sums)
    pilot_error, refined_error = (_error_bar(m, r) for m in (one, two))
    if not math.isfinite(refined_error):
        return Verdict(False, "kept l_p: the refined answer is not a maximum")
    cross = to_numpy(refined.sums.extra["cross"]) / r
    shared = float(np.mean(2 * np.sum(two.angle_covariances(one, cross, r), axis=1)))
    seen = 1 - float(np.sum((to_numpy(pilot.A) @ to_numpy(refined.A).T) ** 4)) / len(one.gz)
    # more than once: what made the refined answer biased has biased the pilot too, which the difference does not show
    bias = 2.5 * max(0.0, seen - (pilot_error + refined_error - 2 * shared))
    numbers = f"error bar {refined_error:.2g} + bias {bias:.2g}, l_p {pilot_error:.2g}"
    if refined_error + bias < 0.95 * pilot_error:
        return Verdict(True, f"refined: {numbers}")
    return Verdict(False, f"kept l_p: refined {numbers}")


def _error_bar(of: CodeMoments, n_samples: float) -> float:
    errors = atom_errors(of, n_samples)
    if not np.all(np.isfinite(errors)):
        return math.inf
    return float(np.mean(with_small_sample_correction(errors, len(errors), n_samples)))


def exact(model: CodeModel, n_samples: float) -> bool:
    """Tell whether the codes of every atom have so many zeros that the atom must be a true one.

    A direction can be chosen orthogonal to n - 1 samples, and then to no others by chance: atoms with twice as many
    zero codes are no accident.
    """
    zeros = (1 - model.density) * n_samples
    tiny = model.noise <= 1e-10 * float(np.mean(model.density * model.power))
    return bool(tiny and np.all(zeros > 2 * len(zeros)))


def moments(sums: Sums) -> CodeMoments:
    """Moments of the codes under the contrast that was summed; l_p has E g z = E F."""
    gz = sums.extra.get("gz", sums.value)
    return CodeMoments(*(to_numpy(total) / sums.weight for total in (gz, sums.g2, sums.slope, sums.z2)))


def _alike(new: CodeModel, old: CodeModel) -> bool:
    drift = float(np.mean(np.abs(np.log(new.density / old.density))))
    return abs(math.log(new.noise / old.noise)) < 0.02 and drift < 0.02


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


def refined_answer(pilot: Solution, run: Run, witnesses: Witnesses, stage: Stage, *, on_evidence: bool) -> Answer:
    """The refined answer, or the l_p answer if the evidence is against it; `status` says which and why.

    `stage` is the last of l_p: mixed atoms that are taken apart go through it again.
    """
    m, k = pilot.A.shape
    if pilot.stopped or m < k:
        plain = answer_of(pilot, witnesses)
        note = f"; kept l_p: {m} of {k} directions are sought, and the likelihood needs all" if m < k else ""
        return replace(plain, status=plain.status + note)
    pilot = _repaired(pilot, run, witnesses, stage)
    refined, model = _climbed(pilot, run, witnesses, stage)
    n_mixed = len(witnesses.mixed_pairs(refined.A, model))
    verdict = judge(pilot, refined, model, n_mixed) if on_evidence else Verdict(True, "refined: as asked")
    reason = verdict.reason + (f", {n_mixed} pairs of atoms share their supports" if n_mixed else "")
    n_iter = len(run.iterations)
    if not verdict.accepted:
        plain = answer_of(pilot, witnesses)
        return replace(plain, status=f"{plain.status}; {reason}", stopped=refined.stopped, n_iter=n_iter)
    return Answer(
        A=refined.A,
        sums=beside(refined.sums),
        moments=moments(refined.sums),
        model=model,
        refined="bernoulli-gaussian",
        converged=refined.converged,
        stopped=refined.stopped,
        status=f"{refined.status}; {reason}",
        n_iter=n_iter,
    )


def _repaired(pilot: Solution, run: Run, witnesses: Witnesses, stage: Stage) -> Solution:
    """The l_p answer from where mixed pairs are taken apart, as long as that raises the objective."""
    for _ in range(MOST_REPAIRS):
        A, n_moved = witnesses.unmixed(pilot.A, witnesses.fitted(pilot.A))
        if n_moved == 0:
            break
        other = solve_from(A, run, [stage])
        if other.objective <= pilot.objective * (1 + 1e-9):
            break
        pilot = other
    return pilot


def _climbed(pilot: Solution, run: Run, witnesses: Witnesses, stage: Stage) -> tuple[Solution, CodeModel]:
    """The likelihood's answer, again from where mixed pairs are taken apart, as long as there are any."""
    A = pilot.A
    for _ in range(1 + MOST_REPAIRS):
        refined = solve_from(A, run, [likelihood_stage(witnesses, A, stage)], beside=pilot.contrast)
        model = witnesses.fitted(refined.A)
        A, n_moved = witnesses.unmixed(refined.A, model)
        if n_moved == 0 or refined.stopped:
            break
    return refined, model


def beside(sums: Sums) -> Sums:
    """Sums of the contrast that stood beside the one maximised."""
    return Sums(
        weight=sums.weight,
        value=sums.extra["beside_value"],
        slope=sums.extra["beside_slope"],
        z2=sums.z2,
        extra={"magnitude": sums.extra["beside_magnitude"]},
    )
