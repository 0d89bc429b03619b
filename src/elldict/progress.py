"""A line on standard error that shows how far a fit is."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from elldict.history import Callback, Iteration


@contextmanager
def show_progress(description: str) -> Iterator[Callback]:
    """Show stage, iteration, step and time until the context ends, also by an exception or Ctrl-C."""
    from rich.console import Console  # noqa: PLC0415  a fit without progress does not need rich
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn  # noqa: PLC0415

    text = (
        "{task.description}: stage {task.fields[stage]}, iteration {task.completed:.0f}, step {task.fields[step]:.1e}"
    )
    columns = (SpinnerColumn(), TextColumn(text), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True)) as progress:
        task = progress.add_task(description, total=None, stage=0, step=float("inf"))

        def show(iteration: Iteration) -> None:
            progress.update(task, completed=iteration.iteration, stage=iteration.stage, step=iteration.step)

        yield show
