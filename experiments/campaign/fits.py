"""One data set in, the error that a fit states and the true one out."""

from __future__ import annotations

import time
import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np

from elldict.metrics import match_atoms, recovery_error
from experiments.campaign.kinds import Case
from experiments.campaign.laws import Matrix
from experiments.harness.store import DONE, FAILED, Record

EXACT = 1e-9
"""Errors below are none: steps of a fit end at about the root of this."""

FALSE_EXACT = 1e-6
"""A true error above, with a stated one that says exact, is not a matter of rounding."""

ORTHONORMAL = 1e-6
"""Departure from orthonormal rows up to which the error of orthonormal atoms is the one to measure."""

FIRST_WORDS = 8
"""Of a warning: enough to tell it from others."""


@dataclass(frozen=True)
class Comparison:
    """Stated error and true error of one fit."""

    true: float
    stated: float | None  # None: not a number
    warnings: tuple[str, ...]

    @property
    def warned(self) -> bool:
        """Whether the fit said that something is wrong."""
        return bool(self.warnings)

    @property
    def exact(self) -> bool:
        """Whether both errors are none."""
        return self.stated is not None and max(self.true, self.stated) < EXACT

    @property
    def false_exact(self) -> bool:
        """Whether a fit says that atoms are exact, and they are not."""
        return self.stated is not None and self.stated < EXACT and self.true > FALSE_EXACT

    @property
    def ratio(self) -> float:
        """Stated error over true error, both at least `EXACT`; 0 if none is stated."""
        return 0.0 if self.stated is None else max(self.stated, EXACT) / max(self.true, EXACT)


def measure_error(components: Matrix, atoms: Matrix) -> float:
    """Error as `expected_error_` states it.

    Of orthonormal atoms `recovery_error`; of others 1 - mean cos^4 of matched atoms, which is twice the mean squared
    angle where that is small, and where both are defined the same.
    """
    if is_orthonormal(components) and is_orthonormal(atoms):
        return max(recovery_error(components, atoms), 0.0)
    return float(1 - np.mean(match_atoms(components, atoms).cosines ** 4))


def is_orthonormal(rows: Matrix) -> bool:
    """Whether rows are orthonormal to rounding."""
    return float(np.max(np.abs(rows @ rows.T - np.eye(len(rows))))) < ORTHONORMAL


def run_case(case: Case) -> Record:
    """Draw, fit, and compare; a fit that raises is a failed record."""
    samples = case.draw()
    estimator = samples.estimator(random_state=case.seed, **samples.options)
    began = time.perf_counter()
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            estimator.fit(samples.X)
    except Exception as error:  # a fit that raises is a finding as well
        return Record(case.identity, FAILED, {}, repr(error), {"seconds": time.perf_counter() - began})
    seconds = time.perf_counter() - began
    known = np.isfinite(estimator.atom_error_)  # atoms beyond the rank of the samples are none
    stated = float(estimator.expected_error_)
    values = {
        "true": measure_error(np.asarray(estimator.mixing_.T)[known], samples.atoms),
        "stated": stated if np.isfinite(stated) else None,
        "warnings": describe_warnings(caught),
        "refined": estimator.refined_,
        "fit_status": estimator.status_,
        "n_passes": round(float(estimator.n_passes_), 2),
    }
    return Record(case.identity, DONE, values, "", {"seconds": round(seconds, 4)})


def describe_warnings(caught: list[warnings.WarningMessage]) -> list[str]:
    """Category and first words of each."""
    return [f"{each.category.__name__}: {' '.join(str(each.message).split()[:FIRST_WORDS])}" for each in caught]


def compare(row: dict[str, Any]) -> Comparison:
    """Read a row of a record back."""
    return Comparison(row["true"], row["stated"], tuple(row["warnings"]))
