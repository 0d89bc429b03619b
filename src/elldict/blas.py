"""BLAS held at one thread while fits run, so that their own threads each have a core.

Fits may overlap in several threads and end in any order; the last one restores the number of threads.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from threading import Lock
from typing import Any

import scipy.linalg  # noqa: F401  its BLAS is to be found as well
from threadpoolctl import ThreadpoolController

Counts = tuple[int, ...]
"""Number of threads of each library."""

LIBRARIES: list[Any] = ThreadpoolController().select(user_api="blas").lib_controllers
OWN = [library for library in LIBRARIES if getattr(library, "threading_layer", "") == "openmp"]
"""Libraries for which each thread has a number of its own."""

SHARED = [library for library in LIBRARIES if library not in OWN]
"""Libraries with one number for the process."""


class Process:
    """Fits that run in this process, and the numbers of threads to be restored after the last one."""

    def __init__(self) -> None:
        self.lock = Lock()
        self.fits: set[object] = set()
        self.allowed: Counts = ()


PROCESS = Process()


@contextmanager
def one_blas_thread() -> Iterator[int]:
    """Hold BLAS at one thread; give the number of threads that it was allowed."""
    fit, own = object(), read_counts(OWN)
    try:
        with PROCESS.lock:
            if not PROCESS.fits:
                PROCESS.allowed = read_counts(SHARED)
            PROCESS.fits.add(fit)
            set_counts(SHARED, (1,) * len(SHARED))
        set_counts(OWN, (1,) * len(OWN))
        yield max((1, *own, *PROCESS.allowed))
    finally:
        with PROCESS.lock:
            PROCESS.fits.discard(fit)  # an interrupt may come before it is added
            if not PROCESS.fits:
                set_counts(SHARED, PROCESS.allowed)
        set_counts(OWN, own)


def read_counts(libraries: Sequence[Any]) -> Counts:
    """Read the numbers of threads."""
    return tuple(library.num_threads or 1 for library in libraries)


def set_counts(libraries: Sequence[Any], counts: Counts) -> None:
    """Set the numbers of threads; a number other than 1 that a user has set during a fit stays."""
    for library, count in zip(libraries, counts, strict=False):  # there are no counts if they were never read
        if count == 1 or library.num_threads == 1:
            # recent versions of threadpoolctl ignore all threads but the first to set a number
            getattr(library, "_real_set_num_threads", library.set_num_threads)(count)


def restart() -> None:
    """Forget the fits of other threads in a process that was forked while they ran.

    Another thread may have held the lock, and also that of OpenBLAS, under which the number of threads is set: if so,
    BLAS stays at one thread in this process.
    """
    if PROCESS.fits or PROCESS.lock.locked():
        SHARED.clear()
    PROCESS.lock, PROCESS.fits = Lock(), set()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=restart)
