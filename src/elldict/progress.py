"""A progress bar for a fit, fed by its callback."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from elldict.result import Callback, Iteration


@contextmanager
def progress_bar(description: str, tol: float, then: Callback | None = None) -> Iterator[Callback]:
    """Show a bar on standard error while a fit runs, and pass each iteration on to `then`.

    A fit is over when its step has fallen to tol, so the share of the way is measured in powers of ten of the step.
    """
    from rich.console import Console  # noqa: PLC0415  a fit without a bar needs no rich
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn  # noqa: PLC0415

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("iteration {task.fields[iteration]}, step {task.fields[step]:.1e}"),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True)) as progress:
        task = progress.add_task(description, total=1.0, iteration=0, step=1.0)
        share = way_done(tol)

        def show(iteration: Iteration) -> bool | None:
            progress.update(task, completed=share(iteration), iteration=iteration.iteration, step=iteration.step)
            return then(iteration) if then is not None else None

        yield show
        progress.update(task, completed=1.0)


def way_done(tol: float) -> Callable[[Iteration], float]:
    """Share of the way from a step of length one to tol; it never goes back."""
    best = 0.0

    def share(iteration: Iteration) -> float:
        nonlocal best
        if 0 < tol < 1 and iteration.step > 0:
            best = max(best, min(1.0, math.log(min(iteration.step, 1.0)) / math.log(tol)))
        return best

    return share
