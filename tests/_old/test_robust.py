"""Samples that follow no law of ours: loud ones, and codes of any law."""

import math
import warnings
from dataclasses import replace

import dask.array as da
import numpy as np
import pytest
from sklearn.datasets import load_sample_images
from sklearn.decomposition import FastICA

from elldict import LpDictionaryLearning, load
from elldict._old.data.dataset import ArrayDataset
from elldict._old.data.statistics import compute_statistics
from elldict._old.data.whitening import Loudness, Whitening
from elldict._old.result import Estimate
from elldict._old.solver import robust
from elldict._old.solver.code_subsample import CodeSubsample
from elldict._old.solver.directions import PairwiseNewton, pairwise_angles, polar, random_orthonormal
from elldict._old.solver.evaluate import Statistics, evaluate
from elldict._old.solver.law_tests import LawTests, follows_spike_slab
from elldict._old.solver.mixture import (
    GROUPED_BINS,
    MixtureLikelihood,
    count_bins,
    fit_mixture,
    group_bins,
    make_components,
)
from elldict._old.solver.objective import Lp, Quantities, compute_derivatives
from elldict._old.solver.robust import estimate_crossed
from elldict.datasets import make_bernoulli_gaussian
from elldict.metrics import match_atoms, recovery_error
from tests._old.helpers import draw, mix

ALL = Quantities.GRADIENT | Quantities.MOMENTS


def make_loud(r, n, seed, draw=None):
    """Laplace codes, all of a sample times the same exponential loudness."""
    rng = np.random.default_rng(seed)
    codes = rng.laplace(size=(r, n)) if draw is None else draw(rng, (r, n))
    dictionary = random_orthonormal(n, n, rng)
    return codes * rng.exponential(size=(r, 1)) @ dictionary, dictionary


@pytest.fixture(scope="module")
def loud():
    return make_loud(5000, 30, 0)


def fit(X, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # loud samples are neither white nor independent, which is said elsewhere
        return LpDictionaryLearning(random_state=0, **options).fit(X)


def prepare(X, *, whiten):
    samples = ArrayDataset(X)
    statistics = compute_statistics(samples, center=True, precise=True)
    return samples, Whitening.of(statistics, center=True, whiten=whiten)


@pytest.mark.parametrize("m", [6, 3])
@pytest.mark.parametrize("whiten", [True, False])
def test_a_pass_over_normalised_samples_is_that_over_samples_normalised_before(m, whiten):
    """Sums of a pass equal those over rows that were whitened and scaled by hand."""
    rng = np.random.default_rng(0)
    X = make_loud(500, 6, 0)[0] @ rng.standard_normal((6, 6)) + 1.0
    samples, whitening = prepare(X, whiten=whiten)
    Y = whitening.whiten(X)
    squares = np.sum(Y**2, axis=1)
    median = np.median(squares)
    scaled = Y / np.sqrt(squares + median)[:, None]
    scaled /= math.sqrt(np.mean(scaled**2))
    whitening = replace(whitening, loudness=Loudness.of(Y))
    np.testing.assert_allclose(whitening.whiten(X), scaled)
    A = random_orthonormal(m, 6, rng)
    stats = evaluate(samples, whitening, Lp(3), A, ALL, "float64")
    Z = scaled @ A.T
    g = np.abs(Z) * Z
    np.testing.assert_allclose(stats.G, g.T @ scaled, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(stats.g2, np.sum(g**2, axis=0))
    np.testing.assert_allclose(stats.slope, np.sum(2 * np.abs(Z), axis=0))


def test_normalisation_forgets_how_loud_a_sample_is_only_as_far_as_it_is_loud():
    """A sample ten thousand times as loud counts at most sqrt(2) times as much as one of median loudness."""
    Y = np.random.default_rng(0).standard_normal((1000, 10))
    loudness = Loudness.of(Y)
    typical = Y[np.argsort(np.sum(Y**2, axis=1))[500]][None, :]
    lengths = [np.linalg.norm(f * typical * loudness.compute_scales(f * typical)) for f in (1e-3, 1.0, 1e4)]
    assert lengths[2] == pytest.approx(math.sqrt(2) * lengths[1], rel=1e-2)
    assert lengths[0] == pytest.approx(math.sqrt(2) * 1e-3 * lengths[1], rel=1e-2)


def test_the_curvature_of_dependent_pairs_is_that_of_the_objective():
    """With E g_i' z_j^2 the quotient of slope and curvature is Newton's step of every pair, by finite differences."""
    rng = np.random.default_rng(0)
    Y = rng.laplace(size=(3000, 4)) * rng.exponential(size=(3000, 1))
    Y /= np.sqrt(np.mean(Y**2))
    A, objective, h = polar(np.eye(4) + 0.1 * rng.standard_normal((4, 4))), Lp(1.0), 1e-3
    whitening = Whitening(1.0, None, None, None, whitened=True)
    stats = evaluate(ArrayDataset(Y), whitening, objective, A, ALL, "float64")
    angles = pairwise_angles(stats, stats.G, A, 1e-9, estimate_crossed(objective, Y @ A.T))

    def value(i, j, angle):
        moved = A.copy()
        moved[i], moved[j] = (
            math.cos(angle) * A[i] + math.sin(angle) * A[j],
            math.cos(angle) * A[j] - math.sin(angle) * A[i],
        )
        return np.sum(1 - np.sqrt((Y @ moved.T) ** 2 + 1))

    for i, j in ((0, 1), (0, 3), (1, 2)):
        up, here, down = (value(i, j, x) for x in (h, 0.0, -h))
        slope, curvature = (up - down) / (2 * h), (up - 2 * here + down) / h**2
        assert abs(angles[i, j]) == pytest.approx(abs(slope / curvature), rel=1e-2)
    turned = PairwiseNewton(crossed=np.full((4, 4), 1e-9))(stats, A)
    np.testing.assert_allclose(turned @ turned.T, np.eye(4), atol=1e-12)


def test_counted_codes_are_as_likely_as_codes_one_by_one():
    """Bins are a sixteenth as wide as the narrowest component: within one, log q is off by less than 1e-3."""
    Z = np.random.default_rng(0).laplace(size=(3000, 4)) * np.array([0.1, 1, 2, 5])
    law = fit_mixture(Z, np.ones(4))
    each = np.sum(MixtureLikelihood(law).log_density(Z, np))
    assert law.score_counts(count_bins(Z, law.std)) == pytest.approx(each, abs=1e-3 * Z.size)


@pytest.mark.parametrize("name", ["l_1", "mixture"])
def test_curvatures_of_pairs_are_means_over_all_derivatives(name):
    Z = np.random.default_rng(0).laplace(size=(2000, 5))
    objective = Lp(1.0) if name == "l_1" else MixtureLikelihood(fit_mixture(Z, np.ones(5)))
    slope = compute_derivatives(objective, Z)[1]
    np.testing.assert_allclose(estimate_crossed(objective, Z), slope.T @ Z**2 / 2000, rtol=1e-12)


@pytest.mark.parametrize("density", [0.1, 0.3, 0.6])
@pytest.mark.parametrize("noise_std", [0.0, 0.2, 0.6])
def test_sparse_codes_follow_their_law_and_are_not_loud(density, noise_std):
    X, dictionary, _ = make_bernoulli_gaussian(8000, 20, density=density, noise_std=noise_std, random_state=0)
    samples, whitening = prepare(X, whiten=False)
    drawn = CodeSubsample.draw(samples, whitening, np.random.default_rng(0))
    assert follows_spike_slab(drawn, dictionary)
    assert not LawTests(drawn, whitening, len(X), np.random.default_rng(0)).is_loud(dictionary)


@pytest.mark.parametrize("law", ["laplace", "t5", "loud"])
def test_other_codes_do_not_follow_it_and_loud_ones_are_told(law):
    rng = np.random.default_rng(0)
    draw = {
        "laplace": lambda: rng.laplace(size=(8000, 20)),
        "t5": lambda: rng.standard_t(5, (8000, 20)),
        "loud": lambda: rng.laplace(size=(8000, 20)) * rng.uniform(0.5, 2, (8000, 1)),
    }
    samples, whitening = prepare(draw[law](), whiten=False)
    drawn = CodeSubsample.draw(samples, whitening, np.random.default_rng(0))
    assert not follows_spike_slab(drawn, np.eye(20))
    assert LawTests(drawn, whitening, 8000, rng).is_loud(np.eye(20)) == (law == "loud")


@pytest.mark.parametrize("kind", ["sparse", "mixed", "loud"])
def test_a_settled_pilot_is_refused_if_its_codes_are_loud_and_no_other_is(kind, loud):
    """Sparse codes whose atoms are mixed a little, by angles of .05, are nearly sparse: refinements are for them."""
    rng = np.random.default_rng(0)
    X, atoms, _ = make_bernoulli_gaussian(n_samples=5000, n_features=30, density=0.2, noise_std=0.1, random_state=0)
    if kind == "mixed":
        angles = rng.standard_normal((30, 30))
        atoms = polar(atoms + 0.05 / math.sqrt(30) * (angles - angles.T) @ atoms)
    if kind == "loud":
        X, atoms = loud
    samples, whitening = prepare(X, whiten=False)
    drawn = CodeSubsample.draw(samples, whitening, rng)
    tests = LawTests(drawn, whitening, len(X), rng)
    pilot = Estimate(atoms, Lp(3.0), Statistics(float(len(X))), converged=True, stopped=False, status="")
    assert tests.refuses_pilot(pilot) == (kind == "loud")
    assert not tests.refuses_pilot(replace(pilot, converged=False))


def test_first_steps_on_batches_lead_as_far_as_steps_on_all_samples(loud, monkeypatch):
    """Both end near one maximum: five per cent of the rise, at which they end, is less than errors of few samples."""
    X, dictionary = loud
    by_batches = fit(X, halves=False)
    monkeypatch.setattr(robust, "BATCH_SHARES", ())
    on_all = fit(X, halves=False)
    assert by_batches.n_passes_ < on_all.n_passes_
    errors = [recovery_error(model.components_, dictionary) for model in (by_batches, on_all)]
    assert errors[0] < 1.25 * errors[1]


def test_weights_of_a_mixture_are_fitted_to_groups_of_bins():
    """Densities of a group are means over its bins, so that both make the same histogram."""
    parts = make_components()
    np.testing.assert_allclose(group_bins(parts.q) / GROUPED_BINS, parts.grouped)
    law = np.random.default_rng(0).dirichlet(np.ones(len(parts.q)))
    np.testing.assert_allclose(group_bins((law @ parts.q)[None]), GROUPED_BINS * (law @ parts.grouped)[None])


def test_atoms_of_loud_samples_are_found_where_samples_as_they_are_hide_them(loud):
    X, dictionary = loud
    found = {normalize: np.sum(find(X, dictionary, normalize=normalize) > 0.9) for normalize in ("auto", "samples")}
    assert found["auto"] >= 29
    assert found["samples"] >= 29
    assert np.sum(find(X, dictionary, normalize=None, refine=None) > 0.9) < 25


def find(X, dictionary, **options):
    return match_atoms(fit(X, **options).components_, dictionary).cosines


def test_loud_samples_give_the_same_atoms_for_every_seed(loud):
    """The start is computed from the samples; of 5000 all are drawn, so that nothing depends on the seed."""
    X, _ = loud
    one = fit(X)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        other = LpDictionaryLearning(random_state=7).fit(X)
    assert "normalised" in one.status_
    assert np.min(match_atoms(one.components_, other.components_).cosines) > 0.999


def test_codes_and_scores_are_those_of_samples_as_they_are(loud):
    X, _ = loud
    model = fit(X, whiten=True, center=True)
    assert "normalised" in model.status_
    codes = model.transform(X)
    np.testing.assert_allclose(codes, (X - model.mean_) @ model.unmixing_.T)
    np.testing.assert_allclose(np.std(codes, axis=0), 1, rtol=1e-6)
    assert model.score(X) == pytest.approx(np.mean(model.score_samples(X)))


@pytest.mark.parametrize("source", ["npy", "dask", "float32"])
def test_every_source_normalises_alike(loud, source, tmp_path):
    X, _ = loud
    np.save(tmp_path / "X.npy", X)
    given = {"npy": str(tmp_path / "X.npy"), "dask": da.from_array(X, chunks=(700, 30)), "float32": X.astype("float32")}
    here, there = fit(X), fit(given[source])
    cosines = match_atoms(there.components_, here.components_).cosines
    # rounding to float32 may add or save a step, and the last ones are shorter than the error bar
    assert np.max(2 * (1 - cosines**2)) < (1e-10 if source != "float32" else 0.5 * here.expected_error_)


def test_a_stream_of_loud_samples_is_followed_by_the_normalisation_of_its_first():
    X, dictionary = make_loud(12_000, 20, 0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = LpDictionaryLearning(random_state=0)
        for part in np.array_split(X, 6):
            model.partial_fit(part)
    first = 1 - match_atoms(fit(X[:2000]).components_, dictionary).cosines ** 2
    assert np.mean(1 - match_atoms(model.components_, dictionary).cosines ** 2) < 0.7 * np.mean(first)


def test_a_fit_of_loud_samples_is_resumed_to_the_last_bit_and_counts_its_stages(loud, tmp_path):
    X, _ = loud
    whole = fit(X)
    stages = [iteration.stage for iteration in whole.history_]
    assert stages == sorted(stages)
    for last in (len(stages) // 2, len(stages) - 2):
        path = tmp_path / f"{last}.checkpoint"

        def interrupt(iteration, last=last):
            if iteration.iteration == last:
                raise KeyboardInterrupt

        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with pytest.raises(KeyboardInterrupt):
                LpDictionaryLearning(random_state=0).fit(X, callback=interrupt, checkpoint=path)
            resumed = LpDictionaryLearning(random_state=0).fit(X, checkpoint=path, resume=True)
        np.testing.assert_array_equal(resumed.components_, whole.components_)


def test_a_callback_stops_a_fit_of_loud_samples_wherever_it_is(loud):
    X, _ = loud
    n_iterations = len(fit(X).history_)
    for last in (n_iterations // 2, n_iterations - 2):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            stop_at = lambda iteration, last=last: iteration.iteration == last  # noqa: E731
            model = LpDictionaryLearning(random_state=0).fit(X, callback=stop_at)
        assert len(model.history_) == last
        assert not model.converged_
        assert "stopped by the callback" in model.status_


@pytest.mark.slow
def test_skewed_sources_of_different_laws_end_without_normalisation():
    """Normalised, they have an error that does not fall with the number of samples; as they are it does."""
    rng = np.random.default_rng(0)
    codes = np.column_stack(
        [rng.exponential(size=(40_000, 4)) - 1, (rng.gamma(0.2, size=(40_000, 4)) - 0.2) / 0.2**0.5]
    )
    dictionary = random_orthonormal(8, 8, rng)
    plain, normalised = (
        2 * np.mean(1 - find(codes @ dictionary, dictionary, normalize=normalize) ** 2)
        for normalize in ("auto", "samples")
    )
    assert plain < 0.002
    assert normalised > 3 * plain


def test_laplace_sources_are_refined_by_their_own_law_at_the_error_that_is_stated():
    """Over four seeds of 12 atoms the mean error is known to about a tenth; l_p has more than twice that of the law."""
    errors, stated, by_lp = [], [], []
    for seed in range(4):
        X, dictionary, _ = mix(["laplace"] * 12, 8000, seed)
        model = fit(X)
        assert model.refined_ == "mixture"
        errors.append(2 * np.mean(1 - match_atoms(model.components_, dictionary).cosines ** 2))
        stated.append(model.expected_error_)
        by_lp.append(2 * np.mean(1 - match_atoms(fit(X, refine=None).components_, dictionary).cosines ** 2))
    assert np.mean(errors) < 0.6 * np.mean(by_lp)
    assert np.mean(stated) / 1.4 < np.mean(errors) < 1.4 * np.mean(stated)


def held_out_gain(A, train, test):
    """Mean log density of held-out codes under mixtures fitted to the others, less that of unrotated ones, in nats."""
    values = []
    for rotation in (A, np.eye(len(A))):
        law = fit_mixture(train @ rotation.T, np.ones(len(A)))
        terms = MixtureLikelihood(law)
        samples = ArrayDataset(test)
        whitening = Whitening(1.0, None, None, None, whitened=True)
        values.append(evaluate(samples, whitening, terms, rotation, ALL, "float64").mean_value * len(A))
    return values[0] - values[1]


def test_atoms_of_a_photograph_explain_what_they_have_not_seen_better_than_those_of_fast_ica():
    image = load_sample_images().images[0].mean(axis=2)
    windows = np.lib.stride_tricks.sliding_window_view(image, (6, 6)).reshape(-1, 36)
    patches = windows[np.random.default_rng(0).choice(len(windows), 8000, replace=False)]
    patches = patches - patches.mean(axis=1, keepdims=True)
    values, vectors = np.linalg.eigh(np.cov(patches[::2].T))
    white = (patches - patches[::2].mean(axis=0)) @ (vectors[:, 1:] / np.sqrt(values[1:]))
    train, test = white[::2], white[1::2]
    ours = held_out_gain(fit(train).components_, train, test)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fast = FastICA(whiten=False, random_state=0).fit(train)
    U, _, Vt = np.linalg.svd(fast.components_)
    assert ours > 1.1 * held_out_gain(U @ Vt, train, test)


def test_the_score_is_that_of_the_law_of_each_atom_and_integrates_to_one():
    """In the plane, of one skewed and one Laplace source; a spike-and-slab law would score them lower."""
    rng = np.random.default_rng(0)
    codes = np.column_stack([draw(kind, 6000, rng) for kind in ("exponential", "laplace")])
    dictionary = random_orthonormal(2, 2, rng)
    model = fit(codes @ dictionary)
    assert model.refined_ == "mixture"
    grid = np.linspace(-25, 25, 1501)
    points = np.stack(np.meshgrid(grid, grid), axis=-1).reshape(-1, 2)
    density = np.exp(model.score_samples(points))
    assert np.sum(density) * (grid[1] - grid[0]) ** 2 == pytest.approx(1, abs=2e-3)
    held_out = np.column_stack([draw(kind, 6000, rng) for kind in ("exponential", "laplace")])
    entropy = 1 + (1 + math.log(2) / 2)  # nats, of exponential and Laplace codes of unit variance
    assert model.score(held_out @ dictionary) == pytest.approx(-entropy, abs=0.15)  # the jump is smoothed
    spike_slab = fit(codes @ dictionary, refine="bernoulli-gaussian")
    assert model.score(held_out @ dictionary) > spike_slab.score(held_out @ dictionary) + 0.1


def test_laws_are_saved_with_the_model_and_kept_by_a_stream(loud, tmp_path):
    X, _ = loud
    model = fit(X)
    model.save(tmp_path / "model.npz")
    np.testing.assert_array_equal(load(tmp_path / "model.npz").score_samples(X), model.score_samples(X))
    before = model.score(X)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.partial_fit(X[:1000])
    assert model.score(X) == pytest.approx(before, abs=0.05)


def test_few_loud_samples_are_no_sparse_ones():
    """18 samples a direction, of which the loudest decide l_3; sparse codes of as few keep their own way."""
    X, dictionary = make_loud(540, 30, 0)
    model = fit(X)
    assert model.refined_ == "mixture"
    plain = fit(X, normalize=None, refine=None)
    errors = [np.mean(1 - match_atoms(each.components_, dictionary).cosines ** 2) for each in (model, plain)]
    assert errors[0] < 0.7 * errors[1]
    sparse, atoms, _ = make_bernoulli_gaussian(540, 30, density=0.1, random_state=0)
    assert recovery_error(fit(sparse).components_, atoms) < 1e-9
