"""An order of samples that does not depend on the order of rows or on coordinates, and subsamples based on it.

Samples are sorted by norm, and those of equal norm by y^T M y, where M = E |y|^2 y y^T are fourth moments. Both are
invariant to rotation, so subsamples (every s-th sample) and halves (every other) depend only on the set of samples.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from elldict.samples.base import Array, Index, Samples

Mask = NDArray[np.bool_]

SMALL, MOST_SMALL = 4.0, 0.01
"""Squared norm, relative to the mean one, below which a sample is a zero that centring has shifted: SMALL / r (1 / r is
the squared error of the mean), but at most MOST_SMALL."""

OUTLIERS = 0.01
"""Fraction of the largest norms left out of the mean, so that outliers do not make all other samples look small."""

EQUAL = 1e-9
"""Relative difference below which norms are considered equal up to rounding errors."""


@dataclass(frozen=True)
class Order:
    """Samples that are not zero, sorted by increasing norm."""

    index: Index  # (r,) rows of the samples
    squares: Array  # (r,) their squared norms
    group: Index  # (r,) label of the distinct sample: equal samples share one

    def __len__(self) -> int:
        """Return the number of samples."""
        return len(self.index)

    def thin_out(self, stride: int) -> Order:
        """Keep every s-th sample."""
        return self.keep(slice(stride // 2, None, stride))

    def keep(self, some: slice | Mask) -> Order:
        """Keep some of the samples."""
        return Order(self.index[some], self.squares[some], self.group[some])

    def assign_parts(self, n_parts: int) -> Index:
        """Assign samples to parts in turn, and equal samples to the same part."""
        distinct, rank = np.unique(self.group, return_inverse=True)
        if len(distinct) < n_parts:  # leave no part empty
            rank = np.arange(len(self))
        return np.asarray(rank % n_parts, dtype=np.intp)


def sum_fourth_moments(samples: Samples) -> Array:
    """Sum of |y|^2 y y^T (n, n) over samples."""
    return samples.sum(lambda rows, start: (rows * np.sum(rows * rows, axis=1)[:, None]).T @ rows)  # noqa: ARG005


def find_order(samples: Samples) -> Order:
    """Sort samples by norm, and by fourth moments where norms are equal."""
    squares = map_rows(samples, lambda rows: np.sum(rows * rows, axis=1))
    mean = np.mean(np.sort(squares)[: math.ceil((1 - OUTLIERS) * len(squares))])
    index = np.flatnonzero(squares > min(SMALL / len(squares), MOST_SMALL) * mean)
    index = index[np.argsort(squares[index], kind="stable")]
    squares = squares[index]
    distinct = np.diff(squares) > EQUAL * squares[1:]
    if not np.all(distinct):
        M = sum_fourth_moments(samples)
        fourth = map_rows(samples, lambda rows: np.sum(rows @ M * rows, axis=1))[index]
        class_of_norm = np.r_[0, np.cumsum(distinct)]
        again = np.lexsort((fourth, class_of_norm))
        index, squares, fourth = index[again], squares[again], fourth[again]
        distinct = (np.diff(class_of_norm) > 0) | (np.diff(fourth) > EQUAL * np.abs(fourth[1:]))
    return Order(index, squares, np.r_[0, np.cumsum(distinct)])


def map_rows(samples: Samples, function: Callable[[Array], Array]) -> Array:
    """Compute one number per sample (r,)."""
    out = np.empty(samples.shape[0])

    def visit(rows: Array, start: int) -> int:
        out[start : start + len(rows)] = function(rows)
        return len(rows)

    samples.sum(visit)
    return out
