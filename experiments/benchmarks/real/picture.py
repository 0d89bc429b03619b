"""The picture of real data: atoms of a photograph, and what held-out samples gain by those of every method."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from elldict import LpICA
from elldict._old.report.style import LIGHT
from elldict.exceptions import RankWarning
from experiments import IMAGES
from experiments.benchmarks.real.sets import Matrix, cut_patches, load_grey
from experiments.harness.axes import quiet

SIZE, N_ATOMS, COLUMNS = 8, 63, 9
"""Pixels of a patch on a side, its atoms, and columns of the picture of them."""

MAX_SHOWN = 1.75
"""Gains beyond are drawn here, with their number."""

METHODS = {
    "FastICA logcosh": LIGHT.plain,
    "FastICA exp": "#c3c5cc",
    "Picard-O extended": LIGHT.curves[2],
    "elldict": LIGHT.curves[0],
}


def draw(sets: Sequence[Sequence[dict[str, Any]]]) -> None:
    """Write docs/images/real-data.png from the rows of all sets."""
    patches = cut_patches(load_grey("china.jpg"), SIZE)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RankWarning)  # patches without their means
        model = LpICA(N_ATOMS, random_state=0).fit(patches)
    style: Any = {"font.size": 12, "text.color": LIGHT.ink, "font.family": "sans-serif"}
    with mpl.rc_context(style):
        figure = Figure(figsize=(13.5, 6.4), layout="constrained", facecolor="white")
        left, right = figure.subplots(1, 2, width_ratios=(1.05, 1))
        show_atoms(left, model.mixing_.T, f"{N_ATOMS} atoms of 8x8 patches of china.jpg")
        show_gains(right, sets)
        figure.savefig(IMAGES / "real-data.png", dpi=120, metadata={"Software": None})


def show_atoms(ax: Axes, atoms: Matrix, title: str) -> None:
    """Atoms (m, pixels) side by side, the most concentrated first, each with its largest pixel positive."""
    rows = -(-len(atoms) // COLUMNS)
    sharpness = np.sum(atoms**4, axis=1) / np.sum(atoms**2, axis=1) ** 2
    sheet = np.full((rows * (SIZE + 1) - 1, COLUMNS * (SIZE + 1) - 1), np.nan)
    for number, atom in enumerate(atoms[np.argsort(-sharpness)]):
        i, j = np.array(divmod(number, COLUMNS)) * (SIZE + 1)
        largest = atom[np.argmax(np.abs(atom))]
        sheet[i : i + SIZE, j : j + SIZE] = (atom / largest).reshape(SIZE, SIZE)
    ax.imshow(sheet, cmap="gray", vmin=-1, vmax=1, interpolation="nearest")
    ax.set_title(title, size=16, weight="bold", loc="left")
    ax.axis("off")


def show_gains(ax: Axes, sets: Sequence[Sequence[dict[str, Any]]]) -> None:
    """Gain of every method on every set where a peer gains anything, in units of that of the best peer."""
    shares = {rows[0]["set"]: compute_shares(rows) for rows in sets}
    shares = {name: found for name, found in reversed(shares.items()) if found}
    for place, found in enumerate(shares.values()):
        for name, share in found.items():
            ours = name == "elldict"
            shown, marker = min(share, MAX_SHOWN), "o" if share <= MAX_SHOWN else ">"
            ax.plot(shown, place, marker, color=METHODS[name], ms=13 if ours else 9, zorder=3 + ours, mec="white")
            if share > MAX_SHOWN:
                ax.text(shown - 0.03, place, f"{share:.1f}", ha="right", va="center", color=METHODS[name])
    names = [name.replace(", 8x8 patches", "").replace(", 6x6 patches", "") for name in shares]
    ax.set_yticks(range(len(shares)), names)
    ax.axvline(1, color=LIGHT.line, zorder=1)
    ax.set_title("How well atoms explain held-out samples", size=16, weight="bold", loc="left", pad=44)
    ax.set_xlabel("gain in log density / that of the best peer")
    for name, colour in METHODS.items():
        ax.plot([], [], "o", color=colour, ms=9, label=name)
    ax.legend(loc="lower left", bbox_to_anchor=(-0.02, 1), ncols=4, frameon=False, handletextpad=0, columnspacing=0.9)
    quiet(ax)
    ax.grid(axis="y", color=LIGHT.line, lw=0.6)


def compute_shares(rows: Sequence[dict[str, Any]]) -> dict[str, float]:
    """Gains on a set, in units of the best peer's; none if no peer gains anything."""
    gains = {row["method"]: row["gain"] for row in rows if row["method"] in METHODS}
    best = max(gain for name, gain in gains.items() if name != "elldict")
    return {name: gain / best for name, gain in gains.items()} if best > 0 else {}
