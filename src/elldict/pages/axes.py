"""How axes look, in every drawing."""

from __future__ import annotations

from typing import Literal

from matplotlib.axes import Axes
from matplotlib.axis import Axis

from elldict.pages.palette import Palette


def per_cent_ticks(axis: Axis, lowest: float, highest: float) -> None:
    """Powers of ten between two values, in per cent."""
    ticks = [tick for tick in (0.01, 0.1, 1, 10, 100) if lowest < tick < highest]
    axis.set_ticks(ticks, [f"{tick:g} %" for tick in ticks])
    axis.set_ticks([], minor=True)


def quiet_frame(axes: Axes, palette: Palette, along: Literal["x", "y"] = "y") -> None:
    """Keep what carries meaning: grid lines to read values by, no box around them."""
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.spines["bottom"].set_color(palette.line)
    axes.grid(axis=along, color=palette.line, linewidth=0.8)
    axes.set_axisbelow(True)
    axes.tick_params(length=0, labelcolor=palette.muted)
    axes.xaxis.label.set_color(palette.muted)
    axes.yaxis.label.set_color(palette.muted)
