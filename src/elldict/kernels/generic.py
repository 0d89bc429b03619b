"""Any array library: fresh arrays, and the host where the library's own decomposition fails."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from elldict.kernels import host
from elldict.kernels.fused import Fused
from elldict.space import Array, Space, to_numpy


class FreshWork:
    """Results of one pass go into fresh arrays: the standard knows no ``out=``."""

    fused: Fused | None = None

    def matmul(self, a: Array, b: Array, into: str) -> Array:  # noqa: ARG002
        """Product a @ b."""
        return a @ b

    def map(self, function: Callable[..., Array], *operands: Any, into: str) -> Array:  # noqa: ARG002
        """Elementwise function; the result has the shape of the first operand."""
        return function(*operands)

    def column_sums(self, array: Array) -> Array:
        """Sums over the rows of a tile (b, m), in float64."""
        xp = Space.of(array).xp
        return xp.sum(array, axis=0, dtype=xp.float64)

    def product_sums(self, a: Array, b: Array) -> Array:
        """Column sums of a product of two arrays, entry by entry."""
        return self.column_sums(a * b)


def svd(matrix: Array) -> tuple[Array, Array, Array]:
    """Thin singular value decomposition in the library of `matrix`, on the host if that fails."""
    space = Space.of(matrix)
    try:
        U, values, Vt = space.xp.linalg.svd(matrix, full_matrices=False)
    except (RuntimeError, np.linalg.LinAlgError):  # torch's LinAlgError is a RuntimeError
        pass
    else:
        if bool(space.xp.all(space.xp.isfinite(values))):
            return U, values, Vt
    U, values, Vt = (space.asarray(part, "float64") for part in host.svd(to_numpy(matrix)))
    return U, values, Vt
