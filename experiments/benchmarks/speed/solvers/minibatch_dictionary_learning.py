"""MiniBatchDictionaryLearning of scikit-learn: online dictionary learning with l_1.

`alpha=1` is the default, and had the smallest error on two small problems (n = 16: of .3, 1, 2 and 3; n = 32: of .1, .3
and 1). Coordinate descent had the same error there as the default, least angles, and was faster at this alpha.
"""

from __future__ import annotations

from sklearn.decomposition import MiniBatchDictionaryLearning

from experiments.benchmarks.speed.solvers.base import Solver
from experiments.harness.watch import Matrix, Watch


class MiniBatch(Solver):
    """As many atoms as features."""

    name = "MiniBatchDictionaryLearning"
    distribution = "scikit-learn"
    slow = True

    def fit(self, X: Matrix, seed: int, watch: Watch) -> Matrix:  # noqa: ARG002
        """Passes are those over the data, not over batches."""
        model = MiniBatchDictionaryLearning(X.shape[1], alpha=1, fit_algorithm="cd", random_state=seed).fit(X)
        self.passes = model.n_iter_
        atoms: Matrix = model.components_
        return atoms


SOLVER = MiniBatch
