"""Picard-O: preconditioned L-BFGS over orthogonal matrices, from python-picard, with its defaults.

It computes its contrast with numexpr where that is installed, on as many threads as it is given.
"""

from __future__ import annotations

from picard import picard
from picard.densities import Tanh

from experiments.benchmarks.speed.solvers.base import Solver
from experiments.benchmarks.speed.solvers.ica_views import CodeViews
from experiments.harness.watch import Matrix, Watch

try:
    import numexpr
except ImportError:
    numexpr = None


class WatchedTanh(Tanh):  # type: ignore[misc]
    """Picard's default density, which shows the codes it is given: once an iteration, line searches apart."""

    def __init__(self, views: CodeViews) -> None:
        super().__init__()
        self.views = views

    def score_and_der(self, Y: Matrix) -> tuple[Matrix, Matrix]:
        """The score and its derivative, as Picard computes them."""
        self.views.look(Y)
        values: tuple[Matrix, Matrix] = super().score_and_der(Y)
        return values


class PicardO(Solver):
    """`picard(ortho=True)`, the default."""

    name = "Picard-O"
    distribution = "python-picard"

    def fit(self, X: Matrix, seed: int, watch: Watch) -> Matrix:
        """`check_fun=False` spares it a test of a density that is its own."""
        views = CodeViews(X, watch)
        if numexpr is not None:
            numexpr.set_num_threads(self.threads)
        K, W, _, self.passes = picard(
            X.T, fun=WatchedTanh(views), ortho=True, check_fun=False, random_state=seed, return_n_iter=True
        )
        atoms: Matrix = W @ K
        views.translate()
        return atoms


SOLVER = PicardO
