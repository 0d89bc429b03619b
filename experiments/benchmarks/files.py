"""A fit of a file larger than memory should hold, and the rate of a pass over a file beside one over memory.

python -m experiments.benchmarks.files                          # 12 GB in the folder for temporary files: ten minutes
python -m experiments.benchmarks.files --samples 2500000        # 1 GB
python -m experiments.benchmarks.files --folder /data --keep    # elsewhere; the file is left there, and used again

The file is fitted by a process of its own, whose largest resident memory (mapped pages included) is what the system
says of it. Passes over a file that the system has cached and over the same samples in memory are timed in turns.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

import elldict
from elldict import LpDictionaryLearning
from elldict._old.backend.threads import one_blas_thread
from elldict._old.data.dataset import Dataset
from elldict._old.data.statistics import compute_statistics
from elldict._old.data.whitening import Whitening
from elldict._old.solver.directions import random_orthonormal
from elldict._old.solver.evaluate import evaluate
from elldict._old.solver.objective import Lp, Quantities
from elldict.metrics import recovery_error
from elldict.theory import cramer_rao_bound
from experiments import ROOT

N_FEATURES, DENSITY, NOISE_STD = 100, 0.3, 0.2
BLOCK = 100_000
MOST_MEMORY = 700
LEAST_RATE = 0.8


def truth() -> np.ndarray:
    """The hidden atoms."""
    return np.asarray(random_orthonormal(N_FEATURES, N_FEATURES, np.random.default_rng(1)), np.float32)


def make_file(path: Path, n_samples: int) -> None:
    """Write samples, a block at a time."""
    rng, dictionary = np.random.default_rng(0), truth()
    with path.open("wb") as stream:
        header = {"shape": (n_samples, N_FEATURES), "fortran_order": False, "descr": "<f4"}
        np.lib.format.write_array_header_1_0(stream, header)
        for start in range(0, n_samples, BLOCK):
            shape = (min(BLOCK, n_samples - start), N_FEATURES)
            codes = rng.standard_normal(shape, np.float32)
            codes *= rng.random(shape, np.float32) < DENSITY
            rows = codes @ dictionary
            rows += np.float32(NOISE_STD) * rng.standard_normal(shape, np.float32)
            stream.write(rows.data)


@contextmanager
def sample_file(folder: Path, n_samples: int, keep: bool) -> Iterator[Path]:
    """The file of samples, made if it is not there, deleted afterwards unless it is to be kept."""
    path = folder / f"elldict-samples-{n_samples}.npy"
    if not path.exists():
        print(f"writing {path} ({4e-9 * n_samples * N_FEATURES:.3g} GB)", flush=True)
        began = time.perf_counter()
        try:
            make_file(path, n_samples)
        except BaseException:
            path.unlink()
            raise
        print(f"  {time.perf_counter() - began:.0f} s", flush=True)
    try:
        yield path
    finally:
        if not keep:
            path.unlink()


def peak_memory() -> float:
    """Largest resident memory of this process so far, in MB."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) * 1024 / 1e6


def fit_here(path: Path) -> None:
    """Fit the file in this process and print what there is to tell, as JSON."""
    before = peak_memory()
    began = time.perf_counter()
    model = LpDictionaryLearning(random_state=0).fit(path)
    seconds = time.perf_counter() - began
    told = {
        "before": before,
        "peak": peak_memory(),
        "seconds": seconds,
        "passes": model.n_passes_,
        "error": float(recovery_error(model.components_, truth())),
        "expected": float(model.expected_error_),
        "status": model.status_,
    }
    print(json.dumps(told))


def fit_apart(path: Path, n_samples: int) -> None:
    """Fit the file in a process of its own."""
    command = [sys.executable, "-m", "experiments.benchmarks.files", "--fit", str(path.resolve())]
    told = json.loads(subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout)
    bound = cramer_rao_bound(n_features=N_FEATURES, n_samples=n_samples, density=DENSITY, noise_std=NOISE_STD)
    gigabytes, peak, passes = path.stat().st_size / 1e9, told["peak"], told["passes"]
    verdict = "within" if peak <= MOST_MEMORY else "BEYOND"
    print(f"fit of {gigabytes:.3g} GB, {n_samples} samples of {N_FEATURES} features")
    print(f"  resident memory {peak:.0f} MB at most, {verdict} {MOST_MEMORY} ({told['before']:.0f} before the fit)")
    print(f"  {passes:.2f} passes, {told['seconds']:.1f} s, {passes * gigabytes / told['seconds']:.2f} GB/s")
    print(f"  error {told['error']:.3g}, expected {told['expected']:.3g}, at best {bound:.3g}; {told['status']}")


def seconds_of(job: Callable[[], object]) -> float:
    began = time.perf_counter()
    job()
    return time.perf_counter() - began


def compare_rates(path: Path, repeats: int) -> None:
    """Time a pass over the file and one over the same samples in memory, in turns."""
    on_disk, in_memory = elldict.open_samples(path), elldict.open_samples(np.load(path))
    frame = Whitening.of(compute_statistics(in_memory, center=False, precise=False), center=False, whiten=False)
    A = random_orthonormal(N_FEATURES, N_FEATURES, np.random.default_rng(2))

    def a_pass(samples: Dataset) -> Callable[[], object]:
        return lambda: evaluate(samples, frame, Lp(3.0), A, Quantities.GRADIENT, samples.dtype)

    with one_blas_thread():  # as in a fit
        a_pass(on_disk)(), a_pass(in_memory)()
        pairs = [(seconds_of(a_pass(on_disk)), seconds_of(a_pass(in_memory))) for _ in range(repeats)]
    gigabytes = path.stat().st_size / 1e9
    disk, memory = (gigabytes / statistics.median(column) for column in zip(*pairs, strict=True))
    ratio = statistics.median(there / here for here, there in pairs)
    verdict = "at least" if ratio >= LEAST_RATE else "BELOW"
    print(f"a pass over {gigabytes:.3g} GB, cached: {disk:.2f} GB/s from the file, {memory:.2f} GB/s from memory")
    print(f"  ratio {ratio:.2f}, {verdict} {LEAST_RATE} (median of {repeats} pairs, in turns)")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--samples", type=int, default=30_000_000)
    parser.add_argument(
        "--rate-samples", type=int, default=2_500_000, help="samples of the file whose passes are timed"
    )
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()))
    parser.add_argument("--keep", action="store_true", help="do not delete the files")
    parser.add_argument("--fit", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.fit:
        fit_here(arguments.fit)
        return
    print(f"{platform.machine()}, {os.cpu_count()} cores, numpy {np.__version__}, elldict {elldict.__version__}")
    with sample_file(arguments.folder, arguments.samples, arguments.keep) as path:
        fit_apart(path, arguments.samples)
    with sample_file(arguments.folder, min(arguments.samples, arguments.rate_samples), arguments.keep) as path:
        compare_rates(path, arguments.repeats)


if __name__ == "__main__":
    main()
