"""Growing samples: most of the way to the answer is walked on a few of the samples, drawn at random."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from elldict.samples.base import Samples
from elldict.samples.memory import MemorySamples

FIRST_PER_FEATURE = 40
FEWEST = 1000
"""Samples of the first level."""

GROWTH = 3
"""How many times as many the next level has."""

SMALL_VALUES = 2**17
"""Of samples that are looked at in less than a millisecond, so that fewer would save nothing."""

MOST_BYTES = 2**25
"""Of the largest level short of all samples: levels are copies."""


def growing(samples: Samples, rng: np.random.Generator) -> Iterator[Samples]:
    """The samples at hand, more each time; each level holds the one before, and the last is all of them.

    Rows are drawn uniformly, so that sorted, grouped or drifting samples do not matter.
    """
    r, n = samples.n_samples, samples.n_features
    size = max(FEWEST, FIRST_PER_FEATURE * n)
    most = min(2 * r // 3, MOST_BYTES // (n * (4 if samples.dtype == "float32" else 8)))
    if 3 * size > r or r * n <= SMALL_VALUES:
        most = 0
    # a copy, so that the numbers of all the others are forgotten
    order = rng.permutation(r)[:most].copy() if r < 2**24 else rng.choice(r, most, replace=False, shuffle=True)
    while size <= most:
        index = np.sort(order[:size]).astype(np.int64)
        yield MemorySamples(samples.space.asarray(samples.rows(index), samples.dtype))
        size *= GROWTH
    yield samples
