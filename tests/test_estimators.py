"""Behaviour that both estimators share: attributes, callbacks, data frames, pickles, warnings, namespaces."""

import numpy as np
import pandas as pd
import polars as pl
import pytest
import sklearn
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.exceptions import NotFittedError
from sklearn.pipeline import make_pipeline

from elldict import Iteration, LpDictionaryLearning, LpICA
from elldict.datasets import make_bernoulli_gaussian
from elldict.exceptions import NotIdentifiableWarning

BOTH = pytest.mark.parametrize("kind", [LpDictionaryLearning, LpICA])


@pytest.fixture(scope="module", name="X")
def samples():
    X = make_bernoulli_gaussian(2000, 6, density=0.3, noise_std=0.1, random_state=0)[0]
    X.setflags(write=False)
    return X


# Fit


@BOTH
def test_attributes_of_a_fit_agree_with_each_other(kind, X):
    model = kind().fit(X)
    assert model.refined_ == "likelihood"
    assert model.n_samples_seen_ == 2000
    assert model.n_iter_ == len(model.history_)
    assert model.expected_error_ == pytest.approx(np.mean(model.atom_error_))
    assert_allclose(model.density_, 0.3, atol=0.05)
    assert model.warnings_ == ()


@pytest.mark.parametrize(
    ("solver", "error_bars", "groups", "stated"),
    [
        ("auto", "auto", 0, 1),
        ("auto", False, 1, 0),
        ("power", "auto", 0, 0),
        ("power", "auto", 1, 1),
        ("power", True, 0, 1),
    ],
)
def test_error_bars_are_estimated_where_they_are_wanted(solver, error_bars, groups, stated, X):
    model = LpICA(solver=solver, error_bars=error_bars, random_state=0, max_iter=2000)
    model.fit(X, groups=np.arange(2000) // 100 if groups else None)
    assert np.all(np.isfinite(model.atom_error_)) == np.isfinite(model.expected_error_) == stated


def test_groups_change_errors_but_not_components(X):
    one, other = LpICA().fit(X), LpICA().fit(X, groups=np.repeat(["a", "b", "c", "d"], 500))
    assert_array_equal(one.components_, other.components_)
    assert np.any(one.atom_error_ != other.atom_error_)


@BOTH
def test_fit_with_integer_weights_is_that_of_repeated_samples(kind, X, rng):
    weights = rng.integers(0, 3, 2000)
    one, other = kind().fit(X, sample_weight=weights), kind().fit(np.repeat(X, weights, axis=0))
    assert_allclose(one.components_, other.components_, atol=1e-7)
    assert_allclose(one.density_, other.density_, atol=1e-7)


# Callbacks and history


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


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
@pytest.mark.parametrize("was_fitted", [True, False])
def test_failed_fit_leaves_the_estimator_as_it_was(error, was_fitted, X):
    model = LpICA(verbose=True)
    if was_fitted:
        model.fit(pd.DataFrame(X, columns=list("abcdef")))
    before = dict(vars(model))

    def fail(iteration):
        raise error("mine")

    with pytest.raises(error, match="mine"):
        model.fit(X[:, :5], callback=fail)
    assert vars(model) == before


@BOTH
def test_methods_before_a_fit_raise_not_fitted_error(kind, X):
    model = kind()
    assert not hasattr(model, "components_")
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


def test_weights_and_groups_are_routed_through_a_pipeline(X):
    weights, groups = np.arange(2000) % 3, np.arange(2000) // 100
    with sklearn.config_context(enable_metadata_routing=True):
        model = LpICA().set_fit_request(sample_weight=True, groups=True).set_score_request(sample_weight=True)
        pipe = make_pipeline(model).fit(X, sample_weight=weights, groups=groups)
        expected = LpICA().fit(X, sample_weight=weights, groups=groups)
        assert_array_equal(pipe[-1].atom_error_, expected.atom_error_)
        assert pipe.score(X, sample_weight=weights) == expected.score(X, sample_weight=weights)


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
