"""Witnesses: a few of the samples, kept at hand, whose codes tell the law of all codes."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from elldict.backend.base import Array, Backend, to_numpy
from elldict.data.dataset import Dataset
from elldict.data.statistics import Whitening
from elldict.data.subsample import take_as
from elldict.solver.mixed_atoms import MixedPair, find_mixed_pairs, separate_pairs
from elldict.solver.objective import Objective
from elldict.solver.spike_slab import (
    CodeHistogram,
    Coefficients,
    DeviceLaw,
    SpikeSlab,
    SpikeSlabLikelihood,
    alike_on_device,
    fit_roughly,
    fit_spike_slab,
    fitted_on_device,
    followed_on_device,
    own_laws,
    rough_on_device,
    update_spike_slab,
)

FEW_VALUES = 2**16
WITNESS_VALUES = 2**18
"""Values in the samples kept at hand for fitting the law of codes; their product with A costs next to nothing."""

WITNESS_ROWS = 8192

GPU_FEW_ROWS = 1024
"""Of the few on a graphics card, to which many are as dear as few; of all there, as many as witnesses may be."""

MIN_NOISE_PER_STEP = 2.0
"""The standard deviation of the noise stays above this many times the last move of any atom."""

MOST_ATOMS = 4096
"""Whose laws one program of a graphics card can hold side by side."""

LEAST_MIXTURE = 1e-7
"""Share of the power of a code that, as noise, hides mixtures too small to be worth taking apart."""

LEAST_NOISE = {"float32": 1e-12, "float64": 1e-18}
"""Variance of the noise, in units of the mean square, that rounding of the codes alone produces."""


@dataclass(frozen=True)
class CodeSubsample:
    """A random few of the samples, inside the frame: from their codes the law of all codes is fitted."""

    rows: Array  # (b, k), in float64, where the samples are
    least_noise: float
    known: dict[int, tuple[Array, SpikeSlab]] = field(default_factory=dict)  # the last law fitted, by its A

    @property
    def few(self) -> NDArray[np.float64]:
        """A few of them, for what is done again and again."""
        b, k = self.rows.shape
        return to_numpy(self.rows[:: max(1, b * k // FEW_VALUES), :])

    @classmethod
    def draw(cls, samples: Dataset, whitening: Whitening, rng: np.random.Generator) -> CodeSubsample:
        """Draw rows uniformly, so that sorted or grouped samples do not matter."""
        most = max(256, min(WITNESS_ROWS, WITNESS_VALUES // samples.n_features))
        number = min(samples.n_samples, WITNESS_ROWS if samples.backend.on_gpu else most)
        index = np.sort(rng.choice(samples.n_samples, number, replace=False)).astype(np.int64)
        if samples.backend.on_gpu:
            rows = whitening.move_to(samples.backend).whiten(take_as(samples, index, "float64"))
        else:
            rows = whitening.whiten(samples.take(index))
        return cls(rows, LEAST_NOISE[samples.dtype])

    def fitted(self, A: Array) -> SpikeSlab:
        """Law of the codes at A; asked again for the same A, the same."""
        if id(A) not in self.known:
            law = fitted_on_device(self.squares(A, WITNESS_ROWS), self.least_in(A)) if Backend.of(A).on_gpu else None
            if law is not None:
                model = law.on_host(self.least_noise)
            else:
                model = fit_spike_slab(
                    CodeHistogram.of(to_numpy(self.rows) @ to_numpy(A).T), least_noise=self.least_noise
                )
            self.known.clear()
            self.known[id(A)] = (A, model)  # A is held, so that its id stays its own
        return self.known[id(A)][1]

    def rough(self, A: Array) -> SpikeSlab:
        """Law of the codes at A while that is on its way."""
        if Backend.of(A).on_gpu:
            return rough_on_device(self.squares(A), self.least_in(A)).on_host(self.least_noise)
        return fit_roughly(CodeHistogram.of(self.few @ to_numpy(A).T), least_noise=self.least_noise)

    def mixed_pairs(self, A: Array, model: SpikeSlab) -> list[MixedPair]:
        """Pairs of atoms whose codes are active together more often than chance has it."""
        backend = Backend.of(A)
        if backend.on_gpu:
            # many rows show even that rounding is larger in large samples, for all of their codes alike
            least = LEAST_MIXTURE * float(np.mean(model.density * model.power))
            law = DeviceLaw.of(replace(model, noise=max(model.noise, least)), backend)
            (offset, rate), _ = Coefficients.rows(*law.parts, backend.xp)
            squares = self.squares(A, WITNESS_ROWS)  # sparse codes of few rows are active together by chance
            return find_mixed_pairs(backend.xp.tanh(offset[:, None] + rate[:, None] * squares).T)
        Z = self.few @ to_numpy(A).T
        return find_mixed_pairs(model.activity((Z**2).T).T)

    def separate_pairs(self, A: Array, model: SpikeSlab) -> tuple[Array, int]:
        """A with mixed pairs taken apart, and how many there were."""
        pairs = self.mixed_pairs(A, model)
        if not pairs:
            return A, 0
        backend, host = Backend.of(A), to_numpy(A)
        if not backend.on_gpu:
            moved, n_moved = separate_pairs(host, self.few @ host.T, pairs)
            return backend.asarray(moved, "float64"), n_moved
        atoms = [atom for pair in pairs for atom in (pair.first, pair.second)]
        alone = [replace(pair, first=2 * k, second=2 * k + 1) for k, pair in enumerate(pairs)]
        own = host[atoms]
        turned, n_moved = separate_pairs(own, to_numpy(self.rows @ backend.asarray(own, "float64").T), alone)
        moved = host.copy()
        moved[atoms] = turned
        return backend.asarray(moved, "float64"), n_moved

    def refit(self, objective: Objective, A: Array, moved: float) -> Objective:
        """The contrast that fits the codes at A; the same one as before if it hardly differs.

        A contrast that never stood still would never let A stand still either. A pair of atoms still turned against
        each other blurs their zeros, and pulls them apart only while that blur passes for noise. So noise is not let
        down faster than atoms come to rest.
        """
        return self._refit(objective, A, (MIN_NOISE_PER_STEP * moved) ** 2)

    def refit_freely(self, objective: Objective, A: Array, moved: float) -> Objective:  # noqa: ARG002
        """The same with noise let down as fast as it falls, for steps that do not go by pairs."""
        return self._refit(objective, A, 0.0)

    def _refit(self, objective: Objective, A: Array, least: float) -> Objective:
        assert isinstance(objective, SpikeSlabLikelihood)
        backend = Backend.of(A)
        if backend.on_gpu:
            old = DeviceLaw.of(objective.model, backend)
            law, same = self.followed(A, old, backend.xp.zeros_like(old.noise) + least)
            return objective if float(same) else SpikeSlabLikelihood(law.on_host(self.least_noise))
        model = update_spike_slab(CodeHistogram.of(self.few @ to_numpy(A).T), objective.model)
        model = replace(model, noise=max(model.noise, min(objective.model.noise, least)))
        return objective if _alike(model, objective.model) else SpikeSlabLikelihood(model)

    def followed(self, A: Array, old: DeviceLaw, least: Array) -> tuple[DeviceLaw, Array]:
        """The law at A on a graphics card, or `old` if it hardly differs, and whether that is so, as 1 or 0.

        Asks the card for no number. Noise is not let down below `least` (m,), all entries the same, unless it was.
        """
        xp = Backend.of(A).xp
        law = followed_on_device(self.squares(A), old, self.least_in(A))
        law = law.with_noise(xp.maximum(law.noise, xp.minimum(old.noise, least)))
        same = alike_on_device(law, old)
        kept = (xp.where(same > 0, before, after) for before, after in zip(old.parts, law.parts, strict=True))
        return DeviceLaw(*kept), same

    def follow(self, A: Array, old: Array, squares: Array, law: Array, coefficients: tuple[Array, Array]) -> Array:
        """The same for a walk that is recorded: from `old` (3, m) to `law`, and to its lines for codes and for sums.

        `squares` (m,) are those of the moves of atoms, which the noise stays above.
        """
        xp, before = Backend.of(A).xp, DeviceLaw(*old)
        kernels = Backend.of(A).kernels
        if kernels is not None and int(A.shape[0]) <= MOST_ATOMS:
            own = own_laws(self.squares(A), before, self.least_in(A))
            same = xp.empty_like(squares[:1])
            kernels.settled(own.parts, old, squares, (law, *coefficients, same), MIN_NOISE_PER_STEP)
            return same[0]
        least = xp.zeros_like(squares) + MIN_NOISE_PER_STEP**2 * xp.max(squares)
        new, same = self.followed(A, before, least)
        law.copy_(xp.stack(new.parts))
        for memory, rows in zip(coefficients, Coefficients.rows(*new.parts, xp), strict=True):
            memory.copy_(xp.stack(rows))
        return same

    def squares(self, A: Array, number: int = GPU_FEW_ROWS) -> Array:
        """Squares (m, b) of the codes of about so many witnesses, where A is."""
        rows = self.rows[:: max(1, int(self.rows.shape[0]) // number), :]
        Z = A @ Backend.of(A).asarray(rows, "float64").T
        return Z * Z

    def least_in(self, A: Array) -> Array:
        """The least noise, as an array of one number where A is."""
        backend = Backend.of(A)
        return backend.xp.full((1,), self.least_noise, dtype=backend.xp.float64, device=backend.device)


def _alike(new: SpikeSlab, old: SpikeSlab) -> bool:
    drift = float(np.mean(np.abs(np.log(new.density / old.density))))
    return abs(math.log(new.noise / old.noise)) < 0.1 and drift < 0.05
