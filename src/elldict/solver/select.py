"""Choice of the pilot and the model that the likelihood starts from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from elldict.samples.base import Array, Samples
from elldict.samples.normalization import Normalization
from elldict.samples.order import Order
from elldict.samples.subsample import Subset, gather
from elldict.solver.climb import NewtonAscent, Observer, Reason, State, climb
from elldict.solver.density import Density
from elldict.solver.objectives import MinusL4, Objective, SignedLp, SmoothL1
from elldict.solver.starts import find_start

PILOT_DONE, DONE = 1 / 256, 1 / 4  # fraction of the rise by chance at which a climb ends: pilot, likelihood
PILOT_ITER = 60  # maximum number of iterations of a pilot
FOLDS = 4  # of the cross-validation for few samples

Model = Normalization | None
"""Samples whose codes are independent: normalised samples, or raw samples (None)."""


@dataclass(frozen=True)
class Pilot:
    """An objective without a density, and the samples it is applied to."""

    name: str
    objective: Objective
    sees: Model
    suits: Sequence[Model]  # models for which it may be the pilot


@dataclass(frozen=True)
class Candidate:
    """A pilot with its final atoms, a model, and their held-out log-likelihood per sample."""

    pilot: Pilot
    A: Array
    model: Model
    value: float


@dataclass(frozen=True)
class Climber:
    """Options and record shared by all climbs of a fit."""

    max_iter: int
    least_blur: float = 0.0
    observers: Sequence[Observer] = ()
    climbs: list[tuple[int, int, Reason]] = field(default_factory=list)  # sample size, iterations, reason to end

    def climb_pilot(self, subset: Subset, A: Array, pilot: Pilot, max_iter: int = PILOT_ITER) -> State:
        """Maximise the objective of a pilot."""
        ascent = NewtonAscent(view(subset, pilot.sees), PILOT_DONE)
        return self._climb(State(A, pilot.objective), ascent, min(max_iter, self.max_iter))

    def climb_likelihood(self, subset: Subset, state: State, model: Model) -> State:
        """Maximise the likelihood of a model, from the state of another climb."""
        ascent = NewtonAscent(view(subset, model), DONE, self.least_blur)
        return self._climb(State(state.A, state.objective), ascent, self.max_iter)

    def _climb(self, state: State, ascent: NewtonAscent, max_iter: int) -> State:
        """Run and record a climb; after an observer has stopped one, no other starts."""
        if self.was_stopped:
            return replace(state, reason=Reason.STOPPED)
        state = climb(state, ascent, max_iter, self.observers)
        self.climbs.append((ascent.samples.shape[0], state.iteration, state.reason))
        return state

    @property
    def was_stopped(self) -> bool:
        """Whether an observer has stopped a climb."""
        return bool(self.climbs) and self.climbs[-1][2] is Reason.STOPPED


def view(subset: Subset, model: Model) -> Subset:
    """Return the samples whose codes are independent under a model."""
    return subset if model is None else subset.normalize(model)


def list_pilots(p: float, models: Sequence[Model], *, flat: bool) -> list[Pilot]:
    """List pilots: l_1 for sparse codes, signed l_p for codes of mixed kinds, minus l_4 for sub-Gaussian ones."""
    pilots = [Pilot("l1", SmoothL1(), models[-1], models), make_lp_pilot(p, models)]
    return [*pilots, Pilot("l4", MinusL4(), models[0], models[:1])] if flat else pilots


def make_lp_pilot(p: float, models: Sequence[Model]) -> Pilot:
    """Make the l_p pilot, which is not used with normalised samples if other models may be chosen."""
    return Pilot(f"l{p:g}", SignedLp(p), models[0], models[:1])


def are_flat(order: Order, n: int) -> bool:
    """Return whether norms vary less than those of Gaussian samples (Mardia's kurtosis)."""
    return bool(np.mean(order.squares**2) < (1 + 2 / n) * np.mean(order.squares) ** 2)


def judge(subset: Subset, order: Order, A: Array, model: Model, blur: Array | None = None) -> float:
    """Compute the log-likelihood per sample for atoms A: each half under the densities of the other."""
    value = Density.begin(len(A)).refit(view(subset, model).encode(A), blur).value
    if model is None:
        return value
    return value + float(np.mean(model.log_determinant(order.squares, A.shape[1])))


def choose_candidate(subset: Subset, order: Order, pilots: Sequence[Pilot], climber: Climber) -> Candidate:
    """Run all pilots, and choose the pair of pilot and model with the highest held-out likelihood."""
    start, candidates = find_start(subset.samples), []
    for pilot in pilots:
        A = climber.climb_pilot(subset, start, pilot).A
        candidates += [Candidate(pilot, A, model, judge(subset, order, A, model)) for model in pilot.suits]
    return max(candidates, key=lambda candidate: candidate.value)


def choose_model(subset: Subset, order: Order, state: State, models: Sequence[Model]) -> Model:
    """Choose the model again, with the narrower densities of a climb."""
    return max(models, key=lambda model: judge(subset, order, state.A, model, get_widths(state)))


def get_widths(state: State) -> Array:
    """Return the narrowest widths (m,) of the densities at the end of a likelihood climb."""
    assert isinstance(state.objective, Density)
    return state.objective.narrowest


def is_worth_climbing(samples: Samples, order: Order, candidate: Candidate, climber: Climber) -> bool:
    """Return whether the likelihood improves on its pilot in cross-validation, with atoms fitted per fold."""
    gain, fold = 0.0, order.assign_parts(FOLDS)
    for k in range(FOLDS):
        kept, held_out = gather(samples, order.keep(fold != k)), gather(samples, order.keep(fold == k))
        first = climber.climb_pilot(kept, find_start(kept.samples), candidate.pilot).A
        state = climber.climb_likelihood(kept, State(first, Density.begin(len(first))), candidate.model)
        gain += judge_on(kept, held_out, state.A, candidate.model, get_widths(state))
        gain -= judge_on(kept, held_out, first, candidate.model, None)
    return gain > 0


def judge_on(kept: Subset, held_out: Subset, A: Array, model: Model, blur: Array | None) -> float:
    """Compute the log-likelihood of held-out samples."""
    density = Density.begin(len(A)).refit(view(kept, model).encode(A), blur)
    return float(view(held_out, model).encode(A).sum(lambda Z, half: density.judge(Z)))  # noqa: ARG005
