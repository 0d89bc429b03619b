"""Results as lines of JSON, each written the moment it is there: a run that was cut short goes on where it stopped."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from experiments import BENCHMARK_RESULTS

RESULTS = BENCHMARK_RESULTS
BENCH, GROWTH, BASINS = (RESULTS / f"{name}.jsonl" for name in ("bench", "growth", "basins"))
Line = dict[str, Any]


def append(path: Path, line: Line) -> None:
    """Write one line."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(line) + "\n")


def lines(path: Path) -> Iterator[Line]:
    """All lines; one that was cut off is left out."""
    for text in path.read_text(encoding="utf-8").splitlines() if path.exists() else []:
        try:
            yield json.loads(text)
        except json.JSONDecodeError:
            continue


def latest(path: Path, group: str, *key: str) -> dict[tuple[Any, ...], Line]:
    """The last line for every key, and within a group only what was made as its last line was.

    Numbers of one problem are compared with each other: they have to come from the same machine and versions.
    """
    stored = list(lines(path))
    made = {line[group]: line["made_by"] for line in stored}
    return {tuple(line[name] for name in key): line for line in stored if line["made_by"] == made[line[group]]}
