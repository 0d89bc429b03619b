"""Samples without noise and corruption: posterior means, the best thresholds, and how many entries were hit."""

import math
import warnings
from dataclasses import replace
from functools import partial
from pathlib import Path

import dask.array as da
import matplotlib.image
import numpy as np
import pytest
import scipy.integrate
import scipy.optimize

import elldict
from elldict import LpDictionaryLearning, LpICA
from elldict._old.denoising import CodeLaw, PosteriorMean, find_thresholds
from elldict._old.persistence import ModelFileError
from elldict._old.solver.amp import CorruptionLaw, guess_codes
from elldict._old.solver.directions import random_orthonormal
from elldict._old.solver.hits import negative_log_likelihood
from elldict._old.solver.mixture import MixtureLaw, make_components
from elldict.datasets import make_bernoulli_gaussian
from elldict.exceptions import NotIdentifiableWarning
from tests._old.helpers import draw
from tests._old.test_model_file import npy, rewritten

SHARED = Path(__file__).resolve().parents[3] / "shared" / "data"


def normal(z, variance, mean=0.0):
    return math.exp(-0.5 * (z - mean) ** 2 / variance) / math.sqrt(2 * math.pi * variance)


def law_of(density, scale, noise, **more):
    return CodeLaw(np.atleast_1d(density), np.atleast_1d(scale), noise, **more)


def guess(law, Z):
    return PosteriorMean(law, np.eye(len(law.density)))(np.asarray(Z, dtype=float), np)


@pytest.mark.parametrize(("density", "scale", "noise"), [(0.3, 1.0, 0.2), (0.05, 2.0, 0.7), (0.8, 0.5, 0.5)])
def test_posterior_means_are_those_of_bayes_by_integration(density, scale, noise):
    """E[x|z]: the integral over x of x times the slab times the noise, over the same with the spike, and without x."""
    z = np.linspace(-4, 4, 9)
    for value, found in zip(z, guess(law_of(density, scale, noise), z[:, None])[:, 0], strict=True):
        slab = [
            scipy.integrate.quad(
                lambda x, k=k, value=value: x**k * normal(x, scale**2) * normal(value - x, noise**2),
                -12,
                12,
                points=[0, value],
            )[0]
            for k in (0, 1)
        ]
        expected = density * slab[1] / (density * slab[0] + (1 - density) * normal(value, noise**2))
        assert found == pytest.approx(expected, abs=1e-8)


def test_posterior_means_of_a_mixture_are_those_of_bayes_by_integration():
    """Three components: of mean zero, a pair about +-1, and one on one side; noise narrower than all of them."""
    parts, noise = make_components(), 0.05
    pair, one_sided = np.flatnonzero(~parts.sparse & ~parts.skewed)[18], np.flatnonzero(parts.skewed)[4]
    used, shares, std = [24, int(pair), int(one_sided)], [0.5, 0.3, 0.2], 1.5
    weights = np.zeros((1, len(parts.q)))
    weights[0, used] = shares
    gaussians = []  # share, mean and variance of what the codes are without noise
    for k, share in zip(used, shares, strict=True):
        means = [parts.means[k]] if parts.skewed[k] else [parts.means[k], -parts.means[k]]
        gaussians += [(share / len(means), std * mean, (std * parts.stds[k]) ** 2 - noise**2) for mean in means]
    law = law_of(1.0, std, noise, mixture=MixtureLaw(weights, np.array([std])))
    z = np.linspace(-5, 6, 23)
    found = guess(law, z[:, None])[:, 0]
    for value, mean in zip(z, found, strict=True):
        below = sum(share * normal(value, v + noise**2, mu) for share, mu, v in gaussians)
        above = 0.0
        for share, mu, v in gaussians:
            integrand = lambda x, mu=mu, v=v, value=value: x * normal(x, v, mu) * normal(value - x, noise**2)  # noqa: E731
            above += share * scipy.integrate.quad(integrand, value - 1, value + 1, points=[value])[0]
        # bins are a sixteenth of the narrowest component wide, and guesses are linear in each: 1e-3 of the code
        assert mean == pytest.approx(above / below, abs=1e-3 * std)


def test_components_narrower_than_the_noise_guess_their_mean():
    weights = np.zeros((1, len(make_components().q)))
    weights[0, 0] = 1.0  # a sixteenth of the code wide
    law = law_of(1.0, 1.0, 0.2, mixture=MixtureLaw(weights, np.array([1.0])))
    np.testing.assert_allclose(guess(law, [[-0.3], [0.0], [0.2]]), 0, atol=1e-12)


def test_without_noise_codes_stay_as_they_are():
    Z = np.random.default_rng(0).standard_normal((5, 2))
    np.testing.assert_array_equal(guess(law_of([0.3, 0.2], [1.0, 1.0], 0.0), Z), Z)


def risk(t, density, scale, noise, *, soft):
    """Expected squared error of a code with this threshold, by integration over noisy codes."""

    def at(z):
        whole = scale**2 + noise**2
        slab, spike = density * normal(z, whole), (1 - density) * normal(z, noise**2)
        kept = scale**2 / whole
        kept_error = kept * noise**2  # variance of x given z, active
        value = 0.0 if abs(z) <= t else (z - math.copysign(t, z) if soft else z)
        return slab * ((kept * z - value) ** 2 + kept_error) + spike * value**2

    end = 12 * math.hypot(scale, noise)
    return 2 * scipy.integrate.quad(at, 0, end, points=[t, 3 * noise], limit=200)[0]


@pytest.mark.parametrize("soft", [True, False])
def test_automatic_thresholds_have_the_smallest_expected_error(soft):
    law = law_of([0.3, 0.1, 0.3], [1.0, 0.7, 2.0], 0.25)
    for alpha, density, scale in zip(find_thresholds(law, soft=soft), law.density, law.scale, strict=True):
        best = scipy.optimize.minimize_scalar(
            lambda t, a=density, s=scale: risk(t, a, s, 0.25, soft=soft), bounds=(0.01, 3), method="bounded"
        )
        # the error is flat at its minimum: the grid, of steps of half a percent, leaves next to nothing
        assert risk(alpha, density, scale, 0.25, soft=soft) <= best.fun * (1 + 1e-4)


def test_a_hard_threshold_is_where_half_of_a_code_is_its_posterior_mean():
    """There keeping z and dropping it are as bad: E(x - z)^2 = E x^2 where z E[x|z] = z^2 / 2."""
    law = law_of(0.2, 1.0, 0.3)
    (alpha,) = find_thresholds(law, soft=False)
    assert guess(law, [[alpha]])[0, 0] == pytest.approx(alpha / 2, rel=0.02)


def minimum_error(density, scale, noise):
    """Mean squared error of the posterior mean: theta a^2 - E E[x|z]^2, over the density of z."""
    law = law_of(density, scale, noise)

    def at(z):
        q = density * normal(z, scale**2 + noise**2) + (1 - density) * normal(z, noise**2)
        return q * guess(law, [[z]])[0, 0] ** 2

    end = 10 * math.hypot(scale, noise)
    return density * scale**2 - 2 * scipy.integrate.quad(at, 0, end, points=[2 * noise, 4 * noise], limit=200)[0]


@pytest.fixture(scope="module", params=[0.2, 0.4])
def noisy(request):
    X, dictionary, codes = make_bernoulli_gaussian(8000, 12, density=0.3, noise_std=request.param, random_state=3)
    X.setflags(write=False)
    return X, codes @ dictionary, request.param, LpDictionaryLearning(random_state=0).fit(X)


def test_the_error_of_cleaned_samples_is_the_least_that_is_possible(noisy):
    """The mean of r n squared errors, whose own standard error is that of the sample.

    The law is fitted, and atoms are: with standard errors of order 1/sqrt(r) each adds its square, n/r and less of the
    power of the noise, 12/8000, beside four standard errors.
    """
    X, truth, noise, model = noisy
    squares = (model.denoise(X) - truth) ** 2
    least, chance = minimum_error(0.3, 1.0, noise), float(np.std(squares)) / math.sqrt(squares.size)
    assert np.mean(squares) > least - 4 * chance
    assert np.mean(squares) < least + 4 * chance + 2 * X.shape[1] / len(X) * noise**2


def test_cleaned_samples_are_better_than_any_threshold_makes_them(noisy):
    X, truth, _, model = noisy
    ours = np.mean((model.denoise(X) - truth) ** 2)
    choices = [("linear", None)]
    choices += [
        (name, alpha) for name in ("threshold", "hard_threshold") for alpha in ("auto", 0.2, 0.4, 0.6, 0.8, 1.0)
    ]
    errors = {}
    for algorithm, alpha in choices:
        other = LpDictionaryLearning(transform_algorithm=algorithm, transform_alpha=alpha)
        other.__dict__ |= {name: value for name, value in vars(model).items() if name.endswith("_") or name[0] == "_"}
        errors[algorithm, alpha] = np.mean((other.inverse_transform(other.transform(X)) - truth) ** 2)
    assert ours < 0.99 * min(errors.values())
    for algorithm in ("threshold", "hard_threshold"):  # the best of the others may be as good by chance alone
        others = [error for (name, alpha), error in errors.items() if name == algorithm and alpha != "auto"]
        assert errors[algorithm, "auto"] < 1.005 * min(others)


def test_posterior_codes_make_the_cleaned_samples(noisy):
    X, _, _, model = noisy
    again = elldict.LpDictionaryLearning(transform_algorithm="posterior", random_state=0).fit(X)
    np.testing.assert_allclose(again.inverse_transform(again.transform(X)), model.denoise(X), atol=1e-12)


def corrupted(n=16, noise=0.0, size=1.0, rate=0.1, r=6000, seed=0, density=0.2, **options):
    X, dictionary, codes = make_bernoulli_gaussian(
        r, n, density=density, noise_std=noise, corruption=size, corruption_rate=rate, random_state=seed
    )
    model = LpDictionaryLearning(random_state=0, halves=False, **options).fit(X)
    return X, codes @ dictionary, model


@pytest.fixture(scope="module")
def hit():
    return corrupted(n=24, noise=0.05)


def test_corruption_is_removed_from_samples(hit):
    """What is left is a tenth of what corruption and noise add: entries are told from codes in most samples."""
    X, truth, model = hit
    assert model.refined_ == "sparse-corruption"
    assert np.mean((model.denoise(X) - truth) ** 2) < 0.12 * np.mean((X - truth) ** 2)
    assert np.median((model.denoise(X) - truth) ** 2) < 0.05**2  # half of the entries are better than the noise


@pytest.mark.parametrize(
    ("n", "noise", "size", "rate"),
    [(16, 0, 0.5, 0.1), (16, 0, 1.0, 0.02), (16, 0.1, 1.0, 0.05), (16, 0.1, 0.5, 0.2), (32, 0.1, 1.5, 0.1)],
)
def test_the_number_of_entries_that_were_hit(n, noise, size, rate):
    """Within a tenth, of which four standard errors of a share of the 2^15 entries that are counted are a part."""
    _, _, model = corrupted(n=n, noise=noise, size=size, rate=rate)
    assert model.corruption_rate_ == pytest.approx(rate, rel=0.1, abs=4 * math.sqrt(rate / 2**15))
    assert model.corruption_scale_ == pytest.approx(size, rel=0.07)


def test_gaussian_hits_are_counted_as_well():
    rng = np.random.default_rng(0)
    X, _, _ = make_bernoulli_gaussian(6000, 24, density=0.2, noise_std=0.1, random_state=1)
    X += (rng.random(X.shape) < 0.1) * rng.standard_normal(X.shape)
    model = LpDictionaryLearning(refine="sparse-corruption", halves=False, random_state=0).fit(X)
    # a third of such hits are smaller than what noise and codes leave in doubt: 15 percent
    assert model.corruption_rate_ == pytest.approx(0.1, rel=0.15)
    assert model.corruption_scale_ == pytest.approx(1.0, rel=0.1)


def test_hits_that_leave_atoms_exact_are_counted_and_removed():
    X, truth, model = corrupted(n=16, size=1.0, rate=0.01)
    assert model.refined_ == "bernoulli-gaussian"
    assert "entries were hit" in model.status_
    assert model.corruption_rate_ == pytest.approx(0.01, abs=4 * math.sqrt(0.01 / 2**15))
    assert np.mean((model.denoise(X) - truth) ** 2) < 0.25 * np.mean((X - truth) ** 2)


def test_samples_without_corruption_have_none(easy):
    X, dictionary, codes = easy
    model = LpDictionaryLearning(random_state=0).fit(X)
    assert model.corruption_rate_ == model.corruption_scale_ == 0
    np.testing.assert_allclose(model.denoise(X), codes @ dictionary, atol=1e-7)


def test_the_gradient_of_the_law_of_hits():
    rng = np.random.default_rng(0)
    seen, blur = 2 * rng.standard_normal((40, 3)), rng.uniform(0.1, 0.3, (40, 3))
    x = np.array([-1.0, 0.2, -1.5, -2.0])
    _, slopes = negative_log_likelihood(x, seen, blur)
    for i in range(len(x)):
        step = 1e-5 * np.eye(len(x))[i]
        difference = negative_log_likelihood(x + step, seen, blur)[0] - negative_log_likelihood(x - step, seen, blur)[0]
        assert slopes[i] == pytest.approx(difference / 2e-5, rel=1e-5)


def test_messages_without_hits_end_at_the_posterior_mean():
    """With next to no corruption the samples are codes and noise, and a round is the posterior mean of each code."""
    rng, n, noise = np.random.default_rng(0), 8, 0.09
    A = random_orthonormal(n, n, rng)
    Y = (rng.standard_normal((50, n)) * (rng.random((50, n)) < 0.3) + 0.3 * rng.standard_normal((50, n))) @ A
    law = CorruptionLaw(np.full(n, 0.3), np.ones(n), 1e-9, 1.0, noise, 1e-12)
    found = guess_codes(Y, A, law)
    np.testing.assert_allclose(found, guess(law_of(np.full(n, 0.3), np.ones(n), 0.3), Y @ A.T), atol=1e-4)


def test_corruption_that_could_not_be_cleaned_is_not_a_number(tmp_path):
    """Samples of deficient rank: entries that were hit are no longer entries of what is learned."""
    X, _, _ = make_bernoulli_gaussian(2000, 8, density=0.2, random_state=0)
    X[:, -1] = X[:, 0]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        warnings.filterwarnings("error", "X looks corrupted", NotIdentifiableWarning)
        with pytest.raises(NotIdentifiableWarning, match="corruption_rate_ is NaN"):
            LpDictionaryLearning(refine="sparse-corruption", random_state=0).fit(X)
        warnings.simplefilter("ignore")
        model = LpDictionaryLearning(refine="sparse-corruption", random_state=0).fit(X)
    assert math.isnan(model.corruption_rate_)
    assert math.isnan(model.corruption_scale_)
    model.save(tmp_path / "m.npz")
    again = elldict.load(tmp_path / "m.npz")
    assert math.isnan(again.corruption_rate_)
    np.testing.assert_array_equal(again.denoise(X), model.denoise(X))


@pytest.fixture(scope="module")
def models(hit):
    rng = np.random.default_rng(5)
    laplace = np.column_stack([draw("laplace", 4000, rng) for _ in range(6)]) @ random_orthonormal(6, 6, rng)
    laplace += 0.2 * rng.standard_normal(laplace.shape) + 3
    small = make_bernoulli_gaussian(3000, 8, density=0.2, noise_std=0.2, random_state=0)[0]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return {
            "corrupted": (hit[2], hit[0][:700]),
            "noisy": (LpDictionaryLearning(random_state=0).fit(small), small[:700]),
            "mixture": (
                LpDictionaryLearning(center=True, refine="mixture", random_state=0).fit(laplace),
                laplace[:700],
            ),
            "whitened": (LpDictionaryLearning(center=True, whiten=True, random_state=0).fit(small), small[:700]),
            "reduced": (LpICA(4, random_state=0).fit(laplace), laplace[:700]),
            "arbitrary": (LpICA(4, whiten="arbitrary-variance", random_state=0).fit(laplace), laplace[:700]),
            "few": (LpDictionaryLearning(5, refine=None, random_state=0).fit(small), small[:700]),
        }


KINDS = ["corrupted", "noisy", "mixture", "whitened", "reduced", "arbitrary", "few"]


@pytest.mark.parametrize("kind", KINDS)
def test_every_source_gives_the_same_cleaned_samples(kind, models, tmp_path):
    model, X = models[kind]
    before, found = X.copy(), model.denoise(X)
    assert found.shape == X.shape
    np.testing.assert_array_equal(X, before)
    np.save(tmp_path / "X.npy", X)
    written = model.denoise(tmp_path / "X.npy", out=tmp_path / "clean.npy")
    assert isinstance(written, np.memmap)
    np.testing.assert_array_equal(written, found)
    np.testing.assert_allclose(model.denoise(da.from_array(X, chunks=(100, -1))).compute(), found, atol=1e-10)
    with pytest.raises(ValueError, match="input"):
        model.denoise(tmp_path / "X.npy", out=tmp_path / "X.npy")


@pytest.mark.parametrize("kind", KINDS)
def test_the_law_is_saved_with_the_model(kind, models, tmp_path):
    model, X = models[kind]
    model.save(tmp_path / "model.npz")
    np.testing.assert_array_equal(elldict.load(tmp_path / "model.npz").denoise(X), model.denoise(X))


@pytest.mark.parametrize("kind", ["noisy", "corrupted", "mixture"])
def test_torch_cleans_as_numpy_does(kind, models):
    torch = pytest.importorskip("torch")
    model, X = models[kind]
    there = LpDictionaryLearning().set_params(**model.get_params())
    there.__dict__ |= {name: torch.asarray(v) if isinstance(v, np.ndarray) else v for name, v in vars(model).items()}
    assert_alike_but_for_rounding(there.denoise(torch.asarray(X)).numpy(), model.denoise, X)
    assert there.denoise(torch.asarray(X, dtype=torch.float32)).dtype == torch.float32


def test_units_do_not_matter(models):
    for kind in ("noisy", "corrupted"):
        model, X = models[kind]
        if kind == "noisy":
            other = LpDictionaryLearning(random_state=0).fit(1024 * make_noisy())
            np.testing.assert_allclose(other.denoise(1024 * X), 1024 * model.denoise(X), rtol=1e-9, atol=1e-6)
        else:
            scaled = replace(model._cleaning.reorder(np.arange(24), 1 / 8))
            again = guess_codes(8 * X, model.unmixing_, scaled) / 8  # powers of 64 that are no whole ones are rounded
            assert_alike_but_for_rounding(again, partial(guess_codes, A=model.unmixing_, model=model._cleaning), X)


def assert_alike_but_for_rounding(found, clean, X):
    """Equal to clean(X), in samples that the last digit of X hardly moves, which are nearly all.

    Message passing goes in circles where more codes and hits are active than a sample tells apart, and where none is a
    code, so that all that is left to tell is rounding: dozens of rounds make 1e-16 up to 1e-6. There a hundredth of
    the noise, of 0.05, is asked for, which would add 1e-4 of it to the squared error.
    """
    expected, digit = clean(X), np.finfo(float).eps * np.random.default_rng(0).choice([-1, 1], X.shape)
    steady = np.max(np.abs(clean(X * (1 + digit)) - expected), axis=1) < 1e-12
    assert np.mean(steady) > 0.95
    np.testing.assert_allclose(found[steady], expected[steady], atol=1e-10)
    np.testing.assert_allclose(found[~steady], expected[~steady], atol=0.01 * 0.05)


def make_noisy():
    return make_bernoulli_gaussian(3000, 8, density=0.2, noise_std=0.2, random_state=0)[0]


def test_reduced_samples_are_projected(models):
    """What is left lies in the span of the atoms about the mean, and is no longer than the projection."""
    model, X = models["reduced"]
    cleaned = model.denoise(X) - model.mean_
    projected = model.inverse_transform(model.transform(X)) - model.mean_
    np.testing.assert_allclose(cleaned @ model.unmixing_.T @ model.mixing_.T, cleaned, atol=1e-9)
    assert np.linalg.norm(cleaned) < np.linalg.norm(projected)


def test_the_unit_of_sources_does_not_change_cleaned_samples(models):
    (model, X), (other, _) = models["reduced"], models["arbitrary"]
    np.testing.assert_allclose(other.denoise(X), model.denoise(X), rtol=1e-6, atol=1e-8)
    np.testing.assert_allclose(other.score(X), model.score(X), rtol=1e-6)


@pytest.mark.parametrize(
    ("refine", "fitted", "noise"),
    [("bernoulli-gaussian", 0.1, 0.4), ("bernoulli-gaussian", 0.4, 0.2), ("mixture", 0.1, 0.4)],
)
def test_samples_with_other_noise_than_those_of_the_fit_are_cleaned_as_well_as_can_be(refine, fitted, noise):
    """The bound is that of the law at its own noise.

    A mixture has no component as narrow as zeros: at a noise of 0.4 the narrowest, a sixteenth of the standard
    deviation, adds less than the hundredth of the noise that is allowed.
    """
    X, dictionary, codes = make_bernoulli_gaussian(8000, 12, density=0.3, noise_std=fitted, random_state=3)
    model = LpDictionaryLearning(refine=refine, halves=False, random_state=0).fit(X)
    truth = codes @ dictionary
    noisy = truth + noise * np.random.default_rng(1).standard_normal(truth.shape)
    squares = (model.denoise(noisy, noise_std=noise) - truth) ** 2
    least, chance = minimum_error(0.3, 1.0, noise), float(np.std(squares)) / math.sqrt(squares.size)
    assert np.mean(squares) > least - 4 * chance
    allowed = 2 * X.shape[1] / len(X) * max(fitted, noise) ** 2 + 0.01 * noise**2
    assert np.mean(squares) < least + 4 * chance + allowed
    assert np.mean(squares) < 0.8 * np.mean((model.denoise(noisy) - truth) ** 2)


def test_a_mixture_stays_as_it_is_where_less_noise_is_known():
    """Components of mean zero: given z, one of variance v with the noise in it has the mean z (1 - noise / v)."""
    parts, std, noise = make_components(), 1.5, 0.3
    used, shares = [11, 28], np.array([0.7, 0.3])
    weights = np.zeros((1, len(parts.q)))
    weights[0, used] = shares
    variances = (std * parts.stds[used]) ** 2
    assert noise**2 < variances[0] < 0.6**2, "the fit takes all of the narrower one for noise"
    law = law_of(1.0, std, 0.6, mixture=MixtureLaw(weights, np.array([std]))).with_known_noise(noise, np.eye(1))
    z = std * parts.centres[np.abs(parts.centres) < 5]
    density = np.array([[share * normal(each, v) for share, v in zip(shares, variances, strict=True)] for each in z])
    expected = z * (density @ (1 - noise**2 / variances)) / np.sum(density, axis=1)
    np.testing.assert_allclose(guess(law, z[:, None])[:, 0], expected, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("kind", KINDS)
def test_the_fitted_noise_may_be_given(kind, models):
    model, X = models[kind]
    if kind in ("noisy", "mixture", "few"):  # codes in the units of X
        np.testing.assert_allclose(model.denoise(X, noise_std=model.noise_std_), model.denoise(X), atol=1e-12)
    if kind == "corrupted":  # its law has a noise of its own, that of entries
        noise = math.sqrt(model._cleaning.noise)
        np.testing.assert_allclose(model.denoise(X, noise_std=noise), model.denoise(X), atol=1e-6)
        assert np.linalg.norm(model.denoise(X, noise_std=0.5)) < 0.95 * np.linalg.norm(model.denoise(X))
    if model._cleaning is None:
        projected = (X - model.mean_) @ model.unmixing_.T @ model.mixing_.T + model.mean_
        np.testing.assert_allclose(model.denoise(X, noise_std=0.0), projected, atol=1e-12)
        left = [np.linalg.norm(model.denoise(X, noise_std=noise) - model.mean_) for noise in (0.0, 0.1, 0.3, 1.0)]
        assert np.all(np.diff(left) < 0), "the more noise, the less is left"


def test_known_noise_is_in_the_units_of_samples(models):
    (model, X), (other, _) = models["reduced"], models["arbitrary"]
    cleaned = model.denoise(X, noise_std=0.2)
    np.testing.assert_allclose(other.denoise(X, noise_std=0.2), cleaned, rtol=1e-6, atol=1e-8)
    law = model._code_law().with_known_noise(0.2, model.unmixing_)
    noise = 0.2 * np.random.default_rng(0).standard_normal((40_000, X.shape[1]))
    # the standard error of a standard deviation is 1 / sqrt(2 r) of it
    np.testing.assert_allclose(np.std(noise @ model.unmixing_.T, axis=0), law.known_noise, rtol=4 / math.sqrt(80_000))


@pytest.mark.parametrize("wrong", [-1, math.nan, math.inf, "25", True])
def test_noise_that_cannot_be_is_refused(wrong, models):
    model, X = models["noisy"]
    with pytest.raises(ValueError, match=r"noise_std is .*expected a number >= 0"):
        model.denoise(X, noise_std=wrong)


CRAFTED = {
    "a rate above one": {"cleaning_numbers": np.array([1.5, 1.0, 0.01, 1e-9, 0.5])},
    "no noise": {"cleaning_numbers": np.array([0.1, 1.0, 0.0, 1e-9, 0.5])},
    "a centre beyond the size": {"cleaning_numbers": np.array([0.1, 1.0, 0.01, 1e-9, 5.0])},
    "numbers far apart": {"cleaning_numbers": np.array([0.1, 1e300, 1e-300, 1e-300, 0.5])},
    "not finite": {"cleaning_numbers": np.array([0.1, np.nan, 0.01, 1e-9, 0.5])},
    "too few numbers": {"cleaning_numbers": np.ones(3)},
    "density of the wrong shape": {"cleaning_density": np.full(3, 0.1)},
    "density of one": {"cleaning_density": np.ones(24)},
    "negative power": {"cleaning_power": np.full(24, -1.0)},
    "single precision": {"cleaning_power": np.ones(24, dtype=np.float32)},
}


@pytest.mark.parametrize("name", CRAFTED)
def test_crafted_laws_are_refused(name, models, tmp_path):
    model, _ = models["corrupted"]
    model.save(tmp_path / "m.npz")

    def change(members):
        members.update({f"{array}.npy": npy(value) for array, value in CRAFTED[name].items()})

    with pytest.raises(ModelFileError, match="does not hold a fitted"):
        elldict.load(rewritten(tmp_path / "m.npz", tmp_path, change))


def test_a_file_without_the_law_codes_but_does_not_clean(models, tmp_path):
    model, X = models["corrupted"]
    model.save(tmp_path / "m.npz")

    def drop(members):
        for name in ("density", "power", "numbers"):
            del members[f"cleaning_{name}.npy"]

    again = elldict.load(rewritten(tmp_path / "m.npz", tmp_path, drop))
    np.testing.assert_array_equal(again.transform(X), model.transform(X))
    with pytest.raises(ValueError, match="Fit it again"):
        again.denoise(X)


def test_patches_of_a_photograph_are_cleaned():
    """A part of the cameraman: most of the noise is removed, and its own estimate of it is no less than it is."""
    camera = SHARED / "images" / "camera.png"
    if not camera.exists():
        pytest.skip("needs a photograph")
    picture = matplotlib.image.imread(camera).astype(float)[100:300, 100:300]
    picture = 255 * (picture if picture.ndim == 2 else picture[:, :, :3].mean(axis=2))
    noisy = picture + 25 * np.random.default_rng(0).standard_normal(picture.shape)
    windows = [np.lib.stride_tricks.sliding_window_view(each, (8, 8)).reshape(-1, 64) for each in (picture, noisy)]
    truth, patches = (each - windows[1].mean(axis=1, keepdims=True) for each in windows)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a direction is missing, and patches differ in loudness
        model = LpDictionaryLearning(refine="mixture", max_iter=20, halves=False, random_state=0).fit(patches[::3])
    assert model.noise_std_ > 25 * 0.95
    # of 64 directions most hold next to nothing but noise: a quarter of its power is left at most
    assert np.mean((model.denoise(patches) - truth) ** 2) < 0.25 * np.mean((patches - truth) ** 2)
