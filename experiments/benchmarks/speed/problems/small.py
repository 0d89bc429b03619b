"""Small problems, where overhead shows: elldict must not be slower than FastICA."""

from __future__ import annotations

from experiments.benchmarks.speed.problems.base import Problem

SIZES = ((8, 500), (16, 1000), (32, 2000), (64, 5000))
SLOW_UP_TO = 32
"""K-SVD took 10 s for 20 of its 100 iterations at n = 32; larger ones are for `--slow-everywhere`."""

PROBLEMS = tuple(
    Problem("small", n, r, noise_std=sigma, seeds=5, repeats=2, with_slow=n <= SLOW_UP_TO)
    for n, r in SIZES
    for sigma in (0.0, 0.2)
)
