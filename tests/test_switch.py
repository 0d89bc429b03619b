"""The present estimators with the fit of the new core (ELLDICT_CORE=new)."""

import os
import subprocess
import sys

import numpy as np
import pytest

from elldict import LpDictionaryLearning, switch
from elldict.datasets import make_bernoulli_gaussian
from elldict.metrics import recovery_error


@pytest.fixture(scope="module")
def data():
    X, dictionary, _ = make_bernoulli_gaussian(4000, 8, density=0.3, noise_std=0.1, random_state=0)
    X.setflags(write=False)
    return X, dictionary


@pytest.mark.parametrize("value", ["new", "old", None])
def test_environment_variable_chooses_the_core(value):
    environment = {name: text for name, text in os.environ.items() if name != "ELLDICT_CORE"}
    environment |= {} if value is None else {"ELLDICT_CORE": value}
    code = "import elldict; print(elldict.LpICA.__module__, elldict.LpDictionaryLearning.__module__)"
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert ("elldict.switch" in done.stdout) == (value == "new")


def test_dictionary_learning_on_the_new_core_has_its_attributes(data):
    X, dictionary = data
    model = switch.LpDictionaryLearning().fit(X)
    error = recovery_error(model.components_, dictionary)
    assert 0.4 < model.expected_error_ / error < 2.5  # 28 angles, fitted to thirds of the samples
    assert model.components_.shape == (8, 8)
    assert model.n_iter_ == len(model.history_)
    np.testing.assert_allclose(model.inverse_transform(model.transform(X)), X, atol=1e-12)


def test_ica_on_the_new_core_makes_codes_of_unit_variance(data):
    model = switch.LpICA().fit(data[0])
    codes = model.transform(data[0])
    np.testing.assert_allclose(np.mean(codes, axis=0), 0, atol=1e-12)
    np.testing.assert_allclose(np.var(codes, axis=0), 1, rtol=1e-9)
    np.testing.assert_allclose(model.mixing_ @ model.components_, np.eye(8), atol=1e-9)


def test_fit_of_a_file_is_that_of_the_array(data, tmp_path):
    np.save(tmp_path / "x.npy", data[0])
    model, other = switch.LpICA().fit(data[0]), switch.LpICA().fit(tmp_path / "x.npy")
    np.testing.assert_array_equal(model.components_, other.components_)


def test_fit_of_float32_samples_is_that_of_the_same_numbers_in_float64(data):
    single = data[0].astype(np.float32)
    model, other = switch.LpICA().fit(single), switch.LpICA().fit(single.astype(np.float64))
    assert model.components_.dtype == np.float32
    np.testing.assert_allclose(model.components_, other.components_, rtol=1e-6, atol=1e-6)


def test_fit_of_torch_samples_is_that_of_numpy(data):
    torch = pytest.importorskip("torch")
    model, other = switch.LpICA().fit(data[0]), switch.LpICA().fit(torch.tensor(data[0]))
    np.testing.assert_array_equal(model.components_, other.components_.numpy())


def test_paper_method_of_both_cores_ends_at_the_same_atoms(data):
    options = {"solver": "power", "refine": None, "random_state": 0}
    ours = switch.LpDictionaryLearning(**options).fit(data[0]).components_
    assert recovery_error(ours, LpDictionaryLearning(**options).fit(data[0]).components_) < 1e-9


def test_callback_of_the_new_core_stops_the_fit(data):
    seen = []
    model = switch.LpICA().fit(data[0], callback=lambda iteration: seen.append(iteration) or len(seen) == 3)
    assert len(seen) == model.n_iter_ == 3
    assert not model.converged_


@pytest.mark.parametrize(
    ("parameters", "arguments"),
    [
        ({}, {"sample_weight": np.ones(4000)}),
        ({}, {"groups": np.arange(4000)}),
        ({}, {"checkpoint": "fit.checkpoint"}),
        ({"p": 1}, {}),
        ({"p": (3, 2.5)}, {}),
        ({"refine": "sparse-corruption"}, {}),
        ({"whiten": "all"}, {}),
        ({"solver": "power"}, {}),
        ({"n_init": 2}, {}),
        ({"device": "cuda"}, {}),
    ],
)
def test_what_the_new_core_lacks_is_refused(data, parameters, arguments, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    model = switch.LpDictionaryLearning(**parameters)
    with pytest.raises(NotImplementedError, match="unset ELLDICT_CORE"):
        model.fit(data[0], **arguments)
    assert not hasattr(model, "components_")


@pytest.mark.parametrize("method", ["score", "score_samples", "denoise"])
def test_methods_that_need_the_fitted_density_are_refused(data, method):
    model = switch.LpICA().fit(data[0])
    with pytest.raises(NotImplementedError, match="unset ELLDICT_CORE"):
        getattr(model, method)(data[0])


def test_more_components_than_features_are_refused_by_the_dictionary_and_lowered_by_ica(data):
    with pytest.raises(ValueError, match="n_components=9 is above the number of features, 8"):
        switch.LpDictionaryLearning(n_components=9).fit(data[0])
    assert switch.LpICA(n_components=9).fit(data[0]).n_components_ == 8


@pytest.mark.parametrize(("halves", "stated"), [("auto", False), (True, True), (False, False)])
def test_paper_method_has_error_bars_if_they_are_asked_for(data, halves, stated):
    model = switch.LpDictionaryLearning(solver="power", refine=None, halves=halves, random_state=0).fit(data[0])
    assert np.all(np.isfinite(model.atom_error_)) == stated
