"""A stage: one contrast, one step, one precision, and when to stop."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from elldict.solver.contrasts import Contrast
from elldict.solver.steps import Step
from elldict.solver.sums import Sums
from elldict.solver.terms import Needs
from elldict.space import Array

Refit = Callable[[Contrast, Array, float], Contrast]
"""From the contrast in use, A, and the longest move of an atom on the way there, to the contrast that fits at A."""


class Follow(Protocol):
    """Writes the law of codes that fits at A, or the old one if it hardly differs, and its lines; see `Witnesses`."""

    def __call__(self, A: Array, old: Array, squares: Array, law: Array, lines: tuple[Array, Array]) -> Array:
        """Return 1 if it is the old law, otherwise 0, as an array of one number."""
        ...


@dataclass(frozen=True)
class Stage:
    """What the loop does until A stops moving."""

    contrast: Contrast
    step: Step
    precision: str  # of the products; sums are float64
    tol: float  # on the root mean square, over atoms, of the length of the step
    max_iter: int
    need: Needs = Needs.GRADIENT
    refit: Refit | None = None
    slack: float = 0.0  # fall of the objective that a refit alone can cause
    resolution: float = 0.0  # share of the angle that the error bar speaks of, below which steps are of no use
    hopeless: Callable[[Sums], bool] | None = None  # asked once, whether to go on is of no use
    follow: Follow | None = None  # the same as refit, for whoever cannot leave the device
    provisional: bool = False  # where it ends, the next one begins: nobody has to look there
    restless: bool = False  # other samples in every look: objectives do not compare, and steps never come to rest


@dataclass(frozen=True)
class Point:
    """Where a run is: A, the contrast in use, and its sums there."""

    A: Array
    contrast: Contrast
    sums: Sums
    doubt: float | None = None  # angle that the error bar leaves in doubt, if it is known


@dataclass(frozen=True)
class Halt:
    """Where a stage ended, and why."""

    A: Array
    contrast: Contrast
    sums: Sums  # of the last look, a step before A
    converged: bool
    stopped: bool
    status: str


SAFE_DIGITS = {"float32": 30, "float64": 280}
"""Powers of ten left for the largest term, g^2 = |z|^(2p-2): the range of the type, less what a sum needs."""


def precision_for(p: float, *, dtype: str, code_bound: float) -> str:
    """Precision in which the contrast of codes of this size does not overflow.

    Parameters
    ----------
    p : float
        Exponent of the contrast.
    dtype : str
        Precision of the samples.
    code_bound : float
        Largest code possible, in units of the root mean square.
    """
    digits = (2 * p - 2) * math.log10(code_bound)
    if dtype == "float32" and digits <= SAFE_DIGITS["float32"]:
        return "float32"
    if digits <= SAFE_DIGITS["float64"]:
        return "float64"
    largest_p = 1 + SAFE_DIGITS["float64"] / math.log10(code_bound) / 2
    raise ValueError(
        f"p={p:g} is too large for these samples: the largest is {code_bound:.3g} times the root mean square, and "
        f"{code_bound:.3g}**(2 p - 2) overflows. Use p <= {largest_p:.0f}, or remove outliers."
    )
