"""The search for the rotation that maximises a criterion, and the order and signs of the rotated factors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from elldict.rotation.criteria import Criterion, evaluate
from elldict.samples.arrays import ArraySamples
from elldict.samples.base import Array
from elldict.solver.evaluate import Angles
from elldict.solver.steps import QuasiNewton

ROUNDING = 1e-15
"""Change of a criterion that is due to rounding, relative to its value."""

EQUAL = 6
"""Digits of sums of squares of two factors that are equal but for rounding and `tol`."""


@dataclass(frozen=True)
class Maximum:
    """The end of a search."""

    A: Array  # (k, k) of rows
    value: float  # criterion per row
    converged: bool
    n_iter: int


def search(
    rows: Array, criterion: Criterion, starts: Sequence[Array], max_iter: int, tol: float, n_threads: int
) -> list[Maximum]:
    """Maximise a criterion of rows (p, k) of unit mean square from each start (k, k)."""
    samples, moments = ArraySamples(rows, n_threads), np.asarray(rows.T @ rows / len(rows))
    return [ascend(start, lambda A: evaluate(samples, A, criterion, moments), max_iter, tol) for start in starts]


def ascend(A: Array, evaluate_at: Callable[[Array], Angles], max_iter: int, tol: float) -> Maximum:
    """Take quasi-Newton steps from A (k, k), none of which lowers the criterion, until the predicted rise is small.

    The rise is compared with the one by chance, if rows were drawn at random: it is the square of the distance to the
    maximum in units of standard errors.
    """
    step = QuasiNewton()
    for iteration in range(1, max_iter + 1):
        at = evaluate_at(A)
        if step.gained(at.value) < -ROUNDING * abs(at.value):
            step, A = step.shorten()
            if step.is_exhausted and step.last is not None:
                return Maximum(step.last.A, step.last.value, True, iteration)
            continue
        step, A = step.take(A, at)
        if at.rise <= max(tol**2 * at.rise_by_chance, ROUNDING * abs(at.value)):
            return Maximum(A, evaluate_at(A).value, True, iteration)
    return Maximum(A, evaluate_at(A).value, False, max_iter)


def order_factors(loadings: Array, rotation: Array) -> Array:
    """Sort the columns of a rotation by decreasing sum of squares of the loadings, with positive sums of cubes.

    Equal sums of squares are sorted by sums of fourth powers.
    """
    Z = loadings @ rotation
    Z2 = Z * Z
    squares, cubes, fourth = np.sum(Z2, axis=0), np.einsum("pk,pk->k", Z2, Z), np.einsum("pk,pk->k", Z2, Z2)
    order = np.lexsort((-fourth, -np.round(squares / np.max(squares), EQUAL)))
    return np.asarray((rotation * np.where(cubes < 0, -1.0, 1.0))[:, order])
