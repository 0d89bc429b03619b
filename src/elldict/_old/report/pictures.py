"""Drawings and pixels as parts of a page: inline SVG in the colours of the page, PNG for light and for dark."""

from __future__ import annotations

import base64
import io
import re
import warnings
from collections.abc import Callable
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure
from matplotlib.image import imsave
from numpy.typing import NDArray

from elldict._old.report.style import DARK, LIGHT, Palette, interpolate

Pixels = NDArray[np.uint8]
TILE_PIXELS = 40
"""Least size of a tile, to which small images are enlarged by whole numbers."""


def make_inline_svg(draw: Callable[..., None], shown: tuple[Any, ...], label: str, size: tuple[float, float]) -> str:
    """A drawing of what is shown as an SVG element of a page: `size` is in inches, colours are CSS variables."""
    look: Any = {"svg.fonttype": "none", "svg.hashsalt": f"elldict {label} {size}", "font.size": 10}
    with mpl.rc_context(look), warnings.catch_warnings():
        # letters that matplotlib cannot measure are shown by the browser
        warnings.filterwarnings("ignore", message="Glyph .* missing from", category=UserWarning)
        figure = Figure(figsize=size, layout="constrained")
        draw(figure.add_subplot(), *shown)
        stream = io.StringIO()
        figure.savefig(stream, format="svg", transparent=True, metadata={"Date": None})
    svg = stream.getvalue()
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    svg = re.sub(r' (width|height)="[0-9.]+pt"', "", svg, count=2)
    svg = re.sub(r"font: (\S+ )?(\S+)px [^\";]*", r"font: \1\2px inherit; font-family: inherit", svg)
    for name, colour in reversed(LIGHT.variables.items()):  # curves first: others may have the same colour
        svg = svg.replace(colour, f"var({name})")
    return svg.replace("<svg ", f'<svg role="img" aria-label="{label}" ', 1)


def embed(paint_themed: Callable[[Palette], Pixels]) -> dict[str, str]:
    """Data URIs of a picture, in light and in dark."""
    pngs = {name: encode_png(paint_themed(palette)) for name, palette in (("light", LIGHT), ("dark", DARK))}
    return {name: f"data:image/png;base64,{base64.b64encode(png).decode()}" for name, png in pngs.items()}


def encode_png(pixels: Pixels) -> bytes:
    """Bytes of a PNG file."""
    stream = io.BytesIO()
    imsave(stream, pixels, format="png")
    return stream.getvalue()


def paint(values: NDArray[Any], *colours: str) -> Pixels:
    """Values between 0 and 1 as red, green, blue and opacity of something between these colours."""
    return np.asarray(interpolate(*colours)(np.clip(values, 0.0, 1.0), bytes=True))


def scale_atoms(atoms: NDArray[Any]) -> NDArray[np.float64]:
    """Atoms (m, ...) with the largest entry of each 1 in size; those that are zero stay zero."""
    largest = np.max(np.abs(atoms), axis=tuple(range(1, atoms.ndim)), keepdims=True)
    return np.asarray(atoms / np.where(largest > 0, largest, 1.0), dtype=np.float64)


def paint_images(atoms: NDArray[Any], palette: Palette) -> Pixels:
    """Atoms (m, h, w), one sign in one colour, the other in another; or (m, h, w, 3) as colours around grey."""
    scaled = (scale_atoms(atoms) + 1) / 2
    if atoms.ndim == 3:
        return paint(scaled, palette.negative, palette.tile, palette.positive)
    opaque = np.ones((*scaled.shape[:3], 1))
    return np.round(255 * np.concatenate([scaled, opaque], axis=3)).astype(np.uint8)


def paint_atoms(atoms: NDArray[Any], palette: Palette, n_columns: int = 8) -> Pixels:
    """Atoms as tiles, each scaled to its largest entry."""
    return tile(paint_images(atoms, palette), n_columns)


def tile(images: Pixels, n_columns: int, below: int = 0) -> Pixels:
    """Images (k, h, w, 4) as one, enlarged, with nothing between them; `below` each are more empty pixels."""
    scale, gap = measure_tiles(images.shape[1:3])
    images = images.repeat(scale, axis=1).repeat(scale, axis=2)
    height, width = images.shape[1] + gap + below, images.shape[2] + gap
    n_rows = -(-len(images) // n_columns)
    sheet = np.zeros((n_rows * height - gap, n_columns * width - gap, 4), dtype=np.uint8)
    for number, image in enumerate(images):
        top, left = number // n_columns * height, number % n_columns * width
        sheet[top : top + image.shape[0], left : left + image.shape[1]] = image
    return sheet


def measure_tiles(shape: tuple[int, ...]) -> tuple[int, int]:
    """Factor by which images of this shape (h, w) are enlarged, and the pixels between two."""
    largest = max(shape)
    scale = max(1, TILE_PIXELS // largest)
    return scale, max(2, round(0.15 * scale * largest))
