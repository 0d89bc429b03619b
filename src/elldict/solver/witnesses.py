"""Witnesses: a few of the samples, kept at hand, whose codes tell the law of all codes."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from elldict.samples.base import Samples
from elldict.samples.frame import Frame
from elldict.solver.basins import Pair, suspicious_pairs, unmixed
from elldict.solver.code_model import CodeModel, Counts, fit_code_model, followed_code_model, rough_code_model
from elldict.solver.contrasts import BernoulliGaussian, Contrast
from elldict.space import Array, Space, to_numpy

FEW_VALUES = 2**16
WITNESS_VALUES = 2**18
"""Values in the samples kept at hand for fitting the law of codes; their product with A costs next to nothing."""

WITNESS_ROWS = 8192

STEADY = 2.0
"""The standard deviation of the noise stays above this many times the last move of any atom."""

LEAST_NOISE = {"float32": 1e-12, "float64": 1e-18}
"""Variance of the noise, in units of the mean square, that rounding of the codes alone produces."""


@dataclass(frozen=True)
class Witnesses:
    """A random few of the samples, inside the frame: from their codes the law of all codes is fitted."""

    rows: NDArray[np.float64]  # (b, k)
    least_noise: float
    known: dict[int, tuple[Array, CodeModel]] = field(default_factory=dict)  # the last law fitted, by its A

    @property
    def few(self) -> NDArray[np.float64]:
        """A few of them, for what is done again and again."""
        return self.rows[:: max(1, self.rows.size // FEW_VALUES)]

    @classmethod
    def drawn(cls, samples: Samples, frame: Frame, rng: np.random.Generator) -> Witnesses:
        """Draw rows uniformly, so that sorted or grouped samples do not matter."""
        number = min(samples.n_samples, WITNESS_ROWS, max(256, WITNESS_VALUES // samples.n_features))
        index = np.sort(rng.choice(samples.n_samples, number, replace=False)).astype(np.int64)
        return cls(frame.inside(samples.rows(index)), LEAST_NOISE[samples.dtype])

    def fitted(self, A: Array) -> CodeModel:
        """Law of the codes at A; asked again for the same A, the same."""
        if id(A) not in self.known:
            model = fit_code_model(Counts.of(self.rows @ to_numpy(A).T), least_noise=self.least_noise)
            self.known.clear()
            self.known[id(A)] = (A, model)  # A is held, so that its id stays its own
        return self.known[id(A)][1]

    def rough(self, A: Array) -> CodeModel:
        """Law of the codes at A while that is on its way."""
        return rough_code_model(Counts.of(self.few @ to_numpy(A).T), least_noise=self.least_noise)

    def mixed_pairs(self, A: Array, model: CodeModel) -> list[Pair]:
        """Pairs of atoms whose codes are active together more often than chance has it."""
        Z = self.few @ to_numpy(A).T
        return suspicious_pairs(model.activity((Z**2).T).T)

    def unmixed(self, A: Array, model: CodeModel) -> tuple[Array, int]:
        """A with mixed pairs taken apart, and how many there were."""
        pairs = self.mixed_pairs(A, model)
        if not pairs:
            return A, 0
        host = to_numpy(A)
        moved, n_moved = unmixed(host, self.few @ host.T, pairs)
        return Space.of(A).asarray(moved, "float64"), n_moved

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
        model = followed_code_model(Counts.of(self.few @ to_numpy(A).T), contrast.model)
        model = replace(model, noise=max(model.noise, min(contrast.model.noise, least)))
        return contrast if _alike(model, contrast.model) else BernoulliGaussian(model)


def _alike(new: CodeModel, old: CodeModel) -> bool:
    drift = float(np.mean(np.abs(np.log(new.density / old.density))))
    return abs(math.log(new.noise / old.noise)) < 0.1 and drift < 0.05
