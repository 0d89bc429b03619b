"""Principal components, by scikit-learn."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from scipy.linalg import eigh
from sklearn import decomposition
from sklearn.base import BaseEstimator


class PCA(BaseEstimator):
    """Directions of largest variance: what an orthonormal basis is when sparsity is not asked for.

    Parameters
    ----------
    center : bool, default=True
        Look at the samples around their mean, as PCA does. False: around zero, as l_p maximisation does by default.

    Attributes
    ----------
    components_ : ndarray of shape (n_features, n_features)
        Atoms, orthonormal rows, by decreasing variance.
    mean_ : ndarray of shape (n_features,)
        Mean of the samples; zeros if not centred.
    n_iter_ : int
        Always 1.
    """

    def __init__(self, *, center: bool = True) -> None:
        self.center = center

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
        PCA
            The fitted estimator.
        """
        samples = np.asarray(X)
        self.n_iter_ = 1
        if self.center:
            model = decomposition.PCA().fit(samples)
            self.components_, self.mean_ = model.components_, model.mean_
        else:
            self.components_ = eigh(samples.T @ samples)[1].T[::-1]
            self.mean_ = np.zeros(samples.shape[1], samples.dtype)
        return self
