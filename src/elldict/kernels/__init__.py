"""What the array API standard cannot say: results into given memory, LAPACK drivers, fused kernels.

One file an array library.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import array_api_compat
import numpy as np

from elldict.kernels import generic, gpu, host
from elldict.kernels.fused import Fused
from elldict.space import Array, Space

__all__ = ["Work", "positive_definite", "svd", "workspace"]


class Work(Protocol):
    """Where the large intermediate results of one pass go. `into` names the scratch memory to use."""

    @property
    def fused(self) -> Fused | None:
        """Kernels that read the codes once, where there are any."""
        ...

    def matmul(self, a: Array, b: Array, into: str) -> Array:
        """Product a @ b."""
        ...

    def map(self, function: Callable[..., Array], *operands: Any, into: str) -> Array:
        """Elementwise function; the result has the shape of the first operand."""
        ...

    def column_sums(self, array: Array) -> Array:
        """Sums over the rows of a tile (b, m), in float64."""
        ...

    def product_sums(self, a: Array, b: Array) -> Array:
        """Column sums of a product of two arrays, entry by entry."""
        ...


def workspace(space: Space, precision: str) -> Work:
    """Scratch memory for one pass over tiles in `space`, with products in this precision."""
    if array_api_compat.is_numpy_namespace(space.xp):
        return host.BufferedWork()
    if space.on_gpu and array_api_compat.is_torch_namespace(space.xp):
        return gpu.GpuWork(fast=precision == "tfloat32")
    return generic.FreshWork()


def svd(matrix: Array) -> tuple[Array, Array, Array]:
    """Thin singular value decomposition that either holds or raises."""
    if array_api_compat.is_numpy_array(matrix):
        return host.svd(matrix)
    return generic.svd(matrix)


def positive_definite(matrix: Array) -> bool:
    """Whether the Cholesky decomposition of a symmetric matrix exists."""
    try:
        factor = Space.of(matrix).xp.linalg.cholesky(matrix)
    except (RuntimeError, np.linalg.LinAlgError):  # torch's LinAlgError is a RuntimeError
        return False
    return bool(Space.of(matrix).xp.all(Space.of(matrix).xp.isfinite(factor)))  # CuPy says it in this way
