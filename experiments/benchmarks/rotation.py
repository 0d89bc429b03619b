"""Varimax of elldict, scikit-learn and factor_analyzer; values of the criterion compared with R's GPArotation.

python -m experiments.benchmarks.rotation                 # 6 minutes

Times are those of the processor, on one thread, without standard errors, which the others do not compute. Rows are not
normalised, so that all maximise the same criterion, from the unrotated loadings. GPArotation (GPForth, projected
gradient below 1e-7) was run on its own examples from ten starts each; results/gparotation.jsonl has its values.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
from sklearn.decomposition._factor_analysis import _ortho_rotation

from elldict import rotate
from elldict.solver.starts import draw_start
from experiments import BENCHMARK_RESULTS
from experiments.benchmarks.data import SETS
from experiments.benchmarks.study import Cell, Matrix, Row, Study, draw_rotation, group, main, write_table
from experiments.harness.store import Store
from experiments.peers.base import required

PATCHES, GPAROTATION = "china.jpg, 8x8 patches", "GPArotation"
EXAMPLES = ("Harman8", "NetherlandsTV", "ability", "box20", "box26")


def rotate_by_factor_analyzer(L: Matrix) -> Matrix:
    """Rotate with factor_analyzer."""
    rotator = required("factor_analyzer.rotator", "factor_analyzer").Rotator(method="varimax", normalize=False)
    return np.asarray(rotator.fit_transform(L.copy()))


METHODS: dict[str, Callable[[Matrix], Matrix]] = {
    "elldict": lambda L: rotate(L, normalize=False, n_init=1, standard_errors=False).loadings,
    "scikit-learn": lambda L: np.asarray(_ortho_rotation(L.copy(), method="varimax").T),
    "factor_analyzer": rotate_by_factor_analyzer,
}


def make_loadings(name: str, n_rows: int, k: int) -> Matrix:
    """Draw loadings a fifth of which are not small, or compute the first singular vectors of a set."""
    if name != "simulated":
        X = SETS[name].load()
        return np.ascontiguousarray(np.linalg.svd(X - np.mean(X, axis=0), full_matrices=False)[0][:, :k])
    rng = np.random.default_rng(0)
    simple = rng.laplace(size=(n_rows, k)) * (rng.random((n_rows, k)) < 0.2) * np.linspace(1, 0.5, k)
    return np.asarray((simple + 0.1 * rng.standard_normal((n_rows, k))) @ draw_rotation(k, rng))


def measure_criterion(Z: Matrix, criterion: str = "varimax") -> float:
    """Measure varimax or quartimax of rotated loadings (p, k)."""
    centre = np.sum(np.sum(Z**2, axis=0) ** 2) / len(Z) if criterion == "varimax" else 0.0
    return float(np.sum(Z**4) - centre)


def measure(cell: Cell) -> Row:
    """Rotate; measure seconds and the criterion. Of GPArotation's examples, compare all stored values."""
    if cell["method"] == GPAROTATION:
        found = [compare(row, L) for row, L in read_gparotation() if row["loadings"] == cell["loadings"]]
        return {"n_starts": len(found), "least": min(found), "largest": max(found)}
    L = make_loadings(cell["loadings"], cell["rows"], cell["factors"])
    began = time.process_time()
    Z = METHODS[cell["method"]](L)
    return {"seconds": time.process_time() - began, "criterion": measure_criterion(Z)}


def read_gparotation() -> list[tuple[Row, Matrix]]:
    """Read the values that GPArotation found, with the unrotated loadings."""
    rows = [record.row for record in Store(BENCHMARK_RESULTS / "gparotation.jsonl").records.values()]
    loadings = {row["loadings"]: np.array(row["unrotated"]) for row in rows if row["start"] == 0}
    return [(row, loadings[row["loadings"]]) for row in rows]


def compare(row: Row, L: Matrix) -> float:
    """Compute the criterion that elldict finds from the start of a stored row, minus that of GPArotation."""
    rng, k = np.random.default_rng(0), L.shape[1]
    start = [np.eye(k), *(draw_start(k, k, rng) for _ in range(row["start"]))][-1]  # the first one is no rotation
    options: Any = {"normalize": row["normalize"], "n_init": 1, "tol": 1e-6, "standard_errors": False}
    Z = rotate(L @ start, row["criterion"], **options).loadings
    Z = Z / np.linalg.norm(Z, axis=1, keepdims=True) if row["normalize"] else Z
    return measure_criterion(Z, row["criterion"]) - float(row["theirs"])


def tabulate(rows: list[Row]) -> str:
    """Write times and criteria; then differences from GPArotation."""
    lines: list[list[str]] = []
    found = [row for row in rows if row["method"] == GPAROTATION]
    others = [row for row in rows if row["method"] != GPAROTATION]
    for (name, n_rows, k), same in group(others, "loadings", "rows", "factors").items():
        own = same[0]  # elldict
        for row in same:
            ratio, relative = row["seconds"] / own["seconds"], row["criterion"] / own["criterion"] - 1
            place = [f"{name}, {n_rows} x {k}", row["method"]]
            lines.append([*place, f"{row['seconds']:.2f}", f"{ratio:.1f}", f"{relative:.1e}"])
    head = ["loadings", "method", "processor seconds", "times that of elldict", "criterion, relative to elldict"]
    text = write_table(head, lines)
    if found:
        least, largest = min(row["least"] for row in found), max(row["largest"] for row in found)
        text += (
            f"\nGPArotation, {sum(row['n_starts'] for row in found)} fits to its own examples: the criterion of "
            f"elldict minus that of GPArotation is between {least:.1e} and {largest:.1e}.\n"
        )
    return text


PROBLEMS = [("simulated", 20_000, k) for k in (50, 100, 200)] + [(PATCHES, 22_000, k) for k in (10, 30, 60)]
SIMULATED: Cell = {"loadings": "simulated", "rows": 2000, "factors": 10}
CELLS: list[Cell] = [
    {"loadings": L, "rows": p, "factors": k, "method": name} for L, p, k in PROBLEMS for name in METHODS
]
CELLS += [{"loadings": name, "method": GPAROTATION} for name in EXAMPLES]
SMALL = [*({**SIMULATED, "method": method} for method in METHODS), CELLS[-1]]
STUDY = Study("rotation", 6, measure, tabulate, CELLS, SMALL, packages=("factor_analyzer",))

if __name__ == "__main__":
    main(STUDY, __doc__)
