"""Trials of damaged files: each must be refused with a clear error, or give the numbers it holds.

A file must not run code, take memory by what it declares, take long, end the process, or show an error of another
library. If checksums cover what was damaged, it must give the numbers of the original, or none.
"""

from __future__ import annotations

import re
import resource
import sys
import tempfile
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

import elldict
from elldict.datasets import make_bernoulli_gaussian
from experiments.benchmarks.study import Cell, Matrix, Row, Study, write_table
from experiments.campaign.damage import MARK, Rng, choose, damage_bytes
from experiments.harness.pool import Lost, Pool

MOST_BYTES = 2**28  # memory beyond what the process has, to read a file of some kilobytes
MOST_SECONDS = 30.0  # for a file, including the start of a process
LONGEST_MESSAGE = 2000
MOST_NOTES = 10
PACKAGE = str(Path(elldict.__file__).parent)
FORBIDDEN = ("pickle.find_class", "os.system", "subprocess.Popen", "os.exec", "os.posix_spawn", "os.mkdir")
VERDICTS = ("refused", "same numbers", "other numbers", "wrong")
Files = dict[str, bytes]
"""Content of a folder, by relative name."""


@dataclass(frozen=True)
class Kind:
    """A kind of file."""

    target: str  # name of the file or folder that is read
    write: Callable[[Path], None]  # writes it
    read: Callable[[Path], Any]  # reads all numbers of it
    edit: Callable[[bytes, Rng], tuple[str, bytes]] | None = None  # leaves a well-formed file, which may differ
    is_checked: bool = False  # whether checksums cover all bytes


@dataclass(frozen=True)
class Job:
    """A damaged file, by its module, kind and number."""

    module: str
    kind: str
    number: int


@cache
def make_samples() -> Matrix:
    """Draw the samples of all files."""
    X: Matrix = make_bernoulli_gaussian(1200, 6, density=0.3, noise_std=0.1, random_state=0)[0]
    X.setflags(write=False)
    return X


@cache
def prepare(module: str, kind: str) -> tuple[Kind, Files, Any, list[str]]:
    """Write and read the original once, watch events of the interpreter, and limit the memory from there on."""
    warnings.simplefilter("ignore")
    np.seterr(all="ignore")
    resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.getrlimit(resource.RLIMIT_AS)[1]))
    found: Kind = import_module(f"experiments.campaign.{module}").KINDS[kind]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        found.write(folder / found.target)
        files = {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}
        answer = found.read(folder / found.target)
    events: list[str] = []

    def notice(event: str, arguments: tuple[Any, ...]) -> None:
        if event in FORBIDDEN:
            events.append(f"{event} {arguments!r:.200}")

    sys.addaudithook(notice)
    in_use = int(Path("/proc/self/statm").read_text(encoding="utf-8").split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (in_use + MOST_BYTES, resource.getrlimit(resource.RLIMIT_AS)[1]))
    return found, files, answer, events


def damage(kind: Kind, files: Files, number: int) -> tuple[str, Files, bool]:
    """Damage one file; return what was done, the files, and whether they may give other numbers."""
    rng = np.random.default_rng([number, len(kind.target)])
    name = choose(sorted(files), rng)
    edited = kind.edit is not None and bool(rng.integers(2))
    note, content = (kind.edit if edited and kind.edit else damage_bytes)(files[name], rng)
    return f"{note} {name}", {**files, name: content}, edited or not kind.is_checked


def try_file(job: Job) -> tuple[str, str]:
    """Damage a file, read it, and return a verdict with its reason."""
    kind, files, answer, events = prepare(job.module, job.kind)
    note, damaged, may_differ = damage(kind, files, job.number)
    with tempfile.TemporaryDirectory(prefix="damaged") as name:
        folder = Path(name)
        for relative, content in damaged.items():
            (folder / relative).parent.mkdir(parents=True, exist_ok=True)
            (folder / relative).write_bytes(content)
        events.clear()
        try:
            found = kind.read(folder / kind.target)
        except Exception as error:
            fault = find_fault(error, folder)
            verdict = "wrong" if fault else "refused"
            reason = f"{fault}: {type(error).__name__}: {error}"
        else:
            same = are_same(found, answer)
            verdict = "same numbers" if same else "other numbers" if may_differ else "wrong"
            reason = "other numbers"
    if events or Path(MARK).exists():
        return "wrong", f"{note}: {events}"
    return verdict, f"{note}: {reason:.400}"


def find_fault(error: Exception, folder: Path) -> str:
    """Describe what is wrong with an error; nothing if it is clear."""
    message, causes = str(error), list(list_causes(error))
    if any(isinstance(cause, MemoryError) for cause in causes) or re.search(r"malloc|bad_alloc|realloc", message):
        return "takes memory by what it declares"
    if not isinstance(error, (ValueError, OSError)) or isinstance(error, (np.linalg.LinAlgError, UnicodeError)):
        return "not an error of reading"
    innermost = traceback.extract_tb(error.__traceback__)[-1].filename
    if not innermost.startswith(PACKAGE) and str(folder) not in message:
        return f"an error of {innermost}"
    if not message.strip() or len(message) > LONGEST_MESSAGE or not message.replace("\n", " ").isprintable():
        return f"a message of {len(message)} characters that cannot be read"
    return ""


def list_causes(error: BaseException | None) -> Iterator[BaseException]:
    """List an error and its causes."""
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def are_same(one: Any, other: Any) -> bool:
    """Return whether two answers are equal, to the last bit."""
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(are_same(one[name], other[name]) for name in one)
    if isinstance(one, np.ndarray) and isinstance(other, np.ndarray):
        return one.dtype == other.dtype and one.shape == other.shape and one.tobytes() == other.tobytes()
    return bool(one == other or (one != one and other != other))  # noqa: PLR0124  NaN


def try_files(module: str, cell: Cell) -> Row:
    """Try many files of a kind, in a process that is started again when a file ends it."""
    jobs = [Job(module, cell["kind"], number) for number in reversed(range(cell["files"]))]
    counts, notes = Counter[str](), []
    with Pool(try_file, limit=MOST_SECONDS) as pool:
        for job, found in pool.results(lambda: jobs.pop() if jobs else None):
            verdict, note = ("wrong", found.reason) if isinstance(found, Lost) else found
            counts[verdict] += 1
            if verdict == "wrong":
                notes.append(f"{job.number}: {note}")
                print(f"\n  {job.kind} {job.number}, {note}", flush=True)
    return {**{verdict: counts[verdict] for verdict in VERDICTS}, "notes": notes[:MOST_NOTES]}


def tabulate(rows: list[Row]) -> str:
    """Write one line per kind."""
    lines = [[row["kind"], str(row["files"]), *(str(row[verdict]) for verdict in VERDICTS)] for row in rows]
    return write_table(["kind", "damaged files", *VERDICTS], lines)


def make_study(module: str, kinds: Mapping[str, Kind], minutes: float) -> Study:
    """Make the study of the kinds of a module."""
    return Study(
        name=f"damaged_{module}",
        minutes=minutes,
        cells=[{"kind": kind, "files": 1000} for kind in kinds],
        small=[{"kind": kind, "files": 20} for kind in kinds],
        measure=lambda cell: try_files(module, cell),
        tabulate=tabulate,
        module=f"campaign.{module}",
    )
