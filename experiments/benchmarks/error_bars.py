"""Estimated errors of fits compared with true errors, on data sets with known atoms, many of them difficult.

python -m experiments.benchmarks.error_bars                   # 549 data sets, 10 minutes
python -m experiments.benchmarks.error_bars --only serial

Aims: without a warning, 95 % of the estimates are within a factor of two of the true error, and none is below a third
of it; with a warning, 95 % are at least half of it; no fit claims to be exact that is not. The true error of one data
set varies around its mean: by 27 % for n = 8 (a mean of 28 squared angles), by 6 % for n = 32.
"""

from __future__ import annotations

import warnings
import zlib
from typing import Any

import numpy as np

from elldict import LpDictionaryLearning, LpICA
from elldict.metrics import match_atoms
from experiments.benchmarks.study import EXACT, Cell, Row, Study, describe, group, main, show_share, write_table
from experiments.campaign.data_sets import KINDS

SIZES = ((8, 2000), (16, 4000), (32, 10_000), (16, 20_000), (8, 400), (24, 1500))  # n and r, taken in turn
FEW = ((5, 100), (12, 240), (32, 640), (5, 300), (12, 720), (32, 1920))  # for few samples per direction
REPEATS = 3
FALSE_EXACT = 1e-6  # true error above which a fit must not claim to be exact


def list_cells() -> list[Cell]:
    """List all data sets; those of a kind go through several sizes."""
    cells = []
    for name, kind in KINDS.items():
        few = name.startswith("few")
        repeats = 6 * REPEATS if few else REPEATS
        settings = [setting for setting in kind.settings for _ in range(repeats)]
        for number, setting in enumerate(settings):
            n, r = (FEW if few else SIZES)[number % 6 if few else (number + number // len(SIZES)) % len(SIZES)]
            cells.append({"kind": name, **setting, "n": n, "r": r, "seed": number % repeats})
    return cells


def measure(cell: Cell) -> Row:
    """Draw, fit, and compare the estimated error with the true one."""
    kind = KINDS[cell["kind"]]
    setting = {name: value for name, value in cell.items() if name not in ("kind", "n", "r", "seed")}
    rng = np.random.default_rng([cell["seed"], zlib.crc32(describe(cell).encode())])
    X, M = kind.draw(rng, cell["n"], cell["r"], **setting)
    model: Any = LpICA(M.shape[1]) if kind.is_mixture else LpDictionaryLearning()
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        model.fit(X)
    known = np.isfinite(model.atom_error_)  # without estimates, the columns are arbitrary
    columns = model.mixing_[:, known] if np.any(known) else model.mixing_
    true = max(1 - float(np.mean(match_atoms(columns.T, M.T).cosines ** 4)), 0.0)
    return {
        "true": true,
        "stated": float(np.mean(model.atom_error_[known])) if np.any(known) else None,
        "warnings": sorted({warning.category.__name__ for warning in found}),
    }


def find_ratio(row: Row) -> float:
    """Compute the estimated error over the true one, both at least rounding; 0 without an estimate."""
    return 0.0 if row["stated"] is None else float(max(row["stated"], EXACT) / max(row["true"], EXACT))


def is_false_exact(row: Row) -> bool:
    """Return whether a fit claims to be exact, and is not."""
    return row["stated"] is not None and row["stated"] < EXACT and row["true"] > FALSE_EXACT


def summarise(rows: list[Row]) -> list[str]:
    """Count fits and ratios: cells of one line of the table."""
    quiet = np.array([find_ratio(row) for row in rows if not row["warnings"]])
    warned = np.array([find_ratio(row) for row in rows if row["warnings"]])
    within = float(np.mean((quiet >= 0.5) & (quiet <= 2))) if len(quiet) else None
    enough = float(np.mean(warned >= 0.5)) if len(warned) else None
    low = str(np.sum(quiet < 1 / 3)) if len(quiet) else "-"
    counts = (str(len(rows)), show_share(within), low, str(len(warned)), show_share(enough))
    return [*counts, str(sum(map(is_false_exact, rows)))]


def tabulate(rows: list[Row]) -> str:
    """Write one line per kind, and one for all."""
    lines = [[name, *summarise(found)] for (name,), found in group(rows, "kind").items()]
    head = [
        "kind",
        "data sets",
        "no warning: within a factor of two",
        "no warning: below a third",
        "with a warning",
        "warning: at least half",
        "falsely exact",
    ]
    return write_table(head, [*lines, ["all", *summarise(rows)]])


CELLS = list_cells()
SMALL = [cell for cell in list_cells() if cell["seed"] == 0 and cell["n"] == 8 and cell["r"] == 2000]
STUDY = Study("error_bars", 10, measure, tabulate, CELLS, SMALL)

if __name__ == "__main__":
    main(STUDY, __doc__)
