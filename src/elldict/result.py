"""What the loop reports while it runs and returns when it ends."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from elldict.backend.base import Array, Backend
from elldict.solver.objective import Objective, Statistics


@dataclass(frozen=True)
class Iteration:
    """One iteration of a fit, as seen by a callback and kept in ``history_``.

    Attributes
    ----------
    start : int
        Which random start this belongs to, counted from 0.
    stage : int
        Which stage of that start, counted from 0.
    iteration : int
        Counted from 1 within the start.
    objective : float
        Mean of ``|code|**p`` over samples and atoms before the step, for samples scaled to unit mean square.
    step : float
        Root mean square, over atoms, of the distance moved.
    passes : float
        Looks at the whole data since the fit began, the survey and all starts included.
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


def in_space(callback: Callback | None, backend: Backend) -> Callback | None:
    """The same callback, which is shown components in a space whatever the fit works in."""
    if callback is None:
        return None

    def shown(iteration: Iteration) -> bool | None:
        return callback(replace(iteration, components=backend.asarray(iteration.components, "float64")))

    return shown


@dataclass(frozen=True)
class Solution:
    """Where one start ended."""

    A: Array  # (m, k), orthonormal rows, inside the frame
    objective: Objective  # the one that A maximises
    stats: Statistics  # value and moments at A, over all samples
    iterations: tuple[Iteration, ...]
    converged: bool
    stopped: bool  # by the callback
    status: str

    @property
    def value(self) -> float:
        """Mean of the contrast over samples and atoms."""
        return self.stats.mean_value
