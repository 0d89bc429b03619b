"""How the pictures of the side-by-side benchmark look: one colour a family, names beside the curves."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from matplotlib.axes import Axes

from elldict.report.style import LIGHT

STYLE: dict[str, Any] = {"font.size": 14, "text.color": LIGHT.ink}
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


@dataclass(frozen=True)
class Name:
    """A word beside a point of a curve."""

    text: str
    colour: str
    x: float
    y: float


def quiet(axes: Axes) -> None:
    """Keep what carries meaning: grid lines to read values by, no box around them."""
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.spines["bottom"].set_color(LIGHT.line)
    axes.grid(axis="y", color=LIGHT.line, linewidth=0.8)
    axes.set_axisbelow(True)
    axes.minorticks_off()
    axes.tick_params(length=0, labelcolor=LIGHT.muted, labelsize=13)
    axes.xaxis.label.set_color(LIGHT.muted)
    axes.yaxis.label.set_color(LIGHT.muted)


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
