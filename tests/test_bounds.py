"""The paper's constants against what they are said to bound."""

import math

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.optimize import linear_sum_assignment

from elldict import theory

EXPONENTS = [2.1, 2.5, 3, 4, 5.5, 8]
NOISES = [0.0, 0.3, 1.0, 3.0]


@pytest.mark.parametrize("p", EXPONENTS)
@pytest.mark.parametrize("noise_std", [*NOISES, 100.0])
def test_noise_gap_is_a_second_difference(p, noise_std):
    """f(1) - 2 f(1/2) + f(0) = int min(w, 1-w) f''(w) dw, where nothing cancels."""

    def integrand(w):
        return min(w, 1 - w) * p / 2 * (p / 2 - 1) * (noise_std**2 + w) ** (p / 2 - 2)

    value = sum(quad(integrand, *limits, epsabs=0, epsrel=1e-10)[0] for limits in [(0, 0.5), (0.5, 1)])
    assert theory.noise_gap(p, noise_std) == pytest.approx(value, rel=1e-8)


@pytest.mark.parametrize("p", EXPONENTS)
@pytest.mark.parametrize("noise_std", NOISES)
def test_noise_gap_as_printed(p, noise_std):
    eta2 = noise_std**2
    printed = (1 + eta2) ** (p / 2) + noise_std**p - 2 * (0.5 + eta2) ** (p / 2)
    assert theory.noise_gap(p, noise_std) == pytest.approx(printed, rel=1e-10)
    assert theory.noise_gap(p, 0) == pytest.approx(1 - 2 * 0.5 ** (p / 2), rel=1e-12)


def objective_gap(Q, p, density, noise_std):
    """By how much the rows of Q stay below the maximum of the population objective, over gamma_p."""
    largest = density * (1 + noise_std**2) ** (p / 2) + (1 - density) * noise_std**p
    return largest - theory.expected_power(Q**2, density, p / 2, offset=noise_std**2)


def unit_vectors(n, rng):
    """Directions of all kinds: anywhere, sparse, close to a unit vector."""
    Q = rng.standard_normal((60, n))
    Q[20:40] *= rng.random((20, n)) < 0.3
    Q[20:40, 0] += 1e-3
    Q[40:] *= 10.0 ** rng.uniform(-3, 0, (20, 1))
    Q[40:, 0] += 1
    return Q / np.linalg.norm(Q, axis=1, keepdims=True)


@pytest.mark.parametrize("p", EXPONENTS)
@pytest.mark.parametrize("noise_std", NOISES)
@pytest.mark.parametrize("density", [0.05, 0.5, 0.95])
def test_sharpness_on_the_sphere(p, noise_std, density):
    """min_i ||q -+ e_i||^2 / 2 = 1 - max|q_i|."""
    constant = 1 / (theory.noise_gap(p, noise_std) * density * (1 - density))
    for n in (2, 10):
        Q = unit_vectors(n, np.random.default_rng(n))
        distance = 1 - np.max(np.abs(Q), axis=1)
        gap = objective_gap(Q, p, density, noise_std)
        assert np.all(distance <= constant * gap + 1e-12 * constant * (1 + noise_std**2) ** (p / 2))


@pytest.mark.parametrize("p", EXPONENTS)
@pytest.mark.parametrize("noise_std", [0.0, 1.0])
def test_noise_gap_is_what_halfway_points_say(p, noise_std):
    halfway = np.full((1, 2), math.sqrt(0.5))
    gap = objective_gap(halfway, p, 0.3, noise_std)[0]
    assert gap == pytest.approx(0.3 * 0.7 * theory.noise_gap(p, noise_std), rel=1e-10)


def squared_distance_to_signed_permutations(Q):
    rows, columns = linear_sum_assignment(-np.abs(Q))
    return 2 * len(Q) - 2 * np.sum(np.abs(Q[rows, columns]))


@pytest.mark.parametrize("p", EXPONENTS)
@pytest.mark.parametrize("noise_std", [0.0, 0.5])
@pytest.mark.parametrize("n", [2, 4, 8])
def test_sharpness_on_the_orthogonal_group(p, noise_std, n):
    """In the Frobenius norm; rows may share their nearest unit vector, and do so for wide spread."""
    rng, density = np.random.default_rng(n), 0.3
    constant = 2 * n / (theory.noise_gap(p, noise_std) * density * (1 - density))
    for spread in (0.01, 0.3, 10):
        Q = np.linalg.qr(np.eye(n) + spread * rng.standard_normal((n, n)))[0]
        gap = np.mean(objective_gap(Q, p, density, noise_std))
        assert squared_distance_to_signed_permutations(Q) <= constant * gap * (1 + 1e-9)


@pytest.mark.parametrize("noise_std", NOISES)
def test_recovery_constant_turns_deviation_into_error(noise_std):
    """Sharpness alpha and a deviation delta leave 2 delta / alpha; alpha is per matrix, the error per atom."""
    p, density, n = 3, 0.3, 7
    alpha = theory.gaussian_moment(p) * density * (1 - density) * theory.noise_gap(p, noise_std) / (2 * n)
    assert theory.recovery_constant(p, density, noise_std) == pytest.approx(2 / alpha / n, rel=1e-12)


def test_samples_needed_as_printed():
    n, delta = 50, 0.01
    log_n, common = math.log(n), n * math.log(n / delta) / delta**2
    clean = theory.samples_needed(3, n_features=n, density=0.3, tolerance=delta)
    assert clean == pytest.approx(common * (0.3 * n * log_n**2) ** 1.5, rel=1e-12)
    noisy = theory.samples_needed(3, n_features=n, density=0.3, tolerance=delta, noise_std=0.5)
    gap = 1.25**1.5 + 0.5**3 - 2 * 0.75**1.5
    assert noisy * gap**4 == pytest.approx(common * (1.25 * n * log_n) ** 1.5 * gap**2, rel=1e-10)


@pytest.mark.parametrize("p", [2.1, 3, 3.9, 4])
def test_more_noise_needs_more_samples(p):
    """The reason for dividing by xi^2; above p = 4 the theorem's (1 + eta^2)^(p/2) is too weak for this."""
    numbers = [
        theory.samples_needed(p, n_features=50, density=0.3, tolerance=0.1, noise_std=eta)
        for eta in np.linspace(0.05, 3, 30)
    ]
    assert np.all(np.diff(numbers) > 0)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"p": 2}, "p=2"),
        ({"density": 1}, "density=1"),
        ({"noise_std": -1}, "noise_std=-1"),
        ({"n_features": 1}, "n_features=1"),
        ({"tolerance": 10}, "tolerance=10"),
    ],
)
def test_settings_without_meaning_are_refused(change, message):
    setting = {"p": 3, "n_features": 10, "density": 0.3, "tolerance": 0.1} | change
    with pytest.raises(ValueError, match=message):
        theory.samples_needed(setting.pop("p"), **setting)
