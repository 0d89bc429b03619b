"""Constants of the cost model in docs/scaling.md, measured on local clusters, and what they say of larger ones.

python -m experiments.benchmarks.scaling            # some minutes; stores them, rewrites the tables
python -m experiments.benchmarks.scaling --tables   # rewrites the tables of docs/scaling.md from the last line stored
"""

from __future__ import annotations

import argparse
import logging
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import dask.array as da
import numpy as np
from distributed import Client, LocalCluster

import elldict
from elldict._old.backend.threads import one_blas_thread
from elldict._old.data.dask import make_dask_dataset
from elldict._old.data.dask_tasks import pack
from elldict._old.data.dataset import ArrayDataset
from elldict._old.data.statistics import StatisticsKernel, compute_statistics
from elldict._old.data.whitening import Whitening
from elldict._old.solver.directions import random_orthonormal
from elldict._old.solver.evaluate import EvaluationKernel, evaluate
from elldict._old.solver.objective import Lp, Quantities
from elldict.datasets import make_bernoulli_gaussian
from experiments import BENCHMARK_RESULTS
from experiments.benchmarks.scaling.tables import rewrite
from experiments.harness.machine import busy_share, made_by
from experiments.harness.store import DONE, Record, Store

RESULTS = BENCHMARK_RESULTS / "scaling.jsonl"
WORKERS = (1, 2, 4)
RATE_SIZES = ((32, 200_000), (100, 100_000), (400, 20_000), (1000, 8_000))
PASS_N, PASS_R = 100, 1_000_000
FIT_N, FIT_R = 32, 400_000


def core_rate(n: int, r: int, repeats: int) -> dict[str, Any]:
    """Floating-point operations that one core does in a second of its time, in an l_p pass over float32 in memory."""
    X, _, _ = make_bernoulli_gaussian(r, n, density=0.2, dtype="float32", random_state=0)
    samples = ArrayDataset(X)
    frame = Whitening.of(compute_statistics(samples, center=False, precise=False), center=False, whiten=False)
    A = random_orthonormal(n, n, np.random.default_rng(0))
    need = Quantities.GRADIENT | Quantities.MOMENTS
    with one_blas_thread():
        seconds = min(
            cpu_seconds(lambda: evaluate(samples, frame, Lp(3.0), A, need, "float32")) for _ in range(repeats)
        )
    return {"n": n, "r": r, "seconds": seconds, "flops_per_second": 4 * n**2 * r / seconds}


def cpu_seconds(job: Callable[[], object]) -> float:
    """Of all threads of this process: what other processes do meanwhile does not count."""
    began = time.process_time()
    job()
    return time.process_time() - began


def wall_seconds(job: Callable[[], object], repeats: int) -> float:
    """The least of several, since others use the machine too."""
    job()
    times = []
    for _ in range(repeats):
        began = time.perf_counter()
        job()
        times.append(time.perf_counter() - began)
    return min(times)


@contextmanager
def cluster(n_workers: int) -> Iterator[Client]:
    with (
        LocalCluster(
            n_workers=n_workers, threads_per_worker=1, dashboard_address=":0", silence_logs=logging.CRITICAL
        ) as local,
        Client(local) as client,
    ):
        client.wait_for_workers(n_workers, timeout=120)
        yield client


def overheads(client: Client, repeats: int) -> dict[str, float]:
    """Seconds of a pass that has next to nothing to do, and how many each further task adds."""
    few, many = 4, 260

    def seconds(n_tasks: int) -> float:
        X = client.persist(da.zeros((n_tasks * 10, 4), chunks=(10, 4)))
        samples = make_dask_dataset(X, client, block_size=1)  # a task for each chunk
        return wall_seconds(lambda: samples.sum(StatisticsKernel("float64")), repeats)

    short, long = seconds(few), seconds(many)
    per_task = (long - short) / (many - few)
    return {"pass": short - few * per_task, "task": per_task}


def lp_kernel(n: int) -> EvaluationKernel:
    A = random_orthonormal(n, n, np.random.default_rng(0))
    return EvaluationKernel(Lp(3.0), A, None, 1.0, Quantities.GRADIENT | Quantities.MOMENTS, "float32")


def passes_over(client: Client, path: Path, n_workers: int, repeats: int) -> dict[str, Any]:
    """Seconds of a pass over a file, and bytes that each worker receives from others in it."""
    samples: Any = elldict.open_samples(path, client=client)  # more is asked of it than any source has
    kernel = lp_kernel(samples.n_features)
    seconds = wall_seconds(lambda: samples.sum(kernel), repeats)
    client.run(lambda dask_worker: dask_worker.transfer_incoming_log.clear())
    for _ in range(repeats):
        samples.sum(kernel)
    received = client.run(lambda dask_worker: [(e["total"], len(e["keys"])) for e in dask_worker.transfer_incoming_log])
    total = sum(size for entries in received.values() for size, _ in entries)
    square = 8 * samples.n_features**2
    n_tasks = len(samples._make_tasks("job", "sum"))
    return {
        "seconds": seconds,
        "tasks": n_tasks,
        "received_per_worker": total / n_workers / repeats,
        "received_in_squares": total / n_workers / repeats / square,
        "job_bytes": len(pack(samples._make_job(kernel))),
    }


def fits(client: Client, path: Path) -> dict[str, Any]:
    """Passes and seconds of a whole fit, and how far its answer is from that in memory."""
    samples = elldict.open_samples(path, client=client)
    began = time.perf_counter()
    model = elldict.LpDictionaryLearning(random_state=0).fit(samples)
    seconds = time.perf_counter() - began
    in_memory = elldict.LpDictionaryLearning(random_state=0).fit(np.load(path))
    return {
        "seconds": seconds,
        "passes": model.n_passes_,
        "difference": float(np.max(np.abs(model.components_ - in_memory.components_))),
    }


def made_file(folder: Path, n: int, r: int) -> Path:
    path = folder / f"{n}x{r}.npy"
    X, _, _ = make_bernoulli_gaussian(r, n, density=0.2, noise_std=0.1, dtype="float32", random_state=0)
    np.save(path, X)
    return path


def read_rate(path: Path, repeats: int) -> float:
    """Bytes that one core reads in a second of its time from a file that the system holds in memory."""
    samples: Any = elldict.open_samples(path)
    block = 2**24 // (4 * samples.n_features)
    starts = range(0, samples.n_samples - block, block)
    seconds = min(
        cpu_seconds(lambda: [samples.reader.read(start, start + block) for start in starts]) for _ in range(repeats)
    )
    return float(len(starts) * block * 4 * samples.n_features / seconds)


def measured(repeats: int, folder: Path) -> Record:
    busy = busy_share(1.0)
    rates = [core_rate(n, r, repeats) for n, r in RATE_SIZES]
    large, small = made_file(folder, PASS_N, PASS_R), made_file(folder, FIT_N, FIT_R)
    by_workers: dict[str, Any] = {}
    for n_workers in WORKERS:
        with cluster(n_workers) as client:
            by_workers[str(n_workers)] = {
                "overhead": overheads(client, repeats),
                "pass": passes_over(client, large, n_workers, repeats),
                "fit": fits(client, small),
            }
        print(f"{n_workers} workers: {by_workers[str(n_workers)]}", flush=True)
    cell = {
        "pass_of": {"n": PASS_N, "r": PASS_R, "dtype": "float32"},
        "fit_of": {"n": FIT_N, "r": FIT_R, "dtype": "float32"},
        "made_by": made_by(1, ("dask", "distributed")),
    }
    values = {
        "cores": os.cpu_count(),
        "rates": rates,
        "read_bytes_per_second": read_rate(large, repeats),
        "workers": by_workers,
    }
    return Record(cell, DONE, values, "", {"busy": busy})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=10)
    parser.add_argument("--tables", action="store_true")
    options = parser.parse_args()
    store = Store(RESULTS, history=True)
    if not options.tables:
        with tempfile.TemporaryDirectory() as folder, store.writing():
            store.add(measured(options.repeats, Path(folder)))
    rewrite(list(store.records.values())[-1].row)


if __name__ == "__main__":
    main()
