"""Stability: atoms that other samples give again have values near 1, in the order of the fit to all samples."""

import warnings

import numpy as np
import pytest
from sklearn.decomposition import PCA, FastICA
from sklearn.exceptions import ConvergenceWarning

import elldict
from elldict import LpDictionaryLearning, LpICA, stability
from elldict._old.checkpoint import CheckpointError
from elldict._old.data.dataset import ArrayDataset
from elldict._old.data.dependence import choose_block_rows
from elldict._old.data.halves import split_at_random
from elldict.exceptions import NotIdentifiableWarning
from elldict.metrics import match_atoms


def make_mixed(n_samples=3000, n_sparse=4, n_gaussian=4, seed=0):
    """Sparse sources and Gaussian ones, mixed: only the directions of the former can be known."""
    rng = np.random.default_rng(seed)
    sparse = rng.laplace(size=(n_samples, n_sparse)) * (rng.random((n_samples, n_sparse)) < 0.3)
    sources = np.hstack([sparse / np.std(sparse, axis=0), rng.standard_normal((n_samples, n_gaussian))])
    mixing = rng.standard_normal((n_sparse + n_gaussian, n_sparse + n_gaussian))
    return sources @ mixing.T, mixing


def make_ar(n_samples, rho, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.laplace(size=(n_samples, 6))
    for row in range(1, n_samples):
        X[row] += rho * X[row - 1]
    return X


@pytest.fixture(scope="module")
def mixed():
    return make_mixed()


@pytest.fixture(scope="module")
def sparse():
    return elldict.datasets.make_bernoulli_gaussian(1000, 5, density=0.2, random_state=0)[0]


def white():
    return LpDictionaryLearning(whiten=True, center=True, random_state=0)


def same(one, other):
    assert one.n_components == other.n_components
    for name in ("values", "mixing", "unmixing"):
        for a, b in zip(getattr(one, name), getattr(other, name), strict=True):
            np.testing.assert_array_equal(a, b)


def test_planted_atoms_are_stable_and_gaussian_directions_are_not(mixed):
    X, mixing = mixed
    found = stability(white(), X, n_splits=4, random_state=0)
    match = match_atoms(found.mixing[0].T, mixing.T)
    planted = match.indices < 4
    assert np.all((found.values[0] >= 0) & (found.values[0] <= 1))
    assert np.min(found.values[0][planted]) > 0.99
    assert np.mean(found.values[0][~planted]) < 0.8
    assert found.count_stable(0.99)[0] >= 4


def test_values_do_not_depend_on_the_variances_of_directions():
    """Atoms of Gaussian samples resemble each other where one direction holds most of the variance; codes do not."""
    X = np.random.default_rng(0).standard_normal((2000, 8)) * np.array([100.0, *np.ones(7)])
    found = stability(white(), X, n_splits=3, random_state=0)
    assert np.mean(found.values[0]) < 0.8


def test_order_and_signs_are_those_of_the_fit_to_all_samples(mixed):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NotIdentifiableWarning)
        model = white().fit(mixed[0])
    found = stability(white(), mixed[0], n_splits=2, random_state=3)
    np.testing.assert_array_equal(found.mixing[0], model.mixing_)
    np.testing.assert_array_equal(found.unmixing[0], model.unmixing_)


def test_a_path_has_values_for_each_number_of_components(mixed):
    found = stability(LpICA(random_state=0), mixed[0], n_components=[2, 4, 8], n_splits=2, random_state=0)
    assert found.n_components == (2, 4, 8)
    assert [len(values) for values in found.values] == [2, 4, 8]
    assert found.best in (4, 8)
    assert "most stable atoms" in str(found)
    assert "n_stable=" in repr(found)
    assert [found.splits[i].shape for i in range(3)] == [(2, 2), (2, 4), (2, 8)]
    for values, spread, splits in zip(found.values, found.spread, found.splits, strict=True):
        np.testing.assert_allclose(values, np.mean(splits, axis=0))
        np.testing.assert_allclose(spread, np.abs(splits[0] - splits[1]) / 2, atol=1e-15)  # of two numbers


def test_of_several_numbers_with_as_many_stable_atoms_the_smallest_is_best():
    values = (np.array([0.95]), np.array([0.95, 0.99]), np.array([0.95, 0.99, 0.2]))
    found = elldict.Stability((1, 2, 3), values, (), (), 10, 1)
    assert found.count_stable() == (1, 2, 2)
    assert found.best == 2
    assert [list(mask) for mask in found.stable(0.97)] == [[False], [False, True], [False, True, False]]


def test_copies_of_samples_in_both_halves_are_kept_together_by_groups():
    """Over seeds 0 to 3 groups lowered the mean value by 0.16 to 0.37; there is nothing to find but the copies."""
    rng = np.random.default_rng(0)
    labels = rng.permutation(np.repeat(np.arange(60), 10))
    X = rng.standard_normal((60, 8))[labels] + 0.01 * rng.standard_normal((600, 8))
    free, grouped = (stability(white(), X, n_splits=3, groups=g, random_state=0) for g in (None, labels))
    assert np.mean(grouped.values[0]) < np.mean(free.values[0]) - 0.1


def test_groups_stay_in_one_half(sparse, monkeypatch):
    groups, seen = np.arange(1000) % 7, []

    def watch(*args, **kwargs):
        seen.append(split_at_random(*args, **kwargs))
        return seen[-1]

    monkeypatch.setattr("elldict._old.split_fits.split_at_random", watch)
    stability(white(), sparse, n_splits=2, groups=groups, random_state=0)
    assert seen
    assert not any(set(groups[one]) & set(groups[other]) for one, other in seen)


def test_blocks_are_found_where_neighbours_depend_on_each_other():
    assert choose_block_rows(ArrayDataset(make_ar(4000, 0.0))) == 1
    assert 20 < choose_block_rows(ArrayDataset(make_ar(4000, 0.95))) <= 200
    loud = np.repeat(np.random.default_rng(0).exponential(size=80), 50)[:, None]  # neighbours have their size in common
    assert choose_block_rows(ArrayDataset(loud * make_ar(4000, 0.0))) > 1


def test_blocks_of_a_large_set_are_found_in_runs(monkeypatch):
    monkeypatch.setattr("elldict._old.data.dependence.MAX_ROWS", 2048)
    assert choose_block_rows(ArrayDataset(make_ar(20_000, 0.0))) == 1
    assert choose_block_rows(ArrayDataset(make_ar(20_000, 0.95))) > 20


def test_blocks_are_used_and_told(sparse):
    assert stability(white(), sparse, n_splits=1, random_state=0).blocks == 1
    assert stability(white(), sparse, n_splits=1, blocks=25, random_state=0).blocks == 25


def interrupt_after(n_fits, monkeypatch, kind=LpDictionaryLearning):
    fit, done = kind.fit, []

    def count(self, X, *args, **kwargs):
        if len(done) == n_fits:
            raise KeyboardInterrupt
        done.append(1)
        return fit(self, X, *args, **kwargs)

    monkeypatch.setattr(kind, "fit", count)


@pytest.mark.parametrize("n_fits", [1, 5])
@pytest.mark.parametrize("seed", [0, None])
def test_an_interrupted_run_goes_on_and_ends_with_the_same_bits(sparse, tmp_path, monkeypatch, n_fits, seed):
    path, asked = tmp_path / "atoms.ck", {"n_components": [3, 5], "n_splits": 2, "random_state": seed}
    with monkeypatch.context() as patch:
        interrupt_after(n_fits, patch)
        with pytest.raises(KeyboardInterrupt):
            stability(white(), sparse, checkpoint=path, **asked)
    resumed = stability(white(), sparse, checkpoint=path, **asked)
    with monkeypatch.context() as patch:
        interrupt_after(0, patch)  # all fits are in the file
        same(stability(white(), sparse, checkpoint=path, **asked), resumed)
    if seed is not None:
        same(stability(white(), sparse, **asked), resumed)


def test_without_a_checkpoint_an_interruption_is_raised(sparse, monkeypatch):
    interrupt_after(2, monkeypatch)
    with pytest.raises(KeyboardInterrupt):
        stability(white(), sparse, n_splits=2)


def test_an_interruption_before_the_first_fit_leaves_no_file(sparse, tmp_path, monkeypatch):
    interrupt_after(0, monkeypatch)
    with pytest.raises(KeyboardInterrupt):
        stability(white(), sparse, checkpoint=tmp_path / "atoms.ck")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"X": 2.0}, "samples"),
        ({"n_splits": 2}, "n_splits"),
        ({"n_components": 3}, "path"),
        ({"random_state": 1}, "seed"),
        ({"groups": np.arange(1000) % 5}, "groups"),
        ({"blocks": 10}, "blocks"),
        ({"estimator": white().set_params(p=4)}, "parameters"),
        ({"estimator": LpICA(random_state=0)}, "stability_of"),
    ],
)
def test_a_checkpoint_of_other_samples_or_parameters_is_refused(sparse, tmp_path, change, named):
    asked = {"estimator": white(), "X": sparse, "n_splits": 1, "random_state": 0, "checkpoint": tmp_path / "atoms.ck"}
    stability(**asked)
    if "X" in change:
        change = {"X": sparse * change["X"]}
    with pytest.raises(CheckpointError, match=rf"of another fit: it has.*{named}"):
        stability(**{**asked, **change})


def test_a_checkpoint_of_a_fit_and_a_damaged_one_are_refused(sparse, tmp_path):
    path = tmp_path / "atoms.ck"
    white().fit(sparse, checkpoint=path)
    with pytest.raises(CheckpointError, match="is not a checkpoint, or is damaged"):
        stability(white(), sparse, checkpoint=path)
    path.write_bytes(b"no records")
    with pytest.raises(CheckpointError, match="is not a checkpoint, or is damaged"):
        stability(white(), sparse, checkpoint=path)


def test_files_and_dask_give_the_bits_of_the_array(sparse, tmp_path):
    asked = {"n_splits": 2, "random_state": 0}
    expected = stability(white(), sparse, **asked)
    np.save(tmp_path / "X.npy", sparse)
    same(stability(white(), tmp_path / "X.npy", **asked), expected)
    same(stability(white(), np.load(tmp_path / "X.npy", mmap_mode="r"), **asked), expected)
    dask_array = pytest.importorskip("dask.array")
    same(stability(white(), dask_array.from_array(sparse, chunks=(300, 5)), **asked), expected)


def test_a_tensor_of_torch(sparse):
    torch = pytest.importorskip("torch")
    expected = stability(white(), sparse, n_splits=2, random_state=0)
    found = stability(white(), torch.asarray(sparse), n_splits=2, random_state=0)
    np.testing.assert_allclose(found.values[0], expected.values[0], atol=1e-6)


def test_fastica_can_be_compared(mixed):
    found = stability(FastICA(random_state=0, max_iter=500), mixed[0], n_components=4, n_splits=2, random_state=0)
    assert found.values[0].shape == (4,)
    assert found.mixing[0].shape == (8, 4)


def test_neither_the_estimator_nor_the_samples_change(sparse):
    X, estimator = sparse.copy(), white().fit(sparse)
    X.flags.writeable = False
    before = dict(vars(estimator))
    stability(estimator, X, n_components=3, n_splits=1)
    assert vars(estimator) == before
    np.testing.assert_array_equal(X, sparse)


def test_warnings_of_fits_are_said_once(sparse):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        stability(white().set_params(max_iter=1, solver="power", refine=None), sparse, n_splits=3, random_state=0)
    told = [warning for warning in caught if warning.category is ConvergenceWarning]
    assert len(told) == 1
    assert "7 of 7 fits" in str(told[0].message)
    assert told[0].filename == __file__


def test_a_verbose_estimator_shows_one_bar(sparse, capsys):
    stability(white().set_params(verbose=True), sparse, n_splits=2, random_state=0)
    shown = capsys.readouterr().err
    assert "5/5 fits" in shown
    assert "iteration" not in shown


@pytest.mark.parametrize(
    ("asked", "error", "message"),
    [
        ({"n_components": []}, ValueError, "n_components"),
        ({"n_components": [3, 3]}, ValueError, "several different ones"),
        ({"n_components": 2.5}, ValueError, "n_components=2.5, expected a number of atoms"),
        ({"n_splits": 0}, ValueError, "at least 1"),
        ({"blocks": "long"}, ValueError, "expected 'auto' or a number of samples from 1 to 500"),
        ({"blocks": 501}, ValueError, "from 1 to 500"),
        ({"groups": [1, 2]}, ValueError, r"shape \(2,\)"),
        ({"estimator": PCA()}, TypeError, "PCA has no mixing_ after fit"),
        ({"checkpoint": "no/such/folder/atoms.ck"}, FileNotFoundError, "no such folder"),
    ],
)
def test_what_cannot_be_done_is_refused(sparse, asked, error, message):
    with pytest.raises(error, match=message):
        stability(**{"estimator": white(), "X": sparse, "n_splits": 1, **asked})


def test_a_nan_is_named_before_any_fit(sparse):
    X = sparse.copy()
    X[7, 2] = np.nan
    with pytest.raises(ValueError, match="X holds NaN in sample 7, feature 2"):
        stability(white(), X)


def test_atoms_without_a_partner_in_a_half_have_value_0():
    X = np.random.default_rng(0).laplace(size=(40, 30))  # of rank 30, halves of rank 19
    found = stability(white(), X, n_splits=1, random_state=0)
    assert found.n_components == (30,)
    assert np.sum(found.values[0] == 0) >= 11


def test_a_half_that_is_too_small_is_named():
    X = np.random.default_rng(0).laplace(size=(20, 12))
    with pytest.raises(ValueError, match="exceeds the rank") as raised:
        stability(white(), X, n_components=12, n_splits=1)
    assert "half of the samples: 10 of 20" in raised.value.__notes__[0]


@pytest.mark.parametrize("path", [None, [2, 4, 5]])
def test_plots_return_their_axes(sparse, path):
    plt = pytest.importorskip("matplotlib.pyplot")
    found = stability(white(), sparse, n_components=path, n_splits=1, random_state=0)
    figure, axes = plt.subplots()
    assert found.plot(axes) is axes
    assert axes.has_data()
    made = found.plot()
    assert made.figure is not figure
    plt.close("all")
