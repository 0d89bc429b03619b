"""Kill a reproduction at random moments and resume it: the stored results have to be those of a run left in peace.

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

COMMAND = [sys.executable, "-m", "experiments.reproduction"]


def start(what: list[str], out: Path) -> subprocess.Popen[bytes]:
    command, nowhere = [*COMMAND, *what, "--out", str(out)], subprocess.DEVNULL
    return subprocess.Popen(command, start_new_session=True, cwd=ROOT, stdout=nowhere, stderr=nowhere)


def kill_once(what: list[str], out: Path, n_results: int, delay: float) -> bool:
    """Start, kill -9 some seconds after so many results are stored; whether it was still running."""
    run = start(what, out)
    while n_lines(out / "results.jsonl") < n_results and run.poll() is None:
        time.sleep(0.002)
    try:
        run.wait(delay)
    except subprocess.TimeoutExpired:
        os.kill(run.pid, signal.SIGKILL)  # the runner alone: its worker has to find out and end by itself
        run.wait()
        wait_for_group(run.pid)
        return True
    return False


def wait_for_group(group: int, patience: float = 30.0) -> None:
    """Until no process of the session is left: a worker that outlives its runner would go on for nobody."""
    end = time.monotonic() + patience
    while time.monotonic() < end:
        try:
            os.killpg(group, 0)
        except ProcessLookupError:
            return
        time.sleep(0.05)
    raise SystemExit(f"processes of the killed run {group} are still there after {patience:g} s")


def without_making(path: Path) -> list[bytes]:
    """Lines up to "made", byte for byte and in the order of the file."""
    return [line.rpartition(b',"made":')[0] for line in path.read_bytes().splitlines()]


def n_lines(path: Path) -> int:
    return path.read_bytes().count(b"\n") if path.exists() else 0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("what", nargs="*", default=["few-samples", "figure3", "--trials", "8"])
    options, more = parser.parse_known_args()
    what, rng = [*options.what, *more], random.Random(options.seed)
    with tempfile.TemporaryDirectory() as folder:
        peaceful, killed = Path(folder, "peaceful"), Path(folder, "killed")
        if start(what, peaceful).wait() != 0:
            raise SystemExit("the undisturbed run failed")
        n_all, n_kills = n_lines(peaceful / "results.jsonl"), 0
        for number in range(options.kills):
            n_had = n_lines(killed / "results.jsonl")
            share = (n_all - n_had) / (
                options.kills - number
            )  # of the results that are left, so that some are to the end
            wanted = n_had + round(rng.uniform(0, 2 * share))
            n_kills += kill_once(what, killed, min(wanted, n_all - 1), rng.uniform(0, 0.4))
            print(f"kill {number + 1}: {n_lines(killed / 'results.jsonl')} of {n_all} results stored", flush=True)
        if start(what, killed).wait() != 0:
            raise SystemExit("the resumed run failed")
        same = without_making(peaceful / "results.jsonl") == without_making(killed / "results.jsonl")
    print(f"{n_kills} of {options.kills} runs were killed; results are {'the same' if same else 'NOT THE SAME'}")
    raise SystemExit(0 if same and n_kills else 1)


if __name__ == "__main__":
    main()
