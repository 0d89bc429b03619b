"""Varimax of elldict, scikit-learn and factor_analyzer; values of the criterion compared with R's GPArotation.

python -m experiments.benchmarks.rotation                 # 6 minutes
python -m experiments.benchmarks.rotation --run-r         # GPArotation again; needs R with r-cran-gparotation

Times are those of the processor, on one thread, without standard errors, which the others do not compute. Rows are not
normalised, so that all maximise the same criterion, from the unrotated loadings. GPArotation was run on its own
examples, ten starts each, to a projected gradient of 1e-7; its values are stored in results/gparotation.jsonl.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.decomposition._factor_analysis import _ortho_rotation

from elldict import rotate
from elldict.solver.starts import draw_start
from experiments import BENCHMARK_RESULTS
from experiments.benchmarks.data import SETS
from experiments.benchmarks.study import Cell, Matrix, Row, Study, draw_rotation, group, main, write_table
from experiments.harness.store import DONE, Record, Store
from experiments.peers.base import required

N_ROWS = 20_000
GPAROTATION = BENCHMARK_RESULTS / "gparotation.jsonl"
SCRIPT = Path(__file__).with_name("gparotation.R")
N_STARTS = 10


def rotate_by_factor_analyzer(L: Matrix) -> Matrix:
    """Rotate with factor_analyzer."""
    rotator = required("factor_analyzer.rotator", "factor_analyzer").Rotator(method="varimax", normalize=False)
    return np.asarray(rotator.fit_transform(L.copy()))


METHODS: dict[str, Callable[[Matrix], Matrix]] = {
    "elldict": lambda L: rotate(L, normalize=False, n_init=1, standard_errors=False).loadings,
    "scikit-learn": lambda L: np.asarray(_ortho_rotation(L.copy(), method="varimax").T),
    "factor_analyzer": rotate_by_factor_analyzer,
}


def draw_loadings(n_rows: int, k: int) -> Matrix:
    """Draw loadings a fifth of which are not small, of factors whose sizes differ by two."""
    rng = np.random.default_rng(0)
    simple = rng.laplace(size=(n_rows, k)) * (rng.random((n_rows, k)) < 0.2) * np.linspace(1, 0.5, k)
    return np.asarray((simple + 0.1 * rng.standard_normal((n_rows, k))) @ draw_rotation(k, rng))


def load_vectors(name: str, k: int) -> Matrix:
    """Compute the first singular vectors of the samples of a set."""
    X = SETS[name].load()
    return np.ascontiguousarray(np.linalg.svd(X - np.mean(X, axis=0), full_matrices=False)[0][:, :k])


def measure_criterion(Z: Matrix, criterion: str = "varimax") -> float:
    """Measure varimax or quartimax of rotated loadings (p, k)."""
    centre = np.sum(np.sum(Z**2, axis=0) ** 2) / len(Z) if criterion == "varimax" else 0.0
    return float(np.sum(Z**4) - centre)


def measure(cell: Cell) -> Row:
    """Rotate; measure seconds and the criterion. Of GPArotation's examples, compare all stored values."""
    if cell["method"] == "GPArotation":
        found = [
            (compare(row, L) - theirs, theirs)
            for row, L, theirs in read_gparotation()
            if row["loadings"] == cell["loadings"]
        ]
        return {"n_starts": len(found), "least": min(d for d, _ in found), "largest": max(d for d, _ in found)}
    k = cell["factors"]
    L = draw_loadings(cell["rows"], k) if cell["loadings"] == "simulated" else load_vectors(cell["loadings"], k)
    began = time.process_time()
    Z = METHODS[cell["method"]](L)
    return {"seconds": time.process_time() - began, "criterion": measure_criterion(Z)}


# GPArotation


def make_starts(k: int) -> list[Matrix]:
    """Draw the starts (k, k): no rotation, then random ones."""
    rng = np.random.default_rng(0)
    return [np.eye(k), *(draw_start(k, k, rng) for _ in range(N_STARTS - 1))]


def measure_rotated(Z: Matrix, cell: Cell) -> float:
    """Measure the criterion of a cell, of normalised rows if asked for."""
    return measure_criterion(
        Z / np.linalg.norm(Z, axis=1, keepdims=True) if cell["normalize"] else Z, cell["criterion"]
    )


def read_gparotation() -> list[tuple[Row, Matrix, float]]:
    """Read cells, unrotated loadings, and the values that GPArotation found."""
    rows = [record.row for record in Store(GPAROTATION).records.values()]
    loadings = {row["loadings"]: np.array(row["unrotated"]) for row in rows if row["start"] == 0}
    return [(row, loadings[row["loadings"]], row["theirs"]) for row in rows]


def compare(row: Row, L: Matrix) -> float:
    """Compute the value that elldict finds from the start of a stored row."""
    options: Any = {"normalize": row["normalize"], "n_init": 1, "tol": 1e-6, "standard_errors": False}
    found = rotate(L @ make_starts(L.shape[1])[row["start"]], row["criterion"], **options)
    return measure_rotated(found.loadings, row)


def call_r(folder: Path, lines: list[str]) -> list[str]:
    """Run the script in R; return the versions of R and GPArotation."""
    command = ["Rscript", "--vanilla", str(SCRIPT), str(folder)]
    done = subprocess.run(
        command, input="".join(f"{line}\n" for line in lines), capture_output=True, text=True, check=True
    )
    return done.stdout.splitlines()[-2:]


def run_r(store: Store) -> None:
    """Rotate the examples of GPArotation in R, and store the values it finds."""
    with tempfile.TemporaryDirectory() as name, store.writing():
        folder, cells, lines = Path(name), [], []
        call_r(folder, [])
        examples = {path.stem: np.loadtxt(path, delimiter=",", ndmin=2) for path in sorted(folder.glob("*.csv"))}
        for example, L in examples.items():
            for number, start in enumerate(make_starts(k := L.shape[1])):
                np.savetxt(folder / f"start{k}-{number}.csv", start, delimiter=",", fmt="%.17g")
                for criterion, normalize in product(("varimax", "quartimax"), (False, True)):
                    files = f"{example}.csv start{k}-{number}.csv"
                    lines.append(f"{files} {criterion} {int(normalize)} {len(lines)}.out")
                    cells.append({"loadings": example, "criterion": criterion, "normalize": normalize, "start": number})
        versions = call_r(folder, lines)
        for number, cell in enumerate(cells):
            Z = np.loadtxt(folder / f"{number}.out", delimiter=",", ndmin=2)
            more = {"unrotated": examples[cell["loadings"]].tolist()} if cell["start"] == 0 else {}
            store.add(Record(cell, DONE, {"theirs": measure_rotated(Z, cell), **more}, "", {"made_by": versions}))


def tabulate(rows: list[Row]) -> str:
    """Write times and criteria; then differences from GPArotation."""
    lines, found = [], [row for row in rows if row["method"] == "GPArotation"]
    for (name, n_rows, k), others in group(
        (row for row in rows if row not in found), "loadings", "rows", "factors"
    ).items():
        own = next((row for row in others if row["method"] == "elldict"), None)
        for row in others if own else []:
            ratio, relative = row["seconds"] / own["seconds"], row["criterion"] / own["criterion"] - 1
            lines.append(
                [f"{name}, {n_rows} x {k}", row["method"], f"{row['seconds']:.2f}", f"{ratio:.1f}", f"{relative:.1e}"]
            )
    head = ["loadings", "method", "processor seconds", "times elldict's", "criterion, relative to elldict's"]
    text = write_table(head, lines)
    if found:
        least, largest = min(row["least"] for row in found), max(row["largest"] for row in found)
        n_starts = sum(row["n_starts"] for row in found)
        text += (
            f"\nGPArotation, {n_starts} starts on its own {len(found)} examples: the criterion of elldict minus "
            f"that of GPArotation is between {least:.1e} and {largest:.1e}.\n"
        )
    return text


EXAMPLES = ("Harman8", "NetherlandsTV", "ability", "box20", "box26")
PATCHES = "china.jpg, 8x8 patches"
STUDY = Study(
    name="rotation",
    minutes=6,
    cells=[
        *(
            {"loadings": name, "rows": rows, "factors": k, "method": method}
            for name, rows, columns in (("simulated", N_ROWS, (50, 100, 200)), (PATCHES, 22_000, (10, 30, 60)))
            for k in columns
            for method in METHODS
        ),
        *({"loadings": name, "method": "GPArotation"} for name in EXAMPLES),
    ],
    small=[
        *({"loadings": "simulated", "rows": 2000, "factors": 10, "method": method} for method in METHODS),
        {"loadings": "Harman8", "method": "GPArotation"},
    ],
    measure=measure,
    tabulate=tabulate,
    packages=("factor_analyzer",),
)

if __name__ == "__main__":
    if "--run-r" in sys.argv:
        run_r(Store(GPAROTATION))
    else:
        main(STUDY, __doc__)
