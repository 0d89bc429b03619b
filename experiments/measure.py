"""Run every study with one version of the solver: what is missing, or was measured with another version.

python -m experiments.measure             # all, about 2 hours on a quiet core; resumes after Ctrl-C
python -m experiments.measure --list      # studies, and how many of their results are of this version
python -m experiments.measure --only real ica
python -m experiments.measure --small     # the smallest form of every study, to see that it works; stores nothing
python -m experiments.measure --long      # also what takes hours, or gigabytes of disk

The version is a hash of the sources of samples, solver and errors. What a study prints is kept in build/measure.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from collections.abc import Sequence
from importlib import import_module

from experiments import ROOT
from experiments.benchmarks.study import Study, hash_core

FOLDER = ROOT / "build" / "measure"

BENCHMARKS = (
    *(
        "real",
        "ica",
        "unmixing",
        "speed",
        "which_one",
        "error_bars",
        "limit",
        "rotation",
        "stability",
        "denoise",
        "stream",
    ),
    *("files", "scaling", "checkpoint_cost", "ablation", "gpu"),
)
CAMPAIGNS = ("damaged_files", "damaged_models", "faults")
STUDIES = {
    **{name: f"benchmarks.{name}" for name in BENCHMARKS},
    **{name: f"campaign.{name}" for name in CAMPAIGNS},
}
"""Modules of the studies."""


def load_study(name: str) -> Study:
    """Import a study."""
    study: Study = import_module(f"experiments.{STUDIES[name]}").STUDY
    return study


def main(arguments: Sequence[str] | None = None) -> None:
    """Run what is due, or list it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--list", action="store_true", help="list the studies and run none")
    parser.add_argument("--only", nargs="+", choices=list(STUDIES), default=list(STUDIES), metavar="STUDY")
    parser.add_argument("--small", action="store_true", help="the smallest form of each study; stores nothing")
    parser.add_argument("--long", action="store_true", help="also what takes hours, or gigabytes of disk")
    options = parser.parse_args(arguments)
    if options.list:
        print(f"version {hash_core()}\n" + "\n".join(describe(load_study(name)) for name in options.only))
        return
    due = [name for name in options.only if options.small or options.long or load_study(name).list_missing()]
    commands = [STUDIES[name] + " --small" * options.small + " --long" * options.long for name in due]
    if not options.small and options.only == list(STUDIES):
        commands += ["reproduction --full --budget 2h"] * options.long + ["tables"]
    try:
        failed = [command for command in commands if not run(command)]
    except KeyboardInterrupt:
        sys.exit("\nInterrupted: finished measurements are stored; the same command resumes.")
    if failed:
        sys.exit(f"Failed: {', '.join(failed)}. What they printed is in {FOLDER}.")


def describe(study: Study) -> str:
    """Write how many results of a study are of this version, and about how long the others take."""
    n_missing, n = len(study.list_missing()), len(study.cells)
    left = f"{study.minutes * n_missing / n:.2g} min left" if n_missing else "done"
    return f"{n - n_missing:4d} of {n:4d}   {left:>13s}   {study.command}"


def run(command: str) -> bool:
    """Run one command, whose output goes to a file; return whether it succeeded."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    module, *arguments = command.split()
    print(f"{command}: ", end="", flush=True)
    began = time.monotonic()
    with (FOLDER / f"{module}.txt").open("w", encoding="utf-8") as out:
        line = [sys.executable, "-m", f"experiments.{module}", *arguments]
        code = subprocess.run(line, cwd=ROOT, stdout=out, stderr=subprocess.STDOUT, check=False).returncode
    print(f"{'done' if code == 0 else 'failed'} in {(time.monotonic() - began) / 60:.1f} min", flush=True)
    return code == 0


if __name__ == "__main__":
    main()
