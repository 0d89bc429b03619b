"""How axes look in every picture of the experiments."""

from __future__ import annotations

from matplotlib.axes import Axes

from elldict._old.report.style import LIGHT, Palette


def quiet(axes: Axes, palette: Palette = LIGHT) -> Axes:
    """Keep what carries meaning: grid lines to read values by, no box around them."""
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.spines["bottom"].set_color(palette.line)
    axes.grid(axis="y", color=palette.line, linewidth=0.8)
    axes.set_axisbelow(True)
    axes.tick_params(length=0, labelcolor=palette.muted, which="both")
    axes.xaxis.label.set_color(palette.muted)
    axes.yaxis.label.set_color(palette.muted)
    return axes
