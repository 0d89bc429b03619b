"""Data sets with known atoms, many of which violate an assumption of the fit.

Each function draws samples (r, n) with n sources, and returns them with the true columns of the mixing matrix. Codes
have unit variance where they are not zero.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
from scipy import signal
from scipy.linalg import expm

from elldict.datasets import make_bernoulli_gaussian
from experiments.benchmarks.study import Matrix, draw_rotation

Rng = np.random.Generator
Drawn = tuple[Matrix, Matrix]

DENSITY, NOISE = 0.2, 0.1  # unless a kind varies them

VALUES: dict[str, Callable[[Rng, tuple[int, ...]], Matrix]] = {
    "gaussian": lambda rng, shape: rng.standard_normal(shape),
    "laplace": lambda rng, shape: rng.laplace(size=shape) / np.sqrt(2),
    "uniform": lambda rng, shape: rng.uniform(-np.sqrt(3), np.sqrt(3), shape),
    "triangular": lambda rng, shape: rng.triangular(-1, 0, 1, shape) * np.sqrt(6),
    "binary": lambda rng, shape: rng.choice([-1.0, 1.0], shape),
    "logistic": lambda rng, shape: rng.logistic(size=shape) * np.sqrt(3) / np.pi,
    "t3": lambda rng, shape: rng.standard_t(3, shape) / np.sqrt(3),
    "t5": lambda rng, shape: rng.standard_t(5, shape) * np.sqrt(3 / 5),
    "lognormal": lambda rng, shape: rng.choice([-1.0, 1.0], shape) * rng.lognormal(0, 1, shape) / np.exp(1),
    "exponential": lambda rng, shape: rng.exponential(size=shape) - 1,
    "gamma": lambda rng, shape: (rng.gamma(0.5, size=shape) - 0.5) * np.sqrt(2),
}
"""Values of unit variance and mean zero."""


def draw_sparse(rng: Rng, shape: tuple[int, int], density: float = DENSITY, values: str = "gaussian") -> Matrix:
    """Draw codes that are zero, or with probability `density` of unit variance."""
    return VALUES[values](rng, shape) * (rng.random(shape) < density)


def draw_codes(rng: Rng, shape: tuple[int, int], codes: str) -> Matrix:
    """Draw codes of unit variance: "sparse", or one of VALUES."""
    return draw_sparse(rng, shape) / np.sqrt(DENSITY) if codes == "sparse" else VALUES[codes](rng, shape)


def mix(rng: Rng, codes: Matrix, noise: float = 0.0) -> Drawn:
    """Mix codes by random orthonormal columns, and add noise."""
    M = draw_rotation(codes.shape[1], rng)
    return codes @ M.T + noise * rng.standard_normal(codes.shape), M


def draw_values(
    rng: Rng, n: int, r: int, values: str = "gaussian", density: float = DENSITY, noise: float = 0.0
) -> Drawn:
    """Draw independent codes: the model, if their values are Gaussian."""
    return mix(rng, draw_sparse(rng, (r, n), density, values), noise)


def draw_two_kinds(rng: Rng, n: int, r: int, first: str, others: str, share: float = 0.5) -> Drawn:
    """Draw sources of one distribution, at least one and a fraction of all, and of another one."""
    k = max(1, round(share * n))
    return mix(rng, np.c_[draw_codes(rng, (r, k), first), draw_codes(rng, (r, n - k), others)])


def draw_common_scale(rng: Rng, n: int, r: int, codes: str, spread: float) -> Drawn:
    """Draw samples of which all codes are large or small together."""
    return mix(rng, draw_codes(rng, (r, n), codes) * rng.lognormal(-(spread**2), spread, (r, 1)))


def draw_shared(rng: Rng, n: int, r: int, group: int, share: float, noise: float) -> Drawn:
    """Draw groups of atoms that are active together in a fraction of the samples."""
    active = rng.random((r, n)) < DENSITY
    for start in range(0, n - group + 1, group):
        together = rng.random(r) < share
        active[together, start : start + group] = active[together, start : start + 1]
    return mix(rng, active * rng.standard_normal((r, n)), noise)


def draw_series(rng: Rng, n: int, r: int, coefficient: float, of: str) -> Drawn:
    """Draw autoregressive codes, or codes whose log amplitudes are autoregressive."""
    innovations = VALUES["laplace" if of == "codes" else "gaussian"](rng, (r + 1000, n))
    series = signal.lfilter([1.0], [1.0, -coefficient], innovations, axis=0)[1000:] * np.sqrt(1 - coefficient**2)
    return mix(rng, series if of == "codes" else np.exp(series - 1) * rng.standard_normal((r, n)))


def draw_repeated(rng: Rng, n: int, r: int, copies: int, shuffled: bool, codes: str) -> Drawn:
    """Draw samples each of which occurs several times; 0 copies: a bootstrap sample."""
    number = np.arange(r) // copies if copies else rng.integers(0, r, r)
    X, M = mix(rng, draw_codes(rng, (r, n), codes), NOISE)
    return X[rng.permutation(number) if shuffled else number], M


def draw_drift(rng: Rng, n: int, r: int, angle: float) -> Drawn:
    """Draw samples while all atoms rotate, by an angle in all; the true atoms are those in the middle."""
    turn, M, times = rng.standard_normal((n, n)), draw_rotation(n, rng), np.linspace(-0.5, 0.5, 100)
    turn = (turn - turn.T) * angle * np.sqrt(n) / np.linalg.norm(turn - turn.T)
    blocks = zip(np.array_split(draw_sparse(rng, (r, n)), len(times)), times, strict=True)
    X = np.concatenate([block @ expm(t * turn) @ M.T for block, t in blocks])
    return X + NOISE * rng.standard_normal(X.shape), M


def draw_faulty(rng: Rng, n: int, r: int, fault: str, size: float = 1.0) -> Drawn:
    """Draw samples with outliers, or of sensors that are noisy, rounded, clipped or nonlinear."""
    X, M = draw_values(rng, n, r, noise=NOISE)
    X /= np.std(X)
    odd = np.zeros((r, 1))
    odd[rng.choice(r, 10, replace=False)] = 1
    changed: dict[str, Callable[[], Matrix]] = {
        "ten scaled samples": lambda: X * (1 + (size - 1) * odd),
        "Cauchy noise": lambda: X + (rng.random((r, 1)) < size) * rng.standard_cauchy((r, n)),
        "noisy feature": lambda: X + size * NOISE * rng.standard_normal((r, n)) * (np.arange(n) == 0),
        "rounded": lambda: np.round(X / size) * size,
        "clipped": lambda: np.clip(X, -size, size),
        "tanh": lambda: np.tanh(X),
        "cubic": lambda: X + 0.1 * X**3,
    }
    return changed[fault](), M


def draw_corrupted(rng: Rng, n: int, r: int, rate: float, size: float) -> Drawn:
    """Draw samples some of whose entries are changed by plus or minus `size`."""
    options: Any = {"density": DENSITY, "noise_std": NOISE, "corruption": size, "corruption_rate": rate}
    X, atoms, _ = make_bernoulli_gaussian(r, n, random_state=rng, **options)
    return X, atoms.T


def draw_oblique(rng: Rng, n: int, r: int, condition: float, codes: str, noise: float = 0.0) -> Drawn:
    """Draw sources with a mixing matrix of a condition number, around a mean."""
    M = draw_rotation(n, rng) * np.geomspace(1, 1 / condition, n) @ draw_rotation(n, rng)
    X = draw_codes(rng, (r, n), codes) @ M.T
    return X + noise * np.std(X) * rng.standard_normal(X.shape) + rng.standard_normal(n), M


def draw_strengths(rng: Rng, n: int, r: int, ratio: float, codes: str, noise: float) -> Drawn:
    """Draw sources whose standard deviations differ by a factor; noise is relative to the weakest."""
    return mix(rng, draw_codes(rng, (r, n), codes) * np.geomspace(1, ratio, n), noise)


def draw_reduced(rng: Rng, n: int, r: int, share: float, noise: float, codes: str) -> Drawn:
    """Draw n sources in more features, with noise."""
    M = rng.standard_normal((round(n / share), n))
    M /= np.linalg.norm(M, axis=0)
    X = draw_codes(rng, (r, n), codes) @ M.T
    return X + noise * rng.standard_normal(X.shape), M


@dataclass(frozen=True)
class Kind:
    """How data sets are drawn, with which parameters, and whether they are fitted by LpICA."""

    draw: Callable[..., Drawn]
    settings: Sequence[dict[str, Any]]
    is_mixture: bool = False


def combine(**values: Sequence[Any]) -> list[dict[str, Any]]:
    """List all combinations of parameters."""
    return [dict(zip(values, chosen, strict=True)) for chosen in product(*values.values())]


BOTH, DENSE = ("sparse", "laplace"), ("laplace", "logistic", "t3", "t5", "uniform", "triangular", "binary")
MORE, SKEWED = (*BOTH, "t3", "exponential", "uniform"), ("exponential", "gamma")
OTHERS = ("laplace", "uniform", "t3", "lognormal", "binary")
FAULTS = [("ten scaled samples", 10.0), ("ten scaled samples", 100.0), ("Cauchy noise", 0.01), ("Cauchy noise", 0.05)]
FAULTS += [("noisy feature", 2.0), ("noisy feature", 20.0), ("rounded", 0.05), ("rounded", 0.3), ("rounded", 1.0)]
FAULTS += [("clipped", 1.0), ("clipped", 2.0), ("tanh", 1.0), ("cubic", 1.0)]
KINDS = {
    "sparse": Kind(draw_values, combine(density=(0.05, 0.1, 0.3, 0.5), noise=(0.0, 0.1, 0.3))),
    "very sparse or dense": Kind(draw_values, combine(density=(0.01, 0.02, 0.6, 0.9))),
    "other active codes": Kind(draw_values, combine(values=OTHERS, noise=(0.0, 0.1))),
    "dense codes": Kind(draw_values, combine(values=DENSE, density=(1.0,))),
    "skewed codes": Kind(draw_values, combine(values=SKEWED, density=(1.0,), noise=(0.0, 0.1))),
    "two kinds": Kind(draw_two_kinds, combine(first=("uniform", "binary"), others=BOTH)),
    "Gaussian sources": Kind(draw_two_kinds, combine(first=("gaussian",), others=BOTH, share=(0.0, 0.25, 0.5, 1.0))),
    "common scale": Kind(draw_common_scale, combine(codes=BOTH, spread=(0.3, 0.7, 1.0))),
    "shared supports": Kind(draw_shared, combine(group=(2, 4), share=(0.5, 1.0), noise=(0.0, 0.1))),
    "serial": Kind(draw_series, combine(coefficient=(0.5, 0.9, 0.99), of=("codes", "amplitudes"))),
    "repeated": Kind(draw_repeated, combine(copies=(0, 2, 5), shuffled=(False, True), codes=BOTH)),
    "drift": Kind(draw_drift, combine(angle=(0.1, 0.2, 0.5))),
    "outliers and sensors": Kind(draw_faulty, [{"fault": fault, "size": size} for fault, size in FAULTS]),
    "corrupted": Kind(draw_corrupted, combine(rate=(0.01, 0.1), size=(0.5, 2.0, 10.0))),
    "strengths": Kind(draw_strengths, combine(ratio=(3.0, 10.0, 100.0), codes=BOTH, noise=(0.0, 0.1)), True),
    "oblique": Kind(draw_oblique, combine(condition=(1.5, 3.0, 10.0), codes=MORE, noise=(0.0, 0.1)), True),
    "more features": Kind(draw_reduced, combine(share=(0.5, 0.25), noise=(0.1, 0.3), codes=BOTH), True),
    "few samples per direction": Kind(draw_oblique, combine(condition=(3.0,), codes=MORE), True),
}
