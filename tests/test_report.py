"""Pages show what the model holds, load nothing, and replace no other file."""

import base64
import io
import re
from html.parser import HTMLParser

import numpy as np
import pandas as pd
import pytest

pytest.importorskip("matplotlib")
pytest.importorskip("jinja2")


from matplotlib.image import imread

from elldict import LpDictionaryLearning, LpICA
from elldict.datasets import make_bernoulli_gaussian
from elldict.report import demo
from elldict.report.figures import paint
from elldict.summary import format_error, list_facts

HOSTILE = ["<script>alert(1)</script>", "</style><img src=x>", "b & c", '"quoted"', "日本語", "e\x1b[2J"]


class Page(HTMLParser):
    """Elements and visible text of a page."""

    def __init__(self, html):
        super().__init__()
        self.elements, self.pieces = [], []
        self.feed(html)
        self.text = " ".join(" ".join(self.pieces).split())

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))

    def handle_data(self, data):
        self.pieces.append(data)


def decode(source):
    data = base64.b64decode(source.removeprefix("data:image/png;base64,"), validate=True)
    return np.round(255 * imread(io.BytesIO(data))[..., :3]).astype(int)


@pytest.fixture(scope="module")
def samples():
    return make_bernoulli_gaussian(3000, 12, density=0.3, noise_std=0.1, random_state=0)[0]


@pytest.fixture(scope="module")
def model(samples):
    return LpDictionaryLearning().fit(samples)


@pytest.fixture(scope="module")
def warned():
    """A model with hostile feature names and a warning."""
    X = pd.DataFrame(np.random.default_rng(0).standard_normal((500, 6)), columns=HOSTILE)
    with pytest.warns(UserWarning, match="not identifiable"):
        return LpICA().fit(X), X


def test_report_has_the_numbers_of_the_model(model, samples):
    text = Page(model.report(samples)).text
    for label, phrase in list_facts(model):
        assert f"{label} {phrase}" in text
    for i in range(12):
        error, density, scale = format_error(model.atom_error_[i]), model.density_[i], model.scale_[i]
        assert f"{i} {error} {100 * density:.3g} % {scale:.3g}" in text
    assert "The fit gave no warnings." in text


def test_report_has_the_variance_and_kurtosis_of_codes(samples):
    X = 5 + samples * np.arange(1, 13)
    model = LpICA(4, error_bars=False).fit(X)
    text, codes = Page(model.report(X)).text, model.transform(X)
    shares = np.sum(model.mixing_**2, axis=0) / np.sum(np.var(X, axis=0))
    explained = 1 - np.sum((X - model.inverse_transform(codes)) ** 2) / np.sum((X - X.mean(axis=0)) ** 2)
    assert f"The components explain {100 * explained:.3g} % of their variance" in text
    for i, kurtosis in enumerate(np.mean(codes**4, axis=0) - 3):
        density, scale = model.density_[i], model.scale_[i]
        row = f"{i} not estimated {100 * density:.3g} % {scale:.3g} {100 * shares[i]:.3g} % {kurtosis:.1f}"
        assert row in text


def test_report_shows_components_as_images(model):
    page = Page(model.report(shape=(3, 4)))
    images = [attrs["src"] for tag, attrs in page.elements if tag == "img"]
    np.testing.assert_array_equal(decode(images[3]), paint(model.components_[3].reshape(1, 3, 4))[0])


def test_report_shows_warnings_verbatim_and_escapes_names(warned):
    model, X = warned
    html = model.report(X)
    text = Page(html).text
    for category, message in model.warnings_:
        assert f"{category} {message}" in text
    for name in HOSTILE[2:5]:
        assert name in text
    assert not any(piece in html for piece in ("<script", "<img src=x", "\x1b"))


@pytest.mark.parametrize("shape", [None, (3, 2)])
def test_page_loads_nothing(warned, shape):
    model, X = warned
    page = Page(html := model.report(X, shape=shape))
    names = ("src", "srcset", "href", "xlink:href", "poster", "data", "action", "background")
    values = [attrs[name] for _, attrs in page.elements for name in names if name in attrs]
    assert values
    assert all(value.startswith(("data:image/png", "#")) for value in values)
    assert all(target.startswith("#") for target in re.findall(r"url\(\s*['\"]?([^)]*)", html))
    assert not {"script", "link", "iframe", "object", "embed"} & {tag for tag, _ in page.elements}
    assert "@import" not in html
    assert not re.search(r"/(home|root|tmp|usr|work)/", html)
    targets = {attrs["id"] for _, attrs in page.elements if "id" in attrs}
    assert {value[1:] for value in values if value.startswith("#")} <= targets


def test_report_replaces_no_other_file(model, samples, tmp_path):
    np.save(tmp_path / "samples.npy", samples)
    (tmp_path / "notes.html").write_text("<!doctype html><title>notes</title>")
    (tmp_path / "link.html").symlink_to(tmp_path / "samples.npy")
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}
    for path in before:
        with pytest.raises(FileExistsError, match="choose another name"):
            model.report(np.load(tmp_path / "samples.npy", mmap_mode="r"), path)
    assert {path: path.read_bytes() for path in tmp_path.iterdir()} == before
    with pytest.raises(FileNotFoundError):
        model.report(str(tmp_path / "page.html"))  # the first argument is X


def test_demo_shows_what_it_computed(monkeypatch):
    kept = []
    for name in ("recover", "separate"):
        compute = getattr(demo, name)
        monkeypatch.setattr(demo, name, lambda compute=compute, **sizes: kept.append(compute(**sizes)) or kept[-1])
    html = demo.make_demo(n_samples=4000, n_features=20, noise=(0.0, 0.3), n_patches=1500, n_components=12)
    text = Page(html).text
    (plain, exact), (_, best), signals = kept
    assert (format_error(exact.true), format_error(exact.estimated)) == ("exact", "exact")
    # the mean of 190 squared angles has a relative standard deviation of sqrt(2 / 190) = 0.1, its estimate a larger one
    assert [best.true, best.estimated] == pytest.approx([best.limit, best.true], rel=0.5)
    assert np.max(signals.angles) < 5
    for row in (plain, exact, best):
        assert " ".join(map(format_error, (row.true, row.estimated, row.limit))) in text
    for angle, error in zip(signals.angles, signals.estimated, strict=True):
        assert f"{angle:.2g}° {format_error(error)}" in text
