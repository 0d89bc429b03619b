"""Checkpoints: a fit that was interrupted ends where it would have ended, and a checkpoint of another fit is refused.

Rows 24 to 27 and 47 of the catalogue of faults.
"""

import os
import sqlite3
import subprocess
import sys
import tracemalloc
import warnings
from contextlib import closing
from dataclasses import asdict, is_dataclass, replace
from pathlib import Path

import numpy as np
import pytest

import elldict
from elldict import LpDictionaryLearning
from elldict._old import checkpoint as checkpoints
from elldict._old import record_file
from elldict._old.checkpoint import CheckpointError
from elldict._old.data.dataset import ArrayDataset
from elldict._old.record_file import RecordFile, RecordFileError
from elldict._old.solver.directions import PowerStep
from elldict.datasets import make_bernoulli_gaussian
from elldict.exceptions import NoCheckpointWarning

FITS = {
    "default": {},
    "power": {"solver": "power", "p": (4, 3)},
    "across 2": {"p": (3, 1), "refine": None},
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
            np.testing.assert_array_equal(value.estimate.A, found.estimate.A)
        elif is_dataclass(value):
            np.testing.assert_equal(asdict(value), asdict(found))
        elif name != "random_state":
            assert value == found, name


class Interruption:
    """A callback that presses Ctrl-C at a given iteration, and lists those before."""

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
    ("kind", "max_bytes"), [*((kind, 2**26) for kind in FITS), ("power", 3000), ("two atoms", 1000), ("exact", 3000)]
)
def test_fault_26_resumed_fits_end_where_others_do(X, path, kind, share, max_bytes, monkeypatch):
    monkeypatch.setattr(checkpoints, "MAX_PHASE_BYTES", max_bytes)
    options = FITS[kind]
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


def test_a_finished_fit_resumes_to_its_end_without_a_pass(X, path, monkeypatch):
    first = model_of(solver="power").fit(X, checkpoint=path)
    monkeypatch.setattr(ArrayDataset, "sum", None)
    assert_same_fit(first, model_of(solver="power").fit(X, checkpoint=path, resume=True))


def test_a_checkpoint_changes_nothing(X, path):
    assert_same_fit(model_of().fit(X), model_of().fit(X, checkpoint=path))


def test_fault_24_ctrl_c_in_a_pass_leaves_a_checkpoint(X, path, monkeypatch):
    undisturbed, sum = model_of(solver="power").fit(X), ArrayDataset.sum
    passes = iter(range(100))

    def impatient(samples, kernel):
        if next(passes) == 7:
            raise KeyboardInterrupt
        return sum(samples, kernel)

    with monkeypatch.context() as patch:
        patch.setattr(ArrayDataset, "sum", impatient)
        with pytest.raises(KeyboardInterrupt):
            model_of(solver="power").fit(X, checkpoint=path)
    assert_same_fit(undisturbed, model_of(solver="power").fit(X, checkpoint=path, resume=True))
    assert next(passes) == 8


def test_what_the_callback_said_holds(X, path, monkeypatch):
    """Stopped by the callback, then killed in the last pass: the resumed fit stops at the same iteration."""
    stopped = model_of(solver="power").fit(X, callback=lambda row: row.iteration == 5)
    model_of(solver="power").fit(X, checkpoint=path, callback=lambda row: row.iteration == 5)
    with closing(RecordFile.open(path)) as file:
        file.replace(len(file.records) - 1, [])
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
    fingerprint = ArrayDataset(X).fingerprint()
    assert ArrayDataset(np.asfortranarray(X)).fingerprint() == fingerprint
    assert ArrayDataset(np.repeat(X, 2, axis=0)[::2]).fingerprint() == fingerprint


def test_fault_26_another_version_is_refused(X, path, monkeypatch):
    interrupted(X, path, 4)
    monkeypatch.setattr(elldict, "__version__", "0.0.1")
    with pytest.raises(CheckpointError, match=r"it has version '.*', not '0\.0\.1'"):
        model_of().fit(X, checkpoint=path, resume=True)


def test_other_rounding_is_noticed(X, path, monkeypatch):
    """As on another processor: records of one must not be mixed with passes of the other."""
    interrupted(X, path, 6, solver="power")
    step = PowerStep.__call__
    monkeypatch.setattr(PowerStep, "__call__", lambda self, stats, A: np.nextafter(step(self, stats, A), 2))
    with pytest.raises(CheckpointError, match=r"Record \d+ of \d+ .* answers another question .* rounding differs"):
        model_of(solver="power").fit(X, checkpoint=path, resume=True)


def test_a_fit_that_learns_nothing_leaves_nothing(X, path):
    bad = np.where(np.arange(X.size).reshape(X.shape) == 77, np.nan, X)
    with pytest.raises(ValueError, match="holds NaN"):
        model_of().fit(bad, checkpoint=path)
    assert not path.exists()


def test_the_file_stays_small(path, monkeypatch):
    """A hundred iterations of the power method: the passes of a phase give way to its position."""
    X, _, _ = make_bernoulli_gaussian(2000, 16, density=0.3, noise_std=0.6, random_state=0)
    sizes = {}
    for most in (2**26, 20_000):
        monkeypatch.setattr(checkpoints, "MAX_PHASE_BYTES", most)
        path.unlink(missing_ok=True)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model = model_of(solver="power", refine=None, tol=1e-12, max_iter=150).fit(X, checkpoint=path)
        sizes[most] = path.stat().st_size
    result = 16 * 16 * 8
    assert sizes[2**26] > model.n_iter_ * result
    page = 4096  # holds one result and not two
    assert sizes[20_000] < page * (20_000 / result + 6) + 60 * model.n_iter_


@pytest.mark.parametrize("moment", ["before", "after"])
def test_interrupted_while_the_file_is_made_small(X, path, moment, monkeypatch):
    """In the transaction that puts a position and a pass in the place of many passes, or right after it."""
    monkeypatch.setattr(checkpoints, "MAX_PHASE_BYTES", 3000)
    undisturbed, insert, put = model_of(solver="power").fit(X), record_file._insert, RecordFile.replace
    n_positions, before = 0, []

    def interrupt_insert(connection, draft, last):
        nonlocal n_positions
        n_positions += draft[0].get("kind") == "position"
        record = insert(connection, draft, last)
        if moment == "before" and n_positions == 3:
            raise KeyboardInterrupt
        return record

    def interrupt_replace(file, first, drafts):
        before[:] = [record.words["kind"] for record in file.records]
        put(file, first, drafts)
        if n_positions == 3:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(record_file, "_insert", interrupt_insert)
        patch.setattr(RecordFile, "replace", interrupt_replace)
        with pytest.raises(KeyboardInterrupt):
            model_of(solver="power").fit(X, checkpoint=path)
    with closing(RecordFile.open(path)) as file:
        kinds = [record.words["kind"] for record in file.records]
    assert kinds == before if moment == "before" else kinds[-2:] == ["position", "pass"]
    assert_same_fit(undisturbed, model_of(solver="power").fit(X, checkpoint=path, resume=True))


def test_rows_of_large_samples_are_recorded(path, monkeypatch):
    """Rows that are a small part of the samples are not read again; those of levels in memory are not recorded."""
    X, _, _ = make_bernoulli_gaussian(40_000, 8, density=0.3, noise_std=0.1, random_state=0)
    monkeypatch.setattr(checkpoints, "MIN_SAMPLES_PER_ROW", 4)
    monkeypatch.setattr("elldict._old.data.subsample.MAX_BYTES", 8000 * X[0].nbytes)
    first = model_of(halves=False).fit(X, checkpoint=path)
    rows = ArrayDataset.take

    def only_of_levels(samples, index):
        assert samples.n_samples < len(X)
        return rows(samples, index)

    monkeypatch.setattr(ArrayDataset, "take", only_of_levels)
    assert_same_fit(first, model_of(halves=False).fit(X, checkpoint=path, resume=True))


def test_fault_27_a_full_disk_leaves_what_was_there(X, path, monkeypatch):
    """SQLite itself is told how many pages there are."""
    undisturbed = model_of(solver="power").fit(X)
    with monkeypatch.context() as patch:
        patch.setattr(record_file, "WRITING", (*record_file.WRITING, "max_page_count = 7"))
        with pytest.raises(OSError, match=r"No space left on device.*fit\.checkpoint"):
            model_of(solver="power").fit(X, checkpoint=path)
    with closing(RecordFile.open(path)) as file:
        assert len(file.records) > 8
    assert list(path.parent.iterdir()) == [path]
    assert_same_fit(undisturbed, model_of(solver="power").fit(X, checkpoint=path, resume=True))


@pytest.mark.skipif(sys.platform == "win32", reason="no limits on the size of files")
def test_fault_27_a_write_that_stops_halfway_leaves_what_was_there(path):
    """The system cuts a write short: what was committed before is there, and the file is named."""
    script = f"""
import resource, signal
import numpy as np
from elldict._old.record_file import RecordFile
file = RecordFile.create({str(path)!r}, {{}})
file.append({{"number": 0}}, [np.zeros(100)])
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
file.append({{"number": 1}}, [np.zeros(20_000)])
"""
    done = subprocess.run([sys.executable, "-c", script], check=False, capture_output=True, text=True, timeout=60)
    assert f"OSError: [Errno 5] Input/output error: '{path}'" in done.stderr
    with closing(RecordFile.open(path)) as file:
        assert [record.words["number"] for record in file.records] == [0]


def test_fault_27_a_folder_without_permission(X, tmp_path):
    folder = tmp_path / "locked"
    folder.mkdir()
    folder.chmod(0o500)
    if os.access(folder, os.W_OK):
        pytest.skip("this user may write anywhere")
    with pytest.raises(PermissionError, match="locked/file"):
        model_of().fit(X, checkpoint=folder / "file")


class TestRecordFile:
    """The file under it: complete records, or none."""

    @pytest.fixture
    def file(self, path):
        with closing(RecordFile.create(path, {"about": "a test"})) as file:
            for number in range(5):
                file.append({"number": number}, [np.arange(100.0) + number, np.eye(3, dtype="f4").T[:, :2]])
        return path

    @staticmethod
    def read(path):
        """Header, words and arrays."""
        with closing(RecordFile.open(path)) as file:
            arrays = [tuple(map(np.ndarray.tobytes, file.arrays(record))) for record in file.records]
            return file.header, [record.words for record in file.records], arrays

    def test_there_and_back(self, file):
        with closing(RecordFile.open(file)) as again:
            assert again.header == {"about": "a test"}
            assert [record.words["number"] for record in again.records] == list(range(5))
            one, two = again.arrays(again.records[3])
            np.testing.assert_array_equal(one, np.arange(100.0) + 3)
            np.testing.assert_array_equal(two, np.eye(3)[:, :2])

    @pytest.mark.parametrize("order", ["C", "F"])
    def test_arrays_keep_their_order_in_memory(self, path, order, rng):
        array = np.array(rng.standard_normal((4, 7)), order=order)
        with closing(RecordFile.create(path, {})) as file:
            (again,) = file.arrays(file.append({}, [array]))
        np.testing.assert_array_equal(again, array)
        assert again.flags[f"{order}_CONTIGUOUS"]
        assert again.flags.writeable

    def test_arrays_larger_than_a_row(self, path, rng, monkeypatch):
        monkeypatch.setattr(record_file, "PART_BYTES", 1000)
        large, small = rng.standard_normal((40, 30)), np.arange(3)
        with closing(RecordFile.create(path, {})) as file:
            file.append({"number": 0}, [large, small])
            file.append({"number": 1}, [small])
            file.append({"number": 2}, [large.T])
            file.replace(2, [({"number": 3}, [large])])
        _, words, arrays = self.read(path)
        assert words == [{"number": 0}, {"number": 1}, {"number": 3}]
        assert arrays == [(large.tobytes(), small.tobytes()), (small.tobytes(),), (large.tobytes(),)]

    @pytest.mark.skipif(sys.platform == "win32", reason="an open file cannot be copied")
    def test_fault_25_at_every_moment_the_file_is_complete(self, path, tmp_path, monkeypatch):
        """Copies of file and log before each statement, as a kill would leave them, hold the records of before."""
        copies = []

        def copy(statement):
            name = tmp_path / f"copy {len(copies)}"
            name.write_bytes(path.read_bytes())
            Path(f"{name}-wal").write_bytes(Path(f"{path}-wal").read_bytes())
            copies.append(name)

        def numbers(path):
            return [words["number"] for words in self.read(path)[1]]

        monkeypatch.setattr(record_file, "SYNC_SECONDS", 0.0)
        with closing(RecordFile.create(path, {})) as file:
            file._connection.set_trace_callback(copy)
            for number in range(4):
                file.append({"number": number}, [np.arange(2000.0)])
                assert len(copies) >= 4  # begin, delete, insert, checksum, commit; move to the file
                found = [numbers(name) for name in copies]
                n_old = found.count(list(range(number)))
                assert 4 <= n_old < len(found)
                assert found[n_old:] == [list(range(number + 1))] * (len(found) - n_old)
                copies.clear()
            file.replace(1, [({"number": -1}, [np.arange(3000.0)])])
            found = [numbers(name) for name in copies]
            assert {tuple(one) for one in found} == {(0, 1, 2, 3), (0, -1)}

    def test_a_normal_end_leaves_one_file(self, file):
        assert list(file.parent.iterdir()) == [file]

    def test_what_a_deleted_file_left_behind_is_not_applied_to_a_new_one(self, path):
        file = RecordFile.create(path, {"fit": 1})
        file.append({"number": 1}, [np.zeros(3000)])
        log = Path(f"{path}-wal")
        left_by_a_kill = log.read_bytes()
        file.close()
        path.unlink()
        assert len(left_by_a_kill) > 3000 * 8
        log.write_bytes(left_by_a_kill)
        RecordFile.create(path, {"fit": 2}).close()
        assert self.read(path) == ({"fit": 2}, [], [])

    def test_fault_47_every_flipped_bit_is_noticed_or_harmless(self, file, rng):
        """Harmless: in bytes that SQLite does not use. Everything else is an error, never fewer or other records."""
        with closing(RecordFile.open(file)) as again:
            again.append({"number": 5}, [rng.standard_normal(3000)])
            again.replace(3, [({"number": 6}, [rng.standard_normal(10)])])  # leaves free pages
        whole, contents, n_refused = file.read_bytes(), self.read(file), 0
        positions = [*range(0, 108), *rng.integers(0, len(whole), 400)]
        for at in positions:
            data = bytearray(whole)
            data[at] ^= 1 << int(rng.integers(8))
            file.write_bytes(data)
            try:
                found = self.read(file)
            except RecordFileError:
                n_refused += 1
            else:
                assert found == contents, at
        assert n_refused > 50

    def test_fault_47_lost_rows_are_noticed(self, file):
        for number in range(6):
            before = file.read_bytes()
            with closing(sqlite3.connect(file)) as database, database:
                database.execute("DELETE FROM part WHERE number = ?", (number,))
            with pytest.raises(RecordFileError, match="changed or lost"):
                RecordFile.open(file)
            file.write_bytes(before)

    def test_pages_that_are_free_and_in_use_are_noticed(self, file):
        """The next record would overwrite them."""
        with closing(RecordFile.open(file)) as again:
            again.append({"number": 5}, [np.zeros(3000)])
            again.replace(5, [])
        data = bytearray(file.read_bytes())
        assert int.from_bytes(data[36:40], "big") > 3  # pages that the last record has left free
        data[32:36] = (2).to_bytes(4, "big")  # the first of them, now the root of the table
        file.write_bytes(data)
        with pytest.raises(RecordFileError, match="damaged"):
            RecordFile.open(file)

    def test_truncated_files_are_refused(self, file, rng):
        whole = file.read_bytes()
        for length in rng.integers(0, len(whole), 30):
            file.write_bytes(whole[:length])
            with pytest.raises(RecordFileError):
                RecordFile.open(file)

    def test_fewer_records(self, file):
        with closing(RecordFile.open(file)) as again:
            again.replace(1, [({"number": 5}, [np.ones(2)]), (again.records[4].words, again.arrays(again.records[4]))])
            again.append({"number": 7}, [np.ones(3)])
            np.testing.assert_array_equal(again.arrays(again.records[1])[0], np.ones(2))
            np.testing.assert_array_equal(again.arrays(again.records[2])[0], np.arange(100.0) + 4)
        assert [words["number"] for words in self.read(file)[1]] == [0, 5, 4, 7]

    def test_two_at_once_are_refused(self, file):
        with (
            closing(RecordFile.open(file)),
            pytest.raises(OSError, match=r"Another process has it open.*fit\.checkpoint"),
        ):
            RecordFile.open(file)


def craft(path, words="{}", arrays=b"", statements=()):
    """Write a record file with a row and statements of one's own, and a checksum that is right."""
    with closing(RecordFile.create(path, {})) as file:
        checksum = file._header.checksum
    with closing(sqlite3.connect(path)) as database, database:
        database.execute("INSERT INTO part VALUES (1, ?, ?)", (words, arrays))
        if isinstance(words, str) and isinstance(arrays, bytes):
            checksum = record_file._add_to_checksum(checksum, 1, words, arrays)
            database.execute(f"PRAGMA user_version = {checksum - 2**31}")
        for statement in statements:
            database.execute(statement)


def npy_header(shape, dtype="<f8"):
    text = repr({"descr": dtype, "fortran_order": False, "shape": shape}).encode()
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text


@pytest.mark.parametrize(
    ("arrays", "words"),
    [
        (npy_header((125_000_000_000,)), "claims shape"),
        (npy_header((-1,)), "claims shape"),
        (npy_header((10**30, 0)), "cannot be read"),
        (npy_header((2,)) + bytes(20), "cannot be read"),
        (npy_header((2,), "|O") + bytes(16), "plain numbers"),
        (npy_header((2,)).replace(b"(2,)", b"(2, "), "cannot be read"),
        (b"pickle", "cannot be read"),
    ],
)
def test_fault_32_arrays_that_claim_too_much_are_refused(path, arrays, words):
    craft(path, arrays=arrays)
    tracemalloc.start()
    with closing(RecordFile.open(path)) as file, pytest.raises(RecordFileError, match=words):
        file.arrays(file.records[0])
    assert tracemalloc.get_traced_memory()[1] < 5e6
    tracemalloc.stop()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"words": "["}, "no JSON"),
        ({"words": "[1]"}, "expected an object"),
        ({"words": '{"a": ' + "[" * 100_000 + "]" * 100_000 + "}"}, "no JSON"),
        ({"words": b"{}"}, "other types"),
        ({"words": "{}", "arrays": "text"}, "other types"),
        ({"statements": ["CREATE VIEW v AS SELECT * FROM part"]}, "other tables"),
        ({"statements": ["CREATE TRIGGER t AFTER INSERT ON part BEGIN DELETE FROM part; END"]}, "other tables"),
        ({"statements": ["CREATE INDEX i ON part (words)"]}, "other tables"),
        ({"statements": ["DROP TABLE part"]}, "other tables"),
        ({"statements": ["ALTER TABLE part RENAME TO other"]}, "other tables"),
        ({"statements": ["PRAGMA application_id = 0"]}, "does not begin as"),
        ({"statements": ["DELETE FROM part"]}, "changed or lost"),
        ({"statements": [f"UPDATE part SET arrays = zeroblob({2**25})"]}, "too big"),
    ],
)
def test_fault_32_crafted_databases_are_refused(X, path, change, words):
    craft(path, **change)
    before = path.read_bytes()
    with pytest.raises(CheckpointError, match=rf"fit\.checkpoint is not a checkpoint, or is damaged: .*{words}"):
        model_of().fit(X, checkpoint=path, resume=True)
    assert path.read_bytes() == before
    assert list(path.parent.iterdir()) == [path]


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04", b"SQLite format 3\0", b"SQLite format 3\0xyz" * 40])
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
    with closing(RecordFile.open(path)) as file:
        words, arrays = dict(file.records[0].words), file.arrays(file.records[0])
    for change in ({"fields": {"surprise": 1}}, {"fields": []}, {"result": "system"}, {"fields": {"G": {"array": 99}}}):
        with closing(RecordFile.open(path)) as file:
            file.replace(0, [({**words, **change}, arrays)])
        with pytest.raises(CheckpointError, match="holds a record that no fit has written"):
            model_of(solver="power").fit(X, checkpoint=path, resume=True)


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="kill -9 is a matter of POSIX")
def test_killed_and_resumed_gives_the_same_answer():
    script = [sys.executable, "-m", "experiments.campaign.kill_fits", "--small", "--kills", "2"]
    root = Path(__file__).parents[2]
    done = subprocess.run(
        [*script, "--kinds", "power", "default"], cwd=root, check=False, capture_output=True, text=True, timeout=600
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "2 of 2 answers are the same to the last bit" in done.stdout
