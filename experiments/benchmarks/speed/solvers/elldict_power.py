"""The paper's Algorithm 2, exactly: the power method on all samples, and nothing after it."""

from __future__ import annotations

from typing import Any, ClassVar

from experiments.benchmarks.speed.solvers.elldict_default import ElldictDefault


class ElldictPower(ElldictDefault):
    """p = 3, the paper's best."""

    name = "elldict power"
    options: ClassVar[dict[str, Any]] = {"p": 3, "solver": "power", "refine": None}


SOLVER = ElldictPower
