"""The function and the estimator that rotate loadings: parameters, checks, result and warnings."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from elldict.blas import one_blas_thread
from elldict.estimator import issue
from elldict.rotation.criteria import find_units, make_criterion
from elldict.rotation.result import Rotation, check_rotation
from elldict.rotation.search import order_factors, search
from elldict.rotation.standard_errors import (
    MAX_FACTORS,
    differentiate,
    estimate_observation_errors,
    estimate_row_errors,
    find_deviations,
)
from elldict.samples.base import Array, refuse_not_finite
from elldict.samples.open import is_stored
from elldict.solver.starts import draw_start
from elldict.validation import (
    BOOLEAN,
    RANDOM_STATE,
    InvalidParameterError,
    Rules,
    allow_integer,
    allow_number,
    convert_to_numpy,
    draw_seed,
    refuse_lazy,
)

RULES: Rules = {
    "normalize": BOOLEAN,
    "n_init": allow_integer(1),
    "max_iter": allow_integer(1),
    "tol": allow_number(lambda tol: 0 < tol < 1, "(0, 1), in units of standard errors"),
    "standard_errors": BOOLEAN,
    "random_state": RANDOM_STATE,
}


def rotate(
    loadings: Any,
    criterion: str | float = "varimax",
    *,
    bootstrap_loadings: Any = None,
    **options: Any,
) -> Rotation:
    """Rotate loadings orthogonally, so that each factor has few large ones.

    Parameters
    ----------
    loadings : array-like of shape (n_rows, n_factors)
        Loadings with one row per variable and one column per factor: ``components_.T`` of scikit-learn.
    criterion : str or float, default='varimax'
        The `method` of :class:`elldict.Rotator`.
    bootstrap_loadings : array-like of shape (n_draws, n_rows, n_factors), default=None
        Loadings before rotation of at least 20 bootstrap samples of the observations. Their order, signs and rotation
        do not matter: each draw is rotated to be as close as possible to the loadings (orthogonal Procrustes).
    **options : Any
        Other parameters of :class:`elldict.Rotator`: `normalize`, `n_init`, `max_iter`, `tol`, `standard_errors` and
        `random_state`.

    Returns
    -------
    Rotation
        Rotated loadings, the rotation, standard errors and values of the criterion.

    Examples
    --------
    >>> import numpy as np
    >>> import elldict
    >>> simple = np.array([[0.8, 0.0], [0.7, 0.1], [0.0, 0.9], [0.1, 0.6]])
    >>> mixed = simple @ np.array([[0.6, 0.8], [-0.8, 0.6]])
    >>> found = elldict.rotate(mixed, random_state=0)
    >>> (found.loadings.T > 0.5).astype(int)
    array([[0, 0, 1, 1],
           [1, 1, 0, 0]])
    """
    return Rotator(criterion, **options).fit(loadings, bootstrap_loadings=bootstrap_loadings).result_


class Rotator(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):
    """Rotation of loadings as a scikit-learn transformer.

    Parameters
    ----------
    method : str or float, default='varimax'
        'varimax', 'quartimax', 'biquartimax', 'equamax' or 'parsimax': the sum of fourth powers, minus gamma / p times
        the sum over factors of the squared sum of squares, with gamma 1, 0, 0.5, k / 2 and p (k - 1) / (p + k - 2) for
        p rows and k factors. A number: exponent of the l_p norm of the loadings, maximised above 2; below 2, the sum
        of (z^2 + 1)^(p/2) is minimised, for loadings z divided by their root mean square.
    normalize : bool, default=True
        Whether rows are divided by their length for the criterion (Kaiser normalisation). Rows of zeros stay zero.
    n_init : int, default=10
        Number of starts: no rotation, then random ones. The best result is kept.
    max_iter : int, default=1000
        Maximum number of iterations per start.
    tol : float, default=5e-4
        The search ends when the predicted distance to the maximum is below this multiple of the standard error over
        rows.
    standard_errors : bool, default=True
        Whether to compute standard errors: over observations if `bootstrap_loadings` are given, otherwise over rows.
        The latter take loadings before rotation as exact: they do not grow if there are few observations.
    random_state : int, RandomState instance, Generator or None, default=None
        Seed of the random starts.

    Attributes
    ----------
    loadings_ : ndarray of shape (n_rows, n_factors)
        Rotated loadings.
    rotation_ : ndarray of shape (n_factors, n_factors)
        Orthogonal matrix.
    result_ : Rotation
        Result of :func:`elldict.rotate`.
    n_iter_ : int
        Number of iterations from the best start.
    n_features_in_ : int
        Number of factors.
    """

    n_features_in_: int

    def __init__(
        self,
        method: str | float = "varimax",
        *,
        normalize: bool = True,
        n_init: int = 10,
        max_iter: int = 1000,
        tol: float = 5e-4,
        standard_errors: bool = True,
        random_state: Any = None,
    ) -> None:
        self.method = method
        self.normalize = normalize
        self.n_init = n_init
        self.max_iter = max_iter
        self.tol = tol
        self.standard_errors = standard_errors
        self.random_state = random_state

    def fit(self, X: Any, y: Any = None, *, bootstrap_loadings: Any = None) -> Self:  # noqa: ARG002
        """Find the rotation of loadings.

        Parameters
        ----------
        X : array-like of shape (n_rows, n_factors)
            Loadings.
        y : None
            Ignored.
        bootstrap_loadings : array-like of shape (n_draws, n_rows, n_factors), default=None
            As in :func:`elldict.rotate`.

        Returns
        -------
        Self
            The estimator itself.
        """
        for name, rule in RULES.items():
            value = getattr(self, name)
            if not rule.accepts(value):
                raise InvalidParameterError(f"The {name!r} parameter must be {rule.expected}. Got {value!r} instead.")
        loadings = read_loadings(self, X, fitting=True)
        with one_blas_thread() as n_threads:
            result, angles = find_rotation(self, loadings, bootstrap_loadings, n_threads)
        self.result_, self.n_iter_ = replace(result, names=read_names(X)), result.n_iter
        self.loadings_, self.rotation_ = result.loadings, result.rotation
        issue(list(check_rotation(result, angles, self.max_iter)))
        return self

    def transform(self, X: Any) -> Array:
        """Rotate other rows in the same way.

        Parameters
        ----------
        X : array-like of shape (n_rows, n_factors)
            Loadings, or factor scores.

        Returns
        -------
        ndarray of shape (n_rows, n_factors)
            Rotated rows.
        """
        check_is_fitted(self, "rotation_")
        return np.asarray(read_loadings(self, X, fitting=False) @ self.rotation_)

    @property
    def _n_features_out(self) -> int:
        return self.n_features_in_


def read_loadings(rotator: Rotator, X: Any, *, fitting: bool) -> Array:
    """Return loadings as a NumPy array in double precision; set or check the number and names of factors."""
    if is_stored(X):
        raise TypeError(f"Loadings must be an array or a data frame. Got a {type(X).__name__}: load it first.")
    refuse_lazy(X)
    loadings = np.asarray(convert_to_numpy(rotator, X, fitting, (1, 1)), dtype=np.float64)
    refuse_not_finite(loadings, 0)
    return loadings


def read_names(X: Any) -> tuple[str, ...] | None:
    """Return the index of a data frame as the names of its rows, unless it holds numbers."""
    index = getattr(X, "index", None) if hasattr(X, "columns") else None
    if index is None or getattr(index, "inferred_type", "integer") == "integer":
        return None
    return tuple(str(label) for label in index)


def find_rotation(rotator: Rotator, loadings: Array, draws: Any, n_threads: int) -> tuple[Rotation, Array | None]:
    """Rotate loadings (p, k) and estimate their errors; return also those of the angles (k, k) of pairs of factors."""
    (p, k), rng = loadings.shape, np.random.default_rng(draw_seed(rotator.random_state))
    criterion, unit, rms = make_criterion(rotator.method, p, k), *find_units(loadings, normalize=rotator.normalize)
    deviations = None if draws is None else find_deviations(draws, loadings)
    starts = [np.eye(k), *(draw_start(k, k, rng) for _ in range(rotator.n_init - 1))]
    ends = search(loadings / unit, criterion, starts, rotator.max_iter, rotator.tol, n_threads)
    best = max(ends, key=lambda end: end.value)
    rotation = order_factors(loadings, best.A.T)
    rotated, errors, angles, source = loadings @ rotation, None, None, None
    if rotator.standard_errors and (deviations is not None or k <= MAX_FACTORS):
        at = differentiate(rotated / unit, criterion)
        if deviations is None:
            source, (errors, angles) = "rows", estimate_row_errors(rotated, at)
        else:
            given = deviations @ rotation, rotated, at, unit, rotator.normalize
            source, (errors, angles) = "observations", estimate_observation_errors(*given)
    result = Rotation(
        loadings=rotated,
        rotation=rotation,
        standard_errors=errors,
        error_source=source,
        criteria=np.array([end.value for end in ends]) * p * rms**criterion.degree,
        converged=best.converged,
        n_iter=best.n_iter,
    )
    return result, angles
