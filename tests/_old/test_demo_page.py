"""The demo: its numbers are right, and its page shows them and loads nothing."""

from __future__ import annotations

import base64
import re
import warnings
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests._old.helpers import Page

pytest.importorskip("matplotlib")
pytest.importorskip("jinja2")

from elldict._old import cli
from elldict._old.backend.base import NUMPY
from elldict._old.report import demo as demo_module
from elldict._old.report.demo import FULL, QUICK, Demo, compute_demo, draw_picture, render_page, round_up_to_tenth
from elldict._old.report.studies import (
    EXACT,
    EXPECTED_WARNINGS,
    DigitsSetting,
    catch_expected_warnings,
    split_digits,
)
from elldict._old.report.style import LIGHT
from elldict._old.transform import keep_largest

PNG = b"\x89PNG\r\n\x1a\n"


@pytest.fixture(scope="module")
def told() -> list[tuple[str, float]]:
    return []


@pytest.fixture(scope="module")
def results(told) -> Demo:
    return compute_demo(QUICK, lambda doing, share: told.append((doing, share)))


@pytest.fixture(scope="module")
def html(results) -> str:
    return render_page(results)


@pytest.fixture(scope="module")
def page(html) -> Page:
    return Page(html)


# --- numbers ----------------------------------------------------------------------------------------------------------


def test_the_search_starts_far_from_the_truth_and_ends_where_theory_says(results):
    for row in results.recoveries:
        assert row.errors[0] > 0.8, "the start knows the answer"
        assert row.errors[-1] == row.error
        assert len(row.errors) == row.n_iter + 1
        assert row.error == pytest.approx(row.expected_error, rel=0.25)
    errors = [row.error for row in results.recoveries]
    assert errors == sorted(errors), "a smaller p is more accurate"


def test_the_refined_answer_goes_on_from_the_plain_one_and_is_exact(results):
    plain, refined = results.recoveries[0], results.refined
    np.testing.assert_allclose(refined.errors[: plain.n_iter], plain.errors[: plain.n_iter], atol=1e-6)
    assert plain.refined is None
    assert refined.refined == "bernoulli-gaussian"
    assert refined.n_iter > plain.n_iter
    assert 0 <= refined.error < EXACT
    # twice the sum of what n - 1 angles vary by, (E g_i^2 E z_j^2 + E g_j^2 E z_i^2 - 2 E g_i z_i E g_j z_j) / (r c^2),
    # c = 2 (1 - density); g = z where codes are active and 0 elsewhere, so what is left of two differences of products
    # of two means each is their rounding: of four factors, each a mean of float32 values of one sign, by eps / 2
    setting, eps = QUICK.recovery, float(np.finfo(np.float32).eps)
    angle = 2 * 4 * (eps / 2) / (setting.n_samples * (2 * (1 - setting.density)) ** 2)
    assert refined.error_bar < 2 * (setting.n_features - 1) * angle


def test_error_bars_tell_the_truth_with_and_without_noise(results):
    # an error is the mean of n (n-1) / 2 squared angles: its relative deviation is sqrt(4 / 870) = 7 % at n = 30
    assert all(row.error_bar == pytest.approx(row.error, rel=0.25) for row in results.recoveries)
    assert [trial.noise_std for trial in results.trials] == list(QUICK.noise.noise_stds)
    for trial in results.trials:
        assert trial.plain.error_bar == pytest.approx(trial.plain.error, rel=0.25)
        assert trial.refined.error_bar == pytest.approx(trial.refined.error, rel=0.25, abs=EXACT)
        assert trial.refined.error == pytest.approx(trial.limit, rel=0.25, abs=EXACT)
        assert trial.refined.error < trial.plain.error


def test_overlaps_end_as_a_diagonal(results):
    overlaps = results.recoveries[0].overlaps
    n = results.size.recovery.n_features
    assert overlaps.shape[1:] == (n, n)
    np.testing.assert_allclose(overlaps[-1], np.eye(n), atol=0.1)
    assert np.abs(overlaps[0] - np.eye(n)).max() > 0.5
    np.testing.assert_allclose(np.sum(overlaps**2, axis=2), 1, atol=1e-4, err_msg="both bases are orthonormal")


def test_the_numbers_of_the_paper_belong_to_its_setting_alone():
    assert FULL.recovery.paper_error(3.0) == pytest.approx(0.00094)
    assert replace(FULL.recovery, n_samples=20_000).paper_error(3.0) is None
    assert QUICK.recovery.paper_error(3.0) is None


def test_digits_are_rebuilt_better_by_freer_choices(results):
    first, pca, l4, l3, white = (row.error for row in results.digits.reconstructions)
    assert first > pca > l4 > l3 > white > 0


def test_no_image_is_both_learned_from_and_rebuilt(results):
    split = split_digits(QUICK.digits)
    assert len(split.train) + len(split.test) == 1797
    assert len(split.test) == results.digits.n_test
    train = {image.tobytes() for image in split.train}
    assert not train & {image.tobytes() for image in split.test}


def test_an_error_is_the_share_of_the_variation_that_is_lost():
    split = split_digits(DigitsSetting(n_train=1000, max_iter=1, tol=1.0, seed=1))
    mean = np.broadcast_to(split.train.mean(axis=0), split.test.shape)
    assert split.measure("", "", mean, learned=False).error == pytest.approx(1)
    assert split.measure("", "", (mean + split.test) / 2, learned=False).error == pytest.approx(1 / 4)


def test_keep_largest():
    codes = np.array([[1.0, -3, 2], [0, 0.5, -0.1]])
    np.testing.assert_array_equal(keep_largest(codes, NUMPY.xp, 1), [[0, -3, 0], [0, 0.5, 0]])


def test_expected_warnings_are_written_down_and_others_passed_on(results, recwarn):
    caught = {}
    with catch_expected_warnings(caught, "a fit"):
        warnings.warn("expected", EXPECTED_WARNINGS[0], stacklevel=1)
        warnings.warn("another", RuntimeWarning, stacklevel=1)
    assert [str(warning.message) for warning in recwarn] == ["another"]
    assert caught == {(EXPECTED_WARNINGS[0].__name__, "expected"): ["a fit"]}
    assert {"RankWarning", "NotWhiteWarning"} <= {category for category, _ in results.digits.warnings}


def test_progress_never_goes_back_and_ends_at_one(results, told):
    shares = [share for _, share in told]
    assert shares == sorted(shares)
    assert (shares[0], shares[-1]) == (0, 1)
    assert len({doing for doing, _ in told}) >= 7


# --- page -------------------------------------------------------------------------------------------------------------


def test_the_table_holds_the_computed_numbers(html, results):
    table = re.search(r'<table id="recovery">.*?</table>', html, re.DOTALL).group()
    *rows, refined = [Page(row).text_of("td") for row in re.findall(r"<tr>.*?</tr>", table, re.DOTALL)[1:]]
    assert refined[:3] == ["exact", "exact", "0\u202f%"]
    assert refined[4] == str(results.refined.n_iter)
    assert len(rows) == len(results.recoveries)
    for (measured, bar, theory, paper, n_iter, seconds), row in zip(rows, results.recoveries, strict=True):
        assert measured == f"{100 * row.error:.3f}\u202f%"
        assert bar == f"{100 * row.error_bar:.3f}\u202f%"
        assert theory == f"{100 * row.expected_error:.3f}\u202f%"
        assert paper == "\u2013"
        assert n_iter == str(row.n_iter)
        assert float(seconds) == pytest.approx(row.seconds, abs=0.006)


def test_every_figure_is_there_with_a_caption(page, results):
    n_pictures = 4 + 2 + 1 + len(results.digits.reconstructions)  # film, atoms, originals and rebuilt digits
    assert len(page.all("img")) == len(page.all("source")) == n_pictures
    assert all(image["alt"] for image in page.all("img"))
    sources = [image["src"] for image in page.all("img")] + [source["srcset"] for source in page.all("source")]
    prefix = "data:image/png;base64,"
    assert all(base64.b64decode(source.removeprefix(prefix), validate=True).startswith(PNG) for source in sources)
    assert len(set(sources)) == len(sources), "each picture differs, and differs between light and dark"
    assert [svg["role"] for svg in page.all("svg")] == ["img"] * 4
    assert len(page.text_of("figure")) == len(page.text_of("figcaption")) == 7
    assert all(len(caption) > 80 for caption in page.text_of("figcaption"))


def test_the_page_loads_nothing(html, page):
    loaded = {"src", "srcset", "href", "xlink:href", "poster", "data", "action"}
    values = [(name, value) for _, attrs in page.elements for name, value in attrs.items() if name in loaded]
    assert values
    assert all(value.startswith(("data:image/png", "#")) for _, value in values)
    assert all(target.startswith("#") for target in re.findall(r"url\(\s*['\"]?([^)]*)", html))
    assert not {"script", "link", "iframe", "object", "embed"} & {name for name, _ in page.elements}
    assert "@import" not in html
    assert "@font-face" not in html


def test_drawings_take_their_colours_from_the_page(html):
    drawings = re.findall(r"<svg.*?</svg>", html, re.DOTALL)
    curves = {"var(--curve-0)", "var(--curve-1)", "var(--curve-2)", "var(--ink)"}
    dots = {"var(--curve-0)", "var(--ink)", "var(--line)"}
    for drawing, colours in zip(drawings, (curves, curves, dots, dots), strict=True):
        assert colours <= set(re.findall(r"var\(--[a-z0-9-]+\)", drawing))
        assert not set(LIGHT.variables.values()) & set(re.findall("#[0-9a-f]{6}", drawing)), "it would not go dark"
    generic = ("figure", "axes", "patch", "line", "text", "matplotlib", "xtick", "ytick")
    names = [name for drawing in drawings for name in set(re.findall(r' id="([^"]+)"', drawing))]
    own = [name for name in names if not name.startswith(generic)]
    assert len(own) == len(set(own)), "two drawings share a name"


def test_the_page_names_its_numbers_and_its_making(html, page, results):
    text = " ".join("".join(page.texts[0]).split())
    last = results.trials[-1]
    for share in (last.plain.error, last.plain.error_bar, last.refined.error, last.refined.error_bar, last.limit):
        assert f"{100 * share:.2f} %" in text
    for row in results.digits.reconstructions:
        assert f"{100 * row.error:.1f} %" in text
    for category, message in results.digits.warnings:
        assert category in text
        assert " ".join(message.split()) in text
    machine = results.machine
    for fact in ("elldict demo --quick", machine.elldict, machine.python, machine.numpy, machine.system):
        assert fact in text
    assert not re.search(r"/(home|root|tmp|usr|work)/", html), "an absolute path"


def test_what_is_within_is_within():
    assert [round_up_to_tenth(x) for x in (1.501, 1.5, 1.59)] == ["1.6", "1.5", "1.6"]


def test_the_picture_is_a_white_png_of_1400_pixels(results):
    png = draw_picture(results)
    assert png.startswith(PNG)
    assert int.from_bytes(png[16:20]) == 1400
    assert len(png) < 400_000


def test_the_command_writes_the_page_and_prints_the_table(results, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(demo_module, "compute_demo", lambda size, report: _told(report, results, size))
    assert cli.run(["demo", "--quick", "--picture", "demo.png"]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    for row in results.recoveries:
        assert f"{100 * row.error:.3f}" in out
        assert f"{100 * row.error_bar:.3f}" in out
        assert f"{100 * row.expected_error:.3f}" in out
    for trial in results.trials:
        assert f"{100 * trial.refined.error:.3f} (error bar {100 * trial.refined.error_bar:.3f})" in out
    assert Path("elldict-demo.html").read_text(encoding="utf-8") == render_page(results)
    assert Path("demo.png").read_bytes().startswith(PNG)
    assert cli.run(["demo", "--quick"]) == 2, "it is there already"
    assert cli.run(["demo", "--quick", "--force"]) == 0


def _told(report, results, size):
    assert size is QUICK
    report("drawing", 1.0)
    return results
