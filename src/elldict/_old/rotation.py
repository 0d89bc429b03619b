"""Rotation of factors: the orthogonal matrix that makes loadings simple, and how sure it is."""

from __future__ import annotations

import os
import warnings
from numbers import Integral, Real
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import check_is_fitted

from elldict._old.backend.base import Array, to_numpy
from elldict._old.data.dataset import Dataset
from elldict._old.data.unit_rows import scale_to_unit_rows
from elldict._old.error_bars.loadings_covariance import check_covariance, estimate_covariance
from elldict._old.error_bars.rotation import (
    MAX_COLUMNS,
    Codes,
    estimate_observation_errors,
    estimate_row_errors,
    find_mixed_columns,
)
from elldict._old.rotation_result import Rotation, read_names
from elldict._old.solver.loop import FitLog
from elldict._old.solver.objective import CentredL4, Lp
from elldict._old.solver.rotation import find_best, measure_rows, order_columns, prepare_search
from elldict._old.transform import encode, encode_into, keep
from elldict._old.validation import check_rng, check_samples
from elldict.exceptions import NotIdentifiableWarning, RankWarning

__all__ = ["Rotation", "Rotator", "rotate"]

Matrix = NDArray[np.float64]

MOST_NAMED = 4
"""Pairs of factors that a warning names."""


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
    bootstrap_loadings: Any = None,
    out: str | os.PathLike[str] | None = None,
) -> Rotation:
    """Rotate loadings orthogonally so that each factor has few large ones.

    Parameters
    ----------
    loadings : array-like of shape (n_rows, n_factors), path or Dataset
        Loadings: a row for each variable, a column for each factor (``components_.T`` of scikit-learn).
        Files, mapped, dask and zarr arrays are read block by block.
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
        Whether to compute standard errors. With `bootstrap_loadings` or `loadings_covariance` they are over
        observations. Without, they are over rows: how much the rotation would differ had other variables of the same
        kind been measured, loadings before rotation taken as they are. Few observations do not enlarge these.
    n_observations : float, default=None
        Only with `loadings_covariance`: a number by which it is divided.
    loadings_covariance : array-like of shape (n_rows * n_factors, n_rows * n_factors), default=None
        Covariance of the loadings before rotation, row by row (``loadings.ravel()``). Without `n_observations` it is
        that of the loadings themselves, whose diagonal are squared standard errors; with it, n_observations times that,
        as the delta method gives it. Draws whose signs and order differ do not make one: use `bootstrap_loadings`.
    bootstrap_loadings : array-like of shape (n_draws, n_rows, n_factors), default=None
        Loadings before rotation of bootstrap samples of the observations, at least 20, better 200. Their signs, order
        and rotation do not matter: each draw is brought as close as possible to the loadings (orthogonal Procrustes).
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
    more than 131072 loadings, steps are also the last when they are below 2 % of the standard error of the factors over
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
    objective, names = _check_criterion(criterion), read_names(loadings)
    _check_numbers(n_init=n_init, max_iter=max_iter, tol=tol)
    samples = check_samples(Rotator(), loadings, fitting=False)
    raw = measure_rows(samples)
    _warn_of_shape(samples)
    covariance, host = None, np.zeros((0, 0))
    if standard_errors and _is_over_observations(n_observations, loadings_covariance, bootstrap_loadings):
        host = np.asarray(to_numpy(encode(samples, *_code_rows(np.eye(samples.n_features)))), np.float64)
        if bootstrap_loadings is not None:
            covariance = estimate_covariance(bootstrap_loadings, host)
        else:
            covariance = check_covariance(loadings_covariance, n_observations, host.shape)
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
    errors, source, angles = None, None, np.zeros((0, 0))
    if covariance is not None:
        errors, angles = estimate_observation_errors(host, covariance, codes, normalize=normalize)
        source = "observations"
    elif standard_errors and samples.n_features <= MAX_COLUMNS:
        errors, angles = estimate_row_errors(samples, normalised, codes)
        source = "rows"
        log.passes += 3
    _warn_of_mixed_factors(angles, source)
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
        names=names,
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
        All that :func:`elldict.rotate` returns, with standard errors over rows unless `fit` was given more.

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

    def fit(
        self,
        X: Any,
        y: Any = None,  # noqa: ARG002
        *,
        n_observations: float | None = None,
        loadings_covariance: Any = None,
        bootstrap_loadings: Any = None,
    ) -> Rotator:
        """Find the rotation of loadings.

        Parameters
        ----------
        X : array-like of shape (n_rows, n_factors), path or Dataset
            Loadings.
        y : Ignored
            Not used.
        n_observations : float, default=None
            As :func:`elldict.rotate` has it.
        loadings_covariance : array-like, default=None
            As :func:`elldict.rotate` has it.
        bootstrap_loadings : array-like of shape (n_draws, n_rows, n_factors), default=None
            As :func:`elldict.rotate` has it.

        Returns
        -------
        Rotator
            The fitted estimator.
        """
        options = {name: value for name, value in self.get_params().items() if name != "method"}
        self.result_ = rotate(
            X,
            self.method,
            n_observations=n_observations,
            loadings_covariance=loadings_covariance,
            bootstrap_loadings=bootstrap_loadings,
            **options,
        )
        self.loadings_, self.rotation_ = self.result_.loadings, self.result_.rotation
        self.n_features_in_ = len(self.rotation_)
        return self

    def fit_transform(self, X: Any, y: Any = None, **options: Any) -> Array:  # noqa: ARG002
        """Find the rotation of loadings and return them rotated.

        Parameters
        ----------
        X : array-like of shape (n_rows, n_factors), path or Dataset
            Loadings.
        y : Ignored
            Not used.
        **options : Any
            What `fit` takes besides.

        Returns
        -------
        array of shape (n_rows, n_factors)
            Rotated loadings.
        """
        return self.fit(X, **options).loadings_

    def get_feature_names_out(self, input_features: Any = None) -> NDArray[np.object_]:  # noqa: ARG002
        """Return names of the rotated factors: factor1, factor2 and so on.

        Parameters
        ----------
        input_features : Ignored
            Not used: a rotated factor is a mixture of all factors.

        Returns
        -------
        ndarray of str
            Names.
        """
        check_is_fitted(self, "rotation_")
        return np.array([f"factor{number + 1}" for number in range(self.n_features_in_)], dtype=object)

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
    name = criterion.lower() if isinstance(criterion, str) else None
    if name in ("varimax", "quartimax"):
        return CentredL4() if name == "varimax" else Lp(4.0)
    number = isinstance(criterion, Real) and not isinstance(criterion, bool)
    if not number or not 0 < float(criterion) < np.inf or criterion == 2:
        raise ValueError(
            f"criterion={criterion!r}, expected 'varimax', 'quartimax' or a positive number p, the exponent of l_p, "
            "but not 2, for which all rotations are as good."
        )
    return Lp(float(criterion))


def _check_numbers(*, n_init: Any, max_iter: Any, tol: Any) -> None:
    for name, value in (("n_init", n_init), ("max_iter", max_iter)):
        if isinstance(value, bool) or not isinstance(value, Integral) or value < 1:
            raise ValueError(f"{name}={value!r}, expected a whole number of at least 1.")
    if not isinstance(tol, Real) or not 0 < float(tol) < 1:
        raise ValueError(f"tol={tol!r}, expected an angle in radians between 0 and 1.")


def _is_over_observations(n_observations: Any, covariance: Any, draws: Any) -> bool:
    """Whether something says how loadings vary over observations; raise if it does not fit together."""
    if covariance is not None and draws is not None:
        raise ValueError("Both loadings_covariance and bootstrap_loadings were given: give one of them.")
    if n_observations is not None and covariance is None:
        raise ValueError(
            f"n_observations={n_observations!r} without loadings_covariance, which it divides. For standard errors "
            "over observations give bootstrap_loadings alone, or loadings_covariance; for those over rows leave it out."
        )
    return covariance is not None or draws is not None


def _warn_of_shape(samples: Dataset) -> None:
    if samples.n_features > samples.n_samples:
        warnings.warn(
            f"Loadings have {samples.n_samples} rows and {samples.n_features} columns, more factors than variables. "
            "Rows are variables: give the transpose if they are factors, as in components_ of scikit-learn.",
            RankWarning,
            stacklevel=3,
        )


def _warn_of_mixed_factors(angles: Matrix, source: str | None) -> None:
    """Name the factors whose angle is not known."""
    pairs = find_mixed_columns(angles)
    if pairs:
        named = ", ".join(f"{a + 1} and {b + 1}" for a, b in pairs[:MOST_NAMED])
        more = f", and {len(pairs) - MOST_NAMED} more pairs" if len(pairs) > MOST_NAMED else ""
        warnings.warn(
            f"Factors {named}{more} are hardly told from their mixtures: over {source}, the angle by which they are "
            "turned has a standard error of 26 degrees or more. Do not name them one by one, nor use the standard "
            "errors of their loadings. Try fewer factors, another criterion, or the other value of normalize.",
            NotIdentifiableWarning,
            stacklevel=3,
        )


def _code_rows(rotation: Matrix) -> tuple[Matrix, Matrix, Any]:
    """What makes rotated loadings as codes: rows, mean, rule."""
    return np.ascontiguousarray(rotation.T), np.zeros(len(rotation)), keep
