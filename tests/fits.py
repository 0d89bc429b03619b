"""Codes, atoms and fits of the new core that several test modules share."""

import math

import numpy as np

from elldict.fit import Options, fit
from elldict.samples.arrays import ArraySamples

DENSITY, NOISE = 0.3, 0.1
DRAW = {
    "laplace": lambda rng, shape: rng.laplace(size=shape) / math.sqrt(2),
    "uniform": lambda rng, shape: rng.uniform(-1, 1, shape) * math.sqrt(3),
    "exponential": lambda rng, shape: rng.exponential(size=shape) - 1,
    "sparse": lambda rng, shape: rng.standard_normal(shape) * (rng.random(shape) < DENSITY),
    "noisy": lambda rng, shape: DRAW["sparse"](rng, shape) + NOISE * rng.standard_normal(shape),
    "gauss": lambda rng, shape: rng.standard_normal(shape),
}


def draw_atoms(n, seed=5):
    return np.linalg.qr(np.random.default_rng(seed).standard_normal((n, n)))[0]


def draw(law, r, n, seed=0):
    return DRAW[law](np.random.default_rng(seed), (r, n))


def run(X, observers=(), n_threads=1, **options):
    """Fit without error bars unless they are asked for."""
    return fit(ArraySamples(X, n_threads), Options(**{"error_bars": False, **options}), observers)


def measure_errors(columns, mixing):
    """1 - cos^4 of each true column (n, m) and the closest found one."""
    true, found = columns / np.linalg.norm(columns, axis=0), mixing / np.linalg.norm(mixing, axis=0)
    return 1 - np.max((true.T @ found) ** 4, axis=1)
