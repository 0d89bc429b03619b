"""A clock for fits that is stopped while a benchmark records intermediate results."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from numpy.typing import NDArray

Matrix = NDArray[Any]
ALL_UNTIL, LATER_EVERY = 40, 1.05  # views that are all kept; factor of time between later ones, to limit memory


@dataclass(frozen=True)
class View:
    """An intermediate result of a solver and its time."""

    seconds: float
    seen: Matrix


@dataclass
class Watch:
    """Time of one fit, and copies of its intermediate results, which are scored after it."""

    views: list[View] = field(default_factory=list)
    _started: float = field(default_factory=time.perf_counter)
    _aside: float = 0.0

    @property
    def seconds(self) -> float:
        """Time of the solver alone."""
        return time.perf_counter() - self._started - self._aside

    @contextmanager
    def aside(self) -> Iterator[None]:
        """Stop the clock in a block."""
        left = time.perf_counter()
        try:
            yield
        finally:
            self._aside += time.perf_counter() - left

    def look(self, take: Callable[[], Matrix]) -> None:
        """Record what `take` returns, from which `translate` computes atoms later."""
        seconds = self.seconds
        with self.aside():
            if len(self.views) < ALL_UNTIL or seconds > LATER_EVERY * self.views[-1].seconds:
                self.views.append(View(seconds, take()))

    def translate(self, to_atoms: Callable[[Matrix], Matrix]) -> None:
        """Compute atoms from what was recorded."""
        with self.aside():
            self.views = [replace(view, seen=to_atoms(view.seen)) for view in self.views]
