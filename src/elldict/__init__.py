"""Dictionary learning by l_p-norm maximisation: find the basis in which samples are sparse."""

from __future__ import annotations

import importlib
import os
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from elldict import datasets, exceptions, metrics, mne, plot, theory
    from elldict._old.axes import Axes, describe_axes
    from elldict._old.data.open import open_samples
    from elldict._old.dictionary_learning import LpDictionaryLearning
    from elldict._old.ica import LpICA
    from elldict._old.models import load
    from elldict._old.result import Iteration
    from elldict._old.rotation import Rotation, Rotator, rotate
    from elldict._old.stable_atoms import Stability, stability

__version__ = "0.1.0"

__all__ = [
    "Axes",
    "Iteration",
    "LpDictionaryLearning",
    "LpICA",
    "Rotation",
    "Rotator",
    "Stability",
    "datasets",
    "describe_axes",
    "exceptions",
    "load",
    "metrics",
    "mne",
    "open_samples",
    "plot",
    "rotate",
    "stability",
    "theory",
]

_HOMES = {
    "Axes": "_old.axes",
    "Iteration": "_old.result",
    "LpDictionaryLearning": "_old.dictionary_learning",
    "LpICA": "_old.ica",
    "Rotation": "_old.rotation",
    "Rotator": "_old.rotation",
    "Stability": "_old.stable_atoms",
    "describe_axes": "_old.axes",
    "load": "_old.models",
    "open_samples": "_old.data.open",
    "rotate": "_old.rotation",
    "stability": "_old.stable_atoms",
}

if os.environ.get("ELLDICT_CORE") == "new":  # until the public names are those of the new core
    _HOMES |= {
        "Iteration": "history",
        "LpDictionaryLearning": "dictionary_learning",
        "LpICA": "ica",
        "load": "model_file",
    }


def __getattr__(name: str) -> Any:
    """Import what is asked for when it is: scikit-learn and SciPy take a second, which `elldict --help` has not."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    if name not in _HOMES:
        return importlib.import_module(f"elldict.{name}")
    return getattr(importlib.import_module(f"elldict.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
