"""Every warning of a fit: its check, its words, its remedy. They are values until the caller's thread issues them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from elldict.exceptions import NotIdentifiableWarning, NotWhiteWarning, RankWarning
from elldict.samples.base import Array, Index
from elldict.samples.order import Mask
from elldict.samples.statistics import Statistics
from elldict.samples.whitening import Whitening
from elldict.solver.climb import Reason, State

FAR_FROM_WHITE = 2.0
"""Ratio of the largest to the smallest variance of a direction from which orthogonal atoms are in doubt."""

MOST_NAMED = 10
"""Components that a warning names."""


@dataclass(frozen=True)
class Finding:
    """A warning that is still to be issued."""

    category: type[Warning]
    message: str


def check_samples(statistics: Statistics, whitening: Whitening, n_components: int | None) -> Iterator[Finding]:
    """Check what the first pass tells."""
    r, n = statistics.n_samples, len(statistics.mean)
    if whitening.rank < min(r - 1, n, n_components or n):
        yield Finding(
            RankWarning,
            f"X has rank {whitening.rank}, below {n_components or n}: components are found in the directions in which "
            "X varies. Remove constant and duplicated features.",
        )
    ratio = whitening.condition
    if not whitening.is_white and ratio > FAR_FROM_WHITE + 10 * np.sqrt(n / r):
        yield Finding(
            NotWhiteWarning,
            f"X is not white: the largest variance of a direction is {ratio:.3g} times the smallest. Atoms are "
            "assumed to be orthogonal; if they are not, set whiten=True.",
        )


def check_components(state: State, is_gaussian: Mask, statistics: Statistics) -> Iterator[Finding]:
    """Check the end of a fit."""
    gaussian = np.flatnonzero(is_gaussian)
    if len(gaussian) > 1:
        yield Finding(
            NotIdentifiableWarning,
            f"Components {list_components(gaussian)} are not identifiable: on held-out samples their codes cannot be "
            "distinguished from Gaussian noise. Interpret only the subspace that they span; the other components are "
            "unaffected. More samples or a smaller n_components may help.",
        )
    if state.reason is Reason.TOO_FEW:
        yield Finding(
            NotIdentifiableWarning,
            f"{statistics.n_samples} samples of {len(statistics.mean)} features are too few to prefer any rotation of "
            f"{len(state.A)} components: each needs at least two. Give more samples, or a smaller n_components "
            "with whiten=True.",
        )
    if state.reason is Reason.MAX_ITER:
        yield Finding(
            ConvergenceWarning,
            f"The last climb did not end within max_iter={state.iteration} iterations; its last step was "
            f"{state.length:.2g}. Raise max_iter.",
        )


def find_gaussian(negentropy: Array, n_samples: int) -> Mask:
    """Tell which codes (m,) gain no more by their densities than the search makes Gaussian codes gain.

    Each atom has as many angles as there are others, and each angle can be fitted to chance: Gaussian codes of 3 to 60
    components gained at most n + 2 sqrt(n) nats in all samples together.
    """
    n = len(negentropy)
    return np.asarray(n_samples * negentropy < n + 2 * np.sqrt(n))


def list_components(index: Index) -> str:
    """Name the first components, and say how many more there are."""
    named = ", ".join(map(str, index[:MOST_NAMED]))
    return named if len(index) <= MOST_NAMED else f"{named} and {len(index) - MOST_NAMED} more"
