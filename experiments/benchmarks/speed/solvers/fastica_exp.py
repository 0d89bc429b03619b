"""FastICA of scikit-learn with exp: a Gaussian contrast, for sources with strong outliers. Else as with logcosh."""

from __future__ import annotations

from typing import ClassVar

from experiments.benchmarks.speed.solvers.fastica_logcosh import FastICALogcosh


class FastICAExp(FastICALogcosh):
    """Parallel FastICA."""

    name = "FastICA exp"
    fun: ClassVar[str] = "exp"


SOLVER = FastICAExp
