"""The whole rotation: scaling, search, order and signs, standard errors, warnings."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from elldict.exceptions import NotIdentifiableWarning, RankWarning
from elldict.loadings.bootstrap import find_deviations
from elldict.loadings.criteria import make_criterion
from elldict.loadings.result import Rotation
from elldict.loadings.search import order_factors, search
from elldict.loadings.standard_errors import (
    MAX_FACTORS,
    Errors,
    differentiate,
    estimate_observation_errors,
    estimate_row_errors,
    find_mixed_pairs,
)
from elldict.samples.base import Array
from elldict.solver.starts import draw_start
from elldict.validation import draw_seed
from elldict.warnings import Finding

MOST_NAMED = 4
"""Maximum number of pairs of factors listed in a warning."""


def find_rotation(
    loadings: Array,
    draws: Any,
    n_threads: int,
    *,
    method: Any,
    normalize: bool,
    n_init: int,
    max_iter: int,
    tol: float,
    standard_errors: bool,
    random_state: Any,
) -> tuple[Rotation, list[Finding]]:
    """Rotate loadings (p, k) and estimate their errors; return also what to warn of."""
    (p, k), rng = loadings.shape, np.random.default_rng(draw_seed(random_state))
    criterion, unit, rms = make_criterion(method, p, k), *find_units(loadings, normalize=normalize)
    deviations = None if draws is None else find_deviations(draws, loadings)
    starts = [np.eye(k), *(draw_start(k, k, rng) for _ in range(n_init - 1))]
    ends = search(loadings / unit, criterion, starts, max_iter, tol, n_threads)
    best = max(ends, key=lambda end: end.value)
    rotation = order_factors(loadings, best.A.T)
    rotated, errors, source = loadings @ rotation, None, None
    if standard_errors and (deviations is not None or k <= MAX_FACTORS):
        at = differentiate(rotated / unit, criterion)
        if deviations is None:
            errors, source = estimate_row_errors(rotated, at), "rows"
        else:
            deviations, source = deviations @ rotation, "observations"
            errors = estimate_observation_errors(deviations, rotated, at, unit, normalize)
    result = Rotation(
        loadings=rotated,
        rotation=rotation,
        standard_errors=None if errors is None else errors.loadings,
        error_source=source,
        criteria=np.array([end.value for end in ends]) * p * rms**criterion.degree,
        converged=best.converged,
        n_iter=best.n_iter,
    )
    return result, list(check_rotation(result, errors, max_iter))


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


def check_rotation(result: Rotation, errors: Errors | None, max_iter: int) -> Iterator[Finding]:
    """Check the shape of the loadings, convergence, and whether the factors are identifiable."""
    p, k = result.loadings.shape
    if k > p:
        yield Finding(
            RankWarning,
            f"The loadings have {p} rows and {k} columns: more factors than variables. Variables are rows; if they are "
            "columns, as in components_ of scikit-learn, pass the transpose.",
        )
    if not result.converged:
        yield Finding(
            ConvergenceWarning,
            f"The rotation did not converge within max_iter={max_iter} iterations. Increase max_iter or tol.",
        )
    if pairs := [] if errors is None else find_mixed_pairs(errors.angles):
        named = ", ".join(f"{a + 1} and {b + 1}" for a, b in pairs[:MOST_NAMED])
        more = f", and {len(pairs) - MOST_NAMED} more pairs" if len(pairs) > MOST_NAMED else ""
        yield Finding(
            NotIdentifiableWarning,
            f"Factors {named}{more} cannot be distinguished from rotations of each other: over {result.error_source}, "
            "the standard error of their angle is 26 degrees or more, as if it were random. Do not interpret them one "
            "by one, nor use the standard errors of their loadings. Try fewer factors, another criterion, or the other "
            "value of normalize.",
        )
