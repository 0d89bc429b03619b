"""The picture of error against time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from bench_store import Line
from bench_style import LOOKS, Name, name_ends, quiet
from bench_times import Round, Row
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from problems import Problem
from problems.base import EXACT

from elldict.report.style import LIGHT

SHOWN = (  # family, n, sigma; always density .3
    (("Table 1", 100, 0.0), ("Table 1", 200, 0.0), ("Table 1", 400, 0.0)),
    (("Table 2", 32, 0.2), ("Table 2", 100, 0.2), ("Table 2", 100, 0.6)),
)
DENSITY = 0.3
EXACT_LINE, TOP = 4e-7, 1.3
"""Errors that are rounding are drawn on a line of their own."""

TICKS = {EXACT_LINE: "exact", 1e-5: "0.001 %", 1e-4: "0.01 %", 1e-3: "0.1 %", 1e-2: "1 %", 1e-1: "10 %", 1.0: "100 %"}


def curves_figure(rows: Sequence[Row]) -> Figure | None:
    """A panel for each of the chosen problems that were run; None if none was."""
    panels = [[_find(rows, *wanted) for wanted in line] for line in SHOWN]
    lines = [[row for row in line if row is not None] for line in panels]
    lines = [line for line in lines if line]
    if not lines:
        return None
    return _drawn(lines)


def _find(rows: Sequence[Row], family: str, n: int, sigma: float) -> Row | None:
    for row in rows:
        problem = row.problem
        if (problem.family, problem.n_features, problem.noise_std, problem.density) == (family, n, sigma, DENSITY):
            return row
    return None


def _drawn(lines: list[list[Row]]) -> Figure:
    columns = max(len(line) for line in lines)
    layout = ConstrainedLayoutEngine(wspace=0.03, hspace=0.08, h_pad=0.12)
    size = (6.4 * columns + 0.6, 4.9 * len(lines) + 0.9)
    figure = Figure(figsize=size, layout=layout, facecolor=LIGHT.card)
    figure.suptitle("Error against time", x=0.01, ha="left", size=24, weight="bold")
    made_by = lines[0][0].rounds[0]["elldict"]["made_by"]
    note = f"density {DENSITY:g}, float32, {made_by['threads']} threads; of each solver the fit of median time"
    figure.text(0.99, 0.985, note, ha="right", va="top", size=16, color=LIGHT.muted)
    grid = figure.subplots(len(lines), columns, squeeze=False)
    drawn = []
    for all_axes, line in zip(grid, lines, strict=True):
        for axes in all_axes[len(line) :]:
            axes.set_visible(False)
        drawn += [(axes, _draw_panel(axes, row)) for axes, row in zip(all_axes, line, strict=False)]
        all_axes[0].set_ylabel("error of the atoms")
    for axes in grid[-1]:
        axes.set_xlabel("seconds")
    figure.draw_without_rendering()  # names stand at heights that are known only then
    for axes, names in drawn:
        name_ends(axes, names)
    return figure


def _draw_panel(axes: Axes, row: Row) -> list[Name]:
    """Curves, and the names of their ends."""
    problem, names = row.problem, []
    _draw_limit(axes, problem)
    for solver, look in LOOKS.items():
        line = _typical(row.rounds, solver)
        if line is None:
            continue
        seconds, errors = np.array(line["curve"]).T
        shown = np.where(errors < EXACT, EXACT_LINE, errors)
        above = 5 if solver == "elldict" else 3
        axes.plot(seconds, shown, color=look.colour, linewidth=look.width, zorder=above, solid_capstyle="round")
        axes.plot(seconds[-1], shown[-1], look.marker, color=look.colour, markersize=9, zorder=above + 1, clip_on=False)
        names.append(Name(look.name, look.colour, seconds[-1], shown[-1]))
    lowest = 0.6 * EXACT_LINE if not problem.noise_std else 0.45 * problem.limit
    axes.set(xscale="log", yscale="log", ylim=(lowest, TOP))
    ticks = {at: text for at, text in TICKS.items() if at >= lowest and (at > EXACT_LINE or not problem.noise_std)}
    axes.set_yticks(list(ticks), list(ticks.values()))
    axes.xaxis.set_major_formatter(lambda seconds, _: f"{seconds:g}")
    quiet(axes)
    noise = f"noise {problem.noise_std:g}" if problem.noise_std else "no noise"
    axes.set_title(f"n = {problem.n_features}, {noise}", size=16, loc="left", weight="bold")
    axes.set_title(f"r = {problem.n_samples:,}".replace(",", "\u2009"), size=13, loc="right", color=LIGHT.muted)
    return names


def _typical(rounds: Sequence[Round], solver: str) -> Line | None:
    """The fit whose time is the median: a mean of curves would show what no fit did."""
    done = [fits[solver] for fits in rounds if fits.get(solver, {}).get("status") == "done"]
    return sorted(done, key=lambda line: line["seconds"])[(len(done) - 1) // 2] if done else None


def _draw_limit(axes: Axes, problem: Problem) -> None:
    """Shade what no unbiased method can reach."""
    if not problem.noise_std:
        return
    axes.axhspan(1e-12, problem.limit, color=LIGHT.tile, zorder=0, linewidth=0)
    axes.axhline(problem.limit, color=LIGHT.muted, linewidth=1.2, zorder=1)
    over_grid: dict[str, Any] = {"facecolor": LIGHT.tile, "edgecolor": "none", "pad": 1.5}
    where: dict[str, Any] = {"transform": axes.transAxes, "va": "bottom", "bbox": over_grid}
    axes.text(0.02, 0.03, "below the Cramér-Rao limit", color=LIGHT.muted, size=13, **where)
