"""Checks of the entries of samples: rounded, clipped, constant or corrupted features."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from elldict.exceptions import CorruptedEntriesWarning, NotLinearWarning, SuspiciousFeaturesWarning
from elldict.samples.base import Array, Index, Samples
from elldict.samples.order import Order, draw_positions
from elldict.samples.whitening import Whitening
from elldict.solver.climb import Reason, State
from elldict.warnings import Finding, list_numbers

FEW_VALUES = 10
"""Number of distinct values up to which a feature counts as rounded. With up to 10 values, rounded mixtures of
continuous sources had errors of up to 0.9 that were stated as zero; with 13 or more, densities smooth the steps."""

OFTEN, MUCH_MORE_OFTEN = 0.01, 10.0
"""Fraction of samples, and ratio to how often other values occur, from which a value of a feature is said to repeat."""

PART = 0.25
"""Fraction of samples up to which values may be clipped, and from which a feature varies that is off in others. Beyond
it are zeros of values that are never negative, as of pixels and counts, and rare events."""

HEAVIER, LEAST_HEAVIER = 0.3, 0.1
"""Excess kurtosis of features beyond that of other directions, relative and absolute, from which entries may be
corrupted; a tenth of them, by one standard deviation of a nonzero code, adds 0.4. Codes have to leave as much of it."""

ALONG = 0.5
"""Mean fourth power of the largest entries of atoms from which these are features."""

DEPENDENT = 1.25
"""Variance of the squared norm of samples, relative to that for independent entries, if they are dependent."""

LIMIT = 4.4
"""Limit of entries, in median absolute deviations: three standard deviations of Gaussian ones."""

CHECKED = 1000
"""Number of samples whose entries and codes are checked, about."""


def draw_samples(samples: Samples) -> Array:
    """Read some samples from everywhere (b, n), or all if there are few."""
    r = samples.shape[0]
    return np.asarray(samples.take(draw_positions(r, CHECKED) if r > CHECKED else np.arange(r)))


def check_features(rows: Array, *, is_reduced: bool = False) -> Iterator[Finding]:
    """Check whether features of samples (b, n) are rounded, clipped, or constant in a part of the samples.

    Fewer components than directions are averages over many features, to which a few rounded ones do little.
    """
    n_values = 1 + np.count_nonzero(np.diff(np.sort(rows, axis=0), axis=0), axis=0)
    is_rounded = (n_values > 1) & (n_values <= min(FEW_VALUES, len(rows) / FEW_VALUES))  # of few rows, any has few
    for j in np.flatnonzero(is_rounded):  # unless most entries are zero and the others are distinct
        counts = np.unique(rows[:, j], return_counts=True)[1]
        is_rounded[j] = np.sum(counts) - np.max(counts) >= 2 * (len(counts) - 1)
    if np.sum(is_rounded) > (len(is_rounded) / 2 if is_reduced else 0):
        rounded = np.flatnonzero(is_rounded)
        yield Finding(
            SuspiciousFeaturesWarning,
            f"In {list_features(rounded)}, there are at most {np.max(n_values[rounded])} distinct values, as if they "
            "were rounded. Components may describe the steps between values, even if their estimated errors are small. "
            "Use values with more digits, or compare with refine=None, which is affected less.",
            tuple(rounded),
        )
    _, first = np.unique(rows @ np.cos(np.arange(rows.shape[1])), return_index=True)  # equal samples count once
    clipped, constant = measure_repeated(rows[first])
    clipped, constant = np.where(is_rounded, 0, (clipped, constant))
    if np.any(clipped):
        yield Finding(
            NotLinearWarning,
            f"In {list_features(np.flatnonzero(clipped))}, the largest or smallest value repeats in up to "
            f"{np.max(clipped):.0%} of the samples, as if values were clipped. Such samples are not sums of "
            "components, which estimated errors do not include. Leave out these samples or features.",
            tuple(np.flatnonzero(clipped)),
        )
    if np.any(constant):
        yield Finding(
            SuspiciousFeaturesWarning,
            f"In {list_features(np.flatnonzero(constant))}, one value repeats in up to {np.max(constant):.0%} of the "
            "samples, as if a sensor was off or values were imputed. Such samples are not sums of components, which "
            "estimated errors do not include. Leave out these samples or features.",
            tuple(np.flatnonzero(constant)),
        )


def measure_repeated(rows: Array) -> tuple[Array, Array]:
    """Measure in which fraction of samples (b, n) each feature has a value that repeats much more often than others.

    The first result (n,) is for the largest or smallest value, if it may be due to clipping. The second one is for any
    value, if it is more than twice as frequent as in other features: many features of sparse samples are zero. Counts,
    and other features of few values, are left out.
    """
    b, n = rows.shape
    ends, most, least = np.zeros(n), np.zeros(n), np.full(n, np.inf)
    for j in range(n):
        counts = np.unique(rows[:, j], return_counts=True)[1]
        ends[j], most[j] = max(counts[0], counts[-1]), np.max(counts)
        n_others = b - most[j]  # samples with other values: those of continuous features are all different
        if len(counts) > max(3, n_others / FEW_VALUES):  # both ends and one other value may repeat
            least[j] = max(OFTEN * b, MUCH_MORE_OFTEN * np.sort(counts)[-4])
    is_clipped = (ends >= least) & (ends <= PART * b)
    is_constant = (most - 2 * np.median(most) >= least) & (most <= (1 - PART) * b) & ~is_clipped
    return np.where(is_clipped, ends, 0) / b, np.where(is_constant, most, 0) / b


def list_features(index: Index) -> str:
    """Format the first features and the number of remaining ones."""
    return f"{'feature' if len(index) == 1 else 'features'} {list_numbers(index)}"


def check_entries(
    samples: Samples, whitening: Whitening, order: Order | None, state: State, refine: str | None
) -> Iterator[Finding]:
    """Check whether entries of samples that are not white look corrupted, after a fit that knows no corruption."""
    if state.reason is Reason.STOPPED or refine is None:
        return
    if refine == "sparse-corruption":
        yield Finding(
            CorruptedEntriesWarning,
            "refine='sparse-corruption' was not applied: sparse codes and corrupted entries do not explain the samples "
            "better than codes alone, or samples are too few. Components are those without it. Use refine='auto'.",
        )
    elif order is not None and 1 < len(state.A) == len(whitening.mean) and not whitening.is_white:
        rows = np.asarray(samples.take(order.thin_out(max(1, int(order.n_samples / CHECKED))).index))
        if look_corrupted(rows - np.mean(rows, axis=0), state.A):
            yield Finding(
                CorruptedEntriesWarning,
                "Some entries of X look corrupted: features have heavier tails than other directions, which codes do "
                "not explain. Set refine='sparse-corruption' if these are errors; components may be wrong otherwise.",
            )


def look_corrupted(rows: Array, A: Array) -> bool:
    """Return whether features have heavier tails than other directions, for another reason than atoms along them.

    Corruption of entries is sparse in the features, as codes are in the atoms. If independent codes for atoms A (n, n)
    do not explain the tails of features, they are due to corruption. If these atoms are features, they explain all, but
    features are not independent when their largest entries are limited.
    """
    n = len(A)
    directions = np.linalg.qr(np.random.default_rng(0).standard_normal((n, n)))[0]
    cumulants = measure_cumulants(rows @ A.T)[1]
    tails, unexplained = [], []
    for each in (np.eye(n), directions):
        variances, fourth = measure_cumulants(rows @ each.T)
        squares = np.maximum(variances, np.finfo(float).tiny) ** 2
        tails.append(float(np.median(fourth / squares)))
        unexplained.append(float(np.median((fourth - (each @ A.T) ** 4 @ cumulants) / squares)))
    other = max(tails[1], 0.0)
    if tails[0] < (1 + HEAVIER) * other + LEAST_HEAVIER:
        return False
    are_features = np.mean(np.max(np.abs(A), axis=1) ** 4) > ALONG
    return bool(are_features or unexplained[0] - max(unexplained[1], 0.0) > HEAVIER * tails[0]) and are_dependent(rows)


def measure_cumulants(Z: Array) -> tuple[Array, Array]:
    """Compute variances and fourth cumulants of columns whose mean is zero."""
    squares = Z * Z
    variances = np.mean(squares, axis=0)
    return variances, np.mean(squares * squares, axis=0) - 3 * variances**2


def are_dependent(rows: Array) -> bool:
    """Return whether limited entries of the same samples (b, n) are large together, as sums of sparse codes are."""
    rows = rows - np.median(rows, axis=0)
    limits = LIMIT * np.median(np.abs(rows), axis=0)
    if np.any(limits <= 1e-6 * np.std(rows, axis=0)):  # most entries are zero: features are sparse themselves
        return False
    squares = np.clip(rows, -limits, limits) ** 2
    return bool(np.var(np.sum(squares, axis=1)) > DEPENDENT * np.sum(np.var(squares, axis=0)))
