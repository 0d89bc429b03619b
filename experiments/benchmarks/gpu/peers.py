"""What a fit on a graphics card is compared with: the script anyone would write, and FastICA on the host's cores."""

from __future__ import annotations

import time
import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from sklearn.decomposition import FastICA


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


def fast_ica(X: np.ndarray, dictionary: np.ndarray, max_iter: int) -> PeerRun:
    """scikit-learn's FastICA on all cores, whitening by the quicker of its two ways."""
    model = FastICA(whiten="unit-variance", whiten_solver="eigh", max_iter=max_iter, random_state=0)
    began = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.fit(X)
    seconds = time.perf_counter() - began
    rows = model.components_ / np.linalg.norm(model.components_, axis=1, keepdims=True)
    error = 1 - float(np.sum((rows.astype(np.float64) @ dictionary.T) ** 4)) / len(rows)
    return PeerRun(1e3 * seconds, error, int(model.n_iter_), "scikit-learn FastICA, all cores", error)
