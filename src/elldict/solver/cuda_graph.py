"""The walk of a stage on a graphics card: a step, and a look at where it leads, recorded once and replayed as one.

A step on few samples takes the card a tenth of a millisecond, and the host ten times as long to ask for all of its
parts. So they are recorded as one graph, which works in memory of its own; the host asks for it, and reads five numbers
when it is done. The look at the last step is in vain, which is why looks that take long are not recorded.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, replace

from elldict.backend import torch as gpu
from elldict.backend.base import Array, Backend, storage_dtype
from elldict.data.dataset import ArrayDataset
from elldict.solver.directions import PairwiseNewton, lack_of_orthonormality, nearby_polar, polar, power_step
from elldict.solver.loop import (
    ROUNDING,
    Iterate,
    Phase,
    PhaseResult,
    Problem,
    Stepper,
    mean_error,
    smallest_useful_step,
    standard_error_of,
)
from elldict.solver.objective import Lp, Objective, Quantities, Statistics, evaluate
from elldict.solver.spike_slab import Coefficients, DeviceLaw, SpikeSlabLikelihood

MOST_WORK = 5e9
"""Samples times features times atoms up to which a look in vain does not matter."""

FIRST_STEPS = 2
"""Steps taken as they come, before one is recorded: libraries set themselves up in their first call."""

LEAST_ORTHONORMAL = 0.02
"""Lack of orthonormality from which a step by products has not worked."""

_set_up: set[object] = set()
"""Kinds of walks that have been recorded before."""


@dataclass(frozen=True)
class Place:
    """Memory for where a walk is."""

    A: Array  # (m, k)
    G: Array  # (m, k)
    rows: Array  # (number of other sums, m)
    law: Array | None  # (3, m) density, power and noise

    def take(self, other: Place) -> None:
        """Hold what the other holds."""
        self.A.copy_(other.A)
        self.G.copy_(other.G)
        self.rows.copy_(other.rows)
        if self.law is not None:
            self.law.copy_(other.law)


@dataclass(frozen=True)
class Numbers:
    """What the host wants to know of a step, and of where it leads."""

    objective: float
    length: float
    lack: float  # of orthonormality
    error: float
    same: float  # 1 if the law is the one before


class CudaGraphStepper(Stepper):
    """A walk between two places in memory, `here` and `there`; a graph leads from one to the other."""

    def __init__(self, problem: Problem, phase: Phase, A: Array) -> None:
        self.problem, self.phase, self.backend = problem, phase, Backend.of(A)
        self.graph: gpu.Graph | None = None
        self.n_steps = 0
        self.objective = self._owned(phase.objective)
        exponent = phase.objective.p if isinstance(phase.objective, Lp) else None
        self.kind = (self.backend.device, threading.get_ident(), A.shape, phase.precision, exponent)

    @classmethod
    def of(cls, problem: Problem, phase: Phase, A: Array) -> CudaGraphStepper | None:
        """A recorded walk, or None where nothing would be gained or a part of the stage cannot be recorded."""
        backend, samples = Backend.of(A), problem.samples
        if not (backend.can_capture and isinstance(samples, ArrayDataset)):
            return None
        short = problem.share < 1 or samples.n_samples * samples.n_features * int(A.shape[0]) <= MOST_WORK
        suitable = (
            short
            and samples.tile_rows >= samples.n_samples
            and type(phase.step) is PairwiseNewton
            and type(phase.objective) in (Lp, SpikeSlabLikelihood)
            and (phase.refit is None or phase.follow is not None)
            and phase.quantities == Quantities.GRADIENT | Quantities.MOMENTS
        )
        return cls(problem, phase, A) if suitable else None

    def begin(self, A: Array) -> Iterate:
        """The contrast of the stage, and its sums at A."""
        stats = self.problem.evaluate(A, self.objective, self.phase.quantities, self.phase.precision)
        law = None
        if isinstance(self.phase.objective, SpikeSlabLikelihood):
            law = self.backend.xp.stack(DeviceLaw.of(self.phase.objective.model, self.backend).parts)
        self.names = ["value", "slope", "g2", "z2", "gz", *stats.extra]
        self.there = Place(A + 0, stats.G + 0, self._rows(stats), law)
        empty = (None if part is None else self.backend.xp.empty_like(part) for part in vars(self.there).values())
        self.here = Place(*empty)
        self.view = self._viewed(stats)
        self.numbers = self.backend.xp.empty(
            len(Numbers.__dataclass_fields__), dtype=A.dtype, device=self.backend.device
        )
        self.inbox = gpu.Inbox(self.numbers)
        error = float(mean_error(stats))
        self.known = Numbers(stats.mean_value, 0.0, 0.0, error, 1.0)
        return self._point()

    def step(self, here: Iterate) -> tuple[Array, float]:  # noqa: ARG002
        """Where the step leads, and how far that is; the look at it is taken at once."""
        self.before = self.known
        self.n_steps += 1
        if self.graph is None and (self.n_steps > FIRST_STEPS or self.kind in _set_up):
            self.graph = gpu.Graph(self._advance)
            _set_up.add(self.kind)
        if self.graph is None:
            self._advance()
        else:
            self.graph.replay()
        self.known = self._read()
        if not self.known.lack < LEAST_ORTHONORMAL:  # NaN included
            self._arrive(self.phase.step(self.view, self.here.A))
            self.known = self._read()
        return self.there.A, self.known.length

    def follow(self, here: Iterate, moved: Array) -> Iterate:  # noqa: ARG002
        """Take the step, unless it lowers the objective; then the plain step, which cannot."""
        self._count()
        before, fall = self.before.objective, self.before.objective - self.known.objective
        if not fall <= ROUNDING[self.phase.precision] * abs(before) + self.phase.objective_slack:
            self._arrive(power_step(self.view, self.here.A))
            self.known = self._read()
            self._count()
        if not self.known.same:
            self.objective = replace(self.objective)  # type: ignore[type-var]  # another one, in the same memory
        return self._point()

    def enough(self, before: Iterate, here: Iterate, step: float) -> float:
        """Length of a step from `here` that is the last, `step` being the one at hand."""
        return smallest_useful_step(self.phase, before, here, step)

    def end(self, end: PhaseResult) -> PhaseResult:
        """The end of the walk, orthonormal to rounding, with the law of its codes on the host."""
        A = nearby_polar(end.A)
        if not float(lack_of_orthonormality(A)) < 1e-12:
            A = polar(end.A)
        objective = self.phase.objective
        if self.here.law is not None:
            assert isinstance(objective, SpikeSlabLikelihood)
            objective = SpikeSlabLikelihood(DeviceLaw(*self.here.law).on_host(objective.model.least_noise))
        return replace(end, A=A, objective=objective)

    def _advance(self) -> None:
        """From there, which becomes here, a step on. Asks the card for no number."""
        assert isinstance(self.phase.step, PairwiseNewton)
        self.here.take(self.there)
        self._arrive(self.phase.step.prefetcher(self.view, self.here.A))

    def _arrive(self, A: Array) -> None:
        """Look at A, a step away from here, and call it there."""
        xp = self.backend.xp
        squares = xp.sum((A - self.here.A) ** 2, axis=1)
        same = xp.ones_like(squares[0])
        if self.here.law is not None and self.phase.follow is not None:
            same = self.phase.follow(A, self.here.law, squares, self.there.law, self.coefficients)
        stats = evaluate(
            self.problem.samples, self.problem.whitening, self.objective, A, self.phase.quantities, self.phase.precision
        )
        self.there.A.copy_(A)
        self.there.G.copy_(stats.G)
        self.there.rows.copy_(self._rows(stats))
        numbers = (
            xp.mean(stats.value) / stats.weight,
            xp.sqrt(xp.mean(squares)),
            lack_of_orthonormality(A),
            mean_error(stats),
            same,
        )
        self.numbers.copy_(xp.stack(numbers))
        self.inbox.send(self.numbers)

    def _read(self) -> Numbers:
        return Numbers(*self.inbox.read())

    def _count(self) -> None:
        self.problem.count_pass(self.known.objective)

    def _point(self) -> Iterate:
        """Where the walk is, seen from the next step on, when what is there has been taken here."""
        stats = replace(self.view, known_mean=self.known.objective)
        return Iterate(self.here.A, self.objective, stats, standard_error_of(self.known.error))

    def _rows(self, stats: Statistics) -> Array:
        own = [getattr(stats, name) for name in self.names[:5]]
        return self.backend.xp.stack(own + [stats.extra[name] for name in self.names[5:]])

    def _viewed(self, stats: Statistics) -> Statistics:
        """Sums in the memory of here."""
        rows = dict(zip(self.names, self.here.rows, strict=True))
        own = {name: rows.pop(name) for name in self.names[:5]}
        return replace(stats, G=self.here.G, extra=rows, **own)

    def _owned(self, objective: Objective) -> Objective:
        """The contrast with lines in memory of its own, to be written over."""
        if not isinstance(objective, SpikeSlabLikelihood):
            return objective
        dtype = storage_dtype(self.phase.precision)
        coefficients = Coefficients.of(objective.model, self.backend, dtype)
        xp = self.backend.xp
        halves = xp.stack([coefficients.offset, coefficients.rate])
        others = xp.stack([coefficients.steep, coefficients.kept, coefficients.precision, coefficients.level])
        self.coefficients = (halves, others)
        return SpikeSlabLikelihood(objective.model, known={(self.backend, dtype): Coefficients(*halves, *others)})
