"""Who is compared: elldict and its peers, each with the settings of its users. None of them sees the truth."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Self

from elldict import Iteration, LpDictionaryLearning
from elldict._old.backend.base import to_numpy
from experiments import peers
from experiments.harness.watch import Watch
from experiments.peers.base import Peer

DEFAULT, POWER = "elldict", "elldict power"


@dataclass(frozen=True)
class Task:
    """What a solver may know of a problem: `density` is for those whose users have to."""

    n_features: int
    density: float
    threads: int  # for solvers that do not ask BLAS
    seed: int

    @property
    def n_nonzero(self) -> int:
        """Codes of a sample that are not zero, in the mean."""
        return max(1, round(self.density * self.n_features))


@dataclass
class Elldict(Peer):
    """elldict with some options; one fit gives the whole curve, by its callback."""

    module = "elldict"
    package = "elldict"

    options: dict[str, Any]
    random_state: Any = None

    def fit(self, X: Any, watch: Watch | None = None) -> Self:
        """Sets `n_passes_` too: looks at all samples, which iterations of others are."""

        def look(iteration: Iteration) -> None:
            if watch is not None:
                watch.look(lambda: to_numpy(iteration.components).copy())

        model = LpDictionaryLearning(**self.options, random_state=self.random_state).fit(X, callback=look)
        self.components_, self.n_iter_, self.n_passes_ = model.components_, model.n_iter_, model.n_passes_
        return self


@dataclass(frozen=True)
class Solver:
    """A name, and how it is made for a task."""

    name: str
    kind: type[Peer]
    make: Callable[[Task], Peer]
    slow: bool = False  # only on small problems, in a process of its own, with a time limit
    own_threads: int | None = None  # instead of the number that the run asks for

    @property
    def missing(self) -> str | None:
        """The package to be installed first, None if it is there."""
        return self.kind.package if importlib.util.find_spec(self.kind.module) is None else None


def _fastica(fun: str) -> Solver:
    def make(task: Task) -> Peer:
        return peers.FastICA(fun=fun, whiten_solver="eigh", max_iter=200, random_state=task.seed)

    return Solver(f"FastICA {fun}", peers.FastICA, make)


POWER_OPTIONS = {"p": 3, "solver": "power", "refine": None}
"""The paper's Algorithm 2, exactly, at its best exponent."""

SOLVERS = (
    Solver(DEFAULT, Elldict, lambda task: Elldict({}, random_state=task.seed)),
    Solver(POWER, Elldict, lambda task: Elldict(POWER_OPTIONS, random_state=task.seed)),
    _fastica("logcosh"),
    _fastica("exp"),
    _fastica("cube"),
    Solver("Picard-O", peers.Picard, lambda task: peers.Picard(threads=task.threads, random_state=task.seed)),
    Solver(
        "K-SVD",
        peers.KSVD,
        lambda task: peers.KSVD(task.n_nonzero, algorithm="ksvd", start="own", random_state=task.seed),
        slow=True,
    ),
    Solver(
        "MiniBatchDictionaryLearning", peers.MiniBatch, lambda task: peers.MiniBatch(random_state=task.seed), slow=True
    ),
    Solver("SPAMS", peers.Spams, lambda task: peers.Spams(threads=task.threads), slow=True),
)


def installed() -> tuple[dict[str, Solver], dict[str, str]]:
    """Solvers by name; and for each that is left out, the package that it lacks."""
    found = {solver.name: solver for solver in SOLVERS if solver.missing is None}
    missing = {solver.name: solver.missing for solver in SOLVERS if solver.missing is not None}
    return found | _on_one_thread(found), missing


def _on_one_thread(found: dict[str, Solver]) -> dict[str, Solver]:
    """Peers that use BLAS throughout, held at one thread.

    Threads of BLAS wait for each other at every product: where these are small, or another process wants the cores,
    two can take ten times as long as one. elldict holds BLAS at one thread itself and would win by that alone.
    """
    peers_of_blas = [solver for name, solver in found.items() if name not in (DEFAULT, POWER) and not solver.slow]
    single = [replace(solver, name=f"{solver.name}, 1 thread", own_threads=1) for solver in peers_of_blas]
    return {solver.name: solver for solver in single}
