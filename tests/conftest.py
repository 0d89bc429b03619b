"""Problems that many tests share."""

import os
import signal

os.environ.setdefault("SCIPY_ARRAY_API", "1")  # scikit-learn's array API checks skip silently without it
if "PYTEST_XDIST_WORKER" in os.environ:
    for library in ("OPENBLAS", "OMP", "MKL"):  # NumPy's, and torch's
        os.environ.setdefault(f"{library}_NUM_THREADS", "1")  # as many workers as cores: their threads would fight


import numpy as np
import pytest

from elldict import exceptions
from elldict.datasets import make_bernoulli_gaussian


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


@pytest.fixture
def rng():
    return np.random.default_rng(0)
