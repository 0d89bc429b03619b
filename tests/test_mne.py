"""Components of recordings: what MNE-Python does with the ICA that `fit_ica` returns."""

import sys
import warnings

import numpy as np
import pytest
from sklearn.base import clone

from elldict.exceptions import NotIdentifiableWarning
from elldict.metrics import match_atoms

mne = pytest.importorskip("mne")

from elldict.mne import fit_ica  # noqa: E402

CHANNELS = ["Fp1", "Fp2", "F7", "F3", "Fz", "F4", "F8", "T7", "C3", "Cz", "C4", "T8", "P7", "P3", "Pz", "P4"]
N_SOURCES, FS, N_TIMES = 6, 128.0, 5000


@pytest.fixture(scope="module")
def raw():
    """Bursts of six sources, with a channel that records the first one, and sensor noise."""
    rng = np.random.default_rng(0)
    is_on = np.repeat(rng.random((N_SOURCES, N_TIMES // 40)) < 0.3, 40, axis=1)
    sources = is_on * rng.laplace(size=(N_SOURCES, N_TIMES))
    mixing = rng.standard_normal((len(CHANNELS), N_SOURCES))
    data = 1e-5 * (mixing @ sources + 0.02 * rng.standard_normal((len(CHANNELS), N_TIMES)))
    info = mne.create_info([*CHANNELS, "EOG"], FS, ["eeg"] * len(CHANNELS) + ["eog"])
    with info._unlock():
        info["highpass"] = 1.0
    raw = mne.io.RawArray(np.vstack([data, 1e-5 * sources[:1]]), info)
    raw.set_montage("standard_1020")
    raw.mixing = mixing
    return raw


def test_fit_finds_the_sources_and_removes_the_excluded_one(raw):
    ica = fit_ica(raw, N_SOURCES)
    # noise of 0.02 and 1500 values that are not zero determine directions within 0.1 degrees
    assert np.all(match_atoms(ica.get_components().T, raw.mixing.T).cosines > 0.999)
    scores = np.abs(ica.score_sources(raw, target="EOG"))
    first = int(np.argmax(scores))
    assert scores[first] > 0.99
    assert np.sort(scores)[-2] < 0.1
    cleaned = ica.apply(raw.copy(), exclude=[first]).get_data(picks="eeg")
    without = raw.get_data(picks="eeg") - np.outer(raw.mixing[:, 0], raw.get_data(picks="eog"))
    assert np.sum((cleaned - without) ** 2) < 0.01 * np.sum(without**2)
    same = ica.apply(raw.copy(), exclude=[])
    np.testing.assert_allclose(same.get_data(), raw.get_data(), atol=1e-10 * np.max(raw.get_data()))


def test_sources_are_those_of_the_model_and_sorted_by_explained_variance(raw):
    ica, model = fit_ica(raw, N_SOURCES, return_model=True)
    sources = ica.get_sources(raw).get_data()
    np.testing.assert_allclose(np.var(sources, axis=1), 1, atol=1e-9)
    np.testing.assert_allclose(ica.unmixing_matrix_ @ ica.mixing_matrix_, np.eye(N_SOURCES), atol=1e-9)
    samples = sources.T @ ica.mixing_matrix_.T
    np.testing.assert_allclose(np.abs(model.transform(samples)), np.abs(sources.T), atol=1e-9)
    assert np.all(np.diff(np.sum(ica.mixing_matrix_**2, axis=0)) < 0)
    topographies = ica.get_components()
    assert np.all(np.max(topographies, axis=0) > np.max(-topographies, axis=0))
    assert np.all(model.atom_error_ < 0.01)
    again = clone(model).fit(samples)  # a clone keeps the order
    np.testing.assert_allclose(np.abs(again.components_ @ model.mixing_), np.eye(N_SOURCES), atol=1e-3)


@pytest.mark.filterwarnings("ignore::elldict.exceptions.DependentComponentsWarning")  # a jump makes all codes large
def test_only_chosen_samples_are_used(raw):
    """The model has as many samples as MNE-Python, and these are white: they are the samples of the fit."""
    spoiled = raw.copy()
    spoiled._data[:, :512] *= 30
    marked = spoiled.copy().set_annotations(mne.Annotations([0], [512 / FS], ["bad_jump"]))
    options = {"return_model": True, "error_bars": False, "orthogonal": True}
    for inst, choice, n_samples in (
        (marked, {}, N_TIMES - 512),
        (marked, {"decim": 3}, -(-(N_TIMES - 512) // 3)),
        (marked, {"reject_by_annotation": False}, N_TIMES),
        (raw, {"start": 512, "stop": 4000}, 3488),
        (spoiled, {"reject": {"eeg": 5e-4}, "tstep": 1.0, "decim": 2}, 35 * 64),  # 39 segments, four of them spoiled
    ):
        ica, model = fit_ica(inst, N_SOURCES, **choice, **options)
        assert ica.n_samples_ == model.n_samples_seen_ == n_samples
        np.testing.assert_allclose(model.mean_, 0, atol=1e-9 * np.max(model.mixing_))
        variances = np.sum(model.mixing_**2, axis=1)  # of the principal components that MNE-Python has found
        np.testing.assert_allclose(variances, ica.pca_explained_variance_[:N_SOURCES], rtol=1e-3)
    picked = fit_ica(raw, N_SOURCES, picks=CHANNELS[:10], error_bars=False)
    assert picked.ch_names == CHANNELS[:10]
    assert fit_ica(raw, 0.9, error_bars=False).n_components_ < N_SOURCES


def test_epochs(raw):
    epochs = mne.make_fixed_length_epochs(raw, duration=2.0, preload=True)
    ica, model = fit_ica(epochs, N_SOURCES, decim=2, return_model=True)
    assert ica.current_fit == "epochs"
    assert ica.n_samples_ == model.n_samples_seen_
    sources = np.concatenate(list(ica.get_sources(epochs).get_data()[:, :, ::2]), axis=1)
    np.testing.assert_allclose(np.abs(model.transform((ica.mixing_matrix_ @ sources).T)), np.abs(sources.T), atol=1e-9)
    with pytest.raises(ValueError, match="start is for continuous recordings"):
        fit_ica(epochs, start=0)


def test_warnings_are_issued_once_with_numbers_of_mne_at_the_line_of_the_user(raw):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        fit_ica(raw, 12, error_bars=False)  # six components are noise, and those of the least variance
    (found,) = (each for each in caught if each.category is NotIdentifiableWarning)
    assert found.filename == __file__
    assert "Components 6, 7, 8, 9, 10, 11 are not identifiable" in str(found.message)
    assert all("converge" not in str(each.message) for each in caught)


def test_mistakes_are_named(raw, monkeypatch):
    with pytest.raises(TypeError, match="expected Raw or Epochs"):
        fit_ica(raw.get_data())
    with pytest.raises(TypeError, match="unexpected keyword argument 'method'"):
        fit_ica(raw, method="picard")
    monkeypatch.setitem(sys.modules, "mne", None)
    with pytest.raises(ImportError, match="pip install"):
        fit_ica(raw)
