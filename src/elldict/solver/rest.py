"""When to stop: how far a step may be in doubt, by the error bar, and how sparse codes have become."""

from __future__ import annotations

import math

import numpy as np

from elldict.kernels.fused import kernels_for
from elldict.solver.contrasts import maximised
from elldict.solver.stage import Point, Stage
from elldict.solver.sums import Sums, moments
from elldict.space import Array, Space, to_numpy
from elldict.theory import chance
from elldict.theory.accuracy import atom_errors

USUAL_TOL = 1e-6

EXACT_ANGLE = 1e-4
"""An error bar this small is on its way to zero: recovery is exact, and worth the last steps."""

LARGEST_ANGLE = 0.5
LOST_STEP = 0.01
"""An error bar larger than this is that of a place far from any maximum, where it means nothing, or of samples that do
not tell one maximum from another, where steps of this length are of no use."""


def last_step(stage: Stage, before: Point, here: Point, step: float) -> float:
    """Length of a step from `here` that is the last, `step` being the one at hand.

    While the contrast still follows A, the error bar falls from look to look and says nothing; and whoever asks for
    more than the usual digits gets them.
    """
    settled = maximised(here.contrast) is maximised(before.contrast)
    if not settled or not stage.resolution or stage.tol < USUAL_TOL or step > stage.resolution * LARGEST_ANGLE:
        return stage.tol
    angle = angle_in_doubt(here.sums) if here.doubt is None else here.doubt
    if angle > LARGEST_ANGLE:
        return max(stage.tol, LOST_STEP)
    return stage.tol if angle < EXACT_ANGLE else max(stage.tol, stage.resolution * angle)


def angle_in_doubt(sums: Sums) -> float:
    """Root mean square, over atoms, of the distance that the error bar gives them; zero if it gives none."""
    return doubtful_angle(float(mean_error(sums)))


def mean_error(sums: Sums) -> Array:
    """Mean error bar of the atoms, as an array of one number."""
    kernels = kernels_for(sums.z2)
    if kernels is not None:
        found: Array = kernels.mean_error(sums.gz, sums.g2, sums.slope, sums.z2, sums.weight)
        return found
    return Space.of(sums.z2).xp.mean(atom_errors(moments(sums), sums.weight))


def doubtful_angle(error: float) -> float:
    """Root mean square, over atoms, of the distance that the error bar gives them; zero if it gives none."""
    return math.sqrt(error / 2) if math.isfinite(error) else 0.0


def sparsity(sums: Sums) -> float:
    """Standard errors by which codes are sparser than Gaussian ones, taken together; sums of l_p.

    The scores of m atoms are independent and standard normal if codes are Gaussian, and their samples have never been
    seen before.
    """
    magnitude, z2 = (to_numpy(total) / sums.weight for total in (sums.extra["magnitude"], sums.z2))
    score = chance.sparsity_score(magnitude, z2, sums.weight)
    return float(np.sum(score)) / math.sqrt(len(score))
