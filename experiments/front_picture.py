"""The picture of the front page: a photograph, its atoms, and what held-out patches gain by those of every method.

python -m experiments.front_picture    # writes docs/images/front.png, gains from what is stored

The photograph is scikit-image's portrait of a cat, which comes with the package.
"""

from __future__ import annotations

import warnings
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray
from skimage import data

from elldict import LpICA
from elldict.report.style import LIGHT
from experiments import BENCHMARK_RESULTS, IMAGES
from experiments.benchmarks.real.__main__ import read_sets
from experiments.harness.store import Store

SIZE, N_ATOMS, COLUMNS = 10, 84, 12
"""Pixels of a patch on a side, atoms sought, and columns of the picture of them."""

N_PATCHES = 24_000
NAMES = ("FastICA", "Picard", "elldict")
"""Of FastICA's two contrasts the better one is shown."""

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
    colours = [LIGHT.curves[0] if name == "elldict" else LIGHT.plain for name in gains]
    bars = ax.barh(list(gains), list(gains.values()), color=colours, height=0.62)
    ax.bar_label(bars, fmt="%.1f", padding=5, size=17, weight="bold", color=LIGHT.ink)
    ax.set_title("gain on new patches", size=16, weight="bold", loc="left")
    ax.set_xlabel("log density, nats (6x6 pixels)", color=LIGHT.muted)
    ax.set_xlim(0, 1.18 * max(gains.values()))
    ax.invert_yaxis()
    ax.spines[:].set_visible(False)
    ax.tick_params(length=0, labelsize=15)
    ax.set_xticks([])


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
        figure = Figure(figsize=(16.5, 4.4), layout="constrained", facecolor="white")
        left, middle, right = figure.subplots(1, 3, width_ratios=(1.5, 1.72, 0.95))
        left.imshow(image)
        left.set_title("a photograph", size=16, weight="bold", loc="left")
        middle.imshow(make_sheet(atoms), interpolation="nearest")
        middle.set_title(f"the {N_ATOMS} atoms of its patches", size=16, weight="bold", loc="left")
        draw_gains(right)
        for ax in (left, middle):
            ax.axis("off")
        figure.savefig(IMAGES / "front.png", dpi=110, metadata={"Software": None})


if __name__ == "__main__":
    main()
