"""All warnings of a fit: check, message and remedy. They are values until issued in the caller's thread."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from elldict.exceptions import CorruptedEntriesWarning, NotIdentifiableWarning, NotWhiteWarning, RankWarning
from elldict.samples.base import Array, Index
from elldict.samples.order import Mask
from elldict.samples.statistics import Statistics
from elldict.samples.whitening import Whitening
from elldict.solver.climb import Reason, State

FAR_FROM_WHITE = 2.0
"""Ratio of the largest to the smallest variance of a direction above which atoms may not be orthogonal."""

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


def refuse_corruption(pilot: str) -> Finding:
    """Say that samples were said to have corrupted entries, and do not seem so."""
    return Finding(
        CorruptedEntriesWarning,
        "refine='sparse-corruption' was not applied: sparse codes and corrupted entries do not explain the samples "
        f"better than codes alone, or samples are too few. Components are those of {pilot or 'the start'}. Use "
        "refine='auto'.",
    )


def find_gaussian(negentropy: Array, n_samples: float) -> Mask:
    """Find the codes (m,) whose densities gain no more than those of Gaussian codes after the same search.

    Each atom has one angle to every other atom, and each angle can be fitted to noise: with 3 to 60 components,
    Gaussian codes gained at most n + 2 sqrt(n) nats, summed over all samples.
    """
    n = len(negentropy)
    return np.asarray(n_samples * negentropy < n + 2 * np.sqrt(n))


def list_components(index: Index) -> str:
    """Format the first components and the number of remaining ones."""
    named = ", ".join(map(str, index[:MOST_NAMED]))
    return named if len(index) <= MOST_NAMED else f"{named} and {len(index) - MOST_NAMED} more"
