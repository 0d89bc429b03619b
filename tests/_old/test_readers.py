"""Readers: the same rows whatever the file looks like, and errors that say where."""

import os
import pickle
import shutil
from concurrent.futures import CancelledError, ThreadPoolExecutor

import h5py
import numpy as np
import pyarrow
import pyarrow.feather
import pyarrow.parquet
import pytest
import safetensors.numpy
import scipy.io
import zarr

from elldict._old.data.file import Prefetcher
from elldict._old.data.npy import open_memmap, open_npy
from elldict._old.data.open import find_reader
from elldict.exceptions import SamplesChangedError, SamplesFileError

SHAPE = (103, 5)


@pytest.fixture
def X(rng):  # noqa: N802
    return rng.standard_normal(SHAPE)


def saved(folder, array, name="data.npy"):
    path = folder / name
    np.save(path, array)
    return path


VARIANTS = {
    "float64": lambda X: X,
    "float32": lambda X: X.astype(np.float32),
    "half": lambda X: X.astype(np.float16),
    "integers": lambda X: np.round(10 * X).astype(np.int16),
    "booleans": lambda X: X > 0,
    "big-endian": lambda X: X.astype(">f8"),
    "fortran": np.asfortranarray,
    "fortran float32": lambda X: np.asfortranarray(X.astype(np.float32)),
}


@pytest.mark.parametrize("variant", VARIANTS)
def test_npy_rows_are_those_of_the_array(tmp_path, X, variant):
    array = VARIANTS[variant](X)
    reader = open_npy(saved(tmp_path, array))
    assert (reader.n_samples, reader.n_features) == SHAPE
    assert reader.dtype == ("float32" if array.dtype in (np.float32, np.float16) else "float64")
    for start, stop in [(0, 103), (0, 1), (17, 64), (102, 103), (5, 5)]:
        rows = reader.read(start, stop)
        assert rows.flags.c_contiguous
        assert str(rows.dtype) == reader.dtype
        np.testing.assert_array_equal(rows, array[start:stop])
    out = np.empty((20, 5), reader.dtype)
    assert reader.read(3, 23, out) is out
    np.testing.assert_array_equal(out, array[3:23])
    for numbers in ([0], [102], [0, 1, 2, 50, 51, 102], range(103), []):
        index = np.array(numbers, dtype=np.int64)
        np.testing.assert_array_equal(reader.take(index), array[index])


def test_readers_can_be_pickled_and_read_by_many_threads(tmp_path, X):
    reader = pickle.loads(pickle.dumps(open_npy(saved(tmp_path, X))))
    with ThreadPoolExecutor(8) as pool:
        for start, rows in enumerate(pool.map(lambda start: reader.read(start, start + 3), range(100))):
            np.testing.assert_array_equal(rows, X[start : start + 3])


def test_place_is_the_byte_at_which_a_sample_begins(tmp_path, X):
    path = saved(tmp_path, X)
    byte = int(open_npy(path).locate(17).rsplit(" ", 1)[1])
    assert np.frombuffer(path.read_bytes()[byte : byte + 8])[0] == X[17, 0]


CUTS = {
    "whole": lambda mapped: mapped,
    "rows": lambda mapped: mapped[10:90],
    "transposed back": lambda mapped: mapped.T[:, 3:60],
}


@pytest.mark.parametrize("cut", CUTS)
@pytest.mark.parametrize("header", [0, 128, 5000])
def test_views_of_maps_are_read_from_their_place_in_the_file(tmp_path, X, cut, header):
    (tmp_path / "raw").write_bytes(b"x" * header + X.tobytes())
    view = CUTS[cut](np.memmap(tmp_path / "raw", np.float64, "r", header, SHAPE))
    reader = open_memmap(view)
    if view.flags.c_contiguous or view.flags.f_contiguous:
        np.testing.assert_array_equal(reader.read(0, len(view)), view)
    else:
        assert reader is None, "its rows do not lie one after another"


def test_maps_that_are_not_their_file_are_not_read_from_it(tmp_path, X):
    path = saved(tmp_path, X)
    assert open_memmap(np.load(path, mmap_mode="c")) is None, "changes are in memory only"
    assert open_memmap(np.load(path, mmap_mode="r")[::2]) is None
    mapped = np.load(path, mmap_mode="r")
    np.save(tmp_path / "other.npy", X + 1)
    (tmp_path / "other.npy").replace(path)
    assert open_memmap(mapped) is None, "another file has taken its name"
    path.unlink()
    assert open_memmap(mapped) is None


def test_changes_through_a_map_are_seen_before_they_are_on_disk(tmp_path, X):
    mapped = np.lib.format.open_memmap(tmp_path / "new.npy", "w+", X.dtype, X.shape)
    mapped[:] = X
    reader = open_memmap(mapped)
    np.testing.assert_array_equal(reader.read(0, 103), X)
    mapped.flush()
    reader.check_unchanged()


# --- damaged files ----------------------------------------------------------------------------------------------------


def test_truncated_file_is_named_with_its_bytes(tmp_path, X):
    path = saved(tmp_path, X)
    os.truncate(path, 1000)
    with pytest.raises(SamplesFileError, match=r"data\.npy is truncated: it ends at byte 1000, .* ends at byte 4248"):
        open_npy(path)


@pytest.mark.parametrize("damage", [b"\x93NUMPX\x01", b"\x93NUMPY\x09\x00v\x00", b"\x93NUMPY\x01\x00\xff\xff{"])
def test_damaged_header_is_named(tmp_path, X, damage):
    path = saved(tmp_path, X)
    content = bytearray(path.read_bytes())
    content[: len(damage)] = damage
    path.write_bytes(content)
    with pytest.raises(SamplesFileError, match=r"data\.npy has no valid \.npy header"):
        open_npy(path)


def test_pickled_objects_are_never_loaded(tmp_path):
    class Trap:
        def __reduce__(self):
            return os.mkdir, (str(tmp_path / "sprung"),)

    with pytest.raises(SamplesFileError, match="pickled Python objects"):
        open_npy(saved(tmp_path, np.array([[Trap()]], dtype=object)))
    assert not (tmp_path / "sprung").exists()


@pytest.mark.parametrize(
    ("array", "found"),
    [
        (np.zeros(5), r"shape \(5,\)"),
        (np.zeros((2, 3, 4)), r"shape \(2, 3, 4\)"),
        (np.zeros((0, 4)), "empty"),
        (np.zeros((4, 0)), "empty"),
        (np.zeros((4, 4), complex), "complex128"),
        (np.zeros((4, 4), "U3"), "<U3"),
        (np.zeros((4, 4), "M8[s]"), "datetime64"),
        (np.zeros((4, 4), [("a", float)]), "expected real numbers"),
    ],
)
def test_arrays_that_are_no_samples_are_refused(tmp_path, array, found):
    with pytest.raises(SamplesFileError, match=rf"data\.npy.*{found}"):
        open_npy(saved(tmp_path, array))


def write_in_place(path):
    with path.open("r+b") as stream:
        stream.seek(500)
        stream.write(b"\1" * 8)


CHANGES = {
    "written to": write_in_place,
    "truncated": lambda path: os.truncate(path, 2000),
    "appended to": lambda path: path.write_bytes(path.read_bytes() + b"more"),
    "replaced": lambda path: saved(path.parent, np.zeros(SHAPE), "other.npy").replace(path),
    "removed": lambda path: path.unlink(),
}


@pytest.mark.parametrize("change", CHANGES)
def test_changed_files_are_noticed(tmp_path, X, change):
    path = saved(tmp_path, X)
    os.utime(path, (1, 1))
    reader = open_npy(path)
    reader.check_unchanged()
    CHANGES[change](path)
    with pytest.raises(SamplesChangedError, match=r"data\.npy has (changed|been removed) since it was opened"):
        reader.check_unchanged()
    with pytest.raises((SamplesChangedError, FileNotFoundError)):
        reader.read(0, 10)


def test_fingerprints_tell_files_apart_and_survive_a_move(tmp_path, X):
    path = saved(tmp_path, X)
    before = open_npy(path).fingerprint()
    assert open_npy(path.rename(tmp_path / "moved.npy")).fingerprint() == before
    prints = {before}
    for number, other in enumerate([X[:-1], X.T.copy(), X.astype(np.float32), np.asfortranarray(X), X + 1e-9]):
        prints.add(open_npy(saved(tmp_path, other, f"{number}.npy")).fingerprint())
    assert len(prints) == 6


def test_nobody_waits_for_rows_that_are_not_read_any_more(tmp_path, rng):
    """A worker fails while another waits for the next block: both end, and the threads are free for the next pass."""
    np.save(tmp_path / "samples.npy", rng.standard_normal((1000, 4)))
    reader = open_npy(tmp_path / "samples.npy")
    with ThreadPoolExecutor(1) as pool:
        with Prefetcher(reader, 100) as ahead:
            held = [ahead.rows(100 * k, 100 * k + 100) for k in range(3)]
            for rows in held:
                rows.__enter__()  # all memory is in use, so that the fourth block cannot be read
            waiting = pool.submit(lambda: ahead.rows(300, 400).__enter__())
        with pytest.raises(CancelledError):
            waiting.result(timeout=60)


# --- what every file format has to do ---------------------------------------------------------------------------------


def write_zarr(folder, X):
    zarr.save_array(str(folder / "data.zarr"), X)
    return folder / "data.zarr"


def write_parquet_columns(folder, X):
    table = pyarrow.table({f"x{k}": column for k, column in enumerate(X.T)})
    pyarrow.parquet.write_table(table, folder / "data.parquet", row_group_size=40)
    return folder / "data.parquet"


def write_parquet_lists(folder, X):
    rows = pyarrow.FixedSizeListArray.from_arrays(pyarrow.array(X.ravel()), X.shape[1])
    pyarrow.parquet.write_table(pyarrow.table({"x": rows}), folder / "lists.parquet", row_group_size=40)
    return folder / "lists.parquet"


def write_text(suffix, between):
    def write(folder, X):
        path = folder / f"data{suffix}"
        path.write_text("".join(between.join(map(repr, row)) + "\n" for row in X.tolist()))
        return path

    return write


def write_npz(save):
    def write(folder, X):
        save(folder / "data.npz", X=X, mean=X[0])
        return folder / "data.npz"

    return write


def write_mat(**how):
    def write(folder, X):
        scipy.io.savemat(folder / "data.mat", {"X": X, "number": 3.0, "words": "some"}, **how)
        return folder / "data.mat"

    return write


def write_hdf5(**how):
    def write(folder, X):
        with h5py.File(folder / "data.h5", "w") as file:
            file.create_dataset("group/X", data=X, **how)
            file["mean"] = X[0]
        return folder / "data.h5"

    return write


def write_mat_73(**how):
    """As MATLAB does: a header of its own before HDF5, and columns as rows."""

    def write(folder, X):
        with h5py.File(folder / "data.mat", "w", userblock_size=512) as file:
            file.create_dataset("X", data=X.T, **how)
        content = (folder / "data.mat").read_bytes()
        header = b"MATLAB 7.3 MAT-file, Platform: GLNXA64".ljust(124) + b"\x00\x02IM"
        (folder / "data.mat").write_bytes(header + content[128:])
        return folder / "data.mat"

    return write


def write_feather(**how):
    def write(folder, X):
        table = pyarrow.table({f"x{k}": column for k, column in enumerate(X.T)})
        pyarrow.feather.write_feather(table, folder / "data.feather", chunksize=40, **how)
        return folder / "data.feather"

    return write


def write_arrow_lists(folder, X):
    rows = pyarrow.FixedSizeListArray.from_arrays(pyarrow.array(X.ravel()), X.shape[1])
    table = pyarrow.table({"x": rows})
    with pyarrow.ipc.new_file(folder / "data.arrow", table.schema) as file:
        file.write_table(table, max_chunksize=40)
    return folder / "data.arrow"


def write_safetensors(folder, X):
    safetensors.numpy.save_file({"X": X, "mean": X[0]}, folder / "data.safetensors")
    return folder / "data.safetensors"


def write_shards(folder, X):
    (folder / "shards").mkdir(exist_ok=True)
    for number, part in enumerate(np.array_split(X, 3)):
        safetensors.numpy.save_file({"X": part.copy()}, folder / "shards" / f"{number}.safetensors")
    return folder / "shards"


FORMATS = {  # name: function that writes samples to a folder and returns their path
    "npy": saved,
    "zarr": write_zarr,
    "parquet columns": write_parquet_columns,
    "parquet lists": write_parquet_lists,
    "csv": write_text(".csv", ","),
    "tsv": write_text(".tsv", "\t"),
    "txt": write_text(".txt", " "),
    "npz": write_npz(np.savez),
    "npz compressed": write_npz(np.savez_compressed),
    "mat": write_mat(),
    "mat compressed": write_mat(do_compression=True),
    "mat 7.3": write_mat_73(),
    "mat 7.3 chunked": write_mat_73(chunks=(2, 30), compression="gzip"),
    "hdf5": write_hdf5(),
    "hdf5 chunked": write_hdf5(chunks=(30, 2), compression="gzip", shuffle=True, fletcher32=True),
    "feather": write_feather(compression="uncompressed"),
    "feather compressed": write_feather(compression="lz4"),
    "arrow lists": write_arrow_lists,
    "safetensors": write_safetensors,
    "shards": write_shards,
}


@pytest.fixture(params=FORMATS)
def written(request, tmp_path, X):
    """Path of samples in some format, and how to write others there."""
    return FORMATS[request.param](tmp_path, X), lambda other: FORMATS[request.param](tmp_path, other)


def test_every_format_gives_the_rows_that_were_written(written, X):
    reader = find_reader(written[0], None)
    assert (reader.n_samples, reader.n_features, reader.dtype) == (*SHAPE, "float64")
    out = np.empty((20, 5))
    assert reader.read(3, 23, out) is out
    np.testing.assert_array_equal(out, X[3:23])
    np.testing.assert_array_equal(reader.read(0, 103), X)
    for numbers in ([0], [102], [0, 1, 2, 50, 51, 102], range(103), []):
        index = np.array(numbers, dtype=np.int64)
        np.testing.assert_array_equal(reader.take(index), X[index])


def test_every_format_is_read_by_other_processes_and_by_many_threads(written, X):
    reader = pickle.loads(pickle.dumps(find_reader(written[0], None)))
    starts = [start for start in range(0, 100, 7) for _ in range(4)]
    with ThreadPoolExecutor(4) as pool:
        for start, rows in zip(starts, pool.map(lambda start: reader.read(start, start + 3), starts), strict=True):
            np.testing.assert_array_equal(rows, X[start : start + 3])


def test_every_format_says_where_a_sample_is(written):
    assert written[0].name in find_reader(written[0], None).locate(57)


def test_every_format_notices_that_the_file_has_changed(written, X):
    reader = find_reader(written[0], None)
    fingerprint = reader.fingerprint()
    reader.check_unchanged()
    assert find_reader(written[0], None).fingerprint() == fingerprint
    shutil.rmtree(written[0]) if written[0].is_dir() else written[0].unlink()
    written[1](np.vstack([X, X]))
    with pytest.raises(SamplesChangedError):
        reader.check_unchanged()
    assert find_reader(written[0], None).fingerprint() != fingerprint
