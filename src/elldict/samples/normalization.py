"""Normalisation of samples of varying scale: each is divided by approximately its own norm."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from elldict.samples.base import Array


@dataclass(frozen=True)
class Normalization:
    """x = y / sqrt(|y|^2 + m), m the median of |y|^2: a one-to-one map that keeps single samples from dominating."""

    median: float
    metric: Array | None = (
        None  # (m, m) |y|^2 = z^T metric z, if rows are codes z = A y of atoms that are not orthogonal
    )

    def measure(self, rows: Array) -> Array:
        """Compute the squared norms (b, 1) of samples."""
        return np.asarray(np.sum(rows * (rows if self.metric is None else rows @ self.metric), axis=1, keepdims=True))

    def find_scale(self, squares: Array) -> Array:
        """Compute the factor of samples of these squared norms."""
        return 1 / np.sqrt(squares + self.median)

    def apply(self, rows: Array) -> Array:
        """Normalise samples (b, n)."""
        return rows * self.find_scale(self.measure(rows))

    def rescale(self, factor: float) -> Normalization:
        """Return the normalisation of samples multiplied by a factor."""
        return replace(self, median=self.median * factor**2)

    def log_determinant(self, squares: Array, n_features: int) -> Array:
        """Compute the log-determinant of the Jacobian of the map at samples of these squared norms."""
        return np.asarray(math.log(self.median) - (n_features + 2) / 2 * np.log(squares + self.median))
