"""Stability of atoms: seconds of a path, and whether atoms called stable on half of the samples are found on the other.

python -m experiments.benchmarks.stability                            # digits; draws docs/images/stability*.png
python -m experiments.benchmarks.stability --data FILE --path 20 40   # a .npy file, or the array X of a .npz file

The second table: a random half of the samples is given to `elldict.stability`, which never sees the other. An atom is
found if the fit to the other half has an atom whose cosine with it, in the space of the features, is above 0.9.
Seconds are of the wall clock and mean little on a machine that does other work; those of the processor stand beside.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray
from scipy.stats import ortho_group

from elldict import LpDictionaryLearning, Stability, stability
from elldict.metrics import match_atoms
from experiments import IMAGES
from experiments.benchmarks.real.sets import list_packaged, read_array

PICTURE = IMAGES / "stability.png"
PACKAGED = "handwritten digits"
PATH = (5, 10, 15, 20, 25, 30, 35, 40)
FOUND = 0.9
Matrix = NDArray[np.float64]


def make_estimator(seed: int) -> LpDictionaryLearning:
    return LpDictionaryLearning(whiten=True, center=True, random_state=seed)


def measure_path(X: Matrix, path: Sequence[int], n_splits: int) -> Stability:
    """Print the path and what it took."""
    wall, processor = time.perf_counter(), time.process_time()
    found = stability(make_estimator(0), X, n_components=path, n_splits=n_splits, random_state=0)
    wall, processor = time.perf_counter() - wall, time.process_time() - processor
    print(f"{found}\n\n{len(path) * (1 + 2 * n_splits)} fits: {wall:.0f} s, {processor:.0f} s of processor time\n")
    return found


def print_chance(X: Matrix, k: int) -> None:
    """What two random rotations of the first k principal directions have in common, matched through a third."""
    variances = np.linalg.eigvalsh(np.cov(X.T))[::-1][:k]
    rotations = [ortho_group.rvs(k, random_state=seed) for seed in range(3)]
    means = []
    for weights in (np.ones(k), np.sqrt(np.maximum(variances, 0.0))):
        meant, one, other = (rows * weights for rows in rotations)
        partners = [half[match_atoms(meant, half).indices] for half in (one, other)]
        unit = [rows / np.linalg.norm(rows, axis=1, keepdims=True) for rows in partners]
        means.append(float(np.mean(np.abs(np.sum(unit[0] * unit[1], axis=1)))))
    print(f"by chance, {k} random directions: correlation of codes {means[0]:.2f}, cosine of atoms {means[1]:.2f}\n")


def count_found(X: Matrix, path: Sequence[int], n_splits: int, seed: int) -> Matrix:
    """Stable atoms of a random half, those of them found on the other, and all atoms found; a row a path entry."""
    order = np.random.default_rng(seed).permutation(len(X))
    half, other = np.sort(order[: len(X) // 2]), np.sort(order[len(X) // 2 :])
    stable_atoms = stability(make_estimator(seed), X[half], n_components=path, n_splits=n_splits, random_state=seed)
    rows = []
    for k, mixing, stable in zip(path, stable_atoms.mixing, stable_atoms.stable(), strict=True):
        model = make_estimator(seed + 1).set_params(n_components=k).fit(X[other])
        found = match_atoms(mixing.T, model.components_).cosines > FOUND
        rows.append((np.sum(stable), np.sum(stable & found), np.sum(found)))
    return np.array(rows, dtype=np.float64)


def print_found(X: Matrix, path: Sequence[int], n_splits: int, n_repeats: int) -> None:
    counts = np.sum([count_found(X, path, n_splits, seed) for seed in range(n_repeats)], axis=0)
    print(f"atoms of a random half of {len(X)} samples, added up over {n_repeats} halves")
    print("  n_components   stable   found on the other half     share   all atoms: found")
    names, sizes = [*map(str, path), "all"], [*path, sum(path)]
    for name, k, (stable, both, found) in zip(names, sizes, [*counts, np.sum(counts, axis=0)], strict=True):
        share = f"{both / stable:.0%}" if stable else "-"
        print(f"  {name:>12s}   {stable:6.0f}   {both:23.0f}   {share:>7s}   {found:.0f} of {n_repeats * k}")


def draw_path(found: Stability, picture: Path, size: tuple[float, float]) -> None:
    figure = Figure(figsize=size, layout="constrained")
    axes = figure.add_subplot()
    found.plot(axes)
    if size[0] < size[1]:
        axes.set_title("Reproducible components", loc="left", weight="bold", pad=22)  # the title of the wide one is cut
    figure.savefig(picture, dpi=150)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, help="a .npy file, or a .npz file with an array X, one sample a row")
    parser.add_argument("--path", type=int, nargs="+", default=PATH, help="numbers of components")
    parser.add_argument("--splits", type=int, default=10)
    parser.add_argument("--halves", type=int, default=3, help="random halves for the second table; 0 leaves it out")
    parser.add_argument("--picture", type=Path, help=f"where to draw the path; without --data {PICTURE.name} in docs")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    packaged = next(real for real in list_packaged() if real.name == PACKAGED)
    X = packaged.load() if options.data is None else read_array(options.data)
    print(f"{PACKAGED if options.data is None else options.data.name}: {X.shape[0]} samples of {X.shape[1]} features\n")
    found = measure_path(X, options.path, options.splits)
    print_chance(X, max(options.path))
    picture = options.picture or (PICTURE if options.data is None else None)
    if picture is not None:
        draw_path(found, picture, (8.0, 4.5))
        draw_path(found, picture.with_stem(f"{picture.stem}-tall"), (4.4, 5.0))  # for phones
    if options.halves:
        print_found(X, options.path, options.splits, options.halves)


if __name__ == "__main__":
    main()
