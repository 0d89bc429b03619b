"""Solvers, one file each: samples in, atoms out. None of them sees the truth, and none scores itself.

A file that cannot be imported is a peer that is not installed: it is named, not run. `pip install 'elldict[bench]'`.
"""

from __future__ import annotations

import importlib

from solvers.base import Solver

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
            solver = importlib.import_module(f"solvers.{file}").SOLVER
        except ImportError as reason:
            missing[file.rstrip("_")] = str(reason)
        else:
            found[solver.name] = solver
    return found, missing
