"""Real data: held-out gain, time and repeatability of elldict, FastICA and Picard.

python -m experiments.benchmarks.real                      # 17 sets, 8 minutes
python -m experiments.benchmarks.real --only digits chelsea

All methods get the same white samples, on one thread, and are fitted twice: the second fit has another seed and
permuted rows. The gain is the increase of the mean log density of held-out samples over that of principal components.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from sklearn.decomposition import FastICA

from elldict import LpDictionaryLearning
from elldict.metrics import match_atoms
from experiments.benchmarks import study
from experiments.benchmarks.data import SETS, measure_gain, split_set
from experiments.benchmarks.study import Cell, Matrix, Row, Study
from experiments.peers.base import required

LIMITS: dict[str, Any] = {"max_iter": 200, "tol": 1e-4}  # the defaults of FastICA, for all peers
OURS = "elldict"
SHORT = ("flower.jpg in colour", "camera", "chelsea", "digits", "breast cancer", "gravel", "grass")
"""Parts of the names of the sets in the README."""


def fit_fastica(Z: Matrix, seed: int, fun: str) -> tuple[Matrix, bool]:
    """Fit in float32, and in float64 if that fails: with `exp` it may end with rows of zeros."""
    for dtype in (np.float32, np.float64):
        model = FastICA(whiten=False, fun=fun, random_state=seed, **LIMITS).fit(Z.astype(dtype))
        if np.min(np.linalg.norm(model.components_, axis=1)) > 0.5:
            break
    return model.components_, bool(model.n_iter_ < LIMITS["max_iter"])


def fit_picard(Z: Matrix, seed: int) -> tuple[Matrix, bool]:
    """Fit in float64, since its line search fails in float32."""
    options = {"ortho": True, "extended": True, "whiten": False, "centering": False, "return_n_iter": True}
    _, rotation, _, n_iter = required("picard", "python-picard").picard(Z.T, random_state=seed, **options, **LIMITS)
    return rotation, bool(n_iter < LIMITS["max_iter"])


def fit_elldict(Z: Matrix, seed: int) -> tuple[Matrix, bool]:
    """Fit with default options."""
    model = LpDictionaryLearning(random_state=seed).fit(Z.astype(np.float32))
    return model.components_, model.converged_


METHODS: dict[str, Callable[[Matrix, int], tuple[Matrix, bool]]] = {
    "FastICA logcosh": lambda Z, seed: fit_fastica(Z, seed, "logcosh"),
    "FastICA exp": lambda Z, seed: fit_fastica(Z, seed, "exp"),
    "Picard-O extended": fit_picard,
    OURS: fit_elldict,
}


def measure(cell: Cell) -> Row:
    """Fit a method to a set twice; measure gains, seconds, and how far the two fits differ."""
    split, found, times, converged = split_set(cell["set"]), [], [], True
    r, k = split.train.shape
    for seed in (0, 1):
        train = split.train[np.random.default_rng(seed).permutation(r)] if seed else split.train
        (rows, has_converged), seconds = study.time_it(lambda: METHODS[cell["method"]](train, seed))  # noqa: B023
        found.append(study.make_orthonormal(rows))
        times.append(seconds)
        converged = converged and has_converged
    gains, differ = [measure_gain(split, A) for A in found], 1 - np.mean(match_atoms(*found).cosines ** 4)
    more = {"gain": np.mean(gains), "gains": gains, "differ": differ, "seconds": min(times), "converged": converged}
    return {"n_samples": r, "n_directions": k, **more}


def tabulate(rows: list[Row]) -> str:
    """Write all sets and methods: gain, seconds, difference of two fits."""
    lines: list[list[str]] = []
    verdicts, ratios = [], []
    for (name,), found in study.group(rows, "set").items():
        by_method = {row["method"]: row for row in found}
        best = max(row["gain"] for row in found)
        cells = [show_fit(by_method[method], best) if method in by_method else "-" for method in METHODS]
        lines.append([f"{name}, {found[0]['n_samples']} x {found[0]['n_directions']}", *cells])
        if (ours := by_method.pop(OURS, None)) and by_method:
            best = max(row["gain"] for row in by_method.values())
            margin = 0.01 * max(abs(best), 0.1)
            behind = "behind" if ours["gain"] < best - margin else "equal"
            verdicts.append("ahead" if ours["gain"] > best + margin else behind)
            ratios.append(ours["seconds"] / min(row["seconds"] for row in by_method.values()))
    counts = ", ".join(f"{verdicts.count(word)} {word}" for word in ("ahead", "equal", "behind"))
    return study.write_table(["samples", *METHODS], lines) + (
        f"\nGain of elldict compared with the best peer (differences below 1 % count as equal): {counts}. Its time "
        f"is {np.median(ratios):.2g} times that of the fastest peer in the median.\n"
    )


def show_fit(row: Row, best: float) -> str:
    """Write a cell of the table, with a star if a fit did not converge."""
    star = "" if row["converged"] else " \\*"
    return f"{show_gain(row['gain'], best)}, {study.show_time(row['seconds'])}, {row['differ']:.2f}{star}"


def show_gain(gain: float, best: float) -> str:
    """Write a gain, the best one in bold."""
    return f"**{gain:.2f}**" if gain == best else f"{gain:.2f}"


def tabulate_short(rows: list[Row]) -> str:
    """Write some sets: gains, and seconds of the faster FastICA and of elldict."""
    lines: list[list[str]] = []
    for (name,), found in study.group(rows, "set").items():
        by_method = {row["method"]: row for row in found}
        if any(part in name for part in SHORT) and len(by_method) == len(METHODS):
            best = max(row["gain"] for row in found)
            fastest = min(row["seconds"] for row in found if row["method"].startswith("FastICA"))
            gains = [show_gain(by_method[method]["gain"], best) for method in METHODS]
            times = f"{study.show_time(fastest)}, {study.show_time(by_method[OURS]['seconds'])}"
            lines.append([f"{name}, {found[0]['n_samples']} x {found[0]['n_directions']}", *gains, times])
    return study.write_table(["samples", *METHODS, "time: faster FastICA, elldict"], lines)


CELLS = [{"set": name, "method": method} for name in SETS for method in METHODS]
SMALL = [cell for cell in CELLS if cell["set"] == "wine"]
STUDY = Study("real", 8, measure, tabulate, CELLS, SMALL, packages=("python-picard", "scikit-image"))

if __name__ == "__main__":
    study.main(STUDY, __doc__)
