"""The command `python -m experiments.reproduction`: arguments, progress, and what is said at the end.

Whatever a user can get wrong ends in one line on standard error and exit code 2; see `run`.
"""

from __future__ import annotations

import os
import re
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import rich.progress
import typer
from rich.console import Console

from elldict._old.atomic import write_atomically
from elldict._old.cli.errors import MistakeError
from elldict._old.cli.printing import describe_file, print_line
from elldict._old.data.gpu_stream import find_device
from experiments.harness.store import DONE, FAILED, Store, StoreError
from experiments.reproduction.catalogue import EXPERIMENTS
from experiments.reproduction.cells import Cell
from experiments.reproduction.experiment import Experiment, Size
from experiments.reproduction.images import ImagesError, Source
from experiments.reproduction.report.page import Made, render, write_pictures
from experiments.reproduction.report.words import duration
from experiments.reproduction.results import Results
from experiments.reproduction.runner import Outcome, Progress
from experiments.reproduction.runner import run as run_cells

RESULTS, REPORT, FIGURES = "results.jsonl", "report.html", "figures"
MISTAKE, INTERRUPTED = 2, 130
UNITS = {"s": 1, "m": 60, "h": 3600, "": 1}
NAMES = "table1, table2, table3, figure1 to figure6, few-samples, limit, or all"
COMMAND = "python -m experiments.reproduction"

UsageError: Any = typer.BadParameter.__base__
"""What typer raises for wrong arguments: its own class or click's, depending on its version."""

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


def run(arguments: Sequence[str]) -> int:
    """Run the command and return its exit code: the one place where mistakes become lines."""
    try:
        code = app(list(arguments), prog_name=COMMAND, standalone_mode=False) or 0
    except UsageError as error:
        return _fail(error.format_message().removesuffix(".") + f". See '{COMMAND} --help'.")
    except MistakeError as error:
        return _fail(str(error))
    except OSError as error:
        return _fail(f"{os.fsdecode(error.filename)}: {error.strerror}." if error.filename else str(error))
    except (KeyboardInterrupt, typer.Abort):
        code = INTERRUPTED
    if code == INTERRUPTED:  # typer turns Ctrl-C into this code and says nothing
        _say("interrupted.")
    return int(code)


def _fail(message: str) -> int:
    _say(f"error: {message}")
    return MISTAKE


def _say(message: str) -> None:
    """One line on standard error, whatever the message looked like."""
    print(f"elldict: {' '.join(message.split())}", file=sys.stderr, flush=True)


@app.command()
def reproduce(
    what: Annotated[list[str] | None, typer.Argument(help=f"What to run: {NAMES}.", show_default="all")] = None,
    full: Annotated[
        bool, typer.Option("--full/--quick", help="The paper's size and 10 trials, or all in small.")
    ] = False,
    trials: Annotated[int | None, typer.Option(min=1, help="Trials of everything.", show_default="by size")] = None,
    jobs: Annotated[int, typer.Option(min=1, help="Results to work on at once, on one core each.")] = 1,
    budget: Annotated[
        str | None, typer.Option(help="Stop after this time, such as 90s, 30m or 2h; 0 writes the report only.")
    ] = None,
    out: Annotated[Path, typer.Option(help="Folder of results and report.")] = Path("elldict-reproduction"),
    mnist: Annotated[
        str | None,
        typer.Option(help="MNIST for figure 6: a .npz file, or 'openml' to download it.", show_default="digits"),
    ] = None,
    device: Annotated[
        str | None, typer.Option(help="Fit elldict's methods on a graphics card: cuda, cuda:1.", show_default="host")
    ] = None,
    retry_failed: Annotated[bool, typer.Option("--retry-failed", help="Try again what failed before.")] = False,
) -> None:
    """Run the tables and figures of the paper, and write a report about them.

    Results are stored as they come. Stop it whenever you like: the same command goes on where it stopped.
    """
    seconds = None if budget is None else parse_seconds(budget)
    experiments = _chosen(what or ["all"])
    source = _source(mnist)
    size = Size(full=full, trials=trials, source=source)
    cells = list(dict.fromkeys(cell for experiment in experiments for cell in experiment.cells(size)))
    _check_device(device)
    store = _opened(out)
    files = {} if source.path is None else {"mnist": str(source.path.resolve())}
    with _mistakes(), reproduction_bar() as tell:
        outcome = run_cells(
            cells, store, jobs=jobs, budget=seconds, files=files, device=device, retry_failed=retry_failed, tell=tell
        )
    results = Results(store)
    _say_outcome(outcome, results, Console())
    if outcome.interrupted:
        raise typer.Exit(INTERRUPTED)
    _write_report(experiments, results, size, cells, out, _command(what, full, trials, mnist))


def parse_seconds(text: str) -> float:
    """Seconds from text such as 90s, 30m or 1.5h."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([smh]?)", text.strip())
    if match is None:
        raise MistakeError(f"--budget {text!r}: expected a time such as 90s, 30m or 2h.")
    return float(match[1]) * UNITS[match[2]]


# --- before -----------------------------------------------------------------------------------------------------------


def _chosen(names: Sequence[str]) -> list[Experiment]:
    unknown = [name for name in names if name not in EXPERIMENTS and name != "all"]
    if unknown:
        raise MistakeError(f"{unknown[0]!r} is not part of the paper. Choose from {', '.join(EXPERIMENTS)}, all.")
    return [experiment for name, experiment in EXPERIMENTS.items() if name in names or "all" in names]


def _source(mnist: str | None) -> Source:
    try:
        return Source.of(mnist)
    except ImagesError as error:
        raise MistakeError(f"--mnist: {error}") from error


def _opened(out: Path) -> Store:
    if out.exists() and not out.is_dir():
        raise MistakeError(f"--out {out} is not a folder.")
    out.mkdir(parents=True, exist_ok=True)
    with _mistakes():
        return Store(out / RESULTS)


def _check_device(device: str | None) -> None:
    """Say that there is no such card before a thousand results say it."""
    if device is None:
        return
    try:
        find_device(device)
    except (ValueError, ImportError) as error:
        raise MistakeError(str(error)) from error


@contextmanager
def _mistakes() -> Iterator[None]:
    try:
        yield
    except StoreError as error:
        raise MistakeError(str(error)) from error


def _command(what: Sequence[str] | None, full: bool, trials: int | None, mnist: str | None) -> str:
    """What makes the same report; without paths, which mean nothing to others, and budget, which does not matter."""
    parts = [COMMAND, *(what or ["all"]), "--full" if full else "--quick"]
    parts += [f"--trials {trials}"] if trials else []
    parts += ["--mnist openml" if mnist == "openml" else "--mnist mnist.npz"] if mnist else []
    return " ".join(parts)


# --- during -----------------------------------------------------------------------------------------------------------


@contextmanager
def reproduction_bar() -> Iterator[Callable[[Progress], None]]:
    """Show how far a run is: a bar for those who watch, a line every half minute for a log."""
    if not sys.stderr.isatty():
        yield _line_teller()
        return
    columns = (
        rich.progress.BarColumn(),
        rich.progress.MofNCompleteColumn(),
        rich.progress.TimeElapsedColumn(),
        rich.progress.TextColumn("about {task.fields[left]} left"),
        rich.progress.TextColumn("{task.description}"),
    )
    with rich.progress.Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=None, left="?")

        def tell(progress: Progress) -> None:
            bar.update(
                task,
                total=progress.n_cells,
                completed=progress.n_done,
                left=duration(progress.seconds_left),
                description=_doing(progress.doing),
            )

        yield tell


def _line_teller(every: float = 30.0) -> Callable[[Progress], None]:
    last = time.monotonic()

    def tell(progress: Progress) -> None:
        nonlocal last
        if time.monotonic() >= last + every:
            last = time.monotonic()
            left = duration(progress.seconds_left)
            line = f"{progress.n_done} of {progress.n_cells} results, about {left} left: {_doing(progress.doing)}"
            _say(line)

    return tell


def _doing(cells: Sequence[Cell]) -> str:
    return "; ".join(_words(cell) for cell in cells)


def _words(cell: Cell) -> str:
    name = f"l{cell.value('p'):g}" if cell.method == "lp" else cell.method
    n = cell.value("n_features")
    return f"{name}, n = {n}" if n else name


# --- after ------------------------------------------------------------------------------------------------------------


def _say_outcome(outcome: Outcome, results: Results, console: Console) -> None:
    n_had = outcome.n_stored_before + len(outcome.done)
    console.print(f"[bold]{n_had} of {outcome.n_cells} results[/], {len(outcome.done)} of them new", highlight=False)
    if outcome.failed:
        reasons = [record.reason for cell in outcome.failed if (record := results.store.get(cell)) is not None]
        print_line(console, "failed", f"{len(outcome.failed)}: {'; '.join(sorted(set(reasons))[:3])}")
    if outcome.not_run:
        seconds = sum(map(results.estimator.seconds, outcome.not_run))
        print_line(console, "not run", f"{len(outcome.not_run)}, about {duration(seconds)} on one core")
        for words, n_cells, needs in _not_run_by_method(outcome.not_run, results):
            print_line(console, "", f"{words}: {n_cells}, about {duration(needs)}")
    for package, cells in outcome.missing.items():
        print_line(console, "not installed", f"{package}, for {len(cells)} results: pip install -e '.[reproduce]'")


def _not_run_by_method(cells: Sequence[Cell], results: Results) -> Iterator[tuple[str, int, float]]:
    groups: dict[str, list[Cell]] = {}
    for cell in cells:
        groups.setdefault(_words(cell), []).append(cell)
    for words, group in groups.items():
        yield words, len(group), sum(map(results.estimator.seconds, group))


def _write_report(
    experiments: Sequence[Experiment], results: Results, size: Size, cells: Sequence[Cell], out: Path, command: str
) -> None:
    records = [results.store.get(cell) for cell in cells]
    open_cells = [cell for cell, record in zip(cells, records, strict=True) if record is None]
    made = Made(
        command=command,
        n_cells=len(cells),
        n_done=sum(record is not None and record.status == DONE for record in records),
        n_failed=sum(record is not None and record.status == FAILED for record in records),
        n_not_run=len(open_cells),
        seconds_needed=sum(map(results.estimator.seconds, open_cells)),
    )
    page = render(experiments, results, size, made)
    write_atomically(out / REPORT, lambda stream: stream.write(page.encode()))
    write_pictures(experiments, results, size, out / FIGURES)
    console = Console()
    print_line(console, "results", describe_file(out / RESULTS))
    print_line(console, "report", describe_file(out / REPORT))
