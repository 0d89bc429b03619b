"""Model selection: whether a refined estimate is accepted instead of that of l_p."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from elldict._old.backend.base import Array, to_numpy, total
from elldict._old.result import Estimate
from elldict._old.solver.corruption import SparseCorruption
from elldict._old.solver.evaluate import Statistics, find_unidentifiable
from elldict._old.solver.spike_slab import SpikeSlab
from elldict._old.theory.error_bars import CodeMoments, atom_errors, with_small_sample_correction

MAX_PILOT_ERROR = 0.5
"""Error bar from which an l_p estimate is no start for a refinement, unless that turns out to be exact."""

BIAS_WEIGHT = 2.5
"""Times that the excess of a difference counts: what made the refined estimate biased has biased the pilot too, which
the difference does not show."""

MIN_IMPROVEMENT = 0.95
"""Ratio of error bars below which a refined estimate is an improvement."""

CHANCE_SD = 2.0
"""Standard deviations by which chance may take a refined estimate of a law that is fitted freely away from l_p: such a
law is biased by noise alone."""

NOTHING_TO_REFINE = "kept l_p: its error bar leaves nothing to refine"


@dataclass(frozen=True)
class Decision:
    """Whether the refined estimate is accepted, and the numbers behind it."""

    accepted: bool
    reason: str
    error: float = math.inf  # error bar and bias
    exact: bool = False


AS_ASKED = Decision(True, "refined: as asked")
EXACT = Decision(True, "refined: codes are exactly sparse", 0.0, exact=True)


def decide(pilot: Estimate, refined: Estimate, law: SpikeSlab, n_mixed: int) -> Decision:
    """Choose between the l_p estimate and the refined one, whose statistics have l_p as secondary objective.

    `law` is that of the codes at the refined estimate.
    """
    if is_exact(law, refined.stats.weight) and n_mixed == 0:
        return EXACT
    return decide_on_converged(pilot, refined)


def decide_on_converged(pilot: Estimate, refined: Estimate, n_sd: float = 0.0) -> Decision:
    """Choose between the l_p estimate and a refined one by Hausman's test, if the latter converged."""
    if not refined.converged:
        return Decision(False, "kept l_p: the refinement did not converge")
    unidentifiable = find_left_out(pilot)
    distance = distance_between(pilot.A, refined.A, unidentifiable)
    return apply_hausman_test(pilot.stats.moments, refined.stats, distance, unidentifiable, n_sd)


def apply_hausman_test(
    pilot: CodeMoments, stats: Statistics, distance: float, unidentifiable: NDArray[np.bool_], n_sd: float = 0.0
) -> Decision:
    """Hausman's test: choose by what lies between the l_p estimate, of these moments, and the refined one.

    If the likelihood is right, the two differ by no more than their error bars say. If it is wrong, the refined
    estimate is biased, and the excess of their `distance` shows by how much. It is accepted if its error bar and its
    bias together are smaller than the error bar of the pilot. Of the excess, `n_sd` standard deviations are chance.
    Angles between two `unidentifiable` atoms (m,) are chance under either objective, and are left out of all sums.
    """
    r, refined = stats.weight, stats.moments
    pilot_error, refined_error = error_bar(pilot, r, unidentifiable), error_bar(refined, r, unidentifiable)
    if pilot_error > MAX_PILOT_ERROR:
        return Decision(False, NOTHING_TO_REFINE)
    if not math.isfinite(refined_error):
        return Decision(False, "kept l_p: the refined answer is not a maximum")
    m = int(refined.z2.shape[0])
    covariances = refined.angle_covariances(pilot, stats.extra["cross"] / r, r, unidentifiable)
    excess = distance - (pilot_error + refined_error - 4 * total(covariances) / m)
    if n_sd:
        own = sum(of.angle_covariances(of, of.g2, r, unidentifiable) for of in (refined, pilot))
        excess -= n_sd * 4 / m * math.sqrt(total((own - 2 * covariances) ** 2))
    return _weigh(refined_error, excess, pilot_error)


def find_left_out(pilot: Estimate) -> NDArray[np.bool_]:
    """Atoms (m,) of an l_p estimate whose angles with each other are chance, and say nothing of the others.

    None if it did not converge: its atoms may look Gaussian because they are not found yet.
    """
    found = find_unidentifiable(pilot.stats, int(pilot.A.shape[1]))
    return found if pilot.converged else np.zeros_like(found)


def decide_on_cleaned(pilot: Estimate, cleaned: Estimate, noise: float) -> Decision:
    """Choose between the l_p estimate and that for cleaned samples, which look corrupted.

    Corruption biases the pilot by as much as it likes, so a large difference alone is not held against the cleaned
    estimate if the cleaning took most of the `noise` away, which codes of another law than assumed would not let it.
    """
    r, unidentifiable = cleaned.stats.weight, find_left_out(pilot)
    pilot_error, error = (error_bar(found.stats.moments, r, unidentifiable) for found in (pilot, cleaned))
    if not (cleaned.converged and math.isfinite(error)):
        return Decision(False, "kept l_p: the answer for cleaned samples is not a maximum")
    assert isinstance(cleaned.objective, SparseCorruption)
    left = cleaned.objective.law.noise
    if left < 0.5 * noise:
        return Decision(True, f"refined: cleaning takes the noise from {noise:.2g} to {left:.2g}", error)
    distance = distance_between(pilot.A, cleaned.A, unidentifiable)
    return _weigh(error, distance - max(pilot_error - error, 0.0), pilot_error)


def distance_between(A: Array, B: Array, unidentifiable: NDArray[np.bool_]) -> float:
    """Difference of two estimates as a recovery error, those `unidentifiable` (m,) of B rotated to be those of A."""
    squares = (to_numpy(A) @ to_numpy(B).T) ** 2
    if np.any(unidentifiable):
        block = np.ix_(unidentifiable, unidentifiable)
        squares[block] = np.diag(np.sum(squares[block], axis=1))
    return 1 - float(np.sum(squares**2)) / int(A.shape[0])


def _weigh(error: float, excess: float, pilot_error: float) -> Decision:
    """Decide on a refined estimate of this error bar whose distance from l_p exceeds what is expected by `excess`."""
    bias = BIAS_WEIGHT * max(0.0, excess)
    numbers = f"error bar {error:.2g} + bias {bias:.2g}, l_p {pilot_error:.2g}"
    if error + bias < MIN_IMPROVEMENT * pilot_error:
        return Decision(True, f"refined: {numbers}", error + bias)
    return Decision(False, f"kept l_p: refined {numbers}")


def error_bar(moments: CodeMoments, n_samples: float, unidentifiable: NDArray[np.bool_] | None = None) -> float:
    """Expected error of an estimate with these moments, infinite where it is no maximum.

    Angles between two `unidentifiable` atoms (m,) do not count, unless these are all there are.
    """
    errors = atom_errors(moments, n_samples, unidentifiable=unidentifiable)
    m = int(errors.shape[0])
    if unidentifiable is not None and np.all(unidentifiable):
        return math.inf
    corrected = total(with_small_sample_correction(errors, m, n_samples)) / m
    return corrected if math.isfinite(total(errors)) else math.inf


def is_exact(law: SpikeSlab, n_samples: float) -> bool:
    """Tell whether the codes of every atom have so many zeros that the atom must be a true one.

    A direction can be chosen orthogonal to n - 1 samples, and then to no others by chance: atoms with half as many
    zero codes again are no accident.
    """
    zeros = (1 - law.density) * n_samples
    tiny = law.noise <= 1e-10 * float(np.mean(law.density * law.power))
    return bool(tiny and np.all(zeros > 1.5 * len(zeros)))
