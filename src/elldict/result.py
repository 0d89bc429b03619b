"""The result of a fit, in the units and coordinates of the input."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from elldict.samples.base import Array, Index
from elldict.samples.normalization import Normalization
from elldict.solver.climb import Reason, State
from elldict.solver.density import Density
from elldict.warnings import Finding

if TYPE_CHECKING:
    from elldict.corruption.prior import Prior


@dataclass(frozen=True)
class Result:
    """Sorted components with fixed signs, and their properties."""

    mixing: Array  # (n, m) maps codes to centred samples
    unmixing: Array  # (m, n) maps centred samples to codes
    mean: Array  # (n,)
    code_std: Array  # (m,)
    component_errors: Array  # (m,) 1 - cos^4 of each column
    is_exact: bool  # up to rounding errors
    has_replicates: bool  # whether the errors come from fits to parts of the samples
    objective: float  # mean of |code|^p, in whitened coordinates
    density: Density  # of the codes that `unmixing` makes; if there is a normalization, of normalised codes
    normalization: Normalization | None  # of samples whose normalised codes are independent
    state: State
    pilot: str  # objective whose maximum is the start of the likelihood
    is_pilot: bool  # whether the fit ended with the pilot
    is_orthogonal: bool  # whether codes are uncorrelated, or atoms orthonormal
    whitening: Array  # (k, n) maps centred samples to the coordinates in which the rotation began
    n_iter: int
    n_passes: float
    refine: str | None = "auto"  # the likelihood that was asked for
    corruption: Prior | None = None  # distributions of codes and errors, if samples have sparse corruption
    findings: tuple[Finding, ...] = ()

    @property
    def status(self) -> str:
        """Why the last climb ended, and which objective it maximised."""
        if self.pilot == "":
            return self.state.reason.value
        if self.corruption is not None:
            return f"{self.state.reason.value}; likelihood of samples with sparse corruption"
        if self.is_pilot:
            corrupted = self.refine == "sparse-corruption"
            why = "sparse corruption does not explain the samples" if corrupted else "likelihood not requested, or no"
            return f"{self.state.reason.value}; {self.pilot} only: {why} better"
        model = "raw samples" if self.normalization is None else "normalised samples"
        matrices = "" if self.is_orthogonal else " over all invertible matrices"
        return f"{self.state.reason.value}; likelihood of {model}{matrices}, from {self.pilot}"

    @property
    def converged(self) -> bool:
        """Whether the last climb converged."""
        return self.state.reason in (Reason.SMALL_RISE, Reason.NO_RISE, Reason.SMALL_STEP, Reason.ROUNDING)


def order_and_sign(sizes: Array, columns: Array) -> tuple[Index, Array]:
    """Sort (m,) by decreasing size; signs (m,) make the largest entry of each column positive."""
    order = np.argsort(-sizes, kind="stable")
    largest = columns[np.argmax(np.abs(columns), axis=0), np.arange(columns.shape[1])]
    return order, np.where(largest < 0, -1.0, 1.0)[order]
