"""Damage thousands of files and read them: each is refused by a clear error, or gives the numbers that it holds.

python -m experiments.campaign.files                                   # 2000 files of each of 12 kinds, some minutes
python -m experiments.campaign.files --n 200 --kinds model zarr --seed 3
python -m experiments.campaign.files --only zarr:17 --keep damaged     # one file again, which is kept in a folder

A file must never run code, take memory by what it declares, take long, end the process, or show an error of a library
below. A file whose checksums cover what was damaged has to give the numbers of the original; one that is well formed,
or of a format without checksums, may give others: exactly those that the library of its format reads.
"""

from __future__ import annotations

import argparse
import os
import re
import resource
import sys
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import elldict
from experiments.campaign.damage import MARK
from experiments.campaign.file_kinds import KINDS, damage, make_originals
from experiments.campaign.original import Original, PlacedFiles, WrongError, write_files
from experiments.harness.pool import Lost, Pool

MOST_BYTES = 2**28
"""Memory that reading a file of some kilobytes may take beyond what the process has: blocks read ahead among it."""

MOST_SECONDS = 30.0
"""For a file, and for a process to begin with it; the slowest takes a tenth of a second."""

LONGEST_MESSAGE = 2000
"""Characters of an error: more are content of the file, and nobody reads them."""

VERDICTS = ("refused", "same numbers", "as the file says", "wrong")

PACKAGE = str(Path(elldict.__file__).parent)


@dataclass(frozen=True)
class Job:
    """A damaged file, by what it is made of."""

    kind: str
    seed: int
    number: int

    @property
    def name(self) -> str:
        """As `--only` takes it."""
        return f"{self.kind}:{self.number}"


@dataclass(frozen=True)
class Outcome:
    """What became of a file."""

    verdict: str
    note: str  # what was done to it
    message: str = ""
    seconds: float = 0.0


class Watch:
    """Events of the interpreter that no file may cause: unpickling, other programs, writing elsewhere."""

    FORBIDDEN = ("pickle.find_class", "os.system", "subprocess.Popen", "os.exec", "os.posix_spawn", "os.mkdir")

    def __init__(self) -> None:
        self.folder, self.found = "", ""
        sys.addaudithook(self.notice)

    def notice(self, event: str, arguments: tuple[Any, ...]) -> None:
        """Look at an event; called by the interpreter."""
        if not self.folder:
            return
        if event in self.FORBIDDEN:
            self.found = f"{event} {arguments!r:.200}"
        elif event == "open" and arguments[2] & (os.O_WRONLY | os.O_RDWR) and self._is_elsewhere(arguments[0]):
            self.found = f"writes {arguments[0]}"

    def _is_elsewhere(self, name: Any) -> bool:
        return isinstance(name, str) and not name.startswith((self.folder, "/dev/", "/proc/"))

    def begin(self, folder: Path) -> None:
        """From here on; in this folder files may be written."""
        self.folder, self.found = str(folder), ""

    def end(self) -> str:
        """What was noticed."""
        self.folder = ""
        return self.found


_prepared: dict[str, Watch] = {}


def prepare(kind: str) -> Watch:
    """Do once in a process what reading this kind of file needs, and bound its memory from there on."""
    if kind not in _prepared:
        warnings.simplefilter("ignore")
        np.seterr(all="ignore")
        sys.dont_write_bytecode = True
        resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.getrlimit(resource.RLIMIT_AS)[1]))
        make_originals(kind)
        _prepared[kind] = next(iter(_prepared.values()), None) or Watch()
        in_use = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (in_use + MOST_BYTES, resource.getrlimit(resource.RLIMIT_AS)[1]))
    return _prepared[kind]


def try_file(job: Job) -> Outcome:
    """Damage a file, use it, and judge what came of it."""
    watch = prepare(job.kind)
    original, damaged = damage(job.kind, job.seed, job.number)
    with PlacedFiles(damaged.files) as folder:
        began = time.perf_counter()
        watch.begin(folder)
        verdict, message = use_file(job.kind, original, folder, may_differ=damaged.may_differ)
        found, seconds = watch.end(), time.perf_counter() - began
        if found or (folder / MARK).exists() or Path(MARK).exists():
            verdict, message = "wrong", f"runs code, or writes elsewhere: {found}"
        elif any(folder.rglob("*.tmp")):
            verdict, message = "wrong", "a temporary file is left"
    return Outcome(verdict, damaged.note, message, seconds)


def use_file(kind: str, original: Original, folder: Path, *, may_differ: bool) -> tuple[str, str]:
    """Verdict on a file, and why."""
    try:
        same = KINDS[kind].use(original, folder / original.target)
    except WrongError as error:
        return "wrong", str(error)
    except Exception as error:
        complaint = judge_error(error, folder)
        message = f"{type(error).__name__}: {error}"
        return ("wrong", f"{complaint}: {message}") if complaint else ("refused", message)
    if same:
        return "same numbers", ""
    return ("as the file says", "") if may_differ else ("wrong", "other numbers than those of the original")


def judge_error(error: Exception, folder: Path) -> str:
    """What is wrong with an error that a damaged file has led to; empty if nothing is."""
    message, chain = str(error), list(list_causes(error))
    if any(isinstance(cause, MemoryError) for cause in chain) or re.search(r"malloc|bad_alloc|realloc", message):
        return "takes memory by what it declares"
    if not isinstance(error, (ValueError, OSError)) or isinstance(error, (np.linalg.LinAlgError, UnicodeError)):
        return "not an error of reading"
    innermost = traceback.extract_tb(error.__traceback__)[-1].filename
    if not innermost.startswith(PACKAGE) and str(folder) not in message:
        return f"an error of {innermost}"
    if not message.strip() or len(message) > LONGEST_MESSAGE or not message.replace("\n", " ").isprintable():
        return f"a message that cannot be read, of {len(message)} characters"
    return ""


def list_causes(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def run(jobs: Iterable[Job], workers: int = 1) -> Iterator[tuple[Job, Outcome]]:
    """What becomes of each file, as they end, in processes that are begun again when a file ends them."""
    left = iter(jobs)
    with Pool(try_file, workers, limit=MOST_SECONDS) as pool:
        for job, found in pool.results(lambda: next(left, None)):
            yield job, Outcome("wrong", "", found.reason, found.seconds) if isinstance(found, Lost) else found


def make_table(found: Counter[tuple[str, str]], kinds: Iterable[str]) -> str:
    lines = [f"{'kind':<12}{'mutated':>9}" + "".join(f"{verdict:>18}" for verdict in VERDICTS)]
    for kind in kinds:
        counts = [found[kind, verdict] for verdict in VERDICTS]
        lines.append(f"{kind:<12}{sum(counts):>9}" + "".join(f"{count:>18}" for count in counts))
    return "\n".join(lines)


def list_jobs(options: argparse.Namespace) -> list[Job]:
    if options.only:
        pairs = [name.rpartition(":") for name in options.only]
        return [Job(kind, options.seed, int(number)) for kind, _, number in pairs]
    return [Job(kind, options.seed, number) for kind in options.kinds for number in range(options.n)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--n", type=int, default=2000, help="files of each kind")
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=list(KINDS))
    parser.add_argument("--only", nargs="+", metavar="KIND:NUMBER", help="these files alone, with what they led to")
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="keep the files that --only names")
    parser.add_argument("--workers", type=int, default=1)
    options = parser.parse_args()
    jobs, found, began = list_jobs(options), Counter[tuple[str, str]](), time.perf_counter()
    slowest = 0.0
    for job, outcome in run(jobs, options.workers):
        found[job.kind, outcome.verdict] += 1
        slowest = max(slowest, outcome.seconds)
        if outcome.verdict == "wrong" or options.only:
            print(
                f"{job.name} (seed {job.seed}), {outcome.note}: {outcome.verdict}. {outcome.message:.600}", flush=True
            )
        if options.only and options.keep:
            write_files(damage(job.kind, job.seed, job.number)[1].files, options.keep / job.name.replace(":", "-"))
    print(make_table(found, dict.fromkeys(job.kind for job in jobs)))
    n_wrong = sum(count for (_, verdict), count in found.items() if verdict == "wrong")
    minutes = (time.perf_counter() - began) / 60
    print(
        f"seed {options.seed}: {n_wrong} of {len(jobs)} are wrong; {minutes:.1f} minutes, the slowest {slowest:.2f} s"
    )
    raise SystemExit(1 if n_wrong else 0)


if __name__ == "__main__":
    main()
