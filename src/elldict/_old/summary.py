"""What is said of a fitted model: the same facts, and the same figures, for a terminal, a notebook and a page."""

from __future__ import annotations

import html
import math
import textwrap
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from elldict._old.backend.base import to_numpy

EXACT = 1e-9
"""Error below which only the rounding of numbers is left."""

WITHIN = 0.1
"""Error up to which an atom may be looked at on its own: 13 degrees."""

LARGE_ERROR = 0.3
"""Error from which angles are no longer told by it: as twice the squared angle it is 22 degrees, as 1 - cos^4 24."""

N_LISTED = 10
"""Atoms that a table of a terminal or a notebook lists."""

N_NAMED = 3
"""Features that are named beside an atom of a table."""

WIDTH = 100
"""Characters of a line of text."""

Facts = Iterator[tuple[str, object]]


# --- facts ------------------------------------------------------------------------------------------------------------


def describe_fit(model: Any, seconds: float | None = None) -> Facts:
    """What happened in a fit: names and values."""
    yield "samples", model.n_samples_seen_
    yield "features", model.n_features_in_
    yield "atoms", model.n_components_
    yield from _describe_iterations(model)
    if seconds is not None:
        yield "seconds", f"{seconds:.2f}"
    yield "status", model.status_
    yield from _describe_codes(model)


def describe_model(model: Any) -> Facts:
    """What a model file holds: names and values."""
    yield "atoms", f"{model.n_components_} of {model.n_features_in_} features, {model.unmixing_.dtype}"
    yield "samples", model.n_samples_seen_
    yield "p", format_exponents(model.p)
    yield "objective", f"{model.objective_:.6g}"
    yield from _describe_iterations(model)
    yield "converged", "yes" if model.converged_ else "no"
    yield "status", model.status_
    yield from _describe_codes(model)
    yield "parameters", ", ".join(f"{name}={value!r}" for name, value in find_changed(model)) or "all default"
    for category, message in model.warnings_:
        yield "warning", f"{category}: {message}"


def _describe_iterations(model: Any) -> Facts:
    yield "iterations", model.n_iter_
    yield "passes", f"{round(model.n_passes_, 1):g}"


def _describe_codes(model: Any) -> Facts:
    """What the model says of codes, noise and its own error."""
    yield "density", f"{100 * mean_density(model):.3g} % of the codes are not zero"
    yield "noise", f"standard deviation {model.noise_std_:.3g}"
    if math.isnan(model.corruption_rate_):
        yield "corruption", "seen, and not removed"
    elif model.corruption_rate_:
        yield "corruption", f"{100 * model.corruption_rate_:.2g} % of the entries, size {model.corruption_scale_:.3g}"
    yield "refinement", model.refined_ or "none"
    yield "expected error", format_error_and_angle(model.expected_error_)
    errors = read_errors(model)
    n_known = int(np.sum(errors <= WITHIN))
    if n_known < len(errors):  # the mean is that of the worst
        yield "known atoms", f"{n_known} of {len(errors)} to within {to_degrees(WITHIN):.2g} degrees"


def find_changed(model: Any) -> list[tuple[str, Any]]:
    """Parameters that are not the default ones."""
    default = type(model)().get_params()
    return [(name, value) for name, value in model.get_params().items() if value != default[name]]


def mean_density(model: Any) -> float:
    """Share of the codes that are not zero, over all atoms that have codes."""
    density = to_numpy(model.density_).astype(np.float64)
    return float(np.mean(density[density > 0])) if np.any(density > 0) else 0.0


def read_atoms(model: Any) -> NDArray[np.float64]:
    """Atoms (m, n) on the host."""
    return np.asarray(to_numpy(model.mixing_), dtype=np.float64).T


def read_errors(model: Any) -> NDArray[np.float64]:
    """Errors of the atoms (m,) on the host; NaN for atoms that samples say nothing of."""
    return np.asarray(to_numpy(model.atom_error_), dtype=np.float64)


def find_strongest(atom: NDArray[np.float64], most: int) -> NDArray[np.intp]:
    """Features of an atom (n,) by decreasing size of their entries, without those that are zero."""
    order = np.argsort(-np.abs(atom), kind="stable")[:most]
    return np.asarray(order[atom[order] != 0])


# --- figures ----------------------------------------------------------------------------------------------------------


def format_error(error: float) -> str:
    """An error in per cent, as two figures however small it is."""
    if not math.isfinite(error):
        return "unknown"
    return "exact" if error < EXACT else f"{_round(100 * error, 2)} %"


def to_degrees(error: float) -> float:
    """Angle of an error: for small ones it is twice the squared angle."""
    return math.degrees(math.sqrt(max(error, 0.0) / 2))


def format_angle(error: float) -> str:
    """The angle that an error stands for, in words."""
    if error >= LARGE_ERROR:
        return "23 degrees or more"
    angle = _round(to_degrees(error), 2)
    return f"about {angle} {'degree' if angle == '1' else 'degrees'}"


def format_error_and_angle(error: float) -> str:
    """An error in per cent, and what it means as an angle."""
    text = format_error(error)
    return f"{text}, atoms are off by {format_angle(error)}" if text.endswith("%") else text


def format_exponents(p: Any) -> str:
    """An exponent, or several."""
    return f"{p:g}" if np.ndim(p) == 0 else ", ".join(f"{q:g}" for q in p)


def _round(number: float, digits: int) -> str:
    """A number of so many figures, without an exponent where it can be read without."""
    text = f"{number:.{digits}g}"
    return f"{float(text):g}"


# --- for a terminal ---------------------------------------------------------------------------------------------------


def make_summary(model: Any) -> str:
    """Facts, warnings, and a table of the first atoms, as lines of text."""
    lines = [f"{type(model).__name__}: {_describe_size(model)}", ""]
    for name, value in describe_fit(model):
        lines += textwrap.wrap(str(value), WIDTH, initial_indent=f"  {name:<16}", subsequent_indent=" " * 18)
    for category, message in model.warnings_:
        lines += ["", *textwrap.wrap(f"{category}: {message}", WIDTH, initial_indent="  ", subsequent_indent="    ")]
    header, *rows = tabulate_atoms(model)
    widths = [max(len(row[column]) for row in (header, *rows)) for column in range(4)]
    lines.append("")
    for row in (header, *rows):
        cells = [f"{cell:>{width}}" for cell, width in zip(row, widths, strict=False)]
        lines.append("  " + "   ".join([*cells, *row[4:]]).rstrip())
    if len(rows) < model.n_components_:
        lines.append(f"  ... and {model.n_components_ - len(rows)} more")
    return "\n".join(lines)


def tabulate_atoms(model: Any, most: int = N_LISTED) -> list[tuple[str, ...]]:
    """A header, and a row for each of the first atoms: error, density, scale, and the features that are strongest."""
    names = getattr(model, "feature_names_in_", None)
    atoms, errors = read_atoms(model)[:most], read_errors(model)
    density, scale = to_numpy(model.density_), to_numpy(model.scale_)
    rows: list[tuple[str, ...]] = [
        ("atom", "error", "density", "scale", *(["strongest features"] * (names is not None)))
    ]
    for number, atom in enumerate(atoms):
        row = [str(number), format_error(errors[number]), f"{density[number]:.2g}", f"{scale[number]:.3g}"]
        if names is not None:
            row.append(", ".join(str(names[k]) for k in find_strongest(atom, N_NAMED)))
        rows.append(tuple(row))
    return rows


def _describe_size(model: Any) -> str:
    m, n = model.n_components_, model.n_features_in_
    atoms, features = ("atom" if m == 1 else "atoms"), ("feature" if n == 1 else "features")
    return f"{m} {atoms} of {n} {features}, learned from {model.n_samples_seen_} samples"


# --- for a notebook ---------------------------------------------------------------------------------------------------

STYLE = "font:13px/1.5 system-ui,sans-serif;margin:8px 0;max-width:60em"
CELL = "text-align:{};padding:2px 14px 2px 0;border:0"


def make_html(model: Any) -> str:
    """The same for a notebook, without colours of its own: those of light and dark themes stay."""
    facts = {name: str(value) for name, value in describe_fit(model)}
    ended = "converged" if model.converged_ else "did not converge"
    lead = f"<b>{html.escape(_describe_size(model))}.</b> Expected error: {html.escape(facts['expected error'])}."
    lead += f" The fit {ended} ({html.escape(facts['status'])})."
    said = "".join(
        f"<li><b>{html.escape(category)}</b>: {html.escape(message)}</li>" for category, message in model.warnings_
    )
    doubts = f"<ul style='margin:4px 0 8px;padding-left:20px'>{said}</ul>" if said else "<div>It has no warnings.</div>"
    header, *rows = tabulate_atoms(model)
    table = _make_row("th", header) + "".join(_make_row("td", row) for row in rows)
    left = model.n_components_ - len(rows)
    more = f"<div>... and {left} more: <code>summary()</code>, <code>atom_error_</code></div>" if left else ""
    table = f"<table style='border-collapse:collapse;margin:6px 0'>{table}</table>{more}"
    opened = " open" if model.warnings_ else ""
    return (
        f"<div style='{STYLE}'>{lead}<details{opened}><summary>Warnings ({len(model.warnings_)})</summary>{doubts}"
        f"</details><details><summary>Atoms</summary>{table}</details></div>"
    )


def _make_row(tag: str, cells: tuple[str, ...]) -> str:
    """A row of a table; the features, if there are any, stand on the left."""
    aligned = zip(cells, ("right",) * 4 + ("left",), strict=False)
    made = [f"<{tag} style='{CELL.format(side)}'>{html.escape(cell)}</{tag}>" for cell, side in aligned]
    return f"<tr>{''.join(made)}</tr>"
