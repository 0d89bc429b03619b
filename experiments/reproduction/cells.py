"""Results to be had: a task, a method under its name, and everything else that determines the answer."""

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
Settings = tuple[tuple[str, Scalar], ...]
"""Names and values in the order of the names: a mapping that can be a key."""

DATA_REVISION = 1
"""Raise it when the same seed gives other samples: results of old samples are then no longer results of these."""


@dataclass(frozen=True)
class Cell:
    """A task, the method that does it, what it is done on, and the seed.

    Attributes
    ----------
    task : str
        Name of a task of `tasks`.
    method : str
        Name of a method of `METHODS`.
    options : tuple of (str, scalar)
        Parameters of the method.
    setting : tuple of (str, scalar)
        What the samples are drawn from.
    seed : int
        Number of the trial; samples and starts follow from it.
    software : str
        Whatever the answer depends on beyond that: packages and revisions.
    """

    task: str
    method: str
    options: Settings
    setting: Settings
    seed: int
    software: str

    @property
    def identity(self) -> dict[str, Any]:
        """The cell as plain data."""
        return {
            "task": self.task,
            "method": self.method,
            "options": dict(self.options),
            "setting": dict(self.setting),
            "seed": self.seed,
            "software": self.software,
        }

    @property
    def key(self) -> str:
        """The cell as text: equal for equal cells, and only for them."""
        return key_of(self.identity)

    def value(self, name: str) -> Any:
        """A value of the setting or the options; 0 where there is none."""
        return dict(self.setting + self.options).get(name, 0)


def frozen(values: Mapping[str, Scalar]) -> Settings:
    """A mapping as a key."""
    return tuple(sorted(values.items()))


ANNEALED = (3, 2.5, 2.2)
"""Exponents for few samples, one after the other."""


# --- methods: the columns of the tables ------------------------------------------------------------------------------


@dataclass(frozen=True)
class Method:
    """How an estimator is made from setting, options and seed; and what else its answer depends on.

    `peer` is the adapter behind it; ours have none, and can work on a graphics card. Raise the revision of ours when
    an unreleased solver gives other answers than before; that of a peer is the adapter's.
    """

    make: Callable[[Mapping[str, Any], Mapping[str, Any], int], Any]
    peer: type[peers.Peer] | None = None
    own_revision: int = 1

    @property
    def revision(self) -> int:
        """Of the adapter."""
        return self.own_revision if self.peer is None else self.peer.revision

    @property
    def missing(self) -> str | None:
        """The package to be installed first, None if it is there."""
        if self.peer is None or importlib.util.find_spec(self.peer.module) is not None:
            return None
        return self.peer.package

    def on_card(self, device: str | None) -> bool:
        """Whether a fit works on the card, if there is one."""
        return device is not None and self.peer is None

    @property
    def software(self) -> str:
        """Package, version and revisions."""
        name = "elldict" if self.peer is None else self.peer.package
        version = __version__ if name == "elldict" else "missing" if self.missing else importlib.metadata.version(name)
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


def _peer(kind: type[Any]) -> Method:
    """A peer that has to be told nothing of the setting."""
    return Method(lambda _, options, seed: kind(random_state=seed, **options), kind)


METHODS = {
    "lp": Method(_paper, own_revision=2),
    "default": Method(_default, own_revision=3),
    "annealed": Method(_annealed, own_revision=3),
    "ksvd": Method(_ksvd, peers.KSVD),
    "rtr": _peer(peers.TrustRegionL1),
    "gradient": _peer(peers.RiemannianGradient),
    "fastica": _peer(peers.FastICA),
    "picard": _peer(peers.Picard),
    "pca": Method(lambda _, options, __: peers.PCA(**options), peers.PCA),
    "top-k": _peer(peers.TopKProcrustes),
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
