"""What is said of a fit: the same facts in a terminal, a notebook and on the command line."""

import warnings

import numpy as np
import pandas as pd
import pytest
from sklearn import config_context
from sklearn.exceptions import NotFittedError

from elldict import LpDictionaryLearning, LpICA
from elldict._old import cli
from elldict._old.summary import describe_fit, format_angle, format_error, format_error_and_angle, make_summary
from elldict.datasets import make_bernoulli_gaussian


@pytest.fixture(scope="module")
def exact(easy):
    return LpDictionaryLearning(random_state=0).fit(easy[0])


@pytest.fixture(scope="module")
def doubtful():
    """Named features, one of them far larger than the others, and atoms beyond the rank."""
    X, _, _ = make_bernoulli_gaussian(600, 6, density=0.3, noise_std=0.3, random_state=0)
    X = np.column_stack([X * [1, 1, 1, 1, 1, 40], X[:, 0]])
    names = ["<script>alert(1)</script>", "b & c", "$x$", "d", "e", "loud", "copy"]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return LpDictionaryLearning(random_state=0).fit(pd.DataFrame(X, columns=names))


def test_no_error_is_rounded_to_zero():
    assert format_error(0.0) == format_error(9e-10) == "exact"
    assert format_error(1.2e-7) == "1.2e-05 %"
    assert format_error(0.00094) == "0.094 %"
    assert format_error(0.9999) == "100 %"
    assert format_error(float("nan")) == "unknown"


def test_angles_are_those_of_the_page_on_errors():
    assert [format_angle(error) for error in (0.0001, 0.001, 0.01, 0.1)] == [
        "about 0.41 degrees",
        "about 1.3 degrees",
        "about 4.1 degrees",
        "about 13 degrees",
    ]
    assert format_angle(2 * np.radians(1) ** 2) == "about 1 degree"
    assert format_angle(0.9) == "23 degrees or more"
    assert format_error_and_angle(0.01) == "1 %, atoms are off by about 4.1 degrees"
    assert format_error_and_angle(0.0) == "exact"


def test_a_summary_holds_every_fact_and_the_first_atoms(exact):
    text = exact.summary()
    assert text == make_summary(exact)
    assert text.startswith("LpDictionaryLearning: 12 atoms of 12 features, learned from 4000 samples\n")
    for name, value in describe_fit(exact):
        assert f"  {name:<16}{value}" in text
    assert "... and 2 more" in text
    assert max(len(line) for line in text.splitlines()) <= 100
    rows = [line.split() for line in text.splitlines() if line.split()[1:2] == ["exact"]]
    assert [row[0] for row in rows[:10]] == [str(number) for number in range(10)]


def test_a_summary_names_features_doubts_and_what_is_not_known(doubtful):
    text = doubtful.summary()
    assert doubtful.warnings_
    for category, message in doubtful.warnings_:
        assert " ".join(f"{category}: {message}".split()) in " ".join(text.split())
    last = [line for line in text.splitlines() if line.strip().startswith("6 ")][-1]
    assert "unknown" in last
    assert "strongest features" in text
    strongest = doubtful.feature_names_in_[np.argmax(np.abs(doubtful.mixing_[:, 0]))]
    assert strongest in next(line for line in text.splitlines() if line.strip().startswith("0 "))


def test_estimators_that_are_not_fitted_have_none():
    with pytest.raises(NotFittedError):
        LpICA().summary()
    assert "Expected error" not in LpICA()._repr_html_()


def test_a_notebook_shows_the_fit_below_the_parameters(exact, doubtful):
    bundle = exact._repr_mimebundle_()
    assert bundle["text/html"].count("sk-top-container") >= 1
    assert "Expected error: exact" in bundle["text/html"]
    assert "Expected error: exact" in exact._repr_html_()
    assert "It has no warnings" in exact._repr_html_()
    shown = doubtful._repr_html_()
    assert "&lt;script&gt;alert(1)" in shown
    assert "<script>alert(1)" not in shown
    assert all(category in shown for category, _ in doubtful.warnings_)
    with config_context(display="text"):
        assert "text/html" not in exact._repr_mimebundle_()
        assert not hasattr(exact, "_repr_html_")


def test_ica_has_the_same(easy):
    model = LpICA(random_state=0).fit(easy[0])
    assert model.summary().startswith("LpICA: 12 atoms of 12 features")
    assert "learned from 4000 samples" in model._repr_html_()


def test_the_command_line_says_the_same(doubtful, exact, tmp_path, capsys):
    doubtful.save(tmp_path / "model.npz")
    assert cli.run(["info", str(tmp_path / "model.npz")]) == 0
    shown = capsys.readouterr().out
    facts = dict(describe_fit(doubtful))
    for name in ("status", "density", "noise", "expected error"):
        assert str(facts[name]) in shown
    for category, message in doubtful.warnings_:
        assert f"{category}: {message}" in shown
