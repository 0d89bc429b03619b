"""Components of recordings: what MNE-Python does with the object that `elldict.mne.fit_ica` returns."""

import sys

import numpy as np
import pytest
from sklearn.base import clone

import elldict

mne = pytest.importorskip("mne")

from elldict._old.mne import fit_ica  # noqa: E402

CHANNELS = ["Fp1", "Fp2", "F7", "F3", "Fz", "F4", "F8", "T7", "C3", "Cz", "C4", "T8", "P7", "P3", "Pz", "P4", "P8"]
CHANNELS += ["O1", "Oz", "O2"]
N_SOURCES = 8
FS = 128.0


@pytest.fixture(scope="module", autouse=True)
def quiet():
    before = mne.set_log_level("error", return_old_level=True)
    yield
    mne.set_log_level(before)


def make_leadfield(info):
    """Potentials (channels, sources) of dipoles in a spherical head."""
    sphere = mne.make_sphere_model((0.0, 0.0, 0.04), 0.095)
    rng = np.random.default_rng(0)
    directions = rng.standard_normal((N_SOURCES, 3))
    directions /= np.linalg.norm(directions, axis=1, keepdims=True)
    directions[:, 2] = np.abs(directions[:, 2])
    positions = {"rr": [0.0, 0.0, 0.04] + 0.06 * directions, "nn": directions}
    space = mne.setup_volume_source_space(pos=positions, sphere=(0.0, 0.0, 0.04, 0.095))
    forward = mne.make_forward_solution(info, trans=None, src=space, bem=sphere, meg=False, eeg=True)
    fixed = np.asarray(forward["sol"]["data"]).reshape(len(info["ch_names"]), N_SOURCES, 3)
    return np.einsum("csd,sd->cs", fixed, directions)


@pytest.fixture(scope="module")
def recording():
    """Raw with blinks, the same without, and the sources: bursts of eight dipoles, and sensor noise."""
    info = mne.create_info(CHANNELS, FS, "eeg")
    info.set_montage("standard_1020")
    rng = np.random.default_rng(1)
    n_times = int(60 * FS)
    on = np.repeat(rng.random((N_SOURCES, n_times // 64)) < 0.3, 64, axis=1)
    sources = on * rng.laplace(size=(N_SOURCES, n_times)) * 2e-8
    clean = make_leadfield(info) @ sources
    clean = 1e-5 * clean / np.std(clean)
    clean += 3e-7 * rng.standard_normal(clean.shape)
    without = mne.io.RawArray(clean, info)
    without.set_eeg_reference("average")
    eog = mne.io.RawArray(np.zeros((1, n_times)), mne.create_info(["EOG"], FS, "eog"))
    with_eog = without.copy().add_channels([eog], force_update_info=True)
    with_blinks = with_eog.copy()
    mne.simulation.add_eog(with_blinks, random_state=0)
    return with_blinks, without, sources


def test_a_blink_is_found_and_removed(recording):
    raw, without, _ = recording
    ica = fit_ica(raw, N_SOURCES + 2)
    # find_bads_eog goes on with masked arrays, which SciPy refuses where it is told to support all array libraries
    scores = np.abs(ica.score_sources(raw, target="EOG"))
    blink = int(np.argmax(scores))
    assert scores[blink] > 0.9
    assert np.sort(scores)[-2] < 0.2
    cleaned = ica.apply(raw.copy(), exclude=[blink]).get_data(picks="eeg")
    before, truth = raw.get_data(picks="eeg"), without.get_data()
    # a spatial filter cannot do better than that: FastICA leaves .037 too, and so does any number of components
    assert np.sum((cleaned - truth) ** 2) < 0.045 * np.sum((before - truth) ** 2)


@pytest.mark.filterwarnings("ignore:.*not identifiable")  # noise is in the last components
def test_applying_without_exclusion_changes_nothing(recording):
    raw = recording[0]
    ica = fit_ica(raw, 12)
    again = ica.apply(raw.copy()).get_data(picks="eeg")
    np.testing.assert_allclose(again, raw.get_data(picks="eeg"), atol=1e-9 * np.std(again))


def test_sources_are_those_of_the_model_and_of_variance_one(recording):
    raw = recording[0]
    ica, model = fit_ica(raw, 10, return_model=True)
    sources = ica.get_sources(raw).get_data()
    np.testing.assert_allclose(np.var(sources, axis=1), 1, rtol=1e-6)
    np.testing.assert_allclose(np.cov(sources), np.eye(10), atol=1e-3)
    assert model.n_components_ == 10
    np.testing.assert_allclose(ica.unmixing_matrix_ @ ica.mixing_matrix_, np.eye(10), atol=1e-9)
    # the order of errors and warnings is that of the components
    np.testing.assert_allclose(np.abs(ica.unmixing_matrix_ @ model.mixing_), np.eye(10), atol=1e-9)
    # MNE's own order: by the variance that components explain
    variances = np.sum(ica.mixing_matrix_**2, axis=0)
    assert np.all(np.diff(variances) <= 0)
    # a clone of the model keeps it, so that `elldict.stability` has it too
    again = clone(model).fit(sources.T @ ica.mixing_matrix_.T)
    np.testing.assert_allclose(again.atom_error_, model.atom_error_, rtol=1e-6)
    topographies = ica.get_components()
    assert np.all(np.max(topographies, axis=0) >= np.max(-topographies, axis=0))
    samples = sources.T @ ica.mixing_matrix_.T
    np.testing.assert_allclose(np.abs(model.transform(samples)), np.abs(sources.T), atol=1e-6)


def test_stable_components_are_the_same_for_every_seed(recording):
    raw = recording[0]
    first = fit_ica(raw, 10, random_state=0)
    coordinates = first.get_sources(raw).get_data().T
    stable = elldict.stability(elldict.LpICA(), coordinates, n_splits=3, random_state=0)
    assert stable.count_stable()[0] >= N_SOURCES
    # which of the object's components the stable ones are: codes of the latter are made of the former's
    which = np.sort(np.argmax(np.abs(stable.unmixing[0][stable.stable()[0]]), axis=1))
    for seed in (1, 2, 3):
        other = fit_ica(raw, 10, random_state=seed)
        turn = other.unmixing_matrix_ @ first.mixing_matrix_
        kept = np.argmax(np.abs(turn), axis=0)[which]
        assert np.all(np.diff(kept) > 0)  # the same order
        assert np.all(turn[kept, which] > 0.99)  # and sign


def test_topographies_are_drawn(recording):
    pytest.importorskip("matplotlib").use("Agg")
    figure = fit_ica(recording[0], 6).plot_components(show=False)
    assert len((figure[0] if isinstance(figure, list) else figure).axes) >= 6


def test_bad_segments_and_thinned_samples_are_left_out(recording):
    raw = recording[0].copy()
    n_times = len(raw.times)
    spoiled = raw.copy()
    data = spoiled.get_data()
    data[:, :500] += 1e-3 * np.random.default_rng(2).standard_normal((len(data), 500))
    spoiled = mne.io.RawArray(data, raw.info)
    spoiled.set_annotations(mne.Annotations([0], [500 / FS], ["bad_jump"]))
    fitted = fit_ica(spoiled, 8)
    assert fitted.n_samples_ == n_times - 500
    meant = fit_ica(raw, 8, start=500)
    np.testing.assert_allclose(np.abs(fitted.get_components()), np.abs(meant.get_components()), rtol=1e-6, atol=1e-9)
    assert fit_ica(raw, 6, decim=2).n_samples_ == (n_times + 1) // 2


def test_epochs(recording):
    raw = recording[0]
    epochs = mne.make_fixed_length_epochs(raw, duration=2.0, preload=True)
    ica = fit_ica(epochs, 8)
    assert ica.current_fit == "epochs"
    assert ica.get_sources(epochs).get_data().shape[1] == 8
    with pytest.raises(ValueError, match="start and stop are for continuous recordings"):
        fit_ica(epochs, 8, start=0)


def test_the_object_can_be_saved_and_read(recording, tmp_path):
    ica = fit_ica(recording[0], 6)
    ica.save(tmp_path / "components-ica.fif")
    again = mne.preprocessing.read_ica(tmp_path / "components-ica.fif")
    np.testing.assert_allclose(again.get_components(), ica.get_components(), rtol=1e-6)


def test_warnings_point_to_the_line_of_the_user(recording):
    with pytest.warns(elldict.exceptions.NotIdentifiableWarning) as caught:
        fit_ica(recording[0], 14)
    assert caught[0].filename == __file__


def test_mistakes_are_named(recording, monkeypatch):
    with pytest.raises(TypeError, match="expected a Raw or an Epochs"):
        fit_ica(recording[0].get_data())
    with pytest.raises(TypeError, match="takes no whiten"):
        fit_ica(recording[0], whiten=False)
    with pytest.raises(TypeError, match="fit_ica takes no method"):
        fit_ica(recording[0], method="picard")
    monkeypatch.setitem(sys.modules, "mne", None)
    with pytest.raises(ImportError, match=r"pip install '\.\[mne\]' in a clone"):
        fit_ica(recording[0])
