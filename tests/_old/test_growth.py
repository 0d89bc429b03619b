"""Growing samples: every way of drawing them is uniform, bounded, and the same for every source."""

import itertools

import numpy as np
import pytest

from elldict import LpDictionaryLearning
from elldict._old.backend.base import to_numpy
from elldict._old.data import subsample as subsampler
from elldict._old.data.dataset import ArrayDataset
from elldict._old.data.open import open_samples
from elldict._old.data.subsample import Minibatches, Subsampler
from elldict._old.solver.evaluate import Statistics
from elldict._old.solver.loop import measure_sparsity
from elldict._old.solver.schedule import Schedule
from elldict.datasets import make_bernoulli_gaussian
from elldict.metrics import recovery_error


class RowSum:
    """Adds up the tiles themselves, column by column."""

    def bind(self, backend):
        return lambda Y: backend.xp.sum(Y, axis=0)


def numbered(r, n=4):
    return np.arange(r, dtype=np.float64)[:, None] * np.ones(n)


def batches_of(samples, size, seed=0):
    return Subsampler(samples, np.random.default_rng(seed)).minibatches(size)


def test_every_pass_sees_other_samples_until_all_were_seen():
    X = numbered(60_000)
    batches = batches_of(ArrayDataset(X), 15_000)
    stats = [batches.sum(RowSum())[0] for _ in range(8)]
    assert len(set(stats[:4])) == 4
    assert sum(stats[:4]) == X[:, 0].sum()  # none twice, none left out
    assert stats[4:] == stats[:4]  # and from the beginning again


def test_batches_are_the_same_for_every_source(tmp_path):
    X = np.random.default_rng(1).standard_normal((60_000, 4))
    np.save(tmp_path / "x.npy", X)
    here, there = batches_of(ArrayDataset(X), 2000), batches_of(open_samples(tmp_path / "x.npy"), 2000)
    for _ in range(3):
        np.testing.assert_array_equal(here.sum(RowSum()), there.sum(RowSum()))


def test_a_file_is_drawn_from_once(tmp_path, monkeypatch):
    np.save(tmp_path / "x.npy", numbered(60_000))
    samples = open_samples(tmp_path / "x.npy")
    drawn = []
    rows = type(samples).take
    monkeypatch.setattr(type(samples), "take", lambda self, index: drawn.append(len(index)) or rows(self, index))
    growing = Subsampler(samples, np.random.default_rng(0))
    for size in (2000, 4000):
        for _ in range(3):
            growing.minibatches(size).sum(RowSum())
    assert growing.subsample(3000).n_samples == 3000
    assert drawn == [60_000]


def test_batches_draw_uniformly():
    """Each batch of b from r numbers has mean r/2 with standard deviation r sqrt((1/b - 1/r) / 12)."""
    r, b = 60_000, 2000
    batches = batches_of(ArrayDataset(numbered(r)), b)
    means = np.array([batches.sum(RowSum())[0] / b for _ in range(30)])
    deviation = r * np.sqrt((1 / b - 1 / r) / 12)
    assert np.max(np.abs(means - r / 2)) < 4 * deviation
    assert 0.6 * deviation < np.std(means) < 1.4 * deviation


def test_levels_hold_each_other_and_end_with_all():
    X = numbered(60_000)
    samples = ArrayDataset(X)
    growing = Subsampler(samples, np.random.default_rng(0))
    assert growing.sizes == [1000, 3000, 9000, 27_000]
    held = [set(growing.subsample(size).X[:, 0]) for size in growing.sizes]
    assert all(small < large for small, large in itertools.pairwise(held))
    assert growing.subsample(growing.most + 1) is samples


@pytest.mark.parametrize(("r", "n"), [(2999, 100), (30_000, 4)])
def test_few_samples_are_looked_at_whole(r, n):
    samples = ArrayDataset(np.zeros((r, n)))
    assert Subsampler(samples, np.random.default_rng(0)).begin() is samples


def test_copies_are_bounded(monkeypatch):
    monkeypatch.setattr(subsampler, "MAX_BYTES", 3000 * 4 * 8)
    growing = Subsampler(ArrayDataset(numbered(60_000)), np.random.default_rng(0))
    assert len(growing.order) == growing.most == 3000
    assert growing.minibatches(1501) is None
    assert isinstance(growing.minibatches(1500), Minibatches)


def test_batches_find_what_as_many_fixed_samples_do_not():
    """At this noise the chance test gives up 4000 fixed samples; batches of 4000 lead to all atoms, in fewer passes."""
    X, D, _ = make_bernoulli_gaussian(40_000, 100, density=0.3, noise_std=0.6, random_state=0, dtype="float32")
    model = LpDictionaryLearning(halves=False, random_state=0).fit(X)
    assert recovery_error(model.components_, D) < 0.02
    assert model.n_passes_ < 11
    shares = np.diff([0.0] + [iteration.passes for iteration in model.history_])
    assert np.sum(shares < 0.15) > 25  # most steps are on batches of 2000 and 4000


def sums_of(Z):
    magnitude, z2 = np.sum(np.abs(Z), axis=0), np.sum(Z * Z, axis=0)
    return Statistics(len(Z), z2=z2, extra={"magnitude": magnitude})


def test_the_sparsity_of_gaussian_codes_is_standard_normal(rng):
    scores = [measure_sparsity(sums_of(rng.standard_normal((500, 20)))) for _ in range(200)]
    assert abs(np.mean(scores)) < 4 / np.sqrt(200) + 0.1  # the ratio of two moments has a bias of order 1/sqrt(r)
    assert 0.8 < np.std(scores) < 1.2
    assert measure_sparsity(sums_of(rng.laplace(size=(500, 20)))) > 10


# --- several starts ---------------------------------------------------------------------------------------------------


def test_starts_are_compared_on_samples_that_no_batch_has_seen():
    X = numbered(40_000)
    growing = Subsampler(ArrayDataset(X), np.random.default_rng(0), several=True)
    batches, held_out = growing.minibatches(2000), growing.held_out()
    seen = np.concatenate([batches._batch(number, 2000)[:, 0] for number in range(50)])
    judged = held_out.take(np.arange(held_out.n_samples))[:, 0]
    assert len(judged) == growing.first
    assert not np.intersect1d(seen, judged).size


def test_one_start_leaves_no_samples_out():
    growing = Subsampler(ArrayDataset(numbered(40_000)), np.random.default_rng(0))
    assert len(growing.minibatches(2000).order) == 40_000


def test_the_start_that_is_kept_is_the_best_on_all_samples(monkeypatch):
    """By what each start saw last, the first would be kept, which has the lowest objective of the four."""
    X, _, _ = make_bernoulli_gaussian(10_000, 32, density=0.3, noise_std=0.2, random_state=8)
    ends = {}
    score = Schedule._score_held_out

    def noted(schedule, end):
        ends[len(ends)] = float(np.mean(np.abs(X @ to_numpy(end.A).T) ** 3))  # in the order of the starts
        return score(schedule, end)

    monkeypatch.setattr(Schedule, "_score_held_out", noted)
    model = LpDictionaryLearning(n_init=4, random_state=8, refine=None).fit(X)
    objectives = np.array([ends[start] for start in range(4)])
    assert objectives.min() < 0.996 * objectives.max()  # so that there is something to choose
    assert ends[model.history_[-1].start] > 0.999 * objectives.max()
