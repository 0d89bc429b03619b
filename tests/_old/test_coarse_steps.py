"""Large fits on a card: steps by fast products, whitened copies, and what is kept off the host.

Torch on the host passes for a card here; its products are in full, so that what is left is the method's own error.
"""

from dataclasses import replace

import numpy as np
import pytest

from elldict import LpDictionaryLearning
from elldict._old.backend import matrices
from elldict._old.backend.base import Backend, to_numpy
from elldict._old.backend.matrices import multiply_by_itself, take_rows
from elldict._old.data import subsample
from elldict._old.data.dataset import ArrayDataset, is_white
from elldict._old.data.statistics import compute_statistics
from elldict._old.data.subsample import Subsampler, copy_white, whiten_on_card
from elldict._old.data.whitening import Loudness, Whitening
from elldict._old.solver import directions
from elldict._old.solver.directions import orthonormalize, random_orthonormal, turn_coarsely
from elldict._old.solver.evaluate import evaluate
from elldict._old.solver.objective import Lp, Quantities
from elldict._old.solver.pilot import rotate_rows
from elldict.datasets import make_bernoulli_gaussian
from tests._old.conftest import as_if_on_a_card


@pytest.fixture
def torch(monkeypatch):
    module = pytest.importorskip("torch")
    as_if_on_a_card(monkeypatch)
    return module


def make_angles(m, length, rng, strongest=0.0):
    """Antisymmetric angles of this root mean square length, and one pair that is turned by more."""
    angles = rng.standard_normal((m, m))
    angles = angles - angles.T
    angles *= length / np.sqrt(np.sum(angles**2) / m)
    angles[0, 1] += strongest
    angles[1, 0] -= strongest
    return angles


@pytest.mark.parametrize("strongest", [0.0, 1.0])
@pytest.mark.parametrize("length", [0.001, 0.28, 0.8])
def test_a_coarse_step_leads_to_the_polar_factor(torch, rng, length, strongest):
    """To float32 rounding, 6e-8 an entry, where the iteration has converged; within a cubic step of it elsewhere."""
    A, angles = random_orthonormal(40, 40, rng), make_angles(40, length, rng, strongest)
    found = to_numpy(turn_coarsely(torch.asarray(A), torch.asarray(angles)))
    U, _, Vt = np.linalg.svd(A + angles @ A)
    np.testing.assert_allclose(found, U @ Vt, atol=1e-6)
    settled = to_numpy(orthonormalize(torch.asarray(found)))
    np.testing.assert_allclose(settled @ settled.T, np.eye(40), atol=1e-12)
    np.testing.assert_allclose(settled, U @ Vt, atol=1e-6)


def test_a_coarse_step_that_does_not_converge_says_so(torch, rng):
    A, angles = random_orthonormal(30, 30, rng), make_angles(30, 0.1, rng, strongest=300.0)
    assert turn_coarsely(torch.asarray(A), torch.asarray(angles)) is None
    assert turn_coarsely(torch.asarray(A), torch.asarray(np.full((30, 30), np.nan))) is None


@pytest.mark.parametrize("loud", [False, True])
def test_passes_over_a_whitened_copy_are_those_over_the_samples(torch, rng, loud):
    mixing = rng.standard_normal((12, 12))
    X = make_bernoulli_gaussian(3000, 12, density=0.2, random_state=0)[0] @ mixing + 2.0
    samples = ArrayDataset(torch.asarray(X))
    statistics = compute_statistics(samples, center=True, precise=True)
    whitening = Whitening.of(statistics, center=True, whiten=True)
    copied = whiten_on_card(samples, whitening)
    assert is_white(copied)
    assert not is_white(samples)
    np.testing.assert_allclose(np.cov(to_numpy(copied.X).T, bias=True), np.eye(12), atol=1e-10)
    there = whitening.move_to(samples.backend)
    if loud:
        there = replace(there, loudness=Loudness.of(copied.X))
    A = torch.asarray(random_orthonormal(12, 12, rng))
    wanted = Quantities.GRADIENT | Quantities.MOMENTS
    one, two = (evaluate(each, there, Lp(3.0), A, wanted, "float64") for each in (samples, copied))
    for name in ("value", "G", "slope", "g2", "z2"):
        np.testing.assert_allclose(to_numpy(getattr(two, name)), to_numpy(getattr(one, name)), rtol=1e-9, atol=1e-9)
    again = copy_white(copied, there)  # normalised, if asked
    three = evaluate(again, Whitening(1.0, None, None, None, whitened=False), Lp(3.0), A, wanted, "float64")
    np.testing.assert_allclose(to_numpy(three.G), to_numpy(one.G), rtol=1e-9, atol=1e-9)


def test_samples_that_are_not_whitened_or_are_on_the_host_are_not_copied(easy, torch):
    for X, whiten in ((torch.asarray(easy[0].copy()), False), (easy[0], True)):
        samples = ArrayDataset(X)
        statistics = compute_statistics(samples, center=True, precise=True)
        whitening = Whitening.of(statistics, center=True, whiten=whiten)
        assert whiten_on_card(samples, whitening) is samples


@pytest.mark.parametrize("why", ["memory", "half precision"])
def test_a_copy_that_is_too_large_is_not_made(easy, torch, monkeypatch, why):
    X = torch.asarray(easy[0].copy())
    samples = ArrayDataset(X.half() if why == "half precision" else X)
    statistics = compute_statistics(samples, center=True, precise=True)
    whitening = Whitening.of(statistics, center=True, whiten=True)
    assert is_white(whiten_on_card(samples, whitening)) == (why == "memory")
    if why == "memory":
        monkeypatch.setattr(Backend, "memory_bytes", 2**10)
    assert whiten_on_card(samples, whitening) is samples


@pytest.mark.parametrize(("condition", "bears"), [(1.0, True), (30.0, False), (1000.0, False)])
def test_fast_products_whiten_only_what_they_do_not_round_away(condition, bears):
    """A blur of 40 / 4 x 1000 = .01 bears a rounding of 2e-7 condition^2 up to a condition number of 22."""
    rows = np.linspace(1.0, condition, 40)[:, None] * np.eye(40)
    whitening = Whitening(1.0, None, rows, 1 / np.diag(rows)[:, None] * np.eye(40), whitened=True)
    assert whitening.bears_fast_products(1000) is bears
    assert not Whitening(1.0, None, rows, rows, whitened=False).bears_fast_products(1000)


@pytest.mark.parametrize("n", [5, 8, 11])
def test_half_of_a_symmetric_product_tells_the_other(torch, rng, monkeypatch, n):
    monkeypatch.setattr(matrices, "STRIP_COLUMNS", 2)
    Y = rng.standard_normal((30, n))
    np.testing.assert_allclose(to_numpy(multiply_by_itself(torch.asarray(Y))), Y.T @ Y, rtol=1e-13, atol=1e-13)


def test_rows_are_taken_where_they_are(torch, rng):
    A, index = rng.standard_normal((7, 3)), np.array([6, 0, 2])
    assert isinstance(take_rows(torch.asarray(A), index), torch.Tensor)
    for array in (A, torch.asarray(A)):
        np.testing.assert_array_equal(to_numpy(take_rows(array, index)), A[index])


def test_some_rows_are_rotated_and_all_others_stay(torch, rng):
    A, which = random_orthonormal(9, 9, rng), np.array([1, 4, 8])
    others = np.setdiff1d(np.arange(9), which)
    here, there = (to_numpy(rotate_rows(each, which, np.random.default_rng(1))) for each in (A, torch.asarray(A)))
    for rotated in (here, there):
        np.testing.assert_array_equal(rotated[others], A[others])
        np.testing.assert_allclose(rotated @ rotated.T, np.eye(9), atol=1e-12)
        np.testing.assert_allclose(rotated[which].T @ rotated[which], A[which].T @ A[which], atol=1e-12)
    np.testing.assert_allclose(here, there, atol=1e-12)


def test_batches_grow_to_what_costs_a_card_nothing(torch, easy, monkeypatch):
    monkeypatch.setattr(subsample, "MIN_SUBSAMPLE_ROWS", 10)
    X = np.tile(easy[0], (4, 1))  # 16000 samples of 12 features
    host, card = (Subsampler(ArrayDataset(each), np.random.default_rng(0)) for each in (X, torch.asarray(X)))
    assert (host.grow_batch(100), host.are_small(100)) == (200, False)
    assert (card.grow_batch(100), card.are_small(100)) == (2 * 16000 // 3 // 3, True)
    assert (card.grow_batch(5000), card.are_small(5000)) == (10000, False)


@pytest.mark.parametrize("condition", [3.0, 300.0])
def test_coarse_fits_of_whitened_samples_are_as_exact_as_those_of_the_host(torch, monkeypatch, condition):
    """With minibatches and coarse steps from the start; samples vary in some directions 300 times as much."""
    monkeypatch.setattr(subsample, "MIN_BATCH_WORK", 0.0)
    monkeypatch.setattr(directions, "MIN_COARSE", 2)
    X, dictionary, _ = make_bernoulli_gaussian(20_000, 20, density=0.15, random_state=0)
    stretch = np.random.default_rng(1).permutation(np.geomspace(1, condition, 20))
    X = (X @ dictionary.T * stretch) @ random_orthonormal(20, 20, np.random.default_rng(2))
    atoms = stretch[:, None] * random_orthonormal(20, 20, np.random.default_rng(2))
    errors = []
    for samples in (X.astype(np.float32), torch.asarray(X.astype(np.float32))):
        model = LpDictionaryLearning(center=True, whiten=True, random_state=0).fit(samples)
        # sources, which do not depend on how far features vary, by their rows of the unmixing
        gains = to_numpy(model.unmixing_) @ atoms.T
        errors.append(np.mean(1 - np.max(gains**2, axis=1) / np.sum(gains**2, axis=1)))
    assert errors[1] == pytest.approx(errors[0], rel=0.01, abs=1e-6)
    # of whitening by the sample covariance: each code has 19 others with a variance of 1 / 4r
    assert errors[0] < 3 * 19 / (4 * len(X))
