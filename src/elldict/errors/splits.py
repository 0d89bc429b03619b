"""Split-sample replication: compare fits to parts of the samples.

The samples are divided into P parts, and P fits leave out one part each. Two of these fits share P - 2 of the P - 1
parts that each uses, so near a common maximum they differ by d = c e, where e is the error of a fit to all samples and
c = 2 P / (P - 1)^2: 4 for halves, 1.5 for thirds. Unrelated fits (d = 1) mean an error of 1, so the estimate is
d / (c - (c - 1) d), which is correct in both limits. Halves share no samples and thus detect multiple maxima best, but
a half of a small data set may be too small to fit.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment

from elldict.samples.arrays import SelectedSamples
from elldict.samples.base import Array, Samples

BLOCKS = 42
"""Number of blocks of consecutive samples assigned to parts: time series fare no worse than independent samples."""

MANY = 3e4
"""Number of codes from which two parts suffice; below, three are affordable, and a half may be too small to fit."""

FEW_COMPONENTS = 12
"""Number of components below which two splits are averaged, because an error depends on few angles."""

CUT_TOLERANCE = 1e-6
"""Rounding error of the position of a cut, in samples."""

MIN_PER_COMPONENT = 2
"""Minimum number of samples per component for a meaningful fit."""


@dataclass(frozen=True)
class Split:
    """Samples left after leaving out each of the parts in turn."""

    parts: Sequence[Samples]


def list_splits(
    n_samples: float, n_components: int, samples: Samples, groups: NDArray[Any] | None = None
) -> list[Split]:
    """Split the samples, counted by their weights, into halves or thirds; none if these are too few to be fitted."""
    m, n_parts = n_components, 2 if n_samples * n_components >= MANY else 3
    if groups is not None:
        n_parts = min(n_parts, len(np.unique(groups)))
    n_splits = 2 if groups is None and n_parts == 3 and m < FEW_COMPONENTS else 1
    splits = []
    for number in range(n_splits):
        shares = share_samples(samples, BLOCKS + n_parts * number, n_parts, groups)
        parts = [select(samples, np.sum(shares, axis=0) - share) for share in shares]
        if n_parts < 2 or min(part.shape[0] for part in parts) < MIN_PER_COMPONENT * m:
            return []
        splits.append(Split(parts))
    return splits


def select(samples: Samples, weights: Array) -> Samples:
    """Select the samples of positive weight."""
    index = np.flatnonzero(weights > CUT_TOLERANCE)
    return SelectedSamples(samples, index, None if samples.weights is None else weights[index])


def share_samples(samples: Samples, n_blocks: int, n_parts: int, groups: NDArray[Any] | None = None) -> list[Array]:
    """Share blocks of consecutive samples, or whole groups in the order of their labels, among parts in turn.

    Returns the weight (r,) of every sample in each part. Blocks are cut by weight: a sample of weight w counts as w
    consecutive copies.
    """
    weights = np.ones(samples.shape[0]) if samples.weights is None else samples.weights
    if groups is not None:
        part = np.unique(groups, return_inverse=True)[1] % n_parts
        return [weights * (part == k) for k in range(n_parts)]
    ends = np.cumsum(weights)
    n_blocks = min(n_blocks, math.ceil(ends[-1]))
    cuts = np.ceil(np.arange(n_blocks + 1) * ends[-1] / n_blocks - CUT_TOLERANCE)
    cuts[-1] = ends[-1]
    shares = []
    for k in range(n_parts):
        lengths = np.diff(cuts) * (np.arange(n_blocks) % n_parts == k)
        inside = np.interp(np.r_[0, ends], cuts, np.r_[0, np.cumsum(lengths)])  # weight in the part before each sample
        shares.append(np.diff(inside))
    return shares


def estimate_errors(columns: Array, splits: Sequence[Split], fit_columns: Callable[[Samples], Array]) -> Array | None:
    """Estimate the error 1 - cos^4 of each column (m,) of a mixing matrix (n, m); None without splits.

    `fit_columns` fits samples from scratch; columns of zeros mean that it found nothing.
    """
    if not splits:
        return None
    differences: list[Array] = []
    for split in splits:
        found = [match(columns, fit_columns(part)) for part in split.parts]
        differences += [1 - np.sum(one * other, axis=0) ** 4 for one, other in combinations(found, 2)]
    return convert_difference(np.mean(np.clip(differences, 0, 1), axis=0), len(splits[0].parts))


def convert_difference(d: Array, n_parts: int) -> Array:
    """Convert the mean difference of leave-one-part-out fits to the error of a fit to all samples."""
    c = 2 * n_parts / (n_parts - 1) ** 2
    return np.asarray(d / (c - (c - 1) * d))


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
