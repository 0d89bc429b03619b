"""Stability: components called stable on half of the samples, and how many of them the other half has as well.

python -m experiments.benchmarks.stability          # the digits, 3 minutes

A random half of the samples is given to `elldict.stability`. A component is found in the other half if a fit to it has
one whose cosine with it, in the space of the features, is above 0.9.
"""

from __future__ import annotations

import numpy as np

from elldict import LpDictionaryLearning, Stability, stability
from elldict.metrics import match_atoms
from experiments.benchmarks import study
from experiments.benchmarks.data import SETS
from experiments.benchmarks.study import Cell, Matrix, Row, Study

FOUND = 0.9
PATH = (5, 10, 15, 20, 25, 30, 35, 40)


def find_path(X: Matrix, path: tuple[int, ...], n_splits: int) -> Stability:
    """Compute the stability of components for several numbers of them."""
    model = LpDictionaryLearning(whiten=True, center=True)
    return stability(model, X, n_components=path, n_splits=n_splits, random_state=0)


def measure(cell: Cell) -> Row:
    """Count stable components of a half, those of them found in the other half, and all found there."""
    X, path = SETS["handwritten digits"].load(), tuple(cell["path"])
    order = np.random.default_rng(cell["seed"]).permutation(len(X))
    half, other = np.sort(order[: len(X) // 2]), np.sort(order[len(X) // 2 :])
    result, seconds = study.time_it(lambda: find_path(X[half], path, cell["splits"]))
    counts = []
    for k, mixing, values in zip(path, result.mixing, result.values, strict=True):
        model, _ = study.time_it(lambda: LpDictionaryLearning(k, whiten=True, center=True).fit(X[other]))  # noqa: B023
        is_found = match_atoms(mixing.T, model.components_).cosines > FOUND
        is_stable = values >= 0.9
        counts.append([np.sum(is_stable), np.sum(is_stable & is_found), np.sum(is_found)])
    return {"counts": counts, "seconds": seconds}


def tabulate(rows: list[Row]) -> str:
    """Write counts summed over halves, one line per number of components."""
    text = ""
    for (path, splits), found in study.group(
        ({**row, "path": tuple(row["path"])} for row in rows), "path", "splits"
    ).items():
        counts = np.sum([row["counts"] for row in found], axis=0)
        lines = [
            [
                name,
                str(stable),
                str(both),
                study.show_share(both / stable if stable else None),
                f"{n_found} of {len(found) * k}",
            ]
            for name, k, (stable, both, n_found) in zip(
                [*map(str, path), "all"], [*path, sum(path)], [*counts, np.sum(counts, axis=0)], strict=True
            )
        ]
        head = ["n_components", "stable", "of these found in the other half", "fraction", "all components: found"]
        seconds = study.show_time(float(np.median([row["seconds"] for row in found])))
        n_fits = len(path) * (1 + 2 * splits)
        text += (
            study.write_table(head, lines) + f"\nSums over {len(found)} random halves; {n_fits} fits took {seconds}.\n"
        )
    return text


CELLS = [{"path": list(PATH), "splits": 10, "seed": seed} for seed in range(3)]
SMALL = [{"path": [5, 10], "splits": 2, "seed": 0}]
STUDY = Study("stability", 3, measure, tabulate, CELLS, SMALL)

if __name__ == "__main__":
    study.main(STUDY, __doc__)
