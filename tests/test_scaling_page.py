"""docs/scaling.md: its sketch of another engine runs, and its tables are those of the last measurement."""

import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from elldict import LpDictionaryLearning
from elldict._old.data import dataset as base
from elldict._old.data.npy import open_npy
from experiments import BENCHMARK_RESULTS
from experiments.benchmarks.scaling import tables
from experiments.harness.store import Store

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "scaling.md"


def between(begin, end):
    _, _, rest = PAGE.read_text(encoding="utf-8").partition(f"<!-- {begin} -->\n")
    inside, mark, _ = rest.partition(f"<!-- {end} -->")
    assert mark
    return inside


@pytest.mark.parametrize("n_tasks", [1, 5, 40])
def test_the_sketch_of_another_engine_gives_the_same_answer(easy, tmp_path, n_tasks, monkeypatch):
    monkeypatch.setattr(base, "SPLIT_WORK", 0)
    monkeypatch.setattr(base, "TILE_BYTES", 128 * 12 * 8)
    code = between("sketch", "end of sketch").strip().removeprefix("```python").removesuffix("```")
    names = {"__name__": "sketch"}
    monkeypatch.setitem(sys.modules, "sketch", type(sys)("sketch"))  # dataclasses look their module up
    exec(compile(code, str(PAGE), "exec"), names)
    np.save(tmp_path / "X.npy", easy[0])
    with ThreadPoolExecutor(2) as pool:
        samples = names["ExecutorDataset"](open_npy(tmp_path / "X.npy"), pool, n_tasks)
        found = LpDictionaryLearning(random_state=0).fit(samples)
    np.testing.assert_array_equal(found.components_, LpDictionaryLearning(random_state=0).fit(easy[0]).components_)


def test_the_tables_are_those_of_the_last_measurement():
    *_, last = (record.row for record in Store(BENCHMARK_RESULTS / "scaling.jsonl").records.values())
    assert between("measured", "end of measured") == tables.measured_tables(last)
    assert between("extrapolated", "end of extrapolated") == tables.extrapolated_table(last)
