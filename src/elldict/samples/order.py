"""An order of samples that does not depend on the order of rows or on coordinates, and subsamples based on it.

Samples are sorted by norm, and those of equal norm by y^T M y, where M = E |y|^2 y y^T are fourth moments of samples of
large norm. Both are invariant to rotation, so subsamples (every s-th sample) and halves (every other) depend only on
the set of samples.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from elldict.samples.arrays import SelectedSamples
from elldict.samples.base import Array, Index, Samples, Weights, weigh

Mask = NDArray[np.bool_]

SMALL, MOST_SMALL = 4.0, 0.01
"""Squared norm, relative to the mean one, below which a sample is a zero that centring has shifted: SMALL / r (1 / r is
the squared error of the mean), but at most MOST_SMALL."""

OUTLIERS = 0.01
"""Fraction of the largest norms left out of the mean, so that outliers do not make all other samples look small."""

LARGEST = 20_000
"""Number of samples of largest norm from which fourth moments are computed to order equal norms."""

MOST_SORTED = 2_000_000
"""Number of samples up to which all are sorted, in about 80 bytes each; of more, this many are drawn by position."""

EQUAL = 1e-9
"""Relative difference below which norms are considered equal up to rounding errors."""


@dataclass(frozen=True)
class Order:
    """Samples that are not zero, sorted by increasing norm: all of them, or evenly spaced ones if there are many."""

    index: Index  # (r,) rows of the samples
    squares: Array  # (r,) their squared norms
    group: Index  # (r,) label of the distinct sample: equal samples share one
    weights: Weights = None  # (r,)
    least: float = 0.0  # squared norm up to which samples are left out
    is_drawn: bool = False  # whether there are other samples

    @property
    def n_samples(self) -> float:
        """Number of samples, each counted with its weight."""
        return float(len(self.index) if self.weights is None else np.sum(self.weights))

    @property
    def n_distinct(self) -> int:
        """Number of samples that differ."""
        return int(self.group[-1]) + 1

    def thin_out(self, stride: int) -> Order:
        """Keep every s-th sample; one of weight w takes the place of w samples."""
        if stride == 1:
            return self
        if self.weights is None:
            return self.keep(slice(stride // 2, None, stride))
        ends = np.cumsum(self.weights)
        index = np.searchsorted(ends, np.arange(stride // 2, ends[-1], stride) + 0.5, side="right")
        found, n_copies = np.unique(index[index < len(ends)], return_counts=True)
        return replace(self.keep(found), weights=n_copies.astype(np.float64))

    def keep(self, some: slice | Mask | Index) -> Order:
        """Keep some of the samples."""
        weights = None if self.weights is None else self.weights[some]
        return Order(self.index[some], self.squares[some], self.group[some], weights, self.least, self.is_drawn)

    def assign_parts(self, n_parts: int) -> Index:
        """Assign samples to parts in turn, and equal samples to the same part."""
        rank = np.r_[0, np.cumsum(np.diff(self.group) > 0)]
        if rank[-1] + 1 < n_parts:  # leave no part empty
            rank = np.arange(len(self.index))
        return np.asarray(rank % n_parts, dtype=np.int8)

    def average(self, values: Array) -> float:
        """Compute the weighted mean of one value per sample."""
        return float(np.average(values, weights=self.weights))

    @property
    def median(self) -> float:
        """Median of the squared norms."""
        if self.weights is None:
            return float(np.median(self.squares))
        ends = np.cumsum(self.weights)
        middle = np.searchsorted(ends, [ends[-1] / 2 * (1 - EQUAL), ends[-1] / 2 * (1 + EQUAL)])
        return float(np.mean(self.squares[np.minimum(middle, len(ends) - 1)]))


def sum_fourth_moments(samples: Samples) -> Array:
    """Sum of |y|^2 y y^T (n, n) over samples."""
    weights = samples.weights

    def visit(rows: Array, start: int) -> Array:
        y = rows.astype(np.float64, copy=False)
        return np.asarray(weigh(y * np.sum(y * y, axis=1)[:, None], weights, start).T @ y)

    return samples.sum(visit)


def measure_fourth(samples: Samples, index: Index, largest: Index) -> Array:
    """Compute y^T M y of some samples, M the fourth moments of those of largest norm."""
    largest, rank = np.sort(largest), np.argsort(index)  # samples are read in the order in which they are stored
    weights = None if samples.weights is None else samples.weights[largest]
    M = sum_fourth_moments(SelectedSamples(samples, largest, weights))
    fourth = np.empty(len(index))
    fourth[rank] = map_rows(SelectedSamples(samples, index[rank]), lambda rows: np.vecdot(rows @ M, rows))
    return fourth


def find_order(samples: Samples) -> Order:
    """Sort samples by norm, and by fourth moments where norms are equal."""
    if samples.shape[0] > MOST_SORTED:
        drawn = draw_positions(samples.shape[0], MOST_SORTED)
        order = find_order(SelectedSamples(samples, drawn, None if samples.weights is None else samples.weights[drawn]))
        return replace(order, index=drawn[order.index], is_drawn=True)
    squares = map_rows(samples, lambda rows: np.vecdot(rows, rows))
    index = np.argsort(squares, kind="stable")
    squares = squares[index]
    least = find_least(squares, samples.weights, index)
    first = np.searchsorted(squares, least, side="right")
    index, squares = index[first:], squares[first:]
    distinct = np.diff(squares) > EQUAL * squares[1:]
    if not np.all(distinct):
        tied = np.flatnonzero(~(np.r_[True, distinct] & np.r_[distinct, True]))
        class_of_norm = np.cumsum(np.r_[0, distinct])[tied]
        large = squares >= squares[max(0, len(squares) - LARGEST)] * (1 - EQUAL)
        fourth = measure_fourth(samples, index[tied], index[large])
        again = np.lexsort((fourth, class_of_norm))
        index[tied], squares[tied], fourth = index[tied[again]], squares[tied[again]], fourth[again]
        inner = np.flatnonzero(np.diff(class_of_norm) == 0)
        distinct[tied[inner]] = fourth[inner + 1] - fourth[inner] > EQUAL * np.abs(fourth[inner + 1])
    weights = None if samples.weights is None else samples.weights[index]
    return Order(index, squares, np.cumsum(np.r_[0, distinct]), weights, least)


def draw_positions(n_samples: int, n_drawn: int) -> Index:
    """Draw one position at random from each of equally long stretches of samples, always the same ones."""
    starts = np.arange(n_drawn + 1) * n_samples // n_drawn
    return np.random.default_rng(0).integers(starts[:-1], starts[1:])


def find_least(squares: Array, weights: Weights, index: Index) -> float:
    """Find the squared norm up to which a sample is a shifted zero, from sorted squared norms and their index."""
    ends = np.arange(1, len(index) + 1) if weights is None else np.cumsum(weights[index])
    total = ends[-1]
    ends = np.minimum(ends, np.ceil((1 - OUTLIERS) * total))
    usual = np.diff(ends, prepend=0)  # weights without those of outliers
    return float(min(SMALL / total, MOST_SMALL) * (usual @ squares / np.sum(usual)))


def map_rows(samples: Samples, function: Callable[[Array], Array]) -> Array:
    """Compute one number per sample (r,)."""
    return samples.map(lambda rows, start: function(rows), np.empty(samples.shape[0]))  # noqa: ARG005
