"""Cells: a task, a method, its options, the setting of the samples, and the seed determine a result."""

from __future__ import annotations

import importlib.metadata
import importlib.util
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from elldict import LpDictionaryLearning, __version__
from experiments import peers
from experiments.harness.store import key_of

Scalar = float | int | str | bool
Settings = tuple[tuple[str, Scalar], ...]  # names and values, sorted by name: a hashable mapping

DATA_REVISION = 1  # raise it when the same seed gives other samples


@dataclass(frozen=True)
class Cell:
    """A result to compute; `software` names the package behind the method, its version and revision."""

    task: str  # a key of `tasks.TASKS`
    method: str  # a key of `METHODS`
    options: Settings
    setting: Settings
    seed: int  # of samples and start
    software: str

    @property
    def identity(self) -> dict[str, Any]:
        """The cell as plain data."""
        return {**vars(self), "options": dict(self.options), "setting": dict(self.setting)}

    @property
    def key(self) -> str:
        """The cell as text: equal for equal cells, and only for them."""
        return key_of(self.identity)

    def value(self, name: str) -> Any:
        """Return a value of the setting or the options, 0 if there is none."""
        return dict(self.setting + self.options).get(name, 0)


@dataclass(frozen=True)
class Method:
    """How to make an estimator from setting, options and seed; `peer` is None for the methods of elldict.

    Raise `own_revision` when a method of elldict gives other results; a baseline has the revision of its adapter.
    """

    make: Callable[[Mapping[str, Any], Mapping[str, Any], int], Any]
    peer: type[peers.Peer] | None = None
    own_revision: int = 1

    @property
    def missing(self) -> str | None:
        """Name of the package to install first, None if it is installed."""
        if self.peer is None or importlib.util.find_spec(self.peer.module) is not None:
            return None
        return self.peer.package

    @property
    def software(self) -> str:
        """Package, version and revisions."""
        name, revision = (
            ("elldict", self.own_revision) if self.peer is None else (self.peer.package, self.peer.revision)
        )
        version = __version__ if name == "elldict" else "missing" if self.missing else importlib.metadata.version(name)
        return f"{name} {version}, adapter {revision}, data {DATA_REVISION}"


def _make_ksvd(setting: Mapping[str, Any], options: Mapping[str, Any], seed: int) -> peers.KSVD:
    n_nonzero = max(1, round(setting["density"] * setting["n_features"]))
    return peers.KSVD(n_nonzero, random_state=seed, **options)


def _wrap(kind: type[Any], **fixed: Any) -> Callable[[Mapping[str, Any], Mapping[str, Any], int], Any]:
    """Make an estimator that does not depend on the setting."""
    return lambda _, options, seed: kind(random_state=seed, **fixed, **options)


METHODS = {
    "lp": Method(_wrap(LpDictionaryLearning, solver="power", refine=None), own_revision=3),  # 2 had other starts
    "default": Method(_wrap(LpDictionaryLearning), own_revision=5),  # 4 left out pilots; 3 was the package before
    "ksvd": Method(_make_ksvd, peers.KSVD),
    "rtr": Method(_wrap(peers.TrustRegionL1), peers.TrustRegionL1),
    "gradient": Method(_wrap(peers.RiemannianGradient), peers.RiemannianGradient),
    "fastica": Method(_wrap(peers.FastICA), peers.FastICA),
    "picard": Method(_wrap(peers.Picard), peers.Picard),
    "pca": Method(lambda _, options, __: peers.PCA(**options), peers.PCA),
    "top-k": Method(_wrap(peers.TopKProcrustes), peers.TopKProcrustes),
    "power": Method(_wrap(LpDictionaryLearning)),  # on the population: without samples and estimator
}


def make_cell(
    task: str,
    method: str,
    setting: Mapping[str, Scalar],
    seed: int,
    options: Mapping[str, Scalar] | None = None,
) -> Cell:
    """Make a cell for the installed version of a method."""
    names = tuple(sorted((options or {}).items())), tuple(sorted(setting.items()))
    return Cell(task, method, *names, seed, METHODS[method].software)
