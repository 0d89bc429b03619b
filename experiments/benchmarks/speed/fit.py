"""One fit, timed and scored. Scoring is here, and after the clock has stopped; solvers never score themselves."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from elldict.metrics import match_atoms, recovery_error
from experiments.benchmarks.speed.problems import Problem
from experiments.benchmarks.speed.solvers import Solver, Task, installed
from experiments.harness.watch import Watch
from experiments.peers.base import Matrix, Peer

SAME_ATOM = 0.9
"""Least cosine between an atom and the true one that it stands for; less is a mixture of several."""


@dataclass(frozen=True)
class Outcome:
    """What one fit came to: seconds, error, passes, and the curve of seconds and errors; or why it came to nothing."""

    values: dict[str, Any] = field(default_factory=dict)
    reason: str = ""


@dataclass(frozen=True)
class Job:
    """A solver, a problem and a seed: all that a process of its own has to know."""

    solver: str
    problem: Problem
    seed: int
    threads: int


def run_job(job: Job) -> Outcome:
    """Draw the samples, and fit."""
    return run_fit(installed()[0][job.solver], job, *job.problem.make(job.seed))


def make_peer(solver: Solver, job: Job) -> Peer:
    """The solver as it is set for the job."""
    threads = solver.own_threads or job.threads
    return solver.make(Task(job.problem.n_features, job.problem.density, threads, job.seed))


def run_fit(solver: Solver, job: Job, X: Matrix, dictionary: Matrix) -> Outcome:
    """Fit, and compare with the truth. A solver that fails is a result, not the end of the run."""
    peer = make_peer(solver, job)
    with threadpool_limits(solver.own_threads or job.threads), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # fits that did not converge show in their errors
        watch = Watch()
        try:
            peer.fit(X, watch)
            return Outcome(_scored(peer, watch.seconds, watch, nearest_orthonormal(dictionary)))
        except (ArithmeticError, ValueError, MemoryError, np.linalg.LinAlgError) as reason:
            return Outcome(reason=f"{type(reason).__name__}: {reason}"[:200])


def _scored(peer: Peer, seconds: float, watch: Watch, truth: Matrix) -> dict[str, Any]:
    curve = [(view.seconds, error_of(view.seen, truth)) for view in watch.views]
    error = error_of(peer.components_, truth)
    curve.append((seconds, error))
    cosines = match_atoms(nearest_orthonormal(peer.components_), truth).cosines
    return {
        "seconds": seconds,
        "error": error,
        "wrong_atoms": int(np.sum(cosines < SAME_ATOM)),
        "passes": float(getattr(peer, "n_passes_", peer.n_iter_)),
        "curve": [[float(f"{time:.4g}"), float(f"{value:.4g}")] for time, value in curve],
    }


def error_of(atoms: Matrix, truth: Matrix) -> float:
    """The recovery error of the nearest orthonormal atoms; rounding can take it below zero."""
    return max(recovery_error(nearest_orthonormal(atoms), truth), 0.0)


def nearest_orthonormal(rows: Matrix) -> Matrix:
    """Unmixing matrices of ICA and atoms of K-SVD are nearly orthogonal; the error is defined for those that are."""
    left, _, right = np.linalg.svd(np.asarray(rows, dtype=np.float64))
    return np.asarray(left @ right)
