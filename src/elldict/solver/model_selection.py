"""Evidence: whether a refined answer is to be believed rather than that of l_p."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from elldict.backend.base import Array, to_numpy, total
from elldict.result import Solution
from elldict.solver.corruption import SparseCorruption
from elldict.solver.objective import Statistics, code_moments
from elldict.solver.spike_slab import SpikeSlab
from elldict.theory.accuracy import CodeMoments, atom_errors, with_small_sample_correction

MOST_ERROR = 0.5
"""Error bar from which an l_p answer is no start for a refinement, unless that turns out to be exact."""

NOTHING_FOUND = "kept l_p: its error bar leaves nothing to refine"


@dataclass(frozen=True)
class Decision:
    """Whether the refined answer is to be believed, and the numbers behind it."""

    accepted: bool
    reason: str
    error: float = math.inf  # error bar and bias
    exact: bool = False


AS_ASKED = Decision(True, "refined: as asked")
EXACT = Decision(True, "refined: codes are exactly sparse", 0.0, exact=True)


def judge(pilot: Solution, refined: Solution, model: SpikeSlab, n_mixed: int) -> Decision:
    """Choose between the l_p answer and the refined one, whose `stats` have the pilot's contrast beside their own.

    `model` is the law of the codes at the refined answer.
    """
    if exact(model, refined.stats.weight) and n_mixed == 0:
        return EXACT
    if not refined.converged:
        return Decision(False, "kept l_p: the refinement did not converge")
    return hausman(code_moments(pilot.stats), refined.stats, apart(pilot.A, refined.A))


def hausman(one: CodeMoments, stats: Statistics, seen: float) -> Decision:
    """Choose between the l_p answer, of these moments, and the refined one, of these sums, by what lies between them.

    If the likelihood is right, the two answers differ by no more than their error bars say. If it is wrong, the refined
    answer is biased, and the excess of the difference `seen` shows by how much. The refined answer is taken if its
    error bar and its bias together are smaller than the error bar of the pilot.
    """
    r, two = stats.weight, code_moments(stats)
    pilot_error, refined_error = (error_bar(m, r) for m in (one, two))
    if pilot_error > MOST_ERROR:
        return Decision(False, NOTHING_FOUND)
    if not math.isfinite(refined_error):
        return Decision(False, "kept l_p: the refined answer is not a maximum")
    shared = 2 * total(two.angle_covariances(one, stats.extra["cross"] / r, r)) / int(two.z2.shape[0])
    return _weighed(refined_error, seen - (pilot_error + refined_error - 2 * shared), pilot_error)


def judge_cleaned(pilot: Solution, clean: Solution, noise: float) -> Decision:
    """Choose between the l_p answer and that for cleaned samples, which look corrupted.

    Corruption biases the pilot by as much as it likes, so a large difference alone is not held against the cleaned
    answer if the cleaning took most of the `noise` away, which codes of another law than assumed would not let it.
    """
    r = clean.stats.weight
    pilot_error, error = (error_bar(code_moments(found.stats), r) for found in (pilot, clean))
    if not (clean.converged and math.isfinite(error)):
        return Decision(False, "kept l_p: the answer for cleaned samples is not a maximum")
    assert isinstance(clean.objective, SparseCorruption)
    left, law = clean.objective.model.noise, clean.objective.law
    if left < 0.5 * noise:
        hits = f"{100 * law.rate:.2g} % of the entries were hit"
        return Decision(True, f"refined: {hits}; cleaning takes the noise from {noise:.2g} to {left:.2g}", error)
    return _weighed(error, apart(pilot.A, clean.A) - max(pilot_error - error, 0.0), pilot_error)


def apart(A: Array, B: Array) -> float:
    """Difference of two answers as a recovery error."""
    return 1 - float(np.sum((to_numpy(A) @ to_numpy(B).T) ** 4)) / int(A.shape[0])


def _weighed(error: float, excess: float, pilot_error: float) -> Decision:
    """Verdict on a refined answer of this error bar whose difference from l_p exceeds what is expected by `excess`.

    That counts more than once: what made the refined answer biased has biased the pilot too, which the difference does
    not show.
    """
    bias = 2.5 * max(0.0, excess)
    numbers = f"error bar {error:.2g} + bias {bias:.2g}, l_p {pilot_error:.2g}"
    if error + bias < 0.95 * pilot_error:
        return Decision(True, f"refined: {numbers}", error + bias)
    return Decision(False, f"kept l_p: refined {numbers}")


def error_bar(of: CodeMoments, n_samples: float) -> float:
    """Expected error of an answer with these moments, infinite where it is no maximum."""
    errors = atom_errors(of, n_samples)
    m = int(errors.shape[0])
    corrected = total(with_small_sample_correction(errors, m, n_samples)) / m
    return corrected if math.isfinite(total(errors)) else math.inf


def exact(model: SpikeSlab, n_samples: float) -> bool:
    """Tell whether the codes of every atom have so many zeros that the atom must be a true one.

    A direction can be chosen orthogonal to n - 1 samples, and then to no others by chance: atoms with half as many
    zero codes again are no accident.
    """
    zeros = (1 - model.density) * n_samples
    tiny = model.noise <= 1e-10 * float(np.mean(model.density * model.power))
    return bool(tiny and np.all(zeros > 1.5 * len(zeros)))
