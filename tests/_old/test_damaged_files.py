"""Faults that the campaign of damaged files has found (experiments/campaign): each has a test here.

More of rows 32, 44, 45 and 47 of the catalogue of faults.
"""

import json
import os
import tracemalloc
import zipfile

import numcodecs
import numpy as np
import pytest
import zarr

import elldict
from elldict import LpDictionaryLearning, open_samples
from elldict._old.checkpoint import CheckpointError
from elldict._old.persistence import ModelFileError
from elldict._old.record_file import RecordFile, RecordFileError
from elldict.exceptions import SamplesFileError

CLEAR_SCREEN = "\x1b[2J"


@pytest.fixture(scope="module")
def X():  # noqa: N802
    X, _, _ = elldict.datasets.make_bernoulli_gaussian(1200, 6, density=0.3, noise_std=0.1, random_state=0)
    X.setflags(write=False)
    return X


@pytest.fixture
def saved(X, tmp_path):
    LpDictionaryLearning(random_state=0, refine="mixture").fit(X).save(tmp_path / "model.npz")
    return tmp_path / "model.npz"


def change_member(path, name, change):
    """Write an archive again with another member, and right checksums."""
    with zipfile.ZipFile(path) as archive:
        members = {member: archive.read(member) for member in archive.namelist()}
    members[name] = change(members[name])
    with zipfile.ZipFile(path, "w") as archive:
        for member, content in members.items():
            archive.writestr(member, content)


def change_array(path, name, change):
    with np.load(path) as arrays:
        array = arrays[name].copy()
    change(array)
    np.save(path.parent / "array.npy", array)
    change_member(path, f"{name}.npy", lambda _: (path.parent / "array.npy").read_bytes())


def write_parquet(X, path):
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    columns = {f"f{k}": X[:, k] for k in range(X.shape[1])}
    parquet.write_table(pyarrow.table(columns), path, row_group_size=500, compression="none", use_dictionary=False)
    return path


# --- messages ---------------------------------------------------------------------------------------------------------


def assert_readable(error, path):
    message = str(error.value)
    assert message.startswith(str(path))
    assert message.isprintable()
    assert len(message) < 2000


def test_fault_32_words_of_a_model_file_are_quoted_so_that_they_can_be_read(saved):
    def change(content):
        header = json.loads(content)
        header["class"] = "A" * 100_000
        return json.dumps(header).encode()

    change_member(saved, "header.json", change)
    with pytest.raises(ModelFileError, match="expected one of LpDictionaryLearning") as error:
        elldict.load(saved)
    assert_readable(error, saved)


@pytest.mark.parametrize("word", [CLEAR_SCREEN, "A" * 100_000])
def test_fault_44_words_of_zarr_metadata_are_quoted_so_that_they_can_be_read(X, tmp_path, word):
    path = tmp_path / "x.zarr"
    zarr.create_array(path, shape=X.shape, chunks=(500, 6), dtype=X.dtype)[:] = X
    header = json.loads((path / "zarr.json").read_text())
    (path / "zarr.json").write_text(json.dumps({**header, "shape": word}))
    with pytest.raises(SamplesFileError, match="cannot be opened as zarr") as error:
        open_samples(path)
    assert_readable(error, path)


def test_fault_47_words_of_a_checkpoint_are_quoted_so_that_they_can_be_read(X, tmp_path):
    path = tmp_path / "checkpoint"
    model = LpDictionaryLearning(random_state=0, solver="power", refine=None)
    model.fit(X, checkpoint=path)
    file = RecordFile.open(path)
    header = {**file.header, "about": {**file.header["about"], "samples": CLEAR_SCREEN + "A" * 100_000}}
    file.close()
    RecordFile.create(path, header).close()
    with pytest.raises(CheckpointError, match=r"is the checkpoint of another fit.*choose another file") as error:
        model.fit(X, checkpoint=path, resume=True)
    assert_readable(error, path)


def test_fault_47_a_schema_that_is_no_text_is_refused(tmp_path):
    """SQLite quotes it in what it says of it, and that is no text either."""
    path = tmp_path / "file"
    RecordFile.create(path, {}).close()
    content = path.read_bytes()
    assert content.count(b"CREATE TABLE part (number") == 1
    path.write_bytes(content.replace(b"CREATE TABLE part (number", b"CREATE TABLE part \xee\xee\xee\xee\xee\xee\xee"))
    with pytest.raises(RecordFileError):
        RecordFile.open(path)


# --- numbers ----------------------------------------------------------------------------------------------------------


def test_fault_32_counts_of_a_history_are_whole_numbers(saved):
    """They were rounded down, without a word."""

    def change(history):
        history[0, 2] += 0.5

    change_array(saved, "history", change)
    with pytest.raises(ModelFileError, match=r"iteration of an iteration is \d+\.5, expected a whole number"):
        elldict.load(saved)


@pytest.mark.parametrize("value", [1e308, 5e-324])
def test_fault_32_laws_of_codes_have_standard_deviations_that_can_be_squared(saved, X, value):
    """Likelihoods were not numbers."""

    def change(std):
        std[0] = value

    change_array(saved, "mixture_std", change)
    with pytest.raises(ModelFileError, match="standard deviations go from"):
        elldict.load(saved)


def test_fault_32_a_number_of_codes_may_be_true(X):
    """As JSON and scikit-learn have it, it is a whole number; it was an error of NumPy."""
    model = LpDictionaryLearning(random_state=0, transform_algorithm="omp", transform_n_nonzero_coefs=True).fit(X)
    assert np.all(np.count_nonzero(model.transform(X), axis=1) == 1)


@pytest.mark.parametrize("chunks", [[0, 6], [500, 0]])
def test_fault_44_zarr_chunks_without_rows_or_columns_are_refused(X, tmp_path, chunks):
    path = tmp_path / "x.zarr"
    zarr.create_array(path, shape=X.shape, chunks=(500, 6), dtype=X.dtype, zarr_format=2)[:] = X
    header = json.loads((path / ".zarray").read_text())
    (path / ".zarray").write_text(json.dumps({**header, "chunks": chunks}))
    with pytest.raises(SamplesFileError, match=r"x\.zarr.*chunk"):
        open_samples(path)


def test_fault_44_blosc_does_not_read_beyond_the_end_of_a_chunk(X, tmp_path):
    """It decoded whatever memory held there: now the rest of the same chunk, now something else."""
    path = tmp_path / "x.zarr"
    options = {"zarr_format": 2, "compressors": numcodecs.Blosc()}
    zarr.create_array(path, shape=X.shape, chunks=(600, 6), dtype=X.dtype, **options)[:] = X
    size = (path / "1.0").stat().st_size
    os.truncate(path / "1.0", size - 100)
    with pytest.raises(SamplesFileError, match=rf"1\.0 is truncated: it holds {size - 100} bytes of a chunk of {size}"):
        open_samples(path).reader.read(0, len(X))


@pytest.mark.parametrize("way", ["zstd", "plain", "format 2", "sharded"])
def test_fault_45_zarr_metadata_that_declare_large_chunks_take_no_memory(X, tmp_path, way):
    """Shape and chunks agree with each other, and with the number of files: only their content does not."""
    options = {
        "zstd": {},
        "plain": {"compressors": None},
        "format 2": {"zarr_format": 2},
        "sharded": {"shards": (1200, 6), "compressors": None},
    }[way]
    path = tmp_path / "x.zarr"
    zarr.create_array(path, shape=X.shape, chunks=(600 if way == "sharded" else 1200, 6), dtype=X.dtype, **options)[
        :
    ] = X
    metadata = path / (".zarray" if way == "format 2" else "zarr.json")
    metadata.write_text(metadata.read_text().replace("1200", "5000000").replace("600", "5000000"))
    tracemalloc.start()
    with pytest.raises(SamplesFileError, match=r"x\.zarr.* is damaged: it"):
        open_samples(path).reader.read(0, 10)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 20e6


def test_fault_44_columns_of_parquet_are_of_the_type_that_the_schema_says(X, tmp_path):
    """Where pyarrow does not compare, it takes doubles for floats."""
    path = write_parquet(X, tmp_path / "x.parquet")
    content = bytearray(path.read_bytes())
    start = len(content) - 8 - int.from_bytes(content[-8:-4], "little")
    at = content.rindex(b"\x15\x0a", start, content.index(b"f0", start))  # DOUBLE, 5, as thrift writes it
    content[at + 1] = 8  # FLOAT, 4
    path.write_bytes(content)
    with pytest.raises(
        SamplesFileError, match=r"row group 0 is damaged: it has columns of 'DOUBLE'.* expected 'FLOAT'"
    ):
        open_samples(path)


# --- memory -----------------------------------------------------------------------------------------------------------


def fail(*_, **__):
    raise MemoryError("none is left")


def test_fault_20_no_memory_is_not_called_damage(X, saved, tmp_path, monkeypatch):
    path = write_parquet(X, tmp_path / "x.parquet")
    samples = open_samples(path)
    for name in ("elldict._old.persistence.read_array", "elldict._old.models.unpack_model"):
        with monkeypatch.context() as patch:
            patch.setattr(name, fail)
            with pytest.raises(MemoryError):
                elldict.load(saved)
    monkeypatch.setattr("pyarrow.parquet.ParquetFile.iter_batches", lambda *_: map(fail, [0]))
    with pytest.raises(MemoryError):
        samples.reader.read(0, 10)
    monkeypatch.setattr("pyarrow.parquet.ParquetFile", fail)
    with pytest.raises(MemoryError):
        open_samples(path)
