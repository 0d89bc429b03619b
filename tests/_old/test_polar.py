"""The polar factor is orthonormal whatever it is given."""

import numpy as np
import pytest

from elldict._old.backend import base
from elldict._old.solver.directions import polar, random_orthonormal


@pytest.mark.parametrize("condition", [1.0, 1e4, 1e8, 1e15])
@pytest.mark.parametrize("shape", [(1, 7), (5, 9), (40, 40)])
def test_fault_13_polar_is_orthonormal_up_to_condition_1e15(condition, shape, rng):
    U, V = random_orthonormal(shape[0], shape[0], rng), random_orthonormal(*shape, rng)
    G = U @ (np.geomspace(1, 1 / condition, shape[0])[:, None] * V)
    A = polar(G)
    np.testing.assert_allclose(A @ A.T, np.eye(shape[0]), atol=1e-12)


@pytest.mark.parametrize("rank", [0, 1, 5])
def test_fault_13_polar_of_a_singular_matrix_is_orthonormal(rank, rng):
    G = rng.standard_normal((8, rank)) @ rng.standard_normal((rank, 8))
    A = polar(G)
    np.testing.assert_allclose(A @ A.T, np.eye(8), atol=1e-12)


def test_polar_maximises_the_inner_product(rng):
    G = rng.standard_normal((4, 6))
    best = np.sum(polar(G) * G)
    assert best == pytest.approx(np.sum(np.linalg.svd(G, compute_uv=False)))
    assert all(np.sum(random_orthonormal(4, 6, rng) * G) < best for _ in range(100))


def test_fault_14_second_driver_takes_over(monkeypatch, rng):
    G = rng.standard_normal((5, 5))
    expected = polar(G)

    def fail(*matrix, **how):
        raise np.linalg.LinAlgError("SVD did not converge")

    monkeypatch.setattr(base.NUMPY.xp.linalg, "svd", fail)
    np.testing.assert_allclose(polar(G), expected, atol=1e-13)
    monkeypatch.setattr("scipy.linalg.svd", fail)
    with pytest.raises(np.linalg.LinAlgError, match="5 x 5 gradient did not converge with LAPACK's gesdd or gesvd"):
        polar(G)


def test_fault_14_nan_from_the_first_driver_is_not_believed(monkeypatch, rng):
    G = rng.standard_normal((5, 5))
    expected = polar(G)
    nan = np.full((5, 5), np.nan)
    monkeypatch.setattr(base.NUMPY.xp.linalg, "svd", lambda *matrix, **how: (nan, nan[0], nan))
    np.testing.assert_allclose(polar(G), expected, atol=1e-13)


def test_random_orthonormal_is_uniform():
    """Haar: the entries of a unit vector in n dimensions have mean 0 and variance 1/n.

    With 4000 draws of n = 5 the mean of one entry has standard deviation .007 and the variance .005: bounds are 5 each.
    """
    rng = np.random.default_rng(1)
    draws = np.array([random_orthonormal(2, 5, rng) for _ in range(4000)])
    assert np.max(np.abs(draws.mean(axis=0))) < 0.035
    assert np.max(np.abs(draws.var(axis=0) - 0.2)) < 0.025
