"""Orthonormal atoms for the best few coefficients: where to go from l_p when the squared error is all that counts."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator

from elldict.learning import LpDictionaryLearning
from elldict.solver.polar import polar


def keep_largest(codes: NDArray[np.float64], k: int) -> NDArray[np.float64]:
    """Codes (r, m) with all but the k of largest magnitude in each row set to zero."""
    if k >= codes.shape[1]:
        return codes.copy()
    kept = np.zeros_like(codes)
    where = np.argpartition(-np.abs(codes), k - 1, axis=1)[:, :k]
    np.put_along_axis(kept, where, np.take_along_axis(codes, where, axis=1), axis=1)
    return kept


class TopKProcrustes(BaseEstimator):
    """Keep the k largest codes of each sample, turn the atoms to fit them best, and again.

    Each half minimises the squared error of rebuilding the samples from k codes, so the error never rises. It starts
    from the l_3 answer; from a random start it ends in worse places.

    Parameters
    ----------
    n_nonzero_coefs : int
        Codes kept for each sample.
    max_iter : int, default=50
        Most iterations after the start.
    tol : float, default=1e-4
        Root mean square step at which it has converged; that of the start, too.
    start_max_iter : int, default=1000
        Most iterations of the start.
    random_state : int, RandomState instance, Generator or None, default=None
        Seed of the start.

    Attributes
    ----------
    components_ : ndarray of shape (n_features, n_features)
        Atoms, orthonormal rows.
    n_iter_ : int
        Iterations made after the start.
    """

    def __init__(
        self,
        n_nonzero_coefs: int,
        *,
        max_iter: int = 50,
        tol: float = 1e-4,
        start_max_iter: int = 1000,
        random_state: Any = None,
    ) -> None:
        self.n_nonzero_coefs = n_nonzero_coefs
        self.max_iter = max_iter
        self.tol = tol
        self.start_max_iter = start_max_iter
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
        TopKProcrustes
            The fitted estimator.
        """
        samples = np.asarray(X)
        start = LpDictionaryLearning(
            p=3,
            solver="power",
            refine=None,
            max_iter=self.start_max_iter,
            tol=self.tol,
            random_state=self.random_state,
        )
        A = np.asarray(start.fit(samples).components_)
        self.n_iter_ = 0
        for _ in range(self.max_iter):
            self.n_iter_ += 1
            new = np.asarray(polar(keep_largest(samples @ A.T, self.n_nonzero_coefs).T @ samples))
            moved = float(np.linalg.norm(new - A)) / np.sqrt(len(A))
            A = new
            if moved <= self.tol:
                break
        self.components_ = A
        return self
