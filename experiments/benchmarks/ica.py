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
from experiments.campaign.data_sets import draw_codes
from experiments.peers.base import required

FOUND = 0.9  # cosine; between two random directions of twelve features it is 0.3 in the mean
OURS = "LpICA"
EXAMPLE = "sine, square and sawtooth (example of scikit-learn)"
MIXED = {"uniform": 4, "binary": 2, "laplace": 4, "sparse": 2}


def fit_picard(X: Matrix, k: int, seed: int) -> Matrix:
    """Return the mixing matrix (n, k) of Picard."""
    options = {"n_components": k, "ortho": True, "extended": True, "max_iter": 1000, "random_state": seed}
    K, W, _ = required("picard", "python-picard").picard(X.T, **options)
    return np.asarray(np.linalg.pinv(W @ K))


def fit_fastica(X: Matrix, k: int, seed: int, fun: str) -> Matrix:
    """Return the mixing matrix (n, k) of FastICA."""
    return np.asarray(FastICA(k, whiten="unit-variance", max_iter=1000, fun=fun, random_state=seed).fit(X).mixing_)


METHODS: dict[str, Callable[[Matrix, int, int], Any]] = {
    OURS: lambda X, k, _: LpICA(k).fit(X),
    "FastICA logcosh": lambda X, k, seed: fit_fastica(X, k, seed, "logcosh"),
    "FastICA exp": lambda X, k, seed: fit_fastica(X, k, seed, "exp"),
    "Picard-O extended": fit_picard,
}


def list_cells(seeds: int) -> list[Cell]:
    """List problems with their methods: numbers of sources by density, samples, features and noise."""
    names = ("laplace", "t3", "sparse", "uniform", "binary", "exponential", "laplace of varying scale")
    problems: list[Any] = [({name: 24}, r, 24, 0.0) for name in names for r in (1000, 10_000)]
    problems += [({**MIXED, "gaussian": k}, 8000, 12 + k, 0.0) for k in (0, 1, 3)]
    problems += [({"laplace": 12}, 8000, 60, noise) for noise in (0.1, 0.3)] + [({EXAMPLE: 3}, 2000, 3, 0.0)]
    return [
        {"sources": sources, "r": r, "features": n, "noise": noise, "method": method, "seeds": seeds}
        for sources, r, n, noise in problems
        for method in METHODS
    ]


def draw_sources(rng: np.random.Generator, r: int, name: str, m: int) -> Matrix:
    """Draw m sources of a name."""
    if name == EXAMPLE:
        time = np.linspace(0, 8, r)
        S = np.c_[np.sin(2 * time), np.sign(np.sin(3 * time)), signal.sawtooth(2 * np.pi * time)]
        return np.asarray(S + 0.2 * rng.standard_normal(S.shape))
    scales = np.exp(rng.standard_normal((r, 1))) if name.endswith("scale") else 1
    return draw_codes(rng, (r, m), name.partition(" ")[0]) * scales


def draw(cell: Cell, seed: int) -> tuple[Matrix, Matrix, Matrix]:
    """Draw samples, the true columns, and which of them can be found."""
    rng, r, sources = np.random.default_rng(seed), cell["r"], cell["sources"]
    S = np.concatenate([draw_sources(rng, r, name, m) for name, m in sources.items()], axis=1)
    M = rng.standard_normal((cell["features"], S.shape[1]))
    M /= np.linalg.norm(M, axis=0)
    X = (S - S.mean(axis=0)) / S.std(axis=0) @ M.T
    gaussian = np.repeat([name == "gaussian" for name in sources], list(sources.values()))
    sought = ~gaussian if np.sum(gaussian) > 1 else np.ones(len(gaussian), dtype=bool)
    return X + cell["noise"] * rng.standard_normal(X.shape), M, sought


def measure(cell: Cell) -> Row:
    """Fit some data sets; measure errors, error bars, and how many sources are found."""
    errors, stated, times, lost, total = [], [], [], 0, 0
    for seed in range(cell["seeds"]):
        X, M, sought = draw(cell, seed)
        found, seconds = time_it(lambda: METHODS[cell["method"]](X, M.shape[1], seed))  # noqa: B023  called at once
        match: Any = match_atoms(getattr(found, "mixing_", found).T, M.T)
        which = sought[match.indices]
        errors.append(np.mean(1 - match.cosines[which] ** 4))
        stated.append(np.mean(found.atom_error_[which]) if cell["method"] == OURS else np.nan)
        lost, total = lost + int(np.sum(match.cosines[which] <= FOUND)), total + int(np.sum(which))
        times.append(seconds)
    means = {"error": np.mean(errors), "stated": np.mean(stated), "seconds": np.median(times)}
    return {**means, "lost": lost, "sought": total}


def tabulate(rows: list[Row]) -> str:
    """Write errors, and sources that were not found; one line per problem."""
    problems: dict[str, dict[str, Row]] = {}
    for row in rows:
        sources = ", ".join(name if name == EXAMPLE else f"{m} {name}" for name, m in row["sources"].items() if m)
        noise = f", noise {row['noise']:g} in {row['features']} features" if row["noise"] else ""
        problems.setdefault(f"{sources}{noise}, r = {row['r']}", {})[row["method"]] = row
    lines: list[list[str]] = []
    for name, found in problems.items():
        stated = found[OURS]["stated"] if OURS in found else None
        errors = [show_loss(found[method]) if method in found else "-" for method in METHODS]
        times = ", ".join(show_time(row["seconds"]) for row in found.values())
        lines.append([name, errors[0], "-" if stated is None else f"{stated:.5f}", *errors[1:], times])
    return write_table(["sources", OURS, "its error bar", *list(METHODS)[1:], "time, in this order"], lines)


def show_loss(row: Row) -> str:
    """Write the error, and the number of sources that were not found."""
    return f"{row['error']:.5f}" + (f", {row['lost']} of {row['sought']} not found" if row["lost"] else "")


CELLS, SMALL = list_cells(10), [cell for cell in list_cells(2) if EXAMPLE in cell["sources"]]
STUDY = Study("ica", 10, measure, tabulate, CELLS, SMALL, packages=("python-picard",))

if __name__ == "__main__":
    main(STUDY, __doc__)
