"""Tables 1 to 3 as pictures: the error of every method, the paper's numbers beside ours."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from elldict._old.report.style import Palette
from elldict.theory import cramer_rao_bound
from experiments.reproduction.experiment import Picture, Size
from experiments.reproduction.paper import Row
from experiments.reproduction.report import drawing
from experiments.reproduction.report.looks import LOOKS
from experiments.reproduction.report.words import thousands
from experiments.reproduction.results import Results
from experiments.reproduction.tables.recovery_table import Column, Layout

EXACT, FLOOR = 3e-7, 1e-6
"""Where errors that are rounding are drawn, and the size below which they are."""

TOP = 1.5
LEAP = 100.0
"""Factor from one error to the next beyond which they are not joined."""

NAMES = {"n_features": "n", "density": "θ", "noise_std": "noise σ", "corruption": "corruption σ"}


@dataclass(frozen=True)
class View:
    """How a table becomes panels: what tells them apart, and what grows from left to right."""

    panel: str
    x: str

    def panels(self, rows: Sequence[Row]) -> dict[float, list[Row]]:
        """Rows of each panel."""
        return {value: [row for row in rows if getattr(row, self.panel) == value] for value in self._values(rows)}

    def _values(self, rows: Sequence[Row]) -> list[float]:
        return sorted({getattr(row, self.panel) for row in rows})


def make_picture(layout: Layout, results: Results, size: Size, view: View, caption: str) -> Picture:
    """The picture of a table."""
    return Picture(
        layout.name,
        f"{caption} Filled: mean of our trials. Hollow: as the paper prints it.",
        f"Errors of {len(layout.columns)} methods against {NAMES[view.x]}, the paper's numbers beside ours",
        lambda palette, narrow: draw(layout, results, size, view, palette, narrow),
    )


def draw(layout: Layout, results: Results, size: Size, view: View, palette: Palette, narrow: bool) -> Figure:
    """A panel for each value of what tells them apart."""
    groups = view.panels(layout.rows_at(size))
    figure, axes = drawing.panels(palette, narrow, len(groups), height=4.3, sharey=not narrow)
    lowest = 1.0
    for panel, (value, rows) in zip(axes, groups.items(), strict=True):
        for column in layout.columns:
            lowest = min(lowest, _draw_method(panel, layout, results, size, view, rows, column, palette))
        _draw_limit(panel, view, rows, palette)
        _label(panel, view, rows)
        panel.set_ylabel("error" if narrow or panel is axes[0] else "")
        drawing.titled(panel, _title(view, value, rows))
    for panel in axes:
        _scale(panel, lowest)
    drawing.legend_above(figure, axes, palette, narrow)
    return figure


def _draw_method(
    panel: Axes,
    layout: Layout,
    results: Results,
    size: Size,
    view: View,
    rows: Sequence[Row],
    column: Column,
    palette: Palette,
) -> float:
    """The curve of a method, and its smallest error."""
    found = [(getattr(row, view.x), results.mean(layout.cells_at(row, column, size))) for row in rows]
    points = [(x, shown(error)) for x, error in found if error is not None]
    style = drawing.line_style(column.name, palette)
    if column.name == "picard":  # as exact as FastICA, whose curve would be hidden
        style |= {"linestyle": (0, (3, 2))}
    if points:
        panel.plot(*zip(*with_gaps(points), strict=True), **style)
    printed = [(getattr(row, view.x), row.printed[column.name].error) for row in rows if column.name in row.printed]
    if printed:
        hollow: Any = {"marker": "o", "s": 52, "facecolors": "none", "linewidths": 1.3, "zorder": 5, "clip_on": False}
        panel.scatter(*zip(*printed, strict=True), edgecolors=LOOKS[column.name].colour(palette), **hollow)
    return min((error for _, error in points), default=1.0)


def shown(error: float) -> float:
    """Where an error is drawn: rounding has a line of its own."""
    return EXACT if error < FLOOR else error


def with_gaps(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """Points with a gap wherever the error leaps: a line would cross what no method can reach in between."""
    joined = list(points[:1])
    for (x0, error0), (x1, error1) in itertools.pairwise(points):
        if max(error0, error1) > LEAP * min(error0, error1):
            joined.append(((x0 + x1) / 2, math.nan))
        joined.append((x1, error1))
    return joined


def _draw_limit(panel: Axes, view: View, rows: Sequence[Row], palette: Palette) -> None:
    """Shade what no unbiased method can reach, where the noise is Gaussian."""
    if view.x != "noise_std":
        return
    row = rows[0]
    model = {"n_features": row.n_features, "n_samples": row.n_samples, "density": row.density}
    sigma = np.linspace(0, max(r.noise_std for r in rows), 41)
    least = [max(cramer_rao_bound(**model, noise_std=float(s)) if s else 0.0, 1e-9) for s in sigma]  # type: ignore[arg-type]
    panel.fill_between(sigma, 1e-9, least, color=palette.line, alpha=0.7, linewidth=0, zorder=0)


def _label(panel: Axes, view: View, rows: Sequence[Row]) -> None:
    ticks = [getattr(row, view.x) for row in rows]
    if view.x == "n_features":
        drawing.counts_on_x(panel, ticks)
    else:
        panel.set_xticks(ticks)
    panel.minorticks_off()
    panel.set_xlabel(NAMES[view.x])


def _scale(panel: Axes, lowest: float) -> None:
    """From all lost down to what was reached."""
    if lowest <= EXACT:
        ticks: tuple[float, ...] = (EXACT, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1)
        drawing.per_cent_on_y(panel, ticks, {EXACT: "exact"})
        panel.set_ylim(EXACT / 1.6, TOP)
    else:
        drawing.per_cent_on_y(panel, (1e-4, 1e-3, 1e-2, 1e-1, 1))
        panel.set_ylim(min(lowest / 2, 5e-4), TOP)


def _title(view: View, value: float, rows: Sequence[Row]) -> str:
    samples = {row.n_samples for row in rows}
    more = f", {thousands(samples.pop())} samples" if len(samples) == 1 else ""
    return f"{NAMES[view.panel]} = {value:g}{more}"
