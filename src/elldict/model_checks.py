"""Checks of what model files hold: entries of the header, and numbers that no fit gives."""

from __future__ import annotations

import math
from dataclasses import fields
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from elldict.archive import Arrays, Header
from elldict.denoising import Distribution
from elldict.history import Iteration
from elldict.samples.normalization import Normalization
from elldict.solver.density import Density, get_grid

if TYPE_CHECKING:
    from elldict.estimator import LpEstimator

FITTED: dict[str, type] = {
    **dict.fromkeys(("n_components_", "n_features_in_", "n_samples_seen_", "n_iter_"), int),
    **dict.fromkeys(("n_passes_", "objective_", "noise_std_", "expected_error_", "_total_weight"), float),
    **{"converged_": bool, "status_": str, "refined_": str},
}
"""Other fitted attributes, with their types."""

UNKNOWN = {"expected_error_": math.nan, "refined_": None}
"""Values that are null in the header."""

HISTORY = tuple(field.name for field in fields(Iteration) if field.name != "components")

INVERSE_ERROR = {"float32": 1e-5, "float64": 1e-9}
"""Largest error of ``unmixing_ @ mixing_`` due to rounding, relative to the sum of the sizes of its terms."""

MOST_RATIO = 1e100
"""Largest ratio of two sizes of codes: their squares stay finite."""


def take(found: Header, name: str, kind: type) -> Any:
    """Return an entry of the header, which has to be of a type."""
    value = found.get(name)
    if type(value) is not kind:
        raise ValueError(f"{name!r} in its header is {repr(value)[:60]}, expected {kind.__name__}")
    return value


def read_fitted(found: Header, name: str) -> Any:
    """Return a fitted attribute: a number >= 0, a boolean, or words."""
    if name in UNKNOWN and found.get(name, 0) is None:
        return UNKNOWN[name]
    value = take(found, name, FITTED[name])
    if not (value.isprintable() if isinstance(value, str) else 0 <= value < math.inf):
        raise ValueError(f"{name!r} in its header is {value!r:.60}, which no fit gives")
    return value


def read_warnings(pairs: list[Any]) -> tuple[tuple[str, str], ...]:
    """Return the category and message of each warning of the fit."""
    if not all(isinstance(pair, list) and list(map(type, pair)) == [str, str] for pair in pairs):
        raise ValueError("'warnings_' in its header are not pairs of a category and a message")
    return tuple((category, message) for category, message in pairs)


def read_history(columns: list[Any], table: NDArray[Any]) -> tuple[Iteration, ...]:
    """Return the iterations from a table with a row for each."""
    if columns != list(HISTORY) or np.any(table[:, :2] % 1 != 0):  # not 0 for infinity either
        raise ValueError(f"its history has other columns than {', '.join(HISTORY)}, or fractions of iterations")
    return tuple(Iteration(int(stage), int(iteration), *others) for stage, iteration, *others in table.tolist())


def read_names(names: list[Any], n: int) -> NDArray[np.object_]:
    """Return the names of the features."""
    if len(names) != n or not all(isinstance(name, str) for name in names):
        raise ValueError(f"'feature_names_in_' in its header are not {n} names")
    return np.array(names, dtype=object)


def read_distribution(found: Header, median: Any, arrays: Arrays) -> Distribution:
    """Return the distribution of codes."""
    density = Density(
        arrays["code_std"],
        arrays["n_widths"].astype(np.intp),
        arrays["has_offsets"],
        get_grid(take(found, "n_widths", int)),
        tables=arrays["tables"],
        value=take(found, "value", float),
        negentropy=arrays["negentropy"],
        pooled=arrays["pooled"],
    )
    if not np.all((density.n_widths >= 1) & (density.n_widths <= density.grid.n_widths)):
        raise ValueError("array 'n_widths' holds other numbers of widths than its grid of densities")
    return Distribution(density, None if median is None else Normalization(take({"median": median}, "median", float)))


def check_numbers(arrays: Arrays) -> None:
    """Raise an error for numbers that no fit gives."""
    for name, array in arrays.items():
        is_known = np.isfinite(array) | (np.isnan(array) & (name == "atom_error"))
        if name != "history" and not np.all(is_known):
            raise ValueError(f"array {name!r} holds NaN or infinity")
        if name in ("density", "scale", "atom_error", "pooled") and np.any(array < 0):
            raise ValueError(f"array {name!r} holds negative numbers")
    if np.any(arrays["density"] > 1) or np.max(np.abs(arrays["tables"])) > MOST_RATIO:
        raise ValueError("array 'density' or 'tables' holds numbers that are too large")


def check_sizes(model: LpEstimator) -> None:
    """Raise an error if sizes of codes are so far apart that their squares overflow."""
    std, normalization = model._distribution.density.std, model._distribution.normalization
    size = std if normalization is None else [math.sqrt(max(0, normalization.median))]
    for positive, others in ((std, [1.0] if normalization else []), (size, [model.noise_std_, *model.scale_])):
        sizes = np.array([*positive, *(other for other in others if other > 0)], dtype=np.float64)
        if not 0 < np.max(sizes) / MOST_RATIO < np.min(sizes):
            raise ValueError(f"standard deviations of its codes go from {np.min(sizes):.2g} to {np.max(sizes):.2g}")


def check_inverse(model: LpEstimator) -> None:
    """Raise an error if `unmixing_` U does not undo `mixing_` M, or maps the mean to infinity."""
    U, M = (np.asarray(matrix, dtype=np.float64) for matrix in (model.unmixing_, model.mixing_))
    v = np.random.default_rng(0).standard_normal(len(U))  # U M v takes less time than U M
    with np.errstate(all="ignore"):
        error, sizes = np.abs(U @ (M @ v) - v), np.abs(U) @ (np.abs(M) @ np.abs(v))
        offset = 4 * np.abs(U) @ np.abs(getattr(model, "mean_", np.zeros(len(M))))  # with room for samples as large
    if not np.all(error <= INVERSE_ERROR[model.mixing_.dtype.name] * sizes) or not np.all(np.isfinite(sizes + offset)):
        raise ValueError("array 'unmixing' does not undo 'mixing', or its product with 'mean' overflows")
