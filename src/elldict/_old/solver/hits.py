"""The law of corruption once atoms are known: how many entries were hit, and by how much.

During a fit hits count as Gaussian, and variances are those of all samples together: enough to find atoms, but not to
count hits. Hits of one size are no Gaussian ones, and a Gaussian law makes up for it by many small ones among the
noise. And where there is no noise, samples with many unknowns are never solved with the variance of the others, and
those left out have more hits than the rest. So hits may have a size of their own here, each sample has its variances,
and a little noise is added where there is none, in which hits of a size that matters stay visible.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import scipy.optimize
import scipy.stats
from numpy.typing import NDArray

from elldict._old.solver.amp import MAX_UNKNOWN_SHARE, CorruptionLaw, Exchange, tell_apart
from elldict._old.solver.spike_slab import SpikeSlab

Matrix = NDArray[np.float64]
Vector = NDArray[np.float64]

MAX_VALUES = 2**15
"""Entries from which hits are counted, about: a fiftieth of them hit gives a standard error of 4 percent."""

CYCLES, ROUNDS_A_CYCLE, MAX_STEPS = 10, 4, 12
"""Times that the law is fitted to the messages, rounds of messages before each, and steps of each fit."""

ADDED_SD = 0.1
"""Standard deviation of the noise, at least, in units of the root mean square of hits: added where there is less."""

SHARE_OF_CENTRE = 0.5
"""Share of the mean square of hits that belongs to their centre at the beginning."""

LEAST_NOISE_SHARE, LEAST_SPREAD = 0.1, 1e-3
"""The noise stays above this share of what it is at the beginning, and the variance of hits about their centre above
this share of the squared centre."""

ACTIVE_SD, DENSE_SHARE, MIN_DENSE = 6.0, 0.9, 0.01
"""Standard deviations of the noise from which a code is active for sure, the share of active codes from which a sample
is dense, and the share of dense samples, beyond that of the law, from which hits are sought."""

SEED = 50
"""Of the noise that is added."""


def learn_hits(Y: Matrix, A: Matrix, law: CorruptionLaw) -> CorruptionLaw:
    """Law of the samples Y (b, n) with atoms A and hits of any size, from one in which hits are Gaussian."""
    few = Y[:: max(1, Y.size // MAX_VALUES)]
    own_noise, least = law.noise, law.least_noise
    added = max(0.0, ADDED_SD**2 * law.size - own_noise)
    noisy = few + math.sqrt(added) * np.random.default_rng(SEED).standard_normal(few.shape)
    begin = replace(
        law, centre=math.sqrt(SHARE_OF_CENTRE * law.size), noise=own_noise + added, least_noise=max(least, 1e-3 * added)
    )
    found, exchange = begin, Exchange.begin(noisy, begin)
    for _ in range(CYCLES):
        exchange = exchange.go_on(noisy, A, found, ROUNDS_A_CYCLE)
        found = _fit_law(exchange, found, max(0.5 * added, LEAST_NOISE_SHARE * begin.noise))
    # noise that was added is taken away again, unless there is none but that
    noise = own_noise if added else found.noise
    return replace(found, noise=noise, least_noise=least)


def has_dense_samples(Z: Matrix, law: SpikeSlab) -> bool:
    """Whether codes Z (b, n) are all active in far more samples than their law has it: one hit does that."""
    n, dense = Z.shape[1], _find_dense(Z, law)
    expected = float(scipy.stats.binom.sf(math.ceil(DENSE_SHARE * n) - 1, n, float(np.mean(law.density))))
    return bool(np.mean(dense) > expected + MIN_DENSE)


def explains_dense_samples(Y: Matrix, A: Matrix, law: SpikeSlab, cleaning: CorruptionLaw) -> bool:
    """Whether most of the samples Y (b, n) that are dense are sparse under the law of corruption."""
    dense = Y[_find_dense(Y @ A.T, law)]
    if not len(dense):
        return False
    exchange = tell_apart(dense, A, cleaning)
    assert exchange.codes is not None
    assert exchange.hits is not None
    unknowns = np.sum(exchange.codes.activity, axis=1) + np.sum(exchange.hits.activity, axis=1)
    return bool(np.mean(unknowns < MAX_UNKNOWN_SHARE * Y.shape[1]) > 0.5)


def _find_dense(Z: Matrix, law: SpikeSlab) -> NDArray[np.bool_]:
    active = ACTIVE_SD**2 * float(law.noise) < Z**2
    return np.asarray(np.mean(active, axis=1) >= DENSE_SHARE)


def _fit_law(exchange: Exchange, law: CorruptionLaw, least_noise: float) -> CorruptionLaw:
    """The law that suits the messages: one step of expectation maximisation for codes, the best one for hits."""
    codes, hits = exchange.codes, exchange.hits
    assert codes is not None
    assert hits is not None
    active, square = codes.activity, (codes.wide * codes.seen) ** 2 + codes.wide * codes.blur
    share = np.mean(active, axis=0)
    density, power = np.clip(share, 1e-4, 1 - 1e-4), np.mean(active * square, axis=0) / np.maximum(share, 1e-12)
    spread = max(law.size - law.centre**2, LEAST_SPREAD * law.centre**2)
    x = np.array([math.log(law.rate / (1 - law.rate)), *np.log([law.centre, spread, law.noise])])
    bounds = [(-12.0, 2.0), (x[1] - 1.5, x[1] + 1.5)]  # logarithms: no cycle changes a number by more than this
    bounds += [(2 * x[1] + math.log(LEAST_SPREAD), x[2] + 3), (math.log(least_noise), x[3] + 3)]
    blur = np.broadcast_to(hits.blur, hits.seen.shape)
    options = {"maxiter": MAX_STEPS}
    step = scipy.optimize.minimize(
        negative_log_likelihood, x, (hits.seen, blur), jac=True, method="L-BFGS-B", bounds=bounds, options=options
    )
    centre, spread, noise = np.exp(step.x[1:]).tolist()
    rate = 1 / (1 + math.exp(-step.x[0]))
    power = np.maximum(power, law.least_noise)
    return replace(law, density=density, power=power, rate=rate, centre=centre, size=centre**2 + spread, noise=noise)


def negative_log_likelihood(x: Vector, seen: Matrix, blur: Matrix) -> tuple[float, Vector]:
    """Mean over values seen through noise of variance `blur`, and its gradient.

    By the log odds of a hit, and the logarithms of the centre of hits, their variance about it, and the noise.
    """
    rate, (centre, spread, noise) = 1 / (1 + math.exp(-x[0])), np.exp(x[1:]).tolist()
    wide, narrow = spread + noise + blur, noise + blur
    lean, squares = centre * seen / wide, seen**2
    if_hit = np.logaddexp(lean, -lean) - math.log(2) - 0.5 * ((squares + centre**2) / wide + np.log(wide))
    if_not = -0.5 * (squares / narrow + np.log(narrow))
    if_hit, if_not = if_hit + math.log(rate), if_not + math.log1p(-rate)
    whole = np.logaddexp(if_hit, if_not)
    hit = np.exp(if_hit - whole)
    side = np.tanh(lean)
    by_wide = float(np.sum(hit * (0.5 * (squares + centre**2) / wide - 0.5 - lean * side) / wide))
    by_narrow = float(np.sum((1 - hit) * (0.5 * squares / narrow - 0.5) / narrow))
    by_centre = float(np.sum(hit * (seen * side - centre) / wide))
    slopes = np.array(
        [float(np.sum(hit)) - rate * hit.size, by_centre * centre, by_wide * spread, (by_wide + by_narrow) * noise]
    )
    return -float(np.mean(whole)), -slopes / hit.size
