"""Threads over tiles."""

import threading

import numpy as np
import pytest
from threadpoolctl import threadpool_info

from elldict import LpDictionaryLearning
from elldict._old.backend import threads


class FakeBlas:
    """BLAS with four threads."""

    def __init__(self):
        self.num_threads = 4

    def set_num_threads(self, num_threads):
        self.num_threads = num_threads


@pytest.fixture
def blas(monkeypatch):
    fake = FakeBlas()
    monkeypatch.setattr(threads, "_list_blas", lambda: (fake,))
    monkeypatch.setattr(threads, "_limit", threads._Limit())
    return fake


def test_results_come_in_order_and_every_thread_has_its_own_worker(blas):
    made = []

    def make_worker():
        made.append(threading.get_ident())
        return lambda job: (job**2, threading.get_ident())

    results = list(threads.map_in_order(make_worker, range(200)))
    assert [square for square, _ in results] == [job**2 for job in range(200)]
    assert len(made) == len(set(made)) <= 4
    assert {thread for _, thread in results} <= set(made)


def test_one_job_needs_no_threads(blas):
    assert list(threads.map_in_order(lambda: lambda job: threading.get_ident(), [0])) == [threading.get_ident()]


def test_an_error_in_a_thread_is_raised(blas):
    with pytest.raises(ZeroDivisionError):
        list(threads.map_in_order(lambda: lambda job: 1 // job, [1, 0, 1]))
    assert blas.num_threads == 4


def test_limits_that_overlap_in_time_are_lifted_by_the_last(blas):
    first, second = threads.one_blas_thread(), threads.one_blas_thread()
    assert first.__enter__() == 4
    assert blas.num_threads == 1
    assert second.__enter__() == 4
    first.__exit__(None, None, None)
    assert blas.num_threads == 1
    second.__exit__(None, None, None)
    assert blas.num_threads == 4


def test_a_fit_leaves_the_threads_of_blas_as_they_were(easy):
    before = [library["num_threads"] for library in threadpool_info()]
    LpDictionaryLearning(random_state=0).fit(easy[0])
    with pytest.raises(ValueError, match="NaN"):
        LpDictionaryLearning(random_state=0).fit(np.where(easy[0] > 2, np.nan, easy[0]))
    assert [library["num_threads"] for library in threadpool_info()] == before


@pytest.mark.slow
def test_many_threads_give_the_sums_of_one(blas, rng):
    X = rng.standard_normal((100_000, 30)) ** 3
    model = LpDictionaryLearning(random_state=0, max_iter=5, tol=1.0).fit(X)
    blas.num_threads = 1
    again = LpDictionaryLearning(random_state=0, max_iter=5, tol=1.0).fit(X)
    np.testing.assert_array_equal(model.components_, again.components_)
