"""Steps of atoms: the power step of the paper, and quasi-Newton steps on rotations."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
import scipy.linalg

from elldict.samples.base import Array
from elldict.solver.evaluate import Angles, Shears

LONGEST, LONGEST_ANGLE = 0.3, 0.5  # maximum root mean square of the angles of an atom; maximum angle of a pair
MEMORY = 10  # number of stored steps with their changes of the slope
SHORTER, MAX_SHORTER = 0.3, 4  # factor that shortens a step that lowered the value; how often at most
LEAST_PRODUCT = 1e-10  # cosine of a step and its change of the slope; below, the pair is not stored


def polar(G: Array) -> Array:
    """Compute the orthonormal rows closest to G (m, n)."""
    try:
        U, _, V = np.linalg.svd(G, full_matrices=False)
    except np.linalg.LinAlgError:  # divide and conquer did not converge
        U, _, V = scipy.linalg.svd(G, full_matrices=False, lapack_driver="gesvd")
    return np.asarray(U @ V)


def rotate(A: Array, angles: Array) -> Array:
    """Rotate rows by antisymmetric angles (Cayley transform)."""
    return np.asarray(2 * np.linalg.solve(np.eye(len(A)) - angles / 2, A) - A)


def shear(A: Array, coefficients: Array) -> Array:
    """Add multiples of other rows to each row, and a number to its constant if there is one, in the last column."""
    m = len(A)
    changed = A + coefficients[:, :m] @ A
    changed[:, m:] += coefficients[:, m:]
    return np.asarray(changed)


@dataclass(frozen=True)
class Trial:
    """A step taken: its origin and angles, and the value and slope there."""

    A: Array
    value: float
    slope: Array
    angles: Array


@dataclass(frozen=True)
class QuasiNewton:
    """L-BFGS on the angles of pairs of atoms, preconditioned by their curvatures, with its memory.

    Of atoms that are not orthogonal, the coefficients of shears take the place of angles.
    """

    last: Trial | None = None
    pairs: tuple[tuple[Array, Array, float], ...] = ()  # angles, change of the slope, their product
    longest: float = LONGEST
    n_shortened: int = 0
    is_orthogonal: bool = True

    @property
    def is_exhausted(self) -> bool:
        """Whether the last step has been shortened as often as is allowed."""
        return self.n_shortened > MAX_SHORTER

    def gained(self, value: float) -> float:
        """Return by how much the last step has increased the value."""
        return math.inf if self.last is None else value - self.last.value

    def shorten(self) -> tuple[QuasiNewton, Array]:
        """Shorten the last step."""
        assert self.last is not None
        angles = SHORTER * self.last.angles
        longest = 2 * math.sqrt(np.sum(angles * angles) / len(angles))
        last = replace(self.last, angles=angles)
        return replace(self, last=last, n_shortened=self.n_shortened + 1, longest=longest), self._move(last.A, angles)

    def take(self, A: Array, at: Angles | Shears, *, forget: bool = False) -> tuple[QuasiNewton, Array]:
        """Step towards the maximum of a quadratic model; `forget` clears the memory if the objective changed."""
        longest = self.longest if self.n_shortened else min(LONGEST, 2 * self.longest)
        pairs = () if forget else self._remember(at.slope)
        angles = limit(solve_two_loops(at, pairs))
        if np.vdot(angles, at.slope) <= 0:  # not a direction in which the objective increases
            pairs, angles = (), limit(at.solve(at.slope))
        length = math.sqrt(np.sum(angles * angles) / len(A))
        angles = angles * min(1.0, longest / max(length, 1e-300))
        last = Trial(A, at.value, at.slope, angles)
        return replace(self, last=last, pairs=pairs, longest=longest, n_shortened=0), self._move(A, angles)

    def _move(self, A: Array, angles: Array) -> Array:
        """Rotate or shear atoms."""
        return rotate(A, angles) if self.is_orthogonal else shear(A, angles)

    def _remember(self, slope: Array) -> tuple[tuple[Array, Array, float], ...]:
        """Append the change of the slope along the last step."""
        if self.last is None:
            return self.pairs
        angles, change = self.last.angles, self.last.slope - slope
        product = float(np.vdot(angles, change))
        if product <= LEAST_PRODUCT * math.sqrt(np.vdot(angles, angles) * np.vdot(change, change)):
            return self.pairs
        return (*self.pairs[1 - MEMORY :], (angles, change, product))


def limit(angles: Array) -> Array:
    """Limit the angle of every pair."""
    return np.clip(angles, -LONGEST_ANGLE, LONGEST_ANGLE)


def solve_two_loops(at: Angles | Shears, pairs: tuple[tuple[Array, Array, float], ...]) -> Array:
    """Apply the inverse Hessian of L-BFGS to the slope (Nocedal and Wright, algorithm 7.4)."""
    angles, shares = at.slope, []
    for along, change, product in reversed(pairs):
        shares.append(np.vdot(along, angles) / product)
        angles = angles - shares[-1] * change
    angles = at.solve(angles)
    if pairs:
        _, change, product = pairs[-1]
        angles *= product / np.vdot(change, at.solve(change))
    for along, change, product in pairs:
        angles += (shares.pop() - np.vdot(change, angles) / product) * along
    return angles
