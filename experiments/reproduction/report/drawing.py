"""How pictures look: one style, in the colours of the page."""

from __future__ import annotations

import io
import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, NullFormatter
from PIL import Image

from elldict._old.report.style import Palette, interpolate
from experiments.harness.axes import quiet
from experiments.reproduction.report.looks import LOOKS
from experiments.reproduction.report.words import SIGN, power_of_ten, thousands

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


def line_style(method: str, palette: Palette) -> dict[str, Any]:
    """How the curve of a method is drawn, in every picture: elldict's is the widest, and on top."""
    look = LOOKS[method]
    ours = method == "default"
    return {
        "color": look.colour(palette),
        "marker": look.marker,
        "markersize": 6 if ours else 5,
        "linewidth": 3.0 if ours else 2.0,
        "label": look.label,
        "zorder": 4 if ours else 3,
        "clip_on": False,
    }


def shade(method: str, palette: Palette, number: int, of_all: int) -> Any:
    """Colours of one method's curves, the last of them its own."""
    pale = interpolate(palette.line, LOOKS[method].colour(palette))
    return pale(0.15 + 0.85 * (number + 1) / of_all)


def titled(axes: Axes, text: str) -> None:
    """A heading to the left, as in the text."""
    axes.set_title(text, loc="left", size=11.5, weight="bold", pad=10, color=axes.title.get_color())


def legend(axes: Axes, palette: Palette, **where: Any) -> None:
    """Names of curves, if there are any."""
    if axes.get_legend_handles_labels()[0]:
        axes.legend(frameon=False, labelcolor=palette.ink, **where)


def legend_above(figure: Figure, axes: Sequence[Axes], palette: Palette, narrow: bool) -> None:
    """Names of the curves of all panels, once, in the order of the looks."""
    found: dict[str, Any] = {}
    for panel in axes:
        for handle, label in zip(*panel.get_legend_handles_labels(), strict=True):
            found.setdefault(label, handle)
    order = [look.label for look in LOOKS.values()]
    labels = sorted(found, key=lambda label: order.index(label) if label in order else len(order))
    if labels:
        figure.legend(
            [found[label] for label in labels],
            labels,
            loc="outside upper left",
            ncols=min(len(labels), 4 if narrow else 8),
            frameon=False,
            labelcolor=palette.ink,
            columnspacing=1.2,
            handlelength=1.6,
        )


def counts_on_x(axes: Axes, ticks: Sequence[float]) -> None:
    """A log axis of counts, with plain numbers."""
    axes.set_xscale("log")
    axes.set_xticks(list(ticks))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda x, _: plain(x)))
    axes.xaxis.set_minor_formatter(NullFormatter())


def plain(number: float) -> str:
    """A tick, with thousands as in the text."""
    return thousands(round(number)) if number >= 1000 else f"{number:g}"


def per_cent_on_y(axes: Axes, ticks: Sequence[float], words: dict[float, str] | None = None) -> None:
    """A log axis of shares, in per cent; `words` for ticks that are not numbers."""
    axes.set_yscale("log")
    labels = [(words or {}).get(tick) or per_cent_tick(tick) for tick in ticks]
    axes.set_yticks(list(ticks), labels)
    axes.yaxis.set_minor_formatter(NullFormatter())
    axes.minorticks_off()


def per_cent_tick(share: float) -> str:
    """A power of ten in per cent: in decimals, as in the text, while these are short."""
    exponent = round(math.log10(100 * share))
    return f"{100 * share:.{max(0, -exponent)}f}{SIGN}" if exponent >= -4 else f"{power_of_ten(exponent)}{SIGN}"


def powers_on_y(axes: Axes, exponents: Sequence[int]) -> None:
    """A log axis over many powers of ten."""
    axes.set_yscale("log")
    axes.set_yticks([10.0**exponent for exponent in exponents], [power_of_ten(exponent) for exponent in exponents])
    axes.minorticks_off()


def shares_on_y(axes: Axes) -> None:
    """An axis of shares, from none to all."""
    axes.set_ylim(-0.02, 1.02)
    axes.set_yticks([0, 0.25, 0.5, 0.75, 1], [f"{part}{SIGN}" for part in (0, 25, 50, 75, 100)])


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
