"""Halves of the samples, of which neither knows what the other does: two fits to them differ by what is uncertain."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from elldict._old.data.dataset import ArrayDataset, Dataset, count_row_bytes
from elldict._old.data.subsample import take_as

Index = NDArray[np.int64]
Pair = tuple[Index, Index]

N_BLOCKS = 40
"""Blocks of consecutive samples that go to the halves in turn: long ones, so that few samples near their ends depend on
samples of the other half, but so many that both halves are alike if the samples drift."""

MAX_HALF_BYTES = 2**28
"""Bytes of a half, which is held in memory; beyond, the first samples of each block stand for all of it."""


def split_alternately(n_samples: int, max_rows: int, groups: NDArray[Any] | None = None) -> Pair:
    """Sorted indices of two halves: every other block of consecutive samples, or groups that stay whole.

    Groups are dealt out from the largest to the smallest, each to the half that is smaller by then.
    """
    if groups is None:
        n_blocks = max(2, min(N_BLOCKS, n_samples - n_samples % 2))
        blocks = np.linspace(0, n_samples, n_blocks + 1).astype(np.int64)
        return _cut_blocks(blocks, np.arange(n_blocks) % 2 == 0, max_rows)
    labels, sizes = _count_groups(groups)
    second, counts = np.zeros(len(sizes), dtype=bool), [0, 0]
    for group in np.argsort(-sizes, kind="stable"):
        second[group] = counts[1] < counts[0]
        counts[int(second[group])] += int(sizes[group])
    return _thin(np.flatnonzero(~second[labels]), max_rows), _thin(np.flatnonzero(second[labels]), max_rows)


def split_at_random(
    n_samples: int, max_rows: int, rng: np.random.Generator, *, block_rows: int = 1, groups: NDArray[Any] | None = None
) -> Pair:
    """Sorted indices of two halves, of blocks of so many consecutive samples, or of groups, drawn at random."""
    if groups is None and block_rows > 1:
        n_blocks = max(2, round(n_samples / block_rows))
        blocks = np.linspace(0, n_samples, n_blocks + 1).astype(np.int64)
        return _cut_blocks(blocks, rng.permutation(n_blocks) < n_blocks // 2, max_rows)
    if groups is None:
        order = rng.permutation(n_samples)
        rows, half = min(max_rows, n_samples // 2), n_samples // 2
        return np.sort(order[:rows]), np.sort(order[half : half + rows])
    labels, sizes = _count_groups(groups)
    order = rng.permutation(len(sizes))
    before = np.cumsum(sizes[order]) - sizes[order] / 2
    first = np.zeros(len(sizes), dtype=bool)
    first[order] = before < n_samples / 2
    if np.all(first):  # one group is larger than all the others together
        first[order[-1]] = False
    return _thin(np.flatnonzero(first[labels]), max_rows), _thin(np.flatnonzero(~first[labels]), max_rows)


def count_half_rows(samples: Dataset, max_bytes: int = MAX_HALF_BYTES) -> int:
    """Most samples of a half."""
    return max(2, max_bytes // count_row_bytes(samples))


def take_half(samples: Dataset, index: Index) -> ArrayDataset:
    """The samples of a half, in memory."""
    return ArrayDataset(take_as(samples, index, samples.dtype))


def check_groups(groups: Any, n_samples: int) -> NDArray[Any] | None:
    """Labels of the groups of samples, or None."""
    if groups is None:
        return None
    labels = np.asarray(groups)
    if labels.shape != (n_samples,):
        raise ValueError(f"groups has shape {labels.shape}, expected a label for each of the {n_samples} samples of X.")
    if len(np.unique(labels)) < 2:
        raise ValueError("groups has one label for all samples, expected two or more: halves are made of whole groups.")
    return labels


def _count_groups(groups: NDArray[Any]) -> tuple[Index, Index]:
    """Number of the group of each sample, in the order of labels, and sizes of the groups."""
    _, labels, sizes = np.unique(groups, return_inverse=True, return_counts=True)
    return labels.ravel(), sizes


def _cut_blocks(blocks: Index, first: NDArray[np.bool_], max_rows: int) -> Pair:
    """Samples of the blocks between these bounds, of the `first` half and of the other."""
    share = min(1.0, 2 * max_rows / int(blocks[-1]))
    ranges = [np.arange(start, start + max(1, int(share * (stop - start)))) for start, stop in pairwise(blocks)]
    one, other = ([r for r, chosen in zip(ranges, first, strict=True) if chosen == which] for which in (True, False))
    return np.concatenate(one), np.concatenate(other)


def _thin(index: Index, max_rows: int) -> Index:
    """At most so many of the samples, evenly."""
    return index if len(index) <= max_rows else index[np.linspace(0, len(index) - 1, max_rows).astype(np.int64)]
