"""The first pass: mean, covariance and rank of the samples, and the whitening that follows from them."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from elldict.backend.base import NUMPY, Array, Backend, is_positive_definite, to_numpy
from elldict.data.dataset import Dataset, NonFinite, find_non_finite, non_finite_error

LARGEST_EXPONENT = {"float32": 110, "float64": 1000}
"""Samples are taken while their largest value lies between 2**-this and 2**this; beyond, digits are lost."""


SAFE_EXPONENT = {"float32": 40, "float64": 300}
"""Sums of squares of values between 2**-this and 2**this neither overflow nor vanish."""

SURELY_FULL = 100.0
"""Condition number up to which nobody has to look at eigenvalues to know that no direction is rounding alone."""


@dataclass(frozen=True)
class PartialStatistics:
    """Mean and scatter of some samples, in units of 2**exponent, so that no scale of the data overflows.

    Two of them add up by the formula of Chan, Golub and LeVeque: a large mean costs no digits of the scatter.
    """

    weight: int
    exponent: int
    mean: Array  # (n,), where the samples are, in float64
    scatter: Array  # (n, n)  sum (y - mean)(y - mean)^T
    peak: float  # largest norm of a sample
    non_finite: NonFinite | None  # the first NaN or infinity

    def __add__(self, other: PartialStatistics) -> PartialStatistics:
        exponent = max(self.exponent, other.exponent)
        a, b = self._in_units_of(exponent), other._in_units_of(exponent)
        weight = a.weight + b.weight
        apart = b.mean - a.mean
        later = b.non_finite and replace(b.non_finite, sample=a.weight + b.non_finite.sample)
        return PartialStatistics(
            weight=weight,
            exponent=exponent,
            mean=a.mean + apart * (b.weight / weight),
            scatter=a.scatter + b.scatter + apart[:, None] * apart[None, :] * (a.weight * (b.weight / weight)),
            peak=max(a.peak, b.peak),
            non_finite=a.non_finite or later,
        )

    def on_host(self) -> PartialStatistics:
        """The same as NumPy arrays."""
        return replace(self, mean=_float64(self.mean), scatter=_float64(self.scatter))

    def _in_units_of(self, exponent: int) -> PartialStatistics:
        if exponent == self.exponent:
            return self
        shrink = math.ldexp(1.0, self.exponent - exponent)
        return replace(
            self,
            exponent=exponent,
            mean=self.mean * shrink,
            scatter=self.scatter * shrink**2,
            peak=self.peak * shrink,
        )


@dataclass(frozen=True)
class StatisticsKernel:
    """Spread of a tile."""

    precision: str

    def bind(self, backend: Backend) -> Callable[[Array], PartialStatistics]:
        """Return the function that surveys one tile."""
        xp, dtype = backend.xp, getattr(backend.xp, self.precision)

        def visit(Y: Array) -> PartialStatistics:
            largest = float(xp.maximum(xp.max(Y), -xp.min(Y)))  # NaN and infinity come through
            if not math.isfinite(largest):
                non_finite = find_non_finite(Y, xp)
                assert non_finite is not None, "what is not finite can be found"
                return _unusable(Y, non_finite, self.precision, backend)
            exponent = _exponent(largest, self.precision)
            Y, rows = xp.astype(Y, dtype, copy=False), int(Y.shape[0])
            # powers of two round nothing, before the sums or after; after is cheaper, before may be needed
            shrink = math.ldexp(1.0, -exponent)
            if abs(exponent) > SAFE_EXPONENT[self.precision]:
                Y, shrink = Y * shrink, 1.0
            mean = xp.sum(Y, axis=0, dtype=xp.float64) / rows
            peak = math.sqrt(float(xp.max(xp.sum(Y * Y, axis=1))))
            Y = Y - xp.astype(mean, dtype)
            return PartialStatistics(
                weight=rows,
                exponent=exponent,
                mean=mean * shrink,
                scatter=xp.astype(Y.T @ Y, xp.float64, copy=False) * shrink**2,
                peak=peak * shrink,
                non_finite=None,
            )

        return visit


@dataclass(frozen=True)
class SampleStatistics:
    """What one look at all samples tells: everything in float64, on the host."""

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

    @cached_property
    def _eigen(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        values, vectors = np.linalg.eigh(self.scatter)
        return values[::-1], vectors[:, ::-1]

    @property
    def eigenvalues(self) -> NDArray[np.float64]:
        """Eigenvalues of the scatter, in decreasing order."""
        return self._eigen[0]

    @property
    def eigenvectors(self) -> NDArray[np.float64]:
        """Eigenvectors of the scatter, as columns."""
        return self._eigen[1]

    @property
    def rank(self) -> int:
        """Number of directions in which the samples vary: the verdict does not depend on their scale."""
        if self.is_well_conditioned(SURELY_FULL):
            return self.n_features
        return int(np.sum(self.eigenvalues > self._rounding * self.eigenvalues[0]))

    def is_well_conditioned(self, limit: float) -> bool:
        """Whether the condition number is below `limit`, by a test that is a tenth of the price of eigenvalues.

        No eigenvalue is larger than the largest sum of absolute values in a row; and none is smaller than what can be
        taken from the diagonal so that Cholesky's decomposition still exists. False says that this test cannot tell.
        """
        if any(known <= limit and passed for known, passed in self._conditioned.items()):
            return True
        if limit not in self._conditioned:
            largest = float(np.max(np.sum(np.abs(self.scatter), axis=1)))
            least = self.scatter - np.diag(np.full(self.n_features, largest / limit))
            self._conditioned[limit] = is_positive_definite(self.backend.asarray(least, "float64"))
        return self._conditioned[limit]

    @cached_property
    def _conditioned(self) -> dict[float, bool]:
        return {}

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
    """Look at all samples once; raise if one holds NaN or infinity, or if all are zero.

    Parameters
    ----------
    samples : Samples
        What to look at.
    center : bool
        Measure the spread about the mean, rather than about zero.
    precise : bool
        Multiply in float64 whatever the samples are: whitening divides by the smallest variances.
    """
    precision = "float64" if precise else samples.dtype
    spread = samples.sum(StatisticsKernel(precision)).on_host()
    if spread.non_finite is not None:
        raise non_finite_error(samples, spread.non_finite)
    mean, scatter = spread.mean, spread.scatter / spread.weight
    if not center:
        scatter = scatter + np.outer(mean, mean)
    if not np.any(scatter):
        found = "is the same in every sample" if center and np.any(mean) else "is all zero"
        raise ValueError(f"X {found} ({samples.n_samples} samples): there is nothing to learn from it.")
    if abs(spread.exponent) > LARGEST_EXPONENT[samples.dtype]:
        raise _out_of_range(samples, spread.exponent)
    unit = math.ldexp(1.0, spread.exponent)
    return SampleStatistics(
        n_samples=samples.n_samples,
        n_features=samples.n_features,
        mean=mean * unit,
        unit=unit,
        scatter=scatter,
        centred=center,
        peak=spread.peak,
        dtype=samples.dtype,
        precision=precision,
        backend=samples.backend,
    )


def _exponent(magnitude: float, precision: str) -> int:
    """Exponent e with magnitude < 2**e, kept where 2**e and 2**-e are both ordinary numbers."""
    limit = _largest_exponent(precision)
    return min(max(math.frexp(magnitude)[1], -limit), limit) if magnitude else -limit


def _largest_exponent(precision: str) -> int:
    return int(np.finfo(precision).maxexp) - 3


def _unusable(Y: Array, non_finite: NonFinite, precision: str, backend: Backend) -> PartialStatistics:
    n = int(Y.shape[1])
    mean, scatter = (backend.asarray(np.zeros(shape), "float64") for shape in (n, (n, n)))
    return PartialStatistics(int(Y.shape[0]), -_largest_exponent(precision), mean, scatter, 0.0, non_finite)


def _out_of_range(samples: Dataset, exponent: int) -> ValueError:
    limit = LARGEST_EXPONENT[samples.dtype]
    return ValueError(
        f"The largest value of X is about 1e{round(exponent * math.log10(2)):+d}: expected between 2**-{limit} and "
        f"2**{limit} in {samples.dtype}. Change the units of X."
    )


def _float64(array: Array) -> NDArray[Any]:
    return to_numpy(array).astype(np.float64)


@dataclass(frozen=True)
class Whitening:
    """Change of coordinates from raw samples to samples of unit mean square."""

    unit: float  # one over the root mean square of the data
    mean: Array | None  # (n,), None if the samples are not centred
    to_white: Array | None  # (k, n), None for the identity
    from_white: Array | None  # (k, n), the transposed pseudo-inverse of inner
    whitened: bool

    @classmethod
    def of(cls, statistics: SampleStatistics, *, center: bool, whiten: bool) -> Whitening:
        """Frame that the survey calls for: the span of the samples, whitened if asked."""
        unit = 1.0 / statistics.rms / statistics.unit
        mean = statistics.mean if center else None
        k = statistics.rank
        if not whiten and k == statistics.n_features:
            return cls(unit, mean, None, None, whitened=False)
        span = statistics.eigenvectors[:, :k].T
        if not whiten:
            return cls(unit, mean, span, span, whitened=False)
        spread = np.sqrt(statistics.eigenvalues[:k, None]) / statistics.rms
        return cls(unit, mean, span / spread, span * spread, whitened=True)

    def move_to(self, backend: Backend) -> Whitening:
        """Return the same frame with its matrices in another space."""

        def move(array: Array | None) -> Array | None:
            return None if array is None else backend.asarray(array, "float64")

        return replace(self, mean=move(self.mean), to_white=move(self.to_white), from_white=move(self.from_white))

    def whiten(self, rows: Array) -> Array:
        """Raw samples (b, n) as the solver sees them (b, k); for a few of them, in the space of the frame."""
        centred = rows if self.mean is None else rows - self.mean
        return self.unit * (centred if self.to_white is None else centred @ self.to_white.T)

    def to_unmixing(self, A: Array) -> Array:
        """Rows (m, n) that make codes of unit mean square from raw, centred samples."""
        return self.unit * (A if self.to_white is None else A @ self.to_white)

    def pull_gradient(self, G: Array) -> Array:
        """Gradient (m, k) with respect to A from sum g(z) (unit (y - mean))^T."""
        return G if self.to_white is None else G @ self.to_white.T

    def pull_matrices(self, H: Array) -> Array:
        """Matrices (m, k, k) from sums of w (y - mean) (y - mean)^T, up to the unit."""
        return H if self.to_white is None else self.to_white @ H @ self.to_white.T

    def unmixing(self, A: Array) -> Array:
        """Rows (m, n) that make codes for the user: of unit variance if whitened, else in the units of the data."""
        rows = A if self.to_white is None else A @ self.to_white
        return self.unit * rows if self.whitened else rows

    def components(self, A: Array) -> Array:
        """Rows (m, n) that rebuild centred samples from those codes: the atoms."""
        rows = A if self.from_white is None else A @ self.from_white
        return rows / self.unit if self.whitened else rows

    def start(self, A: NDArray[np.float64]) -> NDArray[np.float64]:
        """Rows of a start drawn in all of space (m, n), seen from inside the frame (m, k).

        Written through the eigenvectors themselves, so that their arbitrary signs, and their arbitrary choice
        among equal eigenvalues, cancel: every array library walks the same road.
        """
        return A if self.to_white is None else A @ _rows_of_unit_length(self.to_white).T


def bound_codes(statistics: SampleStatistics, whitening: Whitening) -> float:
    """Largest absolute value that a code can take in the frame."""
    offset = 0.0 if whitening.mean is None else float(np.linalg.norm(statistics.mean / statistics.unit))
    reach = (statistics.peak + offset) / statistics.rms
    stretch = 1.0 if whitening.to_white is None else float(np.linalg.norm(whitening.to_white, 2))
    return max(1.0, reach * stretch)


def _rows_of_unit_length(rows: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.asarray(rows / np.sqrt(np.sum(rows**2, axis=1, keepdims=True)))
