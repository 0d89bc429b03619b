"""Whether the default ends in wrong basins where the power method does not, and whether the order of samples matters.

python -m experiments.benchmarks.speed.basins               # Table 2, n = 32: 100 seeds a row, some minutes
python -m experiments.benchmarks.speed.basins --full        # n = 100 too
python -m experiments.benchmarks.speed.basins --only order  # arranged samples alone

A fit is in a wrong basin if one of its atoms has a cosine below .9 with the true atom that it stands for.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from elldict import LpDictionaryLearning
from elldict.metrics import match_atoms
from experiments import BENCHMARK_RESULTS
from experiments.benchmarks.speed.fit import SAME_ATOM, error_of, nearest_orthonormal
from experiments.benchmarks.speed.problems import TABLE_2, Problem
from experiments.benchmarks.speed.solvers import POWER_OPTIONS
from experiments.harness.machine import made_by
from experiments.harness.store import DONE, Record, Store, key_of
from experiments.peers.base import Matrix

METHODS: dict[str, dict[str, Any]] = {"default": {}, "power": POWER_OPTIONS}
RESULTS = BENCHMARK_RESULTS / "basins.jsonl"
KEY = ("table", "problem", "arranged", "method", "seed")
BASINS, ORDER = "basins", "order"
ORDER_SEEDS = 10
DRIFT = 3.0
"""Amplitude of the last drifting sample beside the first."""

Row = dict[str, Any]
Arrange = Callable[[Matrix, Matrix], Matrix]  # samples and their codes


ARRANGED: dict[str, Arrange] = {
    "sorted by length": lambda X, _: X[np.argsort(np.sum(X**2, axis=1))],
    "sorted by one code": lambda X, codes: X[np.argsort(codes[:, 0])],
    "grouped by largest code": lambda X, codes: X[np.argsort(np.argmax(np.abs(codes), axis=1), kind="stable")],
    "each twice": lambda X, _: np.repeat(X[: len(X) // 2], 2, axis=0),
    "growing": lambda X, _: X * np.linspace(1, DRIFT, len(X), dtype=X.dtype)[:, None],
}
"""Ways to lay out samples; each is compared with the same samples shuffled."""


class Fits:
    """Fits that are stored, and those that are missing."""

    def __init__(self, threads: int, path: Path = RESULTS) -> None:
        self.threads, self.store = threads, Store(path, history=True)
        self.made_by = made_by(threads, ())

    def run(self, key: tuple[Any, ...], draw: Callable[[], tuple[Matrix, Matrix]]) -> None:
        """Fit unless that was done; key is as in KEY."""
        cell = dict(zip(KEY, key, strict=True)) | {"made_by": self.made_by}
        if key_of(cell) in self.store.records:
            return
        X, dictionary = draw()
        method, seed = key[-2:]
        with threadpool_limits(self.threads), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # it is counted whether fits are wrong, not whether they say so
            atoms = LpDictionaryLearning(**METHODS[method], random_state=seed).fit(X).components_
        truth = nearest_orthonormal(dictionary)
        cosine = float(np.min(match_atoms(nearest_orthonormal(atoms), truth).cosines))
        self.store.add(Record(cell, DONE, {"least_cosine": cosine, "error": error_of(atoms, truth)}, "", {}))


def run_basins(fits: Fits, listed: Sequence[Problem], seeds: int, methods: Sequence[str] = tuple(METHODS)) -> None:
    """Methods on the same samples."""
    with fits.store.writing():
        for problem in listed:
            print(f"basins: {problem.name}", flush=True)
            for seed in range(seeds):
                for method in methods:
                    fits.run((BASINS, problem.name, "", method, seed), partial(problem.make, seed))


def run_order(fits: Fits, listed: Sequence[Problem], seeds: int) -> None:
    """Arranged samples, and the same ones shuffled."""
    with fits.store.writing():
        for problem in listed:
            print(f"order: {problem.name}", flush=True)
            for seed in range(seeds):
                for how in (f"{name}{mixed}" for name in ARRANGED for mixed in ("", ", shuffled")):
                    fits.run((ORDER, problem.name, how, "default", seed), partial(arranged, problem, seed, how))


def arranged(problem: Problem, seed: int, how: str) -> tuple[Matrix, Matrix]:
    """Samples laid out in a way of ARRANGED, or those samples shuffled; and the dictionary."""
    name, _, shuffled = how.partition(", ")
    X, dictionary = problem.make(seed)
    rng = np.random.default_rng(seed)
    X = ARRANGED[name](X, X @ dictionary.T)
    return np.ascontiguousarray(X[rng.permutation(len(X))] if shuffled else X), dictionary


# --- what came of it --------------------------------------------------------------------------------------------------


def basins_section(path: Path = RESULTS) -> str:
    """Two tables in Markdown, of the last fit for every key; nothing if nothing is stored.

    A method that has not changed need not be run again beside one that has: basins are counted, not seconds.
    """
    rows = [record.row for record in Store(path).records.values()]
    stored = {tuple(row[name] for name in KEY): row for row in rows}
    parts = []
    if counted := list(_basin_lines(stored)):
        parts += ["## Wrong basins", "| problem | seeds | both | default alone | power alone |\n" + _rule(5), *counted]
    if compared := list(_order_lines(stored)):
        parts += ["## Order of samples", "| problem | samples | seeds | error | shuffled | wrong basins |\n" + _rule(6)]
        parts += compared
    return _joined(parts)


def _basin_lines(stored: dict[tuple[Any, ...], Row]) -> Iterator[str]:
    for problem in TABLE_2:
        wrong = {
            method: {key[-1]: _is_wrong(line) for key, line in stored.items() if key[:4] == _basin_key(problem, method)}
            for method in METHODS
        }
        default, power = wrong["default"], wrong["power"]
        seeds = sorted(default.keys() & power.keys())
        if seeds:
            both = sum(default[seed] and power[seed] for seed in seeds)
            ours = sum(default[seed] and not power[seed] for seed in seeds)
            theirs = sum(power[seed] and not default[seed] for seed in seeds)
            yield f"| {problem.name} | {len(seeds)} | {both} | {ours} | {theirs} |"


def _basin_key(problem: Problem, method: str) -> tuple[str, str, str, str]:
    return BASINS, problem.name, "", method


def _order_lines(stored: dict[tuple[Any, ...], Row]) -> Iterator[str]:
    for problem in TABLE_2:
        for name in ARRANGED:
            laid_out, shuffled = (
                [line for key, line in stored.items() if key[:3] == (ORDER, problem.name, how)]
                for how in (name, f"{name}, shuffled")
            )
            if laid_out and shuffled:
                errors = [median(line["error"] for line in lines) for lines in (laid_out, shuffled)]
                wrong = [sum(map(_is_wrong, lines)) for lines in (laid_out, shuffled)]
                yield (
                    f"| {problem.name} | {name} | {len(laid_out)} | {100 * errors[0]:.3g} % | {100 * errors[1]:.3g} % "
                    f"| {wrong[0]}, shuffled {wrong[1]} |"
                )


def _is_wrong(line: Row) -> bool:
    return bool(line["least_cosine"] < SAME_ATOM)


def _rule(columns: int) -> str:
    return "|" + "---|" * columns


def _joined(parts: list[str]) -> str:
    """Headings stand apart, lines of a table together."""
    return "\n".join(f"\n{part}\n" if part.startswith("#") else part for part in parts).strip()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--full", action="store_true", help="n = 100 too")
    parser.add_argument("--seeds", type=int, default=100)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--only", choices=(BASINS, ORDER))
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=list(METHODS))
    arguments = parser.parse_args()
    listed = [problem for problem in TABLE_2 if arguments.full or problem.n_features == 32]
    fits = Fits(arguments.threads)
    if arguments.only != ORDER:
        run_basins(fits, listed, arguments.seeds, arguments.methods)
    if arguments.only != BASINS:
        run_order(fits, listed, min(arguments.seeds, ORDER_SEEDS))
    print(basins_section())


if __name__ == "__main__":
    main()
