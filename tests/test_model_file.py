"""Model files: loaded models compute the same bits; damaged, edited and foreign files are refused, and not executed."""

import copy
import hashlib
import io
import json
import os
import pickle
import re
import resource
import struct
import subprocess
import sys
import tracemalloc
import zipfile
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from sklearn.exceptions import NotFittedError

from elldict import LpDictionaryLearning, LpICA
from elldict.archive import HEADER, add_member
from elldict.datasets import make_bernoulli_gaussian
from elldict.model_file import MOST_WIDTHS, ModelFileError, load
from tests.fits import assert_same_fit

R, N = 400, 5
WEIGHTS = np.random.default_rng(1).integers(0, 3, R).astype(float)
MODELS = {
    "dictionary": (LpDictionaryLearning(), {}),
    "ica": (LpICA(), {}),
    "whitened": (LpDictionaryLearning(whiten=True, center=True, transform_algorithm="posterior"), {}),
    "normalised": (LpICA(normalize="samples"), {}),
    "fewer sources": (LpICA(3), {}),
    "weights": (LpICA(whiten="arbitrary-variance"), {"sample_weight": WEIGHTS}),
    "power": (LpDictionaryLearning(solver="power", p=4, random_state=3), {}),
    "l_p only": (LpDictionaryLearning(refine=None, p=1, error_bars=False), {}),
}


@pytest.fixture(scope="module")
def X():  # noqa: N802
    X, _, _ = make_bernoulli_gaussian(R, N, density=0.3, noise_std=0.1, random_state=0)
    X.setflags(write=False)
    return X


@pytest.fixture(scope="module")
def model(X):
    return LpICA().fit(X)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "model.npz"


@pytest.fixture
def saved(model, path):
    model.save(path)
    return path


def assert_same_model(model, other):
    assert_same_fit(model, other, ignored=("has_changed",))  # of densities: whether the last refit changed something


def assert_saved(model, path, X):
    """Save and load a model, and compare everything to the last bit; return the loaded one."""
    model.save(path)
    again = load(path)
    assert_same_model(model, again)
    assert (again.unmixing_ is again.components_) == (model.unmixing_ is model.components_)
    codes = model.transform(X)
    for name in ("transform", "denoise", "score_samples", "inverse_transform"):
        one, other = (getattr(each, name)(codes if name == "inverse_transform" else X) for each in (model, again))
        np.testing.assert_array_equal(one, other)
        assert one.dtype == other.dtype
    return again


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("name", MODELS)
def test_loaded_model_is_the_saved_one_to_the_last_bit(name, dtype, X, path):
    estimator, options = MODELS[name]
    samples = X.astype(dtype)
    again = assert_saved(copy.deepcopy(estimator).fit(samples, **options), path, samples)
    assert np.isnan(again.expected_error_) or estimator.error_bars


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_model_with_warnings_or_exact_atoms_or_names_is_loaded(X, path):
    for n_samples in (6, 30):
        assert assert_saved(LpICA().fit(X[:n_samples]), path, X).warnings_
    clean, _, _ = make_bernoulli_gaussian(2000, 4, density=0.2, random_state=0)
    assert assert_saved(LpDictionaryLearning().fit(clean), path, clean).noise_std_ == 0
    frame = pd.DataFrame(X, columns=["a", "b", "ü", "d\n", "e"])
    assert list(assert_saved(LpICA().fit(frame), path, frame).feature_names_in_) == list(frame.columns)


def test_cut_file_is_refused_and_a_flipped_bit_or_without_effect(model, saved):
    content = saved.read_bytes()
    places = np.random.default_rng(0).integers(0, len(content), 100)
    n_refused = 0
    for place in (*range(0, 200, 2), *places, *range(len(content) - 1600, len(content), 12)):
        changed = bytearray(content)
        changed[place] ^= 1 << place % 8
        saved.write_bytes(content[:place])
        with pytest.raises(ModelFileError, match=re.escape(str(saved))):
            load(saved)
        saved.write_bytes(changed)
        try:
            again = load(saved)
        except ModelFileError:
            n_refused += 1
        else:
            assert_same_model(model, again)
    assert n_refused > 150  # without effect are times and other entries of the directory at the end


def write_npy(array, **options):
    stream = io.BytesIO()
    np.save(stream, array, **options)
    return stream.getvalue()


def edit(path, change, *, sealed):
    """Change the members of a file, a dictionary of bytes; `sealed` with a new checksum."""
    with zipfile.ZipFile(path) as archive:
        members, comment = {name: archive.read(name) for name in archive.namelist()}, archive.comment
    change(members)
    checksum = hashlib.sha256()
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in members.items():
            archive.writestr(name, content)
            add_member(checksum, name, content)
        archive.comment = checksum.hexdigest().encode() if sealed else comment


def change_header(*place, value):
    def change(members):
        header = entry = json.loads(members[HEADER])
        for key in place[:-1]:
            entry = entry[key]
        entry[place[-1]] = value
        members[HEADER] = json.dumps(header).encode()

    return change


def change_array(name, function):
    def change(members):
        members[f"{name}.npy"] = write_npy(function(np.load(io.BytesIO(members[f"{name}.npy"]))), allow_pickle=True)

    return change


def swap_names(members):
    names = {"scale.npy": "density.npy", "density.npy": "scale.npy"}
    contents = {names.get(name, name): content for name, content in members.items()}
    members.clear()
    members.update(contents)


@pytest.mark.parametrize("change", [change_header("fitted", "n_iter_", value=7), swap_names])
def test_edited_headers_and_swapped_arrays_are_refused(change, saved):
    edit(saved, change, sealed=False)
    with pytest.raises(ModelFileError, match="has changed since it was written"):
        load(saved)


class Payload:
    """Creates a file when it is unpickled."""

    def __reduce__(self):
        return Path.touch, (Path("executed"),)


def spoil_one(mixing):
    mixing[1, 1] = np.nan
    return mixing


FORGED = {
    "pickled array": (change_array("mean", lambda mean: np.array([Payload()] * N)), "OBJECT array"),
    "pickle": (lambda members: members.update({"mean.npy": pickle.dumps(Payload())}), "magic string"),
    "parent folder": (lambda members: members.update({"../evil.npy": write_npy(np.ones(2))}), "'../evil'"),
    "newer version": (change_header("version", value=99), "format version 99"),
    "unknown class": (change_header("class", value="os.system"), "expected LpDictionaryLearning or LpICA"),
    "another class": (change_header("class", value="LpDictionaryLearning"), "parameter"),
    "unknown parameter": (change_header("params", "evil", value=1), "evil"),
    "warnings are not pairs": (change_header("warnings_", value=[["RankWarning"]]), "unpack"),
    "number as text": (change_header("fitted", "n_iter_", value="7"), "expected int"),
    "missing array": (lambda members: members.pop("atom_error.npy"), "no array 'atom_error'"),
    "wrong shape": (change_array("mean", lambda mean: mean[:, None]), "shape"),
    "wrong precision": (change_array("scale", lambda scale: scale.astype(np.float32)), "dtype float32"),
    "NaN": (change_array("mixing", spoil_one), "holds NaN"),
    "other grid": (change_array("code_tables", lambda tables: tables[:, :, 1:]), "shape"),
    "huge grid": (change_array("code_pooled", lambda pooled: np.ones((1, MOST_WIDTHS + 1))), "widths"),
}


@pytest.mark.parametrize("name", FORGED)
def test_forged_file_is_refused_and_not_executed(name, saved, monkeypatch):
    change, words = FORGED[name]
    monkeypatch.chdir(saved.parent)
    edit(saved, lambda members: None, sealed=True)
    load(saved)  # with a new checksum
    edit(saved, change, sealed=True)
    with pytest.raises(ModelFileError, match=words):
        load(saved)
    assert list(saved.parent.iterdir()) == [saved]


def write_zip(members, compression=zipfile.ZIP_DEFLATED):
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", compression) as archive:
        for name, content in members:
            archive.writestr(name, content)
    return stream.getvalue()


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_bombs_and_duplicates_take_no_memory(saved):
    content, terabyte = saved.read_bytes(), io.BytesIO()
    with zipfile.ZipFile(saved) as archive:
        members = [(name, archive.read(name)) for name in archive.namelist()]
    lying = bytearray(content)
    place = content.rindex(b"PK\x01\x02") + 20  # sizes in the last entry of the directory
    lying[place : place + 8] = struct.pack("<II", 2**31 - 1, 2**31 - 1)
    np.lib.format.write_array_header_1_0(terabyte, {"descr": "<f8", "fortran_order": False, "shape": (2**37,)})
    edit(saved, lambda found: found.update({"mean.npy": terabyte.getvalue() + bytes(8 * N)}), sealed=True)
    bombs = [write_zip([(HEADER, bytes(2**26))]), write_zip([*members, ("bomb.npy", bytes(2**26))])]
    files = [*bombs, write_zip([*members, members[-1]], zipfile.ZIP_STORED), lying, saved.read_bytes()]
    tracemalloc.start()
    for file in files:
        saved.write_bytes(file)
        with pytest.raises(ModelFileError):
            load(saved)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 50e6


def test_what_could_not_be_loaded_is_not_saved(X, model, path):
    class Other(LpICA):
        pass

    with pytest.raises(NotFittedError):
        LpICA().save(path)
    with pytest.raises(TypeError, match="not subclasses such as Other"):
        Other().fit(X).save(path)
    broken = copy.deepcopy(model)
    broken.mixing_ = broken.mixing_ * np.nan
    with pytest.raises(ValueError, match="'mixing' holds NaN"):
        broken.save(path)
    assert not path.exists()


@pytest.mark.parametrize("content", [write_npy(np.ones(3)), pickle.dumps(Payload()), b"PK\x03\x04"])
def test_another_file_is_not_loaded_and_not_replaced_unless_asked(content, model, path):
    path.write_bytes(content)
    with pytest.raises(ModelFileError, match="not a model"):
        load(path)
    with pytest.raises(FileExistsError, match=r"overwrite=True.*model\.npz"):
        model.save(path)
    assert path.read_bytes() == content
    model.save(path, overwrite=True)
    load(path)


@pytest.mark.parametrize("is_empty", [False, True])
def test_model_replaces_a_model_or_an_empty_file_and_keeps_its_mode_and_links(is_empty, model, saved):
    link = saved.with_name("link.npz")
    link.symlink_to(saved)
    saved.write_bytes(b"" if is_empty else saved.read_bytes())
    saved.chmod(0o640)
    model.save(link)
    assert link.is_symlink()
    assert saved.stat().st_mode & 0o777 == 0o640
    assert {each.name for each in saved.parent.iterdir()} == {"link.npz", "model.npz"}


@pytest.mark.parametrize("make", [os.mkfifo, Path.mkdir, lambda path: path.symlink_to("/dev/zero")])
def test_what_is_not_a_regular_file_is_neither_read_nor_replaced(make, model, path):
    make(path)
    for use in (load, model.save):
        with pytest.raises(OSError, match="Not a regular file"):
            use(path)
    assert not path.is_file()


def test_full_disk_names_the_file_and_keeps_the_old_model(model, saved):
    """A limit on the size of files has the same effect as a full disk."""
    before, limit = saved.read_bytes(), resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4000, limit[1]))
    try:
        with pytest.raises(OSError, match=r"model\.npz"):
            model.save(saved)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limit)
    assert saved.read_bytes() == before
    assert list(saved.parent.iterdir()) == [saved]


def test_process_killed_while_saving_keeps_the_old_model(saved):
    before = saved.read_bytes()
    script = f"""
import os
from elldict import archive, model_file
model = model_file.load({str(saved)!r})
archive.npy.write_array = lambda *_, **__: os._exit(9)  # after the header is written
model.save({str(saved)!r})
"""
    assert subprocess.run([sys.executable, "-c", script], check=False, timeout=60).returncode == 9
    assert saved.read_bytes() == before
