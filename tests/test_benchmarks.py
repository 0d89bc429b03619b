"""The side-by-side benchmark runs: a tiny problem through the harness, its tables and its pictures."""

from dataclasses import replace

import numpy as np
import pytest

pytest.importorskip("matplotlib")

from experiments import peers
from experiments.benchmarks import files
from experiments.benchmarks.ica import __main__ as ica
from experiments.benchmarks.ica.problems import BlindSources
from experiments.benchmarks.ica.problems import Problem as Sources
from experiments.benchmarks.real import __main__ as real
from experiments.benchmarks.real.fits import measure_difference, measure_log_density
from experiments.benchmarks.real.sets import cut_patches, divide, list_folder
from experiments.benchmarks.speed import __main__ as comparison
from experiments.benchmarks.speed import basins, fit, iteration, pictures, report, tables, times
from experiments.benchmarks.speed.problems import Problem, problems
from experiments.benchmarks.speed.solvers import SOLVERS, installed
from experiments.harness.store import Store
from experiments.harness.watch import Watch


@pytest.mark.parametrize("solver", SOLVERS, ids=lambda solver: solver.name)
def test_a_solver_is_made_as_stated(solver):
    """Its settings can be written down, and tell it from the others of its kind."""
    job = fit.Job(solver.name, Problem("tiny", 8, 500), 3, 2)
    peer = fit.make_peer(solver, job)
    assert isinstance(peer, solver.kind)
    assert getattr(peer, "random_state", 3) == 3
    twins = [fit.make_peer(other, job) for other in SOLVERS if other.kind is solver.kind and other is not solver]
    assert all(peer.settings != twin.settings for twin in twins)


@pytest.mark.parametrize("problem", problems(), ids=lambda problem: problem.name)
def test_problems_have_a_limit_where_there_is_noise(problem):
    assert (problem.limit > 0) == (problem.noise_std > 0)
    assert problem.at_the_limit > problem.limit


@pytest.fixture
def stored(tmp_path):
    """A tiny problem that was run with elldict and FastICA: (problem, path of the results)."""
    problem = Problem("tiny", 8, 2000, seeds=2)
    found, _ = installed()
    chosen = {name: found[name] for name in ("elldict", "elldict power", "FastICA logcosh")}
    path = tmp_path / "bench.jsonl"
    comparison.Comparison(comparison.Settings(path=path, threads=1), chosen).run([problem])
    comparison.Comparison(comparison.Settings(path=path, threads=1), chosen).run(
        [problem]
    )  # nothing is left to be done
    return problem, path


def test_harness_stores_every_fit_once(stored):
    problem, path = stored
    lines = [record.row for record in Store(path).records.values()]
    assert len(path.read_bytes().splitlines()) == len(lines)
    assert len(lines) == 2 * 3
    assert {line["solver"] for line in lines[:3]} == {"elldict", "elldict power", "FastICA logcosh"}
    assert lines[0]["solver"] != lines[3]["solver"]  # who begins changes
    for line in lines:
        assert line["problem"] == problem.name
        assert line["status"] == "done"
        assert line["wrong_atoms"] == 0
        assert line["adapter"] == (2 if "FastICA" in line["solver"] else 1)
        times = [seconds for seconds, _ in line["curve"]]
        assert times == sorted(times)
        assert line["curve"][-1][1] == pytest.approx(line["error"], rel=1e-3)
        assert line["curve"][0][1] > 10 * line["error"]  # the curve begins at the start


@pytest.mark.parametrize("fun", ["logcosh", "exp", "cube"])
def test_watching_fastica_changes_nothing(fun):
    """Views are what FastICA would have returned, had it been stopped there."""
    watch, settings = Watch(), {"fun": fun, "whiten_solver": "eigh", "random_state": 0}
    X, dictionary = Problem("tiny", 8, 2000, noise_std=0.2).make(0)
    atoms = peers.FastICA(**settings).fit(X, watch).components_
    plain = peers.FastICA(**settings).fit(X).components_
    assert fit.error_of(atoms, dictionary) == pytest.approx(fit.error_of(plain, dictionary), rel=1e-9)
    with pytest.warns(match="did not converge"):
        stopped = peers.FastICA(**settings, max_iter=3).fit(X).components_
    assert fit.error_of(watch.views[3].seen, dictionary) == pytest.approx(fit.error_of(stopped, dictionary), rel=1e-3)


def test_watching_picard_changes_nothing():
    pytest.importorskip("picard")
    watch = Watch()
    X, _ = Problem("tiny", 8, 2000, noise_std=0.2).make(0)
    atoms = peers.Picard(random_state=0).fit(X, watch).components_
    assert (atoms == peers.Picard(random_state=0).fit(X).components_).all()
    assert len(watch.views) > 3


def test_the_seconds_of_a_solver_end_with_its_fit_and_its_process(tmp_path):
    slow = comparison.Comparison(comparison.Settings(path=tmp_path / "bench.jsonl", slow_limit=0.01), installed()[0])
    job = fit.Job("MiniBatchDictionaryLearning", Problem("tiny", 8, 500), 0, 1)
    assert slow._outcome(job, *job.problem.make(0)).reason == "over 0.01 s"


def test_report_renders_from_stored_lines(stored, tmp_path):
    problem, path = stored
    points = [iteration.Point("n", n=n, r=500) for n in (8, 16)]
    iteration.measure_growth(points, repeats=1, threads=1, path=tmp_path / "growth.jsonl")
    page, picture = report.write_report([problem], path.parent, tmp_path)
    text = page.read_text()
    assert f"| {problem.name} |" in text
    assert f"### {problem.name}" in text
    assert "FastICA logcosh" in text
    assert picture.name == "bench-scaling.png"
    assert picture.stat().st_size > 10_000


def test_curves_are_drawn(stored):
    problem, path = stored
    row = times.row_of(problem, times.stored_rounds([problem], path)[problem.name])
    assert row.ours_to_limit < float("inf")
    assert row.ratio > 0
    assert pictures.curves_figure([row]) is None  # the picture shows other problems
    named = replace(problem, family="Table 1", n_features=100)
    figure = pictures.curves_figure([replace(row, problem=named)])
    assert len(figure.axes[0].lines) >= 2 * 3


def test_time_to_an_error_that_is_kept():
    line = {"curve": [[1.0, 0.5], [2.0, 0.1], [3.0, 0.3], [4.0, 0.1], [5.0, 0.05]]}
    assert times.time_to(line, 0.1) == 4.0
    assert times.time_to(line, 0.6) == 1.0
    assert times.time_to(line, 0.01) == float("inf")


def test_basins_are_counted_and_stored(tmp_path):
    problem = Problem("tiny", 6, 600)
    fits = basins.Fits(threads=1, path=tmp_path / "basins.jsonl")
    basins.run_basins(fits, [problem], seeds=2)
    basins.run_order(fits, [problem], seeds=1)
    assert len(fits.store.records) == 2 * 2 + 2 * len(basins.ARRANGED)
    again = basins.Fits(threads=1, path=tmp_path / "basins.jsonl")
    assert again.store.records == fits.store.records
    X, _ = basins.arranged(problem, 0, "sorted by length")
    assert list((X**2).sum(1)) == sorted((X**2).sum(1))


def test_a_machine_that_was_not_quiet_is_told():
    assert (
        tables.disturbance({"calm": [{"elldict": {"others": 0.02}}], "unknown": [{"elldict": {"others": None}}]}) == ""
    )
    assert "shared (60%)" in tables.disturbance({"shared": [{"elldict": {"others": 0.6}}]})


def test_files_benchmark_tells_memory_passes_and_rate(tmp_path, capsys):
    with files.sample_file(tmp_path, 20_000, keep=False) as path:
        files.fit_apart(path, 20_000)
        files.compare_rates(path, repeats=1)
    told = capsys.readouterr().out
    for word in ("resident memory", "passes", "at best", "ratio"):
        assert word in told
    assert not list(tmp_path.iterdir())


def test_an_adapter_of_before_is_told():
    line = {"adapter": 1}
    assert tables.earlier_adapters({"any": [{"elldict": line, "K-SVD": line}]}) == ""
    told = tables.earlier_adapters({"any": [{"elldict": line, "FastICA exp, 1 thread": line}]})
    assert "FastICA exp (adapter 1, today 2)" in told


def test_ica_benchmark_tells_what_is_found_and_named(tmp_path, capsys):
    """Gaussian sources are not sought where there are two; rows are stored and read back."""
    problem = Sources(("Laplace", "Laplace", "uniform", "Gaussian", "Gaussian"), 4000)
    store = Store(tmp_path / "ica.jsonl")
    with store.writing():
        rows = ica.run([problem, BlindSources()], 2, store)
    told = capsys.readouterr().out
    ours = [row for row in rows if row["stated"] is not None]
    counts = [(row["found"], row["sought"], row["named_gaussian"], row["named"]) for row in ours]
    assert counts == 3 * [(6, 6, 4, 4)] + 2 * [(6, 6, 0, 0)]
    assert len(Store(tmp_path / "ica.jsonl").records) == len(rows) == told.count("\n") - 2
    # four angles, each with a standard error below 2 / sqrt(r) = .032, take .002 from a correlation; ten times that
    assert all(row["least_correlation"] > 0.98 for row in ours)
    assert [row["error"] for row in ica.read_rows(store)] == [row["error"] for row in rows if "sine" in row["problem"]]


def test_held_out_density_is_that_of_the_law_of_codes():
    """Of Gaussian codes it is -(1 + log 2 pi) / 2 each, less what 80 bins cost.

    A bin is .07 wide in asinh(4 z), in which the density changes by a tenth: the square of that is lost. Counts cost
    80 / 2r = .003 a code, and the mean over 5000 values of variance 1/2 has a standard error of .014 for two codes.
    """
    Z = np.random.default_rng(0).standard_normal((20_000, 2))
    expected = -(1 + np.log(2 * np.pi))
    assert measure_log_density(Z[:15_000], Z[15_000:]) == pytest.approx(expected, abs=0.05)
    assert measure_log_density(Z, 100 * Z) > -1000  # beyond all training codes it is small, and not zero


def test_rotations_differ_by_no_order_and_no_sign():
    rng = np.random.default_rng(0)
    A = np.linalg.qr(rng.standard_normal((50, 50)))[0]
    assert measure_difference(A, -A[rng.permutation(50)]) == pytest.approx(0, abs=1e-12)
    # fourth powers of the entries of a random rotation are 3 / (n (n + 2)) in the mean
    assert measure_difference(A, np.eye(50)) == pytest.approx(1 - 3 / 52, abs=0.01)


def test_training_samples_are_white_and_blocks_stay_together():
    X = np.arange(4000)[:, None] * np.ones(5) + np.random.default_rng(0).standard_normal((4000, 5))
    split = divide(X, None, blocks=True)
    assert split.train.shape == (3000, 5)
    np.testing.assert_allclose(split.train.T @ split.train / 3000, np.eye(5), atol=1e-8)
    time = split.test[:, 0] * np.sign(split.test[-1, 0])
    steps = np.diff(time)
    assert np.sum(steps > 50 * np.median(np.abs(steps))) == 9  # ten blocks, three others between two of them
    patches = cut_patches(np.arange(400.0).reshape(20, 20) ** 2, 4)
    assert patches.shape[1] == 16
    np.testing.assert_allclose(patches.mean(axis=1), 0, atol=1e-9)


def test_real_benchmark_tells_gains_and_reads_folders(tmp_path, capsys):
    """Independent Laplace sources, mixed: every method gains what a rotation of Gaussian codes would not."""
    rng = np.random.default_rng(0)
    np.savez(tmp_path / "mixed.npz", X=rng.laplace(size=(4000, 6)) @ rng.standard_normal((6, 6)))
    np.save(tmp_path / "wrong.npy", np.zeros((3, 3, 3)))
    mixed, wrong = list_folder(tmp_path, ["wro"])
    assert (mixed.blocks, wrong.blocks) == (False, True)
    with pytest.raises(ValueError, match="expected real samples as rows"):
        wrong.load()
    store = Store(tmp_path / "real.jsonl")
    with store.writing():
        sets = real.run([mixed], 2, store)
    real.print_verdict(sets)
    told = capsys.readouterr().out
    rows = {row["method"]: row for row in sets[0]}
    assert len(Store(tmp_path / "real.jsonl").records) == len(rows) >= 3
    # a Laplace code has .072 nats less entropy than a Gaussian one; a principal direction is a mixture of several
    assert all(0.05 < row["gain"] < 6 * 0.072 for row in rows.values())
    assert rows[real.OURS]["gain"] > 0.9 * rows["FastICA logcosh"]["gain"]
    assert rows[real.OURS]["differ"] < 0.05
    assert "| mixed (3000 x 6) |" in told
    assert "of 1 sets" in told


def test_what_is_stored_of_real_data_is_printed_set_by_set(capsys):
    """Lines of the table and of the verdict are those of the stored results."""
    sets = real.print_stored(Store(real.RESULTS))
    told = capsys.readouterr().out
    assert [rows[0]["set"] for rows in sets][:2] == ["china.jpg, 8x8 patches", "flower.jpg, 8x8 patches"]
    assert told.count("\n") == 2 + len(sets)
