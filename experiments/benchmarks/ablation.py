"""Ablation study: the complete fit compared with fits that leave out one part each.

python -m experiments.benchmarks.ablation                  # 20 minutes
python -m experiments.benchmarks.ablation --only growth

Real data: number of sets whose held-out gain rises or falls by more than 1 %, and the median ratio of gains.
Synthetic codes: ratio of mean errors. A part is kept if leaving it out has a cost that users would notice.
"""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any
from unittest.mock import patch

import numpy as np

from elldict import atoms as core
from elldict.metrics import match_atoms
from elldict.samples.arrays import ArraySamples
from elldict.solver import density, select, steps
from experiments.benchmarks.data import SETS, measure_gain, split_set
from experiments.benchmarks.study import Cell, Matrix, Row, Study, draw_model, draw_rotation, main, write_table
from experiments.campaign.data_sets import VALUES

NOTICED = 0.01  # smallest relative difference of gains that is counted

Change = tuple[Any, str, Any]  # module, name in it, and what replaces it
WHOLE = "nothing"


def keep_pilots(*names: str) -> list[Change]:
    """Use these pilots only."""
    listed = select.list_pilots
    return [(core, "list_pilots", lambda *args, **kw: [pilot for pilot in listed(*args, **kw) if pilot.name in names])]


def choose_model_once() -> list[Change]:
    """Keep the model that was chosen together with the pilot."""
    chosen: list[select.Model] = []
    choose_candidate = select.choose_candidate

    def choose_and_note(*args: Any) -> select.Candidate:
        candidate = choose_candidate(*args)
        chosen.append(candidate.model)
        return candidate

    return [(core, "choose_candidate", choose_and_note), (core, "choose_model", lambda *_: chosen[-1])]


def weigh_equally(_: Any, counts: Matrix, grid: density.Grid) -> Matrix:  # noqa: ARG001
    """Return equal weights of all widths."""
    return np.full((1, grid.n_widths), 1 / grid.n_widths)


PLAIN = [(core, "list_models", lambda *_: [None])]
WITHOUT: dict[str, tuple[str, list[Change]]] = {
    "normalised samples": ("raw samples only", PLAIN),
    "second choice of the model": ("the model is chosen with initial densities only", choose_model_once()),
    "components away from zero": ("zero-mean components only", [(density, "N_ERRORS", 1e9)]),
    "l_1 pilot": ("l_3 and l_4 only", keep_pilots("l3", "l4")),
    "l_3 pilot": ("l_1 and l_4 only", keep_pilots("l1", "l4")),
    "l_4 pilot": ("l_1 and l_3 only", keep_pilots("l1", "l3")),
    "growth": ("all samples from the start", [(core, "PILOT_SAMPLES", 10**9)]),
    "longer pilot": ("the pilot ends on the first subsample", [(core, "PILOT_GROWTH", 1)]),
    "cross-validation": ("the likelihood is always used", [(core, "FEW", 0)]),
    "least width": ("widths below the blur of whitening", [(core, "find_least_blur", lambda *_: 0.0)]),
    "shortened steps": ("steps that lower the value are kept", [(steps, "MAX_SHORTER", 0)]),
    "memory of steps": ("curvatures of pairs only", [(steps, "LEAST_PRODUCT", 2.0)]),
    "pooled weights": ("initial weights of each code are equal", [(density.Density, "_pool", weigh_equally)]),
}
"""Parts of the fit, with a description of the fit without each, and what is replaced."""

DATA = [
    *(f"real: {name}" for name in SETS),
    *(f"{values}, r = {r}" for values in ("laplace", "t3", "uniform", "exponential") for r in (500, 5000)),
    "sparse, r = 2000",
    "sparse, whitened, r = 2000",
]


def measure(cell: Cell) -> Row:
    """Measure a data set with a changed fit: held-out gain, or mean error."""
    with ExitStack() as stack:
        for change in WITHOUT[cell["part"]][1] if cell["part"] != WHOLE else ():
            stack.enter_context(patch.object(*change))
        name, _, rest = cell["data"].partition(": ")
        if name == "real":
            return {"value": measure_gain(split_set(rest), fit(split_set(rest).train).T)}
        return {"value": max(np.mean([measure_error(cell["data"], seed) for seed in range(3)]), 1e-12)}


def fit(X: Matrix, *, is_white: bool = True) -> Matrix:
    """Fit samples, and return the mixing matrix with columns of unit length."""
    estimate = core.find_atoms(ArraySamples(X), core.Options(whiten=not is_white, center=not is_white))
    columns = estimate.whitening.make_mixing(estimate.state.A)
    return np.asarray(columns / np.linalg.norm(columns, axis=0))


def measure_error(data: str, seed: int) -> float:
    """Measure the mean of 1 - cos^4 over 24 atoms."""
    r, rng = int(data.rpartition(" ")[2]), np.random.default_rng(seed)
    if data.startswith("sparse"):
        X, dictionary = draw_model({"r": r, "n": 24}, seed, density=0.1, dtype="float64")
    else:
        dictionary, codes = draw_rotation(24, rng), VALUES[data.partition(",")[0]](rng, (r, 24))
        X = codes / np.std(codes, axis=0) @ dictionary
    return float(1 - np.mean(match_atoms(fit(X, is_white="whitened" not in data).T, dictionary).cosines ** 4))


def tabulate(rows: list[Row]) -> str:
    """Write one line per part."""
    found: dict[str, dict[str, float]] = {}
    for row in rows:
        found.setdefault(row["part"], {})[row["data"]] = row["value"]
    whole, lines = found.pop(WHOLE, {}), []
    for name, values in found.items():
        both = [data for data in values if data in whole]
        real = [data for data in both if data.startswith("real")]
        differences = np.array([values[data] - whole[data] for data in real])
        least = NOTICED * np.maximum(np.abs([whole[data] for data in real]), 0.1)
        better, worse = int(np.sum(differences > least)), int(np.sum(differences < -least))
        ratio = f"{np.median([values[data] / whole[data] for data in real]):.3f}" if real else "-"
        ratios = {data: values[data] / whole[data] for data in both if data not in real}
        changed = "; ".join(f"{data}: {value:.2g}" for data, value in ratios.items() if abs(np.log(value)) > 0.1)
        counts = f"{better} / {len(real) - better - worse} / {worse}"
        lines.append([name, WITHOUT[name][0], counts, ratio, changed or "within 10 %"])
    head = ["part left out", "instead", "real: better / equal / worse", "median ratio of gains"]
    return write_table([*head, "synthetic: error ratio"], lines)


CELLS = [{"part": part, "data": data} for part in (WHOLE, *WITHOUT) for data in DATA]
SMALL = [{"part": part, "data": data} for part in (WHOLE, *WITHOUT) for data in ("real: wine", "laplace, r = 500")]
STUDY = Study("ablation", 20, measure, tabulate, CELLS, SMALL)

if __name__ == "__main__":
    main(STUDY, __doc__)
