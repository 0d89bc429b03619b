"""All warnings of a fit: check, message and remedy. They are values until issued in the caller's thread."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from elldict.exceptions import (
    DependentComponentsWarning,
    NotIdentifiableWarning,
    NotWhiteWarning,
    RankWarning,
    SuspiciousFeaturesWarning,
)
from elldict.samples.base import Array, Index
from elldict.samples.order import Mask
from elldict.samples.statistics import Statistics
from elldict.samples.whitening import Whitening
from elldict.solver.climb import Reason, State

FAR_FROM_WHITE = 2.0
"""Ratio of the largest to the smallest variance of a direction above which atoms may not be orthogonal."""

UNLIKE_SCALES = 50.0
"""Ratio of the largest to the median standard deviation of features above which their units seem to differ. With 2 %
noise, that of the largest feature is as large as all of a median one. On 40 real data sets it was at most 47."""

FUNCTIONS = 4
"""Number of cosines of the rank of a code by which dependence is measured; sin(t) and sin(4 t) need four."""

ALIKE = 0.3
"""Difference of codes, in standard deviations, that does not count: zeros with the crosstalk of small errors."""

DEPENDENCE, CHANCE = 0.45, 44.0
"""Mean square contingency of two components from which they depend on each other: beyond chance, and its largest value
by chance, times the number of samples: chi-square of 16 degrees of freedom, exceeded for one of 5000 pairs. Components
that shared a scale, but were found, had less than 0.1; functions of each other and common zeros had 0.5 to 2."""

MOST_NAMED = 10
"""Maximum number of components or features listed in a warning."""


@dataclass(frozen=True)
class Finding:
    """A warning that has not been issued yet."""

    category: type[Warning]
    message: str
    features: tuple[int, ...] = ()  # that the message lists by number

    def add_names(self, names: Sequence[Any]) -> Self:
        """Add the names of the features."""
        listed = ", ".join(repr(names[j]) for j in self.features[:MOST_NAMED])  # without control characters
        return replace(self, message=f"{self.message} Names: {listed}.") if listed else self


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
    yield from check_scales(statistics, whitening)


def check_scales(statistics: Statistics, whitening: Whitening) -> Iterator[Finding]:
    """Check whether features have different units, where the result depends on them."""
    if whitening.scales is not None or (whitening.is_white and len(whitening.to_white) == whitening.rank):
        return
    stds = np.sqrt(np.maximum(np.diag(statistics.covariance), 0))
    median = np.quantile(stds[stds > 0], 0.5, method="lower") if np.any(stds > 0) else np.inf
    if np.max(stds) > UNLIKE_SCALES * median:
        largest = int(np.argmax(stds))
        yield Finding(
            SuspiciousFeaturesWarning,
            f"Features are on very different scales: the standard deviation of feature {largest} is "
            f"{np.max(stds) / median:.3g} times the median one. Components mainly describe the largest features. Set "
            "standardize=True if features have different units.",
            (largest,),
        )


def check_components(state: State, is_gaussian: Mask, statistics: Statistics) -> Iterator[Finding]:
    """Check identifiability and convergence at the end of a fit."""
    gaussian = np.flatnonzero(is_gaussian)
    if len(gaussian) > 1:
        yield Finding(
            NotIdentifiableWarning,
            f"Components {list_numbers(gaussian)} are not identifiable: on held-out samples their codes cannot be "
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


def check_dependence(codes: Array, is_small: Mask) -> Iterator[Finding]:
    """Check whether components depend on each other, from codes (b, m), both with and without small samples (b,).

    Samples without any signal make all codes dependent. Left out, they make codes dependent that are mostly zero.
    """
    is_dependent = find_dependent(codes)
    if np.any(is_dependent) and np.any(is_small):
        is_dependent &= find_dependent(codes[~is_small])
    if np.any(is_dependent):
        yield Finding(
            DependentComponentsWarning,
            f"Components {list_numbers(np.flatnonzero(np.any(is_dependent, axis=0)))} depend strongly on each other, "
            "but a fit assumes independent ones. They may be mixtures of the sources, and estimated errors do not "
            "include this. Interpret only the subspace they span.",
        )


def find_dependent(codes: Array) -> Mask:
    """Find the pairs (m, m) of components that depend on each other."""
    return np.asarray(measure_dependence(codes) > DEPENDENCE + CHANCE / max(1, len(codes)))


def measure_dependence(codes: Array) -> Array:
    """Measure the dependence (m, m) of codes (b, m): the sum of squared correlations of functions of two codes.

    Functions are cosines of ranks. The sum is that part of the mean square contingency (chi-square per sample).
    """
    ranks = rank_codes(codes)
    functions = [np.cos(np.pi * k * ranks) for k in range(1, FUNCTIONS + 1)]
    functions = [each - np.mean(each, axis=0) for each in functions]
    functions = [each / np.maximum(np.linalg.norm(each, axis=0), 1e-9) for each in functions]
    found = np.zeros((codes.shape[1], codes.shape[1]))
    for each in functions:
        for other in functions:
            found += (each.T @ other) ** 2
    np.fill_diagonal(found, 0)
    return found


def rank_codes(codes: Array) -> Array:
    """Compute ranks (b, m) between 0 and 1, the same for codes that are alike."""
    Z = codes - np.median(codes, axis=0)  # where most zeros are
    Z = np.round(Z / np.maximum(ALIKE * np.std(codes, axis=0), np.finfo(float).tiny))
    ranks = np.empty(Z.shape)
    for j, z in enumerate(Z.T):
        _, where, counts = np.unique(z, return_inverse=True, return_counts=True)
        ranks[:, j] = (np.cumsum(counts) - counts / 2)[where] / len(z)
    return ranks


def find_gaussian(negentropy: Array, n_samples: float, *, is_orthogonal: bool = True) -> Mask:
    """Find the codes (m,) whose densities gain no more than those of Gaussian codes after the same search.

    Each atom has one angle to every other atom, and each angle can be fitted to noise: with 3 to 60 components,
    Gaussian codes gained at most n + 2 sqrt(n) nats, summed over all samples. Atoms that are not orthogonal have two
    coefficients for each angle, and gained 1.3 times as much.
    """
    n = len(negentropy) * (1.0 if is_orthogonal else 1.5)
    return np.asarray(n_samples * negentropy < n + 2 * np.sqrt(n))


def list_numbers(index: Index) -> str:
    """Format the first numbers and the number of remaining ones."""
    named = ", ".join(map(str, index[:MOST_NAMED]))
    return named if len(index) <= MOST_NAMED else f"{named} and {len(index) - MOST_NAMED} more"
