"""What is claimed of Tables 1 to 3: rows in which a method is the best, the fastest, as printed, or as expected."""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Callable, Iterator, Sequence

from experiments.reproduction.experiment import Claim, Size, Verdict
from experiments.reproduction.paper import Row
from experiments.reproduction.report.looks import LOOKS
from experiments.reproduction.report.words import SIGN, percent, printed, span, whole_percent
from experiments.reproduction.results import Results, Summary
from experiments.reproduction.tables.recovery_table import CLOSE, Layout, agrees, theory_of

EXPECTED = 0.1
"""Relative distance to the closed formula that counts as agreement with it."""


class Reader:
    """Means of a table, for claims."""

    def __init__(self, layout: Layout, results: Results, size: Size) -> None:
        self.layout, self.results, self.size = layout, results, size
        self.rows = layout.rows_at(size)

    def error(self, row: Row, name: str) -> float | None:
        """Mean error of a method in a row, None if not run."""
        return self._summary(row, name).mean

    def seconds(self, row: Row, name: str) -> float | None:
        """Mean seconds of a fit on one core, None if there was none."""
        summary = self._summary(row, name)
        return None if summary.card else summary.seconds

    def _summary(self, row: Row, name: str) -> Summary:
        return self.results.summary(self.layout.cells_at(row, self.layout.column(name), self.size))

    def rows_with(self, *names: str, where: Callable[[Row], bool] = lambda _: True) -> list[Row]:
        """Rows in which all these methods were run."""
        return [row for row in self.rows if where(row) and all(self.error(row, name) is not None for name in names)]

    def timed_rows(self, *names: str) -> list[Row]:
        """Rows in which all of these methods that are planned there were run on one core, so that times compare."""
        return [
            row for row in self.rows if all(self.seconds(row, name) is not None for name in self.planned(row, names))
        ]

    def complete_rows(self, *names: str, where: Callable[[Row], bool] = lambda _: True) -> tuple[list[Row], int]:
        """Rows in which all of these methods that are planned there were run; and the number of rows not so."""
        asked = [row for row in self.rows if where(row)]
        run = [row for row in asked if all(self.error(row, name) is not None for name in self.planned(row, names))]
        return run, len(asked) - len(run)

    def planned(self, row: Row, names: Sequence[str]) -> list[str]:
        """Those of the methods that a run of this size has in this row."""
        return [name for name in names if self.layout.cells_at(row, self.layout.column(name), self.size)]

    def times(self, row: Row, names: Sequence[str]) -> list[float]:
        """Seconds of methods that were run on one core."""
        return [seconds for name in names if (seconds := self.seconds(row, name)) is not None]

    def iterations(self, row: Row, name: str) -> float:
        """Mean number of iterations of a method that was run in a row."""
        return self.results.mean(self.layout.cells_at(row, self.layout.column(name), self.size), "n_iter") or 0.0

    def errors(self, row: Row, names: Sequence[str]) -> list[float]:
        """Errors of methods that were run."""
        return [error for name in names if (error := self.error(row, name)) is not None]


def count_claim(
    text: str, held: Sequence[bool], what: str, more: str = "", *, ours: bool = False, n_not_run: int = 0
) -> Claim:
    """A claim about rows: in how many it holds. While some of them were not run, it holds in part at most."""
    if not held:
        return Claim(text, f"None of the {what.split(maxsplit=1)[0]} it is about was run.", Verdict.OPEN, ours=ours)
    verdict = Verdict.of(sum(held), len(held))
    if n_not_run and verdict is Verdict.HOLDS:
        verdict = Verdict.PARTLY
    parts = [f"{sum(held)} of {len(held)} {what}", f"{n_not_run} not run" if n_not_run else "", more]
    return Claim(text, "; ".join(part for part in parts if part) + ".", verdict, ours=ours)


def smallest_claim(
    reader: Reader, text: str, name: str, names: Sequence[str], where: Callable[[Row], bool], more: str = ""
) -> Claim:
    """That a method has the smallest error of several in some of the rows."""
    rows, n_not_run = reader.complete_rows(*names, where=where)
    others = [other for other in names if other != name]
    smallest = [(reader.error(row, name) or 0) < min(reader.errors(row, others)) for row in rows]
    return count_claim(text, smallest, "rows show it", more, n_not_run=n_not_run)


def fastest_claim(reader: Reader, text: str, names: Sequence[str]) -> Claim:
    """That l3 takes the least time of several methods, and why it does not."""
    rows = reader.timed_rows(*names)
    held = [reader.seconds(row, "l3") == min(reader.times(row, names)) for row in rows]
    return count_claim(text, held, "rows show it, by seconds on one core", _why_slow(reader, rows))


def _why_slow(reader: Reader, rows: Sequence[Row]) -> str:
    """Iterations of l3 against those of l4, and the price of one."""
    if not rows:
        return ""
    count = [reader.iterations(row, "l3") / reader.iterations(row, "l4") for row in rows]
    time = [(reader.seconds(row, "l3") or 0) / (reader.seconds(row, "l4") or 1) for row in rows]
    price = [t / c for t, c in zip(time, count, strict=True)]
    return (
        f"an iteration of ℓ₃ costs {statistics.fmean(price):.2f} times one of ℓ₄, "
        f"and it takes {statistics.fmean(count):.1f} times as many"
    )


def rises(numbers: Sequence[float]) -> bool:
    """Whether every number is larger than the one before."""
    return all(a < b for a, b in itertools.pairwise(numbers))


def agreement_claims(reader: Reader, names: Sequence[str]) -> Iterator[Claim]:
    """Our own promise: the l_p entries are the paper's, and theory's."""
    labels = ", ".join(_label(name) for name in names)
    entries = [
        (row, name, measured)
        for row in reader.rows
        for name in names
        if (measured := reader.error(row, name)) is not None
    ]
    known = [(row, name, measured) for row, name, measured in entries if name in row.printed]
    held = [agrees(measured, row.printed[name]) for row, name, measured in known]
    others = [entry for entry, agreed in zip(known, held, strict=True) if not agreed]
    text = f"The errors of {labels} are the paper's, within {whole_percent(CLOSE)}."
    yield count_claim(text, held, "entries agree", "; ".join(_exception(reader, *entry) for entry in others), ours=True)
    pairs = [
        (measured, theory_of(row, reader.layout.column(name))) for row, name, measured in entries if not row.corruption
    ]
    ratios = [measured / theory for measured, theory in pairs if theory]
    if ratios:
        text = f"The errors of {labels} are those of the closed formula, within {whole_percent(EXPECTED)}."
        found = f"measured / theory {span(min(ratios), max(ratios))}"
        yield count_claim(text, [abs(ratio - 1) <= EXPECTED for ratio in ratios], "entries agree", found, ours=True)


def _label(name: str) -> str:
    return LOOKS[name].label


def strongest_finding(reader: Reader, attribute: str, names: Sequence[str]) -> str:
    """The errors of methods in the last row, the largest problem and the strongest disturbance, in a sentence."""
    row = reader.rows[-1]
    errors = [(name, reader.error(row, name)) for name in names]
    listed = ", ".join(f"{_label(name)} {percent(error)}" for name, error in errors if error is not None)
    where = f"At σ = {getattr(row, attribute):g} and n = {row.n_features}"
    return f"{where} the errors are: {listed}." if listed else "Not run yet."


def _exception(reader: Reader, row: Row, name: str, measured: float) -> str:
    """An entry that is not the paper's, beside what theory has to say about it."""
    level = row.noise_std or row.corruption
    where = f"{_label(name)} at n = {row.n_features}, θ = {row.density:g}" + (f", σ = {level:g}" if level else "")
    theory = theory_of(row, reader.layout.column(name)) or 0.0
    return f"{where}: {percent(measured)}, paper {printed(row.printed[name].text)}{SIGN}, theory {percent(theory)}"
