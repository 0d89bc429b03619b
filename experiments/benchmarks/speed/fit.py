"""One fit, timed and scored. Scoring is here, and after the clock has stopped; solvers never score themselves."""

from __future__ import annotations

import warnings
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from elldict.metrics import match_atoms, recovery_error
from experiments.benchmarks.speed.problems import Problem
from experiments.benchmarks.speed.solvers.base import Solver
from experiments.harness.watch import Matrix, Watch

SAME_ATOM = 0.9
"""Least cosine between an atom and the true one that it stands for; less is a mixture of several."""


@dataclass(frozen=True)
class Outcome:
    """What one fit came to; the curve is seconds and errors on the way, its end included."""

    status: str
    seconds: float | None = None
    error: float | None = None
    wrong_atoms: int | None = None
    passes: float | None = None
    curve: tuple[tuple[float, float], ...] = ()

    def as_line(self) -> dict[str, Any]:
        """For the store."""
        return asdict(self)


def run_fit(kind: type[Solver], problem: Problem, X: Matrix, dictionary: Matrix, seed: int, threads: int) -> Outcome:
    """Fit, and compare with the truth. A solver that fails is a result, not the end of the run."""
    threads = kind.own_threads or threads
    solver = kind(problem.density, threads)
    with threadpool_limits(threads), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # fits that did not converge show in their errors
        watch = Watch()
        try:
            atoms = solver.fit(X, seed, watch)
            seconds = watch.seconds
            return _scored(solver, atoms, seconds, watch, nearest_orthonormal(dictionary))
        except (ArithmeticError, ValueError, MemoryError, np.linalg.LinAlgError) as reason:
            return Outcome(f"failed: {type(reason).__name__}: {reason}"[:200])


def _scored(solver: Solver, atoms: Matrix, seconds: float, watch: Watch, truth: Matrix) -> Outcome:
    curve = [(view.seconds, error_of(view.seen, truth)) for view in watch.views]
    error = error_of(atoms, truth)
    curve.append((seconds, error))
    cosines = match_atoms(nearest_orthonormal(atoms), truth).cosines
    return Outcome(
        status="done",
        seconds=seconds,
        error=error,
        wrong_atoms=int(np.sum(cosines < SAME_ATOM)),
        passes=None if solver.passes is None else float(solver.passes),
        curve=tuple((float(f"{time:.4g}"), float(f"{value:.4g}")) for time, value in curve),
    )


def error_of(atoms: Matrix, truth: Matrix) -> float:
    """The recovery error of the nearest orthonormal atoms; rounding can take it below zero."""
    return max(recovery_error(nearest_orthonormal(atoms), truth), 0.0)


def nearest_orthonormal(rows: Matrix) -> Matrix:
    """Unmixing matrices of ICA and atoms of K-SVD are nearly orthogonal; the error is defined for those that are."""
    left, _, right = np.linalg.svd(np.asarray(rows, dtype=np.float64))
    return np.asarray(left @ right)
