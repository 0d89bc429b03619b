"""Dictionary learning by l_p-norm maximisation: find the basis in which samples are sparse."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from elldict import datasets, exceptions, metrics, mne, plot, theory
    from elldict.axes import Axes, describe_axes
    from elldict.data.open import open_samples
    from elldict.dictionary_learning import LpDictionaryLearning
    from elldict.ica import LpICA
    from elldict.models import load
    from elldict.result import Iteration
    from elldict.rotation import Rotation, Rotator, rotate
    from elldict.stable_atoms import Stability, stability

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
    "Axes": "axes",
    "Iteration": "result",
    "LpDictionaryLearning": "dictionary_learning",
    "LpICA": "ica",
    "Rotation": "rotation",
    "Rotator": "rotation",
    "Stability": "stable_atoms",
    "describe_axes": "axes",
    "load": "models",
    "open_samples": "data.open",
    "rotate": "rotation",
    "stability": "stable_atoms",
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
