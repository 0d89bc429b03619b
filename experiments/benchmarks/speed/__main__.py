"""Side by side: elldict and its peers on the same samples, in turns, with the same threads and the same precision.

python -m experiments.benchmarks.speed                     # all problems; goes on where it was stopped
python -m experiments.benchmarks.speed --quick             # n < 100, few seeds, without the slow solvers
python -m experiments.benchmarks.speed --problems "n=400"  # those whose names contain the words
python -m experiments.benchmarks.speed.report                  # tables and pictures from what is stored
make bench                                   # both

Every solver gets the same float32 samples, seed by seed; who begins changes from round to round. Slow solvers (K-SVD,
MiniBatchDictionaryLearning, SPAMS) run once on small problems, each in a process of its own, for ten minutes at most.
Peers built on BLAS run on one thread as well where problems are small, and the better counts. The machine has to be
quiet: contention costs threads of BLAS far more than it costs elldict, so it is measured and the report tells of it.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from experiments.benchmarks.speed import solvers
from experiments.benchmarks.speed.apart import run_apart
from experiments.benchmarks.speed.fit import Outcome, run_fit
from experiments.benchmarks.speed.problems import Problem, problems
from experiments.benchmarks.speed.solvers.base import Solver
from experiments.harness import lines as store
from experiments.harness.machine import busy_share, made_by
from experiments.harness.watch import Matrix

REST = 0.1
"""Seconds between fits, in which threads that BLAS leaves spinning fall asleep, and others at work are noticed."""

KEY = ("problem", "seed", "repeat", "solver")
WARM_UP = Problem("warm-up", 8, 400)


@dataclass(frozen=True)
class Settings:
    """How the run is made."""

    threads: int = 2
    seeds: int | None = None  # None: as many as each problem asks for
    repeats: int | None = None
    with_slow: bool = True
    slow_everywhere: bool = False
    slow_limit: float = 600.0
    minutes: float = float("inf")
    fresh: bool = False
    path: Path = store.BENCH


class Harness:
    """Runs what is not stored yet, and stores it."""

    def __init__(self, settings: Settings, chosen: dict[str, type[Solver]]) -> None:
        self.settings = settings
        self.solvers = chosen
        everyone = solvers.installed()[0].values()  # so that a run of some solvers adds to one of all
        self.made_by = made_by(settings.threads, {kind.distribution for kind in everyone})
        self.known = set() if settings.fresh else self._stored()
        self.began = time.monotonic()

    def _stored(self) -> set[tuple[object, ...]]:
        stored = store.lines(self.settings.path)
        return {tuple(line[name] for name in KEY) for line in stored if line["made_by"] == self.made_by}

    def run(self, listed: list[Problem]) -> list[Problem]:
        """Run every problem; returns those for which no time was left."""
        self._warm_up()
        late = []
        for problem in listed:
            if time.monotonic() - self.began > 60 * self.settings.minutes:
                late.append(problem)
                continue
            print(f"\n{problem.name}", flush=True)
            for seed in range(self.settings.seeds or problem.seeds):
                self._run_seed(problem, seed)
        return late

    def _warm_up(self) -> None:
        """First calls load libraries and find out about threads."""
        X, dictionary = WARM_UP.make(0)
        for kind in self.solvers.values():
            if not kind.slow:
                run_fit(kind, WARM_UP, X, dictionary, 0, self.settings.threads)

    def _run_seed(self, problem: Problem, seed: int) -> None:
        missing = [turn for turn in self._turns(problem, seed) if (problem.name, seed, *turn) not in self.known]
        if not missing:
            return
        X, dictionary = problem.make(seed)
        for repeat, name in missing:
            others = busy_share(REST)
            outcome = self._outcome(name, problem, seed, X, dictionary)
            line = dict(zip(KEY, (problem.name, seed, repeat, name), strict=True))
            store.append(self.settings.path, line | outcome.as_line() | {"others": others, "made_by": self.made_by})
            print(f"  seed {seed} {name:>28} {_told(outcome)}", flush=True)

    def _turns(self, problem: Problem, seed: int) -> Iterator[tuple[int, str]]:
        """Repeats and names of solvers in their order: whoever began the round before goes last."""
        quick = [
            name
            for name, kind in self.solvers.items()
            if not kind.slow and (kind.own_threads is None or problem.with_one_thread)
        ]
        for repeat in range(self.settings.repeats or problem.repeats):
            first = (seed + repeat) % max(len(quick), 1)
            yield from ((repeat, name) for name in quick[first:] + quick[:first])
        wanted = self.settings.with_slow and (problem.with_slow or self.settings.slow_everywhere)
        if wanted and seed == 0:
            yield from ((0, name) for name, kind in self.solvers.items() if kind.slow)

    def _outcome(self, name: str, problem: Problem, seed: int, X: Matrix, dictionary: Matrix) -> Outcome:
        threads = self.settings.threads
        if self.solvers[name].slow:
            return run_apart(name, problem, seed, threads, self.settings.slow_limit)
        return run_fit(self.solvers[name], problem, X, dictionary, seed, threads)


def _told(outcome: Outcome) -> str:
    if outcome.error is None or outcome.seconds is None:
        return outcome.status
    passes = "" if outcome.passes is None else f"{outcome.passes:>8.4g} passes"
    return f"{outcome.seconds:>9.4f} s  error {outcome.error:.3e}{passes}"


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
    found, missing = solvers.installed()
    for name, reason in missing.items():
        print(f"left out: {name} ({reason}); pip install 'elldict[bench]' brings the peers")
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
    harness = Harness(settings, chosen)
    print(", ".join(f"{name} {what}" for name, what in harness.made_by.items()))
    for problem in harness.run(listed):
        print(f"no time left for: {problem.name}; run again to go on")


if __name__ == "__main__":
    main()
