"""What a hostile user tried: threads that overlap, crafted files, closed streams, signals, full disks.

The number in a name is the row of the catalogue of faults, as in test_faults.py.
"""

import errno
import io
import json
import math
import os
import signal
import subprocess
import sys
import threading
import tracemalloc
import zipfile
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning
from threadpoolctl import threadpool_info

import elldict
from elldict import LpDictionaryLearning
from elldict._old.atomic import atomic_folder
from elldict._old.backend import threads
from elldict._old.checkpoint import CheckpointError
from elldict._old.estimation import _canonical_basis
from elldict._old.persistence import ModelFileError
from elldict._old.record_file import RecordFile
from elldict.datasets import make_bernoulli_gaussian


def count_blas_threads():
    return [library["num_threads"] for library in threadpool_info() if library["user_api"] == "blas"]


def hold_in_turn(pool_size, end_order):
    """Let threads hold BLAS one after the other, and let go in this order; all of them live to the end."""
    let_go = [threading.Event() for _ in range(pool_size)]

    def hold(number, entered):
        with threads.one_blas_thread():
            entered.set()
            let_go[number].wait(10)

    with ThreadPoolExecutor(pool_size) as pool:
        held = []
        for number in range(pool_size):
            entered = threading.Event()
            held.append(pool.submit(hold, number, entered))
            assert entered.wait(10)
        assert set(count_blas_threads()) == {1}
        for number in end_order:
            let_go[number].set()
            held[number].result(10)
        return count_blas_threads()


@pytest.mark.parametrize("end_order", [(0, 1, 2), (2, 1, 0), (1, 2, 0)])
def test_fault_49_blas_threads_are_restored_whoever_ends_last(end_order):
    before = count_blas_threads()
    if max(before, default=1) == 1:
        pytest.skip("BLAS has one thread here")
    assert hold_in_turn(3, end_order) == before


class FakeBlas:
    """A library with one number of threads for the process."""

    num_threads = 4

    def set_num_threads(self, num_threads):
        self.num_threads = num_threads

    @classmethod
    def install(cls, monkeypatch):
        library = cls()
        monkeypatch.setattr(threads, "_list_blas", lambda: (library,))
        monkeypatch.setattr(threads, "_limit", threads._Limit())
        return library


class FakeOpenmpBlas(FakeBlas, threading.local):
    """A library with a number for each thread."""

    threading_layer = "openmp"


def test_fault_49_a_number_set_meanwhile_stays(monkeypatch):
    library = FakeBlas.install(monkeypatch)
    with threads.one_blas_thread():
        library.num_threads = 3
    assert library.num_threads == 3


def test_fault_49_where_every_thread_has_a_number_each_gets_its_own_back(monkeypatch):
    library = FakeOpenmpBlas.install(monkeypatch)
    second_holds, first_is_done = threading.Event(), threading.Event()

    def hold(tell, wait_for):
        with threads.one_blas_thread():
            tell.set()
            wait_for.wait(10)
            held = library.num_threads
        return held, library.num_threads

    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(hold, threading.Event(), second_holds)
        second = pool.submit(hold, second_holds, first_is_done)
        assert first.result(10) == (1, 4)
        first_is_done.set()
        assert second.result(10) == (1, 4)


def craft_model(path, arrays=None, **changes):
    """Change a model file so that its checksums are right: parameters and fitted numbers by name, and arrays."""
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    header = json.loads(members["header.json"])
    for name, value in changes.items():
        header["fitted" if name.endswith("_") or name.startswith("_") else "params"][name] = value
    members["header.json"] = json.dumps(header).encode()
    for name, array in (arrays or {}).items():
        stream = io.BytesIO()
        np.save(stream, array)
        members[f"{name}.npy"] = stream.getvalue()
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in members.items():
            archive.writestr(name, content)


def nest(depth):
    nested = []
    for _ in range(depth):
        nested = [nested]
    return nested


@pytest.fixture(scope="module")
def X():  # noqa: N802
    return make_bernoulli_gaussian(400, 6, density=0.3, random_state=0)[0]


@pytest.fixture
def model_path(X, tmp_path):
    path = tmp_path / "model.npz"
    LpDictionaryLearning(3, whiten=True, center=True, random_state=0, max_iter=20).fit(X).save(path)
    return path


@pytest.mark.parametrize(
    "change",
    [
        {"p": ["a"]},
        {"p": nest(900)},
        {"noise_std_": 1e308},
        {"_rest_std": 1e308},
        {"_rest_std": -1.0},
        {"corruption_rate_": 1e308},
        {"arrays": {"scale": np.full(3, 1e308)}},
        {"arrays": {"scale": np.array([1e308, 1, 1])}},
        {"arrays": {"mean": np.full(6, 1e308)}},
    ],
    ids=lambda change: str(change)[:40],
)
@pytest.mark.filterwarnings("ignore")
def test_fault_50_crafted_models_are_refused(model_path, change):
    craft_model(model_path, **change)
    with pytest.raises(ModelFileError, match=r"model\.npz"):
        elldict.load(model_path)


@pytest.mark.parametrize("depth", [2000, 200_000])
def test_fault_50_nested_headers_are_refused(model_path, depth):
    with zipfile.ZipFile(model_path, "w") as archive:
        archive.writestr("header.json", b'{"version": 1, "params": ' + b"[" * depth + b"]" * depth + b"}")
    with pytest.raises(ModelFileError, match=r"model\.npz"):
        elldict.load(model_path)


@pytest.mark.parametrize("scale", [1e-200, 1e160, 1e300])
@pytest.mark.parametrize("whiten", [False, True])
def test_fault_50_samples_of_extreme_size_have_a_score(X, scale, whiten):
    one, other = (
        LpDictionaryLearning(random_state=0, whiten=whiten, max_iter=50).fit(X * size) for size in (1.0, scale)
    )
    assert other.score(X * scale) == pytest.approx(one.score(X) - 6 * math.log(scale), rel=1e-6)


def refit(X, path, **options):
    options = {"random_state": 0, "solver": "power", "refine": None, "max_iter": 5, "tol": 1e-12, **options}
    return LpDictionaryLearning(**options).fit(X, checkpoint=path, resume=True)


def craft_checkpoint(path, number, change, change_array=None):
    """Change the words of a record, and its arrays, so that the checksum is right."""
    with closing(RecordFile.open(path)) as file:
        drafts = [(json.loads(json.dumps(record.words)), file.arrays(record)) for record in file.records]
        words, arrays = drafts[number]
        change(words)
        drafts[number] = (words, arrays if change_array is None else [change_array(array) for array in arrays])
        file.replace(0, drafts)


CRAFTED_RECORDS = {
    "weight a list": (0, lambda w: w["fields"].update(weight=["a"]), None),
    "weight of others": (0, lambda w: w["fields"].update(weight=10**18), None),
    "weight beyond floats": (0, lambda w: w["fields"].update(weight=10**400), None),
    "exponent beyond floats": (0, lambda w: w["fields"].update(exponent=1e308), None),
    "mean no array": (0, lambda w: w["fields"].update(mean=1e308), None),
    "nested words": (0, lambda w: w["fields"].update(mean=nest(900)), None),
    "arrays swapped": (0, lambda w: w["fields"].update(mean=w["fields"]["scatter"]), None),
    "no gradient": (1, lambda w: w["fields"].update(G=None), None),
    "numbers not finite": (1, lambda w: None, lambda array: array * np.nan),
    "numbers too large": (0, lambda w: None, lambda array: np.full_like(array, 1e308)),
    "another shape": (1, lambda w: None, lambda array: array[:-1]),
}


@pytest.mark.parametrize("name", CRAFTED_RECORDS)
@pytest.mark.filterwarnings("ignore")
def test_fault_50_crafted_checkpoints_are_refused(X, tmp_path, name):
    path = tmp_path / "fit.checkpoint"
    refit(X, path)
    craft_checkpoint(path, *CRAFTED_RECORDS[name])
    with pytest.raises(CheckpointError, match=r"fit\.checkpoint"):
        refit(X, path)


@pytest.mark.filterwarnings("ignore")
def test_fault_50_an_error_of_the_callback_is_not_blamed_on_the_checkpoint(X, tmp_path):
    path = tmp_path / "fit.checkpoint"

    def fail(iteration):
        raise KeyError("mine")

    model = LpDictionaryLearning(random_state=0, solver="power", refine=None)
    with pytest.raises(KeyError, match="mine"):
        model.fit(X, checkpoint=path, callback=fail)
    with pytest.raises(KeyError, match="mine"):
        model.fit(X, checkpoint=path, callback=fail, resume=True)


def run_command(folder, *arguments, before="", redirect="", **environment):
    """Run the command line in a process of its own, after some statements and with streams redirected."""
    script = folder / "command.py"
    script.write_text(f"{before}\nfrom elldict.cli import main\nmain()\n")
    paths = {"PYTHONPATH": str(Path(elldict.__file__).parents[1])}
    command = ["sh", "-c", f'exec "$@" {redirect}', "sh", sys.executable, str(script), *arguments]
    return subprocess.run(
        command, cwd=folder, env={**os.environ, **paths, **environment}, capture_output=True, check=False, timeout=60
    )


posix = pytest.mark.skipif(sys.platform == "win32", reason="shells and signals of POSIX")


@pytest.fixture
def folder(X, tmp_path):
    np.save(tmp_path / "x.npy", X)
    return tmp_path


@posix
@pytest.mark.parametrize("redirect", ["2>&-", ">&- 2>&- <&-"])
def test_fault_50_closed_streams_do_not_lose_the_model(folder, redirect):
    done = run_command(folder, "fit", "x.npy", "-o", "model.npz", redirect=redirect)
    assert done.returncode == 0
    assert elldict.load(folder / "model.npz").n_components_ == 6


@posix
@pytest.mark.parametrize("name", ["m\N{LATIN SMALL LETTER E WITH ACUTE}.npz", "\N{CJK UNIFIED IDEOGRAPH-65E5}.npz"])
def test_fault_50_names_that_the_terminal_cannot_show(folder, name):
    done = run_command(folder, "fit", "x.npy", "-o", name, PYTHONIOENCODING="ascii", PYTHONUTF8="1")
    assert (done.returncode, done.stderr) == (0, b"")
    assert name.encode("ascii", "backslashreplace") in done.stdout
    assert (folder / name).exists()


@posix
@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
def test_fault_50_a_full_standard_output_is_named(folder):
    done = run_command(folder, "fit", "x.npy", "-o", "model.npz", redirect=">/dev/full")
    assert (done.returncode, done.stderr) == (2, b"elldict: error: standard output: No space left on device.\n")
    assert (folder / "model.npz").exists()


def test_fault_50_a_full_disk_names_the_folder_of_an_array(tmp_path):
    def fill():
        with atomic_folder(tmp_path / "codes.zarr", lambda _: True) as unfinished:
            (unfinished / "0").write_bytes(b"half")
            raise OSError(errno.ENOSPC, "No space left on device", str(unfinished / "0"))

    with pytest.raises(OSError, match=r"No space left on device.*codes\.zarr"):
        fill()
    assert not any(tmp_path.iterdir())


@posix
@pytest.mark.parametrize(("name", "code"), [("SIGTERM", 143), ("SIGHUP", 129)])
def test_fault_50_a_signal_leaves_no_unfinished_file(folder, name, code):
    if signal.getsignal(getattr(signal, name)) == signal.SIG_IGN:
        pytest.skip(f"{name} is ignored here, as by nohup, and so by every process that starts")
    before = f"""
import os, signal, elldict._old.persistence
def end(stream, *_):
    stream.write(b"half")
    os.kill(os.getpid(), signal.{name})
elldict._old.persistence._write_members = end
"""
    done = run_command(folder, "fit", "x.npy", "-o", "model.npz", "--quiet", before=before)
    assert (done.returncode, done.stderr) == (code, b"")
    assert sorted(path.name for path in folder.iterdir()) == ["command.py", "x.npy"]


@posix
@pytest.mark.parametrize("module", ["numpy", "typer", "elldict._old.estimator", "sklearn.base"])
def test_fault_50_ctrl_c_during_imports_is_one_line(folder, module):
    before = f"""
import os, signal, sys
class Interrupt:
    def find_spec(self, name, path=None, target=None):
        if name == {module!r}:
            os.kill(os.getpid(), signal.SIGINT)
sys.meta_path.insert(0, Interrupt())
"""
    done = run_command(folder, "fit", "x.npy", "-o", "model.npz", before=before)
    assert (done.returncode, done.stdout, done.stderr) == (130, b"", b"elldict: interrupted.\n")


TENSORS = {
    "sparse_coo": lambda X: X.to_sparse(),
    "sparse_csr": lambda X: X.to_sparse_csr(),
    "float8": lambda X: X.to(__import__("torch").float8_e5m2),
    "meta": lambda X: X.to("meta"),
}


@pytest.mark.parametrize("kind", TENSORS)
@pytest.mark.parametrize("method", ["fit", "partial_fit", "transform", "score", "inverse_transform"])
@pytest.mark.filterwarnings("ignore")
def test_fault_50_tensors_without_numbers_are_named(X, kind, method):
    torch = pytest.importorskip("torch")
    dense = torch.asarray(X)
    model = LpDictionaryLearning(random_state=0, max_iter=5)
    if "fit" not in method:
        model.fit(dense)
    with pytest.raises((TypeError, ValueError), match=kind):
        getattr(model, method)(TENSORS[kind](dense))


@pytest.mark.filterwarnings("ignore")
def test_fault_50_what_did_not_converge_is_not_called_converged(rng):
    X = rng.laplace(size=(2000, 6))
    for n_iterations in range(1, 16):
        calls = iter(range(1, 1000))
        model = LpDictionaryLearning(random_state=0)
        model.fit(X, callback=lambda _, calls=calls, last=n_iterations: next(calls) >= last)
        assert model.converged_ == model.status_.startswith("converged"), model.status_


def test_fault_50_a_warning_does_not_contradict_itself(X):
    with pytest.warns(ConvergenceWarning, match=r"did not converge \((?!converged)"):
        LpDictionaryLearning(random_state=0, max_iter=1, tol=0.0, solver="power", refine=None).fit(X)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("whiten", [False, True])
def test_fault_45_few_samples_of_many_features_take_memory_for_both_not_their_product(rng, whiten):
    X = rng.laplace(size=(12, 400))
    LpDictionaryLearning(random_state=0, whiten=whiten).fit(X[:, :20])  # what is made once is not counted
    tracemalloc.start()
    model = LpDictionaryLearning(random_state=0, whiten=whiten).fit(X)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 12 * 8 * 400**2  # some matrices (n, n), less than one for each sample
    np.testing.assert_allclose(model.unmixing_ @ model.mixing_, np.eye(model.n_components_), atol=1e-6)


def test_fault_45_atoms_beyond_the_rank_are_those_of_gram_and_schmidt(rng):
    def orthogonalise_one_by_one(columns):
        rows = []
        for axis in columns @ columns.T:
            for row in rows * 2:
                axis = axis - row * (row @ axis)  # noqa: PLW2901
            length = float(np.linalg.norm(axis))
            if length > 1e-6 and len(rows) < columns.shape[1]:
                rows.append(axis / length)
        return np.array(rows)

    for given in (rng.standard_normal((12, 5)), np.eye(12)[:, 3:8], np.repeat(rng.standard_normal((6, 5)), 2, axis=0)):
        columns = np.linalg.qr(given)[0]
        np.testing.assert_allclose(_canonical_basis(columns), orthogonalise_one_by_one(columns), atol=1e-9)


def test_transposed_samples_are_refused_before_they_fill_the_memory():
    """A recording as its readers give it: channels as rows. Its covariance would take 7 GB."""
    X = np.broadcast_to(np.arange(32.0)[:, None], (32, 30_504))
    with pytest.raises(ValueError, match=r"32 samples of 30504 features, .* would take 7\.4 GB: .* Give X\.T"):
        elldict.LpDictionaryLearning().fit(X)
    with pytest.raises(ValueError, match=r"Give X\.T"):
        elldict.stability(elldict.LpICA(4), X)
