"""The report: sections from made-up results, verdicts that depend on them, the page and the command."""

from __future__ import annotations

import base64
import re
from functools import cache
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("matplotlib")
pytest.importorskip("jinja2")

from elldict.theory import cramer_rao_bound, expected_error
from experiments.harness.store import DONE, Record, Store
from experiments.reproduction import command, paper
from experiments.reproduction.catalogue import EXPERIMENTS
from experiments.reproduction.experiment import Size, Verdict, judge
from experiments.reproduction.figures import figure2, figure5
from experiments.reproduction.figures.figure3 import ROUNDING
from experiments.reproduction.images import Source, pack
from experiments.reproduction.report.page import render
from experiments.reproduction.results import Results
from experiments.reproduction.tables import recovery_table, table1, table2

expected_error, cramer_rao_bound = cache(expected_error), cache(cramer_rao_bound)
QUICK = Size(full=False, trials=1, source=Source.of(None))
FULL = Size(full=True, trials=1, source=Source.of(None))


def plausible(cell):
    """Return values as a run might give them: those of theory."""
    setting, options = dict(cell.setting), dict(cell.options)
    if cell.task == "population":
        factor = setting["density"] if cell.method == "power" else 0.8
        n_steps = int(np.log(ROUNDING) / np.log(factor)) + 2
        return {"errors": [float(factor ** max(t - 2, 0)) for t in range(n_steps)]}
    if cell.task == "images":
        error = {"top-k": 0.2, "pca": 0.33}.get(cell.method, 0.08 * options.get("p", 3))
        strip = pack(np.linspace(0, 1, 640, dtype=np.float32).reshape(10, 64))
        pictures = dict.fromkeys(("shown", "first_shown", "originals"), strip)
        numbers = {"errors": [error] * 10, "error": error, "first_error": 0.5, "n_iter": 3, "at_limit": False}
        recognised = {"recognised": 1 - error, "first_recognised": 0.5, "originals_recognised": 0.95}
        return {**numbers, **recognised, **pictures}
    p = options.get("p", {"ksvd": 8, "rtr": 2.5}.get(cell.method, 2.2))
    known = {name: setting.get(name, 0.0) for name in ("n_features", "n_samples", "density", "noise_std")}
    error = 1.05 * cramer_rao_bound(**known) if cell.method == "default" else expected_error(p, **known)
    return {"error": min(error, 0.9), "n_iter": 10, "warnings": []}


@cache
def list_cells(name, size):
    return tuple(EXPERIMENTS[name].cells(size))


def make_results(name, size, values=plausible):
    store = Store(Path("nowhere"))
    for cell in list_cells(name, size):
        if (found := values(cell)) is not None:
            made = {"seconds": 1.5, "fit_seconds": 1.0, "machine": "a machine"}
            store.records[cell.key] = Record(cell.identity, DONE, found, "", made)
    return Results(store)


@pytest.mark.parametrize("name", sorted(set(EXPERIMENTS) - {"figure2"}))  # which needs no results
def test_verdicts_are_open_only_without_results(name):
    for values, is_open in ((plausible, False), (lambda cell: None, True)):
        section = EXPERIMENTS[name].section(make_results(name, FULL, values), FULL)
        assert all((claim.verdict is Verdict.OPEN) == is_open for claim in section.claims)


@pytest.fixture(scope="module", autouse=True)
def coarse_landscapes():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(figure2, "N_ANGLES", 12)
        yield


def test_full_size_is_that_of_the_paper():
    ten = Size(full=True, trials=None, source=FULL.source)
    sizes = {(row.n_features, row.n_samples) for row in table1.LAYOUT.rows_at(ten)}
    assert sizes == {(100, 40_000), (200, 80_000), (400, 160_000)}
    layout = table2.LAYOUT
    assert all(len(layout.cells_at(row, column, ten)) == 10 for row in paper.TABLE_2 for column in layout.columns)
    map_d = figure5.list_maps(ten)[3]
    assert (map_d.n, map_d.point(3.0, 0.1)["r"]) == (50, 10_000)


def test_cells_of_baselines_find_the_committed_results():
    """The keys of baselines have to stay as they are: their results took hours."""
    records = Store(Path(command.__file__).parent / "results" / "results.jsonl").records
    ten = Size(full=True, trials=None, source=FULL.source)
    for method, n_least in (("ksvd", 60), ("rtr", 60), ("fastica", 400), ("picard", 150), ("gradient", 80)):
        cells = {cell for name in EXPERIMENTS for cell in list_cells(name, ten) if cell.method == method}
        software = {record.identity["software"] for record in records.values() if record.identity["method"] == method}
        if any(cell.software in software for cell in cells):  # the same version is installed here
            assert sum(cell.key in records for cell in cells) >= n_least, method


def test_judge_with_open_comparisons_holds_in_part_at_most():
    assert judge("text", [True, True], "found", n_open=1).verdict is Verdict.PARTLY


def test_agreement_allows_the_rounding_of_the_print():
    assert recovery_table.agrees(0.00148, paper.Printed(".1", 1.0))
    assert not recovery_table.agrees(0.00152, paper.Printed(".1", 1.0))
    assert recovery_table.agrees(0.0108, paper.Printed("1.00", 1.0))
    assert not recovery_table.agrees(0.0118, paper.Printed("1.00", 1.0))


@pytest.fixture(scope="module")
def html():
    store = Store(Path("nowhere"))
    for name in EXPERIMENTS:
        store.records |= make_results(name, QUICK).store.records
    return render(list(EXPERIMENTS.values()), Results(store), QUICK, {"Command": "python -m x"})


def test_page_has_all_sections_and_loads_nothing(html):
    for name, experiment in EXPERIMENTS.items():
        assert f'<section id="{name}">' in html
        assert experiment.heading in html
    links = re.findall(r'(?:src|href)="([^"]*)"', html)
    assert all(link.startswith(("data:", "#")) for link in links)
    assert not re.search(r"@import|url\(|/(home|root|tmp|usr|work)/", html)
    pictures = [link for link in links if link.startswith("data:image")]
    assert len(set(pictures)) == len(EXPERIMENTS)
    assert all(base64.b64decode(link.partition(",")[2])[1:4] == b"PNG" for link in pictures)
