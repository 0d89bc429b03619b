"""Errors stated by split halves: where they apply, that they hold, and that reports say what was done."""

import numpy as np
import pytest
from sklearn.datasets import load_digits

import elldict
from elldict import LpDictionaryLearning, LpICA
from elldict.datasets import make_bernoulli_gaussian
from elldict.metrics import match_atoms


def fit_digits(k):
    with pytest.warns(elldict.exceptions.NotIdentifiableWarning):
        return LpICA(k, random_state=0).fit(load_digits().data)


@pytest.mark.parametrize("ratio", [1, 10, 100])
@pytest.mark.filterwarnings("ignore::elldict.exceptions.NotIdentifiableWarning")
def test_fault_52_ica_of_sources_of_different_strength_states_the_error_of_mixing_columns(ratio):
    """Two strong and eight weak Laplace sources; the mean of 80 weak columns over 3 draws is known to about 20 %."""
    true, stated = [], []
    for seed in range(3):
        rng = np.random.default_rng(seed)
        mixing = np.linalg.qr(rng.standard_normal((10, 10)))[0] * np.r_[ratio, ratio, np.ones(8)]
        model = LpICA(random_state=0).fit(rng.laplace(size=(8000, 10)) @ mixing.T)
        columns, truth = (matrix.T / np.linalg.norm(matrix, axis=0)[:, None] for matrix in (model.mixing_, mixing))
        true.append(np.mean(1 - match_atoms(columns, truth).cosines ** 4))
        stated.append(model.expected_error_)
    assert 1 / 2.5 < np.mean(stated) / np.mean(true) < 2.5


@pytest.mark.parametrize("k", [20, 25])
def test_fault_53_error_bars_of_digits_include_what_halves_say(k):
    """Components of the digits that do not come back from half of the images are not stated to be precise."""
    model = fit_digits(k)
    assert np.median(model.atom_error_) > 0.05
    with np.errstate(all="ignore"), pytest.warns(elldict.exceptions.NotIdentifiableWarning):
        alone = LpICA(k, random_state=0, halves=False).fit(load_digits().data)
    assert np.all(model.atom_error_ >= alone.atom_error_)
    assert np.mean(model.atom_error_) > 1.5 * np.mean(alone.atom_error_)


def test_fault_54_report_says_whether_halves_were_fitted():
    X, _, _ = make_bernoulli_gaussian(2000, 8, density=0.3, noise_std=0.3, random_state=0)
    for options, words in ({}, "two halves of the samples"), ({"halves": False}, "no halves were fitted"):
        model = LpDictionaryLearning(random_state=0, **options).fit(X)
        assert words in model.report(X)


def test_halves_of_an_exact_answer_are_not_fitted():
    X, _, _ = make_bernoulli_gaussian(4000, 12, density=0.2, random_state=0)
    auto, never = (LpDictionaryLearning(random_state=0, halves=halves).fit(X) for halves in ("auto", False))
    assert auto.n_passes_ == never.n_passes_
    assert auto.expected_error_ < 1e-9


def test_halves_of_the_power_method_are_fitted_on_request_alone():
    X, _, _ = make_bernoulli_gaussian(2000, 8, density=0.3, noise_std=0.3, random_state=0)
    auto, never, always = (
        LpDictionaryLearning(solver="power", refine=None, random_state=0, halves=halves).fit(X)
        for halves in ("auto", False, True)
    )
    assert auto.n_passes_ == never.n_passes_ < always.n_passes_
