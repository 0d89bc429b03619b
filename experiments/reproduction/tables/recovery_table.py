"""What Tables 1 to 3 have in common: settings down, methods across, the paper and theory beside what was measured."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from elldict.theory import cramer_rao_bound, expected_error
from experiments.reproduction.cells import Cell, Scalar, make_cell
from experiments.reproduction.experiment import Entry, Size, Table, absence
from experiments.reproduction.paper import Printed, Row
from experiments.reproduction.report import words
from experiments.reproduction.report.looks import LOOKS
from experiments.reproduction.report.words import bare, duration, plural, thousands, two_digits
from experiments.reproduction.results import Results, Summary

CLOSE = 0.15
"""Relative distance to the paper that counts as agreement, beyond the rounding of its print."""

CORRUPTION_RATE = 0.1
SMALL, MEDIUM = 32, 100
KSVD_ITERATIONS = 200
"""Iterations of K-SVD; the paper does not say how many. Half of them leave atoms mixed even without noise."""

KSVD_NOTE = (
    f"K-SVD starts from samples, is told how many atoms a sample has (θ n), and runs {KSVD_ITERATIONS} iterations. The "
    "paper does not give their number, so neither its errors nor its times can be compared with ours to the digit: "
    "in large problems with many atoms a sample, and under strong noise, K-SVD is still far from its end."
)


@dataclass(frozen=True)
class Column:
    """A method of a table. `quick_n` is the largest size at which a quick run can afford it."""

    name: str
    method: str
    options: Mapping[str, Scalar] = field(default_factory=dict)
    quick_n: int = MEDIUM

    @property
    def label(self) -> str:
        """Name in headings."""
        return LOOKS[self.name].label

    @property
    def p(self) -> float | None:
        """Exponent, for the theory of it."""
        return float(self.options["p"]) if "p" in self.options else None


def lp_column(p: int) -> Column:
    """The paper's Algorithm 2."""
    return Column(f"l{p}", "lp", {"p": p})


KSVD = Column("ksvd", "ksvd", quick_n=SMALL)
RTR = Column("rtr", "rtr", quick_n=SMALL)
OTHERS = (Column("fastica", "fastica"), Column("picard", "picard", quick_n=SMALL), Column("default", "default"))
"""Columns that the paper lacks: what a user would pick today, and this library as it comes."""


@dataclass(frozen=True)
class Layout:
    """A table: its rows and columns."""

    name: str
    rows: tuple[Row, ...]
    quick_rows: tuple[Row, ...]
    columns: tuple[Column, ...]

    def rows_at(self, size: Size) -> tuple[Row, ...]:
        """Rows of a run of this size."""
        return self.rows if size.full else self.quick_rows

    def cells_at(self, row: Row, column: Column, size: Size) -> list[Cell]:
        """The trials of one entry; none where a quick run leaves it out."""
        if not size.full and row.n_features > column.quick_n:
            return []
        options = dict(column.options)
        if column.method == "ksvd":
            options["max_iter"] = KSVD_ITERATIONS
        n_quick = 2 if row.n_features <= SMALL and column.method != "ksvd" else 1
        seeds = size.n_trials(quick=n_quick)
        return [make_cell("recovery", column.method, setting_of(row), seed, options) for seed in seeds]

    def cells(self, size: Size) -> list[Cell]:
        """Everything to run."""
        return [
            cell for row in self.rows_at(size) for column in self.columns for cell in self.cells_at(row, column, size)
        ]

    def column(self, name: str) -> Column:
        """A column by name."""
        return next(column for column in self.columns if column.name == name)


def setting_of(row: Row) -> dict[str, Scalar]:
    """Arguments of `make_bernoulli_gaussian`; what is zero is left out, so that equal settings have equal keys."""
    setting: dict[str, Scalar] = {
        "n_features": row.n_features,
        "n_samples": row.n_samples,
        "density": row.density,
        "dtype": "float32",
    }
    if row.noise_std:
        setting["noise_std"] = row.noise_std
    if row.corruption:
        setting |= {"corruption": row.corruption, "corruption_rate": CORRUPTION_RATE}
    return setting


def noise_of(row: Row) -> float:
    """Noise for the theory: sparse corruption acts roughly like Gaussian noise of its variance."""
    return math.hypot(row.noise_std, row.corruption * math.sqrt(CORRUPTION_RATE))


def theory_of(row: Row, column: Column) -> float | None:
    """Error that theory expects of l_p; for ours the limit, which sparse corruption has none of."""
    model = {"n_features": row.n_features, "n_samples": row.n_samples, "density": row.density}
    if column.p is not None:
        return expected_error(column.p, **model, noise_std=noise_of(row))  # type: ignore[arg-type]
    if column.method == "default" and not row.corruption:
        return cramer_rao_bound(**model, noise_std=row.noise_std)  # type: ignore[arg-type]
    return None


# --- entries ----------------------------------------------------------------------------------------------------------


def make_table(layout: Layout, results: Results, size: Size, caption: str, heads: Mapping[str, str]) -> Table:
    """The table as the report shows it; `heads` maps attributes of a row to headings."""
    rows = []
    for row in layout.rows_at(size):
        entries = [_head(getattr(row, name)) for name in heads]
        for column in layout.columns:
            cells = layout.cells_at(row, column, size)
            entries.append(make_entry(results.summary(cells), row, column, bool(cells)))
        rows.append(tuple(entries))
    columns = (*heads.values(), *(column.label for column in layout.columns))
    details = make_details(layout, results, size, heads)
    return Table(layout.name, caption, columns, tuple(rows), len(heads), details, judged=True)


def _head(value: float) -> Entry:
    text = thousands(value) if isinstance(value, int) else f"{value:g}"
    return Entry(text, order=float(value))


def make_entry(summary: Summary, row: Row, column: Column, planned: bool) -> Entry:
    """The mean error; below it the paper's, and the time of a fit."""
    printed = row.printed.get(column.name)
    beside = [f"paper {words.printed(printed.text)}"] if printed is not None else []
    mean = summary.mean
    if mean is None:
        why = absence(summary) if planned else ("in a full run only",)
        return Entry("–", lines=(*beside, *why), tone="absent", order=math.inf)
    time = duration(summary.seconds or 0)
    if summary.card:
        time += ", card"
    elif len(summary.numbers) < summary.n_planned:
        time += f", {plural(len(summary.numbers), 'trial')}"
    return Entry(bare(mean), order=mean, lines=(*beside, time), tone=_tone(mean, printed))


DETAILS = ("Method", "Error", "±", "Paper", "Theory", "Time", "Paper, time", "Trials", "Remarks")


def make_details(layout: Layout, results: Results, size: Size, heads: Mapping[str, str]) -> Table:
    """Everything that is known of each entry that was run, a number a column."""
    rows = []
    for row in layout.rows_at(size):
        for column in layout.columns:
            summary = results.summary(layout.cells_at(row, column, size))
            if summary.mean is not None:
                entries = [_head(getattr(row, name)) for name in heads]
                rows.append((*entries, Entry(column.label, order=column.label), *_detailed(summary, row, column)))
    caption = (
        "Errors in per cent. ±: standard deviation between trials. Theory: the closed formula for ℓₚ, the Cramér-Rao "
        "bound for elldict."
    )
    return Table(f"{layout.name}-details", caption, (*heads.values(), *DETAILS), tuple(rows), len(heads) + 1)


def _detailed(summary: Summary, row: Row, column: Column) -> tuple[Entry, ...]:
    printed, theory, mean = row.printed.get(column.name), theory_of(row, column), summary.mean or 0.0
    n_run = len(summary.numbers)
    blank = Entry("", order=math.inf)
    return (
        Entry(bare(mean), order=mean, tone=_tone(mean, printed)),
        blank if summary.spread is None else Entry(two_digits(summary.spread), order=summary.spread),
        blank if printed is None else Entry(words.printed(printed.text), order=printed.error),
        blank if theory is None else Entry(("≈ " if row.corruption else "") + bare(theory), order=theory),
        Entry(duration(summary.seconds or 0), order=summary.seconds or 0.0),
        blank if printed is None else Entry(duration(printed.seconds), order=printed.seconds),
        Entry(f"{n_run} of {summary.n_planned}" if n_run < summary.n_planned else str(n_run), order=n_run),
        Entry(_remarks(summary)),
    )


def _remarks(summary: Summary) -> str:
    remarks = (
        f"on {summary.card}" if summary.card else "",
        f"{summary.n_warned} warned" if summary.n_warned else "",
        f"others failed: {summary.failure}" if summary.failure else "",
    )
    return "; ".join(remark for remark in remarks if remark)


def agrees(measured: float, printed: Printed) -> bool:
    """Whether a measured error is the printed one, within 15 % or its rounding."""
    return abs(measured - printed.error) <= max(CLOSE * printed.error, printed.rounding)


def _tone(measured: float, printed: Printed | None) -> str:
    if printed is None:
        return ""
    if agrees(measured, printed):
        return "agrees"
    return "smaller" if measured < printed.error else "larger"
