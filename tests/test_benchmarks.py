"""The side-by-side benchmark runs: a tiny problem through the harness, its tables and its pictures."""

import importlib
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[1] / "benchmarks"
SOLVERS = sorted(path.stem for path in (FOLDER / "solvers").glob("*.py"))
FAMILIES = sorted(path.stem for path in (FOLDER / "problems").glob("*.py"))


@pytest.fixture(autouse=True)
def _benchmarks_importable(monkeypatch):
    """As when a script in the folder is run; the names are forgotten afterwards."""
    before = set(sys.modules)
    monkeypatch.syspath_prepend(str(FOLDER))
    yield
    for name in set(sys.modules) - before:
        if str(FOLDER) in str(getattr(sys.modules[name], "__file__", "")):
            del sys.modules[name]


@pytest.mark.parametrize("name", [name for name in SOLVERS if name not in ("__init__", "base", "ica_views")])
def test_solver_files(name):
    solvers = importlib.import_module("solvers")
    assert name in solvers.FILES
    found, missing = solvers.installed()
    if name.rstrip("_") in missing:
        pytest.skip(missing[name.rstrip("_")])
    solver = importlib.import_module(f"solvers.{name}").SOLVER
    assert found[solver.name] is solver


@pytest.mark.parametrize("name", [name for name in FAMILIES if name not in ("__init__", "base")])
def test_problem_files(name):
    family = importlib.import_module(f"problems.{name}")
    for problem in family.PROBLEMS:
        assert (problem.limit > 0) == (problem.noise_std > 0)
        assert problem.at_the_limit > problem.limit


@pytest.fixture
def stored(tmp_path):
    """A tiny problem that was run with elldict and FastICA: (problem, path of the results)."""
    run, solvers = importlib.import_module("run"), importlib.import_module("solvers")
    problem = importlib.import_module("problems.base").Problem("tiny", 8, 2000, seeds=2)
    found, _ = solvers.installed()
    chosen = {name: found[name] for name in ("elldict", "elldict power", "FastICA logcosh")}
    path = tmp_path / "bench.jsonl"
    run.Harness(run.Settings(path=path, threads=1), chosen).run([problem])
    run.Harness(run.Settings(path=path, threads=1), chosen).run([problem])  # nothing is left to be done
    return problem, path


def test_harness_stores_every_fit_once(stored):
    problem, path = stored
    lines = list(importlib.import_module("bench_store").lines(path))
    assert len(lines) == 2 * 3
    assert {line["solver"] for line in lines[:3]} == {"elldict", "elldict power", "FastICA logcosh"}
    assert lines[0]["solver"] != lines[3]["solver"]  # who begins changes
    for line in lines:
        assert line["problem"] == problem.name
        assert line["status"] == "done"
        assert line["wrong_atoms"] == 0
        times = [seconds for seconds, _ in line["curve"]]
        assert times == sorted(times)
        assert line["curve"][-1][1] == pytest.approx(line["error"], rel=1e-3)
        assert line["curve"][0][1] > 10 * line["error"]  # the curve begins at the start


def test_watching_fastica_changes_nothing(rng):
    """Views are what FastICA would have returned, had it been stopped there."""
    from sklearn.decomposition import FastICA  # noqa: PLC0415

    fit, watch = importlib.import_module("bench_fit"), importlib.import_module("watch").Watch()
    solver = importlib.import_module("solvers.fastica_logcosh").SOLVER(0.3, 1)
    X, dictionary = importlib.import_module("problems.base").Problem("tiny", 8, 2000, noise_std=0.2).make(0)
    atoms = solver.fit(X, 0, watch)
    plain = FastICA(whiten="unit-variance", whiten_solver="eigh", random_state=0)
    assert fit.error_of(atoms, dictionary) == pytest.approx(fit.error_of(plain.fit(X).components_, dictionary))
    with pytest.warns(match="did not converge"):
        stopped = plain.set_params(max_iter=3).fit(X).components_
    assert fit.error_of(watch.views[3].seen, dictionary) == pytest.approx(fit.error_of(stopped, dictionary), rel=1e-3)
