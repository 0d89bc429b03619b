"""Fits in processes of their own, from every source of samples, to which something happens on the way."""

from __future__ import annotations

import errno
import multiprocessing as mp
import os
import random
import resource
import signal
import sys
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing import forkserver
from multiprocessing.connection import Connection
from pathlib import Path
from typing import IO, Any
from unittest import mock

import numpy as np

from elldict import LpDictionaryLearning
from elldict._old import atomic
from elldict._old import persistence as model_file
from elldict._old.data.npy import RawReader
from elldict._old.data.parquet import ParquetReader
from elldict._old.data.zarr import ZarrReader
from elldict._old.record_file import RecordFile
from elldict._old.solver.evaluate import EvaluationKernel
from elldict.cli import main as run_command
from elldict.datasets import make_bernoulli_gaussian
from experiments.campaign.sample_kinds import write_parquet, write_zarr
from experiments.harness.pool import THREAD_LIMITS

N_SAMPLES, N_FEATURES = 3000, 8

FITS: dict[str, dict[str, Any]] = {
    "power": {"solver": "power", "refine": None, "tol": 1e-12, "max_iter": 25},
    "default": {},
}
SOURCES = ("array", "npy", "zarr", "parquet", "dask", "command line")
NAMES = {"zarr": "x.zarr", "parquet": "x.parquet"}
"""Of the files of samples; of all other sources it is that of the .npy file."""

SIGNALS = {"kill": signal.SIGKILL, "terminate": signal.SIGTERM, "interrupt": signal.SIGINT}
"""Faults that come from outside."""

MOST_SECONDS = 60.0
"""For a fit that takes a tenth of a second."""


@dataclass(frozen=True)
class Plan:
    """A fit, and what happens to it in its own process."""

    folder: Path
    source: str
    fit: str
    output: str = "model.npz"
    checkpoint: str = "checkpoint"
    fault: str = ""
    at: int = 0  # record, call or write at which it happens
    amount: float = 0.0  # of space, memory or damage: a share

    @property
    def samples(self) -> Path:
        """File of the samples."""
        return self.folder / NAMES.get(self.source, "x.npy")


@dataclass(frozen=True)
class End:
    """How a process ended: its exit code, None if it had to be killed for not ending, and what it told last."""

    code: int | None
    told: str
    n_records: int
    seconds: float


def write_sources(folder: Path, seed: int) -> None:
    X, _, _ = make_bernoulli_gaussian(N_SAMPLES, N_FEATURES, density=0.3, noise_std=0.2, random_state=seed)
    np.save(folder / "x.npy", X)
    write_zarr({"chunks": (700, N_FEATURES)}, X, folder / "x.zarr")
    write_parquet({}, X, folder / "x.parquet")


# --- outside the process ----------------------------------------------------------------------------------------------


def make_context() -> Any:
    """Processes that begin with everything imported, and no thread, lock or file of this one."""
    context = mp.get_context("forkserver")
    context.set_forkserver_preload([__name__, "zarr", "pyarrow.parquet", "dask.array"])
    # it does not take over where this process finds modules; and with threads it could not be forked
    environment = {"PYTHONPATH": os.pathsep.join(filter(None, sys.path)), **dict.fromkeys(THREAD_LIMITS, "1")}
    with mock.patch.dict(os.environ, environment):
        forkserver.ensure_running()
    return context


def run_fit(context: Any, plan: Plan, number: int | None = None, delay: float = 0.0) -> End:
    """Run a fit to its end; send it a signal some seconds after the record `plan.at`, if there is one to send."""
    here, there = context.Pipe(duplex=False)
    process = context.Process(target=fit_here, args=(plan, there), daemon=True)
    process.start()
    there.close()
    began, n_records, told = time.monotonic(), 0, ""
    while time.monotonic() - began < MOST_SECONDS:
        if number is not None and told and n_records >= plan.at:
            time.sleep(delay)
            _send(process.pid, number)
            number = None
        if here.poll(0.01):
            try:
                told = here.recv()
            except (EOFError, OSError):
                break
            n_records += told == "record"
    process.join(max(0.1, MOST_SECONDS - (time.monotonic() - began)))
    seconds, code = time.monotonic() - began, process.exitcode
    if code is None:
        process.kill()
        process.join()
    return End(code, told, n_records, seconds)


def _send(pid: int, number: int) -> None:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return


def read_answer(path: Path) -> tuple[Any, ...] | None:
    """All that a model file holds but the seconds of its history; None if there is no file."""
    if not path.exists():
        return None
    header, arrays = model_file.read(path)
    arrays["history"] = arrays["history"][:, :-1]
    return header, {name: (array.dtype.str, array.shape, array.tobytes()) for name, array in arrays.items()}


# --- inside the process -----------------------------------------------------------------------------------------------


def fit_here(plan: Plan, connection: Connection[Any, Any]) -> None:
    """Fit, and tell of every record and of the end; the process ends as that of a user would."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    warnings.simplefilter("ignore")
    silence(plan.folder / "errors.txt")
    count_records(plan, connection.send)
    if plan.fault:
        FAULTS[plan.fault](plan)
    connection.send("begun")
    try:
        if plan.source == "command line":
            sys.argv = ["elldict", *list_arguments(plan)]
            run_command()
        else:
            model = LpDictionaryLearning(random_state=0, **FITS[plan.fit])
            model.fit(open_source(plan), checkpoint=plan.folder / plan.checkpoint, resume=True)
            model.save(plan.folder / plan.output)
    except SystemExit as end:
        connection.send("done" if not end.code else f"exit code {end.code}")
        raise
    except BaseException as error:
        connection.send(f"{type(error).__name__}: {error}"[:300])
        raise
    connection.send("done")


def silence(path: Path) -> None:
    """Let what the process prints go to a file."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    for stream in (1, 2):
        os.dup2(descriptor, stream)


def open_source(plan: Plan) -> Any:
    if plan.source in ("array", "dask"):
        X = np.load(plan.samples)
        if plan.source == "array":
            return X
        import dask.array as da  # noqa: PLC0415  one source of many

        return da.from_array(X, chunks=(700, N_FEATURES))
    return plan.samples


def list_arguments(plan: Plan) -> list[str]:
    """Arguments of the command that does the same fit."""
    paths = [
        str(plan.samples),
        "-o",
        str(plan.folder / plan.output),
        "--checkpoint",
        str(plan.folder / plan.checkpoint),
    ]
    options = [f"--{name.replace('_', '-')}={value or 'none'}".lower() for name, value in FITS[plan.fit].items()]
    return ["fit", *paths, "--resume", "--force", "--quiet", "--seed", "0", *options]


def count_records(plan: Plan, tell: Callable[[str], None]) -> None:
    """Tell of every record, and let what happens to the samples happen after one of them."""
    write, count = RecordFile.replace, [0]

    def write_and_tell(file: RecordFile, *arguments: Any) -> None:
        write(file, *arguments)
        tell("record")
        count[0] += 1
        if count[0] == plan.at + 1 and plan.fault in CHANGES:
            CHANGES[plan.fault](pick_file(plan), plan.amount)

    RecordFile.replace = write_and_tell  # type: ignore[assignment, method-assign]


def limit_file_size(plan: Plan) -> None:
    """No file may become larger: the system refuses to write, as on a disk that is full."""
    most = int(plan.amount * 60_000)
    resource.setrlimit(resource.RLIMIT_FSIZE, (most, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))


def fail_writes(plan: Plan) -> None:
    """The disk is full at a write of a file that is complete or not there."""
    create, count = atomic._create, [0]

    def create_full(path: Path, mode: int) -> IO[bytes]:
        stream = create(path, mode)
        write = stream.write

        def write_until_full(data: Any) -> int:
            count[0] += 1
            if count[0] > plan.at:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            return write(data)

        stream.write = write_until_full  # type: ignore[method-assign]
        return stream

    atomic._create = create_full


# Not by a limit of the process: without memory OpenBLAS tries for ever, and Python waits for ever for a new thread.


def fail_reads(plan: Plan) -> None:
    """There is no memory for some rows of a file; they are read ahead, by a thread."""
    count = [0]

    def make_failing(read: Callable[..., Any]) -> Callable[..., Any]:
        def read_until(*arguments: Any) -> Any:
            count[0] += 1
            if count[0] == plan.at + 1:
                raise MemoryError("no memory for rows")
            return read(*arguments)

        return read_until

    for reader in (RawReader, ZarrReader, ParquetReader):
        setattr(reader, "read", make_failing(reader.read))  # noqa: B010  mypy knows no such assignment


def fail_kernel(plan: Plan) -> None:
    """There is no memory at one of the tiles of a pass."""
    bind, count = EvaluationKernel.bind, [0]

    def bind_failing(kernel: EvaluationKernel, *arguments: Any) -> Any:
        visit = bind(kernel, *arguments)

        def visit_until(tile: Any) -> Any:
            count[0] += 1
            if count[0] == plan.at + 1:
                raise MemoryError("no memory for a tile")
            return visit(tile)

        return visit_until

    EvaluationKernel.bind = bind_failing  # type: ignore[assignment, method-assign]


def pick_file(plan: Plan) -> Path:
    """The file of the samples, or a chunk of them."""
    if plan.samples.is_file():
        return plan.samples
    chunks = sorted(path for path in (plan.samples / "c").rglob("*") if path.is_file())
    return chunks[int(plan.amount * len(chunks))]


def change_file(path: Path, where: float) -> None:
    """Overwrite some bytes in place."""
    with path.open("r+b") as stream:
        stream.seek(int(where * (path.stat().st_size - 64)))
        stream.write(random.Random(0).randbytes(64))


def truncate_file(path: Path, share: float) -> None:
    os.truncate(path, int(share * path.stat().st_size))


def replace_file(path: Path, _: float) -> None:
    """Put another file in its place."""
    other = path.with_name("other")
    other.write_bytes(path.read_bytes()[::-1])
    other.replace(path)


def remove_file(path: Path, _: float) -> None:
    path.unlink()


CHANGES: dict[str, Callable[[Path, float], None]] = {
    "samples changed": change_file,
    "samples truncated": truncate_file,
    "samples replaced": replace_file,
    "samples removed": remove_file,
}

FAULTS: dict[str, Callable[[Plan], None]] = {
    "file size limit": limit_file_size,
    "disk full": fail_writes,
    "no memory for rows": fail_reads,
    "no memory for a tile": fail_kernel,
    **dict.fromkeys(CHANGES, lambda _: None),  # after a record
    **dict.fromkeys(SIGNALS, lambda _: None),  # from outside
}
"""What prepares a fault, in the process of the fit."""
