"""The report: sections from made-up results, verdicts that depend on them, the page and the command."""

from __future__ import annotations

import base64
import re
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("matplotlib")
pytest.importorskip("jinja2")

from experiments.harness.store import Store
from experiments.reproduction import command, paper
from experiments.reproduction.catalogue import EXPERIMENTS
from experiments.reproduction.experiment import Size, Verdict, judge
from experiments.reproduction.figures import figure1, figure2, figure5
from experiments.reproduction.report import words
from experiments.reproduction.report.looks import LOOKS
from experiments.reproduction.report.page import render
from experiments.reproduction.results import Results
from experiments.reproduction.tables import recovery_table, table1, table2
from experiments.reproduction.tables.recovery_picture import insert_gaps
from tests.reproduction_results import FULL, QUICK, list_cells, make_results, plausible


@pytest.fixture(scope="module", autouse=True)
def coarse_landscapes():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(figure2, "N_ANGLES", 12)
        yield


# --- sections ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_section_of_all_results_has_verdicts_a_table_and_a_picture(name):
    size = FULL if name == "table1" else QUICK  # a quick run has K-SVD at one size only
    section = EXPERIMENTS[name].section(make_results(name, size), size)
    assert section.claims
    assert all(claim.verdict is not Verdict.OPEN for claim in section.claims)
    if section.table is not None:
        assert section.table.rows
        assert all(len(row) == len(section.table.columns) for row in section.table.rows)
    assert section.picture.draw().axes


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_section_without_results_has_open_verdicts(name):
    section = EXPERIMENTS[name].section(make_results(name, FULL, lambda cell: None), FULL)
    if name != "figure2":  # needs no results
        assert {claim.verdict for claim in section.claims} == {Verdict.OPEN}
    if section.picture is not None:
        section.picture.draw()


@pytest.mark.parametrize("name", ["table1", "figure1", "few-samples", "limit"])
def test_picture_of_samples_shows_elldict_in_its_colour(name):
    figure = EXPERIMENTS[name].section(make_results(name, QUICK), QUICK).picture.draw()
    lines = [line for axes in figure.axes for line in axes.lines if line.get_label() == "elldict"]
    assert {line.get_color() for line in lines} == {LOOKS["default"].colour}


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


def in_steps(cell):
    """Recover the dictionary from a number of samples that grows exponentially with p."""
    found = plausible(cell)
    if cell.task == "recovery" and cell.method == "lp":
        found["error"] = 1e-3 if cell.value("n_samples") > 40 * np.exp(cell.value("p")) else 0.5
    return found


def reverse(cell):
    """Make large p best, RTR worst, and K-SVD better for larger problems."""
    found, p, n = plausible(cell, 9 / (cell.value("p") or 9) ** 2), cell.value("p") or 9, cell.value("n_features")
    if cell.task == "recovery":
        found["error"] = {"lp": 0.5 / p, "rtr": 0.9, "ksvd": 1 / n, "default": 0.9}.get(cell.method, found["error"])
        if n == figure1.N:
            found["error"] = 1e-3 if cell.value("n_samples") > 40 * np.exp(9 - p) else 0.5
    return found


def set_error(cell, error):
    """Give all fits the same error."""
    found = plausible(cell)
    return found if cell.task == "population" else {**found, "error": error, "recognised": 1 - error}


def set_steps(cell, n_steps):
    """Let runs on the population take so many iterations."""
    if cell.task != "population":
        return plausible(cell)
    return {"errors": [float(10.0 ** (-14 * t / n_steps)) for t in range(n_steps + 1)]}


def as_printed(cell):
    """Return what the paper prints, or else theory."""
    name = f"l{cell.value('p')}" if cell.method == "lp" else cell.method
    for row in (*paper.TABLE_1, *paper.TABLE_2, *paper.TABLE_3):
        if recovery_table.make_setting(row) == dict(cell.setting) and name in row.printed:
            return {"error": row.printed[name].error, "n_iter": 10, "warnings": []}
    return plausible(cell)


def warn(cell):
    """Warn of fits that failed."""
    found = plausible(cell)
    if cell.task == "recovery":
        failed = found["error"] > 0.05
        found |= {"error": 0.8 if failed else 1e-3, "warnings": ["A"] if failed else []}
    return found


def scale(cell):
    """Let l_p be better and all else worse than theory."""
    return plausible(cell, 1e-4 * (cell.value("n_features") or 9) ** 2 if cell.method == "lp" else 3.0)


SLOW_BASELINES = {"rtr": 99.0, "ksvd": 50.0}
WORLDS = {  # values and seconds of a cell, in worlds that differ in everything that is claimed
    "theory": (plausible, lambda cell: SLOW_BASELINES.get(cell.method, float(cell.value("p") or 9))),
    "paper": (as_printed, lambda cell: {"rtr": 0.1, "ksvd": 0.1}.get(cell.method, 9.0 - (cell.value("p") or 0))),
    "reverse": (reverse, None),
    "scaled": (scale, None),
    "all found": (lambda cell: set_error(cell, 1e-7 if cell.method == "default" else 1e-4), None),
    "all failed": (lambda cell: set_error(cell, 0.7), None),
    "exact": (lambda cell: set_error(cell, 1e-8 if cell.method == "default" else 0.01), None),
    "in steps": (in_steps, None),
    "warnings": (warn, None),
    "few steps": (lambda cell: set_steps(cell, 9 if cell.method == "power" else 9 * cell.value("n_features")), None),
    "many steps": (lambda cell: set_steps(cell, 400 if cell.method == "power" else 80), None),
}


@pytest.mark.parametrize("name", sorted(set(EXPERIMENTS) - {"figure2"}))
def test_every_claim_holds_in_one_world_and_not_in_another(name):
    found = {}
    for values, seconds in WORLDS.values():
        results = make_results(name, FULL, values, seconds or (lambda cell: 1.0))
        for claim in EXPERIMENTS[name].section(results, FULL).claims:
            found.setdefault(claim.text, set()).add(claim.verdict)
    assert not {text: seen for text, seen in found.items() if Verdict.HOLDS not in seen or len(seen) < 2}


@pytest.mark.parametrize(
    ("held", "n_open", "verdict"),
    [
        ([], 0, Verdict.OPEN),
        ([True, True], 0, Verdict.HOLDS),
        ([True, True], 1, Verdict.PARTLY),
        ([True, False], 0, Verdict.PARTLY),
        ([True, False, False], 0, Verdict.FAILS),
    ],
)
def test_judge_counts_comparisons(held, n_open, verdict):
    assert judge("text", held, "found", n_open=n_open).verdict is verdict


def test_agreement_allows_the_rounding_of_the_print():
    assert recovery_table.agrees(0.00148, paper.Printed(".1", 1.0))
    assert not recovery_table.agrees(0.00152, paper.Printed(".1", 1.0))
    assert recovery_table.agrees(0.0108, paper.Printed("1.00", 1.0))
    assert not recovery_table.agrees(0.0118, paper.Printed("1.00", 1.0))


def test_samples_needed_are_interpolated_at_half_of_the_trials():
    assert figure1.measure_needs({100: 0.0, 400: 1.0}) == pytest.approx(200)
    assert figure1.measure_needs({100: 0.0, 400: 0.2}) is None
    needs = [figure1.compute_needs(p) for p in figure1.EXPONENTS]
    assert needs == sorted(needs)


def test_errors_that_differ_much_are_not_connected():
    points = [(0.0, 3e-7), (0.2, 1e-3), (0.4, 5e-3)]
    assert [x for x, _ in insert_gaps(points)] == [0.0, 0.1, 0.2, 0.4]
    assert insert_gaps(points[1:]) == points[1:]


def test_words_have_one_style():
    errors = {0.00056: "0.0560", 0.0021: "0.210", 0.0145: "1.45", 0.574: "57.4", 1.0: "100", 1e-12: "0"}
    assert [words.bare(error) for error in errors] == list(errors.values())
    assert words.bare(3e-6) == "<\u202f0.001"
    times = {0.05: "0.05\u202fs", 12.34: "12\u202fs", 600: "10\u202fmin", 7200: "2.0\u202fh"}
    assert [words.duration(seconds) for seconds in times] == list(times.values())
    assert [words.power_of_ten(exponent) for exponent in (0, -12)] == ["1", "10⁻¹²"]
    assert (words.span([1, 1.001]), words.span([2, 1])) == ("1.00", "1.00 to 2.00")


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
