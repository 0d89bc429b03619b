"""Sums over a block of samples by which it is compared with those before: what turns the atoms, and powers of codes."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from elldict._old.solver.directions import FAR_CURVATURE
from elldict._old.solver.evaluate import Statistics
from elldict._old.solver.running import Matrix
from elldict._old.theory.error_bars import CodeMoments

MAX_CODE = 1e60
"""Beyond which the fourth power of a code might overflow."""

MAX_MAGNITUDE, USUAL_ROWS = 10.0, 64
"""Times the mean magnitude of codes beyond which a code counts no more: Gaussian, Laplace and most sparse codes are
never that large, but codes without a fourth moment are. Mean over those of the same part, and so many usual ones."""

LEAST_VARIANCE, LEAST_MEAN = 0.01, 1e-150
"""Of a code's share in sparsity and relative magnitude, at least: of Gaussian codes .045 and .57, and none of codes
that are all of one size; and least mean of a power, so that codes that are all zero are compared as well."""


@dataclass(frozen=True)
class PathSums:
    """Sums over samples of what turns the atoms of a path, and the moments of its objective."""

    weight: float
    squared_weight: float  # sum of the squares of the weights of samples
    pull: Matrix  # (m, m) sum g_i z_j - g_j z_i; where directions belong to no atom, (m, m + k) with sum g_i y left
    moments: Matrix  # (4, m) sums of g z, g^2, slope, z^2

    @classmethod
    def empty(cls, m: int, k: int) -> PathSums:
        """Sums of no samples."""
        return cls(0.0, 0.0, np.zeros((m, m if m == k else m + k)), np.zeros((4, m)))

    @classmethod
    def of(cls, stats: Statistics, A: Matrix) -> PathSums:
        """Sums of a part, evaluated at A (m, k)."""
        C = np.asarray(stats.G) @ A.T
        pull = C - C.T if len(A) == A.shape[1] else np.hstack([C - C.T, stats.G - C @ A])
        moments = np.stack([stats.gz, stats.g2, stats.slope, stats.z2])
        return cls(stats.weight, stats.weight, pull, moments)

    def __add__(self, other: PathSums) -> PathSums:
        return PathSums(
            self.weight + other.weight,
            self.squared_weight + other.squared_weight,
            self.pull + other.pull,
            self.moments + other.moments,
        )

    def decayed(self, keep: float) -> PathSums:
        """With this share of all weight kept."""
        return PathSums(keep * self.weight, keep**2 * self.squared_weight, keep * self.pull, keep * self.moments)

    def measure_variances(self) -> Matrix:
        """Variance of what one sample adds to the pull, of codes that do not depend on each other."""
        gz, g2, _, v = self.moments / self.weight
        noise = g2[:, None] * v[None, :]
        within = noise + noise.T - 2 * np.outer(gz, gz)
        m, width = self.pull.shape
        left = np.full((m, width - m), self._measure_rest()) * g2[:, None]  # of k coordinates, k - m count
        return np.hstack([np.maximum(within, 0.0), left])

    def _measure_rest(self) -> float:
        """Mean square in the directions that belong to no atom."""
        m, width = self.pull.shape
        k = width - m
        left = k - float(np.sum(self.moments[3])) / self.weight
        return float(max(0.0, left) / max(k - m, 1))

    def standardize(self, n_before: float) -> Matrix:
        """Pull in standard deviations, at atoms learned from so many samples before."""
        variances = self.measure_variances() * self.weight * (1 + self.weight / n_before)
        np.fill_diagonal(variances, 0.0)
        return np.where(variances > 0, self.pull / np.sqrt(np.where(variances > 0, variances, 1.0)), 0.0)

    def measure_curvatures(self) -> Matrix:
        """How much a unit of angle changes the pull of one sample, as the steps of a stream have it."""
        m, width = self.pull.shape
        gz, _, slope, _ = means = self.moments / self.weight
        size = np.abs(gz)
        least = FAR_CURVATURE / 2 * (size[:, None] + size[None, :]) + 1e-300
        within = np.maximum(CodeMoments(*means).curvatures(), least)
        outward = np.maximum(gz - self._measure_rest() * slope, FAR_CURVATURE * size + 1e-300)
        return np.hstack([within, np.repeat(outward[:, None], width - m, axis=1)])


@dataclass(frozen=True)
class CodeSums:
    """Sums of the first four powers of the magnitudes of codes, cut so that rare large ones do not decide.

    And the sum of the sparsities of blocks, each as often as it has codes: the ratio of means over few codes is biased,
    by more the more they depend on each other, and is compared with ratios of the same kind.
    """

    weight: float
    powers: Matrix  # (4, m)
    sparsities: Matrix  # (m,) of blocks that have ended

    @classmethod
    def empty(cls, m: int) -> CodeSums:
        """Sums of no codes."""
        return cls(0.0, np.zeros((4, m)), np.zeros(m))

    @classmethod
    def of(cls, codes: Matrix, usual: Matrix) -> CodeSums:
        """Sums of codes (b, m) whose magnitudes are `usual` (m,) otherwise."""
        size, b = np.minimum(np.abs(codes), MAX_CODE), len(codes)
        mean = (np.sum(size, axis=0) + USUAL_ROWS * usual) / (b + USUAL_ROWS)
        size = np.minimum(size, MAX_MAGNITUDE * mean)
        square = size**2
        powers = [np.sum(power, axis=0) for power in (size, square, size * square, square**2)]
        return cls(float(b), np.stack(powers), np.zeros_like(mean))

    def __add__(self, other: CodeSums) -> CodeSums:
        sparsities = self.sparsities + other.sparsities
        return CodeSums(self.weight + other.weight, self.powers + other.powers, sparsities)

    def decayed(self, keep: float) -> CodeSums:
        """With this share of the weight kept."""
        return CodeSums(keep * self.weight, keep * self.powers, keep * self.sparsities)

    @property
    def means(self) -> Matrix:
        """Means (4, m) of the powers."""
        return np.asarray(np.maximum(self.powers / self.weight, LEAST_MEAN))

    @property
    def sparsity(self) -> Matrix:
        """E|z| over the root mean square (m,): the smaller, the sparser; of Gaussian codes sqrt(2 / pi)."""
        return self.sparsities / self.weight

    def end_block(self) -> CodeSums:
        """With the sparsity of a block that ends, less its bias if codes do not depend on each other."""
        rho, third, fourth = self._standardize()
        bias = (3 / 8) * rho * (fourth - 1) - (third - rho) / 2
        return replace(self, sparsities=self.weight * rho - bias)

    def _standardize(self) -> tuple[Matrix, Matrix, Matrix]:
        """Means (m,) of the first, third and fourth power of codes of unit variance."""
        size, square, third, fourth = self.means
        return size / square**0.5, third / square**1.5, fourth / square**2

    @property
    def kurtosis(self) -> Matrix:
        """Fourth cumulant of codes of unit variance (m,): of Gaussian codes zero."""
        return self._standardize()[2] - 3

    def measure_variances(self) -> tuple[Matrix, Matrix]:
        """Variances of one code's share (m,) in the sparsity, by the delta method, and in the relative magnitude."""
        rho, third, fourth = self._standardize()
        of_sparsity = 1 - rho * third + rho**2 * (fourth - 1) / 4  # of |z| / s - rho z^2 / (2 s^2), s^2 = E z^2
        return np.maximum(of_sparsity, LEAST_VARIANCE), np.maximum(rho**-2 - 1, LEAST_VARIANCE)

    def compare(self, before: CodeSums, signs: Matrix) -> tuple[Matrix, Matrix]:
        """Scores (m + 1,) by which codes are less sparse than those before, and by which they are larger.

        Of atoms with a negative sign, whose codes are less sparse than Gaussian ones: by which they are sparser.
        """
        spread, both = 1 / self.weight + 1 / before.weight, self + before
        of_sparsity, of_size = (np.sqrt(variance * spread) for variance in both.measure_variances())
        sparsity = signs * (self.sparsity - before.sparsity) / of_sparsity
        scale = (self.means[0] - before.means[0]) / both.means[0] / of_size
        root = math.sqrt(len(signs))
        return np.append(sparsity, np.sum(sparsity) / root), np.append(scale, np.sum(scale) / root)
