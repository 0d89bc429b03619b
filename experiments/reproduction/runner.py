"""The one runner: cells in, stored records out, whatever happens on the way."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from multiprocessing.connection import wait

from experiments.harness.store import DONE, FAILED, Record, Store
from experiments.harness.worker import Desk
from experiments.reproduction.cell import Cell
from experiments.reproduction.estimates import Estimator, prior_seconds
from experiments.reproduction.methods import METHODS

GLANCE = 0.5
"""Seconds between two looks at the clock while nothing happens."""


@dataclass(frozen=True)
class Progress:
    """Where a run stands."""

    n_done: int
    n_cells: int
    seconds_left: float
    doing: tuple[Cell, ...]


@dataclass
class Outcome:
    """What a run did and did not do."""

    n_cells: int
    n_stored_before: int
    done: list[Cell] = field(default_factory=list)
    failed: list[Cell] = field(default_factory=list)
    not_run: list[Cell] = field(default_factory=list)
    missing: dict[str, list[Cell]] = field(default_factory=dict)  # by package
    interrupted: bool = False


def run(
    cells: Iterable[Cell],
    store: Store,
    *,
    jobs: int = 1,
    budget: float | None = None,
    files: Mapping[str, str] | None = None,
    device: str | None = None,
    retry_failed: bool = False,
    tell: Callable[[Progress], None] = lambda _: None,
) -> Outcome:
    """Run what is not stored yet, cheap cells first, `jobs` at a time, for at most `budget` seconds.

    Every result is stored the moment it is known. A cell that fails is stored as failed and not tried again unless
    asked for. Ctrl-C ends the run as the budget does: what was under way is given up, all else is kept. Our own methods
    work on `device`, if it is given.
    """
    unique = list(dict.fromkeys(cells))
    outcome = Outcome(len(unique), 0)
    open_cells = []
    for cell in unique:
        record = store.get(cell)
        package = METHODS[cell.method].missing
        if record is not None and not (retry_failed and record.status == FAILED):
            outcome.n_stored_before += 1
        elif package is not None:
            outcome.missing.setdefault(package, []).append(cell)
        else:
            open_cells.append(cell)
    open_cells.sort(key=_rank)
    with store.writing():
        _Shift(open_cells, store, outcome, budget, lambda: Desk(files or {}, device), tell).work(jobs)
    return outcome


def _rank(cell: Cell) -> tuple[float, str]:
    """Cheap cells first, for most results soonest; a second trial only when others have had time for their first."""
    return (1 + cell.seed) * prior_seconds(cell), cell.key


class _Shift:
    """One run: desks, what is left to do, and until when."""

    def __init__(
        self,
        cells: list[Cell],
        store: Store,
        outcome: Outcome,
        budget: float | None,
        new_desk: Callable[[], Desk],
        tell: Callable[[Progress], None],
    ) -> None:
        self.left, self.store, self.outcome, self.new_desk, self.tell = cells, store, outcome, new_desk, tell
        self.deadline = None if budget is None else time.monotonic() + budget
        self.estimator = Estimator(store.records.values())
        self.desks: list[Desk] = []
        self.told = 0.0

    def work(self, jobs: int) -> None:
        try:
            while self._hand_out(jobs):
                self._tell()
                self._collect()
        except KeyboardInterrupt:
            self.outcome.interrupted = True
        finally:
            given_up = [desk.cell for desk in self.desks if desk.cell is not None]
            self.outcome.not_run += given_up + self.left
            for desk in self.desks:
                desk.dismiss()

    def _hand_out(self, jobs: int) -> bool:
        """Give every free desk a cell; False when nothing is under way and nothing more will be."""
        for desk in [desk for desk in self.desks if not desk.alive]:
            self.desks.remove(desk)
        busy = sum(desk.cell is not None for desk in self.desks)
        while busy < jobs and (cell := self._next_cell()) is not None:
            self._free_desk().give(cell)
            busy += 1
        return busy > 0 and not self._over

    def _free_desk(self) -> Desk:
        for desk in self.desks:
            if desk.cell is None:
                return desk
        self.desks.append(self.new_desk())
        return self.desks[-1]

    def _next_cell(self) -> Cell | None:
        """The first cell that should be finished in time."""
        for number, cell in enumerate(self.left):
            if self.deadline is None or time.monotonic() + self.estimator.seconds(cell) < self.deadline:
                return self.left.pop(number)
        return None

    @property
    def _over(self) -> bool:
        return self.deadline is not None and time.monotonic() >= self.deadline

    def _collect(self) -> None:
        desks = {desk.connection: desk for desk in self.desks if desk.cell is not None}
        for connection in wait(list(desks), timeout=GLANCE):
            desk = desks[connection]  # type: ignore[index]
            cell = desk.cell
            assert cell is not None
            record = desk.take()
            self.store.add(record)
            self._count(cell, record)

    def _count(self, cell: Cell, record: Record) -> None:
        if record.status == DONE:
            self.outcome.done.append(cell)
            self.estimator.learn(record)
        else:
            self.outcome.failed.append(cell)

    def _tell(self) -> None:
        if time.monotonic() < self.told + GLANCE:  # adding up thousands of estimates after every cell would cost more
            return
        self.told = time.monotonic()
        busy = tuple(desk.cell for desk in self.desks if desk.cell is not None)
        n_open = len(self.left) + len(busy)
        seconds = sum(map(self.estimator.seconds, [*self.left, *busy])) / max(1, len(busy))
        if self.deadline is not None:
            seconds = min(seconds, self.deadline - time.monotonic())
        n_cells = self.outcome.n_cells - sum(map(len, self.outcome.missing.values()))
        self.tell(Progress(n_cells - n_open, n_cells, seconds, busy))
