"""Parts of an experiment: the cells to run, and the section of the report made from their results."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from matplotlib.figure import Figure

from experiments.reproduction.cells import Cell
from experiments.reproduction.images import Source
from experiments.reproduction.results import Results, Summary


@dataclass(frozen=True)
class Size:
    """Size of a run: that of the paper, or a small one; `trials` replaces the number of trials of either."""

    full: bool
    trials: int | None
    source: Source

    def n_trials(self, quick: int, full: int = 10) -> range:
        """Return the seeds of the trials of a cell."""
        return range(self.trials or (full if self.full else quick))


class Verdict(StrEnum):
    """What the results say about a claim."""

    HOLDS = "holds"
    PARTLY = "in part"
    FAILS = "fails"
    OPEN = "not run"


@dataclass(frozen=True)
class Claim:
    """A statement of the paper or of this project, what was found, and the verdict."""

    text: str
    found: str
    verdict: Verdict
    ours: bool = False  # stated by this project, not by the paper


def judge(text: str, held: Sequence[bool], found: str, *, n_open: int = 0, ours: bool = False) -> Claim:
    """Judge a claim by comparisons: it holds if all agree, in part if half of them do or some were not run."""
    if not held:
        return Claim(text, "Not run.", Verdict.OPEN, ours)
    verdict = Verdict.HOLDS if all(held) else Verdict.PARTLY if 2 * sum(held) >= len(held) else Verdict.FAILS
    if n_open and verdict is Verdict.HOLDS:
        verdict = Verdict.PARTLY
    return Claim(text, found + (f" {n_open} not run." if n_open else ""), verdict, ours)


@dataclass(frozen=True)
class Entry:
    """An entry of a table: a number, and small lines below it."""

    text: str
    lines: tuple[str, ...] = ()
    tone: str = ""  # CSS class: agrees, smaller, larger, absent


def absent_entry(summary: Summary, *lines: str) -> Entry:
    """Make the entry for a number that is not known."""
    return Entry("–", (*lines, summary.absence), "absent")


@dataclass(frozen=True)
class Table:
    """A table of the report; the first `n_heads` columns describe the row."""

    caption: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Entry, ...], ...]
    n_heads: int = 1


@dataclass(frozen=True)
class Picture:
    """A figure of the report."""

    caption: str
    alt: str
    draw: Callable[[], Figure]


@dataclass(frozen=True)
class Section:
    """A section of the report: what was found in one sentence, what was done, and the rest."""

    title: str
    finding: str
    lead: str
    claims: Sequence[Claim]
    picture: Picture | None = None
    table: Table | None = None
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Experiment:
    """A table or figure, by its name on the command line."""

    name: str
    heading: str  # such as "Table 1"
    cells: Callable[[Size], Sequence[Cell]]
    section: Callable[[Results, Size], Section]
