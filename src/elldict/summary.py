"""What texts, plots and pages say about a fitted model, and the summary for a terminal."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator, Sequence
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


def to_degrees(errors: Any) -> Array:
    """Convert errors 1 - cos^4 to angles in degrees; NaN stays NaN."""
    return np.asarray(np.degrees(np.arccos((1 - np.clip(errors, 0, 1)) ** 0.25)))


def format_error(error: float) -> str:
    """Format an error as an angle with two digits."""
    if np.isnan(error):
        return NOT_ESTIMATED
    return "exact" if error < EXACT else f"{to_degrees(error):.2g}°"


def describe_errors(model: Any) -> str:
    """Describe the errors of all components in a phrase, and where they come from."""
    errors = read_errors(model)
    known = errors[~np.isnan(errors)]
    if len(known) == 0:
        return NOT_ESTIMATED
    if np.max(known) < EXACT:
        exact = count(len(errors), "component", len(known))
        return f"exact up to rounding: {exact}; determined by the samples in which a code is zero"
    angles = to_degrees(known)
    middle, largest = np.median(angles), np.max(angles)
    near = f"{np.sum(angles <= NEAR)} of {count(len(errors), 'component')} within {NEAR:g} degrees"
    source = "estimated by fits to parts of the samples"
    return f"median {middle:.2g} degrees, largest {largest:.2g}; {near}; {source}"


def describe_size(model: Any) -> str:
    """Describe the shape of the problem in a phrase."""
    m, n, r = model.n_components_, model.n_features_in_, model.n_samples_seen_
    return f"{count(m, 'component')} of {count(n, 'feature')}, from {r:,} samples"


def count(n: int, noun: str, n_shown: int | None = None) -> str:
    """Format a number of things, and how many of them are shown if these are fewer."""
    shown = "" if n_shown is None or n_shown == n else f"{n_shown:,} of "
    return f"{shown}{n:,} {noun}{'' if n == 1 else 's'}"


def list_facts(model: Any) -> Iterator[tuple[str, str]]:
    """List what happened in the fit: labels and phrases."""
    passes = f"{model.n_passes_:,.1f}".removesuffix(".0")
    density = format_percent(float(np.mean(to_numpy(model.density_))))
    yield "fit", f"{'converged' if model.converged_ else 'did not converge'}: {model.status_}"
    yield "iterations", f"{model.n_iter_:,}; {passes} passes over the samples"
    yield "errors", describe_errors(model)
    yield "codes", f"{density} are not zero; noise of standard deviation {model.noise_std_:.2g}"


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


def make_summary(model: Any, more: Iterable[tuple[str, str]] = (), warnings: Sequence[str] | None = None) -> str:
    """Write a fitted model as lines of text: facts, also more than its own, warnings and the first components.

    Warnings are those of the model unless the command line passes them in its own words.
    """
    check_is_fitted(model)
    if warnings is None:
        warnings = [f"{category}: {message}" for category, message in model.warnings_]
    lines = [f"{type(model).__name__}: {describe_size(model)}", ""]
    for label, text in [*list_facts(model), *more]:
        lines += wrap(f"  {label:<13}{text}", indent=15)
    if warnings:
        lines += ["", "Warnings"]
    for text in warnings:
        lines += wrap(f"  {text}", indent=4)
    most = 10
    table = tabulate(model, most)
    # 13 characters: "not estimated" is the longest cell
    lines += ["", *("   ".join([f"{cell:>13}" for cell in row[:4]] + row[4:]) for row in table)]
    left = model.n_components_ - most
    return "\n".join([*lines, f"... and {left} more"] if left > 0 else lines)


def wrap(text: str, indent: int) -> list[str]:
    """Break a text into lines for a terminal, all but the first of which are indented."""
    text, spaces = make_readable(text), " " * indent
    return textwrap.wrap(text, 110, subsequent_indent=spaces, break_on_hyphens=False, break_long_words=False)


def tabulate(model: Any, most: int | None = None) -> list[list[str]]:
    """List the cells of a table: a header and a row for each component, or for the first ones."""
    names, density, scale = find_names(model), to_numpy(model.density_), to_numpy(model.scale_)
    rows = [["component", "error", "nonzero codes", "their std"]]
    rows[0] += ["largest features"] * (names is not None)
    errors = read_errors(model)
    for i, component in enumerate(read_components(model)[:most]):
        rows.append([str(i), format_error(errors[i]), format_percent(density[i]), f"{scale[i]:.3g}"])
        if names is not None:
            rows[-1].append(", ".join(shorten(names[j]) for j in find_largest(component, 3)))
    return rows
