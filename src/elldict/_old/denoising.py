"""Posterior means of codes under the fitted law, samples rebuilt from them, and the best threshold for each atom."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from elldict._old.backend.base import Array, Backend, FreshWork, to_numpy
from elldict._old.solver.amp import CorruptionLaw, guess_codes
from elldict._old.solver.mixture import MixtureLaw, locate_bins
from elldict._old.solver.spike_slab import SpikeSlab, SpikeSlabLikelihood

Vector = NDArray[np.float64]

GRID_POINTS, GRID_START, GRID_END = 4000, 1e-3, 12.0
"""Thresholds that are compared: in equal steps of their logarithm, from this part of the standard deviation of the
noise to as many of those of the code, beyond which codes no longer are."""

LEAST_DENSITY = 1e-6
"""Densities are kept as far from 0 and 1 as this, where log odds end."""


@dataclass(frozen=True)
class CodeLaw:
    """What a model knows of its codes: density and scale (m,), the noise, and what takes their place if anything."""

    density: Vector
    scale: Vector
    noise_std: float
    mixture: MixtureLaw | None = None  # of atoms of density above 0
    cleaning: CorruptionLaw | None = None  # of all atoms, orthonormal, and of the entries of samples
    known_noise: Vector | None = None  # (m,) standard deviation of the noise of each code, in place of the fitted one

    def with_known_noise(self, std: float, unmixing: Array) -> CodeLaw:
        """The law of codes whose samples have white noise of this standard deviation.

        A code is the product of a row of `unmixing` (m, n) with a sample, and so is its noise. Noise of several codes
        is taken for independent, which it is for orthonormal rows.
        """
        lengths = np.linalg.norm(np.asarray(to_numpy(unmixing), dtype=np.float64), axis=1)
        cleaning = self.cleaning
        if cleaning is not None:
            cleaning = replace(cleaning, noise=max(std**2, cleaning.least_noise))
        return replace(self, cleaning=cleaning, known_noise=std * lengths)

    @property
    def used(self) -> NDArray[np.bool_]:
        """Atoms (m,) that have codes; those beyond the rank of the samples have none."""
        return np.asarray(self.density > 0)

    def spike_slab(self) -> SpikeSlab:
        """Law of the atoms that are used."""
        density = np.clip(self.density[self.used], LEAST_DENSITY, 1 - LEAST_DENSITY)
        return SpikeSlab(density, self.scale[self.used] ** 2, self.noise_std**2)


@dataclass(frozen=True)
class PosteriorMean:
    """The rule that makes posterior means (b, m) of linear codes (b, m)."""

    law: CodeLaw
    unmixing: Array  # (m, n)

    def __call__(self, Z: Array, xp: Any) -> Array:
        law, backend = self.law, Backend.of(Z)
        if law.cleaning is not None:
            A = backend.asarray(self.unmixing, "float64")  # orthonormal: samples are codes times atoms
            return guess_codes(Z @ A, A, law.cleaning)
        noise = np.full(len(law.density), law.noise_std) if law.known_noise is None else law.known_noise
        if np.all(noise == 0):
            return Z
        kept, noise = _keep_columns(Z, law.used, xp), noise[law.used] ** 2
        if law.mixture is not None:
            means = _look_up_means(law.mixture, noise, kept, xp, fitted=law.noise_std**2)
        else:
            means = SpikeSlabLikelihood(replace(law.spike_slab(), noise=noise)).posterior_mean(kept, xp)
        return _fill_columns(means, law.used, Z, xp)


@dataclass(frozen=True)
class Rebuilt:
    """The rule that makes samples (b, n) of linear codes (b, m), by way of their posterior means."""

    codes: PosteriorMean
    mixing: Array  # (n, m)
    mean: Array  # (n,)

    def __call__(self, Z: Array, xp: Any) -> Array:
        backend = Backend.of(Z)
        mixing, mean = (backend.asarray(part, "float64") for part in (self.mixing, self.mean))
        return self.codes(Z, xp) @ mixing.T + mean


def _keep_columns(Z: Array, used: NDArray[np.bool_], xp: Any) -> Array:
    if np.all(used):
        return Z
    return xp.take(Z, Backend.of(Z).xp.asarray(np.flatnonzero(used), device=Backend.of(Z).device), axis=1)


def _fill_columns(means: Array, used: NDArray[np.bool_], Z: Array, xp: Any) -> Array:
    """The same with columns of zeros for atoms that are not used; they come last."""
    missing = int(np.sum(~used))
    if not missing:
        return means
    return xp.concat([means, xp.zeros_like(Z[:, :missing])], axis=1)


def _look_up_means(law: MixtureLaw, noise: Vector, Z: Array, xp: Any, *, fitted: float) -> Array:  # noqa: ARG001
    """Posterior means of codes Z (b, m) with noise of these variances (m,), of a mixture with that of `fitted` in it.

    Less noise than was fitted says that a part of what was taken for noise are codes: the mixture stays as it is.
    """
    backend, work = Backend.of(Z), FreshWork()
    added = np.maximum(noise - fitted, 0.0)
    level, slope = (backend.asarray(table.ravel(), "float64") for table in law.expand_posterior_mean(noise, added))
    bins = locate_bins(Z, backend.asarray(np.sqrt(law.std**2 + added), "float64"), work)
    return work.take(level, bins, into="") + work.take(slope, bins, into="") * Z


def find_thresholds(law: CodeLaw, *, soft: bool) -> Vector:
    """Thresholds (m,) with the smallest expected squared error of the codes that are kept.

    With x(z) the posterior mean and q the density of a code z, the derivative of the error by the threshold t is
    2 q(t) (2 t x(t) - t^2) for codes that are kept or not, and 2 times the integral of (t - z + x(z)) q(z) beyond t for
    codes that are shrunk; both signs of z add up. Error and derivative are summed on a grid.
    """
    thresholds = np.zeros(len(law.density))
    if law.noise_std > 0:
        thresholds[law.used] = _search_grid(law, soft=soft)
    return thresholds


def _search_grid(law: CodeLaw, *, soft: bool) -> Vector:
    widest = law.mixture.std if law.mixture is not None else np.sqrt(law.scale[law.used] ** 2 + law.noise_std**2)
    end = GRID_END * float(np.max(widest))
    t = np.concatenate([[0.0], np.geomspace(GRID_START * law.noise_std, max(end, law.noise_std), GRID_POINTS)])
    slopes = np.zeros((int(np.sum(law.used)), len(t)))
    for side in (1, -1):
        density, mean = _evaluate_law(law, side * t)
        towards = side * mean
        if soft:
            # what lies beyond t, of q and of (z - x) q, by the trapezoidal rule from the far end
            tail, excess = (_sum_beyond(part, t) for part in (density, (t - towards) * density))
            slopes += 2 * (t * tail - excess)
        else:
            slopes += 2 * density * (2 * t * towards - t**2)
    steps = np.diff(t) * (slopes[:, 1:] + slopes[:, :-1]) / 2
    errors = np.concatenate([np.zeros((len(slopes), 1)), np.cumsum(steps, axis=1)], axis=1)
    return np.asarray(t[np.argmin(errors, axis=1)])


def _sum_beyond(values: NDArray[np.float64], t: Vector) -> NDArray[np.float64]:
    """Integral from each t on; nothing is left beyond the last."""
    steps = np.diff(t) * (values[:, 1:] + values[:, :-1]) / 2
    beyond = np.cumsum(steps[:, ::-1], axis=1)[:, ::-1]
    return np.concatenate([beyond, np.zeros((len(values), 1))], axis=1)


def _evaluate_law(law: CodeLaw, z: Vector) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Density of codes, and posterior means, at values z (k,), for each atom that is used: (m, k)."""
    m = int(np.sum(law.used))
    Z = np.repeat(z[:, None], m, axis=1)
    if law.mixture is not None:
        noise = law.noise_std**2
        return law.mixture.density(Z).T, _look_up_means(law.mixture, np.full(m, noise), Z, np, fitted=noise).T
    objective = SpikeSlabLikelihood(law.spike_slab())
    return np.exp(objective.log_density(Z, np)).T, np.asarray(objective.posterior_mean(Z, np)).T
