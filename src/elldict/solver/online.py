"""Online estimation: samples that come in batches, are seen once, and are forgotten."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from elldict.backend.base import HOST, to_numpy, workspace
from elldict.data.dataset import MemorySamples, not_finite
from elldict.data.statistics import Frame, Spread, SpreadKernel, Survey
from elldict.solver.code_subsample import LEAST_NOISE, STEADY
from elldict.solver.directions import polar
from elldict.solver.loop import precision_for
from elldict.solver.mixed_atoms import Pair
from elldict.solver.model_selection import AS_ASKED, EXACT, Verdict, apart, exact, hausman
from elldict.solver.objective import Contrast, Lp, Needs, Sums, Weighted, measure, moments
from elldict.solver.refine import Answer
from elldict.solver.spike_slab import BernoulliGaussian, CodeModel, Counts, fit_code_model

Matrix = NDArray[np.float64]

BINS, SPAN, HIGHEST = 240, 80.0, 10.0
"""Bins, how much of the natural logarithm of the square of a code they span, and where they end; its mean is one.
They are fixed, because codes of all times go into the same ones."""


@dataclass(frozen=True)
class Cloud:
    """Weight, mean and covariance of the samples seen, in units of `unit`."""

    weight: float
    unit: float
    mean: Matrix  # (n,)
    covariance: Matrix  # (n, n)

    @classmethod
    def of(cls, survey: Survey) -> Cloud:
        """Cloud of the samples of a fit."""
        mean = survey.mean / survey.unit
        covariance = survey.scatter if survey.centred else survey.scatter - np.outer(mean, mean)
        return cls(float(survey.n_samples), survey.unit, mean, covariance)

    def joined(self, other: Spread, keep: float) -> Cloud:
        """The cloud with this share of its weight kept, and more samples; by the formula that `Spread` has."""
        shrink = math.ldexp(1.0, other.exponent) / self.unit
        weight = keep * self.weight + other.weight
        apart = other.mean * shrink - self.mean
        between = np.outer(apart, apart) * (keep * self.weight * other.weight / weight)
        total = keep * self.weight * self.covariance + other.scatter * shrink**2 + between
        return Cloud(weight, self.unit, self.mean + apart * (other.weight / weight), total / weight)

    def survey(self, *, center: bool, dtype: str) -> Survey:
        """The cloud as a survey, from which a frame can be made."""
        scatter = self.covariance if center else self.covariance + np.outer(self.mean, self.mean)
        return Survey(
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

    def faded(self, keep: float) -> Histogram:
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

    def counts(self) -> Counts:
        """Bins that are not empty, as the fit of the law wants them."""
        used = np.any(self.count > 0, axis=0)
        return Counts(self.count[:, used], self.z2[:, used] / np.maximum(self.count[:, used], 1e-300))


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

ASTRAY = 0.1
"""Distance from l_p, as an error, at which a likelihood that is not believed starts again from there."""


@dataclass(frozen=True)
class Walk:
    """Atoms on their way up one contrast, and all that their next step needs."""

    A: Matrix  # (m, k)
    sums: Sums  # moments, at the atoms of each time
    bend: Matrix  # (m, m) sum g'(z_i) z_j^2 over the codes that were looked at one by one
    bend_weight: float
    lag: Matrix  # (m, m) mean of the angles by which parts found the atoms to be off: noise, unless they drift

    @classmethod
    def begun(cls, A: Matrix, sums: Sums) -> Walk:
        """From where a fit ended; sums of no weight say that it went another way."""
        m = len(A)
        return cls(A, sums, np.zeros((m, m)), 0.0, np.zeros((m, m)))

    def faded(self, keep: float) -> Walk:
        """With this share of all weight kept."""
        sums, bend, weight = _times(self.sums, keep), keep * self.bend, keep * self.bend_weight
        return replace(self, sums=sums, bend=bend, bend_weight=weight)

    def after(self, sums: Sums, codes: Matrix, slopes: Matrix, weight: float) -> Walk:
        """After the step of a part with these sums, among samples of this weight in all.

        `codes` (b, m) are some of the part, and `slopes` those of the contrast there.
        """
        gain = sums.weight / weight
        bend = self.bend + (slopes.T @ codes**2) * (sums.weight / len(codes))
        running = self.sums + Sums(
            sums.weight, sums.value, slope=sums.slope, g2=sums.g2, z2=sums.z2, gz=sums.gz, extra=sums.extra
        )
        there = replace(self, sums=running, bend=bend, bend_weight=self.bend_weight + sums.weight)
        between, outside = there.angles(to_numpy(sums.G) / weight)
        return replace(there, A=turned(self.A, between, outside), lag=(1 - gain) * self.lag + between)

    def angles(self, G: Matrix) -> tuple[Matrix, Matrix | None]:
        """Newton's step for a gradient G (m, k).

        Angles (m, m) between atoms, and steps (m, k) to the directions that belong to none, if there are any. Here
        E g_i' z_j^2 stands where Newton's step for a fit has E g_i' E z_j^2: a fit takes more steps if codes depend
        on each other, a stream has but one.
        """
        m, k = self.A.shape
        gz, slope, v = (np.asarray(total) / self.sums.weight for total in (self.sums.gz, self.sums.slope, self.sums.z2))
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
    cloud: Cloud
    survey: Survey  # what the frame was made of
    frame: Frame
    new_to_frame: float  # weight since it was made
    histogram: Histogram
    law: CodeModel
    new_to_law: float  # weight since it was fitted
    lp: Walk
    likelihood: Walk | None
    cross: Matrix  # (m,) sum g g_lp, over the codes looked at one by one
    verdict: Verdict  # on the likelihood
    mixed: tuple[Pair, ...]  # atoms that were mixed with each other in the first fit

    @classmethod
    def begun(cls, p: float, refine: str | None, answer: Answer, frame: Frame, survey: Survey, looks: float) -> Stream:
        """The stream that goes on from a fit.

        Corruption cannot be taken out of samples that are seen once, and the likelihood needs all directions.
        """
        r, A = float(survey.n_samples), to_numpy(answer.A)
        m, k = A.shape
        likely = refine in ("auto", "bernoulli-gaussian") and answer.corruption is None and m == k
        refined, of = answer.refined is not None, answer.moments
        likely_sums = Sums(r, gz=r * of.gz, g2=r * of.g2, slope=r * of.slope, z2=r * of.z2) if refined else _no_sums(m)
        return cls(
            p=p,
            refine=refine,
            center=survey.centred,
            whiten=frame.whitened,
            n_seen=survey.n_samples,
            n_steps=0,
            n_looks=looks * r,
            weight=r,
            squared_weight=r,
            cloud=Cloud.of(survey),
            survey=survey,
            frame=frame,
            new_to_frame=0.0,
            histogram=Histogram.empty(m),
            law=answer.model,
            new_to_law=0.0,
            lp=Walk.begun(A, _times(_on_host(answer.sums), r / answer.sums.weight)),
            likelihood=Walk.begun(A, likely_sums) if likely else None,
            cross=np.zeros(m),
            verdict=Verdict(refined, answer.status),
            mixed=answer.mixed,
        )

    @property
    def effective_samples(self) -> float:
        """Number of equally weighted samples that would give the same error bars."""
        return self.weight**2 / self.squared_weight

    @property
    def believed(self) -> Walk:
        """The walk whose atoms are the answer."""
        return self.likelihood if self.likelihood is not None and self.verdict.accepted else self.lp

    def drift_errors(self, errors: Matrix) -> Matrix:
        """What drift adds to the error bars of the atoms (m,), or nothing if chance explains the lag.

        Atoms that drift are followed at a distance, and each part finds them there, on the same side. The mean of what
        parts find has a variance of its own: that of the atoms if nothing is forgotten, half of it if much is.
        """
        found = 2 * np.sum(self.believed.lag**2, axis=1)
        chance = errors * (self.squared_weight / self.weight) * (1 + 4 / math.sqrt(len(errors)))
        return np.asarray(np.maximum(0.0, found - chance))

    def answer(self) -> Answer:
        """The stream as the answer of a fit, to as many samples as its error bars speak of."""
        walk = self.believed
        status = f"stream: {self.n_seen} samples seen, error bars of {self.effective_samples:.0f}"
        return Answer(
            A=walk.A,
            sums=_times(self.lp.sums, self.effective_samples / self.weight),
            moments=moments(walk.sums),
            model=self.law,
            refined=None if walk is self.lp else "bernoulli-gaussian",
            converged=True,
            stopped=False,
            status=status if self.likelihood is None else f"{status}; {self.verdict.reason}",
            n_iter=self.n_steps,
            mixed=self.mixed,
        )

    def after(self, samples: MemorySamples, half_life: float | None) -> Stream:
        """The stream after a batch, which is looked at once; whatever is wrong with it, this stream stays as it is."""
        stream = self
        for start, stop in self._parts(samples.n_samples, half_life):
            part = MemorySamples(samples.X[start:stop, :])
            spread = part.sum_over(SpreadKernel("float64" if self.whiten else samples.dtype)).on_host()
            if spread.misfit is not None:
                raise not_finite(samples, replace(spread.misfit, sample=start + spread.misfit.sample))
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

    def _weighed(self, spread: Spread, half_life: float | None) -> Stream:
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
            cloud=self.cloud.joined(spread, keep),
            new_to_frame=keep * self.new_to_frame + b,
            # codes of the early atoms, which were further off, are forgotten in any case
            histogram=self.histogram.faded(keep * (1 - b / (self.weight + b))),
            new_to_law=keep * self.new_to_law + b,
            lp=self.lp.faded(keep),
            likelihood=self.likelihood and self.likelihood.faded(keep),
            cross=keep * self.cross,
        )

    def _framed(self, dtype: str) -> Stream:
        """With the frame that the samples call for now, and the atoms seen from there."""
        if self.new_to_frame < STALE_FRAME * self.weight:
            return self
        survey = self.cloud.survey(center=self.center, dtype=dtype)
        if survey.rank != self.lp.A.shape[1]:  # a direction came or went; atoms are not born and do not die
            return self
        frame = Frame.of(survey, center=self.center, whiten=self.whiten)
        return replace(
            self,
            survey=survey,
            frame=frame,
            new_to_frame=0.0,
            lp=replace(self.lp, A=_carried(self.lp.A, self.frame, frame)),
            likelihood=self.likelihood and replace(self.likelihood, A=_carried(self.likelihood.A, self.frame, frame)),
        )

    def _moved(self, part: MemorySamples, spread: Spread) -> Stream:
        """After the steps of a part."""
        precision = precision_for(self.p, dtype=part.dtype, code_bound=_code_bound(spread, self.frame))
        rows = self.frame.inside(part.rows(_spaced(part.n_samples, ROWS_COUNTED)))
        histogram = self.histogram.joined(rows @ self.believed.A.T, float(part.n_samples))
        lp, lp_gradients = self._stepped(self.lp, Lp(self.p), part, rows, precision)
        if self.likelihood is None:
            return replace(self, histogram=histogram, lp=lp)
        # atoms that are followed at a distance blur their zeros, and stay in reach while that passes for noise
        noise = max(self.law.noise, (STEADY * self.likelihood.longest_lag) ** 2)
        contrast = BernoulliGaussian(replace(self.law, noise=noise))
        likelihood, gradients = self._stepped(self.likelihood, contrast, part, rows, precision)
        cross = self.cross + np.mean(gradients * lp_gradients, axis=0) * part.n_samples
        return replace(self, histogram=histogram, lp=lp, likelihood=likelihood, cross=cross)

    def _stepped(
        self, walk: Walk, contrast: Contrast, part: MemorySamples, rows: Matrix, precision: str
    ) -> tuple[Walk, Matrix]:
        """A walk after the step of a part, and the derivatives of its contrast at the codes of some rows."""
        need, A = Needs.GRADIENT | Needs.MOMENTS, part.space.asarray(walk.A, "float64")
        sums = _on_host(measure(part, self.frame.moved_to(part.space), contrast, A, need, precision))
        codes = rows @ walk.A.T
        terms = contrast.terms(codes, need, workspace(HOST, precision), HOST.xp)
        assert isinstance(terms.slope, Weighted)
        return walk.after(sums, codes, terms.slope.expanded(), self.weight), np.asarray(terms.gain * terms.g)

    def _judged(self, dtype: str) -> Stream:
        """With the law of the codes fitted anew if a share of them is new, and a verdict on it."""
        if self.new_to_law < STALE_LAW * self.weight or self.histogram.weight < COUNTED * self.weight:
            return self
        law = fit_code_model(self.histogram.counts(), least_noise=LEAST_NOISE[dtype])
        there = replace(self, law=law, new_to_law=0.0)
        if self.likelihood is None:
            return there
        distance = apart(self.lp.A, self.likelihood.A)
        verdict = self._evidence(law, self.likelihood, distance)
        if not verdict.accepted and distance > ASTRAY:
            return replace(there, verdict=verdict, likelihood=Walk.begun(self.lp.A, _no_sums(len(self.lp.A))))
        return replace(there, verdict=verdict)

    def _evidence(self, law: CodeModel, likelihood: Walk, distance: float) -> Verdict:
        """Whether codes are as the law says: Hausman's test between l_p and the likelihood, as after a fit."""
        r = self.effective_samples
        if self.refine == "bernoulli-gaussian":
            return AS_ASKED
        if exact(law, r):
            return EXACT
        sums = _times(likelihood.sums, r / likelihood.sums.weight)
        cross = self.cross * (r / likelihood.bend_weight)
        return hausman(moments(self.lp.sums), replace(sums, extra={"cross": cross}), distance)


def kept(n_samples: int, half_life: float | None) -> float:
    """Share of its weight that a sample keeps while so many others come."""
    return 1.0 if half_life is None else 0.5 ** (n_samples / half_life)


def turned(A: Matrix, between: Matrix, outside: Matrix | None) -> Matrix:
    """A after a step, which is cut short where it is too long to be true."""
    move = between @ A if outside is None else between @ A + outside
    length = math.sqrt(float(np.sum(move**2)) / len(A))
    return np.asarray(polar(A + min(1.0, LONGEST / max(length, 1e-300)) * move))


def _carried(A: Matrix, old: Frame, new: Frame) -> Matrix:
    """The same atoms, seen from another frame."""
    if old.inner is None or new.outer is None:
        return A
    return np.asarray(polar(A @ old.inner @ new.outer.T))


def _code_bound(spread: Spread, frame: Frame) -> float:
    """Largest absolute value that a code of the samples of this spread can take."""
    reach = math.ldexp(spread.peak, spread.exponent)
    offset = 0.0 if frame.mean is None else float(np.linalg.norm(frame.mean))
    stretch = 1.0 if frame.inner is None else float(np.linalg.norm(frame.inner, 2))
    return max(1.0, (reach + offset) * frame.unit * stretch)


def _spaced(n_samples: int, most: int) -> NDArray[np.int64]:
    """Sorted indices, evenly spread."""
    return np.arange(0, n_samples, -(-n_samples // most), dtype=np.int64)


def _no_sums(m: int) -> Sums:
    """Moments of no samples."""
    return Sums(0.0, gz=np.zeros(m), g2=np.zeros(m), slope=np.zeros(m), z2=np.zeros(m))


def _on_host(sums: Sums) -> Sums:
    """The same sums as NumPy arrays."""
    return _each(sums, to_numpy)


def _times(sums: Sums, factor: float) -> Sums:
    """Sums of samples that count this much."""
    return replace(_each(sums, lambda array: factor * array), weight=factor * sums.weight)


def _each(sums: Sums, change: Callable[[Any], Any]) -> Sums:
    """Sums with all their arrays changed."""
    arrays = {field.name: getattr(sums, field.name) for field in fields(sums) if field.name not in ("weight", "extra")}
    changed = {name: None if array is None else change(array) for name, array in arrays.items()}
    return Sums(weight=sums.weight, extra={name: change(array) for name, array in sums.extra.items()}, **changed)
