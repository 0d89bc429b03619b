"""What chance alone can produce, which error bars and tests on codes ask."""

import math
import warnings

import numpy as np
import pytest

from elldict import LpDictionaryLearning
from elldict._old.theory import error_bars
from elldict.exceptions import NotIdentifiableWarning


def test_sparsity_score_of_gaussian_codes_is_standard_normal():
    """2000 scores: their mean has standard deviation .022, their variance .032; the bounds are five of each."""
    z = np.random.default_rng(0).standard_normal((1000, 2000))
    scores = error_bars.sparsity_score(np.mean(np.abs(z), axis=0), np.mean(z**2, axis=0), 1000)
    assert abs(np.mean(scores)) < 0.11
    assert abs(np.var(scores) - 1) < 0.16


@pytest.mark.parametrize(("n", "p"), [(16, 3), (40, 3), (40, 5)])
def test_a_search_in_pure_noise_stays_below_the_limit_of_chance(n, p):
    """And comes near it for p = 3: about 1.25 sqrt(n) of the 1 + 1.5 sqrt(n) allowed."""
    X = np.random.default_rng(n).standard_normal((3000, n))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        codes = LpDictionaryLearning(p=p, max_iter=100, random_state=0).fit_transform(X)
    scores = error_bars.sparsity_score(np.mean(np.abs(codes), axis=0), np.mean(codes**2, axis=0), 3000)
    assert np.max(scores) < error_bars.chance_score(n)
    if p == 3:
        assert 0.9 * math.sqrt(n) < np.max(scores) < 1.5 * math.sqrt(n)


def test_below_2_a_search_in_pure_noise_is_told_as_such():
    """It comes nearer to the limit, 1.45 sqrt(n): of 40 atoms one may pass it, but none that of any search."""
    X = np.random.default_rng(0).standard_normal((3000, 40))
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        model = LpDictionaryLearning(p=1, max_iter=100, refine=None, random_state=0).fit(X)
    assert any(issubclass(each.category, NotIdentifiableWarning) for each in told)
    codes = model.transform(X)
    scores = error_bars.sparsity_score(np.mean(np.abs(codes), axis=0), np.mean(codes**2, axis=0), 3000)
    assert np.max(scores) < 1 + 1.79 * math.sqrt(40)
    assert np.sum(scores > error_bars.chance_score(40)) <= 1
    assert model.expected_error_ > 0.5


def test_sampling_condition_is_that_of_white_noise():
    """Extreme eigenvalues fluctuate by n^(-2/3), here 3 % each, around their limit."""
    X = np.random.default_rng(0).standard_normal((2000, 200))
    assert np.linalg.cond(X.T @ X) == pytest.approx(error_bars.sampling_condition(2000, 200), rel=0.1)
    assert error_bars.sampling_condition(10, 10) == math.inf
