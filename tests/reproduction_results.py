"""Made-up results of the reproduction, for tests of what is made of them."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np

from elldict.theory import cramer_rao_bound, expected_error
from experiments.harness.store import DONE, Record, Store
from experiments.reproduction.catalogue import EXPERIMENTS
from experiments.reproduction.experiment import Size
from experiments.reproduction.figures.figure3 import ROUNDING
from experiments.reproduction.images import Source, packed
from experiments.reproduction.results import Results

expected_error, cramer_rao_bound = cache(expected_error), cache(cramer_rao_bound)  # the same few thousand, many times
QUICK = Size(full=False, trials=1, source=Source.of(None))
MADE = {"seconds": 1.5, "fit_seconds": 1.2, "machine": "a machine"}


def plausible(cell, factor=1.0):
    """Values as a run might give them: theory times a factor."""
    setting, options = dict(cell.setting), dict(cell.options)
    if cell.task == "population":
        falls = setting["density"] if cell.method == "power" else 0.8
        n_steps = int(np.log(ROUNDING) / np.log(falls)) + 2
        return {"errors": [float(falls ** max(t - 2, 0)) for t in range(n_steps)]}
    if cell.task == "images":
        error = {"top-k": 0.28, "pca": 0.33}.get(cell.method, 0.1 * options.get("p", 3)) * factor
        strip = packed(np.linspace(0, 1, 640, dtype=np.float32).reshape(10, 64))
        pictures = dict.fromkeys(("shown", "first_shown", "originals"), strip)
        numbers = {"errors": [error] * 10, "error": error, "first_error": 0.5, "n_iter": 3, "at_limit": False}
        told = {"recognised": 1 - error, "first_recognised": 0.5, "originals_recognised": 0.95}
        return {**numbers, **told, **pictures}
    p = options.get("p", {"ksvd": 8, "rtr": 2.5}.get(cell.method, 2.2))
    known = {name: setting.get(name, 0.0) for name in ("n_features", "n_samples", "density", "noise_std")}
    error = 0.0 if cell.method == "annealed" else expected_error(p, **known) * factor
    if cell.method == "default":
        error = 1.05 * cramer_rao_bound(**known) * factor
    return {"error": min(error, 0.9), "n_iter": 10, "warnings": []}


@cache
def stored_cells(name, size):
    return tuple(EXPERIMENTS[name].cells(size))


def results_of(name, size, values=plausible, keep=lambda cell: True, tmp=Path("nowhere")):
    store = Store(tmp / "results.jsonl")
    for cell in stored_cells(name, size):
        if keep(cell):
            store.records[cell.key] = Record(cell.identity, DONE, values(cell), "", MADE)
    return Results(store)
