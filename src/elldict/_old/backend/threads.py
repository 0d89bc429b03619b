"""Threads over tiles: every core works on its own tile, with its own scratch memory and one thread of BLAS.

BLAS shares a product out among cores, and the next elementwise function then has to fetch half of the result from the
other core's cache: measured, that costs as much as the product. A tile that stays on one core costs nothing extra, and
what it adds up to does not depend on the number of cores.
"""

from __future__ import annotations

import functools
import itertools
import os
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, TypeVar

from threadpoolctl import ThreadpoolController

Job = TypeVar("Job")
Result = TypeVar("Result")
Library = Any
"""One BLAS, as threadpoolctl controls it."""


def map_in_order(
    make_worker: Callable[[], Callable[[Any], Result]], jobs: Sequence[Job], prepare: Callable[[Job], Any] | None = None
) -> Iterator[Result]:
    """Results of all jobs, in the order of the jobs.

    Each thread makes one worker for itself, which gets what `prepare` makes of a job, if it is given.
    """
    with one_blas_thread() as n_threads:
        if n_threads == 1 or len(jobs) == 1:
            yield from map(make_worker(), jobs if prepare is None else map(prepare, jobs))
            return
        own = threading.local()

        def work(job: Job) -> Result:
            if not hasattr(own, "worker"):
                own.worker = make_worker()
            result: Result = own.worker(job if prepare is None else prepare(job))
            return result

        with _limit.lock:
            if _limit.pool is None:
                _limit.pool = ThreadPoolExecutor(n_threads, "elldict", _hold_own)
        yield from _limit.pool.map(work, jobs)


class _Limit:
    """BLAS held at one thread while anyone needs it. Two limits that overlap in time would otherwise restore badly."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.users = 0
        self.n_threads = 1
        self.before: list[tuple[Library, int]] = []
        # threads that wait for the next pass: to start them takes as long as a pass over a small problem
        self.pool: ThreadPoolExecutor | None = None


_limit = _Limit()


def _begin_anew() -> None:
    """In a process forked in the middle of a fit: its threads and its users have stayed behind."""
    if _limit.users:
        _restore(_limit.before)
    _limit.__init__()  # type: ignore[misc]


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_begin_anew)


@functools.cache
def _list_blas() -> tuple[Library, ...]:
    """Libraries in use; to look for them takes milliseconds, so once is enough."""
    return tuple(ThreadpoolController().select(user_api="blas").lib_controllers)


def _counts_by_thread(library: Library) -> bool:
    """Whether every thread has a number of its own, as with OpenMP, instead of one number for the process."""
    return getattr(library, "threading_layer", None) == "openmp"


def _set_threads(library: Library, n_threads: int) -> None:
    """Set the number whichever thread asks: newer versions of threadpoolctl obey one thread and no other."""
    getattr(library, "_real_set_num_threads", library.set_num_threads)(n_threads)


def _hold(libraries: Iterable[Library]) -> list[tuple[Library, int]]:
    """Set libraries to one thread; gives the numbers they had."""
    before = [(library, library.num_threads or 1) for library in libraries]
    for library, _ in before:
        _set_threads(library, 1)
    return before


def _hold_own() -> None:
    """Set libraries to one thread for the thread that calls, where every thread has a number of its own."""
    _hold(filter(_counts_by_thread, _list_blas()))


def _restore(before: Iterable[tuple[Library, int]]) -> None:
    """Give libraries their numbers back, unless someone else has set another one meanwhile."""
    for library, n_threads in before:
        if library.num_threads == 1:
            _set_threads(library, n_threads)


@contextmanager
def one_blas_thread() -> Iterator[int]:
    """Hold BLAS at one thread; gives the number of threads it was allowed before.

    To be held for a whole fit: after a product by several threads those of OpenBLAS wait by spinning, for longer than a
    pass over the samples may take, and keep the cores from our own. Fits may overlap in time and end in any order, each
    in a thread of its own: the last one restores what the first one found.
    """
    own = _hold(filter(_counts_by_thread, _list_blas()))
    with _limit.lock:
        if _limit.users == 0:
            _limit.before = _hold(itertools.filterfalse(_counts_by_thread, _list_blas()))
            _limit.n_threads = max([1, *(n_threads for _, n_threads in (*_limit.before, *own))])
        _limit.users += 1
    try:
        yield _limit.n_threads
    finally:
        with _limit.lock:
            _limit.users -= 1
            if _limit.users == 0:
                _restore(_limit.before)
                if _limit.pool is not None:
                    _limit.pool.shutdown(wait=False)
                    _limit.pool = None
        _restore(own)
