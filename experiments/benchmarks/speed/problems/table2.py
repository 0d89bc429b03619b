"""Table 2 of the paper: Gaussian noise."""

from __future__ import annotations

from experiments.benchmarks.speed.problems.base import Problem

SIGMAS = (0.0, 0.2, 0.4, 0.6)
PASSES = {0.0: 6, 0.2: 10, 0.4: 10, 0.6: 15}


def asked_ratio(n: int, sigma: float) -> float:
    """Strong noise leaves less to gain."""
    if n == 32:
        return 5
    return 3 if sigma <= 0.4 else 2


PROBLEMS = tuple(
    Problem(
        "Table 2", n, r, noise_std=sigma, asked_ratio=asked_ratio(n, sigma), asked_passes=PASSES[sigma], seeds=seeds
    )
    for n, r, seeds in ((32, 10_000, 16), (100, 40_000, 4))
    for sigma in SIGMAS
)
