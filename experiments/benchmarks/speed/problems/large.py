"""A million samples: far more than the first iterations need."""

from __future__ import annotations

from experiments.benchmarks.speed.problems.base import Problem

PROBLEMS = (Problem("large", 100, 1_000_000, noise_std=0.2, asked_ratio=5, asked_passes=4),)
