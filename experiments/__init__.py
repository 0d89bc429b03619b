"""Experiments on elldict: the paper reproduced, and benchmarks. In the repository, not in the package."""

from pathlib import Path

ROOT = Path(__file__).parents[1]
IMAGES = ROOT / "docs" / "images"
BENCHMARK_RESULTS = ROOT / "experiments" / "benchmarks" / "results"
