"""The statistic of a pass: what a contrast adds up to over all samples."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from elldict.kernels import workspace
from elldict.samples.base import Samples
from elldict.samples.frame import Frame
from elldict.solver.contrasts import Contrast
from elldict.solver.terms import Needs, Tally, Terms
from elldict.space import Array, Space, storage, total
from elldict.theory.accuracy import CodeMoments


@dataclass(frozen=True)
class Sums:
    """Sums over samples, in float64. What was not asked for is None."""

    weight: float
    value: Array = None  # (m,)  sum F
    G: Array = None  # (m, n)  sum g(z) y^T
    slope: Array = None  # (m,)  sum F''
    g2: Array = None  # (m,)  sum g^2
    z2: Array = None  # (m,)  sum z^2
    gz: Array = None  # (m,)  sum g z
    idle: Array = None  # (m, n, n)  sum P(code is idle) y y^T
    beside: Array = None  # (m, n)  gradient of the contrast beside
    extra: Mapping[str, Array] = field(default_factory=dict)  # (m,) each
    seen: float | None = None  # the objective, where it was read with other numbers

    def __add__(self, other: Sums) -> Sums:
        def both(a: Array | None, b: Array | None) -> Array | None:
            return None if a is None or b is None else a + b

        return Sums(
            weight=self.weight + other.weight,
            value=both(self.value, other.value),
            G=both(self.G, other.G),
            slope=both(self.slope, other.slope),
            g2=both(self.g2, other.g2),
            z2=both(self.z2, other.z2),
            gz=both(self.gz, other.gz),
            idle=both(self.idle, other.idle),
            beside=both(self.beside, other.beside),
            extra={name: self.extra[name] + other.extra[name] for name in self.extra},
        )

    @cached_property
    def objective(self) -> float:
        """Mean of F over samples and atoms."""
        if self.seen is not None:
            return self.seen
        return total(self.value / self.weight) / int(self.value.shape[0])


@dataclass(frozen=True)
class SumKernel:
    """Sums of a contrast over one tile."""

    contrast: Contrast
    B: Array  # (m, n) rows that make codes
    mean: Array | None  # (n,)
    unit: float
    need: Needs
    precision: str

    def bind(self, space: Space) -> Callable[[Array], Sums]:
        """Return the function that sums one tile."""
        xp, held = space.xp, storage(self.precision)
        dtype, work = getattr(xp, held), workspace(space, self.precision)
        shrink = _power_of_two(self.unit, self.precision)
        B = space.asarray(self.B, "float64")
        decode = xp.astype((B if shrink == 1 else B / shrink).T, dtype)
        gradient = Needs.GRADIENT in self.need
        mean = None if self.mean is None else space.asarray(self.mean, held)

        def visit(Y: Array) -> Sums:
            Y = prepared(xp.astype(Y, dtype, copy=False))
            Y, Z = self.contrast.codes(Y, decode, work, xp)
            terms = self.contrast.terms(Z, self.need, work, xp)
            tally = Tally(work, int(Y.shape[0]))
            # float64 from here on: 10^7 float32 terms lose five digits otherwise
            G = summed_gradient(terms.g, terms.gain, Y)
            beside = None if terms.beside is None else summed_gradient(terms.beside, 1.0, Y)
            more = moments(terms, Z, tally) if Needs.MOMENTS in self.need else {}
            idle = idle_sums(terms, Y) if Needs.IDLE in self.need else None
            value = value_sums(terms, Z, tally)
            return Sums(weight=float(Y.shape[0]), value=value, G=G, idle=idle, beside=beside, **more)

        def summed_gradient(g: Array, gain: Any, Y: Array) -> Array | None:
            if not gradient:
                return None
            total = xp.astype(work.matmul(g.T, Y, into="gradient"), xp.float64)
            return total if isinstance(gain, float) else gain[:, None] * total

        def prepared(Y: Array) -> Array:
            # centred here, not in the products: a large mean would cost them their digits
            Y = Y if mean is None else work.map(xp.subtract, Y, mean, into="samples")
            return Y if shrink == 1 else work.map(xp.multiply, Y, shrink, into="samples")

        def value_sums(terms: Terms, Z: Array, tally: Tally) -> Array | None:
            if terms.value is not None:
                return tally(terms.value)
            return None if gradient else tally(terms.product(Z))

        def moments(terms: Terms, Z: Array, tally: Tally) -> dict[str, Any]:
            return {
                "slope": tally(terms.slope),
                "g2": squared(terms.gain, tally((terms.g, terms.g) if terms.g2 is None else terms.g2)),
                "z2": tally((Z, Z) if terms.z2 is None else terms.z2),
                "gz": None if gradient else tally(terms.product(Z)),
                "extra": {name: tally(term) for name, term in terms.extra.items()},
            }

        def squared(gain: Any, total: Array) -> Array:
            return total if isinstance(gain, float) else gain**2 * total

        def idle_sums(terms: Terms, Y: Array) -> Array:
            weights = terms.idle
            assert weights is not None, "only the likelihood knows which codes are idle"
            shares = (weights[:, i : i + 1] * Y for i in range(int(weights.shape[1])))
            return xp.stack([xp.astype(share.T @ Y, xp.float64) for share in shares])

        return visit


def _power_of_two(unit: float, precision: str) -> float:
    """Factor that brings samples of extreme size near one, where products cannot overflow; 1 for all others."""
    exponent = math.frexp(unit)[1]
    return math.ldexp(1.0, exponent) if abs(exponent) > (300 if precision == "float64" else 40) else 1.0


def measure(samples: Samples, frame: Frame, contrast: Contrast, A: Array, need: Needs, precision: str) -> Sums:
    """One pass: sums of the contrast at A (m, k), seen from inside the frame."""
    kernel = SumKernel(contrast, frame.outward(A), frame.mean, frame.unit, need, precision)
    sums = samples.sum_over(kernel)
    if sums.G is None:
        return sums
    scale = frame.unit / _power_of_two(frame.unit, precision)
    G = frame.inward(sums.G * scale)
    beside = None if sums.beside is None else frame.inward(sums.beside * scale)
    idle = None if sums.idle is None else frame.inward_twice(sums.idle)
    xp = Space.of(G).xp
    gz = xp.sum(G * A, axis=1)  # sum g z^T is G A^T
    extra = sums.extra if beside is None else {**sums.extra, "beside_value": xp.sum(beside * A, axis=1)}
    value = gz if sums.value is None else sums.value
    return replace(sums, G=G, idle=idle, beside=beside, gz=gz, value=value, extra=extra)


def moments(sums: Sums) -> CodeMoments:
    """Moments of the codes under the contrast that was summed, where the sums are."""
    return CodeMoments(*(total / sums.weight for total in (sums.gz, sums.g2, sums.slope, sums.z2)))
