"""Draw the picture of docs/plots.md, of the digits that come with scikit-learn.

python -m experiments.plots   # writes docs/images/plots.png
"""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.figure import Figure
from sklearn.datasets import load_digits

from elldict import LpDictionaryLearning, plot
from experiments import IMAGES


def draw_digits(folder: Path) -> None:
    """Draw atoms, errors, convergence and codes of one fit."""
    X = load_digits().data
    model = LpDictionaryLearning(36, center=True, whiten=True).fit(X)
    figure: Any = Figure(figsize=(14, 9), layout="constrained", facecolor="white")
    figure.get_layout_engine().set(w_pad=0.2, h_pad=0.15)
    panels = figure.subplots(2, 2, width_ratios=(1, 1.05), height_ratios=(0.94, 1))
    plot.atoms(model, shape=(8, 8), ax=panels[0, 0])
    plot.errors(model, ax=panels[0, 1])
    plot.convergence(model, ax=panels[1, 0])
    plot.codes(model, X, which=range(9), ax=panels[1, 1])
    figure.savefig(folder / "plots.png", dpi=100, metadata={"Software": None})


def main(folder: Path = IMAGES) -> None:
    """Draw the picture."""
    with mpl.rc_context({"font.size": 11}), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # some components of the digits are not identifiable, as the picture shows
        draw_digits(folder)


if __name__ == "__main__":
    main()
