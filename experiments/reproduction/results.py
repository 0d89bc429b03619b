"""Means, spreads and times of stored results."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from experiments.harness.store import DONE, Store
from experiments.reproduction.cells import METHODS, Cell


@dataclass(frozen=True)
class Summary:
    """Results of the trials of one entry of a table."""

    numbers: tuple[float, ...]
    seconds: float  # mean time of a fit
    n_planned: int
    n_warned: int  # fits that issued a warning
    absence: str  # why there are no numbers

    @property
    def mean(self) -> float | None:
        """Mean over trials; None if none was run."""
        return statistics.fmean(self.numbers) if self.numbers else None

    @property
    def spread(self) -> float | None:
        """Standard deviation between trials; None for fewer than two."""
        return statistics.stdev(self.numbers) if len(self.numbers) > 1 else None


class Results:
    """Access to stored results by cell."""

    def __init__(self, store: Store) -> None:
        self.store = store

    def values(self, cell: Cell) -> dict[str, Any] | None:
        """Return the result of a cell, None if it was not run or failed."""
        record = self.store.get(cell)
        return dict(record.values) if record is not None and record.status == DONE else None

    def numbers(self, cells: Sequence[Cell], name: str = "error") -> list[float]:
        """Return one number of each cell that was run."""
        return [float(values[name]) for cell in cells if (values := self.values(cell)) is not None]

    def mean(self, cells: Sequence[Cell], name: str = "error") -> float | None:
        """Compute the mean over the cells that were run, None if there are none."""
        numbers = self.numbers(cells, name)
        return statistics.fmean(numbers) if numbers else None

    def summary(self, cells: Sequence[Cell], name: str = "error") -> Summary:
        """Summarise the trials of an entry."""
        records = [record for cell in cells if (record := self.store.get(cell)) is not None]
        done = [record for record in records if record.status == DONE]
        failures = [f"failed: {record.reason}" for record in records if record.status != DONE]
        missing = METHODS[cells[0].method].missing if cells else None
        return Summary(
            numbers=tuple(float(record.values[name]) for record in done),
            seconds=statistics.fmean(record.made["fit_seconds"] for record in done) if done else 0.0,
            n_planned=len(cells),
            n_warned=sum(bool(record.values.get("warnings")) for record in done),
            absence=f"{missing} is not installed" if missing else failures[0] if failures else "not run",
        )

    def machines(self, cells: Sequence[Cell]) -> list[str]:
        """List the machines that results come from."""
        records = (self.store.get(cell) for cell in cells)
        return sorted({str(record.made["machine"]) for record in records if record is not None})
