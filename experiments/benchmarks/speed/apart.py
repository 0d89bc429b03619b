"""A fit in a process of its own, which is ended when its time is over."""

from __future__ import annotations

import multiprocessing
from multiprocessing.connection import Connection

from experiments.benchmarks.speed import solvers
from experiments.benchmarks.speed.fit import Outcome, run_fit
from experiments.benchmarks.speed.problems import Problem


def run_apart(name: str, problem: Problem, seed: int, threads: int, limit: float) -> Outcome:
    """Fit with a limit in seconds, samples and start of the process not counted against it by more than they take."""
    context = multiprocessing.get_context("spawn")  # a fork of a process with BLAS threads may hang
    here, there = context.Pipe()
    process = context.Process(target=_work, args=(there, name, problem, seed, threads), daemon=True)
    process.start()
    there.close()
    try:
        return here.recv() if here.poll(limit) else Outcome(f"over {limit:g} s", seconds=limit)
    except EOFError:  # killed, for memory perhaps
        return Outcome("failed: the process ended without a result")
    finally:
        process.kill()
        process.join()


def _work(there: Connection, name: str, problem: Problem, seed: int, threads: int) -> None:
    kind = solvers.installed()[0][name]
    X, dictionary = problem.make(seed)
    there.send(run_fit(kind, problem, X, dictionary, seed, threads))
