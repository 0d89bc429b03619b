"""What plots and pages show: which components, and the codes of which samples."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from elldict.samples.arrays import to_numpy
from elldict.samples.base import Array, Index, refuse_not_finite
from elldict.samples.open import open_source


def choose_kind(
    kind: str, shape: tuple[int, ...] | None, names: Sequence[str] | None, n_features: int
) -> tuple[str, tuple[int, ...] | None]:
    """Choose how components are drawn, and check the shape of images."""
    if shape is not None:
        shape = tuple(int(size) for size in shape)
        if len(shape) not in (2, 3) or shape[2:] not in ((), (3,)) or math.prod(shape) != n_features or min(shape) < 1:
            raise ValueError(f"shape must be (h, w) or (h, w, 3) with a product of {n_features}. Got {shape} instead.")
    if kind == "auto":
        kind = "images" if shape is not None else "bars" if names is not None else "map"
    if kind not in ("images", "bars", "map"):
        raise ValueError(f"kind must be 'auto', 'images', 'bars' or 'map'. Got {kind!r} instead.")
    if kind == "images" and shape is None:
        raise ValueError("kind='images' needs the shape of the images: shape=(h, w) or (h, w, 3).")
    return kind, shape


def choose_components(which: Sequence[int] | None, n_components: int, most: int) -> Index:
    """Choose the components to draw."""
    if which is None:
        return np.arange(min(n_components, most))
    index: NDArray[Any] = np.atleast_1d(np.asarray(which))
    is_whole = index.ndim == 1 and index.dtype.kind in "iu" and len(index) > 0
    if not is_whole or np.any((index < 0) | (index >= n_components)):
        raise ValueError(f"which must be numbers of components from 0 to {n_components - 1}. Got {which!r} instead.")
    return index.astype(np.intp)


def spread(n_samples: int, most: int = 5000) -> Index:
    """Choose evenly spaced samples: a few thousand show the distribution of codes."""
    n = min(most, n_samples)
    return np.arange(n) * n_samples // n


def read_samples(model: Any, X: Any, index: Index) -> tuple[Array, Array]:
    """Read samples (r, n) without their mean, and compute linear codes (r, m), whatever `transform` makes of them."""
    rows = np.asarray(open_source(X).take(index), dtype=np.float64)
    refuse_not_finite(rows, index)
    rows -= model._offset
    return rows, rows @ to_numpy(model.unmixing_).T
