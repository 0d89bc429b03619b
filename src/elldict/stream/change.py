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
from dataclasses import dataclass, field, replace

import numpy as np

from elldict.samples.base import Array, FieldwiseSum
from elldict.stream.path import MEMORY, TINY

BLOCK = 256  # minimum number of samples per block: sums over sparse codes are then nearly normal
ALLOWANCE = 0.5  # k: half of the shift that is noticed soonest
THRESHOLD = 12.0  # h: a normal score has one alarm by chance in 10^6 blocks
LEAST_ANGLE = 1e-5  # below, atoms without noise are off by rounding errors of single precision


@dataclass(frozen=True)
class Block(FieldwiseSum):
    """Sums over the samples of a block so far."""

    n_samples: int
    slope: Array  # (m, m) antisymmetric
    values: Array  # (m,) log-likelihoods of codes


@dataclass(frozen=True)
class ChangeTest:
    """Scores (m + 2,) of all blocks, summed up, and what they are compared with."""

    lag: Array  # (m, m) mean of the angles found by recent blocks
    levels: Array  # (m,) mean log-likelihoods of codes
    variances: Array  # (m,) of the log-likelihoods of codes
    lag_noise: float = 0.0  # variance of the lag, relative to that of the angles of one sample
    n_samples: float = BLOCK  # that the levels are the means of: few, since densities are fitted to the same ones
    spreads: Array = field(default_factory=lambda: np.ones(1))  # mean squares of the scores
    sums: Array = field(default_factory=lambda: np.zeros(1))  # of the CUSUM
    n_blocks: int = 0
    pending: Block | None = None

    @property
    def alarms(self) -> tuple[bool, bool]:
        """Whether atoms drift, and whether samples are less likely than before, beyond chance."""
        return bool(self.sums[0] > THRESHOLD), bool(np.max(self.sums[1:], initial=0) > THRESHOLD)

    def add(self, block: Block, curvature: Array, variance: Array, weight: float) -> ChangeTest:
        """Add samples to the block, and end it if it has enough.

        `variance` (m, m) is that of the angles of one sample; atoms have been found from samples of this `weight`.
        """
        block = block if self.pending is None else self.pending + block
        if block.n_samples < BLOCK:
            return replace(self, pending=block)
        return replace(self, pending=None)._end(block, curvature, variance, weight)

    def _end(self, block: Block, curvature: Array, variance: Array, weight: float) -> ChangeTest:
        """Score a block, and add it to everything that its successors are compared with."""
        b = block.n_samples
        means, angles, n_samples = block.values / b, block.slope / b / curvature, min(self.n_samples, weight)
        chance = np.where(variance > 0, variance * (1 / b + 1 / weight) + LEAST_ANGLE**2, np.inf)
        product, norm = np.sum(self.lag * angles / chance), np.sum(self.lag**2 / chance)  # each angle counts twice
        decrease, noise = self.levels - means, self.variances * (1 / b + 1 / n_samples) + TINY
        total = np.sum(decrease) / math.sqrt(np.sum(noise))
        scores = np.r_[product / math.sqrt(2 * norm + TINY), total, decrease / np.sqrt(noise)]
        share = 1 / (min(self.n_blocks, MEMORY) + 2)  # the initial spread counts as a block
        return replace(
            self,
            lag=self.lag + (angles - self.lag) / MEMORY,
            lag_noise=(1 - 1 / MEMORY) ** 2 * self.lag_noise + 1 / (b * MEMORY**2),
            levels=self.levels + (means - self.levels) * b / (n_samples + b),
            n_samples=n_samples + b,
            spreads=self.spreads + share * (scores**2 - self.spreads),
            sums=np.maximum(0.0, self.sums + scores / np.sqrt(np.maximum(self.spreads, 1)) - ALLOWANCE),
            n_blocks=self.n_blocks + 1,
        )

    def measure_lag(self, variance: Array) -> Array:
        """Compute squared angles (m,), summed over other directions, by which recent blocks are off beyond chance."""
        squares = self.lag**2
        n_angles = max(1.0, np.sum(variance > 0) / 2)
        chance = (1 + 2 * math.sqrt(2 / n_angles)) * np.sum(variance) * self.lag_noise
        return np.asarray(np.sum(squares, axis=1) * max(0.0, 1 - chance / max(np.sum(squares), TINY)))
