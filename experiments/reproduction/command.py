"""Run the experiments from the command line, show progress, and write the report."""

from __future__ import annotations

import argparse
import re
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import rich.progress
from rich.console import Console

from elldict.atomic import open_atomic
from experiments.harness.store import DONE, FAILED, Store, StoreError
from experiments.reproduction.catalogue import EXPERIMENTS
from experiments.reproduction.cells import METHODS, Cell
from experiments.reproduction.experiment import Size
from experiments.reproduction.images import ImagesError, Source
from experiments.reproduction.report.page import render, write_pictures
from experiments.reproduction.results import Results
from experiments.reproduction.runner import run as run_cells

COMMAND = "python -m experiments.reproduction"
INTERRUPTED = 130
UNITS = {"s": 1, "m": 60, "h": 3600, "": 1}
LINE_SECONDS = 30  # between lines of progress in a log


def make_parser() -> argparse.ArgumentParser:
    """Describe the arguments."""
    parser = argparse.ArgumentParser(
        prog=COMMAND,
        description="Run the tables and figures of the paper, and write a report. Results are stored as they come; "
        "after an interruption the same command resumes.",
    )
    parser.add_argument("what", nargs="*", default=["all"], help=f"{', '.join(EXPERIMENTS)}, or all")
    parser.add_argument("--full", action="store_true", help="the size and the 10 trials of the paper")
    parser.add_argument("--quick", dest="full", action="store_false", help="small sizes (default)")
    parser.add_argument("--trials", type=parse_count, metavar="N", help="number of trials")
    parser.add_argument("--jobs", type=parse_count, default=1, metavar="N", help="number of cores")
    parser.add_argument("--budget", type=parse_seconds, help="stop after 90s, 30m or 2h; 0 writes the report only")
    parser.add_argument("--out", type=Path, default=Path("elldict-reproduction"), help="folder of results and report")
    parser.add_argument("--mnist", metavar="FILE", help="MNIST for Figure 6: a .npz file, or openml to download it")
    parser.add_argument("--retry-failed", action="store_true", help="run again what failed")
    return parser


def parse_count(text: str) -> int:
    """Read a number of at least one."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r}: expected a number >= 1.")
    return int(text)


def parse_seconds(text: str) -> float:
    """Read a time such as 90s, 30m or 1.5h."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([smh]?)", text.strip())
    if match is None:
        raise argparse.ArgumentTypeError(f"{text!r}: expected a time such as 90s, 30m or 2h.")
    return float(match[1]) * UNITS[match[2]]


def run(arguments: Sequence[str]) -> int:
    """Run the command and return its exit code; 2 for wrong arguments."""
    parser = make_parser()
    try:
        reproduce(parser.parse_args(arguments))
    except SystemExit as stop:  # of argparse
        return int(stop.code or 0)
    except (StoreError, ImagesError, OSError) as error:
        print(f"{COMMAND}: error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("interrupted; the same command resumes", file=sys.stderr)
        return INTERRUPTED
    return 0


def reproduce(options: argparse.Namespace) -> None:
    """Run what is not stored, and write the report."""
    unknown = [name for name in options.what if name not in {*EXPERIMENTS, "all"}]
    if unknown:
        raise OSError(f"{unknown[0]!r} is not part of the paper. Choose from {', '.join(EXPERIMENTS)}, all.")
    names = options.what if "all" not in options.what else list(EXPERIMENTS)
    experiments = [EXPERIMENTS[name] for name in EXPERIMENTS if name in names]
    size = Size(options.full, options.trials, Source.of(options.mnist))
    cells = list(dict.fromkeys(cell for experiment in experiments for cell in experiment.cells(size)))
    options.out.mkdir(parents=True, exist_ok=True)
    store = Store(options.out / "results.jsonl")
    files = {"mnist": str(size.source.path)} if size.source.path else {}
    with show_progress() as show:
        n_new = run_cells(
            cells,
            store,
            jobs=options.jobs,
            budget=options.budget,
            files=files,
            retry_failed=options.retry_failed,
            show=show,
        )
    results, facts = Results(store), describe(cells, store)
    facts = {"Command": format_command(options), **facts, "Machine": "; ".join(results.machines(cells)) or "none yet"}
    with open_atomic(options.out / "report.html") as stream:
        stream.write(render(experiments, results, size, facts).encode())
    write_pictures(experiments, results, size, options.out / "figures")
    print(f"{facts['Results']}; {n_new} of them new")
    print(f"report: {options.out / 'report.html'}")


def describe(cells: Sequence[Cell], store: Store) -> dict[str, str]:
    """Count the results, and list failures and packages to install."""
    records = [store.get(cell) for cell in cells]
    n_done = sum(record is not None and record.status == DONE for record in records)
    reasons = {record.reason for record in records if record is not None and record.status == FAILED}
    missing = {METHODS[cell.method].missing for cell in cells} - {None}
    facts = {"Results": f"{n_done} of {len(cells)}"}
    if reasons:
        facts["Failed"] = "; ".join(sorted(reasons)[:3])
    if missing:
        facts["Not installed"] = f"{', '.join(sorted(map(str, missing)))}: pip install -e '.[reproduce]'"
    return facts


def format_command(options: argparse.Namespace) -> str:
    """Format the command that makes the same report, without paths."""
    parts = [COMMAND, *options.what, "--full" if options.full else "--quick"]
    parts += [f"--trials {options.trials}"] if options.trials else []
    parts += ["--mnist openml" if options.mnist == "openml" else "--mnist mnist.npz"] if options.mnist else []
    return " ".join(parts)


Progress = Callable[[int, int, list[Cell]], None]


@contextmanager
def show_progress() -> Iterator[Progress]:
    """Show a bar on a terminal, and lines in a log."""
    if not sys.stderr.isatty():
        last = time.monotonic()

        def write(n_done: int, n_all: int, cells: list[Cell]) -> None:
            nonlocal last
            if time.monotonic() >= last + LINE_SECONDS:
                last = time.monotonic()
                print(f"{n_done} of {n_all} results; running {name_cells(cells)}", file=sys.stderr, flush=True)

        yield write
        return
    columns = (rich.progress.BarColumn(), rich.progress.MofNCompleteColumn(), rich.progress.TimeElapsedColumn())
    text = rich.progress.TextColumn("{task.description}")
    with rich.progress.Progress(*columns, text, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=None)
        yield lambda n_done, n_all, cells: bar.update(
            task, total=n_all, completed=n_done, description=name_cells(cells)
        )


def name_cells(cells: Sequence[Cell]) -> str:
    """Name the cells in progress."""
    return "; ".join(f"{cell.method}, n = {cell.value('n_features') or cell.value('source')}" for cell in cells)
