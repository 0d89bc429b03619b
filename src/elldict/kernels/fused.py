"""What a contrast needs of the codes of a tile, by kernels that read them once.

Torch makes a pass over the codes for every elementwise function and every sum, twenty of them for a likelihood. These
kernels read a code, write what the gradient needs, and keep the sums in registers. They are written in Triton, which
comes with torch for NVIDIA cards; without it torch's own functions do the same.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

from elldict.space import Array


@dataclass(frozen=True)
class Fused:
    """Kernels for codes Z (b, m), as named in `elldict.kernels.triton_kernels`; sums over rows are float64."""

    kernels: Any

    def lp(self, Z: Array, p: float) -> tuple[Array, dict[str, Array]]:
        """G = |z|^(p-2) z, and sums of weight |z|^(p-2), magnitude |z|, z2 and g2."""
        result: tuple[Array, dict[str, Array]] = self.kernels.lp_terms(Z, p)
        return result

    def likelihood(
        self, Z: Array, offset: Array, rate: Array, p: float | None
    ) -> tuple[Array, Array | None, dict[str, Array]]:
        """G = (1 + tanh h) z with h = offset + rate z^2, g of l_p beside it if p is given, and the sums of both.

        Sums: z2, below min(h, 0), logs log(1 + |tanh h|), missing tanh h - 1, bend g z (tanh h - 1), g2; beside:
        weight, magnitude, beside_g2 and cross, the product of both g.
        """
        result: tuple[Array, Array | None, dict[str, Array]] = self.kernels.likelihood_terms(Z, offset, rate, p)
        return result


def kernels_for(array: Array) -> Any:
    """Module `triton_kernels` for an array that its kernels take: of torch, on a card; otherwise None."""
    if not getattr(array, "is_cuda", False):
        return None
    fused = fused_terms()
    return None if fused is None else fused.kernels


@functools.cache
def fused_terms() -> Fused | None:
    """Kernels, or None where Triton is not installed."""
    try:
        import triton  # noqa: F401, PLC0415
    except ImportError:
        return None
    from elldict.kernels import triton_kernels  # noqa: PLC0415

    return Fused(triton_kernels)
