"""What a checkpoint costs: seconds of a fit with and without one, taken in turns, and bytes of the file.

python -m experiments.benchmarks.checkpoint_cost

Seconds of the clock, and of the cores: the latter say the same on a busy machine, but do not see waiting for the disk.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

from elldict import LpDictionaryLearning
from elldict.datasets import make_bernoulli_gaussian

N_FEATURES, N_SAMPLES, REPEATS = 100, 40_000, 15
OPTIONS: tuple[dict[str, Any], ...] = ({}, {"solver": "power", "refine": None})


def seconds(model: LpDictionaryLearning, X: object, checkpoint: Path | None) -> tuple[float, float]:
    clock, cores = time.perf_counter(), time.process_time()
    model.fit(X, checkpoint=checkpoint)
    return time.perf_counter() - clock, time.process_time() - cores


def main() -> None:
    X, _, _ = make_bernoulli_gaussian(N_SAMPLES, N_FEATURES, density=0.3, noise_std=0.4, random_state=0)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "checkpoint")
        for options in OPTIONS:
            model = LpDictionaryLearning(random_state=0, **options)
            pairs = []
            for _ in range(REPEATS):
                path.unlink(missing_ok=True)
                pairs.append((seconds(model, X, None), seconds(model, X, path)))
            size = path.stat().st_size / 1e6
            print(f"{options or 'default'}: {model.n_passes_:.1f} passes, {size:.2g} MB", flush=True)
            for kind, name in enumerate(("clock", "cores")):
                without, with_one = (median(pair[which][kind] for pair in pairs) for which in (0, 1))
                ratio = median(b[kind] / a[kind] for a, b in pairs)
                print(
                    f"  {name}: {1e3 * without:.0f} ms without, {1e3 * with_one:.0f} ms with: {ratio:.3f} times",
                    flush=True,
                )


if __name__ == "__main__":
    main()
