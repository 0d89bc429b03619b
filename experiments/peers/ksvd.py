"""K-SVD, by dictlearn: what dictionary learning meant before."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator

from elldict.validation import check_rng
from experiments.peers.packages import required


class KSVD(BaseEstimator):
    """Approximate K-SVD with batch orthogonal matching pursuit (Rubinstein, Zibulevsky and Elad).

    The paper runs the authors' toolbox; this is the same algorithm from dictlearn, and starts as the toolbox does, from
    samples drawn at random. Unlike all others here it has to be told how sparse the codes are.

    Parameters
    ----------
    n_nonzero_coefs : int
        Codes that matching pursuit may use for each sample.
    max_iter : int, default=100
        Number of iterations; there is no other end.
    random_state : int, RandomState instance, Generator or None, default=None
        Seed of the choice of samples to start from.

    Attributes
    ----------
    components_ : ndarray of shape (n_features, n_features)
        Atoms, rows of unit length, not orthogonal.
    n_iter_ : int
        Iterations made.
    """

    def __init__(self, n_nonzero_coefs: int, *, max_iter: int = 100, random_state: Any = None) -> None:
        self.n_nonzero_coefs = n_nonzero_coefs
        self.max_iter = max_iter
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
        KSVD
            The fitted estimator.
        """
        dictlearn = required("dictlearn", "dictlearn")
        samples = np.asarray(X, dtype=np.float64)
        rng = check_rng(self.random_state, stream=1)
        model = dictlearn.DictionaryLearning(
            n_components=samples.shape[1],
            fit_algorithm="aksvd",
            n_nonzero_coefs=self.n_nonzero_coefs,
            max_iter=self.max_iter,
            dict_init=_some_of(samples, rng),
            random_state=int(rng.integers(2**31)),  # for atoms that no sample uses, which are drawn anew
        ).fit(samples)
        self.components_ = model.components_ / np.linalg.norm(model.components_, axis=1, keepdims=True)
        self.n_iter_ = int(model.n_iter_)
        return self


def _some_of(samples: NDArray[np.float64], rng: np.random.Generator) -> NDArray[np.float64]:
    """As many samples as features, of unit length; none that is all zero."""
    usable = np.flatnonzero(np.any(samples != 0, axis=1))
    if len(usable) < samples.shape[1]:
        raise ValueError(
            f"X has {len(usable)} samples that are not zero: K-SVD needs {samples.shape[1]} to start from."
        )
    chosen = samples[rng.choice(usable, samples.shape[1], replace=False)]
    return np.asarray(chosen / np.linalg.norm(chosen, axis=1, keepdims=True))
