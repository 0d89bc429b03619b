"""Sparse corruption: samples are sparse in the atoms, but for a few entries that were hit, and some Gaussian noise.

Approximate message passing estimates codes and corruption in turn, each through Gaussian noise; only the extrinsic part
of an estimate is passed on, with one variance for all values, so a round is two products with A and two functions of
one value. The variances of all rounds are found on drawn samples; other samples replay the rounds with them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from elldict._old.backend.base import Array, Backend, Work
from elldict._old.solver.spike_slab import SpikeSlab, SpikeSlabLikelihood

Vector = NDArray[np.float64]
Matrix = NDArray[np.float64]

MAX_ROUNDS = 25
CONVERGED_CHANGE = 0.03
"""Rounds, and the relative change of the variance at which further ones are of no use."""

MAX_UNKNOWN_SHARE = 0.8
"""A sample with more active codes and hit entries together than this share of its entries explains nothing: as many
unknowns as equations fit anything. Laws are learned from the others."""


NOISE_LEVELS, ROUNDS_A_LEVEL = (0.3, 0.2, 0.1, 0.05, 0.02, 0.01, 0.005, 0.002, 0.001, 1e-4), 5
"""Standard deviations of the noise, in units of the root mean square of hits, from which it comes down to its own where
that is smaller, and rounds at each."""

DAMPING = 0.8
"""Share of a new message in what is sent, where each sample has its own variances: their rounds may go in circles."""

MAX_SHARE, MAX_SHARE_OF_EACH = 0.98, 0.9
"""Share of the variance of a message, at most, that is left when its values are guessed: what is sent back is as much
larger as the rest is smaller. One sample alone would be blown up from message to message with the first."""

REST_SD, MIN_AT_REST = 6.0, 0.5
"""Standard deviations of the noise within which codes are at rest, and the share of those that are not active that has
to be, for the noise to be what it is said to be."""


@dataclass(frozen=True)
class CorruptionLaw:
    """Law of the codes, and of what is added to samples, in samples of unit mean square."""

    density: Vector  # (m,)
    power: Vector  # (m,) variance of an active code
    rate: float  # share of entries that were hit
    size: float  # mean square of a hit
    noise: float  # variance of the Gaussian noise on every entry
    least_noise: float
    centre: float = 0.0  # hits are Gaussian about plus or minus this value, with the variance size - centre^2

    @classmethod
    def guess(cls, n_atoms: int, least_noise: float) -> CorruptionLaw:
        """Where learning begins: sparse codes with most of the power, few and large hits, a little noise."""
        return cls(np.full(n_atoms, 0.3), np.full(n_atoms, 2.7), 0.05, 1.0, 0.05, least_noise)

    def law_of_codes(self, noise: float) -> SpikeSlab:
        """Law of the codes seen through noise of this variance."""
        return SpikeSlab(self.density, self.power, noise, self.least_noise)

    def reorder(self, order: NDArray[np.intp], unit: float) -> CorruptionLaw:
        """The law of atoms in this order, of samples that are smaller by the factor `unit`."""
        density, power, square = self.density[order], self.power[order] / unit**2, unit**2
        numbers = {"size": self.size / square, "noise": self.noise / square, "least_noise": self.least_noise / square}
        return replace(self, density=density, power=power, centre=self.centre / unit, **numbers)


@dataclass(frozen=True)
class ExtrinsicDenoiser:
    """z (level + swing tanh(offset + rate z^2)): the extrinsic part of the best guess of what is behind z."""

    level: Any
    swing: Any
    offset: Any
    rate: Any

    def in_unit(self, unit: float) -> ExtrinsicDenoiser:
        """Denoiser for values that are smaller by this factor."""
        return replace(self, rate=self.rate * unit**2)

    def move_to(self, backend: Backend, dtype: str) -> ExtrinsicDenoiser:
        """The same denoiser where the tile is."""
        fields = (self.level, self.swing, self.offset, self.rate)
        return ExtrinsicDenoiser(*(backend.asarray(np.atleast_1d(value), dtype) for value in fields))

    def __call__(self, z: Array, work: Work, xp: Any, into: str) -> Array:
        """Pass values z (b, n) through the denoiser; not into themselves."""
        gain = work.map(xp.multiply, z, z, into=into)
        for function, operand in ((xp.multiply, self.rate), (xp.add, self.offset)):
            gain = work.map(function, gain, operand, into=into)
        gain = work.map(xp.tanh, gain, into=into)
        for function, operand in ((xp.multiply, self.swing), (xp.add, self.level), (xp.multiply, z)):
            gain = work.map(function, gain, operand, into=into)
        return gain


@dataclass(frozen=True)
class AmpRound:
    """One exchange of messages: codes to samples, samples to codes."""

    to_samples: ExtrinsicDenoiser
    to_codes: ExtrinsicDenoiser


def clean(Y: Array, unmixing: Array, rounds: tuple[AmpRound, ...], work: Work, xp: Any) -> Array:
    """Samples (b, n) without their corruption, as far as it is recognised; codes of Y are ``Y @ unmixing``.

    `unmixing` is an orthonormal matrix times a unit, which the denoisers have to know.
    """
    backend, dtype = Backend.of(Y), str(Y.dtype).rsplit(".", maxsplit=1)[-1]
    power = float(xp.sum(unmixing * unmixing)) / int(unmixing.shape[1])
    rebuild = unmixing.T / power
    clean = Y
    for number in rounds:
        to_samples = number.to_samples.move_to(backend, dtype)
        to_codes = number.to_codes.in_unit(math.sqrt(power)).move_to(backend, dtype)
        Z = work.matmul(clean, unmixing, into="codes")
        guess = to_samples(Z, work, xp, into="guess")
        rest = work.map(xp.subtract, Y, work.matmul(guess, rebuild, into="rest"), into="rest")
        clean = work.map(xp.subtract, Y, to_codes(rest, work, xp, into="clean"), into="clean")
    return clean


@dataclass(frozen=True)
class AmpSchedule:
    """What came of some rounds over a few samples."""

    model: CorruptionLaw
    rounds: tuple[AmpRound, ...]
    blur: float  # variance of the noise through which codes of cleaned samples are seen
    codes: _Half  # of the last round
    hits: _Half


def learn_law(Y: Matrix, A: Matrix, model: CorruptionLaw, n_rounds: int) -> CorruptionLaw:
    """Law that suits the samples Y (b, n) at A, learned along the way of `n_rounds` rounds."""
    return _pass_messages(Y, A, model, n_rounds, learn=True).model


def compute_schedule(Y: Matrix, A: Matrix, model: CorruptionLaw) -> AmpSchedule:
    """Rounds that tell codes and corruption of Y (b, n) apart under a given law."""
    return _pass_messages(Y, A, model, MAX_ROUNDS, learn=False)


def measure_evidence(Y: Matrix, A: Matrix, model: CorruptionLaw) -> float:
    """Mean log density of a sample of Y (b, n), in nats, under the law of codes and corruption at A.

    That of both halves, each seen through the noise of the message from the other one, less that of the messages where
    they meet (the free energy of expectation propagation). Minus infinity if codes are not as free of noise as messages
    say: variances can fall without a reason where a few huge values make up most of the power.
    """
    found = compute_schedule(Y, A, model)
    codes, hits, noise = found.codes, found.hits, model.noise + found.hits.blur
    at_rest = np.mean(codes.seen**2 < REST_SD**2 * codes.blur)
    if at_rest < MIN_AT_REST * (1 - np.mean(model.density)):
        return -math.inf
    own = SpikeSlabLikelihood(model.law_of_codes(codes.blur)).log_density(codes.seen, np)
    law = SpikeSlab(np.array([model.rate]), np.array([model.size]), noise, model.least_noise)
    other = SpikeSlabLikelihood(law).log_density(hits.seen, np)
    width = codes.blur + hits.blur
    apart = codes.seen @ A - (Y - hits.seen)
    meeting = -0.5 * (math.log(2 * math.pi * width) + apart**2 / width)
    return float(np.mean(np.sum(own + other - meeting, axis=1)))


def first_residual(Y: Matrix, A: Matrix, codes: SpikeSlab) -> Matrix:
    """Samples Y (b, n) without their codes, whose law is known: the first message, all else being noise to it."""
    half = _Half.of(Y @ A.T, codes.noise, codes.density, codes.power, np.zeros(1))
    return np.asarray(Y - half.message @ A)


def _pass_messages(Y: Matrix, A: Matrix, model: CorruptionLaw, n_rounds: int, *, learn: bool) -> AmpSchedule:
    first, hits = _guess_hits(Y, model)
    clean, blur, rounds = Y - hits.message, max(hits.sent, model.least_noise), [first]
    for _ in range(n_rounds):
        codes = _Half.of(clean @ A.T, blur, model.density, model.power, np.zeros(1))
        rest = Y - codes.message @ A
        hits = _see_hits(rest, codes.sent, model)
        clean = Y - hits.message
        rounds.append(AmpRound(codes.denoiser, hits.denoiser))
        before, blur = blur, max(hits.sent, model.least_noise)
        if learn:
            model = _update_law(model, codes, hits)
        elif abs(math.log(blur / before)) < CONVERGED_CHANGE:
            break
    return AmpSchedule(model, tuple(rounds), blur, codes, hits)


@dataclass(frozen=True)
class Exchange:
    """Where message passing stands that goes by the variances of each sample: corruption as sent, and its variance."""

    sent: Array  # (b, n)
    blur: Array  # (b, 1)
    codes: _Half | None = None
    hits: _Half | None = None

    @classmethod
    def begin(cls, Y: Array, model: CorruptionLaw) -> Exchange:
        """Before the first round: hits that stand out among the entries of Y (b, n) themselves."""
        backend = Backend.of(Y)
        power = np.full((int(Y.shape[0]), 1), float(np.mean(model.density * model.power)))
        hits = _see_hits(Y, backend.asarray(power, "float64"), model)
        return cls(hits.message, hits.sent)

    def go_on(self, Y: Array, A: Array, model: CorruptionLaw, n_rounds: int) -> Exchange:
        """The same some rounds later. Unlike one variance for all, this suits samples that are solved early and late.

        It cannot be replayed: what is done with a sample depends on its own variances.
        """
        backend = Backend.of(Y)
        xp, sent, blur = backend.xp, self.sent, self.blur
        density, power = backend.asarray(model.density, "float64"), backend.asarray(model.power, "float64")
        nothing, least = backend.asarray(np.zeros(1), "float64"), xp.full_like(blur, model.least_noise)
        codes, hits = self.codes, self.hits
        for _ in range(n_rounds):
            codes = _Half.of((Y - sent) @ A.T, blur, density, power, nothing)
            hits = _see_hits(Y - codes.message @ A, codes.sent, model)
            sent = DAMPING * hits.message + (1 - DAMPING) * sent
            blur = xp.maximum(hits.sent, least) ** DAMPING * blur ** (1 - DAMPING)
        return Exchange(sent, blur, codes, hits)


def guess_codes(Y: Array, A: Array, model: CorruptionLaw) -> Array:
    """Posterior means (b, n) of the codes of samples Y (b, n), whose corruption and noise follow this law."""
    codes = tell_apart(Y, A, model).codes
    assert codes is not None
    return codes.mean


def tell_apart(Y: Array, A: Array, model: CorruptionLaw) -> Exchange:
    """Codes and corruption of samples Y (b, n) under a given law, each sample by itself."""
    exchange, size = Exchange.begin(Y, model), math.sqrt(model.size)
    for level in NOISE_LEVELS:  # with no noise from the start, the first guess of a sample would be its last
        if (level * size) ** 2 > model.noise:
            exchange = exchange.go_on(Y, A, replace(model, noise=(level * size) ** 2), ROUNDS_A_LEVEL)
    return exchange.go_on(Y, A, model, 2 * ROUNDS_A_LEVEL)


def _guess_hits(Y: Matrix, model: CorruptionLaw) -> tuple[AmpRound, _Half]:
    """The round before the others: hits that stand out among the entries themselves, of codes nothing being known.

    Variances are those of all samples together. Where hits are rare and large, codes first would be seen through far
    more noise in the few samples that were hit than is expected of all, and would explain the hits.
    """
    hits = _see_hits(Y, float(np.mean(model.density * model.power)), model)
    return AmpRound(ExtrinsicDenoiser(0.0, 0.0, 0.0, 0.0), hits.denoiser), hits


def _see_hits(rest: Array, blur: Any, model: CorruptionLaw) -> _Half:
    backend = Backend.of(rest)
    noise, rate = (backend.asarray(np.array([value]), "float64") for value in (model.noise, model.rate))
    return _Half.of(rest, blur, rate, model.size - model.centre**2 + noise, noise, model.centre)


@dataclass(frozen=True)
class _Half:
    """One half of a round: values seen through Gaussian noise, each from one of two laws.

    The narrow one is a centred Gaussian; the wide one too, or two Gaussians about plus and minus a centre. The variance
    of the noise, and of what is sent, is one number, or one a sample (b, 1).
    """

    seen: Array
    activity: Array  # probability of the wide one
    mean: Array  # best guess of what is behind
    wide: Array  # share of a value that is kept if it comes from the wide one
    narrow: Array
    blur: Any  # variance of the noise
    variance: Any  # of the guesses, on average
    sent: Any  # variance of what is sent to the other half
    offset: Array
    rate: Array

    @classmethod
    def of(cls, seen: Array, blur: Any, density: Array, wide: Array, narrow: Array, centre: float = 0.0) -> _Half:
        xp = Backend.of(seen).xp
        kept_wide, kept_narrow = wide / (wide + blur), narrow / (narrow + blur)
        ratio = (wide + blur) / (narrow + blur)
        offset = 0.5 * (xp.log(density) - xp.log1p(-density) - 0.5 * xp.log(ratio))
        rate = 0.25 * (1 / (narrow + blur) - 1 / (wide + blur))
        half_log_odds, beyond, doubt = offset + rate * seen**2, 0.0, 0.0
        if centre:
            lean = centre * seen / (wide + blur)
            size, side = xp.abs(lean), xp.tanh(lean)  # log cosh without overflow
            log_cosh = size + xp.log1p(xp.exp(-2 * size)) - math.log(2)
            half_log_odds = half_log_odds + 0.5 * log_cosh - 0.25 * centre**2 / (wide + blur)
            beyond, doubt = (1 - kept_wide) * centre * side, ((1 - kept_wide) * centre) ** 2 * (1 - side**2)
        activity = 0.5 * (1 + xp.tanh(half_log_odds))
        gap = (kept_wide - kept_narrow) * seen + beyond
        between = activity * ((1 - activity) * gap**2 + doubt)
        spread = blur * (kept_narrow + activity * (kept_wide - kept_narrow)) + between
        each = not isinstance(blur, float)
        variance = xp.mean(spread, axis=1, keepdims=True) if each else float(xp.mean(spread))
        if each:
            variance = xp.minimum(xp.maximum(variance, 1e-6 * blur), MAX_SHARE_OF_EACH * blur)
        else:
            variance = min(max(variance, 1e-6 * blur), MAX_SHARE * blur)
        sent = 1 / (1 / variance - 1 / blur)
        guess = kept_narrow * seen + activity * gap
        return cls(seen, activity, guess, kept_wide, kept_narrow, blur, variance, sent, offset, rate)

    @property
    def message(self) -> Array:
        """Extrinsic part of the guess."""
        return self.sent * (self.mean / self.variance - self.seen / self.blur)

    @property
    def denoiser(self) -> ExtrinsicDenoiser:
        """What makes that message of values like these, where no law has a centre."""
        a, b = self.sent / self.variance, self.sent / self.blur
        swing = 0.5 * a * (self.wide - self.narrow)
        return ExtrinsicDenoiser(a * self.narrow + swing - b, swing, self.offset, self.rate)

    def powers(self, rows: NDArray[np.bool_]) -> tuple[Vector, Vector, Vector]:
        """Share of values from the wide Gaussian, and variances of both, for each column."""
        z2, active = self.seen[rows] ** 2, self.activity[rows]
        inactive = 1 - active
        wide = self.wide**2 * np.sum(active * z2, axis=0) + self.wide * self.blur * np.sum(active, axis=0)
        narrow = self.narrow**2 * np.sum(inactive * z2, axis=0) + self.narrow * self.blur * np.sum(inactive, axis=0)
        return np.mean(active, axis=0), wide / len(active), narrow / len(active)


def _update_law(model: CorruptionLaw, codes: _Half, hits: _Half) -> CorruptionLaw:
    """One step of expectation maximisation for all parameters, over samples that explain something."""
    unknowns = np.sum(codes.activity, axis=1) + np.sum(hits.activity, axis=1)
    rows = unknowns < MAX_UNKNOWN_SHARE * hits.seen.shape[1]
    if np.mean(rows) < 0.2:
        rows = np.ones_like(rows)
    active, wide, _ = codes.powers(rows)
    share, hit, inactive = (float(np.mean(column)) for column in hits.powers(rows))
    noise = max(inactive / max(1 - share, 1e-9), model.least_noise)
    return replace(
        model,
        density=np.clip(active, 1e-4, 1 - 1e-4),
        power=np.maximum(wide / np.maximum(active, 1e-9), model.least_noise),
        rate=min(max(share, 1e-6), 0.9),
        size=max(hit / max(share, 1e-9) - noise, model.least_noise),
        noise=noise,
    )
