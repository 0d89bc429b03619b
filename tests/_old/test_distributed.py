"""A real cluster of processes: the same answer, whatever happens to its workers, or a clear error."""

import contextlib
import os
import signal
import threading
import time

import dask
import dask.array as da
import numpy as np
import pytest
from distributed import Client, Future, LocalCluster
from distributed.core import Status

from elldict import LpDictionaryLearning
from elldict._old.data import dataset as base
from elldict._old.data.dask import make_dask_dataset
from elldict._old.data.npy import open_npy
from elldict._old.data.statistics import StatisticsKernel
from elldict.exceptions import ClusterError

CHUNKS = ((700, 1, 1299, 1500, 500), 12)


@pytest.fixture(scope="module")
def clusters():
    """Two workers on call: a cluster that has lost one for good is replaced by a new one."""
    settings = {
        "distributed.worker.memory.pause": False,  # tests pause workers themselves
        "distributed.deploy.lost-worker-timeout": "1h",  # or a worker killed twice in 15 s would not be replaced
    }
    with contextlib.ExitStack() as opened, dask.config.set(settings):
        known = []

        def client():
            if known:
                with contextlib.suppress(TimeoutError):
                    known[-1].wait_for_workers(2, timeout=20)
                    return known[-1]
            cluster = LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0", memory_limit=0)
            known.append(opened.enter_context(Client(opened.enter_context(cluster))))
            return known[-1]

        yield client


@pytest.fixture
def ready(clusters):
    """Client of a cluster with both of its workers."""
    return clusters()


@pytest.fixture(autouse=True)
def many_tiles(monkeypatch):
    monkeypatch.setattr(base, "SPLIT_WORK", 0)
    monkeypatch.setattr(base, "TILE_BYTES", 128 * 12 * 8)


@pytest.fixture(scope="module")
def lazy(easy):
    return da.from_array(easy[0], chunks=CHUNKS)


@pytest.mark.parametrize(
    "how",
    [{}, {"solver": "power", "refine": None}, {"whiten": True, "refine": None}],
    ids=["default", "power", "whiten"],
)
def test_fits_are_those_of_memory(ready, easy, lazy, how):
    expected = LpDictionaryLearning(random_state=0, **how).fit(easy[0])
    for X in (lazy, ready.persist(lazy)):
        found = LpDictionaryLearning(random_state=0, **how).fit(X)
        np.testing.assert_allclose(found.components_, expected.components_, rtol=0, atol=1e-12)
        assert type(found.components_) is np.ndarray
    np.testing.assert_allclose(found.transform(lazy).compute(), expected.transform(easy[0]), atol=1e-12)
    assert found.score(lazy) == pytest.approx(expected.score(easy[0]))


def test_files_are_read_by_the_workers(ready, easy, tmp_path):
    np.save(tmp_path / "X.npy", easy[0])
    spread = make_dask_dataset(open_npy(tmp_path / "X.npy")).sum(StatisticsKernel("float64"))
    in_memory = make_dask_dataset(da.from_array(easy[0])).sum(StatisticsKernel("float64"))
    np.testing.assert_array_equal(spread.scatter, in_memory.scatter)


def test_a_travels_once_to_each_worker_and_pass(ready, easy):
    X = ready.persist(da.from_array(easy[0], chunks=(500, 12)))
    ready.run(lambda dask_worker: dask_worker.transfer_incoming_log.clear())
    n_passes = 5
    samples = make_dask_dataset(X, block_size=1)
    for _ in range(n_passes):
        samples.sum(StatisticsKernel("float64"))
    logs = ready.run(lambda dask_worker: [list(entry["keys"]) for entry in dask_worker.transfer_incoming_log])
    for received in logs.values():
        jobs = [str(key) for keys in received for key in keys if str(key).endswith("-job")]
        assert len(jobs) == len(set(jobs)) <= n_passes


def kill_one(client, number):
    """Kill a worker, the hard way; one that its nanny has seen running, for only those are replaced."""
    nannies = []
    while not nannies:
        nannies = [nanny for nanny in client.cluster.workers.values() if nanny.status is Status.running and nanny.pid]
        time.sleep(0.01)
    os.kill(nannies[number % len(nannies)].pid, signal.SIGKILL)


def test_workers_killed_on_the_way_change_nothing(ready, easy, lazy):
    how = {"random_state": 0, "solver": "power", "refine": None}
    expected = LpDictionaryLearning(**how).fit(easy[0])
    moments = set(np.random.default_rng(0).choice(len(expected.history_) - 1, 3, replace=False).tolist())
    killed = []

    def callback(iteration):
        if iteration.iteration in {moment + 1 for moment in moments}:
            killed.append(iteration.iteration)
            kill_one(ready, iteration.iteration)

    found = LpDictionaryLearning(**how).fit(ready.persist(lazy), callback=callback)
    assert len(killed) == 3
    np.testing.assert_array_equal(found.components_, expected.components_)


def test_a_pass_cancelled_from_outside_is_begun_again(ready, easy, lazy):
    """As by a restart of the cluster, which takes its workers long."""
    cancelled = []

    def cancel():
        keys = [key for key in ready.futures if str(key).startswith("elldict")]
        cancelled.extend(keys)
        ready.cancel([Future(key, ready) for key in keys], force=True)

    samples = make_dask_dataset(_slow(lazy, 0.5))
    timer = threading.Timer(0.7, cancel)
    timer.start()
    spread = samples.sum(StatisticsKernel("float64"))
    timer.join()
    assert cancelled
    expected = make_dask_dataset(lazy).sum(StatisticsKernel("float64"))
    np.testing.assert_array_equal(spread.scatter, expected.scatter)


def test_persisted_chunks_that_are_gone_are_an_error(ready, lazy):
    X = ready.persist(lazy)
    samples = make_dask_dataset(X)
    ready.cancel(X)
    with pytest.raises(ClusterError, match="persist it again"):
        samples.sum(StatisticsKernel("float64"))


def test_samples_that_kill_every_worker_are_an_error(ready, lazy):
    def deadly(block, block_info=None):
        if block_info[0]["chunk-location"][0] == 2:
            os.kill(os.getpid(), signal.SIGKILL)
        return block

    X = lazy.map_blocks(deadly, dtype=float, meta=np.empty((0, 0)))
    ready.run_on_scheduler(_allow_failures, number=1)  # instead of three: a new worker takes seconds to start
    try:
        with pytest.raises(ClusterError, match="2 workers died one after the other"):
            make_dask_dataset(X, block_size=1).sum(StatisticsKernel("float64"))
    finally:
        ready.run_on_scheduler(_allow_failures, number=3)


def _allow_failures(dask_scheduler, number):
    dask_scheduler.allowed_failures = number


@pytest.mark.slow
def test_one_paused_worker_is_done_without_and_two_are_an_error(ready, easy, lazy):
    samples = make_dask_dataset(lazy, patience=1.0)
    addresses = list(ready.scheduler_info()["workers"])
    try:
        _set_status(ready, Status.paused, addresses[:1])
        assert samples.sum(StatisticsKernel("float64")).weight == len(easy[0])
        _set_status(ready, Status.paused, addresses)
        with pytest.raises(ClusterError, match=r"None of the 2 workers .* paused.* memory"):
            samples.sum(StatisticsKernel("float64"))
    finally:
        _set_status(ready, Status.running, addresses)
    assert samples.sum(StatisticsKernel("float64")).weight == len(easy[0])


def _set_status(client, status, addresses):
    def change(dask_worker):
        dask_worker.status = status

    client.run(change, workers=addresses)


def test_errors_of_tasks_come_through(ready, easy):
    X = easy[0].copy()
    X[3333, 1] = np.inf
    with pytest.raises(ValueError, match=r"infinity in sample 3333, feature 1 \(row 1333 of chunk 3"):
        LpDictionaryLearning().fit(da.from_array(X, chunks=CHUNKS))


def test_a_task_that_times_out_is_no_reason_to_wait_for_it_again(ready, lazy):
    def too_late(block):
        raise TimeoutError("the disk does not answer")

    X = lazy.map_blocks(too_late, dtype=float, meta=np.empty((0, 0)))
    with pytest.raises(TimeoutError, match="the disk does not answer"):
        make_dask_dataset(X).sum(StatisticsKernel("float64"))


def test_ctrl_c_ends_the_work_of_the_cluster(ready, lazy):
    samples = make_dask_dataset(_slow(lazy, 1.0))
    main = threading.main_thread().ident
    timer = threading.Timer(0.5, lambda: signal.pthread_kill(main, signal.SIGINT))
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        samples.sum(StatisticsKernel("float64"))
    timer.join()
    for _ in range(200):  # a number of looks, not a time: the machine may be busy
        if ready.run_on_scheduler(_n_tasks) == 0:
            break
        time.sleep(0.1)
    else:
        pytest.fail("tasks are left on the cluster")


def _n_tasks(dask_scheduler):
    return sum("elldict" in str(key) for key in dask_scheduler.tasks)


def _slow(X, seconds):
    def wait(block):
        time.sleep(seconds)
        return block

    return X.map_blocks(wait, dtype=float, meta=np.empty((0, 0)))


def test_a_cluster_without_workers_is_an_error(lazy):
    with (
        LocalCluster(n_workers=0, threads_per_worker=1, dashboard_address=":0") as cluster,
        Client(cluster, set_as_default=False) as empty,
        pytest.raises(ClusterError, match=r"no workers for 0.5 s.*cluster.scale"),
    ):
        make_dask_dataset(lazy, client=empty, patience=0.5).sum(StatisticsKernel("float64"))


def test_a_lost_connection_is_an_error(lazy):
    with LocalCluster(n_workers=0, threads_per_worker=1, dashboard_address=":0") as cluster:
        client = Client(cluster, set_as_default=False)
        samples = make_dask_dataset(lazy, client=client, patience=5.0)
        closing = threading.Timer(0.5, client.close)
        closing.start()
        with pytest.raises(ClusterError, match="make a new Client"):
            samples.sum(StatisticsKernel("float64"))
        closing.join()
        with pytest.raises(ClusterError, match="make a new Client"):
            samples.sum(StatisticsKernel("float64"))


def test_an_asynchronous_client_is_refused(lazy):
    class Asynchronous:
        asynchronous = True

    with pytest.raises(ValueError, match="synchronous Client"):
        make_dask_dataset(lazy, client=Asynchronous())
