"""Kernels in Triton.

A program takes some rows and some columns of the codes; sums of rows are kept apart, and added up in float64 and always
in the same order, so that the same codes give the same sums.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from triton.language.extra import libdevice

Array = Any

ROWS, STEP, COLUMNS, WARPS = 512, 16, 64, 4
"""Rows of a program, rows and columns it holds at a time, and its warps of 32 threads."""

MAX_SETTLED_ATOMS = 4096
"""Atoms whose parameters one program can hold side by side."""

needs_moments = False
"""Whether a pass that asks for no moments goes without the kernels."""

LP_SUMS = ("weight", "magnitude", "z2", "g2")
LIKELIHOOD_SUMS = ("z2", "below", "logs", "missing", "bend", "g2")
SECONDARY_SUMS = ("weight", "magnitude", "secondary_g2", "cross")
SMOOTH_SUMS = ("z2", "power", "weight", "steep", "magnitude", "g2")
MIXTURE_SUMS = ("value", "slope", "z2", "g2")


@triton.jit
def _power(magnitude, EXPONENT: tl.constexpr):
    """magnitude**EXPONENT; p = 3, of exponent one, is what most ask for."""
    if EXPONENT == 1:
        return magnitude
    return libdevice.pow(magnitude, tl.full(magnitude.shape, EXPONENT, magnitude.dtype))


@triton.jit
def _put(sums, number: tl.constexpr, n_sums: tl.constexpr, total, block, columns, m, used):
    tl.store(sums + (block * n_sums + number) * m + columns, tl.sum(total, 0), used)


@triton.jit
def _lp(
    Z, G, sums, b, m,
    EXPONENT: tl.constexpr, ROWS: tl.constexpr, STEP: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    n_parts = tl.cdiv(m, COLUMNS)
    block = (tl.program_id(0) // n_parts).to(tl.int64)
    columns = (tl.program_id(0) % n_parts) * COLUMNS + tl.arange(0, COLUMNS)
    used = columns < m
    zero = tl.zeros((STEP, COLUMNS), Z.dtype.element_ty)
    weights, magnitudes, squares, gradients = zero, zero, zero, zero
    for k in range(0, ROWS, STEP):
        rows = block * ROWS + k + tl.arange(0, STEP)
        inside = (rows < b)[:, None] & used[None, :]
        place = rows[:, None] * m + columns[None, :]
        z = tl.load(Z + place, inside, 0.0)  # zeros beyond the edge add nothing to any sum
        magnitude = tl.abs(z)
        weight = _power(magnitude, EXPONENT)
        g = weight * z
        tl.store(G + place, g, inside)
        weights += weight
        magnitudes += magnitude
        squares += z * z
        gradients += g * g
    _put(sums, 0, 4, weights, block, columns, m, used)
    _put(sums, 1, 4, magnitudes, block, columns, m, used)
    _put(sums, 2, 4, squares, block, columns, m, used)
    _put(sums, 3, 4, gradients, block, columns, m, used)


@triton.jit
def _likelihood(
    Z, G, H, sums, offsets, rates, b, m,
    SECONDARY: tl.constexpr, EXPONENT: tl.constexpr, ROWS: tl.constexpr, STEP: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    n_sums: tl.constexpr = 10 if SECONDARY else 6
    n_parts = tl.cdiv(m, COLUMNS)
    block = (tl.program_id(0) // n_parts).to(tl.int64)
    columns = (tl.program_id(0) % n_parts) * COLUMNS + tl.arange(0, COLUMNS)
    used = columns < m
    offset = tl.load(offsets + columns, used, 0.0)[None, :]
    rate = tl.load(rates + columns, used, 0.0)[None, :]
    zero = tl.zeros((STEP, COLUMNS), Z.dtype.element_ty)
    squares, belows, logs, misses, bends, gradients = zero, zero, zero, zero, zero, zero
    weights, magnitudes, others, crosses = zero, zero, zero, zero
    for k in range(0, ROWS, STEP):
        rows = block * ROWS + k + tl.arange(0, STEP)
        inside = (rows < b)[:, None] & used[None, :]
        place = rows[:, None] * m + columns[None, :]
        z = tl.load(Z + place, inside, 0.0)
        half = offset + rate * (z * z)
        swing = libdevice.tanh(half)
        g = z + swing * z
        tl.store(G + place, g, inside)
        missing = swing - 1
        squares += z * z
        belows += tl.where(inside, tl.minimum(half, 0.0), 0.0)
        logs += tl.where(inside, tl.log(1 + tl.abs(swing)), 0.0)
        misses += tl.where(inside, missing, 0.0)
        bends += g * z * missing
        gradients += g * g
        if SECONDARY:
            magnitude = tl.abs(z)
            weight = _power(magnitude, EXPONENT)
            h = weight * z
            tl.store(H + place, h, inside)
            weights += weight
            magnitudes += magnitude
            others += h * h
            crosses += g * h
    _put(sums, 0, n_sums, squares, block, columns, m, used)
    _put(sums, 1, n_sums, belows, block, columns, m, used)
    _put(sums, 2, n_sums, logs, block, columns, m, used)
    _put(sums, 3, n_sums, misses, block, columns, m, used)
    _put(sums, 4, n_sums, bends, block, columns, m, used)
    _put(sums, 5, n_sums, gradients, block, columns, m, used)
    if SECONDARY:
        _put(sums, 6, n_sums, weights, block, columns, m, used)
        _put(sums, 7, n_sums, magnitudes, block, columns, m, used)
        _put(sums, 8, n_sums, others, block, columns, m, used)
        _put(sums, 9, n_sums, crosses, block, columns, m, used)


@triton.jit
def _smooth(
    Z, G, sums, b, m,
    ROWS: tl.constexpr, STEP: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    n_parts = tl.cdiv(m, COLUMNS)
    block = (tl.program_id(0) // n_parts).to(tl.int64)
    columns = (tl.program_id(0) % n_parts) * COLUMNS + tl.arange(0, COLUMNS)
    used = columns < m
    zero = tl.zeros((STEP, COLUMNS), Z.dtype.element_ty)
    squares, powers, weights, steeps, magnitudes, gradients = zero, zero, zero, zero, zero, zero
    for k in range(0, ROWS, STEP):
        rows = block * ROWS + k + tl.arange(0, STEP)
        inside = (rows < b)[:, None] & used[None, :]
        place = rows[:, None] * m + columns[None, :]
        z = tl.load(Z + place, inside, 0.0)
        s = z * z + 1
        power = tl.sqrt(s)
        weight = power / s
        g = z - weight * z
        tl.store(G + place, g, inside)
        squares += z * z
        powers += tl.where(inside, power, 0.0)
        weights += tl.where(inside, weight, 0.0)
        steeps += tl.where(inside, weight / s, 0.0)
        magnitudes += tl.abs(z)
        gradients += g * g
    _put(sums, 0, 6, squares, block, columns, m, used)
    _put(sums, 1, 6, powers, block, columns, m, used)
    _put(sums, 2, 6, weights, block, columns, m, used)
    _put(sums, 3, 6, steeps, block, columns, m, used)
    _put(sums, 4, 6, magnitudes, block, columns, m, used)
    _put(sums, 5, 6, gradients, block, columns, m, used)


@triton.jit
def _mixture(
    Z, G, sums, stds, levels, linears, seconds, b, m,
    BINS: tl.constexpr, ROWS: tl.constexpr, STEP: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """Bins and tables are those of `elldict._old.solver.mixture`."""
    n_parts = tl.cdiv(m, COLUMNS)
    block = (tl.program_id(0) // n_parts).to(tl.int64)
    columns = (tl.program_id(0) % n_parts) * COLUMNS + tl.arange(0, COLUMNS)
    used = columns < m
    std = tl.load(stds + columns, used, 1.0)[None, :]
    zero = tl.zeros((STEP, COLUMNS), Z.dtype.element_ty)
    values, slopes, squares, gradients = zero, zero, zero, zero
    for k in range(0, ROWS, STEP):
        rows = block * ROWS + k + tl.arange(0, STEP)
        inside = (rows < b)[:, None] & used[None, :]
        place = rows[:, None] * m + columns[None, :]
        z = tl.load(Z + place, inside, 0.0)
        u = z / (tl.abs(z) + std) * (BINS // 2) + BINS // 2
        bins = columns[None, :] * BINS + tl.minimum(u, BINS - 1.0).to(tl.int32)
        linear = tl.load(linears + bins, inside, 0.0)
        second = tl.load(seconds + bins, inside, 0.0)
        curved = second * z
        g = linear + curved
        tl.store(G + place, g, inside)
        values += tl.load(levels + bins, inside, 0.0) + z * (linear + 0.5 * curved)
        slopes += second
        squares += z * z
        gradients += g * g
    _put(sums, 0, 4, values, block, columns, m, used)
    _put(sums, 1, 4, slopes, block, columns, m, used)
    _put(sums, 2, 4, squares, block, columns, m, used)
    _put(sums, 3, 4, gradients, block, columns, m, used)


@triton.jit
def _descend(
    squares, counts, density, power, noise, least, new_density, new_power, new_noise, b, most_rounds,
    CLOSE: tl.constexpr, COUNTED: tl.constexpr, NOISE_KNOWN: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Expectation maximisation for one atom; the formulas are those of `elldict._old.solver.spike_slab`."""
    atom = tl.program_id(0).to(tl.int64)
    theta, a2, s2 = tl.load(density + atom), tl.load(power + atom), tl.load(noise + atom)
    floor = tl.load(least)
    rounds = 0
    moving = s2 > 0
    while moving & (rounds < most_rounds):
        whole = a2 + s2
        offset = tl.log(theta) - tl.log(1 - theta) - 0.5 * tl.log(whole / s2)
        rate = 0.5 * (1 / s2 - 1 / whole)
        shares = tl.zeros((BLOCK,), tl.float64)
        actives, idles, numbers = shares, shares, shares
        for k in range(0, b, BLOCK):
            place = k + tl.arange(0, BLOCK)
            inside = place < b
            z2 = tl.load(squares + atom * b + place, inside, 0.0)
            count = tl.where(inside, tl.full((BLOCK,), 1.0, tl.float64), 0.0)
            if COUNTED:
                count = tl.load(counts + atom * b + place, inside, 0.0)
            active = count * (0.5 + 0.5 * libdevice.tanh(0.5 * (offset + rate * z2)))
            shares += active
            actives += active * z2
            idles += (count - active) * z2
            numbers += count
        share, active_square, idle_square, number = tl.sum(shares), tl.sum(actives), tl.sum(idles), tl.sum(numbers)
        kept = a2 / whole
        blur = kept * s2 * share
        theta_before, s2_before = theta, s2
        theta = tl.minimum(tl.maximum(share / number, 1e-4), 1 - 1e-4)
        a2 = tl.maximum((kept * kept * active_square + blur) / tl.maximum(share, 1e-300), floor)
        if not NOISE_KNOWN:
            s2 = tl.maximum((idle_square + (1 - kept) * (1 - kept) * active_square + blur) / number, floor)
        rounds += 1
        moving = (tl.abs(s2 - s2_before) > CLOSE * s2_before) | (tl.abs(theta - theta_before) > CLOSE * theta_before)
    tl.store(new_density + atom, theta)
    tl.store(new_power + atom, a2)
    tl.store(new_noise + atom, s2)


@triton.jit
def _angles(C, slopes, squares, angles, sums, m, weight, floor, BLOCK: tl.constexpr):
    """Angles of Newton's step for every pair of atoms, as `pairwise_angles` has them; sums of their squares."""
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    j = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    here, there = i < m, j < m
    own_i, own_j = tl.load(C + i * m + i, here, 0.0), tl.load(C + j * m + j, there, 0.0)
    slope_i, slope_j = tl.load(slopes + i, here, 0.0), tl.load(slopes + j, there, 0.0)
    square_i, square_j = tl.load(squares + i, here, 0.0), tl.load(squares + j, there, 0.0)
    inside = here[:, None] & there[None, :]
    c = tl.load(C + i[:, None] * m + j[None, :], inside, 0.0)
    mirrored = tl.load(C + j[None, :] * m + i[:, None], inside, 0.0)
    both = own_i[:, None] + own_j[None, :]
    crossed = slope_i[:, None] * square_j[None, :] + square_i[:, None] * slope_j[None, :]
    size = tl.abs(own_i)[:, None] + tl.abs(own_j)[None, :]
    curvature = tl.maximum(both - crossed / weight, floor * size)
    angle = tl.where(inside, (c - mirrored) / curvature, 0.0)
    tl.store(angles + i[:, None] * m + j[None, :], angle, inside)
    tl.store(sums + tl.program_id(0) * tl.num_programs(1) + tl.program_id(1), tl.sum(angle * angle))


@triton.jit
def _variances(gains, gradients, slopes, squares, sums, m, weight, BLOCK: tl.constexpr):
    """Sums of the variances of the angles between atoms, as `elldict.theory.accuracy` has them."""
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    j = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    here, there = i < m, j < m
    gz_i, gz_j = tl.load(gains + i, here, 1.0) / weight, tl.load(gains + j, there, 1.0) / weight
    g2_i, g2_j = tl.load(gradients + i, here, 0.0) / weight, tl.load(gradients + j, there, 0.0) / weight
    slope_i, slope_j = tl.load(slopes + i, here, 0.0) / weight, tl.load(slopes + j, there, 0.0) / weight
    z2_i, z2_j = tl.load(squares + i, here, 0.0) / weight, tl.load(squares + j, there, 0.0) / weight
    crossed = slope_i[:, None] * z2_j[None, :] + z2_i[:, None] * slope_j[None, :]
    h = gz_i[:, None] + gz_j[None, :] - crossed
    noise = g2_i[:, None] * z2_j[None, :] + z2_i[:, None] * g2_j[None, :]
    variance = (noise - 2 * gz_i[:, None] * gz_j[None, :]) / (weight * h * h)
    variance = tl.where(h > 0, tl.maximum(variance, 0.0), float("inf"))
    pair = here[:, None] & there[None, :] & (i[:, None] != j[None, :])
    tl.store(sums + tl.program_id(0) * tl.num_programs(1) + tl.program_id(1), tl.sum(tl.where(pair, variance, 0.0)))


@triton.jit
def _settle(
    density, power, noise, old, squares, law, halves, others, same, m, steady,
    LIKE: tl.constexpr, CLOSE: tl.constexpr, UNLIKE: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """One noise for all atoms, the old law if the new one hardly differs, and the lines for both; see `device_law`."""
    atoms = tl.arange(0, BLOCK)
    used = atoms < m
    theta, a2 = tl.load(density + atoms, used, 0.5), tl.load(power + atoms, used, 1.0)
    own = tl.load(noise + atoms, used, 0.0)
    largest, mean = tl.max(own), tl.sum(own) / m
    ordered = tl.sort(tl.where(used, own, float("inf")))
    low = tl.sum(tl.where(atoms == (m - 1) // 2, ordered, 0.0))
    high = tl.sum(tl.where(atoms == m // 2, ordered, 0.0))
    s2 = tl.where(largest > UNLIKE * 0.5 * (low + high), largest, mean)
    move = tl.max(tl.load(squares + atoms, used, 0.0))
    old_theta, old_a2 = tl.load(old + atoms, used, 0.5), tl.load(old + m + atoms, used, 1.0)
    old_s2 = tl.load(old + 2 * m)
    s2 = tl.maximum(s2, tl.minimum(old_s2, steady * steady * move))
    drift = tl.sum(tl.where(used, tl.abs(tl.log(theta / old_theta)), 0.0)) / m
    alike = (tl.abs(tl.log(s2 / old_s2)) < LIKE) & (drift < CLOSE)
    theta, a2 = tl.where(alike, old_theta, theta), tl.where(alike, old_a2, a2)
    s2 = tl.where(alike, old_s2, s2)
    tl.store(law + atoms, theta, used)
    tl.store(law + m + atoms, a2, used)
    tl.store(law + 2 * m + atoms, tl.zeros_like(a2) + s2, used)
    whole = a2 + s2
    rate = (1 / s2 - 1 / whole) / 4
    offset = (tl.log(theta) - tl.log(1 - theta) - 0.5 * tl.log(whole / s2)) / 2
    tl.store(halves + atoms, offset.to(halves.dtype.element_ty), used)
    tl.store(halves + m + atoms, rate.to(halves.dtype.element_ty), used)
    tl.store(others + atoms, rate, used)
    tl.store(others + m + atoms, a2 / whole / 2, used)
    tl.store(others + 2 * m + atoms, 0.5 / whole, used)
    tl.store(others + 3 * m + atoms, 0.6931471805599453 + tl.log(theta) - 0.5 * tl.log(6.283185307179586 * whole), used)
    tl.store(same, tl.where(alike, 1.0, 0.0))


def lp(Z: Array, p: float, *, moments: bool = True) -> tuple[Array, dict[str, Array]]:  # noqa: ARG001
    """G = |z|^(p-2) z for codes Z (b, m), and float64 sums over rows of weight |z|^(p-2), magnitude |z|, z2 and g2.

    Sums are made whether or not they are asked for: they cost nothing.
    """
    Z = Z.contiguous()
    b, m = Z.shape
    G, (grid, sums) = torch.empty_like(Z), _grid(Z, len(LP_SUMS))
    _lp[grid](Z, G, sums, b, m, float(p - 2), ROWS, STEP, COLUMNS, num_warps=WARPS)
    return G, _added(sums, LP_SUMS)


def smooth_lp(Z: Array, *, moments: bool = True) -> tuple[Array, dict[str, Array]]:  # noqa: ARG001
    """G = z - z (z^2 + 1)^(-1/2), that of the smoothed l_1 norm, and sums over rows of what value and slope are of."""
    Z = Z.contiguous()
    b, m = Z.shape
    G, (grid, sums) = torch.empty_like(Z), _grid(Z, len(SMOOTH_SUMS))
    _smooth[grid](Z, G, sums, b, m, ROWS, STEP, COLUMNS, num_warps=WARPS)
    return G, _added(sums, SMOOTH_SUMS)


def mixture(Z: Array, std: Array, tables: tuple[Array, Array, Array]) -> tuple[Array, dict[str, Array]]:
    """G of the likelihood of a mixture, and sums; tables expand log q about the centres of bins."""
    Z = Z.contiguous()
    b, m = Z.shape
    bins = tables[0].shape[0] // m
    G, (grid, sums) = torch.empty_like(Z), _grid(Z, len(MIXTURE_SUMS))
    _mixture[grid](Z, G, sums, std, *tables, b, m, bins, ROWS, STEP, COLUMNS, num_warps=WARPS)
    return G, _added(sums, MIXTURE_SUMS)


def likelihood(Z: Array, offset: Array, rate: Array, p: float | None) -> tuple[Array, Array | None, dict[str, Array]]:
    """G = (1 + tanh h) z with h = offset + rate z^2, g of l_p at the same codes if p is given, and the sums.

    Sums: z2, below min(h, 0), logs log(1 + |tanh h|), missing tanh h - 1, bend g z (tanh h - 1), g2; for l_p: weight,
    magnitude, secondary_g2 and cross, the product of both g.
    """
    Z = Z.contiguous()
    b, m = Z.shape
    names = LIKELIHOOD_SUMS if p is None else LIKELIHOOD_SUMS + SECONDARY_SUMS
    G, (grid, sums) = torch.empty_like(Z), _grid(Z, len(names))
    H = None if p is None else torch.empty_like(Z)
    exponent = 1.0 if p is None else p - 2
    parts = (Z, G, Z if H is None else H, sums, offset, rate)
    _likelihood[grid](*parts, b, m, p is not None, float(exponent), ROWS, STEP, COLUMNS, num_warps=WARPS)
    return G, H, _added(sums, names)


def descended(
    squares: Array,
    counts: Array | None,
    law: tuple[Array, Array, Array],
    least: Array,
    rounds: int,
    *,
    close: float,
    noise_known: bool,
) -> tuple[Array, Array, Array]:
    """Density, power and noise of each atom after some rounds of expectation maximisation from `law`.

    `squares` (m, b) are those of the codes, a row an atom, and `counts` how often each is there, if not once; `least`
    is the smallest noise, in an array of one number. All are contiguous and float64.
    """
    squares = squares.contiguous()
    m, b = squares.shape
    new = tuple(torch.empty_like(part) for part in law)
    block = 512 if b > 256 else 256
    weights, counted = (squares, False) if counts is None else (counts, True)
    _descend[(m,)](
        squares, weights, *law, least, *new, b, rounds, close, counted, noise_known, block, num_warps=WARPS
    )  # fmt: skip
    return new


PAIRS = 32
"""Atoms of a program that looks at pairs, in both directions."""


def angles(C: Array, slope: Array, z2: Array, weight: float, least_curvature: float) -> tuple[Array, Array]:
    """Angles (m, m) of Newton's step from C = G A^T and sums of an objective, and the sum of their squares."""
    m = C.shape[0]
    grid = (-(-m // PAIRS), -(-m // PAIRS))
    found, sums = torch.empty_like(C), torch.empty(grid, dtype=C.dtype, device=C.device)
    _angles[grid](C, slope, z2, found, sums, m, float(weight), least_curvature / 2, PAIRS, num_warps=WARPS)
    return found, torch.sum(sums)


def mean_error(gz: Array, g2: Array, slope: Array, z2: Array, weight: float) -> Array:
    """Mean error bar of the atoms from the sums of an objective; infinite where it is no maximum."""
    m = gz.shape[0]
    grid = (-(-m // PAIRS), -(-m // PAIRS))
    sums = torch.empty(grid, dtype=gz.dtype, device=gz.device)
    _variances[grid](gz, g2, slope, z2, sums, m, float(weight), PAIRS, num_warps=WARPS)
    return torch.sum(sums) * (2 / m)


def settled(
    own: tuple[Array, Array, Array],
    old: Array,
    squares: Array,
    memory: tuple[Array, Array, Array, Array],
    steady: float,
) -> None:
    """Write law (3, m), its lines for codes (2, m) and for sums (4, m), and whether it is the old one, to `memory`.

    `own` is the law of each atom by itself, `old` (3, m) the one before, `squares` (m,) those of the moves of atoms.
    """
    m = old.shape[1]
    how = (0.1, 0.05, 4.0, triton.next_power_of_2(m))
    _settle[(1,)](*own, old, squares, *memory, m, steady, *how, num_warps=8)


def cubic(X: Array, once: float, thrice: float) -> Array:
    """Return once X + thrice X X^T X, in two calls."""
    return torch.addmm(X, X @ X.T, X, beta=once, alpha=thrice)


def quintic(X: Array) -> Array:
    """One step of `nearby_polar`, in three calls."""
    S = X @ X.T
    return torch.addmm(X, torch.addmm(S, S, S, beta=-1.25, alpha=0.375), X, beta=1.875)


def _grid(Z: Array, n_sums: int) -> tuple[tuple[int], Any]:
    """Programs for codes Z, and memory for the sums of each block of rows."""
    b, m = Z.shape
    blocks = -(-b // ROWS)
    return (blocks * -(-m // COLUMNS),), torch.empty((blocks, n_sums, m), dtype=Z.dtype, device=Z.device)


def _added(sums: Array, names: tuple[str, ...]) -> dict[str, Array]:
    return dict(zip(names, torch.sum(sums, dim=0, dtype=torch.float64), strict=True))
