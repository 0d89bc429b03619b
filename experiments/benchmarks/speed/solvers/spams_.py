"""Online dictionary learning of SPAMS, in C++ (the package spams-bin).

1000 iterations. `lambda1` was chosen in its favour, by its error on three small problems (n = 16 and 32, noise .2): .15
and .3 did alike, .5 and 1 worse. It takes no seed; fitted twice to the same samples it gave the same atoms.
"""

from __future__ import annotations

import numpy as np
import spams

from experiments.benchmarks.speed.solvers.base import Solver
from experiments.harness.watch import Matrix, Watch

ITERATIONS = 1000


class Spams(Solver):
    """As many atoms as features."""

    name = "SPAMS"
    distribution = "spams-bin"
    slow = True

    def fit(self, X: Matrix, seed: int, watch: Watch) -> Matrix:  # noqa: ARG002
        """Samples are columns there, in Fortran's order."""
        columns = np.asfortranarray(X.T)
        atoms: Matrix = spams.trainDL(
            columns, K=X.shape[1], lambda1=0.3, iter=ITERATIONS, numThreads=self.threads, verbose=False
        ).T
        self.passes = ITERATIONS
        return atoms


SOLVER = Spams
