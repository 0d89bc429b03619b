"""Checkpoints: a fit that was interrupted ends where it would have ended, and a checkpoint of another fit is refused.

Rows 24 to 27 of the catalogue of faults.
"""

import os
import struct
import subprocess
import sys
import tracemalloc
import warnings
import zlib
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import elldict
from elldict import LpDictionaryLearning, record_file
from elldict.datasets import make_bernoulli_gaussian
from elldict.exceptions import NoCheckpointWarning
from elldict.record_file import HEAD, MARK, Draft, RecordFile, RecordFileError
from elldict.samples.memory import MemorySamples
from elldict.solver import checkpoint as checkpoints
from elldict.solver.checkpoint import CheckpointError

ROADS = {
    "default": {},
    "power": {"solver": "power", "p": (4, 3)},
    "whitened": {"whiten": True, "center": True, "n_init": 2},
    "two atoms": {"n_components": 2, "solver": "power"},
    "corrupted": {"refine": "sparse-corruption"},
    "exact": {"refine": "bernoulli-gaussian", "solver": "power"},
}


@pytest.fixture(scope="module")
def X():  # noqa: N802
    X, _, _ = make_bernoulli_gaussian(6000, 10, density=0.3, noise_std=0.2, random_state=0)
    X.setflags(write=False)
    return X


@pytest.fixture
def path(tmp_path):
    return tmp_path / "fit.checkpoint"


def model_of(**options):
    return LpDictionaryLearning(**{"random_state": 0, **options})


def assert_same_fit(one, other):
    """Equal to the last bit in all but times."""
    assert vars(one).keys() == vars(other).keys()
    for name, value in vars(one).items():
        found = getattr(other, name)
        if name == "history_":
            assert [replace(row, seconds=0) for row in value] == [replace(row, seconds=0) for row in found]
        elif isinstance(value, np.ndarray):
            assert value.dtype == found.dtype
            np.testing.assert_array_equal(value, found)
        elif name == "_state":
            np.testing.assert_array_equal(value.stream.lp.A, found.stream.lp.A)
        elif name != "random_state":
            assert value == found, name


class Interruption:
    """A callback that presses Ctrl-C at a given iteration, and remembers what it was told."""

    def __init__(self, at=None):
        self.at, self.told = at, []

    def __call__(self, iteration):
        if len(self.told) + 1 == self.at:
            raise KeyboardInterrupt
        self.told.append((iteration.start, iteration.stage, iteration.iteration))


def interrupted(X, path, at, **options):
    """Begin a fit and interrupt it; what the callback was told before."""
    callback = Interruption(at)
    model = model_of(**options)
    with pytest.raises(KeyboardInterrupt):
        model.fit(X, checkpoint=path, callback=callback)
    assert not hasattr(model, "components_")
    return callback.told


@pytest.mark.parametrize("share", [0.0, 0.4, 0.99])
@pytest.mark.parametrize(
    ("road", "most_bytes"), [*((road, 2**26) for road in ROADS), ("power", 3000), ("two atoms", 1000), ("exact", 3000)]
)
def test_fault_26_resumed_fits_end_where_others_do(X, path, road, share, most_bytes, monkeypatch):
    monkeypatch.setattr(checkpoints, "MOST_BYTES", most_bytes)
    options = ROADS[road]
    undisturbed = model_of(**options).fit(X)
    n_all = len(undisturbed.history_)
    before = interrupted(X, path, 1 + int(share * (n_all - 1)), **options)
    after = Interruption()
    resumed = model_of(**options).fit(X, checkpoint=path, resume=True, callback=after)
    assert_same_fit(undisturbed, resumed)
    told = [(row.start, row.stage, row.iteration) for row in undisturbed.history_]
    assert before + after.told == told  # every iteration once


def test_arrays_of_other_libraries_resume_where_they_are(path):
    strict = pytest.importorskip("array_api_strict")
    X = strict.asarray(make_bernoulli_gaussian(2000, 6, density=0.3, noise_std=0.2, random_state=0)[0])
    undisturbed = model_of(solver="power").fit(X)
    interrupted(X, path, 9, solver="power")
    resumed = model_of(solver="power").fit(X, checkpoint=path, resume=True)
    assert type(resumed.components_) is type(X)
    assert bool(strict.all(resumed.components_ == undisturbed.components_))
    assert resumed.n_passes_ == undisturbed.n_passes_


def test_files_resume_too(X, path, tmp_path):
    """And are refused when they have changed."""
    file = tmp_path / "data.npy"
    np.save(file, X)
    interrupted(file, path, 4)
    before = path.read_bytes()
    assert_same_fit(model_of().fit(X), model_of().fit(file, checkpoint=path, resume=True))
    path.write_bytes(before)
    np.save(file, X[::-1])
    with pytest.raises(CheckpointError, match="it has samples '"):
        model_of().fit(file, checkpoint=path, resume=True)


def test_a_finished_fit_resumes_to_its_end_without_a_look(X, path, monkeypatch):
    first = model_of(solver="power").fit(X, checkpoint=path)
    monkeypatch.setattr(MemorySamples, "sum_over", None)
    assert_same_fit(first, model_of(solver="power").fit(X, checkpoint=path, resume=True))


def test_a_checkpoint_changes_nothing(X, path):
    assert_same_fit(model_of().fit(X), model_of().fit(X, checkpoint=path))


def test_fault_24_ctrl_c_in_a_look_leaves_a_checkpoint(X, path, monkeypatch):
    undisturbed, sum_over = model_of(solver="power").fit(X), MemorySamples.sum_over
    looks = iter(range(100))

    def impatient(samples, kernel):
        if next(looks) == 7:
            raise KeyboardInterrupt
        return sum_over(samples, kernel)

    with monkeypatch.context() as patch:
        patch.setattr(MemorySamples, "sum_over", impatient)
        with pytest.raises(KeyboardInterrupt):
            model_of(solver="power").fit(X, checkpoint=path)
    assert_same_fit(undisturbed, model_of(solver="power").fit(X, checkpoint=path, resume=True))
    assert next(looks) == 8


def test_what_the_callback_said_holds(X, path, monkeypatch):
    """Stopped by the callback, then killed in the last look: the resumed fit stops at the same iteration."""
    stopped = model_of(solver="power").fit(X, callback=lambda row: row.iteration == 5)
    model_of(solver="power").fit(X, checkpoint=path, callback=lambda row: row.iteration == 5)
    file = RecordFile.open(path)
    file.rewrite(file.records[:-1])
    file.close()
    resumed = model_of(solver="power").fit(X, checkpoint=path, resume=True, callback=lambda row: False)
    assert_same_fit(stopped, resumed)


@pytest.mark.parametrize(
    "make_state",
    [
        lambda: None,
        lambda: np.random.RandomState(3),
        lambda: np.random.default_rng(3),
        lambda: np.random.Generator(np.random.MT19937(3)),
        lambda: np.random.Generator(np.random.Philox(3)),
    ],
    ids=["None", "RandomState", "Generator", "Mersenne", "Philox"],
)
def test_random_numbers_go_on(X, path, make_state):
    """What was drawn before the interruption is not drawn anew."""
    state, other = make_state(), make_state()
    interrupted(X, path, 4, random_state=state, n_init=2)
    resumed = model_of(random_state=other, n_init=2).fit(X, checkpoint=path, resume=True)
    if state is None:
        again = model_of(random_state=None, n_init=2).fit(X, checkpoint=path, resume=True)
    else:
        again = model_of(random_state=make_state(), n_init=2).fit(X)
    assert_same_fit(again, resumed)


def test_another_bit_generator_is_refused(X, path):
    interrupted(X, path, 4, random_state=np.random.default_rng(0))
    with pytest.raises(CheckpointError, match="random numbers that this random_state cannot take up"):
        model_of(random_state=np.random.Generator(np.random.MT19937(0))).fit(X, checkpoint=path, resume=True)


def test_an_old_checkpoint_is_in_the_way(X, path):
    interrupted(X, path, 4)
    before = path.read_bytes()
    with pytest.raises(FileExistsError, match=r"resume=True.*delete it"):
        model_of().fit(X, checkpoint=path)
    assert path.read_bytes() == before


def test_nothing_to_resume_from_is_said(X, path, tmp_path):
    with pytest.raises(ValueError, match="resume=True needs checkpoint"):
        model_of().fit(X, resume=True)
    with pytest.raises(FileNotFoundError, match="no such folder"):
        model_of().fit(X, checkpoint=tmp_path / "nowhere" / "file", resume=True)
    with pytest.warns(NoCheckpointWarning, match="starts from the beginning") as caught:
        model = model_of().fit(X, checkpoint=path, resume=True)
    assert caught[0].filename == __file__
    assert_same_fit(model_of().fit(X), model)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"p": 4}, r"exponents \[3\.0\], not \[4\.0\]"),
        ({"refine": None}, "refine 'auto', not None"),
        ({"tol": 1e-5}, "tol 1e-06, not 1e-05"),
        ({"random_state": 1}, "random_state 0, not 1"),
        ({"random_state": None}, "random_state 0, not None"),
        ({"solver": "power", "n_init": 3}, "solver 'auto', not 'power'; n_init 1, not 3"),
    ],
)
def test_fault_26_other_parameters_are_named(X, path, options, words):
    interrupted(X, path, 4)
    before = path.read_bytes()
    with pytest.raises(CheckpointError, match=f"checkpoint of another fit: it has {words}"):
        model_of(**options).fit(X, checkpoint=path, resume=True)
    assert path.read_bytes() == before


def test_parameters_of_transform_may_differ(X, path):
    interrupted(X, path, 4)
    model_of(transform_algorithm="omp").fit(X, checkpoint=path, resume=True)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda X: X[:-1], "n_samples 6000, not 5999"),
        (lambda X: X[::-1], "samples '"),
        (lambda X: np.where(np.arange(X.size).reshape(X.shape) == 12345, X + 1e-9, X), "samples '"),
        (lambda X: X.astype("float32"), "dtype 'float64', not 'float32'"),
    ],
    ids=["shorter", "reversed", "one value", "float32"],
)
def test_fault_26_other_samples_are_refused(X, path, change, words):
    interrupted(X, path, 4)
    with pytest.raises(CheckpointError, match=f"it has {words}"):
        model_of().fit(change(X), checkpoint=path, resume=True)


def test_views_of_the_same_samples_are_the_same_samples(X):
    fingerprint = MemorySamples(X).fingerprint()
    assert MemorySamples(np.asfortranarray(X)).fingerprint() == fingerprint
    assert MemorySamples(np.repeat(X, 2, axis=0)[::2]).fingerprint() == fingerprint


def test_fault_26_another_version_is_refused(X, path, monkeypatch):
    interrupted(X, path, 4)
    monkeypatch.setattr(elldict, "__version__", "0.0.1")
    with pytest.raises(CheckpointError, match=r"it has version '.*', not '0\.0\.1'"):
        model_of().fit(X, checkpoint=path, resume=True)


def test_another_road_is_noticed(X, path, monkeypatch):
    """Rounding that differs, as on another processor, must not be patched together with what was."""
    interrupted(X, path, 6, solver="power")
    step = elldict.fitting.power_step
    monkeypatch.setattr(elldict.fitting, "power_step", lambda sums, A: np.nextafter(step(sums, A), 2))
    with pytest.raises(CheckpointError, match=r"Record \d+ of \d+ .* answers another question .* rounding differs"):
        model_of(solver="power").fit(X, checkpoint=path, resume=True)


def test_a_fit_that_learns_nothing_leaves_nothing(X, path):
    bad = np.where(np.arange(X.size).reshape(X.shape) == 77, np.nan, X)
    with pytest.raises(ValueError, match="holds NaN"):
        model_of().fit(bad, checkpoint=path)
    assert not path.exists()


def test_the_record_stays_small(path, monkeypatch):
    """A hundred iterations of the power method: the record of a stage gives way to its place."""
    X, _, _ = make_bernoulli_gaussian(2000, 16, density=0.3, noise_std=0.6, random_state=0)
    sizes = {}
    for most in (2**26, 20_000):
        monkeypatch.setattr(checkpoints, "MOST_BYTES", most)
        path.unlink(missing_ok=True)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model = model_of(solver="power", refine=None, tol=1e-12, max_iter=150).fit(X, checkpoint=path)
        sizes[most] = path.stat().st_size
    look = 16 * 16 * 8
    assert sizes[2**26] > model.n_iter_ * look
    assert sizes[20_000] < 20_000 + 6 * look + 60 * model.n_iter_


@pytest.mark.parametrize("moment", ["before", "after"])
def test_killed_while_the_record_is_made_small(X, path, moment, monkeypatch):
    monkeypatch.setattr(checkpoints, "MOST_BYTES", 3000)
    undisturbed, write = model_of(solver="power").fit(X), record_file.write_atomically
    n_rewritten = iter(range(100))

    def dying(path, content):
        number = next(n_rewritten)
        if number == 3 and moment == "before":
            raise KeyboardInterrupt
        write(path, content)
        if number == 3:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(record_file, "write_atomically", dying)
        with pytest.raises(KeyboardInterrupt):
            model_of(solver="power").fit(X, checkpoint=path)
    assert_same_fit(undisturbed, model_of(solver="power").fit(X, checkpoint=path, resume=True))


def test_rows_of_large_samples_are_recorded(path, monkeypatch):
    """Rows that are a small part of the samples are not read again; those of levels in memory are not recorded."""
    X, _, _ = make_bernoulli_gaussian(40_000, 8, density=0.3, noise_std=0.1, random_state=0)
    monkeypatch.setattr(checkpoints, "SMALL_PART", 4)
    monkeypatch.setattr("elldict.samples.growth.MOST_BYTES", 8000 * X[0].nbytes)
    first = model_of().fit(X, checkpoint=path)
    rows = MemorySamples.rows

    def only_of_levels(samples, index):
        assert samples.n_samples < len(X)
        return rows(samples, index)

    monkeypatch.setattr(MemorySamples, "rows", only_of_levels)
    assert_same_fit(first, model_of().fit(X, checkpoint=path, resume=True))


def test_fault_27_a_full_disk_leaves_what_was_there(X, path, monkeypatch):
    undisturbed = model_of(solver="power").fit(X)
    write, written = record_file._write, []

    def full(stream, data, offset):
        written.append(len(data))
        if len(written) == 9:
            write(stream, data[: len(data) // 2], offset)
            raise OSError(28, "No space left on device")
        write(stream, data, offset)

    with monkeypatch.context() as patch:
        patch.setattr(record_file, "_write", full)
        with pytest.raises(OSError, match=r"No space left on device.*fit\.checkpoint"):
            model_of(solver="power").fit(X, checkpoint=path)
    file = RecordFile.open(path)
    file.close()
    assert len(file.records) == 8
    assert_same_fit(undisturbed, model_of(solver="power").fit(X, checkpoint=path, resume=True))


def test_fault_27_a_folder_without_permission(X, tmp_path):
    folder = tmp_path / "locked"
    folder.mkdir()
    folder.chmod(0o500)
    if os.access(folder, os.W_OK):
        pytest.skip("this user may write anywhere")
    with pytest.raises(PermissionError):
        model_of().fit(X, checkpoint=folder / "file")


class TestRecordFile:
    """The file under it: complete records, or none."""

    @pytest.fixture
    def file(self, path):
        file = RecordFile.create(path, {"about": "a test"})
        for number in range(5):
            file.append({"number": number}, [np.arange(100.0) + number, np.eye(3, dtype="f4").T[:, :2]])
        file.close()
        return path

    def test_there_and_back(self, file):
        again = RecordFile.open(file)
        assert again.header == {"about": "a test"}
        assert [record.words["number"] for record in again.records] == list(range(5))
        one, two = again.arrays(again.records[3])
        np.testing.assert_array_equal(one, np.arange(100.0) + 3)
        np.testing.assert_array_equal(two, np.eye(3)[:, :2])
        again.close()

    @pytest.mark.parametrize("order", ["C", "F"])
    def test_arrays_keep_their_order_in_memory(self, path, order, rng):
        array = np.array(rng.standard_normal((4, 7)), order=order)
        file = RecordFile.create(path, {})
        (again,) = file.arrays(file.append({}, [array]))
        np.testing.assert_array_equal(again, array)
        assert again.flags[f"{order}_CONTIGUOUS"]
        file.close()

    def test_a_torn_end_is_dropped(self, file):
        whole = file.read_bytes()
        starts = [at for at in range(len(whole)) if whole.startswith(MARK, at)]
        for cut in [*range(starts[4], len(whole), 97), len(whole) - 1]:
            file.write_bytes(whole[:cut])
            again = RecordFile.open(file)
            assert len(again.records) == sum(start <= cut for start in starts[2:])
            again.append({"number": 9})
            again.close()
            again = RecordFile.open(file)
            assert again.records[-1].words["number"] == 9
            again.close()

    @pytest.mark.parametrize("synced", [True, False])
    def test_damage_is_refused_but_not_what_a_power_cut_leaves(self, path, synced):
        """A bad record that was on disk before a later one was written has changed since; otherwise it never was."""
        file = RecordFile.create(path, {})
        for number in range(5):
            file.append({"number": number}, [np.zeros(50)])
            if synced:
                file.sync()
        file.close()
        data = bytearray(path.read_bytes())
        data[file.records[2].offset + HEAD.size + 60] ^= 4
        path.write_bytes(data)
        if synced:
            with pytest.raises(RecordFileError, match=f"damaged at byte {file.records[2].offset} of"):
                RecordFile.open(path)
        else:
            again = RecordFile.open(path)
            assert len(again.records) == 2
            again.close()

    def test_every_flipped_bit_is_noticed(self, file, rng):
        """Of a file on disk, no mutation gives other contents: an error, or fewer records."""
        whole = file.read_bytes()
        good = RecordFile.open(file)
        contents = [(record.words, *map(np.ndarray.tobytes, good.arrays(record))) for record in good.records]
        good.close()
        for at in rng.integers(0, len(whole), 60):
            data = bytearray(whole)
            data[at] ^= 1 << int(rng.integers(8))
            file.write_bytes(data)
            try:
                again = RecordFile.open(file)
            except RecordFileError:
                continue
            found = [(record.words, *map(np.ndarray.tobytes, again.arrays(record))) for record in again.records]
            assert found == contents[: len(found)]
            assert len(found) < len(contents)
            again.close()

    def test_fault_32_claims_are_not_believed(self, path):

        file = RecordFile.create(path, {})
        file.close()
        words = b'[{"kind": "sums"}, [["<f8", [125000000000], "C"]]]'

        for length in (HEAD.size + len(words), 10**12):
            head = HEAD.pack(MARK, len(words), length, 0, zlib.crc32(words), 0)[:-4]
            path.write_bytes(
                path.read_bytes()[: file.path.stat().st_size] + head + struct.pack("<I", zlib.crc32(head)) + words
            )
            tracemalloc.start()
            again = RecordFile.open(path)
            assert again.records == []
            assert tracemalloc.get_traced_memory()[1] < 5e6
            tracemalloc.stop()
            again.close()

    def test_fewer_records(self, file):
        again = RecordFile.open(file)
        again.rewrite([again.records[0], Draft({"number": 5}, [np.ones(2)]), again.records[4]])
        again.append({"number": 7}, [np.ones(3)])
        np.testing.assert_array_equal(again.arrays(again.records[1])[0], np.ones(2))
        np.testing.assert_array_equal(again.arrays(again.records[2])[0], np.arange(100.0) + 4)
        again.close()
        again = RecordFile.open(file)
        assert [record.words["number"] for record in again.records] == [0, 5, 4, 7]
        again.close()


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04", b"elldict records 1\n", b"elldict records 1\nxyz" * 40])
def test_other_files_are_no_checkpoints(X, path, content):
    path.write_bytes(content)
    with pytest.raises(CheckpointError, match="is not a checkpoint, or is damaged"):
        model_of().fit(X, checkpoint=path, resume=True)
    assert path.read_bytes() == content


def test_a_header_without_sense_is_refused(X, path):
    RecordFile.create(path, {"about": []}).close()
    with pytest.raises(CheckpointError, match="is not a checkpoint"):
        model_of().fit(X, checkpoint=path, resume=True)


def test_records_without_sense_are_refused(X, path):
    interrupted(X, path, 1, solver="power")
    file = RecordFile.open(path)
    words, arrays = dict(file.records[0].words), file.arrays(file.records[0])
    file.rewrite([])
    file.append({**words, "fields": {"surprise": 1}}, arrays)
    file.close()
    with pytest.raises(CheckpointError, match="holds a record that is no answer"):
        model_of(solver="power").fit(X, checkpoint=path, resume=True)


@pytest.mark.skipif(sys.platform == "win32", reason="kill -9 is a matter of POSIX")
def test_killed_and_resumed_gives_the_same_answer():
    script = [sys.executable, "benchmarks/kill_and_resume_fit.py", "--small", "--kills", "2"]
    root = Path(__file__).parents[1]
    done = subprocess.run(
        [*script, "--kinds", "power", "default"], cwd=root, check=False, capture_output=True, text=True, timeout=600
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "2 of 2 answers are the same to the last bit" in done.stdout
