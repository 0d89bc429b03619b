"""Objectives: functions of one code, summed over samples and atoms in one pass."""

from __future__ import annotations

import enum
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Protocol

from elldict.backend.base import Array, Backend, Work, make_workspace, storage_dtype, total
from elldict.backend.torch import Fused
from elldict.data.dataset import Dataset
from elldict.data.statistics import Whitening
from elldict.theory.accuracy import CodeMoments


class Quantities(enum.Flag):
    """What a pass has to bring home; a plain step asks for less than the judge."""

    GRADIENT = enum.auto()
    MOMENTS = enum.auto()
    INACTIVE = enum.auto()


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
    inactive: Array | None = None  # probability that a code is zero but for noise
    secondary: Array | None = None  # derivative of another contrast of the same codes
    extra: Mapping[str, Term] = field(default_factory=dict)

    def product(self, other: Array) -> Weighted:
        """The derivative times another array."""
        return Weighted(((self.gain, (self.g, other)),))


class TermSums:
    """Sums over the rows of one tile; what several terms share is summed once."""

    def __init__(self, work: Work, n_rows: int) -> None:
        self._work, self._n_rows = work, n_rows
        self._known: dict[tuple[int, ...], Array] = {}  # by identity: the terms hold their arrays while they are summed

    def __call__(self, term: Term) -> Array:
        """Column sums of a term, (m,), in float64."""
        if isinstance(term, Weighted):
            stats = (factor * self._part(part) for factor, part in term.parts)
            return sum(stats, start=term.constant * self._n_rows)
        return self._part(term)

    def _part(self, part: Part) -> Array:
        if isinstance(part, Summed):
            return part.total
        arrays = part if isinstance(part, tuple) else (part,)
        key = tuple(map(id, arrays))
        if key not in self._known:
            self._known[key] = self._work.product_sums(*arrays) if len(arrays) > 1 else self._work.column_sums(*arrays)
        return self._known[key]


class Objective(Protocol):
    """A function of one code, summed over samples and atoms."""

    def codes(self, Y: Array, decode: Array, work: Work, xp: Any) -> tuple[Array, Array]:
        """The samples (b, n) that the gradient sums over, and their codes (b, m), from the samples Y (b, n) of a tile.

        `decode` (n, m) makes codes of unit mean square.
        """
        ...

    def terms(self, Z: Array, quantities: Quantities, work: Work, xp: Any) -> Terms:
        """Contrast of the codes Z (b, m). Scratch memory comes from `work`; Z is not changed."""
        ...


class LinearCodes:
    """Codes are the products of samples with atoms."""

    def codes(self, Y: Array, decode: Array, work: Work, xp: Any) -> tuple[Array, Array]:  # noqa: ARG002
        """The samples themselves, and their codes."""
        return Y, work.matmul(Y, decode, into="codes")


@dataclass(frozen=True)
class Lp(LinearCodes):
    """F = |z|^p, g = sign(z)|z|^(p-1): the paper's contrast, with the factor p left out of g and slope.

    |z|^(p-2) is computed once and serves all three.
    """

    p: float = 3.0

    def terms(self, Z: Array, quantities: Quantities, work: Work, xp: Any) -> Terms:
        """Contrast of the codes Z (b, m)."""
        if work.fused is not None and Quantities.MOMENTS in quantities:
            g, stats = work.fused.lp(Z, self.p)
            slope = Weighted(((self.p - 1, Summed(stats["weight"])),))
            extra = {"magnitude": Summed(stats["magnitude"])}
            return Terms(g=g, slope=slope, z2=Summed(stats["z2"]), g2=Summed(stats["g2"]), extra=extra)
        magnitude = work.map(xp.abs, Z, into="magnitude")
        weight = power(magnitude, self.p - 2, work, xp, into="weight")
        if Quantities.MOMENTS not in quantities:
            return Terms(g=work.map(xp.multiply, weight, Z, into="weight"))
        g = work.map(xp.multiply, weight, Z, into="g")
        return Terms(g=g, slope=Weighted(((self.p - 1, weight),)), extra={"magnitude": magnitude})


@dataclass(frozen=True)
class WithSecondary:
    """One contrast, and beside it what a second one says of the same codes: for comparing two answers."""

    first: Objective
    second: Objective

    def codes(self, Y: Array, decode: Array, work: Work, xp: Any) -> tuple[Array, Array]:
        """Codes that the first contrast sees."""
        return self.first.codes(Y, decode, work, xp)

    def terms(self, Z: Array, quantities: Quantities, work: Work, xp: Any) -> Terms:
        """Terms of the first contrast, with those of the second and the product of both g as extras."""
        fused = work.fused is not None and Quantities.MOMENTS in quantities and Quantities.INACTIVE not in quantities
        if fused and hasattr(self.first, "fused") and isinstance(self.second, Lp):
            both: Terms = self.first.fused(Z, work.fused, self.second)
            alone = {} if Quantities.GRADIENT in quantities else {"beside_value": (both.secondary, Z)}
            return replace(both, extra={**both.extra, **alone})
        one = self.first.terms(Z, quantities, work, xp)
        two = self.second.terms(Z, quantities, PrefixedWork(work, "beside "), xp)
        assert isinstance(two.gain, float), "the second contrast is l_p, whose g has no factor"
        secondary = {f"beside_{name}": term for name, term in two.extra.items()}
        secondary |= {"beside_slope": two.slope, "beside_g2": (two.g, two.g), "cross": one.product(two.g)}
        if Quantities.GRADIENT not in quantities:
            secondary["beside_value"] = (two.g, Z)
        return replace(one, secondary=two.g, extra={**one.extra, **secondary})


def primary_of(objective: Objective) -> Objective:
    """The contrast itself, without another that may stand beside it."""
    return objective.first if isinstance(objective, WithSecondary) else objective


@dataclass(frozen=True)
class PrefixedWork:
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
class Statistics:
    """Sums over samples, in float64. What was not asked for is None."""

    weight: float
    value: Array = None  # (m,)  sum F
    G: Array = None  # (m, n)  sum g(z) y^T
    slope: Array = None  # (m,)  sum F''
    g2: Array = None  # (m,)  sum g^2
    z2: Array = None  # (m,)  sum z^2
    gz: Array = None  # (m,)  sum g z
    inactive: Array = None  # (m, n, n)  sum P(code is idle) y y^T
    secondary: Array = None  # (m, n)  gradient of the contrast beside
    extra: Mapping[str, Array] = field(default_factory=dict)  # (m,) each
    known_mean: float | None = None  # `mean_value`, where it was read with other numbers

    def __add__(self, other: Statistics) -> Statistics:
        def both(a: Array | None, b: Array | None) -> Array | None:
            return None if a is None or b is None else a + b

        return Statistics(
            weight=self.weight + other.weight,
            value=both(self.value, other.value),
            G=both(self.G, other.G),
            slope=both(self.slope, other.slope),
            g2=both(self.g2, other.g2),
            z2=both(self.z2, other.z2),
            gz=both(self.gz, other.gz),
            inactive=both(self.inactive, other.inactive),
            secondary=both(self.secondary, other.secondary),
            extra={name: self.extra[name] + other.extra[name] for name in self.extra},
        )

    @cached_property
    def mean_value(self) -> float:
        """Mean of F over samples and atoms."""
        if self.known_mean is not None:
            return self.known_mean
        return total(self.value / self.weight) / int(self.value.shape[0])


@dataclass(frozen=True)
class EvaluationKernel:
    """Sums of a contrast over one tile."""

    objective: Objective
    B: Array  # (m, n) rows that make codes
    mean: Array | None  # (n,)
    unit: float
    quantities: Quantities
    precision: str

    def bind(self, backend: Backend) -> Callable[[Array], Statistics]:
        """Return the function that sums one tile."""
        xp, held = backend.xp, storage_dtype(self.precision)
        dtype, work = getattr(xp, held), make_workspace(backend, self.precision)
        shrink = _power_of_two(self.unit, self.precision)
        B = backend.asarray(self.B, "float64")
        decode = xp.astype((B if shrink == 1 else B / shrink).T, dtype)
        gradient = Quantities.GRADIENT in self.quantities
        mean = None if self.mean is None else backend.asarray(self.mean, held)

        def visit(Y: Array) -> Statistics:
            Y = prepared(xp.astype(Y, dtype, copy=False))
            Y, Z = self.objective.codes(Y, decode, work, xp)
            terms = self.objective.terms(Z, self.quantities, work, xp)
            term_sums = TermSums(work, int(Y.shape[0]))
            # float64 from here on: 10^7 float32 terms lose five digits otherwise
            G = summed_gradient(terms.g, terms.gain, Y)
            secondary = None if terms.secondary is None else summed_gradient(terms.secondary, 1.0, Y)
            more = code_moments(terms, Z, term_sums) if Quantities.MOMENTS in self.quantities else {}
            inactive = idle_sums(terms, Y) if Quantities.INACTIVE in self.quantities else None
            value = value_sums(terms, Z, term_sums)
            return Statistics(
                weight=float(Y.shape[0]), value=value, G=G, inactive=inactive, secondary=secondary, **more
            )

        def summed_gradient(g: Array, gain: Any, Y: Array) -> Array | None:
            if not gradient:
                return None
            total = xp.astype(work.matmul(g.T, Y, into="gradient"), xp.float64)
            return total if isinstance(gain, float) else gain[:, None] * total

        def prepared(Y: Array) -> Array:
            # centred here, not in the products: a large mean would cost them their digits
            Y = Y if mean is None else work.map(xp.subtract, Y, mean, into="samples")
            return Y if shrink == 1 else work.map(xp.multiply, Y, shrink, into="samples")

        def value_sums(terms: Terms, Z: Array, term_sums: TermSums) -> Array | None:
            if terms.value is not None:
                return term_sums(terms.value)
            return None if gradient else term_sums(terms.product(Z))

        def code_moments(terms: Terms, Z: Array, term_sums: TermSums) -> dict[str, Any]:
            return {
                "slope": term_sums(terms.slope),
                "g2": squared(terms.gain, term_sums((terms.g, terms.g) if terms.g2 is None else terms.g2)),
                "z2": term_sums((Z, Z) if terms.z2 is None else terms.z2),
                "gz": None if gradient else term_sums(terms.product(Z)),
                "extra": {name: term_sums(term) for name, term in terms.extra.items()},
            }

        def squared(gain: Any, total: Array) -> Array:
            return total if isinstance(gain, float) else gain**2 * total

        def idle_sums(terms: Terms, Y: Array) -> Array:
            weights = terms.inactive
            assert weights is not None, "only the likelihood knows which codes are idle"
            shares = (weights[:, i : i + 1] * Y for i in range(int(weights.shape[1])))
            return xp.stack([xp.astype(share.T @ Y, xp.float64) for share in shares])

        return visit


def _power_of_two(unit: float, precision: str) -> float:
    """Factor that brings samples of extreme size near one, where products cannot overflow; 1 for all others."""
    exponent = math.frexp(unit)[1]
    return math.ldexp(1.0, exponent) if abs(exponent) > (300 if precision == "float64" else 40) else 1.0


def evaluate(
    samples: Dataset, whitening: Whitening, objective: Objective, A: Array, quantities: Quantities, precision: str
) -> Statistics:
    """One pass: sums of the contrast at A (m, k), seen from inside the frame."""
    kernel = EvaluationKernel(
        objective, whitening.to_unmixing(A), whitening.mean, whitening.unit, quantities, precision
    )
    stats = samples.sum(kernel)
    if stats.G is None:
        return stats
    scale = whitening.unit / _power_of_two(whitening.unit, precision)
    G = whitening.pull_gradient(stats.G * scale)
    secondary = None if stats.secondary is None else whitening.pull_gradient(stats.secondary * scale)
    inactive = None if stats.inactive is None else whitening.pull_matrices(stats.inactive)
    xp = Backend.of(G).xp
    gz = xp.sum(G * A, axis=1)  # sum g z^T is G A^T
    extra = stats.extra if secondary is None else {**stats.extra, "beside_value": xp.sum(secondary * A, axis=1)}
    value = gz if stats.value is None else stats.value
    return replace(stats, G=G, inactive=inactive, secondary=secondary, gz=gz, value=value, extra=extra)


def code_moments(stats: Statistics) -> CodeMoments:
    """Moments of the codes under the contrast that was summed, where the sums are."""
    return CodeMoments(*(total / stats.weight for total in (stats.gz, stats.g2, stats.slope, stats.z2)))
