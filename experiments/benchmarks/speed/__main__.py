"""Side by side: elldict and its peers on the same samples, in turns, with the same threads and the same precision.

python -m experiments.benchmarks.speed                     # all problems; goes on where it was stopped
python -m experiments.benchmarks.speed --quick             # n < 100, few seeds, without the slow solvers
python -m experiments.benchmarks.speed --problems "n=400"  # those whose names contain the words
python -m experiments.benchmarks.speed.report                  # tables and pictures from what is stored
make bench                                   # both

Every solver gets the same float32 samples, seed by seed; who begins changes from round to round. elldict has a process
of its own: a fit of it lets the allocator keep freed memory, from which peers in the same process would profit. Slow
solvers (K-SVD, MiniBatchDictionaryLearning, SPAMS) run once on small problems, each in a process of its own, for ten
minutes at most.
Peers built on BLAS run on one thread as well where problems are small, and the better counts. The machine has to be
quiet: contention costs threads of BLAS far more than it costs elldict, so it is measured and the report tells of it.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from experiments import BENCHMARK_RESULTS
from experiments.benchmarks.speed.fit import Job, Outcome, make_peer, run_fit, run_job
from experiments.benchmarks.speed.problems import Problem, problems
from experiments.benchmarks.speed.solvers import DEFAULT, POWER, Solver, installed
from experiments.harness.machine import busy_share, made_by
from experiments.harness.pool import Lost, Pool
from experiments.harness.store import DONE, FAILED, Record, Store, key_of
from experiments.peers.base import Matrix

REST_SECONDS = 0.1
"""Between fits, in which threads that BLAS leaves spinning fall asleep, and others at work are noticed."""

WARM_UP = Problem("warm-up", 8, 400)


@dataclass(frozen=True)
class Settings:
    """How the run is made."""

    threads: int = 2
    seeds: int | None = None  # None: as many as each problem asks for
    repeats: int | None = None
    with_slow: bool = True
    slow_everywhere: bool = False
    slow_limit: float = 600.0  # seconds
    minutes: float = float("inf")
    fresh: bool = False
    path: Path = BENCHMARK_RESULTS / "bench.jsonl"


class Comparison:
    """Runs what is not stored yet, and stores it."""

    def __init__(self, settings: Settings, chosen: dict[str, Solver]) -> None:
        self.settings, self.solvers = settings, chosen
        everyone = installed()[0].values()  # so that a run of some solvers adds to one of all
        self.made_by = made_by(settings.threads, {solver.kind.package for solver in everyone})
        self.store = Store(settings.path, history=True)
        self.began = time.monotonic()

    def run(self, listed: list[Problem]) -> list[Problem]:
        """Run every problem; returns those for which no time was left."""
        late = []
        with self.store.writing(), Pool(run_job, threads=None) as self.own_process:
            self._warm_up()
            known = set() if self.settings.fresh else set(self.store.records)
            for problem in listed:
                if time.monotonic() - self.began > 60 * self.settings.minutes:
                    late.append(problem)
                    continue
                print(f"\n{problem.name}", flush=True)
                for seed in range(self.settings.seeds or problem.seeds):
                    self._run_seed(problem, seed, known)
        return late

    def _warm_up(self) -> None:
        """First calls load libraries and find out about threads."""
        X, dictionary = WARM_UP.make(0)
        for name, solver in self.solvers.items():
            if not solver.slow:
                self._outcome(Job(name, WARM_UP, 0, self.settings.threads), X, dictionary)

    def _run_seed(self, problem: Problem, seed: int, known: set[str]) -> None:
        cells = [self._cell(problem, seed, repeat, name) for repeat, name in self._turns(problem, seed)]
        missing = [cell for cell in cells if key_of(cell) not in known]
        if not missing:
            return
        X, dictionary = problem.make(seed)
        for cell in missing:
            made = {"others": busy_share(REST_SECONDS)}
            outcome = self._outcome(Job(cell["solver"], problem, seed, self.settings.threads), X, dictionary)
            self.store.add(Record(cell, FAILED if outcome.reason else DONE, outcome.values, outcome.reason, made))
            print(f"  seed {seed} {cell['solver']:>28} {_told(outcome)}", flush=True)

    def _cell(self, problem: Problem, seed: int, repeat: int, name: str) -> dict[str, Any]:
        """All that the result depends on; times depend on the machine."""
        peer = make_peer(self.solvers[name], Job(name, problem, seed, self.settings.threads))
        return {
            "problem": problem.name,
            "seed": seed,
            "repeat": repeat,
            "solver": name,
            "settings": peer.settings,
            "adapter": peer.revision,
            "made_by": self.made_by,
        }

    def _turns(self, problem: Problem, seed: int) -> Iterator[tuple[int, str]]:
        """Repeats and names of solvers in their order: whoever began the round before goes last."""
        quick = [
            name
            for name, solver in self.solvers.items()
            if not solver.slow and (solver.own_threads is None or problem.with_one_thread)
        ]
        for repeat in range(self.settings.repeats or problem.repeats):
            first = (seed + repeat) % max(len(quick), 1)
            yield from ((repeat, name) for name in quick[first:] + quick[:first])
        wanted = self.settings.with_slow and (problem.with_slow or self.settings.slow_everywhere)
        if wanted and seed == 0:
            yield from ((0, name) for name, solver in self.solvers.items() if solver.slow)

    def _outcome(self, job: Job, X: Matrix, dictionary: Matrix) -> Outcome:
        if self.solvers[job.solver].slow:
            with Pool(run_job, limit=self.settings.slow_limit, threads=None) as pool:
                return _run_there(pool, job)
        if job.solver in (DEFAULT, POWER):
            return _run_there(self.own_process, job)
        return run_fit(self.solvers[job.solver], job, X, dictionary)


def _run_there(pool: Pool[Job, Outcome], job: Job) -> Outcome:
    """Run one job in a process of the pool."""
    jobs = [job]
    ((_, found),) = pool.results(lambda: jobs.pop() if jobs else None)
    return Outcome(reason=found.reason) if isinstance(found, Lost) else found


def _told(outcome: Outcome) -> str:
    if outcome.reason:
        return outcome.reason
    return "{seconds:>9.4f} s  error {error:.3e}{passes:>8.4g} passes".format(**outcome.values)


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="n < 100, at most 2 seeds, no slow solvers")
    parser.add_argument("--problems", nargs="+", default=[""], help="parts of names of problems")
    parser.add_argument("--solvers", nargs="+", default=[""], help="parts of names of solvers")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--seeds", type=int, help="default: as many as each problem asks for")
    parser.add_argument("--repeats", type=int, help="of every seed; default: as each problem asks for")
    parser.add_argument("--slow-everywhere", action="store_true", help="slow solvers on large problems too")
    parser.add_argument("--minutes", type=float, default=float("inf"), help="begin no problem after this time")
    parser.add_argument("--fresh", action="store_true", help="run again what is stored")
    return parser.parse_args()


def main() -> None:
    arguments = parsed()
    found, missing = installed()
    for name, package in missing.items():
        print(f"left out: {name} ({package} is not installed); pip install -e '.[bench]' brings the peers")
    settings = Settings(
        threads=arguments.threads,
        seeds=arguments.seeds or (2 if arguments.quick else None),
        repeats=arguments.repeats or (1 if arguments.quick else None),
        with_slow=not arguments.quick,
        slow_everywhere=arguments.slow_everywhere,
        minutes=arguments.minutes,
        fresh=arguments.fresh,
    )
    chosen = {name: kind for name, kind in found.items() if any(part in name for part in arguments.solvers)}
    listed = [p for p in problems(quick=arguments.quick) if any(part in p.name for part in arguments.problems)]
    comparison = Comparison(settings, chosen)
    print(", ".join(f"{name} {what}" for name, what in comparison.made_by.items()))
    for problem in comparison.run(listed):
        print(f"no time left for: {problem.name}; run again to go on")


if __name__ == "__main__":
    main()
