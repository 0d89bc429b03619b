"""How plots and pages look: colours for light and for dark backgrounds, ticks and frames of axes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.colors import LinearSegmentedColormap

# --- colours ----------------------------------------------------------------------------------------------------------


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
    def variables(self) -> Mapping[str, str]:
        """CSS variables."""
        names = ("paper", "card", "tile", "ink", "muted", "line", "plain", "negative", "positive")
        named = {f"--{name}": getattr(self, name) for name in names}
        return named | {f"--curve-{number}": colour for number, colour in enumerate(self.curves)}

    @property
    def strength(self) -> LinearSegmentedColormap:
        """From nothing to the full colour of the first curve."""
        return _interpolate(self.card, self.curves[0])

    @property
    def pencil(self) -> LinearSegmentedColormap:
        """From blank to ink."""
        return _interpolate(self.tile, self.ink)

    @property
    def sign(self) -> LinearSegmentedColormap:
        """From negative through nothing to positive."""
        return _interpolate(self.negative, self.tile, self.positive)


def _interpolate(*colours: str) -> LinearSegmentedColormap:
    return LinearSegmentedColormap.from_list("interpolated", colours)


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


# --- axes -------------------------------------------------------------------------------------------------------------


def set_percent_ticks(axis: Axis, lowest: float, highest: float) -> None:
    """Label the powers of ten between two values, in per cent."""
    ticks = [tick for tick in (0.01, 0.1, 1, 10, 100) if lowest < tick < highest]
    axis.set_ticks(ticks, [f"{tick:g} %" for tick in ticks])
    axis.set_ticks([], minor=True)


def style_axes(axes: Axes, palette: Palette, grid: Literal["x", "y"] = "y") -> None:
    """Draw grid lines to read values by, and no box around them."""
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.spines["bottom"].set_color(palette.line)
    axes.grid(axis=grid, color=palette.line, linewidth=0.8)
    axes.set_axisbelow(True)
    axes.tick_params(length=0, labelcolor=palette.muted)
    axes.xaxis.label.set_color(palette.muted)
    axes.yaxis.label.set_color(palette.muted)
