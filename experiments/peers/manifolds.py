"""Optimisation on manifolds with pymanopt: gradient steps of fixed length, and a trust region for the smoothed l_1."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from elldict.solver.starts import draw_start
from experiments.peers.base import Matrix, Peer, make_rng, required


def riemannian_step(A: Matrix, G: Matrix, step: float) -> Matrix:
    """Step along the gradient G on the sphere for A (n,), on the Stiefel manifold for rows A (m, n)."""
    manifolds = required("pymanopt.manifolds", "pymanopt")
    if A.ndim == 1:
        sphere = manifolds.Sphere(len(A))
        return np.asarray(sphere.retraction(A, step * sphere.projection(A, G)))
    m, n = A.shape
    stiefel = manifolds.Stiefel(n, m, retraction="polar")  # pymanopt keeps orthonormal columns, we keep rows
    return np.asarray(stiefel.retraction(A.T, step * stiefel.projection(A.T, G.T)).T)


@dataclass
class RiemannianGradient(Peer):
    """Maximise the mean of |A y|^p over the orthogonal group by gradient steps of fixed length.

    `step` is in units in which active codes have variance one. The gradient is that of the paper, without the factor p:
    the mean of sign(z)|z|^(p-1) y over samples. It stops when the root mean square step is at most `tol`.
    """

    module = "pymanopt"
    package = "pymanopt"

    p: float = 4
    step: float = 0.25
    max_iter: int = 1000
    tol: float = 1e-6
    random_state: Any = None

    def fit(self, X: Any) -> Self:
        """Fit atoms from a random start."""
        samples = np.asarray(X, dtype=np.float64)
        n = samples.shape[1]
        A = draw_start(n, n, make_rng(self.random_state))
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


@dataclass
class TrustRegionL1(Peer):
    """Minimise the mean of mu log cosh(q y / mu) over the sphere, one atom after the other (Sun, Qu and Wright).

    Each atom is searched for in the orthogonal complement of those already found (deflation); the last one is what
    remains. There is no rounding by linear programming afterwards, which the paper does not mention either. `mu` is
    that of the authors' code, in units in which active codes have variance one; `max_iter` limits the outer iterations
    per atom, which stop when the norm of the gradient is at most `tol`. Iterations are summed over all atoms.
    """

    module = "pymanopt"
    package = "pymanopt"

    mu: float = 0.01
    max_iter: int = 500
    tol: float = 1e-6
    random_state: Any = None

    def fit(self, X: Any) -> Self:
        """Fit atoms, in the order in which they are found."""
        samples = np.asarray(X, dtype=np.float64)
        n = samples.shape[1]
        rng = make_rng(self.random_state)
        found = np.zeros((0, n))
        rest = np.eye(n)  # (n, n - k), columns span the complement of the atoms
        self.n_iter_ = 0
        while rest.shape[1] > 1:
            q = self._find_sparsest(np.ascontiguousarray(samples @ rest), rng)
            found = np.vstack([found, rest @ q])
            rest = np.linalg.qr(found.T, mode="complete")[0][:, len(found) :]
        self.components_ = np.vstack([found, rest.T])
        return self

    def _find_sparsest(self, Y: Matrix, rng: np.random.Generator) -> Matrix:
        """Find the direction in which the samples Y (r, k) are sparsest, from a random start."""
        pymanopt = required("pymanopt", self.package)
        optimizers = required("pymanopt.optimizers", self.package)
        sphere = required("pymanopt.manifolds", self.package).Sphere(Y.shape[1])
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
            max_time=math.inf,  # a result must not depend on the clock
            verbosity=0,
        )
        result = optimizer.run(problem, initial_point=start / np.linalg.norm(start))
        self.n_iter_ += int(result.iterations)
        return np.asarray(result.point)


class SmoothedL1:
    """Mean of mu log cosh(z / mu), z = Y q, with its derivatives; tanh(z / mu) is cached for repeated calls."""

    def __init__(self, Y: Matrix, mu: float) -> None:
        self.Y, self.mu = Y, mu
        self._at: Matrix | None = None

    def value(self, q: Matrix) -> float:
        """Compute the contrast; log cosh u = |u| + log(1 + exp(-2|u|)) - log 2 does not overflow."""
        size = np.abs(self._codes(q)[0]) / self.mu
        return float(self.mu * (np.mean(size + np.log1p(np.exp(-2 * size))) - math.log(2)))

    def gradient(self, q: Matrix) -> Matrix:
        """Compute the gradient."""
        return np.asarray(self._codes(q)[1] @ self.Y / len(self.Y))

    def hessian(self, q: Matrix, v: Matrix) -> Matrix:
        """Compute the second derivative in the direction v."""
        slope = 1 - self._codes(q)[1] ** 2
        return np.asarray((slope * (self.Y @ v)) @ self.Y / (self.mu * len(self.Y)))

    def _codes(self, q: Matrix) -> tuple[Matrix, Matrix]:
        if self._at is None or not np.array_equal(self._at, q):
            self._at = q.copy()
            self._z = self.Y @ q
            self._tanh = np.tanh(self._z / self.mu)
        return self._z, self._tanh
