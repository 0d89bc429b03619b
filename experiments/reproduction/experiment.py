"""What a table or figure of the paper consists of: cells to run, and a section of the report to make of them."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from matplotlib.figure import Figure

from elldict._old.report.style import Palette
from experiments.reproduction.cells import Cell
from experiments.reproduction.images import Source
from experiments.reproduction.report.words import duration
from experiments.reproduction.results import Results, Summary


@dataclass(frozen=True)
class Size:
    """How much is run: the paper's size, or a small one; `trials` replaces the number of trials of either."""

    full: bool
    trials: int | None
    source: Source

    def n_trials(self, quick: int, full: int = 10) -> range:
        """Seeds of the trials of a cell."""
        return range(self.trials or (full if self.full else quick))


class Verdict(StrEnum):
    """What the results say about a claim."""

    HOLDS = "holds"
    PARTLY = "partly"
    FAILS = "fails"
    OPEN = "not run"

    @staticmethod
    def of(agreeing: int, of_all: int) -> Verdict:
        """All of the comparisons agree, at least half of them, or fewer."""
        if of_all == 0:
            return Verdict.OPEN
        if agreeing == of_all:
            return Verdict.HOLDS
        return Verdict.PARTLY if 2 * agreeing >= of_all else Verdict.FAILS


@dataclass(frozen=True)
class Claim:
    """A sentence of the paper (or of ours), what was found, and the verdict that follows from it."""

    text: str
    found: str
    verdict: Verdict
    ours: bool = False  # claimed by this project, not by the paper


@dataclass(frozen=True)
class Entry:
    """One entry of a table: a number, and at most two small lines below it."""

    text: str
    order: float | str = ""  # by which columns are sorted
    lines: tuple[str, ...] = ()
    tone: str = ""  # CSS class: agrees, smaller, larger, absent


def absence(summary: Summary) -> tuple[str, ...]:
    """Why there is no number, and how long one would take."""
    if summary.missing:
        return (f"{summary.missing} is not installed",)
    if summary.failure:
        return (f"failed: {summary.failure}",)
    return (f"not run, {duration(summary.seconds_needed)}",)


def absent_entry(summary: Summary) -> Entry:
    """Where a number would stand."""
    return Entry("–", lines=absence(summary), tone="absent", order=math.inf)


@dataclass(frozen=True)
class Table:
    """A table of the report; the first `n_heads` columns say what a row is about.

    `details` is the same with a number a column, for those who want them all; `judged` says that entries are compared
    with the paper's.
    """

    name: str
    caption: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Entry, ...], ...]
    n_heads: int = 1
    details: Table | None = None
    judged: bool = False


@dataclass(frozen=True)
class Picture:
    """A figure of the report: drawn for light and dark, for a desk and a phone."""

    name: str
    caption: str
    alt: str
    draw: Callable[[Palette, bool], Figure]  # palette, whether narrow
    smooth: bool = False  # shades rather than lines


@dataclass(frozen=True)
class Section:
    """Part of the report: what was found in a sentence, what was done, and then the rest."""

    title: str
    finding: str
    lead: str
    tables: tuple[Table, ...] = ()
    pictures: tuple[Picture, ...] = ()
    claims: tuple[Claim, ...] = ()
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Experiment:
    """A table or figure under its name on the command line."""

    name: str
    heading: str  # such as "Table 1"
    cells: Callable[[Size], Sequence[Cell]]
    section: Callable[[Results, Size], Section]
