"""How plots and pages look: colours for light and for dark backgrounds, ticks and frames of axes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap


@dataclass(frozen=True)
class Palette:
    """Colours by their role; the page knows each as the CSS variable of the same name."""

    paper: str
    card: str
    tile: str  # a blank pixel, just visible on a card
    ink: str
    muted: str
    line: str
    curves: tuple[str, str, str]  # one for each exponent
    plain: str  # what is compared with
    negative: str
    positive: str

    @property
    def variables(self) -> dict[str, str]:
        """CSS variables."""
        named = {f"--{role}": colour for role, colour in vars(self).items() if role != "curves"}
        return named | {f"--curve-{number}": colour for number, colour in enumerate(self.curves)}


LIGHT = Palette(
    paper="#f6f5f1",
    card="#ffffff",
    tile="#f1f0eb",
    ink="#191b22",
    muted="#5c606c",
    line="#dfddd6",
    curves=("#4338ca", "#0f766e", "#c2410c"),
    plain="#9a9ca6",
    negative="#c2410c",
    positive="#4338ca",
)
DARK = Palette(
    paper="#0e1016",
    card="#161922",
    tile="#1f232e",
    ink="#eef0f5",
    muted="#9ba1b0",
    line="#2b303d",
    curves=("#a5b0ff", "#4fd8c4", "#ffb072"),
    plain="#6b7080",
    negative="#ff9a5c",
    positive="#98a5ff",
)


def interpolate(*colours: str) -> LinearSegmentedColormap:
    """Colours from the first to the last."""
    return LinearSegmentedColormap.from_list("interpolated", colours)


Caption = tuple[str, str]
"""What is seen, and how to read it: drawings return it, plots write it above them and pages below."""


def set_title(axes: Axes, caption: Caption, pad: float = 6) -> None:
    """What is seen, and below it, in a quiet colour, how to read it; `pad` points above the axes."""
    title, note = caption
    axes.set_title(title, loc="left", color=LIGHT.ink, weight="bold", pad=pad + 15)
    lifted: dict[str, Any] = {
        "xy": (0, 1),
        "xycoords": "axes fraction",
        "xytext": (0, pad),
        "textcoords": "offset points",
    }
    axes.annotate(note, **lifted, color=LIGHT.muted, size="small", va="bottom", annotation_clip=False)


def style_axes(axes: Axes, errors: Literal["x", "y"], lowest: float, highest: float) -> None:
    """Label the powers of ten on the axis of the errors, in per cent, with lines to read them by and no box around."""
    ticks = [tick for tick in (0.01, 0.1, 1, 10, 100) if lowest < tick < highest]
    axis = axes.xaxis if errors == "x" else axes.yaxis
    axis.set_ticks(ticks, [f"{tick:g} %" for tick in ticks])
    axis.set_ticks([], minor=True)
    frame_axes(axes, errors)


def frame_axes(axes: Axes, grid: Literal["x", "y", "both"]) -> None:
    """Lines to read values by, words in a quiet colour, and no box around."""
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.spines["bottom"].set_color(LIGHT.line)
    axes.grid(axis=grid, color=LIGHT.line, linewidth=0.8)
    axes.set_axisbelow(True)
    axes.tick_params(length=0, labelcolor=LIGHT.muted)
    axes.xaxis.label.set_color(LIGHT.muted)
    axes.yaxis.label.set_color(LIGHT.muted)
