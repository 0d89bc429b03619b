"""Matching, stretching and projection: the power method at p = 4."""

from __future__ import annotations

from typing import Any, Self

from sklearn.base import BaseEstimator

from elldict.learning import LpDictionaryLearning


class MSP(BaseEstimator):
    """Maximise the l_4 norm over the orthogonal group (Zhai, Yang, Liao, Wright and Ma).

    It is Algorithm 2 of the paper at p = 4, and is run as such.

    Parameters
    ----------
    max_iter : int, default=1000
        Most iterations.
    tol : float, default=1e-6
        Root mean square step at which it has converged.
    random_state : int, RandomState instance, Generator or None, default=None
        Seed of the random start.

    Attributes
    ----------
    components_ : ndarray of shape (n_features, n_features)
        Atoms, orthonormal rows.
    n_iter_ : int
        Iterations made.
    """

    def __init__(self, *, max_iter: int = 1000, tol: float = 1e-6, random_state: Any = None) -> None:
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
        MSP
            The fitted estimator.
        """
        model = LpDictionaryLearning(
            p=4, solver="power", refine=None, max_iter=self.max_iter, tol=self.tol, random_state=self.random_state
        ).fit(X)
        self.components_, self.n_iter_ = model.components_, model.n_iter_
        return self
