"""Standard errors of rotated loadings.

A small turn of the columns by antisymmetric angles w moves a row of loadings to z + w z. The rotation is where the
slope s_ab = E[g_a z_b - g_b z_a] of the criterion is zero for every pair of columns; other rows, or other observations,
change the slope, and the angles follow by minus the inverse of its Jacobian H. For varimax the slope has in addition
-(v_a - v_b) E z_a z_b, v_a = E z_a^2: means over rows that change along with them.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from elldict._old.backend.base import Array, Backend, to_numpy
from elldict._old.data.dataset import Dataset
from elldict._old.data.unit_rows import compute_lengths
from elldict._old.solver.objective import CentredL4, Lp, compute_derivatives

MAX_COLUMNS = 48
"""Columns up to which standard errors are computed: 1128 angles, with products of 1128^2 for every row. Angles of
different pairs depend on each other: taken one by one they would be a third too small on real loadings."""

LEAST_EIGENVALUE = 1e-10
"""Of the Jacobian, relative to its largest: columns without loadings can be turned without a change."""

LARGEST_ANGLE = math.pi / math.sqrt(48)
"""Standard error of an angle, in radians, from which two columns are hardly told apart: 26 degrees, that of an angle of
which nothing is known between -45 and 45 degrees. Beyond 45, columns come again in another order or sign."""

Matrix = NDArray[np.float64]


@dataclass(frozen=True)
class LoadingMoments:
    """Sums over rows, of normalised loadings z (k,) with derivatives g and slope of the objective."""

    weight: float
    gz: Array  # (k, k)  g_a z_b
    zz: Array  # (k, k)  z_a z_b
    slopes: Array  # (k, k, k)  slope_a z_b z_d

    def __add__(self, other: LoadingMoments) -> LoadingMoments:
        return LoadingMoments(
            self.weight + other.weight, self.gz + other.gz, self.zz + other.zz, self.slopes + other.slopes
        )


@dataclass(frozen=True)
class Squares:
    """Sums over rows of products of their influence on the slopes of all pairs (K, K)."""

    total: Array

    def __add__(self, other: Squares) -> Squares:
        return Squares(self.total + other.total)


@dataclass(frozen=True)
class MomentKernel:
    """Moments of one tile."""

    codes: Codes

    def bind(self, backend: Backend) -> Callable[[Array], LoadingMoments]:
        """Return the function of one tile."""
        xp = backend.xp

        def visit(Y: Array) -> LoadingMoments:
            Z, g, slope = self.codes.derive(Y)
            slopes = xp.stack([(slope[:, a : a + 1] * Z).T @ Z for a in range(int(Z.shape[1]))])
            return LoadingMoments(float(Y.shape[0]), g.T @ Z, Z.T @ Z, slopes)

        return visit


@dataclass(frozen=True)
class Codes:
    """Loadings as the criterion sees them: rotated, in units of their root mean square."""

    rotation: Matrix  # (k, k)
    scale: float
    objective: Lp

    def derive(self, Y: Array) -> tuple[Array, Array, Array]:
        """Loadings, g and slope (b, k) each, of raw or normalised rows Y (b, k), in float64."""
        backend = Backend.of(Y)
        rotation = backend.asarray(self.scale * self.rotation, "float64")
        Z = backend.xp.astype(Y, backend.xp.float64, copy=False) @ rotation
        # of l_4 for varimax: its means are taken into account where they are known
        g, slope = compute_derivatives(Lp(self.objective.p), Z)
        return Z, g + 0, slope + 0


@dataclass(frozen=True)
class InfluenceKernel:
    """Squares of the influence of the rows of one tile on the slopes."""

    codes: Codes
    means: Matrix | None  # (k, k) E z_a z_b if the criterion is centred

    def bind(self, backend: Backend) -> Callable[[Array], Squares]:
        """Return the function of one tile."""
        xp = backend.xp
        D = None if self.means is None else backend.asarray(self.means, "float64")

        def visit(Y: Array) -> Squares:
            Z, g, _ = self.codes.derive(Y)
            if D is not None:
                g = g - xp.linalg.diagonal(D) * Z
            a, b = np.triu_indices(int(Z.shape[1]), 1)
            first, second = (xp.asarray(which, device=backend.device) for which in (a, b))
            za, zb, ga, gb = (xp.take(X, which, axis=1) for X in (Z, g) for which in (first, second))
            influence = ga * zb - gb * za
            if D is not None:
                between = backend.asarray(to_numpy(D)[a, b], "float64")
                influence = influence - between * (za * za - zb * zb)
            return Squares(influence.T @ influence)

        return visit


def estimate_jacobian(moments: LoadingMoments, *, centred: bool) -> Matrix:
    """Jacobian (K, K) of the slopes by the angles of all pairs."""
    U, D, M = (to_numpy(part) / moments.weight for part in (moments.gz, moments.zz, moments.slopes))
    k = len(U)
    a, b = np.triu_indices(k, 1)
    W = np.zeros((len(a), k, k))  # one turn a pair
    W[np.arange(len(a)), a, b], W[np.arange(len(a)), b, a] = 1.0, -1.0
    change = np.einsum("nad,abd->nab", W, M, optimize=True) + U @ W.transpose(0, 2, 1)
    slope = change - change.transpose(0, 2, 1)
    if centred:
        v = np.diag(D)
        change_v = 2 * np.einsum("nad,ad->na", W, D)
        change_D = W @ D + D @ W.transpose(0, 2, 1)
        slope = slope - (change_v[:, :, None] - change_v[:, None, :]) * D
        slope = slope - (v[:, None] - v[None, :]) * change_D
    return np.asarray(slope[:, a, b].T)


def estimate_row_errors(samples: Dataset, normalised: Dataset, codes: Codes) -> tuple[Array, Matrix]:
    """Standard errors (p, k) of all loadings if other rows of the same kind had been given, and of angles; a sandwich.

    The loadings of a row vary with the rotation alone: its unrotated ones are taken as they are. Angles (k, k) are
    those by which each pair of columns is turned, in radians.
    """
    k, centred = samples.n_features, isinstance(codes.objective, CentredL4)
    spread, flat = np.zeros((k, k, k)), np.zeros((k, k), dtype=bool)
    if k > 1:
        moments = normalised.sum(MomentKernel(codes))
        r = moments.weight
        squares = normalised.sum(InfluenceKernel(codes, to_numpy(moments.zz) / r if centred else None)).total
        inverse, flat = _invert(estimate_jacobian(moments, centred=centred), np.diag(to_numpy(moments.zz)))
        spread = _spread_by_column(inverse @ (to_numpy(squares) / r) @ inverse.T / r, k)
    angles = np.sqrt(np.maximum(np.einsum("jaa->ja", spread), 0.0))
    return samples.map_rows(ErrorKernel(codes.rotation, spread, samples.dtype), k), np.where(flat, np.inf, angles)


def _invert(jacobian: Matrix, squares: Matrix) -> tuple[Matrix, NDArray[np.bool_]]:
    """Inverse (K, K) of the Jacobian, and pairs (k, k) whose turn does not change the criterion.

    Turns of two columns without loadings, of which there are sums of `squares` (k,), do not change anything.
    """
    k = len(squares)
    flat: NDArray[np.bool_] = np.zeros((k, k), dtype=bool)
    a, b = np.triu_indices(k, 1)
    if k > 1:
        _, values, Vt = np.linalg.svd(jacobian)
        share = np.sum(Vt[values <= LEAST_EIGENVALUE * values[0]] ** 2, axis=0)
        empty = squares[a] + squares[b] <= LEAST_EIGENVALUE * np.max(squares)
        flat[a, b] = flat[b, a] = (share > 0.5) & ~empty  # most of the turn
    return np.asarray(np.linalg.pinv(jacobian, rcond=LEAST_EIGENVALUE), np.float64), flat


def _spread_by_column(covariance: Matrix, k: int) -> Matrix:
    """Covariances (k, k, k) of the angles of each column with all others, from those of all pairs (K, K)."""
    a, b = np.triu_indices(k, 1)
    number, sign = np.zeros((k, k), dtype=np.intp), np.zeros((k, k))
    number[a, b] = number[b, a] = np.arange(len(a))
    sign[a, b], sign[b, a] = 1.0, -1.0
    return np.asarray(
        [sign[j][:, None] * covariance[np.ix_(number[j], number[j])] * sign[j][None, :] for j in range(k)]
    )


@dataclass(frozen=True)
class ErrorKernel:
    """Standard errors of the rotated loadings of one tile, from the spread of the angles."""

    rotation: Matrix
    spread: Matrix  # (k, k, k)
    dtype: str

    def bind(self, backend: Backend) -> Callable[[Array], Array]:
        """Return the function of one tile."""
        xp, dtype = backend.xp, getattr(backend.xp, self.dtype)
        rotation, spread = backend.asarray(self.rotation, "float64"), backend.asarray(self.spread, "float64")

        def visit(Y: Array) -> Array:
            Y = xp.astype(Y, xp.float64, copy=False)
            lengths = compute_lengths(Y, xp)
            Z = (Y / lengths) @ rotation
            columns = [xp.sum((Z @ spread[j, :, :]) * Z, axis=1) for j in range(int(spread.shape[0]))]
            squares = xp.stack(columns, axis=1)
            # rounding may take a zero below it
            return xp.astype(lengths * xp.sqrt(xp.maximum(squares, xp.zeros_like(squares))), dtype, copy=False)

        return visit


def estimate_observation_errors(
    loadings: Matrix, covariance: Matrix, codes: Codes, *, normalize: bool
) -> tuple[Matrix, Matrix]:
    """Standard errors (p, k) of rotated loadings and (k, k) of angles, from the covariance (p k, p k) before rotation.

    Angles are those by which each pair of rotated columns is turned, in radians.
    """
    p, k = loadings.shape
    lengths = compute_lengths(loadings, np) if normalize else np.ones((p, 1))
    unit, centred = loadings / lengths, isinstance(codes.objective, CentredL4)
    moments = MomentKernel(codes).bind(Backend.of(unit))(unit)
    Z, g, slope = codes.derive(unit)
    influence = _differentiate_slopes(Z, g, slope, to_numpy(moments.zz) / p if centred else None)
    if normalize:  # a change along a row is no change of the normalised one
        lengths_of_codes = np.sum(Z * Z, axis=1) + (np.sum(Z * Z, axis=1) == 0)
        along = np.einsum("nic,ic->ni", influence, Z) / lengths_of_codes
        influence = influence - along[:, :, None] * Z[None, :, :]
        influence = influence * (np.sum(Z * Z, axis=1) > 0)[None, :, None]
    influence = codes.scale * influence / lengths[None, :, :]  # by loadings in their own units
    inverse, flat = _invert(estimate_jacobian(moments, centred=centred), np.diag(to_numpy(moments.zz)))
    turns = -inverse @ influence.reshape(-1, p * k)  # angles (K,) by rotated loadings (p k,)
    a, b = np.triu_indices(k, 1)
    rotated = loadings @ codes.rotation
    jacobian = np.eye(p * k).reshape(p, k, p * k)
    for number, (i, j) in enumerate(zip(a, b, strict=True)):
        jacobian[:, i] += np.outer(rotated[:, j], turns[number])
        jacobian[:, j] -= np.outer(rotated[:, i], turns[number])
    turned = np.einsum(
        "ikjl,kc,ld->icjd", covariance.reshape(p, k, p, k), codes.rotation, codes.rotation, optimize=True
    )
    by_entry = jacobian.reshape(p * k, p * k)
    after = by_entry @ turned.reshape(p * k, p * k) @ by_entry.T
    errors = np.sqrt(np.maximum(np.diag(after), 0.0)).reshape(p, k)
    return np.asarray(errors), np.where(flat, np.inf, _estimate_angle_errors(rotated, after))


def _estimate_angle_errors(rotated: Matrix, covariance: Matrix) -> Matrix:
    """Standard errors (k, k) of the turns of pairs of columns (p, k), from the covariance (p k, p k) of their entries.

    The turn that explains most of a change d of two columns is (z_b d_a - z_a d_b) / (z_a z_a + z_b z_b).
    """
    p, k = rotated.shape
    a, b = np.triu_indices(k, 1)
    turns, pair = np.zeros((len(a), p, k)), np.arange(len(a))
    squares = np.sum(rotated**2, axis=0)
    size = squares[a] + squares[b]
    size[size == 0] = 1.0  # two columns of zeros: nothing is turned
    turns[pair, :, a], turns[pair, :, b] = rotated[:, b].T / size[:, None], -rotated[:, a].T / size[:, None]
    flat = turns.reshape(len(a), p * k)
    angles = np.zeros((k, k))
    angles[a, b] = angles[b, a] = np.sqrt(np.maximum(np.sum((flat @ covariance) * flat, axis=1), 0.0))
    return angles


def _differentiate_slopes(Z: Matrix, g: Matrix, slope: Matrix, D: Matrix | None) -> Matrix:
    """Derivatives (K, p, k) of the slopes by the loadings Z (p, k) as the criterion sees them."""
    p, k = Z.shape
    a, b = np.triu_indices(k, 1)
    result, pair = np.zeros((len(a), p, k)), np.arange(len(a))
    by_a, by_b = slope[:, a] * Z[:, b] - g[:, b], g[:, a] - slope[:, b] * Z[:, a]
    if D is not None:
        v, between = np.diag(D), D[a, b]
        by_a = by_a - 2 * between * Z[:, a] - (v[a] - v[b]) * Z[:, b]
        by_b = by_b + 2 * between * Z[:, b] - (v[a] - v[b]) * Z[:, a]
    result[pair, :, a], result[pair, :, b] = by_a.T / p, by_b.T / p
    return result


def find_mixed_columns(angles: Matrix) -> list[tuple[int, int]]:
    """Pairs of columns that are hardly told from their mixtures, by standard errors (k, k) of angles; worst first."""
    a, b = np.triu_indices(len(angles), 1)
    order = np.argsort(-angles[a, b], kind="stable")
    return [(int(a[n]), int(b[n])) for n in order if angles[a[n], b[n]] >= LARGEST_ANGLE]
