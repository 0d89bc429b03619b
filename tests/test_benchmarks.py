"""Studies: stored once per version, resumed, written as tables; and their smallest forms."""

import subprocess
import sys

import numpy as np
import pytest

from experiments import measure
from experiments.benchmarks import data, error_bars, real, rotation, study
from experiments.benchmarks.study import Study
from experiments.campaign.data_sets import KINDS, VALUES
from experiments.harness.store import FAILED, Store

STUDIES = {name: measure.load_study(name) for name in measure.STUDIES}


def make_study(measure_cell):
    """A study of the squares of three numbers."""
    cells = [{"number": number} for number in range(3)]
    return Study("squares", 1, measure_cell, lambda rows: study.write_table(["rows"], [[str(len(rows))]]), cells, cells)


@pytest.fixture(autouse=True)
def results(tmp_path, monkeypatch):
    """A folder for the results of studies."""
    monkeypatch.setattr(study, "BENCHMARK_RESULTS", tmp_path)


# Studies


def test_run_stores_every_cell_once_and_again_for_another_solver(monkeypatch):
    calls = []
    found = make_study(lambda cell: calls.append(cell["number"]) or {"square": cell["number"] ** 2})
    for _ in range(2):
        study.main(found, None, [])
    assert calls == [0, 1, 2]
    assert [row["square"] for row in found.read()] == [0, 1, 4]
    monkeypatch.setattr(study, "hash_core", lambda: "another")
    assert len(found.list_missing()) == 3


def test_run_after_ctrl_c_measures_what_is_missing():
    calls = []

    def interrupt_once(cell):
        calls.append(cell["number"])
        if calls == [0, 1]:
            raise KeyboardInterrupt
        return {"square": 0}

    found = make_study(interrupt_once)
    with pytest.raises(SystemExit, match="resumes"):
        study.main(found, None, [])
    study.main(found, None, [])
    assert calls == [0, 1, 1, 2]


def test_failed_cell_is_named_and_tried_again(capsys):
    def fail_at_one(cell):
        if cell["number"] == 1:
            raise ValueError("no square")
        return {"square": np.float64(cell["number"] ** 2), "nan": float("nan")}

    found = make_study(fail_at_one)
    with pytest.raises(SystemExit, match="1 of 3 measurements failed"):
        study.main(found, None, [])
    assert "ValueError: no square" in capsys.readouterr().out
    assert found.list_missing() == [{"number": 1}]
    assert Store(found.path).records[study.key_of({"number": 1})].status == FAILED
    assert found.read()[0]["nan"] is None


# All studies


FAST = ("real", "rotation", "limit", "ica", "which_one", "stream", "checkpoint_cost", "ablation")


@pytest.mark.parametrize("name", FAST)
def test_smallest_form_of_study_gives_a_table(name, tmp_path):
    """K-SVD, DictionaryLearning and clusters take longer: their tests are slow."""
    cells = [cell for cell in STUDIES[name].small if "DictionaryLearning" not in cell.values()][:4]
    rows = study.run(STUDIES[name], cells, tmp_path / "results.jsonl")
    assert len(rows) == len(cells)
    assert STUDIES[name].tabulate(rows).startswith("| ")


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted({*STUDIES} - {*FAST, "gpu"}))
def test_smallest_form_of_long_study_gives_a_table(name):
    line = [sys.executable, "-m", *STUDIES[name].command.split()[2:], "--small"]
    result = subprocess.run(line, cwd=study.ROOT, capture_output=True, text=True, timeout=300, check=False)
    assert result.returncode == 0, result.stdout + result.stderr
    assert "\n| " in result.stdout


# Real data


def test_log_density_is_that_of_gaussian_codes():
    """It is -(1 + log 2 pi) / 2 per code, up to the width of bins and the sampling error of 5000 values (0.014)."""
    Z = np.random.default_rng(0).standard_normal((20_000, 2))
    expected = -(1 + np.log(2 * np.pi))
    assert data.measure_log_density(Z[:15_000], Z[15_000:]) == pytest.approx(expected, abs=0.05)
    assert data.measure_log_density(Z, 100 * Z) > -1000  # small beyond all training codes, but not zero


def test_gain_of_rotation_to_laplace_sources_is_their_negentropy():
    rng = np.random.default_rng(0)
    A = study.draw_rotation(6, rng)
    split = data.divide(rng.laplace(size=(20_000, 6)) @ A)
    found, _ = real.fit_elldict(split.train, 0)
    assert 0.05 < data.measure_gain(split, study.make_orthonormal(found)) < 6 * 0.072  # nats per Laplace code


# Data sets with known atoms


@pytest.mark.parametrize("values", VALUES)
def test_values_have_mean_zero_and_unit_variance(values):
    found = VALUES[values](np.random.default_rng(0), (200_000,))
    assert np.mean(found) == pytest.approx(0, abs=0.02)
    assert np.var(found) == pytest.approx(1, abs=0.3 if values in ("t3", "lognormal") else 0.03)  # of large kurtosis


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_draws_samples_with_their_atoms(kind):
    for setting in KINDS[kind].settings:
        X, M = KINDS[kind].draw(np.random.default_rng(0), 8, 400, **setting)
        assert X.shape == (400, len(M))
        assert M.shape[1] == 8
        assert np.all(np.isfinite(X))


def test_error_bar_of_sparse_codes_with_noise_is_within_a_factor_of_two():
    cells = [cell for cell in error_bars.CELLS if cell["kind"] == "sparse" and cell["noise"] == 0.3 and cell["n"] == 16]
    row = error_bars.measure(cells[0])
    assert row["warnings"] == []
    assert 0.5 < error_bars.find_ratio(row) < 2


# Rotation


def test_rotation_is_no_worse_than_gparotation_from_the_same_starts():
    """R has stored the values it found, to a projected gradient of 1e-7."""
    stored = rotation.read_gparotation()
    assert len(stored) == 5 * 4 * 10  # examples; two criteria, rows normalised or not; starts
    assert min(rotation.compare(row, L) for row, L in stored) >= -1e-8
