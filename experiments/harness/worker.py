"""The process that does the work: one cell at a time, on one core."""

from __future__ import annotations

import multiprocessing as mp
import os
import platform
import signal
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from multiprocessing.connection import Connection
from typing import Any

from experiments.harness.store import DONE, FAILED, Record
from experiments.reproduction.cell import Cell

ONE_THREAD = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "BLIS_NUM_THREADS", "NUMBA_NUM_THREADS")


class Desk:
    """A worker seen from outside: give it a cell, later take the record."""

    def __init__(self, files: Mapping[str, str], device: str | None = None) -> None:
        context = mp.get_context("spawn")  # no thread, lock or random state is inherited: a cell starts from itself
        self.connection, other_end = context.Pipe()
        self.process = context.Process(target=_work, args=(other_end, dict(files), device), daemon=True)
        with _one_core():
            self.process.start()
        other_end.close()
        self.cell: Cell | None = None
        self.began = 0.0

    def give(self, cell: Cell) -> None:
        """Set it to work."""
        self.cell, self.began = cell, time.monotonic()
        self.connection.send(cell)

    def take(self) -> Record:
        """What came of the cell; of one that took the process with it, that."""
        cell, self.cell = self.cell, None
        assert cell is not None
        try:
            record: Record = self.connection.recv()
        except (EOFError, OSError):
            self.process.join()
            record = _failure(cell, _epitaph(self.process.exitcode), time.monotonic() - self.began)
        return record

    @property
    def alive(self) -> bool:
        """Whether it can be given another cell."""
        return self.process.is_alive()

    def dismiss(self) -> None:
        """End the process, whatever it is doing."""
        self.process.kill()
        self.process.join()
        self.connection.close()


def _epitaph(code: int | None) -> str:
    if code is not None and code < 0:
        name = signal.Signals(-code).name
        return f"the process was ended by {name}" + (" (out of memory?)" if name == "SIGKILL" else "")
    return f"the process ended with code {code}"


@contextmanager
def _one_core() -> Iterator[None]:
    """Libraries read these when they are loaded. One core each: times compare, and sums do not depend on cores."""
    before = {name: os.environ.get(name) for name in ONE_THREAD}
    os.environ.update(dict.fromkeys(ONE_THREAD, "1"))
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name)
            if value is not None:
                os.environ[name] = value


# --- inside the process -----------------------------------------------------------------------------------------------


def _work(connection: Connection, files: Mapping[str, str], device: str | None) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group; the runner decides
    threading.Thread(target=_die_with_parent, daemon=True).start()
    while True:
        try:
            cell: Cell = connection.recv()
        except EOFError:
            return
        connection.send(attempt(cell, files, device))


def _die_with_parent() -> None:
    """A killed runner cannot dismiss anyone: without this, an hour of K-SVD would go on for nobody."""
    parent = mp.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def attempt(cell: Cell, files: Mapping[str, str], device: str | None) -> Record:
    """Run a cell; whatever it raises is its result."""
    began = time.process_time()
    try:
        # a package that is broken is a failed cell
        from experiments.reproduction.tasks import run_cell, uses_card  # noqa: PLC0415

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
    return {"seconds": round(seconds, 4), "machine": machine()}


def machine() -> str:
    """The processor, as well as the system tells."""
    return f"{_processor()}, {platform.system()}"


def _card(device: str) -> str:
    import torch  # noqa: PLC0415

    return str(torch.cuda.get_device_name(device))


def _processor() -> str:
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as stream:  # noqa: PTH123
            names = [line.partition(":")[2].strip() for line in stream if line.startswith("model name")]
    except OSError:
        names = []
    return names[0] if names else platform.processor() or platform.machine()
