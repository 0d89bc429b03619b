"""What a stream keeps of samples and codes that are gone: mean and covariance, and histograms."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from elldict.samples.survey import Spread, Survey
from elldict.solver.code_model import Counts

Matrix = NDArray[np.float64]

BINS, SPAN, HIGHEST = 240, 80.0, 10.0
"""Bins, how much of the natural logarithm of the square of a code they span, and where they end; its mean is one.
They are fixed, because codes of all times go into the same ones."""


@dataclass(frozen=True)
class Cloud:
    """Weight, mean and covariance of the samples seen, in units of `unit`."""

    weight: float
    unit: float
    mean: Matrix  # (n,)
    covariance: Matrix  # (n, n)

    @classmethod
    def of(cls, survey: Survey) -> Cloud:
        """Cloud of the samples of a fit."""
        mean = survey.mean / survey.unit
        covariance = survey.scatter if survey.centred else survey.scatter - np.outer(mean, mean)
        return cls(float(survey.n_samples), survey.unit, mean, covariance)

    def joined(self, other: Spread, keep: float) -> Cloud:
        """The cloud with this share of its weight kept, and more samples; by the formula that `Spread` has."""
        shrink = math.ldexp(1.0, other.exponent) / self.unit
        weight = keep * self.weight + other.weight
        apart = other.mean * shrink - self.mean
        between = np.outer(apart, apart) * (keep * self.weight * other.weight / weight)
        total = keep * self.weight * self.covariance + other.scatter * shrink**2 + between
        return Cloud(weight, self.unit, self.mean + apart * (other.weight / weight), total / weight)

    def survey(self, *, center: bool, dtype: str) -> Survey:
        """The cloud as a survey, from which a frame can be made."""
        scatter = self.covariance if center else self.covariance + np.outer(self.mean, self.mean)
        return Survey(
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
class Histogram:
    """Squares of codes, counted in bins of their logarithm, for each atom."""

    count: Matrix  # (m, bins)
    z2: Matrix  # (m, bins) sum of squares

    @classmethod
    def empty(cls, m: int) -> Histogram:
        """Nothing counted."""
        return cls(np.zeros((m, BINS)), np.zeros((m, BINS)))

    def faded(self, keep: float) -> Histogram:
        """With this share of the counts kept."""
        return Histogram(keep * self.count, keep * self.z2)

    def joined(self, Z: Matrix, weight: float) -> Histogram:
        """With codes Z (b, m) that count `weight` together."""
        z2 = np.square(Z.T)
        where = (np.log(np.maximum(z2, 1e-300)) - HIGHEST + SPAN) * (BINS / SPAN)
        flat = np.clip(where, 0, BINS - 1).astype(np.intp) + BINS * np.arange(len(z2))[:, None]
        each = np.full(z2.size, weight / len(Z))
        count, total = (
            np.bincount(flat.ravel(), weights=values, minlength=self.count.size).reshape(self.count.shape)
            for values in (each, each * z2.ravel())
        )
        return Histogram(self.count + count, self.z2 + total)

    @property
    def weight(self) -> float:
        """Codes of an atom."""
        return float(np.sum(self.count[0]))

    def counts(self) -> Counts:
        """Bins that are not empty, as the fit of the law wants them."""
        used = np.any(self.count > 0, axis=0)
        return Counts(self.count[:, used], self.z2[:, used] / np.maximum(self.count[:, used], 1e-300))
