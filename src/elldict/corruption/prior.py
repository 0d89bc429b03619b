"""Distributions of codes and of errors of entries, and their posteriors given values observed through noise."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.special import expit

from elldict.samples.base import Array, Index

LEAST_SHARE, MOST_SHARE = 1e-9, 0.98  # of a variance that is left: beyond, messages overflow, or are only noise
LEAST_SPREAD = 1e-3  # variance of corruption, relative to its squared size, which has to be learned
LEAST_RATE = 1e-6  # probability whose odds are finite


@dataclass(frozen=True)
class Posterior:
    """Posterior moments of values, given these values plus Gaussian noise of variance `blur`."""

    seen: Array  # (b, n) values with noise
    blur: Any  # number, or (b, 1)
    active: Array  # (b, n) probability of the wide part of the distribution
    mean: Array  # (b, n)
    variance: Array  # (b, n)
    wide_square: Array  # (b, n) E x^2, if the value is from the wide part
    narrow_square: Array  # (b, n) E x^2, if it is not
    aligned: Array | None  # (b, n) E of x times the sign of its centre, if it is from a wide part with two centres

    def send(self, *, each: bool) -> tuple[Array, Any]:
        """Compute the extrinsic message, which is independent of the noise of the values, and its variance.

        The posterior variance relative to that of the noise is a mean over all values, or over those of each sample.
        """
        relative = self.variance / self.blur
        mean = np.mean(relative, axis=1, keepdims=True) if each else float(np.mean(relative))
        share = np.clip(mean, LEAST_SHARE, MOST_SHARE)
        return (self.mean - share * self.seen) / (1 - share), self.blur * share / (1 - share)


@dataclass(frozen=True)
class Mixture:
    """A narrow Gaussian about zero, or with some probability a wide one about plus or minus a centre."""

    probability: Array | float
    wide: Array | float  # variances
    narrow: float
    center: float = 0.0

    def observe(self, seen: Array, blur: Any) -> Posterior:
        """Compute posterior moments of values (b, n) seen through noise of variance `blur`."""
        kept_wide, kept_narrow = (variance / (variance + blur) for variance in (self.wide, self.narrow))
        wide_mean, wide_variance, aligned = kept_wide * seen, kept_wide * blur, None
        if self.center:
            shift = (1 - kept_wide) * self.center
            side = np.tanh(self.center * seen / (self.wide + blur))
            aligned = wide_mean * side + shift
            wide_mean, wide_variance = wide_mean + shift * side, wide_variance + shift**2 * (1 - side * side)
        narrow_mean, narrow_variance = kept_narrow * seen, kept_narrow * blur
        wide, narrow = self._log_parts(seen, blur)
        active = expit(wide - narrow)
        gap = wide_mean - narrow_mean
        mean = narrow_mean + active * gap
        variance = narrow_variance + active * (wide_variance - narrow_variance + (1 - active) * gap * gap)
        squares = wide_mean**2 + wide_variance, narrow_mean**2 + narrow_variance
        return Posterior(seen, blur, active, mean, variance, *squares, aligned)

    def log_density(self, seen: Array, blur: Any) -> Array:
        """Compute the log density (b, n) of values with noise of variance `blur`."""
        return np.asarray(np.logaddexp(*self._log_parts(seen, blur)))

    def _log_parts(self, seen: Array, blur: Any) -> tuple[Array, Array]:
        """Compute log densities (b, n) of both parts, times their probabilities."""
        variance, squares = self.wide + blur, seen * seen
        wide = np.log(self.probability) + log_gaussian(squares, variance)
        if self.center:
            lean = np.abs(seen) * (self.center / variance)
            log_cosh = lean + np.log1p(np.exp(-2 * lean)) - math.log(2)
            wide = wide + log_cosh - self.center**2 / (2 * variance)
        return wide, np.log1p(-self.probability) + log_gaussian(squares, self.narrow + blur)


def log_gaussian(squares: Array, variance: Any) -> Array:
    """Compute the log density of Gaussian values from their squares."""
    return np.asarray(-0.5 * (np.log(2 * np.pi * variance) + squares / variance))


@dataclass(frozen=True)
class Prior:
    """Codes that are zero or Gaussian, and errors of entries: Gaussian noise, and corruption of some of the entries."""

    density: Array  # (m,) probability that a code is not zero
    variance: Array  # (m,) of such codes
    rate: float  # probability that an entry is corrupted
    center: float  # corruption is Gaussian about plus or minus this size,
    spread: float  # with this variance, which includes that of the noise
    noise: float  # variance

    @classmethod
    def guess(cls, m: int, limited: float) -> Prior:
        """Make a rough guess for m codes of samples of unit mean square, and of this one if large entries are limited.

        Codes are sparse, errors rare and large.
        """
        rate = noise = 0.05
        square = max((1 - limited) / rate, limited)
        center, spread, noise = math.sqrt(square / 2), square / 2 + noise * limited, noise * limited
        return cls(np.full(m, 0.3), np.full(m, 3 * limited), rate, center, spread, noise)

    @property
    def codes(self) -> Mixture:
        """Distribution of the codes."""
        return Mixture(self.density, self.variance, 0.0)

    @property
    def errors(self) -> Mixture:
        """Distribution of the errors of entries."""
        return Mixture(self.rate, self.spread, self.noise, self.center)

    @property
    def scale(self) -> float:
        """Root mean square of the corruption of a corrupted entry."""
        return math.sqrt(max(self.center**2 + self.spread - self.noise, 0.0))

    def learn(self, codes: Posterior, errors: Posterior, weights: Array, least_noise: float) -> Prior:
        """Take a step of expectation-maximisation, with weights (b,) of the samples that sum to one."""
        n_active, n_corrupted = weights @ codes.active, float(np.mean(weights @ errors.active))
        squares = weights @ (codes.active * codes.wide_square)
        corrupted = float(np.mean(weights @ (errors.active * errors.wide_square)))
        rest = float(np.mean(weights @ ((1 - errors.active) * errors.narrow_square)))
        noise = max(rest / max(1 - n_corrupted, LEAST_RATE), least_noise)
        center, tiny = self.center, np.finfo(float).tiny
        if errors.aligned is not None:
            center = float(np.mean(weights @ (errors.active * errors.aligned))) / max(n_corrupted, tiny)
        spread = corrupted / max(n_corrupted, tiny) - center**2
        return Prior(
            density=np.clip(n_active, LEAST_RATE, 1 - LEAST_RATE),
            variance=np.maximum(squares / np.maximum(n_active, tiny), least_noise),
            rate=min(max(n_corrupted, LEAST_RATE), 1 - LEAST_RATE),
            center=center,
            spread=max(spread, noise, LEAST_SPREAD * center**2),
            noise=noise,
        )

    def with_noise(self, noise: float) -> Prior:
        """Return the distributions for another variance of the noise, which corrupted entries have, too."""
        return replace(self, noise=noise, spread=self.spread + noise - self.noise)

    def rescale(self, factor: float) -> Prior:
        """Return the distributions for samples multiplied by a factor."""
        square = factor**2
        powers = {"variance": square, "center": factor, "spread": square, "noise": square}
        return replace(self, **{name: power * getattr(self, name) for name, power in powers.items()})

    def arrange(self, order: Index) -> Prior:
        """Return the distributions for atoms in another order."""
        return replace(self, density=self.density[order], variance=self.variance[order])
