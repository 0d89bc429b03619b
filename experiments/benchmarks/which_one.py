"""Choosing a method: five methods on data of five kinds, each made for one of them.

python -m experiments.benchmarks.which_one    # 1 minute; the picture is drawn by benchmarks.pictures

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
from experiments.campaign.data_sets import draw_sparse

ALPHA = 0.5
R, N = 3000, 20
Drawn = tuple[Matrix, Matrix]


def draw_noise(rng: np.random.Generator, size: float) -> Matrix:
    """Draw white noise."""
    return size * rng.standard_normal((R, N))


def draw_variances(rng: np.random.Generator) -> Drawn:
    """Draw Gaussian factors whose variances differ."""
    atoms = study.draw_rotation(N, rng)[:8]
    return rng.standard_normal((R, 8)) * np.geomspace(8, 1, 8) @ atoms + draw_noise(rng, 0.1), atoms


def draw_parts(rng: np.random.Generator) -> Drawn:
    """Draw bumps along the features, with codes that are zero or positive."""
    atoms = np.exp(-0.5 * ((np.arange(N) - np.linspace(0, N - 1, 8)[:, None]) / 1.5) ** 2)
    codes = rng.exponential(size=(R, 8)) * (rng.random((R, 8)) < 0.3)
    return np.abs(codes @ atoms + draw_noise(rng, 0.02)), atoms


def draw_sources(rng: np.random.Generator) -> Drawn:
    """Draw independent sources, half of them sub-Gaussian, mixed by a matrix that is not orthogonal."""
    sources, atoms = np.c_[rng.laplace(size=(R, 4)), rng.uniform(-2, 2, (R, 4))], rng.standard_normal((8, N))
    return sources @ atoms + draw_noise(rng, 0.1), atoms


def draw_orthonormal(rng: np.random.Generator) -> Drawn:
    """Draw sparse codes of as many orthonormal atoms as features."""
    atoms = study.draw_rotation(N, rng)
    return draw_sparse(rng, (R, N)) @ atoms + draw_noise(rng, 0.1), atoms


def draw_overcomplete(rng: np.random.Generator) -> Drawn:
    """Draw sparse codes of twice as many atoms as features."""
    atoms = rng.standard_normal((2 * N, N))
    atoms /= np.linalg.norm(atoms, axis=1, keepdims=True)
    return draw_sparse(rng, (R, 2 * N), 0.06) @ atoms + draw_noise(rng, 0.02), atoms


KINDS: dict[str, Callable[[np.random.Generator], Drawn]] = {
    "directions of unequal variance, Gaussian": draw_variances,
    "non-negative parts": draw_parts,
    "independent sources, mixed": draw_sources,
    "sparse codes in a basis": draw_orthonormal,
    "sparse codes, more atoms than features": draw_overcomplete,
}


def fit_elldict(X: Matrix, m: int, seed: int) -> Matrix:
    """Fit a dictionary where atoms are a basis, and independent components where there are fewer."""
    if m >= X.shape[1]:
        return np.asarray(LpDictionaryLearning(random_state=seed).fit(X).components_)
    return np.asarray(LpICA(m, random_state=seed).fit(X).mixing_.T)


def fit_dictionary(X: Matrix, m: int, seed: int) -> Matrix:
    """Fit online dictionary learning of scikit-learn."""
    options: Any = {"batch_size": 256, "max_iter": 100, "fit_algorithm": "cd", "max_no_improvement": None}
    return np.asarray(MiniBatchDictionaryLearning(m, alpha=ALPHA, random_state=seed, **options).fit(X).components_)


METHODS: dict[str, Callable[[Matrix, int, int], Any]] = {
    "PCA": lambda X, m, _: PCA(min(m, X.shape[1])).fit(X).components_,
    "NMF": lambda X, m, seed: NMF(m, init="nndsvda", max_iter=1000, random_state=seed).fit(X).components_,
    "FastICA": lambda X, m, seed: FastICA(min(m, X.shape[1]), random_state=seed).fit(X).mixing_.T,
    "DictionaryLearning": fit_dictionary,
    "elldict": fit_elldict,
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
        found, seconds = study.time_it(lambda: METHODS[cell["method"]](X, len(atoms), seed))  # noqa: B023  called at once
        angles.append(measure_angle(np.asarray(found), atoms))
        times.append(seconds)
    return {"angle": np.mean(angles), "seconds": np.median(times)}


def tabulate(rows: list[Row]) -> str:
    """Write one line per kind of data."""
    lines = []
    for (kind,), found in study.group(rows, "kind").items():
        cells = {row["method"]: show_angle(row) for row in found}
        lines.append([kind, *(cells.get(method, "-") for method in METHODS)])
    return study.write_table(["data", *METHODS], lines)


def show_angle(row: Row) -> str:
    """Write an angle and a time."""
    return "-" if row["angle"] is None else f"{row['angle']:.1f}°, {study.show_time(row['seconds'])}"


STUDY = Study(
    name="which_one",
    minutes=1,
    cells=[{"kind": kind, "method": method} for kind in KINDS for method in METHODS],
    small=[{"kind": "sparse codes in a basis", "method": method} for method in METHODS],
    measure=measure,
    tabulate=tabulate,
)

if __name__ == "__main__":
    study.main(STUDY, __doc__)
