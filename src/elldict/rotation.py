"""Rotation of factors: the orthogonal matrix that makes loadings simple, and how sure it is."""

from __future__ import annotations

import os
import warnings
from dataclasses import dataclass
from numbers import Integral, Real
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import check_is_fitted

from elldict.backend.base import Array, to_numpy
from elldict.data.dataset import Dataset
from elldict.data.unit_rows import scale_to_unit_rows
from elldict.error_bars.rotation import MAX_COLUMNS, Codes, estimate_observation_errors, estimate_row_errors
from elldict.solver.loop import FitLog
from elldict.solver.objective import CentredL4, Lp
from elldict.solver.rotation import find_best, measure_rows, order_columns, prepare_search
from elldict.transform import encode, encode_into, keep
from elldict.validation import check_exponents, check_rng, check_samples

__all__ = ["Rotation", "Rotator", "rotate"]

Matrix = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Rotation:
    """Rotated loadings, as :func:`elldict.rotate` found them.

    Parameters
    ----------
    loadings : array of shape (n_rows, n_factors)
        Rotated loadings, ``original @ rotation``; the factor with the largest sum of squares first, and the sum of
        cubes of each column positive, which its large loadings decide. Equal sums of squares are ordered by the sum of
        fourth powers.
    rotation : ndarray of shape (n_factors, n_factors)
        Orthogonal matrix; a reflection where signs ask for it.
    standard_errors : array of shape (n_rows, n_factors) or None
        Of the rotated loadings; None if they were not asked for, or of more than 48 factors over rows.
    error_source : str or None
        What the standard errors are over: 'rows' or 'observations'.
    criterion : float
        Value of the criterion at the loadings, normalised if `normalize` was asked for.
    criteria : ndarray of shape (n_init,)
        Values of all starts, the first of which is no rotation. Of large loadings only the best start is followed to
        its end; the others have the value at which they were left.
    converged : bool
        Whether steps became shorter than `tol`.
    n_iter : int
        Iterations of the best start on all rows.
    n_passes : float
        Passes over all rows, of all starts.
    """

    loadings: Array
    rotation: Matrix
    standard_errors: Array | None
    error_source: str | None
    criterion: float
    criteria: Matrix
    converged: bool
    n_iter: int
    n_passes: float


def rotate(
    loadings: Any,
    criterion: str | float = "varimax",
    *,
    normalize: bool = True,
    n_init: int = 10,
    max_iter: int = 1000,
    tol: float = 1e-5,
    random_state: Any = None,
    standard_errors: bool = True,
    n_observations: float | None = None,
    loadings_covariance: Any = None,
    out: str | os.PathLike[str] | None = None,
) -> Rotation:
    """Rotate loadings orthogonally so that each factor has few large ones.

    Parameters
    ----------
    loadings : array-like of shape (n_rows, n_factors), path or Dataset
        Loadings: a row for each variable, a column for each factor. Files, mapped, dask and zarr arrays are read block
        by block.
    criterion : {'varimax', 'quartimax'} or float, default='varimax'
        'varimax': the sum over factors of the variance of the squared loadings times the number of rows. 'quartimax':
        the sum of fourth powers. A number p: the sum of ``abs(loading) ** p``, maximised for p > 2; for p < 2 minimised
        with ``sqrt(z ** 2 + 1)`` in place of the absolute value of a loading z in units of the root mean square.
    normalize : bool, default=True
        Scale rows to length one while the rotation is sought (Kaiser). Rows of zeros stay as they are.
    n_init : int, default=10
        Starts: no rotation, then random ones. The best is kept.
    max_iter : int, default=1000
        Most iterations on all rows.
    tol : float, default=1e-5
        Steps, in radians, that are the last.
    random_state : int, RandomState instance, Generator or None, default=None
        Seed of the starts, and of the rows on which large loadings are rotated first.
    standard_errors : bool, default=True
        Whether to compute standard errors. Without `loadings_covariance` they are over rows: how much the rotation
        would differ had other rows of the same kind been given, loadings of a row before rotation taken as they are.
    n_observations : float, default=None
        Number of observations that the loadings come from, by which `loadings_covariance` is divided; None: it is that
        of the loadings themselves.
    loadings_covariance : array-like of shape (n_rows * n_factors, n_rows * n_factors), default=None
        Covariance of the loadings before rotation, row by row (``loadings.ravel()``), of one observation. Standard
        errors are then over observations.
    out : str or path-like, default=None
        File to write the rotated loadings to, ``.npy`` or ``.zarr``, block by block.

    Returns
    -------
    Rotation
        Loadings, rotation, standard errors, values of the criterion.

    Notes
    -----
    Quasi-Newton steps, none of which lowers the criterion, by the curvature of each pair of factors and the memory of
    the last steps; on a random part of the rows first where there are many, and in float32 until steps are short. For
    more than 131072 loadings, steps are also the last when they are below 4 % of the standard error of the factors over
    rows, unless `tol` is below 1e-6.

    Examples
    --------
    >>> import numpy as np
    >>> import elldict
    >>> simple = np.array([[0.8, 0.0], [0.7, 0.1], [0.0, 0.9], [0.1, 0.6]])
    >>> mixed = simple @ np.array([[0.6, 0.8], [-0.8, 0.6]])
    >>> found = elldict.rotate(mixed, random_state=0)
    >>> (found.loadings > 0.5).astype(int)
    array([[0, 1],
           [0, 1],
           [1, 0],
           [1, 0]])
    """
    objective = _check_criterion(criterion)
    _check_numbers(n_init=n_init, max_iter=max_iter, tol=tol)
    samples = check_samples(Rotator(), loadings, fitting=False)
    raw = measure_rows(samples)
    covariance = _check_covariance(loadings_covariance, n_observations, samples)
    normalised = scale_to_unit_rows(samples) if normalize else samples
    rng, log = check_rng(random_state, stream=3), FitLog(passes=1.0)
    search = prepare_search(
        normalised, measure_rows(normalised) if normalize else raw, objective, rng, log, (tol, max_iter)
    )
    best, values = find_best(search, int(n_init), rng)
    if not best.converged:
        warnings.warn(
            f"The rotation did not converge ({best.status}): raise max_iter={max_iter}, or tol={tol:g}.",
            ConvergenceWarning,
            stacklevel=2,
        )
    codes = Codes(order_columns(to_numpy(best.A).T, samples, raw), search.whitening.scale, objective)
    errors, source = None, None
    if covariance is not None:
        host = np.asarray(to_numpy(encode(samples, *_code_rows(np.eye(samples.n_features)))), np.float64)
        errors, source = estimate_observation_errors(host, covariance, codes, normalize=normalize), "observations"
    elif standard_errors and samples.n_features <= MAX_COLUMNS:
        errors, source = estimate_row_errors(samples, normalised, codes), "rows"
        log.passes += 3
    rows = _code_rows(codes.rotation)
    rotated = encode(samples, *rows) if out is None else encode_into(out, samples, *rows)
    # l_p of codes that were scaled to unit mean square; below 2 it is smoothed in that unit
    unit = search.whitening.scale ** -(objective.p if objective.p > 2 else 0) * samples.n_samples * samples.n_features
    return Rotation(
        loadings=rotated,
        rotation=codes.rotation,
        standard_errors=errors,
        error_source=source,
        criterion=best.stats.mean_value * unit,
        criteria=unit * np.array(values),
        converged=best.converged,
        n_iter=best.n_iter,
        n_passes=log.passes + 2,  # order and signs; the loadings
    )


class Rotator(TransformerMixin, BaseEstimator):
    """Rotation of loadings with the interface of factor_analyzer's Rotator.

    Parameters
    ----------
    method : {'varimax', 'quartimax'} or float, default='varimax'
        The `criterion` of :func:`elldict.rotate`.
    normalize : bool, default=True
        Scale rows to length one while the rotation is sought (Kaiser).
    n_init : int, default=10
        Starts: no rotation, then random ones.
    max_iter : int, default=1000
        Most iterations on all rows.
    tol : float, default=1e-5
        Steps, in radians, that are the last.
    random_state : int, RandomState instance, Generator or None, default=None
        Seed of the starts.

    Attributes
    ----------
    loadings_ : array of shape (n_rows, n_factors)
        Rotated loadings.
    rotation_ : ndarray of shape (n_factors, n_factors)
        Orthogonal matrix.
    result_ : Rotation
        All that :func:`elldict.rotate` returns, with standard errors over rows.

    Examples
    --------
    >>> import numpy as np
    >>> from elldict import Rotator
    >>> mixed = np.array([[0.5, 0.6], [0.4, 0.5], [0.7, -0.6], [0.5, -0.4]])
    >>> (Rotator(random_state=0).fit_transform(mixed) > 0.5).astype(int)
    array([[0, 1],
           [0, 1],
           [1, 0],
           [1, 0]])
    """

    def __init__(
        self,
        method: str | float = "varimax",
        *,
        normalize: bool = True,
        n_init: int = 10,
        max_iter: int = 1000,
        tol: float = 1e-5,
        random_state: Any = None,
    ) -> None:
        self.method = method
        self.normalize = normalize
        self.n_init = n_init
        self.max_iter = max_iter
        self.tol = tol
        self.random_state = random_state

    def fit(self, X: Any, y: Any = None) -> Rotator:  # noqa: ARG002
        """Find the rotation of loadings.

        Parameters
        ----------
        X : array-like of shape (n_rows, n_factors), path or Dataset
            Loadings.
        y : Ignored
            Not used.

        Returns
        -------
        Rotator
            The fitted estimator.
        """
        options = {name: value for name, value in self.get_params().items() if name != "method"}
        self.result_ = rotate(X, self.method, **options)
        self.loadings_, self.rotation_ = self.result_.loadings, self.result_.rotation
        self.n_features_in_ = len(self.rotation_)
        return self

    def fit_transform(self, X: Any, y: Any = None) -> Array:  # noqa: ARG002
        """Find the rotation of loadings and return them rotated.

        Parameters
        ----------
        X : array-like of shape (n_rows, n_factors), path or Dataset
            Loadings.
        y : Ignored
            Not used.

        Returns
        -------
        array of shape (n_rows, n_factors)
            Rotated loadings.
        """
        return self.fit(X).loadings_

    def transform(self, X: Any) -> Array:
        """Rotate other rows by the same rotation.

        Parameters
        ----------
        X : array-like of shape (n_rows, n_factors), path or Dataset
            Loadings, or scores.

        Returns
        -------
        array of shape (n_rows, n_factors)
            Rotated rows.
        """
        check_is_fitted(self, "rotation_")
        return encode(check_samples(self, X, fitting=False), *_code_rows(self.rotation_))


def _check_criterion(criterion: Any) -> Lp:
    """The objective of a criterion."""
    if isinstance(criterion, str) and criterion in ("varimax", "quartimax"):
        return CentredL4() if criterion == "varimax" else Lp(4.0)
    if isinstance(criterion, str) or not isinstance(criterion, Real):
        raise ValueError(
            f"criterion={criterion!r}, expected 'varimax', 'quartimax' or a number p, the exponent of l_p."
        )
    return Lp(check_exponents(criterion)[0])


def _check_numbers(*, n_init: Any, max_iter: Any, tol: Any) -> None:
    for name, value in (("n_init", n_init), ("max_iter", max_iter)):
        if not isinstance(value, Integral) or isinstance(value, bool) or value < 1:
            raise ValueError(f"{name}={value!r}, expected a whole number of at least 1.")
    if not isinstance(tol, Real) or not 0 < float(tol) < 1:
        raise ValueError(f"tol={tol!r}, expected an angle in radians between 0 and 1.")


def _check_covariance(covariance: Any, n_observations: float | None, samples: Dataset) -> Matrix | None:
    """The covariance of the loadings themselves, if one was given."""
    if covariance is None:
        if n_observations is not None:
            raise ValueError(
                f"n_observations={n_observations!r} without loadings_covariance: standard errors over observations "
                "need the covariance of the loadings before rotation, as the delta method or a bootstrap gives it."
            )
        return None
    if n_observations is not None and not (isinstance(n_observations, Real) and n_observations > 0):
        raise ValueError(f"n_observations={n_observations!r}, expected a positive number.")
    size = samples.n_samples * samples.n_features
    given = np.asarray(covariance, dtype=np.float64)
    if given.shape != (size, size) or not np.all(np.isfinite(given)):
        raise ValueError(
            f"loadings_covariance of shape {given.shape}, expected finite numbers of shape {(size, size)}: one row for "
            f"each of the {samples.n_samples} x {samples.n_features} loadings, in the order of loadings.ravel()."
        )
    return given / (1.0 if n_observations is None else float(n_observations))


def _code_rows(rotation: Matrix) -> tuple[Matrix, Matrix, Any]:
    """What makes rotated loadings as codes: rows, mean, rule."""
    return np.ascontiguousarray(rotation.T), np.zeros(len(rotation)), keep
