"""Refinement where samples are corrupted in a few entries: its stages, and the evidence for it.

Like the likelihood for Gaussian noise it is a contrast and a step for the loop there is. A look at a sample costs ten
rounds of messages, so atoms first come to rest on a few samples, and all are looked at when they nearly stand still.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from elldict.backend.base import Array, Work, to_numpy
from elldict.data.dataset import ArrayDataset
from elldict.result import Solution
from elldict.solver.amp import AmpRound, CorruptionLaw, clean, compute_schedule, first_residual, learned
from elldict.solver.directions import PairwiseNewton
from elldict.solver.loop import Phase, Problem, solve_from
from elldict.solver.objective import Objective, Quantities
from elldict.solver.spike_slab import SpikeSlab, SpikeSlabLikelihood

FEWEST_ROWS = 4096
ROWS_PER_FEATURE = 40
"""Samples on which atoms come to rest before all are looked at."""

LAW_ROWS = 4096
"""Samples from which the law and the variances of the messages are found."""

FIRST_ROUNDS, LATER_ROUNDS = 25, 10
"""Rounds in which the law is learned: from nothing, and from the last one."""

FINEST = 5e-5
"""Steps below this are not taken: where recovery is exact, the error is then about 1e-9 and falls with every step."""

FINAL_NOISE_FRACTION = 0.03
"""Nor are steps that are this share of what the error bar leaves in doubt."""

MOST_ITERATIONS = 60

MIN_NOISE_PER_STEP = 0.5
"""The standard deviation of the noise stays above this many times the last move of any atom."""


@dataclass(frozen=True)
class CorruptionSubsample:
    """A random few of the samples, raw and inside the frame, from which the law of the corruption is learned."""

    samples: ArrayDataset
    rows: NDArray[np.float64]  # (b, n)
    least_noise: float

    @classmethod
    def draw(cls, problem: Problem, rng: np.random.Generator, least_noise: float) -> CorruptionSubsample:
        """Draw rows uniformly."""
        samples = problem.samples
        number = min(samples.n_samples, max(FEWEST_ROWS, ROWS_PER_FEATURE * samples.n_features))
        index = np.sort(rng.choice(samples.n_samples, number, replace=False)).astype(np.int64)
        raw = samples.take(index)
        stride = -(-number // LAW_ROWS)
        inside = problem.whitening.move_to(ArrayDataset(raw).backend).whiten(raw[::stride])
        return cls(ArrayDataset(samples.backend.asarray(raw, samples.dtype)), inside, least_noise)

    def objective(self, A: Array) -> SparseCorruption:
        """Contrast for A, its law learned from nothing."""
        guess = CorruptionLaw.guess(int(A.shape[0]), self.least_noise)
        return self._scheduled(A, learned(self.rows, to_numpy(A), guess, FIRST_ROUNDS))

    def refit(self, objective: Objective, A: Array, moved: float) -> Objective:
        """Contrast for A, its law learned from the last one; noise is not let down faster than atoms come to rest."""
        assert isinstance(objective, SparseCorruption)
        before = objective.law.noise
        law = learned(self.rows, to_numpy(A), objective.law, LATER_ROUNDS)
        if law.noise < before:  # it falls by the same factor again and again, so it may as well fall twice at once
            least = max(self.least_noise, min(before, (MIN_NOISE_PER_STEP * moved) ** 2))
            law = replace(law, noise=max(law.noise * law.noise / before, least))
        return self._scheduled(A, law)

    def _scheduled(self, A: Array, law: CorruptionLaw) -> SparseCorruption:
        amp_schedule = compute_schedule(self.rows, to_numpy(A), law)
        return SparseCorruption(law.codes(amp_schedule.blur), law, amp_schedule.rounds)


def solve_corrupted(
    A: Array, objective: SparseCorruption, problem: Problem, drawn_corrupted: CorruptionSubsample, lp_stage: Phase
) -> Solution:
    """Where the loop ends from A: first on the suspects, then on all samples."""
    phase = Phase(
        objective,
        PairwiseNewton(),
        lp_stage.precision,
        max(lp_stage.tol, FINEST),
        min(lp_stage.max_iter, MOST_ITERATIONS),
        quantities=Quantities.GRADIENT | Quantities.MOMENTS,
        refit=drawn_corrupted.refit,
        objective_slack=math.inf,  # the contrast follows A, so there is no objective to compare
        noise_fraction=FINAL_NOISE_FRACTION,
    )
    share = drawn_corrupted.samples.n_samples / problem.samples.n_samples
    if share < 0.5:
        few = replace(problem, samples=drawn_corrupted.samples, share=share)  # shares the list of iterations
        pilot = solve_from(A, few, [phase])
        if pilot.stopped:
            return pilot
        A, phase = pilot.A, replace(phase, objective=pilot.objective)
    return solve_from(A, problem, [phase])


def looks_corrupted(rows: NDArray[np.float64], A: Array, codes: SpikeSlab, rng: np.random.Generator) -> bool:
    """Tell whether what the codes leave of samples has much heavier tails in its own entries than in other directions.

    Codes that do not follow their law leave something behind too, but in their own basis; in all other directions,
    those of the entries among them, it looks nearly Gaussian.
    """
    rest = first_residual(rows, to_numpy(A), codes)
    n = rest.shape[1]
    directions = (rng.standard_normal((n, n)) for _ in range(3))  # uniform, and of any length
    other = float(np.mean([_kurtosis(rest @ several) for several in directions]))
    chance = math.sqrt(24 / rest.size)
    return _kurtosis(rest) - other > 0.5 * abs(other) + 0.08 + 4 * chance


def _kurtosis(values: NDArray[np.float64]) -> float:
    """Mean over columns, which may differ in scale."""
    squares = values**2
    return float(np.mean(np.mean(squares**2, axis=0) / np.mean(squares, axis=0) ** 2) - 3)


@dataclass(frozen=True)
class SparseCorruption(SpikeSlabLikelihood):
    """The same likelihood for codes of samples from which the corruption has been taken out, at the A in question.

    `model` is the law of those codes, its noise what the cleaning leaves.
    """

    law: CorruptionLaw
    rounds: tuple[AmpRound, ...]

    def codes(self, Y: Array, decode: Array, work: Work, xp: Any) -> tuple[Array, Array]:
        """Cleaned samples, and their codes."""
        return super().codes(clean(Y, decode, self.rounds, work, xp), decode, work, xp)
