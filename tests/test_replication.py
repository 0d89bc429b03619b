"""Stability: values agree with stated errors and with theory; halves, resumed runs, sources of samples, warnings."""

import matplotlib.pyplot as plt
import numpy as np
import pytest
from sklearn.decomposition import PCA, FastICA
from sklearn.exceptions import ConvergenceWarning

from elldict import LpDictionaryLearning, LpICA, halves, plot, replication
from elldict.checkpoint import CheckpointError
from elldict.exceptions import NotIdentifiableWarning
from elldict.halves import Components, divide
from elldict.replication import Geometry, stability
from tests.fits import draw, measure_errors


def mix(law, r, n, n_features=None, seed=0):
    """Mix n sources; return the samples and the mixing matrix."""
    mixing = np.random.default_rng(seed + 100).standard_normal((n_features or n, n))
    return draw(law, r, n, seed) @ mixing.T, mixing


@pytest.fixture(scope="module")
def sparse():
    X, _ = mix("sparse", 1000, 5)
    X.setflags(write=False)
    return X


def assert_equal(one, other):
    assert (one.n_components, one.blocks) == (other.n_components, other.blocks)
    for name in ("splits", "mixing", "unmixing"):
        for a, b in zip(getattr(one, name), getattr(other, name), strict=True):
            np.testing.assert_array_equal(a, b)


# Values


def test_value_of_halves_is_what_the_error_of_all_samples_predicts():
    # near a maximum, halves differ by 4 times the error of the fit to all samples, which is a mean over 30 angles: its
    # relative standard deviation is sqrt(2 / 30) = 26 %; that of halves, of 10 splits, is smaller. A factor of 2: 3 sd
    X, mixing = mix("laplace", 3000, 6)
    found = stability(LpICA(), X, random_state=0)
    error = np.mean(measure_errors(mixing, found.mixing[0]))
    assert 2 * error < np.mean(1 - found.splits[0] ** 4) < 8 * error


@pytest.mark.parametrize(
    ("columns", "codes", "value"), [(20, 40, 20), (40, 20, 40), (20, 44, 20), (20, 46, 46), (60, 50, 60)]
)
def test_value_is_the_cosine_of_columns_unless_codes_share_less_than_half(columns, codes, value):
    # angles in degrees between halves, which have their components in other orders and units
    def rotate(angle):
        c, s = np.cos(np.radians(angle)), np.sin(np.radians(angle))
        return np.array([[c, -s], [s, c]])

    root = np.diag([3, 0.5])
    one = Components(rotate(columns / 2)[:, ::-1] * -2, rotate(codes / 2).T[::-1] @ np.linalg.inv(root))
    other = Components(rotate(-columns / 2), rotate(-codes / 2).T @ np.linalg.inv(root))
    reference = Components(np.eye(2), np.linalg.inv(root))
    found = Geometry(np.ones((2, 1)), root).compare(reference, [one, other])
    np.testing.assert_allclose(found, np.cos(np.radians(value)))


def test_gaussian_sources_are_not_stable_and_sparse_ones_are():
    rng = np.random.default_rng(1)
    sources = np.hstack([2 * draw("sparse", 3000, 4), rng.standard_normal((3000, 4))])  # of similar variance
    mixing = rng.standard_normal((8, 8))
    found = stability(LpDictionaryLearning(whiten=True, center=True), sources @ mixing.T, n_splits=3, random_state=0)
    is_sparse = np.argmax(np.abs(found.unmixing[0] @ mixing), axis=1) < 4
    assert np.sum(is_sparse) == 4
    assert np.min(found.values[0][is_sparse]) > 0.99
    assert np.mean(found.values[0][~is_sparse]) < 0.8


def test_columns_that_are_similar_by_chance_are_not_stable():
    # all columns of Gaussian samples are nearly the direction of largest variance, so that their cosines are near 1
    X = np.random.default_rng(0).standard_normal((2000, 8)) * np.r_[100, np.ones(7)]
    found = stability(LpICA(), X, n_splits=3, random_state=0)
    columns = found.mixing[0] / np.linalg.norm(found.mixing[0], axis=0)
    assert np.median(np.abs(columns.T @ columns)) > 0.95
    assert found.count_stable() == (0,)


def test_best_of_a_path_is_the_number_of_sources():
    X, _ = mix("laplace", 2000, 6, n_features=12)
    X += np.random.default_rng(0).standard_normal(X.shape)
    found = stability(LpICA(), X, n_components=[8, 4, 6], n_splits=3, random_state=0)
    assert found.n_components == (8, 4, 6)
    assert [each.shape for each in found.splits] == [(3, 8), (3, 4), (3, 6)]
    assert found.best == 6
    assert found.count_stable()[::2] == (6, 6)
    for values, spread, splits in zip(found.values, found.spread, found.splits, strict=True):
        np.testing.assert_allclose(values, np.mean(splits, axis=0))
        np.testing.assert_allclose(spread, np.std(splits, axis=0))
    title, *_, last = str(found).splitlines()
    assert title == "Stability of components: 3 random pairs of halves, blocks of 48 samples at a time"
    assert last.split()[:4] == ["6", "6", "of", "6"]
    assert last.endswith("<- most stable components")
    ax = plot.stability(found, threshold=0.7)
    heights = np.concatenate([dots.get_offsets()[:, 1] for dots in ax.collections])
    np.testing.assert_allclose(np.sort(heights), np.sort(np.concatenate(found.values)))
    assert ax.get_title(loc="left") == f"At most {max(found.count_stable(0.7))} components are stable"
    plt.close("all")


def test_halves_that_are_too_few_give_values_of_0_and_a_warning():
    X, _ = mix("laplace", 45, 12)  # two samples per direction, but not in a half
    with pytest.warns(NotIdentifiableWarning, match="No component of 12 was found in halves"):
        assert np.all(stability(LpICA(), X, n_splits=2, random_state=0).splits[0] == 0)


# Halves


@pytest.mark.parametrize("weights", [None, np.random.default_rng(2).integers(0, 4, 500).astype(float)])
def test_divide_keeps_units_together_in_halves_of_similar_weight(weights):
    units = np.random.default_rng(0).integers(0, 30, 500)
    rng, counted = np.random.default_rng(1), np.ones(500) if weights is None else weights
    parts = [divide(units, weights, rng) for _ in range(20)]
    for one, other in parts:
        assert not set(units[one]) & set(units[other])
        np.testing.assert_array_equal(np.sort(np.r_[one, other]), np.flatnonzero(counted))
        # cut at half the weight, to within the unit there
        largest = np.max(np.bincount(units, counted))
        assert abs(np.sum(counted[one]) - np.sum(counted[other])) <= largest
    assert len({one.tobytes() for one, _ in parts}) == 20


def test_groups_keep_copies_of_samples_in_one_half():
    # there is nothing to find but the copies
    rng = np.random.default_rng(0)
    groups = rng.permutation(np.repeat(np.arange(60), 10))
    X = rng.standard_normal((60, 8))[groups] + 0.01 * rng.standard_normal((600, 8))
    model = LpDictionaryLearning(whiten=True, center=True)
    free = stability(model, X, blocks=1, n_splits=3, random_state=0)
    grouped = stability(model, X, groups=groups, n_splits=3, random_state=0)
    assert np.mean(grouped.values[0]) < np.mean(free.values[0]) - 0.1
    assert (free.blocks, grouped.blocks) == (1, None)
    assert "single samples" in free.summary()
    assert "whole groups" in grouped.summary()


def test_weights_are_numbers_of_copies(sparse):
    # with these groups the same halves are drawn; weighted sums are rounded differently
    weights, rows = np.random.default_rng(0).integers(1, 3, 1000), np.arange(1000)
    one = stability(LpICA(), sparse, sample_weight=weights, groups=rows, n_splits=2, random_state=0)
    copies = np.repeat(rows, weights)
    other = stability(LpICA(), sparse[copies], groups=copies, n_splits=2, random_state=0)
    np.testing.assert_allclose(one.splits[0], other.splits[0], atol=1e-4)


# Sources, estimators, arguments


def test_dask_and_memory_maps_give_the_same_bits(sparse, tmp_path):
    asked = {"n_splits": 2, "random_state": 0}
    expected = stability(LpICA(), sparse, **asked)
    np.save(tmp_path / "X.npy", sparse)
    assert_equal(stability(LpICA(), np.load(tmp_path / "X.npy", mmap_mode="r"), **asked), expected)
    da = pytest.importorskip("dask.array")
    assert_equal(stability(LpICA(), da.from_array(sparse, chunks=(300, 5)), **asked), expected)


def test_estimators_of_other_libraries_need_a_mixing_matrix(sparse):
    found = stability(FastICA(random_state=0), sparse, n_components=4, n_splits=2, random_state=0)
    assert found.mixing[0].shape == (5, 4)
    assert np.min(found.values[0]) > 0.5
    with pytest.raises(TypeError, match="PCA has no mixing_ after fit"):
        stability(PCA(), sparse)


def test_power_method_starts_differently_in_each_half(sparse, monkeypatch):
    seeds, find_atoms = [], halves.find_atoms

    def watch(samples, options):
        seeds.append(options.random_state)
        return find_atoms(samples, options)

    monkeypatch.setattr(halves, "find_atoms", watch)
    stability(LpICA(solver="power", random_state=0), sparse, n_splits=2, random_state=0)
    assert len(set(seeds)) == 4


def test_warnings_are_issued_once_at_the_line_of_the_caller(sparse):
    slow = LpDictionaryLearning(whiten=True, max_iter=1, solver="power")
    with pytest.warns(ConvergenceWarning) as caught:
        stability(slow, sparse, n_components=[4, 5, 3], n_splits=2, random_state=0)
    assert len(caught) == 3  # the length of a step differs, so that messages do
    assert {warning.filename for warning in caught} == {__file__}


def test_verbose_estimator_shows_a_bar(sparse, capsys):
    stability(LpICA(verbose=True), sparse, n_splits=2, random_state=0)
    shown = capsys.readouterr().err
    assert "5/5" in shown
    assert "iteration" not in shown


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"n_components": []}, r"n_components must be .* Got \[\] instead"),
        ({"n_components": [3, 3]}, r"Got \[3, 3\]"),
        ({"blocks": "long"}, r"blocks must be 'auto' or an int in \[1, 500\]"),
        ({"blocks": 501}, "half of the samples"),
        ({"groups": [1, 2]}, r"shape is \(2,\)"),
    ],
)
def test_wrong_arguments_are_refused(sparse, asked, message):
    with pytest.raises(ValueError, match=message):
        stability(LpICA(), sparse, **asked)


# Checkpoints


def interrupt(monkeypatch, n_fits):
    """Interrupt a run after this number of fits to halves."""
    fit, done = replication.fit_part, []

    def count(*args):
        if len(done) == n_fits:
            raise KeyboardInterrupt
        done.append(1)
        return fit(*args)

    monkeypatch.setattr(replication, "fit_part", count)


@pytest.mark.filterwarnings("ignore::elldict.exceptions.DependentComponentsWarning")  # three axes mix more sources
@pytest.mark.parametrize("seed", [0, None])
def test_interrupted_run_is_resumed_with_the_same_bits(sparse, tmp_path, monkeypatch, seed):
    model = LpICA(solver="power")  # starts at random
    asked = {"n_components": [3, 5], "n_splits": 3, "random_state": seed, "checkpoint": tmp_path / "stability.npz"}
    with monkeypatch.context() as patch:
        interrupt(patch, 6)
        with pytest.raises(KeyboardInterrupt):
            stability(model, sparse, **asked)
    with monkeypatch.context() as patch:
        interrupt(patch, 8)  # two of three splits are left
        resumed = stability(model, sparse, **asked)
        assert_equal(stability(model, sparse, **asked), resumed)  # none is left
        fewer = stability(model, sparse, **(asked | {"n_splits": 2}))
        np.testing.assert_array_equal(fewer.splits[1], resumed.splits[1][:2])
    if seed is not None:
        assert_equal(stability(model, sparse, **(asked | {"checkpoint": None})), resumed)


def test_checkpoint_of_other_samples_or_parameters_is_refused(sparse, tmp_path):
    asked = {"estimator": LpICA(), "X": sparse, "n_splits": 1, "random_state": 0, "checkpoint": tmp_path / "a.npz"}
    stability(**asked)
    changes = {
        "X differs": {"X": 2 * sparse},
        "blocks was": {"blocks": 10},
        "p was '3' and is '4'": {"estimator": LpICA(p=4)},
        "estimator was 'LpICA'": {"estimator": FastICA()},
    }
    for named, change in changes.items():
        with pytest.raises(CheckpointError, match=named):
            stability(**(asked | change))
    with pytest.raises(FileNotFoundError):
        stability(**(asked | {"checkpoint": tmp_path / "no" / "folder.npz"}))
