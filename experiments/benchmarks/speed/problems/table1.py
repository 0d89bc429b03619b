"""Table 1 of the paper: no noise, r = 400 n."""

from __future__ import annotations

from experiments.benchmarks.speed.problems.base import Problem

SEEDS = {100: 4, 200: 2, 400: 1}

PROBLEMS = tuple(
    Problem("Table 1", n, 400 * n, theta, asked_ratio=3, asked_passes=6, seeds=seeds)
    for n, seeds in SEEDS.items()
    for theta in (0.1, 0.3)
)
