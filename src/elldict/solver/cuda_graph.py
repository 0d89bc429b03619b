"""The walk of a stage on a graphics card: a step, and a look at where it leads, recorded once and replayed as one.

A step on few samples takes the card a tenth of a millisecond, and the host ten times as long to ask for all of its
parts. So they are recorded as one graph, which works in memory of its own; the host asks for it, and reads five numbers
when it is done. The look at the last step is in vain, which is why looks that take long are not recorded.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, replace

from elldict.backend import torch as gpu
from elldict.backend.base import Array, Space, storage
from elldict.data.dataset import MemorySamples
from elldict.solver.directions import PairwiseNewton, lack_of_orthonormality, nearby_polar, polar, power_step
from elldict.solver.loop import ROUNDING, Halt, Point, Run, Stage, Walk, doubtful_angle, last_step, mean_error
from elldict.solver.objective import Contrast, Lp, Needs, Sums, measure
from elldict.solver.spike_slab import BernoulliGaussian, DeviceLaw, Lines

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


class Recorded(Walk):
    """A walk between two places in memory, `here` and `there`; a graph leads from one to the other."""

    def __init__(self, run: Run, stage: Stage, A: Array) -> None:
        self.run, self.stage, self.space = run, stage, Space.of(A)
        self.graph: gpu.Graph | None = None
        self.n_steps = 0
        self.contrast = self._owned(stage.contrast)
        exponent = stage.contrast.p if isinstance(stage.contrast, Lp) else None
        self.kind = (self.space.device, threading.get_ident(), A.shape, stage.precision, exponent)

    @classmethod
    def of(cls, run: Run, stage: Stage, A: Array) -> Recorded | None:
        """A recorded walk, or None where nothing would be gained or a part of the stage cannot be recorded."""
        space, samples = Space.of(A), run.samples
        if not (space.can_capture and isinstance(samples, MemorySamples)):
            return None
        short = run.share < 1 or samples.n_samples * samples.n_features * int(A.shape[0]) <= MOST_WORK
        suitable = (
            short
            and samples.tile_rows >= samples.n_samples
            and type(stage.step) is PairwiseNewton
            and type(stage.contrast) in (Lp, BernoulliGaussian)
            and (stage.refit is None or stage.follow is not None)
            and stage.need == Needs.GRADIENT | Needs.MOMENTS
        )
        return cls(run, stage, A) if suitable else None

    def begin(self, A: Array) -> Point:
        """The contrast of the stage, and its sums at A."""
        sums = self.run.look(A, self.contrast, self.stage.need, self.stage.precision)
        law = None
        if isinstance(self.stage.contrast, BernoulliGaussian):
            law = self.space.xp.stack(DeviceLaw.of(self.stage.contrast.model, self.space).parts)
        self.names = ["value", "slope", "g2", "z2", "gz", *sums.extra]
        self.there = Place(A + 0, sums.G + 0, self._rows(sums), law)
        empty = (None if part is None else self.space.xp.empty_like(part) for part in vars(self.there).values())
        self.here = Place(*empty)
        self.view = self._viewed(sums)
        self.numbers = self.space.xp.empty(len(Numbers.__dataclass_fields__), dtype=A.dtype, device=self.space.device)
        self.inbox = gpu.Inbox(self.numbers)
        error = float(mean_error(sums))
        self.known = Numbers(sums.objective, 0.0, 0.0, error, 1.0)
        return self._point()

    def step(self, here: Point) -> tuple[Array, float]:  # noqa: ARG002
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
            self._arrive(self.stage.step(self.view, self.here.A))
            self.known = self._read()
        return self.there.A, self.known.length

    def follow(self, here: Point, moved: Array) -> Point:  # noqa: ARG002
        """Take the step, unless it lowers the objective; then the plain step, which cannot."""
        self._count()
        before, fall = self.before.objective, self.before.objective - self.known.objective
        if not fall <= ROUNDING[self.stage.precision] * abs(before) + self.stage.slack:
            self._arrive(power_step(self.view, self.here.A))
            self.known = self._read()
            self._count()
        if not self.known.same:
            self.contrast = replace(self.contrast)  # type: ignore[type-var]  # another one, in the same memory
        return self._point()

    def enough(self, before: Point, here: Point, step: float) -> float:
        """Length of a step from `here` that is the last, `step` being the one at hand."""
        return last_step(self.stage, before, here, step)

    def end(self, halt: Halt) -> Halt:
        """The end of the walk, orthonormal to rounding, with the law of its codes on the host."""
        A = nearby_polar(halt.A)
        if not float(lack_of_orthonormality(A)) < 1e-12:
            A = polar(halt.A)
        contrast = self.stage.contrast
        if self.here.law is not None:
            assert isinstance(contrast, BernoulliGaussian)
            contrast = BernoulliGaussian(DeviceLaw(*self.here.law).on_host(contrast.model.least_noise))
        return replace(halt, A=A, contrast=contrast)

    def _advance(self) -> None:
        """From there, which becomes here, a step on. Asks the card for no number."""
        assert isinstance(self.stage.step, PairwiseNewton)
        self.here.take(self.there)
        self._arrive(self.stage.step.ahead(self.view, self.here.A))

    def _arrive(self, A: Array) -> None:
        """Look at A, a step away from here, and call it there."""
        xp = self.space.xp
        squares = xp.sum((A - self.here.A) ** 2, axis=1)
        same = xp.ones_like(squares[0])
        if self.here.law is not None and self.stage.follow is not None:
            same = self.stage.follow(A, self.here.law, squares, self.there.law, self.lines)
        sums = measure(self.run.samples, self.run.frame, self.contrast, A, self.stage.need, self.stage.precision)
        self.there.A.copy_(A)
        self.there.G.copy_(sums.G)
        self.there.rows.copy_(self._rows(sums))
        numbers = (
            xp.mean(sums.value) / sums.weight,
            xp.sqrt(xp.mean(squares)),
            lack_of_orthonormality(A),
            mean_error(sums),
            same,
        )
        self.numbers.copy_(xp.stack(numbers))
        self.inbox.send(self.numbers)

    def _read(self) -> Numbers:
        return Numbers(*self.inbox.read())

    def _count(self) -> None:
        self.run.seen(self.known.objective)

    def _point(self) -> Point:
        """Where the walk is, seen from the next step on, when what is there has been taken here."""
        sums = replace(self.view, seen=self.known.objective)
        return Point(self.here.A, self.contrast, sums, doubtful_angle(self.known.error))

    def _rows(self, sums: Sums) -> Array:
        own = [getattr(sums, name) for name in self.names[:5]]
        return self.space.xp.stack(own + [sums.extra[name] for name in self.names[5:]])

    def _viewed(self, sums: Sums) -> Sums:
        """Sums in the memory of here."""
        rows = dict(zip(self.names, self.here.rows, strict=True))
        own = {name: rows.pop(name) for name in self.names[:5]}
        return replace(sums, G=self.here.G, extra=rows, **own)

    def _owned(self, contrast: Contrast) -> Contrast:
        """The contrast with lines in memory of its own, to be written over."""
        if not isinstance(contrast, BernoulliGaussian):
            return contrast
        dtype = storage(self.stage.precision)
        lines = Lines.of(contrast.model, self.space, dtype)
        xp = self.space.xp
        halves = xp.stack([lines.offset, lines.rate])
        others = xp.stack([lines.steep, lines.kept, lines.precision, lines.level])
        self.lines = (halves, others)
        return BernoulliGaussian(contrast.model, known={(self.space, dtype): Lines(*halves, *others)})
