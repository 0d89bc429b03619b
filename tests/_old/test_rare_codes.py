"""Codes that are rare: most of them are zero in any mixture of a few atoms, which must not pass for atoms."""

import warnings

import numpy as np
import pytest

from elldict import LpDictionaryLearning
from elldict._old.solver.directions import random_orthonormal
from elldict.datasets import make_bernoulli_gaussian
from elldict.metrics import recovery_error


def fit(X, seed):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of atoms that are rarely active some seem to depend on each other
        return LpDictionaryLearning(random_state=seed).fit(X)


@pytest.mark.parametrize("density", [0.02, 0.05, 0.1])
@pytest.mark.parametrize("n", [8, 20])
def test_fault_34_rare_codes_are_recovered_exactly(n, density):
    """One in forty fits at n = 20 and a density of .02 is not, and says so."""
    errors, stated = [], []
    for seed in range(5):
        X, dictionary, _ = make_bernoulli_gaussian(400 * n, n, density=density, random_state=seed)
        model = fit(X, seed)
        errors.append(recovery_error(model.components_, dictionary))
        stated.append(model.expected_error_)
    exact = np.array(errors) < 1e-9
    assert np.sum(exact) >= 4
    assert np.all(np.array(stated)[~exact] > np.array(errors)[~exact])


@pytest.mark.parametrize("values", ["lognormal", "t"])
def test_fault_34_exact_is_not_said_of_rare_codes_of_other_values_that_are_not(values):
    for seed in range(6):
        rng = np.random.default_rng(seed)
        draw = {"lognormal": lambda rng=rng: rng.lognormal(size=(8000, 20)) * rng.choice([-1, 1], (8000, 20))}
        draw["t"] = lambda rng=rng: rng.standard_t(2.5, (8000, 20))
        dictionary = random_orthonormal(20, 20, rng)
        X = draw[values]() * (rng.random((8000, 20)) < 0.1) @ dictionary
        model = fit(X, seed)
        error = recovery_error(model.components_, dictionary)
        assert error < 1e-9 or model.expected_error_ > error / 3
