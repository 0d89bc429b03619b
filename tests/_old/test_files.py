"""Samples in files: the answer of the array to the last bit, in little memory, and never a quiet wrong one."""

import contextlib
import errno
import json
import os
import pickle
import subprocess
import sys
import threading
import zlib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import dask
import dask.array as da
import numcodecs
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zarr
import zarr.codecs.numcodecs

import elldict
from elldict import LpDictionaryLearning, open_samples
from elldict._old.data import file as ahead
from elldict._old.data.dataset import ArrayDataset
from elldict._old.data.file import FileDataset, Prefetcher
from elldict._old.data.npy import open_npy
from elldict._old.data.writers import NpyWriter, ZarrWriter
from elldict.datasets import make_bernoulli_gaussian
from elldict.exceptions import SamplesChangedError, SamplesFileError

N_SAMPLES, N_FEATURES = 9001, 24  # four tiles


@pytest.fixture(scope="module")
def X():  # noqa: N802
    samples = make_bernoulli_gaussian(N_SAMPLES, N_FEATURES, density=0.2, noise_std=0.1, random_state=0)[0]
    samples.setflags(write=False)
    return samples


# --- writers of every kind of file ------------------------------------------------------------------------------------


def as_npy(X, folder):
    np.save(folder / "x.npy", X)
    return folder / "x.npy"


def as_fortran_npy(X, folder):
    return as_npy(np.asfortranarray(X), folder)


def as_memmap(X, folder):
    return np.load(as_npy(X, folder), mmap_mode="r")


def as_part_of_a_memmap(X, folder):
    return np.load(as_npy(np.vstack([X[:5], X, X[:7]]), folder), mmap_mode="r")[5:-7]


def as_scattered_memmap(X, folder):
    return np.load(as_npy(np.repeat(X, 2, axis=0), folder), mmap_mode="r")[::2]


def as_zarr(X, folder, **how):
    zarr.create_array(
        folder / "x.zarr",
        data=np.asarray(X),
        **{"chunks": (1000, N_FEATURES), "config": {"write_empty_chunks": True}, **how},
    )
    return folder / "x.zarr"


def as_odd_zarr(X, folder):
    return zarr.open_array(as_zarr(X, folder, chunks=(977, 10)), mode="r")


def as_zarr_in_one_chunk(X, folder):
    return as_zarr(X, folder, chunks=X.shape)


def as_sharded_zarr(X, folder):
    return as_zarr(X, folder, chunks=(100, 6), shards=(1000, N_FEATURES))


def as_zarr_2(X, folder):
    return as_zarr(X, folder, zarr_format=2)


def as_zarr_group(X, folder):
    zarr.open_group(folder / "g.zarr", mode="w").create_array("inner", data=np.asarray(X), chunks=(500, N_FEATURES))
    return open_samples(folder / "g.zarr", column="inner")


def as_zarr_in_memory(X, folder):
    return zarr.array(np.asarray(X), chunks=(800, 4))


NAMES = [f"feature {k}" for k in range(N_FEATURES)]


def as_frame(X, folder):
    frame = pd.DataFrame(X, columns=NAMES, index=np.arange(len(X)) + 5)  # a column that is no feature
    frame.to_parquet(folder / "x.parquet", row_group_size=1111)
    return folder / "x.parquet"


def list_table(X, kind="fixed"):
    values = pa.array(np.ascontiguousarray(X).ravel())
    if kind == "fixed":
        lists = pa.FixedSizeListArray.from_arrays(values, X.shape[1])
    else:
        lists = pa.ListArray.from_arrays(np.arange(0, X.size + 1, X.shape[1], dtype=np.int32), values)
    return pa.table({"y": lists})


def as_lists(X, folder):
    pq.write_table(list_table(X), folder / "x.parquet", row_group_size=4000)
    return folder / "x.parquet"


def as_lists_of_any_length(X, folder):
    pq.write_table(list_table(X, "variable"), folder / "x.parquet")
    return str(folder / "x.parquet")


def as_chosen_lists(X, folder):
    table = list_table(X).append_column("number", pa.array(np.arange(len(X))))
    pq.write_table(table, folder / "x.parquet", row_group_size=700)
    return open_samples(folder / "x.parquet", column="y", block_size=5)


def as_folder(X, folder):
    inside = folder / "parts"
    inside.mkdir()
    for number, (start, stop) in enumerate([(0, 1), (1, 4000), (4000, 4000), (4000, 8999), (8999, N_SAMPLES)]):
        pq.write_table(list_table(X[start:stop]), inside / f"part-{number}.parquet", row_group_size=1500)
    (inside / "_metadata.parquet").write_text("not data")
    return inside


def as_chosen_columns(X, folder):
    frame = pd.DataFrame(X, columns=NAMES).assign(text="words")
    frame.to_parquet(folder / "x.parquet")
    return open_samples(folder / "x.parquet", column=NAMES)


SOURCES = {
    name.removeprefix("as_").replace("_", " "): writer for name, writer in dict(globals()).items() if name[:3] == "as_"
}


# --- the same answer --------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def in_memory(X):
    """Default fits of the array, by precision."""
    return {dtype: LpDictionaryLearning(random_state=0).fit(X.astype(dtype)) for dtype in ("float64", "float32")}


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("kind", SOURCES)
def test_every_source_gives_the_answer_of_the_array(X, in_memory, tmp_path, kind, dtype):
    array = X.astype(dtype)
    there, here = SOURCES[kind](array, tmp_path), in_memory[dtype]
    model = LpDictionaryLearning(random_state=0).fit(there)
    assert model.components_.dtype == array.dtype
    np.testing.assert_array_equal(model.components_, here.components_)
    assert (model.n_passes_, model.status_) == (here.n_passes_, here.status_)
    np.testing.assert_array_equal(model.transform(there), here.transform(array))
    np.testing.assert_array_equal(model.score_samples(there), here.score_samples(array))
    assert model.score(there) == here.score(array)


ROADS = [
    {"solver": "power", "p": 4, "refine": None},
    {"solver": "power", "tol": 1e-4},
    {"whiten": True, "center": True},
    {"refine": "sparse-corruption"},
    {"n_components": 5, "n_init": 2},
    {"p": (3, 2.5)},
    {"p": 1},
    {"p": (3, 0.5), "refine": None, "n_components": 5},
]


@pytest.mark.parametrize("parameters", ROADS, ids=str)
@pytest.mark.parametrize("kind", ["npy", "odd zarr", "lists"])
def test_every_road_gives_the_answer_of_the_array(X, tmp_path, kind, parameters):
    there, here = (LpDictionaryLearning(random_state=1, **parameters) for _ in range(2))
    there.fit(SOURCES[kind](X, tmp_path))
    here.fit(X)
    np.testing.assert_array_equal(there.components_, here.components_)
    np.testing.assert_array_equal(there.mean_, here.mean_)
    assert there.expected_error_ == here.expected_error_


@pytest.mark.parametrize("block_size", [1, 2, 977, N_SAMPLES - 1, N_SAMPLES, N_SAMPLES + 1, 10**9])
def test_the_answer_does_not_depend_on_the_block_size(X, in_memory, tmp_path, block_size):
    samples = open_samples(as_npy(X, tmp_path), block_size=block_size)
    model = LpDictionaryLearning(random_state=0).fit(samples)
    np.testing.assert_array_equal(model.components_, in_memory["float64"].components_)


@pytest.mark.parametrize("kind", ["npy", "odd zarr", "sharded zarr", "frame", "folder", "lists of any length"])
def test_rows_are_those_of_the_array_wherever_they_are_read(X, tmp_path, rng, kind):
    source = SOURCES[kind](X, tmp_path)
    reader = open_samples(source).reader
    for start, stop in [(0, 3), (3, 1000), (1000, 1001), (8000, N_SAMPLES), (0, N_SAMPLES), (5, 5), (978, 4001)]:
        np.testing.assert_array_equal(reader.read(start, stop), X[start:stop])
    for number in (1, 7, 500):
        index = np.sort(rng.choice(N_SAMPLES, number, replace=False))
        np.testing.assert_array_equal(reader.take(index), X[index])


@pytest.mark.parametrize("convert", [np.int16, np.uint8, bool, np.float16, ">f8", ">f4"])
@pytest.mark.parametrize("kind", ["npy", "zarr 2", "lists"])
def test_other_numbers_are_widened_as_those_of_arrays_are(X, tmp_path, kind, convert):
    array = (np.abs(X) * 20).astype(convert) if convert is not bool else X > 0.5
    if kind == "lists":
        array = array.astype(array.dtype.newbyteorder("="))  # parquet knows no other
    samples = open_samples(SOURCES[kind](array, tmp_path))
    assert samples.dtype == ArrayDataset(array).dtype
    np.testing.assert_array_equal(samples.take(np.arange(50)), array[:50].astype(float))
    np.testing.assert_array_equal(samples.reader.read(10, 20), array[10:20].astype(samples.dtype))


def test_many_blocks_are_read_once_each_and_in_order(X, tmp_path, monkeypatch):
    monkeypatch.setattr("elldict._old.data.file.rows_per_tile", lambda *_: 7)
    samples = open_samples(as_npy(X, tmp_path), block_size=20)
    asked = []
    read = type(samples.reader).read
    monkeypatch.setattr(
        type(samples.reader),
        "read",
        lambda reader, start, stop, out: (asked.append(start), read(reader, start, stop, out)),
    )

    class Copies:
        def bind(self, backend):
            return lambda tile: [tile.copy()]

    tiles = samples.sum(Copies())
    np.testing.assert_array_equal(np.vstack(tiles), X)
    assert asked == list(range(0, N_SAMPLES, 21)), "blocks of whole tiles"


def test_reading_goes_ahead_of_the_work_and_no_further(X, tmp_path):
    reader = open_npy(as_npy(X, tmp_path))
    begin = threading.Semaphore(0)

    class Watched:
        n_samples, n_features, dtype = reader.n_samples, reader.n_features, reader.dtype

        def read(self, start, stop, out):
            reader.read(start, stop, out)
            begin.release()

    with Prefetcher(Watched(), 1000) as blocks:
        for _ in range(ahead.PREFETCHED_BLOCKS):
            assert begin.acquire(timeout=60), "the first blocks are read before anybody asks"
        assert not begin.acquire(timeout=0.1), "there is no memory for another"
        with blocks.rows(0, 1000):
            assert not begin.acquire(timeout=0.1), "the first block is still in use"
        assert begin.acquire(timeout=60), "its memory is used again"


def test_a_reader_that_fails_fails_the_pass_and_leaves_no_thread(X, tmp_path):
    class Failing:
        n_samples, n_features, dtype, path, feature_names = N_SAMPLES, N_FEATURES, "float64", "", None

        def read(self, start, stop, out):
            if start:
                raise OSError("the disk is gone")
            out[:] = 1

        def check_unchanged(self):
            pass

    with pytest.raises(OSError, match="the disk is gone"):
        LpDictionaryLearning().fit(FileDataset(Failing(), 1))
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("elldict reading")]


def test_work_that_fails_leaves_no_thread(X, tmp_path):
    class Failing:
        def bind(self, backend):
            def visit(tile):
                raise KeyboardInterrupt

            return visit

    with pytest.raises(KeyboardInterrupt):
        open_samples(as_npy(X, tmp_path), block_size=1).sum(Failing())
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("elldict reading")]


@pytest.mark.parametrize("kind", ["npy", "odd zarr", "lists"])
def test_fits_in_many_threads_share_a_source(X, tmp_path, in_memory, kind):
    samples = open_samples(SOURCES[kind](X, tmp_path), block_size=1000)
    with ThreadPoolExecutor(4) as pool:
        models = list(pool.map(lambda seed: LpDictionaryLearning(random_state=0).fit(samples), range(4)))
    for model in models:
        np.testing.assert_array_equal(model.components_, in_memory["float64"].components_)


@pytest.fixture
def decoded(monkeypatch):
    """Numbers of rows that pyarrow has decoded."""
    counted = []
    iter_batches = pq.ParquetFile.iter_batches

    def count(self, *how, **options):
        for batch in iter_batches(self, *how, **options):
            counted.append(batch.num_rows)
            yield batch

    monkeypatch.setattr(pq.ParquetFile, "iter_batches", count)
    monkeypatch.setattr("elldict._old.data.parquet.BATCH_BYTES", 100 * 8 * N_FEATURES)  # batches of 100 rows
    return counted


@pytest.mark.parametrize("kind", ["frame", "lists", "lists of any length", "folder"])
@pytest.mark.parametrize("n_passes", [1, 2, 5])
def test_passes_side_by_side_decode_every_row_once_each(X, tmp_path, decoded, kind, n_passes):
    reader = open_samples(SOURCES[kind](X, tmp_path)).reader
    decoded.clear()
    passes = [iter(range(offset * 250, N_SAMPLES, 250)) for offset in range(n_passes)]  # each begins a block later
    n_wanted = sum(N_SAMPLES - offset * 250 for offset in range(n_passes))
    while passes:
        for each in list(passes):
            start = next(each, None)
            if start is None:
                passes.remove(each)
                continue
            stop = min(start + 250, N_SAMPLES)
            np.testing.assert_array_equal(reader.read(start, stop), X[start:stop])
    n_before = sum(offset * 250 for offset in range(n_passes))  # of a row group, the rows before the first one wanted
    assert sum(decoded) <= n_wanted + n_before + 100 * n_passes


def test_rows_drawn_during_a_pass_do_not_make_it_begin_again(X, tmp_path, decoded, rng):
    reader = open_samples(as_lists(X, tmp_path)).reader
    decoded.clear()
    for start in range(0, N_SAMPLES, 500):
        reader.read(start, min(start + 500, N_SAMPLES))
        if start % 3000 == 0:
            index = np.sort(rng.choice(N_SAMPLES, 50, replace=False))
            np.testing.assert_array_equal(reader.take(index), X[index])
    n_draws = len(range(0, N_SAMPLES, 3000))
    assert sum(decoded) == (1 + n_draws) * N_SAMPLES


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_fits_side_by_side_decode_no_more_than_one_after_the_other(X, tmp_path, decoded):
    samples = open_samples(as_lists_of_any_length(X, tmp_path), block_size=500)
    how = {"solver": "power", "refine": None, "max_iter": 3, "tol": 1e-12, "random_state": 0}

    def fit(_):
        return LpDictionaryLearning(**how).fit(samples)

    fit(0)
    alone = sum(decoded)
    decoded.clear()
    with ThreadPoolExecutor(3) as pool:
        list(pool.map(fit, range(3)))
    assert sum(decoded) <= 1.2 * 3 * alone


@pytest.mark.parametrize("chunk", [700, 3001])
def test_passes_side_by_side_decode_every_zarr_chunk_once_each(X, tmp_path, monkeypatch, chunk):
    reader = open_samples(as_zarr(X, tmp_path, chunks=(chunk, N_FEATURES))).reader
    decoded = []
    read_carefully = type(reader)._read_carefully

    def note(self, read, stored):
        rows = read_carefully(self, read, stored)
        decoded.append(len(rows))
        return rows

    monkeypatch.setattr(type(reader), "_read_carefully", note)
    for start in range(0, N_SAMPLES, 200):
        for begin in (start, start - 400):
            if begin >= 0:
                stop = min(begin + 200, N_SAMPLES)
                np.testing.assert_array_equal(reader.read(begin, stop), X[begin:stop])
    assert sum(decoded) <= 2 * N_SAMPLES


@pytest.mark.parametrize("kind", ["npy", "odd zarr", "zarr group", "frame", "folder"])
def test_a_reader_can_be_pickled_half_way(X, tmp_path, kind):
    source = SOURCES[kind](X, tmp_path)
    reader = (source if hasattr(source, "reader") else open_samples(source)).reader
    reader.read(0, 50)  # and holds the rest of a chunk, or an open file
    again = pickle.loads(pickle.dumps(reader))
    np.testing.assert_array_equal(again.read(50, 3000), X[50:3000])
    np.testing.assert_array_equal(reader.read(50, 3000), X[50:3000])
    assert again.fingerprint() == reader.fingerprint()
    assert len(pickle.dumps(reader)) < 20_000


def test_a_zarr_array_opened_by_a_relative_name_can_be_unpickled_elsewhere(X, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    as_zarr(X, tmp_path)
    packed = pickle.dumps(open_samples(zarr.open_array("x.zarr", mode="r")).reader)
    monkeypatch.chdir("/")
    np.testing.assert_array_equal(pickle.loads(packed).read(0, 10), X[:10])


# --- features, names, estimator ---------------------------------------------------------------------------------------


def test_columns_are_feature_names(X, tmp_path):
    model = LpDictionaryLearning(random_state=0).fit(as_frame(X, tmp_path))
    assert list(model.feature_names_in_) == NAMES
    model.transform(pd.DataFrame(X[:5], columns=NAMES))
    with pytest.raises(ValueError, match="feature names should match"):
        model.transform(pd.DataFrame(X[:5], columns=NAMES[::-1]))
    pd.DataFrame(X[:, ::-1], columns=NAMES[::-1]).to_parquet(tmp_path / "reversed.parquet")
    with pytest.raises(ValueError, match="feature names"):
        model.transform(tmp_path / "reversed.parquet")
    other = LpDictionaryLearning(random_state=0).fit(as_lists(X, tmp_path))
    assert not hasattr(other, "feature_names_in_")


@pytest.mark.parametrize("kind", ["npy", "memmap", "zarr", "lists"])
def test_the_number_of_features_is_checked(X, tmp_path, in_memory, kind):
    (tmp_path / "narrow").mkdir()
    source = (as_npy if kind == "npy" else as_memmap if kind == "memmap" else as_lists)(X[:, :7], tmp_path / "narrow")
    with pytest.raises(ValueError, match="X has 7 features, but LpDictionaryLearning is expecting 24 features"):
        in_memory["float64"].transform(source)


def test_a_file_of_one_sample_is_too_little_for_a_fit_and_enough_for_codes(X, tmp_path, in_memory):
    path = as_npy(X[:1], tmp_path)
    with pytest.raises(ValueError, match="1 sample"):
        LpDictionaryLearning().fit(path)
    np.testing.assert_array_equal(in_memory["float64"].transform(path), in_memory["float64"].transform(X[:1]))


def test_fit_transform_takes_files(X, tmp_path):
    path = as_npy(X, tmp_path)
    there, here = (LpDictionaryLearning(random_state=0).fit_transform(source) for source in (path, X))
    np.testing.assert_array_equal(there, here)


def test_sizes_beyond_32_bits_do_not_overflow(tmp_path, X):
    big = tmp_path / "big.npy"
    rows = 2**27 + 3  # of 24 values: 2**32 and more of them, in a file with a hole
    with big.open("wb") as stream:
        header = {"shape": (rows, N_FEATURES), "fortran_order": False, "descr": "<f8"}
        np.lib.format.write_array_header_1_0(stream, header)
        start = stream.tell()
        stream.seek(start + (rows - 2) * N_FEATURES * 8)
        stream.write(X[:2].tobytes())
    samples = open_samples(big)
    assert samples.n_samples * samples.n_features > 2**31
    np.testing.assert_array_equal(samples.reader.read(rows - 2, rows), X[:2])
    np.testing.assert_array_equal(samples.take(np.array([0, rows - 1])), [np.zeros(N_FEATURES), X[1]])
    assert samples.locate(rows - 1).endswith(f"byte {start + (rows - 1) * N_FEATURES * 8}")


def test_arrays_and_opened_samples_pass_through(X):
    assert isinstance(open_samples(X), ArrayDataset)
    samples = open_samples(X)
    assert open_samples(samples) is samples
    with pytest.raises(TypeError, match=r"from a list, expected the name"):
        open_samples([[1.0, 2.0]])


@pytest.mark.parametrize("block_size", [0, -1, 1.5, "many"])
def test_block_sizes_that_are_no_numbers_of_samples(X, tmp_path, block_size):
    with pytest.raises(ValueError, match="block_size="):
        open_samples(as_npy(X, tmp_path), block_size=block_size)


@pytest.mark.parametrize("kind", ["npy", "memmap", "zarr", "zarr group", "frame", "folder"])
def test_the_input_is_never_written_to(X, tmp_path, kind):
    source = SOURCES[kind](X, tmp_path)
    before = {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in tmp_path.rglob("*") if path.is_file()}
    LpDictionaryLearning(random_state=0).fit(source).transform(source)
    after = {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in tmp_path.rglob("*") if path.is_file()}
    assert after == before


@pytest.mark.parametrize("kind", ["npy", "odd zarr", "zarr", "frame", "folder"])
def test_fingerprints_follow_the_file(X, tmp_path, kind):
    source = SOURCES[kind](X, tmp_path)
    first = open_samples(source).fingerprint()
    assert open_samples(source).fingerprint() == first
    assert LpDictionaryLearning(random_state=0).fit(source)  # reading changes nothing
    assert open_samples(source).fingerprint() == first
    (tmp_path / "other").mkdir()
    assert open_samples(SOURCES[kind](X + 1e-9, tmp_path / "other")).fingerprint() != first


@pytest.mark.parametrize("module", ["zarr", "pyarrow.parquet"])
def test_a_missing_package_is_named_with_its_extra(X, tmp_path, monkeypatch, module):
    path = (as_zarr if module == "zarr" else as_lists)(X, tmp_path)
    monkeypatch.setitem(sys.modules, module, None)
    package = module.partition(".")[0]
    with pytest.raises(
        ImportError, match=rf"{package} is needed for this: pip install '\.\[files\]' in a clone of elldict"
    ):
        LpDictionaryLearning().fit(path)


def test_a_client_without_dask_is_named_with_its_extra(X, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "dask", None)
    with pytest.raises(ImportError, match=r"dask is needed for this: pip install '\.\[dask\]' in a clone of elldict"):
        open_samples(as_npy(X, tmp_path), client=object())


# --- codes to a file --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["codes.npy", "codes.zarr"])
@pytest.mark.parametrize("kind", ["npy", "odd zarr", "array"])
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_codes_in_a_file_are_those_in_memory(X, tmp_path, in_memory, kind, name, dtype):
    array, model = X.astype(dtype), in_memory[dtype]
    source = array if kind == "array" else SOURCES[kind](array, tmp_path)
    codes = model.transform(source, out=tmp_path / name)
    assert codes.dtype == array.dtype
    np.testing.assert_array_equal(codes[:], model.transform(array))
    again = open_samples(tmp_path / name)  # what was written can be read, and is complete
    np.testing.assert_array_equal(again.take(np.arange(len(X))), codes[:])
    model.transform(array[:100], out=tmp_path / name)
    assert open_samples(tmp_path / name).n_samples == 100, "an older file is replaced"
    assert not list(tmp_path.glob(".*")), "nothing is left behind"


def test_codes_that_are_all_zero_are_chunks_too(X, tmp_path):
    model = LpDictionaryLearning(transform_algorithm="threshold", transform_alpha=1e9, random_state=0).fit(X)
    model.transform(X, out=tmp_path / "codes.zarr")
    assert not np.any(open_samples(tmp_path / "codes.zarr").take(np.arange(len(X))))


@pytest.mark.parametrize("name", ["codes.npy", "codes.zarr"])
def test_codes_that_fail_half_way_are_not_there(X, tmp_path, in_memory, name):
    bad = X.copy()
    bad[-1, 3] = np.nan
    model, path = in_memory["float64"], tmp_path / name
    with pytest.raises(ValueError, match=r"NaN in sample 9000, feature 3 \(.*x\.npy, byte \d+\)"):
        model.transform(as_npy(bad, tmp_path), out=path)
    assert not path.exists()
    model.transform(X, out=path)
    with pytest.raises(ValueError, match="NaN"):
        model.transform(bad, out=path)
    assert open_samples(path).n_samples == N_SAMPLES, "the older file stays"
    assert not list(tmp_path.glob(".*"))


@pytest.mark.parametrize(("name", "sink"), [("codes.npy", NpyWriter), ("codes.zarr", ZarrWriter)])
def test_a_full_disk_leaves_the_older_codes(X, tmp_path, in_memory, monkeypatch, name, sink):
    model, path = in_memory["float64"], tmp_path / name
    model.transform(X[:100], out=path)

    def full(self, start, rows):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(sink, "write", full)
    with pytest.raises(OSError, match="No space left"):
        model.transform(X, out=path)
    assert open_samples(path).n_samples == 100
    assert not list(tmp_path.glob(".*"))


def test_codes_never_take_the_place_of_the_input(X, tmp_path, in_memory):
    model = in_memory["float64"]
    for path, out in [
        (as_npy(X, tmp_path), tmp_path / "x.npy"),
        (as_zarr(X, tmp_path), tmp_path / "x.zarr"),
        (as_zarr_group(X, tmp_path), tmp_path / "g.zarr"),
    ]:
        with pytest.raises(ValueError, match="also the input"):
            model.transform(path, out=out)
    with pytest.raises(ValueError, match=r"should end in"):
        model.transform(X, out=tmp_path / "codes.xls")


def scaled_by_dask(X, folder):
    return 2 * da.from_zarr(str(as_zarr(X, folder)))


def npy_stack(X, folder):
    da.to_npy_stack(folder / "stack", da.from_array(X, chunks=(3000, -1)))
    return da.from_npy_stack(folder / "stack")


def in_a_link(X, folder):
    (folder / "link.npy").symlink_to(as_npy(X, folder))
    return folder / "link.npy"


def in_a_hard_link(X, folder):
    (folder / "other.npy").hardlink_to(as_npy(X, folder))
    return folder / "other.npy"


def delayed_load(X, folder):
    path = str(as_npy(X, folder))
    load = dask.delayed(lambda: np.load(path))
    return da.from_delayed(load(), X.shape, X.dtype)


def parquet_in_a_zarr_array(X, folder):
    as_zarr(X[:100], folder)
    return as_lists(X, folder / "x.zarr")


OVER_ITSELF = {  # how samples that rest on a file are given, and the name that would replace it
    "view_of_a_map": (lambda X, folder: np.load(as_npy(X, folder), mmap_mode="r")[::2], "x.npy"),
    "columns_of_a_map": (lambda X, folder: np.load(as_npy(X, folder), mmap_mode="r")[:, ::-1], "x.npy"),
    "map_copied_on_write": (lambda X, folder: np.load(as_npy(X, folder), mmap_mode="c"), "x.npy"),
    "array_of_a_map": (lambda X, folder: np.asarray(as_memmap(X, folder)), "x.npy"),
    "view_of_an_array_of_a_map": (lambda X, folder: np.asarray(as_memmap(X, folder)).T.T[3:], "x.npy"),
    "raw_buffer": (
        lambda X, folder: np.frombuffer(memoryview(as_memmap(X, folder)._mmap), offset=128).reshape(X.shape),
        "x.npy",
    ),
    "opened_map": (lambda X, folder: open_samples(np.load(as_npy(X, folder), mmap_mode="c")), "x.npy"),
    "renamed_map": (
        lambda X, folder: (as_memmap(X, folder)[::2], (folder / "x.npy").rename(folder / "y.npy"))[0],
        "y.npy",
    ),
    "data_frame_of_a_map": (lambda X, folder: pd.DataFrame(as_memmap(X, folder), copy=False), "x.npy"),
    "link": (in_a_link, "x.npy"),
    "link_to_the_output": (lambda X, folder: (in_a_link(X, folder), as_npy(X, folder))[1], "link.npy"),
    "hard_link": (in_a_hard_link, "x.npy"),
    "map_of_a_hard_link": (lambda X, folder: np.load(in_a_hard_link(X, folder), mmap_mode="c"), "x.npy"),
    "dask_of_zarr": (lambda X, folder: da.from_zarr(str(as_zarr(X, folder))), "x.zarr"),
    "dask_of_an_open_zarr_array": (lambda X, folder: da.from_zarr(zarr.open_array(as_zarr(X, folder))), "x.zarr"),
    "sum_of_dask": (scaled_by_dask, "x.zarr"),
    "dask_of_an_array_in_a_group": (
        lambda X, folder: (as_zarr_group(X, folder), da.from_zarr(str(folder / "g.zarr"), "inner"))[1],
        "g.zarr/inner",
    ),
    "dask_of_npy_files": (npy_stack, "stack/1.npy"),
    "dask_of_a_function": (delayed_load, "x.npy"),
    "folder_that_holds_the_input": (parquet_in_a_zarr_array, "x.zarr"),
    "chunk_of_the_input": (as_zarr, "x.zarr/c/0/0"),
}


@pytest.mark.filterwarnings("ignore:.*chunk")
@pytest.mark.parametrize("way", OVER_ITSELF)
def test_fault_42_codes_never_replace_what_samples_rest_on(X, tmp_path, in_memory, way):
    make, name = OVER_ITSELF[way]
    source = make(X, tmp_path)
    before = contents(tmp_path)
    with pytest.raises(ValueError, match="also the input, or holds it"):
        in_memory["float64"].transform(source, out=tmp_path / name)
    assert contents(tmp_path) == before


@pytest.mark.parametrize("way", ["view_of_a_map", "map_copied_on_write", "array_of_a_map"])
def test_fault_42_maps_are_found_where_the_system_does_not_list_them(X, tmp_path, in_memory, monkeypatch, way):
    monkeypatch.setattr("elldict._old.data.writers.MEMORY_MAPS", tmp_path / "nothing")
    source = OVER_ITSELF[way][0](X, tmp_path)
    with pytest.raises(ValueError, match="also the input, or holds it"):
        in_memory["float64"].transform(source, out=tmp_path / "x.npy")


def test_fault_42_tensors_of_a_map_are_seen_through(X, tmp_path):
    torch = pytest.importorskip("torch")
    tensor = torch.from_numpy(np.load(as_npy(X, tmp_path), mmap_mode="c"))
    before = contents(tmp_path)
    with pytest.raises(ValueError, match="also the input, or holds it"):
        LpDictionaryLearning(random_state=0).fit(tensor).transform(tensor, out=tmp_path / "x.npy")
    assert contents(tmp_path) == before


def test_fault_42_other_files_may_be_replaced(X, tmp_path, in_memory):
    """Codes written before, beside the samples, or to the old name of a file that has gone."""
    model = in_memory["float64"]
    as_zarr_group(X, tmp_path)
    for name, source in [
        ("codes.npy", as_memmap(X, tmp_path)[::2]),
        ("codes.zarr", da.from_zarr(str(as_zarr(X, tmp_path)))),
        ("g.zarr/codes.zarr", da.from_zarr(str(tmp_path / "g.zarr"), "inner")),
    ]:
        for _ in range(2):
            model.transform(source, out=tmp_path / name)
    mapped = as_memmap(X, tmp_path)[::2]
    (tmp_path / "x.npy").unlink()
    np.save(tmp_path / "x.npy", np.zeros(3))
    assert model.transform(mapped, out=tmp_path / "x.npy").shape == (len(mapped), N_FEATURES)


def contents(folder):
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_codes_take_the_place_of_a_zarr_array_only(X, tmp_path, in_memory):
    as_zarr_group(X, tmp_path)
    (tmp_path / "photos.zarr").mkdir()
    for name in ("g.zarr", "photos.zarr"):
        with pytest.raises(FileExistsError):
            in_memory["float64"].transform(X, out=tmp_path / name)
    assert (tmp_path / "g.zarr" / "inner").is_dir()


def test_a_zarr_array_whose_exchange_fails_is_put_back(X, tmp_path, in_memory, monkeypatch):
    model, path = in_memory["float64"], tmp_path / "codes.zarr"
    model.transform(X, out=path)
    rename = Path.rename
    calls = []

    def failing(self, target):
        calls.append(self)
        if len(calls) == 2:
            raise OSError("no space left")
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", failing)
    with pytest.raises(OSError, match="no space left"):
        model.transform(X[:50], out=path)
    assert open_samples(path).n_samples == N_SAMPLES
    assert not list(tmp_path.glob(".*"))


def test_chunks_are_never_shared_by_two_threads(X, tmp_path, in_memory, monkeypatch):
    written = []
    write = ZarrWriter.write
    monkeypatch.setattr(
        ZarrWriter, "write", lambda sink, start, rows: (written.append(start), write(sink, start, rows))
    )
    codes = in_memory["float64"].transform(X, out=tmp_path / "codes.zarr")
    assert len(written) > 1
    assert all(start % codes.chunks[0] == 0 for start in written)


# --- faults -----------------------------------------------------------------------------------------------------------


PLACES = {
    "npy": r"x\.npy, byte \d+",
    "fortran npy": r"x\.npy, byte \d+",
    "memmap": r"x\.npy, byte \d+",
    "zarr": r"x\.zarr, chunk c/7/0",
    "odd zarr": r"x\.zarr, chunks c/8/0 c/8/1 c/8/2",
    "zarr 2": r"x\.zarr, chunk 7\.0",
    "frame": r"x\.parquet, row group 7, row 7900",
    "lists": r"x\.parquet, row group 1, row 7900",
    "folder": r"part-3\.parquet, row group 2, row 3900",
}


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("kind", PLACES)
def test_a_value_that_is_not_finite_is_found_and_its_place_named(X, tmp_path, kind, value):
    bad = X.copy()
    bad[7900, 5] = value
    source = SOURCES[kind](bad, tmp_path)
    name = "NaN" if np.isnan(value) else "infinity"
    column = ", column 'feature 5'" if kind == "frame" else ""
    message = rf"X holds {name} in sample 7900, feature 5{column} \(.*{PLACES[kind]}\)\. Drop or impute it first"
    if kind == "frame" and np.isnan(value):  # which pandas writes as null
        message = rf"{PLACES[kind]}: column 'feature 5' is null"
    with pytest.raises(ValueError, match=message):
        LpDictionaryLearning().fit(source)


def test_the_byte_named_is_that_of_the_sample(X, tmp_path):
    path = as_npy(X, tmp_path)
    byte = int(open_samples(path).locate(7900).rsplit(" ", 1)[1])
    assert np.frombuffer(path.read_bytes()[byte : byte + 8])[0] == X[7900, 0]


def test_values_that_are_not_finite_are_found_by_score_and_transform(X, tmp_path, in_memory):
    bad = X.copy()
    bad[7900, 5] = np.nan
    path, model = as_npy(bad, tmp_path), in_memory["float64"]
    for method in (model.score, model.score_samples, model.transform):
        with pytest.raises(ValueError, match=r"sample 7900, feature 5 \(.*byte"):
            method(path)


@pytest.mark.parametrize("kind", ["zarr", "sharded zarr", "zarr 2", "odd zarr"])
def test_a_missing_zarr_chunk_is_an_error(X, tmp_path, kind):
    source = SOURCES[kind](X, tmp_path)
    chunks = sorted(path for path in (tmp_path / "x.zarr").rglob("*") if path.is_file() and path.name[0].isdigit())
    chunks[3].unlink()
    key = str(chunks[3].relative_to(tmp_path / "x.zarr"))
    with pytest.raises(SamplesFileError, match=rf"x\.zarr: chunk {key} of \d+ is missing"):
        LpDictionaryLearning().fit(source)


def test_a_missing_chunk_in_another_store_is_an_error(X):
    array = zarr.create_array(zarr.storage.MemoryStore(), shape=X.shape, chunks=(1000, N_FEATURES), dtype=float)
    array[:3000] = X[:3000]
    with pytest.raises(SamplesFileError, match="7 of 10 chunks are missing"):
        LpDictionaryLearning().fit(array)


@pytest.mark.parametrize("how", [{}, {"compressors": None}])
@pytest.mark.parametrize("damage", ["cut", "emptied"])
def test_a_damaged_zarr_chunk_is_named(X, tmp_path, how, damage):
    path = as_zarr(X, tmp_path, **how)
    os.truncate(path / "c" / "4" / "0", 777 if damage == "cut" else 0)
    with pytest.raises(SamplesFileError, match=r"x\.zarr, chunk c/4/0 is damaged"):
        LpDictionaryLearning().fit(path)


def test_a_damaged_chunk_is_named_wherever_reading_begins(X, tmp_path):
    path = as_zarr(X, tmp_path)
    reader = open_samples(path).reader
    os.truncate(path / "c" / "4" / "0", 0)
    for start, stop in [(3005, 4001), (3999, 5000), (4500, 4501)]:
        with pytest.raises(SamplesFileError, match=r"chunk c/4/0 is damaged"):
            reader.read(start, stop)
    with pytest.raises(SamplesFileError, match=r"chunk c/4/0 is damaged"):
        reader.take(np.array([1, 4999, 5000]))


def test_a_kernel_that_cannot_be_bound_is_no_hang(X, tmp_path):
    class Failing:
        def bind(self, backend):
            raise MemoryError("no scratch memory")

    with pytest.raises(MemoryError):
        open_samples(as_npy(X, tmp_path), block_size=1).sum(Failing())


def test_a_flipped_bit_is_found_where_the_file_has_checksums(X, tmp_path):
    path = as_zarr(X, tmp_path, compressors=zarr.codecs.Crc32cCodec())
    flip(path / "c" / "2" / "0", 5000)
    with pytest.raises(SamplesFileError, match="chunk c/2/0 is damaged"):
        LpDictionaryLearning().fit(path)
    pq.write_table(
        list_table(X), tmp_path / "x.parquet", write_page_checksum=True, compression=None, use_dictionary=False
    )
    flip(tmp_path / "x.parquet", 300_000)
    with pytest.raises(SamplesFileError, match=r"x\.parquet, row group 0, row \d+, or a row after it, cannot be read"):
        LpDictionaryLearning().fit(tmp_path / "x.parquet")


def flip(path, byte):
    content = bytearray(path.read_bytes())
    content[byte] ^= 0x10
    path.write_bytes(content)


def test_damaged_zarr_metadata_is_named(X, tmp_path):
    path = as_zarr(X, tmp_path)
    (path / "zarr.json").write_text("{")
    with pytest.raises(SamplesFileError, match=r"x\.zarr cannot be opened as zarr"):
        LpDictionaryLearning().fit(path)


def test_zarr_arrays_that_are_no_samples(X, tmp_path):
    for shape, dtype, found in [((10,), "f8", "shape"), ((2, 3, 4), "f8", "shape"), ((0, 5), "f8", "empty")]:
        with pytest.raises(SamplesFileError, match=found):
            open_samples(zarr.create_array(tmp_path / f"{len(shape)}.zarr", shape=shape, dtype=dtype, overwrite=True))
    with pytest.raises(SamplesFileError, match="complex128, expected real numbers"):
        open_samples(zarr.array(X.astype(complex)))
    as_zarr_group(X, tmp_path)
    with pytest.raises(SamplesFileError, match=r"group of arrays \(inner\): choose one of them by column="):
        open_samples(tmp_path / "g.zarr")
    with pytest.raises(SamplesFileError, match="none is named 'outer'"):
        open_samples(tmp_path / "g.zarr", column="outer")


class Payload:
    """Makes a folder when it is unpickled."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (str(self.path),)


HIDDEN = {  # metadata of format 2 by which a chunk is unpickled
    "filter": {"filters": [{"id": "pickle"}]},
    "compressor": {"compressor": {"id": "pickle", "protocol": 5}},
    "object_codec": {"dtype": "|O", "filters": [{"id": "pickle"}], "fill_value": None},
    "second_filter": {"dtype": "|O", "filters": [{"id": "vlen-utf8"}, {"id": "pickle"}], "fill_value": None},
    "first_filter": {"filters": [{"id": "pickle"}, {"id": "zlib", "level": 1}]},
}


def trapped(X, folder, metadata):
    """A zarr array of format 2 whose first chunk is a pickle."""
    path = as_zarr(X, folder, zarr_format=2, compressors=None)
    header = json.loads((path / ".zarray").read_text())
    (path / ".zarray").write_text(json.dumps({**header, **metadata}))
    chunk = pickle.dumps(Payload(folder / "sprung"))
    zipped = {"id": "zlib", "level": 1} in metadata.get("filters", ())
    (path / "0.0").write_bytes(zlib.compress(chunk) if zipped else chunk)
    return path


@pytest.fixture
def pickles_are_decoded(monkeypatch):
    """As older versions of numcodecs and zarr did: both refuse by now unless they are told otherwise."""
    monkeypatch.setattr("numcodecs.pickles.ALLOW_UNSAFE_PICKLE_DECODE", True, raising=False)
    with zarr.config.set({"array.allow_unsafe_pickle_decode": True}):  # older versions of zarr do not read it
        yield


@pytest.mark.parametrize("way", HIDDEN)
@pytest.mark.parametrize("in_a_group", [False, True])
def test_fault_43_a_zarr_file_runs_no_code(X, tmp_path, monkeypatch, pickles_are_decoded, way, in_a_group):
    path = trapped(X, tmp_path, HIDDEN[way])
    (tmp_path / ".zgroup").write_text('{"zarr_format": 2}')
    source, column = (tmp_path, "x.zarr") if in_a_group else (path, None)
    with monkeypatch.context() as patch:
        for name in ("open", "open_array", "open_group"):
            patch.setattr(zarr, name, lambda *_, **__: pytest.fail("zarr has opened it"))
        with pytest.raises(SamplesFileError, match=r"x\.zarr is encoded by '(pickle|vlen-utf8)', .* zstd\. Write"):
            open_samples(source, column=column)
    assert not (tmp_path / "sprung").exists()
    chunk = (path / "0.0").read_bytes()
    numcodecs.get_codec({"id": "pickle"}).decode(zlib.decompress(chunk) if chunk[0] == 0x78 else chunk)
    assert (tmp_path / "sprung").exists(), "the chunk is harmless, and the test shows nothing"


def test_fault_43_an_open_zarr_array_runs_no_code(X, tmp_path, pickles_are_decoded):
    array = zarr.open_array(trapped(X, tmp_path, HIDDEN["second_filter"]), mode="r")
    for source, column in [(array, None), (zarr.open_group(tmp_path, mode="a", zarr_format=2), "x.zarr")]:
        with pytest.raises(SamplesFileError, match=r"x\.zarr is encoded by"):
            LpDictionaryLearning().fit(open_samples(source, column=column))
    assert not (tmp_path / "sprung").exists()
    with contextlib.suppress(TypeError):
        array[:10]
    assert (tmp_path / "sprung").exists(), "the file is harmless, and the test shows nothing"


@pytest.mark.parametrize(
    "codecs",
    [
        [{"name": "numcodecs.pickle"}],
        [{"name": "bytes"}, {"name": "numcodecs.zlib", "configuration": {"id": "pickle"}}],
        [{"name": "sharding_indexed", "configuration": {"codecs": ["bytes", {"name": "evil"}], "index_codecs": []}}],
        [{"name": "sharding_indexed", "configuration": {"codecs": ["bytes"], "index_codecs": ["evil"]}}],
        ["bytes", "evil"],
        [{"name": ["bytes"]}],
    ],
)
def test_fault_43_codecs_of_format_3_are_known_ones(X, tmp_path, monkeypatch, codecs):
    path = as_zarr(X, tmp_path)
    header = json.loads((path / "zarr.json").read_text())
    (path / "zarr.json").write_text(json.dumps({**header, "codecs": codecs}))
    monkeypatch.setattr(zarr, "open_array", lambda *_, **__: pytest.fail("zarr has opened it"))
    with pytest.raises(SamplesFileError, match="is encoded by"):
        open_samples(path)


def test_fault_43_other_arrays_of_a_group_are_not_opened(X, tmp_path):
    path = as_zarr(X, tmp_path)
    as_zarr_group(X, tmp_path)
    path.rename(tmp_path / "g.zarr" / "other")
    header = tmp_path / "g.zarr" / "other" / "zarr.json"
    header.write_text(header.read_text().replace("zstd", "evil"))
    with pytest.raises(SamplesFileError, match=r"other is encoded by 'evil'"):
        open_samples(tmp_path / "g.zarr", column="other")
    assert open_samples(tmp_path / "g.zarr", column="inner").n_samples == N_SAMPLES


CODECS = {
    "blosc": lambda: {"compressors": zarr.codecs.BloscCodec(shuffle="bitshuffle")},
    "gzip": lambda: {"compressors": zarr.codecs.GzipCodec()},
    "numcodecs": lambda: {
        "filters": zarr.codecs.numcodecs.Delta(dtype="<f8"),
        "compressors": zarr.codecs.numcodecs.LZ4(),
    },
    "transposed": lambda: {"filters": zarr.codecs.TransposeCodec(order=(1, 0))},
    "format_2": lambda: {"zarr_format": 2, "filters": [numcodecs.Shuffle(8)], "compressors": numcodecs.LZMA()},
}


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("codec", CODECS)
def test_fault_43_known_codecs_are_read(X, tmp_path, codec):
    samples = open_samples(as_zarr(np.round(X, 2), tmp_path, **CODECS[codec]()))
    np.testing.assert_allclose(samples.reader.read(0, N_SAMPLES), np.round(X, 2), atol=1e-9)


def test_zarr_chunks_that_do_not_fit_into_memory_are_refused_beforehand(tmp_path):
    array = zarr.create_array(tmp_path / "x.zarr", shape=(10**8, 100), chunks=(10**8, 1), dtype="f4")
    with pytest.raises(SamplesFileError, match=r"chunks of 100000000 rows: .* 40 GB"):
        open_samples(array)


@pytest.mark.parametrize("size", [0, 3, 100, -50])
def test_a_truncated_parquet_file_is_named(X, tmp_path, size):
    path = as_lists(X, tmp_path)
    os.truncate(path, size if size >= 0 else path.stat().st_size + size)
    with pytest.raises(SamplesFileError, match=r"x\.parquet (is empty|is not a|cannot be opened as parquet)"):
        LpDictionaryLearning().fit(path)


NULLS = {
    "a number": (pa.table({"a": [1.0, None, 3.0], "b": [1.0, 2.0, 3.0]}), r"row 1: column 'a' is null"),
    "a list": (pa.table({"y": pa.array([[1.0, 2.0], None, [3.0, 4.0]])}), r"row 1: column 'y' is null"),
    "a fixed list": (
        pa.table({"y": pa.array([[1.0, 2.0], None, [3.0, 4.0]], pa.list_(pa.float64(), 2))}),
        r"row 1: column 'y' is null",
    ),
    "in a list": (pa.table({"y": pa.array([[1.0, 2.0], [3.0, None]])}), r"row 1: column 'y' is null in feature 1"),
    "the first list": (pa.table({"y": pa.array([None, [3.0, 4.0]])}), r"row 0: column 'y' is null or empty"),
}


@pytest.mark.parametrize("which", NULLS)
def test_nulls_are_named(tmp_path, which):
    table, found = NULLS[which]
    pq.write_table(table, tmp_path / "x.parquet")
    with pytest.raises(SamplesFileError, match=rf"x\.parquet, row group 0, {found}"):
        LpDictionaryLearning().fit(tmp_path / "x.parquet")


def test_ragged_lists_are_named(X, tmp_path):
    lists = [*X[:300].tolist(), [1.0, 2.0], *X[300:400].tolist()]
    pq.write_table(pa.table({"y": lists}), tmp_path / "x.parquet", row_group_size=100)
    with pytest.raises(
        SamplesFileError, match=r"row group 3, row 300: column 'y' holds a list of 2 values, expected .* 24"
    ):
        LpDictionaryLearning().fit(tmp_path / "x.parquet")


def test_columns_that_hold_no_numbers_are_named(X, tmp_path):
    path = tmp_path / "x.parquet"
    pd.DataFrame(X, columns=NAMES).assign(text="words").to_parquet(path)
    with pytest.raises(SamplesFileError, match=r"column 'text' is of type .*string, expected numbers"):
        open_samples(path)
    with pytest.raises(SamplesFileError, match="no column 'colour'"):
        open_samples(path, column=["colour"])
    with pytest.raises(SamplesFileError, match="'feature 1' holds numbers, expected lists"):
        open_samples(path, column="feature 1")
    table = list_table(X).append_column("number", pa.array(np.arange(len(X))))
    pq.write_table(table, path)
    with pytest.raises(SamplesFileError, match="name the one with the samples by column="):
        open_samples(path)


def test_folders_whose_files_differ_are_named(X, tmp_path):
    inside = as_folder(X, tmp_path)
    pq.write_table(list_table(X[:, :5]), inside / "part-7.parquet")
    with pytest.raises(SamplesFileError, match=r"part-7\.parquet has columns of other types than .*part-0\.parquet"):
        open_samples(inside)
    pq.write_table(pa.table({"z": [1.0]}), inside / "part-7.parquet")
    with pytest.raises(SamplesFileError, match=r"part-7\.parquet has no column 'y'"):
        open_samples(inside)


def test_parquet_files_without_rows_are_refused(X, tmp_path):
    pq.write_table(list_table(X[:0]), tmp_path / "x.parquet")
    with pytest.raises(SamplesFileError, match="has no rows"):
        open_samples(tmp_path / "x.parquet")


def test_what_is_no_file_of_samples(X, tmp_path):
    (tmp_path / "words.md").write_text("1 2 3")
    with pytest.raises(SamplesFileError, match=r"words\.md is not a file of samples: \.npy, \.npz, \.csv"):
        LpDictionaryLearning().fit(tmp_path / "words.md")
    with pytest.raises(FileNotFoundError):
        LpDictionaryLearning().fit("nowhere.npy")
    (tmp_path / "folder").mkdir()
    with pytest.raises(SamplesFileError, match=r"neither a zarr array nor files of samples"):
        LpDictionaryLearning().fit(tmp_path / "folder")
    with pytest.raises(ValueError, match="which has no columns"):
        open_samples(as_npy(X, tmp_path), column="y")


def overwrite_npy(folder):
    mapped = np.load(folder / "x.npy", mmap_mode="r+")
    mapped[100] += 1
    mapped.flush()


CHANGES = {
    ("npy", "written to"): overwrite_npy,
    ("npy", "truncated"): lambda folder: os.truncate(folder / "x.npy", 5000),
    ("npy", "removed"): lambda folder: (folder / "x.npy").unlink(),
    ("memmap", "written to"): overwrite_npy,
    ("zarr", "a chunk written"): lambda folder: flip(folder / "x.zarr" / "c" / "3" / "0", 200),
    ("zarr", "a chunk removed"): lambda folder: (folder / "x.zarr" / "c" / "3" / "0").unlink(),
    ("frame", "written to"): lambda folder: flip(folder / "x.parquet", 200),
    ("folder", "one more file"): lambda folder: pq.write_table(
        list_table(np.ones((3, N_FEATURES))), folder / "parts" / "new.parquet"
    ),
    ("folder", "one file less"): lambda folder: (folder / "parts" / "part-2.parquet").unlink(),
}


@pytest.mark.parametrize(("kind", "change"), CHANGES)
def test_a_file_that_changes_during_the_fit_is_detected(X, tmp_path, kind, change):
    samples = open_samples(SOURCES[kind](X, tmp_path))
    for path in tmp_path.rglob("*"):  # the clock of files may tick more slowly than a fit takes
        os.utime(path, (10**9, 10**9))
    samples = open_samples(SOURCES_AGAIN[kind](tmp_path))

    def meddle(iteration):
        if iteration.iteration == 2:
            CHANGES[kind, change](tmp_path)

    with pytest.raises(SamplesChangedError, match=r"(changed|removed|same files)"):
        LpDictionaryLearning(random_state=0, solver="power", refine=None).fit(samples, callback=meddle)


SOURCES_AGAIN = {
    "npy": lambda folder: folder / "x.npy",
    "memmap": lambda folder: np.load(folder / "x.npy", mmap_mode="r"),
    "zarr": lambda folder: folder / "x.zarr",
    "frame": lambda folder: folder / "x.parquet",
    "folder": lambda folder: folder / "parts",
}


# --- memory -----------------------------------------------------------------------------------------------------------


MEASURE = """
import sys
import numpy as np
import elldict

def peak():
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmHWM")) / 1024

elldict.LpDictionaryLearning(random_state=0).fit(np.random.default_rng(0).laplace(size=(3000, 16)))
source = {source}
before = peak()
model = elldict.LpDictionaryLearning(solver="power", max_iter=2, refine=None, tol=1).fit(source)
model.score(source)
model.transform(source, out=sys.argv[2])
print(peak() - before)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize("source", ["sys.argv[1]", "np.load(sys.argv[1], mmap_mode='r')"])
def test_memory_stays_within_its_bound_however_large_the_file(tmp_path, rng, source):
    path, n = tmp_path / "large.npy", 64
    part = rng.laplace(size=(10_000, n)).astype(np.float32)
    with path.open("wb") as stream:
        header = {"shape": (100 * len(part), n), "fortran_order": False, "descr": "<f4"}
        np.lib.format.write_array_header_1_0(stream, header)
        for _ in range(100):
            stream.write(part.data)
    estimate = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", MEASURE.format(source=source), path, tmp_path / "codes.npy"],
        check=True,
        capture_output=True,
        text=True,
        timeout=300,
        env={**os.environ, "OPENBLAS_NUM_THREADS": "1"},
    )
    # three blocks of at least 16 MB, and fifteen times a tile of 2.5 MB in float64 where likelihoods are added up
    assert path.stat().st_size > 250e6
    assert float(estimate.stdout) < 140


def test_public_names():
    assert elldict.open_samples is open_samples
