"""Tasks of cells: each computes plain numbers from the cell alone."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from elldict.datasets import make_bernoulli_gaussian
from elldict.metrics import frobenius_error, sphere_error
from elldict.solver.starts import draw_start
from elldict.theory import population_gradient, population_step
from experiments.peers.manifolds import riemannian_step
from experiments.reproduction import images
from experiments.reproduction.cells import METHODS, Cell

Timed = tuple[dict[str, Any], float]  # values, and the seconds that the fit needs on one core

START_SEED = 1_000_000  # added to the seed, so that samples and starts do not use the same random numbers


def run_cell(cell: Cell, files: Mapping[str, str]) -> Timed:
    """Run the task of a cell; `files` are the paths of data that the cell knows by a hash."""
    return TASKS[cell.task](cell, files)


def recover(cell: Cell, files: Mapping[str, str]) -> Timed:  # noqa: ARG001
    """Draw samples, fit a method, and compute its error; the names of its warnings belong to the result."""
    setting: dict[str, Any] = dict(cell.setting)
    X, dictionary, _ = make_bernoulli_gaussian(**setting, random_state=cell.seed)
    model = METHODS[cell.method].make(setting, dict(cell.options), START_SEED + cell.seed)
    started = time.process_time()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model.fit(X)
    seconds = time.process_time() - started
    names = sorted({warning.category.__name__ for warning in caught})
    error = compute_error(model.components_, dictionary)
    return {"error": error, "n_iter": int(model.n_iter_), "warnings": names}, seconds


def compute_error(components: Any, dictionary: Any) -> float:
    """Compute the error 1 - ||A D0||_4^4 / n of the paper after scaling atoms to unit length; K-SVD's need it."""
    A = np.asarray(components, dtype=np.float64)
    A = A / np.linalg.norm(A, axis=1, keepdims=True)
    error = float(1 - np.sum((A @ np.asarray(dictionary, dtype=np.float64).T) ** 4) / len(A))
    if not np.isfinite(error):
        raise ValueError("the learned atoms are not finite.")
    return error


Step = Callable[[NDArray[np.float64]], NDArray[np.float64]]


def follow_population(cell: Cell, files: Mapping[str, str]) -> Timed:  # noqa: ARG001
    """Compute errors of all iterates with infinitely many samples, from a random start to `floor` or `max_iter`."""
    setting: dict[str, Any] = dict(cell.setting)
    n, on_sphere = int(setting["n_features"]), setting["constraint"] == "sphere"
    A = draw_start(1 if on_sphere else n, n, np.random.default_rng((START_SEED, cell.seed)))
    A = A[0] if on_sphere else A
    measure = sphere_error if on_sphere else frobenius_error
    step = _make_step(cell.method, setting, dict(cell.options))
    errors = [float(measure(A, np.eye(n)))]
    started = time.process_time()
    while errors[-1] > setting["floor"] and len(errors) <= setting["max_iter"]:
        A = step(A)
        errors.append(float(measure(A, np.eye(n))))
    return {"errors": errors}, time.process_time() - started


def _make_step(method: str, setting: Mapping[str, Any], options: Mapping[str, Any]) -> Step:
    p, density = float(setting["p"]), float(setting["density"])
    if method == "power":
        return lambda A: population_step(A, p, density)
    # the gradient of the paper has no factor p
    return lambda A: riemannian_step(A, population_gradient(A, p, density) / p, float(options["step"]))


TASKS: dict[str, Callable[[Cell, Mapping[str, str]], Timed]] = {
    "recovery": recover,
    "population": follow_population,
    "images": images.rebuild,
}
