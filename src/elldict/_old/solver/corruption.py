"""Samples that are corrupted in a few entries: the likelihood of their codes once they are cleaned.

A pass over samples that are cleaned costs ten rounds of message passing (`amp`), so atoms first settle on a few drawn
samples, and all are evaluated when they hardly move.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from elldict._old.backend.base import NUMPY, Array, Backend, Work, column_means, to_numpy, total
from elldict._old.data.dataset import ArrayDataset
from elldict._old.data.subsample import SUBSAMPLE_ROWS_PER_FEATURE
from elldict._old.data.whitening import Whitening
from elldict._old.result import Estimate
from elldict._old.solver.amp import (
    MAX_ROUNDS,
    AmpRound,
    CorruptionLaw,
    clean,
    compute_schedule,
    first_residual,
    learn_law,
)
from elldict._old.solver.code_histogram import CodeHistogram
from elldict._old.solver.code_subsample import MAX_VALUES
from elldict._old.solver.directions import PairwiseNewton, pairwise_angles, turn
from elldict._old.solver.loop import Phase, Problem, run_phases
from elldict._old.solver.objective import Quantities
from elldict._old.solver.rounding import is_coarse
from elldict._old.solver.spike_slab import MAX_LIKELIHOOD_STEPS, SpikeSlab, SpikeSlabLikelihood, fit_spike_slab

DRAWN_ROWS = 4096
"""Samples on which atoms settle before all are evaluated, at least; and about as many from which the law of the
corruption and the variances of the messages are found."""

UPDATE_ROUNDS = 10
"""Rounds in which the law is learned from the last one; `MAX_ROUNDS` from nothing."""

MIN_STEP = 5e-5
"""Length, in radians, below which steps are not taken: where recovery is exact, the error is then about 1e-9."""

NOISE_FRACTION = 0.03
"""Nor are steps below this share of the standard error."""

SETTLED_LOG_NOISE, SETTLED_MOVE = 0.01, 0.002
"""Change of the logarithm of the noise, and move of any atom in radians, below which the law stays as it is: learned
anew at every step, it would keep atoms from coming to rest."""

MIN_NOISE_PER_MOVE = 0.5
"""The standard deviation of the noise stays above this many times the last move of any atom."""

LIGHTER = 0.7
"""Ratio of excess kurtoses of entries and of other directions below which no entry was hit: hits of half a standard
deviation of a code leave .95, and some photographs, whose entries are sums of all codes, have less than .1."""

SD_PER_DEVIATION, MAX_SD = 1.4826, 3.0
"""Standard deviation of a Gaussian value over its median absolute deviation, and how many of them an entry is limited
to: with 4, entries are still sparse of which a tenth was hit; with 2, samples of 8 entries lose their codes."""

MIN_GUESSED_RATE = 1e-3
"""Share of entries that were hit at which learning begins, at least: from none, none is found."""

PROBE_ANGLE, PROBE_SEED, LEAST_CURVATURE = 0.02, 40, 0.1
"""Root mean square of the random angles, in radians, by which atoms are turned to see how far they are led back, their
seed, and the curvature of a pair, at least, relative to the size of the objective."""

CLEANING_OPTIMISM = 1.3
"""Factor by which errors of cleaned samples are larger still than this says, found with a grid of known atoms."""

LEAST_WAY_BACK = 0.2
"""Share of such angles that is taken back, at least: below, the measurement says no more than that it is small."""


@dataclass(frozen=True)
class SparseCorruption(SpikeSlabLikelihood):
    """The likelihood of codes of samples from which the corruption has been removed, at the A in question.

    `law` is the law of those codes, its noise what the cleaning leaves.
    """

    corruption: CorruptionLaw = field(kw_only=True)
    rounds: tuple[AmpRound, ...] = field(kw_only=True)
    source: CorruptionSubsample = field(kw_only=True, repr=False, compare=False)
    fixed = False

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "source": None}

    def codes(self, Y: Array, unmixing: Array, work: Work, xp: Any) -> tuple[Array, Array]:
        """Cleaned samples, and their codes."""
        return super().codes(clean(Y, unmixing, self.rounds, work, xp), unmixing, work, xp)

    def updated(self, A: Array, largest_move: float) -> SparseCorruption:
        """Learn the law anew from the last one until it has settled; noise does not fall faster than atoms settle."""
        before = self.corruption.noise
        law = learn_law(self.source.rows, to_numpy(A), self.corruption, UPDATE_ROUNDS)
        if abs(math.log(law.noise / before)) < SETTLED_LOG_NOISE and largest_move < SETTLED_MOVE:
            return self
        if law.noise < before:  # it falls by the same factor again and again, so it may as well fall twice at once
            least = max(law.least_noise, min(before, (MIN_NOISE_PER_MOVE * largest_move) ** 2))
            law = replace(law, noise=max(law.noise * law.noise / before, least))
        return self.source.make_objective(A, law)


@dataclass(frozen=True)
class CorruptionSubsample:
    """A few drawn samples, raw and in whitened coordinates, from which the law of the corruption is learned."""

    samples: ArrayDataset
    rows: NDArray[np.float64]  # (b, n)
    least_noise: float

    @classmethod
    def draw(cls, problem: Problem, rng: np.random.Generator, least_noise: float) -> CorruptionSubsample:
        """Draw rows uniformly."""
        samples = problem.samples
        number = min(samples.n_samples, max(DRAWN_ROWS, SUBSAMPLE_ROWS_PER_FEATURE * samples.n_features))
        index = np.sort(rng.choice(samples.n_samples, number, replace=False)).astype(np.int64)
        raw = samples.take(index)
        rows = problem.whitening.move_to(NUMPY).whiten(raw[:: -(-number // DRAWN_ROWS)])
        return cls(ArrayDataset(samples.backend.asarray(raw, samples.dtype)), rows, least_noise)

    def learn_law(self, A: Array) -> CorruptionLaw:
        """The law at A, learned from nothing."""
        host = to_numpy(A)
        return learn_law(self.rows, host, CorruptionLaw.guess(len(host), self.least_noise), MAX_ROUNDS)

    def make_objective(self, A: Array, law: CorruptionLaw | None = None) -> SparseCorruption:
        """The objective for A under a law, or under one that is learned from nothing."""
        host, law = to_numpy(A), law or self.learn_law(A)
        found = compute_schedule(self.rows, host, law)
        return SparseCorruption(law.law_of_codes(found.blur), corruption=law, rounds=found.rounds, source=self)


def estimate_corrupted(
    A: Array, problem: Problem, drawn: CorruptionSubsample, lp_phase: Phase, law: CorruptionLaw | None = None
) -> Estimate:
    """Where the loop ends from A and a law, if one is known: first on drawn samples, and if they settle on all."""
    phase = Phase(
        drawn.make_objective(A, law),
        PairwiseNewton(),
        lp_phase.precision,
        max(lp_phase.tol, MIN_STEP),
        min(lp_phase.max_iter, MAX_LIKELIHOOD_STEPS),
        quantities=Quantities.GRADIENT | Quantities.MOMENTS,
        objective_slack=math.inf,  # the objective follows A, so there is none to compare
        noise_fraction=NOISE_FRACTION,
    )
    share = drawn.samples.n_samples / problem.samples.n_samples
    if share < 0.5:
        pilot = run_phases(A, replace(problem, samples=drawn.samples, share=share), [phase])
        if pilot.stopped or not pilot.converged:
            return pilot
        A, phase = pilot.A, replace(phase, objective=pilot.objective)
    return run_phases(A, problem, [phase])


def measure_cleaning_factor(A: Array, problem: Problem, objective: SparseCorruption, precision: str) -> float:
    """Factor by which errors at A are larger than if the cleaned samples had been given.

    Cleaning takes what does not suit A for corruption, so part of the curvature of the likelihood is missing, as in
    expectation maximisation. How much is seen in the share of a random turn of the atoms that Newton's step takes back,
    from both sides of A, on drawn samples.
    """
    source, m = objective.source, int(A.shape[0])
    few = replace(problem, samples=source.samples, share=source.samples.n_samples / problem.samples.n_samples)
    random = np.random.default_rng(PROBE_SEED).standard_normal((m, m))
    angles = Backend.of(A).asarray(PROBE_ANGLE * (random - random.T) / math.sqrt(2), "float64")
    back = []
    for sign in (1.0, -1.0):
        there = turn(A, sign * angles)
        seen = source.make_objective(there, objective.corruption)
        stats = few.evaluate(there, seen, Quantities.GRADIENT | Quantities.MOMENTS, precision)
        back.append(pairwise_angles(stats, stats.G, there, LEAST_CURVATURE))
    led_back = total((back[1] - back[0]) * angles) / (2 * total(angles * angles))
    return CLEANING_OPTIMISM * max(1.0, 1 / max(led_back, LEAST_WAY_BACK) ** 2)


def limit_entries(raw: NDArray[np.float64]) -> NDArray[np.float64] | None:
    """Samples (b, n) with every entry limited to a few robust standard deviations of its feature.

    None if that says nothing, because half the values of a feature are the same.
    """
    middle = np.median(raw, axis=0)
    sd = SD_PER_DEVIATION * np.median(np.abs(raw - middle), axis=0)
    return np.clip(raw, middle - MAX_SD * sd, middle + MAX_SD * sd) if np.all(sd > 0) else None


def learn_from_limited(
    rows: NDArray[np.float64], limited: NDArray[np.float64], A: NDArray[np.float64], least_noise: float
) -> CorruptionLaw:
    """Law that suits the samples `rows` (b, n) at A, learned from that of the same samples, limited.

    What is limited is a hit to begin with, and the codes are those of limited samples.
    """
    codes = fit_spike_slab(CodeHistogram.of(limited @ A.T), least_noise=least_noise)
    hit = rows != limited
    rate, size = float(np.mean(hit)), float(np.sum(rows[hit] ** 2)) / max(1, int(np.sum(hit)))
    rate, size = min(max(rate, MIN_GUESSED_RATE), 0.5), max(size, float(np.mean(limited**2)))
    guess = CorruptionLaw(codes.density, codes.power, rate, size, codes.noise, least_noise)
    return learn_law(rows, A, guess, UPDATE_ROUNDS)


def suspects_corruption(rows: Array, whitening: Whitening, A: Array, law: SpikeSlab, rng: np.random.Generator) -> bool:
    """Whether drawn samples look corrupted. Only entries of samples that are not whitened can have been hit.

    Entries that are coarsely rounded look hit where they are not zero, which nothing tells from corruption.
    """
    if whitening.to_white is not None or is_coarse(to_numpy(rows[:, 0])):
        return False
    # as few of them on every device: the host does this
    few = to_numpy(rows[:: max(1, 4 * rows.shape[0] * rows.shape[1] // MAX_VALUES), :])
    return looks_corrupted(few, A, law, rng) and not has_light_entries(few, rng)


def has_light_entries(rows: NDArray[np.float64], rng: np.random.Generator) -> bool:
    """Whether most entries of samples (b, n) have lighter tails than other directions, which hits would not leave."""
    n, scales = rows.shape[1], np.std(rows, axis=0)
    if not np.all(scales > 0):
        return False
    others = rows / scales @ rng.standard_normal((n, n))
    return measure_kurtosis(rows) < LIGHTER * measure_kurtosis(others)


def measure_kurtosis(values: NDArray[np.float64]) -> float:
    """Median over columns of the excess kurtosis of values (b, n); none if they have less than Gaussian ones."""
    squares = values**2
    return max(0.0, float(np.median(column_means(squares**2) / column_means(squares) ** 2)) - 3)


def looks_corrupted(rows: NDArray[np.float64], A: Array, law: SpikeSlab, rng: np.random.Generator) -> bool:
    """Tell whether what the codes leave of samples has much heavier tails in its own entries than in other directions.

    Codes that do not follow their law leave something behind too, but in their own basis; in all other directions,
    those of the entries among them, it looks nearly Gaussian.
    """
    rest = first_residual(rows, to_numpy(A), law)
    n = rest.shape[1]
    others = []
    for _ in range(3):
        others.append(_mean_kurtosis(rest @ rng.standard_normal((n, n))))  # uniform directions, of any length
    other, chance = float(np.mean(others)), math.sqrt(24 / rest.size)
    return _mean_kurtosis(rest) - other > 0.5 * abs(other) + 0.08 + 4 * chance


def _mean_kurtosis(values: NDArray[np.float64]) -> float:
    """Mean over columns, which may differ in scale."""
    squares = values**2
    return float(np.mean(column_means(squares**2) / column_means(squares) ** 2) - 3)
