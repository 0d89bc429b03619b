"""The pictures of the comparison: error against time, and how the time of one iteration grows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine

from elldict._old.report.style import LIGHT
from experiments.benchmarks.speed.problems import EXACT, Problem
from experiments.benchmarks.speed.times import Line, Round, Row
from experiments.harness.axes import quiet
from experiments.harness.store import Store, latest

STYLE: Any = {"font.size": 14, "text.color": LIGHT.ink}
DPI = 130


@dataclass(frozen=True)
class Look:
    """Families differ in hue, and in lightness too, so that no pair relies on red against green."""

    name: str
    colour: str
    width: float
    marker: str


LOOKS = {
    "elldict": Look("elldict", LIGHT.curves[1], 3.6, "o"),
    "elldict power": Look("elldict, power", LIGHT.curves[0], 2.2, "s"),
    "FastICA logcosh": Look("FastICA logcosh", "#9a3412", 2.2, "^"),
    "FastICA exp": Look("FastICA exp", "#dd6b20", 2.2, "v"),
    "FastICA cube": Look("FastICA cube", "#e8a15c", 2.2, "D"),
    "Picard-O": Look("Picard-O", LIGHT.muted, 2.2, "P"),
}


# --- error against time -----------------------------------------------------------------------------------------------

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
    return _curves(lines)


def _find(rows: Sequence[Row], family: str, n: int, sigma: float) -> Row | None:
    for row in rows:
        problem = row.problem
        if (problem.family, problem.n_features, problem.noise_std, problem.density) == (family, n, sigma, DENSITY):
            return row
    return None


def _curves(lines: list[list[Row]]) -> Figure:
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
        drawn += [(axes, _draw_curves(axes, row)) for axes, row in zip(all_axes, line, strict=False)]
        all_axes[0].set_ylabel("error of the atoms")
    for axes in grid[-1]:
        axes.set_xlabel("seconds")
    figure.draw_without_rendering()  # names stand at heights that are known only then
    for axes, names in drawn:
        name_ends(axes, names)
    return figure


def _draw_curves(axes: Axes, row: Row) -> list[Name]:
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
    axes.minorticks_off()
    quiet(axes).tick_params(labelsize=13)
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


# --- time of one iteration --------------------------------------------------------------------------------------------

AXES = {"n": "features, n", "r": "samples, r", "p": "exponent, p"}
OURS, BARE = LIGHT.curves[1], LIGHT.curves[2]


def growth_figure(path: Path) -> Figure | None:
    """A panel each for n, r and p; None if nothing was measured."""
    lines = latest(Store(path).records.values(), "along")
    panels = {along: [line for line in lines if line["along"] == along] for along in AXES}
    panels = {along: sorted(found, key=lambda line: line[along]) for along, found in panels.items() if found}
    if not panels:
        return None
    layout = ConstrainedLayoutEngine(wspace=0.03, h_pad=0.12)
    figure = Figure(figsize=(6.0 * len(panels) + 0.6, 5.6), layout=layout, facecolor=LIGHT.card)
    figure.suptitle("Time of one iteration", x=0.01, ha="left", size=24, weight="bold")
    note = "float32; the law at the speed of the largest product of its panel"
    figure.text(0.99, 0.975, note, ha="right", va="top", size=16, color=LIGHT.muted)
    all_axes = figure.subplots(1, len(panels), squeeze=False)[0]
    drawn = [(axes, _draw_growth(axes, along, panels[along])) for axes, along in zip(all_axes, panels, strict=True)]
    all_axes[0].set_ylabel("milliseconds")
    figure.draw_without_rendering()  # names stand at heights that are known only then
    for axes, names in drawn:
        name_ends(axes, names)
    return figure


def _draw_growth(axes: Axes, along: str, lines: Sequence[Line]) -> list[Name]:
    x = np.array([line[along] for line in lines], dtype=float)
    ours = np.array([line["iteration_ms"] for line in lines])
    bare = np.array([line["products_ms"] for line in lines])
    flops = np.array([line["flops"] for line in lines])
    law = bare[-1] / flops[-1] * flops  # at the speed of the largest product
    axes.plot(x, law, color=LIGHT.muted, linewidth=1.4, linestyle=(0, (5, 4)), zorder=2)
    axes.plot(x, bare, color=BARE, linewidth=2.2, marker="^", markersize=7, zorder=3)
    axes.plot(x, ours, color=OURS, linewidth=3.4, marker="o", markersize=8, zorder=4)
    axes.set_xlabel(AXES[along])
    if along == "p":  # all alike: their true heights say more than their logarithms
        axes.set_ylim(0, 1.35 * max(ours.max(), bare.max()))
    else:
        axes.set(xscale="log", yscale="log")
    axes.set_xticks(x, [_short(value) for value in x])
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axes.minorticks_off()
    quiet(axes).tick_params(labelsize=13)
    axes.set_title(_held(along, lines[0]), size=14, loc="left", color=LIGHT.muted)
    return [
        Name("one iteration", OURS, x[-1], ours[-1]),
        Name("its two products", BARE, x[-1], bare[-1]),
        Name("4 n² r law", LIGHT.muted, x[-1], law[-1]),
    ]


def _short(value: float) -> str:
    return f"{value / 1000:g}k" if value >= 1000 else f"{value:g}"


def _held(along: str, line: Line) -> str:
    """What the panel does not vary."""
    return ", ".join(f"{name} = {_short(line[name])}" for name in AXES if name != along)


# --- how they look: one colour a family, names beside the curves ------------------------------------------------------


@dataclass(frozen=True)
class Name:
    """A word beside a point of a curve."""

    text: str
    colour: str
    x: float
    y: float


def name_ends(axes: Axes, names: list[Name], size: float = 12.5, gap: float = 0.062) -> None:
    """Names in a column to the right of the axes, in the order of the ends of their curves, a line to each.

    Ends lie close together where solvers are alike: names keep a distance of `gap`, as a share of the height.
    """
    to_share = axes.transData + axes.transAxes.inverted()
    ends = [(to_share.transform((name.x, name.y)), name) for name in names]
    ends.sort(key=lambda end: end[0][1])
    heights = _spread([float(min(max(end[1], 0.0), 1.0)) for end, _ in ends], gap)
    for ((x, y), name), height in zip(ends, heights, strict=True):
        axes.annotate(
            name.text,
            xy=(x, y),
            xytext=(1.04, height),
            xycoords="axes fraction",
            textcoords="axes fraction",
            color=name.colour,
            weight="bold",
            size=size,
            va="center",
            annotation_clip=False,
            arrowprops={
                "arrowstyle": "-",
                "color": name.colour,
                "linewidth": 0.7,
                "alpha": 0.35,
                "shrinkA": 1,
                "shrinkB": 6,
            },
        )


def _spread(heights: list[float], gap: float) -> list[float]:
    """Rising heights moved apart as little as is needed: up first, and down again from the top edge."""
    moved: list[float] = []
    for height in heights:
        moved.append(max(height, moved[-1] + gap) if moved else height)
    top = 1.0
    for number in reversed(range(len(moved))):
        moved[number] = min(moved[number], top)
        top = moved[number] - gap
    return moved
