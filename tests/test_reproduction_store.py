"""Stored results of experiments, and the revisions that they belong to."""

from __future__ import annotations

import pytest

pytest.importorskip("matplotlib")

from elldict.datasets import make_bernoulli_gaussian
from experiments.harness.store import DONE, Record, Store, StoreError
from experiments.reproduction.cells import DATA_REVISION, METHODS, make_cell
from experiments.reproduction.tasks import run_cell


def cell(seed=0, **setting):
    return make_cell("recovery", "lp", {"n_features": 3, **setting}, seed)


def record(of, error=0.5):
    return Record(of.identity, DONE, {"error": error}, "", {"seconds": 1.0, "fit_seconds": 1.0, "machine": "m"})


@pytest.fixture
def path(tmp_path):
    return tmp_path / "results.jsonl"


def fill(path, records):
    store = Store(path)
    with store.writing():
        for item in records:
            store.add(item)


def test_store_filled_in_another_order_has_the_same_results_and_bytes(path, tmp_path):
    records = [record(cell(seed), seed / 7) for seed in range(5)]
    fill(path, records)
    fill(tmp_path / "other", records[3:])
    fill(tmp_path / "other", records[2::-1])
    assert path.read_bytes() == (tmp_path / "other").read_bytes()
    assert [Store(path).get(of) for of in map(cell, range(6))] == [*records, None]


@pytest.mark.parametrize("n_cut", [1, 2, 100])
def test_store_with_an_incomplete_last_line_drops_it(path, n_cut):
    fill(path, [record(cell(0)), record(cell(1))])
    complete = path.read_bytes()
    path.write_bytes(complete[:-n_cut])
    assert len(Store(path).records) == (2 if n_cut == 1 else 1)  # without its line break a line can still be read
    fill(path, [record(cell(1))])
    assert path.read_bytes() == complete


def test_store_with_an_invalid_line_names_it(path):
    path.write_text(record(cell()).line.decode() + "{}\n" + record(cell(1)).line.decode())
    with pytest.raises(StoreError, match=r"line 2 is not a stored result: KeyError\('cell'\). Remove the line"):
        Store(path)


def test_methods_of_elldict_give_the_results_of_their_revision():
    """If this fails on purpose, raise the revisions in METHODS: stored results belong to another solver."""
    setting = {"n_features": 24, "n_samples": 6000, "density": 0.2, "noise_std": 0.3, "dtype": "float32"}
    found = {name: run_cell(make_cell("recovery", name, setting, 0), {})[0] for name in ("lp", "default")}
    assert {name: METHODS[name].own_revision for name in found} == {"lp": 3, "default": 5}
    assert (found["lp"]["n_iter"], found["default"]["n_iter"]) == pytest.approx((39, 36), abs=1)
    assert found["lp"]["error"] == pytest.approx(0.0055551, rel=1e-3)
    assert found["default"]["error"] == pytest.approx(0.0033851, rel=1e-3)


def test_samples_with_a_seed_are_those_of_the_data_revision():
    """If this fails on purpose, raise DATA_REVISION: stored results belong to other samples."""
    X, _, _ = make_bernoulli_gaussian(
        50, 4, density=0.3, noise_std=0.1, corruption=1.0, dtype="float32", random_state=0
    )
    assert DATA_REVISION == 1
    assert X[0].tolist() == pytest.approx([0.663, -0.5165, 0.0091, 0.1685], abs=6e-5)
