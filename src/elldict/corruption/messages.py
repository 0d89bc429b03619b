"""Vector approximate message passing between the codes of samples and the errors of their entries.

A sample is y = A^T x + e, with sparse codes x and errors e. Both are estimated in turn, each from what the other leaves
of y, as if that were the truth plus Gaussian noise. For this to hold, each passes on the extrinsic part of its
posterior mean only, from which the values that it has received are removed.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from elldict.corruption.prior import Posterior, Prior, log_gaussian
from elldict.samples.base import Array
from elldict.samples.order import Mask

DAMPING = 0.8  # fraction of new messages in those that are sent, so that they do not oscillate
ROUNDS = 20  # after which messages for known atoms and distributions have converged, or never will
FIRST_NOISE, FALL = 0.1, 0.2  # noise variance relative to that of corruption, and its factor per round: without noise
# from the beginning, the first estimate of a sample would also be its last


@dataclass(frozen=True)
class Messages:
    """Errors of entries as sent to the codes, and how they were found."""

    sent: Array  # (b, n)
    blur: Any  # variance of their noise: one for all samples, or of each (b, 1)
    codes: Posterior
    errors: Posterior

    def count_unknowns(self) -> Array:
        """Compute the expected number (b,) of nonzero codes and corrupted entries of each sample."""
        return np.asarray(np.sum(self.codes.active, axis=1) + np.sum(self.errors.active, axis=1))


def begin(Y: Array, prior: Prior, *, each: bool = False) -> tuple[Array, Any]:
    """Estimate errors from entries alone: the first message and its variance.

    Corrupted entries that are large and rare would otherwise be explained by codes in the first round.
    """
    blur = np.full((len(Y), 1), float(np.mean(prior.density * prior.variance)))
    return prior.errors.observe(Y, blur if each else float(blur[0, 0])).send(each=each)


def exchange(Y: Array, A: Array, prior: Prior, sent: Array, blur: Any, *, each: bool = False) -> Messages:
    """Pass messages about samples Y (b, n) from errors to codes and back.

    Variances are means over all samples, or over the entries of each one. The former change smoothly with the atoms;
    the latter suit samples that are easy or hard to explain.
    """
    codes = prior.codes.observe((Y - sent) @ A.T, blur)
    message, variance = codes.send(each=each)
    errors = prior.errors.observe(Y - message @ A, variance)
    message, variance = errors.send(each=each)
    sent = DAMPING * message + (1 - DAMPING) * sent
    return Messages(sent, DAMPING * variance + (1 - DAMPING) * blur, codes, errors)


def pass_messages(Y: Array, A: Array, prior: Prior) -> Messages:
    """Pass messages about samples (b, n) for known atoms and distributions."""
    sent, blur = begin(Y, prior)
    for _ in range(ROUNDS):
        messages = exchange(Y, A, prior, sent, blur)
        sent, blur = messages.sent, messages.blur
    return messages


class Explanation(NamedTuple):
    """Posterior means of codes, and supports of codes and corruption, of each sample (b, n)."""

    mean: Array
    is_active: Mask
    is_corrupted: Mask
    variance: Array  # (b, 1) mean posterior variance of the codes


def explain(Y: Array, A: Array, prior: Prior) -> Explanation:
    """Pass messages about each sample (b, n) by itself, while the noise falls to its variance.

    The explanation with the smallest variance is kept: with little noise, messages about some samples diverge.
    """
    first = FIRST_NOISE * prior.scale**2
    sent, blur = begin(Y, prior, each=True)
    nothing = np.zeros(Y.shape, dtype=bool)
    best = Explanation(np.zeros(Y.shape), nothing, nothing, np.full((len(Y), 1), math.inf))
    for number in range(ROUNDS):
        noisy = prior.with_noise(max(prior.noise, first * FALL**number))
        messages = exchange(Y, A, noisy, sent, blur, each=True)
        sent, blur, codes = messages.sent, messages.blur, messages.codes
        variance = np.mean(codes.variance, axis=1, keepdims=True)
        found = Explanation(codes.mean, codes.active > 0.5, messages.errors.active > 0.5, variance)
        better = variance < best.variance
        best = Explanation(*(np.where(better, new, old) for new, old in zip(found, best, strict=True)))
    return best


def measure_evidence(Y: Array, A: Array, prior: Prior, messages: Messages) -> Array:
    """Compute the log density (b,) of samples in the approximation of message passing (Bethe free energy).

    That is the density of codes and of errors, each given the message of the other, divided by the density of the
    difference of both messages.
    """
    codes, errors = messages.codes, messages.errors
    own = prior.codes.log_density(codes.seen, codes.blur) + prior.errors.log_density(errors.seen, errors.blur)
    difference = codes.seen @ A - (Y - errors.seen)
    return np.asarray(np.sum(own - log_gaussian(difference**2, codes.blur + errors.blur), axis=1))
