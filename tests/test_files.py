"""Samples in files: the bits of a fit in memory from every format, bounded memory, plain errors, inputs never lost."""

import os
import subprocess
import sys

import h5py
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import scipy.io
import zarr
from safetensors.numpy import save_file

from elldict import LpDictionaryLearning, LpICA, open_samples
from elldict.exceptions import ConvertedFileWarning, SamplesChangedError, SamplesFileError
from elldict.samples import base, files, subsample, tables
from elldict.samples.arrays import ArraySamples
from elldict.samples.files import explain
from elldict.samples.order import find_order
from elldict.samples.output import check_output
from elldict.samples.statistics import compute_statistics
from tests.fits import assert_same_fit, draw

NAMES = ["age", "height", "=x", "weight, kg", "e"]
X = draw("noisy", 3000, 5, seed=1) @ np.linalg.qr(np.random.default_rng(0).standard_normal((5, 5)))[0]
FRAME = pd.DataFrame(X, columns=NAMES)
FAST = {"error_bars": False}


def write_hdf5(path, name="x", **options):
    with h5py.File(path, "w") as file:
        file.create_dataset(name, data=X, **options)
        file[f"{name}_other"] = X[:, 0]


def write_matlab_73(path):
    with h5py.File(path, "w", userblock_size=512) as file:
        file.create_dataset("X", data=X.T, chunks=(2, 700))
    with path.open("r+b") as stream:
        stream.write(b"MATLAB 7.3 MAT-file".ljust(128))


def write_tables(path):
    path.mkdir()
    for k in range(3):
        FRAME[1000 * k : 1000 * (k + 1)].to_parquet(path / f"{k}.parquet")


WRITE = {
    "x.npy": lambda path: np.save(path, X),
    "fortran.npy": lambda path: np.save(path, np.asfortranarray(X)),
    "swapped.npy": lambda path: np.save(path, X.astype(">f8")),
    "x.npz:X": lambda path: np.savez(path, X=X, y=X),
    "compressed.npz": lambda path: np.savez_compressed(path, X=X, y=X[:, 0]),
    "x.txt": lambda path: np.savetxt(path, X, fmt="%.17g", header="numbers"),
    "x.csv": lambda path: FRAME.to_csv(path, index=False),
    "semicolons.csv": lambda path: FRAME.rename(columns={"weight, kg": "w"}).to_csv(path, index=False, sep=";"),
    "headless.csv": lambda path: FRAME.to_csv(path, index=False, header=False),
    "x.tsv": lambda path: FRAME.to_csv(path, index=False, sep="\t"),
    "x.parquet": lambda path: FRAME.to_parquet(path, row_group_size=900),
    "lists.parquet": lambda path: pq.write_table(pa.table({"v": list(X)}), path),
    "x.feather": lambda path: FRAME.copy().to_feather(path),
    "tables": write_tables,
    "x.h5:g/x": lambda path: write_hdf5(path, "g/x"),
    "chunks.h5": lambda path: write_hdf5(path, chunks=(700, 2), compression="gzip"),
    "x.mat": lambda path: scipy.io.savemat(path, {"X": X, "n": 3}),
    "new.mat": write_matlab_73,
    "x.zarr": lambda path: zarr.create_array(path, data=X, chunks=(700, 2)),
    "shards.zarr:s": lambda path: zarr.open_group(path, mode="w").create_array(
        "s", data=X, chunks=(100, 5), shards=(500, 5)
    ),
    "x.safetensors": lambda path: save_file({"X": X, "y": X[0]}, path),
}


@pytest.fixture
def never_stored(monkeypatch):
    """Read everything from files, in blocks of 64 rows; whitened subsamples, too."""
    monkeypatch.setattr(base, "BLOCK_NUMBERS", 1)
    monkeypatch.setattr(files, "STORED_BYTES", 0)
    monkeypatch.setattr(files, "GAP_BYTES", 1000)
    monkeypatch.setattr(tables, "STORED_BYTES", 0)
    monkeypatch.setattr(subsample, "STORED_BYTES", 20_000)
    monkeypatch.setattr(subsample, "COPIED_BYTES", 20_000)


@pytest.fixture(scope="module")
def model():
    return LpDictionaryLearning(**FAST).fit(X)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Write the samples in every format."""
    folder = tmp_path_factory.mktemp("samples")
    for name, write in WRITE.items():
        write(folder / name.partition(":")[0])
    return folder


# The same bits


@pytest.mark.filterwarnings("ignore::elldict.exceptions.ConvertedFileWarning")
@pytest.mark.parametrize("name", WRITE)
def test_file_of_each_format_has_the_bits_of_memory(folder, name, never_stored):
    samples, memory = open_samples(folder / name).bind(2), ArraySamples(X)
    assert (samples.shape, samples.dtype) == (X.shape, X.dtype)
    np.testing.assert_array_equal(compute_statistics(samples).covariance, compute_statistics(memory).covariance)
    np.testing.assert_array_equal(find_order(samples).index, find_order(memory).index)
    rng = np.random.default_rng(0)
    for index in (rng.permutation(3000)[:500], np.sort(rng.integers(0, 3000, 900)), np.arange(0)):
        np.testing.assert_array_equal(samples.take(index), X[index])
        if len(index):
            sums = [each.sum(lambda rows, start: (rows.T + start) @ rows, index) for each in (samples, memory)]
            np.testing.assert_array_equal(*sums)


@pytest.mark.filterwarnings("ignore::elldict.exceptions.ConvertedFileWarning")
@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("x.npy", {}),
        ("x.csv", {"whiten": True, "center": True}),
        ("chunks.h5", {"normalize": "samples", "error_bars": False}),
        ("x.zarr", {"solver": "power", "random_state": 0}),
    ],
)
def test_fit_of_a_file_has_the_bits_of_memory(folder, name, options, never_stored):
    weights = np.random.default_rng(0).random(3000).round(1)
    given = FRAME if name == "x.csv" else X
    expected = LpDictionaryLearning(**options).fit(given, sample_weight=weights)
    found = LpDictionaryLearning(**options).fit(folder / name, sample_weight=weights)
    assert_same_fit(found, expected)
    assert found.score(folder / name) == expected.score(given)
    np.testing.assert_array_equal(found.transform(str(folder / name)), expected.transform(given))


def test_open_arrays_of_h5py_zarr_and_memory_maps_are_samples(folder, model):
    with h5py.File(folder / "chunks.h5") as file:
        for source in (file["x"], zarr.open(str(folder / "x.zarr")), np.load(folder / "x.npy", mmap_mode="r")):
            np.testing.assert_array_equal(LpDictionaryLearning(**FAST).fit(source).components_, model.components_)
            np.testing.assert_array_equal(open_samples(source).take(np.arange(9)), X[:9])


# Tables


def test_names_and_columns_of_tables_are_kept(folder, model):
    fitted = LpDictionaryLearning(**FAST).fit(folder / "x.csv")
    np.testing.assert_array_equal(fitted.feature_names_in_, NAMES)
    np.testing.assert_array_equal(fitted.transform(folder / "tables"), model.transform(X))
    with pytest.raises(ValueError, match="feature names should match"):
        fitted.transform(open_samples(folder / "x.csv", column=NAMES[::-1]))
    chosen = open_samples(folder / "x.parquet", column=["e", "age"])
    assert (chosen.feature_names, chosen.n_samples, chosen.n_features) == (["e", "age"], 3000, 2)
    np.testing.assert_array_equal(chosen.take(np.arange(5)), X[:5, [4, 0]])
    assert open_samples(folder / "lists.parquet", column="v").feature_names is None


def test_large_table_is_converted_with_a_warning_at_the_line_of_the_user(folder, never_stored):
    with pytest.warns(ConvertedFileWarning, match="TMPDIR") as caught:
        LpDictionaryLearning(**FAST).fit(folder / "x.csv")
    assert {warning.filename for warning in caught} == {__file__}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a,b\n1,2\n3,x\n", r"column 'b' holds 'x' in row 3, expected a number.*column=\[\.\.\.\]: 'a', 'b'"),
        ("a,b\n1,2\n,4\n", "column 'a' has a missing value or NaN for sample 1"),
        ("a,b\n1,inf\n3,4\n", r"infinity \(sample 0, feature 1, column 'b' of .*x\.csv\)"),
        ("a,b\n1,2\n3\n", r"Row #3: Expected 2 columns, got 1"),
        ("a,a\n1,2\n", "column 'a' is there twice"),
        ("", "is empty"),
        ("\x1b[31m,b\n1,2\nx,3\n", r"column '\\x1b\[31m'"),
    ],
)
def test_fault_in_a_text_names_file_column_and_row(tmp_path, text, message):
    (tmp_path / "x.csv").write_text(text)
    with pytest.raises(ValueError, match=message) as caught:
        open_samples(tmp_path / "x.csv")
    assert str(tmp_path) in str(caught.value)


@pytest.mark.parametrize(
    ("columns", "column", "message"),
    [
        ({"a": [1, 2], "b": ["x", "y"]}, None, "column 'b' holds string, expected numbers"),
        ({"a": [1, None]}, None, "column 'a' has a missing value or NaN for sample 1"),
        ({"v": [[1, 2], [3]]}, None, "column 'v' holds 1 numbers for sample 1, but 2 for sample 0"),
        ({"a": [1, 2]}, "c", "has no column 'c'.*: 'a'"),
    ],
)
def test_fault_in_a_column_is_named(tmp_path, columns, column, message):
    pq.write_table(pa.table(columns), tmp_path / "x.parquet")
    with pytest.raises(SamplesFileError, match=message):
        open_samples(tmp_path / "x.parquet", column=column)


# Faults


@pytest.mark.filterwarnings("ignore::elldict.exceptions.ConvertedFileWarning")
@pytest.mark.parametrize("name", ["x.npy", "x.zarr", "x.h5:g/x", "x.csv", "x.txt"])
def test_fault_01_nan_is_named_with_sample_feature_and_file(tmp_path, name, monkeypatch, never_stored):
    bad = X.copy()
    bad[1234, 2] = np.nan
    monkeypatch.setitem(globals(), "X", bad)
    monkeypatch.setitem(globals(), "FRAME", pd.DataFrame(bad, columns=NAMES))
    WRITE[name](tmp_path / name.partition(":")[0])
    with pytest.raises(ValueError, match=r"NaN.*sample 1234") as caught:
        LpDictionaryLearning(**FAST).fit(f"{tmp_path / name}")
    assert name.partition(":")[0] in str(caught.value)
    assert "feature 2" in str(caught.value) or "'=x'" in str(caught.value)


@pytest.mark.filterwarnings("ignore::elldict.exceptions.ConvertedFileWarning", "ignore:loadtxt")
@pytest.mark.parametrize("name", [name for name in WRITE if name not in ("tables", "x.zarr", "shards.zarr:s")])
def test_fault_28_truncated_file_is_refused_unless_the_array_is_whole(tmp_path, folder, name, never_stored):
    name, _, array = name.partition(":")
    content = (folder / name).read_bytes()
    for part in (0, 7, 200, len(content) // 2 + 3, len(content) - 1):
        (tmp_path / name).write_bytes(content[:part])
        try:
            samples = open_samples(tmp_path / name, column=array or None)
            rows = samples.take(np.arange(samples.n_samples))
        except SamplesFileError as error:
            message = str(error)
        else:
            message = name if name.endswith(("csv", "tsv", "txt")) or np.array_equal(rows, X) else "wrong numbers"
        assert name in message


@pytest.mark.parametrize("stored_bytes", [0, 2**20])
def test_samples_of_weight_zero_may_hold_nan(tmp_path, stored_bytes, monkeypatch):
    monkeypatch.setattr(files, "STORED_BYTES", stored_bytes)
    bad, weights = X.copy(), np.ones(3000)
    bad[::7], weights[::7] = np.nan, 0
    np.save(tmp_path / "x.npy", bad)
    found, expected = (LpICA(**FAST).fit(each, sample_weight=weights) for each in (tmp_path / "x.npy", bad))
    assert_same_fit(found, expected)


def test_fault_28_zarr_array_with_a_missing_or_damaged_chunk_is_refused(tmp_path, never_stored):
    WRITE["x.zarr"](tmp_path / "x.zarr")
    chunk = tmp_path / "x.zarr" / "c" / "2" / "1"
    chunk.write_bytes(b"nonsense")
    with pytest.raises(SamplesFileError, match=r"x\.zarr: samples 1400 to 2099 cannot be read"):
        LpDictionaryLearning(**FAST).fit(tmp_path / "x.zarr")
    chunk.unlink()
    with pytest.raises(SamplesFileError, match="1 of 15 chunks are missing"):
        open_samples(tmp_path / "x.zarr")


@pytest.mark.parametrize("use", [lambda samples: samples.sum(lambda rows, start: 0), lambda samples: samples.take([0])])
def test_fault_29_change_is_detected_by_each_pass(tmp_path, use, never_stored):
    np.save(tmp_path / "x.npy", X)
    samples = open_samples(tmp_path / "x.npy")
    use(samples)
    np.save(tmp_path / "x.npy", X)
    with pytest.raises(SamplesChangedError, match=r"x\.npy has been written to"):
        use(samples)


@pytest.mark.parametrize(
    ("name", "change"),
    [("x.npy", "touch"), ("x.npy", "truncate"), ("x.npy", "remove"), ("x.zarr", "remove"), ("chunks.h5", "touch")],
)
def test_fault_29_change_during_a_fit_is_detected(tmp_path, name, change, never_stored):
    WRITE[name](tmp_path / name)
    path = tmp_path / name if name != "x.zarr" else tmp_path / name / "c" / "1" / "1"

    def disturb(iteration):
        if change == "touch":
            os.utime(path, ns=(0, path.stat().st_mtime_ns + 1))
        elif change == "truncate":
            os.truncate(path, 1000)
        else:
            path.unlink(missing_ok=True)

    with pytest.raises(SamplesChangedError, match=name):
        LpDictionaryLearning(**FAST).fit(tmp_path / name, callback=disturb)


def test_fault_29_table_that_is_written_to_while_it_is_read_is_refused(tmp_path, monkeypatch):
    def keep_and_write(parts, source, keep=tables.keep):
        with (tmp_path / "x.csv").open("a") as stream:
            stream.write("1,2,3,4,5\n")
        return keep(parts, source)

    WRITE["x.csv"](tmp_path / "x.csv")
    monkeypatch.setattr(tables, "keep", keep_and_write)
    with pytest.raises(SamplesChangedError, match="while it was read"):
        open_samples(tmp_path / "x.csv")


def test_hdf5_dataset_that_is_stored_elsewhere_is_refused(tmp_path):
    X.tofile(tmp_path / "x.bin")
    with h5py.File(tmp_path / "x.h5", "w") as file:
        file.create_dataset("outside", X.shape, "f8", external=[(tmp_path / "x.bin", 0, X.nbytes)])
        layout = h5py.VirtualLayout(X.shape, "f8")
        layout[:] = h5py.VirtualSource(tmp_path / "other.h5", "x", X.shape)
        file.create_virtual_dataset("virtual", layout)
    for name in ("outside", "virtual"):
        with pytest.raises(SamplesFileError, match="stored in other files"):
            open_samples(tmp_path / "x.h5", column=name)


@pytest.mark.parametrize("change", [lambda content: content[:-8], lambda content: content + bytes(8)])
def test_fault_44_npy_of_another_length_than_its_header_says_is_refused(tmp_path, folder, change):
    (tmp_path / "x.npy").write_bytes(change((folder / "x.npy").read_bytes()))
    with pytest.raises(SamplesFileError, match=r"x\.npy.*(cannot be read|its header says 120128)"):
        open_samples(tmp_path / "x.npy")


def test_fault_45_special_files_and_pickled_objects_are_refused(tmp_path):
    os.mkfifo(tmp_path / "x.npy")
    for path in ("/dev/zero", tmp_path / "x.npy"):
        with pytest.raises(OSError, match="Not a regular file"):
            open_samples(path)
    np.save(tmp_path / "o.npy", np.array([[print, 1]], dtype=object), allow_pickle=True)
    with pytest.raises(SamplesFileError, match="Python objects"):
        open_samples(tmp_path / "o.npy")


@pytest.mark.parametrize(
    ("source", "column", "message"),
    [
        ("x.npz", None, r"2 matrices, expected one.*X \(3000, 5\), y \(3000, 5\).*'x\.npz:NAME'"),
        ("x.npz:Z", None, "no array 'Z'"),
        ("x.npz:X", "y", "names the array 'X', and column='y'"),
        ("x.npy", "X", "no names of columns or arrays"),
        ("headless.csv", "X", "first line holds numbers"),
        (["x.npy", "x.npy"], None, "all are tables of one format"),
        ("", None, "are tables of one format"),
    ],
)
def test_source_that_is_not_samples_says_what_to_do(folder, source, column, message):
    given = [folder / part for part in source] if isinstance(source, list) else folder / source
    with pytest.raises(ValueError, match=message):
        open_samples(given, column=column)
    with pytest.raises(FileNotFoundError):
        LpICA().fit(folder / "absent.npy")


# Output


@pytest.mark.parametrize("suffix", [".npy", ".csv", ".tsv", ".parquet", ".feather"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_written_results_have_the_bits_of_memory(tmp_path, suffix, dtype):
    frame = FRAME.astype(dtype)
    fitted = LpDictionaryLearning(**FAST).fit(frame)
    codes, path = fitted.transform(frame), tmp_path / f"codes{suffix}"
    written = fitted.transform(frame, out=path)
    assert isinstance(written, np.memmap) if suffix == ".npy" else written == path
    samples = open_samples(path)
    np.testing.assert_array_equal(samples.take(np.arange(3000)).astype(dtype), codes)
    assert samples.feature_names == (None if suffix == ".npy" else [f"lpdictionarylearning{k}" for k in range(5)])
    for back in (fitted.inverse_transform(path, out=tmp_path / f"x{suffix}"), fitted.denoise(frame, out=path)):
        escaped = [*NAMES[:2], "'=x" if suffix in (".csv", ".tsv") else "=x", *NAMES[3:]]
        assert open_samples(tmp_path / f"x{suffix}").feature_names == (None if suffix == ".npy" else escaped)
        assert open_samples(path if suffix != ".npy" else tmp_path / back.filename).shape == X.shape


def test_fault_42_output_is_never_the_input_by_any_name(tmp_path, model):
    torch = pytest.importorskip("torch")
    path = tmp_path / "x.npy"
    np.save(path, X)
    (tmp_path / "link.npy").symlink_to(path)
    (tmp_path / "hard.npy").hardlink_to(path)
    mapped, private = np.load(path, mmap_mode="r"), np.load(path, mmap_mode="c")
    views = [mapped, private, mapped[::2], np.asarray(mapped)[::2, ::-1], open_samples(mapped)]
    names = [path, tmp_path / "link.npy", tmp_path / "hard.npy"]
    for source in (*names, open_samples(path), *views, torch.from_numpy(private)):
        for out in ("x.npy", "link.npy", "hard.npy"):
            with pytest.raises(ValueError, match="is the file of X"):
                check_output(tmp_path / out, open_samples(source) if isinstance(source, os.PathLike) else source)
    for source in (path, mapped[::-1], pd.DataFrame(mapped, copy=False)):
        for method in (model.transform, model.inverse_transform, model.denoise):
            with pytest.raises(ValueError, match="is the file of X"):
                method(source, out=path)
    np.testing.assert_array_equal(np.load(path), X)
    assert {each.name for each in tmp_path.iterdir()} == {"hard.npy", "link.npy", "x.npy"}


def test_failed_output_leaves_the_older_file(tmp_path, model):
    np.save(tmp_path / "codes.npy", np.zeros(3))
    for suffix in (".npy", ".csv", ".parquet"):
        with pytest.raises(ValueError, match="NaN"):
            model.transform(np.where(X > 2, np.nan, X), out=tmp_path / f"codes{suffix}")
    assert [each.name for each in tmp_path.iterdir()] == ["codes.npy"]
    np.testing.assert_array_equal(np.load(tmp_path / "codes.npy"), np.zeros(3))
    with pytest.raises(ValueError, match=r"must end in one of \.npy"):
        model.transform(X, out=tmp_path / "codes.xlsx")


# Memory


def test_fit_of_a_large_file_stays_within_its_memory(tmp_path):
    """The file has 128 MB; a few blocks, vectors of one number per sample, and subsamples are in memory."""
    script = f"""
import resource
import numpy as np
from elldict import LpICA
from elldict import open_samples

rng, shape = np.random.default_rng(0), (2**19, 64)
stored = np.lib.format.open_memmap({str(tmp_path / "x.npy")!r}, "w+", np.float32, shape)
some = rng.laplace(size=(2**12, 64))
del stored
with open({str(tmp_path / "x.npy")!r}, "r+b") as stream:  # zeros elsewhere take no space on the disk
    stream.seek(128)
    stream.write(np.asarray(some, np.float32).data)
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
LpICA(4, solver="power", max_iter=3, error_bars=False).fit({str(tmp_path / "x.npy")!r})
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 2**10)
"""
    ran = subprocess.run([sys.executable, "-W", "ignore", "-c", script], check=True, capture_output=True, text=True)
    assert float(ran.stdout) < 90


def test_damaged_file_that_asks_for_too_much_memory_is_named():
    """Lengths of a damaged Feather file may be any number."""
    with (
        pytest.raises(SamplesFileError, match=r"a\.feather .*malloc of size.* damaged, or needs more memory"),
        explain("a.feather cannot be read"),
    ):
        raise MemoryError("malloc of size 288230376151711808 failed")
