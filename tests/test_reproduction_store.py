"""Stored results: whole or not there, the same in whatever order they were made."""

from __future__ import annotations

import os

import pytest

from elldict.datasets import make_bernoulli_gaussian
from experiments.harness.store import DONE, FAILED, Record, Store, StoreError
from experiments.reproduction.cells import DATA_REVISION, METHODS, Cell, frozen, make_cell
from experiments.reproduction.tasks import run_cell


def cell(seed=0, **setting):
    return Cell("recovery", "lp", (), frozen({"n_features": 3, **setting}), seed, "test 1")


def record(of, error=0.5, seconds=1.0):
    return Record(of.identity, DONE, {"error": error}, "", {"seconds": seconds, "fit_seconds": seconds, "machine": "m"})


@pytest.fixture
def path(tmp_path):
    return tmp_path / "results.jsonl"


def fill(path, records):
    store = Store(path)
    with store.writing():
        for item in records:
            store.add(item)
    return store


def test_what_is_stored_comes_back(path):
    fill(path, [record(cell(0), 0.1), record(cell(1), 1 / 3)])
    again = Store(path)
    assert again.get(cell(1)) == record(cell(1), 1 / 3)
    assert again.get(cell(2)) is None
    assert len(again.records) == 2


def test_the_order_of_work_leaves_no_trace(path, tmp_path):
    records = [record(cell(seed), seed / 7) for seed in range(5)]
    fill(path, records)
    fill(tmp_path / "other", records[3:])
    fill(tmp_path / "other", records[2::-1])
    assert path.read_bytes() == (tmp_path / "other").read_bytes()


def test_a_result_is_on_disk_when_add_returns(path):
    store = Store(path)
    with store.writing():
        store.add(record(cell()))
        assert Record.parse(path.read_bytes()) == record(cell())


@pytest.mark.parametrize("n_cut", [1, 2, 30, 100])
def test_the_torn_line_of_a_killed_run_is_dropped(path, n_cut):
    fill(path, [record(cell(0)), record(cell(1))])
    whole = path.read_bytes()
    path.write_bytes(whole[:-n_cut])
    torn = Store(path)
    assert len(torn.records) == (2 if n_cut == 1 else 1)  # all but the line break: nothing is lost
    fill(path, [record(cell(1))])
    assert path.read_bytes() == whole


def test_a_line_that_is_no_result_is_named(path):
    path.write_text(record(cell()).line.decode() + "{}\n" + record(cell(1)).line.decode())
    with pytest.raises(StoreError, match=r"line 2 is not a stored result: KeyError\('cell'\). Remove the line"):
        Store(path)


def test_a_later_try_replaces_a_failure(path):
    failed = Record(cell().identity, FAILED, {}, "why", {"seconds": 1.0, "machine": "m"})
    path.write_bytes(failed.line + record(cell()).line)
    assert Store(path).get(cell()).status == DONE


def test_two_runs_do_not_write_to_one_file(path):
    pytest.importorskip("fcntl")
    with Store(path).writing(), pytest.raises(StoreError, match="another run is writing"), Store(path).writing():
        pass


def test_what_another_run_wrote_since_the_file_was_read_is_kept(path):
    late = Store(path)
    fill(path, [record(cell(seed)) for seed in range(3)])
    with late.writing():
        late.add(record(cell(9)))
        assert Record.parse(path.read_bytes().splitlines()[-1]) == record(cell(9))  # in the file that is there now
    assert sorted(item.identity["seed"] for item in Store(path).records.values()) == [0, 1, 2, 9]


def test_a_line_is_written_in_whole_though_the_system_takes_it_in_parts(path, monkeypatch):
    write = os.write
    monkeypatch.setattr(os, "write", lambda descriptor, data: write(descriptor, data[:7]))
    fill(path, [record(cell(0)), record(cell(1))])
    assert len(Store(path).records) == 2


def test_keys_tell_apart_whatever_determines_a_result():
    settings = [{}, {"density": 0.1}, {"density": 0.2}]
    cells = [cell(seed, **setting) for seed in (0, 1) for setting in settings]
    cells += [make_cell("recovery", "lp", {}, 0, {"p": p}) for p in (3, 4)] + [make_cell("recovery", "default", {}, 0)]
    assert len({item.key for item in cells}) == len(cells)
    assert cell(density=0.1, noise_std=0.2).key == cell(noise_std=0.2, density=0.1).key


def test_numbers_that_json_does_not_know_are_refused():
    with pytest.raises(ValueError, match="JSON"):
        _ = record(cell(), float("nan")).line


def test_software_names_package_version_and_revisions():
    assert METHODS["lp"].software.startswith("elldict ")
    assert METHODS["fastica"].software.startswith("scikit-learn ")
    assert METHODS["lp"].software.endswith(f"data {DATA_REVISION}")


def test_our_own_methods_still_give_the_answers_of_their_revision():
    """If this fails on purpose, raise the revisions in METHODS: stored results belong to another solver then."""
    setting = {"n_features": 24, "n_samples": 6000, "density": 0.2, "noise_std": 0.3, "dtype": "float32"}
    found = {name: run_cell(make_cell("recovery", name, setting, 0, {}), {})[0] for name in ("lp", "default")}
    revisions = {name: METHODS[name].revision for name in found}
    assert revisions == {"lp": 2, "default": 3}
    assert (found["lp"]["n_iter"], found["default"]["n_iter"]) == pytest.approx((37, 16), abs=1)
    assert found["lp"]["error"] == pytest.approx(0.0055551, rel=1e-3)
    assert found["default"]["error"] == pytest.approx(0.0033536, rel=1e-4)


def test_the_same_seed_still_draws_the_same_samples():
    """If this fails on purpose, raise DATA_REVISION: stored results belong to other samples then."""
    X, _, _ = make_bernoulli_gaussian(
        50, 4, density=0.3, noise_std=0.1, corruption=1.0, dtype="float32", random_state=0
    )
    assert DATA_REVISION == 1
    assert X[0].tolist() == pytest.approx([0.663, -0.5165, 0.0091, 0.1685], abs=6e-5)
