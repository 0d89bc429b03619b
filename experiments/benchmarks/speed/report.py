"""Tables and pictures of the side-by-side benchmark, from what is stored; runs no fit.

python -m experiments.benchmarks.speed.report     # results/README.md, docs/images/bench-curves.png, bench-scaling.png
"""

from __future__ import annotations

import argparse
from pathlib import Path

import matplotlib as mpl

from experiments import BENCHMARK_RESULTS, IMAGES
from experiments.benchmarks.speed.basins import basins_section
from experiments.benchmarks.speed.pictures import DPI, STYLE, curves_figure, growth_figure
from experiments.benchmarks.speed.problems import Problem, problems
from experiments.benchmarks.speed.tables import report
from experiments.benchmarks.speed.times import Row, row_of, stored_rounds


def write_report(listed: list[Problem], results: Path = BENCHMARK_RESULTS, images: Path = IMAGES) -> list[Path]:
    """Write what the stored results are enough for; returns the paths."""
    everything = stored_rounds(listed, results / "bench.jsonl")
    rows = [row for problem in listed if (row := row_of(problem, everything.get(problem.name, [])))]
    page = results / "README.md"
    page.write_text(report(rows, everything, [basins_section(results / "basins.jsonl")]), encoding="utf-8")
    return [page, *_draw(rows, results, images)]


def _draw(rows: list[Row], results: Path, images: Path) -> list[Path]:
    written = []
    with mpl.rc_context(STYLE):
        figures = {"bench-curves": curves_figure(rows), "bench-scaling": growth_figure(results / "growth.jsonl")}
        for name, figure in figures.items():
            if figure is not None:
                path = images / f"{name}.png"
                figure.savefig(path, dpi=DPI, metadata={"Software": None})
                written.append(path)
    return written


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--results", type=Path, default=BENCHMARK_RESULTS, help="folder of the stored results and of the tables"
    )
    parser.add_argument("--images", type=Path, default=IMAGES, help="folder of the pictures")
    arguments = parser.parse_args()
    if not any(arguments.results.glob("*.jsonl")):
        parser.exit(1, "nothing is stored yet: run `make bench` or `make bench-quick` first\n")
    for path in write_report(problems(), arguments.results, arguments.images):
        print(f"{path.name} written")


if __name__ == "__main__":
    main()
