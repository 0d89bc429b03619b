"""From loadings to their rotation: second moments, the search from several starts, order and signs of the factors."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from elldict._old.backend.base import NUMPY, Array, Backend, to_numpy
from elldict._old.data.dataset import Dataset
from elldict._old.data.statistics import PartialStatistics, StatisticsKernel
from elldict._old.data.subsample import Subsampler
from elldict._old.data.whitening import Whitening
from elldict._old.result import Estimate
from elldict._old.solver.directions import random_orthonormal
from elldict._old.solver.loop import FitLog, choose_precision
from elldict._old.solver.objective import Lp
from elldict._old.solver.quasi_newton import CurvatureMemory, QuasiNewtonSearch

Matrix = NDArray[np.float64]

SMALL_SIZE = 2**17
"""Loadings up to which a pass takes a millisecond, and all digits cost nothing."""

SUBSAMPLE_ROWS_PER_FACTOR = 20
"""Rows of the first subsample: fewer than a fit of atoms begins with, because more rows always follow."""

EQUAL = 1e-6
"""Relative difference of two sums of squares up to which rounding and the tolerance may have made it."""


def measure_rows(samples: Dataset) -> PartialStatistics:
    """Second moments and sizes of the rows; raise if a loading is NaN or infinite, or if all are zero."""
    found = samples.sum(StatisticsKernel(samples.dtype))
    if found.non_finite is not None:
        place, value = found.non_finite, "NaN" if math.isnan(found.non_finite.value) else "infinity"
        raise ValueError(
            f"The loadings hold {value} in row {place.sample}, column {place.feature} ({samples.locate(place.sample)})"
            ". Drop the row or impute it first."
        )
    if found.peak == 0:
        raise ValueError(f"The loadings are all zero ({samples.n_samples} rows): there is nothing to rotate.")
    return found


def compute_second_moments(found: PartialStatistics) -> Matrix:
    """Mean of y y^T (k, k), in units of 4**exponent."""
    mean = to_numpy(found.mean)
    return np.asarray(to_numpy(found.scatter) / found.weight + np.outer(mean, mean))


def prepare_search(
    samples: Dataset,
    found: PartialStatistics,
    objective: Lp,
    rng: np.random.Generator,
    log: FitLog,
    stop: tuple[float, int],
) -> QuasiNewtonSearch:
    """The search for a rotation of these rows, scaled to unit mean square."""
    moments = compute_second_moments(found)
    rms = math.sqrt(float(np.trace(moments)) / len(moments))
    scale = math.ldexp(1 / rms, -found.exponent)
    whitening = Whitening(scale, None, None, None, whitened=False, second_moments=moments / rms**2)
    bound = max(1.0, found.peak / rms)
    precision = choose_precision(objective.p, dtype=samples.dtype, code_bound=bound)
    large = samples.n_samples * samples.n_features > SMALL_SIZE
    coarse = choose_precision(objective.p, dtype="float32", code_bound=bound) if large else precision
    subsampler = Subsampler(samples, rng, rows_per_feature=SUBSAMPLE_ROWS_PER_FACTOR)
    return QuasiNewtonSearch(samples, whitening, objective, precision, coarse, *stop, large, subsampler, log)


def find_best(search: QuasiNewtonSearch, n_init: int, rng: np.random.Generator) -> tuple[Estimate, list[float]]:
    """The best of several starts, the first of which is no rotation, and the values of all.

    Where there are many rows each is followed on few of them, and the best alone then on all.
    """
    k, backend = search.samples.n_features, search.samples.backend
    ends: list[tuple[Array, CurvatureMemory, int]] = []
    estimates: list[Estimate] = []
    values: list[float] = []
    for number in range(n_init):
        start = np.eye(k) if number == 0 else random_orthonormal(k, k, rng, NUMPY)
        A, memory = search.approach(backend.asarray(start, "float64"), number)
        if search.subsampler.sizes:
            ends.append((A, memory, number))
            values.append(search.evaluate(A) if n_init > 1 else 0.0)
        else:
            estimates.append(search.finish(A, memory, number))
            values.append(estimates[-1].stats.mean_value)
    best = int(np.argmax(values))
    if estimates:
        return estimates[best], values
    estimate = search.finish(*ends[best])
    values[best] = estimate.stats.mean_value
    return estimate, values


def order_columns(rotation: Matrix, samples: Dataset, raw: PartialStatistics) -> Matrix:
    """Columns by decreasing sum of squares of the loadings, then of fourth powers, with a positive sum of cubes."""
    squares = np.sum(rotation * (compute_second_moments(raw) @ rotation), axis=0)
    powers = samples.sum(PowerKernel(rotation, math.ldexp(1.0, -raw.exponent)))
    cubes, fourth = to_numpy(powers.cubes), to_numpy(powers.fourth)
    order = np.argsort(-squares, kind="stable")
    group = np.zeros(len(order))
    group[order] = np.concatenate([[0], np.cumsum(-np.diff(squares[order]) > EQUAL * squares[order[0]])])
    order = np.lexsort((-fourth, group))
    return np.asarray((rotation * np.where(cubes < 0, -1.0, 1.0))[:, order])


@dataclass(frozen=True)
class Powers:
    """Sums over rows of powers of rotated loadings (k,)."""

    cubes: Array
    fourth: Array

    def __add__(self, other: Powers) -> Powers:
        return Powers(self.cubes + other.cubes, self.fourth + other.fourth)


@dataclass(frozen=True)
class PowerKernel:
    """Powers of one tile."""

    rotation: Matrix
    scale: float

    def bind(self, backend: Backend) -> Callable[[Array], Powers]:
        """Return the function of one tile."""
        xp, rotation = backend.xp, backend.asarray(self.rotation, "float64")

        def visit(Y: Array) -> Powers:
            Z = (self.scale * xp.astype(Y, xp.float64, copy=False)) @ rotation
            Z2 = Z * Z
            return Powers(xp.sum(Z2 * Z, axis=0), xp.sum(Z2 * Z2, axis=0))

        return visit
