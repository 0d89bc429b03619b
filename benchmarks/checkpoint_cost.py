"""What a checkpoint costs: seconds of a fit with and without one, taken in turns, and bytes of the file.

python benchmarks/checkpoint_cost.py
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from statistics import median

from elldict import LpDictionaryLearning
from elldict.datasets import make_bernoulli_gaussian

N_FEATURES, N_SAMPLES, REPEATS = 100, 40_000, 15


def seconds(model: LpDictionaryLearning, X: object, checkpoint: Path | None) -> float:
    began = time.perf_counter()
    model.fit(X, checkpoint=checkpoint)
    return time.perf_counter() - began


def main() -> None:
    X, _, _ = make_bernoulli_gaussian(N_SAMPLES, N_FEATURES, density=0.3, noise_std=0.4, random_state=0)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "checkpoint")
        for options in ({}, {"solver": "power", "refine": None}):
            model = LpDictionaryLearning(random_state=0, **options)
            pairs = []
            for _ in range(REPEATS):
                path.unlink(missing_ok=True)
                pairs.append((seconds(model, X, None), seconds(model, X, path)))
            without, with_one = (median(column) for column in zip(*pairs, strict=True))
            ratio, size = median(b / a for a, b in pairs), path.stat().st_size
            print(
                f"{options or 'default'}: {1e3 * without:.0f} ms without, {1e3 * with_one:.0f} ms with a checkpoint of "
                f"{size / 1e6:.2g} MB: {ratio:.3f} times; {model.n_passes_:.1f} passes",
                flush=True,
            )


if __name__ == "__main__":
    main()
