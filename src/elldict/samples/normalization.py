"""Normalisation of samples of varying scale: each is divided by approximately its own norm."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from elldict.samples.base import Array


@dataclass(frozen=True)
class Normalization:
    """x = y / sqrt(|y|^2 + m), m the median of |y|^2: a one-to-one map that keeps single samples from dominating."""

    median: float

    def find_scale(self, squares: Array) -> Array:
        """Compute the factor of samples of these squared norms."""
        return 1 / np.sqrt(squares + self.median)

    def apply(self, rows: Array) -> Array:
        """Normalise samples (b, n)."""
        return rows * self.find_scale(np.sum(rows * rows, axis=1, keepdims=True))

    def log_determinant(self, squares: Array, n_features: int) -> Array:
        """Compute the log-determinant of the Jacobian of the map at samples of these squared norms."""
        return np.asarray(math.log(self.median) - (n_features + 2) / 2 * np.log(squares + self.median))
