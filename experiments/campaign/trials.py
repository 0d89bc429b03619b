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
from experiments.campaign.damage import MARK, Damage, choose, damage_bytes
from experiments.harness.pool import Lost, Pool

MOST_BYTES = 2**28  # memory beyond what the process has, to read a file of some kilobytes
MOST_SECONDS = 30.0  # for a file, including the start of a process
LONGEST_MESSAGE, MOST_NOTES = 2000, 10
FORBIDDEN = ("pickle.find_class", "os.system", "subprocess.Popen", "os.exec", "os.posix_spawn", "os.mkdir")
VERDICTS = ("refused", "same numbers", "other numbers", "wrong")


@dataclass(frozen=True)
class Kind:
    """A kind of file."""

    target: str  # name of the file or folder that is read
    write: Callable[[Path], object]  # writes it
    read: Callable[[Path], Any]  # reads all numbers of it
    edit: Damage | None = None  # leaves a well-formed file, which may differ
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
def prepare(module: str, kind: str) -> tuple[Kind, dict[str, bytes], Any, list[str]]:
    """Write and read the original once; then watch events of the interpreter, and limit the memory."""
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
    sys.addaudithook(
        lambda event, arguments: events.append(f"{event} {arguments!r:.99}") if event in FORBIDDEN else None
    )
    in_use = int(Path("/proc/self/statm").read_text(encoding="utf-8").split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (in_use + MOST_BYTES, resource.getrlimit(resource.RLIMIT_AS)[1]))
    return found, files, answer, events


def try_file(job: Job) -> tuple[str, str]:
    """Damage a file, read it, and return a verdict with its reason."""
    kind, files, answer, events = prepare(job.module, job.kind)
    rng = np.random.default_rng([job.number, len(job.kind)])
    name = choose(sorted(files), rng)
    is_edited = kind.edit is not None and bool(rng.integers(2))
    note, content = (kind.edit if is_edited and kind.edit else damage_bytes)(files[name], rng)
    with tempfile.TemporaryDirectory(prefix="damaged") as folder:
        for relative, data in {**files, name: content}.items():
            path = Path(folder, relative)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
        events.clear()
        try:
            is_same = are_same(kind.read(Path(folder, kind.target)), answer)
            may_differ = is_edited or not kind.is_checked
            verdict, reason = "same numbers" if is_same else "other numbers" if may_differ else "wrong", "other numbers"
        except Exception as error:
            fault = find_fault(error, folder)
            verdict, reason = "wrong" if fault else "refused", f"{fault}: {type(error).__name__}: {error}"
    if events or Path(MARK).exists():
        verdict, reason = "wrong", str(events)
    return verdict, f"{name}, {note}: {reason:.400}"


def find_fault(error: BaseException, folder: str) -> str:
    """Describe what is wrong with an error; nothing if it is clear."""
    message, causes = str(error), [error]
    while (cause := causes[-1].__cause__ or causes[-1].__context__) is not None:
        causes.append(cause)
    if any(isinstance(cause, MemoryError) for cause in causes) or re.search(r"malloc|bad_alloc|realloc", message):
        return "takes memory by what it declares"
    if not isinstance(error, (ValueError, OSError)) or isinstance(error, (np.linalg.LinAlgError, UnicodeError)):
        return "not an error of reading"
    innermost = traceback.extract_tb(error.__traceback__)[-1].filename
    if not innermost.startswith(str(Path(elldict.__file__).parent)) and folder not in message:
        return f"an error of {innermost}"
    if not message.strip() or len(message) > LONGEST_MESSAGE or not message.replace("\n", " ").isprintable():
        return f"a message of {len(message)} characters that cannot be read"
    return ""


def are_same(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Return whether two answers are equal, to the last bit."""
    return one.keys() == other.keys() and all(to_bits(one[name]) == to_bits(other[name]) for name in one)


def to_bits(value: Any) -> Any:
    """Return the bytes of an array, with its form; any other value as text."""
    return (value.dtype, value.shape, value.tobytes()) if isinstance(value, np.ndarray) else repr(value)


def run(jobs: list[Job]) -> Iterator[tuple[Job, str, str]]:
    """Try files in a process that is started again when a file ends it; yield verdicts with their reasons."""
    left = iter(jobs)
    with Pool(try_file, limit=MOST_SECONDS) as pool:
        for job, found in pool.results(lambda: next(left, None)):
            yield job, *(("wrong", found.reason) if isinstance(found, Lost) else found)


def try_files(module: str, cell: Cell) -> Row:
    """Try many files of a kind; count the verdicts."""
    counts, notes = Counter[str](), []
    for job, verdict, note in run([Job(module, cell["kind"], number) for number in range(cell["files"])]):
        counts[verdict] += 1
        if verdict == "wrong":
            notes.append(f"{job.number}: {note}")
    print("".join(f"\n  {note}" for note in notes), end=" ")
    return {**{verdict: counts[verdict] for verdict in VERDICTS}, "notes": notes[:MOST_NOTES]}


def tabulate(rows: list[Row]) -> str:
    """Write one line per kind."""
    lines = [[row["kind"], str(row["files"]), *(str(row[verdict]) for verdict in VERDICTS)] for row in rows]
    return write_table(["kind", "damaged files", *VERDICTS], lines)


def make_study(name: str, kinds: Mapping[str, Kind], minutes: float) -> Study:
    """Make the study of the kinds of a module."""
    cells, small = ([{"kind": kind, "files": n} for kind in kinds] for n in (1000, 20))
    return Study(name, minutes, lambda cell: try_files(name, cell), tabulate, cells, small, folder="campaign")
