"""elldict as it comes: every parameter at its default."""

from __future__ import annotations

from typing import Any, ClassVar

from elldict import Iteration, LpDictionaryLearning
from elldict.space import to_numpy
from experiments.benchmarks.speed.solvers.base import Solver
from experiments.harness.watch import Matrix, Watch


class ElldictDefault(Solver):
    """The default, whatever it is in the version at hand."""

    name = "elldict"
    distribution = "elldict"
    options: ClassVar[dict[str, Any]] = {}

    def fit(self, X: Matrix, seed: int, watch: Watch) -> Matrix:
        """One fit gives the whole curve, by its callback."""

        def look(iteration: Iteration) -> None:
            watch.look(lambda: to_numpy(iteration.components).copy())

        model = LpDictionaryLearning(**self.options, random_state=seed).fit(X, callback=look)
        self.passes = float(model.n_passes_)
        atoms: Matrix = model.components_
        return atoms


SOLVER = ElldictDefault
