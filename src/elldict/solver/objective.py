"""Objectives: functions of one code, summed over samples and atoms in one pass."""

from __future__ import annotations

import enum
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Protocol

from elldict.backend.base import Array, Space, Work, storage, total, workspace
from elldict.backend.torch import Fused
from elldict.data.dataset import Samples
from elldict.data.statistics import Frame
from elldict.theory.accuracy import CodeMoments


class Needs(enum.Flag):
    """What a pass has to bring home; a plain step asks for less than the judge."""

    GRADIENT = enum.auto()
    MOMENTS = enum.auto()
    IDLE = enum.auto()


Factors = tuple[Array, Array]
"""Two arrays whose product, entry by entry, is meant: it is summed without being stored."""


@dataclass(frozen=True)
class Summed:
    """Sums over the rows of the tile, found on the way: no array of codes was ever stored."""

    total: Array  # (m,), float64


Part = Array | Factors | Summed


@dataclass(frozen=True)
class Weighted:
    """A sum of parts, each with a factor for every atom, and a constant.

    Factors and constant meet the sums over a tile, m numbers, and not every code.
    """

    parts: tuple[tuple[Any, Part], ...]
    constant: Any = 0.0

    def expanded(self) -> Array:
        """The term itself, code by code."""
        total = self.constant
        for factor, part in self.parts:
            total = total + factor * (part[0] * part[1] if isinstance(part, tuple) else part)
        return total


Term = Part | Weighted


@dataclass(frozen=True)
class Terms:
    """Contrast of the codes of one tile. All arrays have the shape of the codes, (b, m)."""

    g: Array  # derivative F', but for a factor
    gain: Any = 1.0  # that factor, one for each atom
    slope: Term | None = None  # second derivative F''
    value: Term | None = None  # F itself; None says F = F' z, whose sum falls out of the gradient
    z2: Part | None = None  # squares of the codes, if at hand
    g2: Part | None = None  # squares of g, without the factor, if at hand
    idle: Array | None = None  # probability that a code is zero but for noise
    beside: Array | None = None  # derivative of another contrast of the same codes
    extra: Mapping[str, Term] = field(default_factory=dict)

    def product(self, other: Array) -> Weighted:
        """The derivative times another array."""
        return Weighted(((self.gain, (self.g, other)),))


class Tally:
    """Sums over the rows of one tile; what several terms share is summed once."""

    def __init__(self, work: Work, n_rows: int) -> None:
        self._work, self._n_rows = work, n_rows
        self._known: dict[tuple[int, ...], Array] = {}  # by identity: the terms hold their arrays while they are summed

    def __call__(self, term: Term) -> Array:
        """Column sums of a term, (m,), in float64."""
        if isinstance(term, Weighted):
            sums = (factor * self._part(part) for factor, part in term.parts)
            return sum(sums, start=term.constant * self._n_rows)
        return self._part(term)

    def _part(self, part: Part) -> Array:
        if isinstance(part, Summed):
            return part.total
        arrays = part if isinstance(part, tuple) else (part,)
        key = tuple(map(id, arrays))
        if key not in self._known:
            self._known[key] = self._work.product_sums(*arrays) if len(arrays) > 1 else self._work.column_sums(*arrays)
        return self._known[key]


class Contrast(Protocol):
    """A function of one code, summed over samples and atoms."""

    def codes(self, Y: Array, decode: Array, work: Work, xp: Any) -> tuple[Array, Array]:
        """The samples (b, n) that the gradient sums over, and their codes (b, m), from the samples Y (b, n) of a tile.

        `decode` (n, m) makes codes of unit mean square.
        """
        ...

    def terms(self, Z: Array, need: Needs, work: Work, xp: Any) -> Terms:
        """Contrast of the codes Z (b, m). Scratch memory comes from `work`; Z is not changed."""
        ...


class Linear:
    """Codes are the products of samples with atoms."""

    def codes(self, Y: Array, decode: Array, work: Work, xp: Any) -> tuple[Array, Array]:  # noqa: ARG002
        """The samples themselves, and their codes."""
        return Y, work.matmul(Y, decode, into="codes")


@dataclass(frozen=True)
class Lp(Linear):
    """F = |z|^p, g = sign(z)|z|^(p-1): the paper's contrast, with the factor p left out of g and slope.

    |z|^(p-2) is computed once and serves all three.
    """

    p: float = 3.0

    def terms(self, Z: Array, need: Needs, work: Work, xp: Any) -> Terms:
        """Contrast of the codes Z (b, m)."""
        if work.fused is not None and Needs.MOMENTS in need:
            g, sums = work.fused.lp(Z, self.p)
            slope = Weighted(((self.p - 1, Summed(sums["weight"])),))
            extra = {"magnitude": Summed(sums["magnitude"])}
            return Terms(g=g, slope=slope, z2=Summed(sums["z2"]), g2=Summed(sums["g2"]), extra=extra)
        magnitude = work.map(xp.abs, Z, into="magnitude")
        weight = power(magnitude, self.p - 2, work, xp, into="weight")
        if Needs.MOMENTS not in need:
            return Terms(g=work.map(xp.multiply, weight, Z, into="weight"))
        g = work.map(xp.multiply, weight, Z, into="g")
        return Terms(g=g, slope=Weighted(((self.p - 1, weight),)), extra={"magnitude": magnitude})


@dataclass(frozen=True)
class Both:
    """One contrast, and beside it what a second one says of the same codes: for comparing two answers."""

    first: Contrast
    second: Contrast

    def codes(self, Y: Array, decode: Array, work: Work, xp: Any) -> tuple[Array, Array]:
        """Codes that the first contrast sees."""
        return self.first.codes(Y, decode, work, xp)

    def terms(self, Z: Array, need: Needs, work: Work, xp: Any) -> Terms:
        """Terms of the first contrast, with those of the second and the product of both g as extras."""
        fused = work.fused is not None and Needs.MOMENTS in need and Needs.IDLE not in need
        if fused and hasattr(self.first, "fused") and isinstance(self.second, Lp):
            both: Terms = self.first.fused(Z, work.fused, self.second)
            alone = {} if Needs.GRADIENT in need else {"beside_value": (both.beside, Z)}
            return replace(both, extra={**both.extra, **alone})
        one = self.first.terms(Z, need, work, xp)
        two = self.second.terms(Z, need, Prefixed(work, "beside "), xp)
        assert isinstance(two.gain, float), "the second contrast is l_p, whose g has no factor"
        beside = {f"beside_{name}": term for name, term in two.extra.items()}
        beside |= {"beside_slope": two.slope, "beside_g2": (two.g, two.g), "cross": one.product(two.g)}
        if Needs.GRADIENT not in need:
            beside["beside_value"] = (two.g, Z)
        return replace(one, beside=two.g, extra={**one.extra, **beside})


def maximised(contrast: Contrast) -> Contrast:
    """The contrast itself, without another that may stand beside it."""
    return contrast.first if isinstance(contrast, Both) else contrast


@dataclass(frozen=True)
class Prefixed:
    """Scratch memory of somebody else, under names of one's own."""

    work: Work
    prefix: str

    @property
    def fused(self) -> Fused | None:
        """Kernels of that memory."""
        return self.work.fused

    def matmul(self, a: Array, b: Array, into: str) -> Array:
        """Product a @ b."""
        return self.work.matmul(a, b, into=self.prefix + into)

    def map(self, function: Callable[..., Array], *operands: Any, into: str) -> Array:
        """Elementwise function."""
        return self.work.map(function, *operands, into=self.prefix + into)

    def column_sums(self, array: Array) -> Array:
        """Sums over rows."""
        return self.work.column_sums(array)

    def product_sums(self, a: Array, b: Array) -> Array:
        """Column sums of a product."""
        return self.work.product_sums(a, b)


def power(x: Array, exponent: float, work: Work, xp: Any, into: str) -> Array:
    """x**exponent for x >= 0 and exponent > 0, by products and one square root where the exponent allows.

    The general power is a logarithm and an exponential for every entry, many times the cost of a product.
    """
    whole, half = divmod(exponent, 1)
    if half not in (0.0, 0.5) or whole > 8:
        return work.map(xp.pow, x, exponent, into=into)
    if half:
        result = work.map(xp.sqrt, x, into=into)
        factors = int(whole)
    else:
        result, factors = x, int(whole) - 1
    for _ in range(factors):
        result = work.map(xp.multiply, result, x, into=into)
    return result


@dataclass(frozen=True)
class Sums:
    """Sums over samples, in float64. What was not asked for is None."""

    weight: float
    value: Array = None  # (m,)  sum F
    G: Array = None  # (m, n)  sum g(z) y^T
    slope: Array = None  # (m,)  sum F''
    g2: Array = None  # (m,)  sum g^2
    z2: Array = None  # (m,)  sum z^2
    gz: Array = None  # (m,)  sum g z
    idle: Array = None  # (m, n, n)  sum P(code is idle) y y^T
    beside: Array = None  # (m, n)  gradient of the contrast beside
    extra: Mapping[str, Array] = field(default_factory=dict)  # (m,) each
    seen: float | None = None  # the objective, where it was read with other numbers

    def __add__(self, other: Sums) -> Sums:
        def both(a: Array | None, b: Array | None) -> Array | None:
            return None if a is None or b is None else a + b

        return Sums(
            weight=self.weight + other.weight,
            value=both(self.value, other.value),
            G=both(self.G, other.G),
            slope=both(self.slope, other.slope),
            g2=both(self.g2, other.g2),
            z2=both(self.z2, other.z2),
            gz=both(self.gz, other.gz),
            idle=both(self.idle, other.idle),
            beside=both(self.beside, other.beside),
            extra={name: self.extra[name] + other.extra[name] for name in self.extra},
        )

    @cached_property
    def objective(self) -> float:
        """Mean of F over samples and atoms."""
        if self.seen is not None:
            return self.seen
        return total(self.value / self.weight) / int(self.value.shape[0])


@dataclass(frozen=True)
class SumKernel:
    """Sums of a contrast over one tile."""

    contrast: Contrast
    B: Array  # (m, n) rows that make codes
    mean: Array | None  # (n,)
    unit: float
    need: Needs
    precision: str

    def bind(self, space: Space) -> Callable[[Array], Sums]:
        """Return the function that sums one tile."""
        xp, held = space.xp, storage(self.precision)
        dtype, work = getattr(xp, held), workspace(space, self.precision)
        shrink = _power_of_two(self.unit, self.precision)
        B = space.asarray(self.B, "float64")
        decode = xp.astype((B if shrink == 1 else B / shrink).T, dtype)
        gradient = Needs.GRADIENT in self.need
        mean = None if self.mean is None else space.asarray(self.mean, held)

        def visit(Y: Array) -> Sums:
            Y = prepared(xp.astype(Y, dtype, copy=False))
            Y, Z = self.contrast.codes(Y, decode, work, xp)
            terms = self.contrast.terms(Z, self.need, work, xp)
            tally = Tally(work, int(Y.shape[0]))
            # float64 from here on: 10^7 float32 terms lose five digits otherwise
            G = summed_gradient(terms.g, terms.gain, Y)
            beside = None if terms.beside is None else summed_gradient(terms.beside, 1.0, Y)
            more = moments(terms, Z, tally) if Needs.MOMENTS in self.need else {}
            idle = idle_sums(terms, Y) if Needs.IDLE in self.need else None
            value = value_sums(terms, Z, tally)
            return Sums(weight=float(Y.shape[0]), value=value, G=G, idle=idle, beside=beside, **more)

        def summed_gradient(g: Array, gain: Any, Y: Array) -> Array | None:
            if not gradient:
                return None
            total = xp.astype(work.matmul(g.T, Y, into="gradient"), xp.float64)
            return total if isinstance(gain, float) else gain[:, None] * total

        def prepared(Y: Array) -> Array:
            # centred here, not in the products: a large mean would cost them their digits
            Y = Y if mean is None else work.map(xp.subtract, Y, mean, into="samples")
            return Y if shrink == 1 else work.map(xp.multiply, Y, shrink, into="samples")

        def value_sums(terms: Terms, Z: Array, tally: Tally) -> Array | None:
            if terms.value is not None:
                return tally(terms.value)
            return None if gradient else tally(terms.product(Z))

        def moments(terms: Terms, Z: Array, tally: Tally) -> dict[str, Any]:
            return {
                "slope": tally(terms.slope),
                "g2": squared(terms.gain, tally((terms.g, terms.g) if terms.g2 is None else terms.g2)),
                "z2": tally((Z, Z) if terms.z2 is None else terms.z2),
                "gz": None if gradient else tally(terms.product(Z)),
                "extra": {name: tally(term) for name, term in terms.extra.items()},
            }

        def squared(gain: Any, total: Array) -> Array:
            return total if isinstance(gain, float) else gain**2 * total

        def idle_sums(terms: Terms, Y: Array) -> Array:
            weights = terms.idle
            assert weights is not None, "only the likelihood knows which codes are idle"
            shares = (weights[:, i : i + 1] * Y for i in range(int(weights.shape[1])))
            return xp.stack([xp.astype(share.T @ Y, xp.float64) for share in shares])

        return visit


def _power_of_two(unit: float, precision: str) -> float:
    """Factor that brings samples of extreme size near one, where products cannot overflow; 1 for all others."""
    exponent = math.frexp(unit)[1]
    return math.ldexp(1.0, exponent) if abs(exponent) > (300 if precision == "float64" else 40) else 1.0


def measure(samples: Samples, frame: Frame, contrast: Contrast, A: Array, need: Needs, precision: str) -> Sums:
    """One pass: sums of the contrast at A (m, k), seen from inside the frame."""
    kernel = SumKernel(contrast, frame.outward(A), frame.mean, frame.unit, need, precision)
    sums = samples.sum_over(kernel)
    if sums.G is None:
        return sums
    scale = frame.unit / _power_of_two(frame.unit, precision)
    G = frame.inward(sums.G * scale)
    beside = None if sums.beside is None else frame.inward(sums.beside * scale)
    idle = None if sums.idle is None else frame.inward_twice(sums.idle)
    xp = Space.of(G).xp
    gz = xp.sum(G * A, axis=1)  # sum g z^T is G A^T
    extra = sums.extra if beside is None else {**sums.extra, "beside_value": xp.sum(beside * A, axis=1)}
    value = gz if sums.value is None else sums.value
    return replace(sums, G=G, idle=idle, beside=beside, gz=gz, value=value, extra=extra)


def moments(sums: Sums) -> CodeMoments:
    """Moments of the codes under the contrast that was summed, where the sums are."""
    return CodeMoments(*(total / sums.weight for total in (sums.gz, sums.g2, sums.slope, sums.z2)))
