"""Rotation beside R's GPArotation, on the examples that it comes with: values of the criterion, start by start.

python -m experiments.benchmarks.gparotation             # needs Rscript and GPArotation (Debian: r-cran-gparotation)
python -m experiments.benchmarks.gparotation --stored    # the table of what is stored in results/gparotation.jsonl

Loadings before rotation are Harman8 (eight physical variables), box20 and box26 (Thurstone's boxes), and factors that
factanal of R finds in NetherlandsTV and ability.cov. Each start is a matrix that both begin with: no rotation, then
random ones. GPArotation runs to a projected gradient of 1e-7, beyond its default of 1e-5, and elldict with
tol=1e-6, below its default. Loadings are stored with the
results, so that a test compares without R.
"""

from __future__ import annotations

import argparse
import itertools
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from elldict.rotation.rotator import rotate
from elldict.solver.starts import draw_start
from experiments import BENCHMARK_RESULTS
from experiments.harness.store import DONE, Record, Store

RESULTS = BENCHMARK_RESULTS / "gparotation.jsonl"
SCRIPT = Path(__file__).with_suffix(".R")
N_STARTS = 10
CRITERIA = ("varimax", "quartimax")
Matrix = NDArray[np.float64]


def make_starts(k: int) -> list[Matrix]:
    """No rotation, then random ones (k, k)."""
    rng = np.random.default_rng(0)
    return [np.eye(k), *(draw_start(k, k, rng) for _ in range(N_STARTS - 1))]


def normalise(L: Matrix) -> Matrix:
    """Rows of length one."""
    return np.asarray(L / np.linalg.norm(L, axis=1, keepdims=True))


def measure(Z: Matrix, criterion: str, *, normalize: bool) -> float:
    """Value of the criterion of rotated loadings (p, k), as `elldict.rotate` has it."""
    Z = normalise(Z) if normalize else Z
    centre = np.sum(np.sum(Z**2, axis=0) ** 2) / len(Z) if criterion == "varimax" else 0.0
    return float(np.sum(Z**4) - centre)


def rotate_from(L: Matrix, start: Matrix, criterion: str, *, normalize: bool) -> float:
    """Value that elldict finds from this start; measured on the loadings it returns."""
    found = rotate(L @ start, criterion, normalize=normalize, n_init=1, tol=1e-6, standard_errors=False)
    return measure(found.loadings, criterion, normalize=normalize)


def call_r(folder: Path, lines: list[str]) -> list[str]:
    """Run the R script; return versions of R and GPArotation."""
    try:
        done = subprocess.run(
            ["Rscript", "--vanilla", str(SCRIPT), str(folder)],
            input="".join(f"{line}\n" for line in lines),
            capture_output=True,
            text=True,
            check=False,
        )
    except FileNotFoundError:
        raise SystemExit("Rscript was not found: install R and GPArotation (Debian: r-cran-gparotation).") from None
    if done.returncode:
        raise SystemExit(f"Rscript failed ({done.returncode}): {done.stderr.strip()}")
    return done.stdout.splitlines()[-2:]


def read_csv(path: Path) -> Matrix:
    return np.loadtxt(path, delimiter=",", ndmin=2)


def run(store: Store) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        call_r(folder, [])
        examples = {path.stem: read_csv(path) for path in sorted(folder.glob("*.csv"))}
        cells: list[dict[str, Any]] = []
        lines: list[str] = []
        for example, L in examples.items():
            k = L.shape[1]
            for number, start in enumerate(make_starts(k)):
                np.savetxt(folder / f"start{k}-{number}.csv", start, delimiter=",", fmt="%.17g")
                for criterion, normalize in itertools.product(CRITERIA, (False, True)):
                    cell: dict[str, Any] = {"loadings": example, "criterion": criterion, "normalize": normalize}
                    files = f"{example}.csv start{k}-{number}.csv"
                    lines.append(f"{files} {criterion} {int(normalize)} {len(lines)}.out")
                    cells.append(cell | {"start": number})
        versions = call_r(folder, lines)
        for number, cell in enumerate(cells):
            Z = read_csv(folder / f"{number}.out")
            value = measure(Z, cell["criterion"], normalize=cell["normalize"])
            L = examples[cell["loadings"]]
            values = {"theirs": value, "unrotated": L.tolist()} if cell["start"] == 0 else {"theirs": value}
            store.add(Record(cell, DONE, values, "", {"made_by": versions}))


def read_stored(store: Store) -> list[tuple[dict[str, Any], Matrix, float]]:
    """Cells, loadings before rotation, and the value that GPArotation found."""
    rows = [record.row for record in store.records.values()]
    loadings = {row["loadings"]: np.array(row["unrotated"]) for row in rows if row["start"] == 0}
    return [(row, loadings[row["loadings"]], row["theirs"]) for row in rows]


def compare(row: dict[str, Any], L: Matrix) -> float:
    """What elldict finds where GPArotation began."""
    start = make_starts(L.shape[1])[row["start"]]
    return rotate_from(L, start, row["criterion"], normalize=row["normalize"])


def print_rows(store: Store) -> None:
    groups: dict[tuple[str, str, bool], list[float]] = {}
    for row, L, theirs in read_stored(store):
        difference = compare(row, L) - theirs
        groups.setdefault((row["loadings"], row["criterion"], row["normalize"]), []).append(difference)
    print("| loadings | criterion | normalised | starts | least difference | largest |")
    print("| --- " * 6 + "|")
    for (name, criterion, normalize), found in sorted(groups.items()):
        setting = f"{name} | {criterion} | {'yes' if normalize else 'no'} | {len(found)}"
        print(f"| {setting} | {min(found):.1e} | {max(found):.1e} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--stored", action="store_true", help="run R no more, compare with what is stored")
    options = parser.parse_args()
    store = Store(RESULTS)
    if not options.stored:
        with store.writing():
            run(store)
    print_rows(store)


if __name__ == "__main__":
    main()
