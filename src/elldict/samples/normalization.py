"""The normalisation of samples whose scale varies: each is divided by about its own length."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from elldict.samples.base import Array


@dataclass(frozen=True)
class Normalization:
    """x = y / sqrt(|y|^2 + m), m the median of |y|^2: a one-to-one map, after which no sample outweighs all others."""

    median: float

    def apply(self, rows: Array) -> Array:
        """Normalise samples (b, n)."""
        return np.asarray(rows / np.sqrt(np.sum(rows * rows, axis=1, keepdims=True) + self.median))

    def log_determinant(self, squares: Array, n_features: int) -> Array:
        """Logarithm of the volume element of the map at samples of these squared norms."""
        return np.asarray(math.log(self.median) - (n_features + 2) / 2 * np.log(squares + self.median))
