"""Passes over a block of codes, compiled if a compiler was found at installation, otherwise in NumPy.

Both compute the same up to rounding. The functions of NumPy also apply to blocks on a device (`elldict.gpu`). Codes are
(b, m), in float32 or float64, stored by atom (Fortran order). Sums are in float64, and count each sample with its
weight. Second derivatives are computed where they are asked for.
"""

from __future__ import annotations

import importlib
import math
import os
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from elldict.samples.base import Array, Index, Weights

SWITCH = "ELLDICT_KERNELS"
"""Environment variable that selects NumPy with the value 0."""

SUB_BITS = 3
"""Bins per octave of 1 + |x| / unit, as a power of two: a relative width of 6 to 12 %."""

OVERRELAXATION = 1.75
"""Power of the factors of expectation-maximisation."""

MANTISSA_BITS, EXPONENT_OF_ONE = 52, 1023  # of a double
REST_BITS = MANTISSA_BITS - SUB_BITS  # that tell where in a bin a number lies


class Terms(NamedTuple):
    """Values of an objective at the codes (b, m) of a block."""

    value: float  # sum over codes
    g: Array  # (b, m) derivative
    slope: Array  # (b, m) second derivative; empty unless asked for


NONE = np.empty((0, 0))
"""Second derivatives that were not asked for."""


def load_compiled() -> Any:
    """Return the compiled module, or None if it was not built or is switched off."""
    if os.environ.get(SWITCH) == "0":
        return None
    try:
        return importlib.import_module("elldict.solver._kernels")
    except ImportError:
        return None


COMPILED = load_compiled()


def is_compiled(Z: NDArray[Any]) -> bool:
    """Return whether the compiled functions apply to codes: they are not on a device."""
    return COMPILED is not None and isinstance(Z, np.ndarray)


def by_atom(Z: NDArray[Any]) -> NDArray[Any]:
    """Return codes (m, b), contiguous for each atom."""
    Zt = Z.T
    return Zt if Zt.strides[-1] == Zt.itemsize else np.ascontiguousarray(Zt)


def call_compiled(name: str, Z: NDArray[Any], second: bool, *arguments: Any) -> Terms:
    """Evaluate an objective by the compiled function of this name."""
    Zt = by_atom(Z)
    g, slope = np.empty(Zt.shape, Zt.dtype), np.empty(Zt.shape if second else (0, 0), Zt.dtype)
    value = getattr(COMPILED, name)(Zt, *arguments, g, slope)
    return Terms(value, g.T, slope.T)


def add_up(values: NDArray[Any], weights: Weights) -> float:
    """Sum values (b, m) over weighted samples, in double precision."""
    per_sample = np.sum(values, axis=1, dtype=np.float64)
    return float(np.sum(per_sample) if weights is None else weights @ per_sample)


def smooth_norm(Z: NDArray[Any], unit: float, p: float, weights: Weights = None, *, second: bool = False) -> Terms:
    """Evaluate minus the sum of (x^2 + 1)^(p/2), x = z / unit."""
    if is_compiled(Z):
        return call_compiled("smooth", Z, second, 1 / unit, p, weights)
    x = Z / unit
    h = x * x + 1
    power = h ** (p / 2)
    g = -p / unit * x * power / h
    slope = -p / unit**2 * power / (h * h) * (1 + (p - 1) * x * x) if second else NONE
    return Terms(-add_up(power, weights), g, slope)


def signed_power(
    Z: NDArray[Any], std: Array, p: float, linear: Array, sign: Array, weights: Weights = None, *, second: bool = False
) -> Terms:
    """Evaluate g = linear x + sign |x|^(p-2) x and its derivative, x = z / std; the value is the sum of |x|^p."""
    if is_compiled(Z):
        return call_compiled("power", Z, second, 1 / std, p, linear, sign, weights)
    rate, linear, sign = ((1 / std).astype(Z.dtype), linear.astype(Z.dtype), sign.astype(Z.dtype))
    x = Z * rate
    power = np.abs(x) ** (p - 2)
    slope = (linear + (p - 1) * sign * power) * rate**2 if second else NONE
    return Terms(add_up(power * x * x, weights), (linear + sign * power) * x * rate, slope)


def power_moments(Z: NDArray[Any], std: Array, p: float, weights: Weights = None) -> Array:
    """Sum |x|^(p-2) and |x|^p (2, m) over samples, x = z / std."""
    if is_compiled(Z):
        Zt, sums = by_atom(Z), np.zeros((2, Z.shape[1]))
        COMPILED.moments(Zt, 1 / std, p, weights, sums)
        return sums
    x = Z * (1 / std).astype(Z.dtype)
    power = np.abs(x) ** (p - 2)
    w = np.ones(len(Z)) if weights is None else weights
    return np.stack([np.asarray(w @ each.astype(np.float64)) for each in (power, power * x * x)])


def find_bins(x: Array, unit: float, n_bins: int) -> tuple[Index, Index, Array]:
    """Find the bins of standardised codes from the leading bits of 1 + |x| / unit.

    Returns the bin of each code, the nearest other bin, and the distance from the centre of the first, relative to the
    distance of the two centres.
    """
    half, per_octave = n_bins // 2, 2**SUB_BITS
    last = (half - 1) * 2**REST_BITS + 2 ** (REST_BITS - 1)  # centre of the last bin
    bits = (1 + np.abs(x) * (1 / unit)).view(np.int64) - (EXPONENT_OF_ONE << MANTISSA_BITS)
    bits = np.minimum(bits, last)
    k, rest = bits >> REST_BITS, (bits & (2**REST_BITS - 1)) * 2.0**-REST_BITS - 0.5
    up, down = (rest > 0) & (k % per_octave == per_octave - 1), (rest < 0) & (k > 0) & (k % per_octave == 0)
    away = rest * np.where(up, 2 / 3, np.where(down, 4 / 3, 1.0))  # bins of the next octave are twice as wide
    out, zero = np.where(x < 0, -1, 1), np.where(x < 0, half - 1, half)
    return zero + out * k, zero + out * np.where(rest > 0, k + 1, k - 1), np.abs(away)


def make_bin_centres(unit: float, furthest: float) -> Array:
    """Compute the centres of all bins up to `furthest`, on both sides of zero."""
    n = 2**SUB_BITS * math.ceil(math.log2(1 + furthest / unit))
    edges = np.ldexp(1 + np.arange(n + 1) % 2**SUB_BITS / 2**SUB_BITS, np.arange(n + 1) // 2**SUB_BITS) - 1
    right = unit * (edges[1:] + edges[:-1]) / 2
    return np.concatenate([-right[::-1], right])


def tabulated(
    Z: NDArray[Any],
    std: Array,
    unit: float,
    centres: Array,
    tables: Array,
    weights: Weights = None,
    *,
    second: bool = False,
) -> Terms:
    """Evaluate functions that are quadratic within bins, from tables (3, m, B) of their values and two derivatives."""
    if is_compiled(Z):
        return call_compiled("density", Z, second, 1 / std, 1 / unit, centres, tables, weights)
    level, g, bend = look_up(Z, std, unit, centres, tables)
    return Terms(add_up(level, weights), g.astype(Z.dtype), bend.astype(Z.dtype) if second else NONE)


def look_up(Z: NDArray[Any], std: Array, unit: float, centres: Array, tables: Array) -> tuple[Array, Array, Array]:
    """Interpolate tabulated functions of codes (b, m), and compute their first and second derivatives."""
    centres, tables = np.asarray(centres, like=Z), np.asarray(tables, like=Z)  # on the device of the codes
    x = Z * (1 / std)
    bins, _, _ = find_bins(x, unit, len(centres))
    away = x - centres[bins]
    level, tilt, bend = (np.take(table, bins + len(centres) * np.arange(Z.shape[1])) for table in tables)
    g = tilt + bend * away
    return level + away * (tilt + g) / 2, g / std, bend / std**2


def count_bins(Z: NDArray[Any], std: Array, unit: float, n_bins: int, part: Index, weights: Weights = None) -> Array:
    """Count codes per part of the samples, atom and bin (2, m, B).

    Each is shared between its bin and the nearest other one, so that counts are continuous functions of the codes.
    """
    m = Z.shape[1]
    if is_compiled(Z):
        counts = np.zeros((2, m, n_bins))
        COMPILED.histogram(by_atom(Z), 1 / std, 1 / unit, part, weights, counts)
        return counts
    bins, others, away = find_bins(Z * (1 / std), unit, n_bins)
    parts = np.asarray(part.astype(np.intp), like=Z)
    begin = n_bins * np.arange(m) + (m * n_bins * parts)[:, None]
    each = np.ones((len(Z), 1)) if weights is None else weights[:, None]
    counts = np.zeros(2 * m * n_bins)
    for places, shares in ((bins, 1 - away), (others, away)):
        counts += np.asarray(np.bincount(np.ravel(begin + places), np.ravel(each * shares), minlength=len(counts)))
    return counts.reshape(2, m, n_bins)


def fit_weights(weights: Array, counts: Array, q: Array, rounds: int) -> Array:
    """Fit weights (m, K) of components of densities q (K, B) to counts (m, B) by expectation-maximisation.

    Every round is overrelaxed: weights are multiplied by a power of what they would be multiplied with, which saves
    almost half of the rounds; below the power 2, the maximum stays attractive. Zero weights stay zero.
    """
    if COMPILED is not None:
        weights = np.array(weights, order="C")
        COMPILED.em(weights, counts, q, rounds)
        return weights
    used = counts.any(axis=0)
    q, counts = q[:, used], counts[:, used]
    total = counts.sum(axis=1, keepdims=True)
    for _ in range(rounds):
        weights = weights * ((counts / (weights @ q)) @ q.T / total) ** OVERRELAXATION
        weights /= weights.sum(axis=1, keepdims=True)
    return weights
