"""Invertible mixing matrices: LpICA beside rotations of white samples and Picard without orthogonality.

python -m experiments.benchmarks.unmixing                     # 25 minutes
python -m experiments.benchmarks.unmixing --only noise digits

Simulated sources are Bernoulli-Gaussian, with a dense Gaussian mixing matrix whose rows are scaled so that samples have
features of sizes 1 to 100. Errors are 1 - cos^4 of the columns of `mixing_` and the true ones. Real data are white
training samples; the gain is that of the log-likelihood of held-out samples over principal components, with histograms
as densities of the sources, and with the log-determinant of the unmixing matrix.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import Any

import numpy as np
from sklearn.decomposition import FastICA

from elldict import LpICA
from elldict.metrics import match_atoms
from elldict.theory import bernoulli_gaussian_information
from experiments.benchmarks.data import SETS, measure_gain, split_set
from experiments.benchmarks.study import EXACT, Cell, Matrix, Row, Study, group, main, show_error, time_it, write_table
from experiments.peers.base import required

OURS, ROTATION = "LpICA", "LpICA, orthogonal"


def fit_picard(X: Matrix, seed: int) -> Any:
    """Fit Picard without orthogonality, and return an object with the attributes of FastICA."""
    options: Any = {"ortho": False, "extended": True, "max_iter": 1000, "random_state": seed}
    K, W, _ = required("picard", "python-picard").picard(X.T, **options)
    found = FastICA()
    found.components_ = W @ K
    found.mixing_ = np.linalg.inv(found.components_)
    return found


METHODS: dict[str, Callable[[Matrix, int], Any]] = {
    OURS: lambda X, _: LpICA(error_bars=False).fit(X),
    ROTATION: lambda X, _: LpICA(orthogonal=True, error_bars=False).fit(X),
    "FastICA": lambda X, seed: FastICA(whiten="unit-variance", max_iter=1000, random_state=seed).fit(X),
    "Picard, extended": fit_picard,
}


def list_cells(seeds: int) -> list[Cell]:
    """List simulated sources and real sets with all methods."""
    simulated = [(density, n, 100 * n, 0.0) for n, density in product((20, 50), (0.02, 0.05, 0.1, 0.3, 0.5))]
    simulated += [(0.3, n, 50 * n, 0.0) for n in (20, 50)]
    simulated += [(0.3, 20, 8000, noise) for noise in (0.1, 0.2, 0.4)]
    names = ("density", "n", "r", "noise")
    problems: list[Cell] = [{**dict(zip(names, values, strict=True)), "seeds": seeds} for values in simulated]
    problems += [{"real": name} for name in SETS]
    return [{**problem, "method": method} for problem in problems for method in METHODS]


def draw(cell: Cell, seed: int) -> tuple[Matrix, Matrix]:
    """Draw samples and the true columns."""
    rng, n, r = np.random.default_rng(seed), cell["n"], cell["r"]
    S = rng.standard_normal((r, n)) * (rng.random((r, n)) < cell["density"]) + cell["noise"] * rng.standard_normal(
        (r, n)
    )
    M = np.geomspace(1, 100, n)[:, None] * rng.standard_normal((n, n))
    return S @ M.T, M


def measure(cell: Cell) -> Row:
    """Fit one real set, or some simulated ones."""
    fit = METHODS[cell["method"]]
    if "real" in cell:
        split = split_set(cell["real"])
        found, seconds = time_it(lambda: fit(split.train, 0))
        W = found.components_
        log_volume = float(np.linalg.slogdet(W)[1])
        return {
            "gain": measure_gain(split, W) + log_volume,
            "per_direction": len(split.train) / len(W),
            "seconds": seconds,
        }
    errors, passes = [], []
    for seed in range(cell["seeds"]):
        X, M = draw(cell, seed)
        found, _ = time_it(lambda: fit(X, seed))  # noqa: B023  called at once
        # in coordinates in which the true columns are orthonormal, the bound is that of equal columns
        errors.append(1 - np.mean(match_atoms(np.linalg.solve(M, found.mixing_).T, np.eye(len(M))).cosines ** 4))
        passes.append(getattr(found, "n_passes_", np.nan))
    return {"errors": errors, "passes": np.median(passes)}


def tabulate(rows: list[Row]) -> str:
    """Write errors of simulated sources, then gains of real sets."""
    lines = []
    for (density, n, r, noise), found in group(
        [row for row in rows if "n" in row], "density", "n", "r", "noise"
    ).items():
        by_method = {row["method"]: np.array(row["errors"]) for row in found}
        errors = [show_error(float(np.mean(by_method[method]))) if method in by_method else "-" for method in METHODS]
        k = bernoulli_gaussian_information(density, noise)
        bound = 2 * (n - 1) * k / (r * (k * k - 1)) if noise else 0.0
        ours, rotation = by_method.get(OURS, np.zeros(0)), by_method.get(ROTATION, np.zeros(0))
        exact = f"{np.sum(ours < EXACT)} of {len(ours)}" if not noise else f"{np.mean(ours) / bound:.2f} x the bound"
        worse = f"{np.sum(ours > 1.01 * rotation)}" if len(ours) == len(rotation) else "-"
        passes = {row["method"]: row["passes"] for row in found}
        ratio = f"{passes[OURS] / passes[ROTATION]:.2f}" if passes.keys() >= {OURS, ROTATION} else "-"
        lines.append([f"density {density:g}, noise {noise:g}, n = {n}, r = {r}", *errors, exact, worse, ratio])
    head = ["sources", *METHODS, "exact, or error / bound", "worse than the rotation", "passes / rotation"]
    text = write_table(head, lines) + "\n"
    lines = []
    for (name,), found in group([row for row in rows if "real" in row], "real").items():
        gains = {row["method"]: row["gain"] for row in found}
        shown = [f"{gains[method]:.2f}" if method in gains else "-" for method in METHODS]
        lines.append([name, f"{found[0]['per_direction']:.0f}", *shown])
    return text + write_table(["real data", "samples per direction", *METHODS], lines)


CELLS = list_cells(20)
SMALL = [
    cell for cell in list_cells(2) if cell.get("real") == "wine" or (cell.get("n"), cell.get("noise")) == (20, 0.2)
]
STUDY = Study("unmixing", 25, measure, tabulate, CELLS, SMALL, packages=("python-picard",))

if __name__ == "__main__":
    main(STUDY, __doc__)
