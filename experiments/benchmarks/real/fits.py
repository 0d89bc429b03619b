"""A method and white samples in, a rotation out; and what held-out samples say of it."""

from __future__ import annotations

import importlib.util
import time
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from sklearn.decomposition import FastICA
from sklearn.exceptions import ConvergenceWarning

from elldict import LpDictionaryLearning
from elldict._old.solver.directions import polar
from experiments.benchmarks.real.sets import Matrix, Split
from experiments.peers.base import required

N_BINS = 80
"""Of the density of a code."""

STRETCH = 4.0
"""Bins are of equal width in asinh(STRETCH z): fine about zero, where sparse codes are, and wide in the tails."""

LEAST_COUNT = 0.1
"""Samples that every bin has from the outset, so that none is impossible."""


def measure_log_density(train: Matrix, test: Matrix) -> float:
    """Mean log density of test codes, summed over codes, by smoothed histograms of training codes; in nats."""
    u, v = np.arcsinh(STRETCH * train), np.arcsinh(STRETCH * test)
    # dv/dz, which brings a density of v to one of z
    total = float(np.sum(np.mean(np.log(STRETCH / np.cosh(v)), axis=0)))
    for mine, theirs in zip(u.T, v.T, strict=True):
        counts, edges = np.histogram(mine, N_BINS)
        counts = np.convolve(counts, (0.25, 0.5, 0.25), mode="same") + LEAST_COUNT
        density = counts / (np.sum(counts) * (edges[1] - edges[0]))
        # what lies beyond all training codes counts in the last bin
        which = np.clip(np.searchsorted(edges, theirs, side="right") - 1, 0, N_BINS - 1)
        total += float(np.mean(np.log(density[which])))
    return total


def measure_gain(split: Split, A: Matrix) -> float:
    """What the rotation A adds to the log density of a held-out sample, in nats."""
    rotated = measure_log_density(split.train @ A.T, split.test @ A.T)
    return rotated - measure_log_density(split.train, split.test)


def measure_difference(A: Matrix, B: Matrix) -> float:
    """How far two rotations differ, whatever the order and signs of atoms: 0 if equal, about 1 if unrelated."""
    return max(0.0, float(1 - np.sum((A @ B.T) ** 4) / len(A)))  # rounding may go below zero


@dataclass(frozen=True)
class Method:
    """An estimator with settings; all else are its defaults."""

    name: str
    fit: Callable[..., tuple[Matrix, bool]]  # samples, seed, settings: unmixing matrix, and whether it converged
    settings: Mapping[str, Any]
    module: str = "sklearn"
    revision: ClassVar[int] = 1  # raise it when the same settings give other answers


def _fit_fastica(Z: Matrix, seed: int, **settings: Any) -> tuple[Matrix, bool]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model = FastICA(whiten=False, random_state=seed, **settings).fit(Z.astype(np.float32))
    return model.components_, not any(issubclass(warning.category, ConvergenceWarning) for warning in caught)


def _fit_picard(Z: Matrix, seed: int, **settings: Any) -> tuple[Matrix, bool]:
    """In float64: its line search meets rounding in float32."""
    if importlib.util.find_spec("numexpr") is not None:
        importlib.import_module("numexpr").set_num_threads(1)
    picard = required("picard", "python-picard").picard
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        _, rotation, _ = picard(Z.T, ortho=True, whiten=False, centering=False, random_state=seed, **settings)
    return rotation, not any("did not converge" in str(warning.message) for warning in caught)


def _fit_elldict(Z: Matrix, seed: int, **settings: Any) -> tuple[Matrix, bool]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # codes that depend on each other: this is real data
        model = LpDictionaryLearning(random_state=seed, **settings).fit(Z.astype(np.float32))
    return model.components_, bool(model.converged_)


OURS = "elldict"
LIMITS = {"max_iter": 200, "tol": 1e-4}
"""Of all peers: the defaults of FastICA."""

METHODS = (
    Method("FastICA logcosh", _fit_fastica, {"fun": "logcosh", **LIMITS}),
    Method("FastICA exp", _fit_fastica, {"fun": "exp", **LIMITS}),
    Method("Picard-O extended", _fit_picard, {"extended": True, **LIMITS}, module="picard"),
    Method(OURS, _fit_elldict, {}, module="elldict"),
    Method(f"{OURS}, whiten=True", _fit_elldict, {"whiten": True}, module="elldict"),
)


def list_installed() -> list[Method]:
    """Methods whose packages are installed."""
    return [method for method in METHODS if importlib.util.find_spec(method.module) is not None]


@dataclass(frozen=True)
class Result:
    """One fit."""

    A: Matrix
    gain: float
    seconds: float
    converged: bool


def fit_once(method: Method, split: Split, seed: int) -> Result:
    """Fit, and measure on held-out samples; the nearest orthonormal matrix counts."""
    began = time.perf_counter()
    unmixing, converged = method.fit(split.train, seed, **method.settings)
    seconds = time.perf_counter() - began
    A = np.asarray(polar(np.asarray(unmixing, dtype=np.float64)))
    return Result(A, measure_gain(split, A), seconds, converged)
