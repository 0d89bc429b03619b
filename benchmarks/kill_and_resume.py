"""Kill a reproduction at random moments and resume it: the stored results have to be those of a run left in peace.

python benchmarks/kill_and_resume.py               # 20 kills, some minutes
python benchmarks/kill_and_resume.py --kills 3     # as the tests do
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

COMMAND = [sys.executable, "-c", "from elldict.cli import main; main()", "reproduce"]


def start(what: list[str], out: Path) -> subprocess.Popen[bytes]:
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    return subprocess.Popen([*COMMAND, *what, "--out", str(out)], start_new_session=True, **quiet)


def kill_once(what: list[str], out: Path, seconds: float) -> bool:
    """Start, kill -9 after some seconds; whether it was still running. Its worker has to end by itself."""
    run = start(what, out)
    try:
        run.wait(seconds)
    except subprocess.TimeoutExpired:
        os.kill(run.pid, signal.SIGKILL)
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
    """Lines without "made", in the order of the file."""
    kept = []
    for line in path.read_bytes().splitlines():
        data = json.loads(line)
        del data["made"]
        kept.append(json.dumps(data).encode())
    return kept


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
        began = time.monotonic()
        if start(what, peaceful).wait() != 0:
            raise SystemExit("the undisturbed run failed")
        took = time.monotonic() - began
        n_kills = 0
        # later kills have less left to do: each takes a share of the time that the rest should need
        for number in range(options.kills):
            share = 1 - n_lines(killed / "results.jsonl") / n_lines(peaceful / "results.jsonl")
            least = 0.1 if number % 2 else 3.0  # every other one long enough for some results
            n_kills += kill_once(what, killed, rng.uniform(least, max(least + 0.5, took * share / 2)))
            print(f"kill {number + 1}: {n_lines(killed / 'results.jsonl')} results stored", flush=True)
        if start(what, killed).wait() != 0:
            raise SystemExit("the resumed run failed")
        same = without_making(peaceful / "results.jsonl") == without_making(killed / "results.jsonl")
    print(f"{n_kills} of {options.kills} runs were killed; results are {'the same' if same else 'NOT THE SAME'}")
    raise SystemExit(0 if same and n_kills else 1)


if __name__ == "__main__":
    main()
