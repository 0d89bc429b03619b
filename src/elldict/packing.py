"""A fitted estimator as a header and arrays, and back: what goes into a model file."""

from __future__ import annotations

import math
from dataclasses import astuple, fields
from typing import Any, TypeVar, cast

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator

from elldict.solver.result import Iteration
from elldict.space import to_numpy

Model = TypeVar("Model", bound=BaseEstimator)

SCALARS: dict[str, type] = {
    "n_components_": int,
    "n_features_in_": int,
    "objective_": float,
    "n_iter_": int,
    "n_passes_": float,
    "n_samples_seen_": int,
    "converged_": bool,
    "status_": str,
    "noise_std_": float,
    "expected_error_": float,
    "corruption_rate_": float,
    "corruption_scale_": float,
    "_rest_std": float,
}
ARRAYS = ("components", "unmixing", "mean", "density", "scale", "atom_error")
CONSISTENT = 0.01
"""Departure of unmixing @ components.T from the identity that rounding explains, of float32 and hard whitening too."""

REFINEMENTS = (None, "bernoulli-gaussian", "sparse-corruption")
COLUMNS = tuple(field.name for field in fields(Iteration) if field.name != "components")
COUNTS = ("start", "stage", "iteration")


def packed(model: BaseEstimator) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """Header and arrays of a fitted estimator."""
    header: dict[str, Any] = {
        "class": type(model).__name__,
        "params": {name: _plain(value) for name, value in model.get_params().items()},
        "fitted": {name: getattr(model, name) for name in SCALARS},
        "refined_": model.refined_,
        "history_columns": COLUMNS,
    }
    if hasattr(model, "feature_names_in_"):
        header["feature_names_in_"] = [str(name) for name in model.feature_names_in_]
    arrays = {name: to_numpy(getattr(model, f"{name}_")) for name in ARRAYS}
    arrays["rest"] = to_numpy(model._rest)
    arrays["history"] = np.array([astuple(iteration)[: len(COLUMNS)] for iteration in model.history_], dtype=np.float64)
    return header, arrays


def unpacked(kind: type[Model], header: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> Model:
    """Estimator of this kind from a header and arrays; KeyError, TypeError or ValueError if they do not fit."""
    if header["class"] != kind.__name__:
        raise ValueError(f"it is a {header['class']!r}")
    model: Any = kind(**header["params"])
    model._validate_params()
    for name, expected in SCALARS.items():
        setattr(model, name, _checked_scalar(name, header["fitted"][name], expected))
    m, n = model.n_components_, model.n_features_in_
    if header["refined_"] not in REFINEMENTS:
        raise ValueError(f"refined_ is {header['refined_']!r}")
    model.refined_ = header["refined_"]
    shapes = {"components": (m, n), "unmixing": (m, n), "mean": (n,)}
    for name in ARRAYS:
        array, shape = arrays[name], shapes.get(name, (m,))
        finite = name == "atom_error" or np.all(np.isfinite(array))  # atoms beyond the rank have no error
        if array.shape != shape or array.dtype.kind != "f" or not finite:
            raise ValueError(f"{name} has shape {array.shape} of {array.dtype}, expected {shape} of finite numbers")
        setattr(model, f"{name}_", array)
    _check_sense(arrays)
    rest = arrays["rest"]
    if rest.ndim != 2 or rest.shape[1] != n or rest.dtype.kind != "f" or not np.all(np.isfinite(rest)):
        raise ValueError(f"rest has shape {rest.shape} of {rest.dtype}, expected (any, {n}) of finite numbers")
    model._rest = rest
    rows = (dict(zip(header["history_columns"], row, strict=True)) for row in arrays["history"].tolist())
    model.history_ = tuple(_iteration(row) for row in rows)
    if "feature_names_in_" in header:
        names = header["feature_names_in_"]
        if not (isinstance(names, list) and len(names) == n and all(isinstance(name, str) for name in names)):
            raise ValueError(f"feature_names_in_ is not a list of {n} names")
        model.feature_names_in_ = np.array(names, dtype=object)
    return cast(Model, model)


def _check_sense(arrays: dict[str, NDArray[Any]]) -> None:
    """Numbers that no fit gives would be wrong in silence: codes and samples follow from each other by them."""
    density, scale = arrays["density"], arrays["scale"]
    if np.any((density < 0) | (density > 1)) or np.any(scale < 0):
        raise ValueError("density is no share, or scale is negative")
    product = arrays["unmixing"].astype(np.float64) @ arrays["components"].astype(np.float64).T
    off = float(np.max(np.abs(product - np.eye(len(product)))))
    if not off < CONSISTENT:
        raise ValueError(f"unmixing does not undo components (off by {off:.2g})")


def _checked_scalar(name: str, value: Any, expected: type) -> Any:
    if type(value) is not expected or (isinstance(value, float) and not math.isfinite(value)):
        raise ValueError(f"{name} is {value!r}, expected a {expected.__name__}")
    if isinstance(value, str) and not value.isprintable():
        raise ValueError(f"{name} holds characters that cannot be printed")
    return value


def _iteration(row: dict[str, Any]) -> Iteration:
    return Iteration(**{name: int(value) if name in COUNTS else value for name, value in row.items()})


def _plain(value: Any) -> Any:
    """Parameter as JSON knows it; an object that it does not know is left out."""
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, (tuple, list)):
        return [_plain(item) for item in value]
    return value if isinstance(value, (bool, int, float, str, type(None))) else None
