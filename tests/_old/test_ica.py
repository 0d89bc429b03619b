"""LpICA beside scikit-learn's FastICA: the same names, shapes, units, warnings and conventions."""

from __future__ import annotations

import pickle
import warnings

import numpy as np
import pandas as pd
import pytest
from scipy import signal
from sklearn.base import clone
from sklearn.decomposition import FastICA
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.utils._param_validation import InvalidParameterError

import elldict
from elldict import LpDictionaryLearning, LpICA
from elldict.exceptions import NotWhiteWarning, RankWarning

N_SAMPLES, N_FEATURES = 6000, 8
VARIANCES = ["unit-variance", "arbitrary-variance"]


@pytest.fixture(scope="module")
def sources():
    return np.random.default_rng(0).laplace(size=(N_SAMPLES, N_FEATURES))


@pytest.fixture(scope="module", name="X")
def mixture(sources):
    """A mixture by a matrix that is not orthogonal, away from zero."""
    rng = np.random.default_rng(1)
    return sources @ rng.normal(size=(N_FEATURES, N_FEATURES)) + 5 * rng.normal(size=N_FEATURES)


def match(found, true):
    """Largest absolute correlation of each true source with a found one."""
    return np.abs(np.corrcoef(found.T, true.T)[: found.shape[1], found.shape[1] :]).max(axis=0)


# --- beside FastICA ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("whiten", VARIANCES)
@pytest.mark.parametrize("n_components", [None, 5])
def test_conventions_are_those_of_fastica(X, whiten, n_components):
    """What does not depend on which sources were found is the same to rounding."""
    ours, theirs = LpICA(n_components, whiten=whiten, random_state=0), FastICA(n_components, whiten=whiten, tol=1e-6)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # five directions of eight sources hold mixtures, which are nearly Gaussian
        codes, expected = ours.fit_transform(X), theirs.fit_transform(X)
    for name in ("components_", "mixing_", "mean_", "whitening_"):
        assert getattr(ours, name).shape == getattr(theirs, name).shape
    np.testing.assert_allclose(ours.mean_, theirs.mean_, rtol=1e-12)
    np.testing.assert_allclose(
        ours.whitening_, theirs.whitening_, rtol=1e-8, atol=1e-8 * np.abs(theirs.whitening_).max()
    )
    np.testing.assert_allclose(codes.std(axis=0), expected.std(axis=0), rtol=1e-9)
    np.testing.assert_allclose(codes, (X - ours.mean_) @ ours.components_.T, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(ours.mixing_, np.linalg.pinv(ours.components_), rtol=1e-8, atol=1e-8)
    np.testing.assert_allclose(ours.components_ @ ours.mixing_, np.eye(len(ours.components_)), atol=1e-10)
    np.testing.assert_allclose(ours.inverse_transform(codes), theirs.inverse_transform(expected), atol=1e-8)
    assert isinstance(ours.n_iter_, int)
    assert ours.n_features_in_ == theirs.n_features_in_
    assert list(ours.get_feature_names_out()) == [f"lpica{i}" for i in range(codes.shape[1])]


@pytest.mark.parametrize("whiten", VARIANCES)
def test_the_sources_of_fastica_are_found(X, sources, whiten):
    """An angle of a Laplace source has a standard error below 2/sqrt(r) by either method: 7 of them add up to .0047.

    A correlation of .99 stands for the square of an angle of .02, four times that of both.
    """
    ours, theirs = LpICA(whiten=whiten, random_state=0).fit(X), FastICA(whiten=whiten, random_state=0).fit(X)
    assert np.all(match(ours.transform(X), sources) > 0.99)
    assert np.all(match(ours.transform(X), theirs.transform(X)) > 0.99)
    cosines = np.abs(ours.mixing_.T @ theirs.mixing_)
    cosines /= np.outer(np.linalg.norm(ours.mixing_, axis=0), np.linalg.norm(theirs.mixing_, axis=0))
    assert np.all(cosines.max(axis=0) > 0.99)


@pytest.mark.parametrize("whiten", VARIANCES)
def test_whitening_whitens(X, whiten):
    """Rows are principal directions; the sum of squares over the samples is one along each, as FastICA has it."""
    K = LpICA(whiten=whiten, random_state=0).fit(X).whitening_
    covariance = np.cov(X.T, bias=True)
    np.testing.assert_allclose(K @ (len(X) * covariance) @ K.T, np.eye(N_FEATURES), atol=1e-10)
    directions = K / np.linalg.norm(K, axis=1, keepdims=True)
    np.testing.assert_allclose(directions @ directions.T, np.eye(N_FEATURES), atol=1e-8)
    variances = np.diag(directions @ covariance @ directions.T)
    np.testing.assert_allclose(variances, np.linalg.eigvalsh(covariance)[::-1], rtol=1e-8)


def test_it_is_the_fit_of_the_dictionary(X):
    """The same fit, bit for bit, under other names."""
    ica = LpICA(random_state=3).fit(X)
    dictionary = LpDictionaryLearning(center=True, whiten=True, random_state=3).fit(X)
    np.testing.assert_array_equal(ica.components_, dictionary.unmixing_)
    np.testing.assert_array_equal(ica.mixing_, dictionary.components_.T)
    np.testing.assert_array_equal(ica.mixing_, dictionary.mixing_)
    assert ica.unmixing_ is ica.components_
    assert (ica.expected_error_, ica.status_) == (dictionary.expected_error_, dictionary.status_)
    assert ica.score(X) == dictionary.score(X)


@pytest.mark.parametrize("law", ["sparse", "uniform"])
def test_units_of_sources_change_nothing_else(X, law):
    """Sources of another variance: their law has other units, and the likelihood of samples has not."""
    if law == "uniform":  # a mixture
        X = np.random.default_rng(0).uniform(-1, 1, (2000, 4)) + 7
    one = LpICA(random_state=0).fit(X)
    other = LpICA(whiten="arbitrary-variance", random_state=0).fit(X)
    unit = np.sqrt(len(X))
    np.testing.assert_allclose(one.transform(X), unit * other.transform(X), atol=1e-12)
    np.testing.assert_allclose(one.scale_, unit * other.scale_, rtol=1e-12)
    np.testing.assert_allclose(one.noise_std_, unit * other.noise_std_, rtol=1e-12)
    np.testing.assert_allclose(one.score_samples(X), other.score_samples(X), rtol=1e-9)
    assert one.expected_error_ == other.expected_error_


def test_blind_source_separation_example_of_scikit_learn():
    """plot_ica_blind_source_separation with the import replaced: sine, square and sawtooth, all sub-Gaussian."""
    np.random.seed(0)  # noqa: NPY002
    n_samples = 2000
    time = np.linspace(0, 8, n_samples)
    S = np.c_[np.sin(2 * time), np.sign(np.sin(3 * time)), signal.sawtooth(2 * np.pi * time)]
    S += 0.2 * np.random.normal(size=S.shape)  # noqa: NPY002
    S /= S.std(axis=0)
    A = np.array([[1, 1, 1], [0.5, 2, 1.0], [1.5, 1.0, 2.0]])
    X = np.dot(S, A.T)

    ica = LpICA(n_components=3, whiten="arbitrary-variance")
    S_ = ica.fit_transform(X)
    A_ = ica.mixing_

    assert np.allclose(X, np.dot(S_, A_.T) + ica.mean_)
    assert np.all(match(S_, S) > 0.99)


# --- number of sources ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("whiten", VARIANCES)
def test_too_many_sources_are_lowered_with_the_warning_of_fastica(X, whiten):
    with pytest.warns(UserWarning, match=f"n_components is too large: it will be set to {N_FEATURES}") as caught:
        ours = LpICA(N_FEATURES + 3, whiten=whiten, random_state=0).fit(X)
    assert caught[0].filename == __file__
    assert len(caught) == 1
    with pytest.warns(UserWarning, match=f"n_components is too large: it will be set to {N_FEATURES}"):
        theirs = FastICA(N_FEATURES + 3, whiten=whiten, random_state=0).fit(X)
    assert ours.components_.shape == theirs.components_.shape
    np.testing.assert_array_equal(ours.components_, LpICA(whiten=whiten, random_state=0).fit(X).components_)


def test_more_sources_than_the_rank_are_lowered_to_it(X):
    """FastICA gives sources of rounding there, of unit variance."""
    doubled = np.hstack([X, X[:, :2]])
    with pytest.warns(RankWarning), pytest.warns(UserWarning, match=f"will be set to {N_FEATURES}"):
        ica = LpICA(N_FEATURES + 1, random_state=0).fit(doubled)
    assert ica.components_.shape == (N_FEATURES, N_FEATURES + 2)
    np.testing.assert_allclose(ica.inverse_transform(ica.transform(doubled)), doubled, atol=1e-8)


def test_as_many_sources_as_there_are_is_no_reason_to_warn(X):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert LpICA(N_FEATURES, random_state=0).fit(X).n_components_ == N_FEATURES


# --- samples that are white already -----------------------------------------------------------------------------------


def test_samples_that_are_white_already(X, sources):
    """whiten=False: as given, all directions, orthonormal rows, and neither mean_ nor whitening_, as FastICA."""
    K = np.sqrt(len(X)) * LpICA(random_state=0).fit(X).whitening_
    white = (X - X.mean(axis=0)) @ K.T
    ours, theirs = LpICA(whiten=False, random_state=0).fit(white), FastICA(whiten=False, random_state=0).fit(white)
    for name in ("mean_", "whitening_"):
        assert not hasattr(theirs, name)
        assert not hasattr(ours, name)
    np.testing.assert_allclose(ours.components_ @ ours.components_.T, np.eye(N_FEATURES), atol=1e-10)
    np.testing.assert_array_equal(ours.mixing_, ours.components_.T)
    np.testing.assert_allclose(ours.transform(white), white @ ours.components_.T, atol=1e-12)
    np.testing.assert_allclose(ours.inverse_transform(ours.transform(white)), white, atol=1e-10)
    assert np.all(match(ours.transform(white), sources) > 0.99)
    assert np.isfinite(ours.score(white))


def test_n_components_is_ignored_without_whitening(X):
    white = (X - X.mean(axis=0)) @ (np.sqrt(len(X)) * LpICA(random_state=0).fit(X).whitening_.T)
    with pytest.warns(UserWarning, match=r"Ignoring n_components with whiten=False\.") as caught:
        ours = LpICA(3, whiten=False, random_state=0).fit(white)
    assert [warning.filename for warning in caught] == [__file__]
    assert ours.components_.shape == (N_FEATURES, N_FEATURES)


def test_samples_that_are_not_white_are_named(X):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        LpICA(whiten=False, random_state=0, max_iter=20).fit(X)
        LpICA(whiten=False, random_state=0, max_iter=20).fit(X - X.mean(axis=0))
    first = [
        str(caught[0].message),
        next(str(said.message) for said in caught if "far from white" in str(said.message)),
    ]
    assert caught[0].category is NotWhiteWarning
    assert all("(LpICA: whiten='unit-variance')" in message for message in first)  # it has no `center`


def test_another_fit_leaves_no_mean_behind(X):
    ica = LpICA(random_state=0).fit(X)
    ica.set_params(whiten=False)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        ica.fit(X - X.mean(axis=0))
    assert not hasattr(ica, "mean_")
    np.testing.assert_allclose(ica.transform(X), X @ ica.components_.T, atol=1e-12)


def test_white_models_survive_saving(X, tmp_path):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        ica = LpICA(whiten=False, random_state=0, max_iter=20).fit(X)
    ica.save(tmp_path / "ica.npz")
    again = elldict.load(tmp_path / "ica.npz")
    assert not hasattr(again, "mean_")
    np.testing.assert_array_equal(again.transform(X), ica.transform(X))


# --- an estimator like others -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("whiten", [True, "yes", None])
def test_what_fastica_refuses_is_refused(X, whiten):
    for kind in (LpICA, FastICA):
        with pytest.raises(InvalidParameterError, match="whiten"):
            kind(whiten=whiten).fit(X)


def test_nothing_is_there_before_a_fit(X):
    ica = LpICA()
    assert not any(hasattr(ica, name) for name in ("components_", "mixing_", "mean_", "whitening_", "unmixing_"))
    for call in (ica.transform, ica.inverse_transform, ica.score):
        with pytest.raises(NotFittedError):
            call(X)


def test_single_precision(X):
    ica = LpICA(random_state=0).fit(X.astype(np.float32))
    for name in ("components_", "mixing_", "mean_", "whitening_"):
        assert getattr(ica, name).dtype == np.float32
    codes = ica.transform(X.astype(np.float32))
    assert codes.dtype == np.float32
    assert ica.inverse_transform(codes).dtype == np.float32
    assert np.all(match(codes, LpICA(random_state=0).fit_transform(X)) > 1 - 1e-4)


def test_names_and_frames(X):
    frame = pd.DataFrame(X, columns=[f"sensor {i}" for i in range(N_FEATURES)])
    codes = LpICA(random_state=0).set_output(transform="pandas").fit_transform(frame)
    assert list(codes.columns) == [f"lpica{i}" for i in range(N_FEATURES)]
    np.testing.assert_allclose(codes.to_numpy(), LpICA(random_state=0).fit_transform(X), atol=1e-10)


def test_a_step_of_a_pipeline(X, sources):
    y = sources[:, 0] > 0
    model = make_pipeline(LpICA(random_state=0), LogisticRegression()).fit(X, y)
    assert (
        model.score(X, y) > 0.97
    )  # the sign of one source decides; a blur of .1 turns one in twenty of the small ones
    assert clone(model).get_params()["lpica__whiten"] == "unit-variance"


def test_pickles_go_on(X):
    ica = LpICA(random_state=0).partial_fit(X[:3000])
    again = pickle.loads(pickle.dumps(ica))
    np.testing.assert_array_equal(again.transform(X), ica.transform(X))
    np.testing.assert_array_equal(again.partial_fit(X[3000:]).components_, ica.partial_fit(X[3000:]).components_)


@pytest.mark.parametrize("whiten", VARIANCES)
def test_streams(X, sources, whiten):
    """Conventions hold after every batch, those that are too few for a fit among them."""
    ica = LpICA(N_FEATURES + 1, whiten=whiten, random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for start in (0, 5, 1000, 2000, 3000, 4000, 5000):
            stop = {0: 5, 5: 1000}.get(start, start + 1000)
            ica.partial_fit(X[start:stop])
            assert ica.n_samples_seen_ == stop
            assert ica.components_.shape == (N_FEATURES, N_FEATURES)
            np.testing.assert_allclose(ica.components_ @ ica.mixing_, np.eye(N_FEATURES), atol=1e-8)
    codes = ica.transform(X)
    assert np.all(match(codes, sources) > 0.99)
    # variances are those of the samples when the whitening was last made, at a share of them
    unit = 1.0 if whiten == "unit-variance" else 1 / np.sqrt(len(X))
    np.testing.assert_allclose(codes.std(axis=0), unit, rtol=0.1)
    turn = np.sqrt(len(X)) * unit * ica.whitening_ @ ica.mixing_
    np.testing.assert_allclose(turn @ turn.T, np.eye(N_FEATURES), atol=1e-8)


# --- files ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("whiten", VARIANCES)
def test_a_model_survives_saving(X, whiten, tmp_path):
    ica = LpICA(5, whiten=whiten, random_state=0, max_iter=20)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        ica.fit(pd.DataFrame(X, columns=list("abcdefgh")))
    ica.save(tmp_path / "ica.npz")
    again = elldict.load(tmp_path / "ica.npz")
    assert type(again) is LpICA
    assert again.get_params() == ica.get_params()
    for name in ("components_", "mixing_", "mean_", "whitening_", "unmixing_", "atom_error_", "density_"):
        np.testing.assert_array_equal(getattr(again, name), getattr(ica, name))
    assert again.unmixing_ is again.components_
    assert list(again.feature_names_in_) == list("abcdefgh")
    frame = pd.DataFrame(X, columns=list("abcdefgh"))
    np.testing.assert_array_equal(again.transform(frame), ica.transform(frame))
    np.testing.assert_array_equal(again.score(frame), ica.score(frame))
    with pytest.raises(ValueError, match="comes from a file"):
        again.partial_fit(frame)


def test_codes_of_files(X, tmp_path):
    np.save(tmp_path / "X.npy", X)
    ica = LpICA(random_state=0).fit(tmp_path / "X.npy")
    codes = ica.transform(tmp_path / "X.npy", out=tmp_path / "codes.npy")
    np.testing.assert_array_equal(codes, LpICA(random_state=0).fit_transform(X))


# --- as turftopic calls it --------------------------------------------------------------------------------------------

WORDS = [f"{first}{second}" for first in ("sea", "sun", "wood", "snow", "rain", "hill") for second in ("bird", "fish")]


class StubEncoder:
    """Texts are sums of vectors, one a word, of few words each: their axes are non-Gaussian."""

    def encode(self, texts, **_):
        vectors = dict(zip(WORDS, np.random.default_rng(2).normal(size=(len(WORDS), 16)), strict=True))
        noise = np.random.default_rng(3).normal(size=(len(texts), 16))
        return np.array([sum(vectors[word] for word in text.split()) for text in texts]) + 0.1 * noise


@pytest.fixture(scope="module")
def documents():
    rng = np.random.default_rng(4)
    return [" ".join(rng.choice(WORDS, size=rng.integers(1, 5))) for _ in range(500)]


def test_the_calls_of_turftopic(documents):
    """SemanticSignalSeparation of turftopic 0.27: fit_transform with y, transform of words, whiten and mean_."""
    embeddings, words = StubEncoder().encode(documents), StubEncoder().encode(WORDS)
    decomposition = LpICA(6, random_state=0, max_iter=50)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = decomposition.fit_transform(embeddings, y=None)
        labelled = clone(decomposition).fit_transform(embeddings, y=np.arange(len(documents)) % 2)
    np.testing.assert_array_equal(found, labelled)
    axes = decomposition.transform(words).T
    assert (found.shape, axes.shape) == ((500, 6), (6, len(WORDS)))
    centred = np.copy(embeddings)
    assert getattr(decomposition, "whiten", False)
    centred -= decomposition.mean_
    np.testing.assert_allclose(found, centred @ decomposition.components_.T, atol=1e-10)


def test_turftopic_takes_it(documents):
    turftopic = pytest.importorskip("turftopic")
    model = turftopic.SemanticSignalSeparation(
        6, encoder=StubEncoder(), decomposition=LpICA(6, random_state=0, max_iter=50)
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = model.fit_transform(documents)
    assert found.shape == (500, 6)
    assert model.components_.shape == (6, len(model.get_vocab()))
    np.testing.assert_allclose(model.transform(documents), found, atol=1e-8)
    np.testing.assert_allclose(found.std(axis=0), 1, rtol=1e-8)
