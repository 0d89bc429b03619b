"""Products, decompositions and rows of matrices, where they are: by the library and the device of each."""

from __future__ import annotations

import contextlib
from typing import Any

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

from elldict._old.backend import torch
from elldict._old.backend.base import Array, Backend, is_torch, to_numpy

STRIP_COLUMNS = 512
"""Columns of a symmetric product that a card makes at a time, at least: narrower strips would not occupy it."""


def svd(matrix: Array) -> tuple[Array, Array, Array]:
    """Thin singular value decomposition that either holds or raises.

    By the library of the matrix; NumPy's divide and conquer once in a while fails, and then SciPy's QR iteration does
    it on the host. SciPy brings its own copy of BLAS, whose waiting threads take the cores from NumPy's: four times
    slower, so it is called in need only.
    """
    backend = Backend.of(matrix)
    try:
        U, values, Vt = backend.xp.linalg.svd(matrix, full_matrices=False)
    except (RuntimeError, np.linalg.LinAlgError):  # torch's LinAlgError is a RuntimeError
        pass
    else:
        if bool(backend.xp.all(backend.xp.isfinite(values))):
            return U, values, Vt
    parts = _svd_by_qr_iteration(to_numpy(matrix))
    U, values, Vt = (backend.asarray(part, "float64") for part in parts)
    return U, values, Vt


def _svd_by_qr_iteration(matrix: NDArray[Any]) -> tuple[NDArray[Any], ...]:
    with contextlib.suppress(np.linalg.LinAlgError):
        parts = scipy.linalg.svd(matrix, full_matrices=False, lapack_driver="gesvd", check_finite=False)
        if np.all(np.isfinite(parts[1])):
            return tuple(parts)
    shape = " x ".join(map(str, matrix.shape))
    raise np.linalg.LinAlgError(
        f"The singular value decomposition of a {shape} gradient did not converge with LAPACK's gesdd or gesvd."
    )


def find_principal_axes(
    matrix: NDArray[np.float64], backend: Backend
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Eigenvalues of a symmetric matrix, in decreasing order, and eigenvectors as columns.

    By a card, if `backend` is one: that of 4096 columns takes it a tenth of a second, and a core of the host half a
    minute.
    """
    if not backend.prefers_products:
        values, vectors = np.linalg.eigh(matrix)
        return values[::-1], vectors[:, ::-1]
    xp = backend.xp
    values, vectors = xp.linalg.eigh(backend.asarray(matrix, "float64"))
    return to_numpy(xp.flip(values)), to_numpy(xp.flip(vectors.T, axis=0)).T  # rows are what is used, and lie in order


def take_rows(A: Array, index: NDArray[np.integer[Any]]) -> Array:
    """Some rows of a matrix, where it is."""
    if type(A) is np.ndarray:
        return A[index]
    backend = Backend.of(A)
    return backend.xp.take(A, backend.xp.asarray(index, device=backend.device), axis=0)


def multiply_by_itself(Y: Array) -> Array:
    """Y^T Y (n, n); by a card, if n is large, the upper half of it only, which tells the other."""
    backend, n = Backend.of(Y), int(Y.shape[1])
    if not backend.prefers_products or n < 2 * STRIP_COLUMNS:
        return Y.T @ Y
    xp, width = backend.xp, max(STRIP_COLUMNS, n // 4)
    whole = xp.empty((n, n), dtype=Y.dtype, device=backend.device)
    for first in range(0, n, width):
        last = min(first + width, n)
        strip = Y[:, :last].T @ Y[:, first:last]
        whole[:last, first:last] = strip
        whole[first:last, :first] = strip[:first, :].T
    return whole


def multiply_coarsely(a: Array, b: Array) -> Array:
    """Product of two float32 matrices by their first eleven binary digits on a card, six times faster; or in full."""
    backend = Backend.of(a)
    if not (backend.on_gpu and is_torch(backend.xp)):
        return a @ b
    with torch.products(fast=True):
        return a @ b


def add_coarse_product(C: Array, a: Array, b: Array, *, share: float = 1.0, factor: float = 1.0) -> Array:
    """Return share C + factor a b, of float32 matrices, by fast products and in one call where a card has them."""
    backend = Backend.of(a)
    if not (backend.on_gpu and is_torch(backend.xp)):
        return share * C + factor * (a @ b)
    return torch.add_fast_product(C, a, b, share, factor)


def is_positive_definite(matrix: Array) -> bool:
    """Whether the Cholesky decomposition of a symmetric matrix exists."""
    try:
        factor = Backend.of(matrix).xp.linalg.cholesky(matrix)
    except (RuntimeError, np.linalg.LinAlgError):  # torch's LinAlgError is a RuntimeError
        return False
    return bool(Backend.of(matrix).xp.all(Backend.of(matrix).xp.isfinite(factor)))  # CuPy says it in this way
