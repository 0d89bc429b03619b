"""A few drawn samples, kept at hand: their codes tell the law of all codes, and which atoms are mixed."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from elldict._old.backend.base import NUMPY, Array, Backend, real_dtype, to_numpy
from elldict._old.backend.matrices import take_rows
from elldict._old.data.dataset import Dataset, is_white
from elldict._old.data.subsample import take_as
from elldict._old.data.whitening import Loudness, Whitening
from elldict._old.result import Estimate
from elldict._old.solver.code_histogram import CodeHistogram
from elldict._old.solver.mixed_atoms import MixedPair, are_too_many, find_mixed_pairs, keep_mixed, separate_pairs
from elldict._old.solver.mixture import MixtureLaw, fit_mixture
from elldict._old.solver.spike_slab import (
    MIN_NOISE_PER_MOVE,
    SAME_LOG_DENSITY,
    SAME_LOG_NOISE,
    UPDATE_ROUNDS,
    Coefficients,
    SpikeSlab,
    fit_roughly,
    fit_spike_slab,
    follow_spike_slab,
    run_em,
    update_spike_slab,
)
from elldict._old.theory.error_bars import atom_errors

T = TypeVar("T")

MAX_ROWS = 8192
MAX_VALUES = 2**18
"""Rows and values of the subsample: their products with A cost next to nothing beside a pass. On a graphics card, which
multiplies a thousand rows as fast as a hundred, rows alone are limited."""

MAX_TURNED_ROWS = 2048
"""Rows by which pairs are turned on a graphics card, which finds them by more: the turn is sought on the host."""

LEAST_MIXTURE = 1e-7
"""Share of the power of a code that, as noise, hides mixtures too small to be worth separating: 8192 rows show even
that rounding is larger in large samples."""

LEFT_BY_PILOT, MAX_START_NOISE = 64.0, 0.05
"""Variance of the noise with which the refinement of rare codes begins, at least: times the squared angle of the error
bar and the square of an active code; but no more than this share of that."""

RARE_KURTOSIS = 15.0
"""Mean kurtosis from which codes are rare: codes that are zero or Gaussian have it at a density of .17."""

LAST_DIGITS = 1e-10
"""The same for atoms that are at rest but for the last digits, which makes no mixture of them."""

EXACT_NOISE = 1e-8
"""Share of the power of a code up to which noise is none, and codes are exactly sparse."""

ALWAYS_ACTIVE = 1 - 1e-12
"""Density of codes that are never zero: as close to one as leaves odds finite."""

LEAST_NOISE = {"float32": 1e-12, "float64": 1e-18}
"""Variance of the noise, in units of the mean square, that rounding of the codes alone produces."""


@dataclass(frozen=True)
class CodeSubsample:
    """Samples drawn uniformly, in whitened coordinates and float64, where A is."""

    rows: Array  # (b, k)
    often: Array  # (c, k) a fourth or an eighth of them, for what is done in every iteration
    for_pairs: Array  # (d, k) those by which mixed pairs are found
    least_noise: float
    raw: Array | None = None  # (b, n) the same samples as they are
    known: dict[str, tuple[tuple[Any, ...], Any]] = field(default_factory=dict)  # what was found last, and of what

    @classmethod
    def draw(cls, samples: Dataset, whitening: Whitening, rng: np.random.Generator) -> CodeSubsample:
        """Draw rows uniformly, so that sorted or grouped samples do not matter."""
        backend, r, n = samples.backend, samples.n_samples, samples.n_features
        most = MAX_ROWS if backend.on_gpu else count_host_rows(n)
        index = np.sort(rng.choice(r, min(r, most), replace=False)).astype(np.int64)
        if backend.on_gpu:
            raw = take_as(samples, index, "float64")
            rows = raw if is_white(samples) else whitening.move_to(backend).whiten(raw)
            often = rows[:: max(1, 8 * len(index) // MAX_ROWS), :]
            return cls(rows, often, rows, LEAST_NOISE[samples.dtype], raw)
        raw = samples.take(index)
        rows = whitening.whiten(raw)
        often = rows[:: max(1, 4 * rows.size // MAX_VALUES), :]
        return cls(rows, often, often, LEAST_NOISE[samples.dtype], raw)

    def thin_as_on_host(self) -> CodeSubsample:
        """As few of these samples as a host draws: for tests whose power has to be the same on every device."""
        step = max(1, int(self.rows.shape[0]) // count_host_rows(int(self.rows.shape[1])))
        return replace(self, rows=self.rows[::step, :], known={})

    def normalize(self, loudness: Loudness) -> CodeSubsample:
        """The same samples, normalised."""
        rows, often, for_pairs = map(loudness.normalize, (self.rows, self.often, self.for_pairs))
        return CodeSubsample(rows, often, for_pairs, self.least_noise)

    def recall(self, what: str, of: tuple[Any, ...], find: Callable[[], T]) -> T:
        """What was found of these very objects, which several tests ask for; otherwise what is found now."""
        held = self.known.get(what)
        if held is None or any(one is not other for one, other in zip(held[0], of, strict=True)):
            held = self.known[what] = (of, find())
        found: T = held[1]
        return found

    def fit_law(self, A: Array, signs: Array | None = None) -> SpikeSlab:
        """Law of the codes at A; asked again for the same A, the same. Codes of negative atoms count as Gaussian."""

        def fit() -> SpikeSlab:
            return fit_with_signs(CodeHistogram.of(compute_codes(self.rows, A)), signs, self.least_noise)

        return self.recall("law", (A,), fit)

    def fit_rough_law(self, A: Array) -> SpikeSlab:
        """Law of the codes at A, while atoms are still moving."""
        return fit_roughly(CodeHistogram.of(compute_codes(self.often, A)), least_noise=self.least_noise)

    @cached_property
    def squared_lengths(self) -> NDArray[np.float64]:
        """|y|^2 (b,) of the drawn samples, which no rotation changes; they themselves stay where they are."""
        rows, backend = self.rows, Backend.of(self.rows)
        if backend == NUMPY:
            return np.asarray(np.einsum("ij,ij->i", rows, rows))  # without an array of squares
        return to_numpy(backend.xp.sum(rows**2, axis=1))

    def measure_kurtosis(self) -> float:
        """Mean kurtosis of the codes if these were independent, by |y|^2."""
        squares = self.squared_lengths
        return float(self.rows.shape[1] * np.var(squares) / np.mean(squares) ** 2 - 2)

    def fit_start_law(self, pilot: Estimate) -> SpikeSlab:
        """The rough law where the refinement of an l_p estimate begins.

        The noise is not below what l_p may have left of other codes in a code. Where codes are rare, most are zero in
        any mixture of a few atoms: noise that is fitted to these would keep the atoms mixed.
        """
        law = self.fit_rough_law(pilot.A)
        error = float(np.mean(to_numpy(atom_errors(pilot.stats.moments, pilot.stats.weight))))
        if self.measure_kurtosis() < RARE_KURTOSIS or not math.isfinite(error):
            return law
        left = LEFT_BY_PILOT * error / 2 / float(np.mean(law.density))
        return replace(law, noise=max(law.noise, min(left, MAX_START_NOISE * float(np.mean(law.power)))))

    def update(self, law: SpikeSlab, A: Array, min_noise: float) -> SpikeSlab:
        """Law of the codes at A, or `law` if it hardly differs."""
        return update_spike_slab(CodeHistogram.of(compute_codes(self.often, A)), law, min_noise)

    def fit_mixture(self, pilot: Estimate) -> MixtureLaw:
        """Mixtures of Gaussians for the codes of an l_p estimate."""
        codes, signs = compute_codes(self.rows, pilot.A), pilot.stats.signs
        return fit_mixture(codes, np.ones(codes.shape[1]) if signs is None else signs)

    def complete(self, pilot: Estimate) -> Estimate:
        """The l_p estimate as it is, with the law of its codes."""
        return replace(pilot, lp_stats=pilot.stats, law=self.fit_law(pilot.A, pilot.stats.signs))

    def find_mixed_pairs(self, A: Array, law: SpikeSlab) -> list[MixedPair]:
        """Pairs of atoms whose codes are active together more often than chance has it.

        If there are too many, only those of exactly sparse codes that are not determined by where they are zero.
        """
        return self.recall("mixed pairs", (A, law), lambda: self._seek_mixed_pairs(A, law))

    def _seek_mixed_pairs(self, A: Array, law: SpikeSlab) -> list[MixedPair]:
        backend, noise = Backend.of(self.for_pairs), law.noise
        if backend.on_gpu:
            noise = max(noise, LEAST_MIXTURE * float(np.mean(law.density * law.power)))
        noise = max(noise, LAST_DIGITS * float(np.mean(law.density * law.power)))
        law = SpikeSlab(backend.asarray(law.density, "float64"), backend.asarray(law.power, "float64"), noise)
        pairs = find_mixed_pairs(law.activity((compute_codes(self.for_pairs, A) ** 2).T).T)
        if not are_too_many(pairs, int(A.shape[0])):
            return pairs
        if noise > EXACT_NOISE * float(np.mean(to_numpy(law.density * law.power))):
            return []
        return keep_mixed(pairs, self.codes_of_pairs(A, pairs))

    def separate_pairs(self, A: Array, law: SpikeSlab) -> tuple[Array, int]:
        """A with mixed pairs turned apart, and how many that moved."""
        pairs = self.find_mixed_pairs(A, law)
        if not pairs:
            return A, 0
        moved, n_moved = separate_pairs(to_numpy(A), self.codes_of_pairs(A, pairs), pairs)
        return Backend.of(A).asarray(moved, "float64"), n_moved

    def codes_of_pairs(self, A: Array, pairs: list[MixedPair]) -> NDArray[np.float64]:
        """Codes (b, 2 p) of the atoms of p pairs, those of a pair side by side."""
        atoms = [atom for pair in pairs for atom in (pair.first, pair.second)]
        step = max(1, int(self.for_pairs.shape[0]) // MAX_TURNED_ROWS) if Backend.of(self.for_pairs).on_gpu else 1
        return to_numpy(compute_codes(self.for_pairs[::step, :], take_rows(A, np.asarray(atoms))))

    def update_on_device(
        self, A: Array, old: Array, squared_moves: Array, law: Array, coefficients: tuple[Array, Array]
    ) -> Array:
        """Write the law at A, or `old` (3, m) if it hardly differs, and its coefficients, without reading the device.

        `squared_moves` (m,) are those of the atoms. Returns 1 if it is the old law, otherwise 0, as an array of one.
        """
        backend, codes = Backend.of(A), CodeHistogram.of(compute_codes(self.often, A))
        xp, before = backend.xp, SpikeSlab(old[0], old[1], old[2], self.least_noise)
        if backend.kernels is not None and int(A.shape[0]) <= backend.kernels.MAX_SETTLED_ATOMS:
            own = run_em(codes, before, UPDATE_ROUNDS)
            same = xp.empty_like(squared_moves[:1])
            parts = (own.density, own.power, own.noise)
            backend.kernels.settled(parts, old, squared_moves, (law, *coefficients, same), MIN_NOISE_PER_MOVE)
            return same[0]
        new = follow_spike_slab(codes, before)
        least = xp.minimum(old[2, 0], MIN_NOISE_PER_MOVE**2 * xp.max(squared_moves))
        noise = xp.zeros_like(old[2]) + xp.maximum(new.noise, least)
        drift = xp.mean(xp.abs(xp.log(new.density / old[0])))
        same = (xp.abs(xp.log(noise[0] / old[2, 0])) < SAME_LOG_NOISE) & (drift < SAME_LOG_DENSITY)
        law.copy_(xp.where(same, old, xp.stack([new.density, new.power, noise])))
        for memory, rows in zip(coefficients, Coefficients.rows(SpikeSlab(law[0], law[1], law[2])), strict=True):
            memory.copy_(xp.stack(rows))
        return xp.astype(same, xp.float64)


def count_host_rows(n_features: int) -> int:
    """Samples that are drawn on a host."""
    return max(256, min(MAX_ROWS, MAX_VALUES // n_features))


def fit_with_signs(codes: CodeHistogram, signs: Array | None, least_noise: float) -> SpikeSlab:
    """Law of codes of atoms with these signs; the codes of negative ones count as Gaussian."""
    sparse = None if signs is None else np.flatnonzero(to_numpy(signs) > 0)
    if sparse is None or len(sparse) == len(codes.z2):
        return fit_spike_slab(codes, least_noise=least_noise)
    law = SpikeSlab(np.array([]), np.array([]), least_noise, least_noise)
    if len(sparse):
        count = None if codes.count is None else codes.count[sparse]
        law = fit_spike_slab(CodeHistogram(count, codes.z2[sparse]), least_noise=least_noise)
    density, power = np.full(len(codes.z2), ALWAYS_ACTIVE), to_numpy(codes.mean_square) - law.noise
    density[sparse], power[sparse] = law.density, law.power
    return replace(law, density=density, power=np.maximum(power, least_noise))


def compute_codes(rows: Array, A: Array) -> Array:
    """Codes (b, m) of drawn rows (b, k), where the rows are."""
    return rows @ Backend.of(rows).asarray(A, real_dtype(rows)).T
