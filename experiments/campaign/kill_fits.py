"""Kill a fit that writes checkpoints at random moments, and resume it: the answer is that of a fit left in peace.

python -m experiments.campaign.kill_fits               # 40 kills over five kinds of fits, some minutes
python -m experiments.campaign.kill_fits --kills 2 --small --kinds power default     # as the tests do

Each answer is compared with the undisturbed one to the last bit, in everything that a model file holds but the seconds
of its history. A fit is killed a moment after a record drawn at random, so that kills are spread over all its passes;
every third fit is killed a second time, while it resumes.
"""

from __future__ import annotations

import argparse
import json
import random
import signal
import subprocess
import sys
import tempfile
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from elldict._old import persistence as model_file
from elldict._old.record_file import RecordFile
from elldict.datasets import make_bernoulli_gaussian

FIT = """
import json, sys
from elldict import LpDictionaryLearning
from elldict._old import checkpoint as checkpoints
from elldict._old.record_file import RecordFile
data, checkpoint, output, resume, most_bytes, options = sys.argv[1:]
import numpy as np
checkpoints.MAX_PHASE_BYTES = int(most_bytes)
write = RecordFile.replace
def write_and_say(*arguments):
    write(*arguments)
    print("record", flush=True)
RecordFile.replace = write_and_say
X = np.load(data)
print("begun", flush=True)
model = LpDictionaryLearning(**json.loads(options))
model.fit(X, checkpoint=None if checkpoint == "-" else checkpoint, resume=bool(int(resume)))
model.save(output)
"""


@dataclass(frozen=True)
class Kind:
    """A kind of fit: every phase, repair and refinement that there is belongs to one of them."""

    n_samples: int
    n_features: int
    options: dict[str, Any]
    data: dict[str, Any] = field(default_factory=dict)
    most_bytes: int = 2**26  # records of a phase, before its position is kept instead

    @property
    def small(self) -> Kind:
        """The same in small."""
        return Kind(self.n_samples // 8, self.n_features // 2, self.options, self.data, self.most_bytes // 4)


KINDS = {
    "default": Kind(100_000, 40, {}, {"noise_std": 0.6}),
    "power": Kind(60_000, 40, {"solver": "power", "p": [4, 3]}, {"noise_std": 0.4}, most_bytes=100_000),
    "whitened": Kind(60_000, 40, {"whiten": True, "center": True, "n_init": 3, "refine": "bernoulli-gaussian"}),
    "corrupted": Kind(20_000, 32, {}, {"corruption": 1.0, "noise_std": 0.05}),
    "few samples": Kind(240, 30, {"n_init": 4, "p": 2.5}),
}


@dataclass(frozen=True)
class Fit:
    """A fit in a process of its own."""

    kind: Kind
    folder: Path

    @property
    def checkpoint(self) -> Path:
        """Where it writes."""
        return self.folder / "checkpoint"

    def start(self, output: str, *, resume: bool = False, keep: bool = True) -> subprocess.Popen[str]:
        """Start it, and wait until it has its data: only the fit itself is timed."""
        paths = (self.folder / "data.npy", self.checkpoint if keep else "-", self.folder / output)
        options = json.dumps({"random_state": 0, **self.kind.options})
        command = [
            sys.executable,
            "-W",
            "ignore",
            "-c",
            FIT,
            *map(str, paths),
            str(int(resume)),
            str(self.kind.most_bytes),
        ]
        run = subprocess.Popen([*command, options], stdout=subprocess.PIPE, text=True)
        assert run.stdout is not None
        assert run.stdout.readline() == "begun\n"
        return run

    def done_in_peace(self) -> int:
        """Fit without a checkpoint, and with one that is left alone; how many records that writes."""
        for output, keep in (("peaceful.npz", False), ("kept.npz", True)):
            lines, _ = (run := self.start(output, keep=keep)).communicate()
            if run.returncode != 0:
                raise SystemExit("the undisturbed fit failed")
        return lines.count("record")

    def killed(self, n_records: int, delay: float, *, resume: bool) -> bool:
        """Kill -9 some seconds after this many records are written; whether it was still running."""
        run = self.start("killed.npz", resume=resume)
        assert run.stdout is not None
        for _ in range(n_records):
            run.stdout.readline()
        try:
            run.wait(delay)
        except subprocess.TimeoutExpired:
            run.send_signal(signal.SIGKILL)
            run.wait()
            return True
        return False

    def n_records(self) -> int:
        """Records in the checkpoint."""
        if not self.checkpoint.exists():
            return 0
        with closing(RecordFile.open(self.checkpoint)) as file:
            return len(file.records)

    def same(self) -> bool:
        """Resume to the end, and compare."""
        if self.start("resumed.npz", resume=True).wait() != 0:
            raise SystemExit("the resumed fit failed")
        (one, first), (two, second) = (model_file.read(self.folder / name) for name in ("peaceful.npz", "resumed.npz"))
        for arrays in (first, second):
            arrays["history"][:, -1] = 0  # seconds
        assert one["history_columns"][-1] == "seconds"
        return one == two and all(np.array_equal(first[name], second[name], equal_nan=True) for name in first)


def make_data(kind: Kind, folder: Path) -> None:
    X, _, _ = make_bernoulli_gaussian(kind.n_samples, kind.n_features, density=0.3, random_state=1, **kind.data)
    np.save(folder / "data.npy", X)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=40)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=list(KINDS), help="kinds of fits")
    parser.add_argument("--small", action="store_true", help="small problems, for the tests")
    options = parser.parse_args()
    rng, n_kills, n_same, n_all = random.Random(options.seed), 0, 0, 0
    with tempfile.TemporaryDirectory() as folder:
        for number, name in enumerate(options.kinds):
            fit = Fit(KINDS[name].small if options.small else KINDS[name], Path(folder, name))
            fit.folder.mkdir()
            make_data(fit.kind, fit.folder)
            n_written = fit.done_in_peace()
            share = options.kills // len(options.kinds) + (number < options.kills % len(options.kinds))
            for trial in range(share):
                was_killed = False
                while not was_killed:  # a fit may be over before it can be killed
                    fit.checkpoint.unlink(missing_ok=True)
                    was_killed = fit.killed(rng.randrange(n_written), rng.uniform(0, 0.02), resume=False)
                n_found = [fit.n_records()]
                if trial % 3 == 2:
                    fit.killed(rng.randrange(max(1, n_written - n_found[0])), rng.uniform(0, 0.02), resume=True)
                    n_found.append(fit.n_records())
                same = fit.same()
                n_kills, n_same, n_all = n_kills + was_killed, n_same + same, n_all + 1
                found = " and ".join(map(str, n_found))
                verdict = "the same" if same else "NOT THE SAME"
                print(f"{name}: killed with {found} of {fit.n_records()} records; resumed: {verdict}", flush=True)
    print(f"{n_kills} of {n_all} fits were killed; {n_same} of {n_all} answers are the same to the last bit")
    raise SystemExit(0 if n_same == n_all and n_kills > 0 else 1)


if __name__ == "__main__":
    main()
