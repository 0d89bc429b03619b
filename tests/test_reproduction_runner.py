"""The runner: it stores, resumes and stops in time, and survives whatever happens to a cell."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytest.importorskip("matplotlib")

from experiments.harness.store import Store
from experiments.reproduction import runner, tasks
from experiments.reproduction.cells import make_cell
from experiments.reproduction.results import Results

pytestmark = pytest.mark.slow  # starts, kills and waits for processes

ROOT = Path(__file__).parents[1]
TINY = {"n_features": 4, "n_samples": 300, "density": 0.3}
POPULATION = {"n_features": 4, "p": 4, "density": 0.1, "constraint": "sphere", "floor": 1e-9, "max_iter": 50}


def make_tiny(n=3, **more):
    return [make_cell("recovery", "lp", TINY | more, seed, {"p": 3}) for seed in range(n)]


@pytest.fixture
def store(tmp_path):
    return Store(tmp_path / "results.jsonl")


def test_run_of_stored_cells_computes_only_the_others(store):
    cells = [*make_tiny(2), make_cell("population", "power", POPULATION, 0)]
    assert runner.run([*cells, *cells], store, jobs=2) == 3
    assert [store.get(cell).values for cell in cells] == [tasks.run_cell(cell, {})[0] for cell in cells]
    before = store.path.read_bytes()
    assert runner.run([*cells, *make_tiny(3)], Store(store.path)) == 1
    assert set(before.splitlines()) < set(store.path.read_bytes().splitlines())


def test_run_with_a_failing_cell_stores_the_reason_and_continues(store):
    bad = make_cell("recovery", "lp", TINY | {"density": 7.0}, 0, {"p": 3})
    assert runner.run([bad, *make_tiny(2)], store) == 3
    assert store.get(bad).reason.startswith("ValueError: density=7.0: expected a probability")
    assert runner.run([bad], Store(store.path)) == 0
    assert runner.run([bad], Store(store.path), retry_failed=True) == 1
    assert Results(store).summary([bad]).absence.startswith("failed: ValueError")


def start(out):
    script = [sys.executable, "-m", "experiments.reproduction", "few-samples", "--trials", "3", "--out", str(out)]
    return subprocess.Popen(script, stderr=subprocess.PIPE, start_new_session=True, cwd=ROOT)


@pytest.mark.parametrize("name", ["SIGINT", "SIGKILL"])
def test_command_interrupted_and_run_again_has_the_results_of_one_run(tmp_path, name):
    process, path = start(tmp_path / "interrupted"), tmp_path / "interrupted" / "results.jsonl"
    end = time.monotonic() + 60
    while not (path.exists() and path.read_bytes().count(b"\n") >= 3) and time.monotonic() < end:
        time.sleep(0.05)
    if name == "SIGINT":  # a terminal sends it to runner and workers
        os.killpg(process.pid, signal.SIGINT)
    else:
        process.kill()
    _, err = process.communicate(timeout=30)
    assert b"Traceback" not in err
    assert process.returncode == {"SIGINT": 130, "SIGKILL": -9}[name]
    assert len(Store(path).records) >= 3
    for out in ("interrupted", "complete"):
        start(tmp_path / out).communicate(timeout=120)
    interrupted, complete = (Store(tmp_path / out / "results.jsonl").records for out in ("interrupted", "complete"))
    assert list(interrupted) == list(complete)
    assert [record.values for record in interrupted.values()] == [record.values for record in complete.values()]
    assert (tmp_path / "interrupted" / "report.html").exists()
