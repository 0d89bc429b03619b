"""The picture of the front page: a photograph, its atoms, and what held-out patches gain by those of every method.

python -m experiments.front_picture    # writes docs/images/front.png and front-tall.png, gains from what is stored

The photograph is scikit-image's portrait of a cat, which comes with the package.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray
from skimage import data

from elldict import LpICA
from elldict._old.report.style import LIGHT
from experiments import BENCHMARK_RESULTS, IMAGES
from experiments.benchmarks.real.__main__ import read_sets
from experiments.harness.store import Store

SIZE, N_ATOMS, COLUMNS = 10, 84, 12
"""Pixels of a patch on a side, atoms sought, and columns of the picture of them."""

N_PATCHES = 24_000
NAMES = ("FastICA", "Picard", "elldict")
"""Of FastICA's two contrasts the better one is shown."""

TITLES = ("A photograph", f"The {N_ATOMS} atoms of its patches", "Fit to new patches")
GAIN = "nats a patch of 6x6 pixels,\nabove whitening alone"

WIDE = ((0.25, 0.3, 5.55, 3.69), (6.05, 0.3, 6.32, 3.69), (12.75, 0.3, 3.6, 3.69))
TALL = ((0.25, 8.9, 5.9, 3.75), (0.25, 4.7, 5.9, 3.45), (0.25, 0.3, 5.9, 3.6))
"""Places of the panels: left, bottom, width, height in inches; side by side, and below each other for phones."""

Matrix = NDArray[np.float64]


def cut_patches(image: Matrix, rng: np.random.Generator) -> Matrix:
    """Draw patches (N_PATCHES, SIZE * SIZE * 3), without the mean of each colour."""
    rows = rng.integers(0, image.shape[0] - SIZE, N_PATCHES)
    columns = rng.integers(0, image.shape[1] - SIZE, N_PATCHES)
    patches = np.stack([image[i : i + SIZE, j : j + SIZE] for i, j in zip(rows, columns, strict=True)])
    return np.asarray(patches - patches.mean(axis=(1, 2), keepdims=True)).reshape(N_PATCHES, -1)


def make_sheet(atoms: Matrix) -> Matrix:
    """Atoms side by side on white, each in the contrast of its largest pixel."""
    rows = -(-len(atoms) // COLUMNS)
    sheet = np.ones((rows * (SIZE + 1) - 1, COLUMNS * (SIZE + 1) - 1, 3))
    for number, atom in enumerate(atoms):
        i, j = np.array(divmod(number, COLUMNS)) * (SIZE + 1)
        sheet[i : i + SIZE, j : j + SIZE] = 0.5 + 0.5 * (atom / np.max(np.abs(atom))).reshape(SIZE, SIZE, 3)
    return sheet


def draw_gains(ax: Any) -> None:
    """Gains on the same photograph, as stored by the benchmark of real data."""
    rows = next(rows for rows in read_sets(Store(BENCHMARK_RESULTS / "real.jsonl")) if "chelsea" in rows[0]["set"])
    plain = [row for row in rows if "whiten" not in row["method"]]  # default settings
    gains = {name: max(row["gain"] for row in plain if row["method"].startswith(name)) for name in NAMES}
    for place, (name, gain) in enumerate(gains.items()):
        colour = LIGHT.curves[0] if name == "elldict" else LIGHT.plain
        ax.barh(place, gain, color=colour, height=0.42)
        ax.text(0, place - 0.33, name, size=16, va="center")
        ax.text(gain + 0.1, place, f"{gain:.1f}", size=18, weight="bold", va="center")
    ax.set(xlim=(0, 1.18 * max(gains.values())), ylim=(len(gains) - 0.15, -0.55))
    ax.text(0, len(gains) - 0.42, GAIN, size=13, color=LIGHT.muted, va="center")
    ax.axis("off")


def draw(image: Matrix, atoms: Matrix, shape: tuple[float, float], places: Sequence[Sequence[float]]) -> Figure:
    """Three panels at given places (left, bottom, width, height in inches), each with its title right above."""
    figure = Figure(figsize=shape, facecolor="white")
    panels = [figure.add_axes((x / shape[0], y / shape[1], w / shape[0], h / shape[1])) for x, y, w, h in places]
    panels[0].imshow(image, aspect="auto")
    panels[1].imshow(make_sheet(atoms), interpolation="nearest", aspect="auto")
    for ax in panels[:2]:
        ax.axis("off")
    draw_gains(panels[2])
    for (x, y, _, h), title in zip(places, TITLES, strict=True):
        figure.text(x / shape[0], (y + h + 0.14) / shape[1], title, size=17, weight="bold", va="baseline")
    return figure


def main() -> None:
    """Fit and draw."""
    load: Any = data.chelsea  # carries no types
    image = load() / 255.0
    patches = cut_patches(image, np.random.default_rng(0))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # codes of patches depend on each other; the page of the example says it
        model = LpICA(N_ATOMS, random_state=0).fit(patches)
    atoms = np.asarray(model.mixing_.T)
    style: Any = {"font.size": 14, "text.color": LIGHT.ink, "font.family": "sans-serif"}
    with mpl.rc_context(style):
        draw(image, atoms, (16.5, 4.5), WIDE).savefig(IMAGES / "front.png", dpi=110, metadata={"Software": None})
        draw(image, atoms, (6.4, 13.2), TALL).savefig(IMAGES / "front-tall.png", dpi=110, metadata={"Software": None})


if __name__ == "__main__":
    main()
