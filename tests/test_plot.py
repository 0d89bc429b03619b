"""Plots have the data they should."""

from types import SimpleNamespace

import numpy as np
import pytest

pytest.importorskip("matplotlib")

import matplotlib as mpl

mpl.use("Agg")
import matplotlib.pyplot as plt

from elldict import LpDictionaryLearning, LpICA, plot
from elldict.datasets import make_bernoulli_gaussian
from elldict.report.figures import make_histograms, paint
from elldict.summary import to_degrees


@pytest.fixture(scope="module")
def samples():
    return make_bernoulli_gaussian(2000, 12, density=0.3, noise_std=0.2, random_state=0)[0]


@pytest.fixture(scope="module")
def model(samples):
    return LpDictionaryLearning(normalize=None).fit(samples)


@pytest.fixture(autouse=True)
def close_figures():
    settings = dict(mpl.rcParams)
    yield
    assert dict(mpl.rcParams) == settings
    plt.close("all")


def test_atoms_as_images_have_their_pixels_numbers_and_errors(model):
    ax = plot.atoms(model, shape=(3, 4), which=[5, 2])
    assert len(ax.images) == 2
    np.testing.assert_array_equal(ax.images[0].get_array(), paint(model.components_[5].reshape(1, 3, 4))[0])
    assert f"2: {to_degrees(model.atom_error_[2]):.2g}°" in [text.get_text() for text in ax.texts]
    assert ax.get_title(loc="left") == "2 of 12 components"


def test_atoms_as_bars_show_the_largest_features_by_name(model):
    ax = plot.atoms(model, names=[f"$x_{{{k}}}$" for k in range(12)], which=[3])
    (panel,) = ax.child_axes
    entries = model.components_[3]
    largest = np.argsort(-np.abs(entries))[:8]
    np.testing.assert_allclose([bar.get_width() for bar in panel.patches], entries[largest])
    assert [text.get_text() for text in panel.texts] == [f"$x_{{{k}}}$" for k in largest]
    ax.figure.canvas.draw()  # such names are no mathematics


def test_errors_are_angles(model):
    ax = plot.errors(model, within=4)
    points = np.concatenate([line.get_xydata() for line in ax.lines[1:]])
    angles = to_degrees(model.atom_error_)
    np.testing.assert_allclose(points[np.argsort(points[:, 0]), 1], angles)
    assert ax.get_title(loc="left") == f"{np.sum(angles <= 4)} of 12 components within 4°"
    with pytest.raises(ValueError, match="within"):
        plot.errors(model, within=0)


def test_errors_of_exact_components_are_triangles_and_missing_ones_are_not_drawn(easy):
    ax = plot.errors(LpDictionaryLearning().fit(easy[0]))
    assert [(line.get_marker(), len(line.get_xdata())) for line in ax.lines[1:]] == [("o", 0), ("o", 0), ("v", 12)]
    ax = plot.errors(LpDictionaryLearning(solver="power", random_state=0).fit(easy[0]))
    assert not any(len(line.get_xdata()) for line in ax.lines[1:])
    assert ax.get_title(loc="left") == "Errors were not estimated"


@pytest.mark.parametrize("quantity", ["step", "objective"])
def test_convergence_has_one_line_per_stage(model, quantity):
    ax = plot.convergence(model, quantity=quantity)
    stages = sorted({iteration.stage for iteration in model.history_})
    assert len(ax.lines) == len(stages)
    for stage, line in zip(stages, ax.lines, strict=True):
        values = np.array([getattr(it, quantity) for it in model.history_ if it.stage == stage])
        np.testing.assert_allclose(line.get_ydata(), values - (values[-1] if quantity == "objective" else 0))


@pytest.mark.parametrize("normalize", [None, "samples"])
@pytest.mark.parametrize("noise_std", [0, 0.2])
def test_histograms_and_fitted_densities_agree(normalize, noise_std):
    X = make_bernoulli_gaussian(4000, 12, density=0.3, noise_std=noise_std, random_state=0)[0]
    model = LpDictionaryLearning(normalize=normalize, error_bars=False).fit(X)
    edges, found, fitted = make_histograms(model, X @ model.components_.T)
    width = edges[1] - edges[0]
    np.testing.assert_allclose(fitted.sum(axis=1) * width, 1, atol=0.01)
    # counts of a bin of probability q have standard deviation sqrt(r q): of 12 x 61, less than 5 are reached,
    # with 2 % of the peak more because the density is fitted in bins of its own
    allowed = 5 * np.sqrt((fitted * width + 1 / 4000) / 4000) + 0.02 * fitted * width
    assert np.all(np.abs(found - fitted) * width < allowed)


def test_codes_over_time_are_those_of_consecutive_samples(model, samples):
    (line,) = plot.codes(model, samples, over_time=True, first=100, n_samples=50, which=[2]).lines
    np.testing.assert_array_equal(line.get_xdata(), np.arange(100, 150))
    assert np.corrcoef(line.get_ydata(), model.transform(samples)[100:150, 2])[0, 1] > 0.999
    with pytest.raises(ValueError, match="2000 samples"):
        plot.codes(model, samples, over_time=True, first=2000)


def test_plots_draw_into_given_axes_also_for_one_component(samples):
    model, (_, axes) = LpICA(1).fit(samples), plt.subplots(1, 4)
    drawn = [plot.atoms(model, ax=axes[0]), plot.errors(model, ax=axes[1]), plot.convergence(model, ax=axes[2])]
    assert [*drawn, plot.codes(model, samples, ax=axes[3])] == list(axes)


def test_loadings_show_values_and_twice_their_errors(rng):
    values = rng.standard_normal((50, 2))
    found = SimpleNamespace(loadings=values, standard_errors=np.full((50, 2), 0.1), names=None, error_source="rows")
    panels = plot.loadings(found).child_axes
    rows = [int(label.get_text()) for label in panels[0].get_yticklabels()]
    kept = np.argsort(-np.sum(values**2, axis=1))[:40]
    assert sorted(rows) == sorted(kept)
    for factor, panel in enumerate(panels):
        np.testing.assert_allclose(panel.collections[1].get_offsets()[:, 0], values[rows, factor])
        lengths = [np.ptp(segment[:, 0]) for segment in panel.collections[0].get_segments()]
        np.testing.assert_allclose(lengths, 0.4)
    with pytest.raises(ValueError, match="one entry per row, 50"):
        plot.loadings(found, names=["a"])
