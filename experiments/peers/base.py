"""Base class of baselines, and how their optional packages are imported."""

from __future__ import annotations

import importlib
from abc import ABC, abstractmethod
from types import ModuleType
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

Matrix = NDArray[Any]
INSTALLED_BY = "pip install -e '.[reproduce,bench]'"


class Peer(ABC):
    """A dataclass of settings with a method `fit`, which sets `components_` (n, n), atoms as rows, and `n_iter_`."""

    module: ClassVar[str]  # imported by `fit`
    package: ClassVar[str]  # whose version is stored
    revision: ClassVar[int] = 1  # raise it when the same settings give other results or other times

    components_: Matrix
    n_iter_: int

    @abstractmethod
    def fit(self, X: Any) -> Self:
        """Fit atoms to samples as rows (r, n)."""


class MissingPackageError(ImportError):
    """The package of a baseline is not installed; the message says how to install it."""


def required(module: str, package: str) -> ModuleType:
    """Import a module, or raise an error that says how to install it."""
    try:
        importlib.import_module(module.partition(".")[0])
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] != module.partition(".")[0]:
            raise  # it is installed, and something that it imports is not
        raise MissingPackageError(f"{package} is not installed: {INSTALLED_BY}", name=package) from None


def make_rng(seed: int | None) -> np.random.Generator:
    """Make a generator for a start; samples are drawn from another stream of the same seed."""
    return np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(1,)))
