"""Exact recovery: atoms that the zeros of their codes determine.

Without noise, a code is zero to rounding in many samples, and its atom is orthogonal to all of these. If they span all
other directions, it is the only one that is, and so known exactly. A mixture of two atoms is orthogonal to the samples
in which both codes are zero, but these leave two directions open.
"""

from __future__ import annotations

import numpy as np

from elldict.samples.base import Array
from elldict.samples.order import Mask

ZERO = 1e-9
"""Code, in units of its root mean square, that is zero but for rounding."""

MARGIN = 1.5
"""Samples with a zero code, for each direction, that are needed: any n - 1 have a direction orthogonal to them all."""

SPAN_TOLERANCE = 1e-9
"""Smallest variance, in units of the mean one, of a direction in which such samples vary."""


def find_exact(Z: Array) -> Mask:
    """Tell which atoms (m,) are exact, from codes (r, m) of some of the samples, one for each direction."""
    _, m = Z.shape
    X = Z / np.sqrt(np.mean(Z * Z, axis=0))
    zero = np.abs(X) < ZERO
    exact = np.zeros(m, dtype=bool)
    for i in np.flatnonzero(np.sum(zero, axis=0) >= max(MARGIN * m, m + 3)):
        others = np.delete(X[zero[:, i]], i, axis=1)
        variances = np.linalg.eigvalsh(others.T @ others / len(others))
        exact[i] = variances[0] > SPAN_TOLERANCE * np.mean(variances) if m > 1 else True
    return exact
