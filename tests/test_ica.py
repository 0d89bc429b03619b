"""LpICA compared with scikit-learn's FastICA: names, shapes, units, warnings and conventions."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.decomposition import FastICA

from elldict import LpDictionaryLearning, LpICA

N_SAMPLES, N_FEATURES = 5000, 6
WHITEN = pytest.mark.parametrize("whiten", ["unit-variance", "arbitrary-variance"])


@pytest.fixture(scope="module")
def sources():
    return np.random.default_rng(0).laplace(size=(N_SAMPLES, N_FEATURES))


@pytest.fixture(scope="module", name="X")
def mixtures(sources):
    rng = np.random.default_rng(1)
    return sources @ rng.normal(size=(N_FEATURES, N_FEATURES)) + 5 * rng.normal(size=N_FEATURES)


@pytest.fixture(scope="module")
def white(X):
    values, directions = np.linalg.eigh(np.cov(X.T, bias=True))
    return (X - X.mean(axis=0)) @ directions / np.sqrt(values)


def correlate(found, true):
    """Largest absolute correlation of each true source with a found one."""
    return np.abs(np.corrcoef(found.T, true.T)[: found.shape[1], found.shape[1] :]).max(axis=0)


@WHITEN
@pytest.mark.parametrize("n_components", [None, 4])
def test_ica_has_the_conventions_of_fastica(X, whiten, n_components):
    ours = LpICA(n_components, whiten=whiten, error_bars=False)
    theirs = FastICA(n_components, whiten=whiten, random_state=0, tol=1e-6, max_iter=1000)
    codes, expected = ours.fit_transform(X), theirs.fit_transform(X)
    for name in ("components_", "mixing_", "mean_", "whitening_"):
        assert getattr(ours, name).shape == getattr(theirs, name).shape
    assert_allclose(ours.mean_, theirs.mean_, rtol=1e-10)
    assert_allclose(ours.whitening_, theirs.whitening_, rtol=1e-7, atol=1e-9)
    assert_allclose(codes.std(axis=0), expected.std(axis=0), rtol=1e-8)
    assert_allclose(codes, (X - ours.mean_) @ ours.components_.T, atol=1e-12)
    assert_allclose(ours.mixing_, np.linalg.pinv(ours.components_), atol=1e-7)
    assert_allclose(ours.inverse_transform(codes), theirs.inverse_transform(expected), atol=1e-8)
    assert ours.n_features_in_ == theirs.n_features_in_
    assert ours.unmixing_ is ours.components_


@WHITEN
def test_sources_of_fastica_are_recovered(X, sources, whiten):
    ours, theirs = LpICA(whiten=whiten).fit(X), FastICA(whiten=whiten, random_state=0).fit(X)
    assert np.all(correlate(ours.transform(X), sources) > 0.99)
    assert np.all(correlate(ours.transform(X), theirs.transform(X)) > 0.99)


def test_ica_is_the_whitened_dictionary(X):
    ica, dictionary = LpICA().fit(X), LpDictionaryLearning(center=True, whiten=True).fit(X)
    assert_array_equal(ica.components_, dictionary.unmixing_)
    assert_array_equal(ica.mixing_, dictionary.components_.T)
    assert_array_equal(ica.atom_error_, dictionary.atom_error_)
    assert ica.score(X) == dictionary.score(X)


@WHITEN
def test_too_many_components_are_lowered_with_the_warning_of_fastica(X, whiten):
    with pytest.warns(UserWarning, match=f"n_components is too large: it will be set to {N_FEATURES}") as caught:
        ours = LpICA(N_FEATURES + 3, whiten=whiten, error_bars=False).fit(X)
    assert [warning.filename for warning in caught] == [__file__]
    assert ours.warnings_[0][0] == "UserWarning"
    assert_array_equal(ours.components_, LpICA(whiten=whiten, error_bars=False).fit(X).components_)


def test_white_samples_have_orthonormal_components_and_no_mean(white, sources):
    ours = LpICA(whiten=False).fit(white)
    theirs = FastICA(whiten=False, random_state=0).fit(white)
    for name in ("mean_", "whitening_"):
        assert not hasattr(theirs, name)
        assert not hasattr(ours, name)
    assert_allclose(ours.components_ @ ours.components_.T, np.eye(N_FEATURES), atol=1e-10)
    assert_allclose(ours.transform(white), white @ ours.components_.T, atol=1e-12)
    assert_allclose(ours.inverse_transform(ours.transform(white)), white, atol=1e-10)
    assert np.all(correlate(ours.transform(white), sources) > 0.99)
    assert np.isfinite(ours.score(white))
