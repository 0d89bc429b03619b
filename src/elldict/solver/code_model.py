"""The law of one noisy code: zero or Gaussian, plus Gaussian noise; and its fit to codes at hand.

A code is z = b x + e with b ~ Bernoulli(density), x ~ N(0, power), e ~ N(0, noise). Density and power differ from atom
to atom; the noise is shared, because white noise is white in every orthonormal basis.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
import scipy.optimize
from numpy.typing import NDArray

Vector = NDArray[np.float64]

FINE, FINER = 22, 19
"""Binary digits of a float32 that are left out to number its bin: two bins, or sixteen, for every factor of two."""

FEW_ROUNDS = 5
CLOSE = 3e-4
"""Relative change of a parameter in a round of expectation maximisation that is not worth another."""


@dataclass(frozen=True)
class CodeModel:
    """Parameters of the law, for m atoms."""

    density: Vector  # (m,)
    power: Vector  # (m,) variance of an active code without noise
    noise: float  # variance of the noise
    least_noise: float = 0.0  # below which noise was not looked for

    def activity(self, z2: NDArray[np.float64]) -> NDArray[np.float64]:
        """Probability that a code is active, given its square; atoms along the first axis."""
        return 0.5 * (1 + np.tanh(0.5 * self._logit(z2)))

    def log_density(self, z2: NDArray[np.float64]) -> NDArray[np.float64]:
        """Logarithm of the density of a code, given its square; atoms along the first axis."""
        idle = np.log1p(-self.density)[:, None] - 0.5 * (math.log(2 * math.pi * self.noise) + z2 / self.noise)
        return np.asarray(idle + np.logaddexp(0.0, self._logit(z2)))

    def _logit(self, z2: NDArray[np.float64]) -> NDArray[np.float64]:
        offset, rate = logit_line(self)
        return np.asarray(offset[:, None] + rate[:, None] * z2)


def logit_line(model: CodeModel) -> tuple[Vector, Vector]:
    """The log odds that a code is active are offset + rate z^2; one of each for an atom."""
    return _line(model.density, model.power, np.full_like(model.power, model.noise))


def _line(density: Vector, power: Vector, noise: Vector) -> tuple[Vector, Vector]:
    total = power + noise
    offset = np.log(density) - np.log1p(-density) - 0.5 * np.log(total / noise)
    return offset, 0.5 * (1 / noise - 1 / total)


@dataclass(frozen=True)
class Counts:
    """Codes of every atom, counted in bins of their logarithm: a hundred numbers stand for any number of codes."""

    count: NDArray[np.float64]  # (m, bins)
    z2: NDArray[np.float64]  # (m, bins) mean square of the codes in a bin

    @classmethod
    def of(cls, Z: NDArray[np.float64]) -> Counts:
        """Counts of codes Z (b, m)."""
        return cls._binned(np.square(Z), None, FINE)

    @property
    def mean_square(self) -> Vector:
        """Mean square code of each atom."""
        return np.asarray(np.sum(self.count * self.z2, axis=1) / np.sum(self.count, axis=1))

    def pooled(self) -> Counts:
        """All atoms as one, each scaled to unit mean square."""
        scaled = (self.z2 / self.mean_square[:, None]).reshape(-1, 1)
        # finer bins: these squares are means of bins already, and would be rounded twice
        return Counts._binned(scaled, self.count.reshape(-1, 1), FINER)

    @classmethod
    def _binned(cls, z2: NDArray[np.float64], weights: NDArray[np.float64] | None, left_out: int) -> Counts:
        """Count squares z2 (b, m) in bins; empty bins of all atoms are left out.

        The first digits of a floating point number, exponent and all, are its logarithm, near enough.
        """
        m = z2.shape[1]
        with np.errstate(over="ignore", under="ignore"):
            where = z2.astype(np.float32).view(np.int32) >> left_out
        lowest = int(np.min(where))
        bins = int(np.max(where)) - lowest + 1
        flat = (where + (bins * np.arange(m) - lowest)).ravel()
        number = None if weights is None else weights.ravel()
        squares = z2.ravel() if number is None else number * z2.ravel()
        count = np.bincount(flat, weights=number, minlength=bins * m).reshape(m, bins).astype(np.float64)
        total = np.bincount(flat, weights=squares, minlength=bins * m).reshape(m, bins)
        used = np.any(count > 0, axis=0)
        return cls(count[:, used], total[:, used] / np.maximum(count[:, used], 1e-300))


def fit_code_model(counts: Counts, *, least_noise: float) -> CodeModel:
    """Maximum likelihood; first for all atoms as one, then for each.

    The likelihood is unbounded: with the noise at zero and a single code there, it is infinite. So the fit comes down
    from a large noise by expectation maximisation, which stops at the first maximum, and stays near it from then on;
    never below `least_noise`.

    While atoms are still on their way, the zeros of some are blurred more than those of others. A shared noise would
    then suit the many, and the zeros of the few would pass for active codes for good. So the largest noise of an atom,
    fitted by itself, is taken for all where they differ by much.
    """
    m, shared = len(counts.count), _shared(counts, least_noise)
    start = _Guess(np.repeat(shared.density, m), shared.power * counts.mean_square, 0.05 * counts.mean_square)
    own = _descended(counts, start, least_noise, rounds=40)
    common = max(shared.noise, least_noise)
    uneven = bool(np.max(own.noise) > 4 * np.median(own.noise))
    if uneven:
        common = float(np.max(own.noise))
    start = replace(start, noise=np.full(m, common))
    if np.max(counts.mean_square) > 4 * np.min(counts.mean_square):  # scaled alike, their noise was not
        return replace(_climbed(counts, start, common if uneven else least_noise), least_noise=least_noise)
    fitted = _descended(counts, start, least_noise, rounds=40, noise_known=True)
    return CodeModel(fitted.density, fitted.power, common, least_noise)


def _shared(counts: Counts, least_noise: float, rounds: int = 60) -> CodeModel:
    """The law of all atoms as one: its power for a mean square of one, its noise for the mean square that they have."""
    pool, scale = counts.pooled(), float(np.mean(counts.mean_square))
    found = _climbed(pool, _descended(pool, FIRST_GUESS, least_noise / scale, rounds), least_noise / scale)
    return replace(found, noise=found.noise * scale)


def rough_code_model(counts: Counts, *, least_noise: float) -> CodeModel:
    """A law to begin with while atoms are on their way: that of all of them as one, and a few rounds for each."""
    m, shared = len(counts.count), _shared(counts, least_noise, rounds=10)
    own = CodeModel(np.repeat(shared.density, m), shared.power * counts.mean_square, shared.noise, least_noise)
    return followed_code_model(counts, own)


def followed_code_model(counts: Counts, model: CodeModel) -> CodeModel:
    """The law a few rounds of expectation maximisation on from `model`: enough for codes that have moved a little.

    Noise is the mean of what atoms have by themselves, or the largest where they differ by much, as in a full fit.
    """
    m = len(model.density)
    guess = _Guess(model.density, model.power, np.full(m, model.noise))
    own = _descended(counts, guess, model.least_noise, rounds=FEW_ROUNDS)
    largest = float(np.max(own.noise))
    noise = largest if largest > 4 * np.median(own.noise) else float(np.mean(own.noise))
    return replace(model, density=own.density, power=own.power, noise=noise)


@dataclass(frozen=True)
class _Guess:
    """Parameters on the way to a fit: each atom may still have its own noise."""

    density: Vector
    power: Vector
    noise: Vector


FIRST_GUESS = _Guess(np.array([0.3]), np.array([3.0]), np.array([0.1]))
"""For codes of unit mean square."""


def _descended(counts: Counts, guess: _Guess, least_noise: float, rounds: int, *, noise_known: bool = False) -> _Guess:
    """Expectation maximisation, each atom by itself."""
    number, half = np.sum(counts.count, axis=1), 0.5 * counts.count
    for _ in range(rounds):
        offset, rate = _line(guess.density, guess.power, guess.noise)
        swing = half * np.tanh(0.5 * (offset[:, None] + rate[:, None] * counts.z2))
        active = half + swing
        share = np.add.reduce(active, axis=1)
        active_square, idle_square = (np.einsum("ij,ij->i", part, counts.z2) for part in (active, half - swing))
        kept = guess.power / (guess.power + guess.noise)  # x given z and activity: mean kept z, variance kept noise
        blur = kept * guess.noise * share
        before = guess
        guess = _Guess(
            density=np.clip(share / number, 1e-4, 1 - 1e-4),
            power=np.maximum((kept**2 * active_square + blur) / np.maximum(share, 1e-300), least_noise),
            noise=guess.noise
            if noise_known
            else np.maximum((idle_square + (1 - kept) ** 2 * active_square + blur) / number, least_noise),
        )
        if _close(before, guess):
            break
    return guess


def _close(a: _Guess, b: _Guess) -> bool:
    """Whether a round has changed next to nothing."""
    moved = np.abs(b.noise - a.noise) > CLOSE * a.noise
    return not np.any(moved | (np.abs(b.density - a.density) > CLOSE * a.density))


def _climbed(counts: Counts, guess: _Guess, least_noise: float) -> CodeModel:
    """Climb the likelihood with one noise for all, by L-BFGS in log odds and logarithms, where parameters are alike.

    Expectation maximisation would take hundreds of rounds where noise and codes overlap.
    """
    m = len(guess.density)
    number = float(np.sum(counts.count))
    near = float(guess.noise[0])

    def loss(x: Vector) -> tuple[float, Vector]:
        model = _from_vector(x, m)
        return (
            -float(np.sum(counts.count * model.log_density(counts.z2))) / number,
            -_slopes(counts, model) / number,
        )

    x = _to_vector(CodeModel(guess.density, guess.power, near))
    bounds = [(-9.0, 9.0)] * m + [(value - 7, value + 7) for value in x[m : 2 * m]]
    bounds += [(max(math.log(least_noise), math.log(near) - 2), math.log(near) + 2)]
    found = scipy.optimize.minimize(loss, x, jac=True, method="L-BFGS-B", bounds=bounds, options={"maxiter": 200})
    return _from_vector(np.asarray(found.x), m)


def _slopes(counts: Counts, model: CodeModel) -> Vector:
    """Derivatives of the log-likelihood by the log odds of density, log power and log noise."""
    active = counts.count * model.activity(counts.z2)
    idle = counts.count - active
    total = model.power + model.noise
    by_total = 0.5 * np.sum(active * (counts.z2 / total[:, None] - 1), axis=1) / total
    by_noise = 0.5 * np.sum(idle * (counts.z2 / model.noise - 1)) / model.noise
    by_odds = np.sum(active, axis=1) - model.density * np.sum(counts.count, axis=1)
    return np.concatenate([by_odds, model.power * by_total, [model.noise * (by_noise + np.sum(by_total))]])


def _to_vector(model: CodeModel) -> Vector:
    odds = np.log(model.density) - np.log1p(-model.density)
    return np.concatenate([odds, np.log(model.power), [math.log(model.noise)]])


def _from_vector(x: Vector, m: int) -> CodeModel:
    return CodeModel(1 / (1 + np.exp(-x[:m])), np.exp(x[m : 2 * m]), math.exp(x[2 * m]))
