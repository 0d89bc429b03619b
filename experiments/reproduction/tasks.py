"""What a cell has to do: plain numbers out, from nothing but the cell."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray

from elldict._old.backend.base import Array, to_numpy
from elldict._old.data.gpu_stream import find_device
from elldict._old.solver.directions import random_orthonormal
from elldict.datasets import make_bernoulli_gaussian
from elldict.metrics import frobenius_error, sphere_error
from elldict.theory import population_gradient, population_step
from experiments.peers.manifolds import riemannian_step
from experiments.reproduction import images
from experiments.reproduction.cells import METHODS, Cell

Values = dict[str, Any]
Timed = tuple[Values, float]
"""Values, and the seconds of the fit alone: those of its one core, whatever else the machine is doing; or of a card."""

START_SEED = 1_000_000
"""Added to the seed of the samples to seed the start: the two must not be drawn from the same numbers."""


def run_cell(cell: Cell, files: Mapping[str, str], device: str | None = None) -> Timed:
    """Do the task of the cell; `files` says where data lies that the cell knows by its fingerprint.

    On a `device` the answer is the same but for rounding.
    """
    if uses_card(cell, device):
        return recover_on_card(cell, str(device))
    return TASKS[cell.task](cell, files)


def uses_card(cell: Cell, device: str | None) -> bool:
    """Whether a graphics card would do the work."""
    return cell.task == "recovery" and METHODS[cell.method].on_card(device)


# --- recovery: draw samples, learn, compare with the truth ------------------------------------------------------------


def recover(cell: Cell, files: Mapping[str, str]) -> Timed:  # noqa: ARG001
    """Error of a method on samples whose dictionary is known."""
    X, dictionary, model = _posed(cell)
    return _recovered(model, X, dictionary, time.process_time)


def recover_on_card(cell: Cell, device: str) -> Timed:
    """The same with samples and fit on a graphics card; seconds are those that pass, the samples being there."""
    X, dictionary, model = _posed(cell)
    samples = find_device(device).asarray(X, str(X.dtype))
    return _recovered(model, samples, dictionary, time.perf_counter)


def _posed(cell: Cell) -> tuple[NDArray[Any], NDArray[Any], Any]:
    """Samples, their dictionary, and the model that does not know it."""
    setting: dict[str, Any] = dict(cell.setting)
    X, dictionary, _ = make_bernoulli_gaussian(**setting, random_state=cell.seed)
    return X, dictionary, METHODS[cell.method].make(setting, dict(cell.options), START_SEED + cell.seed)


def _recovered(model: Any, X: Array, dictionary: NDArray[Any], clock: Callable[[], float]) -> Timed:
    heard: list[str] = []
    began = clock()
    with _listening(heard):
        model.fit(X)
    seconds = clock() - began
    values: Values = {
        "error": unit_row_error(to_numpy(model.components_), dictionary),
        "n_iter": int(model.n_iter_),
        "warnings": heard,
    }
    return values, seconds


def unit_row_error(components: Any, dictionary: Any) -> float:
    """The paper's error 1 - ||A D0||_4^4 / n for rows of unit length, orthogonal or not: K-SVD's are not."""
    A = np.asarray(components, dtype=np.float64)
    A = A / np.linalg.norm(A, axis=1, keepdims=True)
    error = float(1 - np.sum((A @ np.asarray(dictionary, dtype=np.float64).T) ** 4) / len(A))
    if not np.isfinite(error):
        raise ValueError("the learned atoms are not finite.")
    return error


@contextmanager
def _listening(heard: list[str]) -> Iterator[None]:
    """Write down the names of warnings: at strong noise they are part of the result."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        yield
    heard.extend(sorted({warning.category.__name__ for warning in caught}))


# --- population: no samples, expectations -----------------------------------------------------------------------------

Step = Callable[[NDArray[np.float64]], NDArray[np.float64]]


def follow_population(cell: Cell, files: Mapping[str, str]) -> Timed:  # noqa: ARG001
    """Errors along a run on infinitely many samples, from a random start to `floor` or `max_iter` steps."""
    setting: dict[str, Any] = dict(cell.setting)
    n, where = int(setting["n_features"]), str(setting["constraint"])
    A = random_orthonormal(1 if where == "sphere" else n, n, np.random.default_rng((START_SEED, cell.seed)))
    A = A[0] if where == "sphere" else A
    measure = sphere_error if where == "sphere" else frobenius_error
    step = _population_step(cell.method, setting, dict(cell.options))
    errors = [float(measure(A, np.eye(n)))]
    began = time.process_time()
    while errors[-1] > setting["floor"] and len(errors) <= setting["max_iter"]:
        A = step(A)
        errors.append(float(measure(A, np.eye(n))))
    return {"errors": errors}, time.process_time() - began


def _population_step(method: str, setting: Mapping[str, Any], options: Mapping[str, Any]) -> Step:
    p, density = float(setting["p"]), float(setting["density"])
    if method == "power":
        return lambda A: population_step(A, p, density)
    # the paper's gradient has no factor p
    return lambda A: riemannian_step(A, population_gradient(A, p, density) / p, float(options["step"]))


TASKS: dict[str, Callable[[Cell, Mapping[str, str]], Timed]] = {
    "recovery": recover,
    "population": follow_population,
    "images": images.rebuild,
}
