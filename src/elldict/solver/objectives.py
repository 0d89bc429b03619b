"""Objectives to be maximised: functions of a code, summed over samples and atoms.

An objective computes its sum over a block of codes and two derivatives (`terms`). Its parameters, if any, are refitted
to the codes after every step (`refit`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Protocol, Self

import numpy as np

from elldict.samples.base import Array, Weights
from elldict.samples.subsample import Codes
from elldict.solver.kernels import Terms, power_moments, signed_power, smooth_norm
from elldict.theory import gaussian_moment


def unknown() -> Array:
    """Return the placeholder of a parameter before the first refit."""
    return np.zeros(0)


class Objective(Protocol):
    """A function of codes to be maximised."""

    @property
    def is_likelihood(self) -> bool:
        """Whether this is a log-likelihood; if not, its derivatives are computed as if codes were independent."""

    @property
    def has_changed(self) -> bool:
        """Whether the last refit changed the function, so that earlier steps do not apply to it."""

    def refit(self, codes: Codes, blur: Array | None = None, *, choose: bool = False) -> Self:
        """Fit the parameters to these codes; `choose` the family of functions anew, if there are several."""

    def is_settled(self, tried: Array | None, blur: Array) -> bool:
        """Return whether codes of this blur (m,) leave the function unchanged, given the blur already tried."""

    def terms(self, Z: Array, weights: Weights = None, *, second: bool = False) -> Terms:
        """Evaluate at codes (b, m), with `second` derivatives if asked for."""


class FixedFunction:
    """An objective whose function does not change, apart from parameters fitted to the codes."""

    has_changed: bool = False
    is_likelihood = False

    def is_settled(self, tried: Array | None, blur: Array) -> bool:  # noqa: ARG002
        """Return True: the function does not change."""
        return True


@dataclass(frozen=True)
class Lp(FixedFunction):
    """Objective of the paper: the sum of |z|^p, p > 2."""

    p: float = 3.0

    def refit(self, codes: Codes, blur: Array | None = None, *, choose: bool = False) -> Self:  # noqa: ARG002
        """Return the objective itself: it has no parameters."""
        return self

    def terms(self, Z: Array, weights: Weights = None, *, second: bool = False) -> Terms:
        """Evaluate at codes (b, m)."""
        ones = np.ones(Z.shape[1])
        return signed_power(Z, ones, self.p, 0 * ones, self.p * ones, weights, second=second)


@dataclass(frozen=True)
class SignedLp(FixedFunction):
    """l_p of standardised codes, p > 2, with the sign reversed for sub-Gaussian codes.

    An atom contributes the difference of E |x|^p from that of a Gaussian code, with the sign of
    kappa = E g x - E g', which is zero for a Gaussian code. If all codes are taken to be sub-Gaussian (`flat`), all
    signs are negative.
    """

    p: float = 3.0
    flat: bool = False
    std: Array = field(default_factory=unknown)  # (m,) of the codes
    moment: Array = field(default_factory=unknown)  # (m,) E |x|^p
    sign: Array = field(default_factory=unknown)  # (m,)
    has_changed: bool = False  # whether the last refit has reversed a sign

    def refit(self, codes: Codes, blur: Array | None = None, *, choose: bool = False) -> Self:  # noqa: ARG002
        """Find the atoms with sub-Gaussian codes."""
        std, p = codes.std, self.p
        sums = codes.sum(lambda Z, half, weights: power_moments(Z, std, p, weights))  # noqa: ARG005
        low, high = sums / codes.n_samples
        sub_gaussian = self.flat | (high < (p - 1) * low)
        sign = np.where(sub_gaussian, -1.0, 1.0)
        has_changed = bool(self.sign.size and np.any(sign != self.sign))
        return replace(self, std=std, moment=high, sign=sign, has_changed=has_changed)

    def terms(self, Z: Array, weights: Weights = None, *, second: bool = False) -> Terms:
        """Evaluate at codes (b, m)."""
        linear = np.where(self.sign < 0, 2 * self.moment, 0.0)
        _, g, slope = signed_power(Z, self.std, self.p, linear, self.sign, second=second)
        value = float(np.sum(self.sign * (self.moment - gaussian_moment(self.p)))) / self.p
        return Terms(value * float(len(Z) if weights is None else np.sum(weights)), g, slope)


@dataclass(frozen=True)
class SmoothNorm(FixedFunction):
    """Minus the sum of (z^2 + 1)^(p/2), 0 < p < 2, where z is relative to the root mean square of all codes."""

    p: float = 1.0
    unit: float = 1.0

    def refit(self, codes: Codes, blur: Array | None = None, *, choose: bool = False) -> Self:  # noqa: ARG002
        """Compute the unit."""
        return replace(self, unit=math.sqrt(np.mean(codes.std**2)))

    def terms(self, Z: Array, weights: Weights = None, *, second: bool = False) -> Terms:
        """Evaluate at codes (b, m)."""
        return smooth_norm(Z, self.unit, self.p, weights, second=second)
