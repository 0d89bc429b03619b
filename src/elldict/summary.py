"""What texts, plots and pages say about a fitted model, and the summary for a terminal."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from elldict.exceptions import make_readable
from elldict.samples.arrays import to_numpy
from elldict.samples.base import Array, Index
from elldict.samples.whitening import find_scales

EXACT = 1e-9
"""Error below which a component is exact up to rounding: 0.001 degrees."""

NEAR = 15.0
"""Angle in degrees up to which components are counted as known: their correlation with the true ones is above 0.96."""

N_ROWS, N_NAMES = 10, 3
"""Components listed in the table of a summary, and features named for each of them."""

WIDTH, INDENT = 110, 15  # characters of a line, and of its label

NOT_ESTIMATED = "not estimated"


def read_components(model: Any) -> Array:
    """Return the components (m, n), which are columns of the mixing matrix, as rows in double precision.

    With `standardize`, features have different units; their entries are divided by their root mean square.
    """
    components = to_numpy(model.mixing_).T.astype(np.float64)
    return np.asarray(components / find_scales(np.mean(components**2, axis=0)) if model.standardize else components)


def read_errors(model: Any) -> Array:
    """Return the estimated errors (m,) in double precision, NaN where there is none."""
    return np.asarray(to_numpy(model.atom_error_), dtype=np.float64)


def read_angles(model: Any) -> Array:
    """Return the angles (m,) in degrees between components and true ones that the estimated errors mean."""
    return to_degrees(read_errors(model))


def to_degrees(errors: Any) -> Array:
    """Convert errors 1 - cos^4 to angles in degrees; NaN stays NaN."""
    return np.asarray(np.degrees(np.arccos((1 - np.clip(errors, 0, 1)) ** 0.25)))


def format_error(error: float, unit: str = "°") -> str:
    """Format an error as an angle."""
    if np.isnan(error):
        return NOT_ESTIMATED
    return "exact" if error < EXACT else format_angle(float(to_degrees(error))) + unit


def label_component(model: Any, i: int) -> str:
    """Format the number of a component, with its error if there is one."""
    error = read_errors(model)[i]
    return str(i) if np.isnan(error) else f"{i}: {format_error(error)}"


def format_angle(angle: float) -> str:
    """Format an angle in degrees with two digits."""
    return f"{angle:.2g}" if angle >= 0.01 else "< 0.01"


def describe_errors(model: Any) -> str:
    """Describe the errors of all components in a phrase."""
    errors, angles = read_errors(model), read_angles(model)
    m, known = len(errors), ~np.isnan(errors)
    if not np.any(known):
        return NOT_ESTIMATED
    if np.all(errors[known] < EXACT):
        rest = "" if np.all(known) else f" for {np.sum(known)} of {m} components, {NOT_ESTIMATED} for the others"
        return f"exact up to rounding{rest}"
    if m == 1:
        return f"{format_angle(angles[0])} degrees"
    middle, largest = format_angle(float(np.median(angles[known]))), format_angle(float(np.max(angles[known])))
    near = f"{np.sum(angles <= NEAR)} of {m} components within {NEAR:g} degrees"
    return f"median {middle} degrees, largest {largest}; {near}"


def describe_source(model: Any) -> str:
    """Describe where the errors come from; nothing if there are none."""
    errors = read_errors(model)
    if np.all(np.isnan(errors)):
        return ""
    if np.nanmax(errors) < EXACT:
        return "determined by the samples in which a code is zero"
    return "estimated by fits to parts of the samples"


def describe_size(model: Any) -> str:
    """Describe the shape of the problem in a phrase."""
    m, n = model.n_components_, model.n_features_in_
    components, features = ("component" if m == 1 else "components"), ("feature" if n == 1 else "features")
    return f"{m:,} {components} of {n:,} {features}, from {model.n_samples_seen_:,} samples"


def describe_end(model: Any) -> str:
    """Describe how the fit ended in a phrase."""
    return f"{'converged' if model.converged_ else 'did not converge'}: {model.status_}"


def list_facts(model: Any) -> Iterator[tuple[str, str]]:
    """List what happened in the fit: labels and phrases."""
    density, noise, source = format_percent(mean_density(model)), model.noise_std_, describe_source(model)
    passes = f"{model.n_passes_:,.1f}".removesuffix(".0")
    yield "fit", describe_end(model)
    yield "iterations", f"{model.n_iter_:,}; {passes} passes over the samples"
    yield "errors", describe_errors(model) + (f"; {source}" if source else "")
    yield "codes", f"{density} are not zero; noise of standard deviation {noise:.2g}"


def mean_density(model: Any) -> float:
    """Compute the fraction of codes that are not zero, over all components."""
    return float(np.mean(to_numpy(model.density_)))


def format_percent(fraction: float) -> str:
    """Format a fraction with three digits."""
    return f"{100 * fraction:.3g} %"


def find_names(model: Any, names: Sequence[str] | None = None) -> list[str] | None:
    """Return the names of the features: those given, those of the fit, or None."""
    chosen = names if names is not None else getattr(model, "feature_names_in_", None)
    if chosen is None:
        return None
    texts = [" ".join(str(name).split()) for name in chosen]
    if len(texts) != model.n_features_in_:
        raise ValueError(f"names must have one entry per feature, {model.n_features_in_}. Got {len(texts)} instead.")
    return texts


def find_largest(component: Array, most: int) -> Index:
    """Find the features (k,) with the largest entries of a component (n,), without zeros."""
    order = np.argsort(-np.abs(component), kind="stable")[:most]
    return np.asarray(order[component[order] != 0])


def shorten(name: str, most: int = 24) -> str:
    """Make a name printable, and shorten it."""
    text = make_readable(name)
    return text if len(text) <= most else f"{text[: most - 1]}…"


def make_summary(model: Any) -> str:
    """Write a fitted model, its warnings and its first components as lines of text."""
    check_is_fitted(model)
    lines = [f"{type(model).__name__}: {describe_size(model)}", ""]
    for label, text in list_facts(model):
        lines += wrap(text, f"  {label:<{INDENT - 2}}", " " * INDENT)
    if model.warnings_:
        lines += ["", "Warnings"]
    for category, message in model.warnings_:
        lines += wrap(make_readable(f"{category}: {message}"), "  ", "    ")
    lines += ["", *align(tabulate(model))]
    left = model.n_components_ - N_ROWS
    return "\n".join([*lines, f"... and {left} more"] if left > 0 else lines)


def tabulate(model: Any) -> list[list[str]]:
    """List the cells of the table: a header and a row for each of the first components."""
    names, density, scale = find_names(model), to_numpy(model.density_), to_numpy(model.scale_)
    rows = [["component", "error in degrees", "nonzero codes", "their std"]]
    rows[0] += ["largest features"] * (names is not None)
    for i, component in enumerate(read_components(model)[:N_ROWS]):
        error = format_error(read_errors(model)[i], unit="")
        rows.append([str(i), error, format_percent(density[i]), f"{scale[i]:.3g}"])
        if names is not None:
            rows[-1].append(", ".join(shorten(names[j]) for j in find_largest(component, N_NAMES)))
    return rows


def align(rows: list[list[str]]) -> list[str]:
    """Align the first four columns to the right, and what follows to the left."""
    widths = [max(len(row[column]) for row in rows) for column in range(4)]
    padded = [[f"{cell:>{width}}" for cell, width in zip(row, widths, strict=False)] for row in rows]
    return ["   ".join([*cells, *row[4:]]) for cells, row in zip(padded, rows, strict=True)]


def wrap(text: str, first: str, others: str) -> list[str]:
    """Break a text into lines, the first of which has another beginning."""
    return textwrap.wrap(text, WIDTH, initial_indent=first, subsequent_indent=others, break_on_hyphens=False)
