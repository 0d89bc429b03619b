"""Codes, samples and log-likelihoods, computed block by block."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from functools import partial
from typing import Any

import array_api_compat
import numpy as np

from elldict.blas import one_blas_thread
from elldict.denoising import Rule
from elldict.samples.base import Array, Samples, refuse_not_finite
from elldict.samples.dask import is_dask, map_chunks
from elldict.samples.open import open_source
from elldict.samples.output import check_output, open_output, reopen
from elldict.validation import is_other_array

MOST_CODES, FEWEST_SAMPLES = 2**16, 1000
"""Codes to which density_, scale_ and noise_std_ are fitted: about this many, from at least so many samples."""


def find_precision(X: Any) -> str:
    """Return the precision of results for an array: that of the array, but at least single."""
    name = X.dtype.name if isinstance(X.dtype, np.dtype) else str(X.dtype)
    return "float32" if name.endswith(("float16", "float32")) else "float64"


def convert_like(array: Array, X: Any, precision: str) -> Any:
    """Convert a NumPy array to the array library and device of X."""
    held = np.ascontiguousarray(array, dtype=precision)
    if not is_other_array(X):
        return held
    xp = array_api_compat.array_namespace(X)
    return xp.asarray(held, device=array_api_compat.device(X))


def write_samples(X: Any, rule: Rule, path: str | os.PathLike[str], names: Sequence[str]) -> Any:
    """Apply a rule to blocks of samples, and write the results (r, len(names)) to a file; return them, if it is .npy.

    Otherwise, the path of the file is returned.
    """
    check_output(path, X)
    with open_output(path, (X.shape[0], len(names)), find_precision(X), names) as append:

        def visit(rows: Array, start: int) -> int:
            refuse_not_finite(rows, start)
            append(rule(rows))
            return 0

        with one_blas_thread():  # blocks are written in their order
            open_source(X).sum(visit)
    return reopen(path)


def map_samples(X: Any, rule: Rule, n_columns: int, precision: str, first: int = 0) -> Any:
    """Apply a rule to blocks of samples, whose first has the number `first`; return (r, n_columns) in the library of X.

    Chunks of a dask array are mapped when they are computed.
    """
    if is_dask(X):
        map_chunk = partial(map_samples, rule=rule, n_columns=n_columns, precision=precision)
        return map_chunks(X, lambda chunk, first: map_chunk(chunk, first=first), n_columns, precision)

    def visit(rows: Array, start: int) -> Array:
        refuse_not_finite(rows, first + start)
        return rule(rows)

    out = np.empty((X.shape[0], n_columns), dtype=precision)
    with one_blas_thread() as n_threads:
        if len(out):  # chunks of dask may be empty
            open_source(X, n_threads).map(visit, out)
    return convert_like(out, X, precision)


def make_encoder(unmixing: Array, mean: Array) -> Rule:
    """Make the rule for linear codes; the mean is subtracted from samples, because in codes it would cost digits."""
    return lambda rows: np.asarray((rows - mean) @ unmixing.T)


def widen(Z: Array) -> Array:
    """Convert to double precision, in which densities do not underflow."""
    return np.asarray(Z, dtype=np.float64)


def make_decoder(mixing: Array, mean: Array) -> Rule:
    """Make the rule for samples from codes."""
    return lambda Z: np.asarray(Z @ mixing.T + mean)


def chain(*rules: Rule) -> Rule:
    """Apply rules one after the other."""

    def apply(rows: Array) -> Array:
        for rule in rules:
            rows = rule(rows)
        return rows

    return apply


def keep_linear(Z: Array) -> Array:
    """Return codes as they are."""
    return Z


def shrink(Z: Array, threshold: Array | float) -> Array:
    """Move codes towards zero by the threshold."""
    return np.asarray(np.sign(Z) * np.maximum(np.abs(Z) - threshold, 0))


def keep_above(Z: Array, threshold: Array | float) -> Array:
    """Set codes up to the threshold to zero."""
    return np.where(np.abs(Z) > threshold, Z, 0.0)


def keep_largest(Z: Array, k: int) -> Array:
    """Set all but the k largest codes of each sample to zero; of equal ones the first are kept."""
    order = np.argsort(-np.abs(Z), axis=1, kind="stable")
    kept = np.zeros_like(Z)
    np.put_along_axis(kept, order[:, :k], np.take_along_axis(Z, order[:, :k], axis=1), axis=1)
    return kept


def are_zero(codes: Any) -> bool:
    """Return whether a rule has set all codes to zero."""
    xp = array_api_compat.array_namespace(codes)
    return not bool(xp.any(codes != 0))


def read_codes(samples: Samples, unmixing: Array, mean: Array) -> tuple[Array, Array | None]:
    """Compute the codes of evenly spaced samples that have a weight, and return them with their weights."""
    weights, most = samples.weights, max(FEWEST_SAMPLES, MOST_CODES // len(unmixing))
    used = range(samples.shape[0]) if weights is None else np.flatnonzero(weights)
    index = np.asarray(used[:: math.ceil(len(used) / most)], dtype=np.intp)
    rows = np.asarray(samples.take(index))
    return (rows - mean) @ unmixing.T, None if weights is None else weights[index]
