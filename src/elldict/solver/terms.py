"""What a contrast says of the codes of one tile, before it is added up."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from elldict.kernels import Work
from elldict.space import Array


class Needs(enum.Flag):
    """What a pass has to bring home; a plain step asks for less than the judge."""

    GRADIENT = enum.auto()
    MOMENTS = enum.auto()
    IDLE = enum.auto()


Factors = tuple[Array, Array]
"""Two arrays whose product, entry by entry, is meant: it is summed without being stored."""


@dataclass(frozen=True)
class Summed:
    """Sums over the rows of the tile, found on the way: no array of codes was ever stored."""

    total: Array  # (m,), float64


Part = Array | Factors | Summed


@dataclass(frozen=True)
class Weighted:
    """A sum of parts, each with a factor for every atom, and a constant.

    Factors and constant meet the sums over a tile, m numbers, and not every code.
    """

    parts: tuple[tuple[Any, Part], ...]
    constant: Any = 0.0

    def expanded(self) -> Array:
        """The term itself, code by code."""
        total = self.constant
        for factor, part in self.parts:
            total = total + factor * (part[0] * part[1] if isinstance(part, tuple) else part)
        return total


Term = Part | Weighted


@dataclass(frozen=True)
class Terms:
    """Contrast of the codes of one tile. All arrays have the shape of the codes, (b, m)."""

    g: Array  # derivative F', but for a factor
    gain: Any = 1.0  # that factor, one for each atom
    slope: Term | None = None  # second derivative F''
    value: Term | None = None  # F itself; None says F = F' z, whose sum falls out of the gradient
    z2: Part | None = None  # squares of the codes, if at hand
    g2: Part | None = None  # squares of g, without the factor, if at hand
    idle: Array | None = None  # probability that a code is zero but for noise
    beside: Array | None = None  # derivative of another contrast of the same codes
    extra: Mapping[str, Term] = field(default_factory=dict)

    def product(self, other: Array) -> Weighted:
        """The derivative times another array."""
        return Weighted(((self.gain, (self.g, other)),))


class Tally:
    """Sums over the rows of one tile; what several terms share is summed once."""

    def __init__(self, work: Work, n_rows: int) -> None:
        self._work, self._n_rows = work, n_rows
        self._known: dict[tuple[int, ...], Array] = {}  # by identity: the terms hold their arrays while they are summed

    def __call__(self, term: Term) -> Array:
        """Column sums of a term, (m,), in float64."""
        if isinstance(term, Weighted):
            sums = (factor * self._part(part) for factor, part in term.parts)
            return sum(sums, start=term.constant * self._n_rows)
        return self._part(term)

    def _part(self, part: Part) -> Array:
        if isinstance(part, Summed):
            return part.total
        arrays = part if isinstance(part, tuple) else (part,)
        key = tuple(map(id, arrays))
        if key not in self._known:
            self._known[key] = self._work.product_sums(*arrays) if len(arrays) > 1 else self._work.column_sums(*arrays)
        return self._known[key]
