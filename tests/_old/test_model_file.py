"""Model files: complete or absent, and checked before they are used."""

import io
import json
import os
import pickle
import stat
import subprocess
import sys
import tracemalloc
import zipfile

import numpy as np
import pandas as pd
import pytest

import elldict
from elldict import LpDictionaryLearning, LpICA
from elldict._old import persistence as model_file
from elldict._old.persistence import ModelFileError


@pytest.fixture
def model(easy):
    return LpDictionaryLearning(p=3.5, center=True, whiten=True, random_state=1, n_init=2).fit(easy[0])


@pytest.fixture
def saved(model, tmp_path):
    path = tmp_path / "model.npz"
    model.save(path)
    return path


def test_a_model_survives_saving(model, saved, easy):
    again = elldict.load(saved)
    assert again.get_params() == model.get_params()
    assert again.history_ == model.history_
    for name in ("n_components_", "n_features_in_", "objective_", "n_iter_", "n_passes_", "converged_", "status_"):
        assert getattr(again, name) == getattr(model, name)
    np.testing.assert_array_equal(again.transform(easy[0]), model.transform(easy[0]))
    np.testing.assert_array_equal(again.mean_, model.mean_)
    assert list(again.get_feature_names_out()) == list(model.get_feature_names_out())


def test_names_survive_and_generators_do_not(easy, tmp_path):
    whitening = pd.DataFrame(easy[0], columns=list("abcdefghijkl"))
    model = LpDictionaryLearning(np.int64(3), p=np.float32(3), random_state=np.random.default_rng(0)).fit(whitening)
    model.save(tmp_path / "m.npz")
    again = elldict.load(tmp_path / "m.npz")
    assert list(again.feature_names_in_) == list("abcdefghijkl")
    assert again.random_state is None
    np.testing.assert_array_equal(again.transform(whitening), model.transform(whitening))


def test_numpy_reads_the_arrays(saved, model):
    with np.load(saved, allow_pickle=False) as arrays:
        np.testing.assert_array_equal(arrays["atoms"], model.components_)


def test_files_that_name_no_class_hold_dictionaries(saved, model, tmp_path):
    """As the first ones were written, with atoms under another name."""

    def change(members):
        header = json.loads(members["header.json"])
        del header["class"]
        members["header.json"] = json.dumps(header).encode()
        members["components.npy"] = members.pop("atoms.npy")

    again = elldict.load(rewritten(saved, tmp_path, change))
    assert type(again) is LpDictionaryLearning
    np.testing.assert_array_equal(again.components_, model.components_)


def test_a_class_that_is_not_known_is_named(saved, tmp_path):
    path = rewritten(saved, tmp_path, change_header(**{"class": "KSVD"}))
    with pytest.raises(ModelFileError, match=r"class 'KSVD', expected one of LpDictionaryLearning, LpICA\."):
        elldict.load(path)


@pytest.mark.parametrize("kind", [LpDictionaryLearning, LpICA])
def test_a_file_comes_back_as_the_class_that_wrote_it(kind, easy, tmp_path):
    kind(random_state=0).fit(easy[0]).save(tmp_path / "m.npz")
    assert type(elldict.load(tmp_path / "m.npz")) is kind


def test_an_unfitted_model_is_not_saved(tmp_path):
    with pytest.raises(Exception, match="not fitted"):
        LpDictionaryLearning().save(tmp_path / "m.npz")
    assert not any(tmp_path.iterdir())


def rewritten(saved, tmp_path, change):
    """The archive with `change` applied to its members, a dict of bytes."""
    with zipfile.ZipFile(saved) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    change(members)
    path = tmp_path / "changed.npz"
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return path


def npy(array, **options):
    stream = io.BytesIO()
    np.save(stream, array, **options)
    return stream.getvalue()


class Exploit:
    def __reduce__(self):
        return os.system, ("touch exploited",)


def change_header(**changes):
    def change(members):
        header = json.loads(members["header.json"])
        for name, value in changes.items():
            target, _, key = name.rpartition("__")
            (header[target] if target else header)[key] = value
        members["header.json"] = json.dumps(header).encode()

    return change


MUTATIONS = {
    "pickle payload": lambda m: m.update({"components.npy": npy(np.array([Exploit()], object), allow_pickle=True)}),
    "names that climb": lambda m: m.update({"../evil.npy": npy(np.ones(2))}),
    "absolute names": lambda m: m.update({"/etc/evil.npy": npy(np.ones(2))}),
    "no header": lambda m: m.pop("header.json"),
    "header not JSON": lambda m: m.update({"header.json": b"{"}),
    "header not an object": lambda m: m.update({"header.json": b"[1]"}),
    "header too large": lambda m: m.update({"header.json": b" " * 2**21}),
    "unknown version": change_header(version=99),
    "no version": change_header(version=None),
    "another class": change_header(**{"class": "os.system"}),
    "a class of another module": change_header(**{"class": "BaseEstimator"}),
    "the class of another model": change_header(**{"class": "LpICA"}),
    "no name of a class": change_header(**{"class": None}),
    "a list of classes": change_header(**{"class": ["LpICA"]}),
    "unknown parameter": change_header(params__evil=1),
    "parameter out of range": change_header(params__p=2.0),
    "exponent below zero": change_header(params__p=-1.0),
    "parameter of the wrong type": change_header(params__whiten="yes"),
    "exponents that are no numbers": change_header(params__p=["a"]),
    "no exponents": change_header(params__p=[]),
    "wrong number of atoms": change_header(fitted__n_components_=5),
    "number of atoms a string": change_header(fitted__n_components_="many"),
    "missing attribute": change_header(fitted={}),
    "infinite number of atoms": change_header(fitted__n_components_=float("inf")),
    "fractional number of atoms": change_header(fitted__n_components_=12.7),
    "objective a string": change_header(fitted__objective_="x"),
    "passes null": change_header(fitted__n_passes_=None),
    "converged a list": change_header(fitted__converged_=[1]),
    "status of two lines": change_header(fitted__status_="fine\nelldict: all is well"),
    "too few names": change_header(feature_names_in_=["a"]),
    "names a string": change_header(feature_names_in_="abcdefghijkl"),
    "array header cut": lambda m: m.update({"mean.npy": m["mean.npy"].replace(b"(12,)", b"(12, ")}),
    "infinite history": lambda m: m.update({"history.npy": npy(np.full((3, 7), np.inf))}),
    "missing array": lambda m: m.pop("mean.npy"),
    "wrong shape": lambda m: m.update({"mean.npy": npy(np.zeros(5))}),
    "not numbers": lambda m: m.update({"mean.npy": npy(np.array(["a"] * 12))}),
    "not finite": lambda m: m.update({"mean.npy": npy(np.full(12, np.nan))}),
    "history of the wrong width": lambda m: m.update({"history.npy": npy(np.zeros((3, 2)))}),
    "truncated array": lambda m: m.update({"mean.npy": m["mean.npy"][:-8]}),
    "array claiming a terabyte": lambda m: m.update(
        {"mean.npy": m["mean.npy"].replace(b"(12,)", b"(10**9,)".ljust(5))}
    ),
}


@pytest.mark.parametrize("name", MUTATIONS)
def test_fault_32_mutated_files_are_refused(name, saved, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = rewritten(saved, tmp_path, MUTATIONS[name])
    with pytest.raises(ModelFileError, match=str(path)):
        elldict.load(path)
    assert not (tmp_path / "exploited").exists()


def test_fault_32_every_truncation_and_bit_flip_is_refused_or_harmless(saved, model, tmp_path):
    content = saved.read_bytes()
    path = tmp_path / "damaged.npz"
    rng = np.random.default_rng(0)
    for length in rng.integers(0, len(content), 40):
        path.write_bytes(content[:length])
        with pytest.raises(ModelFileError):
            elldict.load(path)
    for position in rng.integers(0, len(content), 150):
        damaged = bytearray(content)
        damaged[position] ^= 1 << int(rng.integers(8))
        path.write_bytes(damaged)
        try:
            again = elldict.load(path)
        except ModelFileError:
            continue
        # a flip outside the content (a time stamp, say) changes nothing
        np.testing.assert_array_equal(again.components_, model.components_)
        assert again.get_params() == model.get_params()


def test_fault_32_a_pickle_and_other_files_are_refused(tmp_path):
    path = tmp_path / "model.npz"
    for content in (pickle.dumps(Exploit()), b"", b"PK\x03\x04", npy(np.ones(3))):
        path.write_bytes(content)
        with pytest.raises(ModelFileError, match="not a model file"):
            elldict.load(path)


def test_fault_32_a_zip_bomb_takes_no_memory(saved, tmp_path):
    bombs = {}
    compressed = tmp_path / "compressed.npz"
    with zipfile.ZipFile(saved) as source, zipfile.ZipFile(compressed, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("header.json", source.read("header.json"))
        with archive.open("components.npy", "w", force_zip64=True) as member:
            member.write(b"\x93NUMPY" + bytes(2**26))
    bombs[compressed] = "is compressed"
    lying = tmp_path / "lying.npz"
    content = bytearray(saved.read_bytes())
    entry = content.rindex(b"PK\x01\x02")  # the last entry of the directory: claim 2 GB, stored
    content[entry + 20 : entry + 28] = (2**31 - 1).to_bytes(4, "little") * 2
    lying.write_bytes(content)
    bombs[lying] = "claims"
    tracemalloc.start()
    for path, message in bombs.items():
        with pytest.raises(ModelFileError, match=message):
            elldict.load(path)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 50e6


def test_fault_25_killed_while_writing_leaves_the_old_file(saved):
    """A process that dies in the middle of save() leaves the old model, complete."""
    before = saved.read_bytes()
    script = f"""
import os, elldict
from elldict._old import persistence as model_file
model = elldict.load({str(saved)!r})
write_members = model_file._write_members
def die(stream, text, arrays):
    write_members(stream, text, arrays)
    stream.truncate(100)
    os._exit(9)
model_file._write_members = die
model.save({str(saved)!r})
"""
    done = subprocess.run([sys.executable, "-c", script], check=False, timeout=60)
    assert done.returncode == 9
    assert saved.read_bytes() == before
    elldict.load(saved)


def test_fault_27_a_full_disk_leaves_the_old_file(saved, model, monkeypatch):
    before = saved.read_bytes()

    def full(*args):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(model_file, "_write_members", full)
    with pytest.raises(OSError, match=r"No space left on device.*model\.npz"):
        model.save(saved)
    assert saved.read_bytes() == before
    assert list(saved.parent.iterdir()) == [saved]


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
def test_pipes_and_links_are_not_replaced_by_files(model, tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with pytest.raises(OSError, match="not a regular file"):
        model.save(pipe)
    assert stat.S_ISFIFO(pipe.stat().st_mode)
    target, link = tmp_path / "model.npz", tmp_path / "link.npz"
    target.write_bytes(b"old")
    link.symlink_to(target)
    model.save(link)
    assert link.is_symlink()
    elldict.load(target)


def test_a_missing_file_is_a_missing_file(tmp_path):
    with pytest.raises(FileNotFoundError):
        elldict.load(tmp_path / "nowhere.npz")


@pytest.mark.parametrize("p", [1, (3, 0.5)])
def test_exponents_below_2_come_back(easy, tmp_path, p):
    model = LpDictionaryLearning(p=p, refine=None, random_state=0).fit(easy[0])
    model.save(tmp_path / "model.npz")
    found = elldict.load(tmp_path / "model.npz")
    assert np.all(np.array(found.p) == np.array(p))
    assert found.objective_ == model.objective_
