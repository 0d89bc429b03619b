"""Injected faults: a fit is killed or interrupted, the disk is full, samples change, a worker is lost.

python -m experiments.campaign.faults                  # 40 faults of each of 7 kinds, 8 minutes
python -m experiments.campaign.faults --only killed

A fit may end with an error. It must not end with other numbers than an undisturbed fit, nor never, nor leave a file
that is half written; and when all is well again, it is resumed from its checkpoint and ends with the same bits.
"""

from __future__ import annotations

import multiprocessing as mp
import os
import resource
import shutil
import signal
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import cache
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np

from elldict import LpDictionaryLearning, checkpoint, load
from elldict.datasets import make_bernoulli_gaussian
from elldict.model_file import pack
from experiments.benchmarks.scaling import kill_worker, load_chunks, open_cluster
from experiments.benchmarks.study import Cell, Row, Study, main, no_warnings, write_table
from experiments.peers.base import required

FITS: dict[str, dict[str, Any]] = {"default": {}, "power": {"solver": "power", "max_iter": 25, "tol": 1e-12}}
SOURCES = ("array", "x.npy", "x.parquet")
MOST_SECONDS = 60.0  # for a fit that takes a second
PROBLEMS = ("other numbers", "hangs", "half-written file", "not resumed")
LOST_WORKER = "lost worker"


@dataclass(frozen=True)
class Plan:
    """A fit in a process of its own, and what happens to it."""

    folder: Path
    source: str
    fit: str
    fault: str = ""
    iteration: int = 0  # at which it happens
    delay: float = 0.0  # seconds after it

    @property
    def samples(self) -> Path:
        """File of the samples."""
        return self.folder / ("x.npy" if self.source == "array" else self.source)


def send(number: int) -> Callable[[Plan], None]:
    """Make the fault that sends a signal to this process."""
    return lambda plan: threading.Timer(plan.delay, os.kill, (os.getpid(), number)).start()


def fill_disk(plan: Plan) -> None:
    """Let every file end after some bytes, as if the disk were full."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (int(plan.delay * 1e6), resource.getrlimit(resource.RLIMIT_FSIZE)[1]))


FAULTS: dict[str, Callable[[Plan], None]] = {
    "killed": send(signal.SIGKILL),
    "terminated": send(signal.SIGTERM),
    "interrupted": send(signal.SIGINT),
    "disk full": fill_disk,
    "samples changed": lambda plan: write_samples(plan.folder, seed=1),
    "samples truncated": lambda plan: os.truncate(plan.samples, plan.samples.stat().st_size // 2),
}


def write_samples(folder: Path, seed: int = 0) -> None:
    """Write the samples in two formats."""
    X, _, _ = make_bernoulli_gaussian(3000, 8, density=0.3, noise_std=0.2, random_state=seed)
    np.save(folder / "x.npy", X)
    table = required("pyarrow", "pyarrow").table({f"c{i}": column for i, column in enumerate(X.T)})
    required("pyarrow.parquet", "pyarrow").write_table(table, folder / "x.parquet")


def fit_here(plan: Plan, connection: Connection[Any, Any]) -> None:
    """Fit with a checkpoint that is written after every step, let the fault happen, and save the model."""
    count = 0

    def watch(_: Any) -> None:
        nonlocal count
        count += 1
        if plan.fault and count == plan.iteration:
            FAULTS[plan.fault](plan)

    path, told = plan.folder / "checkpoint.npz", "done"
    try:
        with ExitStack() as stack, no_warnings():
            stack.enter_context(patch.object(checkpoint, "SHARE_OF_TIME", 1e9))
            for module in [module for name, module in sys.modules.items() if name.startswith("elldict.")]:
                if hasattr(module, "STORED_BYTES"):  # samples in files are read in every pass
                    stack.enter_context(patch.object(module, "STORED_BYTES", 1000))
            X: Any = np.load(plan.samples) if plan.source == "array" else plan.samples
            model = LpDictionaryLearning(random_state=0, **FITS[plan.fit])
            model.fit(X, checkpoint=path, resume=path.exists(), callback=watch)
            model.save(plan.folder / "model.npz", overwrite=True)
    except BaseException as error:  # also Ctrl-C
        told = type(error).__name__
    connection.send((told, count))


def run_fit(plan: Plan) -> tuple[str, int]:
    """Run a fit to its end; return how it ended ("hangs" if it had to be ended), and its number of iterations."""
    context: Any = mp.get_context("forkserver")
    context.set_forkserver_preload(["elldict.estimator", "experiments.benchmarks.scaling", "pyarrow.parquet"])
    here, there = context.Pipe(duplex=False)
    process = context.Process(target=fit_here, args=(plan, there), daemon=True)
    process.start()
    there.close()
    process.join(MOST_SECONDS)
    if process.exitcode is None:
        process.kill()
        process.join()
        return "hangs", 0
    try:
        told: tuple[str, int] = here.recv()
    except EOFError:
        return f"exit code {process.exitcode}", 0
    return told


def read_answer(folder: Path) -> Any:
    """Read a saved model, without the seconds of its history; None if it is absent or damaged."""
    try:
        header, arrays = pack(load(folder / "model.npz"))
    except (FileNotFoundError, ValueError):
        return None
    arrays["history"] = arrays["history"][:, :-1]
    return repr(header), {name: array.tobytes() for name, array in arrays.items()}


@cache
def fit_undisturbed(fit: str, source: str) -> tuple[Any, int]:
    """Return the answer and the number of iterations of a fit to which nothing happens."""
    with tempfile.TemporaryDirectory() as name:
        write_samples(Path(name))
        told, n_iterations = run_fit(Plan(Path(name), source, fit))
        if told != "done":
            raise RuntimeError(f"the undisturbed fit of {source} failed: {told}")
        return read_answer(Path(name)), n_iterations


def try_fault(fault: str, number: int) -> tuple[str, list[str]]:
    """Let a fault happen at a random moment; return how the fit ended, and what went wrong."""
    rng, problems = np.random.default_rng([number, len(fault)]), []
    source = str(rng.choice(SOURCES[1:] if fault.startswith("samples") else SOURCES))
    fit = str(rng.choice(list(FITS)))
    answer, n_iterations = fit_undisturbed(fit, source)
    with tempfile.TemporaryDirectory() as name, tempfile.TemporaryDirectory() as original:
        folder = Path(name)
        write_samples(folder)
        shutil.copytree(folder, original, dirs_exist_ok=True)
        plan = Plan(folder, source, fit, fault, int(rng.integers(1, n_iterations + 1)), float(rng.uniform(0, 0.01)))
        told, _ = run_fit(plan)
        if told == "hangs":
            problems.append("hangs")
        if (folder / "model.npz").exists() and read_answer(folder) != answer:
            problems.append("other numbers" if told == "done" else "half-written file")
        if fault not in ("killed", "terminated") and any(folder.glob(".*.tmp")):  # a killed process cannot clean up
            problems.append("half-written file")
        (folder / "model.npz").unlink(missing_ok=True)
        shutil.copytree(original, folder, dirs_exist_ok=True)
        again, _ = run_fit(replace(plan, fault=""))
        if again != "done" or read_answer(folder) != answer:
            problems.append("other numbers" if again == "done" else "not resumed")
    place = f"({number}: {fit}, {source}, iteration {plan.iteration}; ended: {told}, resumed: {again})"
    return told, [f"{problem} {place}" for problem in problems]


def lose_worker(client: Any, path: Path, number: int) -> tuple[str, list[str]]:
    """Kill a worker of a cluster at a random iteration, and compare the fit with that of an array."""
    rng, count = np.random.default_rng(number), 0
    options = {"error_bars": False, "random_state": 0, **FITS[str(rng.choice(list(FITS)))]}
    expected = LpDictionaryLearning(**options).fit(np.load(path))
    iteration = int(rng.integers(1, expected.n_iter_ + 1))

    def watch(_: Any) -> None:
        nonlocal count
        count += 1
        if count == iteration:
            kill_worker(client, number)

    client.wait_for_workers(2, timeout=120)
    model = LpDictionaryLearning(**options).fit(load_chunks(path, 9), callback=watch)
    is_same = np.array_equal(model.components_, expected.components_)
    return "done", [] if is_same else [f"other numbers ({number}: {options}, iteration {iteration})"]


def measure(cell: Cell) -> Row:
    """Let a fault happen several times; count what went wrong."""
    with ExitStack() as stack:
        stack.enter_context(no_warnings())
        if cell["fault"] == LOST_WORKER:
            path, client = Path(stack.enter_context(tempfile.TemporaryDirectory()), "x.npy"), open_cluster(2)
            np.save(path, make_bernoulli_gaussian(60_000, 16, density=0.2, noise_std=0.2, random_state=0)[0])
            workers = stack.enter_context(client)
            found = [lose_worker(workers, path, number) for number in range(cell["n"])]
        else:
            found = [try_fault(cell["fault"], number) for number in range(cell["n"])]
    notes = [problem for _, problems in found for problem in problems]
    print("".join(f"\n  {note}" for note in notes), end=" ")
    counts = Counter(note.partition(" (")[0] for note in notes)
    n_ended = sum(told != "done" for told, _ in found)
    return {"ended": n_ended, **{problem: counts[problem] for problem in PROBLEMS}, "notes": notes}


def tabulate(rows: list[Row]) -> str:
    """Write one line per kind of fault."""
    lines = [[row["fault"], *(str(row[name]) for name in ("n", "ended", *PROBLEMS))] for row in rows]
    return write_table(["fault", "tried", "ended the fit", *PROBLEMS], lines)


CELLS = [*({"fault": fault, "n": 40} for fault in FAULTS), {"fault": LOST_WORKER, "n": 20}]
SMALL = [{"fault": fault, "n": 2} for fault in (*FAULTS, LOST_WORKER)]
PACKAGES = ("pyarrow", "dask", "distributed")
STUDY = Study("faults", 8, measure, tabulate, CELLS, SMALL, packages=PACKAGES, folder="campaign")

if __name__ == "__main__":
    main(STUDY, __doc__)
