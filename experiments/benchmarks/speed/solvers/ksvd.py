"""K-SVD of dictlearn, with orthogonal matching pursuit for the codes.

It is told the true mean number of non-zero codes, `round(density * n)`, which its users would have to find out; 100
iterations are its default. It computes in float64 whatever it is given.
"""

from __future__ import annotations

from dictlearn import DictionaryLearning

from experiments.benchmarks.speed.solvers.base import Solver
from experiments.harness.watch import Matrix, Watch


class Ksvd(Solver):
    """The classic of dictionary learning."""

    name = "K-SVD"
    distribution = "dictlearn"
    slow = True

    def fit(self, X: Matrix, seed: int, watch: Watch) -> Matrix:  # noqa: ARG002
        """As many atoms as features."""
        n = X.shape[1]
        n_nonzero = max(1, round(self.density * n))
        model = DictionaryLearning(n, fit_algorithm="ksvd", n_nonzero_coefs=n_nonzero, random_state=seed).fit(X)
        self.passes = model.n_iter_
        atoms: Matrix = model.components_
        return atoms


SOLVER = Ksvd
