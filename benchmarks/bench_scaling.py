"""The picture of how the time of one iteration grows."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import bench_store as store
import numpy as np
from bench_store import Line
from bench_style import Name, name_ends, quiet
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine

from elldict.report.style import LIGHT

AXES = {"n": "features, n", "r": "samples, r", "p": "exponent, p"}
OURS, BARE = LIGHT.curves[1], LIGHT.curves[2]


def scaling_figure(path: Path = store.GROWTH) -> Figure | None:
    """A panel each for n, r and p; None if nothing was measured."""
    lines = list(store.latest(path, "along", "along", "n", "r", "p").values())
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
    drawn = [(axes, _draw(axes, along, panels[along])) for axes, along in zip(all_axes, panels, strict=True)]
    all_axes[0].set_ylabel("milliseconds")
    figure.draw_without_rendering()  # names stand at heights that are known only then
    for axes, names in drawn:
        name_ends(axes, names)
    return figure


def _draw(axes: Axes, along: str, lines: Sequence[Line]) -> list[Name]:
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
    quiet(axes)
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
