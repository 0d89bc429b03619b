"""Estimates for samples whose codes follow no spike-and-slab law, as recordings, images, genes and word vectors do.

The codes of such samples have heavy tails of many kinds, and all codes of a sample may be large together. A few loud
samples and large codes then decide sum |z|^p for p > 2. So samples are normalised, the l_1 norm is minimised, which
small codes decide, and the likelihood of mixtures of Gaussians, a law that fits any code, is climbed from
there. If samples do not differ in loudness, the last steps are taken without normalisation, which would bias them.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from elldict.backend.base import NUMPY, Array, Backend, find_principal_axes, to_numpy
from elldict.data.dataset import Dataset
from elldict.data.statistics import Loudness, Whitening
from elldict.data.subsample import copy_white
from elldict.result import Estimate, Iterate
from elldict.solver.code_subsample import CodeSubsample, compute_codes
from elldict.solver.directions import MAX_ANGLE, PairwiseNewton, polar, turn
from elldict.solver.law_tests import thin
from elldict.solver.loop import SHORTER_STEPS, Phase, Problem, Stepper, measure_step, run_phase
from elldict.solver.mixture import MixtureLikelihood, fit_mixture, update_mixture
from elldict.solver.objective import Lp, Objective, Quantities, WithSecondary, compute_derivatives
from elldict.theory.error_bars import CodeMoments, choose_signs

SUBSAMPLE_ROWS = 25_000
"""Samples, at least, of the first steps, or the square of the directions. Fewer find atoms that fit others worse, and
far fewer find none: at a random start the slope of a pair is lost in the noise of its sum."""

REFRESH_STEPS = 5
"""Steps between two estimates of the curvature of pairs and of the law of codes, from drawn samples."""

MOMENTUM = 0.6
"""Share of the last step that is taken again with the next. Where codes depend on each other so do the angles of pairs,
and Newton's step for each pair by itself falls short."""

MAX_VALUES = 2**20
"""Values of the samples from which the start is computed: 8 MB."""

FIRST_ROUNDS = 60
"""Rounds of expectation maximisation for the first law, which is followed by others every few steps."""

LEAST_CURVATURE = 0.5
"""Of Newton's steps, relative to the size of the objective; more than elsewhere, because curvatures are those of few
samples."""

L1_END, LIKELIHOOD_END, SETTLED_END = (0.02, 0.01), (0.25, 0.05), (0.1, 0.02)
"""Share of the standard error below which steps are the last, and share of the rise of the objective so far below which
that of the last few is of no more use. The likelihood ends earlier, because its last steps fit noise, unless the error
bar of l_p was small already."""

LAW_SLACK = 1e-4
"""Fall of the log-likelihood of a code, in nats, that a new law can cause: it fits drawn samples better, not all."""

MAX_STEPS = 200
"""Steps after which an objective that still rises is left."""


@dataclass
class DependentStepper(Stepper):
    """Newton's steps for codes that depend on each other, with momentum.

    The curvature of pairs, and the law of a mixture, are estimated anew from drawn samples every few steps.
    """

    rows: Array = field(kw_only=True)  # drawn samples (b, k), normalised if the others are
    min_rise: float = field(kw_only=True)
    values: list[float] = field(default_factory=list)  # of the objective at each iterate
    direction: PairwiseNewton = field(default_factory=lambda: PairwiseNewton(least_curvature=LEAST_CURVATURE))
    came_from: Array | None = None  # A before the last step; None: it was too long, or there was none

    def propose(self, here: Iterate) -> tuple[Array, float]:
        """Where the step leads, and how far that is."""
        if len(self.values) % REFRESH_STEPS == 0:
            half = self.rows[::2, :]  # which tells curvatures as well
            crossed = estimate_crossed(here.objective, compute_codes(half, here.A))
            self.direction = replace(self.direction, crossed=Backend.of(here.A).asarray(crossed, "float64"))
        self.values.append(here.stats.mean_value)
        moved = self.direction(here.stats, here.A)
        if self.came_from is not None:
            between = here.A @ self.came_from.T
            moved = turn(moved, MOMENTUM / 2 * (between - between.T))
        return moved, measure_step(here.A, moved)

    def take_step(self, here: Iterate, moved: Array) -> Iterate:
        """Take the step if it does not lower the objective, otherwise a shorter one without momentum."""
        objective = here.objective
        if len(self.values) % REFRESH_STEPS == 0 and isinstance(objective, MixtureLikelihood):
            objective = MixtureLikelihood(update_mixture(objective.law, compute_codes(self.rows, moved)))
        there = self.evaluate(moved, objective)
        if not self._is_lower(there, here):
            self.came_from, longest = here.A, min(MAX_ANGLE, 2 * self.direction.max_angle)
            self.direction = replace(self.direction, max_angle=longest)
            return there
        self.came_from, moved = None, self.direction(here.stats, here.A)
        for share in SHORTER_STEPS:
            there = self.evaluate(polar((1 - share) * here.A + share * moved), objective)
            if not self._is_lower(there, here):
                break
        # the next will be no longer than twice this one
        longest = share * min(self.direction.max_angle, measure_step(here.A, moved))
        self.direction = replace(self.direction, max_angle=longest)
        return there

    def find_reason_to_end(self, before: Iterate, here: Iterate, step: float) -> str | None:
        """End also when the last few steps have hardly raised the objective."""
        values, few = self.values, REFRESH_STEPS
        if len(values) > 2 * few and values[-1] - values[-1 - few] < self.min_rise * (values[-1] - values[0]):
            return f"{few} steps raise the objective by less than {100 * self.min_rise:.2g} % of its rise"
        return super().find_reason_to_end(before, here, step)


@dataclass(frozen=True)
class RobustEstimator:
    """Climbs l_1, then the likelihood of mixtures, on samples that are normalised if asked."""

    problem: Problem  # on all samples, not normalised
    subsample: Dataset
    rows: NDArray[np.float64]  # drawn samples (b, k) in whitened coordinates
    drawn: CodeSubsample
    lp_phase: Phase
    normalize: str | None

    def estimate(self, A: Array, *, loud: bool, settled: bool) -> Estimate:
        """The estimate, begun at A (m, k); `loud` says that samples differ in loudness, `settled` that A is close.

        l_1 has no signs here: on the sphere, to which normalisation brings samples closer, every mixture of codes is
        less sparse than a Gaussian one.
        """
        problem, rows = self.problem, Backend.of(A).asarray(self.rows, "float64")
        loudness = None if self.normalize is None else Loudness.of(rows)
        stopped = False
        if not settled:
            share = problem.share * self.subsample.n_samples / problem.samples.n_samples
            few = replace(problem, samples=self.subsample, share=share)
            pilot = self._climb(few, loudness, Lp(1.0), A, L1_END)
            A, stopped = pilot.A, pilot.stopped
        if not loud and self.normalize == "auto":
            loudness = None
        law = fit_mixture(compute_codes(normalize_rows(rows, loudness), A), self._choose_signs(A), FIRST_ROUNDS)
        if stopped:
            return self._complete(replace(pilot, objective=MixtureLikelihood(law)), loudness)
        first_phase = 1 + max([problem.first_phase, *(iteration.stage for iteration in problem.iterations)])
        problem = replace(problem, first_phase=first_phase)
        end = SETTLED_END if settled else LIKELIHOOD_END
        return self._complete(self._climb(problem, loudness, MixtureLikelihood(law), A, end), loudness)

    def _choose_signs(self, A: Array) -> NDArray[np.float64]:
        """Signs of the atoms, by the codes of drawn samples as they are."""
        lp = self.lp_phase.objective
        assert isinstance(lp, Lp)
        Z = compute_codes(self.drawn.rows, A)
        g, slope = compute_derivatives(lp, Z)
        means = (to_numpy(Backend.of(Z).xp.mean(each, axis=0)) for each in (g * Z, g * g, slope, Z * Z))
        return to_numpy(choose_signs(CodeMoments(*means), int(Z.shape[0]), lp.p))

    def _climb(
        self, problem: Problem, loudness: Loudness | None, objective: Objective, A: Array, end: tuple[float, float]
    ) -> Estimate:
        """Take steps on samples of this loudness as long as they are of use."""
        lp, backend = self.lp_phase, Backend.of(A)
        noise_fraction, min_rise = end
        problem = self._normalize(problem, loudness)
        copied = copy_white(problem.samples, problem.whitening)
        there = backend if copied is None else NUMPY
        rows = normalize_rows(there.asarray(self.rows, "float64"), loudness)
        phase = Phase(
            objective,
            PairwiseNewton(),
            # the narrowest component is a hundred times wider than fast products round
            backend.coarse_precision(lp.precision) if copied is None else copied.dtype,
            max(lp.tol, 1e-4),
            min(lp.max_iter, MAX_STEPS),
            objective_slack=LAW_SLACK,
            noise_fraction=noise_fraction,
            make_stepper=lambda problem, phase: DependentStepper(problem, phase, rows=rows, min_rise=min_rise),
        )
        if copied is None:
            return run_phase(problem, 0, phase, A)
        problem = replace(problem, whitening=problem.whitening.move_to(NUMPY), white=copied)
        found = run_phase(problem, 0, phase, to_numpy(A))
        return replace(found, A=backend.asarray(found.A, "float64"))

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
        assert isinstance(end.objective, MixtureLikelihood)
        law = end.objective.law
        if loudness is not None:
            law = update_mixture(law, compute_codes(self.rows, to_numpy(end.A)))
        note = "as they are" if loudness is None else "normalised, because they differ in loudness"
        return replace(
            end,
            stats=stats,
            lp_stats=lp_stats,
            law=self.drawn.fit_law(end.A, lp_stats.signs),
            mixture=law,
            refined="mixture",
            loudness=loudness,
            status=f"{end.status}; refined: codes follow no spike-and-slab law; samples {note}",
            n_iter=len(problem.iterations),
        )


def draw_rows(samples: Dataset, whitening: Whitening) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Some samples in whitened coordinates (b, k), and a start (k, k) from more; the same whatever the seed of a fit.

    The start is the eigenvectors of E |y|^2 y y^T. Were codes independent, they would be the atoms, as far as these
    differ in kurtosis.
    """
    r = samples.n_samples
    b = min(r, max(1, MAX_VALUES // samples.n_features))
    index = np.sort(np.random.default_rng(0).choice(r, b, replace=False)).astype(np.int64)
    rows = to_numpy(whitening.whiten(to_numpy(samples.take(index)).astype(np.float64, copy=False)))
    weighted = rows * np.einsum("bi,bi->b", rows, rows)[:, None]
    axes = find_principal_axes(weighted.T @ rows, samples.backend)[1]
    return np.ascontiguousarray(thin(rows)), axes[:, ::-1].T


def normalize_rows(rows: Array, loudness: Loudness | None) -> Array:
    """Drawn samples in whitened coordinates, normalised if asked."""
    return rows if loudness is None else loudness.normalize(rows)


def estimate_crossed(objective: Objective, Z: Array) -> NDArray[np.float64]:
    """E g_i' z_j^2 (m, m) of codes Z (b, m) that depend on each other."""
    slope = compute_derivatives(objective, Z)[1]
    return to_numpy(slope.T @ (Z * Z)) / int(Z.shape[0])
