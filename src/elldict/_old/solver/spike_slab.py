"""The spike-and-slab law of a noisy code, its fit, and its likelihood as an objective.

A code is z = b x + e with b ~ Bernoulli(density), x ~ N(0, power), e ~ N(0, noise). Density and power differ from atom
to atom; the noise is shared, because white noise is white in every orthonormal basis.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np
import scipy.optimize
from numpy.typing import NDArray

from elldict._old.backend import host_kernels
from elldict._old.backend.base import Array, Backend, FreshWork, Work, name_dtype, to_numpy
from elldict._old.solver.code_histogram import CodeHistogram
from elldict._old.solver.objective import (
    LinearCodes,
    Lp,
    Objective,
    Quantities,
    Summed,
    Term,
    Terms,
    Weighted,
    find_kernel,
)

Vector = NDArray[np.float64]

FULL_ROUNDS, UPDATE_ROUNDS = 40, 5
"""Rounds of expectation maximisation: for a fit, and for codes that have moved a little since the last one."""

CONVERGED_CHANGE = 3e-4
"""Relative change of a parameter in a round that is not worth another."""

DIFFERENT = 4.0
"""Ratio of two noises, or of two mean squares, from which atoms are not alike."""

SAME_LOG_NOISE, SAME_LOG_DENSITY = 0.1, 0.05
"""Changes below which a law counts as unchanged: an objective that never settled would never let A settle."""

MAX_LIKELIHOOD_STEPS = 60
"""Five to twelve are enough where the law is right, and where it is not more are of no use."""

MIN_NOISE_PER_MOVE = 2.0
"""The standard deviation of the noise stays above this many times the last move of any atom: a pair of atoms still
turned against each other blurs their zeros, and is pulled apart only while that blur passes for noise."""


@dataclass(frozen=True)
class SpikeSlab:
    """Parameters of the law for m atoms."""

    density: Array  # (m,)
    power: Array  # (m,) variance of an active code without noise
    noise: Any  # variance of the noise: one number, or (m,) while each atom is fitted by itself
    least_noise: float = 0.0  # below which noise was not looked for

    def activity(self, z2: Array) -> Array:
        """Probability that a code is active, given its square; atoms along the first axis."""
        offset, rate = compute_log_odds(self)
        return 0.5 * (1 + Backend.of(z2).xp.tanh(0.5 * (offset[:, None] + rate[:, None] * z2)))


FIRST_GUESS = SpikeSlab(np.array([0.3]), np.array([3.0]), np.array([0.1]))  # for codes of unit mean square


def compute_log_odds(law: SpikeSlab) -> tuple[Array, Array]:
    """The log odds that a code is active are offset + rate z^2; one of each for an atom."""
    xp, whole = Backend.of(law.density).xp, law.power + law.noise
    offset = xp.log(law.density) - xp.log1p(-law.density) - 0.5 * xp.log(whole / law.noise)
    return offset, 0.5 * (1 / law.noise - 1 / whole)


def fit_spike_slab(codes: CodeHistogram, *, least_noise: float) -> SpikeSlab:
    """Maximum likelihood; first for all atoms as one, then for each.

    The likelihood is unbounded: with the noise at zero and a single code there, it is infinite. So the fit comes down
    from a large noise by expectation maximisation, which stops at the first maximum, and stays near it from then on;
    never below `least_noise`.

    While atoms are still moving, the zeros of some are blurred more than those of others. A shared noise would then
    suit the many, and the zeros of the few would pass for active codes for good. So the largest noise of an atom,
    fitted by itself, is taken for all where they differ by much.
    """
    sizes = to_numpy(codes.mean_square)
    unequal = bool(np.max(sizes) > DIFFERENT * np.min(sizes))
    codes = codes.to_host() if unequal else codes
    start = fit_pooled(codes, least_noise)
    alone = run_em(codes, replace(start, noise=0.05 * codes.mean_square), FULL_ROUNDS)
    common, largest = max(start.noise, least_noise), float(np.max(to_numpy(alone.noise)))
    blurred = largest > DIFFERENT * float(np.median(to_numpy(alone.noise)))
    start = replace(start, noise=largest if blurred else common)
    if unequal:  # scaled alike, their noise was not
        return climb_likelihood(codes, start, largest if blurred else least_noise)
    return move_to_host(run_em(codes, start, FULL_ROUNDS, noise_known=True))


def fit_roughly(codes: CodeHistogram, *, least_noise: float) -> SpikeSlab:
    """A law to begin with while atoms are moving: that of all of them as one, and a few rounds for each."""
    return move_to_host(follow_spike_slab(codes, fit_pooled(codes, least_noise, rounds=10)))


def update_spike_slab(codes: CodeHistogram, old: SpikeSlab, min_noise: float = 0.0) -> SpikeSlab:
    """The law of codes that have moved a little, or `old` if it hardly differs.

    Noise does not fall below `min_noise` unless it was there already.
    """
    new = move_to_host(follow_spike_slab(codes, old))
    noise = max(new.noise, min(old.noise, min_noise))
    same = abs(math.log(noise / old.noise)) < SAME_LOG_NOISE
    same = same and float(np.mean(np.abs(np.log(new.density / old.density)))) < SAME_LOG_DENSITY
    return old if same else SpikeSlab(new.density, new.power, noise, new.least_noise)


def follow_spike_slab(codes: CodeHistogram, law: SpikeSlab) -> SpikeSlab:
    """The law a few rounds of expectation maximisation on from `law`; nothing is read from a device.

    Noise is the mean of what atoms have by themselves, or the largest where they differ by much, as in a full fit.
    """
    own = run_em(codes, law, UPDATE_ROUNDS)
    xp, m = Backend.of(own.noise).xp, int(own.noise.shape[0])
    ordered = xp.sort(own.noise)
    middle, largest = 0.5 * (ordered[(m - 1) // 2] + ordered[m // 2]), ordered[-1]
    noise = xp.where(largest > DIFFERENT * middle, largest, xp.sum(own.noise) / m)
    return SpikeSlab(own.density, own.power, noise, own.least_noise)


def fit_pooled(codes: CodeHistogram, least_noise: float, rounds: int = 60) -> SpikeSlab:
    """The law of all atoms as one, for each of them: power as its mean square, noise as that of all."""
    pool, sizes = codes.pool(), codes.mean_square
    xp = Backend.of(sizes).xp
    scale = float(xp.mean(sizes))
    guess = run_em(pool, replace(FIRST_GUESS, least_noise=least_noise / scale), rounds)
    found = climb_likelihood(pool, guess, least_noise / scale)
    density, power = float(found.density[0]), float(found.power[0])
    return SpikeSlab(xp.full_like(sizes, density), power * sizes, found.noise * scale, least_noise)


def run_em(codes: CodeHistogram, law: SpikeSlab, rounds: int, *, noise_known: bool = False) -> SpikeSlab:
    """Expectation maximisation, each atom by itself, until nothing changes by much."""
    z2, backend = codes.z2, Backend.of(codes.z2)
    xp = backend.xp
    options: dict[str, Any] = {"close": CONVERGED_CHANGE, "noise_known": noise_known}
    if host_kernels.COMPILED is not None and type(z2) is np.ndarray:
        parts = tuple(map(to_numpy, (law.density, law.power, law.noise)))
        found = host_kernels.descended(z2, codes.count, parts, law.least_noise, rounds, **options)
        return SpikeSlab(found[0], found[1], found[2], law.least_noise)
    density, power = backend.asarray(law.density, "float64"), backend.asarray(law.power, "float64")
    law = SpikeSlab(density, power, backend.asarray(law.noise, "float64") + xp.zeros_like(power), law.least_noise)
    floor = xp.full_like(power, law.least_noise)
    if backend.kernels is not None:
        found = backend.kernels.descended(z2, codes.count, (density, power, law.noise), floor, rounds, **options)
        return SpikeSlab(found[0], found[1], found[2], law.least_noise)
    count = xp.ones_like(z2) if codes.count is None else codes.count
    number, half = xp.sum(count, axis=1), 0.5 * count
    tiny, lowest, highest = xp.full_like(power, 1e-300), xp.full_like(power, 1e-4), xp.full_like(power, 1 - 1e-4)
    for _ in range(rounds):
        before = law
        offset, rate = compute_log_odds(law)
        swing = half * xp.tanh(0.5 * (offset[:, None] + rate[:, None] * z2))
        active = half + swing
        sums = xp.sum(active, axis=1)
        active_square, idle_square = xp.einsum("ij,ij->i", active, z2), xp.einsum("ij,ij->i", half - swing, z2)
        kept = law.power / (law.power + law.noise)  # x given z and activity: mean kept z, variance kept noise
        blur = kept * law.noise * sums
        noise = (idle_square + (1 - kept) ** 2 * active_square + blur) / number
        law = SpikeSlab(
            density=xp.minimum(xp.maximum(sums / number, lowest), highest),
            power=xp.maximum((kept**2 * active_square + blur) / xp.maximum(sums, tiny), floor),
            noise=law.noise if noise_known else xp.maximum(noise, floor),
            least_noise=law.least_noise,
        )
        moved = xp.abs(law.noise - before.noise) > CONVERGED_CHANGE * before.noise
        if not xp.any(moved | (xp.abs(law.density - before.density) > CONVERGED_CHANGE * before.density)):
            break
    return law


def move_to_host(law: SpikeSlab) -> SpikeSlab:
    """The same law as NumPy arrays, its noise as one number."""
    noise = to_numpy(law.noise)
    shared = float(noise) if noise.ndim == 0 else float(noise[0])
    return SpikeSlab(to_numpy(law.density), to_numpy(law.power), shared, law.least_noise)


def climb_likelihood(codes: CodeHistogram, start: SpikeSlab, least_noise: float) -> SpikeSlab:
    """Maximise the likelihood with one noise for all, by L-BFGS in log odds and logarithms.

    Expectation maximisation would take hundreds of rounds where noise and codes overlap.
    """
    start = move_to_host(start)
    m, near = len(start.density), math.log(start.noise)
    odds = np.log(start.density) - np.log1p(-start.density)
    x = np.concatenate([odds, np.log(start.power), [near]])
    bounds = [(-9.0, 9.0)] * m + list(zip(x[m:-1] - 7, x[m:-1] + 7, strict=True))
    bounds.append((max(math.log(least_noise), near - 2), near + 2))
    if m == 1 and host_kernels.COMPILED is not None:
        found = host_kernels.climbed(codes.z2, codes.count, x, bounds)
    else:
        options = {"jac": True, "method": "L-BFGS-B", "bounds": bounds, "options": {"maxiter": 200}}
        found = np.asarray(scipy.optimize.minimize(negative_log_likelihood, x, codes, **options).x)
    odds, powers, noise = np.split(found, [m, 2 * m])
    return SpikeSlab(1 / (1 + np.exp(-odds)), np.exp(powers), math.exp(noise[0]), start.least_noise)


def negative_log_likelihood(x: Vector, codes: CodeHistogram) -> tuple[float, Vector]:
    """Mean over codes, and its gradient, by the log odds of the densities, the log powers and the log noise."""
    m, count, z2 = len(x) // 2, codes.count, codes.z2
    assert count is not None
    law = SpikeSlab(1 / (1 + np.exp(-x[:m])), np.exp(x[m : 2 * m]), math.exp(x[2 * m]))
    number = float(np.sum(count))
    offset, rate = compute_log_odds(law)
    logit = offset[:, None] + rate[:, None] * z2
    inactive = np.log1p(-law.density)[:, None] - 0.5 * (math.log(2 * math.pi * law.noise) + z2 / law.noise)
    value = float(np.sum(count * (inactive + np.logaddexp(0.0, logit))))
    active = count * (0.5 * (1 + np.tanh(0.5 * logit)))
    whole = law.power + law.noise
    by_whole = 0.5 * np.sum(active * (z2 / whole[:, None] - 1), axis=1) / whole
    by_noise = 0.5 * np.sum((count - active) * (z2 / law.noise - 1)) / law.noise
    by_odds = np.sum(active, axis=1) - law.density * np.sum(count, axis=1)
    slopes = np.concatenate([by_odds, law.power * by_whole, [law.noise * (by_noise + np.sum(by_whole))]])
    return -value / number, -slopes / number


@dataclass(frozen=True)
class SpikeSlabLikelihood(LinearCodes):
    """F = log q(z), the log-likelihood of codes that are zero or Gaussian, plus noise.

    The linear part of its derivative is left out: it belongs to sum z^2, which no rotation changes. What remains, times
    the variance of the noise, is g = E[x|z], the best guess of the code without noise. So a power step with this
    objective is a step of expectation maximisation.
    """

    law: SpikeSlab
    # drawn samples, a CodeSubsample, from which the law is fitted anew when A has moved; None: it stays as it is
    drawn: Any = field(default=None, repr=False, compare=False)
    min_noise_per_move: float = field(default=MIN_NOISE_PER_MOVE, compare=False)
    known: dict[tuple[Backend, str], Coefficients] = field(
        default_factory=dict, repr=False, compare=False, kw_only=True
    )

    convex: ClassVar[bool] = True

    @property
    def fixed(self) -> bool:  # type: ignore[override]
        """Whether the law stays as it is while A moves."""
        return self.drawn is None

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "known": {}, "drawn": None}  # pickled for other processes, to be evaluated there

    def updated(self, A: Array, largest_move: float) -> SpikeSlabLikelihood:
        """Fit the law to the codes at A; noise does not fall faster than atoms settle."""
        if self.drawn is None:
            return self
        law: SpikeSlab = self.drawn.update(self.law, A, (self.min_noise_per_move * largest_move) ** 2)
        return self if law is self.law else replace(self, law=law, known={})

    def resumed(self, before: Objective) -> SpikeSlabLikelihood:
        """Go on with the law of the phase before."""
        return replace(self, law=before.law, known={}) if isinstance(before, SpikeSlabLikelihood) else self

    def log_density(self, Z: Array, xp: Any) -> Array:
        """Log q of each code Z (b, m)."""
        value = self.terms(Z, Quantities.GRADIENT, FreshWork(), xp).value
        assert isinstance(value, Weighted)
        return value.expand()

    def posterior_mean(self, Z: Array, xp: Any) -> Array:
        """Best guess of each code Z (b, m) without its noise."""
        terms = self.terms(Z, Quantities.GRADIENT, FreshWork(), xp)
        return terms.gain * terms.g

    def terms(self, Z: Array, quantities: Quantities, work: Work, xp: Any) -> Terms:
        """Evaluate at the codes Z (b, m).

        log q(z) = log(1 + e^(-2h)) + log of the active law, h half of the log odds; written so that nothing overflows
        or cancels: log(1 + e^(-2h)) = log 2 - 2 min(h, 0) - log(1 + |tanh h|).
        """
        kernel = find_kernel("likelihood", quantities, work)
        if kernel is not None:
            return self.fused(Z, kernel, secondary=None)
        c = self.coefficients(Z)
        z2 = work.map(xp.multiply, Z, Z, into="square")
        half = work.map(xp.multiply, z2, c.rate, into="logit")
        half = work.map(xp.add, half, c.offset, into="logit")
        swing = work.map(xp.tanh, half, into="swing")  # the activity is (1 + swing) / 2
        g = work.map(xp.add, work.map(xp.multiply, swing, Z, into="g"), Z, into="g")
        below = work.map(xp.minimum, half, 0, into="below")
        logs = work.map(xp.add, work.map(xp.abs, swing, into="logs"), 1, into="logs")
        logs = work.map(xp.log, logs, into="logs")
        value = Weighted(((-2.0, below), (-1.0, logs), (-c.precision, z2)), constant=c.level)
        inactive = 0.5 - 0.5 * swing if Quantities.INACTIVE in quantities else None
        if Quantities.MOMENTS not in quantities:
            return Terms(g, c.kept, value=value, z2=z2, inactive=inactive)
        gz = work.map(xp.multiply, g, Z, into="gz")
        missing = work.map(xp.subtract, swing, 1, into="missing")  # minus twice the probability of being inactive
        bend = (-2 * c.steep * c.kept, (gz, missing))
        slope = Weighted(((c.kept, missing), bend), constant=2 * c.kept)
        return Terms(g, c.kept, slope=slope, value=value, z2=z2, inactive=inactive)

    def fused(self, Z: Array, kernel: Callable[..., Any], secondary: Lp | None) -> Terms:
        """The same by a kernel that reads the codes once, with l_p at the same codes if asked."""
        c = self.coefficients(Z)
        g, other, found = kernel(Z, c.offset, c.rate, None if secondary is None else secondary.p)
        sums = {name: Summed(total) for name, total in found.items()}
        bend = (-2 * c.steep * c.kept, sums["bend"])
        value = ((-2.0, sums["below"]), (-1.0, sums["logs"]), (-c.precision, sums["z2"]))
        extra: dict[str, Term] = {}
        if secondary is not None:
            extra["secondary_magnitude"] = sums["magnitude"]
            extra["secondary_slope"] = Weighted(((secondary.p - 1, sums["weight"]),))
            extra["secondary_g2"] = sums["secondary_g2"]
            extra["cross"] = Weighted(((c.kept, sums["cross"]),))
        slope = Weighted(((c.kept, sums["missing"]), bend), constant=2 * c.kept)
        weighted = Weighted(value, constant=c.level)
        return Terms(g, c.kept, slope, weighted, z2=sums["z2"], g2=sums["g2"], secondary=other, extra=extra)

    def derivatives(self, Z: Array) -> tuple[Array, Array] | None:
        """G and slope code by code, for codes Z (b, m), by a kernel; None where there is none."""
        if host_kernels.COMPILED is None or type(Z) is not np.ndarray:
            return None
        c = self.coefficients(Z)
        rows = (row.astype(Z.dtype, copy=False) for row in (c.kept, -2 * c.steep * c.kept))
        return host_kernels.slopes(Z, c.offset, c.rate, *rows)

    def coefficients(self, Z: Array) -> Coefficients:
        """Coefficients for codes like these."""
        backend, dtype = Backend.of(Z), name_dtype(Z.dtype)
        found = self.known.get((backend, dtype))
        if found is None:
            found = self.known[backend, dtype] = Coefficients.of(self.law, backend, dtype)
        return found


@dataclass(frozen=True)
class Coefficients:
    """What multiplies and shifts the codes of each atom, where the codes are, and their sums, in float64."""

    offset: Array  # halves of the log odds, as tanh wants them
    rate: Array
    steep: Array  # the rate for sums
    kept: Array  # half of the share of an active code that is no noise
    precision: Array  # half of one over the variance of an active code
    level: Array  # logarithm of the density of an active code at zero, and log 2

    @classmethod
    def of(cls, law: SpikeSlab, backend: Backend, dtype: str) -> Coefficients:
        """Coefficients for codes of this precision on this backend."""
        for_codes, for_sums = cls.rows(law)
        parts = [backend.asarray(for_codes[0], dtype), backend.asarray(for_codes[1], dtype)]
        for row in for_sums:
            parts.append(backend.asarray(row, "float64"))
        return cls(*parts)

    @staticmethod
    def rows(law: SpikeSlab) -> tuple[tuple[Array, Array], tuple[Array, ...]]:
        """Coefficients for codes, and those for sums, on the backend of the law."""
        xp, whole = Backend.of(law.density).xp, law.power + law.noise
        rate = (1 / law.noise - 1 / whole) / 4
        offset = (xp.log(law.density) - xp.log1p(-law.density) - 0.5 * xp.log(whole / law.noise)) / 2
        level = math.log(2) + xp.log(law.density) - 0.5 * xp.log(2 * math.pi * whole)
        return (offset, rate), (rate, law.power / whole / 2, 0.5 / whole, level)
