"""Promises of the README, each by one quick test that uses nothing but the public interface.

Other tests look at the same promises more closely; some of those are slow, others know how the package works inside.
"""

import hashlib
import pickle
import re
import signal
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
from threadpoolctl import threadpool_info, threadpool_limits

import elldict
from elldict import LpDictionaryLearning, LpICA
from elldict.datasets import make_bernoulli_gaussian

ESTIMATORS = {
    "dictionary": lambda: LpDictionaryLearning(random_state=0),
    "paper": lambda: LpDictionaryLearning(random_state=0, solver="power"),
    "ica": lambda: LpICA(random_state=0),
}


@pytest.fixture(scope="module")
def X():  # noqa: N802
    X, _, _ = make_bernoulli_gaussian(6000, 12, density=0.25, noise_std=0.2, random_state=0)
    X.setflags(write=False)
    return X


def run_python(*arguments, **options):
    """Run Python in a process of its own, until it ends."""
    return subprocess.run(
        [sys.executable, *arguments], check=False, capture_output=True, encoding="utf-8", timeout=120, **options
    )


def take_digest(array):
    return hashlib.sha256(np.ascontiguousarray(array)).hexdigest()


def take_answer(model):
    """Everything that a fit has found, without the time it took."""
    arrays = [take_digest(array) for array in (model.components_, model.atom_error_)]
    numbers = (model.objective_, model.expected_error_, model.n_iter_, model.n_passes_, model.status_)
    history = [replace(row, seconds=0.0) for row in model.history_]
    return arrays, repr((numbers, history))  # NaN, where there are no errors, is equal in text


# --- the same bits on any number of cores -----------------------------------------------------------------------------


@pytest.mark.parametrize("name", ESTIMATORS)
def test_fit_with_one_two_and_three_threads_gives_the_same_bits(name):
    """There may be more threads than cores: a machine with one core tests this too."""
    X, _, _ = make_bernoulli_gaussian(16_000, 40, density=0.2, noise_std=0.2, random_state=0)
    answers = {}
    for n_threads in (1, 2, 3):
        with threadpool_limits(n_threads):
            blas = [library["num_threads"] for library in threadpool_info() if library["user_api"] == "blas"]
            assert set(blas) == {n_threads}
            model = ESTIMATORS[name]().fit(X)
            answers[n_threads] = take_answer(model), take_digest(model.transform(X))
    assert answers[2] == answers[1]
    assert answers[3] == answers[1]


# --- killed and resumed, or not ---------------------------------------------------------------------------------------

FIT_UNTIL_KILLED = """
import os, signal, sys
import numpy as np
from elldict import LpDictionaryLearning, LpICA, checkpoint as checkpoints

checkpoints.SHARE_OF_TIME = np.inf  # of a fit of milliseconds nothing would be written before it ends
samples, checkpoint, name, last = sys.argv[1:]
model = {
    "dictionary": LpDictionaryLearning(random_state=0),
    "paper": LpDictionaryLearning(random_state=0, solver="power"),
    "ica": LpICA(random_state=0),
}[name]
calls = 0

def kill(iteration):
    global calls
    calls += 1
    if calls == int(last):
        os.kill(os.getpid(), signal.SIGKILL)

model.fit(np.load(samples), checkpoint=checkpoint, callback=kill)
"""


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="kill -9 is a matter of POSIX")
@pytest.mark.parametrize("name", ESTIMATORS)
def test_fit_killed_in_the_middle_and_resumed_gives_the_same_bits(name, X, tmp_path):
    samples, checkpoint = tmp_path / "samples.npy", tmp_path / "fit.checkpoint"
    np.save(samples, X)
    undisturbed = ESTIMATORS[name]().fit(X)
    last = len(undisturbed.history_) // 2
    killed = run_python("-c", FIT_UNTIL_KILLED, samples, checkpoint, name, str(last))
    assert killed.returncode == -signal.SIGKILL, killed.stderr

    told = []
    resumed = ESTIMATORS[name]().fit(X, checkpoint=checkpoint, resume=True, callback=told.append)
    assert take_answer(resumed) == take_answer(undisturbed)
    # it went on with the iteration in which it was killed, or with the next, rather than from the beginning
    assert len(undisturbed.history_) - last <= len(told) <= len(undisturbed.history_) - last + 1


# --- the demo ---------------------------------------------------------------------------------------------------------


def test_demo_in_an_empty_folder_writes_its_page(tmp_path):
    pytest.importorskip("matplotlib")
    pytest.importorskip("jinja2")
    demo = run_python("-m", "elldict", "demo", cwd=tmp_path)
    assert demo.returncode == 0, demo.stderr
    assert "elldict-demo.html" in demo.stdout
    assert [file.name for file in tmp_path.iterdir()] == ["elldict-demo.html"]
    page = (tmp_path / "elldict-demo.html").read_text(encoding="utf-8")
    assert page.lstrip().lower().startswith("<!doctype html>")
    assert page.rstrip().endswith("</html>")
    pictures = re.findall(r'<img[^>]*\ssrc="([^"]*)"', page)
    assert pictures
    assert all(picture.startswith("data:image/") for picture in pictures)  # needs no network


# --- models are files without pickle ----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ESTIMATORS)
def test_model_saved_and_loaded_where_pickle_is_forbidden_gives_the_same_codes(name, X, tmp_path, monkeypatch):
    model = ESTIMATORS[name]().fit(X)

    def refuse(*arguments, **options):
        raise AssertionError("pickle was used")

    with monkeypatch.context() as patch:
        for function in ("dump", "dumps", "load", "loads", "Pickler", "Unpickler"):
            patch.setattr(pickle, function, refuse)
        model.save(tmp_path / "model.npz")
        again = elldict.load(tmp_path / "model.npz")
    assert type(again) is type(model)
    assert again.get_params() == model.get_params()
    assert take_answer(again) == take_answer(model)
    np.testing.assert_array_equal(again.transform(X), model.transform(X))
