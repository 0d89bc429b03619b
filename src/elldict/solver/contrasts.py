"""Contrasts: what is summed over the samples and maximised."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from elldict.kernels import Work
from elldict.space import Array


class Needs(enum.Flag):
    """What a pass has to bring home; a plain step asks for less than the judge."""

    GRADIENT = enum.auto()
    MOMENTS = enum.auto()


@dataclass(frozen=True)
class Terms:
    """Contrast of the codes of one tile. All arrays have the shape of the codes, (b, m)."""

    g: Array  # derivative F'
    slope: Array | None = None  # second derivative F''
    value: Array | None = None  # F itself; None says F = g z, whose sum falls out of the gradient
    extra: Mapping[str, Array] = field(default_factory=dict)


class Contrast(Protocol):
    """A function of one code, summed over samples and atoms."""

    def terms(self, Z: Array, need: Needs, work: Work, xp: Any) -> Terms:
        """Contrast of the codes Z (b, m). Scratch memory comes from `work`; Z is not changed."""
        ...


@dataclass(frozen=True)
class Lp:
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
        return Terms(g=g, slope=(self.p - 1) * weight, value=g * Z, extra={"magnitude": magnitude})


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
