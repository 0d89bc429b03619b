"""The report: sections from made-up results, verdicts that depend on them, the page and the command."""

from __future__ import annotations

import base64
import re
from collections import Counter
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
from experiments.reproduction.report import words
from experiments.reproduction.report.page import render
from experiments.reproduction.results import Results
from experiments.reproduction.tables import recovery_table, table1, table2

expected_error, cramer_rao_bound = cache(expected_error), cache(cramer_rao_bound)
QUICK = Size(full=False, trials=1, source=Source.of(None))
FULL = Size(full=True, trials=1, source=Source.of(None))


def plausible(cell, factor=1.0):
    """Return values as a run might give them: theory times a factor."""
    setting, options = dict(cell.setting), dict(cell.options)
    if cell.task == "population":
        factor = setting["density"] if cell.method == "power" else 0.8
        n_steps = int(np.log(ROUNDING) / np.log(factor)) + 2
        return {"errors": [float(factor ** max(t - 2, 0)) for t in range(n_steps)]}
    if cell.task == "images":
        error = {"top-k": 0.2, "pca": 0.33}.get(cell.method, 0.08 * options.get("p", 3)) * factor
        strip = pack(np.linspace(0, 1, 640, dtype=np.float32).reshape(10, 64))
        pictures = dict.fromkeys(("shown", "first_shown", "originals"), strip)
        numbers = {"errors": [error] * 10, "error": error, "first_error": 0.5, "n_iter": 3, "at_limit": False}
        recognised = {"recognised": 1 - error, "first_recognised": 0.5, "originals_recognised": 0.95}
        return {**numbers, **recognised, **pictures}
    p = options.get("p", {"ksvd": 8, "rtr": 2.5}.get(cell.method, 2.2))
    known = {name: setting.get(name, 0.0) for name in ("n_features", "n_samples", "density", "noise_std")}
    error = 1.05 * cramer_rao_bound(**known) if cell.method == "default" else expected_error(p, **known)
    return {"error": min(error * factor, 0.9), "n_iter": 10, "warnings": []}


@cache
def list_cells(name, size):
    return tuple(EXPERIMENTS[name].cells(size))


def make_results(name, size, values=plausible, seconds=lambda cell: 1.0):
    store = Store(Path("nowhere"))
    for cell in list_cells(name, size):
        made = {"seconds": 1.5, "fit_seconds": seconds(cell), "machine": "a machine"}
        if (found := values(cell)) is not None:
            store.records[cell.key] = Record(cell.identity, DONE, found, "", made)
    return Results(store)


@pytest.fixture(scope="module", autouse=True)
def coarse_landscapes():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(figure2, "N_ANGLES", 12)
        yield


# --- sections ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_section_without_results_has_open_verdicts(name):
    section = EXPERIMENTS[name].section(make_results(name, FULL, lambda cell: None), FULL)
    if name != "figure2":  # needs no results
        assert {claim.verdict for claim in section.claims} == {Verdict.OPEN}
    if section.picture is not None:
        section.picture.draw()


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


# --- verdicts ---------------------------------------------------------------------------------------------------------


def as_printed(cell):
    """Return what the paper prints, or else theory."""
    name = f"l{cell.value('p')}" if cell.method == "lp" else cell.method
    for row in (*paper.TABLE_1, *paper.TABLE_2, *paper.TABLE_3):
        if recovery_table.make_setting(row) == dict(cell.setting) and name in row.printed:
            return {"error": row.printed[name].error, "n_iter": 10, "warnings": []}
    return plausible(cell)


def scale(cell):
    """Let errors of l_p depend on the size of the problem, and all others be worse than theory."""
    return plausible(cell, 1e-4 * (cell.value("n_features") or 9) ** 2 if cell.method == "lp" else 3.0)


def fail(cell):
    """Give all fits the same large error."""
    return plausible(cell) | ({} if cell.task == "population" else {"error": 0.7, "recognised": 0.3})


def recover_from_samples(cell):
    """Recover from a number of samples that is exponential in p; on the population in few power iterations."""
    if cell.task == "population":
        return count_down(9 if cell.method == "power" else 9 * cell.value("n_features"))
    is_found = cell.value("n_samples") > 40 * np.exp(cell.value("p"))
    return plausible(cell) | ({"error": 1e-3 if is_found else 0.5} if cell.task == "recovery" else {})


def warn_of_failure(cell):
    """Warn of fits that failed; on the population take many power iterations."""
    if cell.task == "population":
        return count_down(400 if cell.method == "power" else 80)
    failed = plausible(cell)["error"] > 0.05
    found = {"error": 0.8 if failed else 1e-3, "warnings": ["A"] if failed else []}
    return plausible(cell) | (found if cell.task == "recovery" else {})


def count_down(n_steps):
    return {"errors": [float(10.0 ** (-14 * t / n_steps)) for t in range(n_steps + 1)]}


WORLDS = {  # values and seconds of a cell; they differ in everything that is claimed
    plausible: lambda cell: {"rtr": 99.0, "ksvd": 50.0}.get(cell.method, float(cell.value("p") or 9)),
    as_printed: lambda cell: {"rtr": 0.1, "ksvd": 0.1}.get(cell.method, 9.0 - (cell.value("p") or 0)),
    **dict.fromkeys((scale, fail, recover_from_samples, warn_of_failure), lambda cell: 1.0),
}


@pytest.mark.parametrize("name", sorted(set(EXPERIMENTS) - {"figure2"}))
def test_every_claim_holds_in_one_world_and_not_in_another(name):
    found = {}
    for values, seconds in WORLDS.items():
        results = make_results(name, FULL, values, seconds)
        for claim in EXPERIMENTS[name].section(results, FULL).claims:
            found.setdefault(claim.text, set()).add(claim.verdict)
    assert not {text: seen for text, seen in found.items() if Verdict.HOLDS not in seen or len(seen) < 2}


def test_judge_with_open_comparisons_holds_in_part_at_most():
    assert judge("text", [True, True], "found", n_open=1).verdict is Verdict.PARTLY


def test_agreement_allows_the_rounding_of_the_print():
    assert recovery_table.agrees(0.00148, paper.Printed(".1", 1.0))
    assert not recovery_table.agrees(0.00152, paper.Printed(".1", 1.0))
    assert recovery_table.agrees(0.0108, paper.Printed("1.00", 1.0))
    assert not recovery_table.agrees(0.0118, paper.Printed("1.00", 1.0))


def test_words_have_one_style():
    errors = {0.00056: "0.0560", 0.0145: "1.45", 0.574: "57.4", 1.0: "100", 1e-12: "0", 3e-6: "<\u202f0.001"}
    assert [words.bare(error) for error in errors] == list(errors.values())
    times = {0.05: "0.05\u202fs", 12.34: "12\u202fs", 600: "10\u202fmin", 7200: "2.0\u202fh"}
    assert [words.duration(seconds) for seconds in times] == list(times.values())


# --- page and command -------------------------------------------------------------------------------------------------


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


def test_page_counts_every_claim_once(html):
    verdicts = re.findall(r'<span class="verdict (\w+)" data-ours="(\w+)">', html)
    marks = re.findall(r'<i class="(holds|partly|fails|open)( ours)?" title=', html)
    assert Counter(verdicts) == Counter((verdict, "true" if ours else "false") for verdict, ours in marks)
    for ours, n_all, rest in re.findall(r'<p class="count" data-ours="(\w+)"><b>(\d+)</b>(.*)</p>', html):
        counts = {verdict: int(n) for verdict, n in re.findall(r'<span class="verdict (\w+)"><b>(\d+)</b>', rest)}
        assert counts == Counter(verdict for verdict, whose in verdicts if whose == ours)
        assert sum(counts.values()) == int(n_all)


@pytest.mark.slow
def test_command_run_twice_computes_nothing_again(tmp_path, capsys):
    arguments = ["figure2", "figure3", "--trials", "1", "--out", str(tmp_path / "new" / "folder")]
    for n_new in (4, 0):
        assert command.run(arguments) == 0
        out, err = capsys.readouterr()
        assert err == ""
        assert f"4 of 4; {n_new} of them new" in out
    page = (tmp_path / "new" / "folder" / "report.html").read_text(encoding="utf-8")
    assert "python -m experiments.reproduction figure2 figure3 --quick --trials 1" in page
    assert (tmp_path / "new" / "folder" / "figures" / "figure3.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("arguments", "words_"),
    [
        (["table9"], "'table9' is not part of the paper. Choose from table1, table2"),
        (["--budget", "soon"], "argument --budget: 'soon': expected a time such as 90s, 30m or 2h."),
        (["figure6", "--mnist", "nothing.npz"], "nothing.npz: No such file"),
        (["figure3", "--out", "file"], "File exists: 'file'"),
        (["figure3", "--out", "broken"], "results.jsonl, line 1 is not a stored result"),
        (["--jobs", "0"], "argument --jobs: '0': expected a number >= 1."),
    ],
)
def test_command_with_wrong_arguments_says_so(arguments, words_, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    Path("file").touch()
    Path("broken").mkdir()
    Path("broken/results.jsonl").write_text("nonsense\n")
    assert command.run(arguments) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert words_ in err
