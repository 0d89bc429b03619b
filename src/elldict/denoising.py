"""What the distribution of noisy codes says about the codes: posterior means, thresholds, and sparsity."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from scipy.integrate import cumulative_trapezoid
from scipy.special import expit

from elldict.samples.base import Array
from elldict.samples.normalization import Normalization
from elldict.solver.density import Density

Rule = Callable[[Array], Array]
"""Maps the linear codes (b, m) of a block of samples to other codes, or to numbers per sample."""

GRID_POINTS, GRID_END = 600, 20.0  # of codes, geometric on each side of zero; largest, in standard deviations
GRID_START = 0.01  # smallest code of the grid, relative to the noise
BIN = 0.2  # relative width of a bin of |code|
SMALLEST = 1e-11  # first bin, relative to the largest standard deviation of a code
ROUNDS = 150  # of expectation-maximisation


@dataclass(frozen=True)
class Distribution:
    """Fitted distribution of codes: independent, or independent after normalisation of each sample."""

    density: Density
    normalization: Normalization | None = None

    def rescale(self, factor: float) -> Distribution:
        """Return the distribution of codes multiplied by a factor."""
        if self.normalization is None:
            return Distribution(self.density.rescale(factor))
        return Distribution(self.density, self.normalization.rescale(factor))

    def make_log_likelihood(self, unmixing: Array) -> Rule:
        """Make the rule for log-likelihoods (b, 1) of samples from their codes (b, m).

        The densities of codes are multiplied by the volume of the map from samples to codes, restricted to the subspace
        of the components, and by that of the normalisation, if there is one.
        """
        m, size = len(unmixing), float(np.max(np.abs(unmixing)))
        rows = unmixing / size  # keeps squares finite
        volume = 0.5 * float(np.linalg.slogdet(rows @ rows.T)[1]) + m * math.log(size)

        def compute(Z: Array) -> Array:
            x = Z if self.normalization is None else self.normalization.apply(Z)
            logs = np.sum(self.density.log_density(x), axis=1, keepdims=True) + volume
            if self.normalization is not None:
                logs += self.normalization.log_determinant(self.normalization.measure(Z), m)
            return np.asarray(logs)

        return compute

    def make_posterior_mean(self, noise: Array, *, is_known: bool = True) -> Rule:
        """Make the rule for posterior means of codes with noise of standard deviation s (m,), by Tweedie's formula.

        E[x | z] = z + s^2 (log q)'(z), for the density q of a noisy code. For normalised samples, q is the density of
        z / c, with c^2 = |y|^2 + median for the white sample y. The noise of z / c has standard deviation s / c if that
        of c, a sum over all codes, is neglected; so E[x | z] = z + c (s / c)^2 (log q)'(z / c). Noise that is not known
        is limited by q.
        """
        if np.all(noise == 0):
            return lambda Z: Z
        normalization = self.normalization
        scale = 1.0 if normalization is None else math.sqrt(normalization.median)
        largest = np.full(len(noise), np.inf) if is_known else limit_noise(self.density, noise / scale)

        def compute(Z: Array) -> Array:
            c = np.ones((len(Z), 1))
            if normalization is not None:
                c = 1 / normalization.find_scale(normalization.measure(Z))
            return np.asarray(Z + c * compute_shift(self.density, Z / c, np.minimum(noise / c, largest)))

        return compute


def compute_shift(density: Density | SpikeSlab, Z: Array, noise: Array) -> Array:
    """Compute s^2 (log q)'(z), limited, because a fitted density q may vary within the noise.

    A zero-mean code is moved towards zero, at most as far as there; another one by its size or by s at most.
    """
    furthest = np.where(density.has_offsets, np.maximum(np.abs(Z), noise), np.abs(Z))
    moved = noise**2 * density.score(Z)
    outwards = np.where(density.has_offsets, furthest, 0)
    return np.where(Z > 0, np.clip(moved, -furthest, outwards), np.clip(moved, -outwards, furthest))


@dataclass(frozen=True)
class SpikeSlab:
    """Codes that are zero or Gaussian, plus Gaussian noise."""

    has_offsets: ClassVar[bool] = False  # the mean is zero
    density: Array  # (m,) probability that a code is not zero
    scale: Array  # (m,) standard deviation of the codes that are not zero, without noise
    noise_std: float

    @property
    def std(self) -> Array:
        """Standard deviations (m,)."""
        return np.sqrt(self.density * self.scale**2 + self.noise_std**2)

    def log_density(self, Z: Array) -> Array:
        """Compute the log density (b, m) of each code."""
        return np.asarray(np.logaddexp(*self._log_parts(Z)))

    def score(self, Z: Array) -> Array:
        """Compute the derivative (b, m) of the log density of each code."""
        slab, spike = self._log_parts(Z)
        is_slab = expit(slab - spike)
        return np.asarray(-Z * (is_slab / self._variances[0] + (1 - is_slab) / self._variances[1]))

    @property
    def _variances(self) -> tuple[Array, Array]:
        noise = np.full(len(self.scale), self.noise_std**2)
        return self.scale**2 + noise, noise

    def _log_parts(self, Z: Array) -> tuple[Array, Array]:
        """Compute the log densities of codes that are not zero, and of zeros."""
        with np.errstate(divide="ignore"):  # a density of 0 or 1
            log_shares = np.log(self.density), np.log1p(-self.density)
        slab, spike = (
            share - 0.5 * (np.log(2 * np.pi * variance) + Z * Z / variance)
            for share, variance in zip(log_shares, self._variances, strict=True)
        )
        return slab, spike


def fit_spike_slab(Z: Array, weights: Array | None = None, resolution: float = 1e-9) -> SpikeSlab:
    """Fit density and scale of each code, and a common noise, to codes (r, m) by expectation-maximisation.

    Codes less peaked than Gaussian ones have density 1. Noise below `resolution` of the largest code is rounding.
    """
    unit = float(np.max(np.abs(Z)))
    if unit == 0:
        return SpikeSlab(np.zeros(Z.shape[1]), np.zeros(Z.shape[1]), 0.0)
    squares = (Z / unit) ** 2
    second, fourth = (np.average(squares**power, axis=0, weights=weights) for power in (1, 2))
    counts, v = count_squares(squares, weights, float(np.max(second)))
    is_dense = fourth < 3 * second**2
    density, slab, noise = np.where(is_dense, 1.0, 0.5), 2 * second, 0.01 * float(np.mean(second))
    n_codes, floor, tiny = counts.sum(axis=1), float(np.min(v)), np.finfo(float).tiny
    for _ in range(ROUNDS):
        wide = np.maximum(slab, floor)
        with np.errstate(divide="ignore"):
            log_odds = np.log(density) - np.log1p(-density) - 0.5 * np.log(wide / noise)
        kept = counts * expit(log_odds[:, None] - 0.5 * (1 / wide - 1 / noise)[:, None] * v)
        total = kept.sum(axis=1)
        density, slab = total / n_codes, (kept @ v) / np.maximum(total, tiny)
        n_zeros = float(n_codes.sum() - total.sum())
        if n_zeros > 0:
            noise = max(float(np.sum((counts - kept) @ v)) / n_zeros, floor)
    if np.all(density == 1) or noise < resolution**2:
        noise = 0.0
    return SpikeSlab(density, unit * np.sqrt(np.maximum(slab - noise, 0)), unit * math.sqrt(noise))


def count_squares(squares: Array, weights: Array | None, largest: float) -> tuple[Array, Array]:
    """Count squared codes (r, m) in bins of equal relative width; return counts (m, B) and their means (B,)."""
    r, m = squares.shape
    n_bins = math.ceil(math.log(math.sqrt(r) / SMALLEST) / BIN) + 1  # no code is above sqrt(r) standard deviations
    with np.errstate(divide="ignore"):
        place = 0.5 * np.log(squares / largest) - np.log(SMALLEST)
    bins = np.clip(place / BIN, 0, n_bins - 1).astype(np.intp)
    each = None if weights is None else np.repeat(weights, m)
    flat = np.bincount((bins + n_bins * np.arange(m)).ravel(), each, minlength=m * n_bins)
    counts = flat.reshape(m, n_bins).astype(np.float64)
    used = counts.any(axis=0)
    sums = np.bincount(bins.ravel(), squares.ravel() if each is None else each * squares.ravel(), minlength=n_bins)
    return counts[:, used], np.maximum(sums[used] / counts[:, used].sum(axis=0), largest * SMALLEST**2)


def make_grid(std: Array, noise: Array) -> Array:
    """Make positive codes (G, m) from well below the noise to far above the standard deviation."""
    start = GRID_START * np.minimum(noise, std)
    return np.geomspace(start, GRID_END * np.maximum(std, noise), GRID_POINTS)


def limit_noise(density: Density | SpikeSlab, noise: Array) -> Array:
    """Lower the standard deviation (m,) of the noise to what the densities of noisy codes allow.

    The posterior mean z + s^2 (log q)'(z) increases with z if the noise is part of q, since its derivative is the
    posterior variance divided by s^2. A fitted density may be narrower than the noise; then s is lowered until it does.
    """
    if np.all(noise == 0):
        return noise
    right = make_grid(density.std, np.where(noise > 0, noise, density.std))
    z = np.concatenate([-right[::-1], right])
    steps, falls = np.diff(z, axis=0), -np.diff(density.score(z), axis=0)
    largest = np.min(steps / np.maximum(falls, np.finfo(float).tiny), axis=0)
    return np.asarray(np.minimum(noise, np.sqrt(largest)))


def find_thresholds(density: Density | SpikeSlab, noise: Array, *, soft: bool) -> Array:
    """Find the threshold (m,) of each code with the smallest expected squared error under the density q.

    With the posterior mean x(z), the derivative of the error by the threshold t is (2 z x(z) - z^2) q(z), summed over
    z = t and z = -t, if codes are kept or set to zero; and twice the integral of (t - |z| + sign(z) x(z)) q(z) over
    |z| > t if they are shrunk. The error is the integral of the derivative on a grid.
    """
    if np.all(noise == 0):
        return np.zeros(len(noise))
    s = limit_noise(density, noise)
    zero = np.zeros((1, len(noise)))
    t = np.concatenate([zero, make_grid(density.std, np.where(noise > 0, noise, density.std))])
    slope = np.zeros_like(t)
    for z in (t, -t):
        q, shift = np.exp(density.log_density(z)), s**2 * density.score(z)
        if soft:
            tail, excess = (integrate_beyond(part, t) for part in (q, np.sign(z) * shift * q))
            slope += 2 * (t * tail + excess)
        else:
            slope += q * (z * z + 2 * z * shift)
    error = cumulative_trapezoid(slope, t, axis=0, initial=0)
    best = t[np.argmin(error, axis=0), np.arange(len(noise))]
    return np.asarray(np.where(noise > 0, best, 0.0))


def integrate_beyond(values: Array, t: Array) -> Array:
    """Integrate from every point of a grid (G, m) to its end."""
    return np.asarray(cumulative_trapezoid(values[::-1], -t[::-1], axis=0, initial=0)[::-1])
