"""Wrong basins: two atoms mixed with each other, recognised by their codes and taken apart.

Codes of true atoms are active independently of each other. Codes of two mixed atoms are active together, whenever
either of the true ones is: their supports are correlated, and far beyond chance.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

SUSPICIOUS = 6.0
"""Correlation of supports, in standard errors, from which a pair is looked at."""

WIDESPREAD = 0.25
"""Share of all atoms in suspicious pairs from which it is the data whose codes depend on each other, not a mixture."""

ANGLES = np.linspace(-math.pi / 4, math.pi / 4, 91)[1:]
"""Turning a pair by a right angle only renames it, so this is all there is."""


@dataclass(frozen=True)
class Pair:
    """Two atoms whose codes are active together."""

    first: int
    second: int
    score: float  # correlation of the supports, in standard errors


def suspicious_pairs(activity: NDArray[np.float64]) -> list[Pair]:
    """Pairs of atoms, strongest first, no atom twice; from the probability (b, m) that each code is active.

    None if there are too many: in images and sounds, all codes are large where something happens.
    """
    centred = activity - np.mean(activity, axis=0)
    spread = np.maximum(np.std(activity, axis=0), 1e-12)
    scores = np.triu(centred.T @ centred / np.outer(spread, spread), 1) / math.sqrt(len(activity))
    pairs: list[Pair] = []
    taken: set[int] = set()
    for flat in np.argsort(scores, axis=None)[::-1]:
        i, j = (int(k) for k in np.unravel_index(flat, scores.shape))
        if scores[i, j] < SUSPICIOUS:
            break
        if not taken & {i, j}:
            pairs.append(Pair(i, j, float(scores[i, j])))
            taken |= {i, j}
    return pairs if 2 * len(pairs) <= max(2, WIDESPREAD * activity.shape[1]) else []


def unmixed(A: NDArray[np.float64], Z: NDArray[np.float64], pairs: list[Pair]) -> tuple[NDArray[np.float64], int]:
    """A (m, k) with each pair turned to where its codes Z (b, m) are sparsest, and how many pairs that moved.

    The whole circle is searched: a pair is stuck because no small turn helps.
    """
    A = A.copy()
    n_moved = 0
    for pair in pairs:
        both = [pair.first, pair.second]
        angle = _sparsest_angle(Z[:, both])
        if abs(angle) > 0.1:
            c, s = math.cos(angle), math.sin(angle)
            A[both] = np.array([[c, -s], [s, c]]) @ A[both]
            n_moved += 1
    return A, n_moved


def _sparsest_angle(Z: NDArray[np.float64]) -> float:
    """Turn that makes the absolute values of two codes smallest in sum; zero if none does better by much."""
    c, s = np.cos(ANGLES)[:, None], np.sin(ANGLES)[:, None]
    x, y = Z[:, 0], Z[:, 1]
    sums = np.sum(np.abs(c * x - s * y), axis=1) + np.sum(np.abs(s * x + c * y), axis=1)
    best = int(np.argmin(sums))
    return float(ANGLES[best]) if sums[best] < 0.98 * np.sum(np.abs(Z)) else 0.0
