"""Contrasts: what is summed over the samples and maximised."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import numpy as np

from elldict.kernels import Work
from elldict.kernels.fused import Fused
from elldict.solver.code_model import CodeModel
from elldict.solver.messages import CorruptedModel, Round, cleaned
from elldict.solver.terms import Needs, Summed, Term, Terms, Weighted
from elldict.space import Array, Space


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
class BernoulliGaussian(Linear):
    """F = log q(z), the log-likelihood of codes that are zero or Gaussian, plus noise.

    The linear part of its derivative is left out: it belongs to sum z^2, which no rotation changes. What remains, times
    the variance of the noise, is g = E[x|z], the best guess of the code without noise. So a power step with this
    contrast is a step of expectation maximisation.
    """

    model: CodeModel
    known: dict[tuple[Space, str], Lines] = field(default_factory=dict, repr=False, compare=False, kw_only=True)

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "known": {}}  # pickled for other processes, which have spaces of their own

    def terms(self, Z: Array, need: Needs, work: Work, xp: Any) -> Terms:
        """Contrast of the codes Z (b, m)."""
        if work.fused is not None and Needs.MOMENTS in need and Needs.IDLE not in need:
            return self.fused(Z, work.fused, beside=None)
        lines = self.lines(Z)
        z2 = work.map(xp.multiply, Z, Z, into="square")
        half = work.map(xp.multiply, z2, lines.rate, into="logit")
        half = work.map(xp.add, half, lines.offset, into="logit")
        swing = work.map(xp.tanh, half, into="swing")  # the activity is (1 + swing) / 2
        g = work.map(xp.add, work.map(xp.multiply, swing, Z, into="g"), Z, into="g")
        value = self._value(z2, half, swing, lines, work, xp)
        idle = 0.5 - 0.5 * swing if Needs.IDLE in need else None
        if Needs.MOMENTS not in need:
            return Terms(g, lines.kept, value=value, z2=z2, idle=idle)
        gz = work.map(xp.multiply, g, Z, into="gz")
        missing = work.map(xp.subtract, swing, 1, into="missing")  # minus twice the probability of being idle
        bend = (-2 * lines.steep * lines.kept, (gz, missing))
        slope = Weighted(((lines.kept, missing), bend), constant=2 * lines.kept)
        return Terms(g, lines.kept, slope=slope, value=value, z2=z2, idle=idle)

    def fused(self, Z: Array, kernels: Fused, beside: Lp | None) -> Terms:
        """The same by kernels that read the codes once, with l_p beside it if asked."""
        lines = self.lines(Z)
        g, other, found = kernels.likelihood(Z, lines.offset, lines.rate, None if beside is None else beside.p)
        sums = {name: Summed(total) for name, total in found.items()}
        bend = (-2 * lines.steep * lines.kept, sums["bend"])
        value = ((-2.0, sums["below"]), (-1.0, sums["logs"]), (-lines.precision, sums["z2"]))
        extra: dict[str, Term] = {}
        if beside is not None:
            extra["beside_magnitude"] = sums["magnitude"]
            extra["beside_slope"] = Weighted(((beside.p - 1, sums["weight"]),))
            extra["beside_g2"] = sums["beside_g2"]
            extra["cross"] = Weighted(((lines.kept, sums["cross"]),))
        return Terms(
            g,
            lines.kept,
            slope=Weighted(((lines.kept, sums["missing"]), bend), constant=2 * lines.kept),
            value=Weighted(value, constant=lines.level),
            z2=sums["z2"],
            g2=sums["g2"],
            beside=other,
            extra=extra,
        )

    def _value(self, z2: Array, half: Array, swing: Array, lines: Lines, work: Work, xp: Any) -> Weighted:
        """Log q(z) = log(1 + e^(-2h)) + log of the active law, written so that nothing overflows or cancels.

        log(1 + e^(-2h)) = log 2 - 2 min(h, 0) - log(1 + |tanh h|).
        """
        below = work.map(xp.minimum, half, 0, into="below")
        logs = work.map(xp.add, work.map(xp.abs, swing, into="logs"), 1, into="logs")
        logs = work.map(xp.log, logs, into="logs")
        return Weighted(((-2.0, below), (-1.0, logs), (-lines.precision, z2)), constant=lines.level)

    def lines(self, Z: Array) -> Lines:
        """Lines for codes like these."""
        space, dtype = Space.of(Z), str(Z.dtype).rsplit(".", maxsplit=1)[-1]
        if (space, dtype) not in self.known:
            self.known[space, dtype] = Lines.of(self.model, space, dtype)
        return self.known[space, dtype]


@dataclass(frozen=True)
class Lines:
    """What multiplies and shifts the codes of each atom, where the codes are, and their sums, in float64."""

    offset: Array  # halves of the line of the log odds, as tanh wants them
    rate: Array
    steep: Array  # the rate for sums
    kept: Array  # half of the share of an active code that is no noise
    precision: Array  # half of one over the variance of an active code
    level: Array  # logarithm of the density of an active code at zero, and log 2

    @classmethod
    def of(cls, model: CodeModel, space: Space, dtype: str) -> Lines:
        """Lines for codes of this precision in this space."""
        halves, sums = cls.rows(model.density, model.power, np.full_like(model.power, model.noise), np)
        return cls(*(space.asarray(row, dtype) for row in halves), *(space.asarray(row, "float64") for row in sums))

    @staticmethod
    def rows(density: Array, power: Array, noise: Array, xp: Any) -> tuple[tuple[Array, Array], tuple[Array, ...]]:
        """The halves for codes, and what is for sums; parameters are arrays (m,) of one library."""
        whole = power + noise
        rate = (1 / noise - 1 / whole) / 4
        offset = (xp.log(density) - xp.log1p(-density) - 0.5 * xp.log(whole / noise)) / 2
        level = math.log(2) + xp.log(density) - 0.5 * xp.log(2 * math.pi * whole)
        return (offset, rate), (rate, power / whole / 2, 0.5 / whole, level)


@dataclass(frozen=True)
class SparseCorruption(BernoulliGaussian):
    """The same likelihood for codes of samples from which the corruption has been taken out, at the A in question.

    `model` is the law of those codes, its noise what the cleaning leaves.
    """

    law: CorruptedModel
    rounds: tuple[Round, ...]

    def codes(self, Y: Array, decode: Array, work: Work, xp: Any) -> tuple[Array, Array]:
        """Cleaned samples, and their codes."""
        return super().codes(cleaned(Y, decode, self.rounds, work, xp), decode, work, xp)


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
        if fused and isinstance(self.first, BernoulliGaussian) and isinstance(self.second, Lp):
            assert work.fused is not None
            both = self.first.fused(Z, work.fused, self.second)
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
