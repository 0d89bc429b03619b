"""Codes that depend on each other: what that adds to the error bars of atoms.

The error bars of `theory.error_bars` take codes to be independent: E g'(z_i) z_j^2 is then a product of two means. Here
the same first-order formula is evaluated with means over pairs of codes of drawn samples: in images and sounds all
codes are large where something happens, and atoms that always act together are not told apart.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from elldict._old.backend.base import Array, Backend, column_means, to_numpy
from elldict._old.data.whitening import Whitening
from elldict._old.error_bars.bias import find_noise_share
from elldict._old.result import Estimate
from elldict._old.solver.loop import Phase
from elldict._old.solver.objective import Lp, Objective, compute_derivatives
from elldict._old.solver.spike_slab import SpikeSlabLikelihood
from elldict._old.solver.whitened_atoms import measure_departure
from elldict._old.theory.error_bars import CodeMoments

Vector = NDArray[np.float64]

MIN_UNEVENNESS = 0.05
"""Half the variance of the eigenvalues of the covariance, in units of their mean, from which correlations of codes are
not enough to tell whether atoms are orthogonal; condition numbers of 2 to 3."""

DEPENDENCE_ROWS = 4096
"""Drawn samples, about, from which dependence is estimated: enough to tell one pair of atoms that act together."""

MIN_PAIR_SCORE = 6.0
"""Standard errors by which the curvature of a pair has to differ from that of its atoms to count."""

MIN_ERROR_RATIO, MIN_ERROR = 1.3, 1e-6
"""Ratio to the error bar of independent codes, and error, from which dependence counts; below, chance or rounding
explains it."""

MAX_EXPONENT = 3.0
"""Exponent beyond which a few codes decide on means over few samples."""

LOST_CURVATURE, CURVATURE_MARGIN, LOST_ERROR = 0.1, 2.0, 0.25
"""Share of the curvature of independent codes, and standard errors more, below which any turn of a pair is as good; and
the mean error of two atoms that are turned at random."""

MIN_CURVATURE, MAX_VARIANCE = 0.02, 0.25
"""Share of the curvature of independent codes below which a pair is not told apart, and the variance of its angle."""


def estimate_dependent_errors(rows: Array, estimate: Estimate, p: float, n_samples: float) -> Vector | None:
    """Error of each row of A (m,) where the dependence of codes makes it larger than otherwise, else zero.

    `rows` (b, k) are drawn samples in whitened coordinates. Both objectives are asked: a few large codes can make codes
    seem dependent to l_p, and blurred zeros to the likelihood. None where codes are not simply products.
    """
    if estimate.corruption is not None:
        return None
    assert estimate.law is not None
    # laws that were fitted to few samples leave fewer digits than float32
    coarse = estimate.refined == "mixture" and not Backend.of(estimate.A).prefers_products
    Z = draw_codes(rows, estimate.A, "float32" if coarse else "float64")
    lp, signs = Lp(min(p, MAX_EXPONENT)), None if estimate.lp_stats is None else estimate.lp_stats.signs
    likelihood = estimate.objective if estimate.refined == "mixture" else SpikeSlabLikelihood(estimate.law)
    objectives: list[tuple[Objective, Array | None]] = [(lp, signs), (likelihood, None)]
    if estimate.refined is not None:
        objectives.reverse()
    elif signs is not None and np.any(to_numpy(signs) < 0):  # a law that these codes do not follow says nothing
        objectives = objectives[:1]
    errors, counts, lost = np.zeros(0), np.array([True]), np.array([estimate.loudness is None])
    for number, (objective, its_signs) in enumerate(objectives):
        if np.any(counts):
            found = compare_errors(objective, Z, n_samples, its_signs)
            errors = errors if number else found.together
            counts = counts & (found.together > MIN_ERROR_RATIO * found.alone) & (found.together > MIN_ERROR)
            lost = lost & found.lost
    errors = np.where(counts, np.minimum(errors, 1.0), 0.0)
    return np.where(counts & lost, np.maximum(errors, LOST_ERROR), errors)


def estimate_loud_errors(rows: Array, estimate: Estimate, n_samples: float) -> Vector:
    """Error of each row of A (m,) by l_1, for normalised samples, where there are no halves to compare.

    A law fitted to the codes of normalised samples says too little; l_1, which fits nothing, says a little too much.
    """
    return np.minimum(compare_errors(Lp(1.0), draw_codes(rows, estimate.A), n_samples).together, 1.0)


@dataclass(frozen=True)
class Comparison:
    """Errors of atoms, (m,) each."""

    alone: Vector  # for independent codes with the same moments
    together: Vector  # as the codes are
    lost: NDArray[np.bool_]  # any turn with one of the others is as good


def compare_errors(objective: Objective, Z: Array, n_samples: float, signs: Array | None = None) -> Comparison:
    """Errors of the atoms of codes Z (b, m), for independent codes and as the codes are."""
    backend, b = Backend.of(Z), int(Z.shape[0])
    xp = backend.xp
    g, slope = (xp.astype(each, Z.dtype, copy=False) for each in compute_derivatives(objective, Z, signs))
    z2, gz, g2 = Z * Z, g * Z, g * g
    mean_z2, mean_gz, mean_g2 = column_means(z2), column_means(gz), column_means(g2)
    curvature = CodeMoments(gz=mean_gz, g2=mean_g2, slope=column_means(slope), z2=mean_z2).curvatures()
    noise = mean_g2[:, None] * mean_z2[None, :]
    power = noise + noise.T - 2 * mean_gz[:, None] * mean_gz[None, :]
    crossed = slope.T @ z2 / b
    seen_curvature = mean_gz[:, None] + mean_gz[None, :] - crossed - crossed.T
    noise = g2.T @ z2 / b
    seen_power = noise + noise.T - 2 * (gz.T @ gz) / b
    blur = column_means(slope * slope)[:, None] * column_means(z2 * z2)[None, :] / b
    others = 1 - xp.eye(int(Z.shape[1]), dtype=Z.dtype, device=backend.device)
    common = curvature * _average_ratio(seen_curvature, curvature, others, xp)
    blur = xp.sqrt(blur + blur.T)
    marked = xp.abs(seen_curvature - common) > MIN_PAIR_SCORE * blur
    alone = _angle_variances(power, curvature, curvature, n_samples, xp)
    together = _angle_variances(
        xp.where(marked, seen_power, power * _average_ratio(seen_power, power, others, xp)),
        xp.where(marked, seen_curvature, common),
        curvature,
        n_samples,
        xp,
    )
    flat = marked & (seen_curvature < LOST_CURVATURE * curvature + CURVATURE_MARGIN * blur) & (others > 0)
    of_alone, of_together = (2 * to_numpy(xp.sum(each * others, axis=1)) for each in (alone, together))
    return Comparison(of_alone, of_together, to_numpy(xp.any(flat, axis=1)))


def _average_ratio(seen: Array, expected: Array, others: Array, xp: Any) -> Array:
    """What is seen over what is expected, for two atoms the mean of what it is for each: chance blurs that less."""
    found, asked = xp.sum(seen * others, axis=1), xp.sum(expected * others, axis=1)
    of_atoms = xp.where(asked > 0, found / xp.where(asked > 0, asked, xp.ones_like(asked)), xp.ones_like(asked))
    return (of_atoms[:, None] + of_atoms[None, :]) / 2


def _angle_variances(power: Array, curvature: Array, expected: Array, n_samples: float, xp: Any) -> Array:
    """Variance of each angle, power / (r curvature^2), and no more than where atoms are not told apart."""
    lost = curvature <= MIN_CURVATURE * xp.abs(expected)
    variance = power / (n_samples * xp.where(lost, xp.ones_like(curvature), curvature) ** 2)
    most = xp.full_like(variance, MAX_VARIANCE)
    return xp.where(lost, most, xp.minimum(xp.maximum(variance, xp.zeros_like(variance)), most))


def estimate_correlated_errors(
    rows: Array,
    estimate: Estimate,
    whitening: Whitening,
    scatter: Vector,
    n_samples: float,
    phase: Phase | None = None,
) -> Vector | None:
    """Error of each row of A (m,) because true atoms are not orthogonal, or zeros if chance explains what shows it.

    Atoms that are not orthogonal but sought as if they were leave their codes correlated: two with a cosine of c come
    out turned away from each other by c/2 each. Where samples are far from white that is not so, and A is compared with
    the atoms that whitening finds in the drawn samples, by this phase of l_p. `scatter` (n, n) is that of all samples.
    None where whitening sees to it that codes are not correlated.
    """
    if whitening.whitened or estimate.stopped:
        return None
    found = _measure_correlated_errors(rows, estimate, whitening, scatter, n_samples, phase)
    # noise makes correlations smaller, by the share of the variance that is none of it
    return None if found is None else np.minimum(found / (1 - find_noise_share(estimate)) ** 2, 1.0)


def _measure_correlated_errors(
    rows: Array, estimate: Estimate, whitening: Whitening, scatter: Vector, n_samples: float, phase: Phase | None
) -> Vector | None:
    """The same, as if there were no noise."""
    A, (m, k) = estimate.A, estimate.A.shape
    # of the scatter in k directions, in units of its mean: bounds what correlations can sum up to
    uneven = (float(np.sum(scatter**2)) * (k / float(np.trace(scatter))) ** 2 - k) / 2
    if phase is not None and m > 1 and uneven > k * (MIN_UNEVENNESS + 2 * k / n_samples):
        found = measure_departure(to_numpy(rows), to_numpy(A), phase)
        if found is not None:
            return found
    if whitening.to_white is not None or not estimate.converged:
        return None
    if m < 2 or uneven < m * m / n_samples:
        return np.zeros(m)
    C = to_numpy(A @ Backend.of(A).asarray(scatter, "float64") @ A.T)
    strength = np.sqrt(np.diag(C))
    squares = (C / np.outer(strength, strength)) ** 2
    np.fill_diagonal(squares, 0.0)
    chance = _measure_common_scale(draw_codes(rows, A)) / n_samples
    n_pairs = m * (m - 1) / 2
    if np.sum(squares) / 2 < chance * n_pairs * (2 + MIN_PAIR_SCORE * math.sqrt(2 / n_pairs)):
        return np.zeros(m)
    return np.asarray(np.maximum(np.sum(squares, axis=1) - (m - 1) * chance, 0.0) / 2)


def draw_codes(rows: Array, A: Array, dtype: str = "float64") -> Array:
    """Codes of about `DEPENDENCE_ROWS` of the drawn samples."""
    some, backend = rows[:: max(1, round(int(rows.shape[0]) / DEPENDENCE_ROWS)), :], Backend.of(A)
    return backend.asarray(some, dtype) @ backend.asarray(A, dtype).T


def _measure_common_scale(Z: Array) -> float:
    """Mean of E z_i^2 z_j^2 over pairs of codes of unit variance: one if they are independent, more if they are not."""
    xp = Backend.of(Z).xp
    z2 = Z * Z
    z2 = z2 / column_means(z2)
    b, m = (int(size) for size in Z.shape)
    whole = float(xp.sum(xp.sum(z2, axis=1) ** 2)) - float(xp.sum(z2 * z2))
    return max(1.0, whole / (b * m * (m - 1)))
