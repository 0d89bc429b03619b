"""Estimate the error of atoms from fits to two halves of the samples."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment

from elldict._old.backend.base import Array
from elldict._old.competing_bases import seek_competing_basis
from elldict._old.data.halves import count_half_rows, split_alternately, take_half
from elldict._old.estimation import Found, Options, Search
from elldict._old.solver.loop import FitLog
from elldict._old.solver.schedule import is_exact_estimate

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
    """Whether to fit two halves: always, unless the answer is exact, the user declines, or the paper's method is run.

    `solver="power"` is the paper's algorithm, which fits nothing else unless `halves=True` or groups ask for it.
    """
    estimate, options = found.estimate, found.search.options
    m, k = estimate.A.shape
    if options.halves is False or estimate.stopped or m < 2:
        return False
    if m < k:  # each half may find other atoms of the same dictionary, which is no error
        return False
    asked = options.halves is True or groups is not None
    return asked or (options.solver != "power" and not is_exact_estimate(estimate))


def compare_halves(found: Found, groups: NDArray[Any] | None, log: FitLog) -> Vector | None:
    """Estimate the error of each atom (m,) from fits to two halves of the samples; None if there are too few samples.

    Each half has twice the variance of the whole, so halves that end near the same maximum differ by d, four times the
    error of the whole. Halves that share nothing (d = 1) say that nothing is known. d / (4 - 3 d) is right at both
    ends.
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
        differ = measure_differences(found, ends)
    share = sum(map(len, indices)) / samples.n_samples
    log.passes += its_log.passes * share / 2
    differ = differ * (share + (1 - share) * differ)  # chance shrinks with more samples, distance of maxima does not
    return np.asarray(differ / (4 - 3 * differ))


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
    half = seek_competing_basis(search.run_like(found.estimate, rng, log), log)
    return HalfFit(half.atoms[0], half.estimate.A if search.can_finish(found.estimate) else None)


def measure_differences(found: Found, halves: Sequence[HalfFit]) -> Vector:
    """How much the partners of each atom (m,) in two halves differ."""
    one, two = (match_atoms(found.atoms[0], half.atoms) for half in halves)
    return np.asarray(1 - np.abs(np.sum(one * two, axis=1)) ** 4)


def make_unit_rows(rows: NDArray[np.float64]) -> NDArray[np.float64]:
    """Scale each row to unit length, also where the squares of its entries would underflow or overflow."""
    rows = rows / np.max(np.abs(rows), axis=1, keepdims=True)
    return np.asarray(rows / np.linalg.norm(rows, axis=1, keepdims=True))


def match_atoms(atoms: NDArray[np.float64], others: NDArray[np.float64]) -> NDArray[np.float64]:
    """For each of the atoms (m, n) its partner among the others, of unit length; zeros if there is none."""
    units = make_unit_rows(others)
    first, second = linear_sum_assignment(-np.abs(make_unit_rows(atoms) @ units.T))
    partners = np.zeros_like(atoms)
    partners[first] = units[second]
    return partners
