"""Witnesses: a few of the samples, kept at hand, whose codes tell the law of all codes."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from elldict.backend.base import Array, Space, to_numpy
from elldict.data.dataset import Samples
from elldict.data.statistics import Frame
from elldict.data.subsample import taken
from elldict.solver.mixed_atoms import Pair, suspicious_pairs, unmixed
from elldict.solver.objective import Contrast
from elldict.solver.spike_slab import (
    BernoulliGaussian,
    CodeModel,
    Counts,
    DeviceLaw,
    Lines,
    alike_on_device,
    fit_code_model,
    fitted_on_device,
    followed_code_model,
    followed_on_device,
    own_laws,
    rough_code_model,
    rough_on_device,
)

FEW_VALUES = 2**16
WITNESS_VALUES = 2**18
"""Values in the samples kept at hand for fitting the law of codes; their product with A costs next to nothing."""

WITNESS_ROWS = 8192

GPU_FEW_ROWS = 1024
"""Of the few on a graphics card, to which many are as dear as few; of all there, as many as witnesses may be."""

STEADY = 2.0
"""The standard deviation of the noise stays above this many times the last move of any atom."""

MOST_ATOMS = 4096
"""Whose laws one program of a graphics card can hold side by side."""

LEAST_MIXTURE = 1e-7
"""Share of the power of a code that, as noise, hides mixtures too small to be worth taking apart."""

LEAST_NOISE = {"float32": 1e-12, "float64": 1e-18}
"""Variance of the noise, in units of the mean square, that rounding of the codes alone produces."""


@dataclass(frozen=True)
class Witnesses:
    """A random few of the samples, inside the frame: from their codes the law of all codes is fitted."""

    rows: Array  # (b, k), in float64, where the samples are
    least_noise: float
    known: dict[int, tuple[Array, CodeModel]] = field(default_factory=dict)  # the last law fitted, by its A

    @property
    def few(self) -> NDArray[np.float64]:
        """A few of them, for what is done again and again."""
        b, k = self.rows.shape
        return to_numpy(self.rows[:: max(1, b * k // FEW_VALUES), :])

    @classmethod
    def drawn(cls, samples: Samples, frame: Frame, rng: np.random.Generator) -> Witnesses:
        """Draw rows uniformly, so that sorted or grouped samples do not matter."""
        most = max(256, min(WITNESS_ROWS, WITNESS_VALUES // samples.n_features))
        number = min(samples.n_samples, WITNESS_ROWS if samples.space.on_gpu else most)
        index = np.sort(rng.choice(samples.n_samples, number, replace=False)).astype(np.int64)
        if samples.space.on_gpu:
            rows = frame.moved_to(samples.space).inside(taken(samples, index, "float64"))
        else:
            rows = frame.inside(samples.rows(index))
        return cls(rows, LEAST_NOISE[samples.dtype])

    def fitted(self, A: Array) -> CodeModel:
        """Law of the codes at A; asked again for the same A, the same."""
        if id(A) not in self.known:
            law = fitted_on_device(self.squares(A, WITNESS_ROWS), self.least_in(A)) if Space.of(A).on_gpu else None
            if law is not None:
                model = law.on_host(self.least_noise)
            else:
                model = fit_code_model(Counts.of(to_numpy(self.rows) @ to_numpy(A).T), least_noise=self.least_noise)
            self.known.clear()
            self.known[id(A)] = (A, model)  # A is held, so that its id stays its own
        return self.known[id(A)][1]

    def rough(self, A: Array) -> CodeModel:
        """Law of the codes at A while that is on its way."""
        if Space.of(A).on_gpu:
            return rough_on_device(self.squares(A), self.least_in(A)).on_host(self.least_noise)
        return rough_code_model(Counts.of(self.few @ to_numpy(A).T), least_noise=self.least_noise)

    def mixed_pairs(self, A: Array, model: CodeModel) -> list[Pair]:
        """Pairs of atoms whose codes are active together more often than chance has it."""
        space = Space.of(A)
        if space.on_gpu:
            # many rows show even that rounding is larger in large samples, for all of their codes alike
            least = LEAST_MIXTURE * float(np.mean(model.density * model.power))
            law = DeviceLaw.of(replace(model, noise=max(model.noise, least)), space)
            (offset, rate), _ = Lines.rows(*law.parts, space.xp)
            squares = self.squares(A, WITNESS_ROWS)  # sparse codes of few rows are active together by chance
            return suspicious_pairs(space.xp.tanh(offset[:, None] + rate[:, None] * squares).T)
        Z = self.few @ to_numpy(A).T
        return suspicious_pairs(model.activity((Z**2).T).T)

    def unmixed(self, A: Array, model: CodeModel) -> tuple[Array, int]:
        """A with mixed pairs taken apart, and how many there were."""
        pairs = self.mixed_pairs(A, model)
        if not pairs:
            return A, 0
        space, host = Space.of(A), to_numpy(A)
        if not space.on_gpu:
            moved, n_moved = unmixed(host, self.few @ host.T, pairs)
            return space.asarray(moved, "float64"), n_moved
        atoms = [atom for pair in pairs for atom in (pair.first, pair.second)]
        alone = [replace(pair, first=2 * k, second=2 * k + 1) for k, pair in enumerate(pairs)]
        own = host[atoms]
        turned, n_moved = unmixed(own, to_numpy(self.rows @ space.asarray(own, "float64").T), alone)
        moved = host.copy()
        moved[atoms] = turned
        return space.asarray(moved, "float64"), n_moved

    def refit(self, contrast: Contrast, A: Array, moved: float) -> Contrast:
        """The contrast that fits the codes at A; the same one as before if it hardly differs.

        A contrast that never stood still would never let A stand still either. A pair of atoms still turned against
        each other blurs their zeros, and pulls them apart only while that blur passes for noise. So noise is not let
        down faster than atoms come to rest.
        """
        return self._refit(contrast, A, (STEADY * moved) ** 2)

    def refit_freely(self, contrast: Contrast, A: Array, moved: float) -> Contrast:  # noqa: ARG002
        """The same with noise let down as fast as it falls, for steps that do not go by pairs."""
        return self._refit(contrast, A, 0.0)

    def _refit(self, contrast: Contrast, A: Array, least: float) -> Contrast:
        assert isinstance(contrast, BernoulliGaussian)
        space = Space.of(A)
        if space.on_gpu:
            old = DeviceLaw.of(contrast.model, space)
            law, same = self.followed(A, old, space.xp.zeros_like(old.noise) + least)
            return contrast if float(same) else BernoulliGaussian(law.on_host(self.least_noise))
        model = followed_code_model(Counts.of(self.few @ to_numpy(A).T), contrast.model)
        model = replace(model, noise=max(model.noise, min(contrast.model.noise, least)))
        return contrast if _alike(model, contrast.model) else BernoulliGaussian(model)

    def followed(self, A: Array, old: DeviceLaw, least: Array) -> tuple[DeviceLaw, Array]:
        """The law at A on a graphics card, or `old` if it hardly differs, and whether that is so, as 1 or 0.

        Asks the card for no number. Noise is not let down below `least` (m,), all entries the same, unless it was.
        """
        xp = Space.of(A).xp
        law = followed_on_device(self.squares(A), old, self.least_in(A))
        law = law.with_noise(xp.maximum(law.noise, xp.minimum(old.noise, least)))
        same = alike_on_device(law, old)
        kept = (xp.where(same > 0, before, after) for before, after in zip(old.parts, law.parts, strict=True))
        return DeviceLaw(*kept), same

    def follow(self, A: Array, old: Array, squares: Array, law: Array, lines: tuple[Array, Array]) -> Array:
        """The same for a walk that is recorded: from `old` (3, m) to `law`, and to its lines for codes and for sums.

        `squares` (m,) are those of the moves of atoms, which the noise stays above.
        """
        xp, before = Space.of(A).xp, DeviceLaw(*old)
        kernels = Space.of(A).kernels
        if kernels is not None and int(A.shape[0]) <= MOST_ATOMS:
            own = own_laws(self.squares(A), before, self.least_in(A))
            same = xp.empty_like(squares[:1])
            kernels.settled(own.parts, old, squares, (law, *lines, same), STEADY)
            return same[0]
        least = xp.zeros_like(squares) + STEADY**2 * xp.max(squares)
        new, same = self.followed(A, before, least)
        law.copy_(xp.stack(new.parts))
        for memory, rows in zip(lines, Lines.rows(*new.parts, xp), strict=True):
            memory.copy_(xp.stack(rows))
        return same

    def squares(self, A: Array, number: int = GPU_FEW_ROWS) -> Array:
        """Squares (m, b) of the codes of about so many witnesses, where A is."""
        rows = self.rows[:: max(1, int(self.rows.shape[0]) // number), :]
        Z = A @ Space.of(A).asarray(rows, "float64").T
        return Z * Z

    def least_in(self, A: Array) -> Array:
        """The least noise, as an array of one number where A is."""
        space = Space.of(A)
        return space.xp.full((1,), self.least_noise, dtype=space.xp.float64, device=space.device)


def _alike(new: CodeModel, old: CodeModel) -> bool:
    drift = float(np.mean(np.abs(np.log(new.density / old.density))))
    return abs(math.log(new.noise / old.noise)) < 0.1 and drift < 0.05
