"""Examples of the site: the quick ones run here and find what their pages say; none needs a network."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pytest

FOLDER = Path(__file__).parents[1] / "examples"


@pytest.fixture
def run_example(monkeypatch):
    """Run an example with nothing shown; returns its variables, and the number of its figures as `n_figures`."""
    drawn = []
    monkeypatch.setattr(plt, "show", lambda: drawn.extend(plt.get_fignums()) or plt.close("all"))

    def run(name):
        plt.switch_backend("agg")
        plt.close("all")  # what other tests have left open
        return runpy.run_path(str(FOLDER / f"{name}.py")) | {"n_figures": len(drawn)}

    yield run
    plt.close("all")


pytestmark = [pytest.mark.no_cover, pytest.mark.filterwarnings("ignore")]  # pages speak of the warnings of their fits


def test_sounds_are_found(run_example):
    found = run_example("plot_sounds")
    correlations = np.abs(np.corrcoef(found["sounds"].T, found["found"].T)[:5, 5:])
    assert sorted(found["partner"]) == [0, 1, 2, 3, 4]
    assert np.all(correlations.max(axis=1) > 0.98)
    assert found["n_figures"] == 1
    assert "data:audio/wav" in found["Players"]({"one": found["heard"][:, 0]})._repr_html_()


def test_unmixing_recovers_zeros_and_reaches_the_bound(run_example):
    found = run_example("plot_unmixing")
    assert np.std(found["shown"]) < 1e-12
    # means of 50 errors with a relative standard deviation of about one third each
    assert np.all(np.array(found["errors"]) < 1.4 * np.array(found["limit"]))
    assert found["n_figures"] == 2


def test_stream_with_a_change_warns_and_recovers(run_example):
    found = run_example("plot_stream")
    assert set(found["noticed"]) == set(found["models"])
    assert all(found["R"] < sample <= found["R"] + 4000 for sample in found["noticed"].values())
    assert all(errors[-1] < 0.001 for errors in found["true"].values())
    assert found["n_figures"] == 1


def test_axes_of_words_belong_together(run_example):
    found = run_example("plot_words")
    codes, place = found["codes"], found["place"]
    spline = codes[:, np.argmax(codes[place["spline"]])]
    strongest = [found["vocabulary"][i] for i in np.argsort(-spline)[:15]]
    assert {"knots", "cubic"} & set(strongest)
    assert found["n_figures"] == 1


def test_components_of_a_recording_are_those_of_the_head(run_example):
    pytest.importorskip("mne")
    found = run_example("plot_eeg")
    assert np.all(found["cosines"][:, :5].max(axis=0) > 0.97)
    blink = found["sources"]["blink"][2]
    before, after = (
        np.corrcoef(each.get_data(picks="Fp1")[0], blink)[0, 1] for each in (found["raw"], found["cleaned"])
    )
    assert abs(before) > 0.8
    assert abs(after) < 0.1
    assert found["n_figures"] == 2


def test_rotated_factors_are_simpler_and_have_errors(run_example):
    found = run_example("plot_rotation")
    squares = [loadings**2 for loadings in (found["found"].loadings, found["loadings"], found["peer"])]
    # Kaiser's criterion: variances of the squared loadings of unit rows, summed over factors
    rotated, before, peer = (np.sum(np.var(each / np.sum(each, axis=1, keepdims=True), axis=0)) for each in squares)
    assert rotated > before
    assert rotated >= peer - 1e-9  # of unit rows it is the maximum, which scikit-learn seeks for rows as they are
    assert found["found"].error_source == "observations"
    assert found["found"].standard_errors.shape == (30, 4)
    assert found["n_figures"] == 2


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.py")), ids=lambda path: path.stem)
def test_example_shows_a_picture_and_downloads_nothing(path):
    text = path.read_text(encoding="utf-8")
    assert "plt.show()" in text
    assert not re.search(r"\b(fetch\w*|urlopen|urlretrieve|data_path)\b", text)
