"""Checkpoints: interrupted and killed fits end with the same bits; other fits and damaged files are refused."""

import json
import pickle
import signal
import subprocess
import sys
import warnings
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import elldict
from elldict import LpDictionaryLearning, LpICA
from elldict import checkpoint as checkpoints
from elldict.archive import read_archive, write_archive
from elldict.atoms import Options
from elldict.checkpoint import Checkpoint, CheckpointError, Place, decode, encode, unpack
from elldict.datasets import make_bernoulli_gaussian
from elldict.exceptions import NoCheckpointWarning
from elldict.history import Recorder
from elldict.solver.climb import Reason, State
from elldict.solver.density import Density
from elldict.solver.objectives import SignedLp
from elldict.solver.steps import QuasiNewton, Trial
from tests.fits import assert_same, assert_same_fit

R, N = 300, 5
WEIGHTS = np.random.default_rng(1).integers(0, 3, R).astype(float)
FITS = {
    "default": (LpDictionaryLearning(), {}),
    "ica": (LpICA(), {"groups": np.arange(R) // 20}),
    "power": (LpDictionaryLearning(solver="power", random_state=3, error_bars=True), {}),
    "fewer atoms": (LpDictionaryLearning(n_components=3), {}),
    "weights": (LpDictionaryLearning(whiten=True), {"sample_weight": WEIGHTS}),
    "l_p only": (LpDictionaryLearning(refine=None), {}),
    "cross-validated": (LpICA(), {"few": True}),
}


@pytest.fixture(scope="module")
def X():  # noqa: N802
    X, _, _ = make_bernoulli_gaussian(R, N, density=0.3, noise_std=0.1, random_state=0)
    X.setflags(write=False)
    return X


@pytest.fixture
def path(tmp_path):
    return tmp_path / "fit.npz"


def fit(name, X, **changes):
    """Fit a new estimator of a kind."""
    estimator, options = FITS[name]
    options = dict(options)
    samples = X[:100] if options.pop("few", False) else X  # fewer than 32 per direction
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return type(estimator)(**estimator.get_params()).fit(samples, **{**options, **changes})


@pytest.fixture
def record(monkeypatch):
    """Return a function that fits, and lists the files that a kill at any moment would have left."""

    def fit_and_list(name, X, path):
        files = []
        write = Checkpoint.write

        def write_and_read(checkpoint):
            write(checkpoint)
            files.append(path.read_bytes())

        with monkeypatch.context() as patch:
            patch.setattr(checkpoints, "SHARE_OF_TIME", np.inf)  # writes after every iteration
            patch.setattr(Checkpoint, "write", write_and_read)
            model = fit(name, X, checkpoint=path)
        return model, files

    return fit_and_list


def load(path):
    """Load the header and the arrays of a file."""
    with path.open("rb") as stream:
        return read_archive(stream, lambda header: None)


def read(path, about):
    return checkpoints.read(path, about, unpack)


class Interrupt:
    """Callback that raises an error in one iteration."""

    def __init__(self, iteration, error=KeyboardInterrupt):
        self.iteration, self.error = iteration, error

    def __call__(self, iteration):
        if iteration.iteration == self.iteration:
            raise self.error


# --- the same bits ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", FITS)
def test_fit_killed_after_any_iteration_and_resumed_ends_with_the_same_bits(name, X, path, record):
    model, files = record(name, X, path)
    assert_same_fit(model, fit(name, X))
    assert len(files) > model.n_iter_
    for content in files[:: 1 if name == "default" else 3]:
        path.write_bytes(content)
        assert_same_fit(fit(name, X, checkpoint=path, resume=True), model)


def test_fit_interrupted_again_and_again_ends_with_the_same_bits(X, path):
    model, seen = fit("default", X), []

    def see_and_stop(iteration):
        seen.append(iteration.iteration)
        return Interrupt(end)(iteration)

    for end in range(2, model.n_iter_ + 3, 2):
        with pytest.raises(KeyboardInterrupt) if end <= model.n_iter_ else nullcontext():
            resumed = fit("default", X, checkpoint=path, resume=path.exists(), callback=see_and_stop)
    assert_same_fit(resumed, model)
    # the iteration that was interrupted is repeated, and no other one
    assert seen == sorted([*range(1, model.n_iter_ + 1), *range(2, model.n_iter_ + 1, 2)])
    seconds = [iteration.seconds for iteration in resumed.history_]
    assert seconds == sorted(seconds)


@pytest.mark.parametrize("random_state", [None, np.random.RandomState(0)])
def test_random_start_of_the_first_run_is_continued(random_state, X, path):
    model = LpDictionaryLearning(solver="power", max_iter=30, random_state=random_state)
    starts = []
    with pytest.raises(KeyboardInterrupt):
        model.fit(X, checkpoint=path, callback=lambda it: starts.append(it.components) or Interrupt(9)(it))
    seen = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.fit(X, checkpoint=path, resume=True, callback=lambda it: seen.append(it.components))
    np.testing.assert_array_equal(seen[0], starts[-1])


@pytest.mark.parametrize("most_bytes", [0, 1500, 6000, 20_000])
def test_fit_that_may_not_store_everything_ends_with_the_same_bits(most_bytes, X, path, record, monkeypatch):
    monkeypatch.setattr(checkpoints, "MOST_BYTES", most_bytes)
    monkeypatch.setattr(checkpoints, "MOST_PER_PAIR", 0)
    model, files = record("default", X, path)
    for content in files[::4]:
        path.write_bytes(content)
        assert_same_fit(fit("default", X, checkpoint=path, resume=True), model)
        _, arrays = load(path)
        assert sum(array.nbytes for name, array in arrays.items() if name != "history") <= most_bytes


KILLED = """
import os, signal, sys
from contextlib import contextmanager
import numpy as np
from elldict import LpDictionaryLearning, archive, checkpoint

samples, path, moment, number = *sys.argv[1:4], int(sys.argv[4])
checkpoint.SHARE_OF_TIME = np.inf
kill, open_atomic, n_written = lambda: os.kill(os.getpid(), signal.SIGKILL), archive.open_atomic, 0

@contextmanager
def open_and_kill(path):
    global n_written
    n_written += 1
    with open_atomic(path) as stream:
        yield stream
        if moment == "write" and n_written == number:
            stream.truncate(stream.tell() // 2)
            kill()

archive.open_atomic = open_and_kill
LpDictionaryLearning().fit(
    np.load(samples), checkpoint=path, callback=lambda it: moment == "iteration" and it.iteration == number and kill()
)
"""


@pytest.mark.parametrize(("moment", "number"), [("iteration", 1), ("write", 9), ("write", 40)])
def test_process_killed_and_resumed_ends_with_the_same_bits(moment, number, X, path):
    samples = path.with_name("samples.npy")
    np.save(samples, X)
    arguments = [sys.executable, "-c", KILLED, str(samples), str(path), moment, str(number)]
    assert subprocess.run(arguments, check=False).returncode == -signal.SIGKILL
    assert_same_fit(fit("default", X, checkpoint=path, resume=True), fit("default", X))


# --- callbacks --------------------------------------------------------------------------------------------------------


def test_callback_that_stops_the_fit_stops_the_resumed_one(X, path):
    def stop(iteration):
        return iteration.iteration == 4

    model = fit("default", X, callback=stop, checkpoint=path)
    assert model.n_iter_ == 4
    assert not model.converged_
    assert_same_fit(fit("default", X, callback=stop, checkpoint=path, resume=True), model)


def test_stopped_fit_continues_if_it_is_resumed_without_the_callback(X, path):
    fit("default", X, callback=lambda iteration: iteration.iteration == 4, checkpoint=path)
    assert_same_fit(fit("default", X, checkpoint=path, resume=True), fit("default", X))


@pytest.mark.parametrize("error", [KeyboardInterrupt, ValueError])
def test_interrupted_fit_leaves_the_estimator_as_it_was_and_writes_the_checkpoint(error, X, path):
    model = LpDictionaryLearning().fit(X)
    before = dict(vars(model))
    with pytest.raises(error):
        model.fit(X[:200], checkpoint=path, callback=Interrupt(7, error))
    assert vars(model) == before
    entries = load(path)[0]["entries"]
    assert max(n_iterations for _, _, n_iterations, _ in entries) == 6


def test_checkpoint_without_content_is_removed_if_the_fit_fails(X, path):
    with pytest.raises(ValueError, match="NaN"):
        LpDictionaryLearning().fit(np.where(X[7, 2] == X, np.nan, X), checkpoint=path)
    assert not path.exists()


# --- when and where it is written -------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_writing_takes_a_small_share_of_the_time(X, path, monkeypatch):
    """Each write, of a second by this clock, is followed by at least 19 seconds without; an iteration takes one."""
    clock, written = [0.0], []

    def pass_time(*_):
        clock[0] += 1.0

    monkeypatch.setattr(checkpoints, "perf_counter", lambda: clock[0])
    monkeypatch.setattr(checkpoints, "write_archive", lambda *_: pass_time() or written.append(clock[0]))
    LpDictionaryLearning(solver="power", tol=0, max_iter=200).fit(X, checkpoint=path, callback=pass_time)
    assert 200 / 21 - 1 <= len(written) <= 200 / 20 + 2
    assert min(np.diff(written[:-1])) >= 1 / checkpoints.SHARE_OF_TIME


def test_checkpoint_that_cannot_be_written_at_an_interrupt_is_noted(X, path, monkeypatch):
    def fail(path, header, arrays):
        raise OSError(28, "No space left on device", str(path))

    def interrupt(iteration):
        if iteration.iteration == 3:
            monkeypatch.setattr(checkpoints, "write_archive", fail)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt) as raised:
        fit("default", X, checkpoint=path, callback=interrupt)
    assert "fit.npz" in raised.value.__notes__[0]


def test_checkpoint_in_a_missing_folder_is_an_error_before_the_fit(X, path):
    with pytest.raises(FileNotFoundError, match=r"fit\.npz"):
        fit("default", X, checkpoint=path.parent / "missing" / "fit.npz", callback=Interrupt(1))


@pytest.mark.parametrize(("n", "n_stored"), [(1024, 3), (4096, 2)])
def test_checkpoint_of_many_features_stays_below_300_megabytes(n, n_stored, path):
    """A finished climb and a part are two matrices; a running climb has 22 more, with the memory of its steps."""
    zeros = np.zeros((n, n))
    steps = QuasiNewton(Trial(zeros, 0.0, zeros, zeros), ((zeros, zeros, 1.0),) * 9)
    density = replace(Density.begin(n), tables=np.zeros((3, n, 160)), pooled=np.ones((1, 13)))  # 160 bins, 13 widths
    state = State(zeros, density, step=steps, blur=np.zeros(n))
    checkpoint = Checkpoint(path=path, about={"n_features": n}, recorder=Recorder(), finished_at=np.inf)
    for place, value in (
        ((0, 0), replace(state, step=QuasiNewton(), reason=Reason.SMALL_RISE)),
        ((0, 1), (zeros,)),
        ((0, 2, 0, 0), state),
    ):
        checkpoint._keep(Place(place), value)
    assert len(checkpoint.entries) == n_stored
    size = sum(array.nbytes for array in checkpoints.pack(checkpoint.entries)[1].values())
    assert size < 300e6 - 10e6  # the header and a history of 10^5 iterations take less than 10 MB


# --- what is refused --------------------------------------------------------------------------------------------------


def test_existing_checkpoint_is_refused_unless_the_fit_is_resumed(X, path):
    fit("default", X, checkpoint=path)
    content = path.read_bytes()
    with pytest.raises(FileExistsError, match="resume=True"):
        fit("default", X, checkpoint=path)
    assert path.read_bytes() == content


def test_fit_without_a_checkpoint_to_resume_from_starts_with_a_warning(X, path):
    with pytest.warns(NoCheckpointWarning, match="starts from the beginning") as warned:
        model = LpDictionaryLearning().fit(X, checkpoint=path, resume=True)
    assert warned[0].filename == __file__
    assert_same_fit(model, fit("default", X, checkpoint=path, resume=True))


@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        ({"resume": True}, ValueError, "checkpoint=PATH"),
        ({"resume": "yes", "checkpoint": "fit.npz"}, TypeError, "True or False"),
        ({"checkpoint": 3}, TypeError, "int"),
        ({"checkpoint": "/dev/null"}, OSError, "/dev/null"),
        ({"checkpoint": "/"}, OSError, "Not a regular file"),
    ],
)
def test_arguments_of_the_wrong_kind_are_refused(arguments, error, words, X):
    with pytest.raises(error, match=words):
        LpDictionaryLearning().fit(X, **arguments)


@pytest.mark.parametrize(
    ("parameters", "words"),
    [
        ({"max_iter": 7, "p": 4}, "p was 3.0 and is 4.0; max_iter was 1000 and is 7"),
        ({"random_state": 1}, "random_state was 0 and is 1"),
        ({"error_bars": False}, "error_bars was True and is False"),
    ],
)
def test_checkpoint_of_other_parameters_is_refused(parameters, words, X, path):
    LpDictionaryLearning(random_state=0).fit(X, checkpoint=path)
    content = path.read_bytes()
    with pytest.raises(CheckpointError, match=words) as raised:
        LpDictionaryLearning(**{"random_state": 0, **parameters}).fit(X, checkpoint=path, resume=True)
    assert len(str(raised.value)) < 300 + len(str(path))
    assert path.read_bytes() == content


def test_parameters_without_an_influence_may_differ(X, path):
    fit("default", X, checkpoint=path)
    model = LpDictionaryLearning(transform_algorithm="threshold", verbose=True)
    np.testing.assert_array_equal(model.fit(X, checkpoint=path, resume=True).components_, fit("default", X).components_)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda X: np.where(X[211, 3] == X, np.nextafter(X, 1), X), "X differs"),
        (lambda X: X[np.r_[1, 0, 2 : len(X)]], "X differs"),
        (lambda X: X[:299], "n_samples was 300 and is 299"),
        (lambda X: X[:, :4], "n_features was 5 and is 4"),
        (lambda X: X.astype(np.float32), "dtype was 'float64' and is 'float32'"),
    ],
)
def test_checkpoint_of_other_samples_is_refused(change, words, X, path):
    fit("default", X, checkpoint=path)
    with pytest.raises(CheckpointError, match=words):
        fit("default", change(X), checkpoint=path, resume=True)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"sample_weight": None}, "sample_weight differs"),
        ({"sample_weight": WEIGHTS[::-1]}, "sample_weight differs"),
        ({"sample_weight": WEIGHTS, "groups": np.arange(R) // 3}, "groups differs"),
    ],
)
def test_checkpoint_of_other_weights_or_groups_is_refused(options, words, X, path):
    fit("weights", X, checkpoint=path)
    with pytest.raises(CheckpointError, match=words):
        fit("weights", X, checkpoint=path, resume=True, **options)


def test_samples_and_groups_may_come_in_another_form(X, path):
    fit("ica", X, checkpoint=path)
    labels = [f"g{number // 20:02}" for number in range(R)]
    fit("ica", np.asfortranarray(X), groups=labels, checkpoint=path, resume=True)


def test_checkpoint_of_another_version_is_refused(X, path, monkeypatch):
    fit("default", X, checkpoint=path)
    monkeypatch.setattr(elldict, "__version__", "99.0")
    with pytest.raises(CheckpointError, match=r"version was '.*' and is '99.0'"):
        fit("default", X, checkpoint=path, resume=True)


# --- damaged files ----------------------------------------------------------------------------------------------------


@pytest.fixture
def small(X, path):
    """Write a small checkpoint; return its file and what it is about."""
    with pytest.raises(KeyboardInterrupt):
        LpDictionaryLearning(solver="power").fit(X, checkpoint=path, callback=Interrupt(3))
    return path, load(path)[0]["about"]


def test_cut_file_is_refused_and_a_flipped_bit_or_without_effect(small):
    path, about = small
    content, before = path.read_bytes(), read(path, about)
    n_refused = 0
    for place in range(0, len(content), 3):
        path.write_bytes(content[:place])
        with pytest.raises(CheckpointError, match="damaged"):
            read(path, about)
        changed = bytearray(content)
        changed[place] ^= 1 << place % 8
        path.write_bytes(changed)
        try:
            entries, history = read(path, about)
        except CheckpointError:
            n_refused += 1
        else:
            assert history == before[1]
            assert_same(list(entries.items()), list(before[0].items()))
    assert n_refused > len(content) / 3 / 2


class Payload:
    """Creates a file when it is unpickled."""

    def __reduce__(self):
        return Path.touch, (Path("executed"),)


def write_pickle(path):
    path.write_bytes(pickle.dumps(Payload()))


def change_tree(change):
    def write(path):
        header, arrays = load(path)
        header["entries"][0][3] = change(header["entries"][0][3])
        write_archive(path, header, arrays)

    return write


@pytest.mark.parametrize(
    "write",
    [
        write_pickle,
        lambda path: path.write_text("A,B\n1,2\n"),
        change_tree(lambda tree: {"Path": {"path": "executed"}}),
        change_tree(lambda tree: {"State": {**tree["State"], "other": 1}}),
        change_tree(lambda tree: {"array": "missing"}),
        change_tree(lambda tree: {}),
    ],
)
def test_file_that_no_fit_has_written_is_refused_and_not_executed(write, small, X, monkeypatch):
    path, _ = small
    monkeypatch.chdir(path.parent)
    write(path)
    with pytest.raises(CheckpointError, match="not a checkpoint, or is damaged"):
        LpDictionaryLearning(solver="power").fit(X, checkpoint=path, resume=True)
    assert not Path("executed").exists()


# --- values -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("order", ["C", "F"])
def test_encoded_values_are_decoded_to_the_last_bit(order, path):
    A = np.asarray(np.random.default_rng(0).standard_normal((4, 3)), order=order)
    pairs = ((A[::-1], A, 0.1),)
    state = State(A, SignedLp(3.3), 2, QuasiNewton(pairs=pairs), None, Reason.ROUNDING, 1 / 3, -np.inf)
    arrays = {}
    tree = json.loads(json.dumps(encode((state, np.float64(0.1), Density.begin(3)), arrays)))
    np.savez(path, **arrays)
    found, number, density = decode(tree, np.load(path, allow_pickle=False))
    assert_same((found, number, density), (state, 0.1, Density.begin(3)))
    assert found.A.flags.f_contiguous == A.flags.f_contiguous


def test_value_of_an_unknown_class_is_not_stored():
    with pytest.raises(TypeError, match="Options"):
        encode(Options(), {})
