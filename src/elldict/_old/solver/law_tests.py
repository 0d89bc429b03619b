"""Tests on the codes of drawn samples: do they follow the spike-and-slab law, and do samples differ in loudness?

Samples whose codes do not follow it, or that differ in loudness, are estimated by `solver/robust.py`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from elldict._old.backend.base import NUMPY, Array, Backend, to_numpy
from elldict._old.backend.matrices import take_rows
from elldict._old.data.whitening import Whitening
from elldict._old.result import Estimate
from elldict._old.solver.code_histogram import CodeHistogram
from elldict._old.solver.code_subsample import CodeSubsample, compute_codes
from elldict._old.solver.corruption import suspects_corruption
from elldict._old.solver.mixture import MixtureLikelihood, count_bins, find_skewed, fit_mixture
from elldict._old.solver.objective import sum_values
from elldict._old.solver.rounding import is_coarse
from elldict._old.solver.spike_slab import SpikeSlab, SpikeSlabLikelihood, fit_spike_slab

N_TESTED_ATOMS = 24
"""Atoms by whose codes the spike-and-slab law is compared with mixtures, and loudness is measured."""

MAX_LOG_RATIO = 30.0
"""Nats by which chance may let a mixture fit the codes of one of these atoms better."""

MAX_SKEWED = 0.25
"""Share of these atoms that may have skewed codes."""

TEST_ROUNDS = 25
"""Rounds of expectation maximisation for the mixture of this comparison. So few leave it short of the maximum by what a
free choice of weights gains by chance: spike-and-slab codes fit it worse than their own law, and others better."""

MAX_UNEVENNESS, WHITE = 0.1, 0.002
"""Mean square, over directions, of what the second moments of samples differ by from white ones, beyond chance, up to
which the dependence of codes is not due to atoms that are not orthogonal; and up to which the likelihood of a law that
is fitted freely is not biased by that."""

UNEVEN_BY_CHANCE = 4.0
"""Times that chance may exceed what is expected of it there."""

LOUD_SCORE, MIN_LOUDNESS, LOUD, VERY_LOUD = 4.0, 0.02, 0.1, 0.25
"""Standard errors, and value, from which the mean correlation of the sizes of two codes says that samples differ in
loudness; the value that few samples need for that; and the one beyond which corrupted entries do not bring it."""

LEAST_SPREAD = 0.05
"""Standard deviation of z^2 / (z^2 + E z^2) below which codes are all of the same size, but for errors of atoms; that
of Gaussian ones is .3."""

MAX_ZERO_SHARE = 0.1
"""Share of samples that may be zero: more of them are of codes that are exactly sparse, and look loud until these are
found."""

MAX_SPARSE_KURTOSIS = 100.0
"""Mean kurtosis of codes, if they were independent, beyond which few samples are taken for loud ones: codes that are
zero or Gaussian have it at a density below .03."""

TEST_ROWS = 4096
"""Drawn samples, about, by which laws are compared and loudness is measured."""

FEW_PER_DIRECTION, MAX_INVERSE_WORK = 20, 2e10
"""Samples a direction, and samples times the cube of directions, up to which inverse iteration is worth its price."""


@dataclass(frozen=True)
class LawTests:
    """Which kind of estimate the samples of a fit need."""

    drawn: CodeSubsample
    whitening: Whitening
    n_samples: int
    rng: np.random.Generator

    @property
    def few(self) -> bool:
        """Whether samples are few for so many directions."""
        return has_few_samples(self.n_samples, int(self.drawn.rows.shape[1]))

    @cached_property
    def can_apply(self) -> bool:
        """Whether codes can be tested: not where entries are coarse, many samples are zero, or all are far from white.

        Nor where they are few, and no louder than sparse ones: these need refinements of their own, whose start is no
        estimate yet.
        """
        if self.whitening.to_white is None and is_coarse(to_numpy(self.drawn.rows[:, 0])):
            return False  # a law that is fitted freely fits the steps
        zero_share = np.mean(self.drawn.squared_lengths == 0)
        if zero_share > MAX_ZERO_SHARE or not self.is_white(MAX_UNEVENNESS):
            return False
        return not self.few or self.drawn.measure_kurtosis() > MAX_SPARSE_KURTOSIS

    def is_white(self, most: float = WHITE) -> bool:
        """Whether the second moments of samples differ from white ones by at most this much beyond chance."""
        return is_nearly_white(self.whitening, self.drawn, self.n_samples, most)

    def is_loud(self, A: Array, least: float = MIN_LOUDNESS) -> bool:
        """Whether samples differ in loudness, by codes at A: all of them are large together, by at least this much."""
        correlation, error = _measure_drawn_loudness(self.drawn, A)
        return correlation > max(LOUD_SCORE * error, least)

    def is_very_loud(self, pilot: Estimate) -> bool:
        """Whether samples differ so much in loudness that no spike-and-slab law needs to be tried."""
        complete = pilot.converged and self._is_complete(pilot)
        return self.can_apply and complete and (self.few or self.is_loud(pilot.A, VERY_LOUD))

    def refuses_pilot(self, pilot: Estimate) -> bool:
        """Whether codes of a settled l_p estimate are loud together and follow no spike-and-slab law.

        Atoms that are still mixed a little have codes of nearly that law, which are not loud.
        """
        settled = self.can_apply and pilot.converged and self._is_complete(pilot)
        return settled and self.is_loud(pilot.A) and not follows_spike_slab(self.drawn, pilot.A)

    def refuses_law(self, pilot: Estimate) -> bool:
        """Whether the codes of an estimate for all directions follow no spike-and-slab law, or are loud together.

        Atoms of an l_p estimate are still mixed a little: their law tells nothing, and their loudness only if they have
        settled.
        """
        drawn, law = self.drawn, pilot.law
        if not self.can_apply or not self._is_complete(pilot) or (law is None and not self.is_loud(pilot.A)):
            return False
        if (law is not None or not pilot.converged) and follows_spike_slab(drawn, pilot.A, law):
            return False
        return self.is_loud(pilot.A, VERY_LOUD) or not self.suspects_corruption(pilot)

    def refuses_unsettled(self, pilot: Estimate) -> bool:
        """The same of an l_p estimate that does not settle on all samples, which have to be white for that.

        By few of them: codes that are still mixed follow no law exactly, which many would tell, and l_p is on its way.
        """
        few = self.drawn.thin_as_on_host()
        return self._is_complete(pilot) and self.is_white() and not follows_spike_slab(few, pilot.A)

    def refuses_kept(self, estimate: Estimate) -> bool:
        """The same of an l_p estimate on white samples that was kept although all others were tried."""
        complete = self._is_complete(estimate) and self.is_white()
        return complete and not follows_spike_slab(self.drawn, estimate.A, estimate.law)

    def _is_complete(self, pilot: Estimate) -> bool:
        """Whether there is an atom for each of several directions."""
        m, k = pilot.A.shape
        return not pilot.stopped and m == k and m > 1

    def suspects_corruption(self, pilot: Estimate) -> bool:
        """Whether samples look corrupted, by codes of this estimate."""
        law = pilot.law or self.drawn.fit_rough_law(pilot.A)
        return suspects_corruption(self.drawn.rows, self.whitening, pilot.A, law, self.rng)

    def is_worse(self, found: Estimate, pilot: Estimate, rows: NDArray[np.float64]) -> bool:
        """Whether an estimate makes samples less likely than the one before it, by more than the chance of its angles.

        Both were sought in these samples: what one is better by here is what it is better by elsewhere. Few samples
        whose codes are no longer loud are of sparse codes after all.
        """
        if self.few and not self.is_loud(found.A, LOUD):
            return True
        m = int(found.A.shape[0])
        return score_laws(rows, found.A) + m * (m - 1) / (4 * self.n_samples) < score_laws(rows, pilot.A)


def has_few_samples(n_samples: int, n_directions: int) -> bool:
    """Whether samples are so few that inverse iteration is worth its price: angles of pairs depend on each other."""
    few = n_samples <= FEW_PER_DIRECTION * n_directions
    return few and n_samples * n_directions**3 <= MAX_INVERSE_WORK


def follows_spike_slab(drawn: CodeSubsample, A: Array, law: SpikeSlab | None = None) -> bool:
    """Whether the spike-and-slab law, if known, fits the codes of drawn samples as well as mixtures of Gaussians do.

    It is symmetric: codes that are skewed beyond chance do not follow it.
    """
    few = choose_few(A)
    Z = to_numpy(compute_codes(thin(drawn.rows), take_rows(A, few)))
    if np.mean(find_skewed(count_bins(Z, np.std(Z, axis=0)))) > MAX_SKEWED:
        return False
    if law is None:
        own = fit_spike_slab(CodeHistogram.of(Z), least_noise=drawn.least_noise)
    else:
        own = replace(law, density=law.density[few], power=law.power[few])
    mixture = fit_mixture(Z, np.ones(Z.shape[1]), rounds=TEST_ROUNDS, may_be_skewed=False)
    better = sum_values(MixtureLikelihood(mixture), Z) - sum_values(SpikeSlabLikelihood(own), Z)
    return bool(np.mean(better) < 0 and np.max(better) < MAX_LOG_RATIO)


def choose_few(A: Array) -> NDArray[np.int64]:
    """Atoms of A (m, k) by which the codes of all are judged."""
    m = int(A.shape[0])
    return np.linspace(0, m - 1, min(m, N_TESTED_ATOMS)).astype(np.int64)


def score_laws(rows: NDArray[np.float64], A: Array) -> float:
    """Mean log density of a sample of `rows` (b, k), in nats; each half by the laws of codes of the other half."""
    backend, dtype = (Backend.of(A), "float64") if Backend.of(A).prefers_products else (NUMPY, "float32")
    parts, found = [backend.asarray(half, dtype) @ backend.asarray(A, dtype).T for half in (rows[::2], rows[1::2])], 0.0
    for part, other in (parts, parts[::-1]):
        law = fit_mixture(part, np.ones(int(A.shape[0])), rounds=TEST_ROUNDS)
        found += law.score_counts(count_bins(other, law.std))
    return found / len(rows)


def is_nearly_white(whitening: Whitening, drawn: CodeSubsample, n_samples: float, most: float = MAX_UNEVENNESS) -> bool:
    """Whether samples are white, or so nearly that codes do not depend on each other for that reason.

    The second moments of r white samples differ from the identity by E |y|^4 / k r, as a mean square over directions.
    """
    S = whitening.second_moments
    if S is None:
        return True
    k = int(S.shape[0])
    chance = float(np.mean(drawn.squared_lengths**2)) / (k * n_samples)
    return float(np.sum((to_numpy(S) - np.eye(k)) ** 2)) / k < most + UNEVEN_BY_CHANCE * chance


def depend_on_each_other(drawn: CodeSubsample, A: Array) -> bool:
    """Whether the sizes of the codes of a drawn sample are correlated at all."""
    correlation, error = _measure_drawn_loudness(drawn, A)
    return abs(correlation) > LOUD_SCORE * error


def _measure_drawn_loudness(drawn: CodeSubsample, A: Array) -> tuple[float, float]:
    def measure() -> tuple[float, float]:
        return measure_loudness(to_numpy(compute_codes(thin(drawn.rows), take_rows(A, choose_few(A)))))

    return drawn.recall("loudness", (A,), measure)


def measure_loudness(Z: NDArray[np.float64]) -> tuple[float, float]:
    """Mean correlation of z^2 / (z^2 + E z^2) over pairs of codes Z (b, m), and its standard error.

    It is zero for independent codes of any law, and bounded, so that a few large codes do not decide. Codes that are
    all of the same size, as binary ones are, have no part in it.
    """
    z2 = Z**2
    u = z2 / (z2 + np.mean(z2, axis=0))
    u = u[:, np.std(u, axis=0) > LEAST_SPREAD]
    b, m = u.shape
    if m < 2:
        return 0.0, 0.0
    u = (u - np.mean(u, axis=0)) / np.std(u, axis=0)
    each = (np.sum(u, axis=1) ** 2 - np.sum(u**2, axis=1)) / (m * (m - 1))
    return float(np.mean(each)), float(np.std(each)) / math.sqrt(b)


def thin(rows: Array) -> Array:
    """About `TEST_ROWS` of drawn samples, from all parts of them: they are in the order of the samples."""
    return rows[:: count_thinned(int(rows.shape[0])), :]


def count_thinned(n_drawn: int) -> int:
    """How many of drawn samples there are for one of these."""
    return max(1, round(n_drawn / TEST_ROWS))
