"""Optional packages, asked for by name."""

from __future__ import annotations

import importlib
from types import ModuleType

INSTALLED_BY = "pip install -e '.[reproduce]'"


class MissingPackageError(ImportError):
    """A package that a baseline stands on is not installed; the message names it and says how to get it."""


def required(module: str, package: str) -> ModuleType:
    """The module, or words on how to get it."""
    try:
        importlib.import_module(module.partition(".")[0])
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] != module.partition(".")[0]:
            raise  # it is there, and something that it needs is not: not ours to explain
        raise MissingPackageError(f"{package} is not installed: {INSTALLED_BY}", name=package) from None
