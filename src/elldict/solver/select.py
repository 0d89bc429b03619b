"""Choice of the pilot and the model that the likelihood starts from."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from elldict.samples.base import Array
from elldict.samples.normalization import Normalization
from elldict.samples.order import Order, map_rows
from elldict.samples.statistics import count_samples
from elldict.samples.subsample import Subset
from elldict.solver.climb import NO_JOURNAL, Journal, NewtonAscent, Observer, Reason, State, T, climb
from elldict.solver.density import Density
from elldict.solver.objectives import Objective, SignedLp, SmoothNorm
from elldict.solver.starts import find_start
from elldict.solver.steps import QuasiNewton

PILOT_DONE, DONE = 1 / 256, 1 / 16  # fraction of the rise by chance at which a climb ends: pilot, likelihood
RACE_DONE = 1 / 64  # the same for pilots that are to be compared
PILOT_ITER = 60  # maximum number of iterations of a pilot
FOLDS = 4  # of the cross-validation for few samples
CLEAR = 2.0  # standard errors beyond which a gain needs no further folds

L1, FLAT = "l1", "-l4"  # names of pilots

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
    density: Density


@dataclass(frozen=True)
class Climber:
    """Options and record shared by all climbs of a fit."""

    max_iter: int
    least_blur: float = 0.0
    observers: Sequence[Observer] = ()
    journal: Journal = NO_JOURNAL
    climbs: list[tuple[float, int, Reason]] = field(default_factory=list)  # sample size, iterations, reason to end

    def climb_pilot(
        self, subset: Subset, A: Array, pilot: Pilot, max_iter: int = PILOT_ITER, done: float = PILOT_DONE
    ) -> State:
        """Maximise the objective of a pilot."""
        ascent = NewtonAscent(view(subset, pilot.sees), done)
        return self._climb(State(A, pilot.objective), ascent, min(max_iter, self.max_iter))

    def climb_likelihood(self, subset: Subset, state: State, model: Model) -> State:
        """Maximise the likelihood of a model, from the state of another climb."""
        ascent = NewtonAscent(view(subset, model), DONE, self.least_blur)
        return self._climb(State(state.A, state.objective, blur=state.blur), ascent, self.max_iter)

    def climb_freely(self, subset: Subset, state: State) -> State:
        """Maximise the likelihood over all invertible matrices, from the state of another climb."""
        state = State(state.A, state.objective, step=QuasiNewton(is_orthogonal=False), blur=state.blur)
        return self._climb(state, NewtonAscent(subset, DONE), self.max_iter)

    def _climb(self, state: State, ascent: NewtonAscent, max_iter: int) -> State:
        """Run and record a climb; after an observer has stopped one, no other starts."""
        if self.was_stopped:
            return replace(state, reason=Reason.STOPPED)
        state = climb(state, ascent, max_iter, self.observers, self.journal)
        self.climbs.append((count_samples(ascent.samples.samples), state.iteration, state.reason))
        return state

    def once(self, compute: Callable[[], T]) -> T:
        """Return a result of climbs, computed or stored with their record."""
        result, self.climbs[:] = self.journal.once(lambda: (compute(), tuple(self.climbs)))
        return result

    @property
    def was_stopped(self) -> bool:
        """Whether an observer has stopped a climb."""
        return bool(self.climbs) and self.climbs[-1][2] is Reason.STOPPED


def view(subset: Subset, model: Model) -> Subset:
    """Return the samples whose codes are independent under a model."""
    return subset if model is None else subset.normalize(model)


def list_pilots(p: float, models: Sequence[Model], *, flat: bool, refine: bool) -> list[Pilot]:
    """List pilots: l_1 for sparse codes, signed l_p for codes of mixed kinds, minus l_4 for sub-Gaussian ones.

    Scaled samples are for l_1 alone if other models may be chosen. Without refinement l_p is the only one.
    """
    lp = Pilot(f"l{p:g}", SignedLp(p) if p > 2 else SmoothNorm(p), models[0], models[:1])
    if not refine:
        return [lp]
    pilots = [Pilot(L1, SmoothNorm(), models[-1], models)]
    if p != 1:
        pilots.append(lp)
    return [*pilots, Pilot(FLAT, SignedLp(4, flat=True), models[0], models[:1])] if flat else pilots


def repeat_pilot(name: str, p: float, models: Sequence[Model], model: Model, *, refine: bool) -> Pilot:
    """Return the pilot of this name, for a given model only."""
    pilots = list_pilots(p, models, flat=True, refine=refine)
    return next(replace(pilot, suits=[model]) for pilot in pilots if pilot.name == name)


def are_flat(order: Order, n: int) -> bool:
    """Return whether norms vary less than those of Gaussian samples (Mardia's kurtosis)."""
    return order.average(order.squares**2) < (1 + 2 / n) * order.average(order.squares) ** 2


def judge(
    subset: Subset, order: Order, A: Array, model: Model, density: Density, blur: Array | None = None
) -> tuple[float, Density]:
    """Compute the log-likelihood per sample for atoms A: each half under the densities of the other."""
    judged, n = density.judge(view(subset, model).encode(A), blur), len(A)
    value = judged.value + float(np.linalg.slogdet(A[:, :n])[1])  # zero for orthonormal atoms
    if model is not None:
        value += order.average(model.log_determinant(order.squares, n))
    return value, judged


def choose_candidate(subset: Subset, order: Order, pilots: Sequence[Pilot], climber: Climber) -> Candidate:
    """Run the pilots, and choose the pair of pilot and model with the highest held-out likelihood."""
    start, density = find_start(subset.white), None
    candidates: list[Candidate] = []
    for pilot in pilots:
        A = climber.climb_pilot(subset, start, pilot, done=RACE_DONE).A
        for model in pilot.suits:
            value, density = judge(subset, order, A, model, Density.begin(len(A), density))
            candidates.append(Candidate(pilot, A, model, value, density))
    return max(candidates, key=lambda candidate: candidate.value)


def choose_model(subset: Subset, order: Order, state: State, models: Sequence[Model]) -> Model:
    """Choose the model again, with the narrower densities of a climb."""
    assert isinstance(state.objective, Density)
    density = Density.begin(len(state.A), state.objective)
    values = [judge(subset, order, state.A, model, density, get_widths(state))[0] for model in models]
    return models[int(np.argmax(values))]


def get_widths(state: State) -> Array:
    """Return the narrowest widths (m,) of the densities at the end of a likelihood climb."""
    assert isinstance(state.objective, Density)
    return state.objective.narrowest


def cross_validate(gather: Callable[[Order], Subset], order: Order, candidate: Candidate, climber: Climber) -> bool:
    """Return whether the likelihood improves on its pilot in cross-validation, with atoms fitted per fold.

    Folds are evaluated until the difference is clear.
    """
    gain, variance, fold = 0.0, 0.0, order.assign_parts(FOLDS)
    for k in range(FOLDS):
        kept, held_out = gather(order.keep(fold != k)), gather(order.keep(fold == k))
        first = climber.climb_pilot(kept, candidate.A, candidate.pilot).A
        density = Density.begin(len(first), candidate.density)
        state = climber.climb_likelihood(kept, State(first, density), candidate.model)
        after = judge_on(kept, held_out, state.A, candidate.model, density, get_widths(state))
        difference = after - judge_on(kept, held_out, first, candidate.model, density)
        weights = np.ones(len(difference)) if held_out.samples.weights is None else held_out.samples.weights
        gain += float(np.sum(weights * difference))
        variance += float(np.sum(weights * difference**2))
        if abs(gain) > CLEAR * math.sqrt(variance):
            break
    return gain > 0


def judge_on(
    kept: Subset, held_out: Subset, A: Array, model: Model, density: Density, blur: Array | None = None
) -> Array:
    """Compute the log-likelihood (r,) of held-out samples."""
    fitted = density.refit(view(kept, model).encode(A), blur, choose=True)
    return map_rows(view(held_out, model).encode(A).samples, lambda Z: np.sum(fitted.log_density(Z), axis=1))
