"""Directions: how the statistics of a pass move A."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

from elldict._old.backend import host_kernels
from elldict._old.backend.base import MIN_DRAWN_ON_CARD, NUMPY, Array, Backend, find_turn_kernel, total
from elldict._old.backend.matrices import add_coarse_product, multiply_coarsely, svd
from elldict._old.solver.evaluate import Statistics
from elldict._old.solver.objective import Quantities

LEAST_SINGULAR_VALUE = 1e-6
"""Relative to the largest: smaller ones would be lost in rounding, and are left to the decomposition."""

MAX_POLAR_STEPS = 24
"""Of the iteration by products: 20 take singular values from 1e-6 to one."""

ORTHONORMAL = 1e-12
"""Largest entry of A A^T - I that counts as rounding."""


COARSE_POLAR_STEPS, LARGEST_STEPS = 4, 6
"""Of the iteration from scaled rows: three take squares of singular values from .3 to .999. And of the power iteration
that finds the largest of them."""

MIN_COARSE = 1024
"""Atoms from which fast products of matrices take less time than those in float64."""

MAX_COARSE_LACK = 0.05
"""Largest entry of A A^T - I before the last of these steps from which they have not converged."""

FAR_CURVATURE, MAX_ANGLE = 0.15, 0.3
"""Of Newton's step: its least relative curvature far from a maximum, larger than close to one; and its longest turn, in
radians, as the root mean square over atoms."""


class Direction(Protocol):
    """From the statistics at A to the next A, with orthonormal rows."""

    @property
    def monotone(self) -> bool:
        """Whether a step can never lower a convex objective."""
        ...

    @property
    def needs(self) -> Quantities:
        """What a pass has to sum up for it."""
        ...

    @property
    def unidentifiable(self) -> NDArray[np.bool_] | None:
        """Atoms (m,) that are not turned towards each other, if there are any."""
        ...

    def __call__(self, stats: Statistics, A: Array) -> Array:
        """Return the next A."""
        ...


class PowerStep:
    """Paper, Algorithm 2: move to the maximiser of the linearised objective.

    A convex objective never falls.
    """

    monotone: ClassVar[bool] = True
    needs: ClassVar[Quantities] = Quantities.GRADIENT
    unidentifiable: ClassVar[None] = None

    def __call__(self, stats: Statistics, A: Array) -> Array:  # noqa: ARG002
        """Return the polar factor of the gradient."""
        return polar(stats.G)


power_step = PowerStep()


def polar(G: Array) -> Array:
    """Polar factor of G (m, n), m <= n: the maximiser of <A, G> over orthonormal rows.

    Orthonormal to rounding whatever the condition of G, singular G included, because both singular bases are.
    """
    found = polar_by_products(G) if Backend.of(G).prefers_products else None
    if found is not None:
        return found
    U, _, Vt = svd(G)
    return U @ Vt


def random_orthonormal(m: int, n: int, rng: np.random.Generator, backend: Backend = NUMPY) -> Array:
    """Uniformly distributed (Haar) orthonormal rows, shape (m, n).

    The same ones on every backend, but for very many, which a card draws itself.
    """
    drawn = backend.draw_normal((m, n), rng)
    if not (backend.prefers_products and m * n >= MIN_DRAWN_ON_CARD):
        return polar(drawn)
    Q, R = backend.xp.linalg.qr(drawn.T)  # a quarter of the price
    return (Q * backend.xp.sign(backend.xp.linalg.diagonal(R))).T + 0.0


@dataclass(frozen=True)
class PairwiseNewton:
    """Newton's step for each pair of atoms by itself: near a maximum the angles of pairs do not depend on each other.

    With C = E[g(Z) Z^T], turning atom i towards j by a small angle changes the objective by C_ij - C_ji to first order
    and by -h_ij/2 to second, h_ij = C_ii + C_jj - v_j E g_i' - v_i E g_j'. Where h is small or negative, far from a
    maximum, a share of |C_ii| + |C_jj| stands in for it. Directions that belong to no atom are turned to in the same
    way; there is nothing on their side, and their mean square is what the atoms leave of that of the samples, one.
    """

    monotone: ClassVar[bool] = False
    needs: ClassVar[Quantities] = Quantities.GRADIENT | Quantities.MOMENTS
    least_curvature: float = 0.1
    max_angle: float = MAX_ANGLE
    crossed: Array | None = None  # (m, m) E g_i' z_j^2 where codes depend on each other; None: E g_i' E z_j^2
    unidentifiable: NDArray[np.bool_] | None = (
        None  # (m,) atoms whose angles with each other are chance: left as they are
    )
    coarse: bool = False  # by fast products: rows are orthonormal to three digits only

    def __call__(self, stats: Statistics, A: Array) -> Array:
        """Move A (m, k) by the rotation of these angles."""
        kernel = find_turn_kernel(A) if self.crossed is None and self.unidentifiable is None else None
        if kernel is None:
            return self.move(stats, A)
        return kernel(stats.G, A, stats.slope, stats.z2, stats.weight, self.least_curvature, self.max_angle)

    def make_coarse(self, precision: str) -> PairwiseNewton:
        """The same with steps as coarse as products of samples in this precision are."""
        return replace(self, coarse=precision == "tfloat32")

    def move(self, stats: Statistics, A: Array, further: Array | None = None) -> Array:
        """Move A (m, k) by the rotation of these angles, and by `further` ones (m, m)."""
        backend = Backend.of(A)
        if A.shape[0] == A.shape[1] and not backend.prefers_products:
            angles = self._find_angles(stats, A)
            length = math.sqrt(total(angles * angles) / int(A.shape[0]))
            angles = angles if length <= self.max_angle else self.max_angle / length * angles
            return turn(A, angles if further is None else angles + further)
        if self.coarse and A.shape[0] == A.shape[1]:
            angles = self._limit_angles(stats, A)
            return self._turn_coarsely(A, angles if further is None else angles + further)
        moved, angles = self.move_along_tangent(stats, A)
        if further is not None:
            return turn(polar(moved), further) if angles is None else turn(A, angles + further)
        if angles is None:
            return polar(moved)
        if backend.prefers_products:  # far from orthonormal they do not converge
            turned = polar_nearby(moved)
            if float(lack_of_orthonormality(turned)) < ORTHONORMAL:
                return turned
        return turn(A, angles)

    def _turn_coarsely(self, A: Array, angles: Array) -> Array:
        """Rows A (m, k) turned by angles (m, m), orthonormal to a few digits."""
        if int(A.shape[0]) < MIN_COARSE:  # in float64 it takes fewer calls, but for long steps
            turned = polar_nearby(A + angles @ A)
            if float(lack_of_orthonormality(turned)) < ORTHONORMAL:
                return turned
        found = turn_coarsely(A, angles)
        return turn(A, angles) if found is None else found

    def move_along_tangent(self, stats: Statistics, A: Array) -> tuple[Array, Array | None]:
        """A moved along the tangent, and the angles that took it there if they stay in its span."""
        if A.shape[0] == A.shape[1]:
            angles = self._limit_angles(stats, A)
            return A + angles @ A, angles
        angles, squares = self._measure_angles(stats, A)
        outside = self._turn_outwards(stats, A)
        shrink = self._shrink(squares + Backend.of(A).xp.sum(outside * outside), A)
        return shrink * (angles @ A + outside) + A, None

    def _limit_angles(self, stats: Statistics, A: Array) -> Array:
        """Angles (m, m) of pairs, no longer in all than a step may be."""
        angles, squares = self._measure_angles(stats, A)
        return self._shrink(squares, A) * angles

    def _shrink(self, squares: Array, A: Array) -> Array:
        """Factor that the longest step allows, by the sum of its squares, without reading a number from the device."""
        xp = Backend.of(A).xp
        most = xp.full_like(squares, self.max_angle**2)
        return self.max_angle / xp.sqrt(xp.maximum(squares / int(A.shape[0]), most))

    def _measure_angles(self, stats: Statistics, A: Array) -> tuple[Array, Array]:
        """Angles (m, m) of pairs, and the sum of their squares."""
        xp, kernels = Backend.of(A).xp, Backend.of(A).kernels
        if kernels is None or self.crossed is not None or self.unidentifiable is not None:
            angles = self._find_angles(stats, A)
            return angles, xp.sum(angles * angles)
        C = multiply_by_rows(stats.G, A, coarse=self.coarse)
        found: tuple[Array, Array] = kernels.angles(C, stats.slope, stats.z2, stats.weight, self.least_curvature)
        return found

    def _find_angles(self, stats: Statistics, A: Array) -> Array:
        """Angles (m, m) of pairs; of codes that depend on each other a few pairs are hardly told apart."""
        most = math.inf if self.crossed is None else self.max_angle
        angles = pairwise_angles(stats, stats.G, A, self.least_curvature, self.crossed, most, coarse=self.coarse)
        return angles if self.unidentifiable is None else leave_out(angles, self.unidentifiable)

    def _turn_outwards(self, stats: Statistics, A: Array) -> Array:
        """Steps (m, k) out of the span of the atoms."""
        xp = Backend.of(A).xp
        m, k = A.shape
        C = stats.G @ A.T / stats.weight
        own = xp.linalg.diagonal(C)
        left = k - xp.sum(stats.z2) / stats.weight
        rest = xp.maximum(left, xp.zeros_like(left)) / (k - m)
        curvature = xp.maximum(own - rest * stats.slope / stats.weight, self.least_curvature * xp.abs(own))
        return (stats.G / stats.weight - C @ A) / curvature[:, None]


def turn(A: Array, angles: Array) -> Array:
    """Rows A (m, k) turned towards each other by antisymmetric angles (m, m).

    By Cayley's transform: orthogonal because the angles are antisymmetric, and a ninth of the price of the polar factor
    of I + angles, from which it differs in third order.
    """
    backend, half = Backend.of(A), angles / 2
    identity = backend.xp.eye(int(A.shape[0]), dtype=A.dtype, device=backend.device)
    return 2 * backend.xp.linalg.solve(identity - half, A) - A  # (I - half)^-1 (I + half) A


def turn_coarsely(A: Array, angles: Array) -> Array | None:
    """The same by fast products, orthonormal to three digits, which the next step begins with; None if that fails.

    The polar factor of X = A + angles A: with E = X X^T - I, the next X is X + (3/8 E^2 - E/2) X, so that rounding is
    relative to E. The squares of the singular values of X lie between one and 1 + the largest eigenvalue of E; X is
    scaled so that one is in their middle.
    """
    xp = Backend.of(A).xp
    rows, angles = xp.astype(A, xp.float32), xp.astype(angles, xp.float32)
    identity = xp.eye(int(A.shape[0]), dtype=rows.dtype, device=rows.device)
    X = add_coarse_product(rows, angles, rows)
    E = add_coarse_product(identity, X, X.T, share=-1.0)
    scale = 2 / (2 + 1.1 * find_largest_eigenvalue(E))
    X, E = X * xp.sqrt(scale), scale * E + (scale - 1) * identity
    for _ in range(COARSE_POLAR_STEPS - 1):
        X = add_coarse_product(X, add_coarse_product(E, E, E, share=-0.5, factor=0.375), X)
        E = add_coarse_product(identity, X, X.T, share=-1.0)
    X = add_coarse_product(X, -0.5 * E, X)
    return xp.astype(X, A.dtype) if float(xp.max(xp.abs(E))) < MAX_COARSE_LACK else None  # NaN is none


def find_largest_eigenvalue(E: Array) -> Array:
    """About the largest eigenvalue of a matrix without negative ones, and no more than that, as an array of one number.

    By power iteration from its row with the largest diagonal entry.
    """
    xp = Backend.of(E).xp
    v = xp.take(E, xp.reshape(xp.argmax(xp.linalg.diagonal(E)), (1,)), axis=0)[0, :]
    v = v / (xp.linalg.vector_norm(v) + float(np.finfo(np.float32).tiny))
    for _ in range(LARGEST_STEPS):
        before, v = v, E @ v
    return xp.linalg.vector_norm(v) / (xp.linalg.vector_norm(before) + float(np.finfo(np.float32).tiny))


def multiply_by_rows(G: Array, A: Array, *, coarse: bool) -> Array:
    """Return G A^T (m, m) in float64; by fast products if they are to be `coarse`."""
    if not coarse:
        return G @ A.T
    xp = Backend.of(A).xp
    return xp.astype(multiply_coarsely(xp.astype(G, xp.float32), xp.astype(A, xp.float32).T), A.dtype)


def pairwise_angles(
    stats: Statistics,
    G: Array,
    A: Array,
    least_curvature: float,
    crossed: Array | None = None,
    most: float = math.inf,
    *,
    coarse: bool = False,
) -> Array:
    """Antisymmetric angles (m, m) by which Newton's step turns the atoms, none beyond `most`; G is the gradient.

    `crossed` (m, m) is E g_i' z_j^2, for independent codes a product of means.
    """
    if Backend.of(A) is NUMPY and host_kernels.COMPILED is not None:
        means = (stats.slope, stats.z2, stats.weight)
        return host_kernels.find_angles(G @ A.T, crossed, means, least_curvature, most)
    C, curvature = pairwise_curvature(stats, G, A, least_curvature, crossed, coarse=coarse)
    angles = (C - C.T) / curvature
    return angles if most == math.inf else Backend.of(A).xp.clip(angles, -most, most)


def pairwise_curvature(
    stats: Statistics,
    G: Array,
    A: Array,
    least_curvature: float,
    crossed: Array | None = None,
    *,
    coarse: bool = False,
) -> tuple[Array, Array]:
    """C = E[g(Z) Z^T] (m, m), and the curvatures (m, m) of the angles of pairs, no smaller than is allowed."""
    xp = Backend.of(A).xp
    C = multiply_by_rows(G, A, coarse=coarse) / stats.weight
    own = xp.linalg.diagonal(C)
    both, size = own[:, None] + own[None, :], xp.abs(own)
    if crossed is None:
        v, slope = stats.z2 / stats.weight, stats.slope / stats.weight
        curvature = both - slope[:, None] * v[None, :] - v[:, None] * slope[None, :]
    else:
        curvature = both - crossed - crossed.T
    return C, xp.maximum(curvature, least_curvature / 2 * (size[:, None] + size[None, :]))


def leave_out(angles: Array, unidentifiable: NDArray[np.bool_]) -> Array:
    """The same angles (m, m), but zero between two atoms that are unidentifiable (m,)."""
    if not np.any(unidentifiable):
        return angles
    chance = Backend.of(angles).asarray(unidentifiable, "float64")
    return angles * (1.0 - chance[:, None] * chance[None, :])


@dataclass(frozen=True)
class InverseIteration:
    """Turn each atom to where the samples that do not use it vary least, and all together to the nearest orthonormal.

    One step of inverse iteration for each atom. With few samples the angles of pairs do depend on each other, and
    Newton's step for pairs needs hundreds of iterations where this one, which knows all the directions of an atom at
    once, needs six. Its fixed point is the truth without noise only, and it costs n times a plain step.
    """

    monotone: ClassVar[bool] = False
    needs: ClassVar[Quantities] = Quantities.GRADIENT | Quantities.MOMENTS | Quantities.INACTIVE
    unidentifiable: ClassVar[None] = None
    least_variance: float  # relative to the trace: without noise, the matrix is singular at the truth but for this

    def __call__(self, stats: Statistics, A: Array) -> Array:
        """Move A (m, k) by the sums over inactive samples."""
        backend = Backend.of(A)
        xp = backend.xp
        traces = xp.reshape(xp.linalg.trace(stats.inactive), (-1, 1, 1))
        H = stats.inactive / xp.where(traces > 0, traces, xp.ones_like(traces))
        floor = self.least_variance * xp.eye(int(A.shape[1]), dtype=A.dtype, device=backend.device)
        turned = xp.linalg.solve(H + floor, A[:, :, None])[:, :, 0]
        return polar(turned / xp.linalg.vector_norm(turned, axis=1, keepdims=True))


def polar_by_products(G: Array) -> Array | None:
    """The polar factor by products of matrices alone, which a graphics card does a hundred times faster.

    None if it fails. Newton and Schulz's iteration X <- X (3 - X^T X) / 2, each step scaled so that singular values
    between a lower bound and one come as close to one as a cubic can bring them (Chen and Chow).
    """
    backend = Backend.of(G)
    xp, kernels = backend.xp, backend.kernels
    S = G @ G.T
    # the fourth root of the norm of S^2 is no smaller than the largest singular value of G, and hardly larger
    S = S / xp.linalg.matrix_norm(S)
    X = G / xp.sqrt(xp.linalg.matrix_norm(G @ G.T) * xp.sqrt(xp.linalg.matrix_norm(S @ S)))
    least = LEAST_SINGULAR_VALUE
    for number in range(MAX_POLAR_STEPS):
        scale = math.sqrt(3 / (1 + least + least**2))
        once, thrice = 1.5 * scale, -0.5 * scale**3
        X = once * X + thrice * (X @ X.T @ X) if kernels is None else kernels.cubic(X, once, thrice)
        least = 0.5 * scale * least * (3 - (scale * least) ** 2)
        close = 1 - least < 1e-13
        if close and number % 4 == 3 and float(lack_of_orthonormality(X)) < 1e-7:  # the next step is the last
            return polar_nearby(X, steps=1)
    return None


def polar_nearby(X: Array, steps: int = 3) -> Array:
    """Polar factor of X (m, n) close to orthonormal: singular values between 0 and 1.5, the closer to 1 the better.

    A quintic takes a distance of e to 2.5 e^3: .1, .0025, 4e-8, 2e-22.
    """
    kernels = Backend.of(X).kernels
    for _ in range(steps):
        if kernels is not None:
            X = kernels.quintic(X)
            continue
        S = X @ X.T
        X = 1.875 * X + (0.375 * (S @ S) - 1.25 * S) @ X
    return X


def orthonormalize(A: Array) -> Array:
    """The orthonormal rows closest to rows A (m, k) that are nearly so, to rounding."""
    found = polar_nearby(A)
    return found if float(lack_of_orthonormality(found)) < ORTHONORMAL else polar(A)


def lack_of_orthonormality(X: Array) -> Array:
    """Largest entry of X X^T - I, as an array of one number; NaN if X holds one."""
    backend = Backend.of(X)
    xp = backend.xp
    return xp.max(xp.abs(X @ X.T - xp.eye(int(X.shape[0]), dtype=X.dtype, device=backend.device)))
