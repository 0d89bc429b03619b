"""How many samples a search from a random start takes, known before it begins.

At a random start every code is a mixture of all k, and the slope of l_p along one of its angles is about kappa / k^1.5,
kappa the kurtosis of the codes. The noise of its mean over r samples is about 1 / sqrt(r). Over the k angles of an
atom, slope and noise have a ratio of about kappa sqrt(r) / k.
"""

from __future__ import annotations

import math

from elldict._old.solver.code_subsample import CodeSubsample

MIN_RATIO, ENOUGH = 2.5, 2.0
"""Squared ratio of slope and noise, kappa^2 r / k^2, from which a long search is tried. With Laplace codes it leads to
the atoms at 1.6 for k = 128 and 256 and at 2.1 for k = 512 and 1024, in 110 and 300 passes: the more directions, the
more. At 2.1 and k = 2048 it led nowhere in 212 passes, and at 0.8 nowhere at all. And times that for a search of a few
dozen passes."""

SURE_SCORE = 6.0
"""Standard errors by which the kurtosis has to exceed zero: where codes of both kinds cancel, it tells nothing."""

MIN_WORK = 1e12
"""Samples times squared directions from which a search in vain is not tried to its end: minutes, on most machines."""


def count_needed_samples(drawn: CodeSubsample) -> float:
    """Samples from which a search is tried, by the mean kurtosis of codes; zero if that does not tell.

    Samples that differ in loudness have a kurtosis that is too large for this to say anything.
    """
    b, k = (int(size) for size in drawn.rows.shape)
    kurtosis = drawn.measure_kurtosis()
    error = (abs(kurtosis) + 2) * math.sqrt(2 / b)  # of the variance of |y|^2, about Gaussian for many directions
    return MIN_RATIO * k**2 / kurtosis**2 if kurtosis > SURE_SCORE * error else 0.0


def is_worth_a_look(n_samples: int, n_directions: int) -> bool:
    """Whether a search in vain would take so long that it is worth knowing beforehand."""
    return n_samples * n_directions**2 >= MIN_WORK
