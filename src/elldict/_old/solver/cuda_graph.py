"""Steps of a phase on a graphics card: a step and the pass after it, captured once as a CUDA graph and replayed.

A step on few samples takes the card a tenth of a millisecond, and the host ten times as long to ask for all of its
parts. So they are captured as one graph, which works in memory of its own; the host asks for it, and reads some numbers
when it is done. The pass after the last step is in vain, which is why passes that take long are not captured.
"""

from __future__ import annotations

import math
import threading
from dataclasses import dataclass, replace

from elldict._old.backend import torch as gpu
from elldict._old.backend.base import STORED, Array, Backend
from elldict._old.data.dataset import ArrayDataset
from elldict._old.result import Estimate, Iterate
from elldict._old.solver.code_subsample import CodeSubsample
from elldict._old.solver.directions import (
    PairwiseNewton,
    lack_of_orthonormality,
    orthonormalize,
    polar,
    polar_nearby,
    power_step,
)
from elldict._old.solver.evaluate import Statistics, evaluate
from elldict._old.solver.loop import OBJECTIVE_ROUNDING, Phase, Problem, Stepper, mean_error, to_standard_error
from elldict._old.solver.objective import Lp, Objective, Quantities
from elldict._old.solver.spike_slab import Coefficients, SpikeSlab, SpikeSlabLikelihood, move_to_host

MAX_WORK = 5e9
"""Samples times features times atoms up to which a pass in vain does not matter."""

STEPS_BEFORE_CAPTURE = 2
"""Steps taken as they come, before one is captured: libraries set themselves up in their first call."""

MAX_LACK = 0.02
"""Lack of orthonormality from which a step by products has not worked."""

_warm = threading.local()
"""Kinds of steps that a thread has captured before: its libraries are set up for them."""


@dataclass(frozen=True)
class Place:
    """Memory for an iterate."""

    A: Array  # (m, k)
    G: Array  # (m, k)
    rows: Array  # (number of other statistics, m)
    law: Array | None  # (3, m) density, power and noise

    def copy_from(self, other: Place) -> None:
        """Hold what the other holds."""
        self.A.copy_(other.A)
        self.G.copy_(other.G)
        self.rows.copy_(other.rows)
        if self.law is not None:
            self.law.copy_(other.law)


@dataclass(frozen=True)
class Numbers:
    """What the host reads of a step, and of where it leads."""

    value: float  # mean of the objective
    length: float
    lack: float  # of orthonormality
    error: float
    same: float  # 1 if the law is the one before
    negative: float  # number of atoms with a negative sign
    turned: float  # number of atoms with another sign than before


class CudaGraphStepper(Stepper):
    """Steps between two places in memory, `here` and `there`; a graph leads from one to the other."""

    def __init__(self, problem: Problem, phase: Phase, A: Array) -> None:
        direction = replace(phase.direction, coarse=False)  # type: ignore[type-var]  # it costs no calls here
        phase = replace(phase, direction=direction)
        super().__init__(problem, phase)
        self.backend = Backend.of(A)
        self.graph: gpu.Graph | None = None
        self.n_steps = 0
        self.objective = self._own_objective(phase.objective)
        exponent = phase.objective.p if isinstance(phase.objective, Lp) else None
        self.kind = (self.backend.device, A.shape, phase.precision, exponent)

    @classmethod
    def try_to_make(cls, problem: Problem, phase: Phase, A: Array) -> CudaGraphStepper | None:
        """A stepper for the phase, or None where nothing would be gained or a part of it cannot be captured.

        Samples whose passes are recorded in a checkpoint count as those they hold: such short passes are repeated when
        a fit is resumed, so that a checkpoint changes nothing.
        """
        samples = getattr(problem.samples, "unrecorded", problem.samples)
        if not isinstance(samples, ArrayDataset):
            return None
        objective = phase.objective
        short = problem.share < 1 or samples.n_samples * samples.n_features * int(A.shape[0]) <= MAX_WORK
        drawn = getattr(objective, "drawn", None)
        suitable = (
            short
            and not phase.minibatches  # a graph would go over the same samples again
            and samples.tile_rows >= samples.n_samples
            and type(phase.direction) is PairwiseNewton
            and phase.direction.unidentifiable is None
            and type(objective) in (Lp, SpikeSlabLikelihood)
            and (drawn is None or (isinstance(drawn, CodeSubsample) and Backend.of(A).kernels is not None))
            and phase.quantities == Quantities.GRADIENT | Quantities.MOMENTS
        )
        return cls(replace(problem, samples=samples), phase, A) if suitable else None

    def evaluate(self, A: Array, objective: Objective, came_from: Array | None = None) -> Iterate:  # noqa: ARG002
        """The objective of the phase, and its statistics at A, where it begins."""
        xp = self.backend.xp
        stats = self.problem.evaluate(A, self.objective, self.phase.quantities, self.phase.precision)
        law = None
        if isinstance(self.phase.objective, SpikeSlabLikelihood):
            found = self.phase.objective.law
            parts = (self.backend.asarray(part, "float64") for part in (found.density, found.power))
            density, power = parts
            law = xp.stack([density, power, xp.full_like(power, found.noise)])
        self.own_names = ["value", "slope", "g2", "z2", "gz"] + ([] if stats.signs is None else ["signs"])
        self.names = [*self.own_names, *stats.extra]
        self.there = Place(A + 0, stats.G + 0, self._stack_rows(stats), law)
        empty = (None if part is None else xp.empty_like(part) for part in vars(self.there).values())
        self.here = Place(*empty)
        self.view = self._view_here(stats)
        self.numbers = xp.empty(len(Numbers.__dataclass_fields__), dtype=A.dtype, device=self.backend.device)
        self.inbox = gpu.Inbox(self.numbers)
        self.known = Numbers(stats.mean_value, 0.0, 0.0, float(mean_error(stats)), 1.0, stats.n_negative, 0.0)
        return self._make_iterate()

    def propose(self, here: Iterate) -> tuple[Array, float]:  # noqa: ARG002
        """Where the step leads, and how far that is; the pass there is made at once."""
        self.before = self.known
        self.n_steps += 1
        warm = _warm.__dict__.setdefault("kinds", set())
        if self.graph is None and (self.n_steps > STEPS_BEFORE_CAPTURE or self.kind in warm):
            self.graph = gpu.Graph(self._advance)
            warm.add(self.kind)
        if self.graph is None:
            self._advance()
        else:
            self.graph.replay()
        self.known = Numbers(*self.inbox.read())
        if not self.known.lack < MAX_LACK:  # NaN included
            self._arrive_at(self.phase.direction(self.view, self.here.A))
            self.known = Numbers(*self.inbox.read())
        return self.there.A, self.known.length

    def take_step(self, here: Iterate, moved: Array) -> Iterate:  # noqa: ARG002
        """Take the step, unless it lowers the objective; then another, as `Stepper` does."""
        self._count_pass()
        before, fall = self.before.value, self.before.value - self.known.value
        negative = self.before.negative + self.known.negative > 0
        white = self.problem.whitening.second_moments is None
        do_compare = not negative or (white and not self.known.turned)
        allowed = OBJECTIVE_ROUNDING[self.phase.precision] * abs(before) + self.phase.objective_slack
        if do_compare and not fall <= allowed:
            shorter = polar(0.75 * self.here.A + 0.25 * self.there.A) if self.before.negative else None
            self._arrive_at(power_step(self.view, self.here.A) if shorter is None else shorter)
            self.known = Numbers(*self.inbox.read())
            self._count_pass()
        if not self.known.same:
            self.objective = replace(self.objective)  # type: ignore[type-var]  # another one, in the same memory
        return self._make_iterate()

    def finish(
        self, moved: Array, here: Iterate, status: str, *, converged: bool = False, stopped: bool = False
    ) -> Estimate:
        """End the phase, with A orthonormal to rounding and the law of its codes on the host."""
        end = super().finish(moved, here, status, converged=converged, stopped=stopped)
        A = orthonormalize(end.A)
        objective = self.phase.objective
        if self.here.law is not None:
            assert isinstance(objective, SpikeSlabLikelihood)
            density, power, noise = self.here.law
            law = move_to_host(SpikeSlab(density, power, noise, objective.law.least_noise))
            objective = replace(objective, law=law, known={})
        return replace(end, A=A, objective=objective)

    def _count_pass(self) -> None:
        self.problem.log.passes += self.problem.share
        if not math.isfinite(self.known.value):
            raise self.problem.make_overflow_error(self.known.value)

    def _advance(self) -> None:
        """Take a step from there, which becomes here. Reads nothing from the card."""
        assert isinstance(self.phase.direction, PairwiseNewton)
        self.here.copy_from(self.there)
        # whether the products converged is found out when the numbers are read
        self._arrive_at(polar_nearby(self.phase.direction.move_along_tangent(self.view, self.here.A)[0]))

    def _arrive_at(self, A: Array) -> None:
        """Evaluate A, a step away from here, and call it there."""
        xp, phase = self.backend.xp, self.phase
        squares = xp.sum((A - self.here.A) ** 2, axis=1)
        same = xp.ones_like(squares[0])
        drawn = getattr(phase.objective, "drawn", None)
        if self.here.law is not None and drawn is not None:
            same = drawn.update_on_device(A, self.here.law, squares, self.there.law, self.coefficients)
        samples, whitening = self.problem.samples, self.problem.whitening
        stats = evaluate(samples, whitening, self.objective, A, phase.quantities, phase.precision)
        self.there.A.copy_(A)
        self.there.G.copy_(stats.G)
        self.there.rows.copy_(self._stack_rows(stats))
        numbers = (
            xp.mean(stats.value) / stats.weight,
            xp.sqrt(xp.mean(squares)),
            lack_of_orthonormality(A),
            mean_error(stats),
            same,
            *self._count_signs(stats, same),
        )
        self.numbers.copy_(xp.stack(numbers))
        self.inbox.send(self.numbers)

    def _count_signs(self, stats: Statistics, like: Array) -> tuple[Array, Array]:
        """Number of atoms with a negative sign, and of those with another one than here."""
        if stats.signs is None:
            return 0 * like, 0 * like
        xp = self.backend.xp
        turned = stats.signs * self.view.signs < 0
        return xp.sum(xp.astype(stats.signs < 0, like.dtype)), xp.sum(xp.astype(turned, like.dtype))

    def _make_iterate(self) -> Iterate:
        """The iterate, as seen from the next step on, when what is there has been copied here."""
        stats = replace(self.view, known_mean=self.known.value)
        return Iterate(self.here.A, self.objective, stats, to_standard_error(self.known.error))

    def _stack_rows(self, stats: Statistics) -> Array:
        own = [getattr(stats, name) for name in self.own_names]
        return self.backend.xp.stack(own + [stats.extra[name] for name in stats.extra])

    def _view_here(self, stats: Statistics) -> Statistics:
        """Statistics in the memory of here."""
        rows = dict(zip(self.names, self.here.rows, strict=True))
        own = {name: rows.pop(name) for name in self.own_names}
        return replace(stats, G=self.here.G, extra=rows, **own)

    def _own_objective(self, objective: Objective) -> Objective:
        """The objective with coefficients in memory of its own, to be written over."""
        if not isinstance(objective, SpikeSlabLikelihood):
            return objective
        dtype, xp = STORED[self.phase.precision], self.backend.xp
        found = Coefficients.of(objective.law, self.backend, dtype)
        halves = xp.stack([found.offset, found.rate])
        others = xp.stack([found.steep, found.kept, found.precision, found.level])
        self.coefficients = (halves, others)
        return SpikeSlabLikelihood(objective.law, known={(self.backend, dtype): Coefficients(*halves, *others)})
