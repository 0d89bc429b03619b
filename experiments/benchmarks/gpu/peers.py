"""What others need on a graphics card for the same samples as `embeddings`: FastICA by torch, and by scikit-learn.

    python -m experiments.benchmarks.gpu.peers                     # all, about five minutes of a card
    python -m experiments.benchmarks.gpu.peers --small             # tiny, on the host

Peers that are not installed are left out: `pip install icalens fastica_torch`. Both are told to make as many iterations
as their users would: icalens makes a fixed number, 200 unless told, and 50 where it takes minutes; fastica_torch up
to 200, to a tolerance of 1e-4. scikit-learn's on all cores of the host is timed for a few iterations.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from experiments.benchmarks.gpu.embeddings import count_found, make_samples, wait

SIZES = {
    "laplace768": (768, 5 * 10**5, "laplace", False),
    "loud768": (768, 5 * 10**5, "laplace", True),
    "bg2048": (2048, 10**6, "bernoulli-gaussian", False),
    "bg4096": (4096, 10**6, "bernoulli-gaussian", False),
}


def load_icalens() -> Any:
    """The module that fits, without the package around it, which needs language models."""
    spec = importlib.util.find_spec("icalens")
    if spec is None or spec.origin is None:
        raise ImportError("icalens is not installed")
    path = Path(spec.origin).parent / "_fastica.py"
    found = importlib.util.spec_from_file_location("icalens_fastica", path)
    assert found is not None
    assert found.loader is not None
    module = importlib.util.module_from_spec(found)
    importlib.import_module("sys").modules["icalens_fastica"] = module  # its dataclasses look there
    found.loader.exec_module(module)
    return module


def fit_icalens(X: Any, n_iterations: int) -> tuple[Any, int]:
    """Atoms (n, n) as rows, and iterations."""
    found = load_icalens().fit_fastica(X, n_components=X.shape[1], max_iter=n_iterations, objective_every=n_iterations)
    return found.mixing.T, found.n_iter


def fit_fastica_torch(X: Any, n_iterations: int) -> tuple[Any, int]:
    """Atoms (n, n) as rows, and iterations."""
    from fastica_torch import FastICA  # type: ignore[import-not-found]  # noqa: PLC0415

    model = FastICA(n_components=X.shape[1], max_iter=n_iterations, tol=1e-4, random_state=0).fit(X)
    return model.mixing_.T, int(model.n_iter_)


def fit_scikit_learn(X: Any, n_iterations: int) -> tuple[Any, int]:
    """Atoms (n, n) as rows, and iterations; by all cores of the host."""
    from sklearn.decomposition import FastICA  # noqa: PLC0415

    options = {"whiten": "unit-variance", "whiten_solver": "eigh", "tol": 1e-4, "random_state": 0}
    model = FastICA(max_iter=n_iterations, **options).fit(X.cpu().numpy())
    return torch.asarray(model.mixing_.T.copy(), device=X.device), int(model.n_iter_)


RUNS: tuple[tuple[str, str, Callable[[Any, int], tuple[Any, int]], int], ...] = (
    ("laplace768", "icalens", fit_icalens, 200),
    ("laplace768", "fastica_torch", fit_fastica_torch, 200),
    ("laplace768", "scikit-learn, host", fit_scikit_learn, 5),
    ("loud768", "icalens", fit_icalens, 200),
    ("loud768", "fastica_torch", fit_fastica_torch, 200),
    ("bg2048", "icalens", fit_icalens, 50),
    ("bg2048", "fastica_torch", fit_fastica_torch, 200),
    ("bg4096", "icalens", fit_icalens, 50),
)


def main() -> None:
    """Run all, and print what came of each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--small", action="store_true")
    parser.add_argument("--out", type=Path, default=None)
    chosen = parser.parse_args()
    rows: list[dict[str, Any]] = []
    held, samples = "", (None, None)
    for problem, name, fit, n_iterations in RUNS:
        n, r, law, loud = SIZES[problem]
        if problem != held:
            held, samples = problem, (None, None)
            samples = make_samples(*((24, 4000) if chosen.small else (n, r)), law, orthonormal=False, loud=loud)
        rows.append({"problem": problem, "peer": name, **time_peer(fit, *samples, n_iterations)})
        print(rows[-1], flush=True)
        if chosen.out is not None:
            chosen.out.write_text(json.dumps(rows, indent=1), encoding="utf-8")


def time_peer(fit: Callable[[Any, int], tuple[Any, int]], X: Any, atoms: Any, n_iterations: int) -> dict[str, Any]:
    """Seconds, iterations and atoms found; or why there are none."""
    wait()
    began = time.perf_counter()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            components, iterations = fit(X, n_iterations)
        wait()
    except Exception as error:  # card time is dear: the others go on
        return {"error": repr(error)[:300]}
    seconds = time.perf_counter() - began
    found = count_found(components, atoms)
    return {"seconds": round(seconds, 3), "iterations": iterations, "atoms": found, "of": len(atoms)}


if __name__ == "__main__":
    main()
