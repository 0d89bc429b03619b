"""The spike-and-slab law of a noisy code, its fit, and its likelihood as an objective."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import scipy.optimize
from numpy.typing import NDArray

from elldict.backend.base import Array, Backend, Work, to_numpy
from elldict.backend.torch import Fused
from elldict.solver.objective import LinearCodes, Lp, Quantities, Summed, Term, Terms, Weighted

Vector = NDArray[np.float64]

FINE, FINER = 22, 19
"""Binary digits of a float32 that are left out to number its bin: two bins, or sixteen, for every factor of two."""

FEW_ROUNDS = 5
CLOSE = 3e-4
"""Relative change of a parameter in a round of expectation maximisation that is not worth another."""


@dataclass(frozen=True)
class SpikeSlab:
    """Parameters of the law, for m atoms."""

    density: Vector  # (m,)
    power: Vector  # (m,) variance of an active code without noise
    noise: float  # variance of the noise
    least_noise: float = 0.0  # below which noise was not looked for

    def activity(self, z2: NDArray[np.float64]) -> NDArray[np.float64]:
        """Probability that a code is active, given its square; atoms along the first axis."""
        return 0.5 * (1 + np.tanh(0.5 * self._logit(z2)))

    def log_density(self, z2: NDArray[np.float64]) -> NDArray[np.float64]:
        """Logarithm of the density of a code, given its square; atoms along the first axis."""
        inactive = np.log1p(-self.density)[:, None] - 0.5 * (math.log(2 * math.pi * self.noise) + z2 / self.noise)
        return np.asarray(inactive + np.logaddexp(0.0, self._logit(z2)))

    def _logit(self, z2: NDArray[np.float64]) -> NDArray[np.float64]:
        offset, rate = logit_line(self)
        return np.asarray(offset[:, None] + rate[:, None] * z2)


def logit_line(model: SpikeSlab) -> tuple[Vector, Vector]:
    """The log odds that a code is active are offset + rate z^2; one of each for an atom."""
    return _line(model.density, model.power, np.full_like(model.power, model.noise))


def _line(density: Vector, power: Vector, noise: Vector) -> tuple[Vector, Vector]:
    total = power + noise
    offset = np.log(density) - np.log1p(-density) - 0.5 * np.log(total / noise)
    return offset, 0.5 * (1 / noise - 1 / total)


@dataclass(frozen=True)
class CodeHistogram:
    """Codes of every atom, counted in bins of their logarithm: a hundred numbers stand for any number of codes."""

    count: NDArray[np.float64]  # (m, bins)
    z2: NDArray[np.float64]  # (m, bins) mean square of the codes in a bin

    @classmethod
    def of(cls, Z: NDArray[np.float64]) -> CodeHistogram:
        """Counts of codes Z (b, m)."""
        return cls._binned(np.square(Z), None, FINE)

    @property
    def mean_square(self) -> Vector:
        """Mean square code of each atom."""
        return np.asarray(np.sum(self.count * self.z2, axis=1) / np.sum(self.count, axis=1))

    def pooled(self) -> CodeHistogram:
        """All atoms as one, each scaled to unit mean square."""
        scaled = (self.z2 / self.mean_square[:, None]).reshape(-1, 1)
        # finer bins: these squares are means of bins already, and would be rounded twice
        return CodeHistogram._binned(scaled, self.count.reshape(-1, 1), FINER)

    @classmethod
    def _binned(cls, z2: NDArray[np.float64], weights: NDArray[np.float64] | None, left_out: int) -> CodeHistogram:
        """Count squares z2 (b, m) in bins; empty bins of all atoms are left out.

        The first digits of a floating point number, exponent and all, are its logarithm, near enough.
        """
        m = z2.shape[1]
        with np.errstate(over="ignore", under="ignore"):
            where = z2.astype(np.float32).view(np.int32) >> left_out
        lowest = int(np.min(where))
        bins = int(np.max(where)) - lowest + 1
        flat = (where + (bins * np.arange(m) - lowest)).ravel()
        number = None if weights is None else weights.ravel()
        squares = z2.ravel() if number is None else number * z2.ravel()
        count = np.bincount(flat, weights=number, minlength=bins * m).reshape(m, bins).astype(np.float64)
        total = np.bincount(flat, weights=squares, minlength=bins * m).reshape(m, bins)
        used = np.any(count > 0, axis=0)
        return cls(count[:, used], total[:, used] / np.maximum(count[:, used], 1e-300))


def fit_spike_slab(counts: CodeHistogram, *, least_noise: float) -> SpikeSlab:
    """Maximum likelihood; first for all atoms as one, then for each.

    The likelihood is unbounded: with the noise at zero and a single code there, it is infinite. So the fit comes down
    from a large noise by expectation maximisation, which stops at the first maximum, and stays near it from then on;
    never below `least_noise`.

    While atoms are still on their way, the zeros of some are blurred more than those of others. A shared noise would
    then suit the many, and the zeros of the few would pass for active codes for good. So the largest noise of an atom,
    fitted by itself, is taken for all where they differ by much.
    """
    m, shared = len(counts.count), _shared(counts, least_noise)
    start = _Guess(np.repeat(shared.density, m), shared.power * counts.mean_square, 0.05 * counts.mean_square)
    own = _descended(counts, start, least_noise, rounds=40)
    common = max(shared.noise, least_noise)
    uneven = bool(np.max(own.noise) > 4 * np.median(own.noise))
    if uneven:
        common = float(np.max(own.noise))
    start = replace(start, noise=np.full(m, common))
    if np.max(counts.mean_square) > 4 * np.min(counts.mean_square):  # scaled alike, their noise was not
        return replace(_climbed(counts, start, common if uneven else least_noise), least_noise=least_noise)
    fitted = _descended(counts, start, least_noise, rounds=40, noise_known=True)
    return SpikeSlab(fitted.density, fitted.power, common, least_noise)


def _shared(counts: CodeHistogram, least_noise: float, rounds: int = 60) -> SpikeSlab:
    """The law of all atoms as one: its power for a mean square of one, its noise for the mean square that they have."""
    pool, scale = counts.pooled(), float(np.mean(counts.mean_square))
    found = _climbed(pool, _descended(pool, FIRST_GUESS, least_noise / scale, rounds), least_noise / scale)
    return replace(found, noise=found.noise * scale)


def fit_roughly(counts: CodeHistogram, *, least_noise: float) -> SpikeSlab:
    """A law to begin with while atoms are on their way: that of all of them as one, and a few rounds for each."""
    m, shared = len(counts.count), _shared(counts, least_noise, rounds=10)
    own = SpikeSlab(np.repeat(shared.density, m), shared.power * counts.mean_square, shared.noise, least_noise)
    return update_spike_slab(counts, own)


def update_spike_slab(counts: CodeHistogram, model: SpikeSlab) -> SpikeSlab:
    """The law a few rounds of expectation maximisation on from `model`: enough for codes that have moved a little.

    Noise is the mean of what atoms have by themselves, or the largest where they differ by much, as in a full fit.
    """
    m = len(model.density)
    guess = _Guess(model.density, model.power, np.full(m, model.noise))
    own = _descended(counts, guess, model.least_noise, rounds=FEW_ROUNDS)
    largest = float(np.max(own.noise))
    noise = largest if largest > 4 * np.median(own.noise) else float(np.mean(own.noise))
    return replace(model, density=own.density, power=own.power, noise=noise)


@dataclass(frozen=True)
class _Guess:
    """Parameters on the way to a fit: each atom may still have its own noise."""

    density: Vector
    power: Vector
    noise: Vector


FIRST_GUESS = _Guess(np.array([0.3]), np.array([3.0]), np.array([0.1]))
"""For codes of unit mean square."""


def _descended(
    counts: CodeHistogram, guess: _Guess, least_noise: float, rounds: int, *, noise_known: bool = False
) -> _Guess:
    """Expectation maximisation, each atom by itself."""
    number, half = np.sum(counts.count, axis=1), 0.5 * counts.count
    for _ in range(rounds):
        offset, rate = _line(guess.density, guess.power, guess.noise)
        swing = half * np.tanh(0.5 * (offset[:, None] + rate[:, None] * counts.z2))
        active = half + swing
        share = np.add.reduce(active, axis=1)
        active_square, idle_square = (np.einsum("ij,ij->i", part, counts.z2) for part in (active, half - swing))
        kept = guess.power / (guess.power + guess.noise)  # x given z and activity: mean kept z, variance kept noise
        blur = kept * guess.noise * share
        before = guess
        guess = _Guess(
            density=np.clip(share / number, 1e-4, 1 - 1e-4),
            power=np.maximum((kept**2 * active_square + blur) / np.maximum(share, 1e-300), least_noise),
            noise=guess.noise
            if noise_known
            else np.maximum((idle_square + (1 - kept) ** 2 * active_square + blur) / number, least_noise),
        )
        if _close(before, guess):
            break
    return guess


def _close(a: _Guess, b: _Guess) -> bool:
    """Whether a round has changed next to nothing."""
    moved = np.abs(b.noise - a.noise) > CLOSE * a.noise
    return not np.any(moved | (np.abs(b.density - a.density) > CLOSE * a.density))


def _climbed(counts: CodeHistogram, guess: _Guess, least_noise: float) -> SpikeSlab:
    """Climb the likelihood with one noise for all, by L-BFGS in log odds and logarithms, where parameters are alike.

    Expectation maximisation would take hundreds of rounds where noise and codes overlap.
    """
    m = len(guess.density)
    number = float(np.sum(counts.count))
    near = float(guess.noise[0])

    def loss(x: Vector) -> tuple[float, Vector]:
        model = _from_vector(x, m)
        return (
            -float(np.sum(counts.count * model.log_density(counts.z2))) / number,
            -_slopes(counts, model) / number,
        )

    x = _to_vector(SpikeSlab(guess.density, guess.power, near))
    bounds = [(-9.0, 9.0)] * m + [(value - 7, value + 7) for value in x[m : 2 * m]]
    bounds += [(max(math.log(least_noise), math.log(near) - 2), math.log(near) + 2)]
    found = scipy.optimize.minimize(loss, x, jac=True, method="L-BFGS-B", bounds=bounds, options={"maxiter": 200})
    return _from_vector(np.asarray(found.x), m)


def _slopes(counts: CodeHistogram, model: SpikeSlab) -> Vector:
    """Derivatives of the log-likelihood by the log odds of density, log power and log noise."""
    active = counts.count * model.activity(counts.z2)
    inactive = counts.count - active
    total = model.power + model.noise
    by_total = 0.5 * np.sum(active * (counts.z2 / total[:, None] - 1), axis=1) / total
    by_noise = 0.5 * np.sum(inactive * (counts.z2 / model.noise - 1)) / model.noise
    by_odds = np.sum(active, axis=1) - model.density * np.sum(counts.count, axis=1)
    return np.concatenate([by_odds, model.power * by_total, [model.noise * (by_noise + np.sum(by_total))]])


def _to_vector(model: SpikeSlab) -> Vector:
    odds = np.log(model.density) - np.log1p(-model.density)
    return np.concatenate([odds, np.log(model.power), [math.log(model.noise)]])


def _from_vector(x: Vector, m: int) -> SpikeSlab:
    return SpikeSlab(1 / (1 + np.exp(-x[:m])), np.exp(x[m : 2 * m]), math.exp(x[2 * m]))


BINS_PER_OCTAVE = 16
OCTAVES = (-64, 16)
"""Bins for the squares of all codes as one, in units of their mean square."""

MANY_ROUNDS = 3000
VERY_CLOSE = 1e-6
"""Rounds take microseconds here, so that nothing but rounds is needed."""

UNLIKE = 4.0
"""Ratio of two noises, or of two mean squares, from which atoms are not alike_on_device."""


@dataclass(frozen=True)
class DeviceLaw:
    """Parameters of the law for m atoms, (m,) each in float64; atoms may have a noise of their own."""

    density: Array
    power: Array
    noise: Array

    @classmethod
    def of(cls, model: SpikeSlab, backend: Backend) -> DeviceLaw:
        """The same law in a space."""
        rows = np.stack([model.density, model.power, np.full_like(model.power, model.noise)])
        return cls(*backend.asarray(rows, "float64"))

    def on_host(self, least_noise: float) -> SpikeSlab:
        """The same law as the host knows it; its noise is shared."""
        density, power, noise = to_numpy(Backend.of(self.density).xp.stack([self.density, self.power, self.noise]))
        return SpikeSlab(density.copy(), power.copy(), float(noise[0]), least_noise)

    @property
    def parts(self) -> tuple[Array, Array, Array]:
        """All parameters."""
        return self.density, self.power, self.noise

    def with_noise(self, noise: Array) -> DeviceLaw:
        """The same with one noise for all."""
        return DeviceLaw(self.density, self.power, Backend.of(noise).xp.zeros_like(self.noise) + noise)


def fitted_on_device(squares: Array, least: Array) -> DeviceLaw | None:
    """Law of codes with these squares (m, b), as `fit_spike_slab` finds it; None if atoms differ much in size."""
    xp = Backend.of(squares).xp
    mean_square = xp.mean(squares, axis=1)
    if bool(xp.max(mean_square) > UNLIKE * xp.min(mean_square)):
        return None
    shared = _shared_on_device(squares, mean_square, least)
    start = DeviceLaw(xp.zeros_like(mean_square) + shared.density, shared.power * mean_square, 0.05 * mean_square)
    own = _descended_on_device(squares, start, least, rounds=40)
    largest = xp.max(own.noise)
    common = xp.where(largest > UNLIKE * _median(own.noise), largest, xp.maximum(shared.noise[0], least[0]))
    return _descended_on_device(squares, start.with_noise(common), least, rounds=40, noise_known=True)


def rough_on_device(squares: Array, least: Array) -> DeviceLaw:
    """A law to begin with while atoms are on their way, as `fit_roughly` finds it."""
    xp = Backend.of(squares).xp
    mean_square = xp.mean(squares, axis=1)
    shared = _shared_on_device(squares, mean_square, least)
    zeros = xp.zeros_like(mean_square)
    return followed_on_device(
        squares, DeviceLaw(zeros + shared.density, shared.power * mean_square, zeros + shared.noise), least
    )


def followed_on_device(squares: Array, law: DeviceLaw, least: Array) -> DeviceLaw:
    """The law a few rounds on from `law`, as `update_spike_slab` finds it. Asks the device for no number."""
    xp = Backend.of(squares).xp
    own = own_laws(squares, law, least)
    largest = xp.max(own.noise)
    return own.with_noise(xp.where(largest > UNLIKE * _median(own.noise), largest, xp.mean(own.noise)))


def own_laws(squares: Array, law: DeviceLaw, least: Array) -> DeviceLaw:
    """The law of each atom by itself, a few rounds on."""
    return _descended_on_device(squares, law, least, rounds=FEW_ROUNDS)


def alike_on_device(new: DeviceLaw, old: DeviceLaw) -> Array:
    """Whether two laws hardly differ, as an array of one number: 1 or 0."""
    xp = Backend.of(new.density).xp
    drift = xp.mean(xp.abs(xp.log(new.density / old.density)))
    apart = xp.abs(xp.log(new.noise[0] / old.noise[0]))
    return xp.astype((apart < 0.1) & (drift < 0.05), xp.float64)


def _shared_on_device(squares: Array, mean_square: Array, least: Array) -> DeviceLaw:
    """The law of all atoms as one: its power for a mean square of one, its noise for the mean square that they have.

    A hundred thousand codes are counted in a thousand bins, by whole numbers, so that the order does not matter.
    """
    backend = Backend.of(squares)
    xp = backend.xp
    low, high = (BINS_PER_OCTAVE * edge for edge in OCTAVES)
    scaled = xp.reshape(squares / mean_square[:, None], (-1,))
    place = xp.floor(BINS_PER_OCTAVE * xp.log2(scaled)) - low
    top = xp.full_like(place, high - low - 1)
    place = xp.astype(xp.minimum(xp.maximum(place, xp.zeros_like(place)), top), xp.int64)
    counts = _counted(place, high - low, backend)
    middle = xp.arange(low, high, dtype=xp.float64, device=backend.device) + 0.5
    scale = xp.mean(mean_square)
    first = (FIRST_GUESS.density, FIRST_GUESS.power, FIRST_GUESS.noise)
    guess = DeviceLaw(*backend.asarray(np.stack(first), "float64"))
    bins = xp.reshape(xp.pow(xp.full_like(middle, 2.0), middle / BINS_PER_OCTAVE), (1, -1))
    found = _descended_on_device(
        bins, guess, least / scale, MANY_ROUNDS, counts=xp.reshape(counts, (1, -1)), close=VERY_CLOSE
    )
    return DeviceLaw(found.density, found.power, found.noise * scale)


def _counted(place: Array, n_bins: int, backend: Backend) -> Array:
    ones = backend.xp.ones_like(backend.xp.astype(place, backend.xp.float64))
    counts = backend.xp.zeros(n_bins, dtype=backend.xp.float64, device=backend.device)
    if hasattr(counts, "index_add_"):
        return counts.index_add_(0, place, ones)  # whole numbers: exact in any order
    return backend.xp.bincount(place, minlength=n_bins).astype(backend.xp.float64)


def _descended_on_device(
    squares: Array,
    law: DeviceLaw,
    least: Array,
    rounds: int,
    *,
    counts: Array | None = None,
    noise_known: bool = False,
    close: float = CLOSE,
) -> DeviceLaw:
    """Expectation maximisation, each atom by itself."""
    kernels = Backend.of(squares).kernels
    if kernels is not None:
        how = {"close": close, "noise_known": noise_known}
        return DeviceLaw(*kernels.descended(squares, counts, law.parts, least, rounds, **how))
    for _ in range(rounds):
        before = law
        law = _round(squares, counts, law, least, noise_known=noise_known)
        if _close_on_device(before, law, close):
            break
    return law


def _round(squares: Array, counts: Array | None, law: DeviceLaw, least: Array, *, noise_known: bool) -> DeviceLaw:
    """One round for all atoms, by the array library's own functions."""
    xp = Backend.of(squares).xp
    count = xp.ones_like(squares) if counts is None else counts
    number, whole = xp.sum(count, axis=1), law.power + law.noise
    offset = xp.log(law.density) - xp.log1p(-law.density) - 0.5 * xp.log(whole / law.noise)
    rate = 0.5 * (1 / law.noise - 1 / whole)
    active = count * (0.5 + 0.5 * xp.tanh(0.5 * (offset[:, None] + rate[:, None] * squares)))
    share = xp.sum(active, axis=1)
    active_square, idle_square = xp.sum(active * squares, axis=1), xp.sum((count - active) * squares, axis=1)
    kept = law.power / whole
    blur = kept * law.noise * share
    floor = xp.zeros_like(share) + least
    density = share / number
    density = xp.minimum(xp.maximum(density, xp.full_like(density, 1e-4)), xp.full_like(density, 1 - 1e-4))
    power = (kept**2 * active_square + blur) / xp.maximum(share, xp.full_like(share, 1e-300))
    noise = (idle_square + (1 - kept) ** 2 * active_square + blur) / number
    return DeviceLaw(density, xp.maximum(power, floor), law.noise if noise_known else xp.maximum(noise, floor))


def _close_on_device(a: DeviceLaw, b: DeviceLaw, close: float) -> bool:
    xp = Backend.of(a.noise).xp
    moved = (xp.abs(b.noise - a.noise) > close * a.noise) | (xp.abs(b.density - a.density) > close * a.density)
    return not bool(xp.any(moved))


def _median(values: Array) -> Any:
    ordered, m = Backend.of(values).xp.sort(values), int(values.shape[0])
    return 0.5 * (ordered[(m - 1) // 2] + ordered[m // 2])


@dataclass(frozen=True)
class SpikeSlabLikelihood(LinearCodes):
    """F = log q(z), the log-likelihood of codes that are zero or Gaussian, plus noise.

    The linear part of its derivative is left out: it belongs to sum z^2, which no rotation changes. What remains, times
    the variance of the noise, is g = E[x|z], the best guess of the code without noise. So a power step with this
    contrast is a step of expectation maximisation.
    """

    model: SpikeSlab
    known: dict[tuple[Backend, str], Coefficients] = field(
        default_factory=dict, repr=False, compare=False, kw_only=True
    )

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "known": {}}  # pickled for other processes, which have spaces of their own

    def terms(self, Z: Array, quantities: Quantities, work: Work, xp: Any) -> Terms:
        """Contrast of the codes Z (b, m)."""
        if work.fused is not None and Quantities.MOMENTS in quantities and Quantities.INACTIVE not in quantities:
            return self.fused(Z, work.fused, secondary=None)
        coefficients = self.coefficients(Z)
        z2 = work.map(xp.multiply, Z, Z, into="square")
        half = work.map(xp.multiply, z2, coefficients.rate, into="logit")
        half = work.map(xp.add, half, coefficients.offset, into="logit")
        swing = work.map(xp.tanh, half, into="swing")  # the activity is (1 + swing) / 2
        g = work.map(xp.add, work.map(xp.multiply, swing, Z, into="g"), Z, into="g")
        value = self._value(z2, half, swing, coefficients, work, xp)
        inactive = 0.5 - 0.5 * swing if Quantities.INACTIVE in quantities else None
        if Quantities.MOMENTS not in quantities:
            return Terms(g, coefficients.kept, value=value, z2=z2, inactive=inactive)
        gz = work.map(xp.multiply, g, Z, into="gz")
        missing = work.map(xp.subtract, swing, 1, into="missing")  # minus twice the probability of being idle
        bend = (-2 * coefficients.steep * coefficients.kept, (gz, missing))
        slope = Weighted(((coefficients.kept, missing), bend), constant=2 * coefficients.kept)
        return Terms(g, coefficients.kept, slope=slope, value=value, z2=z2, inactive=inactive)

    def fused(self, Z: Array, kernels: Fused, secondary: Lp | None) -> Terms:
        """The same by kernels that read the codes once, with l_p beside it if asked."""
        coefficients = self.coefficients(Z)
        g, other, found = kernels.likelihood(
            Z, coefficients.offset, coefficients.rate, None if secondary is None else secondary.p
        )
        stats = {name: Summed(total) for name, total in found.items()}
        bend = (-2 * coefficients.steep * coefficients.kept, stats["bend"])
        value = ((-2.0, stats["below"]), (-1.0, stats["logs"]), (-coefficients.precision, stats["z2"]))
        extra: dict[str, Term] = {}
        if secondary is not None:
            extra["beside_magnitude"] = stats["magnitude"]
            extra["beside_slope"] = Weighted(((secondary.p - 1, stats["weight"]),))
            extra["beside_g2"] = stats["beside_g2"]
            extra["cross"] = Weighted(((coefficients.kept, stats["cross"]),))
        return Terms(
            g,
            coefficients.kept,
            slope=Weighted(((coefficients.kept, stats["missing"]), bend), constant=2 * coefficients.kept),
            value=Weighted(value, constant=coefficients.level),
            z2=stats["z2"],
            g2=stats["g2"],
            secondary=other,
            extra=extra,
        )

    def _value(self, z2: Array, half: Array, swing: Array, coefficients: Coefficients, work: Work, xp: Any) -> Weighted:
        """Log q(z) = log(1 + e^(-2h)) + log of the active law, written so that nothing overflows or cancels.

        log(1 + e^(-2h)) = log 2 - 2 min(h, 0) - log(1 + |tanh h|).
        """
        below = work.map(xp.minimum, half, 0, into="below")
        logs = work.map(xp.add, work.map(xp.abs, swing, into="logs"), 1, into="logs")
        logs = work.map(xp.log, logs, into="logs")
        return Weighted(((-2.0, below), (-1.0, logs), (-coefficients.precision, z2)), constant=coefficients.level)

    def coefficients(self, Z: Array) -> Coefficients:
        """Lines for codes like these."""
        backend, dtype = Backend.of(Z), str(Z.dtype).rsplit(".", maxsplit=1)[-1]
        if (backend, dtype) not in self.known:
            self.known[backend, dtype] = Coefficients.of(self.model, backend, dtype)
        return self.known[backend, dtype]


@dataclass(frozen=True)
class Coefficients:
    """What multiplies and shifts the codes of each atom, where the codes are, and their sums, in float64."""

    offset: Array  # halves of the line of the log odds, as tanh wants them
    rate: Array
    steep: Array  # the rate for sums
    kept: Array  # half of the share of an active code that is no noise
    precision: Array  # half of one over the variance of an active code
    level: Array  # logarithm of the density of an active code at zero, and log 2

    @classmethod
    def of(cls, model: SpikeSlab, backend: Backend, dtype: str) -> Coefficients:
        """Lines for codes of this precision in this space."""
        halves, stats = cls.rows(model.density, model.power, np.full_like(model.power, model.noise), np)
        return cls(
            *(backend.asarray(row, dtype) for row in halves), *(backend.asarray(row, "float64") for row in stats)
        )

    @staticmethod
    def rows(density: Array, power: Array, noise: Array, xp: Any) -> tuple[tuple[Array, Array], tuple[Array, ...]]:
        """The halves for codes, and what is for sums; parameters are arrays (m,) of one library."""
        whole = power + noise
        rate = (1 / noise - 1 / whole) / 4
        offset = (xp.log(density) - xp.log1p(-density) - 0.5 * xp.log(whole / noise)) / 2
        level = math.log(2) + xp.log(density) - 0.5 * xp.log(2 * math.pi * whole)
        return (offset, rate), (rate, power / whole / 2, 0.5 / whole, level)
