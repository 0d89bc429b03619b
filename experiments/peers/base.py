"""What is asked of a method that elldict is compared with, and how its package is asked for."""

from __future__ import annotations

import importlib
from abc import ABC, abstractmethod
from types import ModuleType
from typing import Any, ClassVar, Self

from numpy.typing import NDArray

from experiments.harness.watch import Watch

Matrix = NDArray[Any]
INSTALLED_BY = "pip install -e '.[reproduce,bench]'"


class Peer(ABC):
    """A dataclass of settings, and a fit: it never sees the truth, and does not score itself.

    `fit` sets `components_`, atoms as rows (n, n), and `n_iter_`, the iterations made.
    """

    module: ClassVar[str]  # imported by `fit`
    package: ClassVar[str]  # whose version is written down
    revision: ClassVar[int] = 1
    """Raise it when the same settings give other answers or other times: stored results are then of another adapter."""

    components_: Matrix
    n_iter_: int

    @abstractmethod
    def fit(self, X: Any, watch: Watch | None = None) -> Self:
        """Learn atoms from samples as rows (r, n); `watch` may be shown what there is on the way."""

    @property
    def settings(self) -> dict[str, Any]:
        """All that the answer depends on but samples and seed."""
        return {name: value for name, value in vars(self).items() if name != "random_state" and not name.endswith("_")}


class MissingPackageError(ImportError):
    """The package behind a peer is not installed; the message names it and says how to get it."""


def required(module: str, package: str) -> ModuleType:
    """The module, or words on how to get it."""
    try:
        importlib.import_module(module.partition(".")[0])
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] != module.partition(".")[0]:
            raise  # it is there, and something that it needs is not: not ours to explain
        raise MissingPackageError(f"{package} is not installed: {INSTALLED_BY}", name=package) from None
