"""Atoms that are not orthogonal, sought as if they were: the first warning and the error bar say so."""

import warnings

import numpy as np
import pytest

from elldict import LpDictionaryLearning
from elldict._old.error_bars import codes as subject
from elldict._old.solver.directions import power_step
from elldict._old.solver.loop import Phase
from elldict._old.solver.objective import Lp
from elldict._old.solver.whitened_atoms import estimate_angle_variances, measure_departure
from elldict._old.theory.error_bars import CodeMoments
from elldict.exceptions import NotWhiteWarning
from elldict.metrics import match_atoms, recovery_error

BLIND_SOURCES = np.array([[1, 1, 1], [0.5, 2, 1], [1.5, 1, 2]]).T
"""Atoms of scikit-learn's example of blind source separation."""


def random_basis(n, rng):
    return np.linalg.qr(rng.standard_normal((n, n)))[0]


def make_codes(kind, r, n, rng):
    if kind == "Laplace":
        return rng.laplace(size=(r, n))
    return np.where(rng.random((r, n)) < 0.2, rng.standard_normal((r, n)), 0)


def angular_error(components, atoms):
    return 1 - np.mean(match_atoms(components, atoms).cosines ** 4)


def fit_noting_warnings(X, **options):
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        model = LpDictionaryLearning(random_state=0, **options).fit(X)
    return model, said


@pytest.mark.parametrize("center", [False, True])
@pytest.mark.parametrize("r", [500, 2000, 20_000])
def test_blind_sources_that_are_not_whitened_are_not_believed(r, center):
    """Atoms come out 10 to 85 degrees off, near the principal directions, where codes are not even correlated."""
    X = np.random.default_rng(r).laplace(size=(r, 3)) @ BLIND_SOURCES
    model, said = fit_noting_warnings(X, center=center)
    assert said[0].category is NotWhiteWarning
    assert "Set whiten=True" in str(said[0].message)
    error = angular_error(model.components_, BLIND_SOURCES)
    assert error > 0.5
    assert model.expected_error_ == pytest.approx(error, rel=0.2)  # of the atoms it is compared with, by 500 samples
    assert angular_error(LpDictionaryLearning(whiten=True, random_state=0).fit(X).components_, BLIND_SOURCES) < 0.02


@pytest.mark.parametrize("kind", ["Laplace", "sparse"])
@pytest.mark.parametrize("condition", [2, 3, 10, 100])
@pytest.mark.parametrize("n", [3, 8, 20])
def test_the_error_bar_is_of_the_order_of_the_error(n, condition, kind):
    rng = np.random.default_rng(n + condition)
    atoms = random_basis(n, rng) @ np.diag(np.geomspace(1, condition, n)) @ random_basis(n, rng)
    model, said = fit_noting_warnings(make_codes(kind, 4000, n, rng) @ atoms)
    error = angular_error(model.components_, atoms)
    assert said[0].category is NotWhiteWarning
    assert error / 1.5 < model.expected_error_ < 2 * error  # mostly 1.7 for 20 Laplace codes, condition 2


def test_fewer_atoms_and_other_solvers_are_compared_too():
    rng = np.random.default_rng(0)
    atoms = random_basis(8, rng) @ np.diag(np.geomspace(1, 20, 8)) @ random_basis(8, rng)
    X = make_codes("Laplace", 4000, 8, rng) @ atoms
    for options in ({"n_components": 3}, {"solver": "power", "refine": None}, {"solver": "power", "max_iter": 3}):
        model, _ = fit_noting_warnings(X, **options)
        assert model.expected_error_ > angular_error(model.components_, atoms) / 2
    flat = np.column_stack([X, X[:, 0]])
    model, _ = fit_noting_warnings(flat)  # it varies in 8 of 9 directions
    assert model.expected_error_ > 0.3


def test_a_stream_does_not_forget_it():
    X = np.random.default_rng(0).laplace(size=(6000, 3)) @ BLIND_SOURCES
    stream, _ = fit_noting_warnings(X[:2000])
    first = stream.expected_error_
    for start in range(2000, 6000, 1000):
        stream.partial_fit(X[start : start + 1000])
    assert stream.expected_error_ == pytest.approx(first, rel=0.01)


@pytest.mark.parametrize("kind", ["Laplace", "sparse"])
@pytest.mark.parametrize("strength", [2, 5, 20])
@pytest.mark.parametrize("n", [3, 8, 20])
def test_orthogonal_atoms_of_unequal_strength_keep_their_error_bars(n, strength, kind, monkeypatch):
    """To the last bit: what whitened atoms say is chance."""
    rng = np.random.default_rng(n + strength)
    D, asked = random_basis(n, rng), []
    X = make_codes(kind, 4000, n, rng) * np.geomspace(1, strength, n) @ D
    model, _ = fit_noting_warnings(X)
    monkeypatch.setattr(subject, "measure_departure", lambda *args: asked.append(args))
    alone, _ = fit_noting_warnings(X)
    assert asked
    np.testing.assert_array_equal(model.atom_error_, alone.atom_error_)
    assert recovery_error(model.components_, D) < 0.02


def test_white_samples_are_not_compared(easy, monkeypatch):
    monkeypatch.setattr(subject, "measure_departure", lambda *args: pytest.fail("compared"))
    LpDictionaryLearning(random_state=0).fit(easy[0])


def test_few_samples_and_independent_codes_tell_nothing(rng):
    phase = Phase(Lp(3), power_step, "float64", 1e-6, 100)
    X = rng.laplace(size=(400, 5)) * [1, 2, 3, 4, 5]
    assert measure_departure(X[:49], np.eye(5), phase) is None
    assert measure_departure(X, np.eye(5), phase) is None
    assert measure_departure(np.column_stack([X, X[:, 0]]), np.eye(6), phase) is None
    turned = random_basis(5, rng)
    assert np.all(measure_departure(X, turned, phase) > 0.1)


def test_the_variance_of_angles_is_that_of_independent_codes(rng):
    """Means over pairs of independent codes are products of means, which 50000 samples show to a few per cent."""
    Z = rng.laplace(size=(50_000, 4)) / np.sqrt(2)
    z = np.abs(Z)
    moments = CodeMoments(*(np.mean(each, axis=0) for each in (z**3, z**4, 2 * z, z**2)))
    expected = moments.angle_covariances(moments, moments.g2, len(Z)) + 1 / (4 * len(Z))
    np.fill_diagonal(expected, 0)
    np.testing.assert_allclose(estimate_angle_variances(Lp(3), Z), expected, rtol=0.2)
    together = Z * np.exp(0.8 * rng.standard_normal((len(Z), 1)))
    others = ~np.eye(4, dtype=bool)
    assert np.all(estimate_angle_variances(Lp(3), together)[others] > 3 * expected[others])
