"""Independent components: sources found, errors and error bars of elldict beside scikit-learn's FastICA.

python -m experiments.benchmarks.ica              # 20 seeds, a minute or two; stored in results/ica.jsonl
python -m experiments.benchmarks.ica --seeds 3    # a quick run, which is not stored
python -m experiments.benchmarks.ica --stored     # the table of the last run that was stored

All methods have the same samples, in turns. The table is in Markdown.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from elldict._old.backend.threads import one_blas_thread
from experiments import BENCHMARK_RESULTS
from experiments.benchmarks.ica.fits import Method, Result, choose_methods, fit_once
from experiments.benchmarks.ica.problems import PROBLEMS, BlindSources, Problem
from experiments.harness.machine import made_by
from experiments.harness.store import DONE, Record, Store

RESULTS = BENCHMARK_RESULTS / "ica.jsonl"
SEEDS = 20
Row = dict[str, Any]

HEAD = "| sources | method | found | error | stated | least correlation | named | passes |\n" + "| --- " * 8 + "|"
LEGEND = """
*found*: atoms with a cosine above .9 with a true one, of all that can be found, over all seeds. *error*: 2 mean
(1 - cos^2) over these, *stated*: their error bar, both x 10^-5, means over seeds. *least correlation* of a source with
the one found for it, over all seeds. *named*: atoms that a warning says are not identifiable, over all seeds: of
Gaussian sources + of others. *passes*: median; of FastICA its iterations. "made orthonormal": the nearest orthonormal
matrix is scored, because true atoms are orthonormal."""


def run_problem(problem: Problem | BlindSources, seeds: int) -> Iterator[tuple[Method, Row]]:
    """Fit every method to the samples of every seed; one row a method."""
    methods = choose_methods(problem)
    results: dict[str, list[Result]] = {method.name: [] for method in methods}
    for seed in range(seeds):
        drawn = problem.draw(seed)
        for method in methods:
            with one_blas_thread():  # samples are few: threads of BLAS would wait for each other
                results[method.name].append(fit_once(method, problem, drawn, seed))
    laws = getattr(problem, "laws", ())
    for method in methods:
        yield method, {"problem": problem.name, "method": method.name, **summarise(results[method.name], laws)}


def summarise(results: Sequence[Result], laws: Sequence[str]) -> Row:
    """Numbers of a method on a problem, over all seeds."""
    named = [source for result in results for source in result.named]
    stated = [result.stated for result in results if result.stated is not None]
    n_gaussian = laws.count("Gaussian")
    sought = [source for source in range(len(results[0].correlations)) if n_gaussian < 2 or laws[source] != "Gaussian"]
    return {
        "seeds": len(results),
        "found": sum(result.found for result in results),
        "sought": sum(result.sought for result in results),
        "error": float(np.mean([result.error for result in results])),
        "stated": float(np.mean(stated)) if stated else None,
        "least_correlation": min(result.correlations[source] for result in results for source in sought),
        "first_correlations": list(results[0].correlations),
        "gaussian": len(results) * n_gaussian,
        "named_gaussian": sum(laws[source] == "Gaussian" for source in named) if laws else 0,
        "named": len(named),
        "passes": float(np.median([result.passes for result in results])),
        "seconds": float(np.median([result.seconds for result in results])),
        "converged": sum(result.converged for result in results),
    }


def print_row(row: Row) -> None:
    ours = row["stated"] is not None
    cells = [
        row["problem"],
        row["method"],
        f"{row['found']} of {row['sought']}",
        f"{1e5 * row['error']:.1f}",
        f"{1e5 * row['stated']:.1f}" if ours else "-",
        f"{row['least_correlation']:.3f}",
        f"{row['named_gaussian']} of {row['gaussian']} + {row['named'] - row['named_gaussian']}" if ours else "-",
        f"{row['passes']:.0f}",
    ]
    print("| " + " | ".join(cells) + " |", flush=True)


def print_example(rows: Sequence[Row]) -> None:
    """The three correlations of scikit-learn's example itself, whose noise is that of seed 0."""
    name = BlindSources().name
    print(f"\nCorrelations of {name}, seed 0:")
    for row in rows:
        if row["problem"] == name:
            print(f"- {row['method']}: " + ", ".join(f"{c:.4f}" for c in row["first_correlations"]))


def run(problems: Sequence[Problem | BlindSources], seeds: int, store: Store | None) -> list[Row]:
    """Fit all, print rows as they come, and store them."""
    rows, machine = [], made_by(1, ())
    print(HEAD)
    for problem in problems:
        for method, row in run_problem(problem, seeds):
            print_row(row)
            rows.append(row)
            if store is not None:
                values, seconds = dict(row), row["seconds"]
                cell = {name: values.pop(name) for name in ("problem", "method", "seeds")}
                cell |= {"n_samples": problem.n_samples, "settings": dict(method.settings), "adapter": method.revision}
                del values["seconds"]
                store.add(Record(cell, DONE, values, "", {"seconds": seconds, "made_by": machine}))
    return rows


def read_rows(store: Store) -> list[Row]:
    """Rows that are stored, in the order in which they are run."""
    names = [(problem.name, method.name) for problem in PROBLEMS for method in choose_methods(problem)]
    found = {(row["problem"], row["method"]): row for row in (record.row for record in store.records.values())}
    return [found[name] for name in names if name in found]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, help=f"a run of so many seeds, which is not stored (default: {SEEDS})")
    parser.add_argument("--stored", action="store_true", help="run nothing, print what is stored")
    options = parser.parse_args()
    store = Store(RESULTS)
    if options.stored:
        rows = read_rows(store)
        print(HEAD)
        for row in rows:
            print_row(row)
    elif options.seeds:
        rows = run(PROBLEMS, options.seeds, None)
    else:
        with store.writing():
            rows = run(PROBLEMS, SEEDS, store)
    print(LEGEND)
    print_example(rows)


if __name__ == "__main__":
    main()
