"""Densities of codes: tables, expectation maximisation, the choice of a family, the cross-validated value."""

import math

import numpy as np
import pytest
from scipy.optimize import minimize_scalar
from scipy.stats import norm

from elldict.samples.arrays import ArraySamples
from elldict.samples.subsample import Subset
from elldict.solver import density as module
from elldict.solver.density import BIN, FIRST, GAUSSIAN, RATIO, WIDEST, WORTH, Density, count_widths, make_grid, run_em

DRAW = {
    "laplace": lambda rng, shape: rng.laplace(size=shape),
    "gauss": lambda rng, shape: rng.standard_normal(shape),
    "uniform": lambda rng, shape: rng.uniform(-1, 1, shape),
    "exponential": lambda rng, shape: rng.exponential(size=shape) - 1,
    "sparse": lambda rng, shape: rng.standard_normal(shape) * (rng.random(shape) < 0.3),
}


def draw(law, r, m, seed=0):
    return DRAW[law](np.random.default_rng(seed), (r, m))


def encode(Z):
    """Take samples as their own codes; every other one is in the second half."""
    return Subset(ArraySamples(Z), np.arange(len(Z)) % 2, Z.T @ Z / len(Z)).encode(np.eye(Z.shape[1]))


def fit(Z, blur=None):
    return Density.begin(Z.shape[1]).refit(encode(Z), blur)


def terms_of_each(density, z):
    """Log-densities of single numbers under the first density."""
    return np.array([density.terms(np.full((1, density.tables.shape[1]), each)).value for each in z])


# --- the grid ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n_widths", [13, 40])
def test_make_grid_components_are_densities(n_widths):
    grid = make_grid(n_widths)
    # x = unit (exp(u) - 1): the midpoint rule for u is precise where a component is resolved by many bins
    half = len(grid.centres) // 2
    k = np.arange(half) + 0.5
    width = grid.unit * BIN * np.exp(BIN * k)
    mass = grid.q[0] @ np.r_[width[::-1], width]
    # of N(0, 8^2) and of the side components at +-8 with a width of 8, all beyond 60 is left out: 7e-11 at most;
    # for the rest the rule converges faster than any power of the bins, the widest of which is half a width (pair 2.4)
    np.testing.assert_allclose(mass, 1, atol=1e-4)


@pytest.mark.parametrize("n_widths", [13, 40])
def test_make_grid_derivatives_are_those_of_its_densities(n_widths):
    grid = make_grid(n_widths)
    chosen = np.r_[0, n_widths - 1, n_widths : len(grid.widths) : 5]
    x = np.array([0.03, 0.4, -0.9, 2.3, -5.0])
    near = grid.centres[grid.locate(x)]
    for k in chosen:
        h = 1e-3 * grid.widths[k]

        def q(x, k=k):
            return evaluate_component(grid, k, x)

        np.testing.assert_allclose(grid.q[0, k, grid.locate(x)], q(near), rtol=1e-9, atol=1e-280)
        slope, bend = (q(near + h) - q(near - h)) / (2 * h), (q(near + h) - 2 * q(near) + q(near - h)) / h**2
        scale = np.max(grid.q[0, k]) / grid.widths[k]
        np.testing.assert_allclose(grid.q[1, k, grid.locate(x)], slope, atol=1e-5 * scale)
        np.testing.assert_allclose(grid.q[2, k, grid.locate(x)], bend, atol=1e-5 * scale / grid.widths[k])


def evaluate_component(grid, k, x):
    """Component k of a grid, from its definition: about zero, then pairs, then sides."""
    x = np.asarray(x, dtype=float)
    if k < grid.n_widths:
        return norm.pdf(x, 0, WIDEST * RATIO**-k)
    k -= grid.n_widths
    if k < 48:  # means .2, .4, ... 2.4 change fastest; widths .1, .2, .4, .8
        mean, width = 0.2 * (k % 12 + 1), 0.1 * 2 ** (k // 12)
        return (norm.pdf(x, mean, width) + norm.pdf(x, -mean, width)) / 2
    k -= 48  # means 1/4, 1/2, ... 8 and their negatives; widths of half and of all of the mean
    means = np.r_[2.0 ** np.arange(-2, 4), -(2.0 ** np.arange(-2, 4))]
    return norm.pdf(x, means[k % 12], (0.5, 1.0)[k // 12] * abs(means[k % 12]))


def test_grid_locate_finds_the_bins_around_their_centres():
    grid = make_grid(20)
    np.testing.assert_array_equal(grid.locate(grid.centres), np.arange(len(grid.centres)))
    assert np.all(np.diff(grid.centres) > 0)
    np.testing.assert_array_equal(grid.centres, -grid.centres[::-1])
    x = np.random.default_rng(0).uniform(-50, 50, 1000)
    # from a centre to the edge of its bin: unit exp(u) (exp(BIN / 2) - 1), where unit exp(u) = |centre| + unit
    reach = (np.abs(grid.centres[grid.locate(x)]) + grid.unit) * math.expm1(BIN / 2)
    assert np.all(np.abs(x - grid.centres[grid.locate(x)]) <= reach * (1 + 1e-12))
    np.testing.assert_array_equal(grid.locate(np.array([-1e300, 1e300])), [0, len(grid.centres) - 1])


def test_count_widths_never_goes_below_the_narrowest():
    narrowest = np.r_[WIDEST * RATIO ** -np.arange(5.0), 0.124, 1e-5, 0.0]
    n = count_widths(narrowest)
    np.testing.assert_array_equal(n[:5], np.arange(1, 6))
    widths = WIDEST * RATIO ** (1.0 - n)
    assert np.all(widths[:-1] >= narrowest[:-1] * (1 - 1e-9))
    assert np.all(widths[:-1] < narrowest[:-1] * RATIO * (1 + 1e-9))
    assert 1e-13 <= widths[-1] < 1.5e-13


# --- expectation maximisation -----------------------------------------------------------------------------------------


def make_problem(K=6, B=40, m=3, seed=0):
    rng = np.random.default_rng(seed)
    return rng.dirichlet(np.ones(K), m), rng.poisson(5.0, (m, B)).astype(float), rng.exponential(size=(K, B))


def test_run_em_never_lowers_the_likelihood():
    weights, counts, q = make_problem()
    value = -np.inf
    for rounds in range(12):
        fitted = run_em(weights, counts, q, rounds)
        np.testing.assert_allclose(fitted.sum(axis=1), 1, rtol=1e-12)
        new = np.sum(counts * np.log(fitted @ q), axis=1)
        assert np.all(new > value)
        value = new


def test_run_em_of_two_components_equals_direct_maximisation():
    weights, counts, q = make_problem(K=2, m=1)
    fitted = run_em(weights, counts, q, 3000)
    best = minimize_scalar(
        lambda w: -np.sum(counts * np.log(w * q[0] + (1 - w) * q[1])),
        bounds=(0, 1),
        method="bounded",
        options={"xatol": 1e-9},
    )
    assert 0.01 < best.x < 0.99
    np.testing.assert_allclose(fitted[0], [best.x, 1 - best.x], atol=1e-6)


def test_run_em_of_many_components_satisfies_the_conditions_of_a_maximum():
    # convex: the gain by any component is at most 1, and 1 where its weight is positive
    weights, counts, q = make_problem()
    fitted = run_em(weights, counts, q, 20_000)
    gain = (counts / (fitted @ q)) @ q.T / counts.sum(axis=1, keepdims=True)
    assert np.max(gain) < 1 + 1e-4
    np.testing.assert_allclose(gain[fitted > 1e-3], 1, atol=1e-4)


def test_run_em_leaves_weights_of_zero_and_empty_bins_alone():
    weights, counts, q = make_problem()
    weights[:, 2] = 0
    weights /= weights.sum(axis=1, keepdims=True)
    fitted = run_em(weights, counts, q, 5)
    np.testing.assert_array_equal(fitted[:, 2], 0)
    wide = np.c_[counts, np.zeros((3, 4))], np.c_[q, np.zeros((6, 4))]
    np.testing.assert_allclose(run_em(weights, *wide, 5), fitted, rtol=1e-12)


# --- fitted densities -------------------------------------------------------------------------------------------------

LAWS = list(DRAW)


@pytest.mark.parametrize("law", LAWS)
def test_density_integrates_to_one(law):
    density = fit(draw(law, 2000, 2) * [1.0, 30.0])
    grid, half = density.grid, len(density.grid.centres) // 2
    width = grid.unit * BIN * np.exp(BIN * (np.arange(half) + 0.5))
    mass = np.exp(density.tables[0]) @ np.r_[width[::-1], width] * density.std
    np.testing.assert_allclose(mass, 1, atol=1e-4)


@pytest.mark.parametrize("law", LAWS)
def test_density_tables_of_derivatives_agree_with_that_of_the_logarithm(law):
    density = fit(draw(law, 2000, 2), np.full(2, 0.02))
    inside = np.abs(density.grid.centres) < 3
    x, (level, score, bend) = density.grid.centres[inside], density.tables[:, :, inside]
    h = np.diff(x)
    # Hermite's rule: what is left is h^5 / 720 of the fifth derivative, with h below a tenth of the narrowest width
    # about zero, and a bin of .15 at |x| = 3 beside components as narrow as .1: (1.5)^5 / 720 * 24
    rise = h * (score[:, 1:] + score[:, :-1]) / 2 - h**2 * (bend[:, 1:] - bend[:, :-1]) / 12
    np.testing.assert_allclose(np.diff(level), rise, atol=0.02)
    near = np.abs(x[1:]) < 0.8
    np.testing.assert_allclose(np.diff(level)[:, near], rise[:, near], atol=1e-4)
    # the trapezoidal rule: (h / width)^2 / 12 of the largest second derivative, and a factor of a few
    wrong = np.diff(score) / h - (bend[:, 1:] + bend[:, :-1]) / 2
    assert np.max(np.abs(wrong[:, near])) < 0.05 * np.max(np.abs(bend))


@pytest.mark.parametrize("law", ["laplace", "exponential"])
def test_density_terms_are_derivatives_of_the_log_likelihood(law):
    density = fit(draw(law, 3000, 1) * 7.0)
    centre = density.grid.centres[np.abs(density.grid.centres) < 3] * density.std
    z = centre + 0.3 * 0.05 * np.abs(centre)  # off centre, within the bin
    h = 1e-4 * np.abs(centre)
    terms = density.terms(z[:, None])
    up, here, down = (terms_of_each(density, each) for each in (z + h, z, z - h))
    np.testing.assert_allclose(terms.value, here.sum(), rtol=1e-10)
    np.testing.assert_allclose(terms.g[:, 0], (up - down) / (2 * h), rtol=1e-4, atol=1e-4)
    # g itself is a straight line in a bin, with the second derivative as its slope
    moved = density.terms((z + h)[:, None]).g[:, 0]
    np.testing.assert_allclose(terms.slope[:, 0], (moved - terms.g[:, 0]) / h, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("law", ["laplace", "gauss"])
def test_density_terms_hardly_jump_from_bin_to_bin(law):
    density = fit(draw(law, 3000, 1))
    grid = density.grid
    edge = grid.unit * np.expm1(BIN * np.arange(1, 60))
    jump = terms_of_each(density, edge * (1 + 1e-9) * density.std) - terms_of_each(
        density, edge * (1 - 1e-9) * density.std
    )
    # left and right parabola differ by their third-order terms, (h / 2)^3 / 6 of the third derivative from both sides;
    # h < BIN (|x| + unit) < .07 of a width, third derivatives of log q are below 10 in units of the width
    assert np.max(np.abs(jump)) < 2 * 0.035**3 / 6 * 10
    steps = np.abs(np.diff(density.tables[0, 0]))
    assert np.max(steps) > 100 * np.max(np.abs(jump))  # a table without derivatives would jump by these


def test_density_of_gaussian_codes_is_close_to_the_true_one():
    r = 20_000
    Z = draw("gauss", r, 3) * [1.0, 2.0, 0.001]
    density = fit(Z)
    # the gain over a Gaussian density fitted to all: none but for a dozen weights, r times half a nat each
    assert np.all(np.abs(density.negentropy) < 12 / r)
    exact = np.sum(norm.logpdf(Z, 0, density.std)) / r
    np.testing.assert_allclose(density.terms(Z).value / r, exact, atol=24 / r)
    np.testing.assert_allclose(GAUSSIAN, norm.logpdf(Z / density.std).mean(), atol=1e-12)


@pytest.mark.parametrize("law", ["laplace", "uniform", "exponential"])
def test_density_negentropy_is_that_of_the_law(law):
    r = 20_000
    negentropy = fit(draw(law, r, 4)).negentropy
    gauss = 0.5 * math.log(2 * math.pi * math.e)
    # of unit variance; the entropies are 1 + log(2 b) with b = 1 / sqrt(2), log(2 sqrt 3) and 1
    entropy = {"laplace": 1 + math.log(math.sqrt(2)), "uniform": math.log(2 * math.sqrt(3)), "exponential": 1.0}[law]
    # Gaussians as wide as these miss an edge: of a uniform density by some .04 nats, of an exponential one by some .11;
    # log-likelihoods have a standard deviation of one at most, and there are four codes
    missed = {"laplace": 0.0, "uniform": 0.05, "exponential": 0.13}[law]
    chance = 4 / math.sqrt(4 * r)
    assert gauss - entropy - missed - chance < np.mean(negentropy) < gauss - entropy + chance


@pytest.mark.parametrize("law", ["laplace", "gauss", "uniform", "exponential"])
def test_density_family_has_offsets_for_flat_and_skewed_codes_only(law):
    density = fit(draw(law, 4000, 6))
    np.testing.assert_array_equal(density.has_offsets, law in ("uniform", "exponential"))
    assert not density.narrowed


def test_density_rich_family_is_kept_while_it_gains():
    # chance wins by two standard errors are rare: 60 uniform samples rarely gain so much, but gain
    Z = draw("uniform", 90, 8)
    first = fit(Z)
    assert not np.all(first.has_offsets)
    rich = module.replace(first, has_offsets=np.ones(8, dtype=bool)).refit(encode(Z))
    assert np.sum(rich.has_offsets) > np.sum(first.has_offsets)
    gauss = draw("gauss", 4000, 8)
    kept = module.replace(fit(gauss), has_offsets=np.ones(8, dtype=bool)).refit(encode(gauss))
    assert not np.any(kept.has_offsets)


@pytest.mark.parametrize("blur", [0.03, 1e-3, 1e-6, 0.0])
def test_density_widths_of_sparse_codes_narrow_down_to_the_blur(blur):
    density = fit(draw("sparse", 2000, 3), np.full(3, blur))
    assert density.narrowed
    least = max(blur, 1e-13)
    assert np.all(density.narrowest >= least * (1 - 1e-9))
    assert np.all(density.narrowest < least * RATIO * (1 + 1e-9))


def test_density_widths_follow_the_blur_of_each_code():
    density = fit(draw("sparse", 2000, 3), np.array([0.01, 1e-4, 1.0]))
    assert np.all(density.narrowest >= [0.01, 1e-4, FIRST * (1 - 1e-9)])
    assert np.all(density.narrowest < np.array([0.01, 1e-4, FIRST]) * RATIO)


def test_density_widths_stay_where_codes_gain_nothing_or_little_is_asked():
    gauss = fit(draw("gauss", 2000, 4), np.full(4, 1e-3))
    np.testing.assert_allclose(gauss.narrowest, FIRST)
    assert not gauss.narrowed
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
    assert not again.narrowed
    np.testing.assert_array_equal(again.narrowest, narrow.narrowest)
    assert again.is_settled(np.full(3, 0.01), np.full(3, 0.01 / WORTH * 1.01))
    assert not again.is_settled(np.full(3, 0.01), np.array([0.01, 0.01, 0.01 / WORTH * 0.99]))
    assert not again.is_settled(None, np.full(3, FIRST / WORTH * 0.99))


# --- the value --------------------------------------------------------------------------------------------------------


def fit_plainly(q, weights, rounds):
    """Weights of components from their densities q (r, K) at single samples."""
    for _ in range(rounds):
        share = weights * q
        weights = np.mean(share / share.sum(axis=1, keepdims=True), axis=0)
    return weights


def compute_value_plainly(Z, n_widths):
    """Two-fold cross-validated log-likelihood of a sample, code by code, with everything written out."""
    std = np.sqrt(np.mean(Z**2, axis=0))
    grid = make_grid(n_widths)
    at = grid.centres[grid.locate(Z / std)]  # codes are counted in bins
    half = np.arange(len(Z)) % 2
    q = np.stack([evaluate_component(grid, k, at) for k in range(len(grid.widths))], axis=-1)  # (r, m, K)
    pooled = fit_plainly(q[:, :, :n_widths].reshape(-1, n_widths), np.full(n_widths, 1 / n_widths), 2000)
    plain = (pooled + 1e-3) / np.sum(pooled + 1e-3)
    n_rich = len(grid.widths) - n_widths
    rich = np.r_[plain / 2, np.full(n_rich, 0.5 / n_rich)]
    value, has_offsets = 0.0, []
    for j in range(Z.shape[1]):
        logs = np.zeros((2, len(Z)))
        for family, begin in enumerate((plain, rich)):
            for k in (0, 1):
                part = q[:, j, : len(begin)]
                weights = fit_plainly(part[half == k], begin, 30)
                logs[family, half != k] = np.log(part[half != k] @ weights)
        gain = logs[1] - logs[0]
        has_offsets.append(np.sum(gain) > 2 * math.sqrt(np.sum(gain**2)))
        value += np.mean(logs[int(has_offsets[-1])]) - math.log(std[j])
    return value, has_offsets


def test_density_value_equals_a_plain_two_fold_cross_validation():
    Z = np.c_[draw("laplace", 300, 2) * [1, 50], draw("exponential", 300, 2), draw("uniform", 300, 1)]
    density = fit(Z)
    value, has_offsets = compute_value_plainly(Z, int(density.n_widths[0]))
    np.testing.assert_array_equal(density.has_offsets, has_offsets)
    assert set(has_offsets) == {True, False}
    # histograms instead of single samples, otherwise the same sums; pooled weights may be found to 1e-6 in another way
    np.testing.assert_allclose(density.value, value, atol=1e-4)
    np.testing.assert_allclose(density.value, np.sum(density.negentropy + GAUSSIAN - np.log(density.std)), rtol=1e-12)


def test_density_value_judges_each_half_by_the_other():
    # halves of different laws: each makes the other less likely than itself
    Z = np.where((np.arange(2000) % 2 == 0)[:, None], draw("gauss", 2000, 2) * 0.05, draw("gauss", 2000, 2))
    mixed = fit(np.random.default_rng(0).permutation(Z))
    assert fit(Z).value < mixed.value - 0.5


def test_density_terms_agree_with_judge_within_the_width_of_bins():
    Z = draw("laplace", 3000, 3) * [1, 4, 0.1]
    density = fit(Z)
    centres = np.random.default_rng(0).choice(density.grid.centres[np.abs(density.grid.centres) < 10], (50, 3))
    at_centres = centres * density.std
    np.testing.assert_allclose(density.terms(at_centres).value, density.judge(at_centres), rtol=1e-9)
    terms = density.terms(Z)
    # at most half a bin, BIN / 2 (|x| + unit), times the derivative, for every code
    reach = math.expm1(BIN / 2) * (np.abs(Z) + 2 * density.grid.unit * density.std)
    bound = np.sum(reach * (np.abs(terms.g) + reach * np.abs(terms.slope)))
    difference = abs(terms.value - density.judge(Z))
    assert 0 < difference < bound
    # errors of single codes have either sign: they cancel like 1 / sqrt(9000)
    assert difference < 0.1 * bound


def test_density_of_scaled_codes_is_the_same_but_for_the_scale():
    Z, c = np.c_[draw("laplace", 1000, 2), draw("uniform", 1000, 1)], 2.0**200
    one, other = fit(Z), fit(Z * c)
    np.testing.assert_array_equal(other.tables[1:], one.tables[1:])
    np.testing.assert_allclose(other.tables[0], one.tables[0] - math.log(c), atol=1e-10)
    np.testing.assert_allclose(other.value, one.value - 3 * math.log(c), rtol=1e-12)
    np.testing.assert_array_equal(other.negentropy, one.negentropy)
    np.testing.assert_allclose(other.terms(Z * c).g * c, one.terms(Z).g, rtol=1e-12)
    np.testing.assert_allclose(other.terms(Z * c).slope * c * c, one.terms(Z).slope, rtol=1e-12)


def test_density_of_mirrored_codes_is_mirrored():
    Z = draw("exponential", 1000, 2)
    one, other = fit(Z), fit(-Z)
    np.testing.assert_allclose(other.value, one.value, rtol=1e-12)
    np.testing.assert_allclose(other.tables[0], one.tables[0][:, ::-1], atol=1e-8)


def test_density_counts_every_code_once_in_its_half():
    Z = draw("laplace", 101, 3)
    density = module.replace(Density.begin(3), std=np.sqrt(np.mean(Z**2, axis=0)))
    counts = density.count(encode(Z))
    np.testing.assert_array_equal(counts.sum(axis=2), [[51] * 3, [50] * 3])
    place = density.grid.locate(Z[2, 1] / density.std[1])
    assert counts[0, 1, place] >= 1


def test_density_of_outliers_stays_finite():
    Z = draw("laplace", 5000, 2)
    Z[17] = 1e4
    density = fit(Z)
    assert np.isfinite(density.value)
    assert np.all(np.isfinite(density.tables))
    terms = density.terms(Z)
    assert np.all(np.isfinite(terms.g))
    assert np.all(np.isfinite(terms.slope))
