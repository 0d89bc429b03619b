"""Error over the Cramer-Rao bound, by noise, density and number of samples; exact recovery; corrupted entries.

python -m experiments.benchmarks.limit                   # 12 minutes
python -m experiments.benchmarks.limit --only "n 32"

Bernoulli-Gaussian codes in an orthogonal dictionary. Errors are 1 - cos^4, means over 10 data sets. Without noise the
question is how many fits are exact (error below 1e-9); there is no bound for corrupted entries.
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

METHODS: dict[str, Callable[[int], Any]] = {
    "default": lambda seed: LpDictionaryLearning(random_state=seed),
    "l_3": lambda seed: LpDictionaryLearning(refine=None, error_bars=False, random_state=seed),
    "FastICA": lambda seed: peers.FastICA(random_state=seed),
    "sparse-corruption": lambda seed: LpDictionaryLearning(refine="sparse-corruption", random_state=seed),
}


def list_cells() -> list[Cell]:
    """List settings, each with its methods."""
    levels, sizes = (0.1, 0.2, 0.4, 0.6), ((32, 10_000), (100, 40_000))
    plain: list[Any] = [(n, r, density, noise) for n, r in sizes for density in (0.1, 0.3) for noise in levels]
    plain += [(32, r, 0.3, 0.2) for r in (320, 640, 1280, 2560, 40_000)]
    plain += [(100, 20_000, density, 0.0) for density in (0.1, 0.3, 0.5)]
    plain += [(20, 8000, 0.02, 0.0), *((n, per * n, 0.3, 0.0) for n in (30, 80) for per in (6, 10, 20))]
    settings = [(*setting, 0.0, method) for setting in plain for method in ("default", "l_3", "FastICA")]
    corrupted = [(32, 10_000, 0.3, noise, size) for noise, size in ((0.0, 0.5), (0.0, 1.5), (0.1, 1.0))]
    settings += [(*setting, method) for setting in corrupted for method in ("default", "l_3", "sparse-corruption")]
    names = ("n", "r", "density", "noise", "corruption", "method")
    return [{**dict(zip(names, values, strict=True)), "seeds": 10} for values in settings]


def measure(cell: Cell) -> Row:
    """Fit some data sets; measure errors, error bars and seconds."""
    errors, stated, times = [], [], []
    for seed in range(cell["seeds"]):
        X, dictionary = study.draw_model(cell, seed, dtype="float64")
        model, seconds = study.time_it(lambda: METHODS[cell["method"]](seed).fit(X))  # noqa: B023  called at once
        errors.append(max(recovery_error(model.components_, dictionary), 0.0))
        stated.append(float(getattr(model, "expected_error_", np.nan)))
        times.append(seconds)
    exact = np.mean(np.array(errors) < study.EXACT)
    return {"error": np.mean(errors), "stated": np.mean(stated), "exact": exact, "seconds": np.median(times)}


def find_bound(row: Row) -> float:
    """Compute the Cramer-Rao bound; 0 without noise, NaN if there is corruption."""
    if row["corruption"]:
        return float("nan")
    setting = {"n_features": row["n"], "n_samples": row["r"], "density": row["density"], "noise_std": row["noise"]}
    return cramer_rao_bound(**setting) if row["noise"] else 0.0


def tabulate(rows: list[Row]) -> str:
    """Write one line per setting, errors in per cent."""
    lines: list[list[str]] = []
    for setting, found in study.group(rows, "n", "r", "density", "noise", "corruption").items():
        by_method, best = {row["method"]: row for row in found}, found[0]
        best, bound = by_method.get("sparse-corruption", best), find_bound(best)
        ratio = f"{best['error'] / bound:.3f}" if bound > 0 else "-"
        errors = [study.show_error(by_method[name]["error"] if name in by_method else None) for name in METHODS]
        exact = "-" if best["noise"] else study.show_share(best["exact"])
        seconds = ", ".join(f"{by_method[name]['seconds']:.2f}" for name in METHODS if name in by_method)
        bounds = [study.show_error(best["stated"]), study.show_error(bound if bound > 0 else None), ratio]
        lines.append([*(f"{value:g}" for value in setting), *errors, *bounds, exact, seconds])
    head = ["n", "r", "density", "noise", "corruption", *METHODS, "error bar", "bound", "error / bound", "exact fits"]
    return study.write_table([*head, "seconds, in this order"], lines)


CELLS = list_cells()
SMALL = [
    {"n": 8, "r": 1000, "density": 0.3, "noise": 0.2, "corruption": c, "method": method, "seeds": 2}
    for c, method in ((0.0, "default"), (0.0, "l_3"), (0.0, "FastICA"), (1.0, "sparse-corruption"))
]
STUDY = Study("limit", 12, measure, tabulate, CELLS, SMALL)

if __name__ == "__main__":
    study.main(STUDY, __doc__)
