"""Objectives to be maximised: functions of a code, summed over samples and atoms.

An objective computes its sum over a block of codes and two derivatives (`terms`). Its parameters, if any, are refitted
to the codes after every step (`refit`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import NamedTuple, Protocol, Self

import numpy as np

from elldict.samples.base import Array, Index
from elldict.samples.subsample import Codes
from elldict.theory import gaussian_moment


def unknown() -> Array:
    """Return the placeholder of a parameter before the first refit."""
    return np.zeros(0)


class Terms(NamedTuple):
    """Values of an objective at the codes (b, m) of a block."""

    value: float  # sum over codes
    g: Array  # (b, m) derivative
    slope: Array  # (b, m) second derivative


class Objective(Protocol):
    """A function of codes to be maximised."""

    @property
    def narrowed(self) -> bool:
        """Whether the last refit changed the function, so that earlier steps do not apply to it."""

    def refit(self, codes: Codes, blur: Array | None = None) -> Self:
        """Fit the parameters to these codes."""

    def is_settled(self, tried: Array | None, blur: Array) -> bool:
        """Return whether codes of this blur (m,) leave the function unchanged, given the blur already tried."""

    def terms(self, Z: Array) -> Terms:
        """Evaluate at codes (b, m)."""


class FixedFunction:
    """An objective whose function does not change, apart from parameters fitted to the codes."""

    narrowed = False

    def is_settled(self, tried: Array | None, blur: Array) -> bool:  # noqa: ARG002
        """Return True: the function does not change."""
        return True


@dataclass(frozen=True)
class Lp(FixedFunction):
    """Objective of the paper: the sum of |z|^p, p > 2."""

    p: float = 3.0

    def refit(self, codes: Codes, blur: Array | None = None) -> Self:  # noqa: ARG002
        """Return the objective itself: it has no parameters."""
        return self

    def terms(self, Z: Array) -> Terms:
        """Evaluate at codes (b, m)."""
        size = np.abs(Z)
        power = size ** (self.p - 2)
        g = self.p * power * Z
        return Terms(float(np.sum(power * Z * Z)), g, self.p * (self.p - 1) * power)


@dataclass(frozen=True)
class SignedLp(FixedFunction):
    """l_p of standardised codes, with the sign reversed for sub-Gaussian codes.

    An atom contributes the difference of E |x|^p from that of a Gaussian code, with the sign of
    kappa = E g x - E g', which is zero for a Gaussian code.
    """

    p: float = 3.0
    std: Array = field(default_factory=unknown)  # (m,) of the codes
    moment: Array = field(default_factory=unknown)  # (m,) E |x|^p
    kappa: Array = field(default_factory=unknown)  # (m,)

    def refit(self, codes: Codes, blur: Array | None = None) -> Self:  # noqa: ARG002
        """Find the atoms with sub-Gaussian codes."""

        def visit(Z: Array, half: Index) -> Array:  # noqa: ARG001
            x = np.abs(Z / codes.std)
            return np.stack([np.sum(x ** (self.p - 2), axis=0), np.sum(x**self.p, axis=0)])

        low, high = codes.sum(visit) / codes.shape[0]
        kappa = high - (self.p - 1) * low
        return replace(self, std=codes.std, moment=high, kappa=kappa)

    def terms(self, Z: Array) -> Terms:
        """Evaluate at codes (b, m)."""
        x = Z / self.std
        power = np.abs(x) ** (self.p - 2)
        g, slope = power * x, (self.p - 1) * power
        g = np.where(self.kappa < 0, 2 * self.moment * x - g, g)
        slope = np.where(self.kappa < 0, 2 * self.moment - slope, slope)
        value = np.sign(self.kappa) * (self.moment - gaussian_moment(self.p)) / self.p
        return Terms(len(Z) * float(np.sum(value)), g / self.std, slope / self.std**2)


@dataclass(frozen=True)
class SmoothL1(FixedFunction):
    """Minus the sum of sqrt(z^2 + 1), where z is relative to the root mean square of all codes."""

    unit: float = 1.0

    def refit(self, codes: Codes, blur: Array | None = None) -> Self:  # noqa: ARG002
        """Compute the unit."""
        return replace(self, unit=math.sqrt(np.mean(codes.std**2)))

    def terms(self, Z: Array) -> Terms:
        """Evaluate at codes (b, m)."""
        t = 1 / np.sqrt((Z / self.unit) ** 2 + 1)
        return Terms(-float(np.sum(1 / t)), -Z * t / self.unit**2, -(t**3) / self.unit**2)


@dataclass(frozen=True)
class MinusL4(FixedFunction):
    """Minus the sum of x^4 of standardised codes: large if all codes are sub-Gaussian."""

    std: Array = field(default_factory=unknown)  # (m,)
    moment: Array = field(default_factory=unknown)  # (m,) E x^4

    def refit(self, codes: Codes, blur: Array | None = None) -> Self:  # noqa: ARG002
        """Compute the moments of the codes."""
        moment = codes.sum(lambda Z, half: np.sum((Z / codes.std) ** 4, axis=0))  # noqa: ARG005
        return replace(self, std=codes.std, moment=moment / codes.shape[0])

    def terms(self, Z: Array) -> Terms:
        """Evaluate at codes (b, m)."""
        x = Z / self.std
        x2 = x * x
        g, slope = (2 * self.moment - x2) * x, 2 * self.moment - 3 * x2
        return Terms(-float(np.sum(x2 * x2)) / 4, g / self.std, slope / self.std**2)
