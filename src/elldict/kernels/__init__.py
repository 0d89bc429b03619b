"""What the array API standard cannot say: results into given memory, LAPACK drivers. One file an array library."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import array_api_compat

from elldict.kernels import generic, host
from elldict.space import Array, Space

__all__ = ["Work", "svd", "workspace"]


class Work(Protocol):
    """Where the large intermediate results of one pass go. `into` names the scratch memory to use."""

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


def workspace(space: Space) -> Work:
    """Scratch memory for one pass over tiles in `space`."""
    if array_api_compat.is_numpy_namespace(space.xp):
        return host.BufferedWork()
    return generic.FreshWork()


def svd(matrix: Array) -> tuple[Array, Array, Array]:
    """Thin singular value decomposition that either holds or raises."""
    if array_api_compat.is_numpy_array(matrix):
        return host.svd(matrix)
    return generic.svd(matrix)
