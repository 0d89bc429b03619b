"""Sampling error of loadings before rotation, from bootstrap samples of the observations."""

from __future__ import annotations

from typing import Any

import numpy as np

from elldict.samples.base import Array

LEAST_DRAWS = 20
"""Bootstrap samples needed: a standard error from n of them has itself a relative error of 1 / sqrt(2 n), here 16 %."""


def find_deviations(draws: Any, loadings: Array) -> Array:
    """Return deviations (B, p, k) of the loadings, whose sum of products is their covariance.

    The rotation of the draws (B, p, k) does not matter: each is rotated, or reflected, to be as close as possible to
    the loadings (p, k).
    """
    draws = np.asarray(draws, dtype=np.float64)
    p, k = loadings.shape
    if draws.ndim != 3 or draws.shape[1:] != (p, k) or len(draws) < LEAST_DRAWS or not np.all(np.isfinite(draws)):
        raise ValueError(
            f"bootstrap_loadings must hold finite numbers in the shape (B, {p}, {k}): the loadings before rotation of "
            f"each of B >= {LEAST_DRAWS} bootstrap samples. Its shape is {draws.shape}."
        )
    U, _, V = np.linalg.svd(draws.transpose(0, 2, 1) @ loadings)
    aligned = draws @ (U @ V)
    return np.asarray((aligned - np.mean(aligned, axis=0)) / np.sqrt(len(draws) - 1))
