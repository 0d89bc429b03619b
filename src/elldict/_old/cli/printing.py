"""What the command line shows: summaries, tables and bars."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console

    from elldict._old.estimator import LpEstimator
    from elldict._old.report.demo import Demo
    from elldict._old.report.studies import ErrorAndBar, Recovery
    from elldict._old.result import Callback


def print_summary(title: str, lines: Iterable[tuple[str, object]]) -> None:
    """A title, then names and values."""
    from rich.console import Console  # noqa: PLC0415

    console = Console()
    console.print(title, highlight=False)
    for name, value in lines:
        print_line(console, name, value)


def print_json(facts: dict[str, Any]) -> None:
    """One JSON object on a line; numbers have all their digits, and those that are not finite are null."""
    import json  # noqa: PLC0415

    print(json.dumps(_make_plain(facts), ensure_ascii=False, allow_nan=False))


def _make_plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(name): _make_plain(item) for name, item in value.items()}
    if hasattr(value, "tolist"):  # an array or a number of NumPy
        value = value.tolist()
    if isinstance(value, (list, tuple)):
        return [_make_plain(item) for item in value]
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return value if isinstance(value, (bool, int, str, type(None))) else repr(value)


def list_fit(model: LpEstimator, shape: tuple[int, int], seconds: float) -> dict[str, Any]:
    """What happened in a fit, for programs."""
    return {"samples": shape[0], "features": shape[1], **list_results(model), "seconds": seconds}


def list_model(model: LpEstimator) -> dict[str, Any]:
    """What a model file holds, for programs."""
    names = getattr(model, "feature_names_in_", None)
    facts = {"class": type(model).__name__, "features": model.n_features_in_, "dtype": str(model.unmixing_.dtype)}
    return {**facts, **list_results(model), "feature_names": names, "parameters": model.get_params()}


def list_results(model: LpEstimator) -> dict[str, Any]:
    """Results of a fit by the names of its attributes, without the underscore."""
    names = ("n_iter", "n_passes", "converged", "status", "refined", "objective", "density", "scale", "noise_std")
    errors = ("corruption_rate", "corruption_scale", "expected_error", "atom_error", "warnings")
    return {"atoms": model.n_components_, **{name: getattr(model, f"{name}_") for name in (*names, *errors)}}


def print_line(console: Console, name: str, value: object) -> None:
    """One name and value; not wrapped, so that what is piped into a file stays one line each."""
    from rich.text import Text  # noqa: PLC0415

    console.print(Text.assemble("  ", (f"{name:<15}", "cyan"), str(value)), soft_wrap=True)


def describe_file(path: Path) -> str:
    """Name and size of a file, or of all files of a folder."""
    from rich.filesize import decimal  # noqa: PLC0415

    files = [path] if path.is_file() else [file for file in path.rglob("*") if file.is_file()]
    return f"{path} ({decimal(sum(file.stat().st_size for file in files))})"


def show_fit_progress(p: str, tol: float, quiet: bool) -> AbstractContextManager[Callback | None]:
    """Show the bar of a fit on a terminal; not through `verbose`, which the model would keep."""
    from elldict._old.progress import progress_bar  # noqa: PLC0415

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
