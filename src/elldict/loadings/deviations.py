"""What users know about the sampling error of loadings before rotation: a covariance, or bootstrap samples.

Both are converted to deviations (B, p, k) whose sum of products is the covariance of the loadings (p, k).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from elldict.samples.base import Array

LEAST_DRAWS = 20
"""Bootstrap samples needed: a standard error from n of them has itself a relative error of 1 / sqrt(2 n), here 16 %."""

ROUNDING = 1e-6
"""Relative asymmetry, or negative eigenvalue, that may be due to rounding in single precision."""


def find_deviations(loadings: Array, covariance: Any, draws: Any) -> Array | None:
    """Return the deviations, or None if nothing is known."""
    if covariance is not None and draws is not None:
        raise ValueError("Both loadings_covariance and bootstrap_loadings were given. Give one of them.")
    if covariance is not None:
        return factor_covariance(covariance, loadings)
    return None if draws is None else align_draws(draws, loadings)


def factor_covariance(covariance: Any, loadings: Array) -> Array:
    """Return deviations for a covariance (p k, p k) of the loadings (p, k)."""
    given, size = np.asarray(covariance, dtype=np.float64), loadings.size
    if given.shape != (size, size) or not np.all(np.isfinite(given)):
        raise ValueError(
            f"loadings_covariance must hold finite numbers in the shape {(size, size)}, one row per loading in the "
            f"order of loadings.ravel(). Its shape is {given.shape}."
        )
    difference = float(np.max(np.abs(given - given.T)))
    if difference > ROUNDING * np.max(np.abs(given)):
        raise ValueError(
            f"loadings_covariance is not symmetric: it differs from its transpose by up to {difference:.3g}. Check how "
            "it was computed, or give bootstrap_loadings."
        )
    values, vectors = np.linalg.eigh((given + given.T) / 2)
    if values[0] < -ROUNDING * np.max(np.abs(values)):
        raise ValueError(
            f"loadings_covariance has the eigenvalue {values[0]:.3g}, which cannot be that of a covariance. Check "
            "how it was computed, or give bootstrap_loadings."
        )
    return np.asarray((np.sqrt(np.maximum(values, 0)) * vectors).T.reshape(size, *loadings.shape))


def align_draws(bootstrap_loadings: Any, loadings: Array) -> Array:
    """Return deviations for the loadings (B, p, k) of bootstrap samples, whose rotation does not matter.

    Each is rotated, or reflected, to be as close as possible to the loadings (p, k).
    """
    draws = np.asarray(bootstrap_loadings, dtype=np.float64)
    p, k = loadings.shape
    if draws.ndim != 3 or draws.shape[1:] != (p, k) or not np.all(np.isfinite(draws)):
        hint = " They are transposed." if draws.shape[1:] == (k, p) else ""
        raise ValueError(
            f"bootstrap_loadings must hold finite numbers in the shape (B, {p}, {k}): the loadings before rotation of "
            f"each of B bootstrap samples. Its shape is {draws.shape}.{hint}"
        )
    if len(draws) < LEAST_DRAWS:
        raise ValueError(
            f"bootstrap_loadings holds {len(draws)} bootstrap samples, but needs at least {LEAST_DRAWS}. With 200, "
            "standard errors are accurate to 5 %."
        )
    U, _, V = np.linalg.svd(draws.transpose(0, 2, 1) @ loadings)
    aligned = draws @ (U @ V)
    return np.asarray((aligned - np.mean(aligned, axis=0)) / np.sqrt(len(draws) - 1))
