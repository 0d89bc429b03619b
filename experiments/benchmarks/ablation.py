"""Ablation study: the complete fit compared with fits that leave out one part each.

python -m experiments.benchmarks.ablation                  # 20 minutes
python -m experiments.benchmarks.ablation --only growth

Real data: number of sets whose held-out gain rises or falls by more than 1 %, and the median ratio of gains.
Synthetic codes: ratio of mean errors. A part is kept if leaving it out has a cost that users would notice.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from typing import Any
from unittest.mock import patch

import numpy as np

from elldict import fit as core
from elldict.datasets import make_bernoulli_gaussian
from elldict.metrics import match_atoms
from elldict.samples.arrays import ArraySamples
from elldict.solver import density, select, steps
from experiments.benchmarks.data import SETS, measure_gain, split_set
from experiments.benchmarks.study import Cell, Matrix, Row, Study, draw_rotation, main, write_table
from experiments.campaign.data_sets import VALUES

NOTICED = 0.01  # smallest relative difference of gains that is counted

Change = Callable[[ExitStack], core.Options]
"""Leaves out a part while the stack is open, and returns the options of the fit."""


def change_constant(module: Any, *names: str, value: Any) -> Change:
    """Set constants or functions of a module."""

    def change(stack: ExitStack) -> core.Options:
        for name in names:
            stack.enter_context(patch.object(module, name, value))
        return core.Options()

    return change


def keep_pilots(*names: str) -> Change:
    """Use these pilots only."""
    listed = select.list_pilots

    def list_some(*args: Any, **options: Any) -> list[select.Pilot]:
        return [pilot for pilot in listed(*args, **options) if pilot.name in names]

    return change_constant(core, "list_pilots", value=list_some)


def choose_model_once(stack: ExitStack) -> core.Options:
    """Keep the model that was chosen together with the pilot."""
    chosen: list[select.Model] = []
    choose_candidate = select.choose_candidate

    def choose_and_note(*args: Any) -> select.Candidate:
        candidate = choose_candidate(*args)
        chosen.append(candidate.model)
        return candidate

    stack.enter_context(patch.object(core, "choose_candidate", choose_and_note))
    stack.enter_context(patch.object(core, "choose_model", lambda *_: chosen[-1]))
    return core.Options()


def use_plain_model(stack: ExitStack) -> core.Options:  # noqa: ARG001
    """Use the model of raw samples only."""
    return core.Options(normalize=None)


def weigh_equally(density: density.Density, counts: Matrix, grid: density.Grid) -> Matrix:  # noqa: ARG001
    """Return equal weights of all widths."""
    return np.full((1, grid.n_widths), 1 / grid.n_widths)


WITHOUT: dict[str, tuple[str, Change]] = {
    "normalised samples": ("raw samples only", use_plain_model),
    "second choice of the model": ("the model is chosen with initial densities only", choose_model_once),
    "components away from zero": ("zero-mean components only", change_constant(density, "N_ERRORS", value=1e9)),
    "l_1 pilot": ("l_3 and l_4 only", keep_pilots("l3", "l4")),
    "l_3 pilot": ("l_1 and l_4 only", keep_pilots("l1", "l4")),
    "l_4 pilot": ("l_1 and l_3 only", keep_pilots("l1", "l3")),
    "growth": ("all samples from the start", change_constant(core, "PILOT_SAMPLES", value=10**9)),
    "longer pilot": ("the pilot ends on the first subsample", change_constant(core, "PILOT_GROWTH", value=1)),
    "cross-validation": ("the likelihood is always used", change_constant(core, "FEW", value=0)),
    "least width": (
        "widths below the blur of whitening",
        change_constant(core, "find_least_blur", value=lambda *_: 0.0),
    ),
    "shortened steps": ("steps that lower the value are kept", change_constant(steps, "MAX_SHORTER", value=0)),
    "memory of steps": ("curvatures of pairs only", change_constant(steps, "LEAST_PRODUCT", value=2.0)),
    "pooled weights": (
        "initial weights of each code are equal",
        change_constant(density.Density, "_pool", value=weigh_equally),
    ),
    "early choice of l_1": ("all pilots are always tried", change_constant(select, "PEAKED", value=np.inf)),
}
"""Parts of the fit, with a description of the fit without each, and how it is left out."""

WHOLE = "nothing"
DATA = [
    *(f"real: {name}" for name in SETS),
    *(f"{values}, r = {r}" for values in ("laplace", "t3", "uniform", "exponential") for r in (500, 5000)),
    "sparse, r = 2000",
    "sparse, whitened, r = 2000",
]


def measure(cell: Cell) -> Row:
    """Measure a data set with a changed fit: held-out gain, or mean error."""
    with ExitStack() as stack:
        options = core.Options() if cell["part"] == WHOLE else WITHOUT[cell["part"]][1](stack)
        name, _, rest = cell["data"].partition(": ")
        if name == "real":
            split = split_set(rest)
            return {"value": measure_gain(split, fit(split.train, options).T)}
        return {"value": max(np.mean([measure_error(cell["data"], seed, options) for seed in range(3)]), 1e-12)}


def fit(X: Matrix, options: core.Options) -> Matrix:
    """Fit samples, and return the mixing matrix with columns of unit length."""
    estimate = core.find_atoms(ArraySamples(X), options)
    columns = estimate.whitening.make_mixing(estimate.state.A)
    return np.asarray(columns / np.linalg.norm(columns, axis=0))


def measure_error(data: str, seed: int, options: core.Options) -> float:
    """Measure the mean of 1 - cos^4 over 24 atoms."""
    r, rng = int(data.rpartition(" ")[2]), np.random.default_rng(seed)
    if data.startswith("sparse"):
        X, dictionary, _ = make_bernoulli_gaussian(r, 24, density=0.1, random_state=seed)
        options = replace(options, whiten="whitened" in data, center="whitened" in data)
    else:
        dictionary = draw_rotation(24, rng)
        codes = VALUES[data.partition(",")[0]](rng, (r, 24))
        X = codes / np.std(codes, axis=0) @ dictionary
    return float(1 - np.mean(match_atoms(fit(X, options).T, dictionary).cosines ** 4))


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
