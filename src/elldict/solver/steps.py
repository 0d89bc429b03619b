"""Steps: how the sums of a pass move A."""

from __future__ import annotations

from collections.abc import Callable

from elldict.solver.polar import polar
from elldict.solver.sums import Sums
from elldict.space import Array

Step = Callable[[Sums, Array], Array]


def power_step(sums: Sums, A: Array) -> Array:  # noqa: ARG001
    """Paper, Algorithm 2: move to the maximiser of the linearised objective.

    The objective is convex, so it never falls.
    """
    return polar(sums.G)
