"""Refinement: maximum likelihood after l_p, and the evidence that decides between the two.

This is not a loop: it sets up a stage for the one there is, and judges where that ended.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from elldict.samples.base import Samples
from elldict.samples.frame import Frame
from elldict.solver.code_model import CodeModel, Counts, fit_code_model
from elldict.solver.contrasts import BernoulliGaussian, Contrast, Needs
from elldict.solver.result import Solution
from elldict.solver.stage import Stage
from elldict.solver.steps import PairwiseNewton
from elldict.solver.sums import Sums
from elldict.space import Array, to_numpy
from elldict.theory.accuracy import CodeMoments, atom_errors

WITNESS_VALUES = 2**20
"""Values in the samples kept at hand for fitting the law of codes; their product with A costs next to nothing."""

WITNESS_ROWS = 8192

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

    def refit(self, contrast: Contrast, A: Array) -> Contrast:
        """The contrast that fits the codes at A; the same one as before if it hardly differs.

        A contrast that never stood still would never let A stand still either.
        """
        assert isinstance(contrast, BernoulliGaussian)
        model = self.fitted(A)
        return contrast if _alike(model, contrast.model) else BernoulliGaussian(model)


def likelihood_stage(witnesses: Witnesses, A: Array, *, precision: str, tol: float, max_iter: int) -> Stage:
    """Stage that climbs the likelihood from A."""
    return Stage(
        BernoulliGaussian(witnesses.fitted(A)),
        PairwiseNewton(),
        precision,
        tol,
        max_iter,
        need=Needs.GRADIENT | Needs.MOMENTS,
        refit=witnesses.refit,
        slack=1e-3,
    )


@dataclass(frozen=True)
class Verdict:
    """Whether the refined answer is to be believed, and the numbers behind it."""

    accepted: bool
    reason: str


def judge(pilot: Solution, refined: Solution) -> Verdict:
    """Choose between the l_p answer and the refined one (Hausman's test).

    If the likelihood is right, the two answers differ by no more than their error bars say. If it is wrong, the refined
    answer is biased, and the excess of the difference shows by how much. The refined answer is taken if its error bar
    and that excess together are smaller than the error bar of the pilot.

    `refined.sums` has the pilot's contrast beside its own.
    """
    r = refined.sums.weight
    if exact(refined):
        return Verdict(True, "refined: codes are exactly sparse")
    one, two = moments(pilot.sums), moments(refined.sums)
    pilot_error, refined_error = (float(np.mean(atom_errors(m, r))) for m in (one, two))
    if not math.isfinite(refined_error):
        return Verdict(False, "kept l_p: the refined answer is not a maximum")
    cross = to_numpy(refined.sums.extra["cross"]) / r
    shared = float(np.mean(2 * np.sum(two.angle_covariances(one, cross, r), axis=1)))
    seen = 1 - float(np.sum((to_numpy(pilot.A) @ to_numpy(refined.A).T) ** 4)) / len(one.gz)
    excess = max(0.0, seen - (pilot_error + refined_error - 2 * shared))
    numbers = f"error bar {refined_error:.2g} + bias {excess:.2g}, l_p {pilot_error:.2g}"
    if refined_error + excess < 0.95 * pilot_error:
        return Verdict(True, f"refined: {numbers}")
    return Verdict(False, f"kept l_p: refined {numbers}")


def exact(refined: Solution) -> bool:
    """Tell whether the codes of every atom have so many zeros that the atom must be a true one.

    A direction can be chosen orthogonal to n - 1 samples, and then to no others by chance: atoms with twice as many
    zero codes are no accident.
    """
    assert isinstance(refined.contrast, BernoulliGaussian)
    model = refined.contrast.model
    zeros = (1 - model.density) * refined.sums.weight
    tiny = model.noise <= 1e-10 * float(np.mean(model.density * model.power))
    return bool(tiny and np.all(zeros > 2 * len(zeros)))


def moments(sums: Sums) -> CodeMoments:
    """Moments of the codes under the contrast that was summed; l_p has E g z = E F."""
    gz = sums.extra.get("gz", sums.value)
    return CodeMoments(*(to_numpy(total) / sums.weight for total in (gz, sums.g2, sums.slope, sums.z2)))


def _alike(new: CodeModel, old: CodeModel) -> bool:
    drift = float(np.mean(np.abs(np.log(new.density / old.density))))
    return abs(math.log(new.noise / old.noise)) < 0.02 and drift < 0.02
