"""How far a fit is: the share that is done, the time it still takes, and a bar that shows both."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta

from elldict._old.result import Callback, Iteration

RATE_ITERATIONS = 3
"""Iterations over which the rate of convergence is measured: the last ones, since it grows while a fit goes on."""

MAX_EXTRAPOLATION = 3
"""A forecast reaches at most this many times as far as the step has been falling: a plateau tells nothing."""


@contextmanager
def progress_bar(description: str, tol: float, then: Callback | None = None) -> Iterator[Callback]:
    """Show a bar on standard error while a fit runs, and pass each iteration on to `then`."""
    from rich.console import Console  # noqa: PLC0415  a fit without a bar needs no rich
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn  # noqa: PLC0415

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("iteration {task.fields[iteration]}, step {task.fields[step]:.1e}"),
        TimeElapsedColumn(),
        TextColumn("{task.fields[forecast]}"),
    )
    with Progress(*columns, console=Console(stderr=True)) as progress:
        task = progress.add_task(description, total=1.0, iteration=0, step=1.0, forecast="")
        measure_share, forecast = track_share(tol), Forecast(tol)

        def show(iteration: Iteration) -> bool | None:
            left = forecast.update(iteration)
            progress.update(
                task,
                completed=measure_share(iteration),
                iteration=iteration.iteration,
                step=iteration.step,
                forecast="" if left is None else f"about {timedelta(seconds=math.ceil(left))} to tol",
            )
            return then(iteration) if then is not None else None

        yield show
        progress.update(task, completed=1.0, forecast="")


@contextmanager
def count_fits(description: str, n_fits: int, n_done: int) -> Iterator[Callable[[], None]]:
    """Show a bar on standard error while many fits run, with an estimate of the time left; to be called after each."""
    from rich.console import Console  # noqa: PLC0415
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn  # noqa: PLC0415

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TextColumn("fits"))
    with Progress(*columns, TimeRemainingColumn(elapsed_when_finished=True), console=Console(stderr=True)) as progress:
        task = progress.add_task(description, total=n_fits, completed=n_done)
        yield lambda: progress.advance(task)


def track_share(tol: float) -> Callable[[Iteration], float]:
    """Measure the share of the way from a step of length one to tol, in powers of ten; it never goes back."""
    best = 0.0

    def measure(iteration: Iteration) -> float:
        nonlocal best
        if 0 < tol < 1 and iteration.step > 0:
            best = max(best, min(1.0, math.log(min(iteration.step, 1.0)) / math.log(tol)))
        return best

    return measure


class Forecast:
    """Seconds until the step has fallen to tol, for a step that falls by the same factor in every iteration."""

    def __init__(self, tol: float) -> None:
        self.tol = tol
        self.phase = (-1, -1)
        self.falling: list[tuple[float, float]] = []  # seconds and steps, as long as steps fall within a phase

    def update(self, iteration: Iteration) -> float | None:
        """Take an iteration into account; None says that the step has not fallen far or fast enough to tell."""
        phase = (iteration.start, iteration.stage)
        if phase != self.phase or iteration.step >= self.falling[-1][1]:
            self.phase, self.falling = phase, []
        self.falling.append((iteration.seconds, iteration.step))
        n_falls = len(self.falling) - 1
        if n_falls < RATE_ITERATIONS or not 0 < self.tol < iteration.step:
            return None
        earlier_step = self.falling[-1 - RATE_ITERATIONS][1]
        n_left = RATE_ITERATIONS * math.log(iteration.step / self.tol) / math.log(earlier_step / iteration.step)
        if n_left > MAX_EXTRAPOLATION * n_falls:
            return None
        # over all of them: a single slow iteration, as when a computer sleeps, would otherwise count for a third of
        # all that are left; so what is forecast is at most MAX_EXTRAPOLATION times what has been seen
        return n_left * (iteration.seconds - self.falling[0][0]) / n_falls
