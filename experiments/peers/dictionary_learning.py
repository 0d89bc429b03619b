"""Dictionary learning: K-SVD from dictlearn, online learning from scikit-learn."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from sklearn.decomposition import MiniBatchDictionaryLearning

from experiments.peers.base import Matrix, Peer, make_rng, required


@dataclass
class KSVD(Peer):
    """K-SVD with orthogonal matching pursuit, in float64. Unlike all others it needs the sparsity of the codes.

    "aksvd" is the approximate K-SVD of Rubinstein, Zibulevsky and Elad, whose toolbox the paper uses; like the toolbox
    it starts from random samples. "ksvd" is the exact one. It stops after `max_iter` iterations, by default as many as
    dictlearn.
    """

    module = "dictlearn"
    package = "dictlearn"

    n_nonzero_coefs: int
    algorithm: str = "aksvd"
    max_iter: int = 100
    random_state: Any = None

    def fit(self, X: Any) -> Self:
        """Fit as many atoms as features."""
        dictlearn = required("dictlearn", self.package)
        samples = np.asarray(X, dtype=np.float64)
        rng = make_rng(self.random_state)
        start = draw_samples(samples, rng)
        seed = int(rng.integers(2**31))  # for atoms that no sample uses, which are drawn again
        model = dictlearn.DictionaryLearning(
            n_components=samples.shape[1],
            fit_algorithm=self.algorithm,
            n_nonzero_coefs=self.n_nonzero_coefs,
            max_iter=self.max_iter,
            dict_init=start,
            random_state=seed,
        ).fit(samples)
        self.components_ = unit_rows(model.components_)
        self.n_iter_ = int(model.n_iter_)
        return self


def draw_samples(samples: Matrix, rng: np.random.Generator) -> Matrix:
    """Draw as many samples as features, scaled to unit length, without samples that are zero."""
    usable = np.flatnonzero(np.any(samples != 0, axis=1))
    if len(usable) < samples.shape[1]:
        raise ValueError(
            f"X has {len(usable)} samples that are not zero: K-SVD needs {samples.shape[1]} to start from."
        )
    return unit_rows(samples[rng.choice(usable, samples.shape[1], replace=False)])


def unit_rows(rows: Matrix) -> Matrix:
    """Scale rows to unit length."""
    return np.asarray(rows / np.linalg.norm(rows, axis=1, keepdims=True))


@dataclass
class MiniBatch(Peer):
    """Online dictionary learning with the l_1 norm, from scikit-learn.

    `alpha=1` is the default, and had the smallest error on two small problems (n = 16: of 0.3, 1, 2 and 3; n = 32: of
    0.1, 0.3 and 1). Coordinate descent had the same error there as least angles, the default, and was faster.
    """

    module = "sklearn"
    package = "scikit-learn"

    alpha: float = 1.0
    algorithm: str = "cd"
    random_state: Any = None

    def fit(self, X: Any) -> Self:
        """Fit atoms; iterations are passes over the data, not over batches."""
        model = MiniBatchDictionaryLearning(
            X.shape[1], alpha=self.alpha, fit_algorithm=self.algorithm, random_state=self.random_state
        ).fit(X)
        self.components_, self.n_iter_ = model.components_, int(model.n_iter_)
        return self
