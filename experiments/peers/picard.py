"""Picard, by python-picard: ICA by preconditioned quasi-Newton steps on the orthogonal group."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator

from elldict.solver.polar import polar
from experiments.peers.packages import required


class Picard(BaseEstimator):
    """Independent component analysis by Picard-O, brought to the nearest orthonormal atoms.

    Parameters
    ----------
    max_iter : int, default=500
        Most iterations.
    tol : float, default=1e-7
        Tolerance, python-picard's default.
    random_state : int, RandomState instance or None, default=None
        Seed of the random start.

    Attributes
    ----------
    components_ : ndarray of shape (n_features, n_features)
        Atoms, orthonormal rows.
    n_iter_ : int
        Iterations made.
    """

    def __init__(self, *, max_iter: int = 500, tol: float = 1e-7, random_state: Any = None) -> None:
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
        Picard
            The fitted estimator.
        """
        picard = required("picard", "python-picard")
        # float64: in float32 the line search of Picard runs into rounding and never reaches its tolerance
        whitening, rotation, _, n_iter = picard.picard(
            np.asarray(X, dtype=np.float64).T,
            ortho=True,
            max_iter=self.max_iter,
            tol=self.tol,
            random_state=self.random_state,
            return_n_iter=True,
        )
        self.components_ = np.asarray(polar(rotation @ whitening))
        self.n_iter_ = int(n_iter)
        return self
