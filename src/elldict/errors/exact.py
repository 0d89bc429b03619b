"""Exact recovery: atoms determined by the zeros of their codes.

Without noise, a code is zero up to rounding in many samples, and its atom is orthogonal to all of these. If they span
all other directions, no other atom is orthogonal to them, so the atom is exact. A linear combination of two atoms is
orthogonal to the samples in which both codes are zero, but these leave two directions undetermined.
"""

from __future__ import annotations

import numpy as np

from elldict.samples.base import Array
from elldict.samples.order import Mask

ZERO = 1e-9
"""Magnitude, relative to its root mean square, below which a code is zero up to rounding."""

MARGIN = 1.5
"""Required samples with a zero code, per direction: for any n - 1 samples, some direction is orthogonal to all."""

ENOUGH = 8
"""Number of such samples per direction that are looked at: they span all directions if more do, and take less time."""

SPAN_TOLERANCE = 1e-9
"""Smallest variance, relative to the mean one, of a direction in which such samples vary."""


def find_exact(Z: Array) -> Mask:
    """Find the exact atoms (m,) from codes (r, m) of a subsample, one code per direction."""
    _, m = Z.shape
    size = np.sqrt(np.sum(Z * Z, axis=0) / max(len(Z), 1))
    X = Z / np.where(size > 0, size, 1)
    zero = np.abs(X) < ZERO
    exact = np.zeros(m, dtype=bool)
    for i in np.flatnonzero(np.sum(zero, axis=0) >= max(MARGIN * m, m + 3)):
        some = np.flatnonzero(zero[:, i])[: ENOUGH * m]
        others = np.delete(X[some], i, axis=1)
        exact[i] = spans_all(others.T @ others)
    return exact


def spans_all(moments: Array) -> bool:
    """Return whether samples of these second moments (n, n) vary in every direction."""
    n = len(moments)
    try:  # exists where all eigenvalues are above the tolerance
        np.linalg.cholesky(moments - SPAN_TOLERANCE * np.trace(moments) / max(n, 1) * np.eye(n))
    except np.linalg.LinAlgError:
        return False
    return True
