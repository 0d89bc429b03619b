"""One test for change: scores of blocks of samples, which are summed until they exceed chance.

If nothing has changed, all scores are about standard normal:
- the product of the angles that a block finds with the mean angles of recent blocks. After Newton steps of decreasing
  length these are uncorrelated; atoms that drift are off to the same side again and again;
- the decrease of the log-likelihood per sample, in total and for each atom, compared with earlier blocks. Samples are
  tested before they are used.

Scores are summed by Page's CUSUM, S = max(0, S + score - k), with alarm at S > h. The mean number of blocks until S
exceeds h by chance is about exp(2 k (h + 1.166)) / (2 k^2) (Siegmund), for each of the scores.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from elldict.samples.base import Array

BLOCK = 256  # minimum number of samples per block: sums over sparse codes are then nearly normal
ALLOWANCE = 0.5  # k: half of the shift that is noticed soonest
BLOCKS_PER_ALARM = 1e5  # by chance, if scores are normal
LEAST_BLOCKS = 2  # of an alarm: a score counts no more than the threshold divided by this
SUSPECT = 5.0  # score of a block that is either an outlier or the first after a change
LAG_SHARE = 1 / 16  # weight of a block in the mean angles of recent ones
PRIOR_BLOCKS, MEMORY_BLOCKS = 4, 64  # of the spread of scores: weight of its initial value, and memory
LEAST_ANGLE = 1e-5  # below, atoms without noise are off by rounding errors of single precision
FITTED_WEIGHTS = 5.0  # of a density: its log-likelihood varies by this over the number of samples with every refit
GROWN = 4.0  # times as many samples as at the beginning, when excess errors of a small first fit have faded
LEARNING_BLOCKS = 8  # whose scores only tell how scores vary, which is more if samples depend on each other
OUTLIER = 9.0  # limit of a squared score, relative to its mean, when the spread is updated


@dataclass(frozen=True)
class Block:
    """Sums over the samples of a block so far."""

    n_samples: int
    slope: Array  # (k, k) antisymmetric
    values: Array  # (m,) log-likelihoods of the codes

    def __add__(self, other: Block) -> Block:
        """Add the sums of more samples."""
        return Block(self.n_samples + other.n_samples, self.slope + other.slope, self.values + other.values)


@dataclass(frozen=True)
class ChangeTest:
    """Scores of all blocks, summed up, and the mean angles of recent blocks."""

    lag: Array  # (k, k) mean of the angles found by recent blocks
    levels: Array  # (m,) mean log-likelihoods of codes
    variances: Array  # (m + 1,) of the log-likelihoods of samples: in total and for each atom
    level_weight: float
    n_fitted: int  # samples to which the densities are fitted
    begin_weight: float  # of the samples at the beginning
    since: Array  # (m + 2,) number of samples at the last block that gave no hint of a change
    spreads: Array  # (m + 2,) mean squares of the scores
    sums: Array  # (m + 2,) of the CUSUM
    lag_noise: float = 0.0  # variance of the lag, relative to that of the angles of one sample
    inflation: float = 1.0  # mean of squared angles, relative to their variance: above 1 if samples are dependent
    n_blocks: int = 0
    is_suspect: bool = False  # whether a block was very unlikely, and those since then do not show that it was chance
    pending: Block | None = None

    @property
    def threshold(self) -> float:
        """Sum of scores beyond chance, h."""
        return math.log(len(self.sums) * BLOCKS_PER_ALARM * 2 * ALLOWANCE**2) / (2 * ALLOWANCE) - 1.166

    @property
    def alarms(self) -> Array:
        """Scores (m + 2,) that exceed chance."""
        return np.asarray(self.sums > self.threshold)

    @property
    def spread_of_angles(self) -> float:
        """Factor by which the variance of angles exceeds that of independent samples."""
        return max(1.0, self.inflation)

    def add(self, block: Block, curvature: Array, variance: Array, weight: float, n_seen: int) -> ChangeTest:
        """Add samples to the block, and end it if it has enough.

        `variance` (k, k) is that of the angles of one sample; atoms have been found from samples of this `weight`.
        """
        pending = block if self.pending is None else self.pending + block
        if pending.n_samples < BLOCK:
            return replace(self, pending=pending)
        return replace(self, pending=None)._end(pending, curvature, variance, weight, n_seen)

    def _end(self, block: Block, curvature: Array, variance: Array, weight: float, n_seen: int) -> ChangeTest:
        """Score a block, and add it to everything that its successors are compared with."""
        b, means = block.n_samples, block.values / block.n_samples
        angles = block.slope / b / curvature
        scores, square = self._compare(angles, means, variance, b, weight)
        share = 1 / (min(self.n_blocks, MEMORY_BLOCKS) + PRIOR_BLOCKS + 1)
        is_learning = self.n_blocks < LEARNING_BLOCKS
        most_square = np.inf if is_learning else OUTLIER * self.spreads
        spreads = self.spreads + share * (np.minimum(scores**2, most_square) - self.spreads)
        inflation = self.inflation + share * (min(square, OUTLIER * self.inflation) - self.inflation)
        scores = scores / np.sqrt(np.maximum(self.spreads, 1))
        most = self.threshold / LEAST_BLOCKS + ALLOWANCE
        sums = np.maximum(0.0, self.sums + np.minimum(scores, most) - ALLOWANCE) * (not is_learning)
        level_weight = self.level_weight + b
        return replace(
            self,
            lag=self.lag + LAG_SHARE * (angles - self.lag),
            lag_noise=(1 - LAG_SHARE) ** 2 * self.lag_noise + LAG_SHARE**2 / b,
            levels=self.levels + (means - self.levels) * b / level_weight,
            level_weight=level_weight,
            inflation=inflation,
            spreads=spreads,
            sums=sums,
            since=np.where(sums == 0, n_seen, self.since),
            n_blocks=self.n_blocks + 1,
            is_suspect=not is_learning
            and bool(np.max(scores) > SUSPECT or (self.is_suspect and np.max(sums) > most / 2)),
        )

    def _compare(self, angles: Array, means: Array, variance: Array, b: int, weight: float) -> tuple[Array, float]:
        """Compute the scores (m + 2,) of b samples, and the mean of its squared angles, in units of chance."""
        known = variance > 0
        chance = np.where(known, variance * (1 / b + 1 / weight) + LEAST_ANGLE**2, np.inf)
        n_angles = max(1.0, np.sum(known) / 2)
        product, norm = np.sum(self.lag * angles / chance), np.sum(self.lag**2 / chance)  # each angle counts twice
        square = float(np.sum(angles**2 / chance)) / 2 / n_angles
        decrease = self.levels - means
        fitted = np.r_[math.sqrt(len(means)), np.ones(len(means))] * FITTED_WEIGHTS / self.n_fitted
        sizes = np.sqrt(self.variances * (1 / b + 1 / self.level_weight) + fitted**2)
        drift = product / math.sqrt(max(2 * norm, 1e-300)) if weight > GROWN * self.begin_weight else 0.0
        scores = np.r_[drift, np.r_[np.sum(decrease), decrease] / sizes]
        return scores, square

    def inherit(self, other: ChangeTest | None) -> ChangeTest:
        """Return the test with what another one has learned about the variation of scores."""
        if other is None:
            return self
        return replace(self, spreads=other.spreads, inflation=other.inflation, n_blocks=other.n_blocks)

    def discount(self, keep: float) -> ChangeTest:
        """Discount the blocks so far."""
        return self if keep == 1 else replace(self, level_weight=max(keep * self.level_weight, float(BLOCK)))

    def measure_lag(self, variance: Array, *, is_drifting: bool) -> Array:
        """Compute squared angles (k,), summed over other directions, by which recent blocks are off.

        If their sum is within chance, there are none, unless the atoms are known to drift.
        """
        squares = self.lag**2
        if is_drifting:
            return np.asarray(np.sum(squares, axis=1))
        n_angles = max(1.0, np.sum(variance > 0) / 2)
        chance = (1 + 2 * math.sqrt(2 / n_angles)) * np.sum(variance) * self.lag_noise * self.spread_of_angles
        return np.asarray(np.sum(squares, axis=1) * max(0.0, 1 - chance / max(np.sum(squares), 1e-300)))


def begin_test(k: int, levels: Array, variances: Array, n_fitted: int, weight: float, n_seen: int) -> ChangeTest:
    """Begin with mean log-likelihoods (m,) of codes and the variances (m + 1,) of log-likelihoods, from a fit."""
    m = len(levels)
    since, ones, zeros = np.full(m + 2, n_seen), np.ones(m + 2), np.zeros(m + 2)
    return ChangeTest(np.zeros((k, k)), levels, variances, BLOCK, n_fitted, weight, since, ones, zeros)
