"""What a hostile user tried: threads that overlap, crafted files, closed streams, signals, full disks.

The number in a name is the row of the catalogue of faults, as in test_faults.py.
"""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from threadpoolctl import threadpool_info

from elldict.backend import threads


def count_blas_threads():
    return [library["num_threads"] for library in threadpool_info() if library["user_api"] == "blas"]


def hold_in_turn(pool_size, end_order):
    """Let threads hold BLAS one after the other, and let go in this order; all of them live to the end."""
    let_go = [threading.Event() for _ in range(pool_size)]

    def hold(number, entered):
        with threads.one_blas_thread():
            entered.set()
            let_go[number].wait(10)

    with ThreadPoolExecutor(pool_size) as pool:
        held = []
        for number in range(pool_size):
            entered = threading.Event()
            held.append(pool.submit(hold, number, entered))
            assert entered.wait(10)
        assert set(count_blas_threads()) == {1}
        for number in end_order:
            let_go[number].set()
            held[number].result(10)
        return count_blas_threads()


@pytest.mark.parametrize("end_order", [(0, 1, 2), (2, 1, 0), (1, 2, 0)])
def test_fault_49_blas_threads_are_restored_whoever_ends_last(end_order):
    before = count_blas_threads()
    if max(before, default=1) == 1:
        pytest.skip("BLAS has one thread here")
    assert hold_in_turn(3, end_order) == before


def test_fault_49_a_number_set_meanwhile_stays(monkeypatch):
    class Library:
        num_threads = 4

        def set_num_threads(self, num_threads):
            self.num_threads = num_threads

    library = Library()
    monkeypatch.setattr(threads, "_list_blas", lambda: (library,))
    monkeypatch.setattr(threads, "_limit", threads._Limit())
    with threads.one_blas_thread():
        library.num_threads = 3
    assert library.num_threads == 3


def test_fault_49_where_every_thread_has_a_number_each_gets_its_own_back(monkeypatch):
    class Library(threading.local):
        threading_layer = "openmp"
        num_threads = 4

        def set_num_threads(self, num_threads):
            self.num_threads = num_threads

    library = Library()
    monkeypatch.setattr(threads, "_list_blas", lambda: (library,))
    monkeypatch.setattr(threads, "_limit", threads._Limit())
    second_holds, first_is_done = threading.Event(), threading.Event()

    def hold(tell, wait_for):
        with threads.one_blas_thread():
            tell.set()
            wait_for.wait(10)
            held = library.num_threads
        return held, library.num_threads

    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(hold, threading.Event(), second_holds)
        second = pool.submit(hold, second_holds, first_is_done)
        assert first.result(10) == (1, 4)
        first_is_done.set()
        assert second.result(10) == (1, 4)
