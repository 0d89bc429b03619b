"""Made-up results of the reproduction."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np

from elldict.theory import cramer_rao_bound, expected_error
from experiments.harness.store import DONE, Record, Store
from experiments.reproduction.catalogue import EXPERIMENTS
from experiments.reproduction.experiment import Size
from experiments.reproduction.figures.figure3 import ROUNDING
from experiments.reproduction.images import Source, pack
from experiments.reproduction.results import Results

expected_error, cramer_rao_bound = cache(expected_error), cache(cramer_rao_bound)
QUICK = Size(full=False, trials=1, source=Source.of(None))
FULL = Size(full=True, trials=1, source=Source.of(None))


def plausible(cell, factor=1.0):
    """Return values as a run might give them: theory times a factor."""
    setting, options = dict(cell.setting), dict(cell.options)
    if cell.task == "population":
        factor = setting["density"] if cell.method == "power" else 0.8
        n_steps = int(np.log(ROUNDING) / np.log(factor)) + 2
        return {"errors": [float(factor ** max(t - 2, 0)) for t in range(n_steps)]}
    if cell.task == "images":
        error = {"top-k": 0.2, "pca": 0.33}.get(cell.method, 0.08 * options.get("p", 3)) * factor
        strip = pack(np.linspace(0, 1, 640, dtype=np.float32).reshape(10, 64))
        pictures = dict.fromkeys(("shown", "first_shown", "originals"), strip)
        numbers = {"errors": [error] * 10, "error": error, "first_error": 0.5, "n_iter": 3, "at_limit": False}
        recognised = {"recognised": 1 - error, "first_recognised": 0.5, "originals_recognised": 0.95}
        return {**numbers, **recognised, **pictures}
    p = options.get("p", {"ksvd": 8, "rtr": 2.5}.get(cell.method, 2.2))
    known = {name: setting.get(name, 0.0) for name in ("n_features", "n_samples", "density", "noise_std")}
    error = 1.05 * cramer_rao_bound(**known) if cell.method == "default" else expected_error(p, **known)
    return {"error": min(error * factor, 0.9), "n_iter": 10, "warnings": []}


@cache
def list_cells(name, size):
    return tuple(EXPERIMENTS[name].cells(size))


def make_results(name, size, values=plausible, seconds=lambda cell: 1.0):
    """Store values for all cells of an experiment; None leaves a cell out."""
    store = Store(Path("nowhere"))
    for cell in list_cells(name, size):
        made = {"seconds": 1.5, "fit_seconds": seconds(cell), "machine": "a machine"}
        if (found := values(cell)) is not None:
            store.records[cell.key] = Record(cell.identity, DONE, found, "", made)
    return Results(store)
