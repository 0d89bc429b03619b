"""The error that a fit states beside the true one, on hundreds of data sets of known atoms.

python -m experiments.campaign.grid                  # all, some minutes on 2 cores; stored in results/grid.jsonl
python -m experiments.campaign.grid --stored         # the tables of what is stored
python -m experiments.campaign.grid --stored --picture   # and docs/images/stated-and-true.png
python -m experiments.campaign.grid --kinds serial drift # kinds of these names; stored
python -m experiments.campaign.grid --seed 1         # all drawn anew; not stored
python -m experiments.campaign.grid --short          # the first set of every kind; not stored
python -m experiments.campaign.grid --only serial:4  # one set, with all there is to tell; not stored

Aims: of fits that do not warn, 95 % state an error within a factor 2 of the true one, and none less than a third of it.
Fits that warn are at most a third, and 95 % of them state at least half the true error. A true error is that of one
draw, which scatters about what can be expected: with n atoms it is a mean of n (n - 1) / 2 squared angles, of a
relative standard deviation of sqrt(4 / (n (n - 1))) = 0.27 for n = 8, or more where angles are unequal. A factor 2
allows for that, and no more.

Errors below 1e-9 are exact. The tables are in Markdown.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from experiments import BENCHMARK_RESULTS
from experiments.campaign.fits import Comparison, compare, run_case
from experiments.campaign.kinds import KINDS, LISTED, Case, list_cases
from experiments.harness.machine import made_by
from experiments.harness.pool import Lost, Pool
from experiments.harness.store import DONE, FAILED, Record, Store

RESULTS = BENCHMARK_RESULTS / "grid.jsonl"
WORKERS = 2
LIMIT_SECONDS = 300.0
"""Of one fit; one that takes longer is ended and counts as failed."""

FACTOR = 2.0
LEAST_UNWARNED = 1 / 3
"""No fit without a warning should state less than this share of the true error."""

SHARE = 0.95
"""Share of fits that should state what they ought to."""

MOST_WARNED = 1 / 3
N_WORST = 10


@dataclass(frozen=True)
class Result:
    """A data set and what came of it."""

    case: Case
    record: Record

    @property
    def found(self) -> Comparison | None:
        """Stated and true error; None if the fit failed."""
        return compare(self.record.row) if self.record.status == DONE else None


@dataclass(frozen=True)
class Summary:
    """What a group of results amounts to."""

    n_sets: int
    failed: int
    unwarned: tuple[float, ...]  # stated / true
    warned: tuple[float, ...]
    false_exact: int

    @classmethod
    def of(cls, results: Sequence[Result]) -> Summary:
        """Count."""
        found = [each.found for each in results if each.found is not None]
        return cls(
            len(results),
            len(results) - len(found),
            tuple(each.ratio for each in found if not each.warned),
            tuple(each.ratio for each in found if each.warned),
            sum(each.false_exact for each in found),
        )

    @property
    def within(self) -> float | None:
        """Share of unwarned fits within the factor."""
        return share_of([1 / FACTOR <= ratio <= FACTOR for ratio in self.unwarned])

    @property
    def covered(self) -> float | None:
        """Share of warned fits that state at least half the truth."""
        return share_of([ratio >= 1 / FACTOR for ratio in self.warned])

    @property
    def misses(self) -> int:
        """Fits that state what they should not."""
        outside = sum(not 1 / FACTOR <= ratio <= FACTOR for ratio in self.unwarned)
        return self.failed + outside + sum(ratio < 1 / FACTOR for ratio in self.warned)


def share_of(flags: Sequence[bool]) -> float | None:
    """Share that is true; None of nothing."""
    return float(np.mean(flags)) if flags else None


# --- running ----------------------------------------------------------------------------------------------------------


def run(cases: Sequence[Case], store: Store | None, workers: int = WORKERS) -> list[Result]:
    """Fit all, two at a time; records are stored as they come, results are in the order of the cases."""
    left, records, machine = list(reversed(cases)), {}, made_by(1, [])
    with store.writing() if store is not None else nullcontext(), Pool(run_case, workers, limit=LIMIT_SECONDS) as pool:
        for case, found in pool.results(lambda: left.pop() if left else None):
            told = Record(case.identity, FAILED, {}, found.reason, {}) if isinstance(found, Lost) else found
            record = replace(told, made={**told.made, "made_by": machine})
            records[case.key] = record
            if store is not None:
                store.add(record)
    return [Result(case, records[case.key]) for case in cases]


def read_results(cases: Sequence[Case], store: Store) -> list[Result]:
    """Those of the cases that are stored."""
    found = [(case, store.get(case)) for case in cases]
    return [Result(case, record) for case, record in found if record is not None]


def choose_cases(names: Sequence[str], seed: int, *, short: bool) -> list[Case]:
    """Data sets of kinds; in the short form the first of each."""
    listed = [list_cases(KINDS[name], seed) for name in names]
    return [case for cases in listed for case in (cases[:1] if short else cases)]


def find_case(place: str, seed: int) -> Case:
    """The data set of a place, KIND:INDEX."""
    name, _, index = place.rpartition(":")
    if name not in KINDS or not index.isdigit() or int(index) >= len(list_cases(KINDS[name])):
        raise SystemExit(f"--only {place}: expected KIND:INDEX, KIND one of {', '.join(KINDS)}, INDEX from 0.")
    return list_cases(KINDS[name], seed)[int(index)]


# --- tables -----------------------------------------------------------------------------------------------------------


def list_kinds(results: Sequence[Result]) -> Iterator[tuple[str, list[Result]]]:
    """Results by kind, in the order of the list."""
    for kind in LISTED:
        found = [each for each in results if each.case.kind == kind.name]
        if found:
            yield kind.name, found


def print_table(results: Sequence[Result]) -> None:
    """One line a kind, and one of all."""
    cells = ["kind", "sets", "warned", "unwarned: within a factor 2", "lowest stated / true", "highest"]
    cells += ["warned: at least half the truth", "lowest", "false exact", "failed"]
    print("| " + " | ".join(cells) + " |\n" + "| --- " * len(cells) + "|")
    for name, found in [*list_kinds(results), ("all", list(results))]:
        each = Summary.of(found)
        cells = [name, str(each.n_sets), str(len(each.warned)), tell_share(each.within)]
        cells += [tell_ratio(min, each.unwarned), tell_ratio(max, each.unwarned)]
        cells += [tell_share(each.covered), tell_ratio(min, each.warned), str(each.false_exact), str(each.failed)]
        print("| " + " | ".join(cells) + " |")


def tell_share(share: float | None) -> str:
    """A share in per cent."""
    return "-" if share is None else f"{100 * share:.0f} %"


def tell_ratio(choose: Any, ratios: Sequence[float]) -> str:
    """The lowest or highest ratio."""
    return f"{choose(ratios):.2g}" if ratios else "-"


def print_verdict(results: Sequence[Result]) -> None:
    """Totals against the aims, and the worst kind."""
    total = Summary.of(results)
    low = sum(ratio < LEAST_UNWARNED for ratio in total.unwarned)
    warned = len(total.warned) / max(1, total.n_sets)
    lines = [
        (
            total.within is None or total.within >= SHARE,
            f"unwarned within a factor {FACTOR:g}: {tell_share(total.within)} of {len(total.unwarned)}, "
            f"aim at least {SHARE:.0%}",
        ),
        (low == 0, f"unwarned that state less than a third of the truth: {low}, aim none"),
        (warned <= MOST_WARNED, f"warned: {warned:.0%} of {total.n_sets}, aim at most {MOST_WARNED:.0%}"),
        (
            total.covered is None or total.covered >= SHARE,
            f"warned that state at least half the truth: {tell_share(total.covered)} of {len(total.warned)}, "
            f"aim at least {SHARE:.0%}",
        ),
        (total.false_exact == 0, f"false exact: {total.false_exact}, aim none"),
        (total.failed == 0, f"failed: {total.failed}, aim none"),
    ]
    print()
    for kept, text in lines:
        print(f"- {text}{'' if kept else ' **missed**'}")
    misses = {name: Summary.of(found).misses for name, found in list_kinds(results)}
    worst = max(misses, key=lambda name: misses[name])
    if misses[worst]:
        print(f"- worst kind: {worst}, {misses[worst]} sets that state what they should not")


def rank(result: Result) -> float:
    """How far a fit is from what it should state: a factor; of a warned one only what it states too little."""
    found = result.found
    if found is None or found.ratio == 0:
        return float("inf")
    return 1 / found.ratio if found.warned else max(found.ratio, 1 / found.ratio)


def print_worst(results: Sequence[Result], seed: int) -> None:
    """The sets furthest off, with the command that repeats each."""
    print(f"\nThe {N_WORST} worst sets:\n")
    for result in sorted(results, key=rank, reverse=True)[:N_WORST]:
        print(f"- {describe(result)}")
        again = f"python -m experiments.campaign.grid --only '{result.case.kind}:{result.case.index}'"
        print(f"  `{again}{f' --seed {seed}' if seed else ''}`")


def describe(result: Result) -> str:
    """A data set and its errors in words."""
    case, found = result.case, result.found
    parameters = ", ".join(f"{name}={value}" for name, value in case.parameters.items())
    place = f"{case.kind}:{case.index} ({parameters}, n={case.n}, r={case.r}, seed={case.seed})"
    if found is None:
        return f"{place}: failed, {result.record.reason}"
    stated = "nothing" if found.stated is None else f"{found.stated:.3g}"
    said = f"; {found.warnings[0]}" if found.warned else ""
    return f"{place}: stated {stated}, true {found.true:.3g}, ratio {found.ratio:.2g}{said}"


def print_one(result: Result) -> None:
    """All there is to tell of one set."""
    print(describe(result))
    for name, value in result.record.row.items():
        if name != "made_by":
            print(f"  {name}: {value}")


def main() -> None:
    """Run or read, print, draw."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=0, help="draw all sets anew; only those of seed 0 are stored")
    parser.add_argument("--kinds", nargs="+", choices=list(KINDS), default=list(KINDS), metavar="NAME")
    parser.add_argument("--only", metavar="KIND:INDEX", help="one set, with all there is to tell; not stored")
    parser.add_argument("--short", action="store_true", help="the first set of every kind; not stored")
    parser.add_argument("--stored", action="store_true", help="run nothing, print what is stored")
    parser.add_argument("--picture", action="store_true", help="draw docs/images/stated-and-true.png as well")
    parser.add_argument("--results", type=Path, default=RESULTS, help="file of stored results")
    options = parser.parse_args()
    if options.only is not None:
        case = find_case(options.only, options.seed)
        print_one(Result(case, run_case(case)))
        return
    cases = choose_cases(options.kinds, options.seed, short=options.short)
    if options.stored:
        results = read_results(cases, Store(options.results))
    else:
        results = run(cases, None if options.seed or options.short else Store(options.results))
    print_table(results)
    print_verdict(results)
    print_worst(results, options.seed)
    if options.picture:
        from experiments.campaign.picture import draw  # noqa: PLC0415  tables need no matplotlib

        draw(results)


if __name__ == "__main__":
    main()
