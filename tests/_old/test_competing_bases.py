"""Large errors in a few entries make these the sparsest basis: samples are cleaned, or bases are said to compete."""

from __future__ import annotations

import math
import warnings
from typing import Any

import numpy as np
import pytest
import scipy.linalg
from numpy.typing import NDArray

from elldict import LpDictionaryLearning
from elldict._old import competing_bases
from elldict._old.competing_bases import lies_along_entries, may_be_hit, measure_differences
from elldict._old.solver.amp import CorruptionLaw, measure_evidence
from elldict._old.solver.corruption import has_light_entries, limit_entries
from elldict._old.solver.law_tests import score_laws
from elldict._old.solver.rounding import add_rounding_errors, is_coarse
from elldict.datasets import make_bernoulli_gaussian
from elldict.exceptions import NotIdentifiableWarning
from elldict.metrics import recovery_error

Matrix = NDArray[np.float64]

CORRUPTIONS = [(0.01, 50.0), (0.05, 2.0), (0.05, 10.0), (0.1, 2.0), (0.1, 5.0)]
"""Share of entries that are hit, and size, in standard deviations of an active code."""


def draw(rate: float, size: float, r: int = 4000, n: int = 16, **options: Any) -> tuple[Matrix, Matrix]:
    options = {"density": 0.2, "noise_std": 0.1, "random_state": 0, **options}
    X, atoms, _ = make_bernoulli_gaussian(r, n, corruption=size, corruption_rate=rate, **options)
    return X, atoms


def fit_quietly(X: Matrix, **options: Any) -> LpDictionaryLearning:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        return LpDictionaryLearning(random_state=0, **options).fit(X)


@pytest.mark.parametrize(("rate", "size"), CORRUPTIONS)
def test_fault_37_samples_with_large_errors_in_a_few_entries_are_cleaned(rate: float, size: float) -> None:
    X, atoms = draw(rate, size)
    model = fit_quietly(X)
    error = recovery_error(model.components_, atoms)
    assert model.refined_ == "sparse-corruption"
    assert error < 2e-3
    # the error is a mean over 120 angles: a factor 2 is more than five standard deviations
    assert error / 2 < model.expected_error_ < 2 * error
    assert rate / 2 < model.corruption_rate_ < 2 * rate


@pytest.mark.parametrize(("rate", "size"), CORRUPTIONS)
def test_hit_entries_have_heavier_tails_than_other_directions(rate: float, size: float) -> None:
    hit, plain = draw(rate, size)[0], draw(0.0, 0.0)[0]
    assert may_be_hit(hit)
    assert not may_be_hit(plain)
    loud = plain * np.exp(np.random.default_rng(1).standard_normal((len(plain), 1)))
    assert not may_be_hit(loud)
    assert not has_light_entries(hit, np.random.default_rng(0))


def test_entries_that_are_sums_of_all_codes_are_light_and_none_was_hit() -> None:
    """Each is a sum of all n codes, of kurtosis k, and has k / n; other directions have 3 k / (n + 2) in the mean."""
    rng, n = np.random.default_rng(0), 16
    codes = rng.standard_normal((4000, n)) * (rng.random((4000, n)) < 0.1)
    X = codes @ scipy.linalg.hadamard(n) / math.sqrt(n)
    assert has_light_entries(X, np.random.default_rng(0))
    assert not may_be_hit(X)
    X[:, 0] = 1.0  # tails of an entry that is constant tell nothing
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert not has_light_entries(X, np.random.default_rng(0))
        assert may_be_hit(X)


@pytest.mark.parametrize("refine", ["auto", "sparse-corruption"])
def test_rare_and_large_hits_are_seen_before_codes_explain_them(refine: str) -> None:
    X, atoms = draw(0.01, 5.0)
    model = fit_quietly(X, refine=refine)
    assert recovery_error(model.components_, atoms) < 2 * model.expected_error_
    assert 0.005 < model.corruption_rate_ < 0.02


def test_fault_37_two_bases_compete_if_cleaning_does_not_explain_samples(monkeypatch: pytest.MonkeyPatch) -> None:
    X, atoms = draw(0.05, 10.0)
    monkeypatch.setattr(competing_bases, "MIN_GAIN", math.inf)
    with pytest.warns(NotIdentifiableWarning, match=r"Two bases compete.*refine='sparse-corruption'"):
        model = LpDictionaryLearning(random_state=0).fit(X)
    error = recovery_error(model.components_, atoms)
    assert error > 0.5
    assert error / 2 < model.expected_error_ <= 1
    assert np.all(model.atom_error_ > 0.25)


@pytest.mark.parametrize("noise", [0.0, 0.1, 0.3])
@pytest.mark.parametrize("density", [0.1, 0.3])
def test_features_that_are_sparse_themselves_stay_the_atoms(density: float, noise: float) -> None:
    rng = np.random.default_rng(1)
    codes = rng.standard_normal((4000, 16)) * (rng.random((4000, 16)) < density)
    model = fit_quietly(codes + noise * rng.standard_normal(codes.shape))
    error = recovery_error(model.components_, np.eye(16))
    assert model.refined_ != "sparse-corruption"
    assert error < 2 * model.expected_error_ + 1e-12
    assert model.expected_error_ < 0.03


def test_rare_spikes_on_samples_that_differ_in_loudness_have_no_competing_basis() -> None:
    rng = np.random.default_rng(0)
    shape = (5000, 16)
    spikes = 30 * rng.standard_normal(shape) * (rng.random(shape) < 0.02)
    X = spikes + rng.standard_normal(shape) * np.exp(0.5 * rng.standard_normal((shape[0], 1)))
    model = fit_quietly(X)
    assert recovery_error(model.components_, np.eye(16)) < 2 * model.expected_error_
    assert model.expected_error_ < 0.05


@pytest.mark.parametrize("law", ["laplace", "t"])
def test_features_with_heavy_tails_stay_the_atoms(law: str) -> None:
    rng = np.random.default_rng(2)
    X = rng.laplace(size=(5000, 12)) if law == "laplace" else rng.standard_t(3, size=(5000, 12))
    model = fit_quietly(X)
    assert model.refined_ != "sparse-corruption"
    assert model.expected_error_ < 0.03
    assert recovery_error(model.components_, np.eye(12)) < 2 * model.expected_error_


def test_loud_samples_of_codes_without_noise_are_not_taken_for_corrupted_ones() -> None:
    X, atoms = draw(0.0, 0.0, noise_std=0.0, r=8000)
    X *= np.exp(np.random.default_rng(0).standard_normal((len(X), 1)))
    model = fit_quietly(X)
    assert model.refined_ != "sparse-corruption"
    assert recovery_error(model.components_, atoms) < 2 * model.expected_error_


@pytest.mark.parametrize("size", [0.01, 0.05])
@pytest.mark.parametrize("seed", [0, 1])
def test_cauchy_noise_in_some_samples_never_makes_a_fit_claim_to_be_exact(size: float, seed: int) -> None:
    rng = np.random.default_rng(seed)
    X, atoms, _ = make_bernoulli_gaussian(3000, 16, density=0.2, noise_std=0.1, random_state=seed)
    hit = rng.random(len(X)) < size
    X[hit] += rng.standard_cauchy((np.count_nonzero(hit), 16))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = LpDictionaryLearning(random_state=seed).fit(X)
    assert model.expected_error_ > recovery_error(model.components_, atoms) / 2


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_fault_35_coarsely_rounded_samples_are_not_taken_for_corrupted_ones(seed: int) -> None:
    """Errors are means over 190 angles, known to 10 %: 1.25 and 2 are more than two and seven times that."""
    X, atoms, _ = make_bernoulli_gaussian(8000, 20, density=0.3, random_state=seed)
    X = np.round(X)
    model, plain, power = fit_quietly(X), fit_quietly(X, refine=None), fit_quietly(X, refine=None, solver="power")
    assert model.refined_ != "sparse-corruption"
    for each in (plain, power):
        assert recovery_error(model.components_, atoms) < 1.25 * recovery_error(each.components_, atoms)
    for each in (model, plain, power):
        error = recovery_error(each.components_, atoms)
        assert error / 2 < each.expected_error_ < 2 * error


def test_only_coarse_rounding_changes_error_bars() -> None:
    fine = np.round(np.random.default_rng(0).standard_normal(4000), 1)
    coarse, errors = np.round(fine), np.array([1e-3, 0.5, 1.0])
    assert is_coarse(coarse)
    assert not is_coarse(fine)
    for values in (fine, np.zeros(10)):
        assert np.array_equal(add_rounding_errors(errors, values), errors)
    expected = [1e-3 * (1 + 0.75 / np.var(coarse)), 0.51, 1.0]
    assert add_rounding_errors(errors, coarse) == pytest.approx(expected)


def test_evidence_is_for_corruption_where_there_is_some_and_against_it_elsewhere() -> None:
    law = CorruptionLaw(np.full(16, 0.2), np.full(16, 1.0), 0.05, 25.0, 0.01, 1e-18)
    X, atoms = draw(0.05, 5.0)
    assert measure_evidence(X, atoms, law) > score_laws(X, atoms) + 0.5
    X, atoms = draw(0.0, 0.0)
    assert measure_evidence(X, atoms, law) < score_laws(X, atoms)


def test_evidence_of_codes_without_corruption_is_their_log_density() -> None:
    X, atoms = draw(0.0, 0.0)
    law = CorruptionLaw(np.full(16, 0.2), np.full(16, 1.0), 1e-6, 25.0, 0.01, 1e-18)
    Z = X @ atoms.T
    # zero or Gaussian codes, seen through noise of variance 0.01
    density = 0.8 * np.exp(-(Z**2) / 0.02) / math.sqrt(0.02 * math.pi)
    density += 0.2 * np.exp(-(Z**2) / 2.02) / math.sqrt(2.02 * math.pi)
    expected = float(np.mean(np.sum(np.log(density), axis=1)))
    # messages end when their variance changes by less than 3 %, of which an entry notices less than 0.01 nats
    assert measure_evidence(X, atoms, law) == pytest.approx(expected, abs=0.16)


def test_evidence_refuses_a_law_whose_noise_is_not_what_codes_show() -> None:
    X, _ = draw(0.05, 50.0)
    law = CorruptionLaw(np.full(16, 1e-3), np.full(16, 1e3), 4e-3, 100.0, 1e-18, 1e-18)
    assert measure_evidence(X, np.eye(16), law) == -math.inf


def test_limited_entries_are_those_beyond_three_robust_standard_deviations() -> None:
    X = np.random.default_rng(0).standard_normal((2000, 3))
    X[::50, 1] += 100
    limited = limit_entries(X)
    assert limited is not None
    changed = limited != X
    assert np.all(changed[::50, 1])
    assert np.mean(changed[:, [0, 2]]) < 0.006  # 0.0027 of Gaussian values
    assert np.max(np.abs(limited)) < 3.5
    X[:1500, 0] = 0.0
    assert limit_entries(X) is None


def test_atoms_along_the_entries_are_recognised() -> None:
    turned = np.linalg.qr(np.random.default_rng(0).standard_normal((8, 8)))[0]
    assert lies_along_entries(np.eye(8)[::-1])
    assert not lies_along_entries(turned)
    assert np.allclose(measure_differences(turned, turned), 0)
    assert np.mean(measure_differences(np.eye(8), turned)) > 0.5


def test_a_stop_while_samples_are_cleaned_keeps_what_was_found_before() -> None:
    X, _ = draw(0.05, 10.0)
    stages = [each.stage for each in fit_quietly(X).history_]

    def stop(iteration: Any) -> bool:
        return bool(iteration.stage == max(stages))

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = LpDictionaryLearning(random_state=0).fit(X, callback=stop)
    assert model.refined_ != "sparse-corruption"
    assert not model.converged_
    assert "stopped" in model.status_
