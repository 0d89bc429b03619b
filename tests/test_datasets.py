"""Synthetic samples have the law they promise."""

import numpy as np
import pytest

from elldict.datasets import make_bernoulli_gaussian


def test_codes_are_bernoulli_gaussian():
    """200 000 codes: the share of active ones has standard deviation .001, their variance .006; five of each."""
    X, dictionary, codes = make_bernoulli_gaussian(10_000, 20, density=0.3, random_state=0)
    np.testing.assert_allclose(X, codes @ dictionary, atol=1e-12)
    np.testing.assert_allclose(dictionary @ dictionary.T, np.eye(20), atol=1e-12)
    assert np.mean(codes != 0) == pytest.approx(0.3, abs=0.005)
    assert np.var(codes[codes != 0]) == pytest.approx(1.0, abs=0.03)


def test_noise_and_corruption_have_their_size():
    options = {"density": 0.3, "random_state": 0}
    X, dictionary, codes = make_bernoulli_gaussian(5000, 20, noise_std=0.4, **options)
    assert np.std(X - codes @ dictionary) == pytest.approx(0.4, rel=0.02)
    X, dictionary, codes = make_bernoulli_gaussian(5000, 20, corruption=1.5, corruption_rate=0.2, **options)
    corruption = np.round(X - codes @ dictionary, 9)
    assert set(np.unique(corruption)) == {-1.5, 0.0, 1.5}
    assert np.mean(corruption != 0) == pytest.approx(0.2, abs=0.01)


def test_a_complete_dictionary_has_its_condition_number():
    _, dictionary, _ = make_bernoulli_gaussian(
        10, 30, density=0.3, orthogonal=False, condition_number=20, random_state=0
    )
    assert np.linalg.cond(dictionary) == pytest.approx(20)
    assert np.mean(np.sum(dictionary**2, axis=1)) == pytest.approx(1)


def test_the_seed_decides():
    one, two, other = (make_bernoulli_gaussian(20, 4, density=0.5, random_state=seed)[0] for seed in (1, 1, 2))
    np.testing.assert_array_equal(one, two)
    assert not np.allclose(one, other)


@pytest.mark.parametrize(
    "change",
    [
        {"density": 1.5},
        {"corruption_rate": -0.1},
        {"noise_std": -1},
        {"condition_number": 0.5},
        {"dtype": "int64"},
    ],
)
def test_settings_without_meaning_are_refused(change):
    setting = {"n_samples": 10, "n_features": 3, "density": 0.5} | change
    with pytest.raises(ValueError, match=next(iter(change))):
        make_bernoulli_gaussian(**setting)
