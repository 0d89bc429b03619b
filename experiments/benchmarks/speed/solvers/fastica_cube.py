"""FastICA of scikit-learn with cube: kurtosis, the l_4 objective. Else as with logcosh."""

from __future__ import annotations

from typing import ClassVar

from experiments.benchmarks.speed.solvers.fastica_logcosh import FastICALogcosh


class FastICACube(FastICALogcosh):
    """Parallel FastICA."""

    name = "FastICA cube"
    fun: ClassVar[str] = "cube"


SOLVER = FastICACube
