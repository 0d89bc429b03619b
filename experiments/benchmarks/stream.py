"""Streams: one pass in batches compared with a fit to all samples; and a dictionary that rotates.

python -m experiments.benchmarks.stream             # 8 minutes; the picture is drawn by benchmarks.pictures

Bernoulli-Gaussian codes of density 0.2, batches of 2000 samples. While the dictionary rotates, errors are means over the
second half of the stream; predicted is the Cramer-Rao bound for the samples that are remembered, plus the rotation
during the mean age of a sample.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import scipy.linalg

from elldict import LpDictionaryLearning
from elldict.datasets import make_bernoulli_gaussian
from elldict.metrics import recovery_error
from elldict.theory import cramer_rao_bound, expected_error
from experiments.benchmarks.study import Cell, Row, Study, group, main, show_error, show_time, time_it, write_table

DENSITY, BATCH = 0.2, 2000
HALF_LIVES = (2_000, 8_000, 32_000)
SPEEDS = (0.0, 3e-8, 3e-7, 3e-6)  # radians per sample


def measure(cell: Cell) -> Row:
    """Feed batches, rotating the dictionary if asked to; fit all samples if it does not rotate."""
    n, speed, half_life = cell["n"], cell["speed"], cell["half_life"]
    options: Any = {"density": DENSITY, "noise_std": cell["noise"], "dtype": "float32", "random_state": 0}
    X, dictionary, _ = make_bernoulli_gaussian(cell["r"], n, **options)
    turn = np.random.default_rng(0).standard_normal((n, n))
    turn = (turn - turn.T) * math.sqrt(n) / np.linalg.norm(turn - turn.T)
    step, rotation = scipy.linalg.expm(speed * BATCH * turn), np.eye(n)
    model, seen, errors, stated, took = LpDictionaryLearning(refine=cell["refine"]), [], [], [], 0.0
    for start in range(0, len(X), BATCH):
        batch = X[start : start + BATCH] @ rotation.astype(np.float32)
        _, seconds = time_it(lambda: model.partial_fit(batch, half_life=half_life))  # noqa: B023  called at once
        took += seconds
        if hasattr(model, "components_"):
            seen.append(model.n_samples_seen_)
            errors.append(max(recovery_error(model.components_, (dictionary @ rotation).astype(np.float32)), 0.0))
            stated.append(model.expected_error_)
        rotation = rotation @ step
    if half_life is not None:
        half = len(errors) // 2
        return {"error": np.mean(errors[half:]), "stated": np.mean(stated[half:])}
    whole, seconds = time_it(lambda: LpDictionaryLearning(refine=cell["refine"], error_bars=False).fit(X))
    some = np.unique(np.geomspace(1, len(seen), 40).astype(int)) - 1
    return {
        "error": errors[-1],
        "stated": stated[-1],
        "seconds": took,
        "fit_error": max(recovery_error(whole.components_, dictionary), 0.0),
        "fit_seconds": seconds,
        "path": [[seen[i], errors[i]] for i in some],
    }


def predict(row: Row) -> float:
    """Compute the error that theory predicts."""
    setting: Any = {"n_features": row["n"], "density": DENSITY, "noise_std": row["noise"]}
    if row["half_life"] is None:
        bound = expected_error if row["refine"] is None else cramer_rao_bound
        exponent = (3,) if row["refine"] is None else ()
        return bound(*exponent, n_samples=row["r"], **setting) if row["noise"] or exponent else 0.0
    remembered = round(2 * row["half_life"] / math.log(2))
    lag = row["speed"] * row["half_life"] / math.log(2)
    return cramer_rao_bound(n_samples=remembered, **setting) + 2 * lag**2


def tabulate(rows: list[Row]) -> str:
    """Write one pass compared with a fit, then errors while the dictionary rotates."""
    lines = []
    for row in rows:
        if row["half_life"] is None:
            name = "l_3" if row["refine"] is None else "default"
            errors = [show_error(row[key], 1e-6) for key in ("error", "stated", "fit_error")]
            times = [show_time(row["seconds"]), show_time(row["fit_seconds"])]
            lines.append([f"{row['noise']:g}", name, *errors, show_error(predict(row), 1e-6), *times])
    head = ["noise", "method", "stream", "its error bar", "fit to all samples", "theory", "time: stream", "fit"]
    text = write_table(head, lines)
    moving = [row for row in rows if row["half_life"] is not None]
    speeds = sorted({row["speed"] for row in moving})
    lines = []
    for (half_life,), found in group(moving, "half_life").items():
        cells = {
            row["speed"]: " / ".join(map(show_error, (row["error"], row["stated"], predict(row)))) for row in found
        }
        lines.append([f"{half_life}", *(cells.get(speed, "-") for speed in speeds)])
    if lines:
        text += "\nRotating dictionary: error / its error bar / prediction, by radians per sample.\n\n"
        text += write_table(["half life", *(f"{speed:g}" for speed in speeds)], lines)
    return text


def make_cell(
    n: int, r: int, noise: float, refine: str | None, speed: float = 0.0, half_life: int | None = None
) -> Cell:
    """Make a cell."""
    return {"n": n, "r": r, "noise": noise, "refine": refine, "speed": speed, "half_life": half_life}


CELLS = [
    *(make_cell(64, 1_000_000, noise, refine) for noise in (0.0, 0.2, 0.4) for refine in (None, "auto")),
    *(make_cell(32, 200_000, 0.2, "auto", speed, half_life) for half_life in HALF_LIVES for speed in SPEEDS),
]
SMALL = [make_cell(8, 20_000, 0.2, "auto"), make_cell(8, 20_000, 0.2, "auto", 3e-6, 2000)]
STUDY = Study("stream", 8, measure, tabulate, CELLS, SMALL)

if __name__ == "__main__":
    main(STUDY, __doc__)
