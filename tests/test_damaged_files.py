"""Faults that the campaign of damaged files has found (experiments/campaign): each has a test here.

More of rows 32, 44, 45 and 47 of the catalogue of faults.
"""

import json
import zipfile

import numpy as np
import pytest
import zarr

import elldict
from elldict import LpDictionaryLearning, open_samples
from elldict.checkpoint import CheckpointError
from elldict.exceptions import SamplesFileError
from elldict.persistence import ModelFileError
from elldict.record_file import RecordFile, RecordFileError

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
