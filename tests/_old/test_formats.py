"""Texts, archives, MAT, HDF5, Arrow and safetensors: the bits of the array, and errors that say what and where."""

import json
import os
import pickle
import struct
import subprocess
import sys
import tracemalloc
import zipfile

import h5py
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.feather
import pytest
import safetensors.numpy
import scipy.io

from elldict import LpDictionaryLearning, open_samples
from elldict._old.data import spool as spools
from elldict._old.data.hdf5 import compute_fletcher32
from elldict._old.data.npy import RawReader
from elldict.datasets import make_bernoulli_gaussian
from elldict.exceptions import ConvertedFileWarning, SamplesFileError

N_SAMPLES, N_FEATURES = 1500, 6
NAMES = ["age", "height, in cm", "x", "y", "z", "π"]


@pytest.fixture(scope="module")
def X():  # noqa: N802
    samples = make_bernoulli_gaussian(N_SAMPLES, N_FEATURES, density=0.3, noise_std=0.1, random_state=0)[0]
    samples.setflags(write=False)
    return samples


@pytest.fixture(scope="module")
def in_memory(X):
    return {name: fit(X.astype(name)) for name in ("float64", "float32")} | {"half": fit(half(X).astype(np.float32))}


def fit(source):
    return LpDictionaryLearning(random_state=0).fit(source)


def half(X):
    return X.astype(np.float16)


def text_of(X, between=",", names=None):
    lines = [between.join(map(repr, row)) for row in X.tolist()]
    if names is not None:
        lines.insert(0, between.join(f'"{name}"' for name in names))
    return "\n".join(lines) + "\n"


# --- the same bits ----------------------------------------------------------------------------------------------------


def as_csv(X, folder):
    pd.DataFrame(X, columns=NAMES).to_csv(folder / "x.csv", index=False)
    return folder / "x.csv"


def as_spaces(X, folder):
    np.savetxt(folder / "x.txt", X, fmt="%.17g")
    return str(folder / "x.txt")


def as_npz(X, folder):
    np.savez(folder / "x.npz", X=X, other=X + 1)
    return folder / "x.npz:X"


def as_compressed_npz(X, folder):
    np.savez_compressed(folder / "x.npz", X=np.asfortranarray(X))
    return folder / "x.npz"


def as_mat(X, folder):
    scipy.io.savemat(folder / "x.mat", {"X": X, "Y": X + 1}, do_compression=True)
    return folder / "x.mat:X"


def as_hdf5(X, folder):
    with h5py.File(folder / "x.h5", "w") as file:
        file.create_dataset("a/b", data=X, chunks=(100, 4), compression="gzip", shuffle=True)
        file.create_dataset("c", data=X + 1)
    return f"{folder / 'x.h5'}:/a/b"


def as_feather(X, folder):
    pyarrow.feather.write_feather(pa.table(dict(zip(NAMES, X.T, strict=True))), folder / "x.feather")
    return folder / "x.feather"


def as_safetensors(X, folder):
    safetensors.numpy.save_file({"X": np.ascontiguousarray(X), "Y": np.ascontiguousarray(X) + 1}, folder / "x")
    return f"{folder / 'x'}:X"


def as_list_of_files(X, folder):
    np.save(folder / "a.npy", X[:700])
    np.savez(folder / "b.npz", X[700:])
    return open_samples([folder / "a.npy", folder / "b.npz"])


WRITERS = {name.removeprefix("as_").replace("_", " "): f for name, f in dict(globals()).items() if name[:3] == "as_"}
TEXTS = ("csv", "spaces")


@pytest.mark.parametrize("kind", WRITERS)
@pytest.mark.parametrize("dtype", ["float64", "float32", "half"])
def test_every_format_gives_the_answer_of_the_array(X, in_memory, tmp_path, kind, dtype):
    if kind in TEXTS and dtype != "float64":
        pytest.skip("numbers of a text are float64")
    if kind == "mat" and dtype == "half":
        pytest.skip("MATLAB has no such numbers")
    array = half(X) if dtype == "half" else X.astype(dtype)
    source = WRITERS[kind](array, tmp_path)
    model = fit(source)
    assert model.components_.dtype == in_memory[dtype].components_.dtype
    np.testing.assert_array_equal(model.components_, in_memory[dtype].components_)
    assert model.score(source) == in_memory[dtype].score(array)
    if kind in ("csv", "feather"):
        assert list(model.feature_names_in_) == NAMES


def test_bfloat16_tensors_and_shards_are_those_of_float32(X, tmp_path):
    torch = pytest.importorskip("torch")
    save_file = pytest.importorskip("safetensors.torch").save_file
    tensor = torch.asarray(X.copy()).bfloat16()
    (tmp_path / "shards").mkdir()
    for number, part in enumerate(tensor.split(700)):
        save_file({"acts": part.clone()}, tmp_path / "shards" / f"{number}.safetensors")
    samples = open_samples(f"{tmp_path / 'shards'}:acts")
    assert (samples.n_samples, samples.dtype) == (N_SAMPLES, "float32")
    np.testing.assert_array_equal(samples.take(np.arange(N_SAMPLES)), tensor.double().numpy())
    np.testing.assert_array_equal(fit(samples).components_, fit(tensor.float().numpy()).components_)


@pytest.mark.parametrize("stored", ["int8", "uint16", "float32", "float64", "bool"])
def test_matlab_stores_numbers_in_the_smallest_type(tmp_path, stored):
    rows = np.arange(1, 31).reshape(10, 3)
    array = rows % 2 == 0 if stored == "bool" else rows.astype(stored)
    scipy.io.savemat(tmp_path / "x.mat", {"X": array})
    reader = open_samples(tmp_path / "x.mat").reader
    assert reader.dtype == ("float32" if stored == "float32" else "float64")
    np.testing.assert_array_equal(reader.read(0, 10), array)
    np.testing.assert_array_equal(reader.take(np.array([2, 7])), array[[2, 7]])


def test_a_class_of_matlab_decides_on_the_precision_not_the_type_of_storage(tmp_path):
    """MATLAB writes whole numbers of class single or double as integers."""
    values = np.arange(12, dtype="<i2")  # of a matrix of 4 x 3, by columns
    flags = struct.pack("<IIII", 6, 8, 7, 0)  # class single
    rest = struct.pack("<IIii", 5, 8, 4, 3) + struct.pack("<HHc3x", 1, 1, b"X") + struct.pack("<II", 3, 24)
    body = flags + rest + values.tobytes()
    header = b"MATLAB 5.0 MAT-file".ljust(124) + b"\x00\x01IM"
    (tmp_path / "x.mat").write_bytes(header + struct.pack("<II", 14, len(body)) + body)
    np.testing.assert_array_equal(scipy.io.loadmat(tmp_path / "x.mat")["X"], values.reshape(3, 4).T)
    reader = open_samples(tmp_path / "x.mat").reader
    assert reader.dtype == "float32"
    np.testing.assert_array_equal(reader.read(0, 4), values.reshape(3, 4).T)


def test_numbers_that_lie_as_in_memory_are_read_in_place(X, tmp_path):
    """No copy of them is made, in memory or elsewhere."""
    np.savez(tmp_path / "x.npz", X)
    scipy.io.savemat(tmp_path / "x.mat", {"X": X})
    with h5py.File(tmp_path / "x.h5", "w") as file:
        file["X"] = X
    for name in ("x.npz", "x.mat", "x.h5"):
        reader = open_samples(tmp_path / name).reader
        assert isinstance(reader, RawReader)
        assert reader.spool is None


@pytest.mark.parametrize("size", [0, 1, 2, 7, 100_001])
@pytest.mark.parametrize("fill", [0, 255, None])
def test_fletchers_checksum_is_that_of_hdf5(tmp_path, rng, size, fill):
    content = rng.bytes(size + 1) if fill is None else bytes([fill]) * (size + 1)
    with h5py.File(tmp_path / "x.h5", "w") as file:
        data = np.frombuffer(content, np.uint8)
        dataset = file.create_dataset("x", data=data, chunks=data.shape, fletcher32=True)
        file.flush()
        _, stored = dataset.id.read_direct_chunk((0,))
    assert stored[:-4] == content
    assert compute_fletcher32(content) == int.from_bytes(stored[-4:], "little")


# --- texts ------------------------------------------------------------------------------------------------------------

SPELLINGS = {
    "no names": ("1,2\n3,4\n", None),
    "names": ("a,b\n1,2\n3,4\n", ("a", "b")),
    "quoted names": ('"a, really","b ""c"""\n1,2\n3,4', ("a, really", 'b "c"')),
    "quoted names that are numbers": ('"400","410"\n1,2\n3,4\n', ("400", "410")),
    "quoted numbers": ('"a","b"\n"1","2"\n"3","4"\n', ("a", "b")),
    "byte order mark": ("\ufeffa,b\n1,2\n3,4\n", ("a", "b")),
    "blank lines": ("\n\na,b\n\n1,2\n   \n3,4\n\n", ("a", "b")),
    "lines of windows": ("a,b\r\n1,2\r\n3,4\r\n", ("a", "b")),
    "spaces": ("a , b\n 1, 2 \n3 ,4\n", ("a", "b")),
    "semicolons": ("a;b\n1;2\n3;4\n", ("a", "b")),
    "a comment of numpy": ("# a,b\n1,2\n3,4\n", ("a", "b")),
    "exponents": ("1e0,+2\n3.,.4e1\n", None),
}


@pytest.mark.parametrize("spelling", SPELLINGS)
@pytest.mark.parametrize("block", [2**20, 3])
def test_spellings_of_a_text(tmp_path, monkeypatch, spelling, block):
    monkeypatch.setattr("elldict._old.data.text.BLOCK_BYTES", block)
    content, names = SPELLINGS[spelling]
    if spelling == "quoted names that are numbers" and block == 3:
        pytest.skip("whether the second line is quoted too is seen if it is in the first block")
    (tmp_path / "x.csv").write_text(content, newline="")
    reader = open_samples(tmp_path / "x.csv").reader
    assert reader.feature_names == names
    np.testing.assert_array_equal(reader.read(0, 2), [[1, 2], [3, 4]])


WRONG_TEXTS = {
    "a word": ("a,b\n1,2\n3,four\n", r"line 3: column 2 \('b'\) holds 'four', expected a number"),
    "a word without names": ("1,2\n\n3,x\n", r"line 3: column 2 holds 'x', expected a number"),
    "nothing": ("a,b\n1,\n", r"line 2: column 2 \('b'\) is empty. Drop or impute it first"),
    "an underscore": ("1,2\n3,1_000\n", r"line 2: column 2 holds '1_000'"),
    "other digits": ("1,2\n3,\u0664\n", "line 2: column 2 holds"),
    "too few": ("a,b,c\n1,2,3\n4,5\n", "line 3 has 2 columns, expected 3 as in the first line"),
    "too many": ("1,2\n3,4,5\n", "line 2 has 3 columns, expected 2"),
    "numbers and words": ("a,2\n3,4\n", "line 1 holds numbers and, in column 1, 'a'"),
    "decimal commas": ("1,5;2,5\n3,5;4,5\n", r"line 1 holds numbers and, in column 2, '5;2'"),
    "names twice": ("a,a\n1,2\n", "'a', 'a' are not all different"),
    "an index": (",a,b\n0,1,2\n", "column 1 has no name. If it numbers the samples"),
    "only names": ("a,b\n", "holds a line of names and no samples"),
    "blank": ("\n \n", "is empty, expected a line of numbers"),
    "utf-16": ("a,b\n1,2\n".encode("utf-16"), "is UTF-16, expected text in UTF-8"),
    "zeros": (b"1,2\n3,\x00\n", "line 2: column 2 holds"),
}


@pytest.mark.parametrize("what", WRONG_TEXTS)
def test_what_is_wrong_in_a_text_is_named_by_line_and_column(tmp_path, what):
    content, message = WRONG_TEXTS[what]
    (tmp_path / "x.csv").write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(SamplesFileError, match=rf"x\.csv.*{message}"):
        open_samples(tmp_path / "x.csv")


def test_nan_in_a_text_is_named_by_line_and_column(X, tmp_path):
    rows = X.copy()
    rows[1200, 1] = np.nan
    lines = text_of(rows, names=NAMES).splitlines()
    (tmp_path / "x.csv").write_text("\n".join([*lines[:800], "", "", *lines[800:]]))
    message = r"NaN in sample 1200, feature 1, column 'height, in cm' \(.*x\.csv, line 1204\)"
    with pytest.raises(ValueError, match=message):
        fit(tmp_path / "x.csv")


def test_columns_of_a_text_can_be_chosen(X, tmp_path):
    frame = pd.DataFrame(X, columns=NAMES).assign(words="some, words")
    frame.to_csv(tmp_path / "x.csv")
    samples = open_samples(tmp_path / "x.csv", column=["z", "age"])
    assert samples.feature_names == ("z", "age")
    np.testing.assert_array_equal(samples.take(np.arange(9)), X[:9, [4, 0]])
    frame["words"] = "plain"
    frame.to_csv(tmp_path / "x.csv")
    np.testing.assert_array_equal(open_samples(tmp_path / "x.csv", column=["z"]).take(np.arange(9)), X[:9, [4]])
    with pytest.raises(SamplesFileError, match="has no column 'w'; its columns are '', 'age'"):
        open_samples(tmp_path / "x.csv", column=["w"])


def test_names_of_files_are_kept_without_pyarrow(X, tmp_path, monkeypatch):
    path = as_csv(X, tmp_path)
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    model = fit(path)
    assert list(model.feature_names_in_) == NAMES
    model.transform(path)
    pd.DataFrame(X, columns=NAMES[::-1]).to_csv(path, index=False)
    with pytest.raises(ValueError, match="feature names should match"):
        model.transform(path)
    pd.DataFrame(X[:, :4], columns=NAMES[:4]).to_csv(path, index=False)
    with pytest.raises(ValueError, match="feature names should match"):
        model.transform(path)
    with pytest.raises(ValueError, match="X has 4 features, but LpDictionaryLearning expects 6"):
        fit(X).transform(path)


# --- memory -----------------------------------------------------------------------------------------------------------


def test_what_is_too_large_for_memory_goes_to_a_file_without_a_name(X, tmp_path, monkeypatch, in_memory):
    monkeypatch.setattr(spools, "SPOOL_BYTES", 10_000)
    monkeypatch.setattr("elldict._old.data.text.BLOCK_BYTES", 5000)
    before = set(os.listdir("/tmp")) if os.path.isdir("/tmp") else set()  # noqa: PTH112, PTH208
    path = as_csv(X, tmp_path)
    with pytest.warns(ConvertedFileWarning, match=r"x\.csv holds numbers that cannot be read where they lie"):
        samples = open_samples(path)
    np.testing.assert_array_equal(fit(samples).components_, in_memory["float64"].components_)
    assert not [name for name in set(os.listdir("/tmp")) - before if "elldict" in name]  # noqa: PTH208
    with pytest.raises(SamplesFileError, match="which other processes cannot read"):
        pickle.dumps(samples.reader)


MEMORY = """
import sys, resource
import numpy as np
from pathlib import Path
from elldict import open_samples
import h5py, pyarrow.parquet, scipy.io
def peak():
    return int(Path("/proc/self/status").read_text().split("VmHWM:")[1].split()[0]) * 1024
import warnings; warnings.simplefilter("ignore")
from elldict._old.data import hdf5, mat, npz, spool, text
spool.SPOOL_BYTES = 2**22
before = peak()
samples = open_samples(sys.argv[1])
for start in range(0, samples.n_samples, 10000):
    samples.reader.read(start, min(start + 10000, samples.n_samples))
print(peak() - before)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize("kind", ["text", "npz", "mat", "hdf5"])
def test_memory_is_bounded_however_large_the_file(tmp_path, kind):
    """48 MB of numbers take the 4 MB of a spool before it moves, a copy while it does, and what is decoded at a time.

    That are some MB of text, or a chunk; allocators keep as much again.
    """
    path, shape = tmp_path / "x", (600_000, 10)
    if kind == "text":
        path = tmp_path / "x.csv"
        path.write_bytes(b"1,2,3,4,5,6,7,8,9,0\n" * shape[0])
    elif kind == "npz":
        np.savez_compressed(path, np.zeros(shape))
        path = path.with_name("x.npz")
    elif kind == "mat":
        scipy.io.savemat(path, {"X": np.zeros(shape)}, do_compression=True, appendmat=False)
    else:
        with h5py.File(path, "w") as file:
            file.create_dataset("X", data=np.zeros(shape), chunks=(10_000, 10), compression="gzip")
    run = [sys.executable, "-c", MEMORY, str(path)]
    done = subprocess.run(run, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) < 24e6


def trace(work):
    tracemalloc.start()
    try:
        work()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_fault_45_sizes_that_are_declared_take_no_memory(tmp_path):
    def refuse(path):
        def work():
            with pytest.raises(SamplesFileError):
                open_samples(path).reader.read(0, 10)

        assert trace(work) < 20e6

    header = np.lib.format.header_data_from_array_1_0(np.zeros((2, 2)))
    archive = zipfile.ZipFile(tmp_path / "bomb.npz", "w", zipfile.ZIP_DEFLATED)
    with archive, archive.open("X.npy", "w") as stream:
        np.lib.format.write_array_header_1_0(stream, {**header, "shape": (10**11, 10)})
        stream.write(bytes(50_000_000))
    refuse(tmp_path / "bomb.npz")
    with h5py.File(tmp_path / "bomb.h5", "w") as file:
        file.create_dataset("X", (10**11, 10), "f8", chunks=(1000, 10), compression="gzip")
    refuse(tmp_path / "bomb.h5")
    text = json.dumps({"X": {"dtype": "F64", "shape": [10**11, 10], "data_offsets": [0, 8 * 10**12]}}).encode()
    (tmp_path / "bomb.safetensors").write_bytes(len(text).to_bytes(8, "little") + text + bytes(100))
    refuse(tmp_path / "bomb.safetensors")
    (tmp_path / "bomb2.safetensors").write_bytes((10**8).to_bytes(8, "little") + b"{")
    refuse(tmp_path / "bomb2.safetensors")


# --- what is no array of samples --------------------------------------------------------------------------------------


def write_link(folder):
    with h5py.File(folder / "other.h5", "w") as file:
        file["X"] = np.ones((4, 4))
    with h5py.File(folder / "x.h5", "w") as file:
        file["X"] = h5py.ExternalLink("other.h5", "X")
        file["soft"] = h5py.SoftLink("/X")


def write_external(folder):
    np.ones((4, 4)).tofile(folder / "raw")
    with h5py.File(folder / "x.h5", "w") as file:
        file.create_dataset("X", (4, 4), "f8", external=[(str(folder / "raw"), 0, 128)])


def write_virtual(folder):
    write_link(folder)
    layout = h5py.VirtualLayout((4, 4), "f8")
    layout[:] = h5py.VirtualSource(folder / "other.h5", "X", (4, 4))
    with h5py.File(folder / "x.h5", "w") as file:
        file.create_virtual_dataset("X", layout)


@pytest.mark.parametrize(
    ("write", "name", "message"),
    [
        (write_link, "X", "'X' in 'X' is a link, which may lead elsewhere"),
        (write_link, "soft", "is a link"),
        (write_external, "X", "stored in other files, which are not opened"),
        (write_virtual, "X", "stored in other files, which are not opened"),
    ],
)
def test_fault_43_hdf5_leads_to_no_other_file(tmp_path, write, name, message):
    write(tmp_path)
    with pytest.raises(SamplesFileError, match=message):
        open_samples(tmp_path / f"x.h5:{name}")


def test_arrays_that_are_no_samples_are_named(X, tmp_path):
    np.savez(tmp_path / "x.npz", X=X, Y=X, line=X[0], words=np.array([["a"]]))
    for name, message in (
        ("x.npz", r"holds 3 arrays of rows and columns, expected one: its arrays are 'X' \(1500, 6\), .*x\.npz:NAME"),
        ("x.npz:Z", r"has no array 'Z'; its arrays are 'X' \(1500, 6\)"),
        ("x.npz:line", r"array 'line' holds an array of shape \(6,\)"),
        ("x.npz:words", r"array 'words' holds <U1, expected real numbers"),
    ):
        with pytest.raises(SamplesFileError, match=message):
            open_samples(tmp_path / name)
    with pytest.raises(ValueError, match=r"column='Y' was given, and .* names 'X' already"):
        open_samples(tmp_path / "x.npz:X", column="Y")
    with pytest.raises(ValueError, match="ends in a colon"):
        open_samples(f"{tmp_path / 'x.npz'}:")
    with pytest.raises(FileNotFoundError):
        open_samples(tmp_path / "none.npz:X")
    np.savez(tmp_path / "pickled.npz", X=np.array([[{}, 1]], dtype=object))
    with pytest.raises(SamplesFileError, match="pickled Python objects, which are not loaded"):
        open_samples(tmp_path / "pickled.npz")
    cell = np.array([[1, "a"]], dtype=object)
    scipy.io.savemat(tmp_path / "x.mat", {"c": cell, "z": X[:3] * 1j, "words": "some"})
    for name, message in (("c", "a cell"), ("z", "is complex"), ("words", "is a text"), ("y", "no array 'y'")):
        with pytest.raises(SamplesFileError, match=message):
            open_samples(tmp_path / f"x.mat:{name}")
    pyarrow.feather.write_feather(pd.DataFrame({"a": ["x"]}), tmp_path / "x.feather")
    with pytest.raises(SamplesFileError, match="column 'a' is of type"):
        open_samples(tmp_path / "x.feather")


def test_lists_of_files_have_to_belong_together(X, tmp_path):
    np.save(tmp_path / "a.npy", X)
    np.save(tmp_path / "b.npy", X[:, :4])
    with pytest.raises(SamplesFileError, match=r"b\.npy has 4 features of float64, expected 6 of float64"):
        open_samples([tmp_path / "a.npy", tmp_path / "b.npy"])


def test_codes_never_replace_a_file_of_a_list(X, tmp_path, in_memory):
    np.save(tmp_path / "a.npy", X[:9])
    np.savez_compressed(tmp_path / "b.npz", X[9:])
    for kind in ("b.npz:arr_0", "list"):
        source = open_samples([tmp_path / "a.npy", tmp_path / "b.npz"] if kind == "list" else tmp_path / kind)
        (tmp_path / "codes.npy").unlink(missing_ok=True)
        os.link(tmp_path / "b.npz", tmp_path / "codes.npy")
        with pytest.raises(ValueError, match="is also the input"):
            in_memory["float64"].transform(source, out=tmp_path / "codes.npy")


@pytest.mark.parametrize("module", ["h5py", "pyarrow"])
def test_a_missing_package_is_named_with_its_extra(X, tmp_path, monkeypatch, module):
    path = {"h5py": as_hdf5, "pyarrow": as_feather}[module](X, tmp_path)
    for name in [name for name in sys.modules if name.partition(".")[0] == module]:
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(ImportError, match=rf"{module} is needed for this: pip install '\.\[files\]' in a clone"):
        open_samples(path)


# --- data frames ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("frame", [pd.DataFrame, pl.DataFrame])
def test_nan_in_a_data_frame_is_named_by_its_column(X, frame):
    rows = X.copy()
    rows[12, 0] = np.nan
    table = frame(dict(zip(NAMES, rows.T, strict=True)))
    with pytest.raises(ValueError, match=r"NaN in sample 12, feature 0, column 'age' \("):
        fit(table)
    model = fit(frame(dict(zip(NAMES, X.T, strict=True))))
    for use in (model.transform, model.score):
        with pytest.raises(ValueError, match=r"NaN in sample 12, feature 0, column 'age' \("):
            use(table)


@pytest.mark.parametrize("frame", [pd.DataFrame, pl.DataFrame])
def test_words_in_a_data_frame_are_named_by_their_column(X, frame):
    table = frame({"age": X[:5, 0], "city": ["1", "2", "Ulm", "4", "5"]})
    with pytest.raises(ValueError, match=r"X holds 'Ulm' in column 'city', row 2, expected numbers"):
        fit(table)


def test_damage_that_a_checksum_shows_is_found(X, tmp_path):
    with h5py.File(tmp_path / "x.h5", "w") as file:
        chunked = file.create_dataset("X", data=X, chunks=(500, 6), fletcher32=True)
        places = []
        chunked.id.chunk_iter(places.append)
    np.savez_compressed(tmp_path / "x.npz", X)
    with zipfile.ZipFile(tmp_path / "x.npz") as archive:
        middle = archive.infolist()[0].compress_size // 2
    for name, at in (("x.h5", places[1].byte_offset + 99), ("x.npz", middle)):
        content = bytearray((tmp_path / name).read_bytes())
        content[at] ^= 1
        (tmp_path / name).write_bytes(content)
        with pytest.raises(SamplesFileError, match=rf"{name}"):
            open_samples(tmp_path / name).reader.read(0, N_SAMPLES)
