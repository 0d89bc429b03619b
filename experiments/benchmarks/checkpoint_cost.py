"""The cost of checkpoints: time of a fit with one and without, in turns, and the size of the file.

python -m experiments.benchmarks.checkpoint_cost      # 1 minute
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from elldict import LpDictionaryLearning
from experiments.benchmarks.study import Cell, Row, Study, draw_model, main, show_time, time_it, write_table

OPTIONS: dict[str, dict[str, Any]] = {"default": {}, "power method": {"solver": "power", "refine": None}}


def measure(cell: Cell) -> Row:
    """Fit with and without a checkpoint, several times."""
    X, _ = draw_model({**cell, "noise": 0.4}, dtype="float64")
    model, pairs = LpDictionaryLearning(random_state=0, **OPTIONS[cell["method"]]), []
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "checkpoint.npz")
        for _ in range(cell["repeats"]):
            path.unlink(missing_ok=True)
            _, without = time_it(lambda: model.fit(X))
            _, with_one = time_it(lambda: model.fit(X, checkpoint=path))
            pairs.append((without, with_one))
        size = path.stat().st_size
    without, with_one = np.median(pairs, axis=0)
    return {"without": without, "with": with_one, "ratio": np.median([b / a for a, b in pairs]), "bytes": size}


def tabulate(rows: list[Row]) -> str:
    """Write one line per method."""
    lines = [
        [
            row["method"],
            f"{row['r']} x {row['n']}",
            show_time(row["without"]),
            show_time(row["with"]),
            f"{row['ratio']:.3f}",
            f"{row['bytes'] / 1e6:.2g} MB",
        ]
        for row in rows
    ]
    return write_table(["fit", "samples", "time without a checkpoint", "with one", "ratio", "file"], lines)


CELLS = [{"n": 100, "r": 40_000, "method": method, "repeats": 9} for method in OPTIONS]
SMALL = [{"n": 20, "r": 4000, "method": method, "repeats": 2} for method in OPTIONS]
STUDY = Study("checkpoint_cost", 1, measure, tabulate, CELLS, SMALL)

if __name__ == "__main__":
    main(STUDY, __doc__)
