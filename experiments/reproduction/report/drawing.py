"""Elements of all pictures, in one style."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, NullFormatter

from experiments.harness.axes import INK, LINE, quiet
from experiments.reproduction.experiment import Picture
from experiments.reproduction.report.styles import STYLES
from experiments.reproduction.report.words import SIGN, power_of_ten, thousands

WIDTH, DPI = 9.6, 130  # inches, and pixels per inch


def make_panels(n: int, *, height: float = 4.0, per_row: int = 2, sharey: bool = False) -> tuple[Figure, list[Axes]]:
    """Make a figure with n panels."""
    columns = min(n, per_row)
    rows = -(-n // columns)
    figure = Figure(figsize=(WIDTH, height * rows), layout="constrained")
    axes = figure.subplots(rows, columns, squeeze=False, sharey=sharey).ravel()
    return figure, [quiet(panel) for panel in axes]


def style_line(name: str) -> dict[str, Any]:
    """Return the style of the curve of a method; that of elldict is the widest, and on top."""
    style, ours = STYLES[name], name == "default"
    return {
        "color": style.colour,
        "marker": style.marker,
        "markersize": 6 if ours else 5,
        "linewidth": 3.0 if ours else 2.0,
        "label": style.label,
        "zorder": 4 if ours else 3,
        "clip_on": False,
    }


def shade(name: str, number: int, n_all: int) -> Any:
    """Return a colour for one of the curves of a method, from pale to its own colour."""
    pale = LinearSegmentedColormap.from_list("shades", [LINE, STYLES[name].colour])
    return pale(0.15 + 0.85 * (number + 1) / n_all)


def set_title(axes: Axes, text: str) -> None:
    """Write a title above the left end of the axes."""
    axes.set_title(text, loc="left", size=11.5, weight="bold", pad=10, color=INK)


def add_legend(figure: Figure, axes: Sequence[Axes]) -> None:
    """Write the names of the curves of all panels above them, each once."""
    found: dict[str, Any] = {}
    for panel in axes:
        for handle, label in zip(*panel.get_legend_handles_labels(), strict=True):
            found.setdefault(label, handle)
    if found:
        where: Any = {"loc": "outside upper left", "ncols": min(len(found), 8), "frameon": False, "labelcolor": INK}
        figure.legend(list(found.values()), list(found), **where, columnspacing=1.2, handlelength=1.6)


def scale_counts(axes: Axes, ticks: Sequence[float]) -> None:
    """Use a log scale of counts on the x axis."""
    axes.set_xscale("log")
    axes.set_xticks(list(ticks))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda x, _: format_tick(x)))
    axes.xaxis.set_minor_formatter(NullFormatter())


def format_tick(number: float) -> str:
    """Format a tick, with thousands as in the text."""
    return thousands(round(number)) if number >= 1000 else f"{number:g}"


def scale_errors(axes: Axes, exponents: Sequence[int], labels: dict[int, str] | None = None) -> None:
    """Use a log scale of errors in per cent on the y axis, with ticks at powers of ten; `labels` replaces some."""
    axes.set_yscale("log")
    axes.set_yticks([10.0**k for k in exponents], [(labels or {}).get(k) or format_error(k) for k in exponents])
    axes.minorticks_off()


def format_error(exponent: int) -> str:
    """Format a power of ten in per cent, as a decimal number while it is short."""
    return (f"{10.0 ** (exponent + 2):g}" if exponent >= -6 else power_of_ten(exponent + 2)) + SIGN


def scale_powers(axes: Axes, exponents: Sequence[int]) -> None:
    """Use a log scale over many powers of ten on the y axis."""
    axes.set_yscale("log")
    axes.set_yticks([10.0**exponent for exponent in exponents], [power_of_ten(exponent) for exponent in exponents])
    axes.minorticks_off()


def scale_fractions(axes: Axes) -> None:
    """Use a scale from 0 to 100 % on the y axis."""
    axes.set_ylim(-0.02, 1.02)
    axes.set_yticks([0, 0.25, 0.5, 0.75, 1], [f"{part}{SIGN}" for part in (0, 25, 50, 75, 100)])


def draw_png(picture: Picture) -> bytes:
    """Draw a picture as a PNG file."""
    stream = io.BytesIO()
    with mpl.rc_context({"font.size": 10, "text.color": INK, "axes.labelsize": 10}):
        picture.draw().savefig(stream, format="png", dpi=DPI, facecolor="white", metadata={"Software": None})
    return stream.getvalue()
