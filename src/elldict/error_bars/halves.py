"""What two fits to halves of the samples say about the error of atoms, where no law of codes explains the samples."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment

from elldict.backend.base import Array
from elldict.data.halves import count_half_rows, split_alternately, take_half
from elldict.estimation import Found, Options, Search
from elldict.solver.law_tests import depend_on_each_other
from elldict.solver.loop import FitLog

Vector = NDArray[np.float64]

MIN_ROWS_PER_DIRECTION = 2
"""Samples of a half, a direction, from which a fit to it means anything."""

MAX_BYTES, MAX_GPU_BYTES = 2**23, 2**28
"""Bytes of a half: larger ones are thinned out, so that a fit takes little more memory than without."""

AGREEMENT = 0.3
"""Mean difference of halves that were fitted roughly below which it may be due to that."""

SEED = 20
"""Of the starts of halves: another one than users choose, so that they are independent of that of the fit."""


def needs_halves(found: Found, groups: NDArray[Any] | None) -> bool:
    """Whether error bars that take codes, and samples, for independent ones may be too small.

    They are right for codes of any law, as long as these do not depend on each other. The power method of the paper is
    left as it is, unless halves are asked for.
    """
    estimate, options = found.estimate, found.search.options
    if options.halves is False or estimate.stopped or int(estimate.A.shape[0]) < 2:
        return False
    if options.halves is True or groups is not None:
        return True
    if options.solver == "power":
        return False
    if estimate.loudness is not None:
        return True
    if estimate.refined in ("bernoulli-gaussian", "sparse-corruption"):
        return False
    return depend_on_each_other(found.drawn, estimate.A)


def compare_halves(found: Found, groups: NDArray[Any] | None, log: FitLog) -> Vector | None:
    """Error of each atom (m,) by how much fits to two halves of the samples differ; None if there are too few samples.

    A half has twice the variance of all samples: halves differ by four times the error of the fit, if both are near the
    same maximum. Where they are at different ones, the fit, at one of them as well, is off by half of what they differ;
    as all samples know more than a half, three eighths. Of halves that were fitted roughly, a third.
    """
    search, estimate, m = found.search, found.estimate, len(found.atoms[0])
    samples, k = search.samples, int(estimate.A.shape[1])
    max_rows = count_half_rows(samples, MAX_GPU_BYTES if samples.backend.on_gpu else MAX_BYTES)
    indices = split_alternately(samples.n_samples, max_rows, groups)
    if min(map(len, indices)) < MIN_ROWS_PER_DIRECTION * k:
        return None
    options = replace(search.options, n_components=m, clip=True, n_init=1)
    its_log = FitLog()
    ends = [fit_half(found, index, options, number, its_log) for number, index in enumerate(indices)]
    rough, differ = ends[0].start is not None, measure_differences(found, ends)
    if rough and np.mean(differ) < AGREEMENT:
        ends = [fit_half(found, index, options, n, its_log, ends[n].start) for n, index in enumerate(indices)]
        rough, differ = False, measure_differences(found, ends)
    share = sum(map(len, indices)) / samples.n_samples
    log.passes += its_log.passes * share / 2
    differ = differ * (share + (1 - share) * differ)  # chance is less in more samples, other maxima are not
    return np.asarray(differ * (1 + differ / (3 if rough else 2)) / 4)


@dataclass(frozen=True)
class HalfFit:
    """What was found in a half."""

    atoms: NDArray[np.float64]  # (m, n)
    start: Array | None  # (m, k) where to go on, if they were found roughly


def fit_half(
    found: Found, index: NDArray[np.int64], options: Options, number: int, log: FitLog, start: Array | None = None
) -> HalfFit:
    """Seek the atoms in the samples of this `index`, from a `start` where they were found roughly.

    Of its samples nothing is kept: two halves would take twice the memory.
    """
    search = Search.begin(take_half(found.search.samples, index), options, log)
    rng = np.random.default_rng([SEED, number])
    if start is not None:
        return HalfFit(search.finish(start, found.estimate, rng, log).atoms[0], None)
    half = search.run_like(found.estimate, rng, log)
    return HalfFit(half.atoms[0], half.estimate.A if search.can_finish(found.estimate) else None)


def measure_differences(found: Found, halves: Sequence[HalfFit]) -> Vector:
    """How much the partners of each atom (m,) in two halves differ."""
    one, two = (match_atoms(found.atoms[0], half.atoms) for half in halves)
    return np.asarray(1 - np.abs(np.sum(one * two, axis=1)) ** 4)


def match_atoms(atoms: NDArray[np.float64], others: NDArray[np.float64]) -> NDArray[np.float64]:
    """For each of the atoms (m, n) its partner among the others, of unit length; zeros if there is none."""
    units = others / np.linalg.norm(others, axis=1, keepdims=True)
    cosines = np.abs(atoms @ units.T) / np.linalg.norm(atoms, axis=1, keepdims=True)
    first, second = linear_sum_assignment(-cosines)
    partners = np.zeros_like(atoms)
    partners[first] = units[second]
    return partners
