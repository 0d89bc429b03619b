"""Weights of samples: whole ones are repeated samples, zero is a sample left out, in every pass and every draw."""

import warnings

import numpy as np
import pytest
from sklearn.base import clone

from elldict import LpDictionaryLearning, LpICA
from elldict._old.backend.base import Backend
from elldict._old.checkpoint import CheckpointError
from elldict._old.data.dataset import ArrayDataset
from elldict._old.data.gpu_stream import GpuStreamDataset
from elldict._old.data.statistics import compute_statistics
from elldict._old.data.weighted import MAX_MEAN_COPIES, WeightedDataset, count_copies, weigh
from elldict._old.fit import Fit
from elldict._old.solver.directions import random_orthonormal
from elldict._old.solver.evaluate import evaluate
from elldict._old.solver.objective import Lp, Quantities
from elldict._old.solver.spike_slab import SpikeSlabLikelihood
from elldict.datasets import make_bernoulli_gaussian
from elldict.metrics import recovery_error
from tests._old.helpers import mix, prepared
from tests._old.test_objectives import OBJECTIVES

N, R = 6, 2000
PLAIN = LpDictionaryLearning(random_state=0)
ALL = Quantities.GRADIENT | Quantities.MOMENTS


def draw_samples(kind, r=R, n=N, seed=0):
    rng = np.random.default_rng(seed)
    sparse = make_bernoulli_gaussian(r, n, density=0.3, random_state=seed)[0]
    return {
        "exact": lambda: sparse,
        "noisy": lambda: sparse + 0.1 * rng.standard_normal(sparse.shape),
        "laplace": lambda: mix(["laplace"] * n, r, seed)[0],
        "less sparse": lambda: mix(["uniform"] * 3 + ["laplace"] * (n - 3), r, seed)[0],
        "loud": lambda: sparse * np.exp(rng.standard_normal((r, 1))),
        "corrupted": lambda: (  # with noise: without, the likelihood has no bound, and ends where rounding says
            sparse
            + np.where(rng.random(sparse.shape) < 0.05, 3.0, 0) * rng.standard_normal(r)[:, None]
            + 0.05 * rng.standard_normal(sparse.shape)
        ),
    }[kind]()


def whole_weights(r=R, seed=1):
    return np.random.default_rng(seed).integers(0, 4, r)


def fit(model, X, **how):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return clone(model).fit(X, **how)


def assert_alike(one, other, rtol=1e-7, of_law=1e-7):
    """Equal but for rounding, in atoms, laws, and how the fit ended."""
    largest = np.max(np.abs(one.unmixing_))
    np.testing.assert_allclose(one.unmixing_, other.unmixing_, atol=rtol * largest)
    np.testing.assert_allclose(one.mean_, other.mean_, atol=rtol)
    np.testing.assert_allclose(one.density_, other.density_, rtol=of_law)
    np.testing.assert_allclose(one.scale_, other.scale_, rtol=of_law)
    np.testing.assert_allclose(one.objective_, other.objective_, rtol=of_law)
    assert one.refined_ == other.refined_
    assert one.n_iter_ == other.n_iter_
    assert one.n_samples_seen_ == other.n_samples_seen_


@pytest.mark.parametrize(
    ("kind", "model"),
    [
        ("exact", PLAIN),
        ("noisy", PLAIN),
        ("laplace", PLAIN),
        ("less sparse", PLAIN),
        ("loud", PLAIN),
        ("noisy", LpDictionaryLearning(solver="power", refine=None, random_state=0)),
        ("noisy", LpDictionaryLearning(p=1, refine=None, random_state=0)),
        ("noisy", LpDictionaryLearning(3, random_state=0)),
        ("laplace", LpDictionaryLearning(center=True, whiten=True, n_init=2, random_state=0)),
        ("loud", LpDictionaryLearning(normalize="samples", random_state=0)),
        ("corrupted", LpDictionaryLearning(refine="sparse-corruption", max_iter=20, random_state=0)),
        ("less sparse", LpICA(random_state=0)),
        ("laplace", LpICA(3, whiten="arbitrary-variance", random_state=0)),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_whole_weights_are_repeated_samples(kind, model):
    X, w = draw_samples(kind), whole_weights()
    of_law = 1e-4 if kind in ("exact", "loud") else 1e-7  # without noise the law of codes is told by rounding
    assert_alike(fit(model, X, sample_weight=w), fit(model, X.repeat(w, axis=0)), of_law=of_law)


@pytest.mark.parametrize("weighted", [False, True])
def test_batches_of_l1_are_the_same_of_every_source(weighted, tmp_path):
    """In memory, of a file, and with a checkpoint; too few samples for a copy, from which all would take them."""
    X = draw_samples("laplace").repeat(whole_weights(), axis=0)
    np.save(tmp_path / "X.npy", X)
    model = LpICA(3, whiten="arbitrary-variance", random_state=0)
    how = {"sample_weight": whole_weights(len(X))} if weighted else {}
    in_memory = fit(model, X, **how)
    assert in_memory.n_iter_ > 70, "20 steps on batches, before those on all samples"
    for other in (fit(model, tmp_path / "X.npy", **how), fit(model, X, checkpoint=tmp_path / "fit.checkpoint", **how)):
        np.testing.assert_array_equal(in_memory.unmixing_, other.unmixing_)


def test_so_they_are_where_few_samples_are_drawn_of_many():
    X, w = draw_samples("noisy", r=30000, n=8), whole_weights(30000)
    weighted, repeated = fit(PLAIN, X, sample_weight=w), fit(PLAIN, X.repeat(w, axis=0))
    assert weighted.history_[3].passes < 3, "the first iterations are on minibatches"
    assert_alike(weighted, repeated)
    # the order of samples is another matter: draws are others, and all samples decide in the end
    order = np.random.default_rng(2).permutation(len(X))
    shuffled = fit(PLAIN, X[order], sample_weight=w[order])
    assert recovery_error(weighted.components_, shuffled.components_) < 0.1 * weighted.expected_error_


@pytest.mark.parametrize("precision", ["float64", "float32"])
@pytest.mark.parametrize("name", OBJECTIVES)
def test_every_sum_of_a_pass_is_weighted(name, precision):
    objective, w = OBJECTIVES[name], whole_weights(700)
    X = draw_samples("noisy", r=700, n=3).astype(precision)
    repeated, whitening = prepared(X.repeat(w, axis=0), tile_rows=100)
    weighted = WeightedDataset(ArrayDataset(X, 100), w.astype(float), int(np.sum(w)))
    A = random_orthonormal(3, 3, np.random.default_rng(0))
    kinds = [ALL, Quantities.GRADIENT, Quantities.MOMENTS]
    if isinstance(objective, SpikeSlabLikelihood):
        kinds.append(ALL | Quantities.INACTIVE)
    for quantities in kinds:
        one, other = (evaluate(each, whitening, objective, A, quantities, precision) for each in (weighted, repeated))
        assert one.weight == other.weight == np.sum(w)
        close = {"rtol": 1e-11, "atol": 1e-9} if precision == "float64" else {"rtol": 2e-5, "atol": 0.02}
        for part in ("value", "G", "slope", "g2", "z2", "gz", "inactive", "secondary"):
            a, b = getattr(one, part), getattr(other, part)
            assert (a is None) == (b is None), part
            if a is not None:
                np.testing.assert_allclose(a, b, err_msg=part, **close)
        assert one.extra.keys() == other.extra.keys()
        for part, value in one.extra.items():
            np.testing.assert_allclose(value, other.extra[part], err_msg=part, **close)


@pytest.mark.parametrize("p", [3.0, 4.0, 1.0])
def test_the_gradient_is_that_of_the_weighted_objective(p):
    """By central differences: of step h their error is h^2 times third derivatives, which are of the order of r."""
    X, w = draw_samples("noisy", r=300, n=4), np.random.default_rng(3).exponential(size=300)
    samples, unit = weigh(ArrayDataset(X), w)
    whitening = prepared(X)[1]
    A, rng = random_orthonormal(4, 4, np.random.default_rng(0)), np.random.default_rng(1)
    sums = evaluate(samples, whitening, Lp(p), A, ALL, "float64")
    Z = whitening.scale * X @ A.T
    F = np.abs(Z) ** p if p > 2 else p * Z**2 / 2 + 1 - (Z**2 + 1) ** (p / 2)
    np.testing.assert_allclose(sums.value, (unit * w) @ F, rtol=1e-12)
    for _ in range(5):
        D, h = rng.standard_normal((4, 4)), 1e-5
        values = [
            np.sum(evaluate(samples, whitening, Lp(p), A + s * D, Quantities.MOMENTS, "float64").value) for s in (h, -h)
        ]
        # the factor p is left out of g; below 2 the value is p times what g is the derivative of
        assert np.sum(sums.G * D) * p == pytest.approx((values[0] - values[1]) / (2 * h), rel=1e-6, abs=1e-4)


def test_samples_of_weight_zero_are_left_out_whatever_they_hold():
    X, w = draw_samples("noisy"), np.random.default_rng(1).exponential(size=R)
    w[::3] = 0
    other = X.copy()
    other[::3] = [1e300, -1e300, np.nan, np.inf, 0, 7]
    pairs = ((X, w), (other, w), (X[w > 0], w[w > 0]))
    here, there, without = (fit(PLAIN, samples, sample_weight=weights) for samples, weights in pairs)
    np.testing.assert_array_equal(here.components_, there.components_)
    assert_alike(here, without)
    assert there.score(other, sample_weight=w) == pytest.approx(here.score(X[w > 0], sample_weight=w[w > 0]), rel=1e-12)
    w[2] = 1  # a sample that counts is looked at
    other[2] = X[2]
    other[2, 1] = np.nan
    with pytest.raises(ValueError, match="X holds NaN in sample 2, feature 1"):
        PLAIN.fit(other, sample_weight=w)


@pytest.mark.parametrize("value", [1, 2, 0.3, 1e-200])
def test_equal_weights_are_none(value):
    X, some = draw_samples("noisy"), np.arange(R) % 3 > 0
    assert_alike(fit(PLAIN, X, sample_weight=value * some), fit(PLAIN, X[some]))
    one, other = fit(PLAIN, X), fit(PLAIN, X, sample_weight=np.full(R, value))
    np.testing.assert_array_equal(one.components_, other.components_)
    assert one.expected_error_ == other.expected_error_


@pytest.mark.parametrize("unit", [1e-3, 1e30, 1e-300])
def test_of_weights_that_are_no_whole_numbers_only_ratios_count(unit):
    X, w = draw_samples("laplace"), np.random.default_rng(1).exponential(size=R)
    one, other = (fit(PLAIN, X, sample_weight=u * w) for u in (1.0, unit))
    assert_alike(one, other)
    np.testing.assert_allclose(one.atom_error_, other.atom_error_, rtol=1e-6)


def test_copies_are_drawn_as_often_as_samples_weigh():
    X, w = np.arange(40.0).reshape(20, 2), np.random.default_rng(0).exponential(size=20)
    w[[0, 7, 19]] = 0
    samples, _ = weigh(ArrayDataset(X), w)
    n_copies = round(np.sum(w) ** 2 / np.sum(w**2))
    assert samples.n_samples == n_copies
    rows = samples.find_rows(np.arange(n_copies))
    np.testing.assert_array_equal(samples.take(np.arange(n_copies)), X[rows])
    counts = np.bincount(rows, minlength=20)
    assert np.all(np.abs(counts - samples.weights) < 1)  # of copies that lie evenly
    assert np.all(counts[w == 0] == 0)
    assert count_copies(np.array([3.0, 0, 1])) == 4
    assert count_copies(np.array([0.5, 0, 0.5])) == 2
    assert count_copies(np.full(5, 2.0 * MAX_MEAN_COPIES)) == 5  # whole numbers, but no numbers of copies


def test_error_bars_count_the_effective_number_of_samples():
    """Weights that say nothing of the samples: exponential ones have sum w^2 = 2 (sum w)^2 / r, so half of r counts.

    The error is a mean of m (m - 1) / 2 = 28 squared angles; over 6 fits it varies by sqrt(2 / 168) = 11 %, and by four
    times that the ratio to the error bar stays between 0.5 and 1.5. Error bars of r samples would have it at two.
    """
    ratios, stated = [], []
    for seed in range(6):
        X, dictionary, _ = make_bernoulli_gaussian(4000, 8, density=0.3, noise_std=0.3, random_state=seed)
        w = np.random.default_rng(seed).exponential(size=len(X))
        model = LpDictionaryLearning(halves=False, random_state=0)
        found = fit(model, X, sample_weight=w)
        ratios.append(recovery_error(found.components_, dictionary) / found.expected_error_)
        stated.append(found.expected_error_ / fit(model, X).expected_error_)
    assert 0.5 < np.mean(ratios) < 1.5
    np.testing.assert_allclose(stated, 2, rtol=0.25)


@pytest.mark.parametrize("solver", ["auto", "power"])
def test_copies_do_not_make_error_bars_smaller(solver):
    """Four copies of half of the samples, and one of the others: (sum w)^2 / sum w^2 = (5/2)^2 / (17/2) r = 0.735 r."""
    X, model = draw_samples("noisy"), LpDictionaryLearning(solver=solver, refine=None, halves=False, random_state=0)
    found, alone = fit(model, X, sample_weight=np.tile([1, 4], R // 2)), fit(model, X)
    assert found.n_samples_seen_ == 5 * R / 2
    assert found.expected_error_ == pytest.approx(alone.expected_error_ / 0.735, rel=0.1)


@pytest.mark.parametrize("source", ["npy", "zarr", "dask", "dask in odd chunks"])
def test_every_source_gives_the_same_bits(source, tmp_path):
    X, w = draw_samples("noisy", r=12000, n=20), np.random.default_rng(1).exponential(size=12000)
    w[::5] = 0
    there = X
    if source == "npy":
        there = tmp_path / "X.npy"
        np.save(there, X)
    elif source == "zarr":
        zarr = pytest.importorskip("zarr")
        there = zarr.create_array(str(tmp_path / "X.zarr"), shape=X.shape, chunks=(777, 20), dtype=X.dtype)
        there[:] = X
    else:
        there = pytest.importorskip("dask.array").from_array(X, chunks=(1237 if "odd" in source else 4500, 20))
    assert ArrayDataset(X).tile_rows < len(X), "several tiles"
    here, there_model = fit(PLAIN, X, sample_weight=w), fit(PLAIN, there, sample_weight=w)
    np.testing.assert_array_equal(here.components_, there_model.components_)
    np.testing.assert_array_equal(here.atom_error_, there_model.atom_error_)
    assert here.score(X, sample_weight=w) == there_model.score(there, sample_weight=w)


def test_torch_and_other_kinds_of_weights():
    torch, pandas = pytest.importorskip("torch"), pytest.importorskip("pandas")
    X, w = draw_samples("noisy"), whole_weights()
    here = fit(PLAIN, X, sample_weight=w)
    for weights in (w.tolist(), w.astype(np.float32), pandas.Series(w, index=np.arange(R)[::-1]), torch.tensor(w)):
        np.testing.assert_array_equal(fit(PLAIN, X, sample_weight=weights).components_, here.components_)
    for weights in (w, torch.tensor(w, dtype=torch.float64)):
        there = fit(PLAIN, torch.tensor(X), sample_weight=weights)
        np.testing.assert_allclose(there.components_.numpy(), here.components_, atol=1e-9)


def test_blocks_on_their_way_to_a_device_have_their_weights():
    torch = pytest.importorskip("torch")
    X, w = draw_samples("noisy"), np.random.default_rng(1).exponential(size=R)
    w[100:400] = 0  # whole blocks among them
    streamed = GpuStreamDataset(ArrayDataset(X), Backend.of(torch.empty(0)), tile_rows=90)
    here, there = (
        compute_statistics(weigh(each, w)[0], center=True, precise=True) for each in (ArrayDataset(X), streamed)
    )
    np.testing.assert_allclose(there.mean, here.mean, atol=1e-13)
    np.testing.assert_allclose(there.scatter, here.scatter, atol=1e-13)
    np.testing.assert_allclose(here.mean, np.average(X, axis=0, weights=w), atol=1e-13)
    np.testing.assert_allclose(here.scatter * here.unit**2, np.cov(X.T, aweights=w, ddof=0), atol=1e-13)


def test_scores_are_weighted_means():
    X, w = draw_samples("noisy"), np.random.default_rng(1).exponential(size=R)
    model = fit(PLAIN, X)
    expected = np.average(model.score_samples(X), weights=w)
    assert model.score(X, sample_weight=w) == pytest.approx(expected, rel=1e-12)
    assert model.score(X, sample_weight=np.ones(R)) == model.score(X)
    assert model.score(X[:5], sample_weight=[0, 0, 1, 0, 0]) == pytest.approx(model.score_samples(X)[2], rel=1e-12)


def test_groups_go_with_their_samples():
    X, w, groups = draw_samples("laplace"), whole_weights(), np.repeat(np.arange(50), R // 50)
    weighted = fit(PLAIN, X, sample_weight=w, groups=groups)
    repeated = fit(PLAIN, X.repeat(w, axis=0), groups=groups.repeat(w))
    np.testing.assert_allclose(weighted.atom_error_, repeated.atom_error_, rtol=0.05)
    assert_alike(weighted, repeated)


def test_fit_transform_passes_weights_on():
    X, w = draw_samples("noisy"), whole_weights()
    np.testing.assert_array_equal(
        clone(PLAIN).fit_transform(X, sample_weight=w), fit(PLAIN, X, sample_weight=w).transform(X)
    )


def test_a_checkpoint_is_of_its_weights(tmp_path):
    X, w, path = draw_samples("noisy"), np.random.default_rng(1).exponential(size=R), tmp_path / "fit.checkpoint"
    whole = fit(PLAIN, X, sample_weight=w)

    def interrupt(iteration):
        if iteration.passes > 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fit(PLAIN, X, sample_weight=w, checkpoint=path, callback=interrupt)
    for other in (None, w + 1e-9):
        with pytest.raises(CheckpointError, match=r"is the checkpoint of another fit: it has .*sample_weight"):
            fit(PLAIN, X, sample_weight=other, checkpoint=path, resume=True)
    resumed = fit(PLAIN, X, sample_weight=w, checkpoint=path, resume=True)
    np.testing.assert_array_equal(resumed.components_, whole.components_)
    assert resumed.expected_error_ == whole.expected_error_


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        (np.ones(R - 1), rf"sample_weight has shape \({R - 1},\), expected a number for each of the {R} samples"),
        (np.ones((R, 1)), rf"sample_weight has shape \({R}, 1\)"),
        (2.0, r"sample_weight has shape \(\)"),
        (np.where(np.arange(R) == 7, -0.5, 1), rf"is -0.5 for sample 7, and wrong for 1 of {R} samples in all"),
        (np.where(np.arange(R) > 7, np.nan, 1), "is NaN for sample 8"),
        (np.where(np.arange(R) == 9, np.inf, 1), "is infinity for sample 9"),
        (np.zeros(R), f"is zero for all of {R} samples: expected at least"),
        (["a"] * R, "sample_weight has dtype <U1, expected real numbers"),
        ([None] * R, "is NaN for sample 0"),
        (np.ma.masked_equal(whole_weights(), 0), "has masked entries"),
    ],
    ids=["short", "matrix", "number", "negative", "NaN", "infinity", "zero", "words", "None", "masked"],
)
def test_wrong_weights_are_named(weights, message):
    X = draw_samples("noisy")
    fitted = fit(PLAIN, X)
    for use in (fitted.fit, fitted.partial_fit, fitted.score):
        with pytest.raises(ValueError, match=message):
            use(X, sample_weight=weights)


def test_one_sample_is_not_enough():
    with pytest.raises(ValueError, match=f"is zero for {R - 1} of {R} samples: expected at least 2 of weight > 0"):
        PLAIN.fit(draw_samples("noisy"), sample_weight=np.eye(R)[3])


def cut(X, first=1500, size=500):
    """Bounds of batches, the first of which is enough for a fit."""
    return [(0, first), *((k, k + size) for k in range(first, len(X), size))]


def stream(X, weights, **options):
    model = LpDictionaryLearning(random_state=0, **options)
    for start, stop in cut(X):
        model.partial_fit(X[start:stop], sample_weight=None if weights is None else weights[start:stop])
    return model


@pytest.mark.parametrize("half_life", [None, 4000])
def test_a_stream_of_weighted_samples_is_one_of_repeated_samples(half_life):
    """Parts are cut elsewhere, which matters to second order: a small part of the error."""
    X = make_bernoulli_gaussian(8000, N, density=0.3, noise_std=0.3, random_state=0)[0]
    w = whole_weights(len(X))
    weighted = stream(X, w, half_life=half_life, refine=None)
    model = LpDictionaryLearning(half_life=half_life, refine=None, random_state=0)
    for start, stop in cut(X):
        model.partial_fit(X[start:stop].repeat(w[start:stop], axis=0))
    assert weighted.n_samples_seen_ == model.n_samples_seen_ == np.sum(w)
    assert recovery_error(weighted.components_, model.components_) < 0.1 * weighted.expected_error_


def test_error_bars_of_a_stream_count_the_effective_number_of_samples():
    X, w = draw_samples("noisy", r=4000), np.random.default_rng(1).exponential(size=4000)
    effective = np.sum(w) ** 2 / np.sum(w**2)
    assert f"error bars of {effective:.0f}" in stream(X, w).status_


def test_a_stream_collects_weights_until_it_begins():
    X, w = draw_samples("noisy", r=4000), np.random.default_rng(1).exponential(size=4000)
    w[::7] = 0
    model, n = LpDictionaryLearning(random_state=0), 0
    while not isinstance(getattr(model, "_state", None), Fit):
        model.partial_fit(X[n : n + 400], sample_weight=w[n : n + 400])
        n += 400
    assert 2000 < n < 4000, "an effective number of 1000"
    whole = fit(PLAIN, X[:n], sample_weight=w[:n])
    assert_alike(model, whole)
    # the unit of the first weights is that of all that follow
    scaled = fit(PLAIN, X[:n], sample_weight=1e-3 * w[:n])
    for each, unit in ((whole, 1.0), (scaled, 1e-3)):
        each.partial_fit(X[n:], sample_weight=unit * w[n:])
    assert_alike(whole, scaled)
    assert whole.expected_error_ == pytest.approx(scaled.expected_error_, rel=1e-6)


def test_batches_without_weights_have_weights_of_one():
    X, w = draw_samples("noisy", r=4000), np.ones(4000)
    one, other = stream(X, None), stream(X, w)
    np.testing.assert_array_equal(one.components_, other.components_)
    heavy = clone(one).partial_fit(X[:1500]).partial_fit(X[1500:], sample_weight=np.full(2500, 1e-9))
    light = clone(one).partial_fit(X[:1500])
    np.testing.assert_allclose(heavy.components_, light.components_, atol=1e-6)
