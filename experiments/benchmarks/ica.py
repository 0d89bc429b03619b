"""Sources of other densities: errors of LpICA, FastICA and Picard.

python -m experiments.benchmarks.ica                  # 10 minutes
python -m experiments.benchmarks.ica --only uniform

Errors are 1 - cos^4 of the columns of `mixing_` and the true ones, means over data sets; sources are centred and have
unit variance, mixing matrices have random columns of unit length. A source is found if its cosine is above 0.9. With
several Gaussian sources, only the others are counted.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from scipy import signal
from sklearn.decomposition import FastICA

from elldict import LpICA
from elldict.metrics import match_atoms
from experiments.benchmarks.study import Cell, Matrix, Row, Study, main, show_time, time_it, write_table
from experiments.peers.base import required

FOUND = 0.9  # cosine; between two random directions of twelve features it is 0.3 in the mean

Rng = np.random.Generator
DENSITIES: dict[str, Callable[[Rng, tuple[int, int]], Matrix]] = {
    "Laplace": lambda rng, shape: rng.laplace(size=shape),
    "Student t(3)": lambda rng, shape: rng.standard_t(3, shape),
    "Bernoulli-Gaussian": lambda rng, shape: rng.standard_normal(shape) * (rng.random(shape) < 0.3),
    "uniform": lambda rng, shape: rng.uniform(-1, 1, shape),
    "binary": lambda rng, shape: rng.choice([-1.0, 1.0], shape),
    "exponential": lambda rng, shape: rng.exponential(size=shape),
    "Gaussian": lambda rng, shape: rng.standard_normal(shape),
    "Laplace of varying scale": lambda rng, shape: rng.laplace(size=shape) * np.exp(rng.standard_normal((shape[0], 1))),
}
MIXED = {"uniform": 4, "binary": 2, "Laplace": 4, "Bernoulli-Gaussian": 2}
EXAMPLE = "sine, square and sawtooth (example of scikit-learn)"


def fit_picard(X: Matrix, k: int, seed: int) -> Matrix:
    """Return the mixing matrix (n, k) of Picard."""
    options = {"n_components": k, "ortho": True, "extended": True, "max_iter": 1000, "random_state": seed}
    K, W, _ = required("picard", "python-picard").picard(X.T, **options)
    return np.asarray(np.linalg.pinv(W @ K))


def fit_fastica(X: Matrix, k: int, seed: int, fun: str) -> Matrix:
    """Return the mixing matrix (n, k) of FastICA."""
    return np.asarray(FastICA(k, whiten="unit-variance", max_iter=1000, fun=fun, random_state=seed).fit(X).mixing_)


METHODS: dict[str, Callable[[Matrix, int, int], Matrix]] = {
    "FastICA logcosh": lambda X, k, seed: fit_fastica(X, k, seed, "logcosh"),
    "FastICA exp": lambda X, k, seed: fit_fastica(X, k, seed, "exp"),
    "Picard-O extended": fit_picard,
}
OURS = "LpICA"


def list_cells(seeds: int = 10) -> list[Cell]:
    """List problems with their methods: numbers of sources by density, samples, features and noise."""
    problems: list[Cell] = [
        {"sources": {name: 24}, "r": r, "features": 24, "noise": 0.0}
        for name in DENSITIES
        if name != "Gaussian"
        for r in (1000, 10_000)
    ]
    problems += [
        {"sources": {**MIXED, **more}, "r": 8000, "features": 12 + sum(more.values()), "noise": 0.0}
        for more in ({}, {"Gaussian": 1}, {"Gaussian": 3})
    ]
    problems += [{"sources": {"Laplace": 12}, "r": 8000, "features": 60, "noise": noise} for noise in (0.1, 0.3)]
    problems += [{"sources": {EXAMPLE: 3}, "r": 2000, "features": 3, "noise": 0.2}]
    return [{**problem, "method": method, "seeds": seeds} for problem in problems for method in (OURS, *METHODS)]


def draw(cell: Cell, seed: int) -> tuple[Matrix, Matrix, Matrix]:
    """Draw samples, the true columns, and which of them can be found."""
    rng, sources = np.random.default_rng(seed), cell["sources"]
    if EXAMPLE in sources:
        time = np.linspace(0, 8, cell["r"])
        S = np.c_[np.sin(2 * time), np.sign(np.sin(3 * time)), signal.sawtooth(2 * np.pi * time)]
        S = S + cell["noise"] * rng.standard_normal(S.shape)
        M = np.array([[1, 1, 1], [0.5, 2, 1.0], [1.5, 1.0, 2.0]])
        return S / S.std(axis=0) @ M.T, M, np.ones(3, dtype=bool)
    S = np.concatenate([DENSITIES[name](rng, (cell["r"], m)) for name, m in sources.items()], axis=1)
    M = rng.standard_normal((cell["features"], S.shape[1]))
    M /= np.linalg.norm(M, axis=0)
    X = (S - S.mean(axis=0)) / S.std(axis=0) @ M.T
    gaussian = np.repeat([name == "Gaussian" for name in sources], list(sources.values()))
    sought = ~gaussian if np.sum(gaussian) > 1 else np.ones(len(gaussian), dtype=bool)
    return X + cell["noise"] * rng.standard_normal(X.shape) * ("Gaussian" not in sources), M, sought


def measure(cell: Cell) -> Row:
    """Fit some data sets; measure errors, error bars, and how many sources are found."""
    errors, stated, lost, times = [], [], 0, []
    for seed in range(cell["seeds"]):
        X, M, sought = draw(cell, seed)
        if cell["method"] == OURS:
            model, seconds = time_it(lambda: LpICA(M.shape[1], random_state=seed).fit(X))  # noqa: B023  called at once
            mixing, bars = model.mixing_, model.atom_error_
        else:
            mixing, seconds = time_it(lambda: METHODS[cell["method"]](X, M.shape[1], seed))  # noqa: B023
            bars = np.full(M.shape[1], np.nan)
        match: Any = match_atoms(mixing.T, M.T)
        which = sought[match.indices]
        errors.append(np.mean(1 - match.cosines[which] ** 4))
        stated.append(np.mean(bars[which]))
        lost += int(np.sum(match.cosines[which] <= FOUND))
        times.append(seconds)
    total = cell["seeds"] * int(np.sum(sought))
    return {
        "error": np.mean(errors),
        "stated": np.mean(stated),
        "lost": lost,
        "sought": total,
        "seconds": np.median(times),
    }


def tabulate(rows: list[Row]) -> str:
    """Write errors, and sources that were not found; one line per problem."""
    problems: dict[str, dict[str, Row]] = {}
    for row in rows:
        sources = ", ".join(f"{m} {name}" if name != EXAMPLE else name for name, m in row["sources"].items())
        noise = (
            f", noise {row['noise']:g} in {row['features']} features" if row["noise"] and len(row["sources"]) else ""
        )
        problems.setdefault(f"{sources}{noise}, r = {row['r']}", {})[row["method"]] = row
    lines = []
    for name, found in problems.items():
        if OURS in found:
            stated, seconds = (
                f"{found[OURS]['stated']:.5f}",
                ", ".join(show_time(row["seconds"]) for row in found.values()),
            )
            errors = [show_loss(found[method]) if method in found else "-" for method in (OURS, *METHODS)]
            lines.append([name, errors[0], stated, *errors[1:], seconds])
    return write_table(["sources", "`LpICA()`", "its error bar", *METHODS, "time, in this order"], lines)


def show_loss(row: Row) -> str:
    """Write the error, and the number of sources that were not found."""
    return f"{row['error']:.5f}" + (f", {row['lost']} of {row['sought']} not found" if row["lost"] else "")


CELLS = list_cells()
SMALL = [{**cell, "seeds": 2} for cell in list_cells() if EXAMPLE in cell["sources"]]
STUDY = Study("ica", 10, measure, tabulate, CELLS, SMALL, packages=("python-picard"))

if __name__ == "__main__":
    main(STUDY, __doc__)
