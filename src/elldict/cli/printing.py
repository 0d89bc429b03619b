"""What the command line shows: summaries, tables and bars."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console

    from elldict.estimator import LpDictionaryLearning
    from elldict.report.demo import Demo
    from elldict.report.studies import ErrorAndBar, Recovery
    from elldict.result import Callback


def make_console() -> Console:
    """The console on standard output, where summaries go."""
    from rich.console import Console  # noqa: PLC0415

    return Console()


def print_line(console: Console, name: str, value: object) -> None:
    """One name and value; not wrapped, so that what is piped into a file stays one line each."""
    from rich.text import Text  # noqa: PLC0415

    console.print(Text.assemble("  ", (f"{name:<15}", "cyan"), str(value)), soft_wrap=True)


def describe_file(path: Path) -> str:
    """Name and size of a file, or of all files of a folder."""
    files = [path] if path.is_file() else [file for file in path.rglob("*") if file.is_file()]
    return f"{path} ({_format_size(sum(file.stat().st_size for file in files))})"


def _format_size(n_bytes: int) -> str:
    if n_bytes < 1000:
        return f"{n_bytes} bytes"
    if n_bytes < 999_500:
        return f"{n_bytes / 1e3:.3g} kB"
    return f"{n_bytes / 1e6:.3g} MB" if n_bytes < 999_500_000 else f"{n_bytes / 1e9:.3g} GB"


def print_fit(model: LpDictionaryLearning, shape: tuple[int, ...], seconds: float, output: Path) -> None:
    """Summary of a fit."""
    console = make_console()
    console.print(f"[bold]Learned {model.n_components_} atoms[/] from {shape[0]} samples", highlight=False)
    for name, value in (
        ("samples", shape[0]),
        ("features", shape[1]),
        ("atoms", model.n_components_),
        ("iterations", model.n_iter_),
        ("passes", f"{model.n_passes_:g}"),
        ("seconds", f"{seconds:.2f}"),
        ("status", model.status_),
        *_describe_codes(model),
        ("model", describe_file(output)),
    ):
        print_line(console, name, value)


def print_model(model: LpDictionaryLearning, path: Path) -> None:
    """What a model file holds."""
    console = make_console()
    console.print("[bold]LpDictionaryLearning[/]", highlight=False)
    for name, value in (
        ("file", describe_file(path)),
        ("atoms", f"{model.n_components_} of {model.n_features_in_} features, {model.components_.dtype}"),
        ("p", model.p if isinstance(model.p, (int, float)) else ", ".join(f"{q:g}" for q in model.p)),
        ("objective", f"{model.objective_:.6g}"),
        ("iterations", model.n_iter_),
        ("passes", f"{model.n_passes_:g}"),
        ("converged", "yes" if model.converged_ else "no"),
        ("status", model.status_),
        *_describe_codes(model),
        ("parameters", _list_changed_parameters(model)),
    ):
        print_line(console, name, value)


def _describe_codes(model: LpDictionaryLearning) -> Iterator[tuple[str, str]]:
    """What the model says of codes, noise and its own error."""
    yield "density", f"{100 * float(model.density_.mean()):.3g} % of the codes are not zero"
    yield "noise", f"standard deviation {model.noise_std_:.3g}"
    if model.corruption_rate_:
        yield "corruption", f"{100 * model.corruption_rate_:.2g} % of the entries, size {model.corruption_scale_:.3g}"
    yield "expected error", f"{100 * model.expected_error_:.3g} %"


def _list_changed_parameters(model: LpDictionaryLearning) -> str:
    default = type(model)().get_params()
    changed = [f"{name}={value!r}" for name, value in model.get_params().items() if value != default[name]]
    return ", ".join(changed) or "all default"


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


def print_demo(results: Demo) -> None:
    """The demo's numbers."""
    from rich.table import Table  # noqa: PLC0415

    setting = results.setting
    console = make_console()
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
