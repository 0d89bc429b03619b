"""Laws of codes: values of unit variance, supports, amplitudes and series in time."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import signal, stats

Matrix = NDArray[Any]
Rng = np.random.Generator

SYMMETRIC: dict[str, Callable[[Any, Rng], Matrix]] = {
    "gaussian": lambda shape, rng: rng.standard_normal(shape),
    "laplace": lambda shape, rng: rng.laplace(size=shape),
    "logistic": lambda shape, rng: rng.logistic(size=shape),
    "uniform": lambda shape, rng: rng.uniform(-1, 1, shape),
    "triangular": lambda shape, rng: rng.triangular(-1, 0, 1, shape),
    "binary": lambda shape, rng: rng.choice([-1.0, 1.0], shape),
    "t2.5": lambda shape, rng: rng.standard_t(2.5, shape),
    "t3.5": lambda shape, rng: rng.standard_t(3.5, shape),
    "t5": lambda shape, rng: rng.standard_t(5, shape),
    "gennorm0.7": lambda shape, rng: stats.gennorm(0.7).rvs(shape, random_state=rng),
    "gennorm1.5": lambda shape, rng: stats.gennorm(1.5).rvs(shape, random_state=rng),
    "lognormal": lambda shape, rng: rng.choice([-1.0, 1.0], shape) * rng.lognormal(0, 1, shape),
}
"""Laws about zero, of any variance: `draw_values` divides by the standard deviation."""

VARIANCES = {
    "gaussian": 1.0,
    "laplace": 2.0,
    "logistic": math.pi**2 / 3,
    "uniform": 1 / 3,
    "triangular": 1 / 6,
    "binary": 1.0,
    "t2.5": 2.5 / 0.5,
    "t3.5": 3.5 / 1.5,
    "t5": 5 / 3,
    "gennorm0.7": float(stats.gennorm(0.7).var()),
    "gennorm1.5": float(stats.gennorm(1.5).var()),
    "lognormal": math.exp(2),
}

SKEWED: dict[str, Callable[[Any, Rng], Matrix]] = {
    "exponential": lambda shape, rng: rng.exponential(size=shape),
    "chi2": lambda shape, rng: (rng.chisquare(4, shape)) / math.sqrt(8),
    "gamma": lambda shape, rng: rng.gamma(0.5, size=shape) / math.sqrt(0.5),
}
"""Positive values of unit variance."""

SKEWED_MEANS = {"exponential": 1.0, "chi2": 4 / math.sqrt(8), "gamma": math.sqrt(0.5)}


def draw_values(law: str, shape: tuple[int, ...], rng: Rng) -> Matrix:
    """Values of unit variance about zero; those of a skewed law less its mean."""
    if law in SKEWED:
        return SKEWED[law](shape, rng) - SKEWED_MEANS[law]
    return np.asarray(SYMMETRIC[law](shape, rng) / math.sqrt(VARIANCES[law]))


def draw_sparse(shape: tuple[int, ...], density: float, rng: Rng, law: str = "gaussian") -> Matrix:
    """Codes that are zero or, with probability `density`, of unit variance."""
    return draw_values(law, shape, rng) * (rng.random(shape) < density)


def draw_codes(law: str, r: int, n: int, rng: Rng) -> Matrix:
    """Codes (r, n) of unit variance: "sparse" is Bernoulli-Gaussian of density 0.2, any other name a dense law."""
    if law == "sparse":
        return draw_sparse((r, n), 0.2, rng) / math.sqrt(0.2)
    return draw_values(law, (r, n), rng)


def draw_loudness(law: str, r: int, rng: Rng) -> Matrix:
    """A positive factor (r, 1) for all codes of a sample, of unit mean square: "lognormal0.5" has log of sd 0.5."""
    if law.startswith("lognormal"):
        factor = rng.lognormal(0, float(law.removeprefix("lognormal")), (r, 1))
    else:
        factor = np.sqrt(rng.gamma(float(law.removeprefix("gamma")), size=(r, 1)))
    return np.asarray(factor / np.sqrt(np.mean(factor**2)))


def draw_shared_supports(r: int, n: int, group: int, n_groups: int, share: float, density: float, rng: Rng) -> Matrix:
    """Supports (r, n): the first `n_groups` groups of atoms act together in a share of the samples."""
    active = rng.random((r, n)) < density
    for start in range(0, group * n_groups, group):
        together = rng.random(r) < share
        active[together, start : start + group] = active[together, start : start + 1]
    return active


def draw_bursts(r: int, n: int, length: float, density: float, rng: Rng) -> Matrix:
    """Supports (r, n) that are Markov chains in time: active for `length` samples in the mean, a share of all."""
    begin, end = density / ((1 - density) * length), 1 / length
    active = np.empty((r, n), dtype=bool)
    state = rng.random(n) < density
    for row, chance in zip(active, rng.random((r, n)), strict=True):
        state = np.where(state, chance >= end, chance < begin)
        row[:] = state
    return active


def draw_series(law: str, r: int, n: int, coefficient: float, rng: Rng) -> Matrix:
    """Stationary AR(1) series (r, n) of unit variance, with innovations of a law."""
    warm_up = math.ceil(10 / (1 - coefficient))
    innovations = draw_values(law, (r + warm_up, n), rng)
    series = signal.lfilter([1.0], [1.0, -coefficient], innovations, axis=0)[warm_up:]
    return np.asarray(series * math.sqrt(1 - coefficient**2))


def draw_amplitudes(r: int, n: int, coefficient: float, rng: Rng) -> Matrix:
    """Amplitudes (r, n) that change slowly, of unit mean square: the exponential of an AR(1) series for each atom."""
    return np.asarray(np.exp(draw_series("gaussian", r, n, coefficient, rng) - 1))
