"""Online estimation: samples that come in batches, are seen once, and are forgotten."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from elldict.backend.base import NUMPY, make_workspace, to_numpy
from elldict.data.dataset import ArrayDataset, non_finite_error
from elldict.data.statistics import PartialStatistics, SampleStatistics, StatisticsKernel, Whitening
from elldict.solver.code_subsample import LEAST_NOISE, MIN_NOISE_PER_STEP
from elldict.solver.directions import polar
from elldict.solver.loop import precision_for
from elldict.solver.mixed_atoms import MixedPair
from elldict.solver.model_selection import AS_ASKED, EXACT, Decision, apart, exact, hausman
from elldict.solver.objective import Lp, Objective, Quantities, Statistics, Weighted, code_moments, evaluate
from elldict.solver.refine import Estimate
from elldict.solver.spike_slab import CodeHistogram, SpikeSlab, SpikeSlabLikelihood, fit_spike_slab

Matrix = NDArray[np.float64]

BINS, SPAN, HIGHEST = 240, 80.0, 10.0
"""Bins, how much of the natural logarithm of the square of a code they span, and where they end; its mean is one.
They are fixed, because codes of all times go into the same ones."""


@dataclass(frozen=True)
class RunningStatistics:
    """Weight, mean and covariance of the samples seen, in units of `unit`."""

    weight: float
    unit: float
    mean: Matrix  # (n,)
    covariance: Matrix  # (n, n)

    @classmethod
    def of(cls, statistics: SampleStatistics) -> RunningStatistics:
        """Cloud of the samples of a fit."""
        mean = statistics.mean / statistics.unit
        covariance = statistics.scatter if statistics.centred else statistics.scatter - np.outer(mean, mean)
        return cls(float(statistics.n_samples), statistics.unit, mean, covariance)

    def joined(self, other: PartialStatistics, keep: float) -> RunningStatistics:
        """With this share of the weight kept, and more samples; by the formula of `PartialStatistics`."""
        shrink = math.ldexp(1.0, other.exponent) / self.unit
        weight = keep * self.weight + other.weight
        apart = other.mean * shrink - self.mean
        between = np.outer(apart, apart) * (keep * self.weight * other.weight / weight)
        total = keep * self.weight * self.covariance + other.scatter * shrink**2 + between
        return RunningStatistics(weight, self.unit, self.mean + apart * (other.weight / weight), total / weight)

    def to_statistics(self, *, center: bool, dtype: str) -> SampleStatistics:
        """The cloud as a survey, from which a frame can be made."""
        scatter = self.covariance if center else self.covariance + np.outer(self.mean, self.mean)
        return SampleStatistics(
            n_samples=max(1, round(self.weight)),
            n_features=len(self.mean),
            mean=self.mean * self.unit,
            unit=self.unit,
            scatter=scatter,
            centred=center,
            peak=math.nan,  # of samples that are forgotten
            dtype=dtype,
            precision="float64",
        )


@dataclass(frozen=True)
class Histogram:
    """Squares of codes, counted in bins of their logarithm, for each atom."""

    count: Matrix  # (m, bins)
    z2: Matrix  # (m, bins) sum of squares

    @classmethod
    def empty(cls, m: int) -> Histogram:
        """Nothing counted."""
        return cls(np.zeros((m, BINS)), np.zeros((m, BINS)))

    def decayed(self, keep: float) -> Histogram:
        """With this share of the counts kept."""
        return Histogram(keep * self.count, keep * self.z2)

    def joined(self, Z: Matrix, weight: float) -> Histogram:
        """With codes Z (b, m) that count `weight` together."""
        z2 = np.square(Z.T)
        where = (np.log(np.maximum(z2, 1e-300)) - HIGHEST + SPAN) * (BINS / SPAN)
        flat = np.clip(where, 0, BINS - 1).astype(np.intp) + BINS * np.arange(len(z2))[:, None]
        each = np.full(z2.size, weight / len(Z))
        count, total = (
            np.bincount(flat.ravel(), weights=values, minlength=self.count.size).reshape(self.count.shape)
            for values in (each, each * z2.ravel())
        )
        return Histogram(self.count + count, self.z2 + total)

    @property
    def weight(self) -> float:
        """Codes of an atom."""
        return float(np.sum(self.count[0]))

    def counts(self) -> CodeHistogram:
        """Bins that are not empty, as the fit of the law wants them."""
        used = np.any(self.count > 0, axis=0)
        return CodeHistogram(self.count[:, used], self.z2[:, used] / np.maximum(self.count[:, used], 1e-300))


LARGEST_GAIN = 1 / 3
"""Of a step: a batch that weighs more beside what came before is taken in parts."""

PARTS_OF_HALF_LIFE = 4
FEWEST_ROWS = 64
"""Of a part."""

LEAST_CURVATURE = 0.15
LONGEST = 0.3
"""As for Newton's step on all samples."""

STALE_FRAME = 0.01
STALE_LAW = 0.1
"""Share of new weight from which the frame is measured anew, and the law of the codes fitted; each costs time."""

COUNTED = 0.2
"""Share of all weight from which the histogram is large enough for a law."""

ROWS_COUNTED = 512
"""Of each part, whose codes are looked at one by one: for their law, and for what atoms have to do with each other."""

RESTART_DISTANCE = 0.1
"""Distance from l_p, as an error, at which a likelihood that is not believed starts again from there."""


@dataclass(frozen=True)
class Stepper:
    """Atoms on their way up one contrast, and all that their next step needs."""

    A: Matrix  # (m, k)
    stats: Statistics  # moments, at the atoms of each time
    bend: Matrix  # (m, m) sum g'(z_i) z_j^2 over the codes that were looked at one by one
    bend_weight: float
    lag: Matrix  # (m, m) mean of the angles by which parts found the atoms to be off: noise, unless they drift

    @classmethod
    def begin(cls, A: Matrix, stats: Statistics) -> Stepper:
        """From where a fit ended; sums of no weight say that it went another way."""
        m = len(A)
        return cls(A, stats, np.zeros((m, m)), 0.0, np.zeros((m, m)))

    def decayed(self, keep: float) -> Stepper:
        """With this share of all weight kept."""
        stats, bend, weight = _times(self.stats, keep), keep * self.bend, keep * self.bend_weight
        return replace(self, stats=stats, bend=bend, bend_weight=weight)

    def after(self, stats: Statistics, codes: Matrix, slopes: Matrix, weight: float) -> Stepper:
        """After the step of a part with these sums, among samples of this weight in all.

        `codes` (b, m) are some of the part, and `slopes` those of the contrast there.
        """
        gain = stats.weight / weight
        bend = self.bend + (slopes.T @ codes**2) * (stats.weight / len(codes))
        running = self.stats + Statistics(
            stats.weight, stats.value, slope=stats.slope, g2=stats.g2, z2=stats.z2, gz=stats.gz, extra=stats.extra
        )
        there = replace(self, stats=running, bend=bend, bend_weight=self.bend_weight + stats.weight)
        between, outside = there.angles(to_numpy(stats.G) / weight)
        return replace(there, A=turned(self.A, between, outside), lag=(1 - gain) * self.lag + between)

    def angles(self, G: Matrix) -> tuple[Matrix, Matrix | None]:
        """Newton's step for a gradient G (m, k).

        Angles (m, m) between atoms, and steps (m, k) to the directions that belong to none, if there are any. Here
        E g_i' z_j^2 stands where Newton's step for a fit has E g_i' E z_j^2: a fit takes more steps if codes depend
        on each other, a stream has but one.
        """
        m, k = self.A.shape
        gz, slope, v = (
            np.asarray(total) / self.stats.weight for total in (self.stats.gz, self.stats.slope, self.stats.z2)
        )
        # so many samples' worth of codes that have nothing to do with each other come first
        bend = (self.bend + ROWS_COUNTED * np.outer(slope, v)) / (self.bend_weight + ROWS_COUNTED)
        both = gz[:, None] + gz[None, :]
        C = G @ self.A.T
        between = (C - C.T) / np.maximum(both - bend - bend.T, LEAST_CURVATURE / 2 * np.abs(both) + 1e-300)
        if m == k:
            return between, None
        rest = max(0.0, k - float(np.sum(v))) / (k - m)  # mean square that the atoms leave
        curvature = np.maximum(gz - rest * slope, LEAST_CURVATURE * np.abs(gz) + 1e-300)
        return between, (G - C @ self.A) / curvature[:, None]

    @property
    def longest_lag(self) -> float:
        """Largest distance at which an atom seems to be followed."""
        return math.sqrt(float(np.max(np.sum(self.lag**2, axis=1))))


@dataclass(frozen=True)
class Stream:
    """What is kept of all samples seen; everything in float64, on the host."""

    p: float
    refine: str | None
    center: bool
    whiten: bool
    n_seen: int
    n_steps: int
    n_looks: float  # samples looked at, those of the first fit as often as it did
    weight: float
    squared_weight: float  # sum of the squares of the weights of all samples
    running: RunningStatistics
    statistics: SampleStatistics  # what the frame was made of
    whitening: Whitening
    new_to_frame: float  # weight since it was made
    histogram: Histogram
    law: SpikeSlab
    new_to_law: float  # weight since it was fitted
    lp: Stepper
    likelihood: Stepper | None
    cross: Matrix  # (m,) sum g g_lp, over the codes looked at one by one
    decision: Decision  # on the likelihood
    mixed: tuple[MixedPair, ...]  # atoms that were mixed with each other in the first fit

    @classmethod
    def begin(
        cls,
        p: float,
        refine: str | None,
        estimate: Estimate,
        whitening: Whitening,
        statistics: SampleStatistics,
        looks: float,
    ) -> Stream:
        """The stream that goes on from a fit.

        Corruption cannot be taken out of samples that are seen once, and the likelihood needs all directions.
        """
        r, A = float(statistics.n_samples), to_numpy(estimate.A)
        m, k = A.shape
        likely = refine in ("auto", "bernoulli-gaussian") and estimate.corruption is None and m == k
        refined, of = estimate.refined is not None, estimate.moments
        likely_sums = (
            Statistics(r, gz=r * of.gz, g2=r * of.g2, slope=r * of.slope, z2=r * of.z2) if refined else _no_sums(m)
        )
        return cls(
            p=p,
            refine=refine,
            center=statistics.centred,
            whiten=whitening.whitened,
            n_seen=statistics.n_samples,
            n_steps=0,
            n_looks=looks * r,
            weight=r,
            squared_weight=r,
            running=RunningStatistics.of(statistics),
            statistics=statistics,
            whitening=whitening,
            new_to_frame=0.0,
            histogram=Histogram.empty(m),
            law=estimate.model,
            new_to_law=0.0,
            lp=Stepper.begin(A, _times(_on_host(estimate.stats), r / estimate.stats.weight)),
            likelihood=Stepper.begin(A, likely_sums) if likely else None,
            cross=np.zeros(m),
            decision=Decision(refined, estimate.status),
            mixed=estimate.mixed,
        )

    @property
    def effective_samples(self) -> float:
        """Number of equally weighted samples that would give the same error bars."""
        return self.weight**2 / self.squared_weight

    @property
    def believed(self) -> Stepper:
        """The walk whose atoms are the answer."""
        return self.likelihood if self.likelihood is not None and self.decision.accepted else self.lp

    def drift_errors(self, errors: Matrix) -> Matrix:
        """What drift adds to the error bars of the atoms (m,), or nothing if chance explains the lag.

        Atoms that drift are followed at a distance, and each part finds them there, on the same side. The mean of what
        parts find has a variance of its own: that of the atoms if nothing is forgotten, half of it if much is.
        """
        found = 2 * np.sum(self.believed.lag**2, axis=1)
        chance = errors * (self.squared_weight / self.weight) * (1 + 4 / math.sqrt(len(errors)))
        return np.asarray(np.maximum(0.0, found - chance))

    def estimate(self) -> Estimate:
        """The stream as the answer of a fit, to as many samples as its error bars speak of."""
        stepper = self.believed
        status = f"stream: {self.n_seen} samples seen, error bars of {self.effective_samples:.0f}"
        return Estimate(
            A=stepper.A,
            stats=_times(self.lp.stats, self.effective_samples / self.weight),
            moments=code_moments(stepper.stats),
            model=self.law,
            refined=None if stepper is self.lp else "bernoulli-gaussian",
            converged=True,
            stopped=False,
            status=status if self.likelihood is None else f"{status}; {self.decision.reason}",
            n_iter=self.n_steps,
            mixed=self.mixed,
        )

    def after(self, samples: ArrayDataset, half_life: float | None) -> Stream:
        """The stream after a batch, which is looked at once; whatever is wrong with it, this stream stays as it is."""
        stream = self
        for start, stop in self._parts(samples.n_samples, half_life):
            part = ArrayDataset(samples.X[start:stop, :])
            spread = part.sum(StatisticsKernel("float64" if self.whiten else samples.dtype)).on_host()
            if spread.non_finite is not None:
                raise non_finite_error(samples, replace(spread.non_finite, sample=start + spread.non_finite.sample))
            stream = stream._weighed(spread, half_life)._framed(part.dtype)._moved(part, spread)._judged(part.dtype)
        return stream

    def _parts(self, n_samples: int, half_life: float | None) -> Iterator[tuple[int, int]]:
        """Bounds of parts so small that one step is enough for each."""
        start, weight = 0, self.weight
        longest = math.inf if half_life is None else half_life / PARTS_OF_HALF_LIFE
        while start < n_samples:
            most = max(FEWEST_ROWS, min(weight * LARGEST_GAIN / (1 - LARGEST_GAIN), longest))
            left = n_samples - start
            stop = start + math.ceil(left / math.ceil(left / most - 1e-9))  # equal parts, but for rounding
            weight = weight * kept(stop - start, half_life) + stop - start
            yield start, stop
            start = stop

    def _weighed(self, spread: PartialStatistics, half_life: float | None) -> Stream:
        """With all that is kept faded, and the weight of a part added to it."""
        b = spread.weight
        keep = kept(b, half_life)
        return replace(
            self,
            n_seen=self.n_seen + b,
            n_steps=self.n_steps + 1,
            n_looks=self.n_looks + b,
            weight=keep * self.weight + b,
            squared_weight=keep**2 * self.squared_weight + b,
            running=self.running.joined(spread, keep),
            new_to_frame=keep * self.new_to_frame + b,
            # codes of the early atoms, which were further off, are forgotten in any case
            histogram=self.histogram.decayed(keep * (1 - b / (self.weight + b))),
            new_to_law=keep * self.new_to_law + b,
            lp=self.lp.decayed(keep),
            likelihood=self.likelihood and self.likelihood.decayed(keep),
            cross=keep * self.cross,
        )

    def _framed(self, dtype: str) -> Stream:
        """With the frame that the samples call for now, and the atoms seen from there."""
        if self.new_to_frame < STALE_FRAME * self.weight:
            return self
        statistics = self.running.to_statistics(center=self.center, dtype=dtype)
        if statistics.rank != self.lp.A.shape[1]:  # a direction came or went; atoms are not born and do not die
            return self
        whitening = Whitening.of(statistics, center=self.center, whiten=self.whiten)
        return replace(
            self,
            statistics=statistics,
            whitening=whitening,
            new_to_frame=0.0,
            lp=replace(self.lp, A=_carried(self.lp.A, self.whitening, whitening)),
            likelihood=self.likelihood
            and replace(self.likelihood, A=_carried(self.likelihood.A, self.whitening, whitening)),
        )

    def _moved(self, part: ArrayDataset, spread: PartialStatistics) -> Stream:
        """After the steps of a part."""
        precision = precision_for(self.p, dtype=part.dtype, bound_codes=_code_bound(spread, self.whitening))
        rows = self.whitening.whiten(part.take(_spaced(part.n_samples, ROWS_COUNTED)))
        histogram = self.histogram.joined(rows @ self.believed.A.T, float(part.n_samples))
        lp, lp_gradients = self._stepped(self.lp, Lp(self.p), part, rows, precision)
        if self.likelihood is None:
            return replace(self, histogram=histogram, lp=lp)
        # atoms that are followed at a distance blur their zeros, and stay in reach while that passes for noise
        noise = max(self.law.noise, (MIN_NOISE_PER_STEP * self.likelihood.longest_lag) ** 2)
        objective = SpikeSlabLikelihood(replace(self.law, noise=noise))
        likelihood, gradients = self._stepped(self.likelihood, objective, part, rows, precision)
        cross = self.cross + np.mean(gradients * lp_gradients, axis=0) * part.n_samples
        return replace(self, histogram=histogram, lp=lp, likelihood=likelihood, cross=cross)

    def _stepped(
        self, stepper: Stepper, objective: Objective, part: ArrayDataset, rows: Matrix, precision: str
    ) -> tuple[Stepper, Matrix]:
        """A walk after the step of a part, and the derivatives of its contrast at the codes of some rows."""
        quantities, A = Quantities.GRADIENT | Quantities.MOMENTS, part.backend.asarray(stepper.A, "float64")
        stats = _on_host(evaluate(part, self.whitening.move_to(part.backend), objective, A, quantities, precision))
        codes = rows @ stepper.A.T
        terms = objective.terms(codes, quantities, make_workspace(NUMPY, precision), NUMPY.xp)
        assert isinstance(terms.slope, Weighted)
        return stepper.after(stats, codes, terms.slope.expanded(), self.weight), np.asarray(terms.gain * terms.g)

    def _judged(self, dtype: str) -> Stream:
        """With the law of the codes fitted anew if a share of them is new, and a verdict on it."""
        if self.new_to_law < STALE_LAW * self.weight or self.histogram.weight < COUNTED * self.weight:
            return self
        law = fit_spike_slab(self.histogram.counts(), least_noise=LEAST_NOISE[dtype])
        there = replace(self, law=law, new_to_law=0.0)
        if self.likelihood is None:
            return there
        distance = apart(self.lp.A, self.likelihood.A)
        decision = self._evidence(law, self.likelihood, distance)
        if not decision.accepted and distance > RESTART_DISTANCE:
            return replace(there, decision=decision, likelihood=Stepper.begin(self.lp.A, _no_sums(len(self.lp.A))))
        return replace(there, decision=decision)

    def _evidence(self, law: SpikeSlab, likelihood: Stepper, distance: float) -> Decision:
        """Whether codes are as the law says: Hausman's test between l_p and the likelihood, as after a fit."""
        r = self.effective_samples
        if self.refine == "bernoulli-gaussian":
            return AS_ASKED
        if exact(law, r):
            return EXACT
        stats = _times(likelihood.stats, r / likelihood.stats.weight)
        cross = self.cross * (r / likelihood.bend_weight)
        return hausman(code_moments(self.lp.stats), replace(stats, extra={"cross": cross}), distance)


def kept(n_samples: int, half_life: float | None) -> float:
    """Share of its weight that a sample keeps while so many others come."""
    return 1.0 if half_life is None else 0.5 ** (n_samples / half_life)


def turned(A: Matrix, between: Matrix, outside: Matrix | None) -> Matrix:
    """A after a step, which is cut short where it is too long to be true."""
    move = between @ A if outside is None else between @ A + outside
    length = math.sqrt(float(np.sum(move**2)) / len(A))
    return np.asarray(polar(A + min(1.0, LONGEST / max(length, 1e-300)) * move))


def _carried(A: Matrix, old: Whitening, new: Whitening) -> Matrix:
    """The same atoms, seen from another frame."""
    if old.to_white is None or new.from_white is None:
        return A
    return np.asarray(polar(A @ old.to_white @ new.from_white.T))


def _code_bound(spread: PartialStatistics, whitening: Whitening) -> float:
    """Largest absolute value that a code of the samples of this spread can take."""
    reach = math.ldexp(spread.peak, spread.exponent)
    offset = 0.0 if whitening.mean is None else float(np.linalg.norm(whitening.mean))
    stretch = 1.0 if whitening.to_white is None else float(np.linalg.norm(whitening.to_white, 2))
    return max(1.0, (reach + offset) * whitening.unit * stretch)


def _spaced(n_samples: int, most: int) -> NDArray[np.int64]:
    """Sorted indices, evenly spread."""
    return np.arange(0, n_samples, -(-n_samples // most), dtype=np.int64)


def _no_sums(m: int) -> Statistics:
    """Moments of no samples."""
    return Statistics(0.0, gz=np.zeros(m), g2=np.zeros(m), slope=np.zeros(m), z2=np.zeros(m))


def _on_host(stats: Statistics) -> Statistics:
    """The same sums as NumPy arrays."""
    return _each(stats, to_numpy)


def _times(stats: Statistics, factor: float) -> Statistics:
    """Sums of samples that count this much."""
    return replace(_each(stats, lambda array: factor * array), weight=factor * stats.weight)


def _each(stats: Statistics, change: Callable[[Any], Any]) -> Statistics:
    """Sums with all their arrays changed."""
    arrays = {
        field.name: getattr(stats, field.name) for field in fields(stats) if field.name not in ("weight", "extra")
    }
    changed = {name: None if array is None else change(array) for name, array in arrays.items()}
    return Statistics(
        weight=stats.weight, extra={name: change(array) for name, array in stats.extra.items()}, **changed
    )
