"""Errors up to order and sign."""

import numpy as np
import pytest
from scipy.stats import ortho_group

from elldict import metrics


@pytest.fixture
def shuffled(rng):
    """A dictionary, and its atoms in another order with other signs."""
    dictionary = ortho_group.rvs(7, random_state=rng)
    order, signs = rng.permutation(7), rng.choice([-1.0, 1.0], 7)
    return dictionary, signs[:, None] * dictionary[order], order, signs


def test_a_signed_permutation_is_no_error(shuffled):
    dictionary, atoms, order, signs = shuffled
    assert metrics.recovery_error(atoms, dictionary) == pytest.approx(0, abs=1e-14)
    assert metrics.frobenius_error(atoms, dictionary) == pytest.approx(0, abs=1e-14)
    assert metrics.sphere_error(-dictionary[2], dictionary) == pytest.approx(0, abs=1e-14)
    match = metrics.match_atoms(3 * atoms, 0.1 * dictionary)
    np.testing.assert_array_equal(match.indices, order)
    np.testing.assert_array_equal(match.signs, signs)
    np.testing.assert_allclose(match.cosines, 1)


def test_a_rotated_pair_has_the_error_of_its_angle():
    angle = 0.1
    A = np.eye(4)
    A[:2, :2] = [[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]]
    fourth = np.cos(angle) ** 4 + np.sin(angle) ** 4
    assert metrics.recovery_error(A, np.eye(4)) == pytest.approx(1 - (2 * fourth + 2) / 4)
    assert metrics.frobenius_error(A, np.eye(4)) == pytest.approx(np.sqrt(2 * (2 - 2 * np.cos(angle))) / 2)
    assert metrics.sphere_error(A[0], np.eye(4)) == pytest.approx(2 * np.sin(angle / 2))


def test_matching_is_the_best_one_not_the_greedy_one():
    cosines = np.array([[0.9, 0.8], [0.85, 0.1]])  # greedy takes .9 and is left with .1
    dictionary = np.eye(2)
    match = metrics.match_atoms(cosines / np.linalg.norm(cosines, axis=1, keepdims=True), dictionary)
    np.testing.assert_array_equal(match.indices, [1, 0])


def test_rows_that_are_not_orthonormal_are_refused(shuffled):
    dictionary, atoms, *_ = shuffled
    with pytest.raises(ValueError, match=r"components has rows that are not orthonormal.*Use match_atoms"):
        metrics.recovery_error(2 * atoms, dictionary)
    with pytest.raises(ValueError, match=r"dictionary has rows that are not orthonormal.*Use match_atoms"):
        metrics.recovery_error(atoms, 2 * dictionary)


@pytest.mark.parametrize("pair", [(np.eye(3), np.eye(4)), (np.eye(4), np.eye(4)[:2]), (np.ones(3), np.eye(3))])
def test_shapes_that_do_not_fit_are_refused(pair):
    with pytest.raises(ValueError, match="Atoms are rows"):
        metrics.match_atoms(*pair)
    with pytest.raises(ValueError, match="dictionary contains NaN"):
        metrics.match_atoms(np.eye(3), np.full((3, 3), np.nan))
