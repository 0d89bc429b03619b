"""Split-sample replication: compare fits to parts of the samples.

The samples are divided into P parts, and P fits leave out one part each. Two of these fits share P - 2 of the P - 1
parts that each uses, so near a common maximum they differ by d = c e, where e is the error of a fit to all samples and
c = 2 P / (P - 1)^2: 4 for halves, 1.5 for thirds. Unrelated fits (d = 1) mean an error of 1, so the estimate is
d / (c - (c - 1) d), which is correct in both limits. Halves share no samples and thus detect multiple maxima best, but
a half of a small data set may be too small to fit.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment

from elldict.samples.base import Array, Index

BLOCKS = 42
"""Number of blocks of consecutive samples assigned to parts: time series fare no worse than independent samples."""

MANY = 1e5
"""Number of codes from which two parts suffice; below, three are affordable."""

FEW_COMPONENTS = 12
"""Number of components below which two splits are averaged, because an error depends on few angles."""

MIN_PER_COMPONENT = 2
"""Minimum number of samples per component for a meaningful fit."""


def estimate_errors(
    columns: Array, n_samples: int, fit_columns: Callable[[Index], Array], groups: NDArray[Any] | None = None
) -> Array | None:
    """Estimate the error 1 - cos^4 of each column (m,) of a mixing matrix (n, m); None if there are too few samples.

    `fit_columns` fits the samples of an index from scratch; columns of zeros mean that it found nothing.
    """
    m = columns.shape[1]
    n_parts = 2 if n_samples * m >= MANY else 3
    if groups is not None:
        n_parts = min(n_parts, len(np.unique(groups)))
    n_splits = 2 if groups is None and n_parts == 3 and m < FEW_COMPONENTS else 1
    differences: list[Array] = []
    for number in range(n_splits):
        part = assign_parts(n_samples, BLOCKS + n_parts * number, n_parts, groups)
        seen = [np.flatnonzero(part != k) for k in range(n_parts)]
        if n_parts < 2 or min(map(len, seen)) < MIN_PER_COMPONENT * m:
            return None
        found = [match(columns, fit_columns(index)) for index in seen]
        differences += [1 - np.sum(one * other, axis=0) ** 4 for one, other in combinations(found, 2)]
    return convert_difference(np.mean(np.clip(differences, 0, 1), axis=0), n_parts)


def convert_difference(d: Array, n_parts: int) -> Array:
    """Convert the mean difference of leave-one-part-out fits to the error of a fit to all samples."""
    c = 2 * n_parts / (n_parts - 1) ** 2
    return np.asarray(d / (c - (c - 1) * d))


def assign_parts(n_samples: int, n_blocks: int, n_parts: int, groups: NDArray[Any] | None = None) -> Index:
    """Assign blocks of consecutive samples, or whole groups in the order of their labels, to parts in turn."""
    if groups is not None:
        return np.asarray(np.unique(groups, return_inverse=True)[1] % n_parts, dtype=np.intp)
    return np.arange(n_samples) * min(n_blocks, n_samples) // n_samples % n_parts


def match(columns: Array, others: Array) -> Array:
    """Return the matching column of unit length for each column; zeros if there is none."""
    units = make_unit(others)
    first, second = linear_sum_assignment(-(np.abs(make_unit(columns).T @ units) ** 4))
    partners = np.zeros_like(columns)
    partners[:, first] = units[:, second]
    return partners


def make_unit(columns: Array) -> Array:
    """Scale columns to unit length without underflow or overflow; columns of zeros are unchanged."""
    largest = np.max(np.abs(columns), axis=0)
    columns = columns / np.where(largest > 0, largest, 1)
    return np.asarray(columns / np.where(largest > 0, np.linalg.norm(columns, axis=0), 1))
