"""Atoms that follow the maximum of an objective, by one Newton step per batch.

A Newton step needs the slope of all samples seen, but these are gone. At the maximum for them it was zero, so the slope
of the new batch is all that is left: divided by the curvature of all samples, it gives a step whose length is
proportional to the share of the batch in all samples. To first order, one pass has the error of a fit.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from elldict.samples.arrays import ArraySamples
from elldict.samples.base import Array, Weights
from elldict.samples.subsample import NO_VARIANCE, Codes
from elldict.solver.evaluate import LEAST_CURVATURE
from elldict.solver.kernels import Terms
from elldict.solver.objectives import Objective
from elldict.solver.steps import limit, polar, rotate

MEMORY = 16  # measurements of curvatures that are averaged: each has an error of about 10 %
SHORTENED = 1 / 8  # least curvature of a likelihood, relative to the variance of its slope
MOST_EXCESS = 4.0  # of squared angles, by which samples of a fit count less
SHORTEST = 1e-100  # keeps quotients finite where there is neither curvature nor slope


@dataclass(frozen=True)
class Padded:
    """An objective of the first m codes, on bases of more directions."""

    objective: Objective
    m: int

    def terms(self, Z: Array, weights: Weights = None, *, second: bool = False) -> Terms:
        """Evaluate at codes (b, k)."""
        value, g, slope = self.objective.terms(Z[:, : self.m], weights, second=second)
        rest = np.zeros((len(Z), Z.shape[1] - self.m), dtype=Z.dtype)
        return Terms(value, np.hstack([g, rest]), np.hstack([slope, rest]) if second else slope)


@dataclass(frozen=True)
class Path:
    """A basis whose first m rows are the atoms, and the errors of its angles."""

    A: Array  # (k, k)
    m: int
    weight: float  # of all samples, with discounts
    squares: float  # sum of the squared weights of single samples
    errors: Array  # (k, k) mean squares of the errors of the angles
    is_likelihood: bool
    measured: Array  # (4, k, k) averages of `measure_angles`
    n_measured: int = 0

    @property
    def n_effective(self) -> float:
        """Number of samples of equal weight with the same errors."""
        return self.weight**2 / self.squares

    @property
    def atoms(self) -> Array:
        """Atoms (m, k)."""
        return self.A[: self.m]

    def step(self, slope: Array, n_samples: int, keep: float, inflation: float) -> Path:
        """Rotate by the slope (k, k) of samples, summed over them, after discounting the others.

        `inflation` is the factor by which the variance of angles exceeds that of independent samples.
        """
        weight = keep * self.weight + n_samples
        share = n_samples / weight
        angles = limit(share * slope / n_samples / self.curvature)
        errors = (1 - share) ** 2 * self.errors + share**2 * inflation * self.variance / n_samples
        squares = keep**2 * self.squares + n_samples
        return replace(self, A=rotate(self.A, angles), weight=weight, squares=squares, errors=errors)

    def move(self, forward: Array, back: Array) -> Path:
        """Express the basis in other coordinates, to which `forward` (k, k) maps it; `back` maps samples there.

        Codes of earlier samples are then mixed by a symmetric matrix, which changes their slope: a step makes it zero.
        """
        A = polar(self.A @ forward)
        mixed = A @ back @ self.A.T - np.eye(len(A))
        return replace(self, A=rotate(A, limit((mixed + mixed.T) / 2 * self.measured[3] / self.curvature)))

    @property
    def curvature(self) -> Array:
        """Curvature (k, k) per sample. Unlike a larger of two noisy estimates, it does not shorten steps by chance."""
        second, variance, size, _ = self.measured
        least = LEAST_CURVATURE / 2 * size + SHORTEST
        if self.is_likelihood:  # equal to the variance of the slope where densities fit
            least = np.maximum(least, SHORTENED * variance)
        return np.asarray(np.maximum(second, least))

    @property
    def variance(self) -> Array:
        """Variance (k, k) of the angles found from one sample."""
        return np.asarray(self.measured[1] / self.curvature**2)

    def measure(self, Z: Array, objective: Objective) -> Path:
        """Update second derivatives and variances with codes (r, k) of recent samples."""
        found = measure_angles(Z, objective if self.m == len(self.A) else Padded(objective, self.m))
        share = 1 / min(self.n_measured + 1, MEMORY)
        measured = self.measured + share * (found - self.measured)
        return replace(self, measured=measured, n_measured=self.n_measured + 1)

    def set_errors(self, squares: Array) -> Path:
        """Share squared angles (m,) of the atoms among their angles; none is below that of the samples seen.

        Samples with errors above that count less, so that steps are as long as these errors require.
        """
        least = np.sum(self.variance, axis=1) / self.n_effective
        excess = np.ones(len(self.A))
        excess[: self.m] = np.maximum(squares / np.maximum(least[: self.m], SHORTEST), 1)
        errors = self.variance / self.n_effective * (excess[:, None] + excess) / 2
        share = 1 / min(float(np.median(excess[: self.m])), MOST_EXCESS)
        return replace(self, errors=errors, weight=share * self.weight, squares=share * self.squares)


def begin_path(atoms: Array, weight: float, *, is_likelihood: bool) -> Path:
    """Complete orthonormal atoms (m, k) to a basis."""
    m, k = atoms.shape
    rest = np.linalg.svd(atoms)[2][m:]
    return Path(np.vstack([atoms, rest]), m, weight, weight, np.zeros((k, k)), is_likelihood, np.zeros((4, k, k)))


def measure_angles(Z: Array, objective: Objective | Padded) -> Array:
    """Compute (4, k, k), per sample, for the angles of all pairs.

    They are minus the second derivative, the variance of the slope, its size, and its derivative with respect to a
    symmetric matrix that mixes the codes.
    """
    _, g, slope = objective.terms(Z, second=True)
    z2, gz, r = Z * Z, g * Z, len(Z)
    own, bend, across = np.mean(gz, axis=0), slope.T @ z2 / r, (g * g).T @ z2 / r
    variance = np.maximum(across + across.T - 2 * (gz.T @ gz / r), 0)
    np.fill_diagonal(variance, 0)
    size = np.abs(own)[:, None] + np.abs(own)
    mixed = own[:, None] + bend
    return np.stack([own[:, None] + own - bend - bend.T, variance, size, mixed - mixed.T])


def make_codes(Z: Array) -> Codes:
    """Take codes (r, m) in memory; every other sample is in the second half."""
    samples, half = ArraySamples(Z), np.asarray(np.arange(len(Z)) % 2, dtype=np.int8)
    return Codes(samples, samples, half, np.sqrt(np.maximum(np.mean(Z * Z, axis=0), NO_VARIANCE)))  # type: ignore[arg-type]
