"""A clock for fits that stands still while the benchmark looks at them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from numpy.typing import NDArray

Matrix = NDArray[Any]
ALL_UNTIL, LATER_EVERY = 40, 1.05
"""So many views are all kept; later ones only when 5 % more time has passed, so that slow fits do not fill memory."""


@dataclass(frozen=True)
class View:
    """What a solver had after some time."""

    seconds: float
    seen: Matrix


@dataclass
class Watch:
    """Time of one fit, and views of what it had on the way. Copies are made during the fit, scores after it."""

    views: list[View] = field(default_factory=list)
    _began: float = field(default_factory=time.perf_counter)
    _aside: float = 0.0

    @property
    def seconds(self) -> float:
        """Time of the solver alone."""
        return time.perf_counter() - self._began - self._aside

    @contextmanager
    def aside(self) -> Iterator[None]:
        """What happens in here does not count."""
        left = time.perf_counter()
        try:
            yield
        finally:
            self._aside += time.perf_counter() - left

    def look(self, take: Callable[[], Matrix]) -> None:
        """Keep a view: whatever `take` gives, from which `translate` makes atoms later."""
        seconds = self.seconds
        with self.aside():
            if len(self.views) < ALL_UNTIL or seconds > LATER_EVERY * self.views[-1].seconds:
                self.views.append(View(seconds, take()))

    def translate(self, to_atoms: Callable[[Matrix], Matrix]) -> None:
        """Make atoms of what was seen."""
        with self.aside():
            self.views = [replace(view, seen=to_atoms(view.seen)) for view in self.views]
