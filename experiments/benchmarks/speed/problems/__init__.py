"""Problems, one file a family. The order is that of the run: the quick ones first."""

from __future__ import annotations

from experiments.benchmarks.speed.problems import large, small, table1, table2
from experiments.benchmarks.speed.problems.base import Problem

FAMILIES: dict[str, tuple[Problem, ...]] = {
    "small": small.PROBLEMS,
    "table2": table2.PROBLEMS,
    "table1": table1.PROBLEMS,
    "large": large.PROBLEMS,
}
QUICK_BELOW = 100


def problems(*, quick: bool = False) -> list[Problem]:
    """All problems, or those that take seconds; the longest last, so that a run cut short has the others."""
    listed = [problem for family in FAMILIES.values() for problem in family]
    listed = [problem for problem in listed if not quick or problem.n_features < QUICK_BELOW]
    return sorted(listed, key=lambda problem: problem.work)


def by_name() -> dict[str, Problem]:
    """Every problem by its name."""
    return {problem.name: problem for problem in problems()}
