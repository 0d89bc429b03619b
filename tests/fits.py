"""Codes, atoms and fits of the new core that several test modules share."""

import math
from dataclasses import fields, is_dataclass

import numpy as np

from elldict.atoms import Options
from elldict.fit import fit
from elldict.samples.arrays import ArraySamples
from elldict.samples.subsample import Subset
from elldict.samples.whitening import Whitening
from elldict.solver.kernels import find_bins

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


def draw_loadings(p=300, k=4, seed=0, noise=0.1):
    """Draw rows with few large loadings, rotated at random; factors differ in size."""
    rng = np.random.default_rng(seed)
    simple = rng.laplace(size=(p, k)) * (rng.random((p, k)) < 0.4) * np.linspace(1.5, 0.8, k)
    return (simple + noise * rng.standard_normal((p, k))) @ draw_atoms(k, seed)


def draw(law, r, n, seed=0):
    return DRAW[law](np.random.default_rng(seed), (r, n))


def keep_coordinates(n, moments):
    """Take samples of these moments as they are."""
    return Whitening(np.zeros(n), np.eye(n), np.eye(n), moments, False, 1.0, n, 1.0, is_scaling=True)


def make_subset(X, weights=None, some=slice(None)):
    """Take samples as white ones; every other one is in the second half, and `some` are for second derivatives."""
    half = (np.arange(len(X)) % 2).astype(np.int8)
    each = np.ones(len(X)) if weights is None else weights
    moments = (X * each[:, None]).T @ X / np.sum(each)
    few = ArraySamples(X[some], weights=None if weights is None else weights[some])
    return Subset(ArraySamples(X, weights=weights), few, None, half, np.sum(X * X, axis=1), moments)


def encode(Z, weights=None, some=slice(None)):
    """Take samples as their own codes."""
    return make_subset(Z, weights, some).encode(np.eye(Z.shape[1]))


def share(function, grid, x):
    """Evaluate a function of standardised codes where they are counted: in parts, at the centres of two bins."""
    bins, others, away = find_bins(x, grid.unit, len(grid.centres))
    return (1 - away) * function(grid.centres[bins]) + away * function(grid.centres[others])


def run(X, observers=(), n_threads=1, **options):
    """Fit without error bars unless they are asked for."""
    return fit(ArraySamples(X, n_threads), Options(**{"error_bars": False, **options}), observers)


def measure_errors(columns, mixing):
    """1 - cos^4 of each true column (n, m) and the closest found one."""
    true, found = columns / np.linalg.norm(columns, axis=0), mixing / np.linalg.norm(mixing, axis=0)
    return 1 - np.max((true.T @ found) ** 4, axis=1)


def assert_same(one, other, ignored=("seconds",)):
    """Compare values to the last bit, but for fields of these names."""
    assert type(one) is type(other)
    if isinstance(one, np.ndarray):
        np.testing.assert_array_equal(one, other)
        assert one.dtype == other.dtype
    elif isinstance(one, (tuple, list)):
        assert len(one) == len(other)
        for each, another in zip(one, other, strict=True):
            assert_same(each, another, ignored)
    elif is_dataclass(one):
        for field in fields(one):
            if field.name not in ignored:
                assert_same(getattr(one, field.name), getattr(other, field.name), ignored)
    else:
        assert one == other or (math.isnan(one) and math.isnan(other))


def assert_same_fit(one, other, ignored=("seconds",)):
    """Compare the parameters and fitted attributes of two estimators to the last bit."""
    assert vars(one).keys() == vars(other).keys()
    for name, value in vars(one).items():
        assert_same(value, vars(other)[name], ignored)
