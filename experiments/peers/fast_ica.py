"""FastICA, by scikit-learn: what most users would pick today."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.decomposition import FastICA as SklearnFastICA

from elldict.solver.polar import polar


class FastICA(BaseEstimator):
    """Independent component analysis with the contrast log cosh, brought to the nearest orthonormal atoms.

    FastICA whitens the samples by their sampled covariance, so its unmixing matrix is orthogonal only up to the error
    of that; the nearest orthonormal matrix is closer to an orthogonal dictionary.

    Parameters
    ----------
    max_iter : int, default=500
        Most iterations.
    tol : float, default=1e-4
        Tolerance, scikit-learn's default.
    random_state : int, RandomState instance or None, default=None
        Seed of the random start.

    Attributes
    ----------
    components_ : ndarray of shape (n_features, n_features)
        Atoms, orthonormal rows.
    n_iter_ : int
        Iterations made.
    """

    def __init__(self, *, max_iter: int = 500, tol: float = 1e-4, random_state: Any = None) -> None:
        self.max_iter = max_iter
        self.tol = tol
        self.random_state = random_state

    def fit(self, X: Any, y: Any = None) -> Self:  # noqa: ARG002
        """Learn the atoms.

        Parameters
        ----------
        X : array of shape (n_samples, n_features)
            Samples.
        y : object
            Not used.

        Returns
        -------
        FastICA
            The fitted estimator.
        """
        model = SklearnFastICA(
            whiten="unit-variance",
            fun="logcosh",
            max_iter=self.max_iter,
            tol=self.tol,
            random_state=self.random_state,
        ).fit(np.asarray(X, dtype=np.float64))  # in float32 it never comes to rest on some samples, and is lost
        self.components_ = np.asarray(polar(model.components_.astype(np.float64)))
        self.n_iter_ = int(model.n_iter_)
        return self
