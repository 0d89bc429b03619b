"""Streams: one pass in batches has the error of a fit to all samples, forgets what it is told to, and follows drift."""

import copy
import math
import pickle
import warnings
from dataclasses import fields

import numpy as np
import pytest
import scipy.linalg
from sklearn.base import clone

import elldict
from elldict import LpDictionaryLearning
from elldict._old.online import WarmupBuffer, count_warmup_rows
from elldict._old.solver.online import OnlineModel, compute_keep
from elldict.datasets import make_bernoulli_gaussian
from elldict.exceptions import DataChangedWarning, NotIdentifiableWarning
from elldict.metrics import match_atoms, recovery_error
from elldict.theory import cramer_rao_bound, expected_error
from tests._old.helpers import assert_same_atoms

N = 16


def streamed(X, size=1000, **options):
    """A model that has seen X in batches."""
    model = LpDictionaryLearning(**{"random_state": 0, **options})
    for start in range(0, len(X), size):
        model.partial_fit(X[start : start + size])
    return model


@pytest.fixture(scope="module")
def noisy():
    """Samples with noise: (X, dictionary)."""
    X, dictionary, _ = make_bernoulli_gaussian(40_000, N, density=0.2, noise_std=0.3, random_state=1)
    X.setflags(write=False)
    return X, dictionary


@pytest.fixture(scope="module")
def model(noisy):
    return streamed(noisy[0])


def setting(noise_std, n_samples=40_000):
    return {"n_features": N, "n_samples": n_samples, "density": 0.2, "noise_std": noise_std}


def test_one_pass_has_the_error_of_all_samples_at_once(noisy):
    """l_p: within a tenth of what theory says of a fit; the mean over 120 angles has a spread of about an eighth."""
    X, dictionary = noisy
    error = recovery_error(streamed(X, refine=None).components_, dictionary)
    batch = recovery_error(LpDictionaryLearning(refine=None, random_state=0).fit(X).components_, dictionary)
    assert error == pytest.approx(batch, rel=0.1)
    assert error == pytest.approx(expected_error(3, **setting(0.3)), rel=0.35)


@pytest.mark.parametrize("p", [0.5, 1, (3, 1)])
def test_below_2_one_pass_has_the_error_of_all_samples_at_once(noisy, p):
    X, dictionary = noisy
    model = streamed(X, refine=None, p=p)
    error, one = recovery_error(model.components_, dictionary), 1 if p == (3, 1) else p
    batch = recovery_error(LpDictionaryLearning(refine=None, p=p, random_state=0).fit(X).components_, dictionary)
    assert error == pytest.approx(batch, rel=0.1)
    assert model.expected_error_ == pytest.approx(expected_error(one, **setting(0.3)), rel=0.1)


def test_below_2_the_likelihood_reaches_the_bound_in_one_pass(noisy):
    X, dictionary = noisy
    model = streamed(X, p=1)
    assert model.refined_ == "bernoulli-gaussian"
    assert recovery_error(model.components_, dictionary) < 1.35 * cramer_rao_bound(**setting(0.3))


def test_the_likelihood_reaches_the_bound_in_one_pass(noisy, model):
    X, dictionary = noisy
    assert model.refined_ == "bernoulli-gaussian"
    error = recovery_error(model.components_, dictionary)
    batch = recovery_error(LpDictionaryLearning(random_state=0).fit(X).components_, dictionary)
    assert error == pytest.approx(batch, rel=0.05)
    assert error < 1.35 * cramer_rao_bound(**setting(0.3))
    assert model.expected_error_ == pytest.approx(cramer_rao_bound(**setting(0.3)), rel=0.1)
    assert np.mean(model.density_) == pytest.approx(0.2, rel=0.03)  # a quarter of the codes is counted
    assert model.noise_std_ == pytest.approx(0.3, rel=0.02)


def test_without_noise_recovery_stays_exact():
    X, dictionary, _ = make_bernoulli_gaussian(20_000, N, density=0.2, random_state=0)
    model = streamed(X)
    assert recovery_error(model.components_, dictionary) < 1e-12
    assert model.expected_error_ < 1e-10


@pytest.mark.filterwarnings("ignore:.*their codes depend on:elldict.exceptions.NotIdentifiableWarning")
def test_codes_that_depend_on_each_other_are_left_to_mixtures_of_normalised_samples():
    """Codes of a sample share a scale: the likelihood does not hold, and the curvature is not that of independent ones.

    A step too short by half would leave the error of the first fit to decay with the square root of the samples.
    """
    rng = np.random.default_rng(0)
    dictionary = np.linalg.qr(rng.standard_normal((N, N)))[0]
    scale = rng.laplace(size=(40_000, 1))
    codes = rng.standard_normal((40_000, N)) * (rng.random((40_000, N)) < 0.2) * scale
    X = codes @ dictionary + 0.1 * rng.standard_normal((40_000, N))
    stream = streamed(X)
    assert stream.refined_ == "mixture"
    plain, batch = (LpDictionaryLearning(refine=refine, random_state=0).fit(X) for refine in (None, "auto"))
    ours, by_lp, at_once = (recovery_error(model.components_, dictionary) for model in (stream, plain, batch))
    assert ours < 1.5 * at_once
    assert at_once < 0.7 * by_lp
    assert streamed(X[:3000], refine="bernoulli-gaussian").refined_ == "bernoulli-gaussian"  # as asked


@pytest.mark.parametrize("options", [{"p": 4, "refine": None}, {"n_components": 5}, {"p": (3, 2.5), "refine": None}])
def test_other_exponents_and_fewer_atoms(noisy, options):
    X, dictionary = noisy
    stream = streamed(X, **options)
    batch = LpDictionaryLearning(random_state=0, **options).fit(X)
    error, expected = (recovery_error(model.components_, dictionary) for model in (stream, batch))
    assert error < 1.4 * expected  # five atoms need not be the same five
    np.testing.assert_allclose(stream.components_ @ stream.components_.T, np.eye(len(stream.components_)), atol=1e-12)
    assert stream.expected_error_ == pytest.approx(batch.expected_error_, rel=0.2)


def test_whitened_and_centred_streams():
    X, _, _ = make_bernoulli_gaussian(40_000, 8, density=0.2, orthogonal=False, random_state=2)
    X = X + np.arange(8)
    options = {"center": True, "whiten": True, "refine": None, "random_state": 0}
    stream, batch = streamed(X, **options), LpDictionaryLearning(**options).fit(X)
    np.testing.assert_allclose(stream.mean_, X.mean(axis=0), rtol=1e-10)
    codes = stream.transform(X)
    np.testing.assert_allclose(np.cov(codes.T, bias=True), np.eye(8), atol=0.02)
    np.testing.assert_allclose(stream.inverse_transform(codes), X, atol=1e-10)
    ours, theirs = (model.components_ / np.linalg.norm(model.components_, axis=1)[:, None] for model in (stream, batch))
    assert np.all(np.abs(match_atoms(ours, theirs).cosines) > 0.999)


def test_one_batch_is_a_fit(noisy):
    X = noisy[0][:5000]
    fit, stream = LpDictionaryLearning(random_state=0).fit(X), LpDictionaryLearning(random_state=0).partial_fit(X)
    for name in ("components_", "density_", "atom_error_"):
        np.testing.assert_array_equal(getattr(fit, name), getattr(stream, name))
    assert (fit.n_passes_, fit.status_, fit.n_samples_seen_) == (stream.n_passes_, stream.status_, 5000)


def test_a_stream_goes_on_from_a_fit(noisy):
    X, dictionary = noisy
    model = LpDictionaryLearning(random_state=0).fit(X[:10_000])
    before = model.components_
    for start in range(10_000, 40_000, 5000):
        model.partial_fit(X[start : start + 5000])
    assert model.n_samples_seen_ == 40_000
    assert recovery_error(model.components_, dictionary) < 0.5 * recovery_error(before, dictionary)
    match = match_atoms(model.components_, before)
    assert np.array_equal(match.indices, np.arange(N))  # order and signs stay
    assert np.all(match.signs > 0)


def test_size_and_order_of_batches_hardly_matter(noisy, model):
    """Differences between two ways through the same samples are of second order in the error."""
    X, _ = noisy
    halves = np.concatenate([X[:2000], X[21_000:], X[2000:21_000]])
    for other in (streamed(X, 40_000 - 7), streamed(X, 333), streamed(halves)):
        apart = 1 - np.sum((other.components_ @ model.components_.T) ** 4) / N
        assert apart < 0.1 * model.expected_error_
        assert other.expected_error_ == pytest.approx(model.expected_error_, rel=0.02)


def test_invariances(noisy, model):
    """Scale, signs of samples and a rotation of everything: the same stream."""
    X, _ = noisy
    X = X[:8000]
    rotation = np.linalg.qr(np.random.default_rng(0).standard_normal((N, N)))[0]
    plain = streamed(X)
    np.testing.assert_allclose(streamed(X * 1e100).components_, plain.components_, atol=1e-9)
    signs = np.where(np.arange(len(X))[:, None] % 3, 1, -1)
    np.testing.assert_allclose(streamed(X * signs).components_, plain.components_, atol=1e-9)
    assert_same_atoms(streamed(X @ rotation).components_, plain.components_ @ rotation, 1e-2)


def test_single_samples(noisy):
    """A batch may be one sample, from the first on."""
    X, _ = noisy
    model = LpDictionaryLearning(random_state=0)
    for number, row in enumerate(X[:80], 1):
        model.partial_fit(row[None, :])
        assert model.n_samples_seen_ == number
        assert model.components_.shape == (N, N)
        assert model.status_.startswith("collecting")
    assert not model.converged_
    assert model.expected_error_ > 0.1
    model.partial_fit(X[80 : count_warmup_rows(N)])
    assert not model.status_.startswith("collecting")
    for row in X[2000:2050]:
        model.partial_fit(row[None, :])
    assert model.n_samples_seen_ == count_warmup_rows(N) + 50
    assert model.transform(X[:3]).shape == (3, N)


def test_everything_is_there_after_every_call(noisy):
    X, _ = noisy
    names = {name for name in vars(LpDictionaryLearning(random_state=0).fit(X[:2000])) if name.endswith("_")}
    model = LpDictionaryLearning(random_state=0)
    for rows in (X[:1], X[1:100], X[100:2000], X[2000:3000]):
        model.partial_fit(rows)
        assert {name for name in vars(model) if name.endswith("_")} == names
        assert np.all(np.isfinite(model.score_samples(X[:5])))


@pytest.mark.parametrize("half_life", [None, 100.0, 2500.0])
def test_what_is_forgotten(half_life, noisy):
    """Sample number s of t weighs 2^(-(t-s)/half_life); error bars speak of (sum w)^2 / sum w^2 samples."""
    X, _ = noisy
    stream = streamed(X[:7000], 50, half_life=half_life, refine=None)._state.model
    ages = np.append(np.repeat(np.arange(7000 - 50 * 20, 0, -50) - 50, 50), np.zeros(0))
    weights = np.append(np.full(1000, compute_keep(6000, half_life)), [compute_keep(age, half_life) for age in ages])
    assert stream.weight == pytest.approx(np.sum(weights))
    assert stream.effective_samples == pytest.approx(np.sum(weights) ** 2 / np.sum(weights**2))
    assert stream.lp.stats.weight == pytest.approx(stream.weight)
    assert stream.running.weight == pytest.approx(stream.weight)
    if half_life == 100.0:  # the sum of a geometric series, by batches of 50
        assert stream.weight == pytest.approx(50 / (1 - 0.5**0.5), rel=1e-6)
        assert stream.effective_samples == pytest.approx(2 * half_life / math.log(2), rel=0.02)


def test_mean_and_covariance_are_those_of_weighted_samples():
    X, _, _ = make_bernoulli_gaussian(6000, 5, density=0.5, random_state=0)
    X = X + 3
    running = streamed(X, 500, half_life=2000.0, center=True, refine=None)._state.model.running
    weights = np.repeat(0.5 ** (np.arange(5000, -1, -500) / 2000.0), 500)[-5000:]
    weights = np.append(np.full(1000, compute_keep(5000, 2000.0)), weights)
    mean = np.average(X, axis=0, weights=weights)
    np.testing.assert_allclose(running.mean * running.unit, mean, rtol=1e-10)
    expected = np.cov(X.T, aweights=weights, ddof=0)
    np.testing.assert_allclose(running.covariance * running.unit**2, expected, atol=1e-10)


def drifting(speed, half_life, noise_std=0.2, n_batches=50, size=1000, n=N):
    """Errors and error bars of a stream whose atoms each move by about `speed` a sample."""
    X, dictionary, _ = make_bernoulli_gaussian(n_batches * size, n, density=0.2, noise_std=noise_std, random_state=0)
    turn = np.random.default_rng(0).standard_normal((n, n))
    turn = (turn - turn.T) * math.sqrt(n) / np.linalg.norm(turn - turn.T)
    step, rotation = scipy.linalg.expm(speed * size * turn), np.eye(n)
    model, found = LpDictionaryLearning(random_state=0, half_life=half_life), []
    for start in range(0, len(X), size):
        model.partial_fit(X[start : start + size] @ rotation)
        found.append((recovery_error(model.components_, dictionary @ rotation), model.expected_error_))
        rotation = rotation @ step
    return np.array(found), model


def test_a_dictionary_that_rotates_is_followed():
    """The lag is the speed times the mean age of a sample, half_life / ln 2; its error is twice its square."""
    speed, half_life = 4e-6, 3000.0
    found, model = drifting(speed, half_life)
    error, bar = np.mean(found[25:], axis=0)
    at_rest = cramer_rao_bound(**setting(0.2, round(2 * half_life / math.log(2))))
    lag = speed * half_life / math.log(2)
    assert error == pytest.approx(at_rest + 2 * lag**2, rel=0.25)
    assert bar == pytest.approx(error, rel=0.35)  # the lag shows in the error bar
    assert model.refined_ == "bernoulli-gaussian"
    with pytest.warns(DataChangedWarning, match="turn the atoms to one side"):
        forgetting_nothing, _ = drifting(speed, None)
    assert np.mean(forgetting_nothing[25:, 0]) > 5 * error


def test_exact_codes_are_followed_too():
    found, _ = drifting(2e-6, 2000.0, noise_std=0.0)
    error, bar = np.mean(found[25:], axis=0)
    assert error == pytest.approx(2 * (2e-6 * 2000 / math.log(2)) ** 2, rel=0.5)
    assert bar == pytest.approx(error, rel=1.0)
    assert bar > 0.5 * error


def test_error_bars_of_a_stream_that_forgets():
    """At rest, error and error bar are those of 2 half_life / ln 2 samples."""
    found, _ = drifting(0.0, 2000.0)
    error, bar = np.mean(found[15:], axis=0)
    assert error == pytest.approx(cramer_rao_bound(**setting(0.2, round(4000 / math.log(2)))), rel=0.25)
    assert bar == pytest.approx(error, rel=0.25)


def test_memory_does_not_grow(noisy):
    X, _ = noisy
    model = streamed(X[:3000])
    before = len(pickle.dumps(model))
    for start in range(3000, 20_000, 500):
        model.partial_fit(X[start : start + 500])
    assert len(pickle.dumps(model)) < 1.01 * before + 1000


@pytest.mark.parametrize("n_before", [0, 100, 3000])
def test_a_bad_batch_leaves_the_model_as_it_was(noisy, n_before):
    X, _ = noisy
    model = LpDictionaryLearning(random_state=0)
    if n_before:
        model.partial_fit(X[:n_before])
    before = pickle.dumps(model)
    bad = X[:3000].copy()
    bad[2100, 3] = np.nan
    with pytest.raises(ValueError, match="X holds NaN in sample 2100, feature 3"):
        model.partial_fit(bad)
    assert pickle.dumps(model) == before
    if n_before:
        with pytest.raises(ValueError, match="features"):
            model.partial_fit(X[:10, :5])
        assert pickle.dumps(model) == before


def test_copies_go_on_alike(noisy):
    X, _ = noisy
    model = streamed(X[:3000])
    others = [pickle.loads(pickle.dumps(model)), copy.deepcopy(model)]
    model.partial_fit(X[3000:5000])
    for other in others:
        np.testing.assert_array_equal(other.partial_fit(X[3000:5000]).components_, model.components_)
    assert not hasattr(clone(model), "components_")


def test_a_model_from_a_file_has_no_stream(model, noisy, tmp_path):
    model.save(tmp_path / "model.npz")
    again = elldict.load(tmp_path / "model.npz")
    np.testing.assert_array_equal(again.transform(noisy[0][:9]), model.transform(noisy[0][:9]))
    assert again.n_samples_seen_ == 40_000
    with pytest.raises(ValueError, match="comes from a file"):
        again.partial_fit(noisy[0][:9])


def test_a_fit_ends_a_stream(noisy):
    X, _ = noisy
    model = LpDictionaryLearning(random_state=0).partial_fit(X[:50])
    assert isinstance(model._state, WarmupBuffer)
    model.fit(X[:4000])
    np.testing.assert_array_equal(model.components_, LpDictionaryLearning(random_state=0).fit(X[:4000]).components_)


def test_the_first_fit_warns_and_says_where():
    X = np.random.default_rng(0).standard_normal((2000, 6))
    model = LpDictionaryLearning(random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model.partial_fit(X[:500])  # too few to say anything
    with pytest.warns(NotIdentifiableWarning, match="not identifiable") as caught:
        model.partial_fit(X[500:])
    assert caught[0].filename == __file__


def test_kinds_of_numbers_and_arrays(noisy):
    X, _ = noisy
    for rows in (X[:2500].astype("float32"), np.round(20 * X[:2500]).astype(int), X[:2500][:, ::-1]):
        model = streamed(rows, 800)
        assert model.components_.dtype == (np.float32 if rows.dtype == np.float32 else np.float64)
    strict = pytest.importorskip("array_api_strict")
    model = LpDictionaryLearning(random_state=0)
    for start in (0, 800, 1600):
        model.partial_fit(strict.asarray(np.array(X[start : start + 800])))
    assert type(model.components_) is type(strict.asarray([1.0]))
    with pytest.raises(ValueError, match="same namespace"):
        model.partial_fit(X[:10])


def test_parts_of_files_are_batches_and_files_are_not(noisy, tmp_path):
    X = noisy[0][:3000]
    np.save(tmp_path / "data.npy", X)
    mapped = streamed(np.load(tmp_path / "data.npy", mmap_mode="r"))
    np.testing.assert_array_equal(mapped.components_, streamed(X).components_)
    with pytest.raises(TypeError, match="takes batches in memory"):
        mapped.partial_fit(tmp_path / "data.npy")


def test_what_a_stream_keeps_lives_on_the_host(model):
    for field in fields(OnlineModel):
        value = getattr(model._state.model, field.name)
        assert not hasattr(value, "shape") or (isinstance(value, np.ndarray) and value.dtype == np.float64)


def test_more_atoms_than_features_are_refused_with_the_first_batch(noisy):
    with pytest.raises(ValueError, match=f"n_components={N + 1} exceeds n_features={N}"):
        LpDictionaryLearning(n_components=N + 1).partial_fit(noisy[0][:10])


def test_a_fit_keeps_little_for_a_stream(noisy):
    """Beside components and history: the scatter of the samples, A and the atoms in float64, and vectors of moments."""
    model = LpDictionaryLearning(random_state=0).fit(noisy[0])
    whole = len(pickle.dumps(model))
    history = len(pickle.dumps(model.history_))
    del model._state
    without = len(pickle.dumps(model))
    assert whole - without < 3 * 8 * N * N + 30 * 8 * N + history + 8000
