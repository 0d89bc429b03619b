"""What a fit reports while it runs, and what it returns: iterations, iterates, the estimate, the result."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from elldict._old.backend.base import Array

if TYPE_CHECKING:
    from elldict._old.data.whitening import Loudness
    from elldict._old.solver.amp import CorruptionLaw
    from elldict._old.solver.evaluate import Statistics
    from elldict._old.solver.mixed_atoms import MixedPair
    from elldict._old.solver.mixture import MixtureLaw
    from elldict._old.solver.objective import Objective
    from elldict._old.solver.spike_slab import SpikeSlab


@dataclass(frozen=True)
class Iteration:
    """One iteration of a fit, as seen by a callback and kept in ``history_``.

    Attributes
    ----------
    start : int
        Which random start this belongs to, counted from 0.
    stage : int
        Which phase of that start, counted from 0.
    iteration : int
        Counted from 1 within the start.
    objective : float
        Mean of ``|code|**p`` over samples and atoms before the step, for samples scaled to unit mean square.
    step : float
        Root mean square, over atoms, of the distance moved.
    passes : float
        Passes over all samples since the fit began, with the first for their statistics and those of all starts.
    seconds : float
        Time since the fit began.
    components : array of shape (n_components, n_features) or None
        Atoms before the step, in the order of the solver. For the callback alone: ``history_`` holds None.

    Examples
    --------
    >>> from elldict import LpDictionaryLearning
    >>> from elldict.datasets import make_bernoulli_gaussian
    >>> X, _, _ = make_bernoulli_gaussian(2000, 8, density=0.3, random_state=0)
    >>> model = LpDictionaryLearning(random_state=0).fit(X, callback=lambda it: it.iteration == 3)
    >>> model.history_[-1].iteration
    3
    """

    start: int
    stage: int
    iteration: int
    objective: float
    step: float
    passes: float
    seconds: float
    components: Array | None = field(default=None, repr=False, compare=False)


Callback = Callable[[Iteration], bool | None]
"""Called after each iteration; True stops the fit."""


@dataclass(frozen=True)
class Iterate:
    """Where a phase is: A, the objective in use, and its statistics there."""

    A: Array  # (m, k), orthonormal rows, in whitened coordinates
    objective: Objective
    stats: Statistics
    standard_error: float | None = None  # root mean square angle of the error bar, if it is known already


@dataclass(frozen=True)
class Estimate:
    """Where phases ended, and why; and what is known of the codes there once it is chosen."""

    A: Array  # (m, k), orthonormal rows, in whitened coordinates
    objective: Objective  # the one that A maximises
    stats: Statistics  # of that objective at A, or one step before it if the final evaluation was skipped
    converged: bool
    stopped: bool  # by the callback
    status: str
    n_iter: int = 0
    given_up: bool = False  # samples are too few to find atoms from a random start
    lp_stats: Statistics | None = None  # of l_p at A, of cleaned samples if they were cleaned
    law: SpikeSlab | None = None  # of the codes at A
    mixture: MixtureLaw | None = None  # of the same codes, if they follow no spike-and-slab law
    refined: str | None = None
    corruption: CorruptionLaw | None = None  # by which atoms were found: hits count as Gaussian
    cleaning: CorruptionLaw | None = None  # by which samples are cleaned, and hits are counted
    uncleaned: bool = False  # samples were to be cleaned, and were not
    cleaning_factor: float = 1.0  # by which errors are larger than if cleaned samples had been given
    mixed: tuple[MixedPair, ...] = ()  # atoms that still seem to be mixed with each other
    competing: NDArray[np.float64] | None = None  # errors (m,) if another basis that was found is true
    loudness: Loudness | None = None  # by which the samples of `stats` were normalised


@dataclass(frozen=True)
class FitResult:
    """What a user gets: atoms in their order and with their signs, on the host, and what is known of them."""

    components: NDArray[np.float64]  # (m, n) atoms
    unmixing: NDArray[np.float64]  # (m, n) rows that make their codes
    mean: NDArray[np.float64]  # (n,)
    density: NDArray[np.float64]  # (m,) law of the codes, in the units of the codes
    scale: NDArray[np.float64]  # (m,)
    noise_std: float
    atom_error: NDArray[np.float64]  # (m,)
    expected_error: float
    rest: NDArray[np.float64]  # (k - m, n) rows for the directions in which samples vary and that belong to no atom
    rest_std: float
    code_std: NDArray[np.float64]  # (m,) root mean square of the codes of all samples
    mixture: MixtureLaw | None = None  # laws of the codes in place of density, scale and noise; not of unused atoms
    cleaning: CorruptionLaw | None = None  # laws of codes and corruption of samples that are cleaned, in units of X
    corruption_rate: float = 0.0
    corruption_scale: float = 0.0
    objective: float = 0.0
    converged: bool = False
    status: str = ""
    refined: str | None = None
    n_iter: int = 0
    n_passes: float = 0.0
    history: tuple[Iteration, ...] = ()
    warnings: tuple[tuple[str, str], ...] = ()  # category and text of each
    split_halves: bool = False  # errors include the comparison of fits to two halves
