"""Atoms that whitening finds in drawn samples, to see whether true atoms are orthogonal.

Where true atoms are far from orthogonal, orthonormal ones find little more than the principal directions. Their codes
are then uncorrelated, as those of orthogonal atoms of unequal strength are, but not independent. Whitened atoms need
not be orthogonal: they agree with orthonormal ones, up to chance, only if the true atoms are orthogonal.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment

from elldict._old.data.dataset import ArrayDataset
from elldict._old.data.statistics import compute_statistics
from elldict._old.data.whitening import Whitening
from elldict._old.solver.directions import polar
from elldict._old.solver.loop import FitLog, Phase, Problem, run_phases
from elldict._old.solver.objective import Objective, compute_derivatives
from elldict._old.theory.error_bars import CodeMoments, with_small_sample_correction

Matrix = NDArray[np.float64]

MIN_ROWS_PER_DIRECTION = 10
"""Drawn samples a direction below which whitened atoms are too uncertain to be compared with."""

MAX_STEPS = 100
"""Steps in which atoms settle on a few samples."""

MIN_CURVATURE, MAX_VARIANCE = 0.02, 0.25
"""Share of E g_i z_i + E g_j z_j below which the curvature of a pair is lost in noise, and the variance of an angle of
which nothing is known."""

MIN_SCORE = 6.0
"""Standard errors by which distances have to exceed twice what chance gives to count."""


def measure_departure(rows: Matrix, A: Matrix, phase: Phase) -> Matrix | None:
    """Error of each row of A (m,) if the atoms that whitening finds in drawn samples (b, k) are the true ones.

    None if chance explains it, or samples are too few to tell.
    """
    found = find_whitened_atoms(rows, A, phase)
    if found is None:
        return None
    atoms, chance = found
    cosines, matched = match_rows(A, atoms)
    errors, chance = 1 - cosines**4, chance[matched]
    n_pairs = len(A) * (len(A) - 1) / 2
    if np.mean(errors / chance) < 2 + MIN_SCORE * math.sqrt(2 / n_pairs):
        return None
    return np.asarray(np.maximum(errors - chance, 0.0))


def match_rows(A: Matrix, others: Matrix) -> tuple[Matrix, NDArray[np.intp]]:
    """Cosines (m,), without signs, of unit rows A (m, k) and their partners among the others; and which these are."""
    cosines = np.abs(A @ others.T)
    own, matched = linear_sum_assignment(cosines, maximize=True)
    return np.minimum(cosines[own, matched], 1.0), matched


def find_whitened_atoms(rows: Matrix, A: Matrix, phase: Phase) -> tuple[Matrix, Matrix] | None:
    """Atoms (k, k) of unit length, sought from A (m, k) on by a phase of l_p, and the errors (k,) they have by chance.

    None if there are too few samples.
    """
    (b, k), m = rows.shape, len(A)
    samples = ArrayDataset(rows)
    if b < MIN_ROWS_PER_DIRECTION * k:
        return None
    statistics = compute_statistics(samples, center=False, precise=True)
    if statistics.rank < k:
        return None
    whitening = Whitening.of(statistics, center=False, whiten=True)
    assert whitening.from_white is not None
    if m < k:
        A = np.vstack([A, np.linalg.qr(A.T, mode="complete")[0].T[m:]])
    phase = replace(phase, precision="float64", max_iter=min(phase.max_iter, MAX_STEPS))
    end = run_phases(polar(A @ whitening.from_white.T), Problem(samples, whitening, FitLog()), [phase])
    atoms, Z = whitening.components(end.A), whitening.whiten(rows) @ end.A.T
    lengths = np.linalg.norm(atoms, axis=1)
    # a long atom tilts a short one by as much more as it is longer
    tilts = estimate_angle_variances(phase.objective, Z, end.stats.signs) * (lengths[None, :] / lengths[:, None]) ** 2
    return atoms / lengths[:, None], with_small_sample_correction(2 * np.sum(tilts, axis=1), k, b)


def estimate_angle_variances(objective: Objective, Z: Matrix, signs: Matrix | None = None) -> Matrix:
    """Variance (k, k) of the angles between whitened atoms of codes Z (b, k): if these are independent, or as they are.

    That of the estimate is E (g_i z_j - g_j z_i)^2 / (b h_ij^2), and the larger of the two counts; a quarter of the
    variance of E z_i z_j is added, by which samples are whitened.
    """
    g, slope = compute_derivatives(objective, Z, signs)
    b, z2, gz, g2 = len(Z), Z * Z, g * Z, g * g
    moments = CodeMoments(*(np.mean(each, axis=0) for each in (gz, g2, slope, z2)))
    alone = moments.angle_covariances(moments, moments.g2, b)
    noise, crossed = g2.T @ z2 / b, slope.T @ z2 / b
    both = moments.gz[:, None] + moments.gz[None, :]
    curvature = np.maximum(both - crossed - crossed.T, MIN_CURVATURE * np.abs(both) + 1e-300)
    together = (noise + noise.T - 2 * gz.T @ gz / b) / (b * curvature**2)
    variances = np.minimum(np.maximum(alone, together), MAX_VARIANCE) + z2.T @ z2 / (4 * b**2)
    np.fill_diagonal(variances, 0.0)
    return np.asarray(variances)
