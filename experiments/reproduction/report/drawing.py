"""How pictures look: one style, in the colours of the page."""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, NullFormatter
from PIL import Image

from elldict.report.style import LIGHT, Palette
from experiments.harness.axes import quiet

WIDE_INCHES, NARROW_INCHES = 9.6, 4.4
DPI = 160


def panels(
    palette: Palette, narrow: bool, n: int, *, height: float = 4.0, per_row: int = 2, sharey: bool = False
) -> tuple[Figure, list[Axes]]:
    """A figure with n panels: `per_row` beside each other on a desk, one below the other on a phone."""
    columns = 1 if narrow else min(n, per_row)
    rows = -(-n // columns)
    width = NARROW_INCHES if narrow else WIDE_INCHES
    figure = Figure(figsize=(width, height * rows * (0.86 if narrow else 1)), layout="constrained")
    axes = figure.subplots(rows, columns, squeeze=False, sharey=sharey).ravel()
    for extra in axes[n:]:
        extra.set_visible(False)
    return figure, [bare_panel(panel, palette) for panel in axes[:n]]


def bare_panel(axes: Axes, palette: Palette) -> Axes:
    """A panel through which the page is seen."""
    axes.patch.set_alpha(0)
    axes.title.set_color(palette.ink)
    return quiet(axes, palette)


def series(palette: Palette) -> tuple[str, ...]:
    """Colours that are told apart, four of them and a quiet fifth."""
    fourth = "#a21caf" if palette is LIGHT else "#f0abfc"
    return (*palette.curves, fourth, palette.plain)


def titled(axes: Axes, text: str) -> None:
    """A heading to the left, as in the text."""
    axes.set_title(text, loc="left", size=11.5, weight="bold", pad=10, color=axes.title.get_color())


def legend(axes: Axes, palette: Palette, **where: Any) -> None:
    """Names of curves, if there are any."""
    if axes.get_legend_handles_labels()[0]:
        axes.legend(frameon=False, labelcolor=palette.ink, **where)


def counts_on_x(axes: Axes, ticks: Sequence[float]) -> None:
    """A log axis of counts, with plain numbers."""
    axes.set_xscale("log")
    axes.set_xticks(list(ticks))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda x, _: plain(x)))
    axes.xaxis.set_minor_formatter(NullFormatter())


def plain(number: float) -> str:
    """A tick: thousands as k."""
    return f"{number / 1000:g}k" if number >= 1000 else f"{number:g}"


def per_cent_on_y(axes: Axes, ticks: Sequence[float]) -> None:
    """A log axis of shares, in per cent."""
    axes.set_yscale("log")
    axes.set_yticks(list(ticks), [f"{100 * tick:g} %".replace("e-0", "e-") for tick in ticks])
    axes.yaxis.set_minor_formatter(NullFormatter())


@contextmanager
def page_style(palette: Palette) -> Iterator[None]:
    """Letters as on the page."""
    with mpl.rc_context({"font.size": 10, "text.color": palette.ink, "axes.labelsize": 10}):
        yield


def png(figure: Figure, background: str) -> bytes:
    """The figure as a file for slides."""
    stream = io.BytesIO()
    figure.savefig(stream, format="png", dpi=DPI, facecolor=background, metadata={"Software": None})
    return stream.getvalue()


def webp(figure: Figure, background: str, smooth: bool) -> bytes:
    """The figure for a page: half the bytes of a PNG, and a tenth where shades are smooth and none has to be exact."""
    stream = io.BytesIO()
    with Image.open(io.BytesIO(png(figure, "none" if smooth else background))) as image:  # lossy colours do not meet
        image.convert("RGBA" if smooth else "RGB").save(stream, "webp", lossless=not smooth, quality=92, method=4)
    return stream.getvalue()
