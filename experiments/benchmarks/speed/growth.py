"""How the time of one iteration grows with n, r and p, beside the 4 n^2 r operations of its two products.

python -m experiments.benchmarks.speed.growth           # about a minute; stores in results/growth.jsonl
python -m experiments.benchmarks.speed.report           # the picture
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from threadpoolctl import threadpool_limits

from experiments.benchmarks.speed.iteration import compare
from experiments.harness import lines as store
from experiments.harness.machine import made_by

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


def measure_growth(listed: list[Point], repeats: int, threads: int, path: Path = store.GROWTH) -> None:
    """Measure every point, and store it at once."""
    machine = made_by(threads, ())
    print(f"{'along':>5} {'n':>4} {'r':>7} {'p':>4} {'products ms':>12} {'iteration ms':>13} {'ratio':>6}")
    for point in listed:
        with threadpool_limits(threads):
            products, iteration, ratio = compare(point.n, point.r, "float32", point.p, repeats)
        measured = {"products_ms": products, "iteration_ms": iteration, "ratio": ratio, "flops": point.flops}
        store.append(path, asdict(point) | measured | {"made_by": machine})
        print(
            f"{point.along:>5} {point.n:>4} {point.r:>7} {point.p:>4g} {products:>12.2f} {iteration:>13.2f} "
            f"{ratio:>6.2f}",
            flush=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--threads", type=int, default=2)
    arguments = parser.parse_args()
    measure_growth(list(points()), arguments.repeats, arguments.threads)


if __name__ == "__main__":
    main()
