"""Streams: how close one pass comes to a fit of all samples, and how well it follows a dictionary that rotates.

python -m experiments.benchmarks.stream             # all, about ten minutes on one core; writes docs/images/stream.png
python -m experiments.benchmarks.stream --quick     # a tenth of the samples, no picture

Times are of the wall clock and told for orientation; errors are what is measured.
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import matplotlib as mpl
import numpy as np
import scipy.linalg
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray

from elldict import LpDictionaryLearning
from elldict._old.report.style import LIGHT
from elldict.datasets import make_bernoulli_gaussian
from elldict.metrics import recovery_error
from elldict.theory import cramer_rao_bound, expected_error
from experiments import IMAGES, ROOT

PICTURE = IMAGES / "stream.png"
DENSITY, BATCH = 0.2, 2000
HALF_LIVES = (2_000.0, 8_000.0, 32_000.0)
SPEEDS = (0.0, *np.geomspace(3e-8, 1e-5, 6))
Matrix = NDArray[np.float64]


@dataclass(frozen=True)
class Trace:
    """Errors of a stream on its way."""

    seen: list[int]
    errors: list[float]
    bars: list[float]
    seconds: float


def followed(
    model: LpDictionaryLearning, batches: Iterator[tuple[Matrix, Matrix]], half_life: float | None = None
) -> Trace:
    """Feed batches, each with the dictionary it was made of."""
    trace, began = Trace([], [], [], 0.0), time.perf_counter()
    for X, dictionary in batches:
        model.partial_fit(X, half_life=half_life)
        if not hasattr(model, "components_"):  # samples are collected for the first fit
            continue
        trace.seen.append(model.n_samples_seen_)
        trace.errors.append(recovery_error(model.components_, dictionary))
        trace.bars.append(model.expected_error_)
    return Trace(trace.seen, trace.errors, trace.bars, time.perf_counter() - began)


def at_rest(X: Matrix, dictionary: Matrix) -> Iterator[tuple[Matrix, Matrix]]:
    for start in range(0, len(X), BATCH):
        yield X[start : start + BATCH], dictionary


def rotating(X: Matrix, dictionary: Matrix, speed: float) -> Iterator[tuple[Matrix, Matrix]]:
    """Every atom moves by about `speed` with each sample."""
    n = len(dictionary)
    turn = np.random.default_rng(0).standard_normal((n, n))
    turn = (turn - turn.T) * math.sqrt(n) / np.linalg.norm(turn - turn.T)
    step, rotation = scipy.linalg.expm(speed * BATCH * turn), np.eye(n)
    for batch, _ in at_rest(X, dictionary):
        yield batch @ rotation, dictionary @ rotation
        rotation = rotation @ step


def one_pass(n_samples: int, noise_std: float, n: int = 64, seed: int = 0) -> dict[str, Trace]:
    """A stream beside fits of all its samples."""
    X, dictionary, _ = make_bernoulli_gaussian(
        n_samples, n, density=DENSITY, noise_std=noise_std, dtype="float32", random_state=seed
    )
    setting: dict[str, Any] = {"n_features": n, "n_samples": n_samples, "density": DENSITY, "noise_std": noise_std}
    bound, theory = cramer_rao_bound(**setting), expected_error(3, **setting)
    print(f"\nn={n}, {n_samples} samples, density {DENSITY}, noise {noise_std}: error in per cent (seconds)")
    traces = {}
    for name, refine in (("l3", None), ("default", "auto")):
        trace = followed(LpDictionaryLearning(refine=refine, random_state=0), at_rest(X, dictionary))
        began = time.perf_counter()
        batch = LpDictionaryLearning(refine=refine, random_state=0).fit(X)
        seconds = time.perf_counter() - began
        error = recovery_error(batch.components_, dictionary)
        limit = theory if refine is None else bound
        ratio = f"{trace.errors[-1] / error:.3f}" if error > 1e-9 else "both exact"
        print(
            f"  {name:8s} stream {100 * trace.errors[-1]:.5f} (bar {100 * trace.bars[-1]:.5f}; {trace.seconds:.0f} s)"
            f"  batch {100 * error:.5f} ({seconds:.0f} s)  ratio {ratio}  theory {100 * limit:.5f}",
            flush=True,
        )
        traces[name] = trace
    return traces


def tracking(n_samples: int, n: int = 32, noise_std: float = 0.2) -> dict[float, list[tuple[float, float, float]]]:
    """Mean error, and mean error bar, over the second half of the stream, by half life and speed."""
    X, dictionary, _ = make_bernoulli_gaussian(n_samples, n, density=DENSITY, noise_std=noise_std, random_state=0)
    print(f"\nrotating, n={n}, noise {noise_std}: error in per cent (error bar; theory) at each speed per sample")
    print("  half life  " + "".join(f"{speed:26.1e}" for speed in SPEEDS))
    table = {}
    for half_life in HALF_LIVES:
        rows = []
        for speed in SPEEDS:
            model = LpDictionaryLearning(random_state=0)
            trace = followed(model, rotating(X, dictionary, speed), half_life)
            half = len(trace.errors) // 2
            rows.append((float(speed), float(np.mean(trace.errors[half:])), float(np.mean(trace.bars[half:]))))
        table[half_life] = rows
        cells = (
            f"{100 * e:.4f} ({100 * b:.4f}; {100 * predicted(s, half_life, n, noise_std):.4f})" for s, e, b in rows
        )
        print(f"  {half_life:9.0f}  " + "".join(f"{cell:>26s}" for cell in cells), flush=True)
    return table


def predicted(speed: float, half_life: float, n: int, noise_std: float) -> float:
    """Noise of the samples that are remembered, and the way the atoms go during the mean age of a sample."""
    n_samples = round(2 * half_life / math.log(2))
    bound = cramer_rao_bound(n_features=n, n_samples=n_samples, density=DENSITY, noise_std=noise_std)
    return bound + 2 * (speed * half_life / math.log(2)) ** 2


def draw(traces: dict[str, Trace], table: dict[float, list[tuple[float, float, float]]], noise_std: float) -> None:
    with mpl.rc_context({"font.size": 14, "text.color": LIGHT.ink, "axes.labelcolor": LIGHT.ink}):
        figure = Figure(figsize=(14, 5.6), facecolor=LIGHT.card, layout="constrained")
        left, right = figure.subplots(1, 2)
        draw_pass(left, traces, noise_std)
        draw_tracking(right, table)
        for axes in (left, right):
            axes.set_facecolor(LIGHT.card)
            axes.grid(color=LIGHT.line, linewidth=0.8)
            axes.spines[["top", "right"]].set_visible(False)
            axes.legend(frameon=False, fontsize=12)
        figure.savefig(PICTURE, dpi=150)
    print(f"\nwrote {PICTURE.relative_to(ROOT)}")


def draw_pass(axes: Axes, traces: dict[str, Trace], noise_std: float, n: int = 64) -> None:
    seen = np.geomspace(traces["l3"].seen[1], traces["l3"].seen[-1], 60)
    for name, colour, label in (("l3", LIGHT.curves[0], "ℓ₃"), ("default", LIGHT.curves[1], "default")):
        trace = traces[name]
        axes.loglog(trace.seen, 100 * np.array(trace.errors), color=colour, linewidth=3, label=f"stream, {label}")
        setting: dict[str, Any] = {"n_features": n, "density": DENSITY, "noise_std": noise_std}
        theory = [
            expected_error(3, n_samples=int(r), **setting)
            if name == "l3"
            else cramer_rao_bound(n_samples=int(r), **setting)
            for r in seen
        ]
        words = "theory of a fit to all" if name == "l3" else "Cramér–Rao bound"
        axes.loglog(
            seen,
            100 * np.array(theory),
            color=LIGHT.ink,
            linewidth=1.4,
            linestyle=":" if name == "l3" else "--",
            label=words,
        )
    axes.set(xlabel="samples seen, each once", ylabel="error of the atoms, %")
    axes.set_title(f"One pass is enough (n = {n}, noise {noise_std})", loc="left", fontsize=15)


def draw_tracking(axes: Axes, table: dict[float, list[tuple[float, float, float]]], n: int = 32) -> None:
    for colour, (half_life, rows) in zip(LIGHT.curves, table.items(), strict=True):
        moving = [row for row in rows if row[0] > 0]
        speeds = np.geomspace(moving[0][0], moving[-1][0], 60)
        axes.loglog(
            [row[0] for row in moving], [100 * row[1] for row in moving], "o", color=colour, markersize=9,
            label=f"half life {half_life:,.0f}",
        )  # fmt: skip
        axes.loglog(speeds, [100 * predicted(s, half_life, n, 0.2) for s in speeds], color=colour, linewidth=1.6)
    axes.set(xlabel="rotation of an atom per sample, radians", ylabel="error of the atoms, %")
    axes.set_title("Forget as fast as the dictionary turns (lines: theory)", loc="left", fontsize=15)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    quick = parser.parse_args().quick
    share = 10 if quick else 1
    traces = {noise: one_pass(1_000_000 // share, noise) for noise in (0.0, 0.2, 0.4)}
    table = tracking(200_000 // share)
    if not quick:
        draw(traces[0.2], table, 0.2)


if __name__ == "__main__":
    main()
