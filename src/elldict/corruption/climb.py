"""Atoms of samples with sparse corruption: a Newton step after each round of message passing."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from elldict.corruption.messages import (
    FIRST_NOISE,
    ROUNDS,
    Messages,
    begin,
    exchange,
    explain,
    measure_evidence,
    pass_messages,
)
from elldict.corruption.prior import Prior
from elldict.samples.arrays import ArraySamples
from elldict.samples.base import Array, FieldwiseSum, Samples, Weights
from elldict.samples.statistics import count_samples
from elldict.samples.subsample import Codes, Subset, compute_second_moments
from elldict.solver.climb import RESOLUTION, Journal, NewtonAscent, Observer, Reason, State, climb, measure_length
from elldict.solver.density import Density
from elldict.solver.evaluate import LEAST_CURVATURE, Angles
from elldict.solver.objectives import SmoothNorm
from elldict.solver.select import DONE, PILOT_DONE, PILOT_ITER
from elldict.solver.starts import find_start
from elldict.solver.steps import QuasiNewton

LIMIT = 3.0  # of entries for the start, in median absolute deviations: with 6, samples are sparsest along features
SETTLED = 0.005  # relative change of noise and rate per round at which they have converged
MOST_UNKNOWNS = 0.8  # nonzero codes and corrupted entries, relative to entries: as many unknowns as equations fit all
LEAST_GAIN = 0.015  # log-likelihood per entry: noise that differs between features, and heavy tails, reach half of it
MOST_GAIN = 1.0  # of a single sample, which may have any likelihood without noise
COARSE = 0.05  # distinct values per sample below which a feature is rounded: to 1, atoms would be ten times worse
PER_ATOM = 8  # samples per atom whose codes are solved for, to find exact atoms
SOLVED = 1e-9  # residual of a sample of unit mean square that is due to rounding errors


@dataclass(frozen=True)
class Slopes(FieldwiseSum):
    """Sums over samples, of codes z and scores g of their likelihood (up to a linear term, without effect here)."""

    gz: Array  # (m, m) g_i z_j
    slope: Array  # (m,) g_i'
    z2: Array  # (m,) z_i^2
    g2_z2: Array  # (m, m) g_i^2 z_j^2
    own2: Array  # (m, m) g_i z_i g_j z_j


def sum_slopes(prior: Prior, messages: Messages, weights: Weights) -> Slopes:
    """Sum derivatives of the likelihood of codes; the score is (E[x | z] - z) / blur."""
    codes, blur = messages.codes, messages.codes.blur
    z, kept = codes.seen, prior.variance / (prior.variance + blur)
    g, doubt = kept * codes.active * z, kept * codes.active * (1 - codes.active)
    each = np.ones(len(z)) if weights is None else weights
    bend = kept / blur  # 1 / blur - 1 / (variance + blur)
    slope = each @ (kept * codes.active) + bend * (each @ (doubt * z * z))
    weighted, z2 = each[:, None] * g, z * z
    own = (weighted * g).T @ z2
    return Slopes(weighted.T @ z, slope, each @ z2, own, (weighted * z).T @ (g * z))


def find_angles(sums: Slopes, n_samples: float, value: float) -> Angles:
    """Compute slopes, curvatures and variances of the angles of pairs of atoms, as if codes were independent."""
    C, slope, z2 = sums.gz / n_samples, sums.slope / n_samples, sums.z2 / n_samples
    own = np.diag(C)
    size, products = own[:, None] + own, np.outer(slope, z2)
    curvature = np.maximum(size - products - products.T, LEAST_CURVATURE / 2 * size)
    np.fill_diagonal(curvature, math.inf)
    variance = np.maximum(sums.g2_z2 + sums.g2_z2.T - 2 * sums.own2, 0) / n_samples**2
    np.fill_diagonal(variance, 0)
    return Angles(value, C - C.T, curvature, variance)


def take_step(state: State, at: Angles) -> State:
    """Take a Newton step; earlier steps tell nothing, since messages follow the atoms."""
    step, A = QuasiNewton().take(state.A, at)
    assert step.last is not None
    return replace(state, A=A, length=measure_length(step.last.angles), value=at.value, iteration=state.iteration + 1)


@dataclass(eq=False)
class Learner:
    """Passes a round of messages, learns the distributions, and takes a step; messages are kept between rounds."""

    Y: Array  # (b, n)
    weights: Array  # (b,)
    rounding: float
    prior: Prior

    def __post_init__(self) -> None:
        self.sent, self.blur = begin(self.Y, self.prior)
        self.evidence = np.full(len(self.Y), -np.inf)

    def __call__(self, state: State) -> State:
        """Pass messages for the atoms of a state, and take a step."""
        prior = self.prior
        messages = exchange(self.Y, state.A, prior, self.sent, self.blur)
        self.sent, self.blur = messages.sent, max(messages.blur, self.rounding**2)
        self.evidence = measure_evidence(self.Y, state.A, prior, messages)
        value = float(np.average(self.evidence, weights=self.weights))
        at = find_angles(sum_slopes(prior, messages, self.weights), float(np.sum(self.weights)), value)
        self.prior = learn(prior, messages, self.weights, self.rounding**2)
        state, reason = take_step(state, at), Reason.RUNNING
        if state.length < RESOLUTION * self.rounding:
            reason = Reason.ROUNDING
        elif at.rise < DONE * at.rise_by_chance:
            changes = np.log([self.prior.noise / prior.noise, self.prior.rate / prior.rate])
            reason = Reason.SMALL_RISE if np.all(np.abs(changes) < SETTLED) else Reason.RUNNING
        return replace(state, reason=reason)

    def compare(self, A: Array, codes: Codes) -> float:
        """Compute the mean gain of log-likelihood per entry over codes for other atoms, of any distributions.

        That of a sample is limited: samples that are solved without noise have any likelihood, and those that are not
        solved have none.
        """
        others = np.sum(Density.begin(len(A)).refit(codes, choose=True).log_density(self.Y @ A.T), axis=1)
        gains = np.clip((self.evidence - others) / len(A), -MOST_GAIN, MOST_GAIN)
        return float(np.average(gains, weights=self.weights))


def learn(prior: Prior, messages: Messages, weights: Array, least_noise: float) -> Prior:
    """Learn the distributions from samples that are not ambiguous, unless all are."""
    clear = weights * (messages.count_unknowns() < MOST_UNKNOWNS * messages.sent.shape[1])
    clear = clear if np.any(clear) else weights
    return prior.learn(messages.codes, messages.errors, clear / np.sum(clear), least_noise)


@dataclass(frozen=True)
class Ascent:
    """Newton steps for all samples, with known distributions; messages begin anew in each block."""

    samples: Samples
    prior: Prior

    def __call__(self, state: State) -> State:
        """Take a step."""
        A, prior, weights = state.A, self.prior, self.samples.weights

        def visit(rows: Array, start: int) -> Slopes:
            Y = np.asarray(rows, dtype=np.float64)  # messages are computed on the CPU
            each = None if weights is None else weights[start : start + len(rows)]
            return sum_slopes(prior, pass_messages(Y, A, prior), each)

        at = find_angles(self.samples.sum(visit), count_samples(self.samples), state.value)
        state = take_step(state, at)
        return replace(state, reason=Reason.SMALL_RISE if at.rise < DONE * at.rise_by_chance else Reason.RUNNING)


def climb_through_corruption(
    samples: Samples,
    subset: Subset,
    lp: State,
    max_iter: int,
    observers: Sequence[Observer],
    journal: Journal,
    has_choice: bool,
) -> dict[str, Any]:
    """Find atoms (n, n) of samples with sparse corruption: first on a subset, then on all samples if there is noise.

    The climb starts from the l_1 norm of samples whose entries are limited. Returns what has been found about an
    estimate, by its name: unless there is no choice, only the climbs if corruption does not explain the samples better
    than codes for the atoms of the l_p norm, whose state is given.
    """
    found = journal.once(lambda: climb_from_limited(samples, subset, lp, max_iter, observers))
    is_better = found["gain"] > LEAST_GAIN and found["state"].reason is not Reason.MAX_ITER
    if has_choice and not is_better and found["state"].reason is not Reason.STOPPED:
        return {"climbs": found["climbs"]}
    prior = Prior(**found["prior"])
    return {"state": found["state"], "is_pilot": False, "corruption": prior, "climbs": found["climbs"]}


def climb_from_limited(
    samples: Samples, subset: Subset, lp: State, max_iter: int, observers: Sequence[Observer]
) -> dict[str, Any]:
    """Climb from samples whose entries are limited; return state, distributions, gain and climbs."""
    n_samples, n = subset.shape
    Y = np.asarray(subset.white.take(np.arange(n_samples)), dtype=np.float64)
    weights = np.ones(n_samples) if subset.samples.weights is None else subset.samples.weights
    limited = limit_entries(subset, Y)
    start = climb(State(find_start(limited.samples), SmoothNorm()), NewtonAscent(limited, PILOT_DONE), PILOT_ITER)
    codes = subset.encode(lp.A)
    guess = Prior.guess(n, float(np.trace(limited.moments) / np.trace(subset.moments)))
    learner = Learner(Y, weights, codes.rounding, guess)
    state = climb(replace(lp, A=start.A, iteration=0, reason=Reason.RUNNING), learner, max_iter, observers)
    gain = -math.inf if is_coarse(Y) else learner.compare(lp.A, codes)
    climbs = [(float(np.sum(weights)), state.iteration, state.reason)]
    if gain > LEAST_GAIN and state.reason is Reason.SMALL_RISE and n_samples < samples.shape[0]:
        begin_again = replace(state, iteration=0, reason=Reason.RUNNING)
        state = climb(begin_again, Ascent(samples, learner.prior), max_iter, observers)
        climbs.append((count_samples(samples), state.iteration, state.reason))
    prior = asdict(learn_by_sample(learner, state.A))
    return {"state": state, "prior": prior, "gain": gain, "climbs": tuple(climbs)}


def is_coarse(Y: Array) -> bool:
    """Return whether entries are coarsely rounded: those that are not zero look corrupted, and zeros explained."""
    return bool(np.all([len(np.unique(column)) < COARSE * len(column) for column in Y.T]))


def limit_entries(subset: Subset, Y: Array) -> Subset:
    """Limit the entries of samples (b, n) to what is usual for each feature, unless half of them are equal."""
    middle = np.median(Y, axis=0)
    deviations = np.median(np.abs(Y - middle), axis=0)
    largest = np.where(deviations > SOLVED, LIMIT * deviations, np.inf)
    rows = np.clip(Y, middle - largest, middle + largest)
    limited = ArraySamples(rows, subset.samples.n_threads, subset.samples.weights)
    few = ArraySamples(rows[:: max(1, len(rows) // subset.few.shape[0])], subset.samples.n_threads)
    squares, moments = np.sum(rows * rows, axis=1), compute_second_moments(limited)
    return replace(subset, samples=limited, few=few, whitening=None, squares=squares, moments=moments)


def learn_by_sample(learner: Learner, A: Array) -> Prior:
    """Learn the distributions with a variance of messages for each sample.

    It is unbiased for samples that are hard to explain, which have more corrupted entries than others.
    """
    known = learner.prior
    prior = known.with_noise(max(known.noise, FIRST_NOISE * known.scale**2))
    sent, blur = begin(learner.Y, prior, each=True)
    for _ in range(ROUNDS):
        messages = exchange(learner.Y, A, prior, sent, blur, each=True)
        sent, blur = messages.sent, messages.blur
        prior = learn(prior, messages, learner.weights, learner.rounding**2)
    return replace(prior, noise=min(prior.noise, known.noise))


def solve(Y: Array, A: Array, prior: Prior) -> Array:
    """Solve for the codes (b', m) of samples (b, n) with few unknowns; leave out those that are not solved exactly.

    Their supports, which message passing finds, leave more equations than unknowns. If these have a solution, up to
    rounding errors, then codes outside of the support are zero.
    """
    Y = Y[:: max(1, len(Y) // (PER_ATOM * len(A)))]
    found = explain(Y, A, prior)
    n_unknowns = np.sum(found.is_active, axis=1) + np.sum(found.is_corrupted, axis=1)
    solved = []
    for i in np.flatnonzero(n_unknowns < MOST_UNKNOWNS * len(A)):
        x, active, clean = np.zeros(len(A)), found.is_active[i], ~found.is_corrupted[i]
        equations = A[np.ix_(active, clean)].T
        x[active] = np.linalg.lstsq(equations, Y[i, clean])[0]
        if np.max(np.abs(equations @ x[active] - Y[i, clean]), initial=0) < SOLVED:
            solved.append(x)
    return np.array(solved).reshape(-1, len(A))
