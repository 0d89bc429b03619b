"""What a stream keeps of samples and codes that are gone: mean and covariance, and histograms."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from elldict._old.data.statistics import PartialStatistics, SampleStatistics
from elldict._old.solver.code_histogram import CodeHistogram

Matrix = NDArray[np.float64]

N_BINS, BIN_SPAN, LAST_BIN = 240, 80.0, 10.0
"""Bins, how much of the natural logarithm of a squared code they span, and where they end; its mean is about one. They
are fixed, because codes of all times go into the same ones."""


@dataclass(frozen=True)
class RunningStatistics:
    """Weight, mean and covariance of the samples seen, in units of `unit`."""

    weight: float
    unit: float
    mean: Matrix  # (n,)
    covariance: Matrix  # (n, n)

    @classmethod
    def of(cls, statistics: SampleStatistics) -> RunningStatistics:
        """Statistics of the samples of a fit."""
        mean = statistics.mean / statistics.unit
        covariance = statistics.scatter if statistics.centred else statistics.scatter - np.outer(mean, mean)
        return cls(float(statistics.n_samples), statistics.unit, mean, covariance)

    def add(self, other: PartialStatistics, keep: float) -> RunningStatistics:
        """With this share of the weight kept, and more samples; by the formula of `PartialStatistics`."""
        shrink = math.ldexp(1.0, other.exponent) / self.unit
        weight = keep * self.weight + other.weight
        apart = other.mean * shrink - self.mean
        between = np.outer(apart, apart) * (keep * self.weight * other.weight / weight)
        total = keep * self.weight * self.covariance + other.scatter * shrink**2 + between
        return RunningStatistics(weight, self.unit, self.mean + apart * (other.weight / weight), total / weight)

    def to_statistics(self, *, center: bool, dtype: str) -> SampleStatistics:
        """Statistics from which a whitening can be made."""
        scatter = self.covariance if center else self.covariance + np.outer(self.mean, self.mean)
        return SampleStatistics(
            n_samples=max(1, round(self.weight)),
            n_features=len(self.mean),
            mean=self.mean * self.unit,
            unit=self.unit,
            scatter=scatter,
            centred=center,
            peak=math.nan,  # of samples that are forgotten
            dtype=dtype,
            precision="float64",
        )


@dataclass(frozen=True)
class RunningHistogram:
    """Squares of codes, counted in bins of their logarithm, for each atom."""

    count: Matrix  # (m, bins)
    z2: Matrix  # (m, bins) sum of squares

    @classmethod
    def empty(cls, m: int) -> RunningHistogram:
        """Count nothing yet."""
        return cls(np.zeros((m, N_BINS)), np.zeros((m, N_BINS)))

    def decayed(self, keep: float) -> RunningHistogram:
        """With this share of the counts kept."""
        return RunningHistogram(keep * self.count, keep * self.z2)

    def add(self, Z: Matrix, weight: float) -> RunningHistogram:
        """With codes Z (b, m) that count `weight` together."""
        z2 = np.square(Z.T)
        where = (np.log(np.maximum(z2, 1e-300)) - LAST_BIN + BIN_SPAN) * (N_BINS / BIN_SPAN)
        flat = np.clip(where, 0, N_BINS - 1).astype(np.intp) + N_BINS * np.arange(len(z2))[:, None]
        each = np.full(z2.size, weight / len(Z))
        count, total = (
            np.bincount(flat.ravel(), weights=values, minlength=self.count.size).reshape(self.count.shape)
            for values in (each, each * z2.ravel())
        )
        return RunningHistogram(self.count + count, self.z2 + total)

    @property
    def weight(self) -> float:
        """Codes of an atom."""
        return float(np.sum(self.count[0]))

    def to_histogram(self) -> CodeHistogram:
        """Bins that are not empty, as the fit of the law wants them."""
        used = np.any(self.count > 0, axis=0)
        return CodeHistogram(self.count[:, used], self.z2[:, used] / np.maximum(self.count[:, used], 1e-300))
