"""Choosing a method: five methods on data of five kinds, each made for one of them.

python -m experiments.benchmarks.which_one    # 1 minute

The result is the mean angle between true atoms and those found, over three data sets. Methods are told the number of
atoms; `alpha` of DictionaryLearning is the best of 0.1, 0.25, 0.5 and 1 for sparse codes. NMF takes no negative values.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from scipy.optimize import linear_sum_assignment
from sklearn.decomposition import NMF, PCA, FastICA, MiniBatchDictionaryLearning

from elldict import LpDictionaryLearning, LpICA
from experiments.benchmarks import study
from experiments.benchmarks.study import Cell, Matrix, Row, Study
from experiments.campaign.data_sets import Rng, draw_sparse, mix

R, N = 3000, 20
Drawn = tuple[Matrix, Matrix]


def add_noise(rng: Rng, codes: Matrix, atoms: Matrix, noise: float) -> Drawn:
    """Compute samples of codes and atoms, with noise; return them with the atoms."""
    return codes @ atoms + noise * rng.standard_normal((R, N)), atoms


def draw_variances(rng: Rng) -> Drawn:
    """Draw Gaussian factors whose variances differ."""
    return add_noise(rng, rng.standard_normal((R, 8)) * np.geomspace(8, 1, 8), study.draw_rotation(N, rng)[:8], 0.1)


def draw_parts(rng: Rng) -> Drawn:
    """Draw bumps along the features, with codes that are zero or positive."""
    atoms = np.exp(-0.5 * ((np.arange(N) - np.linspace(0, N - 1, 8)[:, None]) / 1.5) ** 2)
    X, _ = add_noise(rng, rng.exponential(size=(R, 8)) * (rng.random((R, 8)) < 0.3), atoms, 0.02)
    return np.abs(X), atoms


def draw_sources(rng: Rng) -> Drawn:
    """Draw independent sources, half of them sub-Gaussian, mixed by a matrix that is not orthogonal."""
    sources = np.c_[rng.laplace(size=(R, 4)), rng.uniform(-2, 2, (R, 4))]
    return add_noise(rng, sources, rng.standard_normal((8, N)), 0.1)


def draw_orthonormal(rng: Rng) -> Drawn:
    """Draw sparse codes of as many orthonormal atoms as features."""
    X, M = mix(rng, draw_sparse(rng, (R, N)), 0.1)
    return X, M.T


def draw_overcomplete(rng: Rng) -> Drawn:
    """Draw sparse codes of twice as many atoms as features."""
    atoms = rng.standard_normal((2 * N, N))
    atoms /= np.linalg.norm(atoms, axis=1, keepdims=True)
    return add_noise(rng, draw_sparse(rng, (R, 2 * N), 0.06), atoms, 0.02)


KINDS: dict[str, Callable[[Rng], Drawn]] = {
    "directions of unequal variance, Gaussian": draw_variances,
    "non-negative parts": draw_parts,
    "independent sources, mixed": draw_sources,
    "sparse codes in a basis": draw_orthonormal,
    "sparse codes, more atoms than features": draw_overcomplete,
}
MINI: dict[str, Any] = {"alpha": 0.5, "batch_size": 256, "fit_algorithm": "cd", "max_iter": 100}
METHODS: dict[str, Callable[[int, int], Any]] = {  # number of atoms, seed
    "PCA": lambda m, _: PCA(min(m, N)),
    "NMF": lambda m, seed: NMF(m, init="nndsvda", max_iter=1000, random_state=seed),
    "FastICA": lambda m, seed: FastICA(min(m, N), random_state=seed),
    "DictionaryLearning": lambda m, seed: MiniBatchDictionaryLearning(
        m, max_no_improvement=None, random_state=seed, **MINI
    ),
    "elldict": lambda m, _: LpDictionaryLearning() if m >= N else LpICA(m),  # where atoms are a basis, a dictionary
}


def measure_angle(found: Matrix, atoms: Matrix) -> float:
    """Measure the mean angle between true atoms and their partners, in degrees; 90 for atoms without one."""
    unit = [M / np.maximum(np.linalg.norm(M, axis=1, keepdims=True), 1e-300) for M in (found, atoms)]
    cosines = np.minimum(np.abs(unit[0] @ unit[1].T), 1.0)
    angles = np.degrees(np.arccos(cosines[linear_sum_assignment(-cosines)]))
    return float((np.sum(angles) + 90 * (len(atoms) - len(angles))) / len(atoms))


def measure(cell: Cell) -> Row:
    """Fit three data sets; measure angles and seconds."""
    angles, times = [], []
    for seed in range(3):
        X, atoms = KINDS[cell["kind"]](np.random.default_rng(seed))
        if cell["method"] == "NMF" and np.min(X) < 0:
            return {"angle": None, "seconds": None}
        model, seconds = study.time_it(lambda: METHODS[cell["method"]](len(atoms), seed).fit(X))  # noqa: B023
        angles.append(measure_angle(model.mixing_.T if hasattr(model, "mixing_") else model.components_, atoms))
        times.append(seconds)
    return {"angle": np.mean(angles), "seconds": np.median(times)}


def tabulate(rows: list[Row]) -> str:
    """Write one line per kind of data: angle and time."""
    lines: list[list[str]] = []
    for (kind,), found in study.group(rows, "kind").items():
        known = [row for row in found if row["angle"] is not None]
        cells = {row["method"]: f"{row['angle']:.1f}°, {study.show_time(row['seconds'])}" for row in known}
        lines.append([kind, *(cells.get(method, "-") for method in METHODS)])
    return study.write_table(["data", *METHODS], lines)


CELLS = [{"kind": kind, "method": method} for kind in KINDS for method in METHODS]
SMALL = [cell for cell in CELLS if cell["kind"] == "sparse codes in a basis"]
STUDY = Study("which_one", 1, measure, tabulate, CELLS, SMALL)

if __name__ == "__main__":
    study.main(STUDY, __doc__)
