"""Criteria of simple structure: objectives of rotated loadings, and their derivatives with respect to angles."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, Self

import numpy as np

from elldict.samples.base import Array, FieldwiseSum, Samples, Weights
from elldict.samples.subsample import Codes
from elldict.solver.evaluate import LEAST_CURVATURE, Angles
from elldict.solver.kernels import Terms, signed_power
from elldict.solver.objectives import FixedFunction, Lp, Objective, SmoothNorm, unknown
from elldict.validation import EXPONENT, InvalidParameterError, is_number

FLAT = 1e-10
"""Curvature of a pair of factors with tiny loadings, where those of all factors have unit mean square."""

FAMILY: dict[str, Callable[[int, int], float]] = {
    "varimax": lambda p, k: 1.0,  # noqa: ARG005
    "quartimax": lambda p, k: 0.0,  # noqa: ARG005
    "biquartimax": lambda p, k: 0.5,  # noqa: ARG005
    "equamax": lambda p, k: k / 2,  # noqa: ARG005
    "parsimax": lambda p, k: p * (k - 1) / max(1, p + k - 2),
}
"""Parameter gamma of the orthomax family, by the numbers p of rows and k of factors."""


@dataclass(frozen=True)
class Orthomax(FixedFunction):
    """Sum of z^4, minus gamma times the sum over factors of p times the squared mean of z^2 (p rows)."""

    gamma: float
    means: Array = field(default_factory=unknown)  # (k,) of z^2 over all rows

    def refit(self, codes: Codes, blur: Array | None = None, *, choose: bool = False) -> Self:  # noqa: ARG002
        """Compute the means."""
        return replace(self, means=codes.std**2)

    def terms(self, Z: Array, weights: Weights = None, *, second: bool = False) -> Terms:
        """Evaluate at rotated loadings (b, k), with the derivatives for fixed means."""
        ones = np.ones(Z.shape[1])
        value, g, slope = signed_power(Z, ones, 4.0, -4 * self.gamma * self.means, 4 * ones, weights, second=second)
        n_rows = float(len(Z) if weights is None else np.sum(weights))
        return Terms(value - n_rows * self.gamma * float(np.sum(self.means**2)), g, slope)


def make_criterion(criterion: Any, n_rows: int, n_factors: int) -> Objective:
    """Make the objective of a criterion by its name, with its gamma, or by the exponent of an l_p norm."""
    name = criterion.lower() if isinstance(criterion, str) else None
    if name in FAMILY:
        return Orthomax(FAMILY[name](n_rows, n_factors))
    if isinstance(criterion, tuple) and len(criterion) == 2 and criterion[0] == "orthomax":
        gamma = criterion[1]
        if is_number(gamma) and 0 <= gamma < math.inf:
            return Orthomax(float(gamma))
    if EXPONENT.accepts(criterion):
        p = float(criterion)
        return Lp(p) if p > 2 else SmoothNorm(p)
    raise InvalidParameterError(
        f"The criterion must be {', '.join(map(repr, FAMILY))}, ('orthomax', gamma) with gamma >= 0, or the exponent "
        f"of an l_p norm: {EXPONENT.expected}. Got {criterion!r} instead."
    )


def get_degree(objective: Objective) -> float:
    """Return the exponent of a unit of the loadings in the criterion; without one, loadings have no unit."""
    if isinstance(objective, Lp):
        return objective.p
    return 4.0 if isinstance(objective, Orthomax) else 0.0


def get_gamma(objective: Objective) -> float:
    """Return the gamma of a criterion; that of an l_p norm is zero."""
    return objective.gamma if isinstance(objective, Orthomax) else 0.0


def set_means(objective: Objective, means: Array) -> Objective:
    """Set the means (k,) of z^2 of rotated loadings."""
    return replace(objective, means=means) if isinstance(objective, Orthomax) else objective


@dataclass(frozen=True)
class _Sums(FieldwiseSum):
    """Sums over rows."""

    value: float
    gz: Array  # (k, k) of g_a z_b
    slope: Array  # (k,) of g_a'


def evaluate(rows: Samples, A: Array, objective: Objective, moments: Array) -> Angles:
    """Compute a criterion of loadings rotated to factors A (k, k), with slopes and curvatures of all angles.

    `moments` (k, k) are the means of products of the loadings before rotation. Curvatures are those of independent
    factors, without products of matrices; quasi-Newton steps learn the rest.
    """
    D = A @ moments @ A.T
    v, rounded = np.diag(D).copy(), A.astype(rows.dtype)
    known = set_means(objective, v)

    def visit(block: Array, start: int) -> _Sums:  # noqa: ARG001
        Z = (rounded @ block.T).T
        value, g, slope = known.terms(Z, second=True)
        return _Sums(value, np.asarray(g.T @ Z, dtype=np.float64), np.sum(slope, axis=0, dtype=np.float64))

    sums, p = rows.sum(visit), rows.shape[0]
    C, own, crossed = sums.gz / p, np.diag(sums.gz) / p, np.outer(sums.slope / p, v)
    second = own[:, None] + own - crossed - crossed.T + 16 * get_gamma(objective) * D**2  # v changes as well
    least = LEAST_CURVATURE / 2 * (np.abs(own)[:, None] + np.abs(own))
    curvature = np.maximum(np.abs(second), least + FLAT)
    np.fill_diagonal(curvature, math.inf)
    return Angles(sums.value / p, C - C.T, curvature, np.zeros_like(D))
