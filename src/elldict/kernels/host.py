"""NumPy: results go into memory that is used again for every tile, and LAPACK's drivers are at hand."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

BLOCK = 256
"""Rows of a float32 tile that are added up in float32."""


class BufferedWork:
    """Results of one pass go into named buffers: fresh memory for each tile costs page faults."""

    fused = None

    def __init__(self) -> None:
        self._buffers: dict[str, NDArray[Any]] = {}

    def matmul(self, a: NDArray[Any], b: NDArray[Any], into: str) -> NDArray[Any]:
        """Product a @ b."""
        return np.matmul(a, b, out=self._buffer(into, (a.shape[0], b.shape[1]), a.dtype))

    def map(self, function: Callable[..., NDArray[Any]], *operands: Any, into: str) -> NDArray[Any]:
        """Elementwise function; the result has the shape of the first operand."""
        return function(*operands, out=self._buffer(into, operands[0].shape, operands[0].dtype))

    def column_sums(self, array: NDArray[Any]) -> NDArray[np.float64]:
        """Sums over the rows of a tile (b, m), in float64.

        A product with ones takes a tenth of the time of NumPy's sum in float64. A float32 tile is added up in blocks
        short enough to keep six digits.
        """
        ones = self._buffers.get("ones")
        if ones is None or len(ones) < len(array) or ones.dtype != array.dtype:
            ones = self._buffers["ones"] = np.ones(len(array), array.dtype)
        if array.dtype == np.float64:
            return np.asarray(ones[: len(array)] @ array)
        n_blocks, n_left = divmod(len(array), BLOCK)
        total = np.zeros(array.shape[1])
        if n_left:
            total += ones[:n_left] @ array[-n_left:]
        if n_blocks:
            blocks = array[: n_blocks * BLOCK].reshape(n_blocks, BLOCK, -1)
            total += np.add.reduce(np.matmul(ones[:BLOCK], blocks), axis=0, dtype=np.float64)
        return total

    def product_sums(self, a: NDArray[Any], b: NDArray[Any]) -> NDArray[np.float64]:
        """Column sums of a product of two arrays, entry by entry."""
        return self.column_sums(self.map(np.multiply, a, b, into="product"))

    def _buffer(self, name: str, shape: tuple[int, ...], dtype: np.dtype[Any]) -> NDArray[Any]:
        rows = shape[0]
        buffer = self._buffers.get(name)
        if buffer is None or buffer.shape[0] < rows or buffer.shape[1:] != shape[1:] or buffer.dtype != dtype:
            buffer = self._buffers[name] = np.empty(shape, dtype)
        return buffer[:rows]


def svd(matrix: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
    """Thin singular value decomposition by the first LAPACK driver that succeeds.

    NumPy's divide and conquer is fast and once in a while fails; SciPy's QR iteration is slow and does not. SciPy
    brings its own copy of BLAS, whose waiting threads take the cores from NumPy's: four times slower, so it is
    called in need only.
    """
    for attempt in (_divide_and_conquer, _qr_iteration):
        try:
            U, values, Vt = attempt(matrix)
        except np.linalg.LinAlgError:
            continue
        if np.all(np.isfinite(values)):
            return U, values, Vt
    shape = " x ".join(map(str, matrix.shape))
    raise np.linalg.LinAlgError(
        f"The singular value decomposition of a {shape} gradient did not converge with LAPACK's gesdd or gesvd."
    )


def _divide_and_conquer(matrix: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
    return np.linalg.svd(matrix, full_matrices=False)


def _qr_iteration(matrix: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
    U, values, Vt = scipy.linalg.svd(matrix, full_matrices=False, lapack_driver="gesvd", check_finite=False)
    return U, values, Vt
