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
from unittest import mock

import numpy as np

from elldict import LpDictionaryLearning, checkpoint, load
from elldict.datasets import make_bernoulli_gaussian
from elldict.model_file import pack
from experiments.benchmarks.scaling import kill_worker, load_chunks, open_cluster
from experiments.benchmarks.study import Cell, Row, Study, main, no_warnings, write_table
from experiments.harness.pool import THREAD_LIMITS
from experiments.peers.base import required

FITS: dict[str, dict[str, Any]] = {
    "default": {},
    "power": {"solver": "power", "refine": None, "max_iter": 25, "tol": 1e-12},
}
SOURCES = ("array", "x.npy", "x.zarr", "x.parquet")
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


def send(number: int) -> Callable[[Plan], None]:
    """Make the fault that sends a signal to this process."""
    return lambda plan: threading.Timer(plan.delay, os.kill, (os.getpid(), number)).start()


def fill_disk(plan: Plan) -> None:
    """Let every file end after some bytes, as if the disk were full."""
    size = int(plan.delay * 1e6)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))


def change_samples(plan: Plan) -> None:
    """Write other samples to the file that is fitted."""
    write_samples(plan.folder, seed=1)


def truncate_samples(plan: Plan) -> None:
    """Cut the file of samples in half."""
    paths = [path for path in (plan.folder, *(plan.folder / plan.source).rglob("*")) if path.is_file()]
    path = max([*paths, *([plan.folder / plan.source] if (plan.folder / plan.source).is_file() else [])], key=str)
    os.truncate(path, path.stat().st_size // 2)


FAULTS: dict[str, Callable[[Plan], None]] = {
    "killed": send(signal.SIGKILL),
    "terminated": send(signal.SIGTERM),
    "interrupted": send(signal.SIGINT),
    "disk full": fill_disk,
    "samples changed": change_samples,
    "samples truncated": truncate_samples,
}
CHANGES = ("samples changed", "samples truncated")


def write_samples(folder: Path, seed: int = 0) -> None:
    """Write the samples in all formats."""
    X, _, _ = make_bernoulli_gaussian(3000, 8, density=0.3, noise_std=0.2, random_state=seed)
    np.save(folder / "x.npy", X)
    array = required("zarr", "zarr").create_array(
        str(folder / "x.zarr"), shape=X.shape, chunks=(700, 8), dtype="f8", overwrite=True
    )
    array[:] = X
    pyarrow = required("pyarrow", "pyarrow")
    required("pyarrow.parquet", "pyarrow").write_table(
        pyarrow.table({f"c{i}": c for i, c in enumerate(X.T)}), folder / "x.parquet"
    )


def fit_here(plan: Plan, connection: Connection[Any, Any]) -> None:
    """Fit with a checkpoint that is written after every step, let the fault happen, and save the model."""
    count = 0

    def watch(_: Any) -> None:
        nonlocal count
        count += 1
        if plan.fault and count == plan.iteration:
            FAULTS[plan.fault](plan)

    X: Any = np.load(plan.folder / "x.npy") if plan.source == "array" else plan.folder / plan.source
    path = plan.folder / "checkpoint.npz"
    try:
        with ExitStack() as stack:
            stack.enter_context(no_warnings())
            stack.enter_context(mock.patch.object(checkpoint, "SHARE_OF_TIME", 1e9))
            for module in [module for name, module in sys.modules.items() if name.startswith("elldict.")]:
                if hasattr(module, "STORED_BYTES"):  # samples in files are read in every pass
                    stack.enter_context(mock.patch.object(module, "STORED_BYTES", 1000))
            model = LpDictionaryLearning(random_state=0, **FITS[plan.fit])
            model.fit(X, checkpoint=path, resume=path.exists(), callback=watch)
            model.save(plan.folder / "model.npz", overwrite=True)
    except BaseException as error:
        connection.send((type(error).__name__, count))
        raise SystemExit(1) from None
    connection.send(("done", count))


@cache
def make_context() -> Any:
    """Start a server of processes that begin with everything imported."""
    context = mp.get_context("forkserver")
    context.set_forkserver_preload(["elldict.estimator", "experiments.benchmarks.scaling", "zarr", "pyarrow.parquet"])
    environment = {"PYTHONPATH": os.pathsep.join(filter(None, sys.path)), **dict.fromkeys(THREAD_LIMITS, "1")}
    with mock.patch.dict(os.environ, environment):
        mp.forkserver.ensure_running()
    return context


def run_fit(plan: Plan) -> tuple[str, int]:
    """Run a fit to its end; return how it ended ("hangs" if it had to be ended), and its number of iterations."""
    here, there = make_context().Pipe(duplex=False)
    process = make_context().Process(target=fit_here, args=(plan, there), daemon=True)
    process.start()
    there.close()
    process.join(MOST_SECONDS)
    if process.exitcode is None:
        process.kill()
        process.join()
        return "hangs", 0
    try:
        return here.recv() if here.poll(0) else (f"exit code {process.exitcode}", 0)  # type: ignore[no-any-return]
    except EOFError:
        return f"exit code {process.exitcode}", 0


def read_answer(path: Path) -> Any:
    """Read a saved model, without the seconds of its history; None if it cannot be read."""
    if not path.exists():
        return None
    try:
        header, arrays = pack(load(path))
    except ValueError:
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
        return read_answer(Path(name, "model.npz")), n_iterations


def try_fault(fault: str, number: int) -> tuple[str, list[str]]:
    """Let a fault happen at a random moment; return how the fit ended, and what went wrong."""
    rng = np.random.default_rng([number, len(fault)])
    source = str(rng.choice(SOURCES[1:] if fault in CHANGES else SOURCES))
    fit, problems = str(rng.choice(list(FITS))), []
    answer, n_iterations = fit_undisturbed(fit, source)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_samples(folder)
        iteration, delay = int(rng.integers(1, n_iterations + 1)), float(rng.uniform(0, 0.01))
        original = folder / "original"
        shutil.copytree(folder, original, copy_function=shutil.copy2, ignore=shutil.ignore_patterns("original"))
        plan = Plan(folder, source, fit, fault, iteration, delay)
        told, _ = run_fit(plan)
        model = folder / "model.npz"
        if told == "hangs":
            problems.append("hangs")
        if model.exists() and read_answer(model) != answer:
            problems.append("other numbers" if told == "done" else "half-written file")
        if fault != "killed" and fault != "terminated" and any(folder.glob(".*.tmp")):  # no one cleans up after a kill
            problems.append("half-written file")
        model.unlink(missing_ok=True)
        shutil.copytree(original, folder, copy_function=shutil.copy2, dirs_exist_ok=True)
        again, _ = run_fit(replace(plan, fault=""))
        if again != "done":
            problems.append("not resumed")
        elif read_answer(model) != answer:
            problems.append("other numbers")
    return told, [
        f"{problem} ({number}: {fit}, {source}, iteration {iteration}, {told}, {again})" for problem in problems
    ]


def lose_workers(n: int) -> Row:
    """Kill workers of a cluster at random iterations of fits; compare with fits in memory."""
    counts, notes = Counter[str](), []
    X, _, _ = make_bernoulli_gaussian(60_000, 16, density=0.2, noise_std=0.2, random_state=0)
    with no_warnings():
        models = {fit: LpDictionaryLearning(random_state=0, error_bars=False, **FITS[fit]).fit(X) for fit in FITS}
    with tempfile.TemporaryDirectory() as folder, open_cluster(2) as client, no_warnings():
        np.save(path := Path(folder, "x.npy"), X)
        for number in range(n):
            client.wait_for_workers(2, timeout=120)
            rng, killed = np.random.default_rng(number), []
            fit = str(rng.choice(list(FITS)))
            iteration = int(rng.integers(1, models[fit].n_iter_ + 1))

            def watch(_: Any) -> None:
                killed.append(1)  # noqa: B023  called at once
                if len(killed) == iteration:  # noqa: B023
                    kill_worker(client, number)  # noqa: B023

            model = LpDictionaryLearning(random_state=0, error_bars=False, **FITS[fit])
            model.fit(load_chunks(path, 9), callback=watch)
            counts["done"] += 1
            if not np.array_equal(model.components_, models[fit].components_):
                counts["other numbers"] += 1
                notes.append(f"{number}: {fit}, iteration {iteration}")
    return {"ended": 0, **{problem: counts[problem] for problem in PROBLEMS}, "notes": notes}


def measure(cell: Cell) -> Row:
    """Let a fault happen several times; count what went wrong."""
    if cell["fault"] == LOST_WORKER:
        return lose_workers(cell["n"])
    counts, notes, n_ended = Counter[str](), [], 0
    for number in range(cell["n"]):
        told, problems = try_fault(cell["fault"], number)
        n_ended += told != "done"
        counts.update(problem.partition(" (")[0] for problem in problems)
        notes += problems
    for note in notes:
        print(f"\n  {note}", flush=True)
    return {"ended": n_ended, **{problem: counts[problem] for problem in PROBLEMS}, "notes": notes}


def tabulate(rows: list[Row]) -> str:
    """Write one line per kind of fault."""
    lines = [
        [row["fault"], str(row["n"]), str(row["ended"]), *(str(row[problem]) for problem in PROBLEMS)] for row in rows
    ]
    return write_table(["fault", "tried", "ended the fit", *PROBLEMS], lines)


STUDY = Study(
    name="faults",
    minutes=8,
    cells=[*({"fault": fault, "n": 40} for fault in FAULTS), {"fault": LOST_WORKER, "n": 20}],
    small=[*({"fault": fault, "n": 3} for fault in FAULTS), {"fault": LOST_WORKER, "n": 2}],
    measure=measure,
    tabulate=tabulate,
    packages=("zarr", "pyarrow", "dask", "distributed"),
    module="campaign.faults",
)

if __name__ == "__main__":
    main(STUDY, __doc__)
