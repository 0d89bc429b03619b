"""A setting, a seed and a method in, one result out; stored, so that nothing is run twice."""

from __future__ import annotations

import os
import platform
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
import sklearn
from numpy.typing import NDArray

from elldict import LpDictionaryLearning, __version__
from elldict._old.solver.directions import random_orthonormal
from elldict.datasets import make_bernoulli_gaussian
from elldict.metrics import recovery_error
from experiments import BENCHMARK_RESULTS, peers
from experiments.harness.store import DONE, Record, Store

Matrix = NDArray[Any]
ANNEALED = (3, 2.5, 2.2)


@dataclass(frozen=True)
class Setting:
    """What a data set is drawn from."""

    n_features: int
    n_samples: int
    density: float = 0.3
    noise_std: float = 0.0
    corruption: float = 0.0
    corruption_rate: float = 0.1
    dtype: str = "float32"
    codes: str = "bernoulli-gaussian"  # or a name of OTHER_CODES; those have a mean square of one

    def drawn(self, seed: int) -> tuple[Matrix, Matrix]:
        """Samples (r, n) and the atoms (n, n) in them."""
        if self.codes != "bernoulli-gaussian":
            return self._drawn_from_other_codes(seed)
        X, dictionary, _ = make_bernoulli_gaussian(
            self.n_samples,
            self.n_features,
            density=self.density,
            noise_std=self.noise_std,
            corruption=self.corruption,
            corruption_rate=self.corruption_rate,
            dtype=self.dtype,
            random_state=seed,
        )
        return X, dictionary

    def _drawn_from_other_codes(self, seed: int) -> tuple[Matrix, Matrix]:
        rng = np.random.default_rng(seed)
        codes = OTHER_CODES[self.codes](rng, (self.n_samples, self.n_features), self.density)
        codes /= np.sqrt(np.mean(codes**2))
        dictionary = random_orthonormal(self.n_features, self.n_features, rng)
        X = codes @ dictionary + self.noise_std * rng.standard_normal(codes.shape)
        return X.astype(self.dtype), dictionary.astype(self.dtype)


def _active(rng: np.random.Generator, shape: tuple[int, int], density: Any) -> Matrix:
    return np.asarray(rng.random(shape) < density)


OTHER_CODES: dict[str, Callable[[np.random.Generator, tuple[int, int], float], Matrix]] = {
    "Laplace": lambda rng, shape, _: rng.laplace(size=shape),
    "Student-t(3)": lambda rng, shape, _: rng.standard_t(3, size=shape),
    "Bernoulli-uniform": lambda rng, shape, theta: _active(rng, shape, theta) * rng.uniform(-1, 1, shape),
    "Bernoulli +-1": lambda rng, shape, theta: _active(rng, shape, theta) * rng.choice([-1.0, 1.0], shape),
    "activity differs 10-fold": lambda rng, shape, _: (
        _active(rng, shape, np.geomspace(0.05, 0.5, shape[1])) * rng.standard_normal(shape)
    ),
    "scale differs 10-fold": lambda rng, shape, theta: (
        _active(rng, shape, theta) * rng.standard_normal(shape) * np.geomspace(0.3, 3, shape[1])
    ),
}
"""Laws that the refinement does not know; the last two are Bernoulli-Gaussian, each atom with numbers of its own."""


@dataclass(frozen=True)
class Result:
    """One fit beside the truth. What FastICA does not tell is None."""

    error: float
    seconds: float
    bar: float | None = None
    density: float | None = None
    noise_std: float | None = None
    refined: str | None = None
    status: str = ""
    warned: tuple[str, ...] = ()

    @property
    def exact(self) -> bool:
        """Whether the dictionary was recovered, not merely approached."""
        return self.error < 1e-6

    @property
    def claims_to_be_exact(self) -> bool:
        """Whether the fit says so itself."""
        return "exactly sparse" in self.status

    @property
    def reported(self) -> bool:
        """Whether the fit says that something is wrong."""
        return bool(self.warned)


Options = dict[str, Any]
METHODS: dict[str, Options | None] = {
    "l3": {"p": 3, "refine": None},
    "l4": {"p": 4, "refine": None},
    "l5": {"p": 5, "refine": None},
    "FastICA": None,
    "refined": {"p": 3, "refine": "auto"},
    "annealed": {"p": ANNEALED, "refine": "auto"},
}
"""Parameters of the estimator; None is the other library."""


def fitted(method: str, X: Matrix, dictionary: Matrix, seed: int) -> Result:
    """Fit, and compare with the truth."""
    options = METHODS[method]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        began = time.perf_counter()
        if options is None:
            atoms, told = peers.FastICA(random_state=seed).fit(X).components_, {}
        else:
            model = LpDictionaryLearning(**options, random_state=seed).fit(X)
            atoms, told = model.components_, _told(model)
        seconds = time.perf_counter() - began
    warned = tuple(sorted({warning.category.__name__ for warning in caught}))
    error = max(recovery_error(atoms, dictionary), 0.0)  # rounding can take it below
    return Result(error=error, seconds=seconds, warned=warned, **told)


def _told(model: LpDictionaryLearning) -> dict[str, Any]:
    return {
        "bar": float(model.expected_error_),
        "density": float(np.mean(model.density_)),
        "noise_std": float(model.noise_std_),
        "refined": model.refined_,
        "status": model.status_,
    }


# --- stored -----------------------------------------------------------------------------------------------------------

DEFAULTS = {field.name: field.default for field in fields(Setting)}
Key = tuple[Setting, int, str]


def versions() -> dict[str, Any]:
    """What made the numbers."""
    return {
        "elldict": __version__,
        "numpy": np.__version__,
        "sklearn": sklearn.__version__,
        "machine": platform.machine(),
        "cores": os.cpu_count(),
    }


def adapter_of(method: str) -> int:
    """Revision of the adapter behind a method; the methods of elldict have their version."""
    return peers.FastICA.revision if METHODS[method] is None else 1


class Fits:
    """Results by setting, seed and method; those that are missing are computed and written down at once.

    Results of another version of elldict, or of an adapter of before, count only where nothing is to be run.
    """

    def __init__(
        self, path: Path = BENCHMARK_RESULTS / "limit.jsonl", *, fresh: bool = False, stored_only: bool = False
    ) -> None:
        self.stored_only = stored_only
        self.store = Store(path, history=True)
        self._known: dict[Key, Result] = {} if fresh else dict(self._stored())

    def _stored(self) -> Iterator[tuple[Key, Result]]:
        for record in self.store.records.values():
            cell = record.identity
            current = cell["made_by"]["elldict"] == __version__ and cell["adapter"] == adapter_of(cell["method"])
            if self.stored_only or current:
                key = (Setting(**cell["setting"]), cell["seed"], cell["method"])
                yield key, Result(**{**record.values, "warned": tuple(record.values["warned"])})

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Hold the file, unless nothing is to be run."""
        with nullcontext() if self.stored_only else self.store.writing():
            yield

    def results(self, setting: Setting, seeds: int, methods: Sequence[str]) -> dict[str, list[Result]]:
        """Results of each method, seed by seed; with `stored_only` perhaps fewer than were asked for."""
        found: dict[str, list[Result]] = {method: [] for method in methods}
        for seed in range(seeds):
            self._complete(setting, seed, methods)
            if all((setting, seed, method) in self._known for method in methods):  # methods stay comparable
                for method in methods:
                    found[method].append(self._known[setting, seed, method])
        return found

    def _complete(self, setting: Setting, seed: int, methods: Sequence[str]) -> None:
        missing = [method for method in methods if (setting, seed, method) not in self._known]
        if not missing or self.stored_only:
            return
        X, dictionary = setting.drawn(seed)
        special = {name: value for name, value in asdict(setting).items() if value != DEFAULTS[name]}
        for method in missing:
            result = fitted(method, X, dictionary, seed)
            cell = {"setting": special, "seed": seed, "method": method, "adapter": adapter_of(method)}
            self.store.add(Record(cell | {"made_by": versions()}, DONE, asdict(result), "", {}))
            self._known[setting, seed, method] = result
