"""Ablation study: the complete fit compared with fits that leave out one part each.

python -m experiments.benchmarks.ablation               # packaged real data and synthetic codes; about 20 minutes
python -m experiments.benchmarks.ablation --data DIR    # real data of a folder instead
python -m experiments.benchmarks.ablation --only growth --seeds 1
python -m experiments.benchmarks.ablation --stored      # the table of the last stored run

Real data: number of sets whose held-out gain rises or falls by more than 1 %, and the median ratio of gains.
Synthetic codes: ratio of mean errors. A part is kept if leaving it out has a cost that users would notice.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
from scipy.optimize import linear_sum_assignment
from threadpoolctl import threadpool_limits

from elldict import fit as core
from elldict.datasets import make_bernoulli_gaussian
from elldict.samples.arrays import ArraySamples
from elldict.solver import density, select, steps
from experiments import BENCHMARK_RESULTS
from experiments.benchmarks.real.fits import measure_gain
from experiments.benchmarks.real.sets import Matrix, RealSet, divide, list_folder, list_packaged

RESULTS = BENCHMARK_RESULTS / "ablation.json"
NOTICED = 0.01
"""Smallest relative difference of gains that is counted."""

Change = Callable[[ExitStack], core.Options]
"""Leaves out a part while the stack is open, and returns the options of the fit."""


def change_constant(module: Any, name: str, value: Any) -> Change:
    """Set a constant."""

    def change(stack: ExitStack) -> core.Options:
        stack.enter_context(patch.object(module, name, value))
        return core.Options()

    return change


def keep_pilots(*names: str) -> Change:
    """Use these pilots only."""
    listed = select.list_pilots

    def list_some(*args: Any, **options: Any) -> list[select.Pilot]:
        return [pilot for pilot in listed(*args, **options) if pilot.name in names]

    return change_constant(core, "list_pilots", list_some)


def judge_models_once(stack: ExitStack) -> core.Options:
    """Keep the model that was chosen together with the pilot."""
    chosen: list[select.Model] = []

    def choose_and_note(*args: Any) -> select.Candidate:
        candidate = choose_candidate(*args)
        chosen.append(candidate.model)
        return candidate

    choose_candidate = select.choose_candidate
    stack.enter_context(patch.object(core, "choose_candidate", choose_and_note))
    stack.enter_context(patch.object(core, "choose_model", lambda *_: chosen[-1]))
    return core.Options()


def use_plain_model(stack: ExitStack) -> core.Options:  # noqa: ARG001
    """Use the model of raw samples only."""
    return core.Options(normalize=None)


def leave_out_pooling(stack: ExitStack) -> core.Options:
    """Begin with equal weights, and keep them."""
    for name in ("POOLED_ROUNDS", "MORE_POOLED_ROUNDS"):
        stack.enter_context(patch.object(density, name, 0))
    return core.Options()


WITHOUT: dict[str, tuple[str, Change]] = {
    "normalised samples": ("raw samples only", use_plain_model),
    "second judgement": ("the model is chosen with initial densities only", judge_models_once),
    "components away from zero": ("zero-mean components only", change_constant(density, "N_ERRORS", 1e9)),
    "l_1 pilot": ("l_3 and l_4 only", keep_pilots("l3", "l4")),
    "l_3 pilot": ("l_1 and l_4 only", keep_pilots("l1", "l4")),
    "l_4 pilot": ("l_1 and l_3 only", keep_pilots("l1", "l3")),
    "growth": ("all samples from the start", change_constant(core, "PILOT_SAMPLES", 10**9)),
    "longer pilot": ("the pilot ends on the first subsample", change_constant(core, "PILOT_GROWTH", 1)),
    "cross-validation": ("the likelihood is always used", change_constant(core, "FEW", 0)),
    "least width": ("widths below the blur of whitening", change_constant(core, "find_least_blur", lambda *_: 0.0)),
    "shortened steps": ("steps that lower the value are kept", change_constant(steps, "MAX_SHORTER", 0)),
    "memory of steps": ("curvatures of pairs only", change_constant(steps, "LEAST_PRODUCT", 2.0)),
    "pooled weights": ("initial weights of each code are equal", leave_out_pooling),
}
"""Parts of the fit, with a description of the fit without each."""


def fit(X: Matrix, options: core.Options) -> Matrix:
    """Fit samples, and return the mixing matrix with columns of unit length."""
    estimate = core.find_atoms(ArraySamples(X), options)
    columns = estimate.whitening.make_mixing(estimate.state.A)
    return np.asarray(columns / np.linalg.norm(columns, axis=0))


def measure_real(real: RealSet, options: core.Options) -> float:
    """Measure the held-out log-likelihood gain, in nats per sample."""
    split = divide(real.load(), real.n_directions, blocks=real.blocks)
    return measure_gain(split, fit(split.train, options).T)


def draw_codes(name: str, shape: tuple[int, int], rng: np.random.Generator) -> Matrix:
    """Draw independent codes of unit variance."""
    draw: dict[str, Callable[[], Matrix]] = {
        "laplace": lambda: rng.laplace(size=shape),
        "student-t": lambda: rng.standard_t(3, shape),
        "uniform": lambda: rng.uniform(-1, 1, shape),
        "exponential": lambda: rng.exponential(size=shape) - 1,
    }
    codes = draw[name]()
    return np.asarray(codes / np.std(codes, axis=0))


def measure_synthetic(name: str, r: int, seed: int, options: core.Options) -> float:
    """Measure the mean of 1 - cos^4 over 24 atoms."""
    rng = np.random.default_rng(seed)
    if name.startswith("sparse"):
        X, dictionary, _ = make_bernoulli_gaussian(r, 24, density=0.1, random_state=seed)
        is_white = name == "sparse, whitened"
        options = replace(options, whiten=is_white, center=is_white)
    else:
        dictionary = np.linalg.qr(rng.standard_normal((24, 24)))[0]
        X = draw_codes(name, (r, 24), rng) @ dictionary
    cosines = np.abs(fit(X, options).T @ dictionary.T)
    return float(1 - np.mean(cosines[linear_sum_assignment(-(cosines**4))] ** 4))


SYNTHETIC = [(name, r) for name in ("laplace", "student-t", "uniform", "exponential") for r in (500, 5000)]
SYNTHETIC += [("sparse", 2000), ("sparse, whitened", 2000)]
Measured = dict[str, float]


def measure_all(sets: list[RealSet], seeds: int, change: Change | None) -> Measured:
    """Measure all data sets, with or without a change."""
    with ExitStack() as stack:
        options = core.Options() if change is None else change(stack)
        found = {f"real: {real.name}": measure_real(real, options) for real in sets}
        for name, r in SYNTHETIC:
            errors = [measure_synthetic(name, r, seed, options) for seed in range(seeds)]
            found[f"{name}, r = {r}"] = max(float(np.mean(errors)), 1e-12)
        return found


def list_lines(results: dict[str, Measured]) -> Iterator[str]:
    """Write the table in Markdown."""
    yield "| part left out | instead | real: better / equal / worse | median ratio of gains | synthetic: error ratio |"
    yield "| --- | --- | --- | --- | --- |"
    whole = results["nothing"]
    real = [name for name in whole if name.startswith("real: ")]
    for name, (then, _) in WITHOUT.items():
        if name not in results:
            continue
        there = results[name]
        differences = np.array([there[s] - whole[s] for s in real])
        least = NOTICED * np.maximum(np.abs([whole[s] for s in real]), 0.1)
        better, worse = int(np.sum(differences > least)), int(np.sum(differences < -least))
        ratio = float(np.median([there[s] / whole[s] for s in real]))
        changed = {s: there[s] / whole[s] for s in whole if s not in real and abs(np.log(there[s] / whole[s])) > 0.1}
        told = "; ".join(f"{s}: {value:.2g}" for s, value in changed.items()) or "within 10 %"
        yield f"| {name} | {then} | {better} / {len(real) - better - worse} / {worse} | {ratio:.3f} | {told} |"


def main() -> None:
    """Run the requested measurements, store them, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, help="folder with .npy and .npz files")
    parser.add_argument("--only", nargs="+", choices=WITHOUT, default=list(WITHOUT))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--stored", action="store_true")
    arguments = parser.parse_args()
    if arguments.stored:
        print("\n".join(list_lines(json.loads(RESULTS.read_text(encoding="utf-8")))))
        return
    sets = list_packaged() if arguments.data is None else list_folder(arguments.data, ())
    with threadpool_limits(1):
        results = {"nothing": measure_all(sets, arguments.seeds, None)}
        for name in arguments.only:
            results[name] = measure_all(sets, arguments.seeds, WITHOUT[name][1])
            print(name, "measured", flush=True)
    if len(arguments.only) == len(WITHOUT) and arguments.data is None:
        RESULTS.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    print("\n".join(list_lines(results)))


if __name__ == "__main__":
    main()
