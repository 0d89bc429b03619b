"""Compiled kernels for NumPy arrays: g and the sums of a tile by one look at its codes, where they were built.

They take the place of several NumPy calls each, which stay as the way for machines without a compiler and as what the
kernels are tested against. ``ELLDICT_KERNELS=0`` in the environment leaves them out.
"""

from __future__ import annotations

import importlib
import os
from typing import Any

import numpy as np
from numpy.typing import NDArray

Tile = NDArray[Any]
Sums = dict[str, NDArray[np.float64]]

SWITCH = "ELLDICT_KERNELS"
"""Environment variable that turns the kernels off with the value 0: for comparing."""

LP_SUMS = ("weight", "magnitude", "z2", "g2")
SMOOTH_SUMS = ("z2", "power", "weight", "steep", "magnitude", "g2")
LIKELIHOOD_SUMS = ("z2", "below", "logs", "missing", "bend", "g2")
SECONDARY_SUMS = ("weight", "magnitude", "secondary_g2", "cross")
MIXTURE_SUMS = ("value", "slope", "g2", "z2", "magnitude")

MOST_TURNED_ATOMS = 64
"""Atoms up to which a step takes less time in one call: beyond, its products count, which BLAS makes faster."""

MOST_FACTORS = 8
"""Factors |z| up to which a power is made by products, as without kernels."""


def load_kernels() -> Any:
    """Return the compiled module, or None where it was not built or is turned off."""
    if os.environ.get(SWITCH) == "0":
        return None
    try:
        return importlib.import_module("elldict._old.backend._kernels")
    except ImportError:
        return None


COMPILED = load_kernels()


def describe_kernels() -> str:
    """Say which kernels make the sums of NumPy tiles."""
    return "NumPy" if COMPILED is None else f"compiled ({COMPILED.instructions()})"


def split_power(exponent: float) -> tuple[int, bool] | None:
    """Factors |z|, and whether one is a square root, that make |z|**exponent; None if it takes a general power."""
    whole, half = divmod(exponent, 1)
    return (int(whole), half == 0.5) if half in (0.0, 0.5) and whole <= MOST_FACTORS else None


def binned(Z: NDArray[np.float64], dropped_bits: int) -> NDArray[np.float64]:
    """Counts and mean squares (2, m, bins) of codes Z (b, m), in bins of all but the last bits of a float32."""
    return np.asarray(COMPILED.bin_codes(np.ascontiguousarray(Z), dropped_bits))


def binned_again(squares: NDArray[np.float64], weights: NDArray[np.float64], dropped_bits: int) -> NDArray[np.float64]:
    """The same of squares (b, m) that count by weights."""
    return np.asarray(COMPILED.bin_squares(np.ascontiguousarray(squares), np.ascontiguousarray(weights), dropped_bits))


def turned(
    G: NDArray[np.float64],
    A: NDArray[np.float64],
    slope: NDArray[np.float64],
    z2: NDArray[np.float64],
    weight: float,
    least_curvature: float,
    max_angle: float,
) -> NDArray[np.float64]:
    """Atoms A (m, m) after Newton's step for all pairs, by the gradient G (m, m) and sums over codes (m,)."""
    moved = np.empty(A.shape)
    G, A = np.ascontiguousarray(G), np.ascontiguousarray(A)
    COMPILED.turn(G, A, slope, z2, weight, least_curvature, max_angle, moved)
    return moved


def atom_errors(
    gz: NDArray[np.float64],
    g2: NDArray[np.float64],
    slope: NDArray[np.float64],
    z2: NDArray[np.float64],
    n_samples: float,
) -> NDArray[np.float64]:
    """Errors (m,) of atoms of these moments (m,): twice the sum of the variances of their angles with all others."""
    errors = np.empty(gz.shape)
    COMPILED.atom_errors(gz, g2, slope, z2, n_samples, errors)
    return errors


def descended(
    squares: NDArray[np.float64],
    counts: NDArray[np.float64] | None,
    law: tuple[NDArray[np.float64], ...],
    least: float,
    rounds: int,
    *,
    close: float,
    noise_known: bool,
) -> NDArray[np.float64]:
    """Density, power and noise (3, m) after some rounds of expectation maximisation from `law`.

    `squares` (m, b) are those of the codes, a row an atom, and `counts` how often each is there; a law has one number
    for each atom, or one for all, and `least` is the smallest noise.
    """
    new = np.empty((3, len(squares)))
    new[0], new[1], new[2] = law
    squares = np.ascontiguousarray(squares)
    counts = np.ones_like(squares) if counts is None else np.ascontiguousarray(counts)
    COMPILED.descend(squares, counts, new, least, rounds, close, noise_known)
    return new


def climbed(
    squares: NDArray[np.float64],
    counts: NDArray[np.float64] | None,
    x: NDArray[np.float64],
    bounds: list[tuple[float, float]],
) -> NDArray[np.float64]:
    """Log odds of the density, log power and log noise (3,) of one atom that make its codes likeliest, from `x`.

    `squares` (1, b) are those of the codes, and `counts` how often each is there.
    """
    both = np.array([x, *zip(*bounds, strict=True)])
    counts = np.ones_like(squares) if counts is None else np.ascontiguousarray(counts)
    COMPILED.climb(np.ascontiguousarray(squares), counts, both)
    return np.asarray(both[0])


def count_bins(codes: Tile, std: NDArray[np.float64], n_bins: int) -> NDArray[np.float64] | None:
    """How many codes (b, m) lie in each bin (m, n_bins) of equal width in z / (|z| + std); None without kernels."""
    if COMPILED is None or codes.dtype not in (np.float32, np.float64):
        return None
    counts = np.zeros((len(std), n_bins))
    COMPILED.count_bins(np.ascontiguousarray(codes), np.ascontiguousarray(std, dtype=np.float64), counts)
    return counts


def find_angles(
    C: NDArray[np.float64],
    crossed: NDArray[np.float64] | None,
    means: tuple[Any, Any, float],
    least: float,
    most: float,
) -> NDArray[np.float64]:
    """Antisymmetric angles (m, m) of Newton's step for pairs, none beyond `most`.

    C is the sum of g z^T (m, m), `crossed` the mean of g_i' z_j^2 (m, m), or None for the product of the `means` of g'
    and z^2: sums (m,) of both, and the weight of all samples.
    """
    angles, (slope, z2, weight) = np.empty_like(C), means
    if crossed is None:
        COMPILED.find_angles(C, NONE_CROSSED, slope, z2, weight, least, most, angles)
    else:
        COMPILED.find_angles(C, np.ascontiguousarray(crossed), NONE_KNOWN, NONE_KNOWN, weight, least, most, angles)
    return angles


NONE_CROSSED, NONE_KNOWN = np.empty((0, 0)), np.empty(0)
"""For means and sums that are not given."""


def slopes(Z: Tile, offset: Tile, rate: Tile, kept: Tile, bend: Tile) -> tuple[Tile, Tile]:
    """Return g and slope of the spike-and-slab likelihood at every code of Z (b, m); coefficients are rows (m,)."""
    Z = np.ascontiguousarray(Z)
    g, slope = np.empty_like(Z), np.empty_like(Z)
    COMPILED.likelihood_slopes(Z, offset, rate, kept, bend, g, slope)
    return g, slope


def find_buffer(buffers: dict[str, Tile], name: str, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Tile:
    """Scratch memory of this name and shape; what was there under the name may be in it, or is let go."""
    rows = shape[0]
    buffer = buffers.get(name)
    if buffer is None or buffer.shape[0] < rows or buffer.shape[1:] != shape[1:] or buffer.dtype != dtype:
        buffer = buffers[name] = np.empty(shape, dtype)
    return buffer[:rows]


class HostKernels:
    """Kernels whose g goes into the scratch memory of a pass; of tiles without weights."""

    needs_moments = False  # they are also faster where only g is asked for

    def __init__(self, buffers: dict[str, Tile]) -> None:
        # not what owns them, which has these kernels: a cycle would keep the memory of every pass
        self._buffers = buffers

    def lp(self, Z: Tile, p: float, *, moments: bool = True) -> tuple[Tile, Sums]:
        """Return g = z |z|^(p-2) and, with moments, sums over rows, for p > 2."""
        Z, g, sums = self._prepare(Z, "l_p g", LP_SUMS if moments else ())
        power = split_power(p - 2)
        if power is not None:
            COMPILED.lp(Z, g, sums, *power)
        elif moments:
            np.power(np.abs(Z, out=g), p - 2, out=g)
            COMPILED.lp_of_weight(Z, g, sums)
        else:
            np.power(np.abs(Z, out=g), p - 2, out=g)
            np.multiply(g, Z, out=g)
        return g, _name_sums(sums, LP_SUMS)

    def smooth_lp(self, Z: Tile, *, moments: bool = True) -> tuple[Tile, Sums]:
        """Return g = z - z (z^2 + 1)^(-1/2), that of the smoothed l_1 norm, and sums over rows; more with moments."""
        names = SMOOTH_SUMS if moments else SMOOTH_SUMS[:2]
        Z, g, sums = self._prepare(Z, "l_p g", names)
        COMPILED.smooth(Z, g, sums)
        return g, _name_sums(sums, names)

    def likelihood(
        self, Z: Tile, offset: NDArray[Any], rate: NDArray[Any], p: float | None
    ) -> tuple[Tile, Tile | None, Sums]:
        """Return g of the spike-and-slab likelihood, g of l_p if p is not None, and sums over rows."""
        power = None if p is None else split_power(p - 2)
        if power is not None:
            names = LIKELIHOOD_SUMS + SECONDARY_SUMS
            Z, g, sums = self._prepare(Z, "g", names)
            h = find_buffer(self._buffers, "l_p g", Z.shape, Z.dtype)
            COMPILED.likelihood_beside(Z, offset, rate, g, h, sums, *power)
            return g, h, _name_sums(sums, names)
        Z, g, sums = self._prepare(Z, "g", LIKELIHOOD_SUMS)
        COMPILED.likelihood(Z, offset, rate, g, sums)
        found = _name_sums(sums, LIKELIHOOD_SUMS)
        if p is None:
            return g, None, found
        h, other = self.lp(Z, p)
        product = np.multiply(g, h, out=find_buffer(self._buffers, "tile product", Z.shape, Z.dtype))
        cross = np.asarray(np.sum(product, axis=0, dtype=np.float64))
        return g, h, {**found, **other, "g2": found["g2"], "secondary_g2": other["g2"], "cross": cross}

    def mixture(self, Z: Tile, std: NDArray[Any], tables: tuple[NDArray[Any], ...]) -> tuple[Tile, Sums]:
        """Return g of the likelihood of a mixture, and sums; tables expand log q about the centres of bins."""
        Z, g, sums = self._prepare(Z, "g", MIXTURE_SUMS)
        COMPILED.mixture(Z, std, *tables, g, sums)
        return g, _name_sums(sums, MIXTURE_SUMS)

    def _prepare(self, Z: Tile, name: str, sums: tuple[str, ...]) -> tuple[Tile, Tile, NDArray[np.float64]]:
        """Codes in plain order, memory for g, and fresh memory for sums, which outlive the tile."""
        Z = np.ascontiguousarray(Z)
        return Z, find_buffer(self._buffers, name, Z.shape, Z.dtype), np.empty((len(sums), Z.shape[1]))


def _name_sums(sums: NDArray[np.float64], names: tuple[str, ...]) -> Sums:
    return dict(zip(names, sums, strict=False))
