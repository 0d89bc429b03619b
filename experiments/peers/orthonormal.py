"""Orthonormal atoms: principal components, and the best basis for a few coefficients."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import eigh
from sklearn import decomposition

from elldict import LpDictionaryLearning
from elldict.solver.steps import polar
from experiments.peers.base import Matrix, Peer


@dataclass
class PCA(Peer):
    """Directions of largest variance; without `center`, of largest second moment, as l_p maximisation by default."""

    module = "sklearn"
    package = "scikit-learn"

    center: bool = True

    def fit(self, X: Any) -> Self:
        """Fit atoms and `mean_`."""
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
    """Set all codes (r, m) but the k of largest magnitude in each row to zero."""
    if k >= codes.shape[1]:
        return codes.copy()
    kept = np.zeros_like(codes)
    where = np.argpartition(-np.abs(codes), k - 1, axis=1)[:, :k]
    np.put_along_axis(kept, where, np.take_along_axis(codes, where, axis=1), axis=1)
    return kept


@dataclass
class TopKProcrustes(Peer):
    """Alternate between the k largest codes of each sample and the atoms that fit them best.

    Each half-step minimises the squared error of samples reconstructed from k codes, so the error never increases. It
    starts from l_3 atoms, found in at most `start_max_iter` iterations; local optima from random starts are worse. Both
    stop when the root mean square step is at most `tol`.
    """

    module = "elldict"
    package = "elldict"
    revision = 2  # 1 had other random starts

    n_nonzero_coefs: int
    max_iter: int = 50
    tol: float = 1e-4
    start_max_iter: int = 1000
    random_state: Any = None

    def fit(self, X: Any) -> Self:
        """Fit atoms; iterations are those after the start."""
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
