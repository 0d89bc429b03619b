"""Samples in dask arrays and data frames: the same bits as in memory, on any scheduler, or a clear error."""

import os
import signal
import threading
import time

import dask
import dask.array as da
import dask.bag
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
import scipy.sparse
from distributed import Client, LocalCluster
from distributed.core import Status

from elldict import LpDictionaryLearning, LpICA, exceptions
from elldict.samples import base, cluster, subsample
from elldict.samples import dask as dask_samples
from elldict.samples.arrays import ArraySamples
from elldict.samples.dask import DaskSamples, prepare
from elldict.samples.statistics import compute_statistics
from tests.fits import assert_same_fit

CHUNKS = {
    "one": (4000, 12),
    "small": (150, 12),
    "along features": (1000, 5),
    "uneven": ((1, 1999, 7, 0, 993, 1000, 0), 12),
    "blocks": (64, 12),
}
WHITEN, POWER = {"whiten": True, "center": True, "error_bars": False}, {"solver": "power", "random_state": 0}


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    """Make blocks of 64 rows, groups of several blocks, and a tree of several levels; read nothing at once."""
    monkeypatch.setattr(base, "BLOCK_NUMBERS", 1)
    monkeypatch.setattr(dask_samples, "MIN_GROUPS", 4)
    monkeypatch.setattr(dask_samples, "FAN_IN", 4)
    monkeypatch.setattr(dask_samples, "STORED_BYTES", 0)


@pytest.fixture
def read_in_every_pass(monkeypatch):
    monkeypatch.setattr(subsample, "STORED_BYTES", 50_000)
    monkeypatch.setattr(subsample, "COPIED_BYTES", 50_000)


@pytest.fixture(scope="module", params=[4])
def workers(request):
    """Start workers that are threads of this process."""
    with LocalCluster(request.param, 1, processes=False, memory_limit=0, dashboard_address=":0") as local:
        yield local


def cut(X, layout="uneven"):
    return da.from_array(X, chunks=CHUNKS[layout])


@pytest.mark.parametrize("layout", CHUNKS)
def test_samples_in_any_chunks_are_those_in_memory(easy, rng, layout):
    X, weights = easy[0], rng.random(4000)
    found, expected = DaskSamples(prepare(cut(X, layout)), 1, weights), ArraySamples(X, 1, weights)
    np.testing.assert_array_equal(*(compute_statistics(samples).covariance for samples in (found, expected)))
    for index in (rng.permutation(4000)[:300], np.flatnonzero(weights > 0.3)):
        np.testing.assert_array_equal(found.take(index), X[index])
        sums = [samples.sum(lambda rows, start: (rows.T + start) @ rows, index) for samples in (found, expected)]
        np.testing.assert_array_equal(*sums)
        squares = found.map(lambda rows, start: start + np.sum(rows**2, axis=1), np.empty(len(index)), index)
        np.testing.assert_array_equal(squares, np.arange(len(index)) // 64 * 64 + np.sum(X[index] ** 2, axis=1))


@pytest.mark.usefixtures("read_in_every_pass")
@pytest.mark.parametrize("options", [{}, WHITEN, POWER, {"n_components": 5}], ids=str)
def test_fit_in_this_process_has_the_bits_of_one_in_memory(easy, options):
    X, expected = easy[0], LpDictionaryLearning(**options).fit(easy[0])
    for scheduler in ("synchronous", "threads"):
        with dask.config.set(scheduler=scheduler):
            assert_same_fit(LpDictionaryLearning(**options).fit(cut(X)), expected)


@pytest.mark.usefixtures("read_in_every_pass")
@pytest.mark.parametrize(("workers", "dtype"), [(1, "float32"), (4, "float64")], indirect=["workers"])
def test_weighted_fit_on_a_cluster_has_the_bits_of_one_in_memory(workers, easy, rng, dtype):
    X, weights = easy[0].astype(dtype), rng.integers(0, 3, 4000)
    expected = LpDictionaryLearning(error_bars=False).fit(X, sample_weight=weights)
    with Client(workers) as client:
        lazy = client.persist(cut(X, "along features"))
        found = LpDictionaryLearning(error_bars=False).fit(lazy, sample_weight=da.from_array(weights))
        np.testing.assert_array_equal(lazy.compute(), X)  # still there
    assert_same_fit(found, expected)


@pytest.mark.usefixtures("read_in_every_pass")
def test_fit_is_resumed_from_a_checkpoint_of_other_chunks(easy, tmp_path):
    def interrupt(iteration):
        if iteration.iteration == 12:
            raise KeyboardInterrupt

    expected = LpDictionaryLearning().fit(easy[0])
    with pytest.raises(KeyboardInterrupt):
        LpDictionaryLearning().fit(cut(easy[0]), callback=interrupt, checkpoint=tmp_path / "fit.npz")
    lazy = cut(easy[0], "along features")
    assert_same_fit(LpDictionaryLearning().fit(lazy, checkpoint=tmp_path / "fit.npz", resume=True), expected)


def test_take_computes_only_the_chunks_that_it_needs(easy):
    def fail_elsewhere(block, block_info=None):
        assert block_info[0]["chunk-location"][0] == 1
        return block

    lazy = da.from_array(easy[0], chunks=(1000, 12)).map_blocks(fail_elsewhere, meta=np.empty((0, 0)))
    np.testing.assert_array_equal(DaskSamples(lazy).take(np.array([1500, 1001])), easy[0][[1500, 1001]])


@pytest.mark.parametrize("dtype", ["float32", "Float64"])
def test_data_frame_is_fitted_with_the_names_of_its_columns(easy, dtype):
    frame = pd.DataFrame(easy[0], columns=[f"x{k}" for k in range(12)]).astype(dtype)
    lazy, X = dd.from_pandas(frame, npartitions=5), np.ascontiguousarray(frame, dtype.lower())
    found, expected = (LpDictionaryLearning(error_bars=False).fit(each) for each in (lazy, X))
    np.testing.assert_array_equal(found.components_, expected.components_)
    assert list(found.feature_names_in_) == list(frame.columns)
    np.testing.assert_allclose(found.transform(lazy).compute(), expected.transform(X), atol=1e-6)
    with pytest.raises(ValueError, match="feature names should match"):
        found.transform(lazy.rename(columns={"x3": "y"}))


@pytest.mark.parametrize("method", ["transform", "denoise", "score_samples", "inverse_transform"])
def test_result_for_a_dask_array_is_lazy(easy, method):
    lazy, model = cut(easy[0], "along features"), LpDictionaryLearning().fit(easy[0] + 0.01)
    found, expected = getattr(model, method)(lazy), getattr(model, method)(easy[0])
    assert isinstance(found, da.Array)
    assert (found.dtype, found.shape, found.chunks[0]) == (expected.dtype, expected.shape, lazy.chunks[0])
    # blocks of another size may be rounded differently, in the 16th digit; densities are as narrow as 1e-6
    np.testing.assert_allclose(found.compute(), expected, rtol=1e-9, atol=1e-9)


def test_nan_is_named_by_sample_and_feature(easy):
    X = easy[0].copy()
    X[2345, 6] = np.nan
    for compute in (LpDictionaryLearning().fit, lambda X: LpICA().fit(easy[0]).transform(X).compute()):
        with pytest.raises(ValueError, match=r"NaN \(sample 2345, feature 6\)"):
            compute(cut(X, "along features"))


@pytest.mark.parametrize(
    ("convert", "message"),
    [(lambda X: np.ma.masked_greater(X, 0.5), "masked entries in"), (scipy.sparse.csr_matrix, r"csr_matrix in")],
)
def test_masked_and_sparse_chunks_are_refused(easy, convert, message):
    lazy = da.from_array(easy[0], chunks=(500, 12)).map_blocks(convert, meta=np.empty((0, 0)))
    for compute in (LpDictionaryLearning().fit, lambda X: LpICA().fit(easy[0]).transform(X).compute()):
        with pytest.raises((ValueError, TypeError), match=f"{message} the chunk of X that starts at sample"):
            compute(lazy)


@pytest.mark.parametrize(
    ("X", "error", "message"),
    [
        (da.zeros(10), ValueError, "Expected 2D array, got 1D"),
        (da.zeros((30, 4), dtype=complex), ValueError, "Complex data not supported"),
        (da.zeros((30, 4)).astype(str), ValueError, r"real numbers, not .*X\.astype\(float\)"),
        (da.zeros((1, 4)), ValueError, "minimum of 2"),
        (dask.bag.from_sequence([1, 2]), TypeError, "a dask array or data frame. Got a Bag"),
        (dd.from_dict({"a": [1.0, 2], "b": ["c", "d"]}, npartitions=1), ValueError, "column 'b', not numbers"),
    ],
)
def test_what_does_not_hold_samples_is_refused(X, error, message):
    with pytest.raises(error, match=message):
        LpDictionaryLearning().fit(X)


def test_cluster_without_running_workers_is_an_error(easy, monkeypatch):
    monkeypatch.setattr(cluster, "PATIENCE", 0.5)
    samples = DaskSamples(cut(easy[0]))
    with LocalCluster(1, 1, processes=False, memory_limit=0, dashboard_address=":0") as local, Client(local) as client:
        client.run(lambda dask_worker: setattr(dask_worker, "status", Status.paused))
        with pytest.raises(exceptions.ClusterError, match=r"all 1 are paused\..*more memory"):
            compute_statistics(samples)
        local.scale(0)
        while client.scheduler_info()["workers"]:
            time.sleep(0.05)
        with pytest.raises(exceptions.ClusterError, match="there are none"):
            compute_statistics(samples)
        threading.Timer(0.2, client.close).start()
        with pytest.raises(exceptions.ClusterError, match=r"lost|cancelled"):
            compute_statistics(samples)


@pytest.mark.usefixtures("read_in_every_pass")
def test_killed_worker_changes_nothing_but_samples_that_kill_workers_are_an_error(easy):
    def interfere(iteration):
        if iteration.iteration == 3:
            os.kill(local.workers[0].pid, signal.SIGKILL)

    def die(block, block_info=None):
        if block_info[0]["chunk-location"][0] == 2:
            os.kill(os.getpid(), signal.SIGKILL)
        return block

    expected = LpDictionaryLearning(**POWER).fit(easy[0])
    deadly = DaskSamples(cut(easy[0]).map_blocks(die, meta=np.empty((0, 0))))
    with (
        dask.config.set({"distributed.worker.multiprocessing-method": "forkserver"}),  # starts in less time
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0", memory_limit=0) as local,
        Client(local) as client,
    ):
        lazy = client.persist(cut(easy[0]))
        assert_same_fit(LpDictionaryLearning(**POWER).fit(lazy, callback=interfere), expected)
        client.run_on_scheduler(lambda dask_scheduler: setattr(dask_scheduler, "allowed_failures", 0))
        with pytest.raises(exceptions.ClusterError, match="1 workers died with the same samples"):
            compute_statistics(deadly)
