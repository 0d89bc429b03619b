"""Pictures of Tables 1 to 3: the errors of all methods, and those printed in the paper."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from elldict.theory import cramer_rao_bound
from experiments.harness.axes import LINE
from experiments.reproduction.experiment import Picture, Size
from experiments.reproduction.paper import Row
from experiments.reproduction.report import drawing
from experiments.reproduction.report.styles import STYLES
from experiments.reproduction.report.words import thousands
from experiments.reproduction.results import Results
from experiments.reproduction.tables.recovery_table import Column, Layout

EXACT, LOWEST = 1e-6, 1e-7  # errors below the first are due to rounding, and drawn at the second
TOP = 1.5
LEAP = 100.0  # ratio of neighbouring errors beyond which they are not connected
NAMES = {"n_features": "n", "density": "θ", "noise_std": "noise σ", "corruption": "corruption σ"}


def make_picture(layout: Layout, results: Results, size: Size, panel: str, x: str, caption: str) -> Picture:
    """Make the picture of a table: a panel for each value of the attribute `panel`, errors against the attribute x."""
    return Picture(
        f"{caption} Filled: mean of our trials. Hollow: printed in the paper.",
        f"Errors of {len(layout.columns)} methods against {NAMES[x]}, and those of the paper",
        lambda: draw(layout, results, size, panel, x),
    )


def draw(layout: Layout, results: Results, size: Size, panel: str, x: str) -> Figure:
    """Draw the picture."""
    groups: dict[float, list[Row]] = {}
    for row in sorted(layout.rows_at(size), key=lambda row: (getattr(row, panel), getattr(row, x))):
        groups.setdefault(getattr(row, panel), []).append(row)
    figure, axes = drawing.make_panels(len(groups), height=4.3, sharey=True)
    lowest = 1.0
    for ax, (value, rows) in zip(axes, groups.items(), strict=True):
        for column in layout.columns:
            errors = {getattr(row, x): results.mean(layout.cells_at(row, column, size)) for row in rows}
            lowest = min(lowest, draw_method(ax, column, x, rows, errors))
        if x == "noise_std":
            shade_bound(ax, rows)
        ticks = [getattr(row, x) for row in rows]
        if x == "n_features":
            drawing.scale_counts(ax, ticks)
        else:
            ax.set_xticks(ticks)
        ax.set_xlabel(NAMES[x])
        sizes = {row.n_samples for row in rows}
        more = f", {thousands(sizes.pop())} samples" if len(sizes) == 1 else ""
        drawing.set_title(ax, f"{NAMES[panel]} = {value:g}{more}")
    axes[0].set_ylabel("error")
    exact = lowest <= LOWEST
    for ax in axes:
        drawing.scale_errors(ax, (-7, -5, -4, -3, -2, -1, 0) if exact else (-4, -3, -2, -1, 0), {-7: "exact"})
        ax.set_ylim(LOWEST / 1.6 if exact else min(lowest / 2, 5e-4), TOP)
    drawing.add_legend(figure, axes)
    return figure


def draw_method(ax: Axes, column: Column, x: str, rows: Sequence[Row], errors: dict[float, float | None]) -> float:
    """Draw the curve of a method, and return its smallest error."""
    points = [(at, LOWEST if error < EXACT else error) for at, error in errors.items() if error is not None]
    style = drawing.style_line(column.name)
    if column.name == "picard":  # it would hide FastICA
        style |= {"linestyle": (0, (3, 2))}
    if points:
        ax.plot(*zip(*insert_gaps(points), strict=True), **style)
    printed = [(getattr(row, x), row.printed[column.name].error) for row in rows if column.name in row.printed]
    if printed:
        hollow: Any = {"marker": "o", "s": 52, "facecolors": "none", "linewidths": 1.3, "zorder": 5, "clip_on": False}
        ax.scatter(*zip(*printed, strict=True), edgecolors=STYLES[column.name].colour, **hollow)
    return min((error for _, error in points), default=1.0)


def insert_gaps(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """Insert gaps between errors that differ much: a line would cross errors that no method can reach."""
    joined = list(points[:1])
    for (x0, error0), (x1, error1) in itertools.pairwise(points):
        if max(error0, error1) > LEAP * min(error0, error1):
            joined.append(((x0 + x1) / 2, math.nan))
        joined.append((x1, error1))
    return joined


def shade_bound(ax: Axes, rows: Sequence[Row]) -> None:
    """Shade the errors below the Cramer-Rao bound."""
    model: Any = {name: getattr(rows[0], name) for name in ("n_features", "n_samples", "density")}
    sigma = np.linspace(0, max(row.noise_std for row in rows), 41)
    least = [max(cramer_rao_bound(**model, noise_std=float(s)) if s else 0.0, 1e-9) for s in sigma]
    ax.fill_between(sigma, 1e-9, least, color=LINE, alpha=0.7, linewidth=0, zorder=0)
