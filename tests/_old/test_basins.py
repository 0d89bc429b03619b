"""Two mixed atoms are recognised by their codes and taken apart."""

import math
import re
import warnings
from types import SimpleNamespace

import numpy as np
import pytest

from elldict import LpDictionaryLearning
from elldict._old.diagnostics import Errors, doubt_estimate
from elldict._old.result import Estimate
from elldict._old.solver.evaluate import Statistics
from elldict._old.solver.mixed_atoms import MixedPair, find_mixed_pairs, separate_pairs
from elldict.datasets import make_bernoulli_gaussian
from elldict.exceptions import NotIdentifiableWarning
from elldict.metrics import recovery_error


def mixture(angle, n=8, r=2000, seed=0):
    """Atoms of which the third and sixth are turned into each other, the codes they give, and the true codes."""
    rng = np.random.default_rng(seed)
    codes = (rng.random((r, n)) < 0.3) * rng.standard_normal((r, n))
    A = np.eye(n)
    c, s = math.cos(angle), math.sin(angle)
    A[[2, 5]] = np.array([[c, s], [-s, c]]) @ A[[2, 5]]
    return A, codes @ A.T


@pytest.mark.parametrize("angle", [math.pi / 4, -math.pi / 4, 0.4])
def test_a_mixed_pair_is_found_and_taken_apart(angle):
    A, Z = mixture(angle)
    pairs = find_mixed_pairs((np.abs(Z) > 1e-9).astype(float))
    assert [(pair.first, pair.second) for pair in pairs] == [(2, 5)]
    repaired, n_moved = separate_pairs(A, Z[:, [2, 5]], pairs)
    assert n_moved == 1
    assert recovery_error(repaired, np.eye(8)) < 0.001  # to the next degree of the grid
    np.testing.assert_allclose(repaired @ repaired.T, np.eye(8), atol=1e-12)


def test_true_atoms_are_left_alone():
    """28 pairs of independent supports: the largest of 28 standard normal scores is below 6 but once in 10^7."""
    A, Z = mixture(0.0)
    assert find_mixed_pairs((np.abs(Z) > 1e-9).astype(float)) == []
    again, n_moved = separate_pairs(A, Z, [])
    assert n_moved == 0
    np.testing.assert_array_equal(again, A)


def test_no_atom_is_in_two_pairs():
    rng = np.random.default_rng(0)
    shared = rng.random((500, 1)) < 0.3
    activity = (shared ^ (rng.random((500, 3)) < 0.05)).astype(float)
    assert len(find_mixed_pairs(activity)) == 1


@pytest.mark.slow
def test_few_samples_end_exact_or_are_reported():
    """Three samples a feature without noise: of six fits two end exact, the others at wrong maxima."""
    outcomes = []
    for seed in range(6):
        X, dictionary, _ = make_bernoulli_gaussian(90, 30, density=0.3, random_state=seed)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            model = LpDictionaryLearning(p=(3, 2.5, 2.2), refine="auto", random_state=seed).fit(X)
        exact = abs(recovery_error(model.components_, dictionary)) < 1e-6
        assert ("exactly sparse" in model.status_) == exact
        assert any(warning.category is NotIdentifiableWarning for warning in caught) != exact
        outcomes.append(exact)
    assert set(outcomes) == {True, False}


def test_mixed_atoms_that_remain_are_named_in_the_order_of_the_answer():
    ones, zeros = np.ones(3), np.zeros(3)
    stats = Statistics(1000.0, value=ones, gz=ones, slope=zeros, z2=ones, extra={"magnitude": zeros})
    estimate = Estimate(np.eye(3), None, stats, True, False, "", lp_stats=stats, mixed=(MixedPair(2, 0, 9.0),))
    sizes = SimpleNamespace(rank=3, n_samples=1000, n_features=3)
    doubts = list(doubt_estimate(estimate, np.array([1, 2, 0]), sizes, Errors(zeros), doubted=True))
    assert [category for category, _ in doubts] == [NotIdentifiableWarning]
    assert re.search("1 pairs of atoms.*: 1 with 2. Give more", doubts[0][1])


def test_a_pair_without_noise_is_turned_all_the_way_apart(rng):
    """The nearest angle of a grid is not enough: what is left of the mixture would pass for activity from then on."""
    codes = (rng.random((4000, 2)) < 0.2) * rng.standard_normal((4000, 2))
    c, s = np.cos(0.3337), np.sin(0.3337)
    turn = np.array([[c, -s], [s, c]])
    apart, n_moved = separate_pairs(turn, codes @ turn.T, [MixedPair(0, 1, 50.0)])
    assert n_moved == 1
    np.testing.assert_allclose(np.sort(np.abs(apart), axis=1), [[0, 1], [0, 1]], atol=1e-6)
