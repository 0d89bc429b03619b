"""Let faults happen to fits from every source: whatever ends, ends right, and whatever is resumed ends the same.

python -m experiments.campaign.faults                # 200 faults, some minutes
python -m experiments.campaign.faults --n 40 --seed 3
python -m experiments.campaign.faults --only 17      # one fault again

A fit is killed, terminated or interrupted at a random moment, the disk is full, memory is short, samples change under
its hands, a worker of a cluster is lost. It may end by an error. It must not end with other numbers than an undisturbed
fit, never end, or leave a file that is half written; and once all is well again, it is resumed from its checkpoint and
has to end as the undisturbed one, to the last bit.
"""

from __future__ import annotations

import argparse
import random
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from experiments.campaign.fault_fits import (
    CHANGES,
    FAULTS,
    FITS,
    SIGNALS,
    SOURCES,
    End,
    Plan,
    make_context,
    read_answer,
    run_fit,
    write_sources,
)

LOST_WORKER = "worker lost"

MOST_WRITES = 8
"""Writes among which the first that finds the disk full is drawn: of the checkpoint, and of the parts of the model."""

FILE_SOURCES = ("npy", "zarr", "parquet", "command line")
FILE_FAULTS = (*CHANGES, "no memory for rows")
"""Faults that only sources in files have."""

PROBLEMS = ("wrong answer", "hang", "half-written file", "not resumed")


@dataclass(frozen=True)
class Outcome:
    """What a fault led to."""

    fault: str
    source: str
    told: str  # how the fit ended
    problems: tuple[str, ...] = ()


@dataclass
class Campaign:
    """Undisturbed fits, and those to which something happens."""

    folder: Path
    seed: int
    fits: tuple[str, ...] = tuple(FITS)
    context: Any = field(default_factory=make_context)
    undisturbed: dict[tuple[str, str], tuple[Any, End]] = field(default_factory=dict)
    cluster: Any = None

    def __post_init__(self) -> None:
        (self.folder / "sources").mkdir()
        write_sources(self.folder / "sources", self.seed)

    def try_fault(self, number: int, faults: tuple[str, ...]) -> Outcome:
        """Let a fault happen, the one of this number."""
        rng = random.Random(f"{self.seed} {number}")
        fault = faults[number % len(faults)]
        if fault == LOST_WORKER:
            return self.lose_worker(rng)
        fit, source = rng.choice(self.fits), rng.choice(FILE_SOURCES if fault in FILE_FAULTS else SOURCES)
        answer, end = self.fit_undisturbed(source, fit)
        plan = Plan(self.make_folder(), source, fit, fault=fault, amount=rng.random())
        plan = replace(plan, at=rng.randrange(count_moments(fault, end)))
        found = run_fit(self.context, plan, SIGNALS.get(fault), rng.uniform(0, 0.005))
        problems = tuple(self.judge(plan, found, answer))
        shutil.rmtree(plan.folder)
        return Outcome(fault, source, found.told or f"exit code {found.code}", problems)

    def judge(self, plan: Plan, found: End, answer: Any) -> Iterator[str]:
        """Problems with how a fit ended, and with how it goes on."""
        if found.code is None:
            yield "hang"
        output = plan.folder / plan.output
        if (found.told == "done" or output.exists()) and not is_answer(output, answer):
            yield "half-written file" if found.told != "done" else "wrong answer"
        if plan.fault != "kill" and any(plan.folder.rglob(".*.tmp")):  # nobody cleans up after a kill
            yield "half-written file"
        output.unlink(missing_ok=True)
        if plan.fault in CHANGES:
            self.restore(plan)
        resumed = run_fit(self.context, replace(plan, fault=""))
        if resumed.told != "done" or not is_answer(output, answer):
            yield f"not resumed: {resumed.told}" if resumed.told != "done" else "wrong answer"

    def fit_undisturbed(self, source: str, fit: str) -> tuple[Any, End]:
        """Answer and end of a fit to which nothing happens; that of the array is the answer of all sources."""
        if (source, fit) not in self.undisturbed:
            plan = Plan(self.make_folder(), source, fit)
            end = run_fit(self.context, plan)
            answer = read_answer(plan.folder / plan.output)
            if end.told != "done" or answer is None:
                raise SystemExit(f"the undisturbed fit of {source} failed: {end}")
            self.undisturbed[source, fit] = answer, end
        return self.undisturbed[source, fit]

    def make_folder(self) -> Path:
        """Samples with the dates of the first ones, by which a checkpoint knows them."""
        folder = Path(tempfile.mkdtemp(dir=self.folder))
        return Path(shutil.copytree(self.folder / "sources", folder, dirs_exist_ok=True, copy_function=shutil.copy2))

    def restore(self, plan: Plan) -> None:
        """Put the samples back, with their dates."""
        shutil.copytree(self.folder / "sources", plan.folder, dirs_exist_ok=True, copy_function=shutil.copy2)

    def lose_worker(self, rng: random.Random) -> Outcome:
        """Kill a worker of a cluster in the middle of a fit."""
        self.cluster = self.cluster or LostWorkers(self.folder, self.seed)
        return self.cluster.lose_one(rng)  # type: ignore[no-any-return]

    def close(self) -> None:
        """End the cluster, if there is one."""
        if self.cluster is not None:
            self.cluster.clusters.close()


class LostWorkers:
    """Fits on a cluster of two workers; what is slow to import and to begin is here."""

    def __init__(self, folder: Path, seed: int) -> None:
        from experiments.campaign import kill_workers  # noqa: PLC0415

        kill_workers.keep_lost_workers()
        self.kills = kill_workers
        self.cases = [kill_workers.Case.made(name, seed, folder) for name in ("power", "default")]
        self.clusters = kill_workers.Clusters(2)

    def lose_one(self, rng: random.Random) -> Outcome:
        """Kill one, and compare the answer with that in memory."""
        client, case, kind = self.clusters.client(), rng.choice(self.cases), rng.choice(self.kills.KINDS)
        killer = self.kills.Killer(client, rng.randrange(case.n_moments), rng.uniform(0, 0.1), rng.randrange(2))
        _, apart = self.kills.one_kill(client, case, killer, kind)
        problems = () if apart == 0 else (f"wrong answer: {apart:.2g} apart",)
        return Outcome(LOST_WORKER, "dask", "done", problems if killer.killed else ("no worker was killed", *problems))


def count_moments(fault: str, undisturbed: End) -> int:
    """Number of moments at which a fault may happen: writes, passes or records of the undisturbed fit."""
    if fault == "disk full":
        return MOST_WRITES
    n_records = undisturbed.n_records  # of every pass one, and one of what the callback said
    return max(1, n_records // 2) if fault.startswith("no memory") else n_records


def is_answer(path: Path, answer: Any) -> bool:
    """Whether a file holds this answer, to the last bit; one that cannot be read does not."""
    try:
        return bool(read_answer(path) == answer)
    except ValueError:
        return False


def run(
    folder: Path, seed: int, numbers: list[int], faults: tuple[str, ...], fits: tuple[str, ...] = tuple(FITS)
) -> Iterator[tuple[int, Outcome]]:
    """What each fault leads to."""
    campaign = Campaign(folder, seed, fits)
    try:
        for number in numbers:
            yield number, campaign.try_fault(number, faults)
    finally:
        campaign.close()


def make_table(found: list[Outcome]) -> str:
    """Faults by kind: how many ended the fit, and what went wrong."""
    lines = [f"{'fault':<20}{'tried':>7}{'ended it':>10}" + "".join(f"{problem:>19}" for problem in PROBLEMS)]
    for fault in dict.fromkeys(outcome.fault for outcome in found):
        of_fault = [outcome for outcome in found if outcome.fault == fault]
        n_ended = sum(outcome.told != "done" for outcome in of_fault)
        counts = Counter(problem.partition(":")[0] for outcome in of_fault for problem in outcome.problems)
        lines.append(f"{fault:<20}{len(of_fault):>7}{n_ended:>10}" + "".join(f"{counts[p]:>19}" for p in PROBLEMS))
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--n", type=int, default=200)
    parser.add_argument("--only", type=int, nargs="+", metavar="NUMBER", help="these faults alone")
    options = parser.parse_args()
    if sys.platform == "win32":
        raise SystemExit("signals and limits are a matter of POSIX")
    found, began, faults = [], time.perf_counter(), (*FAULTS, LOST_WORKER)
    with tempfile.TemporaryDirectory() as folder:
        for number, outcome in run(Path(folder), options.seed, options.only or list(range(options.n)), faults):
            found.append(outcome)
            if outcome.problems or options.only:
                what = ", ".join(outcome.problems) or "as it should be"
                print(
                    f"{number} (seed {options.seed}), {outcome.fault}, {outcome.source}: {outcome.told}; {what}",
                    flush=True,
                )
    n_wrong = sum(bool(outcome.problems) for outcome in found)
    print(make_table(found))
    sources = Counter(outcome.source for outcome in found)
    print("sources: " + ", ".join(f"{name} {count}" for name, count in sorted(sources.items())))
    minutes = (time.perf_counter() - began) / 60
    print(f"seed {options.seed}: {n_wrong} of {len(found)} faults led to something wrong; {minutes:.1f} minutes")
    raise SystemExit(1 if n_wrong else 0)


if __name__ == "__main__":
    main()
