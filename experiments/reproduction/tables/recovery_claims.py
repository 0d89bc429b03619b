"""Claims of Tables 1 to 3: rows in which a method is the best, the fastest, or as printed."""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from experiments.reproduction.experiment import Claim, Size, judge
from experiments.reproduction.paper import Row
from experiments.reproduction.report.styles import STYLES
from experiments.reproduction.report.words import percent, span, whole_percent
from experiments.reproduction.results import Results
from experiments.reproduction.tables.recovery_table import CLOSE, Layout, agrees, compute_theory

EXPECTED = 0.1  # relative distance to the theoretical error that counts as agreement
BROKEN, WORKING = 0.1, 0.05  # errors above which a method has broken down, and below which it has not

PAPERS = ("l3", "l4", "rtr", "ksvd")
"""Methods of the paper's Tables 2 and 3."""


@dataclass(frozen=True)
class Found:
    """Means over trials of a row, by method."""

    row: Row
    errors: dict[str, float]
    seconds: dict[str, float]
    iterations: dict[str, float]


class Reader:
    """Access to the results of a table by row."""

    def __init__(self, layout: Layout, results: Results, size: Size) -> None:
        self.layout, self.results, self.size = layout, results, size
        self.rows = layout.rows_at(size)

    def select(
        self, names: Sequence[str], where: Callable[[Row], bool] = lambda _: True, needs: Sequence[str] = ()
    ) -> tuple[list[Found], int]:
        """Return the rows in which all of these methods were run, and the number of other rows.

        A quick run leaves out methods in some rows: these rows count without them, unless they are in `needs`.
        """
        found, n_open = [], 0
        for row in filter(where, self.rows):
            cells = {name: self.layout.cells_at(row, self.layout.column(name), self.size) for name in names}
            if not all(cells[name] for name in needs):
                continue
            summaries = {name: self.results.summary(trials) for name, trials in cells.items() if trials}
            errors = {name: summary.mean for name, summary in summaries.items() if summary.mean is not None}
            if len(errors) < len(summaries):
                n_open += 1
                continue
            seconds = {name: summary.seconds for name, summary in summaries.items()}
            iterations = {name: self.results.mean(cells[name], "n_iter") or 0.0 for name in summaries}
            found.append(Found(row, errors, seconds, iterations))
        return found, n_open


def count_rows(
    text: str, held: Sequence[bool], *more: str, n_open: int = 0, what: str = "rows show it", ours: bool = False
) -> Claim:
    """Judge a claim by rows."""
    said = [f"{sum(held)} of {len(held)} {what}", *filter(None, more)]
    return judge(text, held, "; ".join(said) + ".", n_open=n_open, ours=ours)


def judge_smallest(
    reader: Reader, text: str, name: str, names: Sequence[str], where: Callable[[Row], bool], more: str = ""
) -> Claim:
    """Judge that a method has the smallest error in some rows."""
    found, n_open = reader.select(names, where, needs=[name])
    held = [row.errors[name] == min(row.errors.values()) for row in found]
    return count_rows(text, held, more, n_open=n_open)


def judge_fastest(reader: Reader, text: str, names: Sequence[str]) -> Claim:
    """Judge that l_3 takes the least time, and say how many iterations it needs compared with l_4."""
    found, _ = reader.select(names)
    more = ""
    if found:
        count = [row.iterations["l3"] / row.iterations["l4"] for row in found]
        time = [row.seconds["l3"] / row.seconds["l4"] for row in found]
        price = statistics.fmean(t / c for t, c in zip(time, count, strict=True))
        more = (
            f"an iteration of ℓ₃ takes {price:.2f} times as long as one of ℓ₄, "
            f"and it needs {statistics.fmean(count):.1f} times as many"
        )
    held = [row.seconds["l3"] == min(row.seconds.values()) for row in found]
    return count_rows(text, held, more, what="rows show it, by seconds on one core")


def judge_times(reader: Reader) -> Iterator[Claim]:
    """Judge what Tables 2 and 3 say about time."""
    yield judge_fastest(reader, "ℓ₃ takes the least time of the paper's methods.", PAPERS)
    found, _ = reader.select(PAPERS, needs=["rtr"])
    held = [row.seconds["rtr"] == max(row.seconds.values()) for row in found]
    ratios = [row.seconds["rtr"] / row.seconds["l3"] for row in found]
    more = f"{span(ratios, '.0f')} times the time of ℓ₃"
    yield count_rows("RTR is the slowest of the paper's methods.", held, more)


def judge_breakdown(reader: Reader, name: str, level: float) -> Iterator[Claim]:
    """Judge that RTR and K-SVD break down at the strongest noise or corruption."""
    for method in ("rtr", "ksvd"):
        found, n_open = reader.select(("l3", method), lambda row: getattr(row, name) == level, needs=[method])
        text = f"{STYLES[method].label} breaks down at the largest σ = {level:g}, where ℓ₃ does not."
        more = ", ".join(f"{percent(row.errors[method])} where ℓ₃ has {percent(row.errors['l3'])}" for row in found)
        held = [row.errors[method] > BROKEN and row.errors["l3"] < WORKING for row in found]
        what = f"rows have an error above {whole_percent(BROKEN)} where ℓ₃ is below {whole_percent(WORKING)}"
        yield count_rows(text, held, more, n_open=n_open, what=what)


def judge_agreement(reader: Reader, names: Sequence[str]) -> Iterator[Claim]:
    """Judge that the errors of l_p are those of the paper, and those of theory."""
    labels = ", ".join(STYLES[name].label for name in names)
    held, exceptions, ratios = [], [], []
    for name in names:
        for found in reader.select([name])[0]:
            row, measured = found.row, found.errors[name]
            theory = compute_theory(row, reader.layout.column(name)) or 1.0
            if not row.corruption:
                ratios.append(measured / theory)
            if name in row.printed:
                held.append(agrees(measured, row.printed[name]))
                if not held[-1]:
                    numbers = (measured, row.printed[name].error, theory)
                    exceptions.append(f"{_describe(name, row)}: %s, paper %s, theory %s" % tuple(map(percent, numbers)))
    text = f"The errors of {labels} are those of the paper, within {whole_percent(CLOSE)}."
    yield count_rows(text, held, *exceptions, what="entries agree", ours=True)
    if any(not row.corruption for row in reader.rows):
        text = f"The errors of {labels} are those of theory, within {whole_percent(EXPECTED)}."
        held = [abs(ratio - 1) <= EXPECTED for ratio in ratios]
        yield count_rows(text, held, f"measured / theory {span(ratios)}", what="entries agree", ours=True)


def _describe(name: str, row: Row) -> str:
    level = row.noise_std or row.corruption
    return f"{STYLES[name].label} at n = {row.n_features}, θ = {row.density:g}" + (f", σ = {level:g}" if level else "")


def rises(numbers: Sequence[float]) -> bool:
    """Return whether every number is larger than the one before."""
    return all(a < b for a, b in itertools.pairwise(numbers))


def summarise_hardest(reader: Reader, attribute: str) -> str:
    """Summarise the errors in the last row, which has the largest n and σ."""
    names, last = (*PAPERS, "default"), reader.rows[-1]
    errors = {
        name: found[0].errors[name]
        for name in names
        if (found := reader.select([name], lambda row: row == last, needs=[name])[0])
    }
    listed = ", ".join(f"{STYLES[name].label} {percent(error)}" for name, error in errors.items())
    return f"Errors at σ = {getattr(last, attribute):g} and n = {last.n_features}: {listed or 'not run yet'}."
