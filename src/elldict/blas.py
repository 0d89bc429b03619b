"""BLAS held at one thread while fits run, so that their own threads each have a core.

Fits may overlap in several threads and end in any order; the last one restores the number of threads. There is no lock:
a process that is forked while another thread holds one would wait for it forever. Instead, all changes are steps along
a chain of immutable states, and `dict.setdefault`, which is atomic, decides which thread makes the next step.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
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


@dataclass(frozen=True)
class _State:
    """Fits that run, and the numbers of threads to be restored after the last one."""

    fits: frozenset[object] = frozenset()
    setting: frozenset[object] = frozenset()  # fits that are about to set the numbers
    allowed: Counts = ()
    is_fixed: bool = False  # whether the numbers may not be set in this process
    after: dict[str, _State] = field(default_factory=dict, compare=False)  # the next state, once there is one


_first = [_State()]  # any state from which the last one can be reached


def _find_last() -> _State:
    """Follow the chain to the last state."""
    state = _first[0]
    while (after := state.after.get("state")) is not None:
        state = after
    _first[0] = state
    return state


def _move(state: _State, **changes: Any) -> bool:
    """Append a changed state to the chain; return False if another thread has been faster."""
    new = replace(state, **changes, after={})
    return state.after.setdefault("state", new) is new


def _enter(fit: object) -> Counts:
    """Begin a fit; return the numbers of threads that are allowed."""
    while True:
        state = _find_last()
        may_be_ours = state.fits or state.setting or state.is_fixed
        allowed = state.allowed if may_be_ours else _read(SHARED)
        if _move(state, fits=state.fits | {fit}, setting=state.setting | {fit}, allowed=allowed):
            _settle(fit)
            return allowed


def _leave(fit: object) -> None:
    """End a fit, whether or not it has begun."""
    while True:
        state = _find_last()
        if _move(state, fits=state.fits - {fit}, setting=state.setting | {fit}):
            return _settle(fit)


def _settle(fit: object) -> None:
    """Set the numbers, again if the state has changed meanwhile."""
    while True:
        state = _find_last()
        if not state.is_fixed:
            _set(SHARED, (1,) * len(SHARED) if state.fits else state.allowed)
        if _move(state, setting=state.setting - {fit}):
            return


def _read(libraries: Sequence[Any]) -> Counts:
    """Read the numbers of threads."""
    return tuple(library.num_threads or 1 for library in libraries)


def _set(libraries: Sequence[Any], counts: Counts) -> None:
    """Set the numbers of threads; a number other than 1 that a user has set during a fit stays."""
    for library, count in zip(libraries, counts, strict=True):
        if count == 1 or library.num_threads == 1:
            # recent versions of threadpoolctl ignore all threads but the first to set a number
            getattr(library, "_real_set_num_threads", library.set_num_threads)(count)


def _restart() -> None:
    """Forget the fits of other threads in a process that was forked while they ran.

    BLAS stays at one thread there: OpenBLAS sets the number under a lock, which another thread may have held.
    """
    state = _find_last()
    _first[0] = _State(allowed=state.allowed, is_fixed=bool(state.fits or state.setting or state.is_fixed))


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_restart)


@contextmanager
def one_blas_thread() -> Iterator[int]:
    """Hold BLAS at one thread; give the number of threads that it was allowed."""
    fit, own = object(), _read(OWN)
    try:
        shared = _enter(fit)
        _set(OWN, (1,) * len(OWN))
        yield max((1, *own, *shared))
    finally:
        _leave(fit)
        _set(OWN, own)
