"""Samples that depend on each other count as fewer: neighbours that are alike, and samples that come again."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from elldict.backend.base import Array, Backend, to_numpy
from elldict.data.dataset import Dataset
from elldict.data.statistics import Whitening
from elldict.result import Estimate
from elldict.solver.code_subsample import CodeSubsample
from elldict.solver.objective import compute_derivatives, primary_of

N_RUNS, RUN_ROWS, LEAST_RUN_ROWS = 16, 512, 32
"""Runs of consecutive samples by which the dependence of neighbours is measured, samples of a run, and the fewest that
show anything."""

SURE = 4.0
"""Standard errors, over runs, beyond which neighbours are taken to depend on each other."""

MIN_INFLATION = 1.15
"""Factor of the variance from which dependence counts."""

MIN_REPEATS = 5
"""Pairs of equal samples among those drawn from which samples are taken to come again."""

MIN_DISTINCT = 0.5
"""Share of different values, among those of a feature in different samples, from which these are no counts or classes,
which are equal by chance."""

MAX_REPEAT_ROWS = 8192
"""Samples among which equal ones are sought."""


def measure_inflation(samples: Dataset, whitening: Whitening, estimate: Estimate, drawn: CodeSubsample) -> float:
    """Factor, at least one, by which samples that depend on each other make the variance of angles larger."""
    repeats = 1.0 if drawn.raw is None else measure_repeat_inflation(to_numpy(drawn.raw), samples.n_samples)
    return max(repeats, measure_serial_inflation(samples, whitening, estimate))


def measure_serial_inflation(samples: Dataset, whitening: Whitening, estimate: Estimate) -> float:
    """Factor, at least one, by which the dependence of neighbouring samples makes the variance of angles larger.

    An angle is a mean of u = g(z_i) z_j - g(z_j) z_i over samples, divided by a curvature. Over runs of L consecutive
    samples the mean of u has the variance of u over L if samples are independent, and more if neighbours are alike.
    """
    r, rows = samples.n_samples, min(RUN_ROWS, samples.n_samples // N_RUNS)
    if rows < LEAST_RUN_ROWS or estimate.corruption is not None:
        return 1.0
    starts = np.linspace(0, r - rows, N_RUNS).astype(np.int64)
    index = (starts[:, None] + np.arange(rows)).ravel()
    backend = Backend.of(estimate.A)
    taken = backend.asarray(samples.take(index), "float64")
    white = whitening.move_to(backend).whiten(taken)
    if estimate.loudness is not None:
        white = estimate.loudness.normalize(white)
    return _compare_variances(white, estimate, rows)


def _compare_variances(white: Array, estimate: Estimate, rows: int) -> float:
    """The factor, by runs of so many whitened samples."""
    Z = white @ Backend.of(white).asarray(estimate.A, "float64").T
    objective = primary_of(estimate.objective)
    g, _ = compute_derivatives(objective, Z, estimate.stats.signs)
    Z, g = to_numpy(Z), to_numpy(g)
    power = g**2
    spread = (power.T @ Z**2 + (Z**2).T @ power - 2 * (g * Z).T @ (g * Z)) / len(Z)
    which = spread > 0
    np.fill_diagonal(which, False)
    if not np.any(which):
        return 1.0
    found = []
    for start in range(0, len(Z) - rows + 1, rows):
        total = g[start : start + rows].T @ Z[start : start + rows]
        found.append(float(np.mean(((total - total.T) ** 2)[which] / spread[which])) / rows)
    mean, error = float(np.mean(found)), float(np.std(found)) / math.sqrt(len(found) - 1)
    return mean if mean > max(MIN_INFLATION, 1 + SURE * error) else 1.0


def measure_repeat_inflation(rows: NDArray[np.float64], n_samples: int) -> float:
    """Factor, at least one, by which equal samples make the variance of any mean larger: the mean of their number.

    Of `rows` (b, n), drawn from n_samples, as many pairs are equal as chance draws together of those that are equal in
    all samples. Samples that are zero say nothing, however many they are.
    """
    rows = rows[:MAX_REPEAT_ROWS]
    n_drawn = len(rows)
    rows = rows[np.any(rows != 0, axis=1)]
    b = len(rows)
    if b < 2:
        return 1.0
    weights = np.cos(np.arange(rows.shape[1]) + 1.0)
    keys = np.zeros(b)
    for feature, weight in enumerate(weights):  # one after another: equal samples get equal keys, to the last bit
        keys += weight * rows[:, feature]
    order = np.argsort(keys, kind="stable")
    same = np.flatnonzero(np.diff(keys[order]) == 0)
    same = same[np.all(rows[order[same]] == rows[order[same + 1]], axis=1)]
    new = np.ones(b, dtype=bool)
    new[same + 1] = False
    counts = np.bincount(np.cumsum(new) - 1).astype(float)
    pairs = float(np.sum(counts * (counts - 1))) / 2
    if pairs < MIN_REPEATS or _are_classes(rows[order[new]]):
        return 1.0
    return 1 + 2 * pairs * (n_samples * b / n_drawn - 1) / (b * (b - 1))


def _are_classes(rows: NDArray[np.float64]) -> bool:
    """Whether different samples have few different values, so that whole samples may be equal by chance."""
    distinct = max(len(np.unique(rows[:, feature])) for feature in range(min(4, rows.shape[1])))
    return distinct < MIN_DISTINCT * len(rows)
