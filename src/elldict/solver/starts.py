"""Initial atoms, without a seed: they rotate with the samples."""

from __future__ import annotations

import numpy as np

from elldict.samples.base import Array, Samples
from elldict.samples.order import sum_fourth_moments
from elldict.solver.steps import polar


def find_start(samples: Samples, m: int | None = None) -> Array:
    """Compute the leading eigenvectors (m, n) of the fourth moments E |y|^2 y y^T."""
    _, vectors = np.linalg.eigh(sum_fourth_moments(samples))
    return np.asarray(vectors.T[::-1][:m])


def draw_start(m: int, n: int, rng: np.random.Generator) -> Array:
    """Draw random orthonormal atoms (m, n), the start of the paper."""
    return polar(rng.standard_normal((m, n)))
