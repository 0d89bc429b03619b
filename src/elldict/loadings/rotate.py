"""The search for the rotation that maximises a criterion, and the order and signs of the rotated factors."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from elldict.loadings.criteria import evaluate
from elldict.samples.arrays import ArraySamples
from elldict.samples.base import Array
from elldict.solver.climb import Reason, State, climb, measure_length
from elldict.solver.objectives import Objective
from elldict.solver.starts import draw_start
from elldict.solver.steps import QuasiNewton

LARGE = 2**17
"""Number of loadings above which single precision saves time, as do subsamples of the rows that compare starts."""

ROUGH_TOL, SUBSAMPLE_TOL = 2e-4, 1e-2
"""Length of the last step in single precision, whose rounding errors rotate factors by about 1e-5; on a subsample."""

ROWS_PER_FACTOR = 20
"""Rows of the subsample, per factor."""

EQUAL = 1e-6
"""Relative difference up to which sums of squares of two factors are equal but for rounding and `tol`."""


@dataclass(frozen=True)
class Options:
    """Parameters of a rotation, checked."""

    criterion: Any
    normalize: bool
    n_init: int
    max_iter: int
    tol: float
    seed: int


@dataclass(frozen=True)
class Ascent:
    """Quasi-Newton steps on the angles of all pairs of factors, none of which lowers the criterion."""

    rows: ArraySamples
    moments: Array  # (k, k) mean of y y^T over all rows
    tol: float

    def __call__(self, state: State) -> State:
        """Rotate all pairs of factors, or shorten the last step if it lowered the criterion."""
        at = evaluate(self.rows, state.A, state.objective, self.moments)
        state = replace(state, iteration=state.iteration + 1, value=at.value)
        rounding = float(np.finfo(self.rows.dtype).eps) * abs(at.value)
        if state.step.fell(at.value + rounding):
            step, A = state.step.shorten()
            if step.is_exhausted and step.last is not None:
                return replace(state, A=step.last.A, value=step.last.value, step=step, reason=Reason.NO_RISE)
            return replace(state, A=A, step=step)
        step, A = state.step.take(state.A, at)
        assert step.last is not None
        length = measure_length(step.last.angles)
        # a single short step may be due to the memory of earlier ones
        reason = Reason.SMALL_STEP if max(length, state.length) <= self.tol else Reason.RUNNING
        return replace(state, A=A, step=step, length=length, reason=reason)


@dataclass(frozen=True)
class Search:
    """The maximum that was found."""

    rotation: Array  # (k, k) of columns
    values: Array  # (n_init,) criterion per row; only the best start has been followed to its end
    converged: bool
    n_iter: int


def search(rows: Array, objective: Objective, options: Options, n_threads: int = 1) -> Search:
    """Maximise a criterion of rows (p, k) of unit mean square from several starts; the first is no rotation."""
    k, rng = rows.shape[1], np.random.default_rng(options.seed)
    starts = [np.eye(k), *(draw_start(k, k, rng) for _ in range(options.n_init - 1))]
    ascents = list_ascents(rows, options, rng, n_threads)
    last = ascents[-1]
    ends = [follow(State(start, objective), ascents[0], options.max_iter) for start in starts]
    values = np.array([evaluate(last.rows, end.A, objective, last.moments).value for end in ends])
    best = int(np.argmax(values))
    end = ends[best]
    for ascent in ascents[1:]:
        end = follow(end, ascent, options.max_iter)
    values[best] = evaluate(last.rows, end.A, objective, last.moments).value
    return Search(end.A.T, values, end.reason is not Reason.MAX_ITER, end.iteration)


def follow(state: State, ascent: Ascent, max_iter: int) -> State:
    """Climb from a state, with what earlier steps have learned about the curvature."""
    steps = deque([state.step], maxlen=1)
    begin = replace(state, step=QuasiNewton(pairs=state.step.pairs), length=np.inf, reason=Reason.RUNNING)
    end = climb(begin, ascent, max_iter, [lambda state: steps.append(state.step)])
    return replace(end, step=steps[0])


def list_ascents(rows: Array, options: Options, rng: np.random.Generator, n_threads: int) -> Sequence[Ascent]:
    """List the ascents, each of which begins where the one before has ended: the first for all starts."""
    (p, k), tol = rows.shape, options.tol
    last = make_ascent(rows, tol, n_threads)
    if p * k <= LARGE:
        return [last]
    single: Any = rows.astype(np.float32)
    ascents = [make_ascent(single, max(tol, ROUGH_TOL), n_threads), last]
    if options.n_init > 1 and (some := ROWS_PER_FACTOR * k) <= p // 2:
        index = np.sort(rng.choice(p, some, replace=False))
        ascents.insert(0, make_ascent(single[index], max(tol, SUBSAMPLE_TOL), n_threads))
    return ascents


def make_ascent(rows: Array, tol: float, n_threads: int) -> Ascent:
    """Make the ascent for rows (p, k)."""
    moments = np.asarray(rows.T @ rows / len(rows), dtype=np.float64)
    return Ascent(ArraySamples(rows, n_threads), moments, tol)


def order_factors(loadings: Array, rotation: Array) -> Array:
    """Sort the columns of a rotation by decreasing sum of squares of the loadings, with positive sums of cubes.

    Equal sums of squares are sorted by sums of fourth powers.
    """
    Z = loadings @ rotation
    Z2 = Z * Z
    squares, cubes, fourth = (np.sum(each, axis=0) for each in (Z2, Z2 * Z, Z2 * Z2))
    order = np.argsort(-squares, kind="stable")
    rank = np.empty(len(order))
    rank[order] = np.cumsum(np.diff(-squares[order], prepend=-squares[order[0]]) > EQUAL * squares[order[0]])
    signs = np.where(cubes < 0, -1.0, 1.0)
    return np.asarray((rotation * signs)[:, np.lexsort((-fourth, rank))])
