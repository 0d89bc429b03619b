"""A path of a stream: atoms that follow the maximum of one objective by a Newton step for each part of a batch."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np

from elldict._old.backend.base import to_numpy
from elldict._old.solver.directions import FAR_CURVATURE, MAX_ANGLE, polar
from elldict._old.solver.evaluate import Statistics
from elldict._old.solver.running import Matrix

EVALUATED_ROWS = 512
"""Of each part, whose codes are evaluated one by one: for their law, and for what atoms have to do with each other."""


@dataclass(frozen=True)
class OnlinePath:
    """Atoms that follow the maximum of one objective, and all that their next step needs."""

    A: Matrix  # (m, k)
    stats: Statistics  # moments, at the atoms of each time
    bend: Matrix  # (m, m) sum g'(z_i) z_j^2 over the codes that were evaluated one by one
    bend_weight: float
    lag: Matrix  # (m, m) mean of the angles by which parts found the atoms to be off: noise, unless they drift

    @classmethod
    def begin(cls, A: Matrix, stats: Statistics) -> OnlinePath:
        """From where a fit ended; statistics of no weight say that it went another way."""
        m = len(A)
        return cls(A, stats, np.zeros((m, m)), 0.0, np.zeros((m, m)))

    def decayed(self, keep: float) -> OnlinePath:
        """With this share of all weight kept."""
        stats, bend, weight = scale_sums(self.stats, keep), keep * self.bend, keep * self.bend_weight
        return replace(self, stats=stats, bend=bend, bend_weight=weight)

    def step(self, stats: Statistics, codes: Matrix, slopes: Matrix, weight: float) -> OnlinePath:
        """After the step of a part with these sums, among samples of this weight in all.

        `codes` (b, m) are some of the part, and `slopes` those of the objective there.
        """
        gain = stats.weight / weight
        bend = self.bend + (slopes.T @ codes**2) * (stats.weight / len(codes))
        running = self.stats + Statistics(
            stats.weight, stats.value, slope=stats.slope, g2=stats.g2, z2=stats.z2, gz=stats.gz, extra=stats.extra
        )
        running = replace(running, signs=self.stats.signs)
        there = replace(self, stats=running, bend=bend, bend_weight=self.bend_weight + stats.weight)
        between, outside = there.angles(to_numpy(stats.G) / weight)
        return replace(there, A=turn(self.A, between, outside), lag=(1 - gain) * self.lag + between)

    def angles(self, G: Matrix) -> tuple[Matrix, Matrix | None]:
        """Newton's step for a gradient G (m, k).

        Angles (m, m) between atoms, and steps (m, k) to the directions that belong to none, if there are any. Here
        E g_i' z_j^2 stands where Newton's step for a fit has E g_i' E z_j^2: a fit takes more steps if codes depend
        on each other, a stream has but one.
        """
        m, k = self.A.shape
        gz, slope, v = (
            np.asarray(total) / self.stats.weight for total in (self.stats.gz, self.stats.slope, self.stats.z2)
        )
        # so many samples' worth of codes that have nothing to do with each other come first
        bend = (self.bend + EVALUATED_ROWS * np.outer(slope, v)) / (self.bend_weight + EVALUATED_ROWS)
        both = gz[:, None] + gz[None, :]
        C = G @ self.A.T
        between = (C - C.T) / np.maximum(both - bend - bend.T, FAR_CURVATURE / 2 * np.abs(both) + 1e-300)
        if m == k:
            return between, None
        rest = max(0.0, k - float(np.sum(v))) / (k - m)  # mean square that the atoms leave
        curvature = np.maximum(gz - rest * slope, FAR_CURVATURE * np.abs(gz) + 1e-300)
        return between, (G - C @ self.A) / curvature[:, None]


def turn(A: Matrix, between: Matrix, outside: Matrix | None) -> Matrix:
    """A after a step, which is cut short where it is too long to be true."""
    move = between @ A if outside is None else between @ A + outside
    length = math.sqrt(float(np.sum(move**2)) / len(A))
    return np.asarray(polar(A + min(1.0, MAX_ANGLE / max(length, 1e-300)) * move))


def make_empty(m: int) -> Statistics:
    """Moments of no samples."""
    return Statistics(0.0, gz=np.zeros(m), g2=np.zeros(m), slope=np.zeros(m), z2=np.zeros(m))


def scale_sums(stats: Statistics, factor: float) -> Statistics:
    """Sums of samples that count this much."""
    scaled = change_arrays(stats, lambda array: factor * array)
    return replace(scaled, weight=factor * stats.weight, signs=stats.signs)


def change_arrays(stats: Statistics, change: Callable[[Any], Any]) -> Statistics:
    """Sums with all their arrays changed."""
    names = {field.name for field in fields(stats)} - {"weight", "extra", "known_mean"}
    changed = {name: change(array) for name in names if (array := getattr(stats, name)) is not None}
    return Statistics(stats.weight, extra={name: change(array) for name, array in stats.extra.items()}, **changed)
