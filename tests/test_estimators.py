"""Behaviour that both estimators share: attributes, callbacks, data frames, pickles, warnings, namespaces."""

import copy
import pickle
import warnings

import numpy as np
import pandas as pd
import polars as pl
import pytest
import sklearn
from numpy.testing import assert_allclose, assert_array_equal
from numpydoc.validate import validate
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline

from elldict import Iteration, LpDictionaryLearning, LpICA, estimator
from elldict.datasets import make_bernoulli_gaussian
from elldict.exceptions import NotIdentifiableWarning
from elldict.metrics import recovery_error

BOTH = pytest.mark.parametrize("kind", [LpDictionaryLearning, LpICA])
FITTED = {
    "components_": (6, 6),
    "unmixing_": (6, 6),
    "mixing_": (6, 6),
    "mean_": (6,),
    "density_": (6,),
    "scale_": (6,),
    "atom_error_": (6,),
    "n_components_": int,
    "n_features_in_": int,
    "objective_": float,
    "n_iter_": int,
    "n_passes_": float,
    "noise_std_": float,
    "expected_error_": float,
    "converged_": bool,
    "status_": str,
    "history_": tuple,
    "warnings_": tuple,
    "n_samples_seen_": int,
}


@pytest.fixture(scope="module")
def data():
    X, dictionary, codes = make_bernoulli_gaussian(2000, 6, density=0.3, noise_std=0.1, random_state=0)
    for part in (X, dictionary, codes):
        part.setflags(write=False)
    return X, dictionary, codes


@pytest.fixture(scope="module", name="X")
def samples(data):
    return data[0]


# Fit


def test_dictionary_and_codes_are_recovered(data):
    X, dictionary, codes = data
    model = LpDictionaryLearning().fit(X)
    assert recovery_error(model.components_, dictionary) < 2e-3
    cosines = model.components_ @ dictionary.T
    assert_allclose(model.transform(X) @ cosines, codes, atol=0.7)  # seven standard deviations of the noise
    assert 0.2 < model.expected_error_ / recovery_error(model.components_, dictionary) < 5


@BOTH
def test_fit_sets_all_attributes(kind, X):
    model = kind().fit(X)
    for name, expected in FITTED.items():
        value = getattr(model, name)
        if isinstance(expected, tuple):
            assert value.shape == expected, name
            assert value.dtype == np.float64, name
        else:
            assert type(value) is expected, name
    assert model.refined_ == "likelihood"
    assert model.n_samples_seen_ == 2000
    assert model.n_iter_ == len(model.history_)
    assert model.expected_error_ == pytest.approx(np.mean(model.atom_error_))
    assert_allclose(model.density_, 0.3, atol=0.05)
    assert model.warnings_ == ()


@BOTH
def test_codes_are_maps_of_samples_and_back(kind, X):
    model = kind().fit(X)
    codes = model.transform(X)
    assert_allclose(codes, (X - model.mean_) @ model.unmixing_.T, atol=1e-12)
    assert_allclose(model.inverse_transform(codes), X, atol=1e-12)
    assert_array_equal(codes, kind().fit_transform(X))


def test_whitening_recovers_a_dictionary_that_is_not_orthogonal():
    X, dictionary, _ = make_bernoulli_gaussian(5000, 5, density=0.2, orthogonal=False, random_state=1)
    model = LpDictionaryLearning(whiten=True, error_bars=False).fit(X)
    cosines = np.abs(model.components_ @ dictionary.T)
    cosines /= np.outer(np.linalg.norm(model.components_, axis=1), np.linalg.norm(dictionary, axis=1))
    assert np.all(cosines.max(axis=0) > 0.999)
    assert_allclose(np.mean(model.transform(X) ** 2, axis=0), 1, rtol=1e-6)


def test_centring_is_the_fit_of_centred_samples(X):
    one = LpDictionaryLearning(center=True, error_bars=False).fit(X + 3)
    other = LpDictionaryLearning(error_bars=False).fit(X - X.mean(axis=0))
    assert_allclose(one.components_, other.components_, atol=1e-8)
    assert_allclose(one.mean_, X.mean(axis=0) + 3, rtol=1e-12)
    assert_allclose(one.transform(X + 3), other.transform(X - X.mean(axis=0)), atol=1e-8)


@pytest.mark.parametrize("options", [{}, {"whiten": True}], ids=str)
def test_standardised_features_give_the_same_codes_in_any_units(options, X):
    units = np.array([1, 1e3, 1e-3, 20, 1, 5])
    one, other = (LpDictionaryLearning(standardize=True, error_bars=False, **options).fit(c * X) for c in (1, units))
    assert_allclose(np.abs(one.transform(X)), np.abs(other.transform(units * X)), atol=1e-7)
    assert_allclose(other.inverse_transform(other.transform(units * X)), units * X, rtol=1e-9, atol=1e-9)


@BOTH
def test_errors_of_standardised_features_do_not_depend_on_their_units(kind, X):
    units = np.array([1, 1e3, 1e-3, 20, 1, 5])
    one, other = (kind(standardize=True).fit(c * X) for c in (1, units))
    assert_allclose(one.atom_error_, other.atom_error_, rtol=1e-4)
    if kind is LpICA:  # without, the feature with the largest unit decides
        raw = LpICA().fit(units * X)
        assert np.median(raw.atom_error_) < np.median(one.atom_error_) / 10


@BOTH
@pytest.mark.parametrize(("error_bars", "groups", "stated"), [("auto", 0, 1), (True, 0, 1), (False, 1, 0)])
def test_error_bars_are_estimated_if_they_are_wanted(kind, error_bars, groups, stated, X):
    model = kind(error_bars=error_bars).fit(X, groups=np.arange(2000) // 100 if groups else None)
    assert np.all(np.isfinite(model.atom_error_)) == stated
    assert np.isfinite(model.expected_error_) == stated


@pytest.mark.parametrize(
    ("error_bars", "groups", "stated"), [("auto", 0, 0), ("auto", 1, 1), (True, 0, 1), (False, 1, 0)]
)
def test_error_bars_of_the_power_method_are_estimated_if_asked_for_or_with_groups(error_bars, groups, stated, X):
    model = LpDictionaryLearning(solver="power", error_bars=error_bars, random_state=0, max_iter=2000)
    model.fit(X, groups=np.arange(2000) // 100 if groups else None)
    assert np.all(np.isfinite(model.atom_error_)) == stated
    assert model.refined_ is None


def test_groups_do_not_change_components(X):
    one, other = LpICA().fit(X), LpICA().fit(X, groups=np.repeat(["a", "b", "c", "d"], 500))
    assert_array_equal(one.components_, other.components_)
    assert np.any(one.atom_error_ != other.atom_error_)


@BOTH
@pytest.mark.parametrize("p", [1, 0.5, 4, 6])
def test_l_p_norm_alone_finds_the_dictionary(kind, p, data):
    X, dictionary, _ = data
    model = kind(p=p, refine=None, error_bars=False).fit(X)
    cosines = np.abs(model.mixing_.T @ dictionary.T) / np.linalg.norm(model.mixing_, axis=0)[:, None]
    assert np.all(cosines.max(axis=0) > 0.97)
    assert model.refined_ is None


@BOTH
def test_fit_with_integer_weights_is_that_of_repeated_samples(kind, X, rng):
    weights = rng.integers(0, 3, 2000)
    one, other = kind().fit(X, sample_weight=weights), kind().fit(np.repeat(X, weights, axis=0))
    assert_allclose(one.components_, other.components_, atol=1e-7)
    assert_allclose(one.density_, other.density_, atol=1e-7)
    assert one.score(X, sample_weight=weights) == pytest.approx(other.score(np.repeat(X, weights, axis=0)), rel=1e-7)


@BOTH
@pytest.mark.parametrize("seed", [0, np.int64(3), None, np.random.RandomState(0), np.random.default_rng(0)], ids=type)
def test_every_kind_of_random_state_works(kind, seed, X):
    assert kind(solver="power", random_state=seed, max_iter=2000).fit(X).converged_


def test_power_method_with_the_seed_of_the_data_does_not_start_at_the_answer(data):
    X, dictionary, _ = data
    starts = []
    LpDictionaryLearning(solver="power", random_state=0).fit(X, callback=lambda it: starts.append(it) or True)
    assert recovery_error(starts[0].components, dictionary) > 0.01


def test_large_mean_does_not_hurt_single_precision(X):
    one = LpICA(error_bars=False).fit((X + 100).astype(np.float32))
    other = LpICA(error_bars=False).fit(X)
    assert one.components_.dtype == np.float32
    assert_allclose(one.components_, other.components_, atol=1e-3)


# Callbacks and history


@BOTH
def test_callback_stops_the_fit(kind, X):
    seen = []
    model = kind().fit(X, callback=lambda iteration: seen.append(iteration) or len(seen) == 3)
    assert len(seen) == model.n_iter_ == len(model.history_) == 3
    assert not model.converged_


def test_callback_gets_orthonormal_components_and_history_keeps_none(X):
    seen: list[Iteration] = []
    model = LpDictionaryLearning(error_bars=False).fit(X, callback=seen.append)
    assert tuple(seen) == model.history_  # components are not compared
    for iteration in seen:
        assert_allclose(iteration.components @ iteration.components.T, np.eye(6), atol=1e-9)
    assert [iteration.iteration for iteration in seen] == list(range(1, len(seen) + 1))
    assert all(iteration.components is None for iteration in model.history_)
    assert all(np.diff([iteration.stage for iteration in seen]) >= 0)
    assert seen[-1].stage > 0
    assert all(np.diff([iteration.seconds for iteration in seen]) >= 0)


def test_callback_that_changes_components_does_not_change_the_fit(X):
    def spoil(iteration):
        iteration.components[:] = np.nan

    assert_array_equal(LpICA().fit(X).components_, LpICA().fit(X, callback=spoil).components_)


@BOTH
def test_verbose_shows_progress_on_standard_error_only(kind, X, capsys):
    kind(verbose=True).fit(X)
    shown = capsys.readouterr()
    assert kind.__name__ in shown.err
    assert "error bars, part" in shown.err
    assert shown.out == ""
    kind().fit(X)
    assert capsys.readouterr().err == ""


# Failures


@BOTH
@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
@pytest.mark.parametrize("was_fitted", [True, False])
def test_failed_fit_leaves_the_estimator_as_it_was(kind, error, was_fitted, X):
    model = kind(verbose=True)
    if was_fitted:
        model.fit(pd.DataFrame(X, columns=list("abcdef")))
    before = dict(vars(model))

    def fail(iteration):
        raise error("mine")

    with pytest.raises(error, match="mine"):
        model.fit(X[:, :5], callback=fail)
    assert vars(model) == before


def test_warning_that_is_turned_into_an_error_leaves_the_estimator_as_it_was(rng):
    model = LpICA(error_bars=False)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(NotIdentifiableWarning):
            model.fit(rng.standard_normal((1000, 4)))
    with pytest.raises(NotFittedError):
        model.transform(np.ones((2, 4)))


@BOTH
def test_methods_before_a_fit_raise_not_fitted_error(kind, X):
    model = kind()
    assert not any(hasattr(model, name) for name in FITTED)
    for method in (model.transform, model.inverse_transform, model.denoise, model.score, model.score_samples):
        with pytest.raises(NotFittedError):
            method(X)


# Warnings


def test_warnings_point_at_the_line_of_the_user_and_are_kept(rng):
    noise = rng.standard_normal((500, 3))
    calls = (
        lambda: LpICA(error_bars=False).fit(noise),
        lambda: LpICA(error_bars=False).fit_transform(noise),
        lambda: make_pipeline(LpICA(error_bars=False)).fit(noise),
    )
    for call in calls:
        with pytest.warns(NotIdentifiableWarning, match="Components") as caught:
            model = call()
        assert [warning.filename for warning in caught] == [__file__]
        if isinstance(model, LpICA):
            assert model.warnings_ == (("NotIdentifiableWarning", str(caught[0].message)),)


def test_threshold_above_all_codes_is_warned_of(X):
    model = LpDictionaryLearning(error_bars=False).fit(X)
    for algorithm in ("threshold", "hard_threshold"):
        model.set_params(transform_algorithm=algorithm, transform_alpha=1e3)
        with pytest.warns(UserWarning, match="codes of transform_algorithm=.* are zero") as caught:
            assert not np.any(model.transform(X))
        assert caught[0].filename == __file__


@BOTH
@pytest.mark.parametrize("refine", ["auto", None])
def test_max_iter_is_warned_of(kind, refine, X):
    # climbs begin where others end, so that two steps may be enough for the last; one is not for these samples
    with pytest.warns(ConvergenceWarning, match="max_iter=1 "):
        model = kind(max_iter=1, refine=refine, error_bars=False).fit(X)
    assert not model.converged_
    assert model.status_.startswith("max_iter was reached")
    assert model.n_iter_ == len(model.history_)
    assert kind(refine=refine, error_bars=False).fit(X).converged_


def test_max_iter_of_the_power_method_is_warned_of(X):
    with pytest.warns(ConvergenceWarning, match="max_iter=7 "):
        model = LpDictionaryLearning(max_iter=7, solver="power").fit(X)
    assert model.n_iter_ == len(model.history_) == 7
    assert not model.converged_


# Data frames, clones, pickles, routing


@pytest.mark.parametrize("library", [pd, pl])
@BOTH
def test_data_frames_keep_their_names(kind, library, X):
    frame = library.DataFrame({f"sensor {i}": X[:, i] for i in range(6)})
    model = kind(error_bars=False).set_output(transform="pandas" if library is pd else "polars").fit(frame)
    codes = model.transform(frame)
    prefix = kind.__name__.lower()
    assert list(codes.columns) == list(model.get_feature_names_out()) == [f"{prefix}{i}" for i in range(6)]
    assert list(model.feature_names_in_) == [f"sensor {i}" for i in range(6)]
    assert_allclose(codes.to_numpy(), kind(error_bars=False).fit_transform(X), atol=1e-10)  # columns are contiguous
    assert_allclose(model.inverse_transform(codes), X, atol=1e-12)
    with pytest.raises(ValueError, match="feature names"):
        model.transform(frame.rename(columns={"sensor 0": "other"}) if library is pd else frame[:, ::-1])


@BOTH
@pytest.mark.parametrize("copied", [clone, copy.deepcopy, lambda model: pickle.loads(pickle.dumps(model))])
def test_copies_of_an_estimator_are_the_same(kind, copied, X):
    model = kind(error_bars=False).fit(X)
    other = copied(model)
    if copied is clone:
        assert not hasattr(other, "components_")
        other.fit(X)
    assert_array_equal(other.components_, model.components_)
    assert_array_equal(other.score_samples(X), model.score_samples(X))
    assert other.history_ == model.history_ or copied is clone


@BOTH
def test_second_fit_forgets_the_first(kind, X):
    model = kind(error_bars=False).fit(pd.DataFrame(X, columns=list("abcdef")))
    model.fit(X[:, :4])
    assert not hasattr(model, "feature_names_in_")
    assert_array_equal(model.components_, kind(error_bars=False).fit(X[:, :4]).components_)


def test_weights_and_groups_are_routed_through_a_pipeline(X):
    weights, groups = np.arange(2000) % 3, np.arange(2000) // 100
    with sklearn.config_context(enable_metadata_routing=True):
        model = LpICA().set_fit_request(sample_weight=True, groups=True).set_score_request(sample_weight=True)
        pipe = make_pipeline(model).fit(X, sample_weight=weights, groups=groups)
        expected = LpICA().fit(X, sample_weight=weights, groups=groups)
        assert_array_equal(pipe[-1].atom_error_, expected.atom_error_)
        assert pipe.score(X, sample_weight=weights) == expected.score(X, sample_weight=weights)


def test_notebooks_show_the_parameters(X):
    assert "LpDictionaryLearning" in LpDictionaryLearning(p=4).fit(X)._repr_html_()


def test_codes_are_features_of_a_classifier(data):
    X, _, codes = data
    y = codes[:, 0] > 0
    pipe = make_pipeline(LpDictionaryLearning(error_bars=False), LogisticRegression()).fit(X, y)
    assert pipe.score(X, y) > 0.95


# Other array libraries


@BOTH
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_tensors_are_fitted_and_give_tensors(kind, dtype, X):
    torch = pytest.importorskip("torch")
    tensor = torch.tensor(X, dtype=getattr(torch, dtype), requires_grad=True)
    model, other = kind().fit(tensor), kind().fit(X.astype(dtype))
    for name in ("components_", "unmixing_", "mixing_", "mean_", "density_", "scale_", "atom_error_"):
        assert getattr(model, name).dtype == getattr(torch, dtype)
        assert_array_equal(getattr(model, name).numpy(), getattr(other, name))
    codes = model.transform(tensor)
    assert_array_equal(codes.numpy(), other.transform(X.astype(dtype)))
    assert_array_equal(model.inverse_transform(codes).numpy(), other.inverse_transform(codes.numpy()))
    assert_array_equal(model.denoise(tensor).numpy(), other.denoise(X.astype(dtype)))
    assert model.score(tensor) == other.score(X.astype(dtype))
    with pytest.raises(ValueError, match="same namespace"):
        model.transform(X)


# Documentation

IGNORED = {"ES01", "SA01", "EX01", "GL08", "PR01", "RT03", "SS05", "SS06", "YD01"}


@pytest.mark.parametrize(
    "name",
    ["history.Iteration", "dictionary_learning.LpDictionaryLearning", "ica.LpICA"]
    + [f"estimator.LpEstimator.{name}" for name in vars(estimator.LpEstimator) if not name.startswith("_")],
)
def test_docstrings_follow_numpydoc(name):
    if callable(vars(estimator.LpEstimator).get(name.split(".")[-1], estimator.LpEstimator)):
        problems = [f"{code}: {text}" for code, text in validate(f"elldict.{name}")["errors"] if code not in IGNORED]
        assert not problems
