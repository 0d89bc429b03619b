"""Errors that more samples do not remove: samples are not what the method takes them for.

Each is estimated on drawn samples, by where the atoms would be if samples were better, or as much worse again.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from elldict._old.backend.base import NUMPY, Array, Backend, to_numpy
from elldict._old.data.dataset import ArrayDataset
from elldict._old.data.statistics import SampleStatistics
from elldict._old.data.whitening import Loudness, Whitening
from elldict._old.result import Estimate
from elldict._old.solver.directions import random_orthonormal
from elldict._old.solver.loop import FitLog, Phase, Problem, run_phases
from elldict._old.solver.whitened_atoms import match_rows

Matrix = NDArray[np.float64]
Vector = NDArray[np.float64]

MAX_STEPS = 50
"""Steps in which atoms settle on drawn samples."""

N_PARTS, MIN_SCORE = 8, 12.0
"""Parts of the drawn samples that tell the standard errors of kurtoses, and the mean square, in these errors, by which
kurtoses of features have to fall short of what codes explain: few samples of codes with heavy tails reach 7."""

BLOCK_ROWS = 128 * N_PARTS
"""Rows that are raised to powers at a time: fresh memory for all of them costs more than the powers."""

MAX_LIMIT, MIN_LIMIT, BISECTIONS = 6.0, 0.3, 20
"""Standard deviations between which values are limited to lower kurtoses, and halvings that find the limit."""

MAX_SPARSE_DENSITY = 0.35
"""Density of a spike-and-slab law up to which what it takes for noise is noise; that of Laplace codes is .45."""

LOUD_SHARE, MAX_ENERGY = 0.01, 0.8
"""Share of samples, the loudest ones, that may hold this share of all variance; beyond, they are outliers."""


def estimate_saturation_errors(rows: Array, A: Array, phase: Phase) -> Vector | None:
    """Error of each row of A (n, n) because large values of features are too small: clipped, or bent by a sensor.

    The kurtosis of a feature is what those of the codes sum up to. Where it is lower, large values have been lost. The
    same again, by limits that lower kurtoses as much once more, moves the atoms of drawn samples `rows` (b, n) about as
    far as they have been moved already. None if codes explain the kurtoses.
    """
    lost = _measure_lost_kurtosis(rows, A)
    if lost is None:
        return None
    rows, A = to_numpy(rows), to_numpy(A)
    limited = np.clip(rows, *(sign * _find_limit(rows, lost) * np.std(rows, axis=0) for sign in (-1, 1)))
    return _measure_displacement(rows, limited, A, phase)


def _measure_lost_kurtosis(rows: Array, A: Array) -> float | None:
    """Kurtosis, a mean over features, that codes have and features have not, for unit variance; None if chance may."""
    backend = Backend.of(rows) if Backend.of(rows).prefers_products else NUMPY
    rows, A = backend.asarray(rows, "float64"), backend.asarray(A, "float64")
    of_codes, of_features = _measure_cumulants(rows, A), _measure_cumulants(rows)
    squares = A.T * A.T
    whole, *parts = to_numpy((squares * squares) @ of_codes - of_features).T
    errors = np.std(parts, axis=0) / math.sqrt(N_PARTS - 1)
    scores = whole / np.where(errors > 0, errors, math.inf)
    if np.mean(whole) <= 0 or float(np.mean(scores**2)) < MIN_SCORE:
        return None
    return float(np.mean(whole / to_numpy(backend.xp.mean(rows**2, axis=0)) ** 2))


def _measure_cumulants(rows: Array, A: Array | None = None) -> Array:
    """Fourth cumulants of features of rows (b, n), or of codes at A: of all rows, then of each part; means are zero.

    Every eighth row is of the same part. Of shape (n, 1 + N_PARTS).
    """
    backend = Backend.of(rows)
    xp, sums = backend.xp, None
    for start in range(0, len(rows), BLOCK_ROWS):
        block = rows[start : start + BLOCK_ROWS, :]
        values = block if A is None else block @ A.T
        squares = values * values
        both = xp.stack([_sum_by_part(squares), _sum_by_part(squares * squares)])
        sums = both if sums is None else sums + both
    counts = np.bincount(np.arange(len(rows)) % N_PARTS, minlength=N_PARTS)
    number = backend.asarray(np.concatenate([[len(rows)], counts]), "float64")
    assert sums is not None
    whole = xp.concat([xp.sum(sums, axis=1, keepdims=True), sums], axis=1)
    second, fourth = whole[0, :, :].T / number, whole[1, :, :].T / number
    return fourth - 3 * second**2


def _sum_by_part(values: Array) -> Array:
    """Sums (N_PARTS, n) over every eighth row of values (b, n), begun at each of the first rows."""
    backend = Backend.of(values)
    xp, (b, n) = backend.xp, values.shape
    whole = b // N_PARTS
    ones = xp.ones(whole, dtype=values.dtype, device=backend.device)
    sums = xp.reshape(ones @ xp.reshape(values[: whole * N_PARTS, :], (whole, N_PARTS * n)), (N_PARTS, n))
    if b % N_PARTS:
        sums[: b % N_PARTS, :] += values[whole * N_PARTS :, :]
    return sums


def _find_limit(rows: Matrix, lost: float) -> float:
    """Standard deviations to which values have to be limited for kurtoses to fall by as much as was lost."""
    X = rows / np.std(rows, axis=0)
    aim = _mean_kurtosis(X) - lost
    low, high = MIN_LIMIT, MAX_LIMIT
    for _ in range(BISECTIONS):
        middle = (low + high) / 2
        if _mean_kurtosis(np.clip(X, -middle, middle)) < aim:
            low = middle
        else:
            high = middle
    return high


def _mean_kurtosis(X: Matrix) -> float:
    squares = X * X
    return float(np.mean(np.mean(squares * squares, axis=0) / np.mean(squares, axis=0) ** 2))


def estimate_offset_errors(rows: Array, A: Array, phase: Phase) -> Vector:
    """Error of each row of A (m,) because samples are not centred: where atoms of centred drawn samples lie."""
    rows, A = to_numpy(rows), to_numpy(A)
    return _measure_displacement(rows, rows - np.mean(rows, axis=0), A, phase)


def estimate_outlier_errors(rows: Array, A: Array, phase: Phase) -> Vector | None:
    """Error of each row of A (m,) because a few samples hold nearly all variance: where atoms of all others lie.

    These are sought from another start in samples that are normalised. None if there are no such samples.
    """
    xp = Backend.of(rows).xp
    squares = np.sort(to_numpy(xp.sum(rows**2, axis=1)))[::-1]
    if np.sum(squares[: max(1, round(LOUD_SHARE * len(rows)))]) < MAX_ENERGY * np.sum(squares):
        return None
    rows, A = to_numpy(rows), to_numpy(A)
    start = random_orthonormal(len(A), A.shape[1], np.random.default_rng(0))
    others = _settle(Loudness.of(rows).normalize(rows), start, phase)
    return np.asarray(1 - match_rows(A, others)[0] ** 4)


def _measure_displacement(rows: Matrix, changed: Matrix, A: Matrix, phase: Phase) -> Vector:
    """Error of each row of A (m,) if atoms differ as those of drawn samples and of the same, changed, do."""
    return np.asarray(1 - match_rows(_settle(rows, A, phase), _settle(changed, A, phase))[0] ** 4)


def _settle(rows: Matrix, A: Matrix, phase: Phase) -> Matrix:
    """Where l_p leads from A (m, k) on drawn samples (b, k)."""
    phase = replace(phase, precision="float64", max_iter=min(phase.max_iter, MAX_STEPS))
    scale = 1 / math.sqrt(float(np.mean(rows**2)))
    whitening = Whitening(scale, None, None, None, False)
    return np.asarray(run_phases(A, Problem(ArrayDataset(rows), whitening, FitLog()), [phase]).A)


def estimate_noise_errors(estimate: Estimate, whitening: Whitening, statistics: SampleStatistics) -> Vector | None:
    """Error of each row of A (m,) because noise is not white any more once samples are whitened.

    Without noise, of variance v in every direction, samples of covariance S would be whitened by S - v instead: atoms
    are S^1/2 a where (S - v)^1/2 a, of the same orthonormal a, would be right. None if v is not known.
    """
    assert whitening.from_white is not None
    variances = np.sum(to_numpy(whitening.from_white) ** 2, axis=1)  # along principal axes, in units of the scale
    noise = _find_noise(estimate, whitening, statistics, variances)
    if noise is None:
        return None
    A, backend = estimate.A, Backend.of(estimate.A)
    xp, sizes = backend.xp, (np.sqrt(variances), np.sqrt(variances - min(noise, float(np.min(variances)))))
    atoms, better = (A * backend.asarray(size, "float64") for size in sizes)
    lengths = xp.linalg.vector_norm(atoms, axis=1) * xp.linalg.vector_norm(better, axis=1)
    cosines = to_numpy(xp.abs(xp.sum(atoms * better, axis=1)))
    lengths = to_numpy(lengths)
    return np.asarray(1 - (cosines / np.where(lengths > 0, lengths, 1.0)) ** 4)


def _find_noise(
    estimate: Estimate, whitening: Whitening, statistics: SampleStatistics, variances: Vector
) -> float | None:
    """Variance of the noise, in the units of these variances (k,).

    That of directions that were discarded; otherwise that of spike-and-slab codes, which is a mean of v a^T S^-1 a.
    Small values of codes that are not sparse, as Laplace ones, are no noise.
    """
    k = len(variances)
    if whitening.n_discarded:
        left = statistics.principal[0][k : k + whitening.n_discarded]
        return float(np.mean(np.maximum(left, 0.0))) / statistics.rms**2
    share = find_noise_share(estimate)
    return None if share == 0 else share * k / float(np.sum(1 / variances))


def find_noise_share(estimate: Estimate) -> float:
    """Share of the variance of codes that is noise, if their law tells."""
    law = estimate.law
    if law is None or law.noise <= 4 * law.least_noise:
        return 0.0
    if estimate.refined != "bernoulli-gaussian" and float(np.mean(law.density)) > MAX_SPARSE_DENSITY:
        return 0.0
    return float(law.noise / (law.noise + np.mean(law.density * law.power)))
