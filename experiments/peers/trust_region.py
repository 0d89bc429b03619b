"""Riemannian trust region on the smoothed l_1 norm, by pymanopt."""

from __future__ import annotations

import math
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator

from elldict.validation import check_rng
from experiments.peers.packages import required

Vector = NDArray[np.float64]


class TrustRegionL1(BaseEstimator):
    """Minimise the mean of mu log cosh(q y / mu) over the sphere, one atom after the other (Sun, Qu and Wright).

    Each atom is sought in the orthogonal complement of those already found (deflation); the last one is what remains.
    There is no rounding by linear programming afterwards, which the paper does not mention either.

    Parameters
    ----------
    mu : float, default=0.01
        Width of the smoothing, in units in which active codes have variance one; the value of the authors' code.
    max_iter : int, default=500
        Most outer iterations for an atom.
    tol : float, default=1e-6
        Length of the gradient at which an atom is found.
    random_state : int, RandomState instance, Generator or None, default=None
        Seed of the random starts.

    Attributes
    ----------
    components_ : ndarray of shape (n_features, n_features)
        Atoms, orthonormal rows, in the order in which they were found.
    n_iter_ : int
        Outer iterations made, over all atoms.
    """

    def __init__(self, *, mu: float = 0.01, max_iter: int = 500, tol: float = 1e-6, random_state: Any = None) -> None:
        self.mu = mu
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
        TrustRegionL1
            The fitted estimator.
        """
        samples = np.asarray(X, dtype=np.float64)
        n = samples.shape[1]
        rng = check_rng(self.random_state, stream=1)
        found = np.zeros((0, n))
        rest = np.eye(n)  # (n, n - k)  columns span what the atoms found so far leave
        self.n_iter_ = 0
        while rest.shape[1] > 1:
            q = self._sparsest(np.ascontiguousarray(samples @ rest), rng)
            found = np.vstack([found, rest @ q])
            rest = np.linalg.qr(found.T, mode="complete")[0][:, len(found) :]
        self.components_ = np.vstack([found, rest.T])
        return self

    def _sparsest(self, Y: Vector, rng: np.random.Generator) -> Vector:
        """Direction in which the samples Y (r, k) are sparsest, from a random start."""
        pymanopt = required("pymanopt", "pymanopt")
        optimizers = required("pymanopt.optimizers", "pymanopt")
        sphere = required("pymanopt.manifolds", "pymanopt").Sphere(Y.shape[1])
        contrast = SmoothedL1(Y, self.mu)
        mark = pymanopt.function.numpy(sphere)
        problem = pymanopt.Problem(
            sphere,
            mark(contrast.value),
            euclidean_gradient=mark(contrast.gradient),
            euclidean_hessian=mark(contrast.hessian),
        )
        start = rng.standard_normal(Y.shape[1])
        optimizer = optimizers.TrustRegions(
            max_iterations=self.max_iter,
            min_gradient_norm=self.tol,
            max_time=math.inf,  # an answer that depends on the clock cannot be had again
            verbosity=0,
        )
        result = optimizer.run(problem, initial_point=start / np.linalg.norm(start))
        self.n_iter_ += int(result.iterations)
        return np.asarray(result.point)


class SmoothedL1:
    """mean of mu log cosh(z / mu), z = Y q, with its derivatives; tanh(z / mu) is kept between calls at the same q."""

    def __init__(self, Y: Vector, mu: float) -> None:
        self.Y, self.mu = Y, mu
        self._at: Vector | None = None

    def value(self, q: Vector) -> float:
        """The contrast; log cosh u = |u| + log(1 + exp(-2|u|)) - log 2 does not overflow."""
        size = np.abs(self._codes(q)[0]) / self.mu
        return float(self.mu * (np.mean(size + np.log1p(np.exp(-2 * size))) - math.log(2)))

    def gradient(self, q: Vector) -> Vector:
        """Its gradient."""
        return np.asarray(self._codes(q)[1] @ self.Y / len(self.Y))

    def hessian(self, q: Vector, v: Vector) -> Vector:
        """Its second derivative in the direction v."""
        slope = 1 - self._codes(q)[1] ** 2
        return np.asarray((slope * (self.Y @ v)) @ self.Y / (self.mu * len(self.Y)))

    def _codes(self, q: Vector) -> tuple[Vector, Vector]:
        if self._at is None or not np.array_equal(self._at, q):
            self._at = q.copy()
            self._z = self.Y @ q
            self._tanh = np.tanh(self._z / self.mu)
        return self._z, self._tanh
