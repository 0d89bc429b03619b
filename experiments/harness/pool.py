"""Run jobs in worker processes, one job each at a time, with limits on time.

joblib and concurrent.futures cannot kill a single process, so a job past its limit would go on and slow down the next.
"""

from __future__ import annotations

import multiprocessing as mp
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from typing import Any, Generic, Self, TypeVar

J = TypeVar("J")
R = TypeVar("R")

POLL_SECONDS = 0.5  # between checks of the limits
THREAD_LIMITS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "BLIS_NUM_THREADS", "NUMBA_NUM_THREADS")


@dataclass(frozen=True)
class Lost:
    """A job without a result, because its process ended or was killed."""

    reason: str
    seconds: float


class Pool(Generic[J, R]):
    """Worker processes that run jobs while there are any and time is left.

    `work` is a function of a module, because processes are spawned. A job is killed after `limit` seconds, all jobs at
    `deadline`, a time of `time.monotonic`. Numerical libraries use `threads` threads in a worker; None: their default.
    """

    def __init__(
        self,
        work: Callable[[J], R],
        workers: int = 1,
        *,
        limit: float | None = None,
        deadline: float | None = None,
        threads: int | None = 1,
    ) -> None:
        self.work, self.n_workers, self.limit, self.deadline, self.threads = work, workers, limit, deadline, threads
        self.workers: list[Worker[J, R]] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Kill all workers."""
        for worker in self.workers:
            worker.kill()

    @property
    def busy(self) -> list[J]:
        """Jobs in progress."""
        return [worker.job for worker in self.workers if worker.job is not None]

    def results(
        self, next_job: Callable[[], J | None], tell: Callable[[], None] = lambda: None
    ) -> Iterator[tuple[J, R | Lost]]:
        """Yield jobs and their results as they end; `next_job` returns None if there is none to start."""
        while self._hand_out(next_job):
            tell()
            yield from self._collect()

    def _hand_out(self, next_job: Callable[[], J | None]) -> bool:
        """Give each idle worker a job; return False when all is done or the deadline is over."""
        self.workers = [worker for worker in self.workers if worker.alive]
        while len(self.busy) < self.n_workers and (job := next_job()) is not None:
            self._find_idle().give(job)
        return bool(self.busy) and not (self.deadline is not None and time.monotonic() >= self.deadline)

    def _find_idle(self) -> Worker[J, R]:
        for worker in self.workers:
            if worker.job is None:
                return worker
        self.workers.append(Worker(self.work, self.threads))
        return self.workers[-1]

    def _collect(self) -> Iterator[tuple[J, R | Lost]]:
        waiting = {worker.connection: worker for worker in self.workers if worker.job is not None}
        ready = set(wait(list(waiting), timeout=POLL_SECONDS))
        for connection, worker in waiting.items():
            job = worker.job
            assert job is not None
            if connection in ready:
                yield job, worker.take()
            elif self.limit is not None and worker.seconds > self.limit:
                worker.kill()
                worker.job = None
                yield job, Lost(f"over {self.limit:g} s", self.limit)


class Worker(Generic[J, R]):
    """A worker process, as the parent process handles it."""

    def __init__(self, work: Callable[[J], R], threads: int | None = 1) -> None:
        context = mp.get_context("spawn")  # inherits no threads, locks or random states
        self.connection, other_end = context.Pipe()
        self.process = context.Process(target=_work, args=(other_end, work), daemon=True)
        with _limit_threads(threads):
            self.process.start()
        other_end.close()
        self.job: J | None = None
        self._started = 0.0

    @property
    def alive(self) -> bool:
        """Whether it can run another job."""
        return self.process.is_alive()

    @property
    def seconds(self) -> float:
        """Time since it was given its job."""
        return time.monotonic() - self._started

    def give(self, job: J) -> None:
        """Start a job."""
        self.job, self._started = job, time.monotonic()
        self.connection.send(job)

    def take(self) -> R | Lost:
        """Return the result, or how the process ended."""
        self.job = None
        try:
            result: R = self.connection.recv()
        except (EOFError, OSError):
            self.process.join()
            return Lost(_describe_exit(self.process.exitcode), self.seconds)
        return result

    def kill(self) -> None:
        """Kill the process."""
        self.process.kill()
        self.process.join()
        self.connection.close()


def _describe_exit(code: int | None) -> str:
    if code is not None and code < 0:
        name = signal.Signals(-code).name
        return f"the process was ended by {name}" + (" (out of memory?)" if name == "SIGKILL" else "")
    return f"the process ended with code {code}"


@contextmanager
def _limit_threads(threads: int | None) -> Iterator[None]:
    """Set the environment that numerical libraries read when they are loaded."""
    names = () if threads is None else THREAD_LIMITS
    before = {name: os.environ.get(name) for name in names}
    os.environ.update(dict.fromkeys(names, str(threads)))
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name)
            if value is not None:
                os.environ[name] = value


# --- inside the process -----------------------------------------------------------------------------------------------


def _work(connection: Connection[Any, Any], work: Callable[[Any], Any]) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group; the parent handles it
    threading.Thread(target=_exit_with_parent, daemon=True).start()
    while True:
        try:
            job = connection.recv()
        except EOFError:
            return
        connection.send(work(job))


def _exit_with_parent() -> None:
    """Exit when the parent is killed, which cannot end its workers then."""
    parent = mp.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
