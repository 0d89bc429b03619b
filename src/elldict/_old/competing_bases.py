"""A few large errors in the entries of samples make the entries themselves the sparsest basis: is there another one?

Where atoms lie along the entries, another basis is sought in drawn samples whose entries are limited, which do not show
such errors. If codes in that basis and sparse corruption of the entries explain the samples better than codes along
the entries do, samples are cleaned. If another basis is found and that is not so, two bases compete, and the samples do
not tell which one is meant. Where codes follow no spike-and-slab law, corruption may be the reason too.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from elldict._old.backend.base import Backend, to_numpy
from elldict._old.data.dataset import ArrayDataset
from elldict._old.estimation import Found, Search
from elldict._old.result import Estimate
from elldict._old.solver.amp import CorruptionLaw, measure_evidence
from elldict._old.solver.corruption import (
    SD_PER_DEVIATION,
    SparseCorruption,
    learn_from_limited,
    limit_entries,
    measure_kurtosis,
)
from elldict._old.solver.directions import random_orthonormal
from elldict._old.solver.evaluate import score_sparsity
from elldict._old.solver.hits import learn_hits
from elldict._old.solver.law_tests import VERY_LOUD, has_few_samples, measure_loudness, score_laws, thin
from elldict._old.solver.loop import FitLog, Problem
from elldict._old.solver.refine import Refinement
from elldict._old.solver.schedule import is_exact_estimate
from elldict._old.theory.error_bars import chance_score, sparsity_score

Matrix = NDArray[np.float64]

ALONG, MIN_ALONG = 0.9, 0.5
"""Largest entry from which an atom lies along that entry, and share of the atoms from which all are suspected of it."""

MIN_DISTANCE = 0.25
"""Error that atoms have to have, if those of another basis are true, for the two to differ."""

SURE = 2.0
"""Times the score of chance from which atoms that were sought in limited samples are there. They also have to be
sparser than random directions by that of chance."""

MIN_GAIN = 0.03
"""Nats an entry by which corruption has to explain samples better. Codes of many laws, clipped and rounded entries, and
features of unequal noise reach 0.013; a twentieth of the entries hit by one standard deviation of a code gives 0.06."""

MIN_HIT_POWER = 0.03
"""Share of the power of limited samples that corruption has to have. Without noise, the zeros of codes have a density
without bound: a little corruption that stands for what other codes left in them would seem to explain them better."""

HEAVIER, TAIL_SD = 1.5, 4.0
"""Ratio of excess kurtoses, or of shares of values beyond so many standard deviations, in entries and in other
directions, from which entries may have been hit. Those of a twentieth of the entries hit by one standard deviation of a
code, in eight features, is 2.1; photographs and recordings have 1.0 to 1.5 where no other look tells them apart."""

LEAST_KURTOSIS, LEAST_TAILS = 0.1, 0.001
"""What chance adds to each of these."""

MAX_VALUES = 2**16
"""Values of the samples by which that is measured."""

SEED = 30
"""Of the start in limited samples, and of the samples that are cleaned: a fit has drawn all it needs before."""


def seek_competing_basis(found: Found, log: FitLog) -> Found:
    """What was found; or the estimate for cleaned samples, or the same one with what another basis makes of it."""
    estimate = found.estimate
    if not _can_apply(found):
        return found
    A, raw = to_numpy(estimate.A), _get_raw(found)
    along = lies_along_entries(A) or (estimate.corruption is not None and not estimate.converged)
    few = slice(None, None, max(1, raw.size // MAX_VALUES))
    if not along and (estimate.refined != "mixture" or not may_be_hit(raw[few])):
        return found
    limited = limit_entries(raw if along else raw[few])
    if limited is None or (not along and _is_loud(found, limited)):
        return found
    B = _find_in_limited(found, limited) if along else A
    if B is None:
        return found
    few_limited = limited[few] if along else limited
    rows, few_limited = (to_numpy(found.search.whitening.whiten(each)) for each in (raw[few], few_limited))
    comparison = Comparison(rows, A, estimate.corruption, float(np.mean(few_limited**2)))
    law = learn_from_limited(rows, few_limited, B, found.drawn.least_noise)
    cleaned = _clean(found, B, law, comparison, log) if comparison.is_better(B, law) else None
    if cleaned is None and along:
        return replace(found, estimate=replace(estimate, competing=measure_differences(A, B)))
    return cleaned or found


def may_be_hit(raw: Matrix) -> bool:
    """Whether most entries of samples (b, n) have heavier tails than other directions, as those that are hit do."""
    largest = np.max(np.abs(raw), axis=0)
    if not np.all(largest > 0):
        return True
    rows, n = raw / largest, raw.shape[1]
    rows = rows - np.mean(rows, axis=0)
    scales = np.std(rows, axis=0)
    if not np.all(scales > 0):
        return True
    rows = rows / scales
    others = rows @ random_orthonormal(n, n, np.random.default_rng(SEED))
    kurtosis, tails = (HEAVIER * measure(others) for measure in (measure_kurtosis, _measure_tails))
    return measure_kurtosis(rows) > kurtosis + LEAST_KURTOSIS or _measure_tails(rows) > tails + LEAST_TAILS


def _measure_tails(Z: Matrix) -> float:
    """Median over columns of the share of Z (b, n) that lies beyond four robust standard deviations."""
    sizes = np.ascontiguousarray(np.abs(Z).T)  # a row a column, which a median goes through again and again
    bounds = TAIL_SD * SD_PER_DEVIATION * np.median(sizes, axis=1, keepdims=True)
    return float(np.median(np.mean(sizes > bounds, axis=1)))


def _is_loud(found: Found, limited: Matrix) -> bool:
    """Whether samples differ much in loudness although their entries are limited (b, n): not by corruption."""
    Z = thin(to_numpy(found.search.whitening.whiten(limited))) @ to_numpy(found.estimate.A).T
    return measure_loudness(Z)[0] > VERY_LOUD


def lies_along_entries(A: Matrix) -> bool:
    """Whether atoms, the rows of A (m, n), are the entries themselves, most of them."""
    return bool(np.mean(np.max(np.abs(A), axis=1) > ALONG) >= MIN_ALONG)


def measure_differences(A: Matrix, B: Matrix) -> NDArray[np.float64]:
    """Error of each row of A (m, n) if those of B (n, n) are the true atoms."""
    return np.asarray(1 - np.sum((A @ B.T) ** 4, axis=1))


@dataclass(frozen=True)
class Comparison:
    """Drawn samples (b, n) in whitened coordinates, and what was found: atoms A (n, n), and corruption if any."""

    rows: Matrix
    A: Matrix
    corruption: CorruptionLaw | None
    power: float  # mean square of an entry, limited

    def is_better(self, B: Matrix, law: CorruptionLaw, counted: CorruptionLaw | None = None) -> bool:
        """Whether codes at B and this corruption explain samples better than what was found, or codes of any law.

        `counted` is the same law with hits that were counted; `law` has those of samples that were solved.
        """
        hits = counted or law
        if hits.rate * hits.size < MIN_HIT_POWER * self.power:
            return False
        before = score_laws(self.rows, self.A)
        if self.corruption is not None:
            before = max(before, measure_evidence(self.rows, self.A, self.corruption))
        return bool(measure_evidence(self.rows, B, law) > before + MIN_GAIN * self.rows.shape[1])


def _get_raw(found: Found) -> Matrix:
    return to_numpy(found.drawn.raw).astype(np.float64, copy=False)


def _can_apply(found: Found) -> bool:
    """Whether corruption of entries is possible, and was to be looked for."""
    estimate, search = found.estimate, found.search
    m, n = estimate.A.shape
    asked = search.options.refine in ("auto", "sparse-corruption") and search.options.normalize != "samples"
    if not asked or estimate.stopped:
        return False
    if search.whitening.to_white is not None or m < n or n < 2 or found.drawn.raw is None:
        return False
    return not has_few_samples(search.samples.n_samples, n) and not is_exact_estimate(estimate)


def _find_in_limited(found: Found, limited: Matrix) -> Matrix | None:
    """Atoms (n, n) of limited samples (b, n), if all of them are there and they are not those of the fit."""
    options = replace(found.search.options, refine=None, solver="auto", n_init=1, n_components=None)
    search = Search.begin(ArrayDataset(limited), options, FitLog())
    if search.whitening.to_white is not None:
        return None
    other = search.run(np.random.default_rng(SEED), FitLog()).estimate
    B = to_numpy(other.A)
    n = len(B)
    score, chance = float(np.min(score_sparsity(other.stats))), chance_score(n)
    sparse = score > SURE * chance and score > chance + _score_random_directions(search, limited)
    differs = float(np.mean(measure_differences(to_numpy(found.estimate.A), B))) > MIN_DISTANCE
    return B if sparse and differs else None


def _clean(found: Found, B: Matrix, law: CorruptionLaw, comparison: Comparison, log: FitLog) -> Found | None:
    """What is found in cleaned samples from the atoms B (n, n); None if that does not settle, or explains less."""
    search, before = found.search, found.estimate
    first_phase = 1 + max([0, *(iteration.stage for iteration in found.history)])
    problem = Problem(search.samples, search.whitening, log, first_phase=first_phase, iterations=list(found.history))
    refinement = Refinement(problem, found.drawn, search.phases[-1], np.random.default_rng(SEED))
    cleaned = refinement.clean(Backend.of(before.A).asarray(B, "float64"), law)
    history = tuple(problem.iterations)
    if cleaned.stopped:
        kept = replace(before, stopped=True, converged=False, status=f"{cleaned.status}; kept what was found before")
        return replace(found, estimate=kept, history=history)
    if not (cleaned.converged and _explains(cleaned, comparison)):
        return None
    reason = "refined: samples are sparse in another basis than their entries"
    return replace(found, estimate=refinement.complete_cleaned(cleaned, reason), history=history)


def _explains(cleaned: Estimate, comparison: Comparison) -> bool:
    assert isinstance(cleaned.objective, SparseCorruption)
    A, law = to_numpy(cleaned.A), cleaned.objective.corruption
    return comparison.is_better(A, law, learn_hits(comparison.rows, A, law))


def _score_random_directions(search: Search, limited: Matrix) -> float:
    """Mean sparsity score of limited samples (b, n) in random directions, which is large if they differ in loudness."""
    rows = to_numpy(search.whitening.whiten(limited))
    Z = rows @ random_orthonormal(rows.shape[1], rows.shape[1], np.random.default_rng(SEED))
    return float(np.mean(sparsity_score(np.mean(np.abs(Z), axis=0), np.mean(Z**2, axis=0), len(Z))))
