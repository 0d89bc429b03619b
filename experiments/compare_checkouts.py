"""Compare the fits of two checkouts of this repository on one machine, bit for bit.

A refactoring has to leave every fit as it is. Each fit below runs in a process of its own with one checkout's sources,
and `components_`, `atom_error_`, `n_passes_` and the peak memory of the process are compared:

    git worktree add ../before main~1
    python experiments/compare_checkouts.py ../before .

Bits depend on the processor and on the libraries, so they are compared between two checkouts here and never stored.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

warnings.simplefilter("ignore")


def _make(n_samples: int, n_features: int, **how: Any) -> Any:
    from elldict.datasets import make_bernoulli_gaussian

    return make_bernoulli_gaussian(n_samples, n_features, random_state=0, **how)[0]


def _model(**how: Any) -> Any:
    from elldict import LpDictionaryLearning

    return LpDictionaryLearning(**{"random_state": 0, **how})


def _noisy() -> Any:
    return _make(20_000, 24, density=0.3, noise_std=0.2)


def fit_default(folder: Path) -> Any:
    return _model().fit(_noisy())


def fit_paper(folder: Path) -> Any:
    return _model(solver="power", refine=None).fit(_noisy())


def fit_exact(folder: Path) -> Any:
    return _model().fit(_make(10_000, 32, density=0.3))


def fit_whitened(folder: Path) -> Any:
    mixing = np.random.default_rng(1).standard_normal((16, 16))
    return _model(center=True, whiten=True).fit(_make(12_000, 16, density=0.3) @ mixing + 3.0)


def fit_fewer_atoms(folder: Path) -> Any:
    return _model(n_components=9).fit(_noisy())


def fit_corrupted(folder: Path) -> Any:
    X = _make(8000, 20, density=0.2)
    rng = np.random.default_rng(2)
    hits = rng.random(X.shape) < 0.05
    return _model().fit(X + hits * rng.standard_normal(X.shape))


def fit_few_samples(folder: Path) -> Any:
    return _model().fit(_make(300, 20, density=0.3))


def fit_float32(folder: Path) -> Any:
    return _model().fit(_noisy().astype(np.float32))


def fit_laplace(folder: Path) -> Any:
    return _model(p=(3, 2.5)).fit(np.random.default_rng(3).laplace(size=(6000, 12)))


def fit_several_starts(folder: Path) -> Any:
    return _model(n_init=3).fit(_make(30_000, 16, density=0.3, noise_std=0.4))


def fit_rank_deficient(folder: Path) -> Any:
    X = _make(5000, 10, density=0.3)
    return _model().fit(np.hstack([X, X[:, :2]]))


def fit_npy(folder: Path) -> Any:
    np.save(folder / "samples.npy", _noisy())
    return _model().fit(folder / "samples.npy")


def fit_parquet(folder: Path) -> Any:
    import pyarrow
    import pyarrow.parquet

    X = _noisy()
    columns = {f"x{k}": X[:, k] for k in range(X.shape[1])}
    pyarrow.parquet.write_table(pyarrow.table(columns), folder / "samples.parquet", row_group_size=3000)
    return _model().fit(folder / "samples.parquet")


def fit_zarr(folder: Path) -> Any:
    import zarr

    X = _noisy()
    stored = zarr.create_array(str(folder / "samples.zarr"), shape=X.shape, chunks=(1500, 24), dtype=X.dtype)
    stored[:] = X
    return _model().fit(folder / "samples.zarr")


def fit_dask(folder: Path) -> Any:
    import dask.array

    return _model().fit(dask.array.from_array(_noisy(), chunks=(3001, 24)))


def fit_in_batches(folder: Path) -> Any:
    model = _model(half_life=8000)
    for batch in np.array_split(_noisy(), 40):
        model.partial_fit(batch)
    return model


def fit_resumed(folder: Path) -> Any:
    class InterruptionError(Exception):
        pass

    def interrupt(iteration: Any) -> None:
        if iteration.iteration == 12:
            raise InterruptionError

    X = _noisy()
    checkpoint = folder / "checkpoint"
    with contextlib.suppress(InterruptionError):
        _model(solver="power").fit(X, callback=interrupt, checkpoint=checkpoint)
    return _model(solver="power").fit(X, checkpoint=checkpoint, resume=True)


def fit_torch(folder: Path) -> Any:
    import torch

    torch.set_num_threads(1)
    return _model().fit(torch.asarray(_noisy()))


FITS: dict[str, Callable[[Path], Any]] = {
    name.removeprefix("fit_"): found for name, found in list(globals().items()) if name.startswith("fit_")
}


def run_here(name: str, out: Path) -> None:
    """Run one fit with the sources on the path, and write down what is compared."""
    with tempfile.TemporaryDirectory() as folder:
        model = FITS[name](Path(folder))
    status = Path("/proc/self/status")  # Linux only; elsewhere memory is not compared
    peak = 0
    if status.exists():
        peak = next(int(line.split()[1]) for line in status.read_text().splitlines() if line.startswith("VmHWM"))
    facts = {"passes": model.n_passes_, "iterations": model.n_iter_, "status": model.status_, "peak_kb": peak}
    np.savez(
        out,
        components=np.asarray(model.components_),
        atom_error=np.asarray(model.atom_error_),
        facts=np.array(json.dumps(facts)),
    )


def run_in(checkout: Path, name: str, out: Path) -> dict[str, Any] | None:
    """The same in a process of its own with the sources of a checkout; None if it fails, as without torch."""
    environment = {**os.environ, "PYTHONPATH": str(checkout.resolve() / "src"), "PYTHONHASHSEED": "0"}
    command = [sys.executable, __file__, "--run", name, "--out", str(out)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        print(f"{name}: failed in {checkout}: {done.stderr.strip().splitlines()[-1]}")
        return None
    with np.load(out) as found:
        arrays = {"components": found["components"], "atom_error": found["atom_error"]}
        return {**json.loads(str(found["facts"])), **arrays}


def compare(name: str, before: dict[str, Any], after: dict[str, Any]) -> bool:
    """Print how two fits differ; True if they do not."""
    same = all(before[key].tobytes() == after[key].tobytes() for key in ("components", "atom_error"))
    same_passes = before["passes"] == after["passes"]
    memory = after["peak_kb"] / before["peak_kb"] if before["peak_kb"] else 1.0
    found = "same bits" if same else _describe_difference(before, after)
    passes = f"{after['passes']:.4g} passes" + ("" if same_passes else f" (before {before['passes']:.4g})")
    words = (
        ""
        if before["status"] == after["status"]
        else f"\n    status before: {before['status']}\n    now: {after['status']}"
    )
    print(f"{name:16s} {found}, {passes}, memory x {memory:.3f}{words}")
    return same and same_passes


def _describe_difference(before: dict[str, Any], after: dict[str, Any]) -> str:
    if before["components"].shape != after["components"].shape:
        return f"OTHER SHAPE {after['components'].shape}"
    apart = float(np.max(np.abs(before["components"] - after["components"])))
    with np.errstate(invalid="ignore", divide="ignore"):
        errors = float(np.nanmean(after["atom_error"]) / np.nanmean(before["atom_error"]))
    bar = float(np.sqrt(np.nanmean(before["atom_error"]) / 2))
    return f"OTHER BITS: components differ by {apart:.2g} (angle of the error bar {bar:.2g}), error bars x {errors:.4g}"


def main() -> int:
    """Compare two checkouts; exit code 1 if any fit differs."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("before", type=Path, nargs="?")
    parser.add_argument("after", type=Path, nargs="?", default=Path())
    parser.add_argument("--only", nargs="*", choices=FITS, help="fits to compare; all if not given")
    parser.add_argument("--run", help=argparse.SUPPRESS)
    parser.add_argument("--out", type=Path, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.run:
        run_here(asked.run, asked.out)
        return 0
    if asked.before is None:
        parser.error("name the checkout to compare with")
    n_different = 0
    with tempfile.TemporaryDirectory() as folder:
        for name in asked.only or FITS:
            found = [run_in(checkout, name, Path(folder) / "fit.npz") for checkout in (asked.before, asked.after)]
            before, after = found
            if before is None or after is None:
                n_different += (before is None) != (after is None)
            else:
                n_different += not compare(name, before, after)
    print(f"{n_different} of {len(asked.only or FITS)} fits differ" if n_different else "all fits are the same")
    return int(n_different > 0)


if __name__ == "__main__":
    sys.exit(main())
