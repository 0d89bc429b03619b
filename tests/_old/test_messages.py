"""Message passing: what it takes for corruption, against the truth and against brute force."""

import numpy as np
import pytest

from elldict._old.backend.base import BufferedWork, FreshWork
from elldict._old.solver.amp import CorruptionLaw, ExtrinsicDenoiser, clean, compute_schedule, first_residual, learn_law
from elldict.datasets import make_bernoulli_gaussian


@pytest.fixture(scope="module")
def corrupted():
    """Samples, clean samples, atoms, and the law they were drawn from."""
    setting = {"density": 0.2, "random_state": 0}
    X, dictionary, _ = make_bernoulli_gaussian(2000, 24, corruption=1.0, corruption_rate=0.05, **setting)
    law = CorruptionLaw(np.full(24, 0.2), np.ones(24), 0.05, 1.0, 1e-12, 1e-18)
    codes = make_bernoulli_gaussian(2000, 24, **setting)[2]
    return X, codes @ dictionary, dictionary, law


def test_cleaning_with_the_true_law_finds_the_clean_samples(corrupted):
    X, truth, A, law = corrupted
    exchange = compute_schedule(X, A, law)
    found = clean(X, A.T, exchange.rounds, FreshWork(), np)
    off = np.max(np.abs(found - truth), axis=1)
    assert np.mean(off < 1e-2) > 0.7  # a sample with very many hits cannot be told from one with many codes
    assert np.median(off) < 1e-5
    assert exchange.blur < 1e-8


def test_the_law_is_learned_from_a_poor_guess(corrupted):
    X, _, A, law = corrupted
    found = learn_law(X, A, CorruptionLaw.guess(24, 1e-18), 40)
    assert found.rate == pytest.approx(law.rate, rel=0.25)
    assert np.mean(found.density) == pytest.approx(0.2, rel=0.1)
    assert found.size == pytest.approx(1.0, rel=0.25)


def test_replayed_rounds_do_not_depend_on_unit_buffers_or_tiles(corrupted):
    X, _, A, law = corrupted
    rounds = compute_schedule(X, A, law).rounds
    whole = clean(X, A.T, rounds, FreshWork(), np)
    scaled = clean(1000 * X, A.T / 1000, rounds, FreshWork(), np)
    np.testing.assert_allclose(scaled, 1000 * whole, atol=1e-7)
    work = BufferedWork()
    parts = [clean(X[rows], A.T, rounds, work, np).copy() for rows in (slice(0, 700), slice(700, 2000))]
    np.testing.assert_allclose(np.concatenate(parts), whole, atol=1e-9)


def test_without_corruption_cleaning_changes_nothing():
    X, dictionary, _ = make_bernoulli_gaussian(500, 8, density=0.3, noise_std=0.3, random_state=0)
    law = CorruptionLaw(np.full(8, 0.3), np.ones(8), 1e-12, 1e-6, 0.09, 1e-18)
    exchange = compute_schedule(X, dictionary, law)
    np.testing.assert_allclose(clean(X, dictionary.T, exchange.rounds, FreshWork(), np), X, atol=1e-4)
    assert exchange.blur == pytest.approx(0.09, rel=1e-3)


def test_a_gate_is_the_extrinsic_posterior_mean():
    """What is behind z, by quadrature over both Gaussians: the gate times variances must give it back."""
    density, wide, blur, z = 0.3, 2.0, 0.5, 1.3
    law = CorruptionLaw(np.array([density]), np.array([wide]), 0.1, 1.0, 0.1, 1e-18)
    rest = first_residual(np.array([[z]]), np.eye(1), law.law_of_codes(blur))[0, 0]
    x = np.linspace(-20, 20, 200_001)
    active = density * np.exp(-(x**2) / (2 * wide)) / np.sqrt(2 * np.pi * wide)
    seen = np.exp(-((z - x) ** 2) / (2 * blur))
    spike = (1 - density) * np.exp(-(z**2) / (2 * blur)) / (x[1] - x[0])
    mass = np.sum(active * seen) + spike
    mean = np.sum(x * active * seen) / mass
    variance = np.sum(x**2 * active * seen) / mass - mean**2
    variance = min(variance, 0.98 * blur)
    sent = 1 / (1 / variance - 1 / blur)
    assert z - rest == pytest.approx(sent * (mean / variance - z / blur), rel=1e-6)


def test_a_gate_in_another_unit_is_the_same_gate():
    gate = ExtrinsicDenoiser(0.2, 0.5, -1.0, 3.0)
    z = np.linspace(-2, 2, 11)[:, None]
    whole = gate(z, FreshWork(), np, into="x")
    np.testing.assert_allclose(gate.in_unit(10.0)(z / 10, FreshWork(), np, into="x"), whole / 10)
