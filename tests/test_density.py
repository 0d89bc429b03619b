"""Densities of codes: tables, expectation maximisation, the choice of a family, the cross-validated value."""

import math

import numpy as np
import pytest
from scipy.stats import norm, t

from elldict.solver import density as module
from elldict.solver.density import (
    FIRST,
    N_ERRORS,
    RATIO,
    ROUNDS,
    SMOOTHING,
    WIDEST,
    WORTH,
    Density,
    get_grid,
    make_grid,
)
from elldict.solver.kernels import OVERRELAXATION, SUB_BITS, find_bins, fit_weights
from elldict.warnings import find_gaussian
from tests.fits import DRAW, draw, encode, share

LEAST = 1e-13
"""Size of a zero code after rounding errors, in standard deviations."""

MANY_ROUNDS = 3000
"""Rounds of expectation-maximisation that come close to the maximum of a likelihood."""


def fit(Z, blur=None, weights=None):
    return Density.begin(Z.shape[1]).refit(encode(Z, weights), blur, choose=True)


def judge(Z, blur=None):
    return Density.begin(Z.shape[1]).judge(encode(Z), blur)


def find_edges(grid):
    """Edges of all bins (B + 1,): in each octave of 1 + |x| / unit, bins are of equal width."""
    octaves = len(grid.centres) // 2 // 2**SUB_BITS
    t = np.concatenate([2.0**k * (1 + np.arange(2**SUB_BITS) / 2**SUB_BITS) for k in range(octaves)])
    right = grid.unit * (np.r_[t, 2.0**octaves] - 1)
    return np.r_[-right[:0:-1], right]


@pytest.mark.parametrize("n_widths", [13, 40])
def test_make_grid_bins_resolve_the_components_about_zero(n_widths):
    grid = make_grid(n_widths)
    # bins are h^2 = (|x| + unit)^2 / 128 wide on average, so that the integral of h^2 q'' / 24 is that of its second
    # derivative, 1 / 64, times q / 24, 6.5e-4; and of the jump of its slope at zero by unit / 32, with a width of two
    # units, 2.6e-4 at most
    np.testing.assert_allclose((grid.q[0] @ np.diff(find_edges(grid)))[:n_widths], 1, atol=1e-3)


def evaluate_component(grid, k, x):
    """Component k of a grid, from its definition: those about zero, then pairs, then sides."""
    if k < grid.n_widths:
        return norm.pdf(x, 0, WIDEST * RATIO**-k)
    k -= grid.n_widths
    if k < 18:  # means .2, .4, ... 1.8 change fastest; widths .1, .3
        mean, width = 0.2 * (k % 9 + 1), (0.1, 0.3)[k // 9]
        return (norm.pdf(x, mean, width) + norm.pdf(x, -mean, width)) / 2
    mean = np.r_[2.0 ** np.arange(-2, 3), -(2.0 ** np.arange(-2, 3))][k - 18]  # 1/4, 1/2, ... 4 and their negatives
    return norm.pdf(x, mean, 0.7 * abs(mean))


# --- expectation maximisation -----------------------------------------------------------------------------------------


def test_fit_weights_of_many_components_satisfies_the_conditions_of_a_maximum():
    # convex: the gain by any component is at most 1, and 1 where its weight is positive
    rng, K, B, m = np.random.default_rng(0), 6, 40, 3
    weights, counts, q = rng.dirichlet(np.ones(K), m), rng.poisson(5.0, (m, B)), rng.exponential(size=(K, B))
    counts = counts.astype(float)
    fitted = fit_weights(weights, counts, q, 20_000)
    gain = (counts / (fitted @ q)) @ q.T / counts.sum(axis=1, keepdims=True)
    assert np.max(gain) < 1 + 1e-4
    np.testing.assert_allclose(gain[fitted > 1e-3], 1, atol=1e-4)


# --- fitted densities -------------------------------------------------------------------------------------------------

LAWS = list(DRAW)


@pytest.mark.parametrize("law", LAWS)
def test_density_integrates_to_one(law):
    density = fit(draw(law, 2000, 2) * [1.0, 30.0])
    mass = np.exp(density.tables[0]) @ np.diff(find_edges(density.grid)) * density.std
    # the midpoint rule for mixtures of components that are themselves within .02
    np.testing.assert_allclose(mass, 1, atol=0.01)


@pytest.mark.parametrize("law", LAWS)
def test_density_tables_are_the_logarithm_of_a_mixture_and_its_derivatives(monkeypatch, law):
    seen, make = [], Density._make_tables
    monkeypatch.setattr(Density, "_make_tables", lambda self, weights: seen.append(weights) or make(self, weights))
    density = fit(draw(law, 2000, 2), np.full(2, 0.02))
    grid, (weights,) = density.grid, seen
    np.testing.assert_allclose(weights.sum(axis=1), 1, rtol=1e-12)
    inside = np.abs(grid.centres) < 5
    x = grid.centres[inside]
    h = 1e-4 * (np.abs(x) + grid.unit)  # far below the width of any component at x
    for j in range(2):
        level, score, bend = density.tables[:, j, inside]
        up, here, down = (
            np.log(sum(weights[j, k] * evaluate_component(grid, k, each) for k in range(grid.n_components)))
            for each in (x + h, x, x - h)
        )
        np.testing.assert_allclose(level, here - math.log(density.std[j]), rtol=1e-12)
        # differences are off by h^2 / 6 and h^2 / 12 of derivatives, up to 24 / w^4 of components w wide: a fiftieth of
        # x, or two units. So h is below w / 200, and second derivatives are known to 24 / 12 / 200^2 of 1 / w^2. The
        # logarithms of sums of some 60 terms are rounded to 1e-15 and less
        rounding = 4e-15 / h**2
        assert np.all(np.abs(score - (up - down) / (2 * h)) < 1e-4 * np.max(np.abs(score)) + rounding * h)
        assert np.all(np.abs(bend - (up - 2 * here + down) / h**2) < 1e-4 * np.max(np.abs(bend)) + rounding)
        assert np.max(rounding) < 1e-2


@pytest.mark.parametrize("law", ["laplace", "exponential"])
def test_density_terms_are_derivatives_of_the_log_likelihood(law):
    density = fit(draw(law, 3000, 1) * 7.0)
    centre = density.grid.centres[np.abs(density.grid.centres) < 3] * density.std
    z = centre + 0.01 * np.abs(centre)  # off centre, within the bin
    h = 1e-4 * np.abs(centre)
    terms = density.terms(z[:, None], second=True)
    up, here, down = (density.log_density(each[:, None])[:, 0] for each in (z + h, z, z - h))
    np.testing.assert_allclose(terms.value, here.sum(), rtol=1e-10)
    np.testing.assert_allclose(density.score(z[:, None]), terms.g, rtol=1e-10)
    np.testing.assert_allclose(terms.g[:, 0], (up - down) / (2 * h), rtol=1e-4, atol=1e-4)
    # g itself is a straight line in a bin, with the second derivative as its slope
    moved = density.terms((z + h)[:, None]).g[:, 0]
    np.testing.assert_allclose(terms.slope[:, 0], (moved - terms.g[:, 0]) / h, rtol=1e-4, atol=1e-4)


def test_density_negentropy_tells_codes_close_to_gaussian_ones_from_these():
    r, n, degrees = 100_000, 6, 30
    Z = t(degrees).rvs((r, n), random_state=np.random.default_rng(0))
    negentropy, gaussian = (fit(each).negentropy for each in (Z, draw("gauss", r, n)))
    # entropies are those of unit variance; the logarithm of the ratio of two close densities has a variance of twice
    # its mean, and fits lose what those of Gaussian codes do, see above
    expected = 0.5 * math.log(2 * math.pi * math.e * t(degrees).var()) - t(degrees).entropy()
    chance = 4 * math.sqrt(2 * expected / r)
    assert expected - chance - 20 / r > (n + 2 * math.sqrt(n)) / r  # so that they can be told apart
    assert np.all(np.abs(negentropy - expected) < chance + 20 / r)
    assert not np.any(find_gaussian(negentropy, r))
    assert np.all(find_gaussian(gaussian, r))
    # at the centres of bins, codes lose half as much as this gain
    x = Z / np.sqrt(np.mean(Z**2, axis=0))
    lost = np.mean(norm.logpdf(x) - share(norm.logpdf, get_grid(13), x), axis=0)
    assert np.all(lost > expected / 2)


@pytest.mark.parametrize("law", ["laplace", "gauss", "uniform", "exponential"])
def test_density_family_has_offsets_for_flat_and_skewed_codes_only(law):
    Z = draw(law, 4000, 6)
    density = fit(Z)
    np.testing.assert_array_equal(density.has_offsets, law in ("uniform", "exponential"))
    assert not density.has_changed
    # a family stays, for codes of any kind, until it is to be chosen anew
    again = density.refit(encode(draw("gauss", 4000, 6)))
    np.testing.assert_array_equal(again.has_offsets, density.has_offsets)
    assert not np.any(Density.begin(6).refit(encode(Z)).has_offsets)


def test_density_rich_family_is_kept_while_it_gains():
    # chance wins by two standard errors are rare: 60 uniform samples rarely gain so much, but gain
    Z = draw("uniform", 90, 8)
    first = fit(Z)
    rich = module.replace(first, has_offsets=np.ones(8, dtype=bool)).refit(encode(Z), choose=True)
    assert np.sum(rich.has_offsets) > np.sum(first.has_offsets)
    gauss = draw("gauss", 4000, 8)
    kept = module.replace(fit(gauss), has_offsets=np.ones(8, dtype=bool)).refit(encode(gauss), choose=True)
    assert not np.any(kept.has_offsets)


@pytest.mark.parametrize("blur", [0.03, 1e-3, 1e-6, 0.0])
def test_density_widths_of_sparse_codes_narrow_down_to_the_blur(blur):
    density = fit(draw("sparse", 2000, 3), np.full(3, blur))
    assert density.has_changed
    least = max(blur, LEAST)
    assert np.all(density.narrowest >= least * (1 - 1e-9))
    assert np.all(density.narrowest < least * RATIO * (1 + 1e-9))


def test_density_widths_stay_where_codes_gain_nothing_or_little_is_asked():
    gauss = fit(draw("gauss", 2000, 4), np.full(4, 1e-3))
    np.testing.assert_allclose(gauss.narrowest, FIRST)
    assert not gauss.has_changed
    Z = draw("sparse", 2000, 4)
    little = fit(Z, np.full(4, FIRST / WORTH * 1.1))
    np.testing.assert_allclose(little.narrowest, FIRST)
    enough = fit(Z, np.full(4, FIRST / WORTH * 0.7))
    assert np.all(enough.narrowest < FIRST / 2)


def test_density_widths_are_never_made_wider_and_settle():
    Z = draw("sparse", 2000, 3)
    narrow = fit(Z, np.full(3, 0.01))
    assert not narrow.is_settled(np.full(3, 0.01), np.full(3, 0.01))  # has just been narrowed
    again = narrow.refit(encode(Z), np.full(3, 0.1))
    assert not again.has_changed
    np.testing.assert_array_equal(again.narrowest, narrow.narrowest)
    assert again.is_settled(np.full(3, 0.01), np.full(3, 0.01 / WORTH * 1.01))
    assert not again.is_settled(np.full(3, 0.01), np.array([0.01, 0.01, 0.01 / WORTH * 0.99]))
    assert not again.is_settled(None, np.full(3, FIRST / WORTH * 0.99))


# --- the value --------------------------------------------------------------------------------------------------------


def fit_plainly(q, counts, weights, rounds):
    """Weights of components from their densities q (r, K) at single codes, or parts of them."""
    for _ in range(rounds):
        factor = (counts / (q @ weights)) @ q / np.sum(counts)
        weights = weights * factor**OVERRELAXATION
        weights /= np.sum(weights)
    return weights


def compute_value_plainly(Z, n_widths):
    """Two-fold cross-validated log-likelihood of a sample, code by code, with everything written out."""
    std = np.sqrt(np.mean(Z**2, axis=0))
    grid = make_grid(n_widths)
    bins, others, away = find_bins(Z / std, grid.unit, len(grid.centres))
    at, counts = grid.centres[np.r_[bins, others]], np.r_[1 - away, away]  # codes are counted in parts, in two bins
    half = np.tile(np.arange(len(Z)) % 2, 2)
    q = np.stack([evaluate_component(grid, k, at) for k in range(grid.n_components)], axis=-1)  # (2 r, m, K)
    pooled = fit_plainly(
        q[:, :, :n_widths].reshape(-1, n_widths), counts.ravel(), np.full(n_widths, 1 / n_widths), MANY_ROUNDS
    )
    plain = (pooled + SMOOTHING) / np.sum(pooled + SMOOTHING)
    n_rich = grid.n_components - n_widths
    rich = np.r_[plain / 2, np.full(n_rich, 0.5 / n_rich)]
    value, has_offsets = 0.0, []
    for j in range(Z.shape[1]):
        logs, each = np.zeros((2, len(at))), counts[:, j]
        for family, begin in enumerate((plain, rich)):
            for k in (0, 1):
                part = q[:, j, : len(begin)]
                weights = fit_plainly(part[half == k], each[half == k], begin, ROUNDS)
                logs[family, half != k] = np.log(part[half != k] @ weights)
        gain = logs[1] - logs[0]
        has_offsets.append(each @ gain > N_ERRORS * math.sqrt(each @ gain**2))
        value += each @ logs[int(has_offsets[-1])] / len(Z) - math.log(std[j])
    return value, has_offsets


def test_density_value_equals_a_plain_two_fold_cross_validation():
    Z = np.c_[draw("laplace", 300, 2) * [1, 50], draw("exponential", 300, 2), draw("uniform", 300, 1)]
    density = fit(Z)
    value, has_offsets = compute_value_plainly(Z, int(density.n_widths[0]))
    np.testing.assert_array_equal(density.has_offsets, has_offsets)
    assert set(has_offsets) == {True, False}
    # the same sums, over single codes instead of bins
    np.testing.assert_allclose(density.value, value, rtol=1e-5)  # pooled weights are within TOLERANCE of the maximum
    # the gain over a Gaussian density of single codes, in parts
    gaussian = np.mean(share(norm.logpdf, density.grid, Z / density.std), axis=0)
    np.testing.assert_allclose(density.value, np.sum(density.negentropy + gaussian - np.log(density.std)), rtol=1e-12)


@pytest.mark.parametrize("factor", [1e-5, 3.0])
def test_density_rescale_is_the_density_of_multiplied_codes(factor):
    Z = np.c_[draw("laplace", 1000, 2), draw("exponential", 1000, 1)]
    density = fit(Z)
    scaled = density.rescale(factor)
    np.testing.assert_allclose(scaled.log_density(Z * factor), density.log_density(Z) - math.log(factor), atol=1e-9)
    np.testing.assert_allclose(scaled.score(Z * factor) * factor, density.score(Z), rtol=1e-9, atol=1e-9)
    # and the one that is fitted to them
    np.testing.assert_allclose(scaled.tables, fit(Z * factor).tables, atol=1e-6)


def test_density_arrange_follows_codes_in_another_order_with_other_signs():
    Z = np.c_[draw("laplace", 1000, 1) * 5, draw("exponential", 1000, 2), draw("sparse", 1000, 1)]
    blur = np.array([1.0, 1.0, 1.0, 1e-3])
    density, order, signs = fit(Z, blur), np.array([2, 0, 3, 1]), np.array([-1.0, 1.0, -1.0, 1.0])
    arranged = density.arrange(order, signs)
    moved = Z[:, order] * signs
    np.testing.assert_allclose(arranged.log_density(moved), density.log_density(Z)[:, order], atol=1e-12)
    # a code of zero belongs to the bin on its right, whatever its sign
    expected = np.where(moved == 0, arranged.score(moved), density.score(Z)[:, order] * signs)
    np.testing.assert_allclose(arranged.score(moved), expected, atol=1e-12)
    slope = density.terms(Z, second=True).slope
    np.testing.assert_allclose(arranged.terms(moved, second=True).slope, slope[:, order], rtol=1e-12)
    for name in ("std", "n_widths", "has_offsets", "negentropy"):
        np.testing.assert_array_equal(getattr(arranged, name), getattr(density, name)[order], err_msg=name)
    assert arranged.value == density.value
    assert np.any(density.has_offsets)
    assert len(set(density.n_widths)) == 2
