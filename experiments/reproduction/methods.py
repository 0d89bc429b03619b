"""The columns of the tables: each method under its name, with what its answers depend on."""

from __future__ import annotations

import importlib.metadata
import importlib.util
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from elldict import LpDictionaryLearning, __version__
from experiments import peers
from experiments.reproduction.cell import DATA_REVISION, Cell, Scalar, frozen

ANNEALED = (3, 2.5, 2.2)
"""Exponents for few samples, one after the other."""


@dataclass(frozen=True)
class Method:
    """How an estimator is made, and what else its answer depends on.

    `make` takes the setting, the options and the seed. `module` and `package` name the library behind a baseline;
    ours have none, and can work on a graphics card. Raise `revision` when the adapter, or an unreleased solver, gives
    other answers than before.
    """

    make: Callable[[Mapping[str, Any], Mapping[str, Any], int], Any]
    module: str | None = None
    package: str | None = None
    revision: int = 1

    @property
    def missing(self) -> str | None:
        """The package to be installed first, None if it is there."""
        if self.module is None or importlib.util.find_spec(self.module) is not None:
            return None
        return self.package

    def on_card(self, device: str | None) -> bool:
        """Whether a fit works on the card, if there is one."""
        return device is not None and self.make in (_paper, _default, _annealed)

    @property
    def software(self) -> str:
        """Package, version and revisions."""
        if self.package is None:
            name, version = "elldict", __version__
        else:
            name, version = self.package, "missing" if self.missing else importlib.metadata.version(self.package)
        return f"{name} {version}, adapter {self.revision}, data {DATA_REVISION}"


def _paper(_: Mapping[str, Any], options: Mapping[str, Any], seed: int) -> LpDictionaryLearning:
    return LpDictionaryLearning(solver="power", refine=None, random_state=seed, **options)


def _default(_: Mapping[str, Any], options: Mapping[str, Any], seed: int) -> LpDictionaryLearning:
    return LpDictionaryLearning(random_state=seed, **options)


def _annealed(_: Mapping[str, Any], options: Mapping[str, Any], seed: int) -> LpDictionaryLearning:
    return LpDictionaryLearning(p=ANNEALED, random_state=seed, **options)


def _ksvd(setting: Mapping[str, Any], options: Mapping[str, Any], seed: int) -> peers.KSVD:
    n_nonzero = max(1, round(setting["density"] * setting["n_features"]))
    return peers.KSVD(n_nonzero, random_state=seed, **options)


METHODS = {
    "lp": Method(_paper, revision=2),
    "default": Method(_default, revision=3),
    "annealed": Method(_annealed, revision=3),
    "ksvd": Method(_ksvd, "dictlearn", "dictlearn"),
    "rtr": Method(lambda _, o, seed: peers.TrustRegionL1(random_state=seed, **o), "pymanopt", "pymanopt"),
    "gradient": Method(lambda _, o, seed: peers.RiemannianGradient(random_state=seed, **o), "pymanopt", "pymanopt"),
    "fastica": Method(lambda _, o, seed: peers.FastICA(random_state=seed, **o), "sklearn", "scikit-learn", revision=2),
    "picard": Method(lambda _, o, seed: peers.Picard(random_state=seed, **o), "picard", "python-picard"),
    "pca": Method(lambda _, o, __: peers.PCA(**o), "sklearn", "scikit-learn"),
    "top-k": Method(lambda _, o, seed: peers.TopKProcrustes(random_state=seed, **o)),
    "power": Method(_paper),  # the population power method: no samples, no estimator
}


def make_cell(
    task: str,
    method: str,
    setting: Mapping[str, Scalar],
    seed: int,
    options: Mapping[str, Scalar] | None = None,
) -> Cell:
    """A cell of this method as it is installed here."""
    return Cell(task, method, frozen(options or {}), frozen(setting), seed, METHODS[method].software)
