"""The first pass: mean, covariance and rank of the samples, and the whitening that follows from them."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from elldict._old.backend.base import NUMPY, Array, Backend, to_numpy, total
from elldict._old.backend.matrices import find_principal_axes, is_positive_definite, multiply_by_itself
from elldict._old.data.dataset import Dataset, NonFinite, find_non_finite, non_finite_error

LARGEST_EXPONENT = {"float32": 110, "float64": 1000}
"""Samples are accepted if their largest value lies between 2**-this and 2**this; beyond, digits are lost."""

SAFE_EXPONENT = {"float32": 40, "float64": 300}
"""Sums of squares of values between 2**-this and 2**this neither overflow nor vanish."""

UNIT_EXPONENT = {"float32": 125, "float64": 1021}
"""Units are kept between 2**-this and 2**this, where both are ordinary numbers."""

FULL_RANK_CONDITION = 100.0
"""Condition number up to which no direction is rounding alone, so that eigenvalues need not be computed."""


@dataclass(frozen=True)
class PartialStatistics:
    """Mean and scatter of some samples, in units of 2**exponent, so that no scale of the data overflows.

    Two of them add up by the formula of Chan, Golub and LeVeque: a large mean costs no digits of the scatter.
    """

    weight: float
    exponent: int
    mean: Array  # (n,), where the samples are, in float64
    scatter: Array  # (n, n)  sum (y - mean)(y - mean)^T
    peak: float  # largest norm of a sample
    non_finite: NonFinite | None  # the first NaN or infinity
    n_rows: int  # samples, whatever they weigh
    squared_weight: float  # sum of the squares of their weights

    def __add__(self, other: PartialStatistics) -> PartialStatistics:
        if self.exponent != other.exponent:
            exponent = max(self.exponent, other.exponent)
            return self._rescale(exponent) + other._rescale(exponent)
        weight = self.weight + other.weight
        share = other.weight / weight if weight else 0.0
        apart = other.mean - self.mean
        later = other.non_finite and replace(other.non_finite, sample=self.n_rows + other.non_finite.sample)
        return PartialStatistics(
            weight=weight,
            exponent=self.exponent,
            mean=self.mean + apart * share,
            scatter=self.scatter + other.scatter + apart[:, None] * apart[None, :] * (self.weight * share),
            peak=max(self.peak, other.peak),
            non_finite=self.non_finite or later,
            n_rows=self.n_rows + other.n_rows,
            squared_weight=self.squared_weight + other.squared_weight,
        )

    def _rescale(self, exponent: int) -> PartialStatistics:
        """The same in units of 2**exponent: powers of two round nothing."""
        shrink = math.ldexp(1.0, self.exponent - exponent)
        mean, scatter, peak = self.mean * shrink, self.scatter * shrink**2, self.peak * shrink
        return replace(self, exponent=exponent, mean=mean, scatter=scatter, peak=peak)


@dataclass(frozen=True)
class StatisticsKernel:
    """Mean and scatter of a tile."""

    precision: str

    def bind(self, backend: Backend) -> Callable[..., PartialStatistics]:
        """Return the function that looks at one tile, and at the weights (b,) of its samples if they have any."""
        xp, dtype = backend.xp, getattr(backend.xp, self.precision)
        limit = UNIT_EXPONENT[self.precision]

        def visit(Y: Array, weights: Array | None = None) -> PartialStatistics:
            rows, n = int(Y.shape[0]), int(Y.shape[1])
            counts = (rows, rows) if weights is None else (total(weights), total(weights * weights))
            largest = float(xp.maximum(xp.max(Y), -xp.min(Y)))  # NaN and infinity come through
            if not math.isfinite(largest):
                mean, scatter = backend.asarray(np.zeros(n), "float64"), backend.asarray(np.zeros((n, n)), "float64")
                found = find_non_finite(Y, xp)
                return PartialStatistics(counts[0], -limit, mean, scatter, 0.0, found, rows, counts[1])
            exponent = min(max(math.frexp(largest)[1], -limit), limit) if largest else -limit
            Y = xp.astype(Y, dtype, copy=False)
            # powers of two round nothing, before the sums or after; after is cheaper, before may be needed
            shrink = math.ldexp(1.0, -exponent)
            if abs(exponent) > SAFE_EXPONENT[self.precision]:
                Y, shrink = Y * shrink, 1.0
            weighted = Y if weights is None else Y * xp.astype(weights, dtype)[:, None]
            mean = xp.sum(weighted, axis=0, dtype=xp.float64) / (counts[0] or 1)
            peak = math.sqrt(float(xp.max(xp.sum(Y * Y, axis=1))))
            Y = Y - xp.astype(mean, dtype)
            if weights is not None:
                Y = Y * xp.astype(xp.sqrt(weights), dtype)[:, None]
            scatter = xp.astype(multiply_by_itself(Y), xp.float64, copy=False) * shrink**2
            return PartialStatistics(counts[0], exponent, mean * shrink, scatter, peak * shrink, None, rows, counts[1])

        return visit


@dataclass(frozen=True)
class SampleStatistics:
    """Mean, covariance and size of all samples: everything in float64, on the host."""

    n_samples: int
    n_features: int
    mean: NDArray[np.float64]  # (n,), in the units of the data
    unit: float  # about the largest entry of the data, a power of two
    scatter: NDArray[np.float64]  # (n, n) mean of y y^T / unit^2 about the centre in use
    centred: bool
    peak: float  # largest norm of a sample / unit
    dtype: str  # of the samples
    precision: str  # in which they were multiplied
    backend: Backend = NUMPY  # where they are
    repeats: float = 1.0  # of n_samples copies only one in so many is new: r sum w^2 / (sum w)^2, after Kish
    tested: dict[float, bool] = field(default_factory=dict, init=False, repr=False)  # limits of the condition number

    @cached_property
    def _eigen(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        return find_principal_axes(self.scatter, self.backend)

    @property
    def eigenvalues(self) -> NDArray[np.float64]:
        """Eigenvalues of the scatter, in decreasing order."""
        return self._eigen[0]

    @property
    def eigenvectors(self) -> NDArray[np.float64]:
        """Eigenvectors of the scatter, as columns."""
        return self._eigen[1]

    @cached_property
    def principal(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Variances about the mean, in decreasing order, and their directions as columns: the mean is none of them."""
        if self.centred:
            return self._eigen
        mean = self.mean / self.unit
        return find_principal_axes(self.scatter - np.outer(mean, mean), self.backend)

    @cached_property
    def rank(self) -> int:
        """Number of directions in which the samples vary, whatever their scale."""
        if self.is_well_conditioned(FULL_RANK_CONDITION):
            return self.n_features
        return int(np.sum(self.eigenvalues > self._rounding * self.eigenvalues[0]))

    def is_well_conditioned(self, limit: float) -> bool:
        """Whether the condition number is below `limit`, by a test that is a tenth of the price of eigenvalues.

        No eigenvalue is larger than the largest sum of absolute values in a row; and none is smaller than what can be
        taken from the diagonal so that Cholesky's decomposition still exists. False says that this test cannot tell.
        """
        if self.tested.get(FULL_RANK_CONDITION) and limit >= FULL_RANK_CONDITION:
            return True
        if limit not in self.tested:
            backend = self.backend if self.backend.prefers_products else NUMPY
            xp, scatter = backend.xp, backend.asarray(self.scatter, "float64")
            largest = float(xp.max(xp.sum(xp.abs(scatter), axis=1)))
            least = scatter - largest / limit * xp.eye(self.n_features, dtype=scatter.dtype, device=backend.device)
            self.tested[limit] = is_positive_definite(self.backend.asarray(least, "float64"))
        return self.tested[limit]

    @property
    def _rounding(self) -> float:
        """Variance, relative to the largest, that rounding alone can produce.

        Rounding the data to their dtype leaves a standard deviation of eps times their size, the mean included;
        rounding the sum of squares leaves a variance of eps of the precision in which it was taken. Both grow with the
        number of features.
        """
        n = self.n_features
        size = float(np.sum((self.mean / self.unit) ** 2)) / float(self.eigenvalues[0])
        rounding_of_data = float(np.finfo(self.dtype).eps) ** 2 * (n**2 + 4 * size)
        rounding_of_sum = 4 * n * float(np.finfo(self.precision).eps)
        return max(rounding_of_data, rounding_of_sum)

    @property
    def condition_number(self) -> float:
        """Ratio of the largest to the smallest variance among the directions in which the samples vary."""
        return float(self.eigenvalues[0] / self.eigenvalues[self.rank - 1])

    @property
    def mean_share(self) -> float:
        """Square of the mean, relative to the variance of a direction about it."""
        squared = float(np.sum((self.mean / self.unit) ** 2))
        about_mean = float(np.trace(self.scatter)) - (0.0 if self.centred else squared)
        return math.inf if about_mean <= 0 else squared * self.rank / about_mean

    @property
    def whitened_mean_share(self) -> float:
        """The same in the directions of the mean, which whitening brings to the same variance as all others."""
        along = self.eigenvectors[:, : self.rank].T @ (self.mean / self.unit)
        share = float(np.sum(along**2 / self.eigenvalues[: self.rank]))
        return share if self.centred else share / max(1 - share, 1e-12)

    @property
    def rms(self) -> float:
        """Root mean square of the data along the directions in which they vary, in units of `unit`."""
        if self.rank == self.n_features:
            return math.sqrt(float(np.trace(self.scatter)) / self.rank)
        return math.sqrt(float(np.sum(self.eigenvalues[: self.rank])) / self.rank)


def compute_statistics(samples: Dataset, *, center: bool, precise: bool) -> SampleStatistics:
    """First pass: raise if a sample holds NaN or infinity, or if all are zero.

    The scatter is about the mean if `center`, else about zero; multiplied in float64 if `precise`, whatever the samples
    are: whitening divides by the smallest variances.
    """
    precision = "float64" if precise else samples.dtype
    found = samples.sum(StatisticsKernel(precision))
    if found.non_finite is not None:
        raise non_finite_error(samples, found.non_finite)
    mean, scatter = to_numpy(found.mean), to_numpy(found.scatter / found.weight)
    if not center:
        scatter = scatter + np.outer(mean, mean)
    if not np.any(scatter):
        values = "is the same in every sample" if center and np.any(mean) else "is all zero"
        raise ValueError(f"X {values} ({samples.n_samples} samples): there is nothing to learn from it.")
    limit = LARGEST_EXPONENT[samples.dtype]
    if abs(found.exponent) > limit:
        raise ValueError(
            f"The largest value of X is about 1e{round(found.exponent * math.log10(2)):+d}: expected between "
            f"2**-{limit} and 2**{limit} in {samples.dtype}. Change the units of X."
        )
    unit = math.ldexp(1.0, found.exponent)
    return SampleStatistics(
        n_samples=samples.n_samples,
        n_features=samples.n_features,
        mean=mean * unit,
        unit=unit,
        scatter=scatter,
        centred=center,
        peak=found.peak,
        dtype=samples.dtype,
        precision=precision,
        backend=samples.backend,
        repeats=found.squared_weight / found.weight,  # weights of a fit add up to its number of samples
    )
