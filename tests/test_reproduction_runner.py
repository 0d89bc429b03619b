"""The runner: it stores, resumes, stops in time, and no cell can stop it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import pytest

pytest.importorskip("matplotlib")

from experiments import peers
from experiments.harness import pool
from experiments.harness.store import DONE, FAILED, Record, Store
from experiments.reproduction import runner, tasks
from experiments.reproduction.cells import make_cell
from experiments.reproduction.estimates import Estimator, prior_seconds
from experiments.reproduction.results import Results

pytestmark = pytest.mark.slow  # processes that are started, killed and waited for

ROOT = Path(__file__).parents[1]
TINY = {"n_features": 4, "n_samples": 300, "density": 0.3}
POPULATION = {"n_features": 4, "p": 4, "density": 0.1, "constraint": "sphere", "floor": 1e-9, "max_iter": 50}
SLOW = {"n_features": 60, "n_samples": 60_000, "density": 0.3}


def tiny(n=3, **more):
    return [make_cell("recovery", "lp", TINY | more, seed, {"p": 3}) for seed in range(n)]


def slow(seed=0):
    return make_cell("recovery", "lp", SLOW, seed, {"p": 3, "tol": 1e-15, "max_iter": 100_000})


@pytest.fixture
def store(tmp_path):
    return Store(tmp_path / "results.jsonl")


def test_results_are_stored_and_not_computed_twice(store):
    cells = [*tiny(2), make_cell("population", "power", POPULATION, 0)]
    first = runner.run([*cells, *cells], store)
    assert (first.n_cells, len(first.done), first.n_stored_before) == (3, 3, 0)
    before = store.path.read_bytes()
    second = runner.run([*cells, *tiny(3)], Store(store.path))
    assert (second.n_cells, len(second.done), second.n_stored_before) == (4, 1, 3)
    assert set(before.splitlines()) < set(store.path.read_bytes().splitlines())


def test_a_worker_computes_what_this_process_computes(store):
    (cell,) = tiny(1)
    runner.run([cell], store)
    here, _ = tasks.run_cell(cell, {})
    there = store.get(cell).values
    assert there["error"] == pytest.approx(here["error"], rel=1e-9)
    assert (there["n_iter"], there["warnings"]) == (here["n_iter"], here["warnings"])
    assert store.get(cell).made["fit_seconds"] > 0


def test_jobs_do_not_change_results(store, tmp_path):
    other = Store(tmp_path / "other.jsonl")
    cells = [*tiny(4), make_cell("population", "power", POPULATION, 0)]
    runner.run(cells, store, jobs=1)
    runner.run(cells, other, jobs=2)
    assert [r.values for r in store.records.values()] == [other.records[key].values for key in store.records]


def test_a_failed_cell_is_stored_and_does_not_stop_the_rest(store):
    bad = make_cell("recovery", "lp", TINY | {"density": 7.0}, 0, {"p": 3})
    outcome = runner.run([bad, *tiny(2)], store)
    assert (outcome.failed, len(outcome.done)) == ([bad], 2)
    assert store.get(bad).status == FAILED
    assert store.get(bad).reason.startswith("ValueError: density=7.0: expected a probability")
    again = runner.run([bad], Store(store.path))
    assert (again.n_stored_before, again.failed) == (1, [])
    tried = runner.run([bad], Store(store.path), retry_failed=True)
    assert tried.failed == [bad]
    summary = Results(Store(store.path)).summary([bad])
    assert (summary.mean, summary.failure[:10]) == (None, "ValueError")


def test_a_cell_that_takes_its_process_with_it_has_failed():
    worker = pool.Worker(partial(runner.attempt, files={}, device=None))
    try:
        worker.give(slow())
        os.kill(worker.process.pid, signal.SIGKILL)
        lost = worker.take()
    finally:
        worker.kill()
    assert lost.reason == "the process was ended by SIGKILL (out of memory?)"
    assert not worker.alive


def test_a_job_past_its_time_is_ended_and_the_next_one_begun():
    jobs = [60.0, 0.0]
    with pool.Pool(time.sleep, limit=4.0) as workers:
        found = list(workers.results(lambda: jobs.pop(0) if jobs else None))
    assert found == [(60.0, pool.Lost("over 4 s", 4.0)), (0.0, None)]


def test_a_crash_is_followed_by_a_new_process(store, monkeypatch):
    """The first worker is shot while it works; the rest is done by another."""
    made = []

    class Doomed(pool.Worker):
        def give(self, cell):
            super().give(cell)
            if not made:
                os.kill(self.process.pid, signal.SIGKILL)
            made.append(self)

    monkeypatch.setattr(pool, "Worker", Doomed)
    outcome = runner.run(tiny(3), store)
    assert (len(outcome.failed), len(outcome.done)) == (1, 2)
    assert store.get(outcome.failed[0]).reason == "the process was ended by SIGKILL (out of memory?)"
    assert len({id(worker) for worker in made}) == 2


def test_a_budget_ends_the_run_and_says_what_was_not_run(store):
    began = time.monotonic()
    outcome = runner.run([slow(0), *tiny(2), slow(1)], store, budget=10.0)
    assert time.monotonic() - began < 20
    assert len(outcome.done) == 2
    assert {cell.seed for cell in outcome.not_run} == {0, 1}
    assert not outcome.interrupted
    assert len(Store(store.path).records) == 2, "what was given up left nothing behind"


def test_no_budget_means_nothing_is_started(store, monkeypatch):
    monkeypatch.setattr(pool, "Worker", None)  # would raise
    outcome = runner.run(tiny(2), store, budget=0.0)
    assert (outcome.done, len(outcome.not_run)) == ([], 2)


def test_what_cannot_be_finished_in_time_is_not_started(store, monkeypatch):
    given = []

    class Watched(pool.Worker):
        def give(self, cell):
            given.append(cell)
            super().give(cell)

    monkeypatch.setattr(pool, "Worker", Watched)
    long = make_cell("recovery", "fastica", {"n_features": 2000, "n_samples": 10**7, "density": 0.3}, 0)
    outcome = runner.run([long, *tiny(1)], store, budget=60.0)
    assert (outcome.not_run, given) == ([long], tiny(1))


def test_first_trials_come_before_second_ones_of_equal_cost():
    cheap, dear = (make_cell("recovery", "lp", TINY | {"n_samples": r}, 0, {"p": 3}) for r in (10**6, 15 * 10**5))
    second = make_cell("recovery", "lp", TINY | {"n_samples": 10**6}, 1, {"p": 3})
    assert sorted([second, dear, cheap], key=runner._rank) == [cheap, dear, second]


def test_a_missing_package_is_named_and_nothing_is_stored_for_it(store, monkeypatch):
    monkeypatch.setattr(peers.Picard, "module", "no_such_module")
    cells = [make_cell("recovery", "picard", TINY, 0)]
    outcome = runner.run([*cells, *tiny(1)], store)
    assert (outcome.missing, len(outcome.done), len(store.records)) == ({"python-picard": cells}, 1, 1)
    assert Results(store).summary(cells).missing == "python-picard"


def test_progress_counts_up_to_all(store, monkeypatch):
    monkeypatch.setattr(runner, "TELL_SECONDS", 0.0)
    told = []
    runner.run(tiny(3), store, tell=told.append)
    assert told
    assert all(progress.n_cells == 3 for progress in told)
    assert [progress.n_done for progress in told] == sorted(progress.n_done for progress in told)
    assert all(progress.seconds_left >= 0 and len(progress.doing) == 1 for progress in told)


def test_estimates_learn_from_measurements():
    (cell,) = tiny(1)
    made = {"seconds": 10 * prior_seconds(cell), "fit_seconds": 1.0, "machine": "m"}
    estimator = Estimator([Record(cell.identity, DONE, {"error": 0.1}, "", made)])
    assert estimator.seconds(cell) == pytest.approx(10 * prior_seconds(cell))
    other = make_cell("recovery", "fastica", TINY, 0)
    assert estimator.seconds(other) == prior_seconds(other)
    estimator.learn(Record(cell.identity, DONE, {"error": 0.1}, "", {**made, "seconds": 1e-3, "card": "c"}))
    assert estimator.seconds(cell) == pytest.approx(10 * prior_seconds(cell))  # a card says nothing about cores
    estimator.learn(Record({**cell.identity, "method": "of long ago"}, DONE, {"error": 0.1}, "", made))
    assert estimator.seconds(cell) == pytest.approx(10 * prior_seconds(cell))
    larger = make_cell("recovery", "lp", TINY | {"n_features": 40, "n_samples": 10**6}, 0, {"p": 3})
    assert estimator.seconds(larger) > 100 * estimator.seconds(cell)


def command(*arguments):
    return [sys.executable, "-m", "experiments.reproduction", *arguments]


def test_ctrl_c_keeps_what_is_done_and_the_same_command_goes_on(tmp_path):
    arguments = ["few-samples", "--trials", "40", "--out", str(tmp_path)]
    run = subprocess.Popen(command(*arguments), stderr=subprocess.PIPE, start_new_session=True, cwd=ROOT)
    path = tmp_path / "results.jsonl"
    end = time.monotonic() + 60
    while not (path.exists() and path.read_bytes().count(b"\n") >= 3) and time.monotonic() < end:
        time.sleep(0.05)
    os.killpg(run.pid, signal.SIGINT)  # as a terminal does: runner and worker both get it
    _, err = run.communicate(timeout=30)
    assert run.returncode == 130
    assert err.decode().splitlines()[-1] == "elldict: interrupted."
    assert b"Traceback" not in err
    n_stored = len(Store(path).records)
    assert n_stored >= 3
    assert path.read_bytes().endswith(b"\n")
    subprocess.run(command(*arguments, "--budget", "0"), cwd=ROOT, check=True, timeout=120, stdout=subprocess.DEVNULL)
    assert len(Store(path).records) == n_stored
    assert (tmp_path / "report.html").exists()


@pytest.mark.skipif(sys.platform == "win32", reason="kill -9 is a matter of POSIX")
def test_killed_and_resumed_gives_the_same_results():
    script = [
        sys.executable,
        "-m",
        "experiments.campaign.kill_reproduction",
        "--kills",
        "2",
        "few-samples",
        "--trials",
        "3",
    ]
    result = subprocess.run(script, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)
    assert result.returncode == 0, result.stdout + result.stderr
    assert "results are the same" in result.stdout
