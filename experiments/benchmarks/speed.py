"""Time and error on synthetic data: elldict, FastICA, Picard, K-SVD and MiniBatchDictionaryLearning.

python -m experiments.benchmarks.speed                 # 40 minutes
python -m experiments.benchmarks.speed --only "n 32"

Bernoulli-Gaussian codes of density 0.3 in an orthogonal dictionary, in float32; one thread for all. Errors are
1 - cos^4 of the nearest orthonormal atoms, means over atoms and seeds; seconds are medians over seeds. FastICA and
Picard have the defaults of their users; K-SVD is told the number of codes that are not zero. K-SVD and
MiniBatchDictionaryLearning run for n = 32 only, and are stopped after two minutes; Picard runs up to n = 200.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from elldict import LpDictionaryLearning
from elldict.metrics import recovery_error
from elldict.theory import cramer_rao_bound
from experiments import peers
from experiments.benchmarks import study
from experiments.benchmarks.study import Cell, Row, Study
from experiments.harness.pool import Lost, Pool

EXACT = 1e-6  # rounding in float32
LIMIT_SECONDS = 120.0  # for the slow methods

METHODS: dict[str, Callable[[int, int], Any]] = {  # seed, number of codes that are not zero
    "elldict": lambda seed, _: LpDictionaryLearning(random_state=seed),
    "elldict, no error bars": lambda seed, _: LpDictionaryLearning(error_bars=False, random_state=seed),
    "power method": lambda seed, _: LpDictionaryLearning(solver="power", refine=None, random_state=seed),
    "FastICA logcosh": lambda seed, _: peers.FastICA(whiten_solver="eigh", max_iter=200, random_state=seed),
    "FastICA exp": lambda seed, _: peers.FastICA(fun="exp", whiten_solver="eigh", max_iter=200, random_state=seed),
    "Picard-O": lambda seed, _: peers.Picard(threads=1, random_state=seed),
    "K-SVD": lambda seed, k: peers.KSVD(k, random_state=seed),
    "MiniBatchDictionaryLearning": lambda seed, _: peers.MiniBatch(random_state=seed),
}
SLOW = ("K-SVD", "MiniBatchDictionaryLearning")


def list_cells() -> list[Cell]:
    """List the problems, the largest last, with all methods that can solve them."""
    problems = [(32, 2000, 0.2, 4), *((32, 10_000, noise, 4) for noise in (0.0, 0.2, 0.4, 0.6))]
    problems += [(100, 40_000, noise, 2) for noise in (0.0, 0.2, 0.4, 0.6)]
    problems += [(200, 80_000, 0.0, 1), (200, 80_000, 0.4, 1), (100, 1_000_000, 0.2, 1)]
    problems += [(400, 160_000, 0.0, 1), (400, 160_000, 0.4, 1)]
    cells: list[Cell] = [
        {"n": n, "r": r, "noise": s, "seed": seed} for n, r, s, seeds in problems for seed in range(seeds)
    ]
    most = {name: 32 if name in SLOW else 200 if name == "Picard-O" else 400 for name in METHODS}  # largest n
    cells = [{**cell, "method": name} for cell in cells for name in METHODS if cell["n"] <= most[name]]
    return [cell for cell in cells if cell["method"] not in SLOW or cell["seed"] == 0]


def measure(cell: Cell) -> Row:
    """Fit one method, in a process with a time limit if it is slow."""
    if cell["method"] not in SLOW:
        return fit(cell)
    cells = [cell]
    with Pool(fit, limit=LIMIT_SECONDS) as pool:
        ((_, found),) = pool.results(lambda: cells.pop() if cells else None)
    if isinstance(found, Lost):
        return {"error": None, "seconds": found.seconds, "passes": None}
    return found


def fit(cell: Cell) -> Row:
    """Fit, and compare with the true dictionary."""
    X, dictionary = study.draw_model(cell, cell["seed"])
    model = METHODS[cell["method"]](cell["seed"], max(1, round(0.3 * cell["n"])))
    _, seconds = study.time_it(lambda: model.fit(X))
    error = recovery_error(study.make_orthonormal(model.components_), study.make_orthonormal(dictionary))
    return {"error": max(error, 0.0), "seconds": seconds, "passes": float(getattr(model, "n_passes_", model.n_iter_))}


def tabulate(rows: list[Row]) -> str:
    """Write one line per problem: error and time of each method."""
    lines = []
    for (n, r, noise), found in study.group(rows, "n", "r", "noise").items():
        by_method = study.group(found, "method")
        bound = cramer_rao_bound(n_features=n, n_samples=r, density=0.3, noise_std=noise) if noise else 0.0
        cells = [show_fits(by_method.get((method,), [])) for method in METHODS]
        lines.append([f"{n}", f"{r:,}".replace(",", " "), f"{noise:g}", study.show_error(bound, EXACT), *cells])
    return study.write_table(["n", "r", "noise", "Cramér-Rao bound", *METHODS], lines)


def show_fits(rows: list[Row]) -> str:
    """Write mean error and median time of the fits of one method."""
    if not rows:
        return "-"
    if any(row["error"] is None for row in rows):
        return f"> {study.show_time(LIMIT_SECONDS)}"
    seconds = float(np.median([row["seconds"] for row in rows]))
    return f"{study.show_error(float(np.mean([row['error'] for row in rows])), EXACT)}, {study.show_time(seconds)}"


CELLS = list_cells()
SMALL = [{"n": 8, "r": 500, "noise": 0.2, "seed": 0, "method": method} for method in METHODS]
STUDY = Study("speed", 40, measure, tabulate, CELLS, SMALL, packages=("python-picard", "dictlearn"))

if __name__ == "__main__":
    study.main(STUDY, __doc__)
