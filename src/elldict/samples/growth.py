"""Growing samples: most of the way to the answer is walked on a few of the samples, drawn at random."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from elldict.samples.base import Samples
from elldict.samples.memory import MemorySamples
from elldict.space import Array

FIRST_PER_FEATURE = 40
FEWEST = 1000
"""Samples of the first level."""

GROWTH = 3
"""How many times as many the next level has."""

SMALL_VALUES = 2**17
"""Of samples that are looked at in less than a millisecond, so that fewer would save nothing."""

MOST_BYTES = 2**25
MOST_GPU_BYTES = 2**30
"""Of the largest level short of all samples: levels are copies."""


def growing(samples: Samples, rng: np.random.Generator) -> Iterator[Samples]:
    """The samples at hand, more each time; each level holds the one before, and the last is all of them.

    Rows are drawn uniformly, so that sorted, grouped or drifting samples do not matter.
    """
    r, n = samples.n_samples, samples.n_features
    size = max(FEWEST, FIRST_PER_FEATURE * n)
    most_bytes = MOST_GPU_BYTES if samples.space.on_gpu else MOST_BYTES
    most = min(2 * r // 3, most_bytes // (n * (4 if samples.dtype == "float32" else 8)))
    if 3 * size > r or r * n <= SMALL_VALUES:
        most = 0
    order = _drawn(r, most, size, rng, sparing=r >= 2**24 or samples.space.on_gpu)
    while size <= most:
        index = np.sort(order[:size]).astype(np.int64)
        yield MemorySamples(taken(samples, index, samples.dtype))
        size *= GROWTH
    yield samples


def _drawn(r: int, most: int, first: int, rng: np.random.Generator, *, sparing: bool) -> NDArray[np.int64]:
    """Rows in the order in which levels take them; `sparing` draws no more of them than levels will take."""
    if not sparing:
        return rng.permutation(r)[:most].copy()  # so that the numbers of all the others are forgotten
    size = 0
    while first <= most:
        size, first = first, GROWTH * first
    return rng.choice(r, size, replace=False, shuffle=True)


def taken(samples: Samples, index: NDArray[np.int64], dtype: str) -> Array:
    """Some of the samples, by sorted index, in their space."""
    if isinstance(samples, MemorySamples):
        return samples.part(index, dtype)
    return samples.space.asarray(samples.rows(index), dtype)
