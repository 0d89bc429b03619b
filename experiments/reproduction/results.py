"""Stored results, looked at by cell: means, spreads, and what is not there."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from experiments.harness.store import DONE, Store
from experiments.reproduction.cells import METHODS, Cell
from experiments.reproduction.estimates import Estimator


@dataclass(frozen=True)
class Summary:
    """What the trials of one cell of a table came to."""

    numbers: tuple[float, ...]
    seconds: float | None  # mean of the fits
    n_planned: int
    failure: str  # reason of the first failure, empty if none
    missing: str | None  # package that would be needed
    seconds_needed: float  # to run what was not run
    card: str = ""  # graphics card of the fits, empty if they ran on one core
    n_warned: int = 0  # fits that said of themselves that something is wrong

    @property
    def mean(self) -> float | None:
        """Mean of the trials; None if none was run."""
        return statistics.fmean(self.numbers) if self.numbers else None

    @property
    def spread(self) -> float | None:
        """Standard deviation between trials; None for fewer than two."""
        return statistics.stdev(self.numbers) if len(self.numbers) > 1 else None


class Results:
    """Access to the store for those who draw and judge."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.estimator = Estimator(store.records.values())

    def values(self, cell: Cell) -> dict[str, Any] | None:
        """What a cell gave, None if it was not run or failed."""
        record = self.store.get(cell)
        return dict(record.values) if record is not None and record.status == DONE else None

    def numbers(self, cells: Sequence[Cell], name: str = "error") -> list[float]:
        """One number of each cell that was run."""
        found = (self.values(cell) for cell in cells)
        return [float(values[name]) for values in found if values is not None]

    def mean(self, cells: Sequence[Cell], name: str = "error") -> float | None:
        """Mean over the cells that were run, None if there are none."""
        numbers = self.numbers(cells, name)
        return statistics.fmean(numbers) if numbers else None

    def summary(self, cells: Sequence[Cell], name: str = "error") -> Summary:
        """Mean, spread and time over trials."""
        records = [record for cell in cells if (record := self.store.get(cell)) is not None]
        done = [record for record in records if record.status == DONE]
        fits = [float(record.made["fit_seconds"]) for record in done]
        cards = {str(record.made.get("card", "")) for record in done}
        return Summary(
            numbers=tuple(float(record.values[name]) for record in done),
            seconds=statistics.fmean(fits) if fits else None,
            n_planned=len(cells),
            failure=next((record.reason for record in records if record.status != DONE), ""),
            missing=METHODS[cells[0].method].missing if cells else None,
            seconds_needed=sum(self.estimator.seconds(cell) for cell in cells if self.store.get(cell) is None),
            card=" and ".join(sorted(card or "one core" for card in cards)) if any(cards) else "",
            n_warned=sum(bool(record.values.get("warnings")) for record in done),
        )

    def cards(self) -> list[str]:
        """Graphics cards that results come from."""
        return sorted({str(record.made["card"]) for record in self.store.records.values() if "card" in record.made})

    def machines(self) -> list[str]:
        """Machines that results come from."""
        made = [record.made for record in self.store.records.values()]
        return sorted({str(how["machine"]) + (f", {how['card']}" if "card" in how else "") for how in made})
