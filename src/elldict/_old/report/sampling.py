"""A few thousand samples of any source, and their linear codes: enough to draw."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from elldict._old.backend.base import to_numpy
from elldict._old.data.dataset import Dataset, find_non_finite, non_finite_error
from elldict._old.validation import check_same_space, check_samples

Matrix = NDArray[np.float64]

SEED = 0
"""Of the samples that are drawn: the same ones every time."""


def open_source(model: Any, X: Any, method: str) -> Dataset:
    """Samples of any source, checked against the model."""
    check_same_space(model, X, model.unmixing_, method)
    return check_samples(model, X, fitting=False)


def choose_samples(n_samples: int, most: int) -> NDArray[np.int64]:
    """Sorted indices of at most so many samples, drawn at random."""
    if n_samples <= most:
        return np.arange(n_samples)
    return np.sort(np.random.default_rng(SEED).choice(n_samples, most, replace=False))


def take_codes(model: Any, samples: Dataset, index: NDArray[np.int64]) -> Matrix:
    """Linear codes (r, m) of some samples, whatever `transform` would make of them."""
    rows = np.asarray(to_numpy(samples.take(index)), dtype=np.float64)
    found = find_non_finite(rows, np)
    if found is not None:
        raise non_finite_error(samples, replace(found, sample=int(index[found.sample])))
    mean, unmixing = (np.asarray(to_numpy(array), dtype=np.float64) for array in (model._mean, model.unmixing_))
    return np.asarray((rows - mean) @ unmixing.T)
