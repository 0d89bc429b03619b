"""Error bars for codes that depend on each other.

The error bars of `theory.accuracy` take codes to be independent: E g'(z_i) z_j^2 is then a product of two means. In
images and sounds all codes are large where something happens, and atoms that always act together are told apart by
nothing at all. Here the same first-order formula is evaluated with means over pairs of codes, those of the witnesses.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from elldict.solver.code_model import CodeModel
from elldict.solver.contrasts import Lines
from elldict.space import Array, Space, to_numpy
from elldict.theory.accuracy import CodeMoments

Vector = NDArray[np.float64]

ENOUGH_ROWS = 1500
"""About as many witnesses are asked: more would not change the verdict."""

MARKED = 6.0
"""Standard errors by which the curvature of a pair has to differ from that of its atoms to be believed."""

RELEVANT = 1.3
"""Times the error bar of independent codes from which dependence counts; below, chance explains it."""

MOST_P = 3.0
"""Exponent beyond which a few codes decide on means over few samples."""

ROUNDING = 1e-6
"""Errors below which an answer is exact, and a ratio of errors is one of rounding."""

LEAST_CURVATURE = 0.02
MOST_VARIANCE = 0.25
"""Share of the curvature of independent codes below which a pair is not told apart, and the variance of its angle."""


def dependent_errors(rows: Array, A: Array, p: float, model: CodeModel, *, refined: bool, n_samples: float) -> Vector:
    """Error of each atom (m,) where the dependence of codes makes it larger than it would be otherwise, else zero.

    `rows` (b, k) are samples inside the frame. The answer is that of l_p, or refined by the likelihood of `model`. Both
    are asked: a few large codes can make codes seem dependent to l_p, and blurred zeros to the likelihood.
    """
    space = Space.of(A)
    Z = _asked(rows, space) @ A.T
    contrasts = [_lp(Z, min(p, MOST_P), space), _likelihood(Z, model, space)]
    own, other = reversed(contrasts) if refined else contrasts
    apart, errors = _errors(Z, *own, n_samples, space)
    counts = _more(errors, apart)
    if np.any(counts):
        apart, together = _errors(Z, *other, n_samples, space)
        counts &= _more(together, apart)
    return np.where(counts, np.minimum(errors, 1.0), 0.0)


def correlated_errors(rows: Array, A: Array, scatter: Vector, n_samples: float) -> Vector:
    """Error of each atom (m,) that the correlation of codes shows, or zeros if chance explains it.

    Atoms that are not orthogonal but sought as if they were leave their codes correlated: two with a cosine of c come
    out turned away from each other by c/2 each. `scatter` (k, k) is that of all samples, in the frame of A.
    """
    m = int(A.shape[0])
    scale = float(np.trace(scatter)) / len(scatter)
    uneven = float(np.sum((scatter / scale - np.eye(len(scatter))) ** 2)) / 2  # bounds what correlations can sum up to
    if m < 2 or uneven < m * m / n_samples:
        return np.zeros(m)
    space = Space.of(A)
    C = to_numpy(A @ space.asarray(scatter, "float64") @ A.T)
    strength = np.sqrt(np.diag(C))
    squares = (C / np.outer(strength, strength)) ** 2
    np.fill_diagonal(squares, 0.0)
    chance = _loudness(_asked(rows, space) @ A.T, space) / n_samples
    n_pairs = m * (m - 1) / 2
    if np.sum(squares) / 2 < chance * n_pairs * (2 + MARKED * math.sqrt(2 / n_pairs)):
        return np.zeros(m)
    return np.asarray(np.maximum(np.sum(squares, axis=1) - (m - 1) * chance, 0.0) / 2)


def _asked(rows: Array, space: Space) -> Array:
    return space.asarray(rows[:: max(1, round(int(rows.shape[0]) / ENOUGH_ROWS)), :], "float64")


def _loudness(Z: Array, space: Space) -> float:
    """Mean of E z_i^2 z_j^2 over pairs of codes of unit variance: one if they are independent, more if they are not."""
    z2 = Z * Z
    z2 = z2 / space.xp.mean(z2, axis=0)
    b, m = (int(size) for size in Z.shape)
    whole = float(space.xp.sum(space.xp.sum(z2, axis=1) ** 2)) - float(space.xp.sum(z2 * z2))
    return max(1.0, whole / (b * m * (m - 1)))


def _more(errors: Vector, apart: Vector) -> NDArray[np.bool_]:
    return (errors > RELEVANT * apart) & (errors > ROUNDING)


def _errors(Z: Array, g: Array, slope: Array, n_samples: float, space: Space) -> list[Vector]:
    """Errors of the atoms, for independent codes and as they are."""
    parts = _variances(Z, g, slope, n_samples, space)
    return [2 * to_numpy(space.xp.sum(part, axis=1)) for part in parts]


def _lp(Z: Array, p: float, space: Space) -> tuple[Array, Array]:
    """Derivatives g and g' of the contrast |z|^p / p."""
    weight = space.xp.abs(Z) ** (p - 2)
    return weight * Z, (p - 1) * weight


def _likelihood(Z: Array, model: CodeModel, space: Space) -> tuple[Array, Array]:
    """g, the best guess of the code behind z, and g'."""
    noise = np.full_like(model.power, model.noise)
    (offset, rate), (_, kept, _, _) = Lines.rows(model.density, model.power, noise, np)
    offset, rate, kept = (space.asarray(row, "float64") for row in (offset, rate, kept))
    activity = 1 + space.xp.tanh(offset + rate * Z * Z)  # twice the probability, as `kept` is half of the share
    return kept * activity * Z, kept * activity * (1 + 2 * rate * Z * Z * (2 - activity))


def _variances(Z: Array, g: Array, slope: Array, n_samples: float, space: Space) -> tuple[Array, Array]:
    """Variance (m, m) of the angle between each two atoms: for independent codes with these moments, and as it is."""
    xp, b = space.xp, int(Z.shape[0])
    z2, gz = Z * Z, g * Z
    mean_z2, mean_gz, mean_slope, mean_g2 = (xp.mean(part, axis=0) for part in (z2, gz, slope, g * g))
    curvature = CodeMoments(gz=mean_gz, g2=mean_g2, slope=mean_slope, z2=mean_z2).curvatures()
    noise = mean_g2[:, None] * mean_z2[None, :]
    power = noise + noise.T - 2 * mean_gz[:, None] * mean_gz[None, :]
    crossed = slope.T @ z2 / b
    seen_curvature = mean_gz[:, None] + mean_gz[None, :] - crossed - crossed.T
    noise = (g * g).T @ z2 / b
    seen_power = noise + noise.T - 2 * (gz.T @ gz) / b
    blur = xp.mean(slope * slope, axis=0)[:, None] * xp.mean(z2 * z2, axis=0)[None, :] / b
    others = 1 - xp.eye(int(Z.shape[1]), dtype=Z.dtype, device=space.device)
    common = curvature * _of_both(seen_curvature, curvature, others, xp)
    marked = xp.abs(seen_curvature - common) > MARKED * xp.sqrt(blur + blur.T)
    together = _angles(
        xp.where(marked, seen_power, power * _of_both(seen_power, power, others, xp)),
        xp.where(marked, seen_curvature, common),
        curvature,
        n_samples,
        xp,
    )
    return _angles(power, curvature, curvature, n_samples, xp) * others, together * others


def _of_both(seen: Array, expected: Array, others: Array, xp: Any) -> Array:
    """What is seen over what is expected, for two atoms the mean of what it is for each: chance blurs that less."""
    found, asked = xp.sum(seen * others, axis=1), xp.sum(expected * others, axis=1)
    of_atoms = xp.where(asked > 0, found / xp.where(asked > 0, asked, xp.ones_like(asked)), xp.ones_like(asked))
    return (of_atoms[:, None] + of_atoms[None, :]) / 2


def _angles(power: Array, curvature: Array, expected: Array, n_samples: float, xp: Any) -> Array:
    """Variance of each angle, power / (r curvature^2), and no more than where atoms are not told apart."""
    lost = curvature <= LEAST_CURVATURE * xp.abs(expected)
    variance = power / (n_samples * xp.where(lost, xp.ones_like(curvature), curvature) ** 2)
    most = xp.full_like(variance, MOST_VARIANCE)
    return xp.where(lost, most, xp.minimum(xp.maximum(variance, xp.zeros_like(variance)), most))
