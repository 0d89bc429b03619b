"""FastICA of scikit-learn with logcosh, the default and the choice of most users.

`whiten_solver="eigh"`, which its documentation says can be faster for many samples, was 10 to 20 % faster than the
default, "svd", at n = 32 and 64 on one thread. `max_iter` and `tol` are the defaults.
"""

from __future__ import annotations

from typing import ClassVar

from sklearn.decomposition import FastICA, _fastica

from experiments.benchmarks.speed.solvers.base import Solver
from experiments.benchmarks.speed.solvers.ica_views import CodeViews
from experiments.harness.watch import Matrix, Watch


class FastICALogcosh(Solver):
    """Parallel FastICA."""

    name = "FastICA logcosh"
    distribution = "scikit-learn"
    fun: ClassVar[str] = "logcosh"

    def fit(self, X: Matrix, seed: int, watch: Watch) -> Matrix:
        """Given its own contrast as a function, FastICA runs the same code and can be watched."""
        views = CodeViews(X, watch)
        own_contrast = getattr(_fastica, f"_{self.fun}")

        def contrast(codes: Matrix) -> tuple[Matrix, Matrix]:
            views.look(codes)
            values: tuple[Matrix, Matrix] = own_contrast(codes, {})
            return values

        model = FastICA(fun=contrast, whiten="unit-variance", whiten_solver="eigh", random_state=seed).fit(X)
        self.passes = model.n_iter_
        atoms: Matrix = model.components_
        views.translate()
        return atoms


SOLVER = FastICALogcosh
