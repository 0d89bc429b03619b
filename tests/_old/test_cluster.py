"""Samples in dask arrays, looked at by the threads of this process: the fit is that of memory, to the last bit."""

import dataclasses
import pickle
import subprocess
import sys

import dask.array as da
import numpy as np
import pytest

from elldict import LpDictionaryLearning
from elldict._old.data import dask as cluster
from elldict._old.data import dataset as base
from elldict._old.data.dask import make_dask_dataset
from elldict._old.data.dataset import ArrayDataset
from elldict._old.data.npy import open_npy
from elldict._old.data.statistics import StatisticsKernel, compute_statistics

LAYOUTS = {
    "one": (4000, 12),
    "small": (37, 12),
    "columns": (1000, 5),
    "uneven": ((1, 1999, 7, 0, 993, 1000), 12),
    "tiles": (128, 12),
}


@pytest.fixture(autouse=True)
def many_tiles(monkeypatch):
    """Tiles of at most 128 rows, or these samples would be one."""
    monkeypatch.setattr(base, "SPLIT_WORK", 0)
    monkeypatch.setattr(base, "TILE_BYTES", 128 * 12 * 8)
    assert base.rows_per_tile(4000, 12, "float64") == 125


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("block_size", [None, 1, 1000])
def test_sums_are_those_of_memory_to_the_last_bit(easy, layout, block_size):
    X = easy[0]
    samples = make_dask_dataset(da.from_array(X, chunks=LAYOUTS[layout]), block_size=block_size)
    found, expected = (some.sum(StatisticsKernel("float64")) for some in (samples, ArrayDataset(X)))
    np.testing.assert_array_equal(found.scatter, expected.scatter)
    np.testing.assert_array_equal(found.mean, expected.mean)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(
    "how",
    [
        {},
        {"solver": "power", "refine": None},
        {"whiten": True, "center": True},
        {"n_components": 5, "refine": None},
        {"p": 1},
    ],
    ids=["default", "power", "whiten", "few", "l_1"],
)
def test_fits_are_those_of_memory(easy, layout, how):
    X = easy[0]
    expected = LpDictionaryLearning(random_state=0, **how).fit(X)
    found = LpDictionaryLearning(random_state=0, **how).fit(da.from_array(X, chunks=LAYOUTS[layout]))
    assert type(found.components_) is np.ndarray
    np.testing.assert_array_equal(found.components_, expected.components_)
    assert found.n_passes_ == expected.n_passes_
    assert found.refined_ == expected.refined_


@pytest.mark.parametrize("dtype", ["float32", "float16", "int16", ">f8"])
def test_every_type_is_fitted_as_in_memory(easy, dtype):
    X = (100 * easy[0]).astype(dtype)
    expected = LpDictionaryLearning(random_state=0).fit(X)
    found = LpDictionaryLearning(random_state=0).fit(da.from_array(X, chunks=(700, 12)))
    np.testing.assert_array_equal(found.components_, expected.components_)
    assert found.components_.dtype == expected.components_.dtype


def test_the_input_is_looked_at_not_changed(easy):
    X = da.from_array(easy[0], chunks=(1000, 5))
    before = dict(X.dask)
    LpDictionaryLearning(random_state=0).fit(X)
    assert dict(X.dask) == before
    assert X.chunks[1] == (5, 5, 2)


def test_codes_and_scores_are_lazy(easy):
    X = easy[0]
    lazy = da.from_array(X, chunks=(900, 5))
    model = LpDictionaryLearning(random_state=0).fit(X)
    # without noise the density of a code has a standard deviation of 1e-9 at zero, and its logarithm a slope of up to
    # 1e9 there; products of blocks of other shapes round codes by 1e-15
    for method, rounding in (("transform", 1e-12), ("score_samples", 12 * 1e9 * 1e-15)):
        found = getattr(model, method)(lazy)
        assert isinstance(found, da.Array)
        assert found.chunks[0] == lazy.chunks[0]
        np.testing.assert_allclose(found.compute(), getattr(model, method)(X), rtol=1e-12, atol=rounding)
    assert model.score(lazy) == pytest.approx(model.score(X), abs=12 * 1e9 * 1e-15)
    rebuilt = model.inverse_transform(model.transform(lazy))
    assert isinstance(rebuilt, da.Array)
    np.testing.assert_allclose(rebuilt.compute(), X, atol=1e-12)


@pytest.mark.parametrize("algorithm", ["threshold", "hard_threshold", "omp"])
def test_every_kind_of_code(easy, algorithm):
    X = easy[0]
    model = LpDictionaryLearning(random_state=0, transform_algorithm=algorithm, transform_alpha=0.1).fit(X)
    found = model.transform(da.from_array(X, chunks=(900, 12))).compute()
    np.testing.assert_allclose(found, model.transform(X), atol=1e-12)


def test_nan_is_found_with_its_chunk(easy):
    X = easy[0].copy()
    X[2345, 6] = np.nan
    lazy = da.from_array(X, chunks=(1000, 12))
    told = r"NaN in sample 2345, feature 6 \(row 345 of chunk 2, X.blocks\[2\]\)"
    with pytest.raises(ValueError, match=told):
        LpDictionaryLearning().fit(lazy)
    with pytest.raises(ValueError, match=told):
        LpDictionaryLearning(random_state=0).fit(easy[0]).transform(lazy).compute()


def test_masked_entries_are_refused(easy):
    X = np.ma.masked_greater(easy[0], 0.5)
    with pytest.raises(ValueError, match="masked entries in the chunk that starts at sample"):
        LpDictionaryLearning().fit(da.from_array(X, chunks=(500, 12)))


@pytest.mark.parametrize(
    ("X", "told"),
    [
        (da.zeros(10), "Expected a 2D array"),
        (da.zeros((3, 4, 5)), "Expected a 2D array"),
        (da.zeros((30, 4), dtype=complex), "Complex data not supported"),
        (da.from_array(np.full((30, 4), "a"), chunks=10), "expected real numbers"),
        (da.zeros((1, 4)), "minimum of 2"),
        (da.zeros((30, 1)), "minimum of 2"),
        (da.zeros((30, 4)), "all zero"),
        (da.ones((30, 4))[da.ones(30) > 0], "compute_chunk_sizes"),
    ],
)
def test_what_cannot_be_samples_is_refused(X, told):
    with pytest.raises(ValueError, match=told):
        LpDictionaryLearning().fit(X)


def test_other_features_than_fitted_are_refused(easy):
    model = LpDictionaryLearning(random_state=0).fit(easy[0])
    with pytest.raises(ValueError, match="12 features"):
        model.transform(da.zeros((30, 4)))
    with pytest.raises(ValueError, match="n_components_=12"):
        model.inverse_transform(da.zeros((30, 4)))


@pytest.mark.parametrize("layout", LAYOUTS)
def test_rows_by_index(easy, layout, rng):
    X = easy[0]
    samples = make_dask_dataset(da.from_array(X, chunks=LAYOUTS[layout]))
    for index in (np.array([0, 3999]), np.sort(rng.choice(4000, 300, replace=False)), np.arange(0)):
        np.testing.assert_array_equal(samples.take(index), X[index])


def test_of_chunks_without_wanted_rows_nothing_is_computed(easy):
    def loud(block, block_info=None):
        assert block_info[0]["chunk-location"][0] == 1, "only the second chunk is wanted"
        return block

    X = da.from_array(easy[0], chunks=(1000, 12)).map_blocks(loud, dtype=float, meta=np.empty((0, 0)))
    np.testing.assert_array_equal(make_dask_dataset(X).take(np.array([1001, 1500])), easy[0][[1001, 1500]])


def test_fingerprints_tell_data_not_layouts(easy):
    X = easy[0]
    one, two = (make_dask_dataset(da.from_array(X, chunks=chunks)).fingerprint() for chunks in ((1000, 12), (77, 5)))
    changed = X.copy()
    changed[1234, 5] += 1e-9
    assert one == two != make_dask_dataset(da.from_array(changed, chunks=(1000, 12))).fingerprint()


def test_the_graph_holds_no_samples():
    lazy = da.random.default_rng(0).standard_normal((10**7, 50), chunks=(10**5, 50))  # 4 GB, never made
    plans = []

    class ToldError(Exception):
        pass

    class Engine:
        n_threads = 2

        def result(self, plan):
            plans.append(plan())
            raise ToldError

    samples = dataclasses.replace(make_dask_dataset(lazy), engine=Engine())
    with pytest.raises(ToldError):
        samples.sum(StatisticsKernel("float64"))
    (plan,) = plans
    assert len(pickle.dumps(plan.tasks)) < 20_000
    assert len(plan.tasks) < 100 + 100 // 16 + 5  # a task a chunk, a sixteenth of that to join them, job and root


def test_files_on_a_cluster(easy, tmp_path):
    path = tmp_path / "X.npy"
    np.save(path, easy[0])
    samples = make_dask_dataset(open_npy(path), block_size=500)
    expected = LpDictionaryLearning(random_state=0).fit(easy[0])
    spread = samples.sum(StatisticsKernel("float64"))
    np.testing.assert_array_equal(spread.scatter, ArrayDataset(easy[0]).sum(StatisticsKernel("float64")).scatter)
    np.testing.assert_array_equal(samples.take(np.array([5, 77])), easy[0][[5, 77]])
    codes = samples.map_rows(_Doubling(), 12)
    np.testing.assert_array_equal(codes.compute(), 2 * easy[0])
    assert codes.numblocks[0] > 1
    assert compute_statistics(samples, center=False, precise=False).rank == len(expected.components_)


@pytest.mark.parametrize("of_file", [False, True])
def test_codes_are_written_to_a_file(easy, tmp_path, of_file, monkeypatch):
    monkeypatch.setattr(cluster, "WRITTEN_BYTES", 30_000)
    np.save(tmp_path / "X.npy", easy[0])
    X = (
        make_dask_dataset(open_npy(tmp_path / "X.npy"), block_size=500)
        if of_file
        else da.from_array(easy[0], chunks=900)
    )
    model = LpDictionaryLearning(random_state=0).fit(X)
    model.transform(X, out=tmp_path / "codes.npy")
    np.testing.assert_allclose(np.load(tmp_path / "codes.npy"), model.transform(easy[0]), atol=1e-12)


def test_a_file_that_changes_is_noticed(easy, tmp_path):
    path = tmp_path / "X.npy"
    np.save(path, easy[0])
    samples = make_dask_dataset(open_npy(path))
    np.save(path, easy[0][:3000])
    with pytest.raises(ValueError, match="has changed"):
        samples.sum(StatisticsKernel("float64"))


class _Doubling:
    def bind(self, backend):
        return lambda Y: 2 * Y


def test_without_dask_the_error_names_the_extra():
    script = """
import sys
sys.modules["dask"] = None
try:
    import elldict._old.data.dask
except ImportError as error:
    assert "pip install '.[dask]' in a clone of elldict" in str(error), error
else:
    raise AssertionError("no error")
"""
    subprocess.run([sys.executable, "-c", script], check=True, timeout=60)
