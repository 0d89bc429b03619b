"""Covariance of loadings before rotation: as a user gives it, or from the loadings of bootstrap samples."""

from __future__ import annotations

from numbers import Real
from typing import Any

import numpy as np
from numpy.typing import NDArray

LEAST_DRAWS = 20
"""Bootstrap samples: a standard error from n of them is itself known to 1 / sqrt(2 n), here 16 %."""

ROUNDING = 1e-6
"""Relative size up to which asymmetry and negative eigenvalues are rounding, that of float32 with room to spare."""

Matrix = NDArray[np.float64]


def check_covariance(covariance: Any, n_observations: Any, shape: tuple[int, int]) -> Matrix:
    """The covariance (p k, p k) of loadings (p, k), from that of a single observation if their number is given."""
    if n_observations is not None and not (isinstance(n_observations, Real) and float(n_observations) > 0):
        raise ValueError(f"n_observations={n_observations!r}, expected a positive number.")
    size, given = shape[0] * shape[1], np.asarray(covariance, dtype=np.float64)
    if given.shape != (size, size) or not np.all(np.isfinite(given)):
        raise ValueError(
            f"loadings_covariance of shape {given.shape}, expected finite numbers of shape {(size, size)}: one row for "
            f"each of the {shape[0]} x {shape[1]} loadings, in the order of loadings.ravel()."
        )
    largest = float(np.max(np.abs(given), initial=0.0))
    difference = float(np.max(np.abs(given - given.T), initial=0.0))
    if difference > ROUNDING * largest:
        raise ValueError(
            f"loadings_covariance is not symmetric: entries differ by up to {difference:.3g} from those of the "
            "transpose. Give a covariance in the order of loadings.ravel(), or bootstrap_loadings."
        )
    eigenvalues = np.linalg.eigvalsh((given + given.T) / 2)
    if eigenvalues[0] < -ROUNDING * np.max(np.abs(eigenvalues)):
        raise ValueError(
            f"loadings_covariance has an eigenvalue of {eigenvalues[0]:.3g}, and a covariance has none below zero. "
            "Check how it was made, or give bootstrap_loadings."
        )
    return given / (1.0 if n_observations is None else float(n_observations))


def estimate_covariance(bootstrap_loadings: Any, loadings: Matrix) -> Matrix:
    """Covariance (p k, p k) of loadings (p, k), from those (B, p, k) of bootstrap samples in any rotation.

    Order, signs and rotation of a draw are those that bring it closest to the loadings; rotated loadings do not depend
    on them.
    """
    draws = np.asarray(bootstrap_loadings, dtype=np.float64)
    p, k = loadings.shape
    if draws.ndim != 3 or draws.shape[1:] != (p, k) or not np.all(np.isfinite(draws)):
        hint = " They are transposed." if draws.shape[1:] == (k, p) else ""
        raise ValueError(
            f"bootstrap_loadings of shape {draws.shape}, expected finite numbers of shape (B, {p}, {k}): the loadings "
            f"before rotation of each of B bootstrap samples.{hint}"
        )
    if len(draws) < LEAST_DRAWS:
        raise ValueError(
            f"bootstrap_loadings holds {len(draws)} bootstrap samples, expected at least {LEAST_DRAWS}; with 200 "
            "standard errors are known to 5 %."
        )
    return np.asarray(np.cov(align(draws, loadings).reshape(len(draws), p * k), rowvar=False)).reshape(p * k, p * k)


def align(draws: Matrix, loadings: Matrix) -> Matrix:
    """Each of the draws (B, p, k) in the rotation or reflection that brings it closest to the loadings (p, k)."""
    U, _, Vt = np.linalg.svd(draws.transpose(0, 2, 1) @ loadings)
    return np.asarray(draws @ (U @ Vt))
