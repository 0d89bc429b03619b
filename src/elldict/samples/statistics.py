"""The first passes: largest entry, mean, second moments, and the position of NaN or infinity."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np

from elldict.samples.arrays import SelectedSamples
from elldict.samples.base import Array, FieldwiseSum, Samples, weigh


class EqualSamplesError(ValueError):
    """The samples do not vary in any direction."""


@dataclass(frozen=True)
class Statistics:
    """Moments of samples divided by their largest absolute entry, so that powers do not overflow or underflow."""

    n_samples: float  # total weight
    largest: float  # absolute value of an entry
    mean: Array  # (n,)
    covariance: Array  # (n, n), about the mean

    def second_moments(self, *, center: bool) -> Array:
        """Return the mean of y y^T (n, n), about the mean or about zero."""
        return self.covariance if center else self.covariance + np.outer(self.mean, self.mean)


@dataclass(frozen=True)
class _Extreme:
    """Largest absolute value of an entry, and the position of the first non-finite one."""

    largest: float
    not_finite: tuple[int, int, float] | None

    def __add__(self, other: Self) -> Self:
        return type(self)(max(self.largest, other.largest), self.not_finite or other.not_finite)


@dataclass(frozen=True)
class _Moments(FieldwiseSum):
    """Sums over samples, relative to an offset."""

    first: Array
    second: Array


def compute_statistics(samples: Samples) -> Statistics:
    """Compute the mean and covariance of samples; raise an error if an entry is not finite."""
    extreme = samples.sum(_find_extreme)
    if extreme.not_finite is not None:
        row, column, value = extreme.not_finite
        row = int(samples.index[row]) if isinstance(samples, SelectedSamples) else row
        found = "NaN" if np.isnan(value) else "infinity"
        raise ValueError(
            f"Input X contains {found} (sample {row}, feature {column}). Drop such samples, or impute these entries."
        )
    if extreme.largest == 0:
        raise EqualSamplesError("All entries of X are zero: the samples do not vary in any direction.")
    weights, largest = samples.weights, extreme.largest
    offset = np.asarray(samples.take(np.arange(1)))[0] / largest  # preserves precision if the mean is large

    def add_moments(rows: Array, start: int) -> _Moments:
        y = np.divide(rows, largest, dtype=np.float64) - offset
        weighted = weigh(y, weights, start)
        return _Moments(np.asarray(np.sum(weighted, axis=0)), np.asarray(weighted.T @ y))

    moments, r = samples.sum(add_moments), count_samples(samples)
    mean = moments.first / r
    return Statistics(r, extreme.largest, mean + offset, moments.second / r - np.outer(mean, mean))


def count_samples(samples: Samples) -> float:
    """Return the number of samples, counting each with its weight."""
    return float(samples.shape[0] if samples.weights is None else np.sum(samples.weights))


def _find_extreme(rows: Array, start: int) -> _Extreme:
    """Find the largest entry of a block, or its first non-finite one."""
    largest = float(np.max(np.abs(rows)))
    if np.isfinite(largest):
        return _Extreme(largest, None)
    row, column = np.argwhere(~np.isfinite(rows))[0]
    return _Extreme(0.0, (start + int(row), int(column), float(rows[row, column])))
