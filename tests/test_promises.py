"""Promises of the README: the same bits on any number of cores, and a demo that needs nothing."""

import hashlib
import os
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

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


def take_digest(array):
    return hashlib.sha256(np.ascontiguousarray(array)).hexdigest()


def take_answer(model):
    """Everything that a fit has found, without the time it took."""
    arrays = [take_digest(array) for array in (model.components_, model.atom_error_)]
    numbers = (model.objective_, model.expected_error_, model.n_iter_, model.n_passes_, model.status_)
    history = [replace(row, seconds=0.0) for row in model.history_]
    return arrays, repr((numbers, history))  # NaN, where there are no errors, is equal in text


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


def test_demo_in_an_empty_folder_writes_its_page(tmp_path):
    pytest.importorskip("matplotlib")
    pytest.importorskip("jinja2")
    command = [sys.executable, "-m", "elldict", "demo"]
    environment = {**os.environ, "PYTHONPATH": str(Path(elldict.__file__).parents[1])}  # the package that is tested
    demo = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert demo.returncode == 0, demo.stderr
    assert "elldict-demo.html" in demo.stdout
    assert [file.name for file in tmp_path.iterdir()] == ["elldict-demo.html"]
    page = (tmp_path / "elldict-demo.html").read_text(encoding="utf-8")
    assert page.lstrip().lower().startswith("<!doctype html>")
    assert page.rstrip().endswith("</html>")
    pictures = re.findall(r'<img[^>]*\ssrc="([^"]*)"', page)
    assert pictures
    assert all(picture.startswith("data:image/") for picture in pictures)  # needs no network
