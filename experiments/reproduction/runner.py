"""Run cells in worker processes and store their results."""

from __future__ import annotations

import platform
import time
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

from experiments.harness.machine import processor
from experiments.harness.pool import Lost, Pool
from experiments.harness.store import DONE, FAILED, Record, Store
from experiments.reproduction.cells import METHODS, Cell
from experiments.reproduction.tasks import run_cell

PASSES = {"ksvd": 30_000, "gradient": 400, "top-k": 200, "picard": 100, "lp": 60, "fastica": 30, "default": 30}
"""Rough costs of a fit, in products of all samples with all atoms."""


def run(
    cells: Iterable[Cell],
    store: Store,
    *,
    jobs: int = 1,
    budget: float | None = None,
    files: Mapping[str, str] | None = None,
    retry_failed: bool = False,
    show: Callable[[int, int, list[Cell]], None] = lambda *_: None,
) -> int:
    """Run the cells that are not stored, `jobs` at a time, for at most `budget` seconds; return how many have ended.

    Each result is stored at once. A cell that fails is stored as failed, and run again only with `retry_failed`. `show`
    is called with the number of results, the number of cells to run, and the cells in progress.
    """
    left = sorted((cell for cell in set(cells) if is_open(cell, store, retry_failed)), key=rank)
    n_all, done = len(left), list[Cell]()
    deadline = None if budget is None else time.monotonic() + budget
    left.reverse()

    def next_cell() -> Cell | None:
        is_over = deadline is not None and time.monotonic() >= deadline
        return left.pop() if left and not is_over else None

    with store.writing(), Pool(partial(attempt, files=dict(files or {})), jobs, deadline=deadline) as pool:
        for cell, found in pool.results(next_cell, lambda: show(len(done), n_all, pool.busy)):
            store.add(fail(cell, found.reason, found.seconds) if isinstance(found, Lost) else found)
            done.append(cell)
    return len(done)


def is_open(cell: Cell, store: Store, retry_failed: bool = False) -> bool:
    """Return whether a cell can be run and has no result."""
    record = store.get(cell)
    return not METHODS[cell.method].missing and (record is None or (retry_failed and record.status == FAILED))


def rank(cell: Cell) -> tuple[float, str]:
    """Order cells by their cost; the second trial of a cell counts twice, so that others are tried before."""
    n, r = cell.value("n_features") or 784, cell.value("n_samples") or cell.value("n_train")
    noise = cell.value("noise_std") + cell.value("corruption") / 3
    passes = 5 * n if cell.method == "rtr" else PASSES.get(cell.method, 1)
    return (1 + cell.seed) * passes * (1 + 4 * noise) * n**2 * r, cell.key


# --- in a worker ------------------------------------------------------------------------------------------------------


def attempt(cell: Cell, files: Mapping[str, str]) -> Record:
    """Run a cell; an exception is stored as its result."""
    started = time.process_time()
    try:
        values, fit_seconds = run_cell(cell, files)
    except Exception as error:
        return fail(cell, f"{type(error).__name__}: {error}", time.process_time() - started)
    made = _make_origin(time.process_time() - started) | {"fit_seconds": round(fit_seconds, 4)}
    return Record(cell.identity, DONE, values, "", made)


def fail(cell: Cell, reason: str, seconds: float) -> Record:
    """Make the record of a failure."""
    return Record(cell.identity, FAILED, {}, " ".join(reason.split()), _make_origin(seconds))


def _make_origin(seconds: float) -> dict[str, Any]:
    return {"seconds": round(seconds, 4), "machine": f"{processor()}, {platform.system()}"}
