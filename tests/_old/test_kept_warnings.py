"""Warnings of a fit are kept in the model and in its file, in the words of the fit."""

import json
import warnings
import zipfile

import numpy as np
import pytest

import elldict
from elldict import LpDictionaryLearning, LpICA
from elldict._old.persistence import ModelFileError, read, write


def fit_and_catch(model, X):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model.fit(X)
    return tuple((warning.category.__name__, str(warning.message)) for warning in caught)


@pytest.mark.parametrize("model", [LpDictionaryLearning(random_state=0), LpICA(4, whiten=False, random_state=0)])
def test_warnings_are_those_that_were_given(model):
    X = np.random.default_rng(0).standard_normal((500, 4)) * [1, 1, 1, 30]
    caught = fit_and_catch(model, X)
    kept = [pair for pair in caught if pair[0] != "UserWarning"]  # a parameter that is ignored is no doubt of the fit
    assert {"NotWhiteWarning"} <= {category for category, _ in kept}
    assert model.warnings_ == tuple(kept)


def test_a_fit_without_doubt_keeps_none(easy):
    assert LpDictionaryLearning(random_state=0).fit(easy[0]).warnings_ == ()


def test_fewer_atoms_than_asked_for_are_kept_as_a_warning():
    model = LpICA(9, random_state=0)
    caught = fit_and_catch(model, np.random.default_rng(0).laplace(size=(2000, 4)))
    assert model.warnings_ == caught
    assert "set to 4" in model.warnings_[0][1]


def test_a_file_keeps_them(tmp_path):
    model = LpDictionaryLearning(random_state=0)
    fit_and_catch(model, np.random.default_rng(0).standard_normal((500, 4)) * [1, 1, 1, 30])
    model.save(tmp_path / "model.npz")
    assert model.warnings_
    assert elldict.load(tmp_path / "model.npz").warnings_ == model.warnings_


@pytest.mark.parametrize("wrong", [3, "text", [["only"]], [["A", 1]], [["A", "\x1b[2J"]], {"A": "b"}])
def test_a_file_with_other_things_is_refused(easy, tmp_path, wrong):
    path = tmp_path / "model.npz"
    LpDictionaryLearning(random_state=0).fit(easy[0]).save(path)
    header, arrays = read(path)
    write(path, {**header, "warnings_": wrong}, arrays)
    with pytest.raises(ModelFileError, match="warnings_"):
        elldict.load(path)


def test_a_file_of_before_has_none(easy, tmp_path):
    path = tmp_path / "model.npz"
    LpDictionaryLearning(random_state=0).fit(easy[0]).save(path)
    with zipfile.ZipFile(path) as archive:
        assert json.loads(archive.read("header.json"))["warnings_"] == []
    header, arrays = read(path)
    del header["warnings_"]
    write(path, header, arrays)
    assert elldict.load(path).warnings_ == ()


def test_a_stream_that_changes_keeps_what_it_said():
    rng = np.random.default_rng(0)
    first, second = (np.linalg.qr(rng.standard_normal((6, 6)))[0] for _ in range(2))
    codes = rng.standard_normal((50, 500, 6)) * (rng.random((50, 500, 6)) < 0.2)
    X = np.concatenate([codes[:30] @ first, codes[30:] @ second])
    X += 0.2 * rng.standard_normal(X.shape)
    model = LpDictionaryLearning(random_state=0)
    for batch in X[:30]:
        model.partial_fit(batch)
    assert model.warnings_ == ()
    with pytest.warns(elldict.exceptions.DataChangedWarning, match="changed since about sample"):
        [model.partial_fit(batch) for batch in X[30:]]
    ((category, text),) = model.warnings_
    assert category == "DataChangedWarning"
    assert "changed since about sample" in text
