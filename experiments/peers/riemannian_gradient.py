"""Riemannian gradient ascent with a fixed step, on the manifolds of pymanopt."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator

from elldict.solver.polar import random_orthonormal
from elldict.validation import check_rng
from experiments.peers.packages import required

Matrix = NDArray[np.float64]


def riemannian_step(A: Matrix, G: Matrix, step: float) -> Matrix:
    """Where a step along the gradient G ends: on the sphere for A (n,), on the Stiefel manifold for rows A (m, n)."""
    manifolds = required("pymanopt.manifolds", "pymanopt")
    if A.ndim == 1:
        sphere = manifolds.Sphere(len(A))
        return np.asarray(sphere.retraction(A, step * sphere.projection(A, G)))
    m, n = A.shape
    stiefel = manifolds.Stiefel(n, m, retraction="polar")  # pymanopt keeps orthonormal columns, we keep rows
    return np.asarray(stiefel.retraction(A.T, step * stiefel.projection(A.T, G.T)).T)


class RiemannianGradient(BaseEstimator):
    """Maximise the mean of |A y|^p over the orthogonal group by gradient steps of fixed length.

    Parameters
    ----------
    p : float, default=4
        Exponent of the norm.
    step : float, default=0.25
        Length of the step, in units in which active codes have variance one. The gradient is the paper's, without the
        factor p: the sum of sign(z)|z|^(p-1) y over the number of samples.
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

    def __init__(
        self,
        p: float = 4,
        *,
        step: float = 0.25,
        max_iter: int = 1000,
        tol: float = 1e-6,
        random_state: Any = None,
    ) -> None:
        self.p = p
        self.step = step
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
        RiemannianGradient
            The fitted estimator.
        """
        samples = np.asarray(X, dtype=np.float64)
        n = samples.shape[1]
        A = np.asarray(random_orthonormal(n, n, check_rng(self.random_state, stream=1)))
        self.n_iter_ = 0
        for _ in range(self.max_iter):
            self.n_iter_ += 1
            new = riemannian_step(A, self._gradient(samples, A), self.step)
            moved = float(np.linalg.norm(new - A)) / np.sqrt(n)
            A = new
            if moved <= self.tol:
                break
        self.components_ = A
        return self

    def _gradient(self, samples: Matrix, A: Matrix) -> Matrix:
        Z = samples @ A.T
        return np.asarray((np.sign(Z) * np.abs(Z) ** (self.p - 1)).T @ samples / len(samples))
