"""Independent component analysis: FastICA from scikit-learn, Picard from python-picard.

Both use float64: in float32 FastICA does not converge on some samples, and rounding stops Picard's line search.
Both whiten with the sample covariance, so that their unmixing matrices are orthogonal only up to its sampling error.
The nearest orthonormal matrix is closer to an orthogonal dictionary, and is what we compare.
"""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from sklearn import decomposition

from elldict.solver.steps import polar
from experiments.peers.base import Peer, required


@dataclass
class FastICA(Peer):
    """FastICA with the defaults of scikit-learn except `max_iter`, which is 200 there.

    `whiten_solver="eigh"`, which its documentation says can be faster for many samples, was 10 to 20 % faster than
    "svd" at n = 32 and 64 on one thread. `fun` is "logcosh", "exp" or "cube".
    """

    module = "sklearn"
    package = "scikit-learn"
    revision = 2  # 1 worked in the precision of the samples

    fun: str = "logcosh"
    whiten_solver: str = "svd"
    max_iter: int = 500
    tol: float = 1e-4
    random_state: Any = None

    def fit(self, X: Any) -> Self:
        """Fit atoms."""
        samples = np.asarray(X, dtype=np.float64)
        model = decomposition.FastICA(
            whiten="unit-variance",
            whiten_solver=self.whiten_solver,
            fun=self.fun,
            max_iter=self.max_iter,
            tol=self.tol,
            random_state=self.random_state,
        ).fit(samples)
        self.components_ = np.asarray(polar(model.components_))
        self.n_iter_ = int(model.n_iter_)
        return self


@dataclass
class Picard(Peer):
    """Picard-O: preconditioned L-BFGS over orthogonal matrices, with the defaults of python-picard.

    It computes its contrast with numexpr if installed, with `threads` threads; None: the default of numexpr.
    """

    module = "picard"
    package = "python-picard"
    revision = 1  # 0, of the benchmarks, worked in the precision of the samples

    max_iter: int = 500
    tol: float = 1e-7
    threads: int | None = None
    random_state: Any = None

    def fit(self, X: Any) -> Self:
        """Fit atoms."""
        picard = required("picard", self.package)
        samples = np.asarray(X, dtype=np.float64)
        if self.threads is not None and importlib.util.find_spec("numexpr") is not None:
            importlib.import_module("numexpr").set_num_threads(self.threads)
        whitening, rotation, _, n_iter = picard.picard(
            samples.T,
            check_fun=False,  # its default density is correct
            ortho=True,
            max_iter=self.max_iter,
            tol=self.tol,
            random_state=self.random_state,
            return_n_iter=True,
        )
        self.components_ = np.asarray(polar(rotation @ whitening))
        self.n_iter_ = int(n_iter)
        return self
