"""The side-by-side benchmark runs: a tiny problem through the harness, its tables and its pictures."""

import importlib
from dataclasses import replace
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[1] / "experiments" / "benchmarks" / "speed"
SPEED = "experiments.benchmarks.speed"
SOLVERS = sorted(path.stem for path in (FOLDER / "solvers").glob("*.py"))
FAMILIES = sorted(path.stem for path in (FOLDER / "problems").glob("*.py"))


@pytest.mark.parametrize("name", [name for name in SOLVERS if name not in ("__init__", "base", "ica_views")])
def test_solver_files(name):
    solvers = importlib.import_module(f"{SPEED}.solvers")
    assert name in solvers.FILES
    found, missing = solvers.installed()
    if name.rstrip("_") in missing:
        pytest.skip(missing[name.rstrip("_")])
    solver = importlib.import_module(f"{SPEED}.solvers.{name}").SOLVER
    assert found[solver.name] is solver


@pytest.mark.parametrize("name", [name for name in FAMILIES if name not in ("__init__", "base")])
def test_problem_files(name):
    family = importlib.import_module(f"{SPEED}.problems.{name}")
    for problem in family.PROBLEMS:
        assert (problem.limit > 0) == (problem.noise_std > 0)
        assert problem.at_the_limit > problem.limit


@pytest.fixture
def stored(tmp_path):
    """A tiny problem that was run with elldict and FastICA: (problem, path of the results)."""
    run, solvers = importlib.import_module(f"{SPEED}.__main__"), importlib.import_module(f"{SPEED}.solvers")
    problem = importlib.import_module(f"{SPEED}.problems.base").Problem("tiny", 8, 2000, seeds=2)
    found, _ = solvers.installed()
    chosen = {name: found[name] for name in ("elldict", "elldict power", "FastICA logcosh")}
    path = tmp_path / "bench.jsonl"
    run.Harness(run.Settings(path=path, threads=1), chosen).run([problem])
    run.Harness(run.Settings(path=path, threads=1), chosen).run([problem])  # nothing is left to be done
    return problem, path


def test_harness_stores_every_fit_once(stored):
    problem, path = stored
    lines = list(importlib.import_module("experiments.harness.lines").lines(path))
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

    fit, watch = importlib.import_module(f"{SPEED}.fit"), importlib.import_module("experiments.harness.watch").Watch()
    solver = importlib.import_module(f"{SPEED}.solvers.fastica_logcosh").SOLVER(0.3, 1)
    X, dictionary = importlib.import_module(f"{SPEED}.problems.base").Problem("tiny", 8, 2000, noise_std=0.2).make(0)
    atoms = solver.fit(X, 0, watch)
    plain = FastICA(whiten="unit-variance", whiten_solver="eigh", random_state=0)
    assert fit.error_of(atoms, dictionary) == pytest.approx(fit.error_of(plain.fit(X).components_, dictionary))
    with pytest.warns(match="did not converge"):
        stopped = plain.set_params(max_iter=3).fit(X).components_
    assert fit.error_of(watch.views[3].seen, dictionary) == pytest.approx(fit.error_of(stopped, dictionary), rel=1e-3)


def test_report_renders_from_stored_lines(stored, tmp_path):
    problem, path = stored
    growth = importlib.import_module(f"{SPEED}.growth")
    points = [growth.Point("n", n=n, r=500) for n in (8, 16)]
    growth.measure_growth(points, repeats=1, threads=1, path=tmp_path / "growth.jsonl")
    report = importlib.import_module(f"{SPEED}.report")
    page, picture = report.write_report([problem], path.parent, tmp_path)
    text = page.read_text()
    assert f"| {problem.name} |" in text
    assert f"### {problem.name}" in text
    assert "FastICA logcosh" in text
    assert picture.name == "bench-scaling.png"
    assert picture.stat().st_size > 10_000


def test_curves_are_drawn(stored):
    problem, path = stored
    times, curves = importlib.import_module(f"{SPEED}.times"), importlib.import_module(f"{SPEED}.curves")
    row = times.row_of(problem, times.stored_rounds([problem], path)[problem.name])
    assert row.ours_to_limit < float("inf")
    assert row.ratio > 0
    assert curves.curves_figure([row]) is None  # the picture shows other problems
    named = replace(problem, family="Table 1", n_features=100)
    figure = curves.curves_figure([replace(row, problem=named)])
    assert len(figure.axes[0].lines) >= 2 * 3


def test_time_to_an_error_that_is_kept():
    time_to = importlib.import_module(f"{SPEED}.times").time_to
    line = {"curve": [[1.0, 0.5], [2.0, 0.1], [3.0, 0.3], [4.0, 0.1], [5.0, 0.05]]}
    assert time_to(line, 0.1) == 4.0
    assert time_to(line, 0.6) == 1.0
    assert time_to(line, 0.01) == float("inf")


def test_basins_are_counted_and_stored(tmp_path):
    basins = importlib.import_module(f"{SPEED}.basins")
    problem = importlib.import_module(f"{SPEED}.problems.base").Problem("tiny", 6, 600)
    fits = basins.Fits(threads=1, path=tmp_path / "basins.jsonl")
    basins.run_basins(fits, [problem], seeds=2)
    basins.run_order(fits, [problem], seeds=1)
    assert len(fits.known) == 2 * 2 + 2 * len(basins.ARRANGED)
    again = basins.Fits(threads=1, path=tmp_path / "basins.jsonl")
    assert again.known == fits.known
    X, _ = basins.arranged(problem, 0, "sorted by length")
    assert list((X**2).sum(1)) == sorted((X**2).sum(1))


def test_a_machine_that_was_not_quiet_is_told():
    disturbance = importlib.import_module(f"{SPEED}.tables").disturbance
    assert disturbance({"calm": [{"elldict": {"others": 0.02}}], "unknown": [{"elldict": {"others": None}}]}) == ""
    assert "shared (60%)" in disturbance({"shared": [{"elldict": {"others": 0.6}}]})


def test_files_benchmark_tells_memory_passes_and_rate(tmp_path, capsys):
    files = importlib.import_module("experiments.benchmarks.files")
    with files.sample_file(tmp_path, 20_000, keep=False) as path:
        files.fit_apart(path, 20_000)
        files.compare_rates(path, repeats=1)
    told = capsys.readouterr().out
    for word in ("resident memory", "passes", "at best", "ratio"):
        assert word in told
    assert not list(tmp_path.iterdir())
