"""The nearest matrix with orthonormal rows."""

from __future__ import annotations

import math

import numpy as np

from elldict.kernels import svd
from elldict.kernels.fused import kernels_for
from elldict.space import HOST, Array, Space

LEAST_SINGULAR_VALUE = 1e-6
"""Relative to the largest: smaller ones would be lost in rounding, and are left to the decomposition."""

MOST_STEPS = 24
ROUNDING = 1e-13


def polar(G: Array) -> Array:
    """Polar factor of G (m, n), m <= n: the maximiser of <A, G> over orthonormal rows.

    Orthonormal to rounding whatever the condition of G, singular G included, because both singular bases are.
    """
    if Space.of(G).on_gpu:
        found = polar_by_products(G)
        if found is not None:
            return found
    U, _, Vt = svd(G)
    return U @ Vt


def polar_by_products(G: Array) -> Array | None:
    """The same by products of matrices alone, which a graphics card does a hundred times faster; None if it fails.

    Newton and Schulz's iteration X <- X (3 - X^T X) / 2, each step scaled so that singular values between a lower bound
    and one come as close to one as a cubic can bring them (Chen and Chow).
    """
    xp = Space.of(G).xp
    S = G @ G.T
    # the fourth root of the norm of S^2 is no smaller than the largest singular value of G, and hardly larger
    S = S / xp.linalg.matrix_norm(S)
    X = G / xp.sqrt(xp.linalg.matrix_norm(G @ G.T) * xp.sqrt(xp.linalg.matrix_norm(S @ S)))
    least = LEAST_SINGULAR_VALUE
    for number in range(MOST_STEPS):
        scale = math.sqrt(3 / (1 + least + least**2))
        X = _cubic(X, 1.5 * scale, -0.5 * scale**3)
        least = 0.5 * scale * least * (3 - (scale * least) ** 2)
        close = 1 - least < ROUNDING
        if close and number % 4 == 3 and float(lack_of_orthonormality(X)) < 1e-7:  # the next step is the last
            return nearby_polar(X, steps=1)
    return None


def _cubic(X: Array, once: float, thrice: float) -> Array:
    kernels = kernels_for(X)
    if kernels is not None:
        found: Array = kernels.cubic(X, once, thrice)
        return found
    return once * X + thrice * (X @ X.T @ X)


def nearby_polar(X: Array, steps: int = 3) -> Array:
    """Polar factor of X (m, n) close to orthonormal: singular values between 0 and 1.5, the closer to 1 the better.

    A quintic takes a distance of e to 2.5 e^3: .1, .0025, 4e-8, 2e-22.
    """
    kernels = kernels_for(X)
    for _ in range(steps):
        if kernels is not None:
            X = kernels.quintic(X)
            continue
        S = X @ X.T
        X = 1.875 * X + (0.375 * (S @ S) - 1.25 * S) @ X
    return X


def lack_of_orthonormality(X: Array) -> Array:
    """Largest entry of X X^T - I, as an array of one number; NaN if X holds one."""
    space = Space.of(X)
    xp = space.xp
    return xp.max(xp.abs(X @ X.T - xp.eye(int(X.shape[0]), dtype=X.dtype, device=space.device)))


def random_orthonormal(m: int, n: int, rng: np.random.Generator, space: Space = HOST) -> Array:
    """Uniformly distributed (Haar) orthonormal rows, shape (m, n); the same ones in every space."""
    return polar(space.asarray(rng.standard_normal((m, n)), "float64"))
