"""What a fit returns, in the units and coordinates of the user."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from elldict.samples.base import Array, Index
from elldict.solver.climb import Reason, State
from elldict.warnings import Finding


@dataclass(frozen=True)
class Result:
    """Components in their order and with their signs, and what is known of them."""

    mixing: Array  # (n, m) columns that make centred samples
    unmixing: Array  # (m, n) rows that make codes of centred samples
    mean: Array  # (n,)
    code_std: Array  # (m,)
    component_errors: Array  # (m,) 1 - cos^4 of each column
    is_exact: bool  # up to rounding
    has_replicates: bool  # errors come from fits to parts of the samples
    objective: float  # mean of |code|^p
    state: State
    pilot: str  # the objective from whose maximum the likelihood was climbed
    is_pilot: bool  # whether that was the end
    is_normalized: bool  # whether the codes of normalised samples were taken for independent
    n_iter: int
    n_passes: float
    findings: tuple[Finding, ...] = ()

    @property
    def status(self) -> str:
        """How the last climb ended, and what it climbed."""
        if self.pilot == "":
            return self.state.reason.value
        if self.is_pilot:
            return f"{self.state.reason.value}; {self.pilot}, which the likelihood does not improve on or was not to"
        model = "normalised samples" if self.is_normalized else "samples as they are"
        return f"{self.state.reason.value}; likelihood of {model}, from {self.pilot}"

    @property
    def converged(self) -> bool:
        """Whether the last climb ended by itself."""
        return self.state.reason in (Reason.SMALL_RISE, Reason.SMALL_STEP, Reason.ROUNDING)


def order_and_sign(codes_p: Array, columns: Array) -> tuple[Index, Array]:
    """Order (m,) by decreasing sum of |code|^p, and signs (m,) that make the largest entry of each column positive."""
    order = np.argsort(-codes_p, kind="stable")
    largest = columns[np.argmax(np.abs(columns), axis=0), np.arange(columns.shape[1])]
    return order, np.where(largest < 0, -1.0, 1.0)[order]
