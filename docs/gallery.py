"""The gallery of examples: in which order they are shown, and which detail of a figure is the picture of each."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from PIL import Image

SIZE = (560, 360)
"""Pixels of a thumbnail."""

ORDER = (
    "atoms_of_a_photograph",
    "denoise_photograph",
    "eeg",
    "sounds",
    "unmixing",
    "genes",
    "words",
    "rotation",
    "error_bars",
    "number_of_components",
    "larger_than_memory",
    "stream",
)
"""What is looked at first comes first; an example that is not listed comes last."""

Box = tuple[float, float, float, float]
DETAILS: dict[str, tuple[int, tuple[Box, ...]]] = {
    "atoms_of_a_photograph": (1, ((0.725, 0.17, 0.995, 0.72),)),
    "denoise_photograph": (1, ((0.0, 0.57, 0.246, 1.0), (0.754, 0.57, 1.0, 1.0))),
    "eeg": (1, ((0.39, 0.0, 1.0, 1.0),)),
    "error_bars": (1, ((0.0, 0.0, 1.0, 0.86),)),
    "genes": (1, ((0.53, 0.0, 1.0, 1.0),)),
    "larger_than_memory": (1, ((0.0, 0.0, 1.0, 1.0),)),
    "number_of_components": (2, ((0.0, 0.0, 0.4, 0.64),)),
    "sounds": (1, ((0.5, 0.05, 0.995, 0.585),)),
    "stream": (1, ((0.53, 0.0, 1.0, 1.0),)),
    "unmixing": (1, ((0.36, 0.0, 1.0, 1.0),)),
    "words": (1, ((0.54, 0.03, 1.0, 0.49),)),
}
"""Of each example: the number of a figure, and parts of it that are put side by side (left, top, right, bottom)."""


class ExampleOrder:
    """Sorts examples by ORDER; sphinx-gallery makes one for each folder."""

    def __init__(self, folder: str) -> None:
        self.folder = folder

    def __call__(self, name: str) -> int:
        """The place of a file."""
        stem = Path(name).stem.removeprefix("plot_")
        return ORDER.index(stem) if stem in ORDER else len(ORDER)


def cut(figure: Image.Image, boxes: tuple[Box, ...]) -> Image.Image:
    """Parts of a figure side by side on white, as large as a thumbnail allows."""
    sheet, width = Image.new("RGB", SIZE, "white"), SIZE[0] // len(boxes)
    for number, (left, top, right, bottom) in enumerate(boxes):
        wide, high = figure.size
        part = figure.crop((round(left * wide), round(top * high), round(right * wide), round(bottom * high)))
        scale = min((width - 8) / part.width, SIZE[1] / part.height)
        part = part.resize((round(scale * part.width), round(scale * part.height)), Image.Resampling.LANCZOS)
        sheet.paste(part, (number * width + (width - part.width) // 2, (SIZE[1] - part.height) // 2))
    return sheet


def cut_thumbnails(app: Any) -> None:
    """After the examples have run: replace whole figures, which cannot be read when they are small."""
    images = Path(app.srcdir) / "auto_examples" / "images"
    for name, (number, boxes) in DETAILS.items():
        path = images / f"sphx_glr_plot_{name}_{number:03d}.png"
        if path.exists():  # not in a build without examples
            with Image.open(path) as figure:
                cut(figure.convert("RGB"), boxes).save(images / "thumb" / f"sphx_glr_plot_{name}_thumb.png")
