"""Independent component analysis: FastICA by scikit-learn, Picard by python-picard.

Both work in float64: in float32 FastICA never comes to rest on some samples, and Picard's line search meets rounding.
Both whiten by the sampled covariance, so that their unmixing matrices are orthogonal only up to its error: the nearest
orthonormal matrix is closer to an orthogonal dictionary, and is what counts here.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from sklearn import decomposition

from elldict._old.solver.directions import polar
from experiments.harness.watch import Watch
from experiments.peers.base import Matrix, Peer, required

COLUMNS_PER_FEATURE = 2
"""Codes of so many samples per feature tell the unmixing matrix; 2 leave the least squares well conditioned."""


@dataclass
class FastICA(Peer):
    """What most users would pick today, with the defaults of scikit-learn but for `max_iter`, which is 200 there.

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
        """Given a contrast as a function, FastICA runs the same code and can be watched."""
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

    It computes its contrast with numexpr where that is installed, on `threads` threads; None leaves their number alone.
    """

    module = "picard"
    package = "python-picard"
    revision = 1  # 0, of the benchmarks, worked in the precision of the samples

    max_iter: int = 500
    tol: float = 1e-7
    threads: int | None = None
    random_state: Any = None

    def fit(self, X: Any, watch: Watch | None = None) -> Self:
        """Its default density is asked for the score once an iteration, line searches apart: there it is watched."""
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
            check_fun=False,  # a density of its own need not be checked
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
    """ICA shows its codes to its contrast once an iteration: codes of a few samples tell the unmixing matrix."""

    def __init__(self, X: Matrix, watch: Watch) -> None:
        self.watch = watch
        self.n_columns = COLUMNS_PER_FEATURE * X.shape[1]
        with watch.aside():
            self.samples = X[: self.n_columns] - X.mean(axis=0)

    def watched(self, contrast: Contrast) -> Contrast:
        """The contrast, that keeps a view of the codes (n, r) it is given."""

        def look_and_call(codes: Matrix) -> tuple[Matrix, Matrix]:
            self.watch.look(codes[:, : self.n_columns].copy)
            return contrast(codes)

        return look_and_call

    def translate(self) -> None:
        """Codes are B (x - mean): least squares over the samples that were kept give B."""
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
"""scikit-learn's, under its names: g of the codes, and the mean of its derivative."""
