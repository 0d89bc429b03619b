"""The summary of a fitted model says what the result says, in plain characters."""

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
    assert (
        f"{np.sum(angles <= 15)} of 14 components within 15 degrees; estimated by fits to parts of the samples" in text
    )
    assert f"{100 * np.mean(noisy.density_):.3g} % are not zero" in text
    assert f"standard deviation {noisy.noise_std_:.2g}" in text
    assert "... and 4 more" in text
    assert "Warnings" not in text


def test_summary_shows_warnings_verbatim_and_no_control_characters(rng):
    X = pd.DataFrame(rng.standard_normal((400, 4)), columns=["a\x1b[2J", "b\nc", "\u202edcba", "d"])
    with pytest.warns(UserWarning, match="not identifiable"):
        model = LpICA().fit(X)
    ((category, message),) = model.warnings_
    model.warnings_ += (("UserWarning", "\x1b[2J"),)
    text = model.summary()
    assert f"{category}: {message}" in " ".join(text.split())
    assert all(character.isprintable() for line in text.split("\n") for character in line)
    assert "\\x1b[2J" in text
