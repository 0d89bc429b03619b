"""Errors for wrong parameters and inputs."""

import numpy as np
import pandas as pd
import polars as pl
import pytest
import scipy.sparse

from elldict import LpDictionaryLearning, LpICA
from elldict.validation import InvalidParameterError
from tests.fits import draw

X = draw("noisy", 200, 4)
WRONG = {
    "n_components": [0, -1, 2.5, "all", True],
    "p": [0, -1, 2, 2.0, 61, 1e308, np.nan, np.inf, "3", True, (3, 2.5), [3]],
    "solver": ["newton", None],
    "refine": ["mixture", True],
    "normalize": ["l2", True],
    "error_bars": ["yes", None, 1],
    "standardize": ["yes", 1],
    "max_iter": [0, 1.5],
    "tol": [-1e-9, np.nan, "small"],
    "random_state": [-1, 0.5, "seed"],
    "verbose": ["yes", -1],
    "center": [1, None],
    "whiten": ["arbitrary", 1],
    "transform_algorithm": ["omp", None],
    "transform_alpha": [-0.1, "best", np.inf, [0.1]],
}


@pytest.mark.parametrize(("name", "value"), [(name, value) for name, values in WRONG.items() for value in values])
def test_wrong_parameter_raises_an_error_with_its_name(name, value):
    for kind in (LpICA, LpDictionaryLearning) if name in LpICA().get_params() else (LpDictionaryLearning,):
        with pytest.raises(InvalidParameterError, match=rf"The '{name}' parameter of {kind.__name__} must be .* Got "):
            kind(**{name: value}).fit(X)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"solver": "power", "p": 1}, "'p' parameter .* above 2 with solver='power'"),
        ({"solver": "power", "normalize": "samples"}, "'normalize' parameter .* with solver='power'"),
        ({"p": (3, 2.5)}, "sequence of exponents is not needed"),
    ],
)
def test_parameters_that_do_not_go_together_raise_an_error_with_the_reason(parameters, message):
    for kind in (LpICA, LpDictionaryLearning):
        with pytest.raises(InvalidParameterError, match=message):
            kind(**parameters).fit(X)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"transform_algorithm": "threshold"}, "must be a threshold >= 0 or 'auto'"),
        ({"transform_algorithm": "top_k", "transform_alpha": 5}, r"an int in the range \[1, 4\]"),
        ({"transform_algorithm": "top_k", "transform_alpha": 1.5}, "Got 1.5 instead"),
        ({"transform_algorithm": "top_k", "transform_alpha": "auto"}, "Got 'auto' instead"),
        ({"transform_algorithm": "linears"}, "'linear', 'threshold'"),
    ],
)
def test_parameters_of_transform_are_checked_when_it_is_called(parameters, message):
    model = LpDictionaryLearning(error_bars=False).fit(X).set_params(**parameters)
    with pytest.raises(InvalidParameterError, match=message):
        model.transform(X)


@pytest.mark.parametrize(
    ("wrong", "kind", "message"),
    [
        ("samples.npy", FileNotFoundError, r"samples\.npy"),
        (pl.LazyFrame(X), TypeError, r"X\.collect\(\)"),
        (scipy.sparse.csr_array(X), TypeError, "[Ss]parse"),
        (X + 1j, ValueError, "Complex data not supported"),
        (np.array([[1, "b"], [2, 3]], dtype=object), ValueError, "could not convert string"),
        (np.ma.masked_less(X, 0), ValueError, "masked entries"),
        (X.astype("datetime64[s]"), ValueError, "real numbers"),
        (np.zeros((3, 20_001)), ValueError, r"Samples are rows: use X\.T"),
        (None, ValueError, "NoneType|None"),
    ],
    ids=lambda value: type(value).__name__ if not isinstance(value, (str, type)) else str(value)[:20],
)
def test_samples_that_are_not_a_real_matrix_raise_a_plain_error(wrong, kind, message):
    with pytest.raises(kind, match=message):
        LpDictionaryLearning().fit(wrong)


# Data frames


def test_bad_entry_of_a_data_frame_is_named_by_its_column():
    frame = pd.DataFrame(X, columns=list("abcd"))
    frame.loc[17, "c"] = np.nan
    with pytest.raises(ValueError, match=r"contains NaN \(sample 17, feature 2, column 'c'\)"):
        LpICA().fit(frame)


@pytest.mark.parametrize("library", [pd, pl])
def test_word_in_a_data_frame_is_named_by_its_column_and_row(library):
    frame = library.DataFrame({"size": [1.0, 2.0, 3.0], "name": ["1", "2", "wine"]})
    with pytest.raises(ValueError, match="'wine' in column 'name', row 2"):
        LpICA().fit(frame)


# Weights, groups, callback, noise, codes


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        (np.ones(3), r"\(200,\)"),
        (np.ones((200, 2)), "sample_weight.shape"),
        (np.r_[np.ones(199), -1], "Got -1.0 for sample 199"),
        (np.r_[np.nan, np.ones(199)], "Got nan for sample 0"),
        (np.zeros(200), "zero for all but 0"),
        (np.r_[1, np.zeros(199)], "zero for all but 1"),
        (["a"] * 200, "must hold numbers"),
    ],
)
def test_wrong_weights_raise_an_error(weights, message):
    with pytest.raises(ValueError, match=message):
        LpICA().fit(X, sample_weight=weights)


@pytest.mark.parametrize(
    ("groups", "kind", "message"),
    [
        (np.zeros(3), ValueError, r"\(3,\), not \(200,\)"),
        (np.zeros(200), ValueError, "single label"),
        (np.array(["a", 1] * 100, dtype=object), TypeError, "one type"),
    ],
)
def test_wrong_groups_raise_an_error(groups, kind, message):
    with pytest.raises(kind, match=message):
        LpICA().fit(X, groups=groups)


@pytest.mark.parametrize("noise", [-1, np.nan, np.inf, "auto", True])
def test_wrong_noise_raises_an_error(noise):
    with pytest.raises(ValueError, match="noise_std must be a number >= 0"):
        LpICA(error_bars=False).fit(X).denoise(X, noise_std=noise)


@pytest.mark.parametrize(
    ("codes", "message"), [(X[:, :3], "3 columns"), (X[0], "2D"), (X * np.nan, "NaN"), (X + 1j, "Complex")]
)
def test_wrong_codes_raise_an_error(codes, message):
    model = LpICA(error_bars=False).fit(X)
    with pytest.raises(ValueError, match=message):
        model.inverse_transform(codes)
