"""Samples on a local cluster of dask: passes, times and bits of a fit; and of one that loses a worker.

python -m experiments.benchmarks.scaling            # 3 minutes

Workers have one thread each. With more workers than cores, times say nothing about a real cluster.
"""

from __future__ import annotations

import logging
import os
import signal
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from elldict import Iteration, LpDictionaryLearning
from experiments.benchmarks.study import Cell, Matrix, Row, Study, draw_model, main, show_time, time_it, write_table
from experiments.peers.base import required

KILLED_AT = 3  # iterations after which a worker is killed


@contextmanager
def open_cluster(n_workers: int) -> Iterator[Any]:
    """Start a cluster; a worker that is killed is replaced."""
    distributed = required("distributed", "distributed")
    required("dask", "dask").config.set({"distributed.deploy.lost-worker-timeout": "1h"})
    settings = {"threads_per_worker": 1, "dashboard_address": ":0", "silence_logs": logging.CRITICAL}
    with distributed.LocalCluster(n_workers=n_workers, **settings) as local, distributed.Client(local) as client:
        client.wait_for_workers(n_workers, timeout=120)
        yield client


def load_chunks(path: Path, n_chunks: int) -> Any:
    """Make a dask array of the chunks of a file, which can be read again when they are lost."""
    stored = np.load(path, mmap_mode="r")
    shape, dtype = stored.shape, stored.dtype
    rows = -(-shape[0] // n_chunks)
    sizes = tuple(min(rows, shape[0] - start) for start in range(0, shape[0], rows))
    da = required("dask.array", "dask")
    return da.map_blocks(read_chunk, str(path), chunks=(sizes, (shape[1],)), dtype=dtype, meta=np.empty((0, 0), dtype))


def read_chunk(path: str, block_info: Any = None) -> Matrix:
    """Read one chunk of a file."""
    start, stop = block_info[None]["array-location"][0]
    return np.array(np.load(path, mmap_mode="r")[start:stop])


def kill_worker(client: Any, number: int) -> None:
    """Kill one of the worker processes of a local cluster."""
    nannies = list(client.cluster.workers.values())
    os.kill(nannies[number % len(nannies)].pid, signal.SIGKILL)


def measure(cell: Cell) -> Row:
    """Fit a dask array, and the same array in memory; kill a worker on the way if asked to."""
    X, _ = draw_model({**cell, "noise": 0.1}, density=0.2)
    here, seconds_here = time_it(lambda: LpDictionaryLearning(error_bars=False).fit(X))
    killed: list[int] = []

    def watch(iteration: Iteration) -> None:
        if cell["killed"] and iteration.iteration >= KILLED_AT and not killed:
            killed.append(1)
            kill_worker(client, 1)

    with tempfile.TemporaryDirectory() as folder, open_cluster(cell["workers"]) as client:
        np.save(path := Path(folder, "x.npy"), X)
        chunks = load_chunks(path, 8).persist()
        model, seconds = time_it(lambda: LpDictionaryLearning(error_bars=False).fit(chunks, callback=watch))
    difference = float(np.max(np.abs(model.components_ - here.components_)))
    times = {"seconds": seconds, "memory": seconds_here, "passes": model.n_passes_}
    return {**times, "difference": difference, "was_killed": bool(killed)}


def tabulate(rows: list[Row]) -> str:
    """Write one line per cluster."""
    lines: list[list[str]] = []
    for row in rows:
        name = f"{row['workers']}{', one killed' if row['was_killed'] else ''}"
        times = [show_time(row["seconds"]), show_time(row["memory"])]
        lines.append([name, f"{row['r']} x {row['n']}", f"{row['passes']:.1f}", *times, f"{row['difference']:.1g}"])
    head = ["workers", "samples", "passes", "time", "time in memory", "largest difference from the fit in memory"]
    return write_table(head, lines)


CELLS = [
    {"n": 100, "r": 400_000, "workers": w, "killed": killed}
    for w, killed in ((1, False), (2, False), (4, False), (2, True))
]
SMALL = [{"n": 8, "r": 40_000, "workers": 2, "killed": killed} for killed in (False, True)]
STUDY = Study("scaling", 3, measure, tabulate, CELLS, SMALL, packages=("dask", "distributed"))

if __name__ == "__main__":
    main(STUDY, __doc__)
