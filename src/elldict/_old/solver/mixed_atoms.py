"""Mixed atoms: two atoms that are mixtures of two others, recognised by their codes and separated.

Codes of true atoms are active independently of each other. Codes of two mixed atoms are active together, whenever
either of the true ones is: their supports are correlated, and far beyond chance.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from elldict._old.backend.base import Array, Backend, column_means, to_numpy

MIN_SUPPORT_SCORE = 6.0
"""Correlation of supports, in standard errors, from which a pair may be mixed."""

MIN_TURN = 0.005
"""Angle of a pair, in radians, below which turning it is not worth an iteration."""

PLAIN_CORRELATION = 0.4
"""Correlation of supports that only a mixture explains; small ones may come from noise that is not quite white."""

MAX_PAIRED_SHARE = 0.25
"""Share of all atoms in correlated pairs from which it is the data whose codes depend on each other, not a mixture."""

LEAST_CODE, MIN_FEWER = 1e-4, 0.05
"""Share of the root mean square below which a code counts as zero, and by what share of the others a turn is better."""

MIN_VARIATION = 1e-4
"""Share of their squares, in any direction, that codes keep where that of a true atom is zero; rounding makes 1e-8."""

MAX_COMPARED, SAME_LINE, MIN_ON_LINE, MIN_SHARE_ON_LINES = 400, 1e-4, 4, 0.05
"""Samples that are compared with each other, angle between those on one line, how many make a line, and share of them
on such lines. By chance, in a plane, a sample has 0.03 others at such an angle."""

ANGLES = np.concatenate([np.linspace(-math.pi / 4, math.pi / 4, 91)[1:], np.linspace(-0.1, 0.1, 101)])
"""Turning a pair by a right angle only renames it, so this is all there is; finer where a pair is nearly separate."""

ARCS = [np.linspace(-width, width, 41) for width in (0.02, 1e-3, 5e-5, 2.5e-6)]
"""Around the best of them, each as wide as the steps of the one before."""


@dataclass(frozen=True)
class MixedPair:
    """Two atoms whose codes are active together."""

    first: int
    second: int
    score: float  # correlation of the supports, in standard errors
    correlation: float = 1.0
    angle: float = math.inf  # by which it would have to be turned

    @property
    def nearly_separate(self) -> bool:
        """Whether the atoms are mixed by less than can be seen."""
        return abs(self.angle) <= MIN_TURN


def find_mixed_pairs(activity: Array) -> list[MixedPair]:
    """Pairs of atoms, strongest first, no atom twice; from the probability (b, m) that each code is active."""
    xp = Backend.of(activity).xp
    b = int(activity.shape[0])
    centred = activity - column_means(activity)
    products = centred.T @ centred
    spread = xp.sqrt(xp.linalg.diagonal(products) / b)
    spread = xp.maximum(spread, xp.full_like(spread, 1e-12))
    scores = xp.triu(products / (spread[:, None] * spread[None, :]), k=1) / math.sqrt(b)
    first, second = xp.nonzero(scores >= MIN_SUPPORT_SCORE)
    found, first, second = (to_numpy(each) for each in (scores[first, second], first, second))
    pairs: list[MixedPair] = []
    taken: set[int] = set()
    for k in np.argsort(found)[::-1]:
        i, j, score = int(first[k]), int(second[k]), float(found[k])
        if i not in taken and j not in taken:
            pairs.append(MixedPair(i, j, score, score / math.sqrt(b)))
            taken |= {i, j}
        if len(taken) >= len(spread) - 1:  # no pair is left
            break
    return pairs


def are_too_many(pairs: list[MixedPair], n_atoms: int) -> bool:
    """Whether pairs are too many to be mixed: in images and sounds, all codes are large where something happens."""
    return 2 * len(pairs) > max(2, MAX_PAIRED_SHARE * n_atoms)


def separate_pairs(
    A: NDArray[np.float64], Z: NDArray[np.float64], pairs: list[MixedPair]
) -> tuple[NDArray[np.float64], int]:
    """A (m, k) with each pair turned to where its codes are sparsest, and how many pairs that moved.

    Z (b, 2 p) are the codes of the p pairs, those of a pair side by side. The whole circle is searched: a pair is stuck
    because no small turn helps.
    """
    A = A.copy()
    n_moved = 0
    for number, pair in enumerate(pairs):
        angle = find_sparsest_angle(Z[:, 2 * number : 2 * number + 2])
        if abs(angle) > MIN_TURN:
            c, s = math.cos(angle), math.sin(angle)
            both = [pair.first, pair.second]
            A[both] = np.array([[c, -s], [s, c]]) @ A[both]
            n_moved += 1
    return A, n_moved


def keep_plain_mixtures(pairs: list[MixedPair], Z: NDArray[np.float64]) -> tuple[MixedPair, ...]:
    """Pairs that only a mixture explains, with the angle by which their codes Z (b, 2 p) would have to be turned."""
    return tuple(
        replace(pair, angle=find_sparsest_angle(Z[:, 2 * number : 2 * number + 2]))
        for number, pair in enumerate(pairs)
        if pair.correlation > PLAIN_CORRELATION
    )


def keep_mixed(pairs: list[MixedPair], Z: NDArray[np.float64]) -> list[MixedPair]:
    """Pairs of exactly sparse codes Z (b, 2 p) that are mixed: others depend on each other, but are those of atoms."""
    mixed = find_undetermined(Z)
    return [
        pair
        for number, pair in enumerate(pairs)
        if np.any(mixed[2 * number : 2 * number + 2]) or gains_zeros(Z[:, 2 * number : 2 * number + 2])
    ]


def find_undetermined(Z: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Which of the exactly sparse codes (b, m) are mixtures of those of several atoms, by where they are zero.

    The samples in which the code of a true atom is zero vary in all other directions: they determine the atom. The code
    of a mixture is zero only where all codes in it are, so that other codes of its span are zero there too, or depend
    linearly on each other. So do codes that are always active together, which are no mixtures of others.
    """
    m = Z.shape[1]
    unit = Z / np.maximum(np.sqrt(np.sum(Z**2, axis=0)), np.finfo(float).tiny)
    is_zero = np.abs(Z) < LEAST_CODE * np.sqrt(np.mean(Z**2, axis=0))
    found = np.zeros(m, dtype=bool)
    for atom in range(m if m > 1 else 0):
        others = np.delete(unit, atom, axis=1)
        there = others[is_zero[:, atom]]
        values, directions = np.linalg.eigh(there.T @ there)
        vanishing = directions[:, values < MIN_VARIATION]
        found[atom] = vanishing.shape[1] > 0 and have_common_lines(np.column_stack([unit[:, atom], others @ vanishing]))
    return found


def have_common_lines(rows: NDArray[np.float64]) -> bool:
    """Whether many of the rows (b, d) lie on few lines: those of atoms that are active alone.

    Codes that are always active together never are, and any basis of their span is as sparse.
    """
    lengths = np.sqrt(np.sum(rows**2, axis=1))
    units = (rows / np.maximum(lengths, np.finfo(float).tiny)[:, None])[lengths > LEAST_CODE * np.max(lengths)]
    units = units[:MAX_COMPARED]
    squared_sines = 1 - np.minimum((units @ units.T) ** 2, 1.0)
    n_on_line = np.sum(squared_sines < SAME_LINE**2, axis=1)  # itself counted
    return bool(np.mean(n_on_line >= MIN_ON_LINE) > MIN_SHARE_ON_LINES)


def gains_zeros(Z: NDArray[np.float64]) -> bool:
    """Whether a turn of two codes (b, 2), exactly sparse otherwise, leaves fewer of them that are not zero."""
    angle = find_sparsest_angle(Z)
    if angle == 0:
        return False
    c, s = math.cos(angle), math.sin(angle)
    turned = Z @ np.array([[c, s], [-s, c]])
    zero = LEAST_CODE * math.sqrt(float(np.mean(Z**2)))
    return bool(np.sum(np.abs(turned) >= zero) < (1 - MIN_FEWER) * np.sum(np.abs(Z) >= zero))


def find_sparsest_angle(Z: NDArray[np.float64]) -> float:
    """Turn that makes the absolute values of two codes (b, 2) smallest in sum; zero if none does better by much.

    Without noise the minimum is sharp, and a pair that is not turned all the way is stuck there again: its zeros are
    blurred beyond what passes for noise by then. So the search goes on on ever smaller arcs.
    """
    angle, smallest = _search_angles(ANGLES, Z)
    if smallest >= 0.999 * np.sum(np.abs(Z)):  # less is due to chance
        return 0.0
    for arc in ARCS:
        angle, smallest = _search_angles(angle + arc, Z)
    return angle


def _search_angles(angles: NDArray[np.float64], Z: NDArray[np.float64]) -> tuple[float, float]:
    """The angle with the smallest sum of absolute values, and that sum."""
    c, s = np.cos(angles)[:, None], np.sin(angles)[:, None]
    x, y = Z[:, 0], Z[:, 1]
    sums = np.sum(np.abs(c * x - s * y), axis=1) + np.sum(np.abs(s * x + c * y), axis=1)
    best = int(np.argmin(sums))
    return float(angles[best]), float(sums[best])
