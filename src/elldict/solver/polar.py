"""The nearest matrix with orthonormal rows."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from elldict.kernels import svd
from elldict.space import Array


def polar(G: Array) -> Array:
    """Polar factor of G (m, n), m <= n: the maximiser of <A, G> over orthonormal rows.

    Orthonormal to rounding whatever the condition of G, singular G included, because both singular bases are.
    """
    U, _, Vt = svd(G)
    return U @ Vt


def random_orthonormal(m: int, n: int, rng: np.random.Generator) -> NDArray[np.float64]:
    """Uniformly distributed (Haar) orthonormal rows, shape (m, n)."""
    return np.asarray(polar(rng.standard_normal((m, n))))
