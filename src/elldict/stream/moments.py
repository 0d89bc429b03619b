"""What is kept of the samples of a stream: discounted moments, and the most recent rows."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from elldict.samples.base import Array
from elldict.samples.statistics import Statistics

FEWEST, PER_FEATURE = 1000, 40
"""Samples of the first fit: minimum, and per feature."""

LEAST_WINDOW = 4000
"""Minimum size of the window. Densities of sharp peaks, such as Laplace's, need more samples than a first fit."""


def count_needed(n_features: int) -> int:
    """Count the samples with which a stream begins."""
    return max(FEWEST, PER_FEATURE * n_features)


def count_window(n_features: int) -> int:
    """Count the samples that the window of a stream holds."""
    return max(LEAST_WINDOW, count_needed(n_features))


@dataclass(frozen=True)
class Window:
    """The most recent samples, in chunks as they came; the oldest chunks are dropped."""

    chunks: tuple[Array, ...] = ()
    n_rows: int = 0

    def add(self, rows: Array, most: int) -> Window:
        """Append rows, and drop chunks that are not among the last `most` rows."""
        chunks, n_rows = [*self.chunks, rows[-most:].copy()], self.n_rows + min(most, len(rows))
        while n_rows - len(chunks[0]) >= most:
            n_rows -= len(chunks.pop(0))
        return Window(tuple(chunks), n_rows)

    def take_last(self, count: int) -> Array:
        """Return the last rows (b, n), or all if there are fewer."""
        return np.concatenate(self.chunks)[-count:]


def compute_keep(n_samples: float, half_life: float | None) -> float:
    """Compute the factor by which older samples are discounted when this many more have come."""
    return 1.0 if half_life is None else 0.5 ** (n_samples / half_life)


def add_rows(statistics: Statistics, rows: Array, keep: float) -> Statistics:
    """Update mean and covariance with more samples (b, n), after discounting the others."""
    y = rows.astype(np.float64) / statistics.largest
    before, b = keep * statistics.n_samples, len(y)
    total, mean = before + b, np.mean(y, axis=0)
    apart = mean - statistics.mean
    y -= mean
    scatter = before * statistics.covariance + y.T @ y + np.outer(apart, apart) * (before * b / total)
    return Statistics(total, statistics.largest, statistics.mean + apart * (b / total), scatter / total)


def restore_statistics(mixing: Array, code_std: Array, mean: Array, n_samples: float, *, fill: bool) -> Statistics:
    """Compute the moments that a fitted mixing matrix (n, m) implies, for codes of these standard deviations.

    Directions without a component have no variance, or that of the others (`fill`).
    """
    columns = mixing * code_std
    largest = float(np.max(np.abs(columns)) + np.max(np.abs(mean)))
    columns = columns / largest
    covariance = columns @ columns.T
    if fill:
        basis = np.linalg.svd(columns, full_matrices=False)[0]
        rest = np.eye(len(columns)) - basis @ basis.T
        covariance += np.trace(covariance) / columns.shape[1] * rest
    return Statistics(n_samples, largest, mean / largest, covariance)
