"""Documentation: the site builds without its gallery, fits a phone and needs no network; tables are those of stored
results; links lead to files; code and names are those of this version; and a wheel works in its own environment."""

from __future__ import annotations

import doctest
import inspect
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

import pytest

import elldict
from elldict.exceptions import NotIdentifiableWarning
from experiments import tables
from experiments.check_site import find_browser, list_pages, look

ROOT = Path(__file__).parents[1]
PLACEHOLDER = "Measured again with `make measure`."
"""In place of a table that has not been measured with this version."""


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The site without the pictures of examples, built as `make docs` does: warnings are errors."""
    pytest.importorskip("sphinx_gallery")
    pytest.importorskip("pydata_sphinx_theme")
    root = tmp_path_factory.mktemp("clone")
    ignored = shutil.ignore_patterns("auto_examples", "api", "__pycache__")
    for name in ("docs", "examples"):
        shutil.copytree(ROOT / name, root / name, ignore=ignored)
    for name in ("CHANGELOG.md", "CONTRIBUTING.md"):
        shutil.copy(ROOT / name, root / name)
    command = [sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going", "-D", "plot_gallery=0", "docs", "site"]
    path = {**os.environ, "PYTHONPATH": str(Path(elldict.__file__).parents[1])}  # the package that is tested
    result = subprocess.run(command, cwd=root, env=path, capture_output=True, text=True, check=False, timeout=300)
    assert result.returncode == 0, result.stderr[-3000:]
    return root / "site"


@pytest.mark.no_cover
def test_the_site_has_a_page_for_every_public_name_and_every_example(site):
    listed = {path.stem for path in (site / "api").glob("*.html")}
    modules = {"datasets", "exceptions", "metrics", "theory", "plot", "mne"}
    for name in set(elldict.__all__) - modules:
        assert f"elldict.{name}" in listed
    for module in modules & set(elldict.__all__):
        for name in getattr(elldict, module).__all__:
            assert f"elldict.{module}.{name}" in listed
    for path in (ROOT / "examples").glob("plot_*.py"):
        assert (site / "auto_examples" / f"{path.stem}.html").exists()


@pytest.mark.slow
@pytest.mark.no_cover
@pytest.mark.browser
def test_no_page_scrolls_sideways_on_a_phone_or_asks_the_network(site):
    browser = find_browser()
    if browser is None:
        pytest.skip("no chromium on the PATH")
    pages = [page for page in list_pages(site) if not page.startswith(("api/", "genindex", "py-modindex"))]
    assert len(pages) > 25
    assert [fault for seen in look(site, pages, browser) for fault in seen.faults] == []


@pytest.mark.browser
def test_the_browser_finds_what_is_wrong(tmp_path):
    browser = find_browser()
    if browser is None:
        pytest.skip("no chromium on the PATH")
    begin = "<!doctype html><meta name=viewport content='width=device-width'>"
    (tmp_path / "wide.html").write_text(f"{begin}<div style='width:600px'>wide</div>")
    (tmp_path / "asks.html").write_text(f"{begin}<img src='http://192.0.2.1/picture.png'><img src='none.png'>")
    (tmp_path / "good.html").write_text(f"{begin}<p>good</p>")
    asks, good, wide = look(tmp_path, list_pages(tmp_path), browser)
    assert good.faults == []
    assert "pixels wide in a window of 390" in wide.faults[0]
    assert any("asks for http://192.0.2.1/picture.png" in fault for fault in asks.faults)
    assert any("shows no" in fault and "none.png" in fault for fault in asks.faults)


def test_tables_of_pages_are_those_of_stored_results():
    texts = {page.name: page.read_text(encoding="utf-8") for page in tables.list_pages()}
    marked = {name: list(tables.MARKED.finditer(text)) for name, text in texts.items()}
    assert {name for name, found in marked.items() if found} >= {"README.md", "benchmarks.md", "limit.md", "ica.md"}
    for name, found in marked.items():
        for table in (match[0] for match in found if PLACEHOLDER not in match[0]):
            assert tables.fill(table) == table, f"{name} is not what is stored: run `python -m experiments.tables`"


def test_every_code_block_is_a_doctest():
    """Or is run by a test of its own, as that of the front page."""
    for page in {*tables.list_pages(), ROOT / "CONTRIBUTING.md"} - {ROOT / "docs" / "index.md"}:
        blocks = re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)
        assert [block for block in blocks if not block.startswith(">>> ")] == [], page.name


def test_code_of_contributing_runs():
    assert doctest.testfile(str(ROOT / "CONTRIBUTING.md"), module_relative=False).failed == 0


def test_decisions_of_a_fit_are_where_contributing_says():
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    decisions = re.findall(r"^\d\. `([\w/]+\.py):(\d+)`, `([^`]+)`", text, re.MULTILINE)
    assert len(decisions) == 7
    for name, number, code in decisions:
        lines = (Path(elldict.__file__).parent / name).read_text(encoding="utf-8").splitlines()
        found = [k for k, line in enumerate(lines, start=1) if code in line]
        assert len(found) == 1, code
        assert abs(found[0] - int(number)) <= 10, f"{code} is in line {found[0]} of {name}"


def test_warnings_and_errors_are_documented():
    listed = (ROOT / "docs" / "api.md").read_text(encoding="utf-8")
    described = (ROOT / "docs" / "warnings.md").read_text(encoding="utf-8")
    for name in elldict.exceptions.__all__:
        assert f"exceptions.{name}\n" in listed
        assert f"## {name}\n" in described or f"| `{name}`" in described


def test_pages_and_examples_use_existing_parameters_and_options():
    option = r"(?<![\w-])--?[a-z][\w-]*"
    known = set(re.findall(option, (ROOT / "tests" / "public_surface.txt").read_text(encoding="utf-8")))
    for page in [*tables.list_pages(), *(ROOT / "examples").glob("*.py")]:
        text = page.read_text(encoding="utf-8")
        for name, arguments in re.findall(r"\b(LpDictionaryLearning|LpICA)\(([^()]*)\)", text):
            parameters = inspect.signature(getattr(elldict, name)).parameters
            assert set(re.findall(r"\b(\w+)=", arguments)) <= set(parameters), f"{page.name}: {name}({arguments})"
        for line in re.findall(r"\belldict (?:fit|transform|score|report|info|export|demo)\b.*", text):
            assert set(re.findall(option, line)) <= known, f"{page.name}: {line}"


@pytest.mark.parametrize("page", ["README.md", "CONTRIBUTING.md", "CHANGELOG.md"])
def test_links_lead_to_files(page):
    text = (ROOT / page).read_text(encoding="utf-8")
    links = re.findall(r"\]\((?!https?:)([^)#]+)", text)
    assert links
    assert [link for link in links if not (ROOT / link).exists()] == []


def leave_out_numbers(text):
    """Leave out which atoms a warning names: another processor rounds otherwise."""
    return re.sub(r"[\d, ]+", " ", text)


def test_the_lines_of_the_front_page_run_and_print_what_it_says(capsys):
    text = (ROOT / "docs" / "index.md").read_text(encoding="utf-8")
    code, shown = (re.search(rf"```{kind}\n(.*?)```", text, re.DOTALL)[1] for kind in ("python", "text"))
    with pytest.warns(NotIdentifiableWarning) as warned:
        exec(code, {})
    printed = [float(word) for word in capsys.readouterr().out.split()]
    # digits are rounded to 0.01, and other libraries of linear algebra may move an error by as much again
    # ... and exchange two atoms of nearly equal size
    assert sorted(printed) == pytest.approx(sorted(float(word) for word in shown.split()), abs=0.02)
    quoted = re.search(r"a warning: \*(.+?) …\*", text)[1]
    assert len(warned) == 1
    assert leave_out_numbers(str(warned[0].message)).startswith(leave_out_numbers(quoted))


@pytest.mark.no_cover
@pytest.mark.parametrize("compiler", ["none", pytest.param("found", marks=pytest.mark.slow)], ids="compiler {}".format)
def test_a_wheel_works_in_an_environment_of_its_own(tmp_path, compiler):
    """Without a compiler as with one."""
    pytest.importorskip("scikit_build_core")
    bare = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}

    def run(*command, **options):
        options = {"env": bare, "cwd": tmp_path, "timeout": 120, **options}
        return subprocess.run(command, check=True, capture_output=True, text=True, **options).stdout.strip()

    pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
    environment = {**os.environ, "CXX": str(tmp_path / "none")} if compiler == "none" else None
    wheel = ["wheel", "--no-deps", "--no-index", "--no-build-isolation", "--wheel-dir", str(tmp_path), str(ROOT)]
    assert not run(*pip, *wheel, env=environment)
    venv.create(tmp_path / "env", with_pip=False)
    python = tmp_path / "env" / "bin" / "python"
    built = next(tmp_path.glob("elldict-*.whl"))
    run(*pip, "--python", str(python), "install", "--no-deps", "--no-index", str(built))
    own = run(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))")
    # dependencies are those of this environment, which come after the wheel
    Path(own, "dependencies.pth").write_text(sysconfig.get_path("purelib"))
    code = "import elldict, pathlib; print(pathlib.Path(elldict.__file__).parent); elldict.LpICA"
    assert Path(run(python, "-c", code)) == Path(own, "elldict")
    assert elldict.__version__ in run(tmp_path / "env" / "bin" / "elldict", "--version")
    if compiler == "none":
        assert built.name.endswith("py3-none-any.whl")
    assert not Path(own, "experiments").exists()
