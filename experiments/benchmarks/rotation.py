"""Varimax: seconds and values of the criterion beside scikit-learn's rotation and factor_analyzer's.

python -m experiments.benchmarks.rotation                        # simulated loadings
python -m experiments.benchmarks.rotation --data FILE            # and singular vectors of X in a .npz or .npy file
python -m experiments.benchmarks.rotation --columns 50 100       # other numbers of factors than 50 100 200
python -m experiments.benchmarks.rotation --stored               # the table of what is stored in results/rotation.jsonl

One start, no rotation, for all. All have one thread and the settings of their users; standard errors are not among
what is timed, because peers have none. Rows are not normalised, so that all maximise the same criterion. Seconds are of
the processor: those of the wall clock mean little on a machine that does other work. The table is in Markdown.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.decomposition._factor_analysis import _ortho_rotation

from elldict.blas import one_blas_thread
from elldict.rotation.rotator import rotate
from elldict.solver.starts import draw_start
from experiments import BENCHMARK_RESULTS
from experiments.benchmarks.real.sets import read_array
from experiments.harness.machine import made_by
from experiments.harness.store import DONE, Record, Store
from experiments.peers.base import required

RESULTS = BENCHMARK_RESULTS / "rotation.jsonl"
N_ROWS = 20_000
COLUMNS = (50, 100, 200)
Matrix = NDArray[np.float64]
HEAD = (
    "| loadings | factors | method | processor seconds | times elldict's | criterion, relative to elldict's |\n"
    + "| --- " * 6
    + "|"
)


def rotate_by_elldict(L: Matrix) -> Matrix:
    return rotate(L, normalize=False, n_init=1, standard_errors=False).loadings


def rotate_by_scikit_learn(L: Matrix) -> Matrix:
    """Its function takes loadings and returns them transposed."""
    return np.asarray(_ortho_rotation(L.copy(), method="varimax").T)


def rotate_by_factor_analyzer(L: Matrix) -> Matrix:
    rotator = required("factor_analyzer.rotator", "factor_analyzer").Rotator(method="varimax", normalize=False)
    return np.asarray(rotator.fit_transform(L.copy()))


METHODS: dict[str, Callable[[Matrix], Matrix]] = {
    "elldict": rotate_by_elldict,
    "scikit-learn": rotate_by_scikit_learn,
    "factor_analyzer": rotate_by_factor_analyzer,
}


def measure_varimax(Z: Matrix) -> float:
    return float(np.sum(Z**4) - np.sum(np.sum(Z**2, axis=0) ** 2) / len(Z))


def simulate(k: int) -> Matrix:
    """A fifth of the loadings is not small, and factors differ in size by two."""
    rng = np.random.default_rng(0)
    simple = rng.laplace(size=(N_ROWS, k)) * (rng.random((N_ROWS, k)) < 0.2) * np.linspace(1, 0.5, k)
    return np.asarray((simple + 0.1 * rng.standard_normal((N_ROWS, k))) @ draw_start(k, k, rng))


def list_problems(data: Path | None, columns: Sequence[int]) -> Iterator[tuple[str, Matrix]]:
    if data is not None:
        X = read_array(data)[:N_ROWS]
        U = np.linalg.svd(X - np.mean(X, axis=0), full_matrices=False)[0]
        for k in columns:
            yield f"singular vectors of {data.stem}", np.ascontiguousarray(U[:, :k])
    for k in columns:
        yield "simulated", simulate(k)


def run(problems: Iterator[tuple[str, Matrix]], store: Store) -> None:
    machine = made_by(1, ("factor_analyzer",))
    for name, L in problems:
        for method, function in METHODS.items():
            with one_blas_thread():
                began, wall = time.process_time(), time.perf_counter()
                Z = function(L)
                seconds, wall = time.process_time() - began, time.perf_counter() - wall
            cell = {"loadings": name, "rows": len(L), "factors": L.shape[1], "method": method}
            values = {"criterion": measure_varimax(Z), "processor_seconds": seconds}
            store.add(Record(cell, DONE, values, "", {"seconds": wall, "made_by": machine}))


def print_rows(store: Store) -> None:
    groups: dict[tuple[str, int], dict[str, dict[str, Any]]] = {}
    for record in store.records.values():
        row = record.row
        groups.setdefault((row["loadings"], row["factors"]), {})[row["method"]] = row
    print(HEAD)
    for (name, factors), methods in sorted(groups.items()):
        own = methods["elldict"]
        for method in METHODS:
            seconds, criterion = methods[method]["processor_seconds"], methods[method]["criterion"]
            ratio, relative = seconds / own["processor_seconds"], criterion / own["criterion"] - 1
            print(f"| {name} | {factors} | {method} | {seconds:.2f} | {ratio:.1f} | {relative:.1e} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, help="a .npy file, or a .npz file with an array X, one sample a row")
    parser.add_argument("--columns", type=int, nargs="+", default=COLUMNS, help="numbers of factors")
    parser.add_argument("--stored", action="store_true", help="run nothing, print what is stored")
    options = parser.parse_args()
    store = Store(RESULTS)
    if not options.stored:
        with store.writing():
            run(list_problems(options.data, options.columns), store)
    print_rows(store)


if __name__ == "__main__":
    main()
