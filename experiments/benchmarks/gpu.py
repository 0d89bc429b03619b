"""Fits on a GPU compared with NumPy: tensors, and NumPy arrays that `open_samples` moves to the device.

python -m experiments.benchmarks.gpu              # needs torch and an NVIDIA GPU; without one, it says so and ends

Bernoulli-Gaussian codes of density 0.1 in float32; NumPy has one thread. Times are medians of three fits, until the
device is idle, after a first fit that loads libraries.
"""

from __future__ import annotations

import importlib.util
from typing import Any

import numpy as np

from elldict import LpDictionaryLearning, open_samples
from elldict.metrics import match_atoms
from experiments.benchmarks.study import (
    Cell,
    Row,
    Study,
    draw_model,
    group,
    main,
    show_error,
    show_time,
    time_it,
    write_table,
)
from experiments.peers.base import required

PLACES = ("NumPy", "open_samples", "tensor")


def find_gpu() -> Any:
    """Return torch if it finds a GPU."""
    if importlib.util.find_spec("torch") is None:
        return None
    torch = required("torch", "torch")
    return torch if torch.cuda.is_available() else None


def measure(cell: Cell) -> Row:
    """Fit the same samples in one place."""
    torch, place = find_gpu(), cell["place"]
    if torch is None and place != "NumPy":
        raise RuntimeError("torch finds no GPU")
    X, dictionary = draw_model(cell, density=0.1)
    on_device: Any = {"device": "cuda"}
    samples = torch.tensor(X, device="cuda") if place == "tensor" else X

    def fit() -> Any:
        moved = open_samples(X, **on_device) if place == "open_samples" else samples
        model = LpDictionaryLearning(error_bars=False).fit(moved)
        if torch is not None:
            torch.cuda.synchronize()
        return model

    model, first = time_it(fit)
    seconds = np.median([time_it(fit)[1] for _ in range(3)])
    atoms = model.components_.cpu() if place == "tensor" else model.components_
    cosines = match_atoms(np.asarray(atoms), dictionary).cosines
    return {"first": first, "seconds": seconds, "error": 1 - np.mean(cosines**4), "found": np.sum(cosines > 0.9)}


def tabulate(rows: list[Row]) -> str:
    """Write one line per problem."""
    lines: list[list[str]] = []
    for (n, r, noise), found in group(rows, "n", "r", "noise").items():
        by_place, last = {row["place"]: row for row in found}, found[-1]
        times = [show_time(by_place[place]["seconds"]) if place in by_place else "-" for place in PLACES]
        error = [show_error(last["error"], 1e-6), f"{last['found']} of {n}"]
        lines.append([f"{n}", f"{r}", f"{noise:g}", *times, show_time(last["first"]), *error])
    return write_table(["n", "r", "noise", *PLACES, "first fit", "error", "atoms found"], lines)


SIZES = ((100, 40_000, 0.0), (100, 1_000_000, 0.2), (400, 160_000, 0.0), (1024, 400_000, 0.2), (4096, 1_000_000, 0.0))
PROBLEMS = [{"n": n, "r": r, "noise": noise} for n, r, noise in SIZES]
CELLS = [{**cell, "place": place} for cell in PROBLEMS for place in PLACES if place != "NumPy" or cell["n"] < 1024]
SMALL = [{"n": 16, "r": 4000, "noise": 0.0, "place": place} for place in PLACES]
STUDY = Study("gpu", 10, measure, tabulate, CELLS, SMALL, packages=("torch",))

if __name__ == "__main__":
    if find_gpu() is None:
        print("torch finds no GPU: nothing is measured.")
    else:
        main(STUDY, __doc__)
