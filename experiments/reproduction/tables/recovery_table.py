"""Rows, columns and entries of Tables 1 to 3: methods on samples whose dictionary is known."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from elldict.theory import cramer_rao_bound, expected_error
from experiments.reproduction.cells import Cell, Scalar, make_cell
from experiments.reproduction.experiment import Entry, Size, Table, absent_entry
from experiments.reproduction.paper import Printed, Row
from experiments.reproduction.report.styles import STYLES
from experiments.reproduction.report.words import bare, duration, thousands
from experiments.reproduction.results import Results, Summary

CLOSE = 0.15  # relative distance to the paper that counts as agreement, beyond rounding
CORRUPTION_RATE = 0.1
SMALL, MEDIUM = 32, 100  # numbers of features
KSVD_ITERATIONS = 200  # not given by the paper; half of them leave atoms mixed even without noise

KSVD_NOTE = (
    f"K-SVD starts from samples, is given the number of atoms per sample (θ n), and runs {KSVD_ITERATIONS} iterations. "
    "The paper does not give their number, so its errors and times cannot be compared exactly with ours: with large n "
    "and many atoms per sample, and under strong noise, K-SVD has not converged after that."
)


@dataclass(frozen=True)
class Column:
    """A method of a table; a quick run has it up to `quick_n` features."""

    name: str
    method: str
    options: Mapping[str, Scalar] = field(default_factory=dict)
    quick_n: int = MEDIUM

    @property
    def label(self) -> str:
        """Name in headings."""
        return STYLES[self.name].label


def make_lp(p: int) -> Column:
    """Make the column of Algorithm 2 of the paper."""
    return Column(f"l{p}", "lp", {"p": p})


KSVD = Column("ksvd", "ksvd", {"max_iter": KSVD_ITERATIONS}, quick_n=SMALL)
RTR = Column("rtr", "rtr", quick_n=SMALL)
OTHERS = (Column("fastica", "fastica"), Column("picard", "picard", quick_n=SMALL), Column("default", "default"))
"""Methods that the paper does not have."""


@dataclass(frozen=True)
class Layout:
    """Rows and columns of a table; `heads` maps attributes of its rows to headings."""

    rows: tuple[Row, ...]
    quick_rows: tuple[Row, ...]
    columns: tuple[Column, ...]
    heads: Mapping[str, str]

    def rows_at(self, size: Size) -> tuple[Row, ...]:
        """Return the rows of a run of this size."""
        return self.rows if size.full else self.quick_rows

    def cells_at(self, row: Row, column: Column, size: Size) -> list[Cell]:
        """List the trials of an entry; none if it is left out of a quick run."""
        if not size.full and row.n_features > column.quick_n:
            return []
        seeds = size.n_trials(quick=2 if row.n_features <= SMALL and column is not KSVD else 1)
        return [make_cell("recovery", column.method, make_setting(row), seed, column.options) for seed in seeds]

    def cells(self, size: Size) -> list[Cell]:
        """List all cells."""
        rows = self.rows_at(size)
        return [cell for row in rows for column in self.columns for cell in self.cells_at(row, column, size)]

    def column(self, name: str) -> Column:
        """Return a column by name."""
        return next(column for column in self.columns if column.name == name)


def make_setting(row: Row) -> dict[str, Scalar]:
    """Make the arguments of `make_bernoulli_gaussian`, without zeros, so that equal settings have equal keys."""
    setting: dict[str, Scalar] = {name: getattr(row, name) for name in ("n_features", "n_samples", "density")}
    setting["dtype"] = "float32"
    if row.noise_std:
        setting["noise_std"] = row.noise_std
    if row.corruption:
        setting |= {"corruption": row.corruption, "corruption_rate": CORRUPTION_RATE}
    return setting


def compute_theory(row: Row, column: Column) -> float | None:
    """Compute the theoretical error of l_p, or the Cramer-Rao bound for elldict, which corruption does not have.

    Sparse corruption is treated as Gaussian noise of the same variance, which is roughly right.
    """
    model: Any = {name: getattr(row, name) for name in ("n_features", "n_samples", "density")}
    noise = math.hypot(row.noise_std, row.corruption * math.sqrt(CORRUPTION_RATE))
    if "p" in column.options:
        return expected_error(float(column.options["p"]), **model, noise_std=noise)
    if column.method == "default" and not row.corruption:
        return cramer_rao_bound(**model, noise_std=row.noise_std)
    return None


def make_table(layout: Layout, results: Results, size: Size, caption: str) -> Table:
    """Make the table of the report."""
    rows = []
    for row in layout.rows_at(size):
        values = [getattr(row, name) for name in layout.heads]
        entries = [Entry(thousands(value) if isinstance(value, int) else f"{value:g}") for value in values]
        for column in layout.columns:
            cells = layout.cells_at(row, column, size)
            entries.append(make_entry(results.summary(cells), row, column) if cells else Entry("", ("full run",)))
        rows.append(tuple(entries))
    columns = (*layout.heads.values(), *(column.label for column in layout.columns))
    return Table(caption, columns, tuple(rows), len(layout.heads))


def make_entry(summary: Summary, row: Row, column: Column) -> Entry:
    """Make an entry: the mean error, and below it what the paper and theory say, and the time."""
    printed, theory, mean = row.printed.get(column.name), compute_theory(row, column), summary.mean
    lines = []
    if printed is not None:
        lines.append(f"paper {bare(printed.error)}, {duration(printed.seconds)}")
    if theory is not None:
        name = "theory" if "p" in column.options else "bound"
        lines.append(f"{name} {'≈ ' if row.corruption else ''}{bare(theory)}")
    if mean is None:
        return absent_entry(summary, *lines)
    if summary.n_warned:
        lines.append(f"{summary.n_warned} warned")
    n_run = len(summary.numbers)
    trials = f", {n_run} of {summary.n_planned} trials" if n_run < summary.n_planned else ""
    text = bare(mean) if summary.spread is None else f"{bare(mean)} ± {bare(summary.spread)}"
    return Entry(text, (*lines, duration(summary.seconds) + trials), _choose_tone(mean, printed))


def agrees(measured: float, printed: Printed) -> bool:
    """Return whether a measured error is the printed one, within 15 % or its rounding."""
    return abs(measured - printed.error) <= max(CLOSE * printed.error, printed.rounding)


def _choose_tone(measured: float, printed: Printed | None) -> str:
    if printed is None:
        return ""
    return "agrees" if agrees(measured, printed) else "smaller" if measured < printed.error else "larger"
