"""Fits of the size of embeddings on a graphics card, and the first fit of a process: how long, and where the time goes.

    python -m experiments.benchmarks.gpu.embeddings                     # all, about three minutes of a card
    python -m experiments.benchmarks.gpu.embeddings --parts bg2048 cold # some
    python -m experiments.benchmarks.gpu.embeddings --small             # tiny, on the host by the ways of a card

Times are those of a whole `fit`, from the call until the card is idle. Those by part are of a fit of its own, in which
the card is waited for at the ends of functions; a function includes those that it calls.
"""

from __future__ import annotations

import argparse
import importlib
import itertools
import json
import os
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import torch

WATCHED = """
estimation: compute_statistics
data.statistics: find_principal_axes is_positive_definite
estimation: random_orthonormal make_atoms signs_of_largest bound_codes estimate_by_subsamples
estimator: fit_dictionary place_on_device
fit: doubt_samples seek_competing_basis estimate_errors make_result doubt_estimate
solver.pilot: run_starts run_phases
solver.schedule: run_phases run_phase draw_rows _weigh_evidence suspects_corruption is_exact
solver.loop: evaluate polar
solver.refine: run_phases follows_spike_slab
solver.robust: run_phase fit_mixture update_mixture estimate_crossed turn
solver.code_subsample: find_mixed_pairs fit_spike_slab fit_roughly
solver.law_tests: score_laws differ_in_loudness follows_spike_slab
error_bars.total: measure_dependence compare_halves estimate_dependent_errors estimate_correlated_errors _add_bias
error_bars.total: estimate_atom_errors
error_bars.samples: measure_repeat_inflation measure_serial_dependence
error_bars.halves: match_atoms
"""
"""Functions whose time is told, by the module that calls them."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parts", nargs="+", choices=[*PARTS, "one-process", "one-fit"], default=list(PARTS))
    parser.add_argument("--small", action="store_true")
    parser.add_argument("--out", type=Path, default=None)
    parser.add_argument("--variant", default="all")
    parser.add_argument("--size", type=int, default=100)
    chosen = parser.parse_args()
    if chosen.small:
        pass_for_card()
    if chosen.parts == ["one-process"]:
        print(json.dumps(fit_first(chosen.size, chosen.variant, small=chosen.small)))
        return
    if chosen.parts == ["one-fit"]:
        print(json.dumps(fit_once(chosen.variant, small=chosen.small)))
        return
    found = {}
    if not chosen.small:  # later fits have kernels and graphs
        X, _ = make_samples(64, 20_000, "bernoulli-gaussian", orthonormal=True)
        for _ in range(5):
            time_fit(X)
    for part in chosen.parts:
        began = time.perf_counter()
        try:
            found[part] = PARTS[part](chosen.small)
        except Exception as error:  # card time is dear: the other parts go on
            found[part] = {"error": repr(error)}
        found[part]["wall"] = time.perf_counter() - began
        print(part, json.dumps(found[part], indent=1), flush=True)
        if chosen.out is not None:
            chosen.out.write_text(json.dumps(found, indent=1))
        if torch.cuda.is_available():
            torch.cuda.empty_cache()
    print_summary(found)


def print_summary(found: dict[str, Any]) -> None:
    print(f"{'work':34} {'seconds':>8} {'asked':>6} {'atoms':>11} {'passes':>7}")
    for part, result in found.items():
        for row in result.get("rows", []):
            atoms = f"{row['atoms']}/{row['of']}" if "atoms" in row else ""
            name, passes = f"{part} {row['name']}", row.get("passes", 0)
            print(f"{name:34} {row['seconds']:8.3f} {row['asked']:6} {atoms:>11} {passes:7.1f}")


# --- samples ----------------------------------------------------------------------------------------------------------


def device() -> str:
    return "cuda" if torch.cuda.is_available() else "cpu"


def make_samples(n: int, r: int, law: str, *, orthonormal: bool, loud: bool = False) -> tuple[Any, Any]:
    """Samples (r, n) in float32 on the card, and the atoms (n, n) of unit length that they are made of."""
    rng = torch.Generator(device()).manual_seed(0)

    def normal(*shape: int, dtype: Any = torch.float32) -> Any:
        return torch.randn(*shape, device=device(), generator=rng, dtype=dtype)

    atoms = torch.linalg.qr(normal(n, n, dtype=torch.float64))[0]
    if not orthonormal:  # a condition number of four
        atoms = atoms * torch.linspace(0.5, 2.0, n, device=device(), dtype=torch.float64)
        atoms = atoms @ torch.linalg.qr(normal(n, n, dtype=torch.float64))[0]
    X = torch.empty(r, n, device=device())
    for start in range(0, r, 50_000):  # the codes of all samples at once would be as large as they are
        rows = min(50_000, r - start)
        uniform = torch.rand(rows, n, device=device(), generator=rng)
        if law == "laplace":
            codes = torch.sign(uniform - 0.5) * torch.log1p(-2 * torch.abs(uniform - 0.5).clamp(max=0.4999999))
        else:
            codes = normal(rows, n) * (uniform < 0.1)
        if loud:
            codes = codes * torch.exp(0.5 * normal(rows, 1))
        X[start : start + rows] = codes @ atoms.float()
    return X, atoms / torch.linalg.vector_norm(atoms, axis=1, keepdims=True)


def count_found(components: Any, atoms: Any) -> int:
    """Number of atoms that one of the components has a cosine of more than .99 with."""
    rows = torch.as_tensor(components, device=atoms.device).double()
    rows = rows / torch.linalg.vector_norm(rows, axis=1, keepdims=True)
    return int(torch.sum(torch.max(torch.abs(rows @ atoms.T), dim=0).values > 0.99))


# --- fits -------------------------------------------------------------------------------------------------------------


def wait() -> None:
    if torch.cuda.is_available() and not torch.cuda.is_current_stream_capturing():
        torch.cuda.synchronize()


@contextmanager
def watched() -> Iterator[dict[str, list[float]]]:
    """Seconds and calls of the watched functions."""
    times: dict[str, list[float]] = {}
    undo: list[tuple[Any, str, Any]] = []

    def watch(function: Callable[..., Any], name: str) -> Callable[..., Any]:
        def timed(*args: Any, **options: Any) -> Any:
            wait()
            began = time.perf_counter()
            try:
                return function(*args, **options)
            finally:
                wait()
                entry = times.setdefault(name, [0.0, 0])
                entry[0] += time.perf_counter() - began
                entry[1] += 1

        return timed

    for line in WATCHED.strip().splitlines():
        module_name, names = line.split(":")
        module = importlib.import_module(f"elldict._old.{module_name}")
        for name in names.split():
            if hasattr(module, name):
                undo.append((module, name, getattr(module, name)))
                setattr(module, name, watch(getattr(module, name), f"{module_name}.{name}"))
    try:
        yield times
    finally:
        for module, name, function in undo:
            setattr(module, name, function)


def time_fit(X: Any, **options: Any) -> tuple[float, Any]:
    from elldict import LpDictionaryLearning  # noqa: PLC0415

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        wait()
        began = time.perf_counter()
        model = LpDictionaryLearning(random_state=0, **options).fit(X)
        wait()
    return time.perf_counter() - began, model


def measure(name: str, asked: str, X: Any, atoms: Any, repeats: int = 1, **options: Any) -> dict[str, Any]:
    """A first fit of this size, later ones, and one by parts."""
    first, model = time_fit(X, **options)
    later = [time_fit(X, **options)[0] for _ in range(repeats)]
    with watched() as times:
        time_fit(X, **options)
    history = [
        (entry.stage, entry.iteration, round(entry.passes, 3), round(entry.seconds, 3), f"{entry.step:.2g}")
        for entry in model.history_
    ]
    return {
        "name": name,
        "asked": asked,
        "seconds": float(np.median(later)),
        "first": first,
        "atoms": count_found(model.components_, atoms),
        "of": len(atoms),
        "passes": model.n_passes_,
        "expected_error": model.expected_error_,
        "status": model.status_,
        "warnings": [message[:200] for _, message in model.warnings_] if hasattr(model, "warnings_") else None,
        "steps": history[:3] + history[-12:],
        "n_steps": len(history),
        "parts": {
            key: f"{seconds:.3f} s, {calls}"
            for key, (seconds, calls) in sorted(times.items(), key=lambda item: -item[1][0])
        },
    }


WHITE = {"center": True, "whiten": True}


def bg(n: int, asked: str) -> Callable[[bool], dict[str, Any]]:
    def run(small: bool) -> dict[str, Any]:
        size, r = (24, 4000) if small else (n, 10**6)
        X, atoms = make_samples(size, r, "bernoulli-gaussian", orthonormal=False)
        return {"rows": [measure(f"n={size} r={r}", asked, X, atoms, **WHITE)]}

    return run


def laplace(small: bool) -> dict[str, Any]:
    n, r = (16, 6000) if small else (768, 5 * 10**5)
    rows = []
    for loud in (False, True):
        X, atoms = make_samples(n, r, "laplace", orthonormal=False, loud=loud)
        rows.append(measure(f"n={n} {'loud' if loud else 'plain'}", "1", X, atoms, **WHITE))
    return {"rows": rows}


def plain(small: bool) -> dict[str, Any]:
    n, r = (24, 4000) if small else (1024, 10**6)
    X, atoms = make_samples(n, r, "bernoulli-gaussian", orthonormal=True)
    return {"rows": [measure(f"n={n} not whitened", ".4", X, atoms, repeats=3)]}


def hopeless(small: bool) -> dict[str, Any]:
    n, r = (32, 1500) if small else (2048, 10**6)
    X, atoms = make_samples(n, r, "laplace", orthonormal=False)
    return {"rows": [measure(f"n={n} laplace", "9", X, atoms, **WHITE)]}


# --- the first fit of a process ---------------------------------------------------------------------------------------


VARIANTS = ("all", "neither")


def cold(small: bool) -> dict[str, Any]:
    """First and later fits of new processes with empty caches, with and without kernels and graphs."""
    rows = []
    for size in (100,) if small else (100, 400):
        for variant in VARIANTS if not small else ("all",):
            with tempfile.TemporaryDirectory() as cache:
                command = [sys.executable, "-m", "experiments.benchmarks.gpu.embeddings", "--parts", "one-process"]
                command += ["--size", str(size), "--variant", variant] + (["--small"] if small else [])
                environment = {**os.environ, "TRITON_CACHE_DIR": cache, "CUDA_CACHE_PATH": cache}
                run = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
            if run.returncode:
                rows.append({"name": f"{size} {variant}", "asked": "", "seconds": -1.0, "error": run.stderr[-1500:]})
                continue
            found = json.loads(run.stdout.strip().splitlines()[-1])
            rows.append({"name": f"n={size} first, {variant}", "asked": "1.5", "seconds": found["first"], **found})
            for kind, asked in (("default", ".02" if size == 100 else ".05"), ("l3", ".03")):
                rows.append({"name": f"n={size} {kind}, {variant}", "asked": asked, "seconds": found[kind]})
    return {"rows": rows}


def fit_first(n: int, variant: str, *, small: bool) -> dict[str, Any]:
    """Times of the first fit after torch was imported, and of later ones."""
    rng = np.random.default_rng(0)
    n, r = (16, 3000) if small else (n, 400 * n)
    codes = rng.standard_normal((r, n)) * (rng.random((r, n)) < 0.3)
    samples = (codes @ np.linalg.qr(rng.standard_normal((n, n)))[0]).astype(np.float32)
    marks = [("", time.perf_counter())]

    def mark(name: str) -> None:
        wait()
        marks.append((name, time.perf_counter()))

    importlib.import_module("elldict._old.dictionary_learning")
    mark("import_elldict")
    X = torch.asarray(samples, device=device())
    mark("cuda_context")
    leave_out(variant)
    time_fit(X)
    mark("fit")
    first = marks[-1][1] - marks[0][1]
    again, model = time_fit(X)
    found: dict[str, Any] = {b[0]: b[1] - a[1] for a, b in itertools.pairwise(marks)}
    found |= {"first": first, "second_fit": again, "passes": model.n_passes_}
    for kind, options in (("default", {}), ("l3", {"refine": None})):
        found[kind] = float(np.median([time_fit(X, **options)[0] for _ in range(7)]))
    with watched() as times:
        time_fit(X)
    found["parts"] = {key: round(1e3 * value[0], 2) for key, value in times.items()}
    return found


def once(small: bool) -> dict[str, Any]:
    """The only fit of a new process, as users of embeddings have it: without kernels; after torch was imported."""
    rows = []
    for name, asked in (("bg2048", "1.5"), ("laplace768", "1"), ("loud768", "1")):
        command = [
            sys.executable,
            "-m",
            "experiments.benchmarks.gpu.embeddings",
            "--parts",
            "one-fit",
            "--variant",
            name,
        ]
        run = subprocess.run([*command, *(["--small"] if small else [])], capture_output=True, text=True, check=False)
        if run.returncode:
            rows.append({"name": name, "asked": asked, "seconds": -1.0, "error": run.stderr[-1500:]})
        else:
            rows.append({"name": name, "asked": asked, **json.loads(run.stdout.strip().splitlines()[-1])})
    return {"rows": rows}


def fit_once(name: str, *, small: bool) -> dict[str, Any]:
    """Seconds of a first fit, elldict imported, samples on the card."""
    importlib.import_module("elldict._old.dictionary_learning")
    n, r = (24, 4000) if small else (2048, 10**6) if name == "bg2048" else (768, 5 * 10**5)
    law = "bernoulli-gaussian" if name == "bg2048" else "laplace"
    X, atoms = make_samples(n, r, law, orthonormal=False, loud=name == "loud768")
    seconds, model = time_fit(X, **WHITE)
    found = count_found(model.components_, atoms)
    return {"seconds": seconds, "atoms": found, "of": len(atoms), "passes": model.n_passes_}


def leave_out(variant: str) -> None:
    """Go without kernels, or without CUDA graphs, or without both."""
    backend = importlib.import_module("elldict._old.backend.torch")
    if variant in ("no-kernels", "neither"):
        backend.fused_terms = lambda: None  # type: ignore[attr-defined]
    if variant in ("no-graphs", "neither"):
        backend.can_capture = lambda _device: False  # type: ignore[attr-defined]


def pass_for_card() -> None:
    """Let torch on the host pass for a card that has neither kernels nor graphs."""
    import array_api_compat  # noqa: PLC0415

    base: Any = importlib.import_module("elldict._old.backend.base")
    base.is_gpu = lambda xp, _device: array_api_compat.is_torch_namespace(xp)
    base.find_kernels = lambda _xp: None
    base.GpuWork = lambda **_options: base.FreshWork()
    base.Backend.can_capture = False
    base.Backend.own_stream = lambda _backend: nullcontext()


PARTS: dict[str, Callable[[bool], dict[str, Any]]] = {
    "cold": cold,
    "plain1024": plain,
    "laplace768": laplace,
    "bg2048": bg(2048, "1.5"),
    "bg4096": bg(4096, "6"),
    "hopeless": hopeless,
    "once": once,
}

if __name__ == "__main__":
    main()
