"""Solvers, one file each: samples in, atoms out. None of them sees the truth, and none scores itself.

A file that cannot be imported is a peer that is not installed: it is named, not run. `pip install 'elldict[bench]'`.
"""

from __future__ import annotations

import importlib

from experiments.benchmarks.speed.solvers.base import Solver

FILES = (
    "elldict_default",
    "elldict_power",
    "fastica_logcosh",
    "fastica_exp",
    "fastica_cube",
    "picard_o",
    "ksvd",
    "minibatch_dictionary_learning",
    "spams_",
)
DEFAULT, POWER = "elldict", "elldict power"


def installed() -> tuple[dict[str, type[Solver]], dict[str, str]]:
    """Solvers by name; and for each file that is left out, why."""
    found, missing = {}, {}
    for file in FILES:
        try:
            solver = importlib.import_module(f"experiments.benchmarks.speed.solvers.{file}").SOLVER
        except ImportError as reason:
            missing[file.rstrip("_")] = str(reason)
        else:
            found[solver.name] = solver
    return found | _on_one_thread(found), missing


def _on_one_thread(found: dict[str, type[Solver]]) -> dict[str, type[Solver]]:
    """Peers that use BLAS throughout, held at one thread.

    Threads of BLAS wait for each other at every product: where these are small, or another process wants the cores,
    two can take ten times as long as one. elldict holds BLAS at one thread itself and would win by that alone.
    """
    single = {}
    for name, kind in found.items():
        if name not in (DEFAULT, POWER) and not kind.slow:
            alone = type(f"{kind.__name__}OneThread", (kind,), {"name": f"{name}, 1 thread", "own_threads": 1})
            single[alone.name] = alone
    return single
