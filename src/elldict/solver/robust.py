"""Estimates for samples whose codes follow no spike-and-slab law, as recordings, images, genes and word vectors do.

The codes of such samples have heavy tails of many kinds, and all codes of a sample may be large together. A few loud
samples and large codes then decide sum |z|^p for p > 2. So samples are normalised, the l_1 norm is minimised, which
small codes decide, and the likelihood of mixtures of Gaussians, a law that fits any code, is climbed from
there. If samples do not differ in loudness, the last steps are taken without normalisation, which would bias them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from elldict.backend.base import Array, Backend, FreshWork, to_numpy
from elldict.data.dataset import Dataset
from elldict.data.statistics import Loudness, Whitening
from elldict.result import Estimate
from elldict.solver.code_subsample import CodeSubsample, compute_codes
from elldict.solver.directions import PairwiseNewton
from elldict.solver.loop import Phase, Problem, run_phase
from elldict.solver.mixture import MixtureLikelihood, fit_mixture, update_mixture
from elldict.solver.objective import Lp, Objective, Quantities, Weighted, WithSecondary, compute_derivatives
from elldict.solver.spike_slab import CodeHistogram, SpikeSlab, SpikeSlabLikelihood, fit_spike_slab
from elldict.theory.error_bars import CodeMoments, choose_signs

N_TESTED_ATOMS = 24
"""Atoms by whose codes the spike-and-slab law is compared with mixtures."""

MAX_LOG_RATIO = 30.0
"""Nats by which chance may let a mixture fit the codes of one of these atoms better."""

TEST_ROUNDS = 25
"""Rounds of expectation maximisation for the mixture of this comparison. So few leave it short of the maximum by what a
free choice of weights gains by chance: spike-and-slab codes fit it worse than their own law, and others better."""

MAX_UNEVENNESS = 0.1
"""Mean square, over directions, of what the second moments of samples differ by from white ones, beyond chance, up to
which the dependence of codes is not due to atoms that are not orthogonal."""

LOUD_SCORE, MIN_LOUDNESS, VERY_LOUD = 4.0, 0.02, 0.1
"""Standard errors, and value, from which the mean correlation of the sizes of two codes says that samples differ in
loudness; and the value beyond which corrupted entries, up to 1.5 times as large as codes, do not bring it."""

SUBSAMPLE_ROWS = 25_000
"""Samples, at least, of the first steps, or the square of the directions. Fewer find atoms that fit others worse, and
far fewer find none: at a random start the slope of a pair is lost in the noise of its sum."""

MAX_START_VALUES = 2**20
"""Values of the samples from which a start is computed: 8 MB, a few times over."""

ROUND_STEPS = 5
"""Steps between two estimates of the curvature of pairs and of the law of codes, from drawn samples."""

MAX_ROWS = 4096
"""Drawn samples, about, for these: products with them cost a fraction of a step."""

LEAST_CURVATURE = 0.2
"""Of Newton's steps, relative to the size of the objective; more than elsewhere, because curvatures are those of few
samples."""

L1_END, LIKELIHOOD_END = (0.02, 0.02), (0.25, 0.05)
"""Share of the standard error below which steps are the last, and share of the rise of the objective so far below which
that of a round is of no more use. The likelihood ends earlier: its last steps fit noise."""

MAX_ROUNDS = 40
"""Rounds after which an objective that still rises is left."""


def follows_spike_slab(drawn: CodeSubsample, A: Array, law: SpikeSlab | None = None) -> bool:
    """Whether the spike-and-slab law, if known, fits the codes of drawn samples as well as mixtures of Gaussians do."""
    m = int(A.shape[0])
    few = np.linspace(0, m - 1, min(m, N_TESTED_ATOMS)).astype(int)
    Z = to_numpy(compute_codes(thin(drawn.rows), to_numpy(A)[few]))
    if law is None:
        own = fit_spike_slab(CodeHistogram.of(Z), least_noise=drawn.least_noise)
    else:
        own = replace(law, density=law.density[few], power=law.power[few])
    mixture = fit_mixture(Z, np.ones(Z.shape[1]), rounds=TEST_ROUNDS, may_be_skewed=False)
    ratio = average_log_density(MixtureLikelihood(mixture), Z) - average_log_density(SpikeSlabLikelihood(own), Z)
    return bool(np.mean(ratio) < 0 and np.max(ratio) * len(Z) < MAX_LOG_RATIO)


def average_log_density(likelihood: Objective, Z: NDArray[np.float64]) -> NDArray[np.float64]:
    """Mean of log q(z) over the codes Z (b, m) of each atom (m,)."""
    value = likelihood.terms(Z, Quantities.GRADIENT, FreshWork(), np).value
    assert isinstance(value, Weighted)
    return np.asarray(np.mean(value.expand(), axis=0))


def is_nearly_white(whitening: Whitening, n_samples: float) -> bool:
    """Whether samples are white, or so nearly that codes do not depend on each other for that reason."""
    S = whitening.second_moments
    if S is None:
        return True
    k = int(S.shape[0])
    return float(np.sum((to_numpy(S) - np.eye(k)) ** 2)) / k < MAX_UNEVENNESS + 10 * k / n_samples  # of loud ones


def differ_in_loudness(drawn: CodeSubsample, A: Array, least: float = MIN_LOUDNESS) -> bool:
    """Whether all codes of a drawn sample are large together: their sizes are correlated by at least this much."""
    correlation, error = measure_loudness(to_numpy(compute_codes(thin(drawn.rows), A)))
    return correlation > max(LOUD_SCORE * error, least)


def measure_loudness(Z: NDArray[np.float64]) -> tuple[float, float]:
    """Mean correlation of z^2 / (z^2 + E z^2) over pairs of codes Z (b, m), and its standard error.

    It is zero for independent codes of any law, and bounded, so that a few large codes do not decide.
    """
    z2 = Z**2
    u = z2 / (z2 + np.mean(z2, axis=0))
    u = (u - np.mean(u, axis=0)) / np.std(u, axis=0)
    b, m = u.shape
    each = (np.sum(u, axis=1) ** 2 - np.sum(u**2, axis=1)) / (m * (m - 1))
    return float(np.mean(each)), float(np.std(each)) / math.sqrt(b)


@dataclass(frozen=True)
class RobustEstimator:
    """Climbs l_1, then the likelihood of mixtures, on samples that are normalised if asked."""

    problem: Problem  # on all samples, not normalised
    subsample: Dataset
    drawn: CodeSubsample
    lp_phase: Phase
    normalize: str | None

    def estimate(self, A: Array, *, loud: bool, settled: bool) -> Estimate:
        """The estimate, begun at A (m, k); `loud` says that samples differ in loudness, `settled` that A is close.

        l_1 has no signs here: on the sphere, to which normalisation brings samples closer, every mixture of codes is
        less sparse than a Gaussian one.
        """
        problem, rows = self.problem, thin(self.drawn.rows)
        loudness = None if self.normalize is None else Loudness.of(rows)
        stopped = False
        if not settled:
            share = problem.share * self.subsample.n_samples / problem.samples.n_samples
            few = replace(problem, samples=self.subsample, share=share)
            pilot = self._climb(few, loudness, Lp(1.0), A)
            A, stopped = pilot.A, pilot.stopped
        if not loud and self.normalize == "auto":
            loudness = None
        law = fit_mixture(compute_codes(normalize_rows(rows, loudness), A), self._choose_signs(A))
        if stopped:
            return self._complete(replace(pilot, objective=MixtureLikelihood(law)), loudness)
        first_phase = 1 + max([problem.first_phase, *(iteration.stage for iteration in problem.iterations)])
        problem = replace(problem, first_phase=first_phase)
        return self._complete(self._climb(problem, loudness, MixtureLikelihood(law), A), loudness)

    def _choose_signs(self, A: Array) -> NDArray[np.float64]:
        """Signs of the atoms, by the codes of drawn samples as they are."""
        lp = self.lp_phase.objective
        assert isinstance(lp, Lp)
        Z = compute_codes(self.drawn.rows, A)
        g, slope = compute_derivatives(lp, Z)
        means = (to_numpy(Backend.of(Z).xp.mean(each, axis=0)) for each in (g * Z, g * g, slope, Z * Z))
        return to_numpy(choose_signs(CodeMoments(*means), int(Z.shape[0]), lp.p))

    def _climb(self, problem: Problem, loudness: Loudness | None, objective: Objective, A: Array) -> Estimate:
        """Take rounds of a few steps, as long as they are of use."""
        problem, lp = self._normalize(problem, loudness), self.lp_phase
        rows = normalize_rows(thin(self.drawn.rows), loudness)
        noise_fraction, min_rise = L1_END if isinstance(objective, Lp) else LIKELIHOOD_END
        first = before = None
        for number in range(min(MAX_ROUNDS, math.ceil(lp.max_iter / ROUND_STEPS))):
            codes = compute_codes(rows, A)
            if isinstance(objective, MixtureLikelihood) and number:
                objective = MixtureLikelihood(update_mixture(objective.law, codes))
            crossed = Backend.of(A).asarray(estimate_crossed(objective, codes), "float64")
            direction = PairwiseNewton(least_curvature=LEAST_CURVATURE, crossed=crossed)
            steps = min(ROUND_STEPS, lp.max_iter - ROUND_STEPS * number)
            phase = Phase(objective, direction, lp.precision, max(lp.tol, 1e-4), steps, noise_fraction=noise_fraction)
            end = run_phase(replace(problem, first_phase=problem.first_phase + number), 0, phase, A)
            A, value = end.A, end.stats.mean_value
            first = value if first is None else first
            if end.converged or end.stopped:
                return end
            if before is not None and value - before < min_rise * (value - first):
                reason = f"{ROUND_STEPS} steps raise the objective by less than {100 * min_rise:.2g} % of its rise"
                return replace(end, converged=True, status=f"converged: {reason}")
            before = value
        n_steps = ROUND_STEPS * number + steps
        return replace(end, status=f"max_iter: the objective still rises after {n_steps} iterations")

    def _normalize(self, problem: Problem, loudness: Loudness | None) -> Problem:
        """The problem with normalised samples."""
        if loudness is None:
            return problem
        return replace(problem, whitening=replace(problem.whitening, loudness=loudness, second_moments=None))

    def _complete(self, end: Estimate, loudness: Loudness | None) -> Estimate:
        """The estimate with the statistics of both objectives, and the law of codes of samples as they are."""
        lp, problem = self.lp_phase, self.problem
        both = WithSecondary(end.objective, lp.objective)  # type: ignore[arg-type]
        stats = self._normalize(problem, loudness).evaluate(end.A, both, Quantities.MOMENTS, lp.precision)
        lp_stats = stats.of_secondary()
        note = "as they are" if loudness is None else "normalised, because they differ in loudness"
        return replace(
            end,
            stats=stats,
            lp_stats=lp_stats,
            law=self.drawn.fit_law(end.A, lp_stats.signs),
            refined="mixture",
            loudness=loudness,
            status=f"{end.status}; refined: codes follow no spike-and-slab law; samples {note}",
            n_iter=len(problem.iterations),
        )


def find_loud_axes(samples: Dataset, whitening: Whitening) -> NDArray[np.float64]:
    """Eigenvectors (k, k) of E |y|^2 y y^T over evenly spaced samples: a start that depends on nothing else.

    Were codes independent, they would be the atoms, as far as these differ in kurtosis.
    """
    n_rows = min(samples.n_samples, SUBSAMPLE_ROWS, max(1, MAX_START_VALUES // samples.n_features))
    index = np.linspace(0, samples.n_samples - 1, n_rows).astype(np.int64)
    Y = whitening.whiten(to_numpy(samples.take(index)).astype(np.float64))
    return np.asarray(np.linalg.eigh((Y * np.sum(Y**2, axis=1, keepdims=True)).T @ Y)[1].T)


def thin(rows: Array) -> Array:
    """About `MAX_ROWS` of drawn samples, from all parts of them: they are in the order of the samples."""
    return rows[:: max(1, round(int(rows.shape[0]) / MAX_ROWS)), :]


def normalize_rows(rows: Array, loudness: Loudness | None) -> Array:
    """Drawn samples in whitened coordinates, normalised if asked."""
    return rows if loudness is None else loudness.normalize(rows)


def estimate_crossed(objective: Objective, Z: Array) -> NDArray[np.float64]:
    """E g_i' z_j^2 (m, m) of codes Z (b, m) that depend on each other."""
    slope = compute_derivatives(objective, Z)[1]
    return to_numpy(slope.T @ (Z * Z)) / int(Z.shape[0])
