"""Error bars where codes are not independent, atoms not orthogonal, or a fit is not finished: they say so."""

import warnings

import numpy as np
import pytest

from elldict import LpDictionaryLearning
from elldict._old.data.whitening import Whitening
from elldict._old.error_bars.codes import estimate_correlated_errors, estimate_dependent_errors
from elldict._old.result import Estimate
from elldict._old.solver.spike_slab import SpikeSlab
from elldict._old.theory.error_bars import CodeMoments, atom_errors, whitening_errors
from elldict.datasets import make_bernoulli_gaussian
from elldict.exceptions import NotIdentifiableWarning, NotWhiteWarning
from elldict.metrics import match_atoms, recovery_error
from tests._old.helpers import KINDS, mix


def random_basis(n, rng):
    return np.linalg.qr(rng.standard_normal((n, n)))[0]


def angular_error(components, atoms):
    """The same error for atoms of any length that need not be orthogonal."""
    C, A = (rows / np.linalg.norm(rows, axis=1, keepdims=True) for rows in (components, atoms))
    return 1 - np.mean(np.max(np.abs(C @ A.T), axis=1) ** 4)


def sparse(r, n, rng, density=0.2):
    return np.where(rng.random((r, n)) < density, rng.standard_normal((r, n)), 0)


# --- codes that depend on each other ----------------------------------------------------------------------------------


@pytest.mark.parametrize("noise_std", [0.0, 0.3])
@pytest.mark.parametrize("refine", ["auto", None])
@pytest.mark.parametrize("p", [1.0, 3.0])
def test_independent_codes_keep_their_error_bars(noise_std, refine, p):
    n, r, density = 24, 8000, 0.3
    X, _, _ = make_bernoulli_gaussian(r, n, density=density, noise_std=noise_std, random_state=1)
    model = LpDictionaryLearning(p=p, random_state=0, refine=refine).fit(X)
    law = SpikeSlab(np.full(n, density), np.ones(n), max(noise_std**2, 1e-12))
    refined = "bernoulli-gaussian" if refine == "auto" else None
    estimate = Estimate(model.components_, None, None, True, False, "", law=law, refined=refined)
    found = estimate_dependent_errors(X, estimate, p, r)
    np.testing.assert_array_equal(found, 0)


@pytest.mark.parametrize("p", [0.5, 1, 1.5, 3])
def test_a_common_loudness_shows_in_the_error_bar(p):
    """Each sample has a loudness of its own: the pairs of codes say how much that costs, to first order."""
    rng = np.random.default_rng(0)
    real, said = [], []
    for _ in range(4):
        D = random_basis(16, rng)
        X = rng.laplace(size=(10_000, 16)) * np.exp(0.25 * rng.standard_normal((10_000, 1))) @ D
        model = LpDictionaryLearning(p=p, random_state=0).fit(X)
        real.append(recovery_error(model.components_, D))
        said.append(model.expected_error_)
    assert 0.6 < np.mean(said) / np.mean(real) < 1.6  # errors of 240 angles, each known to a few tens of per cent


@pytest.mark.parametrize("freedom", [3, 5, 10])
def test_heavy_tails_without_any_direction_are_no_dictionary(freedom):
    rng = np.random.default_rng(freedom)
    X = rng.standard_normal((10_000, 20)) * np.sqrt(freedom / rng.chisquare(freedom, (10_000, 1)))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model = LpDictionaryLearning(random_state=0).fit(X)
    assert caught[0].category is NotIdentifiableWarning  # normalised, such samples are no sparser than Gaussian ones
    assert model.expected_error_ > 0.1


@pytest.mark.parametrize("n_pairs", [8, 3])
def test_atoms_that_always_act_together_are_not_told_apart(n_pairs):
    """A pair of Gaussian codes with one support is the same in every basis of its plane."""
    rng = np.random.default_rng(0)
    D, active = random_basis(16, rng), rng.random((10_000, 16)) < 0.2
    active[:, 1 : 2 * n_pairs : 2] = active[:, : 2 * n_pairs : 2]
    with pytest.warns(NotIdentifiableWarning):
        model = LpDictionaryLearning(random_state=0).fit(active * rng.standard_normal(active.shape) @ D)
    owner = np.argmax(np.abs(model.components_ @ D.T), axis=1)
    paired = owner < 2 * n_pairs
    assert np.all(model.atom_error_[paired] > 0.2)
    assert np.all(model.atom_error_[~paired] < 1e-6)


# --- atoms that are not orthogonal ------------------------------------------------------------------------------------


@pytest.mark.parametrize("condition", [2.0, 4.0, 8.0])
def test_atoms_that_are_not_orthogonal_show_in_the_error_bar(condition):
    rng = np.random.default_rng(0)
    n, r = 20, 10_000
    atoms = random_basis(n, rng) @ np.diag(np.geomspace(1, condition, n) ** 0.5) @ random_basis(n, rng)
    with pytest.warns(NotWhiteWarning, match="Set whiten=True"):
        model = LpDictionaryLearning(random_state=0).fit(sparse(r, n, rng) @ atoms)
    assert model.expected_error_ == pytest.approx(angular_error(model.components_, atoms), rel=0.2)


def test_atoms_of_unequal_strength_are_not_correlated():
    rng = np.random.default_rng(0)
    D = random_basis(20, rng)
    X = sparse(10_000, 20, rng) * np.geomspace(1, 2, 20) @ D
    model = LpDictionaryLearning(random_state=0).fit(X)
    assert model.expected_error_ < 1e-6
    estimate = Estimate(model.components_, None, None, True, False, "")
    whitening = Whitening(1.0, None, None, None, whitened=False)
    found = estimate_correlated_errors(X, estimate, whitening, X.T @ X / len(X), len(X))
    np.testing.assert_array_equal(found, 0)


@pytest.mark.parametrize(("n", "r"), [(20, 10_000), (30, 600)])
def test_whitening_shows_in_the_error_bar(n, r):
    """Without noise the whitening is all that is wrong."""
    rng = np.random.default_rng(0)
    real = []
    for _ in range(4):
        atoms = rng.standard_normal((n, n))
        model = LpDictionaryLearning(random_state=0, whiten=True, center=True, halves=False)
        model.fit(sparse(r, n, rng) @ atoms)
        real.append(angular_error(model.components_, atoms))
    tilt = (n - 1) / (2 * r)  # that of each atom, because laws are equal
    assert np.mean(real) == pytest.approx(tilt, rel=0.3)  # Gram matrices of atoms scatter by as much
    assert model.expected_error_ == pytest.approx(tilt, rel=0.3)


def make_moments(m, rng):
    """Moments of m atoms of different laws, of unit variance."""
    gz, slope = 2 + 0.2 * rng.standard_normal(m), 1.5 + 0.1 * rng.standard_normal(m)
    return CodeMoments(gz=gz, g2=gz**2 + 1 + rng.random(m), slope=slope, z2=np.ones(m))


def test_whitening_tilts_atoms_of_equal_laws_by_half_of_its_error():
    """Each of n - 1 tilts has a variance of 1 / (4 r), and the angles are not moved."""
    ones = np.ones(7)
    moments = CodeMoments(gz=2.1 * ones, g2=9 * ones, slope=1.6 * ones, z2=ones)
    np.testing.assert_allclose(whitening_errors(moments, 500.0), 6 / (2 * 500), rtol=1e-12)


def test_pairs_that_are_no_maximum_are_tilted_alone():
    ones = np.ones(4)
    moments = CodeMoments(gz=2 * ones, g2=9 * ones, slope=np.array([2.5, 2.5, 2.2, 2.1]), z2=ones)
    np.testing.assert_allclose(whitening_errors(moments, 500.0), 3 / (2 * 500), rtol=1e-12)


@pytest.mark.parametrize("n_unsought", [0, 3])
def test_linear_parts_do_not_change_the_error_of_whitened_atoms(n_unsought):
    """No rotation changes sum_i l_i E z_i^2 of white samples, whatever l_i; the error is that of g without them."""
    rng, r = np.random.default_rng(0), 500.0
    moments = make_moments(5, rng)
    added = rng.standard_normal(5)
    g2 = moments.g2 + 2 * added * moments.gz + added**2
    other = CodeMoments(moments.gz + added, g2, moments.slope + added, moments.z2)
    one, two = (
        atom_errors(each, r, n_unsought, 1.0) + whitening_errors(each, r, n_unsought) for each in (moments, other)
    )
    np.testing.assert_allclose(one, two, rtol=1e-12)
    # g_i without its slope, and g_j without what of it is linear in z_j
    own = moments.g2 - 2 * moments.slope * moments.gz + moments.slope**2
    of_other = moments.g2 - moments.gz**2
    pairs = (own[:, None] + of_other[None, :]) / moments.curvatures() ** 2
    outside = n_unsought * own / (moments.gz - moments.slope) ** 2
    np.testing.assert_allclose(one, 2 / r * (np.sum(pairs, axis=1) - np.diag(pairs) + outside), rtol=1e-12)


@pytest.mark.parametrize(
    ("kinds", "refine"),
    [(KINDS, None), (KINDS, "mixture"), (["sine"] * 3 + ["sparse"] * 3, None), (["laplace", "sparse"] * 3, "mixture")],
)
def test_the_error_of_whitened_sources_of_different_laws_is_stated(kinds, refine):
    """Of 20 fits with 15 pairs or more the mean square is known to sqrt(2 / 300) = 8 %, one standard error.

    Without what whitening does to the rotation, .0009 would be stated for .00125 in the second case.
    """
    real, stated = [], []
    for seed in range(20):
        X, dictionary, _ = mix(kinds, 8000, seed)
        model = LpDictionaryLearning(random_state=seed, whiten=True, center=True, refine=refine, halves=False).fit(X)
        real.append(2 * np.mean(1 - match_atoms(model.components_, dictionary).cosines ** 2))
        stated.append(model.expected_error_)
    assert np.mean(stated) == pytest.approx(np.mean(real), rel=0.2)


def test_fewer_whitened_atoms_than_directions_have_the_error_that_is_stated():
    """Twenty fits, 12 angles each: 9 %. The variance of the rotation alone would state three times too much."""
    real, stated = [], []
    for seed in range(20):
        X, dictionary, _ = mix(["laplace"] * 6, 8000, seed)
        model = LpDictionaryLearning(3, random_state=seed, whiten="all", center=True).fit(X)
        real.append(2 * np.mean(1 - match_atoms(model.components_, dictionary).cosines ** 2))
        stated.append(model.expected_error_)
    assert 0.8 < np.mean(stated) / np.mean(real) < 1.5


# --- fits that are not finished ---------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning", "ignore::UserWarning")
def test_a_fit_that_is_cut_off_is_not_believed():
    X, D, _ = make_bernoulli_gaussian(5000, 16, density=0.3, noise_std=0.2, random_state=0)
    for max_iter in (1, 2):
        model = LpDictionaryLearning(random_state=0, max_iter=max_iter, solver="power", refine=None).fit(X)
        assert model.expected_error_ > 0.3 * recovery_error(model.components_, D)


def test_another_order_of_samples_moves_atoms_by_less_than_their_error_bar():
    X, _, _ = make_bernoulli_gaussian(10_000, 20, density=0.2, noise_std=0.2, random_state=0)
    orders = (np.arange(len(X)), np.random.default_rng(1).permutation(len(X)))
    one, other = (LpDictionaryLearning(random_state=0).fit(X[order]) for order in orders)
    assert recovery_error(one.components_, other.components_) < 0.1 * one.expected_error_
