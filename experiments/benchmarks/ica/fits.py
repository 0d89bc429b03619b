"""A method and samples in, one result out."""

from __future__ import annotations

import re
import time
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from sklearn.decomposition import FastICA

from elldict import LpDictionaryLearning, LpICA
from elldict._old.solver.directions import polar
from elldict.exceptions import NotIdentifiableWarning
from elldict.metrics import match_atoms
from experiments.benchmarks.ica.problems import BlindSources, Drawn, Matrix, Problem

FOUND = 0.9
"""Cosine with a true atom from which it is found; between two random directions of twelve it is .3."""


@dataclass(frozen=True)
class Method:
    """An estimator with settings; all else are its defaults."""

    name: str
    kind: Callable[..., Any]
    settings: Mapping[str, Any]
    orthonormal: bool = False  # it takes atoms for orthonormal; made so, if the estimator does not
    revision: ClassVar[int] = 2  # raise it when the same settings give other answers

    def fit(self, X: Matrix, n_components: int | None, seed: int) -> tuple[Any, Matrix]:
        """A fitted model, and its atoms as rows."""
        model = self.kind(n_components, **self.settings, random_state=seed).fit(X)
        if self.orthonormal and self.kind is FastICA:
            return model, np.asarray(polar(model.components_))
        return model, np.asarray(model.mixing_.T)


def _fastica(name: str, *, orthonormal: bool = False, **settings: Any) -> Method:
    """FastICA with iterations enough to converge: 200 by default, where some settings need more."""
    settings = {"whiten": "unit-variance", "max_iter": 1000, **settings}
    return Method(f"FastICA {name}", FastICA, settings, orthonormal)


METHODS = (
    Method("LpDictionaryLearning()", LpDictionaryLearning, {}, orthonormal=True),
    _fastica("logcosh, made orthonormal", fun="logcosh", orthonormal=True),
    _fastica("exp, made orthonormal", fun="exp", orthonormal=True),
    Method("LpICA()", LpICA, {}),
    Method('LpICA(refine="mixture")', LpICA, {"refine": "mixture"}),
    _fastica("logcosh", fun="logcosh"),
    _fastica("exp", fun="exp"),
    _fastica("cube", fun="cube"),
    _fastica("logcosh, deflation", fun="logcosh", algorithm="deflation"),
)


def choose_methods(problem: Problem | BlindSources) -> list[Method]:
    """Those that take atoms for orthonormal only where they are; of FastICA one contrast where sources are Gaussian."""
    methods = [method for method in METHODS if problem.orthonormal or not method.orthonormal]
    if isinstance(problem, Problem) and "Gaussian" in problem.laws:
        names = ("FastICA logcosh, made orthonormal", "FastICA logcosh")
        return [method for method in methods if method.kind is not FastICA or method.name in names]
    return methods


@dataclass(frozen=True)
class Result:
    """One fit beside the truth: of the sources that can be found, but for what was named."""

    found: int
    sought: int
    error: float  # twice the mean of the squared sines between atoms and truth
    correlations: tuple[float, ...]  # of each source with the one found for it
    passes: float  # of FastICA its iterations
    seconds: float
    stated: float | None = None  # error bar of the same atoms
    named: tuple[int, ...] = ()  # true sources, by number, whose atoms a warning named
    converged: bool = True


def fit_once(method: Method, problem: Problem | BlindSources, drawn: Drawn, seed: int) -> Result:
    """Fit, and compare with the truth."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        began = time.perf_counter()
        model, atoms = method.fit(drawn.X, problem.n_components, seed)
        seconds = time.perf_counter() - began
    match = match_atoms(atoms, drawn.atoms)
    sought = drawn.sought[match.indices]
    cosines = match.cosines[sought]
    codes = model.transform(drawn.X)
    pairs = ((codes[:, atom], drawn.sources[:, source]) for atom, source in enumerate(match.indices))
    correlations = np.array([abs(np.corrcoef(one, other)[0, 1]) for one, other in pairs])
    return Result(
        found=int(np.sum(cosines > FOUND)),
        sought=int(np.sum(sought)),
        error=float(2 * np.mean(1 - cosines**2)),
        correlations=tuple(float(c) for c in correlations[np.argsort(match.indices)]),
        passes=float(getattr(model, "n_passes_", model.n_iter_)),
        seconds=seconds,
        stated=float(np.mean(model.atom_error_[sought])) if hasattr(model, "atom_error_") else None,
        named=tuple(sorted(int(match.indices[atom]) for atom in _read_named(caught))),
        converged=not any("did not converge" in str(warning.message) for warning in caught),
    )


def _read_named(caught: list[warnings.WarningMessage]) -> list[int]:
    """Atoms that warnings say are not identifiable among themselves."""
    said = (str(warning.message) for warning in caught if warning.category is NotIdentifiableWarning)
    found = (re.search(r"not identifiable among themselves: ([\d, ]+)", message) for message in said)
    return [int(atom) for match in found if match for atom in match.group(1).split(",")]
