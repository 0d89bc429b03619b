"""Threads over tiles: every core works on its own tile, with its own scratch memory and one thread of BLAS.

BLAS shares a product out among cores, and the next elementwise function then has to fetch half of the result from the
other core's cache: measured, that costs as much as the product. A tile that stays on one core costs nothing extra, and
what it adds up to does not depend on the number of cores.
"""

from __future__ import annotations

import functools
import operator
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from typing import Any, TypeVar

from threadpoolctl import ThreadpoolController

Job = TypeVar("Job")
Result = TypeVar("Result")


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
                _limit.pool = ThreadPoolExecutor(n_threads, thread_name_prefix="elldict")
        yield from _limit.pool.map(work, jobs)


class _Limit:
    """BLAS held at one thread while anyone needs it. Two limits that overlap in time would otherwise restore badly."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.users = 0
        self.n_threads = 1
        self.context: AbstractContextManager[Any] | None = None
        # threads that wait for the next pass: to start them takes as long as a pass over a small problem
        self.pool: ThreadPoolExecutor | None = None


_limit = _Limit()
_COUNT_THREADS = operator.itemgetter("num_threads")


def _begin_anew() -> None:
    """In a process forked in the middle of a fit: its threads and its users have stayed behind."""
    if _limit.users and _limit.context is not None:
        _limit.context.__exit__(None, None, None)
    _limit.__init__()  # type: ignore[misc]


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_begin_anew)


@functools.cache
def _blas() -> ThreadpoolController:
    return ThreadpoolController().select(
        user_api="blas"
    )  # looking for the libraries takes milliseconds: once is enough


@contextmanager
def one_blas_thread() -> Iterator[int]:
    """Hold BLAS at one thread; gives the number of threads it was allowed before.

    To be held for a whole fit: after a product by several threads those of OpenBLAS wait by spinning, for longer than a
    pass over the samples may take, and keep the cores from our own.
    """
    with _limit.lock:
        if _limit.users == 0:
            _limit.n_threads = max([1, *map(_COUNT_THREADS, _blas().info())])
            _limit.context = _blas().limit(limits=1)
            _limit.context.__enter__()
        _limit.users += 1
    try:
        yield _limit.n_threads
    finally:
        with _limit.lock:
            _limit.users -= 1
            if _limit.users == 0:
                if _limit.context is not None:
                    _limit.context.__exit__(None, None, None)
                if _limit.pool is not None:
                    _limit.pool.shutdown(wait=False)
                    _limit.pool = None
