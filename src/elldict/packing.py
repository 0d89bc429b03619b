"""A fitted estimator as a header and arrays, and back: what goes into a model file."""

from __future__ import annotations

from dataclasses import astuple, fields
from typing import Any, TypeVar, cast

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator

from elldict.solver.result import Iteration
from elldict.space import to_numpy

Model = TypeVar("Model", bound=BaseEstimator)

SCALARS = ("n_components_", "n_features_in_", "objective_", "n_iter_", "n_passes_", "converged_", "status_")
COLUMNS = tuple(field.name for field in fields(Iteration) if field.name != "components")
COUNTS = ("start", "stage", "iteration")


def packed(model: BaseEstimator) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """Header and arrays of a fitted estimator."""
    header: dict[str, Any] = {
        "class": type(model).__name__,
        "params": {name: _plain(value) for name, value in model.get_params().items()},
        "fitted": {name: getattr(model, name) for name in SCALARS},
        "history_columns": COLUMNS,
    }
    if hasattr(model, "feature_names_in_"):
        header["feature_names_in_"] = [str(name) for name in model.feature_names_in_]
    arrays = {name: to_numpy(getattr(model, f"{name}_")) for name in ("components", "unmixing", "mean")}
    arrays["history"] = np.array([astuple(iteration)[: len(COLUMNS)] for iteration in model.history_], dtype=np.float64)
    return header, arrays


def unpacked(kind: type[Model], header: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> Model:
    """Estimator of this kind from a header and arrays; KeyError, TypeError or ValueError if they do not fit."""
    if header["class"] != kind.__name__:
        raise ValueError(f"it is a {header['class']!r}")
    model: Any = kind(**header["params"])
    model._validate_params()
    for name in SCALARS:
        setattr(model, name, header["fitted"][name])
    m, n = int(model.n_components_), int(model.n_features_in_)
    for name, shape in {"components": (m, n), "unmixing": (m, n), "mean": (n,)}.items():
        array = arrays[name]
        if array.shape != shape or array.dtype.kind != "f" or not np.all(np.isfinite(array)):
            raise ValueError(f"{name} has shape {array.shape} of {array.dtype}, expected {shape} of finite numbers")
        setattr(model, f"{name}_", array)
    rows = (dict(zip(header["history_columns"], row, strict=True)) for row in arrays["history"].tolist())
    model.history_ = tuple(_iteration(row) for row in rows)
    if "feature_names_in_" in header:
        model.feature_names_in_ = np.array(header["feature_names_in_"], dtype=object)
    return cast(Model, model)


def _iteration(row: dict[str, Any]) -> Iteration:
    return Iteration(**{name: int(value) if name in COUNTS else value for name, value in row.items()})


def _plain(value: Any) -> Any:
    """Parameter as JSON knows it; an object that it does not know is left out."""
    if isinstance(value, np.generic):
        return value.item()
    return value if isinstance(value, (bool, int, float, str, type(None))) else None
