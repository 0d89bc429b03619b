"""Samples without noise and corruption."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from elldict.corruption.messages import explain
from elldict.corruption.prior import Prior
from elldict.samples.base import Array


def make_cleaner(prior: Prior, mixing: Array, mean: Array, noise_std: float | None) -> Callable[[Array], Array]:
    """Make the rule for the posterior means of samples (b, n) without their errors; the noise may be known.

    The columns of the mixing matrix (n, n) are orthonormal, but for the units of features if these are standardised.
    """
    units = np.linalg.norm(mixing, axis=1)
    A = (mixing / units[:, None]).T.astype(np.float64)
    if noise_std is not None:
        rounding = np.finfo(float).eps ** 2 * float(np.mean(prior.variance))
        prior = prior.with_noise(max(float(np.mean((noise_std / units) ** 2)), rounding))

    def clean(rows: Array) -> Array:
        return np.asarray(explain((rows - mean) / units, A, prior).mean @ A * units + mean)

    return clean
