"""Samples that depend on each other count as fewer: neighbours that are alike, and samples that come again."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from elldict._old.backend.base import Array, Backend, to_numpy
from elldict._old.data.dataset import ArrayDataset, Dataset
from elldict._old.data.subsample import take_as
from elldict._old.data.weighted import list_distinct
from elldict._old.data.whitening import Whitening
from elldict._old.result import Estimate
from elldict._old.solver.code_subsample import CodeSubsample
from elldict._old.solver.objective import compute_gradient, primary_of

Vector = NDArray[np.float64]

N_RUNS, RUN_ROWS, LEAST_RUN_ROWS, MAX_SHARE = 16, 256, 32, 0.25
"""Runs of consecutive samples by which the dependence of neighbours is measured, most samples of a run, the fewest that
show anything, and the share of all samples that is looked at unless that leaves fewer."""

SURE = 4.0
"""Standard errors, over runs, beyond which neighbours are taken to depend on each other."""

MIN_INFLATION = 1.15
"""Factor of the variance from which dependence counts."""

MIN_ALIKE = 0.2
"""Correlation of sums over a run and the next from which atoms are taken to drift."""

MIN_REPEATS = 5
"""Pairs of equal samples among those drawn from which samples are taken to come again."""

MIN_REPEATED = 0.5
"""Share of those samples that come again if all do alike, from which they are taken to. Where some codes are binary and
all others zero, a few samples are equal to many others by chance."""

MIN_DISTINCT = 0.5
"""Share of different values, among those of a feature in different samples, from which these are no counts or classes,
which are equal by chance."""

MAX_REPEAT_ROWS, MAX_REPEAT_COLUMNS = 8192, 512
"""Samples among which equal ones are sought, and entries by which: samples that are equal in so many are the same."""

SEED = 60
"""Of the samples that are drawn for it where those at hand are copies by weight."""


@dataclass(frozen=True)
class Dependence:
    """How samples depend on each other."""

    inflation: float = 1.0  # of the variance of angles, at least one
    drifts: bool = False  # atoms are others in the last samples than in the first


def measure_dependence(samples: Dataset, whitening: Whitening, estimate: Estimate, drawn: CodeSubsample) -> Dependence:
    """How samples depend on each other, by runs of neighbours, and by samples that come again among drawn ones.

    Of weighted samples each is looked at once: what their copies cost is known from the weights.
    """
    distinct, raw = list_distinct(samples), drawn.raw
    if distinct is not samples and raw is not None:
        n_drawn = min(int(raw.shape[0]), distinct.n_samples)
        raw = distinct.take(np.sort(np.random.default_rng(SEED).choice(distinct.n_samples, n_drawn, replace=False)))
    repeats = 1.0 if raw is None else measure_repeat_inflation(choose_columns(raw), distinct.n_samples)
    between = measure_serial_dependence(distinct, whitening, estimate)
    return replace(between, inflation=max(repeats, between.inflation))


def measure_serial_dependence(samples: Dataset, whitening: Whitening, estimate: Estimate) -> Dependence:
    """How neighbouring samples depend on each other.

    An angle is a mean of u = g(z_i) z_j - g(z_j) z_i over samples, divided by a curvature. Over runs of L consecutive
    samples the mean of u has the variance of u over L if samples are independent, and more if neighbours are alike.
    Runs are far apart: if the next one is like the last, it is the atoms that drift.
    """
    r, most = samples.n_samples, samples.n_samples // N_RUNS
    rows = min(RUN_ROWS, most, max(LEAST_RUN_ROWS, int(MAX_SHARE * most)))
    if rows < LEAST_RUN_ROWS or estimate.corruption is not None:
        return Dependence()
    starts = np.linspace(0, r - rows, N_RUNS).astype(np.int64)
    index = (starts[:, None] + np.arange(rows)).ravel()
    backend = Backend.of(estimate.A)
    at_hand = isinstance(samples, ArrayDataset) and samples.backend == backend
    taken = take_as(samples, index, "float64") if at_hand else backend.asarray(samples.take(index), "float64")
    white = whitening.move_to(backend).whiten(taken)
    if estimate.loudness is not None:
        white = estimate.loudness.normalize(white)
    Z = white @ estimate.A.T
    g = compute_gradient(primary_of(estimate.objective), Z, estimate.stats.signs)
    if not backend.prefers_products:
        g, Z = to_numpy(g), to_numpy(Z)
    return _compare_runs(_sum_runs(g, Z, rows))


def _sum_runs(g: Array, Z: Array, rows: int) -> Array:
    """Sums of u over runs of so many samples, in units of its standard deviation and the root of their number.

    Of shape (runs, pairs); g and Z (b, m) are derivatives and codes.
    """
    xp, b = Backend.of(Z).xp, int(Z.shape[0])
    power = g**2
    spread = (power.T @ Z**2 + (Z**2).T @ power - 2 * (g * Z).T @ (g * Z)) / b
    which = xp.triu(xp.astype(spread > 0, xp.int8), k=1) > 0
    scale = xp.sqrt(rows * spread[which])
    sums = [g[run : run + rows, :].T @ Z[run : run + rows, :] for run in range(0, b - rows + 1, rows)]
    return xp.stack([(each - each.T)[which] / scale for each in sums])


def _compare_runs(sums: Array) -> Dependence:
    """What scaled sums of runs (runs, pairs), of unit variance if all samples are independent, say of dependence."""
    xp = Backend.of(sums).xp
    n_runs, n_pairs = (int(size) for size in sums.shape)
    if n_pairs == 0:
        return Dependence()
    squares = to_numpy(xp.mean(sums**2, axis=1))
    inflation, error = float(np.mean(squares)), float(np.std(squares)) / math.sqrt(n_runs - 1)
    if inflation < max(MIN_INFLATION, 1 + SURE * error):
        return Dependence()
    around = sums - xp.mean(sums, axis=0)
    neighbours = to_numpy(xp.mean(around[1:, :] * around[:-1, :], axis=1)) / inflation
    chance = -1 / n_runs  # of a correlation of values about their own mean
    alike, spread = float(np.mean(neighbours)) - chance, float(np.std(neighbours)) / math.sqrt(n_runs - 2)
    return Dependence(inflation, drifts=alike > max(MIN_ALIKE, SURE * spread))


def choose_columns(raw: Array) -> NDArray[np.float64]:
    """Entries of samples (b, n), by which equal ones are found, on the host: all, or some of very many."""
    step = -(-int(raw.shape[1]) // MAX_REPEAT_COLUMNS)
    return to_numpy(raw[:MAX_REPEAT_ROWS, ::step])


def measure_repeat_inflation(rows: NDArray[np.float64], n_samples: int) -> float:
    """Factor, at least one, by which equal samples make the variance of any mean larger: the mean of their number.

    Of `rows` (b, n), drawn from n_samples, as many pairs are equal as chance draws together of those that are equal in
    all samples. Samples that are zero say nothing, however many they are.
    """
    n_drawn = len(rows)
    if not _may_be_equal(rows):
        return 1.0
    rows = rows[np.any(rows != 0, axis=1)]
    b = len(rows)
    if b < 2:
        return 1.0
    weights = np.cos(np.arange(rows.shape[1]) + 1.0)
    keys = np.zeros(b)
    # one after another: equal samples get equal keys, to the last bit
    for weight, entries in zip(weights, np.ascontiguousarray(rows.T), strict=True):
        keys += weight * entries
    order = np.argsort(keys, kind="stable")
    same = np.flatnonzero(np.diff(keys[order]) == 0)
    same = same[np.all(rows[order[same]] == rows[order[same + 1]], axis=1)]
    new = np.ones(b, dtype=bool)
    new[same + 1] = False
    counts = np.bincount(np.cumsum(new) - 1).astype(float)
    partners = float(np.sum(counts * (counts - 1))) / b  # of a sample, in the mean
    pairs = partners * b / 2
    repeated = float(np.sum(counts[counts > 1])) / b
    if pairs < MIN_REPEATS or repeated < MIN_REPEATED * -math.expm1(-partners) or _are_classes(rows[order[new]]):
        return 1.0
    return 1 + 2 * pairs * (n_samples * b / n_drawn - 1) / (b * (b - 1))


def _may_be_equal(rows: NDArray[np.float64]) -> bool:
    """Whether two samples have the same first entry, and two of these the same last one: equal samples do."""
    for feature in (0, -1):
        values = np.sort(rows[:, feature])
        again = values[1:][np.diff(values) == 0]
        rows = rows[np.isin(rows[:, feature], again)]
    return len(rows) > 0


def _are_classes(rows: NDArray[np.float64]) -> bool:
    """Whether different samples have few different values, so that whole samples may be equal by chance."""
    distinct = max(len(np.unique(rows[:, feature])) for feature in range(min(4, rows.shape[1])))
    return distinct < MIN_DISTINCT * len(rows)
