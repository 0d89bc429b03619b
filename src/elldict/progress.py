"""A line on standard error that shows how far a fit is."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeVar

from elldict.history import Iteration

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

T = TypeVar("T")


class Line:
    """The line of a fit: its iterations, then the parts of the samples that are fitted for error bars."""

    def __init__(self, progress: Progress, name: str) -> None:
        self.progress = progress
        self.name = name
        self.task: TaskID = progress.add_task(f"{name}: first passes", total=None)

    def __call__(self, iteration: Iteration) -> None:
        """Show stage, iteration and step."""
        self.show(f"stage {iteration.stage}, iteration {iteration.iteration}, step {iteration.step:.1e}")

    def show_part(self, number: int, n_parts: int) -> None:
        """Show which part is fitted."""
        self.show(f"error bars, part {number} of {n_parts}")

    def show(self, text: str) -> None:
        """Show what is done at present."""
        self.progress.update(self.task, description=f"{self.name}: {text}")


@contextmanager
def show_progress(name: str) -> Iterator[Line]:
    """Show a line with the elapsed time until the context ends, also by an exception or Ctrl-C."""
    from rich.console import Console  # noqa: PLC0415  a fit without progress does not need rich
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn  # noqa: PLC0415

    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True)) as progress:
        yield Line(progress, name)


@contextmanager
def show_bar(name: str, n_fits: int, *, is_shown: bool) -> Iterator[Callable[[T], T]]:
    """Show a bar with the time left, if it is to be shown; give a function that counts a fit and returns its result."""
    from rich.console import Console  # noqa: PLC0415
    from rich.progress import MofNCompleteColumn, Progress  # noqa: PLC0415

    columns = (*Progress.get_default_columns(), MofNCompleteColumn())
    with Progress(*columns, console=Console(stderr=True), disable=not is_shown) as progress:
        task = progress.add_task(name, total=n_fits)

        def advance(result: T) -> T:
            progress.advance(task)
            return result

        yield advance
