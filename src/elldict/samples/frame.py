"""The frame: centre, scale and whitening as one small matrix, so that no data is ever rewritten.

With ``inner`` written M, a sample y becomes ``unit * M (y - mean)``. The solver's A lives on that side:
codes are ``(y - mean) @ outward(A).T``, and a gradient summed over raw samples comes back through ``inward``.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from elldict.samples.survey import Survey
from elldict.space import Array, Space


@dataclass(frozen=True)
class Frame:
    """Change of coordinates from raw samples to samples of unit mean square."""

    unit: float  # one over the root mean square of the data
    mean: Array | None  # (n,), None if the samples are not centred
    inner: Array | None  # (k, n), None for the identity
    outer: Array | None  # (k, n), the transposed pseudo-inverse of inner
    whitened: bool

    @classmethod
    def of(cls, survey: Survey, *, center: bool, whiten: bool) -> Frame:
        """Frame that the survey calls for: the span of the samples, whitened if asked."""
        unit = 1.0 / survey.rms / survey.unit
        mean = survey.mean if center else None
        k = survey.rank
        if not whiten and k == survey.n_features:
            return cls(unit, mean, None, None, whitened=False)
        span = survey.eigenvectors[:, :k].T
        if not whiten:
            return cls(unit, mean, span, span, whitened=False)
        spread = np.sqrt(survey.eigenvalues[:k, None]) / survey.rms
        return cls(unit, mean, span / spread, span * spread, whitened=True)

    def moved_to(self, space: Space) -> Frame:
        """Return the same frame with its matrices in another space."""

        def move(array: Array | None) -> Array | None:
            return None if array is None else space.asarray(array, "float64")

        return replace(self, mean=move(self.mean), inner=move(self.inner), outer=move(self.outer))

    def inside(self, rows: Array) -> Array:
        """Raw samples (b, n) as the solver sees them (b, k); for a few of them, in the space of the frame."""
        centred = rows if self.mean is None else rows - self.mean
        return self.unit * (centred if self.inner is None else centred @ self.inner.T)

    def outward(self, A: Array) -> Array:
        """Rows (m, n) that make codes of unit mean square from raw, centred samples."""
        return self.unit * (A if self.inner is None else A @ self.inner)

    def inward(self, G: Array) -> Array:
        """Gradient (m, k) with respect to A from sum g(z) (unit (y - mean))^T."""
        return G if self.inner is None else G @ self.inner.T

    def inward_twice(self, H: Array) -> Array:
        """Matrices (m, k, k) from sums of w (y - mean) (y - mean)^T, up to the unit."""
        return H if self.inner is None else self.inner @ H @ self.inner.T

    def unmixing(self, A: Array) -> Array:
        """Rows (m, n) that make codes for the user: of unit variance if whitened, else in the units of the data."""
        rows = A if self.inner is None else A @ self.inner
        return self.unit * rows if self.whitened else rows

    def components(self, A: Array) -> Array:
        """Rows (m, n) that rebuild centred samples from those codes: the atoms."""
        rows = A if self.outer is None else A @ self.outer
        return rows / self.unit if self.whitened else rows

    def start(self, A: NDArray[np.float64]) -> NDArray[np.float64]:
        """Rows of a start drawn in all of space (m, n), seen from inside the frame (m, k).

        Written through the eigenvectors themselves, so that their arbitrary signs, and their arbitrary choice
        among equal eigenvalues, cancel: every array library walks the same road.
        """
        return A if self.inner is None else A @ _rows_of_unit_length(self.inner).T


def code_bound(survey: Survey, frame: Frame) -> float:
    """Largest absolute value that a code can take in the frame."""
    offset = 0.0 if frame.mean is None else float(np.linalg.norm(survey.mean / survey.unit))
    reach = (survey.peak + offset) / survey.rms
    stretch = 1.0 if frame.inner is None else float(np.linalg.norm(frame.inner, 2))
    return max(1.0, reach * stretch)


def _rows_of_unit_length(rows: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.asarray(rows / np.sqrt(np.sum(rows**2, axis=1, keepdims=True)))
