"""What one iteration costs beside its two bare matrix products, measured in turns; and how it grows with n, r and p.

python -m experiments.benchmarks.speed.iteration            # some sizes
python -m experiments.benchmarks.speed.iteration --growth   # along n, r and p, about a minute; stores it for the report
"""

from __future__ import annotations

import argparse
import os
import platform
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from threadpoolctl import threadpool_limits

from elldict._old.backend.threads import one_blas_thread
from elldict._old.data.dataset import ArrayDataset
from elldict._old.data.statistics import compute_statistics
from elldict._old.data.whitening import Whitening
from elldict._old.solver.directions import power_step, random_orthonormal
from elldict._old.solver.evaluate import evaluate
from elldict._old.solver.objective import Lp, Quantities
from elldict.datasets import make_bernoulli_gaussian
from experiments import BENCHMARK_RESULTS
from experiments.harness.machine import made_by
from experiments.harness.store import DONE, Record, Store

RESULTS = BENCHMARK_RESULTS / "growth.jsonl"
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
    samples = ArrayDataset(X)
    frame = Whitening.of(compute_statistics(samples, center=False, precise=False), center=False, whiten=False)
    A = random_orthonormal(n, n, np.random.default_rng(0))
    narrow = A.astype(dtype)
    codes = np.empty((r, n), dtype)

    def bare() -> None:
        np.matmul(X, narrow.T, out=codes)
        codes.T @ X

    def iteration() -> None:
        with one_blas_thread():  # as in a fit: the cores share the tiles out among themselves
            power_step(evaluate(samples, frame, Lp(p), A, Quantities.GRADIENT, dtype), A)

    for warm_up in (bare, iteration):
        warm_up()
    pairs = [(seconds(bare), rested(iteration)) for _ in range(repeats)]
    products, iterations = (1e3 * statistics.median(column) for column in zip(*pairs, strict=True))
    return products, iterations, statistics.median(b / a for a, b in pairs)


# --- growth -----------------------------------------------------------------------------------------------------------

BASE_N, BASE_R, BASE_P = 100, 40_000, 3.0
FEATURES = (8, 16, 32, 64, 100, 200, 400)
SAMPLES = (1_000, 4_000, 16_000, 40_000, 160_000, 400_000)
EXPONENTS = (2.5, 3.0, 3.5, 4.0, 5.0, 6.0)


@dataclass(frozen=True)
class Point:
    """One setting, on one of the three lines through the middle."""

    along: str
    n: int = BASE_N
    r: int = BASE_R
    p: float = BASE_P

    @property
    def flops(self) -> float:
        """Of the two products."""
        return 4.0 * self.n**2 * self.r


def points() -> Iterator[Point]:
    """Each of n, r and p varied with the others held."""
    yield from (Point("n", n=n) for n in FEATURES)
    yield from (Point("r", r=r) for r in SAMPLES)
    yield from (Point("p", p=p) for p in EXPONENTS)


def measure_growth(listed: list[Point], repeats: int, threads: int, path: Path = RESULTS) -> None:
    """Measure every point, and store it at once."""
    store, machine = Store(path, history=True), made_by(threads, ())
    print(f"{'along':>5} {'n':>4} {'r':>7} {'p':>4} {'products ms':>12} {'iteration ms':>13} {'ratio':>6}")
    with store.writing(), threadpool_limits(threads):
        for point in listed:
            products, iteration, ratio = compare(point.n, point.r, "float32", point.p, repeats)
            measured = {"products_ms": products, "iteration_ms": iteration, "ratio": ratio, "flops": point.flops}
            store.add(Record(asdict(point) | {"made_by": machine}, DONE, measured, "", {}))
            where = f"{point.along:>5} {point.n:>4} {point.r:>7} {point.p:>4g}"
            print(f"{where} {products:>12.2f} {iteration:>13.2f} {ratio:>6.2f}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--p", type=float, default=3.0)
    parser.add_argument("--repeats", type=int, help="default: 15, and 7 with --growth")
    parser.add_argument("--threads", type=int, default=2, help="of the products, with --growth")
    parser.add_argument("--growth", action="store_true", help="along n, r and p")
    arguments = parser.parse_args()
    if arguments.growth:
        measure_growth(list(points()), arguments.repeats or 7, arguments.threads)
        return
    print(f"{platform.machine()}, {os.cpu_count()} cores, numpy {np.__version__}, p={arguments.p:g}")
    print(f"{'n':>5} {'r':>8} {'dtype':>8} {'products ms':>12} {'iteration ms':>13} {'ratio':>6}")
    for n, r, dtype in SETTINGS:
        products, iteration, ratio = compare(n, r, dtype, arguments.p, arguments.repeats or 15)
        print(f"{n:>5} {r:>8} {dtype:>8} {products:>12.1f} {iteration:>13.1f} {ratio:>6.2f}")


if __name__ == "__main__":
    main()
