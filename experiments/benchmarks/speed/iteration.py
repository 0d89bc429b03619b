"""What one iteration costs beside its two bare matrix products, measured in turns in the same run.

python -m experiments.benchmarks.speed.iteration
"""

from __future__ import annotations

import argparse
import os
import platform
import statistics
import time
from collections.abc import Callable

import numpy as np

from elldict.datasets import make_bernoulli_gaussian
from elldict.kernels.threads import one_blas_thread
from elldict.samples.frame import Frame
from elldict.samples.memory import MemorySamples
from elldict.samples.survey import survey
from elldict.solver.contrasts import Lp
from elldict.solver.polar import random_orthonormal
from elldict.solver.steps import power_step
from elldict.solver.sums import measure
from elldict.solver.terms import Needs

SETTINGS = [(400, 40_000, "float32"), (100, 40_000, "float32"), (100, 400_000, "float32"), (100, 40_000, "float64")]


def seconds(job: Callable[[], object]) -> float:
    start = time.perf_counter()
    job()
    return time.perf_counter() - start


def rested(job: Callable[[], object]) -> float:
    """Seconds of a job, begun after the threads that BLAS leaves spinning are asleep: in a fit there are none."""
    time.sleep(0.2)
    return seconds(job)


def compare(n: int, r: int, dtype: str, p: float, repeats: int) -> tuple[float, float, float]:
    """Median milliseconds of the bare products and of an iteration, and the median of their ratios."""
    X, _, _ = make_bernoulli_gaussian(r, n, density=0.3, dtype=dtype, random_state=0)
    samples = MemorySamples(X)
    frame = Frame.of(survey(samples, center=False, precise=False), center=False, whiten=False)
    A = random_orthonormal(n, n, np.random.default_rng(0))
    narrow = A.astype(dtype)
    codes = np.empty((r, n), dtype)

    def bare() -> None:
        np.matmul(X, narrow.T, out=codes)
        codes.T @ X

    def iteration() -> None:
        with one_blas_thread():  # as in a fit: the cores share the tiles out among themselves
            power_step(measure(samples, frame, Lp(p), A, Needs.GRADIENT, dtype), A)

    bare(), iteration()  # both warm
    pairs = [(seconds(bare), rested(iteration)) for _ in range(repeats)]
    products, iterations = (1e3 * statistics.median(column) for column in zip(*pairs, strict=True))
    return products, iterations, statistics.median(b / a for a, b in pairs)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--p", type=float, default=3.0)
    parser.add_argument("--repeats", type=int, default=15)
    arguments = parser.parse_args()
    print(f"{platform.machine()}, {os.cpu_count()} cores, numpy {np.__version__}, p={arguments.p:g}")
    print(f"{'n':>5} {'r':>8} {'dtype':>8} {'products ms':>12} {'iteration ms':>13} {'ratio':>6}")
    for n, r, dtype in SETTINGS:
        products, iteration, ratio = compare(n, r, dtype, arguments.p, arguments.repeats)
        print(f"{n:>5} {r:>8} {dtype:>8} {products:>12.1f} {iteration:>13.1f} {ratio:>6.2f}")


if __name__ == "__main__":
    main()
