"""Fits on a GPU compared with NumPy: tensors, and NumPy arrays that `open_samples` moves to the device.

python -m experiments.benchmarks.gpu              # needs torch and an NVIDIA GPU; without one, it says so and ends

Bernoulli-Gaussian codes of density 0.1 in float32. Times are medians of three fits, until
the device is idle, after a first fit that loads libraries.
"""

from __future__ import annotations

import importlib.util
from typing import Any

import numpy as np

from elldict import LpDictionaryLearning, open_samples
from elldict.datasets import make_bernoulli_gaussian
from elldict.metrics import match_atoms
from experiments.benchmarks.study import Cell, Row, Study, group, main, show_error, show_time, time_it, write_table
from experiments.peers.base import required

PLACES = ("NumPy", "open_samples", "tensor")
MOST_NUMPY = 2e8  # entries of samples that are also fitted by NumPy


def find_gpu() -> Any:
    """Return torch if it finds a GPU."""
    if importlib.util.find_spec("torch") is None:
        return None
    torch = required("torch", "torch")
    return torch if torch.cuda.is_available() else None


def measure(cell: Cell) -> Row:
    """Fit the same samples in one place."""
    torch = find_gpu()
    if torch is None and cell["place"] != "NumPy":
        raise RuntimeError("torch finds no GPU")
    options: Any = {"density": 0.1, "noise_std": cell["noise"], "dtype": "float32", "random_state": 0}
    X, dictionary, _ = make_bernoulli_gaussian(cell["r"], cell["n"], **options)

    def fit() -> LpDictionaryLearning:
        samples: Any = X
        if cell["place"] == "open_samples":
            samples = open_samples(X, **{"device": "cuda"})
        elif cell["place"] == "tensor":
            samples = tensor
        model = LpDictionaryLearning(error_bars=False).fit(samples)
        if torch is not None:
            torch.cuda.synchronize()
        return model

    tensor = torch.tensor(X, device="cuda") if cell["place"] == "tensor" else None
    model, first = time_it(fit)
    times = [time_it(fit)[1] for _ in range(3)]
    atoms = np.asarray(model.components_.cpu() if cell["place"] == "tensor" else model.components_)
    match = match_atoms(atoms, dictionary)
    return {
        "first": first,
        "seconds": np.median(times),
        "error": 1 - np.mean(match.cosines**4),
        "found": np.sum(match.cosines > 0.9),
        "passes": model.n_passes_,
    }


def tabulate(rows: list[Row]) -> str:
    """Write one line per problem."""
    lines = []
    for (n, r, noise), found in group(rows, "n", "r", "noise").items():
        by_place = {row["place"]: row for row in found}
        times = [show_time(by_place[place]["seconds"]) if place in by_place else "-" for place in PLACES]
        last = found[-1]
        atoms = f"{last['found']} of {n}"
        first = show_time(last["first"])
        lines.append([f"{n}", f"{r}", f"{noise:g}", *times, first, show_error(last["error"], 1e-6), atoms])
    return write_table(["n", "r", "noise", *PLACES, "first fit", "error", "atoms found"], lines)


SIZES = ((100, 40_000, 0.0), (100, 1_000_000, 0.2), (400, 160_000, 0.0), (1024, 400_000, 0.2), (4096, 1_000_000, 0.0))
CELLS = [
    {"n": n, "r": r, "noise": noise, "place": place}
    for n, r, noise in SIZES
    for place in PLACES
    if place != "NumPy" or n * r < MOST_NUMPY
]
SMALL = [{"n": 16, "r": 4000, "noise": 0.0, "place": place} for place in PLACES]
STUDY = Study("gpu", 10, measure, tabulate, CELLS, SMALL, packages=("torch",))

if __name__ == "__main__":
    if find_gpu() is None:
        print("torch finds no GPU: nothing is measured.")
    else:
        main(STUDY, __doc__)
