"""Drawing: results in, SVG text or PNG bytes out. Nothing is computed here and nothing global is touched."""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Sequence
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import Colormap
from matplotlib.figure import Figure
from matplotlib.image import imsave
from numpy.typing import NDArray

from elldict.pages.axes import per_cent_ticks, quiet_frame
from elldict.pages.palette import Palette
from elldict.pages.recovery import EXACT, Recovery

STANDINS = Palette(
    paper="#000001",
    card="#000002",
    tile="#000009",
    ink="#000003",
    muted="#000004",
    line="#000005",
    curves=("#000011", "#000012", "#000013"),
    plain="#000006",
    negative="#000007",
    positive="#000008",
)
"""Colours that stand for CSS variables while matplotlib draws, so that one SVG suits light and dark."""


# --- curves -----------------------------------------------------------------------------------------------------------


def inline_svg(draw: Callable[[Axes, Palette], None], size: tuple[float, float], label: str) -> str:
    """A drawing as an inline SVG of `size` inches, in the colours and the typeface of the page."""
    with mpl.rc_context({"svg.fonttype": "none", "svg.hashsalt": f"elldict {label} {size}", "font.size": 10}):
        figure = Figure(figsize=size, layout="constrained")
        draw(figure.add_subplot(), STANDINS)
        stream = io.StringIO()
        figure.savefig(stream, format="svg", transparent=True, metadata={"Date": None})
    return _inlined(stream.getvalue(), label)


def draw_curves(axes: Axes, recoveries: Sequence[Recovery], refined: Recovery, palette: Palette) -> None:
    """Error against iteration on a log axis, the error that theory expects as dashed lines, and the fall after l_p."""
    longest = max(row.n_iter for row in (*recoveries, refined))
    smallest = 100 * min(min(row.error, row.expected_error) for row in recoveries)
    lowest = smallest / 12
    _draw_fall(axes, recoveries[0], refined, lowest, palette)
    for row, colour in zip(recoveries, palette.curves, strict=True):
        axes.axhline(100 * row.expected_error, color=colour, linewidth=1.2, linestyle=(0, (5, 4)), alpha=0.75)
        axes.plot(100 * row.errors, color=colour, linewidth=2.6, solid_capstyle="round")
        axes.plot(row.n_iter, 100 * row.error, "o", color=colour, markersize=6)
        axes.annotate(
            f"p = {row.p:g}",
            xy=(1.02, 100 * row.error),
            xycoords=("axes fraction", "data"),
            color=colour,
            weight="bold",
            verticalalignment="center",
        )
    axes.set(yscale="log", xlim=(0, longest + 1), ylim=(lowest, 160), xlabel="iteration", ylabel="error")
    axes.text(0.5, smallest / 1.7, "dashed: what theory expects", color=palette.muted, va="center")
    per_cent_ticks(axes.yaxis, lowest, 160)
    quiet_frame(axes, palette)


def _draw_fall(axes: Axes, plain: Recovery, refined: Recovery, lowest: float, palette: Palette) -> None:
    """The refinement, from where p = 3 came to rest to the foot of the picture or to where it ended above."""
    errors = 100 * refined.errors[plain.n_iter :]
    low = errors <= lowest
    n_shown = int(np.argmax(low)) + 1 if low.any() else len(errors)
    shown = np.maximum(errors[:n_shown], lowest)
    iterations = plain.n_iter + np.arange(n_shown)
    axes.plot(iterations, shown, color=palette.ink, linewidth=2.6, solid_capstyle="round")
    axes.plot(iterations[-1], shown[-1], "v" if low.any() else "o", color=palette.ink, markersize=8, clip_on=False)
    axes.annotate(
        "refined:\nexact" if refined.error < EXACT else "refined",
        xy=(1.02, shown[-1]),
        xycoords=("axes fraction", "data"),
        color=palette.ink,
        weight="bold",
        verticalalignment="bottom" if low.any() else "center",
    )


def _inlined(svg: str, label: str) -> str:
    """An SVG file as an element of a page: no prologue, no metadata, no fixed size, colours as CSS variables."""
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    svg = re.sub(r' (width|height)="[0-9.]+pt"', "", svg, count=2)
    svg = re.sub(r"font: (\S+ )?(\S+)px [^\";]*", r"font: \1\2px inherit; font-family: inherit", svg)
    for name, colour in STANDINS.variables.items():
        svg = svg.replace(colour, f"var({name})")
    return svg.replace("<svg ", f'<svg role="img" aria-label="{label}" ', 1)


# --- pictures ---------------------------------------------------------------------------------------------------------


def matrix_png(matrix: NDArray[Any], palette: Palette) -> bytes:
    """Entries between 0 and 1 as a square of colour each."""
    return _png(coloured(matrix, palette.strength))


def atoms_png(atoms: NDArray[Any], n_columns: int, palette: Palette) -> bytes:
    """PNG of `atoms_pixels`."""
    return _png(atoms_pixels(atoms, n_columns, palette))


def digits_png(images: NDArray[Any], palette: Palette) -> bytes:
    """PNG of `digits_pixels`."""
    return _png(digits_pixels(images, palette))


def atoms_pixels(atoms: NDArray[Any], n_columns: int, palette: Palette) -> NDArray[np.uint8]:
    """Atoms as tiles, each scaled to its largest entry: one sign in one colour, the other in another."""
    scaled = atoms / np.max(np.abs(atoms), axis=(1, 2), keepdims=True)
    return tiled(coloured((scaled + 1) / 2, palette.sign), n_columns)


def digits_pixels(images: NDArray[Any], palette: Palette) -> NDArray[np.uint8]:
    """Images side by side, on the scale of the originals (0 to 16)."""
    return tiled(coloured(images / 16, palette.pencil), len(images))


def coloured(values: NDArray[Any], colours: Colormap) -> NDArray[np.uint8]:
    """Values between 0 and 1 as red, green, blue and opacity."""
    return np.asarray(colours(np.clip(values, 0.0, 1.0), bytes=True))


def tiled(images: NDArray[np.uint8], n_columns: int, scale: int = 5, gap: int = 6) -> NDArray[np.uint8]:
    """Images (k, h, w, 4) as one, enlarged, with nothing between them."""
    images = images.repeat(scale, axis=1).repeat(scale, axis=2)
    height, width = images.shape[1] + gap, images.shape[2] + gap
    n_rows = -(-len(images) // n_columns)
    sheet = np.zeros((n_rows * height - gap, n_columns * width - gap, 4), dtype=np.uint8)
    for number, image in enumerate(images):
        top, left = number // n_columns * height, number % n_columns * width
        sheet[top : top + height - gap, left : left + width - gap] = image
    return sheet


def _png(pixels: NDArray[np.uint8]) -> bytes:
    stream = io.BytesIO()
    imsave(stream, pixels, format="png")
    return stream.getvalue()
