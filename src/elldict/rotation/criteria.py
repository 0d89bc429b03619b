"""Criteria of simple structure: objectives of rotated loadings, and their derivatives with respect to angles."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from elldict.samples.base import Array, FieldwiseSum, Samples
from elldict.solver.evaluate import LEAST_CURVATURE, Angles
from elldict.solver.kernels import Terms, signed_power, smooth_norm
from elldict.validation import EXPONENT, InvalidParameterError


@dataclass(frozen=True)
class Criterion:
    """Sum of |z|^p, p > 2, or minus that of (z^2 + 1)^(p/2), p < 2; the orthomax family with p = 4.

    In this family, gamma times the sum over factors of the squared means of z^2 is subtracted for every row.
    """

    p: float = 4.0
    gamma: float = 0.0

    @property
    def degree(self) -> float:
        """Exponent of a unit of the loadings in the criterion; for p < 2, loadings have no unit."""
        return self.p if self.p > 2 else 0.0

    def terms(self, Z: Array, means: Array) -> Terms:
        """Evaluate at rotated loadings (b, k), with two derivatives, for means (k,) of z^2 over all rows."""
        if self.p < 2:
            return smooth_norm(Z, 1.0, self.p, second=True)
        ones = np.ones(len(means))
        value, g, slope = signed_power(Z, ones, self.p, -4 * self.gamma * means, self.p * ones, second=True)
        return Terms(value - len(Z) * self.gamma * float(np.sum(means**2)), g, slope)


def make_criterion(method: Any, p: int, k: int) -> Criterion:
    """Make a criterion for p rows and k factors by its name, or by the exponent of an l_p norm."""
    gammas = {
        "varimax": 1.0,
        "quartimax": 0.0,
        "biquartimax": 0.5,
        "equamax": k / 2,
        "parsimax": p * (k - 1) / max(1, p + k - 2),
    }
    if isinstance(method, str) and method.lower() in gammas:
        return Criterion(gamma=gammas[method.lower()])
    if EXPONENT.accepts(method):
        return Criterion(float(method))
    raise InvalidParameterError(
        f"The criterion must be {', '.join(map(repr, gammas))} or the exponent of an l_p norm: {EXPONENT.expected}. "
        f"Got {method!r} instead."
    )


def find_units(loadings: Array, *, normalize: bool) -> tuple[Array, float]:
    """Find units (p, 1) in which loadings (p, k) have unit mean square, and rows equal length if normalised.

    Return also the root mean square of the loadings, after rows were normalised.
    """
    if not np.any(loadings):
        raise ValueError(f"All loadings are zero ({len(loadings)} rows): no rotation is better than any other.")
    lengths = np.ones((len(loadings), 1))
    if normalize:
        lengths = np.linalg.norm(loadings, axis=1, keepdims=True)
        lengths = np.where(lengths > 0, lengths, 1)  # rows of zeros stay zero
    rms = float(np.sqrt(np.mean((loadings / lengths) ** 2)))
    return rms * lengths, rms


@dataclass(frozen=True)
class _Sums(FieldwiseSum):
    """Sums over rows."""

    value: float
    gz: Array  # (k, k) of g_a z_b
    slope: Array  # (k,) of g_a'
    g2: Array  # (k,) of g_a^2


def evaluate(rows: Samples, A: Array, criterion: Criterion, moments: Array) -> Angles:
    """Compute a criterion of loadings rotated to factors A (k, k), with slopes, curvatures and variances of all angles.

    `moments` (k, k) are the means of products of the loadings before rotation. Curvatures and variances are those of
    independent factors, without products of matrices; quasi-Newton steps learn the rest.
    """
    D = A @ moments @ A.T
    v = np.diag(D).copy()

    def visit(block: Array, start: int) -> _Sums:  # noqa: ARG001
        Z = (A @ block.T).T
        value, g, slope = criterion.terms(Z, v)
        return _Sums(value, g.T @ Z, np.sum(slope, axis=0), np.sum(g * g, axis=0))

    sums, p = rows.sum(visit), rows.shape[0]
    C, own = sums.gz / p, np.diag(sums.gz) / p
    crossed, squares = np.outer(sums.slope / p, v), np.outer(sums.g2 / p, v)
    second = own[:, None] + own - crossed - crossed.T + 16 * criterion.gamma * D**2  # v changes as well
    least = LEAST_CURVATURE / 2 * (np.abs(own)[:, None] + np.abs(own))
    curvature = np.maximum(np.abs(second), least + np.finfo(float).tiny)  # factors without loadings have none
    variance = np.maximum(squares + squares.T - 2 * np.outer(own, own), 0)
    np.fill_diagonal(curvature, math.inf)
    return Angles(sums.value / p, C - C.T, curvature, variance / p)
