"""The runner: cells in, stored records out, whatever happens on the way."""

from __future__ import annotations

import platform
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from experiments.harness.machine import processor
from experiments.harness.pool import Lost, Pool
from experiments.harness.store import DONE, FAILED, Record, Store
from experiments.reproduction.cells import METHODS, Cell
from experiments.reproduction.estimates import Estimator, prior_seconds
from experiments.reproduction.tasks import run_cell, uses_card

TELL_SECONDS = 0.5
"""Between two reports of progress: adding up thousands of estimates after every cell would cost more than the cells."""


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
    left = []
    for cell in unique:
        record = store.get(cell)
        package = METHODS[cell.method].missing
        if record is not None and not (retry_failed and record.status == FAILED):
            outcome.n_stored_before += 1
        elif package is not None:
            outcome.missing.setdefault(package, []).append(cell)
        else:
            left.append(cell)
    left.sort(key=_rank)
    deadline = None if budget is None else time.monotonic() + budget
    pool = Pool(partial(attempt, files=dict(files or {}), device=device), jobs, deadline=deadline)
    with store.writing(), pool:
        _Run(left, store, outcome, pool, tell).work()
    return outcome


def _rank(cell: Cell) -> tuple[float, str]:
    """Cheap cells first, for most results soonest; a second trial only when others have had time for their first."""
    return (1 + cell.seed) * prior_seconds(cell), cell.key


class _Run:
    """What is left to do, and what came of the rest."""

    def __init__(
        self,
        cells: list[Cell],
        store: Store,
        outcome: Outcome,
        pool: Pool[Cell, Record],
        tell: Callable[[Progress], None],
    ) -> None:
        self.left, self.store, self.outcome, self.pool, self.tell = cells, store, outcome, pool, tell
        self.estimator = Estimator(store.records.values())
        self.told = 0.0

    def work(self) -> None:
        try:
            for cell, found in self.pool.results(self._next_cell, self._tell):
                self._keep(cell, _failure(cell, found.reason, found.seconds) if isinstance(found, Lost) else found)
        except KeyboardInterrupt:
            self.outcome.interrupted = True
        finally:
            self.outcome.not_run += self.pool.busy + self.left

    def _next_cell(self) -> Cell | None:
        """The first cell that should be finished in time."""
        deadline = self.pool.deadline
        for number, cell in enumerate(self.left):
            if deadline is None or time.monotonic() + self.estimator.seconds(cell) < deadline:
                return self.left.pop(number)
        return None

    def _keep(self, cell: Cell, record: Record) -> None:
        self.store.add(record)
        if record.status == DONE:
            self.outcome.done.append(cell)
            self.estimator.learn(record)
        else:
            self.outcome.failed.append(cell)

    def _tell(self) -> None:
        if time.monotonic() < self.told + TELL_SECONDS:
            return
        self.told = time.monotonic()
        busy = self.pool.busy
        seconds = sum(map(self.estimator.seconds, [*self.left, *busy])) / max(1, len(busy))
        if self.pool.deadline is not None:
            seconds = min(seconds, self.pool.deadline - time.monotonic())
        n_cells = self.outcome.n_cells - sum(map(len, self.outcome.missing.values()))
        self.tell(Progress(n_cells - len(self.left) - len(busy), n_cells, seconds, tuple(busy)))


# --- one cell, in a worker --------------------------------------------------------------------------------------------


def attempt(cell: Cell, files: Mapping[str, str], device: str | None) -> Record:
    """Run a cell; whatever it raises is its result."""
    began = time.process_time()
    try:
        values, fit_seconds = run_cell(cell, files, device)
    except Exception as error:
        return _failure(cell, f"{type(error).__name__}: {error}", time.process_time() - began)
    made = _made(time.process_time() - began) | {"fit_seconds": round(fit_seconds, 4)}
    if uses_card(cell, device):
        made["card"] = _card(str(device))
    return Record(cell.identity, DONE, values, "", made)


def _failure(cell: Cell, reason: str, seconds: float) -> Record:
    return Record(cell.identity, FAILED, {}, " ".join(reason.split()), _made(seconds))


def _made(seconds: float) -> dict[str, Any]:
    return {"seconds": round(seconds, 4), "machine": f"{processor()}, {platform.system()}"}


def _card(device: str) -> str:
    import torch  # noqa: PLC0415

    return str(torch.cuda.get_device_name(device))
