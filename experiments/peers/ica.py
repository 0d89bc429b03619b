"""Independent component analysis: FastICA from scikit-learn, Picard from python-picard.

Both use float64: in float32 FastICA does not converge on some samples, and rounding stops Picard's line search.
Both whiten with the sample covariance, so that their unmixing matrices are orthogonal only up to its sampling error.
The nearest orthonormal matrix is closer to an orthogonal dictionary, and is what we compare.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from sklearn import decomposition

from elldict.solver.steps import polar
from experiments.harness.watch import Watch
from experiments.peers.base import Matrix, Peer, required

COLUMNS_PER_FEATURE = 2  # samples per feature whose codes give the unmixing matrix; 2 are well conditioned


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

    def fit(self, X: Any, watch: Watch | None = None) -> Self:
        """Fit atoms; if watched, with a contrast that records its codes, for which FastICA runs the same code."""
        samples = np.asarray(X, dtype=np.float64)
        views = None if watch is None else CodeViews(samples, watch)
        model = decomposition.FastICA(
            whiten="unit-variance",
            whiten_solver=self.whiten_solver,
            fun=self.fun if views is None else views.watched(CONTRASTS[self.fun]),
            max_iter=self.max_iter,
            tol=self.tol,
            random_state=self.random_state,
        ).fit(samples)
        self.components_ = np.asarray(polar(model.components_))
        self.n_iter_ = int(model.n_iter_)
        if views is not None:
            views.translate()
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

    def fit(self, X: Any, watch: Watch | None = None) -> Self:
        """Fit atoms; if watched, its density records codes once per iteration."""
        picard = required("picard", self.package)
        samples = np.asarray(X, dtype=np.float64)
        if self.threads is not None and importlib.util.find_spec("numexpr") is not None:
            importlib.import_module("numexpr").set_num_threads(self.threads)
        density = required("picard.densities", self.package).Tanh()
        views = None if watch is None else CodeViews(samples, watch)
        if views is not None:
            density.score_and_der = views.watched(density.score_and_der)
        whitening, rotation, _, n_iter = picard.picard(
            samples.T,
            fun=density,
            check_fun=False,  # its own density is correct
            ortho=True,
            max_iter=self.max_iter,
            tol=self.tol,
            random_state=self.random_state,
            return_n_iter=True,
        )
        self.components_ = np.asarray(polar(rotation @ whitening))
        self.n_iter_ = int(n_iter)
        if views is not None:
            views.translate()
        return self


# --- curves from a single fit -----------------------------------------------------------------------------------------

Contrast = Callable[[Matrix], tuple[Matrix, Matrix]]


class CodeViews:
    """Codes of a few samples, recorded once per iteration, from which the unmixing matrix is computed."""

    def __init__(self, X: Matrix, watch: Watch) -> None:
        self.watch = watch
        self.n_columns = COLUMNS_PER_FEATURE * X.shape[1]
        with watch.aside():
            self.samples = X[: self.n_columns] - X.mean(axis=0)

    def watched(self, contrast: Contrast) -> Contrast:
        """Return the contrast, extended to record its codes (n, r)."""

        def record_and_call(codes: Matrix) -> tuple[Matrix, Matrix]:
            self.watch.look(codes[:, : self.n_columns].copy)
            return contrast(codes)

        return record_and_call

    def translate(self) -> None:
        """Compute B from codes B (x - mean) of the recorded samples, by least squares."""
        with self.watch.aside():
            inverse = np.linalg.pinv(self.samples)
        self.watch.translate(lambda codes: (inverse @ codes.T).T)


def _logcosh(codes: Matrix) -> tuple[Matrix, Matrix]:
    tanh = np.tanh(codes, codes)
    return tanh, np.array([np.mean(1 - row**2) for row in tanh])  # row by row: no copy of all codes


def _exp(codes: Matrix) -> tuple[Matrix, Matrix]:
    bell = np.exp(-(codes**2) / 2)
    return codes * bell, np.mean((1 - codes**2) * bell, axis=-1)


def _cube(codes: Matrix) -> tuple[Matrix, Matrix]:
    return codes**3, np.mean(3 * codes**2, axis=-1)


CONTRASTS: dict[str, Contrast] = {"logcosh": _logcosh, "exp": _exp, "cube": _cube}
"""Contrasts of scikit-learn: g of the codes, and the mean of its derivative."""
