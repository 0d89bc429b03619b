"""Codes counted by their size: what the laws of codes are fitted to."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from elldict._old.backend import host_kernels
from elldict._old.backend.base import Array, Backend, to_numpy

DROPPED_BITS = 22
"""Low bits of a float32 that its bin ignores: two bins for every factor of two."""


@dataclass(frozen=True)
class CodeHistogram:
    """Squared codes of m atoms: on the host counted in bins of their logarithm, on a graphics card as they are."""

    count: Array | None  # (m, bins); None says that each counts once
    z2: Array  # (m, bins) mean square of the codes in a bin

    @classmethod
    def of(cls, Z: Array) -> CodeHistogram:
        """Histogram of codes Z (b, m)."""
        if Backend.of(Z).on_gpu:  # which goes through all codes faster than it would count them
            Z = Z.T
            return cls(None, Z * Z)
        Z = to_numpy(Z)
        if host_kernels.COMPILED is not None and Z.dtype == np.float64:
            return cls(*host_kernels.binned(Z, DROPPED_BITS))
        return cls._bin(np.square(Z), None, DROPPED_BITS)

    @property
    def mean_square(self) -> Array:
        """Mean square code of each atom."""
        if self.count is None:
            return Backend.of(self.z2).xp.mean(self.z2, axis=1)
        return np.asarray(np.sum(self.count * self.z2, axis=1) / np.sum(self.count, axis=1))

    def pool(self) -> CodeHistogram:
        """Histogram of all atoms as one, each scaled to unit mean square; on the host."""
        scaled = self.z2 / self.mean_square[:, None]
        if self.count is not None:
            # eight times finer bins: these squares are means of bins already, and would be rounded twice
            parts = (scaled.reshape(-1, 1), self.count.reshape(-1, 1), DROPPED_BITS - 3)
            return (
                self._bin(*parts)
                if host_kernels.COMPILED is None
                else CodeHistogram(*host_kernels.binned_again(*parts))
            )
        xp, (lowest, highest, per_octave) = Backend.of(scaled).xp, (-64, 16, 16)
        octave = xp.log2(xp.reshape(scaled, (-1,)))
        octave = xp.maximum(xp.minimum(octave, xp.full_like(octave, highest - 0.01)), xp.full_like(octave, lowest))
        number = xp.astype(xp.floor(per_octave * (octave - lowest)), xp.int64)
        n_bins = per_octave * (highest - lowest)
        count = to_numpy(xp.bincount(number, minlength=n_bins)).astype(np.float64)  # whole numbers: exact in any order
        used = np.flatnonzero(count)
        return CodeHistogram(count[None, used], 2.0 ** (lowest + (used[None, :] + 0.5) / per_octave))

    def to_host(self) -> CodeHistogram:
        """Return the same codes, binned on the host."""
        return self._bin(to_numpy(self.z2).T, None, DROPPED_BITS) if self.count is None else self

    @classmethod
    def _bin(cls, z2: NDArray[np.float64], weights: NDArray[np.float64] | None, dropped_bits: int) -> CodeHistogram:
        """Count squares z2 (b, m) in bins; bins that are empty for all atoms are left out.

        The first bits of a floating point number, exponent and all, are its logarithm, near enough.
        """
        m = z2.shape[1]
        with np.errstate(over="ignore", under="ignore"):
            where = z2.astype(np.float32).view(np.int32) >> dropped_bits
        lowest = int(np.min(where))
        bins = int(np.max(where)) - lowest + 1
        flat = (where + (bins * np.arange(m) - lowest)).ravel()
        number = None if weights is None else weights.ravel()
        squares = z2.ravel() if number is None else number * z2.ravel()
        count = np.bincount(flat, weights=number, minlength=bins * m).reshape(m, bins).astype(np.float64)
        total = np.bincount(flat, weights=squares, minlength=bins * m).reshape(m, bins)
        used = np.any(count > 0, axis=0)
        return cls(count[:, used], total[:, used] / np.maximum(count[:, used], 1e-300))
