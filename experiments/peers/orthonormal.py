"""Orthonormal atoms without sparse codes: principal components, and the best basis for a few coefficients."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import eigh
from sklearn import decomposition

from elldict import LpDictionaryLearning
from elldict._old.solver.directions import polar
from experiments.harness.watch import Watch
from experiments.peers.base import Matrix, Peer


@dataclass
class PCA(Peer):
    """Directions of largest variance: what an orthonormal basis is when sparsity is not asked for.

    Without `center` it looks at the samples around zero, as l_p maximisation does by default.
    """

    module = "sklearn"
    package = "scikit-learn"

    center: bool = True

    def fit(self, X: Any, watch: Watch | None = None) -> Self:  # noqa: ARG002
        """Sets `mean_` too."""
        samples = np.asarray(X)
        self.n_iter_ = 1
        self.mean_: Matrix = np.zeros(samples.shape[1], samples.dtype)
        if self.center:
            model = decomposition.PCA().fit(samples)
            self.components_, self.mean_ = model.components_, model.mean_
        else:
            self.components_ = eigh(samples.T @ samples)[1].T[::-1]
        return self


def keep_largest(codes: NDArray[np.float64], k: int) -> NDArray[np.float64]:
    """Codes (r, m) with all but the k of largest magnitude in each row set to zero."""
    if k >= codes.shape[1]:
        return codes.copy()
    kept = np.zeros_like(codes)
    where = np.argpartition(-np.abs(codes), k - 1, axis=1)[:, :k]
    np.put_along_axis(kept, where, np.take_along_axis(codes, where, axis=1), axis=1)
    return kept


@dataclass
class TopKProcrustes(Peer):
    """Keep the k largest codes of each sample, turn the atoms to fit them best, and again.

    Each half minimises the squared error of rebuilding the samples from k codes, so the error never rises. It starts
    from the l_3 answer, found in `start_max_iter` iterations at most; from a random start it ends in worse places. It
    ends where the root mean square step is `tol`, as its start does.
    """

    module = "elldict"
    package = "elldict"

    n_nonzero_coefs: int
    max_iter: int = 50
    tol: float = 1e-4
    start_max_iter: int = 1000
    random_state: Any = None

    def fit(self, X: Any, watch: Watch | None = None) -> Self:  # noqa: ARG002
        """Iterations are those after the start."""
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
