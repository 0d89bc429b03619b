"""What the benchmark asks of a solver."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar

from experiments.harness.watch import Matrix, Watch


class Solver(ABC):
    """One way to a dictionary. A new one is made for every fit."""

    name: ClassVar[str]
    distribution: ClassVar[str]  # the package whose version is written down
    own_threads: ClassVar[int | None] = None  # instead of the number that the run asks for
    slow: ClassVar[bool] = False  # only on small problems, in a process of its own, with a time limit

    def __init__(self, density: float, threads: int) -> None:
        """`density` is for solvers whose users have to know it; `threads` for those that do not ask BLAS."""
        self.density = density
        self.threads = threads
        self.passes: float | None = None  # n_passes_ of elldict, iterations of the others

    @abstractmethod
    def fit(self, X: Matrix, seed: int, watch: Watch) -> Matrix:
        """Atoms as rows (n, n), from samples as rows (r, n); `watch` may be shown what there is on the way."""
