"""Draw the picture of the front page: a photograph, its atoms, and the gain of every method on held-out patches.

python -m experiments.front_picture    # writes docs/images/front.png and front-tall.png; gains are the stored ones

The photograph is scikit-image's portrait of a cat, which comes with the package.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure

from elldict import LpICA
from experiments import IMAGES
from experiments.benchmarks import real
from experiments.benchmarks.data import load_image
from experiments.benchmarks.study import Matrix, no_warnings

SIZE, N_ATOMS, COLUMNS, N_PATCHES = 10, 84, 12, 24_000  # pixels of a patch; atoms, and columns of their picture
OURS, PLAIN = "#4338ca", "#9a9ca6"
TITLES = ("A photograph", f"The {N_ATOMS} atoms of its patches", "Held-out gain, nats per 6x6 patch")
WIDE = ((0.25, 0.3, 5.55, 3.69), (6.05, 0.3, 6.32, 3.69), (12.75, 0.3, 3.6, 3.69))
TALL = ((0.25, 8.9, 5.9, 3.75), (0.25, 4.7, 5.9, 3.45), (0.25, 0.3, 5.9, 3.6))
"""Left, bottom, width and height of the panels in inches: side by side, and below each other for phones."""


def cut_patches(image: Matrix) -> Matrix:
    """Draw patches (N_PATCHES, SIZE * SIZE * 3), without the mean of each colour."""
    rng = np.random.default_rng(0)
    rows, columns = (rng.integers(0, length - SIZE, N_PATCHES) for length in image.shape[:2])
    patches = np.stack([image[i : i + SIZE, j : j + SIZE] for i, j in zip(rows, columns, strict=True)])
    return np.asarray(patches - patches.mean(axis=(1, 2), keepdims=True)).reshape(N_PATCHES, -1)


def make_sheet(atoms: Matrix) -> Matrix:
    """Place atoms side by side on white, each scaled by its largest pixel."""
    sheet = np.ones((-(-len(atoms) // COLUMNS) * (SIZE + 1) - 1, COLUMNS * (SIZE + 1) - 1, 3))
    for number, atom in enumerate(atoms):
        i, j = np.array(divmod(number, COLUMNS)) * (SIZE + 1)
        sheet[i : i + SIZE, j : j + SIZE] = 0.5 + 0.5 * (atom / np.max(np.abs(atom))).reshape(SIZE, SIZE, 3)
    return sheet


def draw_gains(ax: Any) -> None:
    """Draw the stored gains on the same photograph; of the two contrasts of FastICA, the better one."""
    rows = [row for row in real.STUDY.read() if "chelsea" in row["set"]]
    names = ("FastICA", "Picard", "elldict")
    gains = [max((row["gain"] for row in rows if row["method"].startswith(name)), default=0) for name in names]
    for place, (name, gain) in enumerate(zip(names, gains, strict=True)):
        ax.barh(place, gain, color=OURS if name == "elldict" else PLAIN, height=0.42)
        ax.text(0, place - 0.33, name, size=16, va="center")
        ax.text(gain, place, f" {gain:.1f}", size=18, weight="bold", va="center")
    ax.set(xlim=(0, 1.18 * max(*gains, 1e-3)), ylim=(len(gains) - 0.5, -0.55))


def draw(image: Matrix, atoms: Matrix, shape: tuple[float, float], places: Sequence[Sequence[float]]) -> Figure:
    """Draw three panels at given places, each with its title above."""
    figure: Any = Figure(figsize=shape, facecolor="white")
    panels = [figure.add_axes((x / shape[0], y / shape[1], w / shape[0], h / shape[1])) for x, y, w, h in places]
    panels[0].imshow(image, aspect="auto")
    panels[1].imshow(make_sheet(atoms), interpolation="nearest", aspect="auto")
    draw_gains(panels[2])
    for ax, title in zip(panels, TITLES, strict=True):
        ax.set_title(title, loc="left", size=17, weight="bold")
        ax.axis("off")
    return figure  # type: ignore[no-any-return]


def main() -> None:
    """Fit and draw."""
    image = load_image("chelsea") / 255.0
    with no_warnings():  # codes of patches depend on each other
        atoms = LpICA(N_ATOMS).fit(cut_patches(image)).mixing_.T
    with mpl.rc_context({"font.size": 14}):
        for name, shape, places in (("front", (16.5, 4.5), WIDE), ("front-tall", (6.4, 13.2), TALL)):
            draw(image, atoms, shape, places).savefig(IMAGES / f"{name}.png", dpi=110, metadata={"Software": None})


if __name__ == "__main__":
    main()
