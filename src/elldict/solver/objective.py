"""Objectives: functions of one code, summed over samples and atoms in one pass.

An objective F has a derivative g and a second derivative, its slope. `evaluate` is one pass: it sums them over all
samples at A. With G = sum g(z) y^T every direction of `directions` moves A.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

from elldict.backend.base import (
    NUMPY,
    STORED,
    Array,
    Backend,
    BufferedWork,
    FreshWork,
    Work,
    make_workspace,
    to_numpy,
    total,
)
from elldict.data.dataset import Dataset
from elldict.data.statistics import Loudness, Whitening
from elldict.theory.error_bars import CodeMoments, choose_signs, find_gaussian, gaussian_value, sparsity_score


class Quantities(enum.Flag):
    """What a pass sums up beside the value; a power step needs less than an error bar."""

    GRADIENT = enum.auto()
    MOMENTS = enum.auto()
    INACTIVE = enum.auto()


Factors = tuple[Array, Array]  # two arrays whose product, entry by entry, is meant: it is summed without being stored


@dataclass(frozen=True)
class Summed:
    """Sums over the rows of the tile, made by a kernel that stores no array of codes."""

    total: Array  # (m,), float64


Part = Array | Factors | Summed


@dataclass(frozen=True)
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


@dataclass(frozen=True)
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


def sum_term(term: Term, n_rows: int, work: Work, xp: Any, known: dict[tuple[int, ...], Array]) -> Array:
    """Column sums (m,) of a term over the rows of a tile, in float64.

    `known` holds the sums of parts that several terms share, by identity of their arrays.
    """
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
        if work.fused is not None and Quantities.MOMENTS in quantities:
            g, sums = work.fused.lp(Z, self.p)
            slope = Weighted(((self.p - 1, Summed(sums["weight"])),))
            extra = {"magnitude": Summed(sums["magnitude"])}
            return Terms(g=g, slope=slope, z2=Summed(sums["z2"]), g2=Summed(sums["g2"]), extra=extra)
        magnitude = work.map(xp.abs, Z, into="magnitude")
        weight = magnitude  # |z|^(p-2)
        if self.p != 3:
            weight = raise_to_power(magnitude, self.p - 2, work, xp, into="weight")
        if Quantities.MOMENTS not in quantities:
            return Terms(g=work.map(xp.multiply, weight, Z, into="weight"))
        g = work.map(xp.multiply, weight, Z, into="l_p g")
        return Terms(g=g, slope=Weighted(((self.p - 1, weight),)), extra={"magnitude": magnitude})

    def _smooth_terms(self, Z: Array, quantities: Quantities, work: Work, xp: Any) -> Terms:
        """The same for p < 2, with s = z^2 + 1: g = z - z s^(p/2-1), slope 1 - (p-1) s^(p/2-1) - (2-p) s^(p/2-2)."""
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
        fused = work.fused is not None and Quantities.MOMENTS in quantities and Quantities.INACTIVE not in quantities
        if fused and hasattr(self.primary, "fused") and self.secondary.p > 2:  # which is what the kernel sums up
            both: Terms = self.primary.fused(Z, work.fused, self.secondary)
            alone = {} if Quantities.GRADIENT in quantities else {"secondary_value": (both.secondary, Z)}
            return replace(both, extra={**both.extra, **alone})
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
    backend = Backend.of(Z)
    work = BufferedWork() if backend == NUMPY else FreshWork()  # not one whose kernels give sums only
    terms = objective.terms(Z, Quantities.GRADIENT | Quantities.MOMENTS, work, backend.xp)
    slope = terms.slope.expand() if isinstance(terms.slope, Weighted) else terms.slope
    g = terms.gain * terms.g
    if signs is None:
        return g, slope
    xp, s = backend.xp, backend.asarray(signs, "float64")
    twice = (1 - s) * xp.mean(g * Z, axis=0) / xp.mean(Z * Z, axis=0)  # as `Statistics.with_signs` has it
    return s * g + twice * Z, s * slope + twice


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


@dataclass(frozen=True)
class Statistics:
    """Sums over samples. What was not asked for is None.

    A tile sums over raw samples y (n,); `evaluate` brings gradients to whitened coordinates (k,) and fills in `gz`.
    """

    weight: float
    value: Array = None  # (m,)  sum F
    G: Array = None  # (m, n)  sum g(z) y^T
    slope: Array = None  # (m,)  sum F''
    g2: Array = None  # (m,)  sum g^2
    z2: Array = None  # (m,)  sum z^2
    gz: Array = None  # (m,)  sum g z
    inactive: Array = None  # (m, n, n)  sum P(code is inactive) y y^T
    secondary: Array = None  # (m, n)  gradient of the secondary objective
    extra: Mapping[str, Array] = field(default_factory=dict)  # (m,) each
    signs: Array = None  # (m,)  of the atoms, of a signed objective; those of all others are positive
    known_mean: float | None = None  # `mean_value`, where it was read with other numbers

    def __add__(self, other: Statistics) -> Statistics:
        totals: dict[str, Any] = {"extra": {}}
        for name in ("value", "G", "slope", "g2", "z2", "gz", "inactive", "secondary"):
            a, b = getattr(self, name), getattr(other, name)
            totals[name] = None if a is None or b is None else a + b
        for name in self.extra:
            totals["extra"][name] = self.extra[name] + other.extra[name]
        return Statistics(weight=self.weight + other.weight, **totals)

    @cached_property
    def mean_value(self) -> float:
        """Mean of F over samples and atoms."""
        if self.known_mean is not None:
            return self.known_mean
        return total(self.value / self.weight) / int(self.value.shape[0])

    @cached_property
    def moments(self) -> CodeMoments:
        """Moments of the codes under the objective that was summed."""
        r = self.weight
        return CodeMoments(self.gz / r, self.g2 / r, self.slope / r, self.z2 / r)

    def keep_moments(self) -> Statistics:
        """The same without gradients, on the host."""
        kept: dict[str, Any] = {"extra": {}}
        for name in ("value", "slope", "g2", "z2", "gz"):
            kept[name] = to_numpy(getattr(self, name))
        for name, array in self.extra.items():
            kept["extra"][name] = to_numpy(array)
        return Statistics(self.weight, signs=None if self.signs is None else to_numpy(self.signs), **kept)

    @cached_property
    def n_negative(self) -> int:
        """Number of atoms with a negative sign."""
        return 0 if self.signs is None else round(total(1 - self.signs) / 2)

    def with_signs(self, signs: Array, p: float, A: Array, second_moments: Array | None) -> Statistics:
        """The same of l_p with these signs of the atoms A; `second_moments` (k, k) are those of whitened samples.

        g of a negative atom becomes 2 c z - g, with c = E g z / E z^2: its mirror image at its linear part. Linear
        parts of the same size cancel in the angle of two atoms, with all the noise of E z_i z_j. The atom counts with
        2 E F(x) - E F(z), x Gaussian of unit variance: the more, the further its codes are from Gaussian ones.
        """
        xp = Backend.of(signs).xp
        turned = (1 - signs) / 2
        rows = None if self.G is None else (A if second_moments is None else A @ second_moments)
        v = xp.ones_like(signs) if second_moments is None else xp.sum((A @ second_moments) * A, axis=1)
        twice = 2 * turned * self.gz / v
        return replace(
            self,
            G=None if rows is None else signs[:, None] * self.G + twice[:, None] * rows,
            value=signs * self.value + turned * (2 * self.weight * gaussian_value(p)),
            slope=signs * self.slope + twice,
            signs=signs,
        )

    def with_secondary_signs(self, p: float, A: Array, second_moments: Array | None) -> Statistics:
        """The same with signs for the secondary objective, l_p."""
        lp = replace(self.of_secondary(), G=self.secondary)
        lp = lp.with_signs(choose_signs(lp.moments, lp.weight, p), p, A, second_moments)
        linear = (1 - lp.signs) * lp.gz / self.z2 * self.gz
        extra = {**self.extra, "secondary_value": lp.value, "secondary_gz": lp.gz, "secondary_slope": lp.slope}
        extra |= {"cross": lp.signs * self.extra["cross"] + linear, "secondary_signs": lp.signs}
        return replace(self, secondary=lp.G, extra=extra)

    def of_secondary(self) -> Statistics:
        """Return the statistics of the secondary objective."""
        extra = self.extra
        return Statistics(
            weight=self.weight,
            value=extra["secondary_value"],
            gz=extra.get("secondary_gz", extra["secondary_value"]),
            slope=extra["secondary_slope"],
            g2=extra["secondary_g2"],
            z2=self.z2,
            signs=extra.get("secondary_signs"),
            extra={"magnitude": extra["secondary_magnitude"]},
        )


def score_sparsity(stats: Statistics) -> NDArray[np.float64]:
    """Standard errors by which the codes of each atom are sparser than Gaussian ones (m,); statistics of l_p.

    Of atoms with a negative sign, by which they are less sparse.
    """
    r = stats.weight
    scores = sparsity_score(to_numpy(stats.extra["magnitude"]) / r, to_numpy(stats.z2) / r, r)
    return scores if stats.signs is None else to_numpy(stats.signs) * scores


def find_unidentifiable(stats: Statistics, n_directions: int) -> NDArray[np.bool_]:
    """Atoms (m,) that samples do not tell from their mixtures, found among n directions; statistics of l_p.

    Two or more whose codes look Gaussian: one alone is told from all others by these. Without signs also those with
    kappa = E g z - E z^2 E g' <= 0, where l_p has no maximum.
    """
    gaussian = find_gaussian(score_sparsity(stats), n_directions)
    if stats.signs is None:
        gaussian |= to_numpy(stats.gz) <= to_numpy(stats.z2) * to_numpy(stats.slope) / stats.weight
    alone = np.sum(gaussian) == 1 and stats.signs is not None and len(gaussian) == n_directions
    return np.zeros_like(gaussian) if alone else gaussian


@dataclass(frozen=True)
class EvaluationKernel:
    """Statistics of an objective over one tile."""

    objective: Objective
    B: Array  # (m, n) rows that make codes
    mean: Array | None  # (n,)
    scale: float  # of the whitening
    quantities: Quantities
    precision: str
    loudness: Loudness | None = None
    whitener: Array | None = None  # (k, n) rows that whiten samples, where their codes do not tell how loud they are

    def bind(self, backend: Backend) -> Callable[[Array], Statistics]:
        """Return the function that evaluates one tile; called once by every thread of `Dataset.sum`."""
        xp, stored = backend.xp, STORED[self.precision]
        dtype, work = getattr(xp, stored), make_workspace(backend, self.precision)
        rescale = _power_of_two(self.scale, self.precision)
        B = backend.asarray(self.B, "float64")
        unmixing = xp.astype((B if rescale == 1 else B / rescale).T, dtype)
        mean = None if self.mean is None else backend.asarray(self.mean, stored)
        whitener = None if self.whitener is None else backend.asarray(self.whitener / rescale, stored).T
        with_gradient, with_moments = Quantities.GRADIENT in self.quantities, Quantities.MOMENTS in self.quantities

        def evaluate_tile(Y: Array) -> Statistics:
            Y = xp.astype(Y, dtype, copy=False)
            # centred here, not in the products: a large mean would cost them their digits
            Y = Y if mean is None else work.map(xp.subtract, Y, mean, into="tile samples")
            Y = Y if rescale == 1 else work.map(xp.multiply, Y, rescale, into="tile samples")
            Y, Z = self.objective.codes(Y, unmixing, work, xp)
            if self.loudness is not None:
                scales = self.loudness.compute_scales(Z if whitener is None else Y @ whitener)
                Z = work.map(xp.multiply, Z, scales, into="scaled codes")
                Y = work.map(xp.multiply, Y, scales, into="scaled samples")
            terms, n_rows = self.objective.terms(Z, self.quantities, work, xp), int(Y.shape[0])
            known: dict[tuple[int, ...], Array] = {}
            scaled = not isinstance(terms.gain, float) or terms.gain != 1.0
            G = secondary = inactive = value = slope = g2 = z2 = gz = None
            extra = {}
            # sums of tiles are float64, and copies of buffers that the next tile writes over: 10^7 float32 terms would
            # lose five digits
            if with_gradient:
                G = xp.astype(work.matmul(terms.g.T, Y, into="tile gradient"), xp.float64)
                if scaled:
                    G = (terms.gain if isinstance(terms.gain, float) else terms.gain[:, None]) * G
                if terms.secondary is not None:
                    secondary = xp.astype(work.matmul(terms.secondary.T, Y, into="tile gradient"), xp.float64)
            if with_moments:
                slope = sum_term(terms.slope, n_rows, work, xp, known)
                g2 = sum_term((terms.g, terms.g) if terms.g2 is None else terms.g2, n_rows, work, xp, known)
                g2 = terms.gain**2 * g2 if scaled else g2
                z2 = sum_term((Z, Z) if terms.z2 is None else terms.z2, n_rows, work, xp, known)
                gz = (
                    None
                    if with_gradient
                    else sum_term(Weighted(((terms.gain, (terms.g, Z)),)), n_rows, work, xp, known)
                )
                for name, term in terms.extra.items():
                    extra[name] = sum_term(term, n_rows, work, xp, known)
            if Quantities.INACTIVE in self.quantities:
                inactive = _sum_inactive(terms, Y, xp)
            if terms.value is not None or not with_gradient:
                F = Weighted(((terms.gain, (terms.g, Z)),)) if terms.value is None else terms.value
                value = sum_term(F, n_rows, work, xp, known)
            return Statistics(float(n_rows), value, G, slope, g2, z2, gz, inactive, secondary, extra)

        return evaluate_tile


def _sum_inactive(terms: Terms, Y: Array, xp: Any) -> Array:
    """Sum of P(code is inactive) y y^T over a tile, for each atom (m, n, n)."""
    weights = terms.inactive
    assert weights is not None, "only the likelihood knows which codes are inactive"
    weighted = (weights[:, i : i + 1] * Y for i in range(int(weights.shape[1])))
    return xp.stack([xp.astype(share.T @ Y, xp.float64) for share in weighted])


def _power_of_two(scale: float, precision: str) -> float:
    """Factor that brings samples of extreme size near one, where products cannot overflow; 1 for all others."""
    exponent = math.frexp(scale)[1]
    return math.ldexp(1.0, exponent) if abs(exponent) > (300 if precision == "float64" else 40) else 1.0


def evaluate(
    samples: Dataset, whitening: Whitening, objective: Objective, A: Array, quantities: Quantities, precision: str
) -> Statistics:
    """One pass: statistics of the objective at A (m, k), in whitened coordinates."""
    B = whitening.to_unmixing(A)
    loudness, whitener = whitening.loudness, None
    if loudness is not None and A.shape[0] < A.shape[1]:  # codes of all directions would tell |y|^2, these do not
        backend = Backend.of(A)
        whitener = whitening.to_unmixing(backend.xp.eye(int(A.shape[1]), dtype=A.dtype, device=backend.device))
    kernel = EvaluationKernel(objective, B, whitening.mean, whitening.scale, quantities, precision, loudness, whitener)
    stats = samples.sum(kernel)
    if stats.G is not None:  # otherwise value and gz come from the tiles
        stats = _bring_to_white(stats, whitening, A, precision)
    if Quantities.MOMENTS in quantities:
        if isinstance(objective, Lp) and objective.signed:
            signs = choose_signs(stats.moments, stats.weight, objective.p, objective.if_in_doubt)
            return stats.with_signs(signs, objective.p, A, whitening.second_moments)
        if isinstance(objective, WithSecondary) and objective.secondary.signed and not objective.from_next_step:
            return stats.with_secondary_signs(objective.secondary.p, A, whitening.second_moments)
    return stats


def _bring_to_white(stats: Statistics, whitening: Whitening, A: Array, precision: str) -> Statistics:
    """From sums over raw samples to derivatives by A, and what follows from them."""
    xp = Backend.of(stats.G).xp
    scale = whitening.scale / _power_of_two(whitening.scale, precision)
    G, secondary, inactive, extra = stats.G * scale, stats.secondary, stats.inactive, stats.extra
    secondary = None if secondary is None else secondary * scale
    W = whitening.to_white
    if W is not None:
        G = G @ W.T
        secondary = None if secondary is None else secondary @ W.T
        inactive = None if inactive is None else W @ inactive @ W.T
    if secondary is not None:
        name = "secondary_gz" if "secondary_value" in extra else "secondary_value"  # F = g z, but for p < 2
        extra = {**extra, name: xp.sum(secondary * A, axis=1)}
    gz = xp.sum(G * A, axis=1)  # sum g z^T is G A^T
    value = gz if stats.value is None else stats.value
    return replace(stats, G=G, inactive=inactive, secondary=secondary, gz=gz, value=value, extra=extra)
