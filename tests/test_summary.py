"""The summary of a fitted model says what the result says, in plain characters."""

import re

import numpy as np
import pandas as pd
import pytest

from elldict import LpDictionaryLearning, LpICA
from elldict.datasets import make_bernoulli_gaussian
from elldict.summary import format_error, to_degrees


@pytest.fixture(scope="module")
def noisy():
    X = make_bernoulli_gaussian(3000, 14, density=0.3, noise_std=0.1, random_state=0)[0]
    return LpDictionaryLearning().fit(X)


def test_to_degrees_inverts_the_error_of_an_angle():
    angles = np.array([0, 0.1, 5, 45, 80, 90])
    found = to_degrees(1 - np.cos(np.radians(angles)) ** 4)
    np.testing.assert_allclose(found, angles, atol=1e-5)  # an error near 0 has 16 digits after the point, an angle 8
    assert np.isnan(to_degrees(np.nan))


def test_format_error_names_exact_and_missing_errors():
    errors = 1 - np.cos(np.radians([0.001, 0.42, 12.4, 90])) ** 4
    assert [format_error(e) for e in (1e-15, *errors, np.nan)] == [
        "exact", "exact", "0.42°", "12°", "90°", "not estimated",
    ]  # fmt: skip


def test_summary_of_a_fit_has_its_numbers(noisy):
    text = " ".join(noisy.summary().split())
    angles = to_degrees(noisy.atom_error_)
    assert "14 components of 14 features, from 3,000 samples" in text
    assert f"converged: {noisy.status_}" in text
    assert f"iterations {noisy.n_iter_};" in text
    assert f"median {np.median(angles):.2g} degrees, largest {np.max(angles):.2g};" in text
    assert "estimated from the variation between samples" in text
    assert f"{100 * np.mean(noisy.density_):.3g} % are not zero" in text
    assert f"standard deviation {noisy.noise_std_:.2g}" in text
    assert "... and 4 more" in text
    assert "Warnings" not in text


def test_table_lists_components_in_the_order_of_the_model(noisy):
    rows = [line.split() for line in noisy.summary().splitlines() if re.match(r" *\d+ ", line)]
    np.testing.assert_allclose([float(row[1]) for row in rows], to_degrees(noisy.atom_error_[:10]), rtol=0.05)
    np.testing.assert_allclose([float(row[-1]) for row in rows], noisy.scale_[:10], rtol=0.005)


def test_summary_says_how_errors_were_found_whatever_the_parameters_are_now(easy):
    model = LpDictionaryLearning().fit(easy[0]).set_params(error_bars=False)
    found = "exact up to rounding; determined by the samples in which a code is zero"
    assert f"errors       {found}\n" in model.summary()
    model = LpDictionaryLearning(solver="power", random_state=0).fit(easy[0]).set_params(error_bars=True)
    assert "errors       not estimated\n" in model.summary()


def test_summary_shows_warnings_verbatim_and_no_control_characters(rng):
    X = pd.DataFrame(rng.standard_normal((400, 4)), columns=["a\x1b[2J", "b\nc", "\u202edcba", "d"])
    with pytest.warns(UserWarning, match="not identifiable"):
        model = LpICA().fit(X)
    text = model.summary()
    ((category, message),) = model.warnings_
    assert f"{category}: {message}" in " ".join(text.split())
    assert all(character.isprintable() for line in text.split("\n") for character in line)
    assert "\\x1b[2J" in text


def test_standardized_features_are_compared_in_standard_deviations(rng):
    sources = rng.laplace(size=(3000, 2))
    X = pd.DataFrame(sources @ [[3, 1], [-1, 3]] * [1, 1000], columns=["metres", "millimetres"])
    rows = [line for line in LpICA(standardize=True).fit(X).summary().splitlines() if "metres," in line]
    assert sorted(row.split("   ")[-1] for row in rows) == ["metres, millimetres", "millimetres, metres"]
