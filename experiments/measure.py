"""Every table and picture of times and errors, measured again with one version of the solver.

python -m experiments.measure             # all, about an hour on 2 quiet cores; interrupted, it goes on where it was
python -m experiments.measure --list      # the steps, how long each takes, and which are done with this version
python -m experiments.measure --only real ica   # some of them
python -m experiments.measure --long      # and those that take hours, or gigabytes of disk

What a step prints is kept in build/measure. A step that was interrupted begins again, and most of them take up what
they have stored. A change of the library, and of nothing else, makes all steps due again.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console

from experiments import ROOT
from experiments.harness.machine import hash_source

FOLDER = ROOT / "build" / "measure"
STATE = FOLDER / "done.json"


@dataclass(frozen=True)
class Step:
    """A command, and about how long it takes on 2 cores."""

    name: str
    command: str  # after `python -m experiments.`
    minutes: float
    long: bool = False


STEPS = (
    Step("real", "benchmarks.real", 4),
    Step("ica", "benchmarks.ica", 1.5),
    Step("speed", "benchmarks.speed --minutes 22", 24),
    Step("growth", "benchmarks.speed.iteration --growth", 1.5),
    Step("which-one", "benchmarks.which_one", 1),
    Step("grid", "campaign.grid", 5),
    Step("rotation", "benchmarks.rotation", 6),
    Step("stability", "benchmarks.stability", 2),
    Step("clean", "benchmarks.denoise", 1),
    Step("scaling", "benchmarks.scaling", 5),
    Step("limit", "benchmarks.limit --small --fresh --plot", 15),
    Step("basins", "benchmarks.speed.basins", 5),
    Step("stream", "benchmarks.stream", 10),
    Step("limit-all", "benchmarks.limit --rows all --fresh --plot", 90, long=True),
    Step("files", "benchmarks.files", 10, long=True),
    Step("reproduction", "reproduction --full --budget 2h", 120, long=True),
    Step("pictures", "benchmarks.real --stored --picture", 0.2),
    Step("grid-picture", "campaign.grid --stored --picture", 0.2),
    Step("front-picture", "front_picture", 0.5),
    Step("speed-report", "benchmarks.speed.report", 0.5),
    Step("tables", "tables", 0.2),
)
"""In the order in which they run: what is drawn from stored results comes last."""


def main() -> None:
    """Run what is due, or list it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--list", action="store_true", help="list the steps and run none")
    parser.add_argument("--only", nargs="+", choices=[step.name for step in STEPS], default=[], metavar="STEP")
    parser.add_argument("--long", action="store_true", help="also those that take hours")
    chosen = parser.parse_args()
    steps = [step for step in STEPS if (step.name in chosen.only if chosen.only else chosen.long or not step.long)]
    record = Record.read()
    if chosen.list:
        list_steps(steps, record)
        return
    try:
        failed = run_steps([step for step in steps if step.name in chosen.only or not record.is_done(step)], record)
    except KeyboardInterrupt:
        sys.exit("\nInterrupted: what is done is kept; the same command goes on.")
    if failed:
        sys.exit(f"Failed: {', '.join(failed)}. What they printed is in {FOLDER.relative_to(ROOT)}.")


@dataclass
class Record:
    """Which steps are done, with which version of the library, and how long each took when it ran last."""

    source: str
    done: dict[str, str]
    seconds: dict[str, float]

    @classmethod
    def read(cls) -> Record:
        """What the last run left."""
        kept: dict[str, Any] = json.loads(STATE.read_text(encoding="utf-8")) if STATE.exists() else {}
        return cls(hash_source(), kept.get("done", {}), kept.get("seconds", {}))

    def is_done(self, step: Step) -> bool:
        """Whether a step has run with this version."""
        return self.done.get(step.name) == self.source

    def estimate_minutes(self, step: Step) -> float:
        """Minutes that a step will take."""
        return self.seconds.get(step.name, 60 * step.minutes) / 60

    def add(self, step: Step, seconds: float) -> None:
        """Note that a step is done."""
        self.done[step.name], self.seconds[step.name] = self.source, round(seconds, 1)
        STATE.write_text(json.dumps({"done": self.done, "seconds": self.seconds}, indent=1), encoding="utf-8")


def list_steps(steps: Sequence[Step], record: Record) -> None:
    """Print a line a step."""
    for step in steps:
        state = "done" if record.is_done(step) else f"{record.estimate_minutes(step):.3g} min"
        print(f"{step.name:14s} {state:>9s}   python -m experiments.{step.command}")


def run_steps(steps: Sequence[Step], record: Record) -> list[str]:
    """Run steps one after another, each in a process of its own; return the names of those that failed."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    console, failed = Console(stderr=True), []
    for number, step in enumerate(steps):
        left = sum(map(record.estimate_minutes, steps[number:]))
        told = f"{number + 1} of {len(steps)}, {step.name}; about {left:.0f} min left for all"
        began = time.monotonic()
        with console.status(told):
            code = run_step(step, FOLDER / f"{step.name}.txt")
        seconds = time.monotonic() - began
        console.print(f"{step.name}: {'done' if code == 0 else 'failed'} in {seconds / 60:.1f} min")
        if code == 0:
            record.add(step, seconds)
        else:
            failed.append(step.name)
    return failed


def run_step(step: Step, log: Path) -> int:
    """Run one command; what it prints goes into a file. Return its exit code."""
    module, *arguments = step.command.split()
    with log.open("w", encoding="utf-8") as out:
        command = [sys.executable, "-m", f"experiments.{module}", *arguments]
        return subprocess.run(command, cwd=ROOT, stdout=out, stderr=subprocess.STDOUT, check=False).returncode


if __name__ == "__main__":
    main()
