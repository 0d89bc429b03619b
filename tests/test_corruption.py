"""Sparse corruption: posteriors and messages against their definitions, recovery, and never worse than the l_p norm."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.stats import norm

from elldict import LpDictionaryLearning
from elldict.atoms import Options
from elldict.corruption.climb import find_angles, sum_slopes
from elldict.corruption.messages import begin, exchange, explain
from elldict.corruption.prior import Mixture, Prior
from elldict.datasets import make_bernoulli_gaussian
from elldict.exceptions import CorruptedEntriesWarning
from elldict.fit import fit
from elldict.metrics import recovery_error
from elldict.model_file import load
from elldict.samples.arrays import ArraySamples
from elldict.solver.steps import rotate
from elldict.theory import cramer_rao_bound
from elldict.validation import InvalidParameterError
from tests.fits import assert_same, assert_same_fit, draw, draw_atoms

N, R, RATE = 16, 3000, 0.1
PRIOR = Prior(np.full(N, 0.2), np.ones(N), rate=RATE, center=1.0, spread=0.02, noise=0.01)
MIXTURES = [Mixture(0.3, 1.0, 0.0), Mixture(0.1, 0.2, 0.05, center=1.5)]


def make(r=R, n=N, size=1.0, **options):
    """Make samples with corrupted entries, their dictionary, and the samples without corruption and noise."""
    X, dictionary, codes = make_bernoulli_gaussian(
        r, n, corruption=size, **{"density": 0.2, "random_state": 0, **options}
    )
    X.setflags(write=False)
    return X, dictionary, codes @ dictionary


def measure_lp(X, dictionary):
    """Error of the atoms of the l_p norm."""
    return recovery_error(LpDictionaryLearning(refine=None, error_bars=False).fit(X).components_, dictionary)


def fit_corrupted(X, **options):
    return LpDictionaryLearning(refine="sparse-corruption", **options).fit(X)


@pytest.fixture(scope="module")
def corrupted():
    return make()


@pytest.fixture(scope="module")
def model(corrupted):
    return fit_corrupted(corrupted[0])


@pytest.fixture(scope="module")
def noisy():
    X, dictionary, clean = make(noise_std=0.1)
    return X, dictionary, clean, fit_corrupted(X)


# Distributions and messages


@pytest.mark.parametrize("mixture", MIXTURES, ids=["codes", "errors"])
@pytest.mark.parametrize("seen", [-1.7, 0.05, 0.4, 2.0])
def test_posterior_moments_match_quadrature(mixture, seen):
    blur, p = 0.07, mixture.probability
    parts = [(1 - p, 0.0, mixture.narrow + 1e-12), (p / 2, mixture.center, mixture.wide)]
    parts.append((p / 2, -mixture.center, mixture.wide))

    def weigh(x):
        prior = sum(share * norm.pdf(x, mean, np.sqrt(variance)) for share, mean, variance in parts)
        return prior * norm.pdf(seen, x, np.sqrt(blur))

    total, first, second = (
        quad(lambda x, k=k: x**k * weigh(x), -8, 8, points=[0, -1e-5, 1e-5], limit=500, epsabs=1e-13)[0]
        for k in range(3)
    )
    found = mixture.observe(np.array([[seen]]), blur)
    assert mixture.log_density(np.array([[seen]]), blur) == pytest.approx(np.log(total), abs=1e-4)
    assert found.mean == pytest.approx(first / total, abs=1e-5)
    assert found.variance == pytest.approx(second / total - (first / total) ** 2, abs=1e-5)


def test_prior_is_learned_from_values_seen_through_noise(rng):
    r, wrong = 4000, replace(PRIOR, density=np.full(N, 0.5), rate=0.3, center=0.6, spread=0.3, noise=0.1)
    x = rng.standard_normal((r, N)) * (rng.random((r, N)) < PRIOR.density)
    e = rng.choice([-1.0, 1.0], (r, N)) * PRIOR.center + np.sqrt(PRIOR.spread) * rng.standard_normal((r, N))
    e = np.where(rng.random((r, N)) < PRIOR.rate, e, np.sqrt(PRIOR.noise) * rng.standard_normal((r, N)))
    x, e, prior = x + 0.1 * rng.standard_normal((r, N)), e + 0.1 * rng.standard_normal((r, N)), wrong
    for _ in range(60):
        prior = prior.learn(prior.codes.observe(x, 0.01), prior.errors.observe(e, 0.01), np.full(r, 1 / r), 1e-12)
    found, true = ([p.density.mean(), p.variance.mean(), p.rate, p.center] for p in (prior, PRIOR))
    # standard errors with r n = 64,000 values, of which 12,800 and 6,400 are active, are below 1.3 %
    assert found == pytest.approx(true, rel=0.05)
    assert [prior.spread, prior.noise] == pytest.approx([PRIOR.spread, PRIOR.noise], rel=0.1)


def test_slopes_are_those_of_the_log_density_of_codes():
    """At messages that are kept: the part of the evidence that depends on the atoms."""
    A, angle = draw_atoms(N), 1e-4
    Y = draw("sparse", 400, N) @ A
    messages = exchange(Y, A, PRIOR, *begin(Y, PRIOR))
    clean, blur = messages.codes.seen @ A, messages.codes.blur
    turn = np.zeros((N, N))
    turn[0, 1], turn[1, 0] = angle, -angle
    values = [np.mean(np.sum(PRIOR.codes.log_density(clean @ rotate(A, t).T, blur), axis=1)) for t in (turn, -turn)]
    slope = find_angles(sum_slopes(PRIOR, messages, None), 400, 0.0).slope[0, 1]
    assert slope / blur == pytest.approx((values[0] - values[1]) / (2 * angle), rel=1e-4)


# Fits


@pytest.mark.parametrize("size", [0.5, 1.5, 3.0])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_corrupted_samples_without_noise_give_exact_atoms(size, dtype):
    X, dictionary, _ = make(size=size, dtype=dtype)
    found = fit_corrupted(X, error_bars=False)
    assert found.refined_ == "sparse-corruption"
    assert "likelihood of samples with sparse corruption" in found.status_
    # twice the sum of 15 squared angles below the last steps: 5e-6, ten times the rounding, and 1e-12
    assert recovery_error(found.components_, dictionary) < (1e-7 if dtype == "float32" else 1e-12)
    # 4 standard errors of a rate of 0.1 in 48,000 entries are 5 %; entries learned from are as many at most
    assert found.corruption_rate_ == pytest.approx(RATE, rel=0.1)
    assert found.corruption_scale_ == pytest.approx(size, rel=0.02)


def test_noise_leaves_an_error_near_the_bound_that_is_stated(noisy):
    X, dictionary, _, found = noisy
    bound = cramer_rao_bound(n_features=N, n_samples=R, density=0.2, noise_std=0.1)
    error = recovery_error(found.components_, dictionary)
    # corruption can only hide information, so the bound without it holds; 4 standard errors of a sum of 120 squared
    # angles are 52 %
    assert 0.48 * bound < error < measure_lp(X, dictionary) / 5
    assert error / 2 < found.expected_error_ < 2 * error
    # attributes describe codes without corruption: four standard errors; those of the noise are far smaller
    assert found.noise_std_ == pytest.approx(0.1, rel=0.1)
    np.testing.assert_allclose(found.density_, 0.2, atol=4 * np.sqrt(0.2 * 0.8 / R))
    np.testing.assert_allclose(found.scale_, 1, atol=4 / np.sqrt(2 * 0.2 * R))


@pytest.mark.parametrize("law", ["laplace", "uniform", "noisy", "exponential"])
def test_other_samples_keep_the_components_of_the_l_p_norm(law):
    X = np.random.default_rng(1).permutation(draw(law, 1500, 8) @ draw_atoms(8))
    X += 0.2 * np.random.default_rng(2).standard_normal(X.shape)
    with pytest.warns(CorruptedEntriesWarning, match=r"not applied.*refine='auto'"):
        found = fit_corrupted(X, error_bars=False)
    expected = LpDictionaryLearning(refine=None, error_bars=False).fit(X)
    np.testing.assert_array_equal(found.components_, expected.components_)
    assert "sparse corruption does not explain the samples better" in found.status_
    assert found.refined_ is None
    assert found.corruption_rate_ == found.corruption_scale_ == 0


@pytest.mark.filterwarnings("ignore::elldict.exceptions.NotWhiteWarning")
def test_density_and_scale_are_those_of_each_atom(rng):
    r, dictionary, densities = 6000, draw_atoms(N), np.linspace(0.1, 0.3, N)
    scales = 0.4 / np.sqrt(densities) * np.tile([1, 1.2], N // 2)  # variances are in another order
    codes = rng.standard_normal((r, N)) * (rng.random((r, N)) < densities) * scales
    errors = rng.choice([-1.0, 1.0], (r, N)) * (rng.random((r, N)) < RATE)
    found = fit_corrupted(codes @ dictionary + errors, error_bars=False)
    own = np.argmax(np.abs(found.components_ @ dictionary.T), axis=1)
    # 5 standard errors of the fraction and of the root mean square of 600 codes or more
    np.testing.assert_allclose(found.density_, densities[own], rtol=5 / np.sqrt(600))
    np.testing.assert_allclose(found.scale_, scales[own], rtol=5 / np.sqrt(2 * 600))


@pytest.mark.filterwarnings("ignore::elldict.exceptions.CorruptedEntriesWarning")
@pytest.mark.filterwarnings("ignore::elldict.exceptions.SuspiciousFeaturesWarning")
def test_rounded_samples_are_not_fitted_worse():
    """Fault 35: entries of coarsely rounded samples look corrupted."""
    X, dictionary, _ = make(size=0.0)
    X = np.round(X)
    assert recovery_error(fit_corrupted(X, error_bars=False).components_, dictionary) < 1.01 * measure_lp(X, dictionary)


def test_corruption_that_is_the_sparsest_basis_is_not_learned():
    """Fault 37: of size 3, it makes the features themselves the maximum of the l_p norm."""
    X, dictionary, _ = make(size=3.0, noise_std=0.1)
    assert measure_lp(X, dictionary) > 0.5
    assert recovery_error(fit_corrupted(X, error_bars=False).components_, dictionary) < 0.01


def test_integer_weights_are_repeated_samples(noisy):
    X, _, _, found = noisy
    weights = np.random.default_rng(1).integers(0, 3, R)
    one = fit_corrupted(np.repeat(X, weights, axis=0), error_bars=False)
    other = LpDictionaryLearning(refine="sparse-corruption", error_bars=False).fit(X, sample_weight=weights)
    # both find the same maximum, from the distributions of other subsamples
    assert recovery_error(one.components_, other.components_) < recovery_error(one.components_, found.components_) / 10


def test_fit_has_the_same_bits_for_any_number_of_threads(noisy):
    X = np.tile(noisy[0], (6, 1)) + 0.01 * np.random.default_rng(3).standard_normal((6 * R, N))
    options = Options(refine="sparse-corruption", error_bars=False)
    one, other = (fit(ArraySamples(X, n_threads), options) for n_threads in (1, 3))
    assert_same(one.mixing, other.mixing)
    assert_same(one.corruption, other.corruption)


@pytest.mark.parametrize(
    "options", [{"whiten": True}, {"solver": "power"}, {"normalize": "samples"}, {"n_components": 3}], ids=str
)
def test_parameters_that_do_not_go_with_corruption_are_refused(options, corrupted):
    with pytest.raises(InvalidParameterError, match="refine"):
        fit_corrupted(corrupted[0], **options)


# Denoising and files


def test_denoise_removes_corruption_exactly_without_noise(model, corrupted):
    X, _, true = corrupted
    error = np.mean((model.denoise(X) - true) ** 2, axis=1)
    assert np.mean(error < 1e-12) > 0.9
    assert np.mean(error) < np.mean((X - true) ** 2) / 6


def test_denoise_is_better_than_each_code_alone(noisy):
    X, _, true, found = noisy
    plain = LpDictionaryLearning(error_bars=False).fit(X)
    denoised = found.denoise(X)
    error = np.mean((denoised - true) ** 2)
    assert error < np.mean((plain.denoise(X) - true) ** 2) / 2
    assert np.mean((found.denoise(X, noise_std=0.1) - true) ** 2) == pytest.approx(error, rel=0.05)
    np.testing.assert_allclose(found.denoise(X[:5]), denoised[:5], atol=1e-12)


@pytest.mark.parametrize("name", ["model", "noisy"])
def test_model_file_keeps_corruption(name, request, corrupted, tmp_path):
    found = request.getfixturevalue(name)
    found = found[-1] if name == "noisy" else found
    found.save(tmp_path / "model.npz")
    again = load(tmp_path / "model.npz")
    assert_same_fit(found, again, ignored=("has_changed",))
    np.testing.assert_array_equal(found.denoise(corrupted[0][:50]), again.denoise(corrupted[0][:50]))


def test_interrupted_fit_resumes_with_the_same_bits(noisy, tmp_path):
    X, _, _, found = noisy
    path = tmp_path / "fit.npz"

    def interrupt(iteration):
        if iteration.iteration == len(found.history_) - 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        LpDictionaryLearning(refine="sparse-corruption").fit(X, callback=interrupt, checkpoint=path)
    again = LpDictionaryLearning(refine="sparse-corruption").fit(X, checkpoint=path, resume=True)
    assert_same_fit(found, again)


def test_explain_keeps_the_better_of_its_rounds(rng):
    A, Y = draw_atoms(N), rng.standard_normal((300, N))  # no sample is sparse: messages diverge
    prior = replace(PRIOR, noise=1e-12)
    found = explain(Y, A, prior)
    assert np.all(np.isfinite(found.mean))
    assert np.all(found.variance < np.mean(Y * Y))


# The check of other fits


@pytest.mark.parametrize("size", [1.0, 3.0])
def test_default_fit_names_the_option_for_corrupted_entries(size):
    X, _, _ = make(10_000, 32, size=size, density=0.3)
    with pytest.warns(CorruptedEntriesWarning, match="Set refine='sparse-corruption'"):
        LpDictionaryLearning(error_bars=False).fit(X)


@pytest.mark.parametrize("noise_std", [0.0, 0.2, 0.6])
def test_default_fit_of_sparse_samples_does_not_warn(noise_std):
    X, dictionary, _ = make(5000, size=0.0, density=0.3, noise_std=noise_std)
    for samples in (X, X @ dictionary.T):  # which are sparse along features
        assert LpDictionaryLearning(error_bars=False).fit(samples).warnings_ == ()


def test_whitened_fit_is_not_checked():
    X, _, _ = make(4000, density=0.3, size=3.0)
    model = LpDictionaryLearning(whiten=True, error_bars=False).fit(X)
    assert "CorruptedEntriesWarning" not in dict(model.warnings_)
