"""How close fits come to the statistical limit: l_3, FastICA and the refined answer beside the Cramer-Rao bound.

python -m experiments.benchmarks.limit                     # every table: more than an hour on 2 cores
python -m experiments.benchmarks.limit --small             # n = 32 and below: a quarter of an hour
python -m experiments.benchmarks.limit --rows few basins   # some of them
python -m experiments.benchmarks.limit --plot              # the pictures in docs/images
python -m experiments.benchmarks.limit --stored --plot     # the same from what is stored, running nothing
make bench-limit                               # tables and pictures

Results are kept in results/limit.jsonl, and those of the same version of elldict are not computed again. After a change
of the solver use --fresh.
"""

from __future__ import annotations

import argparse

from experiments.benchmarks.limit import rows
from experiments.benchmarks.limit.fits import Fits, versions
from experiments.benchmarks.limit.tables import print_basins, print_errors, print_few, print_misspecified

ERRORS = {"noiseless": rows.noiseless_rows, "noisy": rows.noisy_rows, "corrupted": rows.corrupted_rows}
COUNTS = ("few", "basins", "misspecified")
FIGURES = ("few-samples", "noise", "corruption")


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--rows", nargs="+", choices=[*ERRORS, *COUNTS, "all"], help="parts of the table (default: all)"
    )
    parser.add_argument("--seeds", type=int, help="seeds of every row (default: as many as each row asks for)")
    parser.add_argument("--small", action="store_true", help="leave out what is larger than n = 32")
    parser.add_argument(
        "--plot", nargs="*", choices=FIGURES, help="draw pictures (default: all three); no tables unless --rows"
    )
    kept = parser.add_mutually_exclusive_group()
    kept.add_argument("--fresh", action="store_true", help="compute again what is stored")
    kept.add_argument("--stored", action="store_true", help="compute nothing, take what is stored, of any version")
    return parser.parse_args()


def print_tables(fits: Fits, parts: list[str], seeds: int | None, *, small: bool) -> None:
    sizes = [rows.SMALL] if small else [rows.SMALL, rows.LARGE]
    chosen = [row for name, listed in ERRORS.items() if name in parts for row in listed(sizes)]
    if chosen:
        print_errors(fits, chosen, seeds)
    if "few" in parts:
        print_few(fits, seeds, small=small)
    if "basins" in parts:
        print_basins(fits, seeds)
    if "misspecified" in parts:
        print_misspecified(fits, seeds, small=small)


def main() -> None:
    arguments = parsed()
    fits = Fits(fresh=arguments.fresh, stored_only=arguments.stored)
    made_by = "any version" if arguments.stored else ", ".join(f"{name} {what}" for name, what in versions().items())
    print(made_by)
    parts = arguments.rows or ([] if arguments.plot is not None else ["all"])
    with fits.writing():
        if parts:
            chosen = [*ERRORS, *COUNTS] if "all" in parts else parts
            print_tables(fits, chosen, arguments.seeds, small=arguments.small)
        if arguments.plot is not None:
            from experiments.benchmarks.limit.plot import draw  # noqa: PLC0415  tables need no matplotlib

            draw(fits, arguments.plot or FIGURES, arguments.seeds, small=arguments.small)


if __name__ == "__main__":
    main()
