"""Fits on a graphics card: how long they take, how exact they are, and what peers need. Needs torch and a card.

    python -m experiments.benchmarks.gpu                   # all, about five minutes
    python -m experiments.benchmarks.gpu --parts n400 n100 # some

Times are those of a whole `fit`, from the call until the card is idle, median of several seeds, after a first fit in
which libraries set themselves up and kernels are compiled (stated apart). Samples are on the card unless said.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import time
import warnings
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from elldict import LpDictionaryLearning
from elldict._old.backend.base import Backend
from elldict._old.data.dataset import ArrayDataset
from elldict._old.data.gpu_stream import GpuStreamDataset
from elldict._old.data.whitening import Whitening
from elldict._old.solver.directions import polar, random_orthonormal
from elldict._old.solver.evaluate import evaluate
from elldict._old.solver.objective import Lp, Quantities
from experiments import BENCHMARK_RESULTS
from experiments.harness.machine import made_by
from experiments.harness.store import DONE, Record, Store
from experiments.peers import FastICA

RESULTS = BENCHMARK_RESULTS / "gpu.jsonl"
MOMENTS = Quantities.GRADIENT | Quantities.MOMENTS


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--out", type=Path, default=RESULTS)
    chosen = parser.parse_args()
    store, made = Store(chosen.out, history=True), machine()
    print(json.dumps(made, indent=1), flush=True)
    with store.writing():
        for part in chosen.parts:
            found = PARTS[part]()
            store.add(Record({"part": part, "adapter": FastICA.revision, "made_by": made}, DONE, found, "", {}))
            print(part, json.dumps(found, indent=1), flush=True)
            torch.cuda.empty_cache()


def machine() -> dict[str, Any]:
    query = ["nvidia-smi", "--query-gpu=name,driver_version,memory.total", "--format=csv,noheader"]
    card = subprocess.run(query, capture_output=True, text=True, check=True).stdout.strip()
    made = made_by(torch.get_num_threads(), ["torch", "triton", "cupy-cuda13x"])
    return {"card": card, "cuda": torch.version.cuda, **made}


# --- the card itself --------------------------------------------------------------------------------------------------


def timed(work: Any, repeats: int = 5) -> float:
    """Median seconds of some work, after once."""
    times = []
    for _ in range(repeats + 1):
        torch.cuda.synchronize()
        began = time.perf_counter()
        work()
        torch.cuda.synchronize()
        times.append(time.perf_counter() - began)
    return float(np.median(times[1:]))


def rates() -> dict[str, float]:
    """What the card does at best: products of large matrices, and copies from page-locked memory of the host."""
    size = 16384
    M = torch.randn(size, size, device="cuda")
    before = torch.get_float32_matmul_precision()
    found = {}
    for name, precision in (("float32", "highest"), ("tfloat32", "high")):
        torch.set_float32_matmul_precision(precision)
        found[f"{name}_tflops"] = 2 * size**3 / timed(lambda: M @ M, 3) / 1e12
    torch.set_float32_matmul_precision(before)
    host = torch.empty(2**28, pin_memory=True)
    found["host_to_device_gbs"] = host.nbytes / timed(lambda: host.to("cuda", non_blocking=True)) / 1e9
    return found


# --- fits -------------------------------------------------------------------------------------------------------------


def problem(n: int, r: int, density: float, noise_std: float = 0.0, seed: int = 0) -> tuple[Any, Any]:
    """Bernoulli-Gaussian samples (r, n) on the card in float32, and their dictionary in float64."""
    rng = torch.Generator("cuda").manual_seed(seed)

    def normal(*shape: int, dtype: Any = torch.float32) -> Any:
        return torch.randn(*shape, device="cuda", generator=rng, dtype=dtype)

    dictionary = torch.linalg.qr(normal(n, n, dtype=torch.float64))[0]
    X = torch.empty(r, n, device="cuda")
    for start in range(0, r, 50_000):  # the codes of all samples at once would be as large as they are
        rows = min(50_000, r - start)
        codes = normal(rows, n) * (torch.rand(rows, n, device="cuda", generator=rng) < density)
        X[start : start + rows] = (codes.double() @ dictionary + noise_std * normal(rows, n)).float()
    return X, dictionary


def error_against(dictionary: Any) -> Any:
    """Recovery error of the orthonormal rows nearest to A: fast products leave it a little off."""
    n = len(dictionary)
    return lambda A: 1 - float(torch.sum((polar(A.double()) @ dictionary.T) ** 4)) / n


def fits(X: Any, dictionary: Any, seeds: int, **options: Any) -> dict[str, Any]:
    """Time and error of fits with several seeds."""
    error_of = error_against(dictionary)
    began = time.perf_counter()
    LpDictionaryLearning(random_state=99, **options).fit(X)
    torch.cuda.synchronize()
    first = time.perf_counter() - began
    LpDictionaryLearning(random_state=98, **options).fit(X)
    times, errors, passes, lack = [], [], [], []
    for seed in range(seeds):
        torch.cuda.synchronize()
        began = time.perf_counter()
        model = LpDictionaryLearning(random_state=seed, **options).fit(X)
        torch.cuda.synchronize()
        times.append(1e3 * (time.perf_counter() - began))
        A = model.components_.double()
        errors.append(error_of(A))
        lack.append(float((A @ A.T - torch.eye(len(A), device="cuda")).abs().max()))
        passes.append(model.n_passes_)
    return {
        "options": options,
        "milliseconds": float(np.median(times)),
        "milliseconds_all": times,
        "first_fit_milliseconds": 1e3 * first,
        "error": float(np.median(errors)),
        "largest_error": float(np.max(errors)),
        "passes": float(np.median(passes)),
        "lack_of_orthonormality": float(np.max(lack)),
        "status": model.status_,
    }


def compared(n: int, r: int, density: float, seeds: int, ica_iterations: int) -> dict[str, Any]:
    """l3 and default fits beside the peers."""
    X, dictionary = problem(n, r, density)
    found: dict[str, Any] = {
        "l3": fits(X, dictionary, seeds, refine=None),
        "default": fits(X, dictionary, seeds),
        "power_method": asdict(best_power_method(X, error_against(dictionary), *((150, 3) if r < 10**6 else (70, 1)))),
    }
    if ica_iterations:
        found["fast_ica"] = asdict(fast_ica(X, dictionary, ica_iterations))
        found["default_over_fast_ica"] = found["fast_ica"]["milliseconds"] / found["default"]["milliseconds"]
    for name in ("l3", "default"):
        found[f"{name}_over_power_method"] = found["power_method"]["milliseconds"] / found[name]["milliseconds"]
    return found


def n400() -> dict[str, Any]:
    return compared(400, 160_000, 0.3, seeds=9, ica_iterations=200)


def n100() -> dict[str, Any]:
    return compared(100, 40_000, 0.3, seeds=9, ica_iterations=200)


def n1024() -> dict[str, Any]:
    """The whole fit, without noise and with."""
    found = compared(1024, 10**6, 0.1, seeds=5, ica_iterations=0)
    X, dictionary = problem(1024, 10**6, 0.1, noise_std=0.2)
    found["default_noisy"] = fits(X, dictionary, 3)
    return found


def n1024_fast_ica() -> dict[str, Any]:
    """Two iterations of FastICA, because all of them would take minutes."""
    X, dictionary = problem(1024, 10**6, 0.1)
    return asdict(fast_ica(X, dictionary, 2))


# --- peers: the script anyone would write, and FastICA on the host's cores --------------------------------------------


@dataclass(frozen=True)
class PeerRun:
    """How long a peer took, and what it reached."""

    milliseconds: float
    error: float
    iterations: int
    how: str
    final_error: float  # where it goes if nobody stops it


def power_method(X: Any, start: Any, n_iter: int, watch: Any = None) -> Any:
    """l3 by the power method, as anyone would write it for torch: two products and a singular value decomposition."""
    A = start
    for _ in range(n_iter):
        Z = X @ A.T
        U, _, Vt = torch.linalg.svd((Z.abs() * Z).T @ X)
        A = U @ Vt
        if watch is not None:
            watch(A)
    return A


def best_power_method(X: Any, error_of: Any, most: int = 150, repeats: int = 3) -> PeerRun:
    """The power method, in the precision that is faster, stopped by an oracle at 1.01 times the error it ends with."""
    n = X.shape[1]
    start = torch.linalg.qr(torch.randn(n, n, device=X.device, generator=torch.Generator(X.device).manual_seed(1)))[0]
    before = torch.get_float32_matmul_precision()
    runs = []
    for precision in ("highest", "high"):
        torch.set_float32_matmul_precision(precision)
        errors: list[float] = []
        power_method(X, start, most, lambda A, errors=errors: errors.append(error_of(A)))
        n_iter = 1 + int(np.argmax(np.array(errors) <= 1.01 * errors[-1]))
        times = []
        for _ in range(repeats):
            torch.cuda.synchronize()
            began = time.perf_counter()
            power_method(X, start, n_iter)
            torch.cuda.synchronize()
            times.append(1e3 * (time.perf_counter() - began))
        how = f"torch power method, float32 matmul precision '{precision}'"
        runs.append(PeerRun(float(np.median(times)), errors[n_iter - 1], n_iter, how, errors[-1]))
    torch.set_float32_matmul_precision(before)
    return min(runs, key=lambda run: run.milliseconds)


def fast_ica(X: Any, dictionary: Any, max_iter: int) -> PeerRun:
    """scikit-learn's FastICA on all cores of the host, whitening by the quicker of its two ways."""
    samples, atoms = X.cpu().numpy(), dictionary.cpu().numpy()
    model = FastICA(whiten_solver="eigh", max_iter=max_iter, random_state=0)
    began = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.fit(samples)
    seconds = time.perf_counter() - began
    error = 1 - float(np.sum((model.components_ @ atoms.T) ** 4)) / len(atoms)
    return PeerRun(1e3 * seconds, error, model.n_iter_, "scikit-learn FastICA in float64, all cores", error)


# --- passes -----------------------------------------------------------------------------------------------------------


def plain_frame(unit: float) -> Whitening:
    return Whitening(unit, None, None, None, whitened=False)


def gradient() -> dict[str, Any]:
    """One look at n=1024, r=10^6, with all sums that a step needs, against the card's rate for large matrices."""
    n, r = 1024, 10**6
    X = torch.randn(r, n, device="cuda")
    samples, card = ArrayDataset(X), rates()
    A = samples.backend.asarray(random_orthonormal(n, n, np.random.default_rng(0)), "float64")
    found: dict[str, Any] = {"n": n, "r": r, "card": card}
    for precision in ("float32", "tfloat32"):
        seconds = timed(lambda precision=precision: evaluate(samples, plain_frame(1.0), Lp(3), A, MOMENTS, precision))
        rate = 4 * n * n * r / seconds / 1e12
        found[precision] = {"ms": 1e3 * seconds, "tflops": rate, "share": rate / card[f"{precision}_tflops"]}
    return found


def streamed() -> dict[str, Any]:
    """One look at n=2048, r=2x10^6 in memory of the host, 16 GB, against the slower of copying and multiplying."""
    n, r = 2048, 2 * 10**6
    X = np.empty((r, n), np.float32)
    block = torch.randn(50_000, n).numpy()
    for start in range(0, r, len(block)):
        X[start : start + len(block)] = block
    card, space = rates(), Backend.of(torch.empty(0, device="cuda"))
    samples = GpuStreamDataset(ArrayDataset(X), space)
    A = space.asarray(random_orthonormal(n, n, np.random.default_rng(0), space), "float64")
    found: dict[str, Any] = {"n": n, "r": r, "card": card, "gigabytes": X.nbytes / 1e9}
    for precision in ("float32", "tfloat32"):
        seconds = timed(
            lambda precision=precision: evaluate(samples, plain_frame(1.0), Lp(3), A, MOMENTS, precision), 3
        )
        copying = X.nbytes / 1e9 / card["host_to_device_gbs"]
        multiplying = 4 * n * n * r / 1e12 / card[f"{precision}_tflops"]
        found[precision] = {
            "seconds": seconds,
            "copying_at_best": copying,
            "multiplying_at_best": multiplying,
            "share_of_what_binds": max(copying, multiplying) / seconds,
        }
    return found


# --- answers ----------------------------------------------------------------------------------------------------------


def agreement() -> dict[str, Any]:
    """The same fit on the host in float64 and on the card; and twice on the card."""
    found = {}
    for noise_std in (0.0, 0.2, 0.4):
        X, dictionary = problem(100, 40_000, 0.3, noise_std)
        error_of = error_against(dictionary)
        host = LpDictionaryLearning(random_state=0).fit(X.double().cpu().numpy())
        one, two = (LpDictionaryLearning(random_state=0).fit(X) for _ in range(2))
        found[f"noise {noise_std}"] = {
            "host_float64_error": error_of(torch.asarray(host.components_, device="cuda")),
            "card_float32_error": error_of(one.components_),
            "card_float64_error": error_of(LpDictionaryLearning(random_state=0).fit(X.double()).components_),
            "twice_the_same_to_the_last_bit": bool(torch.equal(one.components_, two.components_)),
        }
    return found


PARTS = {
    "rates": rates,
    "agreement": agreement,
    "n100": n100,
    "n400": n400,
    "gradient": gradient,
    "n1024": n1024,
    "n1024_fast_ica": n1024_fast_ica,
    "streamed": streamed,
}

if __name__ == "__main__":
    main()
