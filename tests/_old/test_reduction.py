"""whiten=True with fewer atoms than directions: samples are reduced to their first principal directions."""

import warnings

import array_api_strict
import numpy as np
import pytest
from scipy.stats import multivariate_normal
from sklearn.decomposition import PCA, FastICA

import elldict
from elldict import LpDictionaryLearning, LpICA
from elldict._old.data.dataset import ArrayDataset
from elldict._old.data.statistics import compute_statistics
from elldict._old.data.whitening import Whitening
from elldict._old.solver.directions import polar, random_orthonormal
from elldict._old.theory.error_bars import subspace_errors
from elldict.exceptions import NotWhiteWarning, RankWarning
from elldict.metrics import match_atoms

whole = pytest.mark.filterwarnings("ignore::elldict.exceptions.NotIdentifiableWarning")
"""Where atoms are sought in directions that hold nothing but noise as well, of which a fit warns."""


def make_sources(seed, n_sources=12, n_features=60, n_samples=8000, noise_std=0.1):
    """Laplace sources of unit variance in more features than sources, with white noise: samples and atoms."""
    rng = np.random.default_rng(seed)
    atoms = rng.standard_normal((n_sources, n_features))
    atoms /= np.linalg.norm(atoms, axis=1, keepdims=True)
    codes = rng.laplace(size=(n_samples, n_sources)) / np.sqrt(2)
    return codes @ atoms + noise_std * rng.standard_normal((n_samples, n_features)), atoms


def fit(X, n_components=None, **options):
    return LpDictionaryLearning(n_components, **{"random_state": 0, "whiten": True, "center": True, **options}).fit(X)


def angular_error(components, atoms):
    return 1 - np.mean(match_atoms(components, atoms).cosines ** 4)


@pytest.fixture(scope="module")
def few():
    """Four sources in ten features, around a mean."""
    X, atoms = make_sources(0, 4, 10, 4000)
    X = X + np.arange(10) / 10
    X.setflags(write=False)
    return X, atoms


# --- what is found ----------------------------------------------------------------------------------------------------


def test_no_source_is_lost_and_the_error_is_not_above_that_of_fastica():
    ours, theirs = [], []
    for seed in range(8):
        X, atoms = make_sources(seed)
        model = fit(X, 12, random_state=seed)
        peer = FastICA(12, whiten="unit-variance", fun="logcosh", max_iter=1000, random_state=seed).fit(X)
        assert np.min(match_atoms(model.components_, atoms).cosines) > 0.9
        ours.append(angular_error(model.components_, atoms))
        theirs.append(angular_error(peer.mixing_.T, atoms))
    assert np.mean(ours) <= np.mean(theirs)


def test_a_reduced_problem_is_complete(few):
    """It is that of the principal coordinates, which vary in as many directions as atoms are sought."""
    X, atoms = few
    pca = PCA(4).fit(X)
    inside = fit(pca.transform(X))
    model = fit(X, 4, refine="bernoulli-gaussian")
    assert model.refined_ == "bernoulli-gaussian"
    assert "directions are sought" not in fit(X, 4).status_
    match = match_atoms(model.components_, inside.components_ @ pca.components_)
    np.testing.assert_allclose(match.cosines, 1, atol=1e-3)  # starts differ, and both end within their error bars
    assert np.min(match_atoms(model.components_, atoms).cosines) > 0.99


@whole
def test_the_former_search_is_among_all_directions(few):
    model = fit(few[0], 4, whiten="all")
    assert "4 of 10 directions are sought" in model.status_
    white = model.transform(few[0])
    np.testing.assert_allclose(np.cov(white.T, bias=True), np.eye(4), atol=1e-9)


@whole
@pytest.mark.parametrize("whiten", [True, "all"])
def test_as_many_atoms_as_directions_are_the_same_either_way(few, whiten):
    X = few[0]
    np.testing.assert_array_equal(fit(X, 10, whiten=whiten).components_, fit(X).components_)


# --- the subspace -----------------------------------------------------------------------------------------------------


def test_samples_are_rebuilt_as_pca_rebuilds_them(few):
    X, model = few[0], fit(few[0], 4)
    pca = PCA(4).fit(X)
    codes = model.transform(X)
    np.testing.assert_allclose(model.inverse_transform(codes), pca.inverse_transform(pca.transform(X)), atol=1e-12)
    np.testing.assert_allclose(model.mean_, X.mean(axis=0), atol=1e-14)
    np.testing.assert_allclose(np.cov(codes.T, bias=True), np.eye(4), atol=1e-10)
    np.testing.assert_allclose(model.unmixing_ @ model.components_.T, np.eye(4), atol=1e-12)


@whole
@pytest.mark.parametrize("size", [0.02, 30.0])
def test_the_mean_is_no_direction(few, size):
    """Not centred, samples are reduced to the same subspace, and codes have unit mean square about zero."""
    X = few[0] - few[0].mean(axis=0) + size * np.linspace(1, 2, 10)
    with pytest.warns(NotWhiteWarning, match="far from centred") if size > 1 else warnings.catch_warnings():
        model = fit(X, 4, center=False)
    span = PCA(4).fit(X).components_
    codes = model.transform(X)
    np.testing.assert_allclose(model.inverse_transform(codes), X @ span.T @ span, atol=1e-9 * size)
    np.testing.assert_allclose(codes.T @ codes / len(X), np.eye(4), atol=1e-8)
    np.testing.assert_array_equal(model.mean_, 0)


def test_fewer_samples_than_features_are_enough_for_few_atoms():
    """What is too little for 300 atoms is plenty for three; and the samples vary in all that is left."""
    X, atoms = make_sources(1, 3, 300, 250, noise_std=0.02)
    model = fit(X, 3)
    assert np.min(match_atoms(model.components_, atoms).cosines) > 0.98  # an error of .02, and its scatter


@whole
def test_directions_in_which_nothing_varies_do_not_matter(few):
    X = few[0]
    padded = np.column_stack([X, np.ones(len(X)), X[:, 0]])
    with pytest.warns(RankWarning, match="varies in 10 of 12"):
        fit(padded)
    model = fit(padded, 4)
    pca = PCA(4).fit(padded)
    rebuilt = pca.inverse_transform(pca.transform(padded))
    np.testing.assert_allclose(model.inverse_transform(model.transform(padded)), rebuilt, atol=1e-12)
    assert len(model._rest) == 6
    with pytest.raises(ValueError, match="n_components=11 exceeds the rank 10 of X"):
        fit(padded, 11)


@pytest.mark.parametrize("center", [True, False])
def test_starts_do_not_depend_on_the_basis_of_the_subspace(few, center, rng):
    """Signs of eigenvectors, and the choice among equal eigenvalues, are the array library's."""
    statistics = compute_statistics(ArrayDataset(few[0]), center=center, precise=True)
    whitening = Whitening.of(statistics, center=center, whiten=True, n_components=4)
    turn = polar(rng.standard_normal((4, 4)))
    length = 1 / np.linalg.norm(whitening.to_white, axis=1, keepdims=True)
    other = Whitening(1.0, None, turn @ (length * whitening.to_white), None, whitened=True)
    start = random_orthonormal(4, 10, rng, ArrayDataset(few[0]).backend)
    atoms = polar(whitening.start(start)) @ (length * whitening.to_white)
    np.testing.assert_allclose(atoms, polar(other.start(start)) @ other.to_white, atol=1e-12)


@pytest.mark.parametrize("center", [True, False])
def test_other_array_libraries_give_the_same_answer(few, center):
    X = few[0] - 0.97 * few[0].mean(axis=0)
    there = array_api_strict.asarray(X.copy())
    ours, theirs = fit(X, 4, center=center), fit(there, 4, center=center)
    np.testing.assert_allclose(np.asarray(theirs.components_), ours.components_, atol=1e-9)
    assert theirs.score(there) == pytest.approx(ours.score(X), rel=1e-9)


# --- error bars -------------------------------------------------------------------------------------------------------


def test_the_error_of_the_subspace_is_that_of_principal_directions():
    """The formula beside its simulation: squares of 96 sines in 40 repetitions scatter by about 2 %."""
    variances, r = np.r_[np.geomspace(4, 1, 4), np.full(24, 0.1)], 2000
    rng, atoms = np.random.default_rng(0), np.eye(4)
    lost = np.zeros(4)
    for _ in range(40):
        X = rng.standard_normal((r, 28)) * np.sqrt(variances)
        directions = np.linalg.eigh(X.T @ X / r)[1][:, ::-1]
        lost += np.sum(directions[4:, :4] ** 2, axis=0) / 40
    np.testing.assert_allclose(subspace_errors(variances, atoms, r), 2 * lost, rtol=0.15)
    assert subspace_errors(np.array([1.0, 1.0, 1.0]), np.ones((1, 2)), r) == pytest.approx(2.0)  # nothing tells them


@pytest.mark.parametrize(("noise_std", "n_samples"), [(0.05, 8000), (0.2, 8000), (0.3, 8000), (0.2, 3000)])
def test_error_bars_hold_the_error_of_the_subspace(noise_std, n_samples):
    """Stated beside true errors, over four problems.

    Each holds 12 x 11 angles within the subspace and 12 x 48 out of it, so four of them are known to about 5 %. What is
    left out is that noise, which is not white after whitening, shifts the atoms: a bias of some 10 % here.
    """
    real, said = [], []
    for seed in range(4):
        X, atoms = make_sources(seed, n_samples=n_samples, noise_std=noise_std)
        model = fit(X, 12, random_state=seed, halves=False)
        real.append(angular_error(model.components_, atoms))
        said.append(model.expected_error_)
        assert model.expected_error_ == pytest.approx(np.mean(model.atom_error_))
    assert 0.8 < np.mean(said) / np.mean(real) < 1.3


@whole
def test_directions_that_are_hardly_apart_show_in_the_error_bar():
    """Eight directions of one variance, of which three are taken: which, is chance."""
    rng = np.random.default_rng(0)
    X = rng.laplace(size=(4000, 8))
    assert fit(X, 3).expected_error_ > 0.5


# --- the likelihood ---------------------------------------------------------------------------------------------------


@whole
@pytest.mark.parametrize("center", [True, False])
@pytest.mark.parametrize(("n_features", "k"), [(2, 1), (3, 1), (3, 2)])
def test_the_likelihood_is_a_density_over_all_directions(n_features, k, center):
    """Sums over a grid, whose cells are small beside the noise of .3."""
    X, _ = make_sources(2, k, n_features, 3000, noise_std=0.3)
    model = fit(X + 0.2, k, center=center)
    grid, cell = np.linspace(-8, 8, 161, retstep=True)
    points = np.stack(np.meshgrid(*[grid] * n_features), axis=-1).reshape(-1, n_features)
    assert np.sum(np.exp(model.score_samples(points))) * cell**n_features == pytest.approx(1, abs=5e-3)


def test_directions_without_atoms_count_as_gaussian():
    """The score is that of the principal coordinates, and of a Gaussian of one variance in the rest."""
    X, _ = make_sources(0, 4, 10, 8000, noise_std=0.2)
    train, test = X[:4000], X[4000:]
    pca = PCA(10).fit(train)
    inside = fit(pca.transform(train)[:, :4])
    rest = pca.transform(test)[:, 4:]
    variance = np.mean(pca.explained_variance_[4:])
    outside = np.mean(multivariate_normal(np.zeros(6), variance * np.eye(6)).logpdf(rest))
    expected = inside.score(pca.transform(test)[:, :4]) + outside
    assert fit(train, 4).score(test) == pytest.approx(expected, abs=0.01)  # starts differ, within the error bars


@whole
def test_the_score_finds_the_number_of_sources():
    X, _ = make_sources(3, 4, 10, 8000, noise_std=0.2)
    scores = {k: fit(X[:4000], k).score(X[4000:]) for k in (2, 3, 4, 5, 7)}
    assert max(scores, key=scores.get) == 4


# --- streams and files ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("center", [True, False])
def test_a_stream_follows_the_subspace(center):
    X, atoms = make_sources(4, 4, 10, 40_000, noise_std=0.1)
    stream = LpDictionaryLearning(4, whiten=True, center=center, random_state=0)
    for start in range(0, len(X), 2000):
        stream.partial_fit(X[start : start + 2000])
    batch = fit(X, 4, center=center)
    pca = PCA(4).fit(X)
    codes = stream.transform(X)
    np.testing.assert_allclose(codes.T @ codes / len(X), np.eye(4), atol=0.02)  # made anew at every 1 % of new weight
    np.testing.assert_allclose(stream.inverse_transform(codes), batch.inverse_transform(batch.transform(X)), atol=0.05)
    assert np.min(np.linalg.svd(pca.components_ @ np.linalg.qr(stream.components_.T)[0])[1]) > 1 - 1e-5
    assert angular_error(stream.components_, atoms) < 1.2 * angular_error(batch.components_, atoms)
    assert stream.expected_error_ == pytest.approx(batch.expected_error_, rel=0.2)
    assert stream.score(X) == pytest.approx(batch.score(X), abs=0.01)


def test_a_stream_follows_a_subspace_that_turns():
    """Half of the weight is forgotten every 2000 samples: the last dictionary is found, and not the first."""
    near, atoms = make_sources(5, 4, 10, 2)[1], make_sources(6, 4, 10, 2)[1]
    codes = np.random.default_rng(7).laplace(size=(40_000, 4)) / np.sqrt(2)
    turn = np.linspace(0, 1, 40_000)[:, None]
    samples = (1 - turn) * (codes @ near) + turn * (codes @ (near + 0.3 * atoms))
    samples += 0.1 * np.random.default_rng(8).standard_normal(samples.shape)
    stream = LpDictionaryLearning(4, whiten=True, center=True, half_life=2000, random_state=0)
    for start in range(0, len(samples), 1000):
        stream.partial_fit(samples[start : start + 1000])
    assert np.min(match_atoms(stream.components_, near + 0.3 * atoms).cosines) > 0.99
    assert np.min(match_atoms(stream.components_, near).cosines) < 0.97


def test_files_and_resumed_fits_give_the_same_bits(few, tmp_path):
    np.save(tmp_path / "X.npy", few[0])
    here = fit(few[0], 4)

    def interrupt(iteration):
        if iteration.iteration == 5:
            raise KeyboardInterrupt

    model = LpDictionaryLearning(4, whiten=True, center=True, random_state=0)
    path = tmp_path / "fit.checkpoint"
    with pytest.raises(KeyboardInterrupt):
        model.fit(str(tmp_path / "X.npy"), checkpoint=path, callback=interrupt)
    other = LpDictionaryLearning(4, whiten="all", center=True, random_state=0)
    with pytest.raises(ValueError, match="whiten"):
        other.fit(str(tmp_path / "X.npy"), checkpoint=path, resume=True)
    model.fit(str(tmp_path / "X.npy"), checkpoint=path, resume=True)
    np.testing.assert_array_equal(model.components_, here.components_)
    assert model.expected_error_ == here.expected_error_


@whole
def test_models_are_saved(few, tmp_path):
    for whiten in (True, "all"):
        model = fit(few[0], 4, whiten=whiten)
        model.save(tmp_path / "model.npz")
        again = elldict.load(tmp_path / "model.npz")
        assert again.whiten == whiten
        assert again.score(few[0]) == model.score(few[0])


# --- what is said -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("whiten", [False, "all"])
@pytest.mark.parametrize("refine", ["bernoulli-gaussian", "sparse-corruption"])
def test_a_refinement_that_needs_all_directions_is_not_dropped_silently(few, whiten, refine):
    if whiten and refine == "sparse-corruption":
        expected = "needs whiten=False"
    else:
        expected = f"refine='{refine}' needs as many atoms .* n_components=4 with whiten={whiten!r}.* 10 directions"
    with pytest.raises(ValueError, match=expected) as error:
        fit(few[0], 4, whiten=whiten, refine=refine)
    assert ("whiten=True, which reduces" in str(error.value)) == (refine == "bernoulli-gaussian")


def test_whiten_is_checked(few):
    with pytest.raises(ValueError, match="'whiten' parameter"):
        fit(few[0], whiten="some")
    np.testing.assert_array_equal(fit(few[0], 4, whiten=np.True_).components_, fit(few[0], 4).components_)


@whole
def test_as_many_components_as_directions_are_not_doubted():
    """Patches without their mean vary in one direction less than they have pixels, and whoever asks for that knows."""
    X = np.random.default_rng(0).laplace(size=(4000, 6)) @ np.random.default_rng(1).standard_normal((6, 6))
    X -= np.mean(X, axis=1, keepdims=True)
    with warnings.catch_warnings():
        warnings.simplefilter("error", RankWarning)
        LpICA(5, random_state=0).fit(X)
    with pytest.warns(RankWarning, match="varies in 5 of 6"):
        LpICA(random_state=0).fit(X)
