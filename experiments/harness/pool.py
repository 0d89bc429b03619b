"""Worker processes: one job each at a time, ended when its time is over.

Not joblib's: its processes cannot be killed one by one, so a job past its time would go on beside the next.
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

POLL_SECONDS = 0.5
"""Between two looks at the clock while nothing happens."""

THREAD_LIMITS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "BLIS_NUM_THREADS", "NUMBA_NUM_THREADS")


@dataclass(frozen=True)
class Lost:
    """A job without a result, because its process ended or was ended."""

    reason: str
    seconds: float


class Pool(Generic[J, R]):
    """Some workers, each busy with a job as long as there is one and time is left.

    `work` is a function of a module: processes are spawned. A job has `limit` seconds, and all end at `deadline`, a
    time of `time.monotonic`. Numerical libraries have `threads` threads in a worker; None leaves their number alone.
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
        """End what is under way."""
        for worker in self.workers:
            worker.kill()

    @property
    def busy(self) -> list[J]:
        """Jobs under way."""
        return [worker.job for worker in self.workers if worker.job is not None]

    def results(
        self, next_job: Callable[[], J | None], tell: Callable[[], None] = lambda: None
    ) -> Iterator[tuple[J, R | Lost]]:
        """Jobs and what came of them, as they end; `next_job` gives None when nothing should be begun any more."""
        while self._hand_out(next_job):
            tell()
            yield from self._collect()

    def _hand_out(self, next_job: Callable[[], J | None]) -> bool:
        """Give every free worker a job; False when nothing is under way and nothing more will be."""
        self.workers = [worker for worker in self.workers if worker.alive]
        while len(self.busy) < self.n_workers and (job := next_job()) is not None:
            self._free_worker().give(job)
        return bool(self.busy) and not (self.deadline is not None and time.monotonic() >= self.deadline)

    def _free_worker(self) -> Worker[J, R]:
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
    """A process seen from outside: give it a job, later take the result."""

    def __init__(self, work: Callable[[J], R], threads: int | None = 1) -> None:
        context = mp.get_context("spawn")  # no thread, lock or random state is inherited: a job starts from itself
        self.connection, other_end = context.Pipe()
        self.process = context.Process(target=_work, args=(other_end, work), daemon=True)
        with _thread_limits(threads):
            self.process.start()
        other_end.close()
        self.job: J | None = None
        self._began = 0.0

    @property
    def alive(self) -> bool:
        """Whether it can be given another job."""
        return self.process.is_alive()

    @property
    def seconds(self) -> float:
        """Since it was given its job."""
        return time.monotonic() - self._began

    def give(self, job: J) -> None:
        """Set it to work."""
        self.job, self._began = job, time.monotonic()
        self.connection.send(job)

    def take(self) -> R | Lost:
        """The result; of a job that took the process with it, how."""
        self.job = None
        try:
            result: R = self.connection.recv()
        except (EOFError, OSError):
            self.process.join()
            return Lost(_describe_exit(self.process.exitcode), self.seconds)
        return result

    def kill(self) -> None:
        """End the process, whatever it is doing."""
        self.process.kill()
        self.process.join()
        self.connection.close()


def _describe_exit(code: int | None) -> str:
    if code is not None and code < 0:
        name = signal.Signals(-code).name
        return f"the process was ended by {name}" + (" (out of memory?)" if name == "SIGKILL" else "")
    return f"the process ended with code {code}"


@contextmanager
def _thread_limits(threads: int | None) -> Iterator[None]:
    """Libraries read these when they are loaded. One core each: times compare, and sums do not depend on cores."""
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
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group; the pool decides
    threading.Thread(target=_die_with_parent, daemon=True).start()
    while True:
        try:
            job = connection.recv()
        except EOFError:
            return
        connection.send(work(job))


def _die_with_parent() -> None:
    """A pool that was killed cannot end anyone: without this, an hour of K-SVD would go on for nobody."""
    parent = mp.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
