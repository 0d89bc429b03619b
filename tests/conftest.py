"""Problems that many tests share."""

import os
import signal

os.environ.setdefault("SCIPY_ARRAY_API", "1")  # scikit-learn's array API checks skip silently without it
if "PYTEST_XDIST_WORKER" in os.environ:
    for library in ("OPENBLAS", "OMP", "MKL"):  # NumPy's, and torch's
        os.environ.setdefault(f"{library}_NUM_THREADS", "1")  # as many workers as cores: their threads would fight


from contextlib import nullcontext

import array_api_compat
import numpy as np
import pytest

from elldict import exceptions
from elldict.backend.base import Backend, FreshWork
from elldict.data.dataset import ArrayDataset
from elldict.datasets import make_bernoulli_gaussian
from elldict.fit import fit_dictionary


def pytest_addoption(parser):
    parser.addoption(
        "--solve-on",
        default="host",
        choices=("host", "torch", "card", "cuda"),
        help="Where fits of NumPy arrays are solved: by NumPy; by torch on the host; the same by the ways that are "
        "meant for a graphics card; on a graphics card.",
    )


def pytest_configure(config):
    """A fit in a test warns only where the test says so.

    Not in pyproject.toml, where the names would import the package before its coverage is measured.
    """
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:  # as in the background of a shell: Ctrl-C is tested here
        signal.signal(signal.SIGINT, signal.default_int_handler)
    for name in (name for name in exceptions.__all__ if name.endswith("Warning")):
        config.addinivalue_line("filterwarnings", f"error::elldict.exceptions.{name}")
    config.addinivalue_line("filterwarnings", "error::sklearn.exceptions.ConvergenceWarning")


@pytest.fixture(scope="session")
def easy():
    """Samples from which every start finds the dictionary: (X, dictionary, codes)."""
    parts = make_bernoulli_gaussian(4000, 12, density=0.2, random_state=0)
    for part in parts:
        part.setflags(write=False)  # a test that writes to its input fails at once
    return parts


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

    monkeypatch.setattr("elldict.estimator.fit_dictionary", fit_there)


def as_if_on_a_card(monkeypatch):
    """Torch on the host passes for a card that has neither kernels nor graphs of its own."""
    base = "elldict.backend.base"
    monkeypatch.setattr(f"{base}.is_gpu", lambda xp, device: array_api_compat.is_torch_namespace(xp))
    monkeypatch.setattr(f"{base}.find_kernels", lambda xp: None)
    monkeypatch.setattr(f"{base}.GpuWork", lambda fast: FreshWork())
    monkeypatch.setattr(Backend, "can_capture", False)
    monkeypatch.setattr(Backend, "own_stream", lambda backend: nullcontext())


@pytest.fixture
def rng():
    return np.random.default_rng(0)
