"""Split-sample replication: parts of the samples are fitted from scratch and compared.

Samples are cut into P parts, and for each part all others are fitted. Two of these fits share P - 2 of the P - 1 parts
that each has seen, so near one maximum they differ by d = c e, e the error of a fit to all samples, with
c = 2 P / (P - 1)^2: 4 for halves, 1.5 for thirds. Fits that have nothing in common (d = 1) say that nothing is known:
d / (c - (c - 1) d) is right at both ends. Halves share no sample, so they see best that there are several maxima, but
where samples are few a half may be too few to be fitted at all.
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
"""Blocks of consecutive samples that are dealt out to the parts: series are no worse off than independent samples."""

MANY = 1e5
"""Codes of the samples from which two parts are enough; below, three are affordable."""

FEW_COMPONENTS = 12
"""Number of components below which a second split is averaged with the first: an error rests on few angles."""

MIN_PER_COMPONENT = 2
"""Samples of a fit, for each component, from which it means anything."""


def estimate_errors(
    columns: Array, n_samples: int, fit_columns: Callable[[Index], Array], groups: NDArray[Any] | None = None
) -> Array | None:
    """Estimate the error 1 - cos^4 of each column (m,) of a mixing matrix (n, m); None if there are too few samples.

    `fit_columns` fits the samples of an index from scratch; columns of zeros say that it found nothing.
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
    """Convert the mean difference of fits that leave out one part each to the error of a fit to all samples."""
    c = 2 * n_parts / (n_parts - 1) ** 2
    return np.asarray(d / (c - (c - 1) * d))


def assign_parts(n_samples: int, n_blocks: int, n_parts: int, groups: NDArray[Any] | None = None) -> Index:
    """Deal out consecutive blocks of samples, or whole groups in the order of their labels, to the parts in turn."""
    if groups is not None:
        return np.asarray(np.unique(groups, return_inverse=True)[1] % n_parts, dtype=np.intp)
    return np.arange(n_samples) * min(n_blocks, n_samples) // n_samples % n_parts


def match(columns: Array, others: Array) -> Array:
    """Return, for each column, its partner of unit length among the others; zeros where there is none."""
    units = make_unit(others)
    first, second = linear_sum_assignment(-(np.abs(make_unit(columns).T @ units) ** 4))
    partners = np.zeros_like(columns)
    partners[:, first] = units[:, second]
    return partners


def make_unit(columns: Array) -> Array:
    """Scale columns to unit length, also where squares would under- or overflow; columns of zeros stay."""
    largest = np.max(np.abs(columns), axis=0)
    columns = columns / np.where(largest > 0, largest, 1)
    return np.asarray(columns / np.where(largest > 0, np.linalg.norm(columns, axis=0), 1))
