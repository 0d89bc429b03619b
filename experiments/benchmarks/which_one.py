"""Which method finds which atoms: five methods on data of five kinds, each kind made for one of them.

python -m experiments.benchmarks.which_one    # a minute on one core; prints the table, draws docs/images/which-one.png
                                              # and which-one-tall.png, for phones
python -m experiments.benchmarks.which_one --alpha 1    # the table for another alpha of DictionaryLearning

A cell is the mean angle between true atoms and those found, each with its partner, over SEEDS data sets. Every method
is told the number of atoms and has settings that suit it; `alpha` of DictionaryLearning is the best of 0.1, 0.25, 0.5
and 1 for the two kinds of sparse codes, chosen with the truth known. NMF does not take negative values.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment
from sklearn.decomposition import NMF, PCA, FastICA, MiniBatchDictionaryLearning

from elldict import LpDictionaryLearning, LpICA
from elldict._old.report.style import LIGHT
from elldict._old.solver.directions import random_orthonormal
from experiments import IMAGES

Matrix = NDArray[np.float64]
SEEDS = 3

ALPHA = 0.5
"""Weight of the l_1 norm of DictionaryLearning, against half the squared error of a sample."""

N_SAMPLES, N_FEATURES = 3000, 20
FOUND = 10.0
"""Mean angle in degrees up to which atoms count as found."""


# --- data: samples (r, n) and true atoms (m, n) -----------------------------------------------------------------------


def draw_sparse(rng: np.random.Generator, shape: tuple[int, int], density: float = 0.2) -> Matrix:
    """Codes that are zero or Gaussian."""
    return rng.standard_normal(shape) * (rng.random(shape) < density)


def draw_noise(rng: np.random.Generator, size: float) -> Matrix:
    """White noise for all features."""
    return size * rng.standard_normal((N_SAMPLES, N_FEATURES))


def draw_variances(rng: np.random.Generator) -> tuple[Matrix, Matrix]:
    """Gaussian factors whose variances differ."""
    atoms = np.asarray(random_orthonormal(8, N_FEATURES, rng))
    return rng.standard_normal((N_SAMPLES, 8)) * np.geomspace(8, 1, 8) @ atoms + draw_noise(rng, 0.1), atoms


def draw_parts(rng: np.random.Generator) -> tuple[Matrix, Matrix]:
    """Parts that are only ever added: bumps along the features, and codes that are zero or positive."""
    centres = np.linspace(0, N_FEATURES - 1, 8)
    atoms = np.exp(-0.5 * ((np.arange(N_FEATURES) - centres[:, None]) / 1.5) ** 2)
    codes = rng.exponential(size=(N_SAMPLES, 8)) * (rng.random((N_SAMPLES, 8)) < 0.3)
    return np.abs(codes @ atoms + draw_noise(rng, 0.02)), atoms


def draw_sources(rng: np.random.Generator) -> tuple[Matrix, Matrix]:
    """Independent sources, some less sparse than Gaussian, mixed by a matrix that is not orthogonal."""
    sources = np.hstack([rng.laplace(size=(N_SAMPLES, 4)), rng.uniform(-2, 2, size=(N_SAMPLES, 4))])
    atoms = rng.standard_normal((8, N_FEATURES))
    return sources @ atoms + draw_noise(rng, 0.1), atoms


def draw_orthonormal(rng: np.random.Generator) -> tuple[Matrix, Matrix]:
    """Sparse codes in a basis: as many orthonormal atoms as features."""
    atoms = np.asarray(random_orthonormal(N_FEATURES, N_FEATURES, rng))
    return draw_sparse(rng, (N_SAMPLES, N_FEATURES)) @ atoms + draw_noise(rng, 0.1), atoms


def draw_overcomplete(rng: np.random.Generator) -> tuple[Matrix, Matrix]:
    """Sparse codes of twice as many atoms as features."""
    atoms = rng.standard_normal((2 * N_FEATURES, N_FEATURES))
    atoms /= np.linalg.norm(atoms, axis=1, keepdims=True)
    return draw_sparse(rng, (N_SAMPLES, 2 * N_FEATURES), 0.06) @ atoms + draw_noise(rng, 0.02), atoms


KINDS: dict[str, Callable[[np.random.Generator], tuple[Matrix, Matrix]]] = {
    "directions of unequal variance,\nGaussian": draw_variances,
    "non-negative parts": draw_parts,
    "independent sources, mixed": draw_sources,
    "sparse codes in a basis": draw_orthonormal,
    "sparse codes, more atoms\nthan features": draw_overcomplete,
}


# --- methods: samples and number of atoms in, atoms (m, n) out --------------------------------------------------------


def fit_elldict(X: Matrix, m: int, seed: int) -> Matrix:
    """As the documentation says: LpICA for mixtures, the dictionary where atoms are a basis."""
    if m >= X.shape[1]:
        return np.asarray(LpDictionaryLearning(random_state=seed).fit(X).components_)
    return np.asarray(LpICA(m, random_state=seed).fit(X).mixing_.T)


def learn_dictionary(X: Matrix, m: int, seed: int, alpha: float = ALPHA) -> Matrix:
    settings = {"batch_size": 256, "max_iter": 100, "fit_algorithm": "cd", "max_no_improvement": None}
    return np.asarray(MiniBatchDictionaryLearning(m, alpha=alpha, random_state=seed, **settings).fit(X).components_)


METHODS: dict[str, Callable[[Matrix, int, int], Any]] = {
    "PCA": lambda X, m, _: PCA(min(m, X.shape[1])).fit(X).components_,
    "NMF": lambda X, m, seed: NMF(m, init="nndsvda", max_iter=1000, random_state=seed).fit(X).components_,
    "FastICA": lambda X, m, seed: FastICA(min(m, X.shape[1]), random_state=seed).fit(X).mixing_.T,
    "Dictionary-\nLearning": learn_dictionary,
    "elldict": fit_elldict,
}


def measure_angle(found: Matrix, atoms: Matrix) -> float:
    """Mean angle between true atoms and their partners, in degrees; 90 for atoms without a partner."""
    unit = [M / np.maximum(np.linalg.norm(M, axis=1, keepdims=True), 1e-300) for M in (found, atoms)]
    cosines = np.minimum(np.abs(unit[0] @ unit[1].T), 1.0)
    angles = np.degrees(np.arccos(cosines[linear_sum_assignment(-cosines)]))
    return float((np.sum(angles) + 90 * (len(atoms) - len(angles))) / len(atoms))


def measure_all() -> tuple[Matrix, Matrix]:
    """Mean angles and seconds of one core, (kinds, methods)."""
    angles, seconds = np.zeros((2, SEEDS, len(KINDS), len(METHODS)))
    for seed in range(SEEDS):
        for i, draw in enumerate(KINDS.values()):
            X, atoms = draw(np.random.default_rng(seed))
            for j, (name, fit) in enumerate(METHODS.items()):
                if name == "NMF" and np.min(X) < 0:
                    angles[seed, i, j] = np.nan
                    continue
                began = time.process_time()
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")  # of data that a method is not made for
                    found = fit(X, len(atoms), seed)
                seconds[seed, i, j] = time.process_time() - began
                angles[seed, i, j] = measure_angle(np.asarray(found), atoms)
    return angles.mean(axis=0), np.median(seconds, axis=0)


def draw_chart(angles: Matrix, seconds: Matrix) -> Figure:
    """Kinds of data below each other, methods side by side."""
    figure = Figure(figsize=(12, 6.8), layout="constrained", facecolor="white")
    ax = figure.subplots()
    for (i, j), angle in np.ndenumerate(angles):
        write_cell(ax, (j, i), float(angle), float(seconds[i, j]))
    ax.set_xticks(range(len(METHODS)), list(METHODS), weight="bold", color=LIGHT.ink)
    ax.set_yticks(range(len(KINDS)), list(KINDS), color=LIGHT.ink)
    ax.xaxis.tick_top()
    clear_frame(ax, len(METHODS), len(KINDS))
    figure.suptitle("How far off are the atoms, in degrees?", x=0.01, ha="left", size=19, weight="bold")
    return figure


def draw_tall_chart(angles: Matrix, seconds: Matrix) -> Figure:
    """The same for a phone: a heading over each kind of data, and two rows of cells."""
    figure = Figure(figsize=(6.4, 11.8), layout="constrained", facecolor="white")
    axes = figure.subplots(len(KINDS), 1)
    names = [name.replace("-\n", "") for name in METHODS]
    for i, (ax, kind) in enumerate(zip(axes, KINDS, strict=True)):
        for j, name in enumerate(names):
            write_cell(ax, (j, 0), float(angles[i, j]), float(seconds[i, j]))
            ax.text(j, -0.55, name.replace("DictionaryLearning", "Dict.Learn."), ha="center", size=14.5)
        ax.set_title(kind[0].upper() + kind[1:].replace("\n", " "), loc="left", size=16.5, weight="bold", pad=32)
        ax.set_xticks([])
        ax.set_yticks([])
        clear_frame(ax, len(METHODS), 1)
    figure.suptitle("How far off are the atoms, in degrees?", x=0.01, ha="left", size=19, weight="bold")
    return figure


def clear_frame(ax: Axes, columns: int, rows: int) -> None:
    """Cells alone."""
    ax.set(xlim=(-0.5, columns - 0.5), ylim=(rows - 0.5, -0.5))
    ax.tick_params(length=0)
    ax.spines[:].set_visible(False)


def write_cell(ax: Axes, place: tuple[int, int], angle: float, seconds: float) -> None:
    """Angle and time: light on dark where atoms are found, dark on light elsewhere."""
    (x, y), found = place, angle <= FOUND
    ground = LIGHT.curves[0] if found else LIGHT.paper
    ax.add_patch(Rectangle((x - 0.475, y - 0.465), 0.95, 0.93, color=ground, lw=0))
    if np.isnan(angle):
        ax.text(x, y, "takes no\nnegative\nvalues", ha="center", va="center", size=12.5, color=LIGHT.muted)
        return
    time_of = f"{1e3 * seconds:.0f} ms" if seconds < 1 else f"{seconds:.1f} s"
    colours = ("white", "#e6e4fa") if found else (LIGHT.ink, LIGHT.muted)
    text, weight = (f"{angle:.1f}°" if angle < 10 else f"{angle:.0f}°"), "bold" if found else "normal"
    ax.text(x, y - 0.1, text, ha="center", va="center", size=22, weight=weight, color=colours[0])
    ax.text(x, y + 0.26, time_of, ha="center", va="center", size=13, color=colours[1])


def main() -> None:
    """Measure, print, draw."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--alpha", type=float, default=ALPHA, help="of DictionaryLearning; others are not drawn")
    alpha = parser.parse_args().alpha
    METHODS["Dictionary-\nLearning"] = partial(learn_dictionary, alpha=alpha)
    angles, seconds = measure_all()
    for i, kind in enumerate(KINDS):
        cells = [f"{angle:.1f} ({s:.3f} s)" for angle, s in zip(angles[i], seconds[i], strict=True)]
        print(" | ".join([kind.replace("\n", " "), *cells]))
    if alpha != ALPHA:
        return
    style: Any = {"font.size": 15, "text.color": LIGHT.ink, "font.family": "sans-serif"}
    for name, draw in (("which-one.png", draw_chart), ("which-one-tall.png", draw_tall_chart)):
        with mpl.rc_context(style):
            draw(angles, seconds).savefig(IMAGES / name, dpi=115, metadata={"Software": None})


if __name__ == "__main__":
    main()
