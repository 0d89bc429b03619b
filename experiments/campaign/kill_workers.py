"""Kill workers of a cluster at random iterations of fits: every answer has to be that of a fit in memory.

python -m experiments.campaign.kill_workers               # 100 kills over all stages, about ten minutes
python -m experiments.campaign.kill_workers --kills 10
"""

from __future__ import annotations

import argparse
import contextlib
import logging
import os
import random
import signal
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import dask
import dask.array as da
import numpy as np
from distributed import Client, LocalCluster
from distributed.core import Status

import elldict
from elldict import Iteration, LpDictionaryLearning
from elldict.datasets import make_bernoulli_gaussian

N_SAMPLES, N_FEATURES, N_CHUNKS = 60_000, 32, 9

Settings = dict[str, Any]
FITS: dict[str, tuple[Settings, Settings]] = {  # of the samples, and of the fit: among them all kinds of stages
    "power": ({"noise_std": 0.1}, {"solver": "power", "refine": None}),
    "default": ({"noise_std": 0.2}, {}),
    "annealed": ({}, {"solver": "power", "refine": None, "p": (4, 3)}),
    "whitened": ({"noise_std": 0.1}, {"solver": "power", "whiten": True}),
    "corrupted": ({"corruption": 1.0, "corruption_rate": 0.05}, {"refine": "sparse-corruption"}),
}


KINDS = ("file", "read", "persisted")
"""Of sources; see `source`."""


@dataclass(frozen=True)
class Case:
    """A fit, and the moments at which something may happen to it."""

    name: str
    path: Path
    model: LpDictionaryLearning  # fitted in memory

    @classmethod
    def made(cls, name: str, seed: int, folder: Path) -> Case:
        """Samples, their file, and the fit left in peace."""
        of_samples, of_fit = FITS[name]
        X, _, _ = make_bernoulli_gaussian(N_SAMPLES, N_FEATURES, density=0.2, random_state=seed, **of_samples)
        np.save(folder / f"{name}.npy", X)
        return cls(name, folder / f"{name}.npy", LpDictionaryLearning(random_state=seed, **of_fit).fit(X))

    @property
    def n_moments(self) -> int:
        """The survey, and every iteration."""
        return 1 + len(self.model.history_)

    def stage(self, moment: int) -> str:
        """Where the fit is at that moment."""
        return "survey" if moment == 0 else f"stage {self.model.history_[moment - 1].stage}"


@dataclass
class Killer:
    """Kills a worker of the cluster a moment after a given iteration has ended: in the middle of the next."""

    client: Client
    moment: int
    delay: float
    victim: int
    killed: list[int] = field(default_factory=list)
    seen: int = 0
    timer: threading.Timer | None = None

    def __call__(self, iteration: Iteration | None) -> None:  # noqa: ARG002
        """Count, and kill when it is time."""
        if self.seen == self.moment:
            self.timer = threading.Timer(self.delay, self._kill)
            self.timer.start()
        self.seen += 1

    def _kill(self) -> None:
        # a worker whose nanny has not yet seen it running is not replaced when it dies
        nannies = [nanny for nanny in self.client.cluster.workers.values() if nanny.status is Status.running]
        victim = nannies[self.victim % len(nannies)].pid
        os.kill(victim, signal.SIGKILL)
        self.killed.append(victim)


def source(client: Client, case: Case, kind: str) -> Any:
    """Samples as chunks that stay on the workers, as chunks read in every pass, or as blocks of a file."""
    if kind == "file":
        return elldict.open_samples(case.path, client=client)
    rows = -(-N_SAMPLES // N_CHUNKS)
    sizes = tuple(min(rows, N_SAMPLES - start) for start in range(0, N_SAMPLES, rows))
    X = da.map_blocks(read_chunk, case.path, chunks=(sizes, (N_FEATURES,)), dtype=float, meta=np.empty((0, 0)))
    return client.persist(X) if kind == "persisted" else X


def read_chunk(path: Path, block_info: Any = None) -> np.ndarray:
    start, stop = block_info[None]["array-location"][0]
    return np.array(np.load(path, mmap_mode="r")[start:stop])


def one_kill(client: Client, case: Case, killer: Killer, kind: str) -> tuple[bool, float]:
    """Whether the fit under attack ended where it should, and its largest difference."""
    X = source(client, case, kind)
    model = LpDictionaryLearning(**case.model.get_params())
    killer(None)
    model.fit(X, callback=killer)
    if killer.timer is not None:
        killer.timer.join()
    apart = float(np.max(np.abs(model.components_ - case.model.components_)))
    return apart <= 1e-10 and bool(killer.killed), apart


class Clusters:
    """A cluster, and a new one if a worker that was killed is not replaced."""

    def __init__(self, n_workers: int) -> None:
        self.n_workers = n_workers
        self._open = contextlib.ExitStack()
        self._client: Client | None = None

    def client(self) -> Client:
        """Client of a cluster with all its workers."""
        if self._client is not None:
            try:
                self._client.wait_for_workers(self.n_workers, timeout=60)
            except TimeoutError:
                print("a killed worker was not replaced: new cluster", flush=True)
                self.close()
        if self._client is None:
            local = LocalCluster(
                n_workers=self.n_workers, threads_per_worker=1, dashboard_address=":0", silence_logs=logging.CRITICAL
            )
            self._client = self._open.enter_context(Client(self._open.enter_context(local)))
        return self._client

    def close(self) -> None:
        """End it."""
        self._client = None
        self._open.close()


def attack(options: argparse.Namespace, folder: Path) -> Iterator[tuple[str, str, bool, float]]:
    """Name and stage of every fit attacked, whether it came out right, and its largest difference."""
    rng = random.Random(options.seed)
    cases = [Case.made(name, options.seed, folder) for name in FITS]
    clusters = Clusters(options.workers)
    for number in range(options.kills):
        client = clusters.client()
        case, kind = cases[number % len(cases)], rng.choice(KINDS)
        moment = rng.randrange(case.n_moments)
        killer = Killer(client, moment, rng.uniform(0, 0.1), rng.randrange(options.workers))
        right, apart = one_kill(client, case, killer, kind)
        told = "same answer" if right else f"WRONG, {apart:.2g} apart, {len(killer.killed)} killed"
        print(f"kill {number + 1}: {case.name}, {kind}, {case.stage(moment)}, moment {moment}: {told}", flush=True)
        yield case.name, case.stage(moment), right, apart
    clusters.close()


def keep_lost_workers() -> None:
    """Let a local cluster replace a worker that is killed twice in 15 seconds, which it would not."""
    dask.config.set({"distributed.deploy.lost-worker-timeout": "1h"})


def main() -> None:
    keep_lost_workers()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    began = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        found = list(attack(options, Path(folder)))
    tried = Counter((name, stage) for name, stage, _, _ in found)
    correct = Counter((name, stage) for name, stage, right, _ in found if right)
    print(f"\n{'fit':<10} {'while in':<10} {'kills':>5} {'correct':>7}")
    for (name, stage), count in sorted(tried.items()):
        print(f"{name:<10} {stage:<10} {count:>5} {correct[name, stage]:>7}")
    worst = max(apart for *_, apart in found)
    print(
        f"\n{correct.total()} of {options.kills} answers are correct, the worst {worst:.2g} from that in memory; "
        f"{time.perf_counter() - began:.0f} s"
    )
    raise SystemExit(0 if correct.total() == options.kills else 1)


if __name__ == "__main__":
    main()
