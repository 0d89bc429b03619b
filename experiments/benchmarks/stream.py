"""Streams: one pass in batches compared with a fit to all samples; and a dictionary that rotates.

python -m experiments.benchmarks.stream             # 8 minutes

Bernoulli-Gaussian codes of density 0.2, batches of 2000 samples. While the dictionary rotates, errors are means over
the second half of the stream; predicted is the Cramer-Rao bound for the samples that are remembered, plus the rotation
during the mean age of a sample.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import scipy.linalg

from elldict import LpDictionaryLearning
from elldict.metrics import recovery_error
from elldict.theory import cramer_rao_bound, expected_error
from experiments.benchmarks import study
from experiments.benchmarks.study import Cell, Row, Study

DENSITY, BATCH = 0.2, 2000
HALF_LIVES = (2_000, 8_000, 32_000)
SPEEDS = (0.0, 3e-8, 3e-7, 3e-6)  # radians per sample


def measure(cell: Cell) -> Row:
    """Feed batches, rotating the dictionary if asked to; fit all samples if it does not rotate."""
    n, speed, half_life = cell["n"], cell["speed"], cell["half_life"]
    X, dictionary = study.draw_model(cell, density=DENSITY)
    turn = np.random.default_rng(0).standard_normal((n, n))
    turn = (turn - turn.T) * math.sqrt(n) / np.linalg.norm(turn - turn.T)
    step, rotation = scipy.linalg.expm(speed * BATCH * turn), np.eye(n)
    model, seen, errors, stated, took = LpDictionaryLearning(refine=cell["refine"]), [], [], [], 0.0
    for start in range(0, len(X), BATCH):
        batch = X[start : start + BATCH] @ rotation.astype(np.float32)
        _, seconds = study.time_it(lambda: model.partial_fit(batch, half_life=half_life))  # noqa: B023  called at once
        took += seconds
        if hasattr(model, "components_"):
            seen.append(model.n_samples_seen_)
            errors.append(max(recovery_error(model.components_, (dictionary @ rotation).astype(np.float32)), 0.0))
            stated.append(model.expected_error_)
        rotation = rotation @ step
    if half_life is not None:
        half = len(errors) // 2
        return {"error": np.mean(errors[half:]), "stated": np.mean(stated[half:])}
    whole, seconds = study.time_it(lambda: LpDictionaryLearning(refine=cell["refine"], error_bars=False).fit(X))
    some = np.unique(np.geomspace(1, len(seen), 40).astype(int)) - 1
    fit = {"fit_error": max(recovery_error(whole.components_, dictionary), 0.0), "fit_seconds": seconds}
    path = [[seen[i], errors[i]] for i in some]
    return {"error": errors[-1], "stated": stated[-1], "seconds": took, **fit, "path": path}


def predict(row: Row) -> float:
    """Compute the error that theory predicts."""
    setting: Any = {"n_features": row["n"], "density": DENSITY, "noise_std": row["noise"]}
    if row["half_life"] is None:
        if row["refine"] is None:
            return expected_error(3, n_samples=row["r"], **setting)
        return cramer_rao_bound(n_samples=row["r"], **setting) if row["noise"] else 0.0
    remembered = round(2 * row["half_life"] / math.log(2))
    lag = row["speed"] * row["half_life"] / math.log(2)
    return float(cramer_rao_bound(n_samples=remembered, **setting) + 2 * lag**2)


def tabulate(rows: list[Row]) -> str:
    """Write one pass compared with a fit, then errors while the dictionary rotates."""
    lines = []
    for row in rows:
        if row["half_life"] is None:
            name = "l_3" if row["refine"] is None else "default"
            errors = [study.show_error(row[key], 1e-6) for key in ("error", "stated", "fit_error")]
            times = [study.show_time(row["seconds"]), study.show_time(row["fit_seconds"])]
            lines.append([f"{row['noise']:g}", name, *errors, study.show_error(predict(row), 1e-6), *times])
    head = ["noise", "method", "stream", "its error bar", "fit to all samples", "theory", "time: stream", "fit"]
    text = study.write_table(head, lines)
    moving = [row for row in rows if row["half_life"] is not None]
    speeds = sorted({row["speed"] for row in moving})
    lines = []
    for (half_life,), found in study.group(moving, "half_life").items():
        values = {row["speed"]: (row["error"], row["stated"], predict(row)) for row in found}
        cells = [" / ".join(map(study.show_error, values.get(speed, ()))) for speed in speeds]
        lines.append([f"{half_life}", *cells])
    if lines:
        text += "\nRotating dictionary: error / its error bar / prediction, by radians per sample.\n\n"
        text += study.write_table(["half life", *(f"{speed:g}" for speed in speeds)], lines)
    return text


NAMES = ("n", "r", "noise", "refine", "speed", "half_life")
SETTINGS = [(64, 1_000_000, noise, refine, 0.0, None) for noise in (0.0, 0.2, 0.4) for refine in (None, "auto")]
MOVING = [(32, 200_000, 0.2, "auto", speed, half_life) for half_life in HALF_LIVES for speed in SPEEDS]
CELLS: list[Cell] = [dict(zip(NAMES, values, strict=True)) for values in (*SETTINGS, *MOVING)]
SMALL = [{**cell, "n": 8, "r": 20_000} for cell in (CELLS[3], CELLS[-1])]
STUDY = Study("stream", 8, measure, tabulate, CELLS, SMALL)

if __name__ == "__main__":
    study.main(STUDY, __doc__)
