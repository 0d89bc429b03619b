"""Passes over a block of codes, compiled if a compiler was found at installation, otherwise in NumPy.

Both compute the same up to rounding. Codes are (b, m), in float32 or float64, stored by atom (Fortran order). Sums are
in float64, and count each sample with its weight. Second derivatives are computed for every `stride`-th sample.
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

SUB_BITS = 4
"""Bins per octave of 1 + |x| / unit, as a power of two: a relative width of 3 to 6 %."""

MANTISSA_BITS, EXPONENT_OF_ONE = 52, 1023  # of a double


class Terms(NamedTuple):
    """Values of an objective at the codes (b, m) of a block."""

    value: float  # sum over codes
    g: Array  # (b, m) derivative
    slope: Array  # (b / stride, m) second derivative


def load_compiled() -> Any:
    """Return the compiled module, or None if it was not built or is switched off."""
    if os.environ.get(SWITCH) == "0":
        return None
    try:
        return importlib.import_module("elldict.solver._kernels")
    except ImportError:
        return None


COMPILED = load_compiled()


def by_atom(Z: NDArray[Any]) -> NDArray[Any]:
    """Return codes (m, b), contiguous for each atom."""
    Zt = Z.T
    return Zt if Zt.strides[-1] == Zt.itemsize else np.ascontiguousarray(Zt)


def make_terms(Z: NDArray[Any], stride: int) -> tuple[NDArray[Any], NDArray[Any]]:
    """Allocate derivatives (m, b), and second derivatives of every `stride`-th code."""
    m, b = Z.shape
    return np.empty((m, b), Z.dtype), np.empty((m, -(-b // stride)), Z.dtype)


def add_up(values: NDArray[Any], weights: Weights) -> float:
    """Sum values (b, m) over weighted samples, in double precision."""
    per_sample = np.sum(values, axis=1, dtype=np.float64)
    return float(np.sum(per_sample) if weights is None else weights @ per_sample)


def smooth_norm(Z: NDArray[Any], unit: float, p: float, weights: Weights = None, stride: int = 1) -> Terms:
    """Evaluate minus the sum of (x^2 + 1)^(p/2), x = z / unit."""
    if COMPILED is not None:
        Zt = by_atom(Z)
        g, slope = make_terms(Zt, stride)
        value = COMPILED.smooth(Zt, 1 / unit, p, weights, stride, g, slope)
        return Terms(value, g.T, slope.T)
    x = Z / unit
    h = x * x + 1
    power = h ** (p / 2)
    g = -p / unit * x * power / h
    h, x, some = h[::stride], x[::stride], power[::stride]
    return Terms(-add_up(power, weights), g, -p / unit**2 * some / (h * h) * (1 + (p - 1) * x * x))


def signed_power(
    Z: NDArray[Any], std: Array, p: float, linear: Array, sign: Array, weights: Weights = None, stride: int = 1
) -> Terms:
    """Evaluate g = linear x + sign |x|^(p-2) x and its derivative, x = z / std; the value is the sum of |x|^p."""
    if COMPILED is not None:
        Zt = by_atom(Z)
        g, slope = make_terms(Zt, stride)
        value = COMPILED.power(Zt, 1 / std, p, linear, sign, weights, stride, g, slope)
        return Terms(value, g.T, slope.T)
    rate, linear, sign = ((1 / std).astype(Z.dtype), linear.astype(Z.dtype), sign.astype(Z.dtype))
    x = Z * rate
    power = np.abs(x) ** (p - 2)
    slope = (linear + (p - 1) * sign * power[::stride]) * rate**2
    return Terms(add_up(power * x * x, weights), (linear + sign * power) * x * rate, slope)


def power_moments(Z: NDArray[Any], std: Array, p: float, weights: Weights = None) -> Array:
    """Sum |x|^(p-2) and |x|^p (2, m) over samples, x = z / std."""
    if COMPILED is not None:
        Zt, sums = by_atom(Z), np.zeros((2, Z.shape[1]))
        COMPILED.moments(Zt, 1 / std, p, weights, sums)
        return sums
    x = Z * (1 / std).astype(Z.dtype)
    power = np.abs(x) ** (p - 2)
    w = np.ones(len(Z)) if weights is None else weights
    return np.stack([w @ power.astype(np.float64), w @ (power * x * x).astype(np.float64)])


def find_bins(x: Array, unit: float, n_bins: int) -> Index:
    """Find the bins of standardised codes from the leading bits of 1 + |x| / unit."""
    half = n_bins // 2
    leading = (1 + np.abs(x) * (1 / unit)).view(np.int64) >> (MANTISSA_BITS - SUB_BITS)
    k = np.minimum(leading - (EXPONENT_OF_ONE << SUB_BITS), half - 1)
    return np.asarray(np.where(x < 0, half - 1 - k, half + k))


def make_bin_centres(unit: float, furthest: float) -> Array:
    """Compute the centres of all bins up to `furthest`, on both sides of zero; their number is a multiple of 8."""
    n = 2**SUB_BITS * math.ceil(math.log2(1 + furthest / unit))
    edges = np.ldexp(1 + np.arange(n + 1) % 2**SUB_BITS / 2**SUB_BITS, np.arange(n + 1) // 2**SUB_BITS) - 1
    right = unit * (edges[1:] + edges[:-1]) / 2
    return np.concatenate([-right[::-1], right])


def tabulated(
    Z: NDArray[Any], std: Array, unit: float, centres: Array, tables: Array, weights: Weights = None, stride: int = 1
) -> Terms:
    """Evaluate functions that are quadratic within bins, from tables (3, m, B) of their values and two derivatives."""
    if COMPILED is not None:
        Zt = by_atom(Z)
        g, slope = make_terms(Zt, stride)
        value = COMPILED.density(Zt, 1 / std, 1 / unit, centres, tables, weights, stride, g, slope)
        return Terms(value, g.T, slope.T)
    level, g, bend = look_up(Z, std, unit, centres, tables)
    return Terms(add_up(level, weights), g.astype(Z.dtype), bend[::stride].astype(Z.dtype))


def look_up(Z: NDArray[Any], std: Array, unit: float, centres: Array, tables: Array) -> tuple[Array, Array, Array]:
    """Interpolate tabulated functions of codes (b, m), and compute their first and second derivatives."""
    x = Z * (1 / std)
    bins = find_bins(x, unit, len(centres))
    away = x - centres[bins]
    level, tilt, bend = (np.take(table, bins + len(centres) * np.arange(Z.shape[1])) for table in tables)
    g = tilt + bend * away
    return level + away * (tilt + g) / 2, g / std, bend / std**2


def count_bins(Z: NDArray[Any], std: Array, unit: float, n_bins: int, part: Index, weights: Weights = None) -> Array:
    """Count codes per part of the samples, atom and bin (2, m, B)."""
    m = Z.shape[1]
    if COMPILED is not None:
        counts = np.zeros((2, m, n_bins))
        COMPILED.histogram(by_atom(Z), 1 / std, 1 / unit, part, weights, counts)
        return counts
    place = find_bins(Z * (1 / std), unit, n_bins) + n_bins * np.arange(m)
    place += (m * n_bins * part.astype(np.intp))[:, None]
    each = None if weights is None else np.repeat(weights, m)
    return np.bincount(place.ravel(), each, minlength=2 * m * n_bins).reshape(2, m, n_bins).astype(np.float64)


def fit_weights(weights: Array, counts: Array, q: Array, rounds: int) -> Array:
    """Fit weights (m, K) of components of densities q (K, B) to counts (m, B) by expectation-maximisation.

    Zero weights stay zero.
    """
    if COMPILED is not None:
        weights = np.array(weights)
        COMPILED.em(weights, counts, q, rounds)
        return weights
    used = counts.any(axis=0)
    q, counts = q[:, used], counts[:, used]
    total = counts.sum(axis=1, keepdims=True)
    for _ in range(rounds):
        weights = weights * ((counts / (weights @ q)) @ q.T) / total
    return weights
