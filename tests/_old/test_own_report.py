"""A report on one's own fit: it shows errors and doubts, loads nothing, and fits a phone."""

import base64
import json
import re
import shutil
import subprocess
import sys
import warnings

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

from tests._old.helpers import Page

pytest.importorskip("matplotlib")
pytest.importorskip("jinja2")

import elldict
from elldict import LpDictionaryLearning, LpICA
from elldict._old import cli
from elldict._old.report.advice import advise
from elldict._old.report.assumptions import check_assumptions, measure_together
from elldict._old.report.own import count_grades
from elldict._old.report.style import LIGHT
from elldict._old.summary import describe_fit
from elldict.datasets import make_bernoulli_gaussian

HOSTILE = [
    "<script>alert(1)</script>",
    "</svg><img src=x>",
    "b & c",
    "$x$",
    "#4338ca",
    '"quoted"',
    "\u65e5\u672c\u8a9e",
]
PNG = b"\x89PNG\r\n\x1a\n"


@pytest.fixture(scope="module")
def samples():
    return make_bernoulli_gaussian(1500, 16, density=0.25, noise_std=0.1, random_state=0)[0]


@pytest.fixture(scope="module")
def clear(samples):
    return LpDictionaryLearning(random_state=0).fit(samples)


@pytest.fixture(scope="module")
def clear_html(clear, samples):
    return clear.report(samples)


@pytest.fixture(scope="module")
def doubtful_samples():
    """Named features, one far larger than the others and one a copy, so that an atom has no error."""
    X, _, _ = make_bernoulli_gaussian(600, 6, density=0.3, noise_std=0.3, random_state=0)
    return pd.DataFrame(np.column_stack([X * [1, 1, 1, 1, 1, 40], X[:, 0]]), columns=HOSTILE)


@pytest.fixture(scope="module")
def doubtful(doubtful_samples):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return LpDictionaryLearning(random_state=0, max_iter=3, solver="power").fit(doubtful_samples)


@pytest.fixture(scope="module")
def doubtful_html(doubtful, doubtful_samples):
    return doubtful.report(doubtful_samples)


def text_of(html):
    return " ".join("".join(Page(html).texts[0]).split())


# --- what it says -----------------------------------------------------------------------------------------------------


def test_the_page_holds_the_facts_of_the_fit(clear, clear_html):
    text = text_of(clear_html)
    for _, value in describe_fit(clear):
        assert " ".join(str(value).split()) in text
    assert "16 atoms in 1\u202f500 samples of 16 features" in clear_html
    assert "None of the 8 assumptions that were looked at is in doubt" in text
    assert "In doubt" not in text
    assert "elldict.stability(model, X)" in text
    assert [heading["id"] for heading in Page(clear_html).all("section")] == [
        "atoms", "sure", "assumptions", "codes", "convergence", "next", "made",
    ]  # fmt: skip


def test_doubts_are_shown_in_the_words_of_the_fit(doubtful, doubtful_html):
    text = text_of(doubtful_html)
    assert len(doubtful.warnings_) >= 3
    for category, message in doubtful.warnings_:
        assert category in text
        assert " ".join(message.split()) in text
    assert text.count("In doubt") >= 3
    assert "unknown" in text, "an atom beyond the rank has no error"
    assert "model.set_params(center=True, whiten=True).fit(X)" in text


def test_errors_are_stated_in_words():
    rows = count_grades(np.array([0.0, 0.005, 0.02, 0.05, 0.2, 0.9, np.nan]))
    assert [(words, count, which) for words, _, count, which in rows] == [
        ("exact", 1, "0"),
        ("within 4 degrees", 1, "1"),
        ("within 13 degrees", 2, "2\u20133"),
        ("within 23 degrees", 1, "4"),
        ("by more than that", 1, "5"),
        ("unknown", 1, "6"),
    ]
    errors = 10.0 ** np.random.default_rng(0).uniform(-12, 0, 500)
    assert sum(count for _, _, count, _ in count_grades(errors)) == 500, "each atom has one grade"


def test_exact_atoms_are_called_exact_and_never_zero(easy):
    text = text_of(LpDictionaryLearning(random_state=0).fit(easy[0]).report(easy[0]))
    assert "all atoms are exact" in text
    assert not re.search(r"\b0(\.0+)? ?%", text.replace("from 0 (exact) to 100 %", ""))


def test_advice_follows_from_what_was_found(clear, samples, doubtful, doubtful_samples):
    def list_steps(model, X):
        codes = (np.asarray(X) - model.mean_) @ model.unmixing_.T
        return [step.name for step in advise(model, check_assumptions(model, codes))]

    assert list_steps(clear, samples) == ["Find out which atoms come back", "Use them"]
    steps = list_steps(doubtful, doubtful_samples)
    assert steps[0] == "Centre and whiten"
    assert "Leave out atoms without codes" in steps, "one feature is a copy of another"
    assert "Find out which atoms come back" in steps


@pytest.fixture(scope="module")
def patches():
    """Samples without their means, with far more noise along some atoms than others, and a model with a threshold."""
    rng = np.random.default_rng(0)
    X = rng.laplace(size=(2000, 9)) * np.geomspace(1, 30, 9) @ np.linalg.qr(rng.standard_normal((9, 9)))[0]
    X -= X.mean(axis=1, keepdims=True)
    options = {"transform_algorithm": "hard_threshold", "transform_alpha": 67.5}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return X, LpDictionaryLearning(random_state=0, halves=False, refine=None, **options).fit(X)


def find_steps(model, X):
    codes = (X - model.mean_) @ model.unmixing_.T
    return {step.name: step for step in advise(model, check_assumptions(model, codes))}


def test_advice_for_patches_keeps_the_model_in_order(patches):
    """Followed, it leaves codes that are not zero; and it says which doubts are normal."""
    X, model = patches
    steps = find_steps(model, X)
    assert "no fault" in steps["Leave out atoms without codes"].why
    found = {"model": model, "X": X}
    exec(steps["Leave out atoms without codes"].code, found)
    assert found["atoms"].shape == (8, 9)
    assert found["codes"].shape == (2000, 8)
    whiten = steps["Centre and whiten"]
    assert "Not for patches" in whiten.why
    found["model"] = clone(model)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        exec(whiten.code, found)
    assert found["model"].whiten
    assert np.any(found["model"].transform(X) != 0)


def test_features_that_do_not_vary_are_told_from_sums(patches):
    X = np.column_stack([patches[0][:, :5], np.zeros(2000)])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = LpDictionaryLearning(random_state=0, halves=False, refine=None).fit(X)
    step = find_steps(model, X)["Drop features that do not vary"]
    found = {"X": X}
    exec(step.code, found)
    assert found["X"].shape == (2000, 5)


def test_the_samples_of_the_fit_are_as_large_as_those_of_the_fit(patches, clear, samples, tmp_path):
    rng = np.random.default_rng(1)
    large_mean = rng.laplace(size=(500, 4)) + 3
    others = [
        (LpICA(whiten=kind, random_state=0, halves=False).fit(large_mean), large_mean)
        for kind in ("unit-variance", "arbitrary-variance")
    ]
    for model, X in ((patches[1], patches[0]), (clear, samples), *others):
        model.save(tmp_path / "model.npz")
        for each in (model, elldict.load(tmp_path / "model.npz")):
            checks = check_assumptions(each, (X - each.mean_) @ each.unmixing_.T)
            found = next(check for check in checks if check.name == "These samples are like those of the fit")
            assert "1.00 times as large as those of the fit" in found.found


def test_codes_that_are_large_together_are_noticed():
    rng = np.random.default_rng(0)
    codes = rng.laplace(size=(4000, 10))
    # 45 squared correlations of mean 1 / r, and standard deviation sqrt(2 / 45) / r: the root of five of those is 0.016
    assert measure_together(codes) < 0.017
    assert measure_together(codes * rng.lognormal(size=(4000, 1))) > 0.2
    assert measure_together(codes[:, :1]) == measure_together(np.zeros((5, 3))) == 0


def test_samples_in_other_units_are_noticed(clear, samples):
    def find(X):
        checks = check_assumptions(clear, X @ clear.unmixing_.T)
        return next(check for check in checks if check.name == "These samples are like those of the fit")

    assert not find(samples).doubted
    assert find(1000 * samples).doubted
    assert find(samples / 10).doubted


# --- what it is -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["clear_html", "doubtful_html"])
def test_the_page_loads_nothing(name, request):
    html = request.getfixturevalue(name)
    page = Page(html)
    loaded = {"src", "srcset", "href", "xlink:href", "poster", "data", "action"}
    values = [value for _, attributes in page.elements for key, value in attributes.items() if key in loaded]
    assert values
    assert all(value.startswith(("data:image/png", "#")) for value in values)
    assert all(target.startswith("#") for target in re.findall(r"url\(\s*['\"]?([^)]*)", html))
    assert not {"script", "link", "iframe", "object", "embed"} & {tag for tag, _ in page.elements}
    assert "@import" not in html
    assert not re.search(r"/(home|root|tmp|usr|work)/", html), "an absolute path"


def test_names_are_text_and_nothing_else(doubtful_html):
    assert "<script" not in doubtful_html
    assert "<img src=x" not in doubtful_html
    text = text_of(doubtful_html)
    for name in ("</svg><i", "b & c", "$x$", '"quoted"', "\u65e5\u672c\u8a9e"):
        assert name in text


def test_drawings_are_there_for_both_widths_in_the_colours_of_the_page(clear_html, doubtful_html):
    for html, n_drawings, n_pictures in ((clear_html, 6, 1), (doubtful_html, 8, 0)):
        page = Page(html)
        assert len(page.all("svg")) == n_drawings
        pictures = [image["src"] for image in page.all("img")] + [source["srcset"] for source in page.all("source")]
        assert len(pictures) == len(set(pictures)) == 2 * n_pictures
        prefix = "data:image/png;base64,"
        assert all(base64.b64decode(uri.removeprefix(prefix), validate=True).startswith(PNG) for uri in pictures)
        for drawing in re.findall(r"<svg.*?</svg>", html, re.DOTALL):
            assert not set(LIGHT.variables.values()) & set(re.findall("#[0-9a-f]{6}", drawing)), "it would not go dark"
            assert "fill: #000000" not in drawing


def test_every_shape_of_samples_has_a_page(samples):
    model = LpICA(random_state=0).fit(samples)
    assert "Atoms" in model.report(samples, shape=(2, 8))
    assert "channel 3" in model.report(samples, names=[f"channel {k}" for k in range(16)])
    with pytest.raises(ValueError, match="product of 16"):
        model.report(samples, shape=(3, 3))
    with pytest.raises(NotFittedError):
        LpICA().report(samples)
    with pytest.raises(ValueError, match="15 features"):
        model.report(samples[:, :15])


def test_one_atom_has_a_page(samples):
    model = LpDictionaryLearning(1, random_state=0, refine=None).fit(samples)
    assert "there is one atom" in model.report(samples)


# --- where it comes from ----------------------------------------------------------------------------------------------


def test_a_model_from_a_file_gives_the_same_page(doubtful, doubtful_samples, doubtful_html, tmp_path):
    doubtful.save(tmp_path / "model.npz")
    assert elldict.load(tmp_path / "model.npz").report(doubtful_samples) == doubtful_html


def test_files_are_not_read_whole(clear, tmp_path, monkeypatch):
    X = make_bernoulli_gaussian(30_000, 16, density=0.25, random_state=1)[0]
    np.save(tmp_path / "X.npy", X)
    samples = elldict.open_samples(tmp_path / "X.npy")
    taken = []
    take = type(samples).take
    monkeypatch.setattr(type(samples), "take", lambda self, index: taken.append(len(index)) or take(self, index))
    monkeypatch.setattr(type(samples), "sum", lambda *args: pytest.fail("a pass over all samples"))
    page = clear.report(samples, tmp_path / "page.html")
    assert taken == [5000]
    assert "5000 of them, drawn at random" in page
    assert (tmp_path / "page.html").read_text(encoding="utf-8") == page


def test_the_command_writes_the_page(doubtful, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    X = np.random.default_rng(0).laplace(size=(800, 16))
    np.save("X.npy", X)
    LpICA(random_state=0).fit(X).save("model.npz")
    assert cli.run(["report", "model.npz", "X.npy", "-o", "page.html", "--shape", "4,4"]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    assert "Reported on 16 atoms" in out
    assert "page.html" in out
    assert (tmp_path / "page.html").read_text(encoding="utf-8").startswith("<!doctype html>")
    for wrong, words in (
        (["page.html"], "--force"),
        (["X.npy", "--force"], "also an input"),
        (["other.html", "--shape", "four"], "expected numbers with commas"),
        (["other.html", "--shape", "5,5"], "product of 16"),
    ):
        assert cli.run(["report", "model.npz", "X.npy", "-o", *wrong]) == 2
        assert words in " ".join(capsys.readouterr().err.split())


def test_without_the_packages_the_extra_is_named(clear, samples, monkeypatch):
    monkeypatch.setitem(sys.modules, "jinja2", None)
    with pytest.raises(ImportError, match=r"jinja2 is needed .*'\.\[plot\]' in a clone"):
        clear.report(samples)


# --- in a browser -----------------------------------------------------------------------------------------------------

PROBE = """<script>
addEventListener("load", () => {
  const { scrollWidth, clientWidth } = document.documentElement;
  const images = [...document.images].filter(image => image.offsetParent).map(image => image.naturalWidth > 50);
  const letters = [...document.querySelectorAll("svg text")].filter(text => text.getBoundingClientRect().width);
  const least = Math.min(...letters.map(text => text.getBoundingClientRect().height));
  parent.postMessage(JSON.stringify({ scrollWidth, clientWidth, images, least }), "*");
});
</script>"""
HOST = """<!doctype html><iframe src="probed.html" style="width: 390px; height: 3000px; border: 0"></iframe>
<script>addEventListener("message", event => {
  document.body.append(Object.assign(document.createElement("pre"), { id: "probe", textContent: event.data }));
});</script>"""


@pytest.mark.parametrize("name", ["clear_html", "doubtful_html"])
@pytest.mark.browser
def test_a_phone_shows_the_page_without_scrolling_sideways(name, tmp_path, request):
    browser = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if browser is None:
        pytest.skip("no chromium on the PATH")
    html = request.getfixturevalue(name)
    (tmp_path / "probed.html").write_text(html.replace("</body>", f"{PROBE}</body>"), encoding="utf-8")
    (tmp_path / "host.html").write_text(HOST, encoding="utf-8")  # a window cannot be as narrow, a frame can
    options = ["--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking"]
    options += ["--host-resolver-rules=MAP * ~NOTFOUND", f"--user-data-dir={tmp_path / 'profile'}"]
    options += ["--virtual-time-budget=5000", "--dump-dom", (tmp_path / "host.html").as_uri()]
    shown = subprocess.run([browser, *options], capture_output=True, text=True, timeout=120, check=True).stdout
    answers = json.loads(re.search(r'<pre id="probe">(.*?)</pre>', shown, re.DOTALL).group(1))
    assert answers["scrollWidth"] <= answers["clientWidth"] <= 390  # less, where a scroll bar takes room
    assert all(answers["images"])
    assert answers["least"] >= 8, "letters of a drawing, in pixels of a phone"
