"""Kill a reproduction at random moments and resume it: stored results must be those of an undisturbed run.

python -m experiments.campaign.kill_reproduction               # 20 kills, some minutes
python -m experiments.campaign.kill_reproduction --kills 2 few-samples --trials 3     # as the tests do
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from experiments import ROOT

PATIENCE = 30.0  # seconds after which processes of a killed run must have ended


def start(what: list[str], out: Path) -> subprocess.Popen[bytes]:
    """Start a run in a session of its own."""
    command = [sys.executable, "-m", "experiments.reproduction", *what, "--out", str(out)]
    return subprocess.Popen(
        command, start_new_session=True, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )


def kill_once(what: list[str], out: Path, n_results: int, delay: float) -> bool:
    """Start a run, and kill it some seconds after so many results are stored; return whether it was still running."""
    run = start(what, out)
    while len(read_lines(out)) < n_results and run.poll() is None:
        time.sleep(0.002)
    try:
        run.wait(delay)
    except subprocess.TimeoutExpired:
        os.kill(run.pid, signal.SIGKILL)  # only the runner: its worker must notice, and end by itself
        run.wait()
        wait_for_group(run.pid)
        return True
    return False


def wait_for_group(group: int) -> None:
    """Wait until no process of a session is left."""
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        try:
            os.killpg(group, 0)
        except ProcessLookupError:
            return
        time.sleep(0.05)
    raise SystemExit(f"Processes of the killed run {group} are still there after {PATIENCE:g} s.")


def read_lines(out: Path) -> list[bytes]:
    """Read the complete lines of the results, up to how they were made."""
    path = out / "results.jsonl"
    lines = path.read_bytes().splitlines(keepends=True) if path.exists() else []
    return [line.rpartition(b',"made":')[0] for line in lines if line.endswith(b"\n")]


def main() -> None:
    """Run undisturbed, then with kills, and compare."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("what", nargs="*", default=["few-samples", "figure3", "--trials", "8"])
    options, more = parser.parse_known_args()
    what, rng, n_kills = [*options.what, *more], random.Random(options.seed), 0
    with tempfile.TemporaryDirectory() as folder:
        undisturbed, killed = Path(folder, "undisturbed"), Path(folder, "killed")
        if start(what, undisturbed).wait() != 0:
            raise SystemExit("The undisturbed run failed.")
        n_all = len(read_lines(undisturbed))
        for number in range(options.kills):
            n_had = len(read_lines(killed))
            mean = (n_all - n_had) / (options.kills - number)  # so that some are left to the end
            n_kills += kill_once(
                what, killed, min(n_had + round(rng.uniform(0, 2 * mean)), n_all - 1), rng.uniform(0, 0.4)
            )
            print(f"kill {number + 1}: {len(read_lines(killed))} of {n_all} results stored", flush=True)
        if start(what, killed).wait() != 0:
            raise SystemExit("The resumed run failed.")
        same = read_lines(undisturbed) == read_lines(killed)
    print(f"{n_kills} of {options.kills} runs were killed; results are {'the same' if same else 'NOT THE SAME'}")
    raise SystemExit(0 if same and n_kills else 1)


if __name__ == "__main__":
    main()
