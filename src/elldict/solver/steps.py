"""Steps: how the sums of a pass move A."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from elldict.solver.polar import polar
from elldict.solver.sums import Sums
from elldict.space import Array, Space, total

Step = Callable[[Sums, Array], Array]


def power_step(sums: Sums, A: Array) -> Array:  # noqa: ARG001
    """Paper, Algorithm 2: move to the maximiser of the linearised objective.

    The objective is convex, so it never falls.
    """
    return polar(sums.G)


def idle_step(sums: Sums, A: Array) -> Array:
    """Turn each atom to where the samples that do not use it vary least, and all together to the nearest orthonormal.

    One step of inverse iteration for each atom. With few samples pairs of atoms do feel each other, and Newton's step
    for pairs needs hundreds of iterations where this one, which knows all the directions of an atom at once, needs
    six. Its fixed point is the truth without noise only, and it costs n times a plain step: for few samples.
    """
    space = Space.of(A)
    xp = space.xp
    n = int(A.shape[1])
    traces = xp.reshape(xp.linalg.trace(sums.idle), (-1, 1, 1))
    H = sums.idle / xp.where(traces > 0, traces, xp.ones_like(traces))
    least = 1e-15 * xp.eye(n, dtype=A.dtype, device=space.device)  # without noise, H is singular at the truth
    turned = xp.linalg.solve(H + least, A[:, :, None])[:, :, 0]
    return polar(turned / xp.linalg.vector_norm(turned, axis=1, keepdims=True))


@dataclass(frozen=True)
class PairwiseNewton:
    """Newton's step for each pair of atoms by itself: near a maximum the pairs do not feel each other.

    With C = E[g(Z) Z^T], turning atom i towards j by a small angle changes the objective by C_ij - C_ji to first order
    and by -h_ij/2 to second, h_ij = C_ii + C_jj - v_j E g_i' - v_i E g_j'. Where h is small or negative, far from a
    maximum, a share of C_ii + C_jj stands in for it.
    """

    least_curvature: float = 0.1
    longest: float = 0.3  # on the root mean square angle

    def __call__(self, sums: Sums, A: Array) -> Array:
        """Move A (m, n) by the polar factor of I + X, X the antisymmetric matrix of angles."""
        space = Space.of(A)
        xp = space.xp
        C = sums.G @ A.T / sums.weight
        own, v, slope = xp.linalg.diagonal(C), sums.z2 / sums.weight, sums.slope / sums.weight
        both = own[:, None] + own[None, :]
        curvature = both - slope[:, None] * v[None, :] - v[:, None] * slope[None, :]
        angles = (C - C.T) / xp.maximum(curvature, self.least_curvature / 2 * both)
        m = int(A.shape[0])
        length = math.sqrt(total(angles * angles) / m)
        if length > self.longest:
            angles = angles * (self.longest / length)
        return polar(xp.eye(m, dtype=A.dtype, device=space.device) + angles) @ A
