"""The tables of docs/scaling.md: what was measured, and what it says of a large cluster."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from experiments import ROOT

PAGE = ROOT / "docs" / "scaling.md"
Line = dict[str, Any]

MACHINES, CORES, DISK, NETWORK = 100, 16, 1e9, 1.25e9
"""Of the cluster in question: machines, cores of each, bytes a second that each reads and receives."""

TERABYTES, ITEM = 10, 4
TASKS_PER_THREAD = 8
"""At most: the number of tiles in a task is a power of two."""


@dataclass(frozen=True)
class Estimate:
    """A pass over 10 TB of float32 with n features, by the cost model."""

    n: int
    rate: float  # of a core
    overhead: float
    per_task: float

    @property
    def samples(self) -> float:
        """Number of samples."""
        return TERABYTES * 1e12 / (ITEM * self.n)

    @property
    def tasks(self) -> int:
        """Of a pass."""
        return MACHINES * CORES * TASKS_PER_THREAD

    @property
    def arithmetic(self) -> float:
        """Seconds of products."""
        return 4 * self.n**2 * self.samples / (MACHINES * CORES * self.rate)

    @property
    def reading(self) -> float:
        """Seconds of disks."""
        return TERABYTES * 1e12 / (MACHINES * DISK)

    @property
    def network(self) -> float:
        """Seconds in which a machine receives the sums of its share of tasks, and A."""
        return (1 + CORES * TASKS_PER_THREAD) * 8 * self.n**2 / NETWORK

    @property
    def scheduling(self) -> float:
        """Seconds of the scheduler, which handles one task after the other."""
        return self.overhead + self.tasks * self.per_task

    @property
    def seconds(self) -> float:
        """Reading and arithmetic at the same time, by different tasks; the rest after them, at worst."""
        return max(self.arithmetic, self.reading) + self.network + self.scheduling


def rewrite(line: Line) -> None:
    """Put new tables between the marks of the page."""
    text = PAGE.read_text(encoding="utf-8")
    for name, table in (("measured", measured_tables(line)), ("extrapolated", extrapolated_table(line))):
        begin, end = f"<!-- {name} -->\n", f"<!-- end of {name} -->"
        head, _, rest = text.partition(begin)
        _, mark, tail = rest.partition(end)
        if not mark:
            raise SystemExit(f"{PAGE} lacks the marks of {name!r}")
        text = head + begin + table + end + tail
    PAGE.write_text(text, encoding="utf-8")


def measured_tables(line: Line) -> str:
    """Constants of the model."""
    made, n, r = line["made_by"], line["pass_of"]["n"], line["pass_of"]["r"]
    versions = made["versions"]
    parts = [
        f"Made on {line['cores']} cores of {made['processor']} ({made['system']}), dask {versions['dask']}, numpy "
        f"{versions['numpy']}; others kept {100 * (line['busy'] or 0):.0f} % of the cores busy when it began. "
        f"Times are the least of several. {_oversubscribed(line)}\n",
        "| n | operations a second of a core, l_p pass in float32 |\n| --- | --- |",
        *(f"| {rate['n']} | {rate['flops_per_second'] / 1e9:.1f} x 10^9 |" for rate in line["rates"]),
        f"\nOne core reads a file that the system holds in memory at {line['read_bytes_per_second'] / 1e9:.1f} GB/s.\n",
        f"| workers | pass over n = {n}, r = {r:.0e} from a file | its tasks | received by a worker, in units of 8 n^2 "
        "bytes | an empty pass | each task | passes of a fit | its difference from memory |",
        "| --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for workers, found in line["workers"].items():
        one, over, fit = found["pass"], found["overhead"], found["fit"]
        parts.append(
            f"| {workers} | {one['seconds']:.2f} s | {one['tasks']} | {one['received_in_squares']:.1f} | "
            f"{1e3 * over['pass']:.0f} ms | {1e3 * over['task']:.2f} ms | {fit['passes']:.1f} | "
            f"{fit['difference']:.1g} |"
        )
    return "\n".join(parts) + "\n"


def _oversubscribed(line: Line) -> str:
    most = max(int(workers) for workers in line["workers"])
    return f"{most} workers share {line['cores']} cores." if most > line["cores"] else ""


def estimates(line: Line) -> list[Estimate]:
    """One for each number of features whose rate was measured; overheads are those of the largest cluster."""
    over = line["workers"][max(line["workers"], key=int)]["overhead"]
    return [Estimate(rate["n"], rate["flops_per_second"], over["pass"], over["task"]) for rate in line["rates"]]


def extrapolated_table(line: Line) -> str:
    """A pass over 10 TB on 100 machines."""
    passes = math.ceil(max(found["fit"]["passes"] for found in line["workers"].values()))
    parts = [
        "| n | samples | arithmetic | reading | sums over the network | scheduler | a pass "
        f"| a fit of {passes} passes |",
        "| --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for each in estimates(line):
        parts.append(
            f"| {each.n} | {each.samples:.1e} | {each.arithmetic:.0f} s | {each.reading:.0f} s "
            f"| {each.network:.1f} s | {each.scheduling:.0f} s | {each.seconds:.0f} s "
            f"| {passes * each.seconds / 60:.0f} min |"
        )
    return "\n".join(parts) + "\n"
