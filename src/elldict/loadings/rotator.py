"""The function and the estimator that rotate loadings: parameters, checks, result and warnings."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils import Tags
from sklearn.utils.validation import check_is_fitted, validate_data

from elldict.blas import one_blas_thread
from elldict.estimator import issue
from elldict.loadings.fit import Sampling, apply_rotation, find_rotation
from elldict.loadings.result import Rotation
from elldict.loadings.rotate import Options
from elldict.samples.base import Array
from elldict.samples.dask import is_dask
from elldict.validation import (
    BOOLEAN,
    RANDOM_STATE,
    InvalidParameterError,
    Rules,
    allow_integer,
    allow_number,
    check_other_array,
    convert_to_numpy,
    draw_seed,
    is_other_array,
    refuse_lazy,
)

RULES: Rules = {
    "normalize": BOOLEAN,
    "n_init": allow_integer(1),
    "max_iter": allow_integer(1),
    "tol": allow_number(lambda tol: 0 < tol < 1, "(0, 1), an angle in radians"),
    "random_state": RANDOM_STATE,
}


def rotate(
    loadings: Any,
    criterion: str | float | tuple[str, float] = "varimax",
    *,
    normalize: bool = True,
    n_init: int = 10,
    max_iter: int = 1000,
    tol: float = 1e-5,
    random_state: Any = None,
    standard_errors: bool = True,
    loadings_covariance: Any = None,
    bootstrap_loadings: Any = None,
) -> Rotation:
    """Rotate loadings orthogonally, so that each factor has few large ones.

    Parameters
    ----------
    loadings : array-like of shape (n_rows, n_factors)
        Loadings with one row per variable and one column per factor: ``components_.T`` of scikit-learn.
    criterion : str, tuple or float, default='varimax'
        'varimax', 'quartimax', 'biquartimax', 'equamax' or 'parsimax', which are the orthomax criteria with gamma 1, 0,
        0.5, k / 2 and p (k - 1) / (p + k - 2) for p rows and k factors. ``('orthomax', gamma)``: the sum of fourth
        powers minus gamma / p times the sum over factors of the squared sum of squares. A number: exponent of the l_p
        norm of the loadings, maximised above 2; below 2, the sum of (z^2 + 1)^(p/2) is minimised, for loadings z
        divided by their root mean square.
    normalize : bool, default=True
        Whether rows are divided by their length for the criterion (Kaiser normalisation). Rows of zeros stay zero.
    n_init : int, default=10
        Number of starts: no rotation, then random ones. The best result is kept.
    max_iter : int, default=1000
        Maximum number of iterations per start.
    tol : float, default=1e-5
        The search ends after two steps below this length: root mean square over factors, in radians.
    random_state : int, RandomState instance, Generator or None, default=None
        Seed of the random starts, and of the rows that are used first if there are more than 131072 loadings.
    standard_errors : bool, default=True
        Whether to compute standard errors: over observations with `bootstrap_loadings` or `loadings_covariance`,
        otherwise over rows. The latter take loadings before rotation as exact: they do not grow if there are few
        observations.
    loadings_covariance : array-like of shape (n_rows * n_factors, n_rows * n_factors), default=None
        Covariance of ``loadings.ravel()`` before rotation, whose diagonal is the squared standard errors.
    bootstrap_loadings : array-like of shape (n_draws, n_rows, n_factors), default=None
        Loadings before rotation of at least 20 bootstrap samples of the observations. Their order, signs and rotation
        do not matter: each draw is rotated to be as close as possible to the loadings (orthogonal Procrustes).

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
    >>> (found.loadings > 0.5).astype(int)
    array([[0, 1],
           [0, 1],
           [1, 0],
           [1, 0]])
    """
    rotator = Rotator(
        criterion, normalize=normalize, n_init=n_init, max_iter=max_iter, tol=tol, random_state=random_state
    )
    sampling = Sampling(standard_errors, loadings_covariance, bootstrap_loadings)
    return fit_rotation(rotator, loadings, sampling).result_


class Rotator(TransformerMixin, BaseEstimator):
    """Rotation of loadings as a scikit-learn transformer.

    Parameters
    ----------
    method : str, tuple or float, default='varimax'
        The `criterion` of :func:`elldict.rotate`.
    normalize : bool, default=True
        Whether rows are divided by their length for the criterion (Kaiser normalisation).
    n_init : int, default=10
        Number of starts: no rotation, then random ones.
    max_iter : int, default=1000
        Maximum number of iterations per start.
    tol : float, default=1e-5
        The search ends after two steps below this length: root mean square over factors, in radians.
    random_state : int, RandomState instance, Generator or None, default=None
        Seed of the random starts.

    Attributes
    ----------
    loadings_ : array of shape (n_rows, n_factors)
        Rotated loadings.
    rotation_ : ndarray of shape (n_factors, n_factors)
        Orthogonal matrix.
    result_ : Rotation
        Result of :func:`elldict.rotate`, with standard errors over rows unless `fit` was given more.
    n_iter_ : int
        Number of iterations from the best start.
    n_features_in_ : int
        Number of factors.
    """

    loadings_: Any
    rotation_: Array
    result_: Rotation
    n_iter_: int
    n_features_in_: int

    def __init__(
        self,
        method: str | float | tuple[str, float] = "varimax",
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
        loadings_covariance: Any = None,
        bootstrap_loadings: Any = None,
    ) -> Self:
        """Find the rotation of loadings.

        Parameters
        ----------
        X : array-like of shape (n_rows, n_factors)
            Loadings.
        y : None
            Ignored.
        loadings_covariance : array-like, default=None
            As in :func:`elldict.rotate`.
        bootstrap_loadings : array-like of shape (n_draws, n_rows, n_factors), default=None
            As in :func:`elldict.rotate`.

        Returns
        -------
        Self
            The estimator itself.
        """
        return fit_rotation(self, X, Sampling(True, loadings_covariance, bootstrap_loadings))

    def transform(self, X: Any) -> Any:
        """Rotate other rows in the same way.

        Parameters
        ----------
        X : array-like of shape (n_rows, n_factors)
            Loadings, or factor scores.

        Returns
        -------
        array of shape (n_rows, n_factors)
            Rotated rows.
        """
        check_is_fitted(self, "rotation_")
        return apply_rotation(read_loadings(self, X, fitting=False), self.rotation_)

    def get_feature_names_out(self, input_features: Any = None) -> NDArray[np.object_]:  # noqa: ARG002
        """Return the names of the rotated factors: factor1, factor2 and so on.

        Parameters
        ----------
        input_features : None
            Ignored: each rotated factor is a mixture of all factors.

        Returns
        -------
        ndarray of str
            Names.
        """
        check_is_fitted(self, "rotation_")
        return np.array([f"factor{number + 1}" for number in range(self.n_features_in_)], dtype=object)

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags


def fit_rotation(rotator: Rotator, X: Any, sampling: Sampling) -> Rotator:
    """Fit a rotator, and issue warnings."""
    options = read_options(rotator)
    names, X = read_names(X), read_loadings(rotator, X, fitting=True)
    with one_blas_thread() as n_threads:
        result, findings = find_rotation(X, names, options, sampling, n_threads)
    rotator.result_ = result
    rotator.loadings_, rotator.rotation_, rotator.n_iter_ = result.loadings, result.rotation, result.n_iter
    issue(findings)
    return rotator


def read_options(rotator: Rotator) -> Options:
    """Check the parameters of a rotator."""
    for name, rule in RULES.items():
        value = getattr(rotator, name)
        if not rule.accepts(value):
            raise InvalidParameterError(f"The {name!r} parameter must be {rule.expected}. Got {value!r} instead.")
    seed = draw_seed(rotator.random_state)
    sizes = int(rotator.n_init), int(rotator.max_iter), float(rotator.tol)
    return Options(rotator.method, bool(rotator.normalize), *sizes, seed)


def read_loadings(rotator: Rotator, X: Any, *, fitting: bool) -> Any:
    """Return loadings as a real 2D array in memory; set or check the number and names of factors."""
    refuse_lazy(X)
    if is_dask(X):
        X = X.compute()
    if not is_other_array(X):
        return convert_to_numpy(rotator, X, fitting, (1, 1))
    check_other_array(X, 1, 1)
    validate_data(rotator, X, reset=fitting, skip_check_array=True)
    return X


def read_names(X: Any) -> tuple[str, ...] | None:
    """Return the index of a data frame as the names of its rows, unless it holds numbers."""
    index = getattr(X, "index", None) if hasattr(X, "columns") else None
    if index is None or getattr(index, "inferred_type", "integer") == "integer":
        return None
    return tuple(str(label) for label in index)
