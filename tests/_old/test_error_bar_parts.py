"""Parts of the error bar, each beside what mathematics says of it."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.linalg import sqrtm
from scipy.signal import lfilter

from elldict import LpDictionaryLearning
from elldict._old.checkpoint import CheckpointError
from elldict._old.data.dataset import ArrayDataset
from elldict._old.data.statistics import compute_statistics
from elldict._old.data.whitening import Whitening
from elldict._old.diagnostics import score_of_rotation
from elldict._old.error_bars import bias, halves
from elldict._old.error_bars.samples import (
    N_RUNS,
    RUN_ROWS,
    Dependence,
    measure_repeat_inflation,
    measure_serial_dependence,
)
from elldict._old.error_bars.total import estimate_errors
from elldict._old.estimation import Search
from elldict._old.result import Estimate
from elldict._old.solver.directions import random_orthonormal
from elldict._old.solver.loop import FitLog
from elldict._old.solver.objective import Lp
from elldict._old.solver.spike_slab import SpikeSlab
from elldict.metrics import recovery_error

Matrix = NDArray[np.float64]


# --- samples that depend on each other --------------------------------------------------------------------------------


def measure_dependence_of(codes: Matrix) -> Dependence:
    """That of samples whose atoms are the entries, for l_4: g = z^3, up to a factor."""
    stats: Any = SimpleNamespace(signs=None)
    estimate = Estimate(np.eye(codes.shape[1]), Lp(4.0), stats, True, False, "")
    return measure_serial_dependence(ArrayDataset(codes), Whitening(1.0, None, None, None, False), estimate)


def draw_series(r: int, n: int, coefficient: float, rng: np.random.Generator) -> Matrix:
    """Stationary Gaussian AR(1) series of unit variance."""
    innovations = math.sqrt(1 - coefficient**2) * rng.standard_normal((r + 500, n))
    return np.asarray(lfilter([1.0], [1.0, -coefficient], innovations, axis=0)[500:])


LONG = 4 * N_RUNS * RUN_ROWS
"""Samples of which runs are as long as they get."""


@pytest.mark.parametrize("coefficient", [0.8, 0.9])
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_neighbours_that_are_alike_inflate_variances_as_an_autoregressive_series_does(
    coefficient: float, seed: int
) -> None:
    """u = z_i^3 z_j - z_j^3 z_i of Gaussian series of correlation c = coefficient^k at lag k.

    E z^3 z'^3 = 9 c + 6 c^3 and E z^3 z' = 3 c, so that E u u' = 2 (9 c + 6 c^3) c - 2 (3 c)^2 = 12 c^4: u is
    correlated as a series of coefficient a = coefficient^4, and sums over long runs have (1 + a) / (1 - a) times the
    variance of independent ones; over L samples, 1 + 2 sum (1 - k / L) a^k. The mean square of 1920 Gaussian sums would
    scatter by sqrt(2 / 1920) = 3 %; these are of few heavy-tailed terms: 5 % over 40 seeds, and bounds are four times
    that.
    """
    a, lags = coefficient**4, np.arange(1, RUN_ROWS)
    expected = 1 + 2 * float(np.sum((1 - lags / RUN_ROWS) * a**lags))
    assert expected == pytest.approx((1 + a) / (1 - a), rel=0.03)
    found = measure_dependence_of(draw_series(LONG, 16, coefficient, np.random.default_rng(seed)))
    assert found.inflation == pytest.approx(expected, rel=0.2)
    assert not found.drifts


@pytest.mark.parametrize("seed", range(5))
def test_independent_samples_are_not_taken_to_depend_on_each_other(seed: int) -> None:
    """The mean square of 1920 sums is known to sqrt(2 / 1920) = 3 %: 15 % is five times that."""
    assert measure_dependence_of(draw_series(LONG, 16, 0.0, np.random.default_rng(seed))) == Dependence()


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_pairs_that_have_turned_halfway_are_a_drift_of_known_size(seed: int) -> None:
    """Turned by t, u of two codes of fourth cumulant k has the mean (k / 2) sin 4t, up to its sign.

    Over runs of L the squared sum, in units of E u^2, is one, and L (E u)^2 / E u^2 more, for 8 of 120 pairs that turn.
    For codes uniform in (-1, 1), k = 1/5 - 3/9. Of 128 sums of mean m and unit variance, m^2 about 22, the mean square
    scatters by sqrt((2 + 4 m^2) / 128), 4 % of it, as over 20 seeds: bounds are four times that.
    """
    one, other = np.random.default_rng(seed).uniform(-1, 1, (2, LONG, 8))
    angles = np.where(np.arange(LONG) < LONG // 2, -0.2, 0.2)[:, None]
    x, y = np.cos(angles) * one - np.sin(angles) * other, np.sin(angles) * one + np.cos(angles) * other
    power = float(np.mean((x**3 * y - y**3 * x) ** 2))
    found = measure_dependence_of(np.hstack([x, y]))
    assert found.drifts
    expected = 8 / 120 * RUN_ROWS * (math.sin(0.8) / 15) ** 2 / power
    assert found.inflation - 1 == pytest.approx(expected, rel=0.16)


def test_three_copies_of_each_sample_are_three() -> None:
    X = np.random.default_rng(0).standard_normal((2000, 4))
    copies = np.repeat(X, 3, axis=0)
    assert measure_repeat_inflation(copies, 6000) == pytest.approx(3, rel=1e-12)
    assert measure_repeat_inflation(X, 2000) == 1
    # samples that are zero are equal and say nothing; values that are few are equal by chance
    with_zeros = np.vstack([copies, np.zeros((500, 4))])
    assert measure_repeat_inflation(with_zeros, 6500) == pytest.approx(3, rel=1e-12)
    assert measure_repeat_inflation(np.round(X), 2000) == 1


@pytest.mark.parametrize("seed", range(4))
def test_copies_are_counted_by_those_that_are_drawn_together(seed: int) -> None:
    """Of b of 60 000 samples b^2 / 60 000 = 1067 pairs are equal in the mean, a Poisson number: known to 3 %."""
    rng = np.random.default_rng(seed)
    index = rng.choice(60_000, 8000, replace=False) // 3
    rows = rng.standard_normal((20_000, 3))[index]
    assert measure_repeat_inflation(rows, 60_000) == pytest.approx(3, abs=2 * 4 * 0.031)


# --- what no number of samples removes --------------------------------------------------------------------------------


@pytest.mark.parametrize("q", [2, 3, 8, 20])
def test_atoms_that_are_turned_at_random_have_the_error_of_a_rotation(q: int) -> None:
    rng = np.random.default_rng(0)
    errors = [recovery_error(random_orthonormal(q, q, rng), np.eye(q)) for _ in range(2000)]
    assert np.mean(errors) == pytest.approx(score_of_rotation(q), abs=5 * np.std(errors) / math.sqrt(2000))


def make_noisy(kept: int | None, share: float) -> tuple[Estimate, Whitening, Any, Matrix]:
    """Whitened samples of five features, orthonormal rows in them, codes of which a share is noise; and X."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((2000, 5)) * np.array([3.0, 2.0, 1.5, 0.5, 0.3]) @ random_orthonormal(5, 5, rng)
    X -= np.mean(X, axis=0)
    statistics = compute_statistics(ArrayDataset(X), center=True, precise=True)
    whitening = Whitening.of(statistics, center=True, whiten=True, n_components=kept)
    k = kept or 5
    law = SpikeSlab(np.full(k, 0.2), np.full(k, 5 * (1 - share)), share)
    nothing: Any = None
    A = random_orthonormal(k, k, rng)
    return Estimate(A, nothing, nothing, True, False, "", law=law), whitening, statistics, X


def turn_by_noise(atoms: Matrix, S: Matrix, v: float) -> Matrix:
    """Errors 1 - cos^4 between atoms S^1/2 a and (S - v)^1/2 a."""
    values, vectors = np.linalg.eigh(S)
    span = vectors[:, values > v]
    inside = span @ span.T
    before, after = (np.real(sqrtm(inside @ (S - size * np.eye(len(S))) @ inside)) for size in (0.0, v))
    better = atoms @ np.linalg.pinv(before) @ after
    cosines = np.sum(atoms * better, axis=1) / np.linalg.norm(atoms, axis=1) / np.linalg.norm(better, axis=1)
    return np.asarray(1 - cosines**4)


@pytest.mark.parametrize("share", [0.01, 0.1, 0.2])
def test_noise_of_codes_turns_whitened_atoms_as_roots_of_matrices_say(share: float) -> None:
    """White noise of variance v is v a^T S^-1 a of a code of unit variance; in the mean over a basis, v tr S^-1 / n."""
    estimate, whitening, statistics, X = make_noisy(None, share)
    S = X.T @ X / len(X)
    v = share * 5 / float(np.trace(np.linalg.inv(S)))
    expected = turn_by_noise(whitening.components(estimate.A), S, v)
    found = bias.estimate_noise_errors(estimate, whitening, statistics)
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-12)


def test_noise_of_discarded_directions_turns_atoms_as_roots_of_matrices_say() -> None:
    estimate, whitening, statistics, X = make_noisy(3, 0.0)
    S = X.T @ X / len(X)
    v = float(np.mean(np.linalg.eigvalsh(S)[:2]))
    values, vectors = np.linalg.eigh(S)
    kept = vectors[:, 2:] @ np.diag(values[2:]) @ vectors[:, 2:].T
    expected = turn_by_noise(whitening.components(estimate.A), kept, v)
    found = bias.estimate_noise_errors(estimate, whitening, statistics)
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-12)


def test_noise_that_no_law_tells_turns_nothing() -> None:
    """Small values of codes that are active in more than a third of the samples, as Laplace ones, are no noise."""
    estimate, whitening, statistics, _ = make_noisy(None, 0.0)
    assert bias.estimate_noise_errors(estimate, whitening, statistics) is None
    dense = SpikeSlab(np.full(5, 0.45), np.full(5, 2.0), 0.1)
    of_dense = Estimate(estimate.A, estimate.objective, estimate.stats, True, False, "", law=dense)
    assert bias.estimate_noise_errors(of_dense, whitening, statistics) is None


@pytest.mark.parametrize("limit", [0.8, 1.5, 2.0, 3.0])
def test_the_limit_that_lowers_kurtoses_by_as_much_is_found(limit: float) -> None:
    rows = np.random.default_rng(0).laplace(size=(5000, 3)) * np.array([1.0, 5.0, 0.01])
    X = rows / np.std(rows, axis=0)

    def kurtosis(values: Matrix) -> float:
        return float(np.mean(np.mean(values**4, axis=0) / np.mean(values**2, axis=0) ** 2))

    lost = kurtosis(X) - kurtosis(np.clip(X, -limit, limit))
    # 20 halvings of 5.7 standard deviations
    assert bias._find_limit(rows, lost) == pytest.approx(limit, abs=2e-5)


def test_kurtoses_of_features_are_what_those_of_independent_codes_sum_up_to() -> None:
    """For any mixing; but for chance: the score is a mean of squares of standard scores, about one."""
    rng = np.random.default_rng(0)
    A = random_orthonormal(8, 8, rng)
    rows = rng.laplace(size=(8000, 8)) @ A
    assert bias._measure_lost_kurtosis(rows, A) is None
    unit = np.std(rows)
    lost = bias._measure_lost_kurtosis(np.clip(rows, -2 * unit, 2 * unit), A)
    assert lost is not None
    assert lost > 0.1


# --- halves -----------------------------------------------------------------------------------------------------------


def search_atoms(X: Matrix, **options: Any) -> Any:
    log = FitLog()
    search = Search.begin(ArrayDataset(X), LpDictionaryLearning(halves=False, **options)._options(), log)
    return search.run(np.random.default_rng(0), log)


def test_halves_of_independent_codes_say_what_the_formula_says() -> None:
    """Each of six comparisons is a mean over 120 squared angles: sqrt(2 / 720) = 5 %, bounds are three times that."""
    by_halves, by_formula = [], []
    for seed in range(6):
        rng = np.random.default_rng(seed)
        found = search_atoms(rng.laplace(size=(8000, 16)) @ random_orthonormal(16, 16, rng), refine=None)
        compared = halves.compare_halves(found, None, FitLog())
        assert compared is not None
        by_halves.append(np.mean(compared))
        by_formula.append(np.mean(estimate_errors(found, None, FitLog()).atoms))
    assert np.mean(by_halves) == pytest.approx(np.mean(by_formula), rel=0.16)


def test_halves_of_too_few_samples_say_nothing() -> None:
    X = np.random.default_rng(0).laplace(size=(30, 8))
    assert halves.compare_halves(search_atoms(X, refine=None), None, FitLog()) is None


def test_groups_stay_in_one_half_of_a_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    rng, seen = np.random.default_rng(0), []
    X, groups = rng.laplace(size=(2000, 6)), rng.integers(0, 11, 2000)
    take_half = halves.take_half

    def note(samples: Any, index: Any) -> Any:
        seen.append(index)
        return take_half(samples, index)

    monkeypatch.setattr(halves, "take_half", note)
    grouped = LpDictionaryLearning(random_state=0).fit(X, groups=groups)
    one, other = seen[:2]
    for again in range(2, len(seen), 2):  # halves that agree are fitted roughly first, and then to the end
        np.testing.assert_array_equal(seen[again], one)
        np.testing.assert_array_equal(seen[again + 1], other)
    n_taken = len(seen)
    assert len(one) + len(other) == 2000
    assert not set(groups[one]) & set(groups[other])
    alone = LpDictionaryLearning(random_state=0, halves=False).fit(X, groups=groups)
    assert len(seen) == n_taken
    np.testing.assert_array_equal(grouped.components_, alone.components_)


def test_a_checkpoint_is_that_of_its_groups(tmp_path: Any) -> None:
    rng = np.random.default_rng(0)
    X, groups, path = rng.laplace(size=(2000, 6)), rng.integers(0, 11, 2000), tmp_path / "fit.checkpoint"

    def interrupt(iteration: Any) -> None:
        if iteration.passes > 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        LpDictionaryLearning(random_state=0).fit(X, groups=groups, checkpoint=path, callback=interrupt)
    for others in (None, 10 - groups):
        with pytest.raises(CheckpointError, match="checkpoint of another fit: it has groups"):
            LpDictionaryLearning(random_state=0).fit(X, groups=others, checkpoint=path, resume=True)
    resumed = LpDictionaryLearning(random_state=0).fit(X, groups=groups, checkpoint=path, resume=True)
    whole = LpDictionaryLearning(random_state=0).fit(X, groups=groups)
    np.testing.assert_array_equal(resumed.atom_error_, whole.atom_error_)
