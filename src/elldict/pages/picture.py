"""The demo as one picture, for a README or a slide."""

from __future__ import annotations

import io
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure, SubFigure
from matplotlib.layout_engine import ConstrainedLayoutEngine

from elldict.pages import figures
from elldict.pages.demo import Demo
from elldict.pages.digits import N_KEPT
from elldict.pages.dots import draw_dots
from elldict.pages.palette import LIGHT
from elldict.pages.recovery import Recovery

INCHES, DPI = (14.0, 8.7), 100
MARGIN = 0.2
N_ATOMS, N_COLUMNS = 50, 10


def draw_picture(demo: Demo) -> bytes:
    """PNG on white: the hidden dictionary in the upper half, the digits in the lower."""
    with mpl.rc_context({"font.size": 12, "text.color": LIGHT.ink}):
        layout = ConstrainedLayoutEngine(w_pad=MARGIN, h_pad=MARGIN / 2, wspace=0, hspace=0)
        figure = Figure(figsize=INCHES, layout=layout, facecolor=LIGHT.card)
        parts: Any = figure.subfigures(2, 1, height_ratios=(1.0, 0.85))
        _draw_hidden(parts[0], demo)
        _draw_digits(parts[1], demo)
        stream = io.BytesIO()
        figure.savefig(stream, format="png", dpi=DPI, metadata={"Software": None})
    return stream.getvalue()


def _draw_hidden(part: SubFigure, demo: Demo) -> None:
    setting, best = demo.setting, demo.best
    n_samples = f"{setting.n_samples:,}".replace(",", "\u2009")
    _headline(part, f"{setting.n_features} hidden atoms, found again in {n_samples} mixtures of them")
    thirds: Any = part.subfigures(1, 3, width_ratios=(1.7, 0.62, 1.25))
    left, middle, right = thirds
    figures.draw_curves(left.subplots(), demo.recoveries, demo.refined, LIGHT)
    _draw_start_and_end(middle, best)
    dots = right.subplots()
    draw_dots(dots, demo.trials, LIGHT)
    key = "dots: true errors; rings: what the fits\nsay of them; grey: out of reach"
    dots.set_title(key, size=12, color=LIGHT.muted, loc="left")


def _draw_start_and_end(part: SubFigure, recovery: Recovery) -> None:
    """Agreement of learned and true atoms, before and after."""
    titles = ("random start", f"after {recovery.n_iter} iterations")
    for axes, number, title in zip(part.subplots(2, 1), (0, -1), titles, strict=True):
        axes.imshow(recovery.overlaps[number], cmap=LIGHT.strength, vmin=0, vmax=1, interpolation="nearest")
        axes.set_title(title, size=12, color=LIGHT.muted)
        axes.set(xticks=[], yticks=[])
        axes.spines[:].set_color(LIGHT.line)


def _draw_digits(part: SubFigure, demo: Demo) -> None:
    digits = demo.digits
    _headline(part, "Handwritten digits, learned without labels")
    atoms, rows = part.subplots(1, 2, width_ratios=(0.83, 1.0))
    shown = digits.white_atoms[:N_ATOMS]
    atoms.imshow(figures.atoms_pixels(shown, N_COLUMNS, LIGHT), interpolation="nearest")
    atoms.set_title(f"the {len(shown)} strongest of {len(digits.white_atoms)} learned atoms", size=13, loc="left")
    atoms.axis("off")
    atoms.set_anchor("NW")
    _draw_rows(rows, demo)


def _headline(part: SubFigure, text: str) -> None:
    part.suptitle(text, x=MARGIN / INCHES[0], ha="left", size=21, weight="bold")


def _draw_rows(axes: Axes, demo: Demo) -> None:
    """Unseen digits, and the same from a few numbers each, with what is lost."""
    usual, pca, _, l3, white = demo.digits.ways
    lines = [("original", demo.digits.originals)]
    lines += [(f"{way.name}\n{100 * way.error:.1f} % lost", way.shown) for way in (white, l3, pca, usual)]
    height = 0.0
    for label, images in lines:
        strip = figures.digits_pixels(images, LIGHT)
        bottom = height + strip.shape[0]
        axes.imshow(strip, extent=(0, strip.shape[1], bottom, height), interpolation="nearest")
        axes.text(-14, (height + bottom) / 2, label, ha="right", va="center", linespacing=1.35)
        height = bottom + 12
    axes.set(xlim=(-150, strip.shape[1]), ylim=(height - 12, 0))
    axes.set_title(f"unseen digits from {N_KEPT} numbers each", size=13, loc="left")
    axes.axis("off")
    axes.set_anchor("N")
