"""Checks for what fits to parts of the samples cannot see: dependent components, and features that are not sums."""

import numpy as np
import pandas as pd
import pytest
import sklearn.datasets

from elldict import LpDictionaryLearning, LpICA, exceptions
from elldict.cli.messages import reword
from elldict.datasets import make_bernoulli_gaussian
from elldict.entries import check_features, measure_repeated
from elldict.warnings import check_dependence, measure_dependence
from tests.fits import draw, draw_atoms

R, N = 3000, 6
LONGEST = 300
"""Characters of a message, without names of features."""


def mix(codes, *, is_orthogonal=False):
    n = codes.shape[1]
    return codes @ (draw_atoms(n) if is_orthogonal else np.random.default_rng(3).standard_normal((n, n)))


def fit(X, kind=LpICA, **options):
    """Fit and return the messages by their class, which are short."""
    with pytest.warns() as caught:
        model = kind(**{"error_bars": False, **options}).fit(X)
    assert all(len(message) < LONGEST for _, message in model.warnings_)
    assert len(caught) == len(model.warnings_)
    return dict(model.warnings_)


def find_categories(rows):
    return [finding.category for finding in check_features(rows)]


# --- components -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("noise", [0, 0.05])
def test_fault_57_harmonics_are_warned_of(noise):
    t = 0.0371 * 2 * np.pi * np.arange(20_000)
    X = mix(np.sin(np.arange(1, 5) * t[:, None]), is_orthogonal=True) + noise * draw("gauss", len(t), 4)
    message = fit(X)["DependentComponentsWarning"]
    assert message.startswith("Components ")
    assert "depend strongly on each other" in message


def test_fault_38_pair_with_common_support_is_named():
    codes = draw("sparse", R, N)
    codes[:, :2] = draw("gauss", R, 2, seed=1) * (codes[:, :1] != 0)
    model = LpDictionaryLearning(error_bars=False)
    with pytest.warns(exceptions.DependentComponentsWarning) as caught:
        model.fit(mix(codes, is_orthogonal=True))
    true = draw_atoms(N)
    pair = np.argsort(-np.sum((model.components_ @ true[:2].T) ** 2, axis=1))[:2]
    assert str(caught[0].message).startswith(f"Components {min(pair)}, {max(pair)} depend")


@pytest.mark.parametrize("law", ["laplace", "uniform", "exponential", "sparse", "noisy"])
@pytest.mark.parametrize("n", [4, 12])
@pytest.mark.parametrize("per_direction", [30, 300])
def test_check_dependence_independent_codes_pass(law, n, per_direction):
    codes = draw(law, per_direction * n, n, seed=n)
    assert not list(check_dependence(codes, np.zeros(len(codes), dtype=bool)))


def test_check_dependence_common_scale_of_components_that_are_found_passes():
    codes = draw("laplace", R, N)
    codes[:, :2] *= np.exp(0.8 * draw("gauss", R, 1, seed=1))
    assert LpICA(error_bars=False).fit(mix(codes)).warnings_ == ()


def test_check_dependence_zero_codes_with_crosstalk_pass():
    """Without refinement, zeros of codes are the crosstalk of all others, which depends on them."""
    X = make_bernoulli_gaussian(4000, N, density=0.1, random_state=0)[0]
    assert LpDictionaryLearning(refine=None, error_bars=False).fit(X).warnings_ == ()


@pytest.mark.parametrize("law", ["laplace", "sparse"])
def test_check_dependence_samples_without_signal_pass(law):
    """All codes are zero together in one half, and only one in other samples of very sparse codes."""
    codes = draw(law, 2000, 3)
    codes[::2] = 0
    codes[1::2] *= 1 if law == "laplace" else np.eye(3)[np.arange(1000) % 3]
    assert not list(check_dependence(codes, np.all(codes == 0, axis=1)))


def test_measure_dependence_of_functions_of_each_other_is_large():
    t = 2 * np.pi * np.arange(1000) / 1000
    found = measure_dependence(np.column_stack([np.cos(t), np.sin(t), draw("laplace", 1000, 1)]))
    assert found[0, 1] == found[1, 0] > 1
    assert np.all(np.diag(found) == 0)
    assert np.max(found[2]) < 0.05  # 16 / 1000 is expected by chance


# --- features ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("law", ["laplace", "noisy", "uniform", "exponential"])
def test_fault_58_sensor_that_is_off_is_named(law):
    X = mix(draw(law, R, N))
    X[R // 4 : R // 4 + 2 * R // 5, 2] = 0
    message = fit(X)["SuspiciousFeaturesWarning"]
    assert message.startswith("In feature 2, one value repeats in up to ")
    assert 0.35 < float(message.split("up to ")[1].split("%")[0]) / 100 < 0.45


@pytest.mark.parametrize("law", ["laplace", "noisy", "uniform", "exponential"])
def test_fault_39_clipped_features_are_named(law):
    X = mix(draw(law, R, N))
    limits = 1.5 * np.std(X, axis=0)
    X[:, :3] = np.clip(X, -limits, limits)[:, :3]
    assert fit(X)["NotLinearWarning"].startswith("In features 0, 1, 2, the largest or smallest value repeats")


def test_fault_35_rounded_values_are_warned_of():
    X = np.round(make_bernoulli_gaussian(8000, 20, density=0.1, random_state=0)[0])
    message = fit(X, LpDictionaryLearning)["SuspiciousFeaturesWarning"]
    assert message.startswith(
        "In features 0, 1, 2, 3, 4, 5, 6, 7, 8, 9 and 10 more, there are at most 5 distinct values"
    )
    assert "refine=None" in message


def test_fault_55_features_on_different_scales_are_warned_of():
    X = sklearn.datasets.load_wine().data
    message = fit(X, n_components=5)["SuspiciousFeaturesWarning"]
    assert message.startswith(
        "Features are on very different scales: the standard deviation of feature 12 is 388 times"
    )
    assert "--standardize" in reword(message)
    assert "SuspiciousFeaturesWarning" in fit(X, LpDictionaryLearning)
    for options in ({"n_components": 5, "standardize": True}, {}):  # without reduction, whitening removes all scales
        assert "SuspiciousFeaturesWarning" not in fit(X, **options)


def test_check_features_few_rounded_ones_pass_if_components_are_fewer():
    rows = mix(draw("laplace", 1000, N))
    rows[:, 0] = np.round(rows[:, 0] / np.std(rows[:, 0]) / 2)
    assert find_categories(rows) == [exceptions.SuspiciousFeaturesWarning]
    assert not list(check_features(rows, is_reduced=True))
    assert list(check_features(np.round(rows / np.std(rows, axis=0) / 2), is_reduced=True))


def test_check_features_names_columns_of_a_data_frame():
    X = mix(draw("laplace", R, N))
    X[: R // 3, 1] = 7
    message = fit(pd.DataFrame(X, columns=["a", "b\x1b", "c", "d", "e", "f"]))["SuspiciousFeaturesWarning"]
    assert message.endswith(r"Names: 'b\x1b'.")


@pytest.mark.parametrize("law", ["laplace", "uniform", "exponential", "sparse", "noisy"])
@pytest.mark.parametrize("n", [4, 30])
def test_check_features_sums_of_codes_pass(law, n):
    codes = draw(law, 1000, n, seed=n)
    for rows in (codes, mix(codes), np.round(mix(codes), 2)):
        assert find_categories(rows) == []


def test_check_features_few_samples_and_rare_codes_pass():
    assert find_categories(draw("laplace", 5, 3)) == []
    rare = draw("laplace", 1000, 4) * (np.arange(1000) % 250 == 7)[:, None]
    assert find_categories(rare) == []  # four distinct values each, none of which comes again


def test_check_features_equal_samples_count_once():
    rows = draw("laplace", 1000, 4)
    rows[:100] = np.max(rows, axis=0)
    assert find_categories(rows) == []


def test_measure_repeated_returns_fractions():
    rows = draw("laplace", 1000, 5)
    rows[:, 0] = np.minimum(rows[:, 0], np.quantile(rows[:, 0], 0.9))
    rows[:300, 3] = 0
    clipped, constant = measure_repeated(rows)
    np.testing.assert_allclose(clipped, [0.101, 0, 0, 0, 0], atol=0.002)
    np.testing.assert_allclose(constant, [0, 0, 0, 0.3, 0])
