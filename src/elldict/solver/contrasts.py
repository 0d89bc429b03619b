"""Contrasts: what is summed over the samples and maximised."""

from __future__ import annotations

import enum
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import numpy as np

from elldict.kernels import Work
from elldict.solver.code_model import CodeModel, logit_line
from elldict.solver.messages import CorruptedModel, Round, cleaned
from elldict.space import Array, Space


class Needs(enum.Flag):
    """What a pass has to bring home; a plain step asks for less than the judge."""

    GRADIENT = enum.auto()
    MOMENTS = enum.auto()
    IDLE = enum.auto()


Factors = tuple[Array, Array]
"""Two arrays whose product, entry by entry, is meant: it is summed without being stored."""


@dataclass(frozen=True)
class Terms:
    """Contrast of the codes of one tile. All arrays have the shape of the codes, (b, m)."""

    g: Array  # derivative F'
    slope: Array | None = None  # second derivative F''
    value: Array | None = None  # F itself; None says F = g z, whose sum falls out of the gradient
    idle: Array | None = None  # probability that a code is zero but for noise
    beside: Array | None = None  # derivative of another contrast of the same codes
    extra: Mapping[str, Array | Factors] = field(default_factory=dict)


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
        magnitude = work.map(xp.abs, Z, into="magnitude")
        weight = power(magnitude, self.p - 2, work, xp, into="weight")
        if Needs.MOMENTS not in need:
            return Terms(g=work.map(xp.multiply, weight, Z, into="weight"))
        g = work.map(xp.multiply, weight, Z, into="g")
        slope = work.map(xp.multiply, weight, self.p - 1, into="slope")
        return Terms(g=g, slope=slope, extra={"magnitude": magnitude})


@dataclass(frozen=True)
class BernoulliGaussian(Linear):
    """F = log q(z), the log-likelihood of codes that are zero or Gaussian, plus noise.

    The linear part of its derivative is left out: it belongs to sum z^2, which no rotation changes. What remains, times
    the variance of the noise, is g = E[x|z], the best guess of the code without noise. So a power step with this
    contrast is a step of expectation maximisation.
    """

    model: CodeModel

    def terms(self, Z: Array, need: Needs, work: Work, xp: Any) -> Terms:
        """Contrast of the codes Z (b, m)."""
        offset, rate, kept, level, precision = self._lines(Space.of(Z), str(Z.dtype).rsplit(".", maxsplit=1)[-1])
        z2 = work.map(xp.multiply, Z, Z, into="square")
        half = work.map(xp.multiply, z2, rate, into="logit")
        half = work.map(xp.add, half, offset, into="logit")
        swing = work.map(xp.tanh, half, into="swing")  # the activity is (1 + swing) / 2
        gain = work.map(xp.add, work.map(xp.multiply, swing, kept, into="gain"), kept, into="gain")
        g = work.map(xp.multiply, gain, Z, into="g")
        value = self._value(z2, half, swing, (level, precision), work, xp)
        idle = 0.5 - 0.5 * swing if Needs.IDLE in need else None
        if Needs.MOMENTS not in need:
            return Terms(g=g, value=value, idle=idle)
        # a (1 - a) = (1 - swing^2) / 4, and 1 - a = (1 - swing) / 2
        bend = work.map(xp.multiply, work.map(xp.subtract, swing, 1, into="bend"), z2, into="bend")
        bend = work.map(xp.add, work.map(xp.multiply, bend, -2 * rate, into="bend"), 1, into="bend")
        return Terms(g=g, slope=work.map(xp.multiply, bend, gain, into="bend"), value=value, idle=idle)

    def _value(self, z2: Array, half: Array, swing: Array, lines: tuple[Array, Array], work: Work, xp: Any) -> Array:
        """Log q(z) = log(1 + e^(2h)) + level - precision z^2, written so that nothing overflows.

        log(1 + e^(2h)) = h + |h| + log 2 - log(1 + |tanh h|).
        """
        level, precision = lines
        logs = work.map(xp.add, work.map(xp.abs, swing, into="value"), 1, into="value")
        logs = work.map(xp.log, logs, into="value")
        value = work.map(xp.subtract, work.map(xp.abs, half, into="positive"), logs, into="value")
        value = work.map(xp.add, value, half, into="value")
        value = work.map(xp.subtract, value, work.map(xp.multiply, z2, precision, into="positive"), into="value")
        return work.map(xp.add, value, level, into="value")

    def _lines(self, space: Space, dtype: str) -> tuple[Array, ...]:
        """What multiplies and shifts the codes of each atom, where the codes are: halves, as tanh wants them."""
        offset, rate = logit_line(self.model)
        kept = self.model.power / (self.model.power + self.model.noise)
        level = math.log(2) + np.log1p(-self.model.density) - 0.5 * math.log(2 * math.pi * self.model.noise)
        vectors = (offset / 2, rate / 2, kept / 2, level, np.full_like(offset, 0.5 / self.model.noise))
        return tuple(space.asarray(vector, dtype) for vector in vectors)


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
        one = self.first.terms(Z, need, work, xp)
        two = self.second.terms(Z, need, Prefixed(work, "beside "), xp)
        value = (two.g, Z) if two.value is None else two.value
        beside = {f"beside_{name}": array for name, array in two.extra.items()}
        beside |= {"beside_value": value, "beside_slope": two.slope, "beside_g2": (two.g, two.g)}
        return replace(one, beside=two.g, extra={**one.extra, **beside, "cross": (one.g, two.g)})


@dataclass(frozen=True)
class Prefixed:
    """Scratch memory of somebody else, under names of one's own."""

    work: Work
    prefix: str

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
