"""Fits of NumPy arrays are solved elsewhere, if `--solve-on` says so."""

from contextlib import nullcontext

import array_api_compat
import numpy as np
import pytest

from elldict._old.backend.base import Backend, FreshWork
from elldict._old.data.dataset import ArrayDataset
from elldict._old.fit import fit_dictionary


@pytest.fixture(autouse=True)
def solved_elsewhere(request, monkeypatch):
    """Every fit of NumPy arrays is solved elsewhere, and every test holds there too."""
    where = request.config.getoption("--solve-on")
    if where == "host":
        return
    torch = pytest.importorskip("torch")
    if where == "card":
        as_if_on_a_card(monkeypatch)
    device = "cuda" if where == "cuda" else "cpu"

    def fit_there(samples, *args, stacklevel, **options):
        if isinstance(samples, ArrayDataset) and isinstance(samples.X, np.ndarray):
            whole = samples.tile_rows >= samples.n_samples or where in ("card", "cuda")
            backend = Backend.of(torch.empty(0, device=device))
            samples = ArrayDataset(backend.asarray(samples.X, samples.dtype), 0 if whole else samples.tile_rows)
        with samples.backend.own_stream():
            return fit_dictionary(
                samples, *args, stacklevel=stacklevel + 1, **options
            )  # this function is a caller more

    monkeypatch.setattr("elldict._old.estimator.fit_dictionary", fit_there)


def as_if_on_a_card(monkeypatch):
    """Torch on the host passes for a card that has neither kernels nor graphs of its own."""
    base = "elldict._old.backend.base"
    monkeypatch.setattr(f"{base}.is_gpu", lambda xp, device: array_api_compat.is_torch_namespace(xp))
    monkeypatch.setattr(f"{base}.find_kernels", lambda xp: None)
    monkeypatch.setattr(f"{base}.GpuWork", lambda fast: FreshWork())
    monkeypatch.setattr(Backend, "can_capture", False)
    monkeypatch.setattr(Backend, "own_stream", lambda backend: nullcontext())
