"""What all studies share: measurements of one version of elldict, stored one by one, and written as tables.

A study lists cells; each determines one measurement. A cell is measured again when the solver has changed.
"""

from __future__ import annotations

import argparse
import hashlib
import sys
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

import elldict
from elldict.datasets import make_bernoulli_gaussian
from experiments import BENCHMARK_RESULTS, ROOT
from experiments.harness.machine import made_by
from experiments.harness.store import DONE, FAILED, Record, Store, key_of
from experiments.peers import MissingPackageError

Matrix = NDArray[Any]
Cell = dict[str, Any]
Row = dict[str, Any]
"""A cell, the values that were measured, and how they were made."""

SOURCES = ("samples", "solver", "errors", "atoms.py", "fit.py")
"""Parts of the package on which errors and times of fits depend, besides the compiled kernels."""

EXACT = 1e-9
"""Largest error of atoms that are exact up to rounding in float64."""


@cache
def hash_core() -> str:
    """Compute a hash of the sources of samples, solver and errors."""
    package, digest = Path(elldict.__file__).parent, hashlib.sha256()
    paths = [path for name in SOURCES for path in (package / name).rglob("*.py")]
    paths += [package / name for name in SOURCES if name.endswith(".py")]
    paths += [path for path in (ROOT / "native").glob("*") if path.suffix in (".cpp", ".h")]
    for path in sorted(paths):
        digest.update(path.name.encode() + path.read_bytes())
    return digest.hexdigest()[:12]


@dataclass(frozen=True)
class Study:
    """Cells to measure, how to measure one, and the table of the results."""

    name: str
    minutes: float  # of all cells that are not long, on one core
    measure: Callable[[Cell], Row]
    tabulate: Callable[[list[Row]], str]  # of rows without errors
    cells: Sequence[Cell]
    small: Sequence[Cell]  # take seconds, and are not stored
    long: Sequence[Cell] = ()  # take hours, or gigabytes of disk
    packages: Sequence[str] = ()  # whose versions are stored, besides those of NumPy and SciPy
    folder: str = "benchmarks"  # of the module

    @property
    def path(self) -> Path:
        """File of the results."""
        return BENCHMARK_RESULTS / f"{self.name}.jsonl"

    @property
    def command(self) -> str:
        """Command that measures what is missing."""
        return f"python -m experiments.{self.folder}.{self.name}"

    def read(self) -> list[Row]:
        """Read the stored rows without errors, in the order of the cells."""
        return list_rows(Store(self.path), (*self.cells, *self.long))

    def list_missing(self) -> list[Cell]:
        """List the cells without a result of the present version; long ones may be missing."""
        records = Store(self.path).records
        return [cell for cell in self.cells if not is_current(records.get(key_of(cell)))]


def is_current(record: Record | None) -> bool:
    """Return whether a cell was measured without an error, with the present version of the solver."""
    return record is not None and record.status == DONE and record.made.get("core") == hash_core()


def run(study: Study, cells: Sequence[Cell], path: Path, *, fresh: bool = False) -> list[Row]:
    """Measure cells on one thread of BLAS and store each at once; return the rows of all that have a result."""
    store, machine = Store(path), made_by(1, study.packages)
    with store.writing(), threadpool_limits(1):
        for number, cell in enumerate(cells, start=1):
            if is_current(store.records.get(key_of(cell))) and not fresh:
                continue
            print(f"[{number}/{len(cells)}] {describe(cell)}: ", end="", flush=True)
            began, values, reason = time.perf_counter(), {}, ""
            try:
                values = {name: to_plain(value) for name, value in study.measure(cell).items()}
            except MissingPackageError as error:
                print(f"left out, {error}", flush=True)
                continue
            except Exception as error:  # an error is a result; other cells are still measured
                reason = f"{type(error).__name__}: {error}"[:300]
            took = time.perf_counter() - began
            print(reason or f"{took:.3g} s", flush=True)
            made = {"core": hash_core(), "took": round(took, 3), "made_by": machine}
            store.add(Record(cell, FAILED if reason else DONE, values, reason, made))
    return list_rows(store, cells)


def list_rows(store: Store, cells: Sequence[Cell]) -> list[Row]:
    """List the stored rows without errors, in the order of the cells."""
    records = [store.records.get(key_of(cell)) for cell in cells]
    return [record.row for record in records if record is not None and record.status == DONE]


def to_plain(value: Any) -> Any:
    """Convert a value to one of JSON; numbers that are not finite are None."""
    if isinstance(value, (list, tuple, np.ndarray)):
        return [to_plain(item) for item in value]
    if isinstance(value, dict):
        return {name: to_plain(item) for name, item in value.items()}
    value = value.item() if isinstance(value, np.generic) else value
    return None if isinstance(value, float) and not np.isfinite(value) else value


def describe(cell: Cell) -> str:
    """Write a cell in one line."""
    return ", ".join(f"{name} {value}" for name, value in cell.items())


def main(study: Study, text: str | None, arguments: Sequence[str] | None = None) -> None:
    """Measure what is missing, and print the table."""
    parser = argparse.ArgumentParser(description=text, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--small", action="store_true", help="the smallest form, which takes seconds; not stored")
    parser.add_argument("--long", action="store_true", help="also what takes hours, or gigabytes of disk")
    parser.add_argument("--only", nargs="+", default=[""], metavar="TEXT", help="cells that contain one of these")
    parser.add_argument("--fresh", action="store_true", help="measure again what is stored")
    parser.add_argument("--stored", action="store_true", help="measure nothing, print the stored table")
    options = parser.parse_args(arguments)
    cells = study.small if options.small else (*study.cells, *(study.long if options.long else ()))
    cells = [cell for cell in cells if any(part in describe(cell) for part in options.only)]
    path = ROOT / "build" / "small" / study.path.name if options.small else study.path
    try:
        done = study.read() if options.stored else run(study, cells, path, fresh=options.fresh or options.small)
    except KeyboardInterrupt:
        sys.exit("\nInterrupted: finished measurements are stored; the same command resumes.")
    print("\n" + study.tabulate(done))
    if not options.stored and len(done) < len(cells):
        sys.exit(f"{len(cells) - len(done)} of {len(cells)} measurements failed, or were left out.")


# Helpers of measurements


@contextmanager
def no_warnings() -> Iterator[None]:
    """Ignore warnings: studies choose data that fits may warn of."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def time_it(job: Callable[[], Any]) -> tuple[Any, float]:
    """Call a function without warnings; return its result and the seconds it took."""
    with no_warnings():
        began = time.perf_counter()
        result = job()
        return result, time.perf_counter() - began


def draw_model(cell: Cell, seed: int = 0, density: float = 0.3, dtype: str = "float32") -> tuple[Matrix, Matrix]:
    """Draw r samples of Bernoulli-Gaussian codes in an orthogonal dictionary (n, n), and return both."""
    density, noise, corruption = cell.get("density", density), cell.get("noise", 0.0), cell.get("corruption", 0.0)
    options: Any = {"density": density, "noise_std": noise, "corruption": corruption, "dtype": dtype}
    return make_bernoulli_gaussian(cell["r"], cell["n"], random_state=seed, **options)[:2]


def make_orthonormal(rows: Any) -> Matrix:
    """Compute the nearest matrix with orthonormal rows."""
    U, _, V = np.linalg.svd(np.asarray(rows, dtype=np.float64), full_matrices=False)
    return np.asarray(U @ V)


def draw_rotation(n: int, rng: np.random.Generator) -> Matrix:
    """Draw a random orthogonal matrix (n, n)."""
    return np.asarray(np.linalg.qr(rng.standard_normal((n, n)))[0])


# Tables


def write_table(head: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    """Write a table in Markdown."""
    return "".join(f"| {' | '.join(cells)} |\n" for cells in [head, ["---"] * len(head), *lines])


def group(rows: Iterable[Row], *names: str) -> dict[tuple[Any, ...], list[Row]]:
    """Group rows by their values of some names, in the order of the rows."""
    found: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        found.setdefault(tuple(row.get(name) for name in names), []).append(row)
    return found


def show_time(seconds: float) -> str:
    """Write seconds or milliseconds with two digits."""
    if seconds < 0.0995:
        return f"{1e3 * seconds:.2g} ms"
    return f"{seconds:.2g} s" if seconds < 9.95 else f"{seconds:.0f} s"


def show_error(error: float | None, exact: float = EXACT) -> str:
    """Write an error 1 - cos^4 in per cent."""
    if error is None:
        return "-"
    return "exact" if error < exact else f"{100 * error:.3g} %"


def show_share(share: float | None) -> str:
    """Write a fraction in per cent."""
    return "-" if share is None else f"{100 * share:.0f} %"
