"""The whole rotation: scaling, search, order and signs, standard errors, warnings."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from elldict.exceptions import NotIdentifiableWarning, RankWarning
from elldict.loadings.criteria import get_degree, make_criterion
from elldict.loadings.deviations import find_deviations
from elldict.loadings.result import Rotation
from elldict.loadings.rotate import Options, order_factors, search
from elldict.loadings.standard_errors import (
    MAX_FACTORS,
    Errors,
    differentiate,
    estimate_observation_errors,
    estimate_row_errors,
    find_mixed_pairs,
)
from elldict.samples.arrays import to_numpy
from elldict.samples.base import Array, refuse_not_finite
from elldict.transform import convert_like, find_precision, make_encoder, map_samples
from elldict.warnings import Finding

MOST_NAMED = 4
"""Maximum number of pairs of factors listed in a warning."""


@dataclass(frozen=True)
class Sampling:
    """Whether standard errors are wanted, and what is known about the sampling error of loadings before rotation."""

    is_wanted: bool = True
    covariance: Any = None
    draws: Any = None


@dataclass(frozen=True)
class Scaled:
    """Loadings as the criterion has them."""

    rows: Array  # (p, k) of unit mean square
    unit: Array  # (p, 1) by which loadings were divided
    rms: float  # root mean square of the loadings, after rows were normalised


def find_rotation(
    X: Any, names: tuple[str, ...] | None, options: Options, sampling: Sampling, n_threads: int
) -> tuple[Rotation, list[Finding]]:
    """Rotate loadings (p, k) and estimate their errors; return also what to warn of."""
    loadings = to_numpy(X).astype(np.float64)
    p, k = loadings.shape
    objective, scaled = make_criterion(options.criterion, p, k), scale_rows(loadings, normalize=options.normalize)
    deviations = find_deviations(loadings, sampling.covariance, sampling.draws) if sampling.is_wanted else None
    found = search(scaled.rows, objective, options, n_threads)
    rotation = order_factors(loadings / np.max(np.abs(loadings)), found.rotation)
    rotated, errors, source = loadings @ rotation, None, None
    if deviations is not None:
        at, source = differentiate(scaled.rows @ rotation, objective), "observations"
        errors = estimate_observation_errors(deviations @ rotation, rotated, at, scaled.unit, options.normalize)
    elif sampling.is_wanted and k <= MAX_FACTORS:
        at, source = differentiate(scaled.rows @ rotation, objective), "rows"
        errors = estimate_row_errors(rotated, at)
    criteria = found.values * p * scaled.rms ** get_degree(objective)
    result = Rotation(
        loadings=apply_rotation(X, rotation),
        rotation=rotation,
        standard_errors=None if errors is None else convert_like(errors.loadings, X, find_precision(X)),
        error_source=source,
        criterion=float(np.max(criteria)),
        criteria=criteria,
        converged=found.converged,
        n_iter=found.n_iter,
        names=names,
    )
    return result, list(check_rotation(result, errors, options.max_iter))


def scale_rows(loadings: Array, *, normalize: bool) -> Scaled:
    """Divide loadings (p, k) by a unit, so that they have unit mean square, and rows equal length if normalised."""
    refuse_not_finite(loadings, 0)
    largest = float(np.max(np.abs(loadings)))
    if largest == 0:
        raise ValueError(f"All loadings are zero ({len(loadings)} rows): no rotation is better than any other.")
    rows = loadings / largest  # its squares neither overflow nor underflow
    lengths = np.ones((len(rows), 1))
    if normalize:
        lengths = np.linalg.norm(rows, axis=1, keepdims=True)
        lengths = np.where(lengths > 0, lengths, 1)  # rows of zeros stay zero
    rows = rows / lengths
    rms = float(np.sqrt(np.mean(rows**2)))
    return Scaled(rows / rms, rms * lengths * largest, rms if normalize else rms * largest)


def apply_rotation(X: Any, rotation: Array) -> Any:
    """Rotate loadings (p, k) in the precision and array library of X."""
    return map_samples(X, make_encoder(rotation.T, np.zeros(len(rotation))), len(rotation), find_precision(X))


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
