"""Iterations of a fit, as passed to a callback and kept in `history_`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from time import perf_counter

from elldict.samples.base import Array
from elldict.solver.climb import State


@dataclass(frozen=True)
class Iteration:
    """One iteration of a fit, as passed to a callback and kept in ``history_``.

    Attributes
    ----------
    stage : int
        Number of the climb, counted from 0: pilots come first, then the likelihood on increasingly many samples. Each
        climb maximises its own objective on its own samples.
    iteration : int
        Number of the iteration, counted from 1 over all climbs.
    objective : float
        Objective of the climb per sample, at the components before the step.
    step : float
        Length of the step: root mean square over components.
    seconds : float
        Time since the fit began.
    components : ndarray of shape (n_components, n_features) or None
        Components after the step, in the coordinates of the solver: those of X, or whitened ones. They are orthonormal
        but for those of whitened samples in the last climbs. For callbacks only: None in ``history_``.

    Examples
    --------
    >>> from elldict.datasets import make_bernoulli_gaussian
    >>> from elldict import LpDictionaryLearning
    >>> X, _, _ = make_bernoulli_gaussian(2000, 8, density=0.3, random_state=0)
    >>> model = LpDictionaryLearning().fit(X, callback=lambda iteration: iteration.iteration == 3)
    >>> model.history_[-1].iteration
    3
    """

    stage: int
    iteration: int
    objective: float
    step: float
    seconds: float
    components: Array | None = field(default=None, repr=False, compare=False)


Callback = Callable[[Iteration], bool | None]
"""Called after each iteration; stops the fit by returning True."""


class Recorder:
    """Observer of a fit that keeps its history and calls callbacks."""

    def __init__(self, callbacks: Sequence[Callback] = ()) -> None:
        self.callbacks = callbacks
        self.history: list[Iteration] = []
        self.began = perf_counter()

    def __call__(self, state: State) -> bool:
        """Record a state, and return whether a callback stops the fit."""
        before = self.history[-1].stage if self.history else 0
        stage = before + (state.iteration == 1 and bool(self.history))
        seconds = perf_counter() - self.began
        A = state.A if state.step.is_orthogonal else state.A[:, : len(state.A)]  # without a constant
        iteration = Iteration(stage, len(self.history) + 1, state.value, state.length, seconds, A.copy())
        self.history.append(replace(iteration, components=None))
        stops = [callback(iteration) for callback in self.callbacks]
        return any(stops)
