"""Atoms that follow the maximum of an objective, by one Newton step per batch.

A Newton step needs the slope of all samples seen, but these are gone. At the maximum for them it was zero, so the slope
of the new batch is all that is left: divided by the curvature of all samples, it gives a step whose length is
proportional to the share of the batch in all samples. To first order, one pass has the error of a fit.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from elldict.samples.base import Array
from elldict.solver.evaluate import LEAST_CURVATURE
from elldict.solver.objectives import Objective
from elldict.solver.steps import limit, polar, rotate

MEMORY = 16  # measurements that are averaged: those of curvatures have an error of about 10 % each
TINY = 1e-100  # keeps quotients finite, and their squares, where there is neither curvature nor slope


@dataclass(frozen=True)
class Path:
    """Orthonormal atoms, the number of samples they are found from, and the curvatures of the objective."""

    A: Array  # (m, m)
    weight: float  # of all samples, with discounts
    squares: float  # sum of the squared weights of single samples
    measured: Array  # (4, m, m) averages of `measure_angles`
    n_measured: int = 0

    @property
    def n_effective(self) -> float:
        """Number of samples of equal weight with the same errors."""
        return self.weight**2 / self.squares

    @property
    def curvature(self) -> Array:
        """Curvature (m, m) per sample. Unlike a larger of two noisy estimates, it does not shorten steps by chance."""
        return np.asarray(np.maximum(self.measured[0], self.measured[2]))

    @property
    def variance(self) -> Array:
        """Variance (m, m) of the angles found from one sample."""
        return np.asarray(self.measured[1] / self.curvature**2)

    def step(self, slope: Array, n_samples: int, keep: float) -> Path:
        """Rotate by the slope (m, m) of samples, summed over them, after discounting the others."""
        weight, squares = keep * self.weight + n_samples, keep**2 * self.squares + n_samples
        A = rotate(self.A, limit(slope / weight / self.curvature))
        return replace(self, A=A, weight=weight, squares=squares)

    def move(self, forward: Array, back: Array) -> Path:
        """Express the atoms in other coordinates, to which `forward` (m, m) maps them; `back` maps samples there.

        Codes of earlier samples are then mixed by a symmetric matrix, which changes their slope: a step makes it zero.
        """
        A = polar(self.A @ forward)
        mixed = A @ back @ self.A.T - np.eye(len(A))
        return replace(self, A=rotate(A, limit((mixed + mixed.T) / 2 * self.measured[3] / self.curvature)))

    def measure(self, Z: Array, objective: Objective) -> Path:
        """Update curvatures and variances with codes (r, m) of recent samples."""
        share = 1 / min(self.n_measured + 1, MEMORY)
        measured = self.measured + share * (measure_angles(Z, objective) - self.measured)
        return replace(self, measured=measured, n_measured=self.n_measured + 1)


def measure_angles(Z: Array, objective: Objective) -> Array:
    """Compute (4, m, m), per sample, for the angles of all pairs.

    They are minus the second derivative, the variance of the slope, the least curvature of steps, and the derivative of
    the slope with respect to a symmetric matrix that mixes the codes.
    """
    _, g, slope = objective.terms(Z, second=True)
    z2, gz, r = Z * Z, g * Z, len(Z)
    own, bend, across = np.mean(gz, axis=0), slope.T @ z2 / r, (g * g).T @ z2 / r
    variance = np.maximum(across + across.T - 2 * (gz.T @ gz / r), 0)
    np.fill_diagonal(variance, 0)
    least = LEAST_CURVATURE / 2 * (np.abs(own)[:, None] + np.abs(own)) + TINY
    mixed = own[:, None] + bend
    return np.stack([own[:, None] + own - bend - bend.T, variance, least, mixed - mixed.T])
