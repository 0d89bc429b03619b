"""Where climbs begin: atoms that turn with the samples, without a seed."""

from __future__ import annotations

import numpy as np

from elldict.samples.base import Array, Samples
from elldict.samples.order import sum_fourth_moments
from elldict.solver.steps import polar


def find_start(samples: Samples, m: int | None = None) -> Array:
    """Eigenvectors (m, n) of fourth moments E |y|^2 y y^T, those of the largest eigenvalues."""
    _, vectors = np.linalg.eigh(sum_fourth_moments(samples))
    return np.asarray(vectors.T[::-1][:m])


def draw_start(m: int, n: int, rng: np.random.Generator) -> Array:
    """Random orthonormal atoms (m, n), as the paper begins with."""
    return polar(rng.standard_normal((m, n)))
