"""Fits to a large .npy file: passes, peak memory, and time compared with samples in memory.

python -m experiments.benchmarks.files                  # 1 GB in the folder for temporary files; 2 minutes
python -m experiments.benchmarks.files --long           # also 12 GB, which are not loaded for comparison

A process of its own fits the file, on all cores; its peak memory is the resident one, with Python and its libraries.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from elldict import LpDictionaryLearning
from elldict.metrics import recovery_error
from elldict.theory import cramer_rao_bound
from experiments import ROOT
from experiments.benchmarks import study
from experiments.benchmarks.study import Cell, Matrix, Row, Study

N_FEATURES, DENSITY, NOISE = 100, 0.3, 0.2
BLOCK = 100_000
MOST_LOADED = 3_000_000  # samples that are also fitted in memory


def make_dictionary() -> Matrix:
    """Draw the true dictionary."""
    return study.draw_rotation(N_FEATURES, np.random.default_rng(1)).astype(np.float32)


def write_samples(path: Path, n_samples: int) -> None:
    """Write samples block by block."""
    rng, dictionary = np.random.default_rng(0), make_dictionary()
    with path.open("wb") as stream:
        header = {"shape": (n_samples, N_FEATURES), "fortran_order": False, "descr": "<f4"}
        np.lib.format.write_array_header_1_0(stream, header)
        for start in range(0, n_samples, BLOCK):
            shape = (min(BLOCK, n_samples - start), N_FEATURES)
            codes = rng.standard_normal(shape, np.float32) * (rng.random(shape, np.float32) < DENSITY)
            stream.write((codes @ dictionary + np.float32(NOISE) * rng.standard_normal(shape, np.float32)).data)


def find_peak_memory() -> float:
    """Find the largest resident memory of this process so far, in MB."""
    lines = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) * 1024 / 1e6


def fit_here(path: str, loads: bool) -> None:
    """Fit a file or its array in this process, and print the result as JSON."""
    before = find_peak_memory()
    X: Any = np.load(path) if loads else path
    began = time.perf_counter()
    model = LpDictionaryLearning(error_bars=False).fit(X)
    seconds = time.perf_counter() - began
    error = float(recovery_error(model.components_, make_dictionary()))
    memory = {"before": before, "peak": find_peak_memory()}
    print(json.dumps({**memory, "seconds": seconds, "passes": model.n_passes_, "error": error}))


def measure(cell: Cell) -> Row:
    """Write a file, and fit it in another process; small files also from memory."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "samples.npy")
        write_samples(path, cell["r"])
        found = {}
        for name in ("file", "memory")[: 2 if cell["r"] <= MOST_LOADED else 1]:
            command = [sys.executable, "-m", "experiments.benchmarks.files", "--fit", str(path), name]
            done = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True)
            found[name] = json.loads(done.stdout)
        return {**found, "bytes": path.stat().st_size}


def tabulate(rows: list[Row]) -> str:
    """Write one line per file."""
    lines = []
    for row in rows:
        here, loaded = row["file"], row.get("memory")
        bound = cramer_rao_bound(n_features=N_FEATURES, n_samples=row["r"], density=DENSITY, noise_std=NOISE)
        size = f"{row['bytes'] / 1e9:.2g} GB, {row['r']} x {N_FEATURES}"
        memory = f"{here['peak']:.0f} MB ({here['before']:.0f} MB before)"
        times = [study.show_time(here["seconds"]), study.show_time(loaded["seconds"]) if loaded else "-"]
        lines.append(
            [size, memory, f"{here['passes']:.1f}", *times, study.show_error(here["error"]), study.show_error(bound)]
        )
    head = ["file", "peak memory", "passes", "time", "time in memory", "error", "Cramér-Rao bound"]
    return study.write_table(head, lines)


CELLS = [{"r": 2_500_000}]
SMALL = [{"r": 20_000}]
STUDY = Study("files", 2, measure, tabulate, CELLS, SMALL, long=[{"r": 30_000_000}])

if __name__ == "__main__":
    if "--fit" in sys.argv:
        fit_here(sys.argv[2], sys.argv[3] == "memory")
    else:
        study.main(STUDY, __doc__)
