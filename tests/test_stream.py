"""Streams: the error of one pass, forgetting, changes of the samples, and what a user may pass to `partial_fit`."""

import copy
import pickle
import warnings
from functools import partial

import numpy as np
import pandas as pd
import pytest
import scipy.linalg
import scipy.signal
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

from elldict import LpDictionaryLearning, LpICA
from elldict.datasets import make_bernoulli_gaussian
from elldict.exceptions import DataChangedWarning
from elldict.metrics import recovery_error
from elldict.samples.arrays import ArraySamples
from elldict.samples.statistics import compute_statistics
from elldict.solver.objectives import Lp
from elldict.stream.online import add_rows
from elldict.stream.path import measure_angles
from elldict.theory import cramer_rao_bound
from tests.fits import assert_same_fit, draw_atoms, measure_errors

N, SIZE, AT = 10, 500, 16  # features; samples per batch; batch at which samples change


def stream(X, size=1000, half_life=None, model=None, **options):
    model = LpDictionaryLearning(**options) if model is None else model
    for start in range(0, len(X), size):
        model.partial_fit(X[start : start + size], half_life=half_life)
    return model


@pytest.fixture(scope="module")
def noisy():
    X, dictionary, _ = make_bernoulli_gaussian(30_000, 16, density=0.2, noise_std=0.3, random_state=1)
    X.setflags(write=False)
    return X, dictionary


@pytest.mark.parametrize("options", [{}, {"refine": None}, {"refine": None, "p": 1}, {"solver": "power"}])
def test_stream_has_the_error_of_a_fit_to_all_samples(noisy, options):
    """Both have errors of first order in 1 / r that differ by the second: 5 % of an error that is 0.0004."""
    X, dictionary = noisy
    found, fit = stream(X, **options), LpDictionaryLearning(**options).fit(X)
    error = recovery_error(found.components_, dictionary)
    assert error == pytest.approx(recovery_error(fit.components_, dictionary), rel=0.1)
    assert found.expected_error_ == pytest.approx(error, rel=0.35)  # 120 squared angles: 13 %, and the curvatures
    assert not found.warnings_
    if not options:
        bound = cramer_rao_bound(n_features=16, n_samples=len(X), density=0.2, noise_std=0.3)
        assert error < 1.3 * bound
        assert found.expected_error_ == pytest.approx(bound, rel=0.15)
        assert np.mean(found.density_) == pytest.approx(0.2, rel=0.1)
        assert found.noise_std_ == pytest.approx(0.3, rel=0.1)


def test_ica_stream_has_the_mean_and_error_of_a_fit():
    rng = np.random.default_rng(0)
    mixing = rng.standard_normal((12, 12))
    X = rng.laplace(size=(20_000, 12)) @ mixing.T + np.arange(12)
    found, fit = stream(X, model=LpICA()), LpICA().fit(X)
    np.testing.assert_allclose(found.mean_, fit.mean_, rtol=1e-10)
    np.testing.assert_allclose(np.cov(found.transform(X).T), np.eye(12), atol=0.05)  # whitened again at 1 % more
    errors = [np.mean(measure_errors(mixing, model.mixing_)) for model in (found, fit)]
    assert errors[0] == pytest.approx(errors[1], rel=0.25)  # of 66 angles; Laplace densities have a kink
    assert found.expected_error_ == pytest.approx(errors[0], rel=0.4)
    assert not found.warnings_


def test_stream_without_noise_stays_exact():
    X, dictionary, _ = make_bernoulli_gaussian(8000, 16, density=0.2, random_state=0)
    for dtype, error in ((np.float64, 1e-12), (np.float32, 1e-6)):
        found = stream(X.astype(dtype))
        assert abs(recovery_error(found.components_, dictionary)) < error
        assert found.expected_error_ < 1e-9
        assert found.components_.dtype == found.density_.dtype == dtype
        assert not found.warnings_


@pytest.mark.parametrize("kind", [LpDictionaryLearning, LpICA, partial(LpICA, whiten="arbitrary-variance")])
def test_stream_continues_a_fit(noisy, kind):
    """Three times as many samples: a third of the error, if nothing is forgotten; order and signs stay."""
    X, dictionary = noisy
    model = kind().fit(X[:10_000])
    before, error = model.mixing_, model.expected_error_
    stream(X[10_000:], 37, model=model)
    after = [np.mean(measure_errors(dictionary.T, mixing)) for mixing in (before, model.mixing_)]
    assert model.n_samples_seen_ == len(X)
    assert after[1] < 0.6 * after[0]
    assert model.expected_error_ < 0.7 * error
    unit = np.linalg.norm(before, axis=0) * np.linalg.norm(model.mixing_, axis=0)
    assert np.all(np.sum(before * model.mixing_, axis=0) > 0.95 * unit)


def test_collecting_stream_is_not_fitted_until_there_are_enough_samples(noisy):
    X = noisy[0]
    model = stream(X[:999], 333)
    assert model.n_samples_seen_ == 999
    assert "999 of 1000" in model.status_
    with pytest.raises(NotFittedError):
        model.transform(X)
    assert stream(X[999:1300], 1, model=model).n_samples_seen_ == 1300
    with pytest.raises(ValueError, match="n_components=5 of 16 features need whiten=True"):
        LpDictionaryLearning(n_components=5).partial_fit(X)


def test_pickled_and_copied_streams_continue_identically(noisy):
    X = noisy[0]
    for n_before in (300, 3000):
        model = stream(X[:n_before])
        others = [pickle.loads(pickle.dumps(model)), copy.deepcopy(model)]
        stream(X[n_before:6000], 700, model=model)
        for other in others:
            stream(X[n_before:6000], 700, model=other)
            other._stream = model._stream
            assert_same_fit(other, model)
    assert len(model._stream.window) == 4000
    assert not hasattr(clone(model), "_stream")
    assert not hasattr(model.fit(X[:2000]), "_stream")


@pytest.mark.parametrize("n_before", [0, 100, 3000])
def test_refused_batch_leaves_the_estimator_as_it_was(noisy, n_before):
    X = noisy[0]
    model = stream(X[:n_before])
    before = pickle.dumps(model)
    bad = X[:1500].copy()
    bad[1100, 3] = np.nan
    with pytest.raises(ValueError, match=r"NaN \(sample 1100, feature 3\)"):
        model.partial_fit(bad)
    for half_life in (0, -1.0, np.nan, "10", True):
        with pytest.raises(ValueError, match="half_life must be a number of samples > 0, or None"):
            model.partial_fit(X[:10], half_life=half_life)
    if n_before:
        with pytest.raises(ValueError, match="features"):
            model.partial_fit(X[:10, :5])
    assert pickle.dumps(model) == before


def test_other_containers_and_units_have_the_same_stream(noisy, tmp_path):
    da = pytest.importorskip("dask.array")
    X = noisy[0][:4000]
    one, path = stream(X), tmp_path / "X.npy"
    np.save(path, X)
    frame = pd.DataFrame(X, columns=[f"c{number}" for number in range(16)])
    named = stream(frame)
    assert list(named.feature_names_in_) == list(frame.columns)
    in_files = LpDictionaryLearning().partial_fit(path)
    np.testing.assert_array_equal(in_files.components_, stream(X, len(X)).components_)
    for other in (named, stream(da.from_array(X, chunks=(700, 16)))):
        np.testing.assert_array_equal(other.components_, one.components_)
    for unit in (1e-200, 1e150):
        np.testing.assert_allclose(stream(unit * X).components_, one.components_, atol=1e-9)
    with pytest.raises(ValueError, match="feature names should match"):
        named.partial_fit(frame[frame.columns[::-1]])


def test_moments_are_those_of_discounted_samples():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((600, 4)) * [1, 2, 3, 4] + [5, 0, 0, -3]
    statistics = compute_statistics(ArraySamples(X[:200]))
    for start in (200, 400):
        statistics = add_rows(statistics, X[start : start + 200], keep=0.7)
    weights = np.repeat([0.49, 0.7, 1.0], 200)
    assert statistics.n_samples == pytest.approx(np.sum(weights))
    np.testing.assert_allclose(statistics.mean * statistics.largest, np.average(X, axis=0, weights=weights))
    expected = np.cov(X.T, aweights=weights, ddof=0)
    np.testing.assert_allclose(statistics.covariance * statistics.largest**2, expected, rtol=1e-10)


def test_measured_angles_are_derivatives_of_the_slope():
    """Of independent codes that are symmetric: mixed products, which no code has, vanish exactly."""
    Z = np.random.default_rng(0).standard_normal((50, 2)) ** 3
    Z, objective = np.vstack([Z * signs for signs in ([1, 1], [1, -1], [-1, 1], [-1, -1])]), Lp(4.0)

    def slope(matrix):
        C = objective.terms(Z @ matrix.T).g.T @ (Z @ matrix.T) / len(Z)
        return (C - C.T)[0, 1]

    second, _, _, mixed = measure_angles(Z, objective)
    h = 1e-6
    for value, direction in ((-second, [[0, 1], [-1, 0]]), (mixed, [[0, 1], [1, 0]])):
        step = h * np.array(direction)
        difference = (slope(np.eye(2) + step) - slope(np.eye(2) - step)) / (2 * h)
        assert difference == pytest.approx(value[0, 1], rel=1e-6)


def follow(change, n_batches=AT + 10, half_life=None, noise_std=0.2, seed=0, n=N):
    """Feed batches that change; return the estimator, numbers of warned batches, and (true, stated) errors."""
    model, rng, warned, errors = LpDictionaryLearning(), np.random.default_rng(seed), [], []
    for number in range(n_batches):
        size = SIZE if number else 2 * SIZE  # the first batch is fitted
        codes = rng.standard_normal((size, n)) * (rng.random((size, n)) < 0.2)
        codes, dictionary = change(number, codes, draw_atoms(n, seed))
        X = codes @ dictionary + noise_std * rng.standard_normal((size, n))
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            model.partial_fit(X, half_life=half_life)
        for each in caught:
            assert each.filename == __file__
        warned += [number for each in caught if each.category is DataChangedWarning]
        errors.append((recovery_error(model.components_, dictionary), model.expected_error_))
    return model, warned, np.array(errors)


def replace_all(number, codes, atoms):
    return codes, atoms if number < AT else draw_atoms(N, 99)


def turn_gaussian(number, codes, atoms):
    rng = np.random.default_rng(number)
    return codes if number < AT else np.std(codes) * rng.standard_normal(codes.shape), atoms


def double(number, codes, atoms):
    return codes * (1 if number < AT else 2), atoms


def rotate(number, codes, atoms, speed=4e-6):
    turn = np.random.default_rng(1).standard_normal(atoms.shape)
    turn = (turn - turn.T) * np.sqrt(len(turn)) / np.linalg.norm(turn - turn.T)
    return codes, scipy.linalg.expm(speed * SIZE * number * turn) @ atoms


@pytest.mark.parametrize("noise_std", [0.0, 0.2])
@pytest.mark.parametrize("half_life", [None, 2000.0])
def test_replaced_dictionary_is_noticed_and_learned(noise_std, half_life):
    _, warned, errors = follow(replace_all, noise_std=noise_std, half_life=half_life)
    assert len(warned) == 1
    assert AT <= warned[0] <= AT + 3
    assert np.all(errors[warned[0]] > 0.5)  # it was a change, which is admitted at once,
    assert np.all(errors[warned[0] + 3 :, 0] < 0.01)  # and the new one was found
    assert np.all(errors[:, 1] + 1e-12 > 0.4 * errors[:, 0])


def test_samples_that_turn_gaussian_are_noticed():
    model, warned, errors = follow(turn_gaussian)
    assert AT <= warned[0] <= AT + 3
    assert np.all(errors[AT:, 1] > 0.5)
    assert {name for name, _ in model.warnings_} == {"DataChangedWarning", "NotIdentifiableWarning"}


def test_changed_scale_keeps_the_atoms():
    _, warned, errors = follow(double)
    assert len(warned) == 1
    assert np.all(errors[AT:, 0] < 1.2 * errors[AT - 1, 0])
    assert errors[-1, 1] < errors[AT - 1, 1]


def test_drift_is_noticed_and_admitted():
    """Without half_life, it is noticed before it is large; errors are stated within a factor."""
    _, warned, errors = follow(rotate, 60)
    assert errors[warned[0], 0] < 0.004
    assert np.all(errors[8:, 1] > 0.25 * errors[8:, 0])


def test_drift_is_followed_with_half_life():
    """The lag is the speed times the mean age of a sample, h / ln 2; its error is twice its square."""
    half_life = 2000.0
    model, warned, errors = follow(rotate, 60, half_life)
    noise = cramer_rao_bound(n_features=N, n_samples=round(2 * half_life / np.log(2)), density=0.2, noise_std=0.2)
    lag = 2 * (4e-6 * half_life / np.log(2)) ** 2
    true, stated = np.mean(errors[25:], axis=0)
    assert not warned
    assert true == pytest.approx(noise + lag, rel=0.35)
    assert 0.5 * true < stated < 2 * true
    n_effective = float(model.status_.rpartition(" ")[2])  # that have the same errors if they have equal weights
    assert n_effective == pytest.approx(2 * half_life / np.log(2), rel=0.02)


def test_dependent_samples_within_a_block_are_not_warned_of():
    """Codes and their zeros are remembered for about ten samples, so that errors are larger."""
    rng, memory, n = np.random.default_rng(0), 0.9, 8
    values, active = (
        scipy.signal.lfilter([np.sqrt(1 - memory**2)], [1, -memory], rng.standard_normal((30_000, n)), axis=0)
        for _ in range(2)
    )
    model = stream(values * (active > 0.84) @ draw_atoms(n) + 0.2 * rng.standard_normal((30_000, n)), SIZE)
    assert not model.warnings_
    assert np.max(model._stream.follower.change.spreads) > 2


@pytest.mark.parametrize("seed", range(3))
def test_unchanged_samples_are_not_warned_of(seed):
    """120 blocks: by chance one alarm in 10^5."""
    _, warned, errors = follow(lambda _, *kept: kept, 120, seed=seed, n=5)
    assert not warned
    assert np.all(errors[8:, 1] < 1)
    assert np.mean(errors[8:, 1]) == pytest.approx(np.mean(errors[8:, 0]), rel=0.6)  # 10 angles, all batches alike
