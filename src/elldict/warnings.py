"""All warnings of a fit: check, message and remedy. They are values until issued in the caller's thread."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from elldict.exceptions import CorruptedEntriesWarning, NotIdentifiableWarning, NotWhiteWarning, RankWarning
from elldict.samples.base import Array, Index, Samples
from elldict.samples.order import Mask, Order
from elldict.samples.statistics import Statistics
from elldict.samples.whitening import Whitening
from elldict.solver.climb import Reason, State

FAR_FROM_WHITE = 2.0
"""Ratio of the largest to the smallest variance of a direction above which atoms may not be orthogonal."""

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
"""Number of samples whose entries are checked, about."""

MOST_NAMED = 10
"""Maximum number of components listed in a warning."""


@dataclass(frozen=True)
class Finding:
    """A warning that has not been issued yet."""

    category: type[Warning]
    message: str


def check_samples(statistics: Statistics, whitening: Whitening, n_components: int | None) -> Iterator[Finding]:
    """Check rank and whiteness, known after the first pass."""
    r, n = statistics.n_samples, len(statistics.mean)
    rank, wanted = whitening.rank, min(n, n_components or n)
    if rank < min(r - 1, wanted) or rank == 1 < wanted:  # others have too few samples for their rotation
        yield Finding(
            RankWarning,
            f"X has rank {rank} < {wanted}: only {rank} component{'s are' if rank > 1 else ' is'} estimated. Remove "
            "constant and duplicated features, or use more samples.",
        )
    ratio = whitening.condition
    if not whitening.is_white and ratio > FAR_FROM_WHITE + 10 * np.sqrt(n / r):
        yield Finding(
            NotWhiteWarning,
            f"X is not white: the largest variance of a direction is {ratio:.3g} times the smallest. Atoms are "
            "assumed to be orthogonal; if they are not, set whiten=True.",
        )


def check_components(state: State, is_gaussian: Mask, statistics: Statistics) -> Iterator[Finding]:
    """Check identifiability and convergence at the end of a fit."""
    gaussian = np.flatnonzero(is_gaussian)
    if len(gaussian) > 1:
        yield Finding(
            NotIdentifiableWarning,
            f"Components {list_components(gaussian)} are not identifiable: on held-out samples their codes cannot be "
            "distinguished from Gaussian noise. Interpret only the subspace they span; the other components are "
            "unaffected. More samples or a smaller n_components may help.",
        )
    if state.reason is Reason.TOO_FEW:
        yield Finding(
            NotIdentifiableWarning,
            f"{statistics.n_samples:g} samples of {len(statistics.mean)} features are too few to determine the "
            f"rotation of {len(state.A)} components, each of which needs at least two distinct ones. They are "
            "principal axes. Use more samples, or a smaller n_components with whiten=True.",
        )
    if state.reason is Reason.MAX_ITER:
        yield Finding(
            ConvergenceWarning,
            f"The last climb did not converge within max_iter={state.iteration} iterations; its last step had size "
            f"{state.length:.2g}. Increase max_iter.",
        )


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


def find_gaussian(negentropy: Array, n_samples: float, *, is_orthogonal: bool = True) -> Mask:
    """Find the codes (m,) whose densities gain no more than those of Gaussian codes after the same search.

    Each atom has one angle to every other atom, and each angle can be fitted to noise: with 3 to 60 components,
    Gaussian codes gained at most n + 2 sqrt(n) nats, summed over all samples. Atoms that are not orthogonal have two
    coefficients for each angle, and gained 1.3 times as much.
    """
    n = len(negentropy) * (1.0 if is_orthogonal else 1.5)
    return np.asarray(n_samples * negentropy < n + 2 * np.sqrt(n))


def list_components(index: Index) -> str:
    """Format the first components and the number of remaining ones."""
    named = ", ".join(map(str, index[:MOST_NAMED]))
    return named if len(index) <= MOST_NAMED else f"{named} and {len(index) - MOST_NAMED} more"
