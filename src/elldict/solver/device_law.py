"""The law of codes, fitted where the codes are: on a graphics card, without a trip to the host for every round.

The law and the way to it are those of `code_model`. Codes are not counted in bins for each atom: the card goes through
them as they are, all atoms at once.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from elldict.kernels.fused import kernels_for
from elldict.solver.code_model import CLOSE, FEW_ROUNDS, FIRST_GUESS, CodeModel
from elldict.space import Array, Space, to_numpy

BINS_PER_OCTAVE = 16
OCTAVES = (-64, 16)
"""Bins for the squares of all codes as one, in units of their mean square."""

MANY_ROUNDS = 3000
VERY_CLOSE = 1e-6
"""Rounds take microseconds here, so that nothing but rounds is needed."""

UNLIKE = 4.0
"""Ratio of two noises, or of two mean squares, from which atoms are not alike."""


@dataclass(frozen=True)
class DeviceLaw:
    """Parameters of the law for m atoms, (m,) each in float64; atoms may have a noise of their own."""

    density: Array
    power: Array
    noise: Array

    @classmethod
    def of(cls, model: CodeModel, space: Space) -> DeviceLaw:
        """The same law in a space."""
        rows = np.stack([model.density, model.power, np.full_like(model.power, model.noise)])
        return cls(*space.asarray(rows, "float64"))

    def on_host(self, least_noise: float) -> CodeModel:
        """The same law as the host knows it; its noise is shared."""
        density, power, noise = to_numpy(Space.of(self.density).xp.stack([self.density, self.power, self.noise]))
        return CodeModel(density.copy(), power.copy(), float(noise[0]), least_noise)

    @property
    def parts(self) -> tuple[Array, Array, Array]:
        """All parameters."""
        return self.density, self.power, self.noise

    def with_noise(self, noise: Array) -> DeviceLaw:
        """The same with one noise for all."""
        return DeviceLaw(self.density, self.power, Space.of(noise).xp.zeros_like(self.noise) + noise)


def fitted(squares: Array, least: Array) -> DeviceLaw | None:
    """Law of codes with these squares (m, b), as `fit_code_model` finds it; None if atoms differ much in size."""
    xp = Space.of(squares).xp
    mean_square = xp.mean(squares, axis=1)
    if bool(xp.max(mean_square) > UNLIKE * xp.min(mean_square)):
        return None
    shared = _shared(squares, mean_square, least)
    start = DeviceLaw(xp.zeros_like(mean_square) + shared.density, shared.power * mean_square, 0.05 * mean_square)
    own = _descended(squares, start, least, rounds=40)
    largest = xp.max(own.noise)
    common = xp.where(largest > UNLIKE * _median(own.noise), largest, xp.maximum(shared.noise[0], least[0]))
    return _descended(squares, start.with_noise(common), least, rounds=40, noise_known=True)


def rough(squares: Array, least: Array) -> DeviceLaw:
    """A law to begin with while atoms are on their way, as `rough_code_model` finds it."""
    xp = Space.of(squares).xp
    mean_square = xp.mean(squares, axis=1)
    shared = _shared(squares, mean_square, least)
    zeros = xp.zeros_like(mean_square)
    return followed(squares, DeviceLaw(zeros + shared.density, shared.power * mean_square, zeros + shared.noise), least)


def followed(squares: Array, law: DeviceLaw, least: Array) -> DeviceLaw:
    """The law a few rounds on from `law`, as `followed_code_model` finds it. Asks the device for no number."""
    xp = Space.of(squares).xp
    own = own_laws(squares, law, least)
    largest = xp.max(own.noise)
    return own.with_noise(xp.where(largest > UNLIKE * _median(own.noise), largest, xp.mean(own.noise)))


def own_laws(squares: Array, law: DeviceLaw, least: Array) -> DeviceLaw:
    """The law of each atom by itself, a few rounds on."""
    return _descended(squares, law, least, rounds=FEW_ROUNDS)


def alike(new: DeviceLaw, old: DeviceLaw) -> Array:
    """Whether two laws hardly differ, as an array of one number: 1 or 0."""
    xp = Space.of(new.density).xp
    drift = xp.mean(xp.abs(xp.log(new.density / old.density)))
    apart = xp.abs(xp.log(new.noise[0] / old.noise[0]))
    return xp.astype((apart < 0.1) & (drift < 0.05), xp.float64)


def _shared(squares: Array, mean_square: Array, least: Array) -> DeviceLaw:
    """The law of all atoms as one: its power for a mean square of one, its noise for the mean square that they have.

    A hundred thousand codes are counted in a thousand bins, by whole numbers, so that the order does not matter.
    """
    space = Space.of(squares)
    xp = space.xp
    low, high = (BINS_PER_OCTAVE * edge for edge in OCTAVES)
    scaled = xp.reshape(squares / mean_square[:, None], (-1,))
    place = xp.floor(BINS_PER_OCTAVE * xp.log2(scaled)) - low
    top = xp.full_like(place, high - low - 1)
    place = xp.astype(xp.minimum(xp.maximum(place, xp.zeros_like(place)), top), xp.int64)
    counts = _counted(place, high - low, space)
    middle = xp.arange(low, high, dtype=xp.float64, device=space.device) + 0.5
    scale = xp.mean(mean_square)
    first = (FIRST_GUESS.density, FIRST_GUESS.power, FIRST_GUESS.noise)
    guess = DeviceLaw(*space.asarray(np.stack(first), "float64"))
    bins = xp.reshape(xp.pow(xp.full_like(middle, 2.0), middle / BINS_PER_OCTAVE), (1, -1))
    found = _descended(bins, guess, least / scale, MANY_ROUNDS, counts=xp.reshape(counts, (1, -1)), close=VERY_CLOSE)
    return DeviceLaw(found.density, found.power, found.noise * scale)


def _counted(place: Array, n_bins: int, space: Space) -> Array:
    ones = space.xp.ones_like(space.xp.astype(place, space.xp.float64))
    counts = space.xp.zeros(n_bins, dtype=space.xp.float64, device=space.device)
    if hasattr(counts, "index_add_"):
        return counts.index_add_(0, place, ones)  # whole numbers: exact in any order
    return space.xp.bincount(place, minlength=n_bins).astype(space.xp.float64)


def _descended(
    squares: Array,
    law: DeviceLaw,
    least: Array,
    rounds: int,
    *,
    counts: Array | None = None,
    noise_known: bool = False,
    close: float = CLOSE,
) -> DeviceLaw:
    """Expectation maximisation, each atom by itself."""
    kernels = kernels_for(squares)
    if kernels is not None:
        how = {"close": close, "noise_known": noise_known}
        return DeviceLaw(*kernels.descended(squares, counts, law.parts, least, rounds, **how))
    for _ in range(rounds):
        before = law
        law = _round(squares, counts, law, least, noise_known=noise_known)
        if _close(before, law, close):
            break
    return law


def _round(squares: Array, counts: Array | None, law: DeviceLaw, least: Array, *, noise_known: bool) -> DeviceLaw:
    """One round for all atoms, by the array library's own functions."""
    xp = Space.of(squares).xp
    count = xp.ones_like(squares) if counts is None else counts
    number, whole = xp.sum(count, axis=1), law.power + law.noise
    offset = xp.log(law.density) - xp.log1p(-law.density) - 0.5 * xp.log(whole / law.noise)
    rate = 0.5 * (1 / law.noise - 1 / whole)
    active = count * (0.5 + 0.5 * xp.tanh(0.5 * (offset[:, None] + rate[:, None] * squares)))
    share = xp.sum(active, axis=1)
    active_square, idle_square = xp.sum(active * squares, axis=1), xp.sum((count - active) * squares, axis=1)
    kept = law.power / whole
    blur = kept * law.noise * share
    floor = xp.zeros_like(share) + least
    density = share / number
    density = xp.minimum(xp.maximum(density, xp.full_like(density, 1e-4)), xp.full_like(density, 1 - 1e-4))
    power = (kept**2 * active_square + blur) / xp.maximum(share, xp.full_like(share, 1e-300))
    noise = (idle_square + (1 - kept) ** 2 * active_square + blur) / number
    return DeviceLaw(density, xp.maximum(power, floor), law.noise if noise_known else xp.maximum(noise, floor))


def _close(a: DeviceLaw, b: DeviceLaw, close: float) -> bool:
    xp = Space.of(a.noise).xp
    moved = (xp.abs(b.noise - a.noise) > close * a.noise) | (xp.abs(b.density - a.density) > close * a.density)
    return not bool(xp.any(moved))


def _median(values: Array) -> Any:
    ordered, m = Space.of(values).xp.sort(values), int(values.shape[0])
    return 0.5 * (ordered[(m - 1) // 2] + ordered[m // 2])
