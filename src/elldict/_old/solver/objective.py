"""Objectives: functions of one code, summed over samples and atoms in one pass.

An objective F has a derivative g and a second derivative, its slope. `solver/evaluate.py` sums them up.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Protocol

from elldict._old.backend.base import (
    NUMPY,
    Array,
    Backend,
    BufferedWork,
    FreshWork,
    Work,
    make_workspace,
)


class Quantities(enum.Flag):
    """What a pass sums up beside the value; a power step needs less than an error bar."""

    GRADIENT = enum.auto()
    MOMENTS = enum.auto()
    INACTIVE = enum.auto()
    CROSSED = enum.auto()


BY_CODE = Quantities.INACTIVE | Quantities.CROSSED
"""What is no sum over rows of a function of one code."""

Factors = tuple[Array, Array]  # two arrays whose product, entry by entry, is meant: it is summed without being stored


@dataclass(slots=True)  # not frozen, as the next two: every tile makes a dozen of them, which would take twice as long
class Summed:
    """Sums over the rows of the tile, made by a kernel that stores no array of codes."""

    total: Array  # (m,), float64


Part = Array | Factors | Summed


@dataclass(slots=True)
class Weighted:
    """A sum of parts, each with a factor for every atom, and a constant.

    Factors and constant multiply the sums over a tile, m numbers, and not every code.
    """

    parts: tuple[tuple[Any, Part], ...]
    constant: Any = 0.0

    def expand(self) -> Array:
        """Return the term code by code."""
        result = self.constant
        for factor, part in self.parts:
            result = result + factor * (part[0] * part[1] if isinstance(part, tuple) else part)
        return result


Term = Part | Weighted


@dataclass(slots=True)
class Terms:
    """An objective at the codes of one tile. All arrays have the shape of the codes, (b, m)."""

    g: Array  # derivative of F, but for the gain and for what the objective says it leaves out (l_p: the factor p)
    gain: Any = 1.0  # a factor of g: a float, or an array with one for each atom
    slope: Term | None = None  # second derivative F''
    value: Term | None = None  # F itself; None says F = gain g z, whose sum follows from the gradient
    z2: Part | None = None  # squares of the codes, if at hand
    g2: Part | None = None  # squares of g, without the factor, if at hand
    inactive: Array | None = None  # probability that a code is zero but for noise
    secondary: Array | None = None  # derivative of a second objective at the same codes
    extra: Mapping[str, Term] = field(default_factory=dict)


def sum_term(term: Term, n_rows: float, work: Work, xp: Any, known: dict[tuple[int, ...], Array]) -> Array:
    """Column sums (m,) of a term over the rows of a tile, in float64; `n_rows` is their number, or their weight.

    `known` holds the sums of parts that several terms share, by identity of their arrays.
    """
    if isinstance(term, Summed):
        return term.total
    parts: tuple[tuple[Any, Part], ...] = ((1.0, term),)
    result = None
    if isinstance(term, Weighted):
        parts, result = term.parts, term.constant * n_rows
    for factor, part in parts:
        if isinstance(part, Summed):
            summed = part.total
        else:
            arrays = part if isinstance(part, tuple) else (part,)
            key = tuple(map(id, arrays))
            if key not in known:
                whole = arrays[0] if len(arrays) == 1 else work.map(xp.multiply, *arrays, into="tile product")
                known[key] = work.column_sums(whole)
            summed = known[key]
        result = summed if result is None else result + factor * summed
    return result


def cross_term(term: Term, Z: Array, work: Work, xp: Any) -> Array:
    """Sums (m, m) over the rows of a tile of a term of atom i times z_j^2, for the codes Z (b, m), in float64."""
    squares = work.map(xp.multiply, Z, Z, into="tile squares")
    weighted = term if isinstance(term, Weighted) else Weighted(((1.0, term),))
    result = weighted.constant * work.column_sums(squares)[None, :]
    for factor, part in weighted.parts:
        assert not isinstance(part, Summed), "a kernel that gives sums only was asked for codes"
        whole = work.map(xp.multiply, *part, into="tile product") if isinstance(part, tuple) else part
        result = result + factor * xp.astype(work.matmul(whole.T, squares, into="tile crossed"), xp.float64)
    return result


def find_kernel(name: str, quantities: Quantities, work: Work) -> Callable[..., Any] | None:
    """Kernel of this name, where there is one and a pass asks for no more than g and sums over rows."""
    if work.fused is None or quantities & BY_CODE:
        return None
    if work.fused.needs_moments and Quantities.MOMENTS not in quantities:
        return None
    return getattr(work.fused, name, None)


def _ask(quantities: Quantities) -> dict[str, bool]:
    """Arguments by which a kernel is told that moments are not wanted; not all kernels know of it."""
    return {} if Quantities.MOMENTS in quantities else {"moments": False}


class Objective(Protocol):
    """A function of one code, summed over samples and atoms."""

    @property
    def fixed(self) -> bool:
        """Whether the objective stays the same while A moves."""
        ...

    @property
    def convex(self) -> bool:
        """Whether F is convex, but for a multiple of z^2: then the power step never lowers it."""
        ...

    def codes(self, Y: Array, unmixing: Array, work: Work, xp: Any) -> tuple[Array, Array]:
        """Samples (b, n) that the gradient sums over, and their codes (b, m), from the samples Y (b, n) of a tile.

        `unmixing` (n, m) makes codes of unit mean square.
        """
        ...

    def terms(self, Z: Array, quantities: Quantities, work: Work, xp: Any) -> Terms:
        """Evaluate at the codes Z (b, m). Scratch memory comes from `work`; Z is not changed."""
        ...

    def updated(self, A: Array, largest_move: float) -> Objective:
        """Objective to use at A, after a step in which no atom moved further than this; itself if unchanged."""
        ...

    def resumed(self, before: Objective) -> Objective:
        """The objective of a phase that follows one which ended with `before`."""
        ...


class LinearCodes:
    """Codes are the products of samples with atoms, and the objective is fixed."""

    fixed = True
    convex: ClassVar[bool] = False

    def codes(self, Y: Array, unmixing: Array, work: Work, xp: Any) -> tuple[Array, Array]:  # noqa: ARG002
        """Return the samples themselves, and their codes."""
        return Y, work.matmul(Y, unmixing, into="tile codes")

    def updated(self, A: Array, largest_move: float) -> Any:  # noqa: ARG002
        """Return the objective itself."""
        return self

    def resumed(self, before: Objective) -> Any:  # noqa: ARG002
        """Return the objective itself."""
        return self


@dataclass(frozen=True)
class Lp(LinearCodes):
    """F = |z|^p, g = sign(z)|z|^(p-1): the paper's objective, with the factor p left out of g and slope.

    |z|^(p-2) is computed once and serves all three. Below 2 the norm is minimised: F = p z^2/2 + 1 - (z^2 + 1)^(p/2).
    Slopes of |z|^p would diverge at zero, so |z| is sqrt(z^2 + 1) there, smoothed over one root mean square of all
    codes; with p = 1 that is close to log cosh z. The sum of z^2, which no rotation changes, makes F convex, zero at
    zero and larger the larger the code, as it is above 2.

    If `signed`, the objective is sum_i s_i F(z_i), with a negative sign for atoms whose codes are less sparse than
    Gaussian ones; `evaluate` chooses the signs by the sums of a pass.
    """

    convex: ClassVar[bool] = True
    p: float = 3.0
    signed: bool = False
    if_in_doubt: float = 1.0  # sign of atoms whose codes tell none

    def terms(self, Z: Array, quantities: Quantities, work: Work, xp: Any) -> Terms:
        """Evaluate at the codes Z (b, m)."""
        if self.p < 2:
            return self._smooth_terms(Z, quantities, work, xp)
        kernel = find_kernel("lp", quantities, work)
        if kernel is not None:
            return self._fused_terms(*kernel(Z, self.p, **_ask(quantities)))
        magnitude = work.map(xp.abs, Z, into="magnitude")
        weight = magnitude  # |z|^(p-2)
        if self.p != 3:
            weight = raise_to_power(magnitude, self.p - 2, work, xp, into="weight")
        if Quantities.MOMENTS not in quantities:
            return Terms(g=work.map(xp.multiply, weight, Z, into="weight"))
        g = work.map(xp.multiply, weight, Z, into="l_p g")
        return Terms(g=g, slope=Weighted(((self.p - 1, weight),)), extra={"magnitude": magnitude})

    def _fused_terms(self, g: Array, sums: Mapping[str, Array]) -> Terms:
        """Terms of what the kernel found."""
        if not sums:
            return Terms(g=g)
        slope = Weighted(((self.p - 1, Summed(sums["weight"])),))
        extra = {"magnitude": Summed(sums["magnitude"])}
        return Terms(g=g, slope=slope, z2=Summed(sums["z2"]), g2=Summed(sums["g2"]), extra=extra)

    def _smooth_terms(self, Z: Array, quantities: Quantities, work: Work, xp: Any) -> Terms:
        """The same for p < 2, with s = z^2 + 1: g = z - z s^(p/2-1), slope 1 - (p-1) s^(p/2-1) - (2-p) s^(p/2-2)."""
        kernel = find_kernel("smooth_lp", quantities, work) if self.p == 1 else None
        if kernel is not None:
            return self._fused_smooth_terms(*kernel(Z, **_ask(quantities)))
        z2 = work.map(xp.multiply, Z, Z, into="l_p square")
        s = work.map(xp.add, z2, 1, into="l_p smoothed")
        if self.p == 1:
            power = work.map(xp.sqrt, s, into="l_p power")
        else:
            power = work.map(xp.pow, s, self.p / 2, into="l_p power")
        weight = work.map(xp.divide, power, s, into="weight")  # s^(p/2-1)
        g = work.map(xp.subtract, Z, work.map(xp.multiply, weight, Z, into="l_p g"), into="l_p g")
        value = Weighted(((self.p / 2, z2), (-1.0, power)), constant=1.0)
        if Quantities.MOMENTS not in quantities:
            return Terms(g, value=value, z2=z2)
        steep = work.map(xp.divide, weight, s, into="l_p steep")
        slope = Weighted(((1 - self.p, weight), (self.p - 2, steep)), constant=1.0)
        magnitude = work.map(xp.abs, Z, into="magnitude")
        return Terms(g, slope=slope, value=value, z2=z2, extra={"magnitude": magnitude})

    def _fused_smooth_terms(self, g: Array, sums: Mapping[str, Array]) -> Terms:
        """Terms of what the kernel found."""
        parts = {name: Summed(total) for name, total in sums.items()}
        value = Weighted(((self.p / 2, parts["z2"]), (-1.0, parts["power"])), constant=1.0)
        if "weight" not in parts:
            return Terms(g, value=value, z2=parts["z2"])
        slope = Weighted(((1 - self.p, parts["weight"]), (self.p - 2, parts["steep"])), constant=1.0)
        return Terms(g, 1.0, slope, value, parts["z2"], parts["g2"], extra={"magnitude": parts["magnitude"]})


@dataclass(frozen=True)
class CentredL4(Lp):
    """Kaiser's varimax: sum z^4 less the square of the sum of z^2 over the number of samples, atom by atom.

    It is that of l_4 with z^3 - z E z^2 in place of g = z^3. The mean squares follow from the second moments of the
    samples and A: a pass sums up what it does for l_4, and `evaluate` subtracts the rest.
    """

    convex: ClassVar[bool] = False
    p: float = 4.0


@dataclass(frozen=True)
class WithSecondary:
    """One objective, and l_p at the same codes: for comparing two estimates in one pass."""

    primary: Objective
    secondary: Lp
    from_next_step: bool = False  # leave l_p out until A has moved once

    @property
    def fixed(self) -> bool:
        """Whether the primary objective is fixed."""
        return self.primary.fixed

    @property
    def convex(self) -> bool:
        """Whether the primary objective is convex."""
        return self.primary.convex

    def codes(self, Y: Array, unmixing: Array, work: Work, xp: Any) -> tuple[Array, Array]:
        """Codes of the primary objective."""
        return self.primary.codes(Y, unmixing, work, xp)

    def terms(self, Z: Array, quantities: Quantities, work: Work, xp: Any) -> Terms:
        """Terms of the primary objective, with those of l_p and the product of both g as extras."""
        if self.from_next_step:
            return self.primary.terms(Z, quantities, work, xp)
        kernel = find_kernel("likelihood", quantities, work)
        can_fuse = kernel is not None and self.secondary.p > 2 and Quantities.MOMENTS in quantities
        if can_fuse and hasattr(self.primary, "fused"):
            both: Terms = self.primary.fused(Z, kernel, self.secondary)
            if Quantities.GRADIENT in quantities:
                return both
            return replace(both, extra={**both.extra, "secondary_value": (both.secondary, Z)})
        one, two = self.primary.terms(Z, quantities, work, xp), self.secondary.terms(Z, quantities, work, xp)
        if Quantities.MOMENTS not in quantities:
            return replace(one, secondary=two.g)
        extra = {
            "secondary_magnitude": two.extra["magnitude"],
            "secondary_slope": two.slope,
            "secondary_g2": (two.g, two.g),
            "cross": Weighted(((one.gain, (one.g, two.g)),)),
        }
        if two.value is not None:
            extra["secondary_value"] = two.value
        if Quantities.GRADIENT not in quantities:
            extra["secondary_value" if two.value is None else "secondary_gz"] = (two.g, Z)
        return replace(one, secondary=two.g, extra={**one.extra, **extra})

    def updated(self, A: Array, largest_move: float) -> WithSecondary:
        """Update the primary objective."""
        primary = self.primary.updated(A, largest_move)
        if primary is self.primary and not self.from_next_step:
            return self
        return WithSecondary(primary, self.secondary)

    def resumed(self, before: Objective) -> Objective:
        """Resume the primary objective."""
        return replace(self, primary=self.primary.resumed(primary_of(before)))


def primary_of(objective: Objective) -> Objective:
    """Return the objective that A maximises, without a secondary one."""
    return objective.primary if isinstance(objective, WithSecondary) else objective


def compute_derivatives(objective: Objective, Z: Array, signs: Array | None = None) -> tuple[Array, Array]:
    """Return g and slope code by code, for a few codes Z (b, m) of atoms with these signs."""
    g, slope = _find_derivatives(objective, Z)
    if signs is None:
        return g, slope
    s, twice = _mirror(g, Z, signs)
    return s * g + twice * Z, s * slope + twice


def _find_derivatives(objective: Objective, Z: Array) -> tuple[Array, Array]:
    """Return g and slope code by code, of atoms without signs: by a kernel, where the objective has one."""
    found: tuple[Array, Array] | None = objective.derivatives(Z) if hasattr(objective, "derivatives") else None
    if found is not None:
        return found
    backend = Backend.of(Z)
    work = BufferedWork() if backend == NUMPY else FreshWork()  # not one whose kernels give sums only
    terms = objective.terms(Z, Quantities.GRADIENT | Quantities.MOMENTS, work, backend.xp)
    slope = terms.slope.expand() if isinstance(terms.slope, Weighted) else terms.slope
    return terms.gain * terms.g, slope


def compute_gradient(objective: Objective, Z: Array, signs: Array | None = None) -> Array:
    """Return g code by code, for codes Z (b, m) of atoms with these signs, where slopes are not wanted."""
    backend = Backend.of(Z)
    work = make_workspace(backend, "float64")
    terms = objective.terms(Z, Quantities.GRADIENT, work, backend.xp)
    g = terms.gain * terms.g
    if signs is None:
        return g
    s, twice = _mirror(g, Z, signs)
    return s * g + twice * Z


def _mirror(g: Array, Z: Array, signs: Array) -> tuple[Array, Array]:
    """Factors (m,) of g and of Z (b, m) that make g of atoms with these signs, as `Statistics.with_signs` has it."""
    backend = Backend.of(Z)
    xp, s = backend.xp, backend.asarray(signs, "float64")
    return s, (1 - s) * xp.mean(g * Z, axis=0) / xp.mean(Z * Z, axis=0)


def sum_values(objective: Objective, Z: Array) -> Array:
    """Sums (m,) of F over codes Z (b, m), for an objective that knows its values."""
    backend, quantities = Backend.of(Z), Quantities.GRADIENT | Quantities.MOMENTS
    work = make_workspace(backend, "float64")
    terms = objective.terms(Z, quantities, work, backend.xp)
    assert terms.value is not None, "the objective gives no values"
    return sum_term(terms.value, float(Z.shape[0]), work, backend.xp, {})


def raise_to_power(x: Array, exponent: float, work: Work, xp: Any, into: str) -> Array:
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
