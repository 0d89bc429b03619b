"""What the command line shows: summaries, tables and bars."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console

    from elldict.estimator import LpEstimator
    from elldict.report.demo import Demo
    from elldict.report.studies import ErrorAndBar, Recovery
    from elldict.result import Callback


def print_summary(title: str, lines: Iterable[tuple[str, object]]) -> None:
    """A title, then names and values."""
    from rich.console import Console  # noqa: PLC0415

    console = Console()
    console.print(title, highlight=False)
    for name, value in lines:
        print_line(console, name, value)


def print_line(console: Console, name: str, value: object) -> None:
    """One name and value; not wrapped, so that what is piped into a file stays one line each."""
    from rich.text import Text  # noqa: PLC0415

    console.print(Text.assemble("  ", (f"{name:<15}", "cyan"), str(value)), soft_wrap=True)


def describe_file(path: Path) -> str:
    """Name and size of a file, or of all files of a folder."""
    from rich.filesize import decimal  # noqa: PLC0415

    files = [path] if path.is_file() else [file for file in path.rglob("*") if file.is_file()]
    return f"{path} ({decimal(sum(file.stat().st_size for file in files))})"


def describe_fit(model: LpEstimator, shape: tuple[int, int], seconds: float) -> Iterator[tuple[str, object]]:
    """What happened in a fit."""
    yield from zip(("samples", "features"), shape, strict=True)
    yield "atoms", model.n_components_
    yield from _describe_iterations(model)
    yield "seconds", f"{seconds:.2f}"
    yield "status", model.status_
    yield from _describe_codes(model)


def describe_model(model: LpEstimator) -> Iterator[tuple[str, object]]:
    """What a model file holds."""
    yield "atoms", f"{model.n_components_} of {model.n_features_in_} features, {model.unmixing_.dtype}"
    yield "p", model.p if isinstance(model.p, (int, float)) else ", ".join(f"{q:g}" for q in model.p)
    yield "objective", f"{model.objective_:.6g}"
    yield from _describe_iterations(model)
    yield "converged", "yes" if model.converged_ else "no"
    yield "status", model.status_
    yield from _describe_codes(model)
    default = type(model)().get_params()
    changed = [f"{name}={value!r}" for name, value in model.get_params().items() if value != default[name]]
    yield "parameters", ", ".join(changed) or "all default"


def _describe_iterations(model: LpEstimator) -> Iterator[tuple[str, object]]:
    yield "iterations", model.n_iter_
    yield "passes", f"{model.n_passes_:g}"


def _describe_codes(model: LpEstimator) -> Iterator[tuple[str, str]]:
    """What the model says of codes, noise and its own error."""
    yield "density", f"{100 * float(model.density_.mean()):.3g} % of the codes are not zero"
    yield "noise", f"standard deviation {model.noise_std_:.3g}"
    if model.corruption_rate_ > 0:  # not NaN
        yield "corruption", f"{100 * model.corruption_rate_:.2g} % of the entries, size {model.corruption_scale_:.3g}"
    yield "expected error", f"{100 * model.expected_error_:.3g} %"


def show_fit_progress(p: str, tol: float, quiet: bool) -> AbstractContextManager[Callback | None]:
    """Show the bar of a fit on a terminal; not through `verbose`, which the model would keep."""
    from elldict.progress import progress_bar  # noqa: PLC0415

    return nullcontext() if quiet or not sys.stderr.isatty() else progress_bar(f"l_{p}", tol)


@contextmanager
def show_demo_progress() -> Iterator[Callable[[str, float], None]]:
    """Show how far the demo is, on a terminal."""
    from rich.console import Console  # noqa: PLC0415
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn  # noqa: PLC0415

    columns = (
        BarColumn(),
        TextColumn("{task.percentage:>3.0f} %"),
        TimeElapsedColumn(),
        TextColumn("{task.description}"),
    )
    progress = Progress(*columns, console=Console(stderr=True), transient=True)
    with progress if sys.stderr.isatty() else nullcontext():
        task = progress.add_task("", total=1.0)
        yield lambda doing, share: progress.update(task, description=doing, completed=share)


def _format_error_and_bar(fit: Recovery | ErrorAndBar) -> tuple[str, str]:
    """The error, and what the fit says of it, in per cent."""
    return f"{100 * fit.error:.3f}", f"{100 * fit.error_bar:.3f}"


def print_demo(results: Demo, written: list[tuple[str, Path]]) -> None:
    """The demo's numbers, and the files about them."""
    from rich.console import Console  # noqa: PLC0415
    from rich.table import Table  # noqa: PLC0415

    setting = results.size.recovery
    console = Console()
    console.print(
        f"[bold]{setting.n_features} hidden atoms[/] in {setting.n_samples} samples: error in per cent", highlight=False
    )
    table = Table()
    for column in ("p", "measured", "error bar", "theory", "paper", "iterations", "seconds"):
        table.add_column(column, justify="right")
    for row in results.recoveries:
        paper = "-" if row.paper_error is None else f"{100 * row.paper_error:.2g}"
        figures = (*_format_error_and_bar(row), f"{100 * row.expected_error:.3f}", paper)
        table.add_row(f"{row.p:g}", *figures, str(row.n_iter), f"{row.seconds:.2f}")
    refined = results.refined
    table.add_row("refined", *_format_error_and_bar(refined), "-", "-", str(refined.n_iter), f"{refined.seconds:.2f}")
    console.print(table)
    for trial in results.trials:
        fits = (_format_error_and_bar(fit) for fit in (trial.plain, trial.refined))
        texts = [f"{error} (error bar {bar})" for error, bar in fits]
        limit = f"{100 * trial.limit:.3f} at best"
        print_line(console, f"noise {trial.noise_std:g}", f"p = 3: {texts[0]}, refined: {texts[1]}, {limit}")
    for rebuilt in results.digits.reconstructions:
        method = f"{rebuilt.name} ({rebuilt.note})"
        print_line(console, f"{100 * rebuilt.error:.1f} %", f"of the digits is lost with {method}")
    for name, path in written:
        print_line(console, name, describe_file(path))
