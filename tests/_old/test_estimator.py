"""The estimator, as its user meets it."""

import copy
import pickle
import warnings

import numpy as np
import pandas as pd
import pytest
import scipy.linalg
from sklearn.base import clone
from sklearn.decomposition import sparse_encode
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from elldict import LpDictionaryLearning
from elldict.datasets import make_bernoulli_gaussian
from elldict.exceptions import NotWhiteWarning
from elldict.metrics import match_atoms, recovery_error
from tests._old.helpers import assert_same_atoms


def test_atoms_are_found_and_codes_too(easy):
    X, dictionary, codes = easy
    model = LpDictionaryLearning(random_state=0).fit(X)
    assert recovery_error(model.components_, dictionary) < 0.002
    match = match_atoms(model.components_, dictionary)
    np.testing.assert_allclose(model.transform(X), match.signs * codes[:, match.indices], atol=0.4)
    np.testing.assert_allclose(model.inverse_transform(model.transform(X)), X, atol=1e-12)


def test_atoms_come_in_a_fixed_order_and_sign(easy):
    X = easy[0]
    model = LpDictionaryLearning(random_state=0).fit(X)
    share = np.sum(np.abs(model.transform(X)) ** 3, axis=0)
    assert np.all(np.diff(share) <= 0)
    largest = np.argmax(np.abs(model.components_), axis=1)
    assert np.all(model.components_[np.arange(12), largest] > 0)
    other = LpDictionaryLearning(random_state=5).fit(X)
    np.testing.assert_allclose(model.components_, other.components_, atol=1e-5)


def test_objective_is_that_of_the_codes_at_unit_mean_square(easy):
    X = 7 * easy[0]
    model = LpDictionaryLearning(p=4, random_state=0).fit(X)
    expected = np.mean(np.abs(model.transform(X) / np.sqrt(np.mean(X**2))) ** 4)
    assert model.objective_ == pytest.approx(expected)
    assert model.objective_ >= model.history_[-1].objective * (1 - 1e-12)


def test_restarts_keep_the_best_objective(easy):
    """On the sphere every atom is a maximum, some higher than others."""
    one = LpDictionaryLearning(1, solver="power", random_state=0).fit(easy[0])
    many = LpDictionaryLearning(1, solver="power", random_state=0, n_init=10).fit(easy[0])
    assert {iteration.start for iteration in many.history_} == set(range(10))
    finals = [[it.objective for it in many.history_ if it.start == start][-1] for start in range(10)]
    assert max(finals) > min(finals) * 1.01
    assert many.objective_ == pytest.approx(max(finals), rel=1e-9)
    assert many.objective_ >= one.objective_
    assert many.n_passes_ == len(many.history_) + 1 + 10
    assert many.n_iter_ < len(many.history_)


def test_passes_count_survey_iterations_and_judgement(easy):
    model = LpDictionaryLearning(solver="power", refine=None, random_state=0).fit(easy[0])
    assert model.n_passes_ == model.n_iter_ + 2
    assert model.n_iter_ == len(model.history_)


def test_callback_stops_all_starts(easy):
    model = LpDictionaryLearning(random_state=0, n_init=5).fit(easy[0], callback=lambda it: it.iteration == 2)
    assert model.n_iter_ == len(model.history_) == 2
    assert not model.converged_
    assert "callback" in model.status_


def test_verbose_shows_a_bar_on_standard_error(easy, capsys):
    seen = []
    LpDictionaryLearning(random_state=0, verbose=True).fit(easy[0], callback=seen.append)
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "iteration" in captured.err
    assert seen


@pytest.mark.parametrize("center", [False, True])
def test_whitening_recovers_a_dictionary_that_is_not_orthogonal(center):
    X, dictionary, codes = make_bernoulli_gaussian(
        50_000, 50, density=0.1, orthogonal=False, condition_number=20, dtype="float32", random_state=0
    )
    assert np.linalg.cond(dictionary) == pytest.approx(20, rel=1e-3)
    if center:
        X = X + np.linspace(-3, 3, 50, dtype="float32")
    model = LpDictionaryLearning(whiten=True, center=center, random_state=0).fit(X)
    match = match_atoms(model.components_, dictionary)
    assert np.min(match.cosines) > 0.99
    estimate = (X - model.mean_) @ model.unmixing_.T
    np.testing.assert_allclose(np.mean(estimate**2, axis=0), 1, rtol=1e-3)
    for i, (j, sign) in enumerate(zip(match.indices, match.signs, strict=True)):
        assert np.corrcoef(estimate[:, i], sign * codes[:, j])[0, 1] > 0.99
    np.testing.assert_allclose(model.inverse_transform(model.transform(X)), X, atol=1e-3)
    np.testing.assert_array_equal(model.mixing_, model.components_.T)


def test_without_whitening_such_data_is_warned_of():
    X, _, _ = make_bernoulli_gaussian(5000, 20, density=0.1, orthogonal=False, condition_number=20, random_state=0)
    with pytest.warns(NotWhiteWarning, match=r"condition number of its covariance is \d+.*Set whiten=True"):
        LpDictionaryLearning(random_state=0).fit(X)


def test_centring_is_the_same_as_centred_data(easy):
    X = easy[0]
    shifted = LpDictionaryLearning(center=True, random_state=0).fit(X + np.arange(12))
    centred = LpDictionaryLearning(random_state=0).fit(X - X.mean(axis=0))
    np.testing.assert_allclose(shifted.components_, centred.components_, atol=1e-9)
    np.testing.assert_allclose(shifted.mean_, X.mean(axis=0) + np.arange(12), atol=1e-12)
    np.testing.assert_array_equal(centred.mean_, np.zeros(12))


def test_a_large_mean_does_not_hurt_float32(easy):
    X = (easy[0] + 5000).astype("float32")  # 12 bits of 24 are gone with the mean
    model = LpDictionaryLearning(center=True, random_state=0).fit(X)
    assert recovery_error(model.components_, easy[1]) < 0.002


@pytest.fixture(scope="module")
def model(easy):
    return LpDictionaryLearning(random_state=0).fit(easy[0])


@pytest.mark.filterwarnings("ignore:Orthogonal matching pursuit ended:RuntimeWarning")  # of scikit-learn's own answer
class TestTransform:
    def test_threshold_shrinks(self, model, easy):
        linear = model.transform(easy[0])
        model = copy.copy(model).set_params(transform_algorithm="threshold", transform_alpha=0.3)
        np.testing.assert_allclose(model.transform(easy[0]), np.sign(linear) * np.maximum(np.abs(linear) - 0.3, 0))

    def test_hard_threshold_keeps_or_kills(self, model, easy):
        linear = model.transform(easy[0])
        model = copy.copy(model).set_params(transform_algorithm="hard_threshold", transform_alpha=0.3)
        np.testing.assert_array_equal(model.transform(easy[0]), np.where(np.abs(linear) > 0.3, linear, 0))

    @pytest.mark.parametrize("k", [1, 3, 12])
    def test_omp_agrees_with_scikit_learn(self, model, easy, k):
        X = easy[0][:200]
        model = copy.copy(model).set_params(transform_algorithm="omp", transform_n_nonzero_coefs=k)
        expected = sparse_encode(X, model.components_, algorithm="omp", n_nonzero_coefs=k)
        np.testing.assert_allclose(model.transform(X), expected, atol=1e-7)  # scikit-learn ends early at exact codes

    @pytest.mark.parametrize("k", [1, 3])
    def test_omp_agrees_with_scikit_learn_for_atoms_that_are_not_orthonormal(self, k):
        X, _, _ = make_bernoulli_gaussian(3000, 8, density=0.2, orthogonal=False, random_state=0)
        model = LpDictionaryLearning(
            whiten=True, transform_algorithm="omp", transform_n_nonzero_coefs=k, random_state=0
        ).fit(X)
        lengths = np.linalg.norm(model.components_, axis=1)
        expected = sparse_encode(X[:100], model.components_ / lengths[:, None], algorithm="omp", n_nonzero_coefs=k)
        np.testing.assert_allclose(model.transform(X[:100]), expected / lengths, atol=1e-8)

    def test_omp_keeps_exactly_k_of_equal_codes(self, model):
        model = copy.copy(model).set_params(transform_algorithm="omp", transform_n_nonzero_coefs=2)
        tied = np.sum(model.components_, axis=0, keepdims=True)
        assert np.count_nonzero(model.transform(tied)) == 2

    @pytest.mark.parametrize("algorithm", ["threshold", "hard_threshold"])
    def test_threshold_without_alpha_is_refused(self, model, easy, algorithm):
        with pytest.raises(ValueError, match=f"{algorithm}.*needs transform_alpha"):
            copy.copy(model).set_params(transform_algorithm=algorithm).transform(easy[0])

    def test_more_codes_than_atoms_are_refused(self, model, easy):
        with pytest.raises(ValueError, match="transform_n_nonzero_coefs=13 exceeds the 12 atoms"):
            copy.copy(model).set_params(transform_algorithm="omp", transform_n_nonzero_coefs=13).transform(easy[0])

    def test_codes_of_the_wrong_shape_are_refused(self, model):
        with pytest.raises(ValueError, match=r"shape \(3, 5\) given, expected \(n_samples, n_components_=12\)"):
            model.inverse_transform(np.zeros((3, 5)))


def test_names_and_data_frames(easy):
    whitening = pd.DataFrame(easy[0], columns=[f"pixel {i}" for i in range(12)])
    model = LpDictionaryLearning(n_components=3, random_state=0).fit(whitening)
    assert list(model.feature_names_in_) == list(whitening.columns)
    assert list(model.get_feature_names_out()) == [f"lpdictionarylearning{i}" for i in range(3)]
    codes = model.set_output(transform="pandas").transform(whitening)
    assert isinstance(codes, pd.DataFrame)
    assert list(codes.columns) == list(model.get_feature_names_out())


def test_works_in_a_pipeline(easy):
    pipeline = make_pipeline(StandardScaler(), LpDictionaryLearning(random_state=0))
    assert pipeline.fit_transform(easy[0]).shape == easy[0].shape


@pytest.mark.parametrize("copied", [clone, copy.deepcopy, lambda model: pickle.loads(pickle.dumps(model))])
def test_fault_18_copies_of_an_estimator_are_identical(easy, copied):
    model = LpDictionaryLearning(random_state=3, p=2.7, n_init=2)
    fitted = copied(model).fit(easy[0])
    again = copied(fitted)
    if not hasattr(again, "components_"):
        again.fit(easy[0])
    np.testing.assert_array_equal(fitted.components_, again.components_)
    np.testing.assert_array_equal(fitted.transform(easy[0]), again.transform(easy[0]))


def test_fault_18_fit_transform_is_fit_then_transform(easy):
    model = LpDictionaryLearning(random_state=3)
    np.testing.assert_array_equal(model.fit_transform(easy[0]), model.fit(easy[0]).transform(easy[0]))


@pytest.mark.parametrize(
    "seed", [7, np.int64(7), np.random.RandomState(7), np.random.default_rng(7)], ids=lambda s: type(s).__name__
)
def test_every_kind_of_random_state_works(easy, seed):
    model = LpDictionaryLearning(random_state=seed).fit(easy[0])
    assert_same_atoms(model.components_, LpDictionaryLearning(random_state=0).fit(easy[0]).components_, 1e-5)


def test_equal_seeds_do_not_start_a_fit_at_the_answer(easy):
    """A random start in 12 dimensions has an error of about 1 - 3/14; .5 is far below any of them."""
    starts = []
    LpDictionaryLearning(random_state=0).fit(easy[0], callback=lambda it: starts.append(it.components) or True)
    assert recovery_error(starts[0], easy[1]) > 0.5


def test_parameters_set_after_the_fit_are_checked(model, easy):
    with pytest.raises(ValueError, match="transform_algorithm"):
        copy.copy(model).set_params(transform_algorithm="best").transform(easy[0])


def test_omp_takes_no_more_codes_than_atoms_by_default():
    X, _, _ = make_bernoulli_gaussian(3000, 40, density=0.1, random_state=0)
    codes = LpDictionaryLearning(3, transform_algorithm="omp", random_state=0).fit_transform(X)
    assert np.max(np.count_nonzero(codes, axis=1)) == 3


def test_omp_follows_the_fit_and_not_a_parameter_set_later(easy):
    model = LpDictionaryLearning(whiten=True, transform_algorithm="omp", random_state=0).fit(easy[0])
    before = model.transform(easy[0])
    np.testing.assert_array_equal(model.set_params(whiten=False).transform(easy[0]), before)


def test_signs_do_not_hang_on_rounding_when_entries_are_equal():
    """Atoms of a Hadamard matrix have entries of one size: the first decides, whatever rounding says."""
    rng = np.random.default_rng(0)
    codes = np.zeros((800, 8))
    codes[np.arange(800), rng.integers(0, 8, 800)] = rng.choice([-2.0, -1.0, 1.0, 3.0], 800)
    X = codes @ (scipy.linalg.hadamard(8) / np.sqrt(8))
    one = LpDictionaryLearning(random_state=0).fit(X)
    other = LpDictionaryLearning(random_state=1).fit(3.3 * X[::-1])
    assert np.all(one.components_[:, 0] > 0)
    assert np.all(other.components_[:, 0] > 0)


def test_a_callback_that_cannot_be_called_is_refused(easy):
    with pytest.raises(TypeError, match="callback is a str"):
        LpDictionaryLearning().fit(easy[0], callback="stop")


def test_a_failed_fit_leaves_the_estimator_as_it_was(easy):
    model = LpDictionaryLearning(random_state=0).fit(easy[0])
    bad = easy[0][:, :4].copy()
    bad[3, 2] = np.nan
    with pytest.raises(ValueError, match="NaN"):
        model.fit(bad)
    assert model.n_features_in_ == 12
    assert model.transform(easy[0]).shape == (4000, 12)


def test_float32_with_a_mean_converges_as_float64_does(easy):
    model = LpDictionaryLearning(p=2.5, center=True, random_state=0).fit((easy[0] + 40).astype("float32"))
    assert model.n_iter_ < 100


def test_an_interrupted_fit_leaves_the_estimator_as_it_was(easy):
    def interrupt(iteration):
        raise KeyboardInterrupt

    model = LpDictionaryLearning(random_state=0).fit(easy[0])
    before = model.components_.copy()
    with pytest.raises(KeyboardInterrupt):
        model.fit(easy[0] * 2, callback=interrupt)
    np.testing.assert_array_equal(model.components_, before)


@pytest.mark.parametrize("algorithm", ["threshold", "hard_threshold"])
def test_a_threshold_above_all_codes_is_warned_of(easy, algorithm):
    model = LpDictionaryLearning(random_state=0, transform_algorithm=algorithm, transform_alpha=1e3).fit(easy[0])
    with pytest.warns(UserWarning, match=r"codes are zero: the threshold is above every.*Lower transform_alpha"):
        assert not np.any(model.transform(easy[0]))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model.transform(np.zeros((2, easy[0].shape[1])))  # zero by any rule
        model.set_params(transform_alpha=0.1).transform(easy[0])
