"""Whitening: the change of coordinates from raw samples to samples of unit mean square, loud ones scaled down."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from elldict._old.backend.base import Array, Backend, to_numpy
from elldict._old.data.statistics import SampleStatistics

MIN_BLUR = 2e-5
"""Variance of what whitening leaves in codes from which fast products do: to round white samples adds 2e-7."""


@dataclass(frozen=True)
class Loudness:
    """Soft normalisation: a whitened sample y is multiplied by factor / sqrt(|y|^2 + median).

    In recordings, images and word vectors all codes of a sample are large together, and a few loud samples decide what
    is learned. Scaled down, they count about as much as others; a plain sample stays plain.
    """

    median: float  # of |y|^2 where it is not zero
    factor: float  # which brings the mean square of a coordinate to one

    @classmethod
    def of(cls, rows: Array) -> Loudness:
        """The normalisation of whitened samples like these drawn ones (b, k)."""
        squares = to_numpy(Backend.of(rows).xp.sum(rows**2, axis=1))
        median = float(np.median(squares[squares > 0]))  # most samples of very sparse codes are zero
        return cls(median, 1 / math.sqrt(float(np.mean(squares / (squares + median))) / int(rows.shape[1])))

    def compute_scales(self, white: Array) -> Array:
        """Factors (b, 1) of whitened samples (b, k)."""
        xp = Backend.of(white).xp
        return self.factor / xp.sqrt(xp.sum(white * white, axis=1, keepdims=True) + self.median)

    def normalize(self, white: Array) -> Array:
        """Whitened samples (b, k), scaled."""
        return white * self.compute_scales(white)


@dataclass(frozen=True)
class Whitening:
    """Change of coordinates from raw samples to samples of unit mean square.

    A scale alone, unless samples are whitened or vary in fewer directions than they have features. Atoms are sought in
    its k directions: those in which samples vary, or the first principal ones if samples are reduced.
    """

    scale: float  # one over the root mean square of the data
    mean: Array | None  # (n,), None if the samples are not centred
    to_white: Array | None  # (k, n), None for the identity
    from_white: Array | None  # (k, n), the transposed pseudo-inverse of `to_white`
    whitened: bool
    second_moments: Array | None = None  # (k, k) mean of y y^T in whitened coordinates, None for the identity
    n_discarded: int = 0  # principal directions in which samples vary and no atom is sought
    loudness: Loudness | None = None  # how loud samples are scaled down; None: not at all
    moved: dict[Backend, Whitening] = field(default_factory=dict, init=False, repr=False, compare=False)

    @classmethod
    def of(
        cls, statistics: SampleStatistics, *, center: bool, whiten: bool | str, n_components: int | None = None
    ) -> Whitening:
        """Whitening for samples of these statistics: restricted to their span, and white if asked.

        True reduces samples to `n_components` principal directions first; "all" whitens all in which they vary.
        """
        scale = 1.0 / statistics.rms / statistics.unit
        mean = statistics.mean if center else None
        k = statistics.rank
        if not whiten and k == statistics.n_features:
            return cls(scale, mean, None, None, False, statistics.scatter / statistics.rms**2)
        if whiten is True and n_components is not None and n_components < k:
            span, variances = reduce_directions(statistics, n_components)
        else:
            span, variances = statistics.eigenvectors[:, :k].T, statistics.eigenvalues[:k]
        if not whiten:
            return cls(scale, mean, span, span, False, np.diag(variances) / statistics.rms**2)
        std, n_discarded = np.sqrt(variances[:, None]) / statistics.rms, k - len(span)
        backend = statistics.backend
        if not backend.prefers_products:
            return cls(scale, mean, span / std, span * std, whitened=True, n_discarded=n_discarded)
        rows, lengths = backend.asarray(span, "float64"), backend.asarray(std, "float64")
        there = cls(scale, None, rows / lengths, rows * lengths, whitened=True, n_discarded=n_discarded)
        here = replace(there, mean=mean, to_white=to_numpy(there.to_white), from_white=to_numpy(there.from_white))
        here.moved[backend] = replace(there, mean=None if mean is None else backend.asarray(mean, "float64"))
        return here

    def move_to(self, backend: Backend) -> Whitening:
        """Return the same with its matrices in another backend, where they are moved once."""
        if backend not in self.moved:
            moved = {}
            for name in ("mean", "to_white", "from_white", "second_moments"):
                if (array := getattr(self, name)) is not None:
                    moved[name] = backend.asarray(array, "float64")
            self.moved[backend] = replace(self, **moved)
        return self.moved[backend]

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "moved": {}}  # pickled for other processes, which may have no card

    def measure_blur(self, n_samples: float) -> float:
        """Variance of what the chance of their second moments leaves in codes of unit variance, k / 4r; zero if raw.

        Samples whitened by their own covariance are white, their codes not quite: its square root is off by entries of
        variance 1 / 4r, and each code has its part of k others.
        """
        return 0.0 if self.to_white is None or not self.whitened else int(self.to_white.shape[0]) / (4 * n_samples)

    def bears_fast_products(self, n_samples: float) -> bool:
        """Whether what fast products round in whitening, or of samples that are whitened by them, is next to nothing.

        Directions in which samples vary much are rounded in those in which they vary little.
        """
        if self.to_white is None or not self.whitened:
            return False
        xp = Backend.of(self.to_white).xp
        lengths = xp.linalg.vector_norm(self.to_white, axis=1)
        return self.measure_blur(n_samples) > MIN_BLUR * float(xp.max(lengths) / xp.min(lengths)) ** 2

    def whiten(self, rows: Array) -> Array:
        """Raw samples (b, n) as the solver sees them (b, k); for a few of them, in the backend of the matrices."""
        centred = rows if self.mean is None else rows - self.mean
        white = self.scale * (centred if self.to_white is None else centred @ self.to_white.T)
        return white if self.loudness is None else self.loudness.normalize(white)

    def to_unmixing(self, A: Array) -> Array:
        """Rows (m, n) that make codes of unit mean square from raw, centred samples."""
        return self.scale * (A if self.to_white is None else A @ self.to_white)

    def unmixing(self, A: Array) -> Array:
        """Rows (m, n) that make codes for the user: of unit variance if whitened, else in the units of the data."""
        rows = A if self.to_white is None else A @ self.to_white
        return self.scale * rows if self.whitened else rows

    def components(self, A: Array) -> Array:
        """Rows (m, n) that rebuild centred samples from those codes: the atoms."""
        rows = A if self.from_white is None else A @ self.from_white
        return rows / self.scale if self.whitened else rows

    def start(self, A: Array) -> Array:
        """Rows of a start drawn among all directions (m, n), in the coordinates of whitened samples (m, k).

        Written through the eigenvectors themselves, so that their arbitrary signs, and their arbitrary choice among
        equal eigenvalues, cancel: every array library begins at the same atoms.
        """
        if self.to_white is None:
            return A
        xp = Backend.of(A).xp
        return A @ (self.to_white / xp.sqrt(xp.sum(self.to_white**2, axis=1, keepdims=True))).T


IDENTITY = Whitening(1.0, None, None, None, whitened=False)
"""For samples that are white already."""


def reduce_directions(
    statistics: SampleStatistics, n_directions: int
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Orthonormal rows that span the first principal directions, and the mean squares of the samples along them.

    The subspace is that of the covariance about the mean; the rows are the principal axes within it of the scatter in
    use, which is about zero for samples that are not centred, so that coordinates are uncorrelated.
    """
    span = statistics.principal[1][:, :n_directions].T
    if statistics.centred:
        return span, statistics.eigenvalues[:n_directions]
    values, axes = np.linalg.eigh(span @ statistics.scatter @ span.T)
    return axes[:, ::-1].T @ span, values[::-1]


def bound_codes(statistics: SampleStatistics, whitening: Whitening) -> float:
    """Largest absolute value that a code of whitened samples can take."""
    offset = 0.0 if whitening.mean is None else float(np.linalg.norm(statistics.mean / statistics.unit))
    reach = (statistics.peak + offset) / statistics.rms
    # rows are orthogonal to each other: the longest is as long as the matrix stretches anything
    stretch = 1.0 if whitening.to_white is None else float(np.max(np.linalg.norm(whitening.to_white, axis=1)))
    return max(1.0, reach * stretch)
