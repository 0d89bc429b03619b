"""BLAS is held at one thread during fits, which may overlap in threads and be forked."""

import os
import subprocess
import sys
import threading

import numpy as np
import pytest

from elldict import LpICA, blas
from tests.fits import draw


class Library:
    """A BLAS that remembers its number of threads."""

    def __init__(self, num_threads):
        self._number = num_threads

    @property
    def num_threads(self):
        return self._number

    def set_num_threads(self, number):
        self._number = number


@pytest.fixture
def library(monkeypatch):
    library = Library(4)
    monkeypatch.setattr(blas, "SHARED", [library])
    monkeypatch.setattr(blas, "OWN", [])
    return library


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 2, 0)])
def test_fits_that_overlap_restore_the_number_whoever_ends_last(order, library):
    holds = [blas.one_blas_thread() for _ in range(3)]
    for hold in holds:
        assert hold.__enter__() == 4
    for number in order:
        assert library.num_threads == 1
        holds[number].__exit__(None, None, None)
    assert library.num_threads == 4


def test_interrupted_fit_restores_the_number(library, monkeypatch):
    real, calls = blas.set_counts, []

    def interrupt(libraries, counts):
        real(libraries, counts)
        calls.append(counts)
        if len(calls) == 1:
            raise KeyboardInterrupt

    monkeypatch.setattr(blas, "set_counts", interrupt)
    with pytest.raises(KeyboardInterrupt), blas.one_blas_thread():
        pass
    assert library.num_threads == 4


def test_fault_23_fits_in_eight_threads_equal_serial_ones():
    blocks = [draw("laplace", 600, 4, seed) for seed in range(8)]
    serial = [LpICA(error_bars=False).fit(X).components_ for X in blocks]
    before = blas.read_counts(blas.SHARED)
    found = {}

    def work(number):
        found[number] = LpICA(error_bars=False).fit(blocks[number]).components_

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    for number in range(8):
        np.testing.assert_array_equal(found[number], serial[number])
    assert blas.read_counts(blas.SHARED) == before


FORK = """
import os, sys, threading, time
import numpy as np
from elldict.blas import SHARED, read_counts
from elldict import LpICA

X = np.random.default_rng(0).laplace(size=(600, 4))
expected = LpICA(error_bars=False).fit(X).components_
before, stop = read_counts(SHARED), threading.Event()

def work():
    while not stop.is_set():
        LpICA(error_bars=False).fit(X)

threads = [threading.Thread(target=work) for _ in range(3)]
for thread in threads:
    thread.start()
for _ in range(8):
    child = os.fork()
    if child == 0:
        same = np.array_equal(LpICA(error_bars=False).fit(X).components_, expected)
        os._exit(0 if same else 1)
    end = time.monotonic() + 30
    while (done := os.waitpid(child, os.WNOHANG)) == (0, 0) and time.monotonic() < end:
        time.sleep(0.01)
    assert done[0] == child and done[1] == 0, done
stop.set()
for thread in threads:
    thread.join()
assert read_counts(SHARED) == before
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_fault_60_child_forked_during_fits_of_other_threads_does_not_freeze():
    subprocess.run([sys.executable, "-W", "ignore", "-c", FORK], check=True, timeout=120)
