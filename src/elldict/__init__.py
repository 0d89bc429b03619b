"""Dictionary learning by l_p-norm maximisation: find the basis in which samples are sparse."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from elldict import datasets, exceptions, metrics, mne, plot, theory
    from elldict.axes import Axes, describe_axes
    from elldict.dictionary_learning import LpDictionaryLearning
    from elldict.history import Iteration
    from elldict.ica import LpICA
    from elldict.model_file import load
    from elldict.replication import Stability, stability
    from elldict.rotation.result import Rotation
    from elldict.rotation.rotator import Rotator, rotate
    from elldict.samples.open import open_samples

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
    "Iteration": "history",
    "LpDictionaryLearning": "dictionary_learning",
    "LpICA": "ica",
    "Rotation": "rotation.result",
    "Rotator": "rotation.rotator",
    "Stability": "replication",
    "describe_axes": "axes",
    "load": "model_file",
    "open_samples": "samples.open",
    "rotate": "rotation.rotator",
    "stability": "replication",
}
"""Modules of the names that are not modules themselves."""


def __getattr__(name: str) -> Any:
    """Import a public name when it is used: `elldict --help` need not wait for scikit-learn and SciPy."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    if name not in _HOMES:
        return importlib.import_module(f"elldict.{name}")
    return getattr(importlib.import_module(f"elldict.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
