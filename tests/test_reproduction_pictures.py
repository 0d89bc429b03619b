"""Pictures of the report: a method has one colour wherever it is drawn, and elldict is wherever there are samples."""

from __future__ import annotations

import math

import pytest

pytest.importorskip("matplotlib")

from matplotlib.colors import to_hex

from elldict._old.report.style import DARK, LIGHT
from experiments.reproduction.catalogue import EXPERIMENTS
from experiments.reproduction.report.looks import LOOKS, NAMES, variables
from experiments.reproduction.tables.recovery_picture import with_gaps
from tests.reproduction_results import QUICK, results_of

WITHOUT_SAMPLES = {"figure2", "figure3", "figure4"}
"""Geometry, and runs on expectations: what elldict does beyond the power method needs samples."""


def drawn(name, palette, narrow=False):
    section = EXPERIMENTS[name].section(results_of(name, QUICK), QUICK)
    return [picture.draw(palette, narrow) for picture in section.pictures]


def labelled(figure):
    """Colours by label, of all lines that have one."""
    lines = [line for axes in figure.axes for line in axes.lines if not line.get_label().startswith("_")]
    return {(line.get_label(), to_hex(line.get_color())) for line in lines}


@pytest.mark.slow
@pytest.mark.parametrize("palette", [LIGHT, DARK], ids=["light", "dark"])
def test_a_method_has_one_colour_in_all_pictures(palette):
    found = set()
    for name in set(EXPERIMENTS) - {"figure2", "figure6"}:
        for figure in drawn(name, palette):
            found |= {(label, colour) for label, colour in labelled(figure) if label in NAMES}
    assert found == {(label, LOOKS[NAMES[label]].colour(palette)) for label, _ in found}
    assert {label for label, _ in found} >= {"elldict", "ℓ₃", "ℓ₄", "ℓ₅", "ℓ₆", "K-SVD", "RTR", "FastICA", "Picard"}


@pytest.mark.parametrize("palette", [LIGHT, DARK], ids=["light", "dark"])
def test_no_two_methods_share_a_colour(palette):
    colours = [look.colour(palette) for look in LOOKS.values()]
    assert len(set(colours)) == len(colours)
    assert variables(palette)["--method-default"] == palette.curves[1]


@pytest.mark.parametrize("name", sorted(set(EXPERIMENTS) - WITHOUT_SAMPLES))
def test_elldict_is_in_every_picture_of_samples(name):
    (figure,) = drawn(name, LIGHT, narrow=True)
    titles = " ".join(axes.get_title(loc="left") for axes in figure.axes)
    assert "elldict" in {label for label, _ in labelled(figure)} or "elldict: " in titles


def test_errors_that_leap_are_not_joined():
    """Else a line from exact to noisy would cross what is out of reach."""
    points = [(0.0, 3e-7), (0.2, 1e-3), (0.4, 5e-3)]
    shown = with_gaps(points)
    assert [x for x, _ in shown] == [0.0, 0.1, 0.2, 0.4]
    assert [error for _, error in shown if not math.isnan(error)] == [error for _, error in points]
    assert with_gaps(points[1:]) == points[1:]
