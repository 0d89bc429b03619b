"""Whether neighbouring samples depend on each other, and how many have to stay together when samples are drawn."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray
from scipy.stats import rankdata

from elldict._old.data.dataset import Dataset, count_row_bytes

Matrix = NDArray[np.float64]

MAX_ROWS, MAX_BYTES = 2**14, 2**25
"""Samples that are looked at, and their bytes: a correlation of 0.03 shows in so many, and they take a tenth of a
second."""

N_RUNS = 16
"""Runs of consecutive samples, from all parts of X, if not all of them are looked at."""

MAX_DIRECTIONS = 16
"""Principal directions that are looked at: what neighbours have in common is rarely in small ones."""

CHANCE = 4.0
"""Standard deviations within which a correlation is chance: there are less than two dozen at each lag."""

MATTERS = 0.2
"""Correlation up to which samples may depend on each other: it is four per cent of a variance. Among many samples a
much smaller one is beyond chance, over distances that would leave two or three blocks."""

LAGS_PER_BLOCK = 10
"""Length of a block, in lags at which samples no longer depend on each other: then a tenth of the samples lies so near
to the end of a block that samples of the other half may depend on them."""

LEAST_BLOCKS = 20
"""Blocks that there have to be: halves of fewer would be alike, or differ by what two or three blocks hold."""


def choose_block_rows(samples: Dataset) -> int:
    """Consecutive samples that have to stay together: 1 if samples do not depend on their neighbours."""
    runs = _take_runs(samples)
    measures = [_rank(run) for run in _measure(runs)]
    lag, longest = 1, max(1, len(runs[0]) // 4)
    while lag <= longest and _depend(measures, lag):
        lag *= 2
    if lag == 1:
        return 1
    return max(1, min(LAGS_PER_BLOCK * lag, samples.n_samples // LEAST_BLOCKS))


def _take_runs(samples: Dataset) -> list[Matrix]:
    """Runs of consecutive samples, all of one length; one run of all samples if there are few."""
    n_rows = min(samples.n_samples, MAX_ROWS, max(64, MAX_BYTES // count_row_bytes(samples)))
    if n_rows == samples.n_samples:
        return [samples.take(np.arange(n_rows))]
    length = n_rows // N_RUNS if n_rows >= N_RUNS**2 else n_rows
    starts = np.linspace(0, samples.n_samples - length, n_rows // length).astype(np.int64)
    rows = samples.take(np.concatenate([np.arange(start, start + length) for start in starts]))
    return list(rows.reshape(len(starts), length, -1))


def _measure(runs: list[Matrix]) -> Iterator[Matrix]:
    """Of each sample its coordinates along principal directions, and its norm: samples may be loud together alone."""
    rows = np.concatenate(runs)
    scale = np.max(np.abs(rows)) or 1.0  # squares of samples of any size neither over- nor underflow then
    mean = np.mean(rows / scale, axis=0)
    axes = np.linalg.svd(rows / scale - mean, full_matrices=False)[2][:MAX_DIRECTIONS]
    for run in runs:
        centred = run / scale - mean
        yield np.column_stack([centred @ axes.T, np.linalg.norm(centred, axis=1)])


def _rank(run: Matrix) -> Matrix:
    """Ranks of each column, of mean 0 and variance 1: whatever its law, chance is the same."""
    ranks = rankdata(run, axis=0)
    ranks -= np.mean(ranks, axis=0)
    std = np.std(ranks, axis=0)
    return np.asarray(ranks / np.where(std > 0, std, 1.0))


def _depend(measures: list[Matrix], lag: int) -> bool:
    """Whether samples so far apart have something in common that matters and is not chance."""
    products = sum(np.sum(run[lag:] * run[:-lag], axis=0) for run in measures)
    n_pairs = sum(len(run) - lag for run in measures)
    largest = float(np.max(np.abs(products))) / n_pairs  # of standard deviation 1 / sqrt(n_pairs) for independent ones
    return largest > max(MATTERS, CHANCE / math.sqrt(n_pairs))
