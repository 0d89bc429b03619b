"""Samples with known atoms: one function a kind, of a random generator, a size and parameters.

True atoms are rows of unit length. They are those of the law by which samples are drawn; where a sensor changes what it
measures of them, those that a perfect sensor would have seen.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from scipy.linalg import expm

from elldict import LpDictionaryLearning, LpICA
from elldict.datasets import make_bernoulli_gaussian
from experiments.campaign import laws
from experiments.campaign.laws import Matrix, Rng

DENSITY = 0.2
"""Share of active codes where a kind varies something else."""

NOISE = 0.1
"""Standard deviation of the noise of an entry where a kind varies something else; active codes have one."""


N_BLOCKS = 100
"""Of samples between which atoms that turn steadily move on: steps far below the errors of a fit."""


LEAST_ATOMS = 8
"""The error of two atoms would be that of a single angle, which scatters too much about what is expected of it."""


def draw_orthogonal(n: int, rng: Rng) -> Matrix:
    """Draw an orthogonal matrix (n, n) of uniform (Haar) distribution."""
    U, _, Vt = np.linalg.svd(rng.standard_normal((n, n)))
    return np.asarray(U @ Vt)


@dataclass(frozen=True)
class Samples:
    """What is fitted, and what should be found."""

    X: Matrix
    atoms: Matrix  # (k, n), rows of unit length; orthonormal unless the kind says otherwise
    options: Mapping[str, Any] = field(default_factory=dict)  # of the estimator
    estimator: type[LpDictionaryLearning] | type[LpICA] = LpDictionaryLearning


def mix(codes: Matrix, rng: Rng, noise: float = 0.0, **options: Any) -> Samples:
    """Samples of these codes in random orthonormal atoms, with white noise."""
    atoms = draw_orthogonal(codes.shape[1], rng)
    return Samples(codes @ atoms + noise * rng.standard_normal(codes.shape), atoms, options)


def unit_rows(rows: Matrix) -> Matrix:
    """Rows of unit length."""
    return np.asarray(rows / np.linalg.norm(rows, axis=1, keepdims=True))


# --- laws of codes ----------------------------------------------------------------------------------------------------


def draw_clean(rng: Rng, n: int, r: int, density: float, noise: float = 0.0) -> Samples:
    """Codes that are zero or Gaussian."""
    X, atoms, _ = make_bernoulli_gaussian(r, n, density=density, noise_std=noise, random_state=rng)
    return Samples(X, atoms)


def draw_tails(rng: Rng, n: int, r: int, law: str, noise: float) -> Samples:
    """Active codes of another law than the Gaussian one."""
    return mix(laws.draw_sparse((r, n), DENSITY, rng, law), rng, noise)


def draw_dense(rng: Rng, n: int, r: int, law: str) -> Samples:
    """No code is zero."""
    return mix(laws.draw_values(law, (r, n), rng), rng)


def draw_sub_gaussian(rng: Rng, n: int, r: int, law: str, others: str | None) -> Samples:
    """Sources less sparse than Gaussian ones: all, or half of them beside sparse ones."""
    codes = laws.draw_values(law, (r, n), rng)
    if others is not None:
        codes[:, n // 2 :] = laws.draw_codes(others, r, n - n // 2, rng)
    return mix(codes, rng)


def draw_loud(rng: Rng, n: int, r: int, law: str, loudness: str) -> Samples:
    """All codes of a sample are large together."""
    return mix(laws.draw_codes(law, r, n, rng) * laws.draw_loudness(loudness, r, rng), rng)


def draw_shared(rng: Rng, n: int, r: int, groups: str, share: float, noise: float) -> Samples:
    """Groups of atoms that share their support."""
    group = 4 if groups == "fours" else 2
    n_groups = 1 if groups == "one pair" else n // group
    active = laws.draw_shared_supports(r, n, group, n_groups, share, DENSITY, rng)
    return mix(active * rng.standard_normal((r, n)), rng, noise)


def draw_gaussian(rng: Rng, n: int, r: int, gaussian: str, law: str) -> Samples:
    """Sources some of which are Gaussian: one is identifiable by the others, several are not."""
    n_gaussian = {"all": n, "one": 1, "two": 2, "half": n // 2}[gaussian]
    codes = laws.draw_codes(law, r, n, rng)
    codes[:, :n_gaussian] = rng.standard_normal((r, n_gaussian))
    return mix(codes, rng)


def draw_skewed(rng: Rng, n: int, r: int, law: str, sparse: bool) -> Samples:
    """Dense codes about zero, or codes that are zero or positive, of which the mean is subtracted."""
    if not sparse:
        return mix(laws.draw_values(law, (r, n), rng), rng)
    codes = laws.SKEWED[law]((r, n), rng) * (rng.random((r, n)) < DENSITY)
    return mix(codes, rng, NOISE, center=True)


def draw_scales(rng: Rng, n: int, r: int, ratio: float, noise: float) -> Samples:
    """Atoms of unequal strength; noise is in units of the weakest."""
    return mix(laws.draw_sparse((r, n), DENSITY, rng) * np.geomspace(1, ratio, n), rng, noise)


# --- dependence of samples on each other ------------------------------------------------------------------------------


def draw_serial(rng: Rng, n: int, r: int, series: str, size: float) -> Samples:
    """Samples in time: autoregressive sources, bursts of activity, or amplitudes that change slowly."""
    if series == "autoregressive":
        return mix(laws.draw_series("laplace", r, n, size, rng), rng)
    if series == "bursts":
        return mix(laws.draw_bursts(r, n, size, DENSITY, rng) * rng.standard_normal((r, n)), rng, NOISE)
    return mix(laws.draw_amplitudes(r, n, size, rng) * rng.standard_normal((r, n)), rng)


def draw_repeated(rng: Rng, n: int, r: int, repeats: str, law: str) -> Samples:
    """Samples that are there several times; r is their number with repetitions."""
    if repeats == "bootstrap":
        number = rng.integers(0, r, r)
    else:
        number = np.repeat(np.arange(r), int(repeats[0]))[:r]
        if repeats.endswith("shuffled"):
            rng.shuffle(number)
    found = mix(laws.draw_codes(law, int(number.max()) + 1, n, rng), rng, 0.2 if law == "sparse" else 0.0)
    return Samples(found.X[number], found.atoms)


def draw_drift(rng: Rng, n: int, r: int, change: str, angle: float) -> Samples:
    """Atoms that change while samples are taken; true are those in the middle.

    "steady": all turn, each by `angle` in the root mean square from the first sample to the last. "once": one turns by
    `angle` halfway, in a random direction, and is orthogonal to the others neither before nor afterwards.
    """
    atoms, codes = draw_orthogonal(n, rng), laws.draw_sparse((r, n), DENSITY, rng)
    noise = NOISE * rng.standard_normal((r, n))
    if change == "steady":
        X = np.concatenate(list(turn_steadily(codes, atoms, angle, rng)))
    else:
        aside = unit_rows(rng.standard_normal((1, n - 1)) @ atoms[1:])
        turned = np.where(np.arange(r) < r // 2, -angle / 2, angle / 2)[:, None]
        first = codes[:, :1] * (np.cos(turned) * atoms[:1] + np.sin(turned) * aside)
        X = first + codes[:, 1:] @ atoms[1:]
    return Samples(X + noise, atoms)


def turn_steadily(codes: Matrix, atoms: Matrix, angle: float, rng: Rng) -> Iterator[Matrix]:
    """Samples, block by block, of atoms that turn by `angle` in all."""
    generator = rng.standard_normal(atoms.shape)
    generator -= generator.T
    generator *= angle * np.sqrt(len(atoms)) / np.linalg.norm(generator)
    blocks = np.array_split(codes, N_BLOCKS)
    turned, step = atoms @ expm(-generator / 2), expm(generator / (N_BLOCKS - 1))
    for block in blocks:
        yield block @ turned
        turned = turned @ step


# --- what sensors do --------------------------------------------------------------------------------------------------


def draw_outliers(rng: Rng, n: int, r: int, outliers: str, size: float, count: int = 0) -> Samples:
    """Samples that are far too large, Cauchy noise in a share of them, or one feature with stronger noise."""
    found = mix(laws.draw_sparse((r, n), DENSITY, rng), rng, NOISE)
    X = found.X
    if outliers == "scaled":
        X[rng.choice(r, count, replace=False)] *= size
    elif outliers == "cauchy":
        hit = rng.random(r) < size
        X[hit] += rng.standard_cauchy((np.count_nonzero(hit), n))
    else:
        X[:, 0] += NOISE * np.sqrt(size**2 - 1) * rng.standard_normal(r)
    return found


def draw_rounded(rng: Rng, n: int, r: int, step: float | str, law: str) -> Samples:
    """Rounded to a step, in standard deviations of an entry; or integers of a standard deviation of 10."""
    found = mix(laws.draw_codes(law, r, n, rng), rng)
    if step == "integers":
        return Samples(np.round(10 * found.X / np.std(found.X)).astype(np.int64), found.atoms)
    q = float(step) * np.std(found.X)
    return Samples(np.round(found.X / q) * q, found.atoms)


def draw_sensors(rng: Rng, n: int, r: int, fault: str, size: float = 0.0) -> Samples:
    """Sensors that are not linear, measure nothing, or measure what another does."""
    found = mix(laws.draw_sparse((r, n), DENSITY, rng), rng, NOISE)
    unit = float(np.std(found.X))
    X, atoms = found.X / unit, found.atoms.copy()
    if fault == "clipped":
        X = np.clip(X, -size, size)
    elif fault == "tanh":
        X = np.tanh(X)
    elif fault == "cubic":
        X = X + 0.1 * X**3
    else:
        X[:, 0], atoms[:, 0] = (0, 0) if fault == "dead" else (X[:, 1], atoms[:, 1])
    return Samples(unit * X, unit_rows(atoms))


def draw_corrupted(rng: Rng, n: int, r: int, rate: float, size: float) -> Samples:
    """A share of the entries is off by plus or minus `size`."""
    X, atoms, _ = make_bernoulli_gaussian(
        r, n, density=DENSITY, noise_std=NOISE, corruption=size, corruption_rate=rate, random_state=rng
    )
    return Samples(X, atoms)


def draw_about_mean(rng: Rng, n: int, r: int, size: float, center: bool) -> Samples:
    """A mean that is not zero, of `size` standard deviations in the root mean square of features."""
    found = mix(laws.draw_sparse((r, n), DENSITY, rng), rng, NOISE, center=center)
    mean = size * np.std(found.X) * np.sqrt(n) * unit_rows(rng.standard_normal((1, n)))
    return Samples(found.X + mean, found.atoms, found.options)


# --- atoms that are not orthogonal ------------------------------------------------------------------------------------


def draw_oblique(rng: Rng, n: int, r: int, condition: float, noise: float, whiten: bool) -> Samples:
    """Atoms of a condition number, fitted as they are or whitened."""
    X, dictionary, _ = make_bernoulli_gaussian(
        r,
        n,
        density=DENSITY,
        noise_std=noise,
        orthogonal=False,
        condition_number=condition,
        random_state=rng,
    )
    return Samples(X, unit_rows(dictionary), {"whiten": whiten})


def draw_reduced(rng: Rng, n: int, r: int, share: float, noise: float, law: str) -> Samples:
    """A share of n features as atoms of random directions, with noise; samples are reduced to as many directions.

    Where that would be fewer than `LEAST_ATOMS`, so many atoms in more features.
    """
    k = max(int(share * n), LEAST_ATOMS)
    atoms = unit_rows(rng.standard_normal((k, max(n, int(k / share)))))
    X = laws.draw_codes(law, r, k, rng) @ atoms
    return Samples(X + noise * rng.standard_normal(X.shape), atoms, {"n_components": k, "whiten": True})


def draw_mixture(rng: Rng, n: int, r: int, law: str, condition: float) -> Samples:
    """Sources in an unknown mixture, about a mean, for independent component analysis."""
    codes = laws.draw_values("uniform" if law == "uniform" else "laplace", (r, n), rng)
    if law == "both":
        codes[:, ::2] = laws.draw_values("uniform", codes[:, ::2].shape, rng)
    values = np.geomspace(1, 1 / condition, n)
    mixing = draw_orthogonal(n, rng) @ (values[:, None] * draw_orthogonal(n, rng))
    return Samples(codes @ mixing + rng.standard_normal(n), unit_rows(mixing), {}, LpICA)
