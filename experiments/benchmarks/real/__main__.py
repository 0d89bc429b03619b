"""Real data: what held-out samples gain by the atoms of elldict, FastICA and Picard.

python -m experiments.benchmarks.real               # 2 seeds, some minutes; stored in results/real.jsonl
python -m experiments.benchmarks.real --sets china digits   # sets with these in their names
python -m experiments.benchmarks.real --seeds 1     # a quick run, which is not stored
python -m experiments.benchmarks.real --stored      # the table of the last run that was stored
python -m experiments.benchmarks.real --stored --picture   # and docs/images/real-data.png
python -m experiments.benchmarks.real --data DIR    # every .npy and .npz file (array X) of a folder; not stored
python -m experiments.benchmarks.real --data DIR --blocks eeg fmri   # with these in its name: blocks are held out

All methods have the same white samples, in turns, on one thread. The table is in Markdown.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from experiments import BENCHMARK_RESULTS
from experiments.benchmarks.real.fits import METHODS, OURS, Method, Result, fit_once, list_installed, measure_difference
from experiments.benchmarks.real.sets import PACKAGED, RealSet, divide, list_folder, list_packaged
from experiments.harness.machine import made_by
from experiments.harness.store import DONE, Record, Store

RESULTS = BENCHMARK_RESULTS / "real.jsonl"
SEEDS = 2
Row = dict[str, Any]

LEGEND = """
*gain*: mean log density of a held-out sample, less the same without rotation, in nats; mean over seeds. *seeds differ*:
how far the atoms of two seeds differ, 0 to 1, in the mean. *gain / best peer* and *seconds / faster FastICA* are those
of elldict's default: ahead above 1 in the former, below 1 in the latter. Samples are white already: whiten=True only
says so, upon which no entry is taken for corrupted. They are in float32, of Picard in float64. A star: a fit that did
not converge."""


def run_set(real: RealSet, methods: Sequence[Method], seeds: int) -> list[Row]:
    """Fit every method with every seed; one row a method."""
    split = divide(real.load(), real.n_directions, blocks=real.blocks)
    results: dict[str, list[Result]] = {method.name: [] for method in methods}
    with threadpool_limits(1):
        for seed in range(seeds):
            for method in methods:
                results[method.name].append(fit_once(method, split, seed))
    size = {"n_samples": len(split.train), "n_directions": split.train.shape[1], "blocks": real.blocks}
    return [{"set": real.name, **size, "method": name, **summarise(found)} for name, found in results.items()]


def summarise(results: Sequence[Result]) -> Row:
    """Numbers of a method on a set, over all seeds."""
    pairs = [measure_difference(one.A, other.A) for one, other in combinations(results, 2)]
    gains = [result.gain for result in results]
    return {
        "seeds": len(results),
        "gain": float(np.mean(gains)),
        "gains": gains,
        "differ": float(np.mean(pairs)) if pairs else None,
        "seconds": float(np.median([result.seconds for result in results])),
        "converged": sum(result.converged for result in results),
    }


@dataclass(frozen=True)
class Comparison:
    """elldict beside its peers on one set."""

    gain: float
    best_gain: float  # of a peer
    seconds: float
    fastest: float  # seconds of the faster FastICA

    @classmethod
    def of(cls, rows: Sequence[Row]) -> Comparison:
        """From the rows of a set."""
        ours = next(row for row in rows if row["method"] == OURS)
        peers = [row for row in rows if not row["method"].startswith(OURS)]
        fastest = min(row["seconds"] for row in peers if row["method"].startswith("FastICA"))
        return cls(ours["gain"], max(row["gain"] for row in peers), ours["seconds"], fastest)

    @property
    def cells(self) -> list[str]:
        """Both ratios; where no peer gains anything, there is none of gains."""
        ratio = f"{self.gain / self.best_gain:.2f}" if self.best_gain > 0 else "-"
        return [ratio, f"{self.seconds / self.fastest:.2f}"]


def print_head(names: Sequence[str]) -> None:
    cells = ["samples", *(f"{name}: gain, seconds, seeds differ" for name in names)]
    cells += ["gain / best peer", "seconds / faster FastICA"]
    print("| " + " | ".join(cells) + " |\n" + "| --- " * len(cells) + "|", flush=True)


def print_set(rows: Sequence[Row], names: Sequence[str]) -> None:
    """One line of the table."""
    found = {row["method"]: row for row in rows}
    cells = [f"{rows[0]['set']} ({rows[0]['n_samples']} x {rows[0]['n_directions']})"]
    cells += [tell(found[name]) if name in found else "-" for name in names]
    cells += Comparison.of(rows).cells
    print("| " + " | ".join(cells) + " |", flush=True)


def tell(row: Row) -> str:
    """A cell of the table."""
    differ = "-" if row["differ"] is None else f"{row['differ']:.2f}"
    return f"{row['gain']:.2f}, {row['seconds']:.2f}, {differ}" + ("" if row["converged"] == row["seeds"] else " *")


def print_verdict(sets: Sequence[Sequence[Row]]) -> None:
    """How often elldict is ahead, and where it is not."""
    found = {rows[0]["set"]: Comparison.of(rows) for rows in sets}
    behind = [name for name, each in found.items() if each.gain < each.best_gain]
    slower = [name for name, each in found.items() if each.seconds > each.fastest]
    print(f"\nLess gain than the best peer in {len(behind)} of {len(found)} sets: {'; '.join(behind) or 'none'}.")
    print(f"Slower than the faster FastICA in {len(slower)} of {len(found)} sets: {'; '.join(slower) or 'none'}.")


def run(sets: Sequence[RealSet], seeds: int, store: Store | None) -> list[list[Row]]:
    """Fit all, print lines as they come, and store rows."""
    methods, machine, done = list_installed(), made_by(1, ["python-picard"]), []
    names = [method.name for method in methods]
    print_head(names)
    for real in sets:
        rows = run_set(real, methods, seeds)
        print_set(rows, names)
        done.append(rows)
        for method, row in zip(methods, rows, strict=True):
            if store is not None:
                store.add(make_record(method, row, machine))
    return done


def make_record(method: Method, row: Row, machine: Row) -> Record:
    """A row as stored."""
    values = dict(row)
    cell = {name: values.pop(name) for name in ("set", "n_samples", "n_directions", "blocks", "method", "seeds")}
    cell |= {"settings": dict(method.settings), "adapter": method.revision}
    return Record(cell, DONE, values, "", {"seconds": values.pop("seconds"), "made_by": machine})


def read_sets(store: Store) -> list[list[Row]]:
    """Rows that are stored, by set, in the order in which they are run."""
    found = {(row["set"], row["method"]): row for row in (record.row for record in store.records.values())}
    sets = [[found.get((real.name, method.name)) for method in METHODS] for real in PACKAGED]
    return [[row for row in rows if row is not None] for rows in sets if any(rows)]


def print_stored(store: Store) -> list[list[Row]]:
    """The table of what is stored."""
    sets, names = read_sets(store), [method.name for method in METHODS]
    print_head(names)
    for rows in sets:
        print_set(rows, names)
    return sets


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, help=f"a run of so many seeds, which is not stored (default: {SEEDS})")
    parser.add_argument("--stored", action="store_true", help="run nothing, print what is stored")
    parser.add_argument("--picture", action="store_true", help="draw docs/images/real-data.png as well")
    parser.add_argument("--data", type=Path, metavar="DIR", help="files of this folder instead of what packages bring")
    parser.add_argument("--blocks", nargs="+", default=[], metavar="PART", help="parts of names of recordings in DIR")
    parser.add_argument("--sets", nargs="+", default=[""], metavar="PART", help="parts of names of sets to be run")
    options = parser.parse_args()
    store, chosen = (
        Store(RESULTS),
        list_packaged() if options.data is None else list_folder(options.data, options.blocks),
    )
    chosen = [real for real in chosen if any(part in real.name for part in options.sets)]
    if options.stored:
        sets = print_stored(store)
    elif options.seeds or options.data is not None:
        sets = run(chosen, options.seeds or SEEDS, None)
    else:
        with store.writing():
            sets = run(chosen, SEEDS, store)
    print_verdict(sets)
    print(LEGEND)
    if options.picture:
        from experiments.benchmarks.real.picture import draw  # noqa: PLC0415  tables need no matplotlib

        draw(sets)


if __name__ == "__main__":
    main()
