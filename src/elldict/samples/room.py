"""Out of memory on a card: the pass is repeated with smaller tiles."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable
from typing import Any, TypeVar

from elldict.exceptions import SmallerTilesWarning

T = TypeVar("T")

FEWEST_ROWS = 64


def with_room(samples: Any, work: Callable[[], T]) -> T:
    """Result of a pass over samples; where memory of a card runs out, tiles become half as large, once and for all."""
    rows = samples.tile_rows
    while True:
        try:
            result = work()
            break
        except Exception as error:
            if not out_of_memory(error) or samples.tile_rows <= FEWEST_ROWS:
                raise
        # not in the handler, where the error still holds what was in the way
        smaller = max(FEWEST_ROWS, min(samples.tile_rows, samples.n_samples) // 2)
        object.__setattr__(samples, "tile_rows", smaller)
        _let_go()
    if samples.tile_rows < rows:
        warnings.warn(
            f"The card ran out of memory with {rows} samples at a time and was given {samples.tile_rows} instead. "
            "Other programs may hold its memory.",
            SmallerTilesWarning,
            stacklevel=2,
        )
    return result


def out_of_memory(error: Exception) -> bool:
    """Whether a card has run out of memory; torch and CuPy each have an error of their own for that."""
    return type(error).__name__ in {"OutOfMemoryError"} and type(error).__module__.split(".")[0] in {"torch", "cupy"}


def _let_go() -> None:
    """Give the card back what torch holds without need."""
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_available():
        torch.cuda.empty_cache()
