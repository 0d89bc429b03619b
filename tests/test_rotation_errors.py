"""Standard errors of rotated loadings: derivatives by finite differences, the jackknife, simulations."""

import numpy as np
import pytest

from elldict.rotation.criteria import make_criterion
from elldict.rotation.rotator import rotate
from elldict.rotation.standard_errors import change_slopes, compute_jacobian, differentiate
from tests.fits import draw_loadings

CRITERIA = ["varimax", "quartimax", "equamax", 3, 1.0]


def rotate_like(found, L, **options):
    """Find the rotation of other loadings, with the order and signs of the factors found."""
    again = rotate(L @ found.rotation, n_init=1, standard_errors=False, tol=1e-9, **options).rotation
    order = np.argmax(np.abs(again), axis=1)
    assert sorted(order) == list(range(len(order)))
    return found.rotation @ (again[:, order] * np.sign(np.diag(again[:, order])))


@pytest.mark.parametrize("criterion", CRITERIA, ids=str)
def test_derivatives_of_slopes_match_finite_differences(criterion):
    """By the loadings, and by rotations, which are changes W z of the rows z."""
    Z, dZ, h = draw_loadings(30, 3), draw_loadings(30, 3, seed=1), 1e-5
    objective, (a, b) = make_criterion(criterion, 30, 3), np.triu_indices(3, 1)

    def compute_slopes(Z):
        at = differentiate(Z, objective)
        C = at.g.T @ Z / len(Z)
        return (C - C.T)[a, b]

    at = differentiate(Z, objective)
    expected = (compute_slopes(Z + h * dZ) - compute_slopes(Z - h * dZ)) / (2 * h)
    np.testing.assert_allclose(change_slopes(at, dZ), expected, rtol=1e-6, atol=1e-8)
    for number, column in enumerate(compute_jacobian(at).T):
        W = np.zeros((3, 3))
        W[a[number], b[number]], W[b[number], a[number]] = 1, -1
        np.testing.assert_allclose(column, change_slopes(at, Z @ W.T), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("normalize", [True, False])
@pytest.mark.parametrize("criterion", CRITERIA, ids=str)
def test_error_of_a_single_deviation_is_the_change_of_the_rotated_loadings(criterion, normalize):
    """If loadings move along d only, with variance one, the standard error is the derivative along d."""
    L, d, h = draw_loadings(12, 3, seed=2), 0.01 * draw_loadings(12, 3, seed=3), 1e-3
    L[5], options = 0, {"criterion": criterion, "normalize": normalize}
    if normalize:
        d[5] = 0  # the direction of a row of zeros is undefined
    steps = 1e-3 * np.linspace(-1, 1, 20)  # so small that the derivative is constant
    found = rotate(L, bootstrap_loadings=L + steps[:, None, None] * d, tol=1e-9, random_state=0, **options)
    up, down = (X @ rotate_like(found, X, **options) for X in (L + h * d, L - h * d))
    expected = np.std(steps, ddof=1) * np.abs(up - down) / (2 * h)
    np.testing.assert_allclose(found.standard_errors, expected, rtol=1e-3, atol=1e-9)


@pytest.mark.parametrize(("criterion", "normalize"), [("varimax", True), ("equamax", False), ("quartimax", False)])
def test_errors_over_rows_agree_with_the_jackknife(criterion, normalize):
    """Each row occurs eight times: one of 1200 changes the rotation so little that only first-order terms are left.

    The factors are correlated and of different sizes, so that their means matter.
    """
    L, copies = draw_loadings(150, 3, seed=8, noise=0.3) @ (0.5 + np.diag([1.0, 0.5, 0.5])), 8
    rows, options = np.tile(L, (copies, 1)), {"criterion": criterion, "normalize": normalize}
    found = rotate(rows, random_state=0, **options)
    assert found.error_source == "rows"
    others = [L @ rotate_like(found, np.delete(rows, row, axis=0), **options) for row in range(len(L))]
    jackknife = np.sqrt((len(rows) - 1) * np.var(others, axis=0))
    np.testing.assert_allclose(found.standard_errors[: len(L)], jackknife, rtol=0.05, atol=0.02 * np.median(jackknife))


def draw_observations(n, rng):
    """Nine variables of three factors of nearly the same strength: their order before rotation is random."""
    simple = np.kron(np.eye(3), np.ones((3, 1))) * np.linspace(0.9, 0.7, 9)[:, None]
    return rng.standard_normal((n, 3)) @ simple.T + 0.6 * rng.standard_normal((n, 9))


def analyse(X):
    """Loadings of three principal components."""
    values, vectors = np.linalg.eigh(X.T @ X / len(X))
    return (vectors * np.sqrt(values))[:, :-4:-1]


def match(one, other):
    """Find the factor of one rotation that is closest to each of another."""
    return np.argmax(np.abs(one.loadings.T @ other.loadings), axis=0)


def bootstrap(X, n_draws, rng):
    """Loadings of bootstrap samples, with random signs."""
    draws = [analyse(X[rng.integers(len(X), size=len(X))]) for _ in range(n_draws)]
    return np.array(draws) * rng.choice([-1.0, 1.0], (n_draws, 1, 3))


def test_errors_from_bootstrap_samples_agree_with_a_simulation():
    """The spread over 200 data sets is known to 1 / sqrt(400) = 5 %, and a bootstrap of 100 draws to 7 %. The median
    over 27 loadings varies less: 15 % is above three standard errors of the ratio."""
    rng = np.random.default_rng(3)
    found = rotate(analyse(draw_observations(100_000, rng)), random_state=0)
    others = [rotate(analyse(draw_observations(400, rng)), n_init=1, standard_errors=False) for _ in range(200)]
    spread = np.std([each.loadings[:, match(each, found)] for each in others], axis=0)
    X = draw_observations(400, rng)
    estimate = rotate(analyse(X), bootstrap_loadings=bootstrap(X, 100, rng), random_state=0)
    assert estimate.error_source == "observations"
    assert 0.85 < np.median(estimate.standard_errors[:, match(estimate, found)] / spread) < 1.15
