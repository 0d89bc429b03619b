"""Plots: they show what the model says, on axes given or made, and change nothing else."""

import doctest
import sys
import warnings
from pathlib import Path

import matplotlib as mpl
import numpy as np
import pandas as pd
import pytest
from sklearn.exceptions import NotFittedError

mpl.use("Agg")
import matplotlib.pyplot as plt

import elldict
from elldict import LpDictionaryLearning, LpICA
from elldict._old import plot
from elldict._old.report.atom_plots import choose_columns
from elldict._old.report.fit_plots import CodeLaws
from elldict._old.report.style import LIGHT
from elldict.datasets import make_bernoulli_gaussian


@pytest.fixture(autouse=True)
def closed():
    """No test leaves a figure open, and none changes a setting."""
    before = dict(mpl.rcParams)
    yield
    plt.close("all")
    assert dict(mpl.rcParams) == before


@pytest.fixture(scope="module")
def samples():
    return make_bernoulli_gaussian(1500, 16, density=0.25, noise_std=0.2, random_state=0)[0]


@pytest.fixture(scope="module")
def model(samples):
    return LpDictionaryLearning(random_state=0).fit(samples)


@pytest.fixture(scope="module")
def ica(samples):
    return LpICA(random_state=0).fit(samples)


def with_atoms(m, n):
    """A model of m atoms of n features, as a fit would leave it, without the fit."""
    rng = np.random.default_rng(0)
    model = LpDictionaryLearning()
    rows = np.linalg.qr(rng.standard_normal((n, m)))[0].T
    model._name_rows(rows, rows, np.zeros(n))
    model.n_components_, model.n_features_in_ = m, n
    model.atom_error_ = np.where(np.arange(m) % 7 == 6, np.nan, 10.0 ** -rng.uniform(0, 11, m))
    model.density_, model.scale_, model.noise_std_ = np.full(m, 0.3), np.ones(m), 0.1
    model.expected_error_, model.history_, model._mixture = 0.01, (), None
    model.converged_, model.n_iter_, model.n_passes_ = True, 0, 0.0
    return model


def draw_all(model, X):
    yield plot.atoms(model)
    yield plot.errors(model)
    yield plot.convergence(model)
    yield plot.convergence(model, quantity="objective")
    yield plot.codes(model, X)
    yield plot.codes(model, X, over_time=True)


def texts_of(ax):
    """Every text on axes and the panels within."""
    return [text.get_text() for text in ax.findobj(mpl.text.Text) if text.get_text()]


def pixels_of(figure):
    figure.canvas.draw()
    return np.asarray(figure.canvas.buffer_rgba())


# --- all of them ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["model", "ica"])
def test_each_makes_a_figure_of_its_own_and_draws_into_it(name, samples, request):
    figures = set()
    for ax in draw_all(request.getfixturevalue(name), samples):
        figures.add(ax.figure.number)
        assert ax.get_title(loc="left")
        assert len(np.unique(pixels_of(ax.figure).view(np.uint32))) > 20
    assert len(figures) == 6


def test_each_draws_where_it_is_told(model, samples):
    figure, panels = plt.subplots(2, 3)
    given = iter(panels.flat)
    for draw in (
        lambda ax: plot.atoms(model, ax=ax),
        lambda ax: plot.atoms(model, kind="bars", ax=ax),
        lambda ax: plot.atoms(model, kind="map", ax=ax),
        lambda ax: plot.errors(model, ax=ax),
        lambda ax: plot.convergence(model, ax=ax),
        lambda ax: plot.codes(model, samples, ax=ax),
    ):
        ax = next(given)
        assert draw(ax) is ax
    assert plt.get_fignums() == [figure.number]
    pixels_of(figure)


@pytest.mark.parametrize(("m", "n"), [(1, 9), (1, 16), (400, 400), (30, 33)])
def test_one_atom_or_400_and_errors_that_are_not_known(m, n):
    model = with_atoms(m, n)
    X = np.random.default_rng(1).standard_normal((50, n))
    for ax in draw_all(model, X):
        pixels_of(ax.figure)


def test_nothing_is_shown(model, samples, monkeypatch):
    monkeypatch.setattr(plt, "show", lambda *args, **kwargs: pytest.fail("show() was called"))
    list(draw_all(model, samples))


def test_models_that_are_not_fitted_are_refused(samples):
    for draw in (plot.atoms, plot.errors, plot.convergence, lambda model: plot.codes(model, samples)):
        with pytest.raises(NotFittedError):
            draw(LpICA())


def test_without_matplotlib_the_extra_is_named(model, samples, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    for draw in (plot.atoms, plot.errors, plot.convergence, lambda model: plot.codes(model, samples)):
        with pytest.raises(ImportError, match=r"matplotlib is needed .*'\.\[plot\]' in a clone"):
            draw(model)


# --- atoms ------------------------------------------------------------------------------------------------------------


def test_images_are_chosen_by_shape_names_and_squares(model):
    assert plot.choose_kind("auto", None, None, 64) == ("images", (8, 8))
    assert plot.choose_kind("auto", None, ["a"] * 64, 64)[0] == "bars"
    assert plot.choose_kind("auto", (4, 16), ["a"] * 64, 64) == ("images", (4, 16))
    assert plot.choose_kind("auto", (4, 4, 3), None, 48) == ("images", (4, 4, 3))
    assert plot.choose_kind("auto", None, None, 300)[0] == "map"
    assert plot.choose_kind("auto", None, None, 9)[0] == "map", "three pixels a side are no image"


def test_an_image_shows_its_atom_in_two_colours(model):
    ax = plot.atoms(model, which=[3])
    (image,) = ax.get_images()
    sheet, atom = np.asarray(image.get_array()), model.components_[3].reshape(4, 4)
    step = sheet.shape[1] // 4
    largest = np.unravel_index(np.argmax(np.abs(atom)), atom.shape)
    colour = sheet[largest[0] * step + 1, largest[1] * step + 1, :3]
    expected = np.array(mpl.colors.to_rgb(LIGHT.positive)) * 255  # the largest entry is positive
    np.testing.assert_allclose(colour, expected, atol=3)
    assert any(text.startswith("3: ") for text in texts_of(ax))


def test_colour_images_keep_their_colours():
    model = with_atoms(2, 48)
    model.components_[0] = 0
    model.components_[0, 0] = 1.0  # the red of the first pixel
    ax = plot.atoms(model, shape=(4, 4, 3), which=[0])
    sheet = np.asarray(ax.get_images()[0].get_array())
    np.testing.assert_array_equal(sheet[0, 0, :3], [255, 128, 128])


def test_an_atom_of_zeros_is_blank():
    model = with_atoms(2, 16)
    model.components_[0] = 0
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for kind in ("images", "bars", "map"):
            pixels_of(plot.atoms(model, kind=kind).figure)


def test_bars_name_the_strongest_features_as_they_are_written():
    rng = np.random.default_rng(0)
    names = ["$x$", "$\\frac{", "<b>", "a_b^c", "long" * 9, "\u65e5\u672c", *"ghijklmnop"]
    X = pd.DataFrame(make_bernoulli_gaussian(600, 16, density=0.3, random_state=0)[0], columns=names)
    model = LpDictionaryLearning(random_state=0).fit(X)
    model.components_[0] = 0
    model.components_[0, :8] = [8, -7, 6, -5, 4, 3, 2, rng.uniform()]
    ax = plot.atoms(model)
    panel = ax.child_axes[0]
    shown = [text.get_text() for text in panel.texts]
    assert shown == [
        "$x$",
        "$\\frac{",
        "<b>",
        "a_b^c",
        next(name for name in shown if name.endswith("\u2026")),
        "\u65e5\u672c",
        "g",
        "h",
    ]
    assert 8 <= len(shown[4]) < 36
    assert [bar.get_width() for bar in panel.patches[:2]] == [8, -7]
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph")  # of a font that has no such letters
        pixels_of(ax.figure)
    assert len(ax.child_axes) == 12


def test_names_can_be_given(model):
    panel = plot.atoms(model, names=[f"channel {k}" for k in range(16)], which=[5]).child_axes[0]
    assert panel.texts[0].get_text() == f"channel {np.argmax(np.abs(model.components_[5]))}"


def test_ica_draws_what_makes_samples_not_what_makes_codes(ica):
    panel = plot.atoms(ica, kind="bars", which=[0]).child_axes[0]
    assert panel.texts[0].get_text() == str(np.argmax(np.abs(ica.mixing_[:, 0])))


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"kind": "pictures"}, "kind='pictures'"),
        ({"shape": (3, 5)}, "product of 16"),
        ({"shape": (2, 2, 4)}, "h, w, 3"),
        ({"names": ["a"]}, "one for each of 16"),
        ({"which": [16]}, "from 0 to 15"),
        ({"which": [-1]}, "from 0 to 15"),
        ({"which": [0.5]}, "numbers of atoms"),
        ({"which": []}, "numbers of atoms"),
    ],
)
def test_mistakes_are_named(model, wrong, message):
    with pytest.raises(ValueError, match=message):
        plot.atoms(model, **wrong)
    assert not plt.get_fignums(), "a figure was left behind"


def test_features_that_are_no_square_need_a_shape():
    with pytest.raises(ValueError, match="no square image"):
        plot.atoms(with_atoms(3, 20), kind="images")


@pytest.mark.parametrize("n", [1, 2, 7, 12, 40, 64, 100, 399, 400])
def test_grids_hold_all_cells_and_leave_few_empty(n):
    n_columns = choose_columns(n, 1.5)
    assert 1 <= n_columns <= n
    assert -n % n_columns <= max(1, n_columns // 2)


# --- errors, convergence, codes ---------------------------------------------------------------------------------------


def test_errors_are_drawn_where_they_are():
    model = with_atoms(4, 16)
    model.atom_error_ = np.array([0.02, 0.5, 1e-12, np.nan])
    ax = plot.errors(model)
    drawn = {(line.get_marker(), x): y for line in ax.lines for x, y in zip(*line.get_data(), strict=True)}
    assert drawn["o", 0] == pytest.approx(2)
    assert drawn["o", 1] == pytest.approx(50)
    assert drawn["v", 2] < 2, "exact ones stand at the foot"
    assert drawn["x", 3] == 100
    assert ax.get_title(loc="left") == "2 of 4 atoms are known to within 13 degrees"
    assert "exact" in [label.get_text() for label in ax.get_yticklabels()]
    assert "1 not known (x)" in " ".join(texts_of(ax))
    assert plot.errors(model, within=0.01).get_title(loc="left").startswith("1 of 4")
    with pytest.raises(ValueError, match="within=0"):
        plot.errors(model, within=0)


def test_convergence_draws_every_iteration_and_tells_phases_apart(samples):
    model = LpDictionaryLearning(random_state=0, n_init=2, refine=None).fit(samples)
    ax = plot.convergence(model)
    drawn = np.concatenate([line.get_ydata() for line in ax.lines])
    np.testing.assert_allclose(drawn, [max(it.step, 1e-16) for it in model.history_])
    assert len(ax.lines) == len({(it.start, it.stage) for it in model.history_}) > 1
    assert "start 1" in texts_of(ax)
    values = np.concatenate([line.get_ydata() for line in plot.convergence(model, quantity="objective").lines])
    np.testing.assert_allclose(values, [it.objective for it in model.history_])
    with pytest.raises(ValueError, match="quantity='time'"):
        plot.convergence(model, quantity="time")


def test_series_are_codes_of_consecutive_samples(model, samples, tmp_path):
    np.save(tmp_path / "X.npy", samples)
    (one,) = plot.codes(model, tmp_path / "X.npy", over_time=True, first=100, n_samples=50, which=[2]).lines
    np.testing.assert_array_equal(one.get_xdata(), np.arange(100, 150))
    code = model.transform(samples)[100:150, 2]
    assert np.corrcoef(one.get_ydata(), code)[0, 1] < -0.99, "upwards is negative on this axis"


@pytest.mark.parametrize("refine", ["bernoulli-gaussian", "mixture"])
def test_the_law_that_is_drawn_is_a_density_and_that_of_the_codes(samples, refine):
    model = LpDictionaryLearning(random_state=0, refine=refine).fit(samples)
    edges = np.linspace(-40, 40, 4001)
    laws = plot.read_laws(model)
    density = laws.make_density(0, edges)
    assert np.sum(density * np.diff(edges)) == pytest.approx(1, abs=0.01)
    middles = (edges[1:] + edges[:-1]) / 2
    std = np.sqrt(np.sum(density * middles**2 * np.diff(edges)))
    # 1500 codes of kurtosis up to 12: their variance is known to sqrt(11 / 1500) = 9 %, its root to half of that
    assert std == pytest.approx(np.std(model.transform(samples)[:, 0]), rel=0.15)


def test_codes_that_are_exactly_zero_have_a_law_too():
    laws = CodeLaws(np.array([0.25, 0.0]), np.array([1.0, 0.0]), 0.0, None)
    edges = np.linspace(-6, 6, 98)
    mass = laws.make_density(0, edges) * np.diff(edges)
    assert mass[48] == pytest.approx(0.75 + 0.25 * 0.0493, abs=1e-3)  # the bin around zero, 0.0619 to either side
    assert laws.make_density(1, edges) is None


def test_codes_with_a_value_that_is_missing_are_refused(model, samples):
    X = samples.copy()
    X[7, 3] = np.nan
    with pytest.raises(ValueError, match="NaN in sample 7, feature 3"):
        plot.codes(model, X[:50], over_time=True, first=2)


def test_codes_of_other_samples_are_refused(model, samples):
    with pytest.raises(ValueError, match="15 features"):
        plot.codes(model, samples[:, :15])
    with pytest.raises(ValueError, match="among the 1500"):
        plot.codes(model, samples, over_time=True, first=1500)


def test_stability_is_drawn_by_the_same_function(samples):
    found = elldict.stability(LpDictionaryLearning(4, whiten="all"), samples[:600], n_splits=1, random_state=0)
    _, (one, other) = plt.subplots(1, 2)
    assert plot.stability(found, ax=one) is one
    assert found.plot(ax=other) is other
    assert one.get_title(loc="left") == other.get_title(loc="left")
    assert [line.get_xydata().tolist() for line in one.lines] == [line.get_xydata().tolist() for line in other.lines]


def test_the_page_about_plots_does_what_it_says(tmp_path, monkeypatch):
    page = Path(__file__).parents[2] / "docs" / "plots.md"
    monkeypatch.chdir(tmp_path)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = doctest.testfile(str(page), module_relative=False, optionflags=doctest.ELLIPSIS)
    assert found.attempted > 5
    assert found.failed == 0
    assert (tmp_path / "page.html").exists()
