"""Samples and codes that plots and pages show: a few thousand rows of X."""

from __future__ import annotations

from typing import Any

import numpy as np

from elldict.samples.arrays import ArraySamples, to_numpy
from elldict.samples.base import Array, Index, refuse_not_finite


def spread(n_samples: int, most: int) -> Index:
    """Choose evenly spaced samples."""
    return np.unique(np.linspace(0, n_samples - 1, min(most, n_samples)).astype(np.intp))


def take_rows(X: Any, index: Index) -> Array:
    """Read samples (r, n) in double precision."""
    rows = ArraySamples(X).take(index).astype(np.float64)
    refuse_not_finite(rows, index)
    return rows


def encode(model: Any, rows: Array) -> Array:
    """Compute linear codes (r, m), whatever `transform` makes of them."""
    return np.asarray((rows - model._offset) @ to_numpy(model.unmixing_).T, dtype=np.float64)
