"""Online estimation: samples that come in batches, are evaluated once, and are forgotten.

Newton's step for all samples seen so far needs their gradient at the atoms of now, and it is gone with the samples. But
if the atoms stood at the maximum for the samples before, that gradient was zero there, and what is left is the gradient
of the new batch alone, divided by the curvature of everything: a step of the length that the batch has weight in all.
So one pass attains, to first order, the error of a fit to all samples at once. What is kept is of the size of the
dictionary: atoms, moments of codes, mean and covariance of samples, and a histogram of the codes of each atom.

Old samples lose half of their weight every `half_life` samples, so that the atoms follow a dictionary that drifts. l_p
and the likelihood are followed side by side, and Hausman's test says at any time which of the two is the estimate.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from elldict._old.backend.base import to_numpy
from elldict._old.data.dataset import ArrayDataset, Dataset, non_finite_error
from elldict._old.data.statistics import PartialStatistics, SampleStatistics, StatisticsKernel
from elldict._old.data.weighted import WeightedDataset, count_copies
from elldict._old.data.whitening import Loudness, Whitening
from elldict._old.result import Estimate
from elldict._old.solver.change import ChangeTest
from elldict._old.solver.code_subsample import LEAST_NOISE, fit_with_signs
from elldict._old.solver.directions import polar
from elldict._old.solver.evaluate import Statistics, evaluate, find_unidentifiable
from elldict._old.solver.loop import choose_precision
from elldict._old.solver.mixed_atoms import MixedPair
from elldict._old.solver.mixture import MixtureLaw, MixtureLikelihood
from elldict._old.solver.model_selection import (
    AS_ASKED,
    CHANCE_SD,
    EXACT,
    Decision,
    apply_hausman_test,
    distance_between,
    is_exact,
)
from elldict._old.solver.objective import Lp, Objective, Quantities, compute_derivatives
from elldict._old.solver.online_path import EVALUATED_ROWS, OnlinePath, change_arrays, make_empty, scale_sums
from elldict._old.solver.running import Matrix, RunningHistogram, RunningStatistics
from elldict._old.solver.spike_slab import MIN_NOISE_PER_MOVE, SpikeSlab, SpikeSlabLikelihood

MAX_GAIN = 1 / 3
"""Weight of a batch, beside all before it, above which it is taken in parts: one step is then enough for each."""

PARTS_PER_HALF_LIFE, MIN_PART_ROWS = 4, 64
"""Parts in which half of the weight is forgotten, and samples of a part, at least."""

WHITENING_SHARE, LAW_SHARE = 0.01, 0.1
"""Share of new weight from which the whitening is computed anew, and the law of the codes fitted; each costs time."""

AT_MAXIMUM = 0.99
"""Share of all weight that a path has followed its own maximum for, from which it is there."""


@dataclass(frozen=True)
class OnlineModel:
    """What is kept of all samples seen; everything in float64, on the host."""

    p: float
    refine: str | None
    center: bool
    whiten: bool
    reduce_to: int | None  # principal directions that are followed, None for all in which the first samples varied
    n_seen: int
    n_steps: int
    n_evaluated: float  # samples evaluated, those of the first fit as often as it did
    weight: float
    squared_weight: float  # sum of the squares of the weights of all samples
    running: RunningStatistics
    statistics: SampleStatistics  # what the whitening was made of
    whitening: Whitening
    new_to_whitening: float  # weight since it was made
    histogram: RunningHistogram
    law: SpikeSlab
    loudness: Loudness | None  # by which the samples of the first fit were normalised
    mixture: MixtureLaw | None  # that the likelihood is of, as the first fit found it; otherwise it is of `law`
    code_mixture: MixtureLaw | None  # of codes of samples as they are, as the first fit found it
    new_to_law: float  # weight since it was fitted
    lp: OnlinePath
    likelihood: OnlinePath | None
    cross: Matrix  # (m,) sum g g_lp, over the codes evaluated one by one
    decision: Decision  # on the likelihood
    mixed: tuple[MixedPair, ...]  # atoms that were mixed with each other in the first fit
    code_units: Matrix  # (m,) length of the rows that made codes of the first samples
    change: ChangeTest  # whether samples are still those of before

    @classmethod
    def begin(
        cls,
        p: float,
        refine: str | None,
        estimate: Estimate,
        whitening: Whitening,
        statistics: SampleStatistics,
        n_passes: float,
        reduce_to: int | None = None,
    ) -> OnlineModel:
        """The model that goes on from a fit.

        Corruption cannot be taken out of samples that are seen once, and the likelihood needs all directions.
        """
        r, A = float(statistics.n_samples), to_numpy(estimate.A)
        m, k = A.shape
        refined, law, lp_stats = estimate.refined is not None, estimate.law, estimate.lp_stats
        assert law is not None
        assert lp_stats is not None
        mixture = estimate.objective.law if isinstance(estimate.objective, MixtureLikelihood) else None
        likely = refine in ("auto", "bernoulli-gaussian") and estimate.corruption is None and m == k
        likely = mixture is not None or (likely and lp_stats.n_negative == 0)
        own, of = make_empty(m), estimate.stats.moments
        if refined:
            own = Statistics(r, gz=r * of.gz, g2=r * of.g2, slope=r * of.slope, z2=r * of.z2)
        return cls(
            p=p,
            refine=refine,
            center=statistics.centred,
            whiten=whitening.whitened,
            reduce_to=reduce_to,
            n_seen=statistics.n_samples,
            n_steps=0,
            n_evaluated=n_passes * r,
            weight=r,
            squared_weight=r * statistics.repeats,
            running=RunningStatistics.of(statistics),
            statistics=statistics,
            whitening=whitening,
            new_to_whitening=0.0,
            histogram=RunningHistogram.empty(m),
            law=law,
            loudness=estimate.loudness,
            mixture=mixture,
            code_mixture=estimate.mixture,
            new_to_law=0.0,
            lp=OnlinePath.begin(A, scale_sums(change_arrays(lp_stats, to_numpy), r / lp_stats.weight)),
            likelihood=OnlinePath.begin(A, own) if likely else None,
            cross=np.zeros(m),
            decision=Decision(refined, estimate.status),
            mixed=estimate.mixed,
            code_units=measure_units(A, whitening),
            change=ChangeTest.begin(2 if likely else 1, (m, k), lp_stats, statistics.n_samples),
        )

    @property
    def effective_samples(self) -> float:
        """Number of equally weighted samples that would give the same error bars."""
        return self.weight**2 / self.squared_weight

    @property
    def chosen(self) -> OnlinePath:
        """The path whose atoms are the estimate."""
        return self.likelihood if self.likelihood is not None and self.decision.accepted else self.lp

    def estimate_drift_errors(self, errors: Matrix) -> Matrix:
        """What drift adds to the error bars of the atoms (m,), or nothing if chance explains the lag.

        Atoms that drift are followed at a distance, and each part finds them there, on the same side. The mean of what
        parts find has a variance of its own: that of the atoms if nothing is forgotten, half of it if much is.
        """
        found = 2 * np.sum(self.chosen.lag**2, axis=1)
        chance = errors * (self.squared_weight / self.weight) * (1 + 4 / math.sqrt(len(errors)))
        return np.asarray(np.maximum(0.0, found - chance))

    def estimate_change_errors(self) -> Matrix:
        """Error of the atoms (m,) for recent samples, if these have changed, else zero."""
        return self.change.estimate_errors(self.lp.stats.signs, chosen=0 if self.chosen is self.lp else 1)

    def make_estimate(self) -> Estimate:
        """The estimate of a fit to as many samples as its error bars speak of."""
        path, factor = self.chosen, self.effective_samples / self.weight
        status = f"stream: {self.n_seen} samples seen, error bars of {self.effective_samples:.0f}"
        return Estimate(
            A=path.A,
            objective=Lp(self.p) if path is self.lp else self._make_likelihood(),
            stats=path.stats,
            lp_stats=scale_sums(self.lp.stats, factor),
            law=self.law,
            mixture=None if path is self.lp else self.code_mixture,
            refined=None if path is self.lp else "bernoulli-gaussian" if self.mixture is None else "mixture",
            converged=True,
            stopped=False,
            loudness=self.loudness,
            status=status if self.likelihood is None else f"{status}; {self.decision.reason}",
            n_iter=self.n_steps,
            mixed=self.mixed,
        )

    def update(self, samples: ArrayDataset, half_life: float | None, weights: Matrix | None = None) -> OnlineModel:
        """The model after a batch, which is evaluated once; whatever is wrong with it, this model stays as it is.

        Weights (b,), if there are any, are positive.
        """
        model = self
        for start, stop in self._split(samples.n_samples, half_life, weights):
            part: Dataset = ArrayDataset(samples.X[start:stop, :])
            if weights is not None:
                part = WeightedDataset(part, weights[start:stop], count_copies(weights[start:stop]))
            partial = part.sum(StatisticsKernel("float64" if self.whiten else samples.dtype))
            partial = replace(partial, mean=to_numpy(partial.mean), scatter=to_numpy(partial.scatter))
            if partial.non_finite is not None:
                raise non_finite_error(samples, replace(partial.non_finite, sample=start + partial.non_finite.sample))
            model = (
                model._add_weight(partial, part.n_samples, half_life)
                ._update_whitening(part.dtype)
                ._take_steps(part, partial)
                ._update_law(part.dtype)
            )
        weight = samples.n_samples if weights is None else float(np.sum(weights))
        keep = None if half_life is None else compute_keep(weight, half_life)
        signs, r = model.lp.stats.signs, model.effective_samples
        return replace(model, change=model.change.end_batch(model.n_seen, r, keep, signs))

    def _split(
        self, n_samples: int, half_life: float | None, weights: Matrix | None = None
    ) -> Iterator[tuple[int, int]]:
        """Bounds of parts so small that one step is enough for each; of equal weight, as far as samples allow."""
        if weights is not None:
            ends = np.cumsum(weights)
            for begin, end in self._split(math.ceil(ends[-1]), half_life):
                first, last = (int(k) for k in np.searchsorted(ends, (begin, end)))
                last = n_samples if end >= ends[-1] else last
                if last > first:
                    yield first, last
            return
        start, weight = 0, self.weight
        longest = math.inf if half_life is None else half_life / PARTS_PER_HALF_LIFE
        while start < n_samples:
            most = max(MIN_PART_ROWS, min(weight * MAX_GAIN / (1 - MAX_GAIN), longest))
            left = n_samples - start
            stop = start + math.ceil(left / math.ceil(left / most - 1e-9))  # equal parts, but for rounding
            weight = weight * compute_keep(stop - start, half_life) + stop - start
            yield start, stop
            start = stop

    def _add_weight(self, partial: PartialStatistics, n_samples: int, half_life: float | None) -> OnlineModel:
        """With all that is kept decayed, and the weight of a part of so many samples added to it."""
        b = partial.weight
        keep = compute_keep(b, half_life)
        return replace(
            self,
            n_seen=self.n_seen + n_samples,
            n_steps=self.n_steps + 1,
            n_evaluated=self.n_evaluated + n_samples,
            weight=keep * self.weight + b,
            squared_weight=keep**2 * self.squared_weight + partial.squared_weight,
            running=self.running.add(partial, keep),
            new_to_whitening=keep * self.new_to_whitening + b,
            # codes of the early atoms, which were further off, are forgotten in any case
            histogram=self.histogram.decayed(keep * (1 - b / (self.weight + b))),
            new_to_law=keep * self.new_to_law + b,
            lp=self.lp.decayed(keep),
            likelihood=self.likelihood and self.likelihood.decayed(keep),
            cross=keep * self.cross,
        )

    def _update_whitening(self, dtype: str) -> OnlineModel:
        """With the whitening that the samples call for now, and the atoms in its coordinates."""
        if self.new_to_whitening < WHITENING_SHARE * self.weight:
            return self
        statistics = self.running.to_statistics(center=self.center, dtype=dtype)
        k = statistics.rank if self.reduce_to is None else min(self.reduce_to, statistics.rank)
        if k != self.lp.A.shape[1]:  # a direction came or went; atoms are not born and do not die
            return self
        whitening = Whitening.of(statistics, center=self.center, whiten=self.whiten, n_components=self.reduce_to)
        return replace(
            self,
            statistics=statistics,
            whitening=whitening,
            new_to_whitening=0.0,
            lp=replace(self.lp, A=_change_coordinates(self.lp.A, self.whitening, whitening)),
            likelihood=self.likelihood
            and replace(self.likelihood, A=_change_coordinates(self.likelihood.A, self.whitening, whitening)),
        )

    def _take_steps(self, part: Dataset, partial: PartialStatistics) -> OnlineModel:
        """After the steps of a part."""
        precision = choose_precision(self.p, dtype=part.dtype, code_bound=_bound_codes(partial, self.whitening))
        index = np.arange(0, part.n_samples, -(-part.n_samples // EVALUATED_ROWS), dtype=np.int64)
        rows = self.whitening.whiten(part.take(index))
        histogram = self.histogram.add(rows @ self.chosen.A.T, float(partial.weight))
        rows = rows if self.loudness is None else self.loudness.normalize(rows)
        # in units that stay: heavy tails change the scale of a whitening more than that of codes
        codes = rows @ self.chosen.A.T * (self.code_units / measure_units(self.chosen.A, self.whitening))
        # those of the part itself: the noise of its linear terms then cancels
        second_moments = None if self.lp.stats.signs is None else _measure_second_moments(partial, self.whitening)
        lp, lp_gradients, lp_stats = self._take_step(self.lp, Lp(self.p), part, rows, precision, second_moments)
        # samples of unequal weights are as much evidence of a change as fewer of equal ones
        evidence = partial.weight / partial.squared_weight
        lp_stats = lp_stats if evidence == 1 else scale_sums(lp_stats, evidence)
        if self.likelihood is None:
            change = self.change.add(((lp_stats, self.lp.A),), codes)
            return replace(self, histogram=histogram, lp=lp, change=change)
        # atoms that are followed at a distance blur their zeros, and stay in reach while that passes for noise
        largest_lag = math.sqrt(float(np.max(np.sum(self.likelihood.lag**2, axis=1))))
        objective = self._make_likelihood(least_noise=(MIN_NOISE_PER_MOVE * largest_lag) ** 2)
        likelihood, gradients, stats = self._take_step(self.likelihood, objective, part, rows, precision)
        stats = stats if evidence == 1 else scale_sums(stats, evidence)
        cross = self.cross + np.mean(gradients * lp_gradients, axis=0) * partial.weight
        # a path that began elsewhere turns to its maximum whatever samples do, one that is exact by its rounding, and
        # one of whitened samples, if it is sharper than l_p, as their whitening gets better
        there = self.likelihood.stats.weight > AT_MAXIMUM * self.lp.stats.weight
        own = (stats, self.likelihood.A) if there and not (self.whiten or self.decision.exact) else None
        change = self.change.add(((lp_stats, self.lp.A), own), codes)
        return replace(self, histogram=histogram, lp=lp, likelihood=likelihood, cross=cross, change=change)

    def _make_likelihood(self, least_noise: float = 0.0) -> Objective:
        if self.mixture is not None:
            return MixtureLikelihood(self.mixture)
        return SpikeSlabLikelihood(replace(self.law, noise=max(self.law.noise, least_noise)))

    def _take_step(
        self,
        path: OnlinePath,
        objective: Objective,
        part: Dataset,
        rows: Matrix,
        precision: str,
        second_moments: Matrix | None = None,
    ) -> tuple[OnlinePath, Matrix, Statistics]:
        """A path after the step of a part, the derivatives of its objective at the codes of some rows, and its sums."""
        quantities, A = Quantities.GRADIENT | Quantities.MOMENTS, part.backend.asarray(path.A, "float64")
        whitening = replace(self.whitening, loudness=self.loudness).move_to(part.backend)
        stats = evaluate(part, whitening, objective, A, quantities, precision)
        stats, signs = change_arrays(stats, to_numpy), path.stats.signs
        if signs is not None:
            stats = stats.with_signs(signs, self.p, path.A, second_moments)
        codes = rows @ path.A.T
        g, slopes = compute_derivatives(objective, codes, signs)
        return path.step(stats, codes, slopes, self.weight), np.asarray(g), stats

    def _update_law(self, dtype: str) -> OnlineModel:
        """With the law of the codes fitted anew if a share of them is new, and a decision on it."""
        if self.new_to_law < LAW_SHARE * self.weight or self.histogram.weight < 0.2 * self.weight:
            return self  # a smaller histogram is not enough for a law
        law = fit_with_signs(self.histogram.to_histogram(), self.lp.stats.signs, LEAST_NOISE[dtype])
        there = replace(self, law=law, new_to_law=0.0)
        if self.likelihood is None:
            return there
        unidentifiable = find_unidentifiable(self.lp.stats, self.lp.A.shape[1])
        distance = distance_between(self.lp.A, self.likelihood.A, unidentifiable)
        decision = self._weigh_evidence(law, self.likelihood, distance, unidentifiable)
        likelihood = self.likelihood
        if not decision.accepted and distance > 0.1:  # as an error: too far from l_p, where it starts again
            likelihood = OnlinePath.begin(self.lp.A, make_empty(len(self.lp.A)))
        return replace(there, decision=decision, likelihood=likelihood)

    def _weigh_evidence(
        self, law: SpikeSlab, likelihood: OnlinePath, distance: float, unidentifiable: NDArray[np.bool_]
    ) -> Decision:
        """Whether codes are as the law says: Hausman's test between l_p and the likelihood, as after a fit."""
        r = self.effective_samples
        if self.refine not in ("auto", None):
            return AS_ASKED
        if self.mixture is None and is_exact(law, r):
            return EXACT
        stats = scale_sums(likelihood.stats, r / likelihood.stats.weight)
        cross = self.cross * (r / likelihood.bend_weight)
        n_sd = 0.0 if self.mixture is None else CHANCE_SD
        stats = replace(stats, extra={"cross": cross})
        return apply_hausman_test(self.lp.stats.moments, stats, distance, unidentifiable, n_sd)


def compute_keep(n_samples: float, half_life: float | None) -> float:
    """Share of its weight that a sample keeps while so many others come."""
    return 1.0 if half_life is None else 0.5 ** (n_samples / half_life)


def measure_units(A: Matrix, whitening: Whitening) -> Matrix:
    """Length of the rows (m,) that make codes of samples as they are."""
    rows = A if whitening.to_white is None else A @ to_numpy(whitening.to_white)
    return np.asarray(whitening.scale * np.linalg.norm(rows, axis=1))


def _change_coordinates(A: Matrix, old: Whitening, new: Whitening) -> Matrix:
    """The same atoms, in the coordinates of another whitening."""
    if old.to_white is None or new.from_white is None:
        return A
    return np.asarray(polar(A @ old.to_white @ new.from_white.T))


def _bound_codes(partial: PartialStatistics, whitening: Whitening) -> float:
    """Largest absolute value that a code of the samples of a part can take."""
    reach = math.ldexp(partial.peak, partial.exponent)
    offset = 0.0 if whitening.mean is None else float(np.linalg.norm(whitening.mean))
    stretch = 1.0 if whitening.to_white is None else float(np.linalg.norm(whitening.to_white, 2))
    return max(1.0, (reach + offset) * whitening.scale * stretch)


def _measure_second_moments(partial: PartialStatistics, whitening: Whitening) -> Matrix:
    """Mean of y y^T (k, k) over the samples of a part, in whitened coordinates."""
    unit, away = math.ldexp(1.0, partial.exponent), partial.mean
    away = away if whitening.mean is None else away - whitening.mean / unit
    moments = (whitening.scale * unit) ** 2 * (partial.scatter / partial.weight + np.outer(away, away))
    W = whitening.to_white
    return np.asarray(moments if W is None else W @ moments @ W.T)
