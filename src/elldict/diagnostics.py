"""Diagnostics: every component of the error bar, and every warning of a fit."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning

from elldict.backend.base import Array, Backend, to_numpy, total
from elldict.data.statistics import SampleStatistics, Whitening
from elldict.exceptions import NotIdentifiableWarning, NotWhiteWarning, RankWarning
from elldict.result import Iteration
from elldict.solver.objective import Statistics
from elldict.solver.refine import Estimate
from elldict.solver.spike_slab import Coefficients, SpikeSlab
from elldict.theory import chance
from elldict.theory.accuracy import CodeMoments, atom_errors, whitening_error, with_small_sample_correction


@dataclass(frozen=True)
class Dictionary:
    """Atoms (m, n) and the rows that make their codes, on the host."""

    components: NDArray[np.float64]
    unmixing: NDArray[np.float64]
    order: NDArray[np.intp]  # which row of the solver became which atom


def canonical_dictionary(
    estimate: Estimate, whitening: Whitening, statistics: SampleStatistics, n_components: int
) -> Dictionary:
    """Atoms by decreasing share of the objective, the largest entry of each positive.

    Atoms beyond the rank of the samples, whose codes are all zero, come last.
    """
    order = np.argsort(-to_numpy(estimate.stats.value), kind="stable")
    A = to_numpy(estimate.A)[order]
    components, unmixing = whitening.components(A), whitening.unmixing(A)
    missing = n_components - len(A)
    if missing:
        unused = _canonical_basis(statistics.eigenvectors[:, statistics.rank :])[:missing]
        components, unmixing = np.vstack([components, unused]), np.vstack([unmixing, unused])
    signs = signs_of_largest(components)
    return Dictionary(signs * components, signs * unmixing, order)


MIXED_ERROR = 0.5
"""Error of an atom that is the sum of two."""

NEARLY_APART_ERROR = 5e-5
"""Error of an atom that is mixed with another by less than can be seen."""


@dataclass(frozen=True)
class Laws:
    """Law of the codes of each atom, in the units of the codes, and how far each atom is likely to be off."""

    density: NDArray[np.float64]  # (m,)
    scale: NDArray[np.float64]  # (m,)
    noise_std: float
    atom_error: NDArray[np.float64]  # (m,)
    expected_error: float
    corruption_rate: float
    corruption_scale: float
    rest: NDArray[np.float64]  # (k - m, n) rows for the directions in which samples vary and that belong to no atom
    rest_std: float


def laws_of(estimate: Estimate, dictionary: Dictionary, whitening: Whitening, statistics: SampleStatistics) -> Laws:
    """What the codes say of themselves, in the order of the atoms; atoms beyond the rank have no codes."""
    order, r = dictionary.order, estimate.stats.weight
    n_filled = len(dictionary.components) - len(order)
    unit = 1.0 if whitening.whitened else whitening.unit
    model = estimate.model
    unsought = statistics.rank - len(order)
    rest = max(0.0, statistics.rank - total(estimate.moments.z2)) / max(unsought, 1)
    errors = np.array(
        to_numpy(with_small_sample_correction(atom_errors(estimate.moments, r, unsought, rest), statistics.rank, r))
    )
    for pair in estimate.mixed:  # moments do not show it: half of each is the other, or it is not known how much
        least = NEARLY_APART_ERROR if pair.nearly_apart else MIXED_ERROR
        errors[[pair.first, pair.second]] = np.maximum(errors[[pair.first, pair.second]], least)
    if estimate.dependent is not None:
        errors = np.maximum(errors, estimate.dependent)
    if estimate.correlated is not None:
        errors = errors + estimate.correlated
    if whitening.whitened:
        errors = errors + whitening_error(statistics.rank, r)
    errors = np.clip(errors, estimate.least_error, 1.0)[order]
    return Laws(
        density=np.append(model.density[order], np.zeros(n_filled)),
        scale=np.append(np.sqrt(model.power[order]) / unit, np.zeros(n_filled)),
        noise_std=0.0 if model.noise <= 4 * model.least_noise else float(np.sqrt(model.noise)) / unit,
        atom_error=np.append(errors, np.full(n_filled, np.nan)),
        expected_error=float(np.mean(errors)),
        corruption_rate=0.0 if estimate.corruption is None else estimate.corruption.rate,
        corruption_scale=0.0 if estimate.corruption is None else math.sqrt(estimate.corruption.size) / unit,
        rest=whitening.unmixing(_complement(to_numpy(estimate.A))),
        rest_std=float(np.sqrt(rest)) / unit if unsought else 1.0,
    )


def _complement(A: NDArray[np.float64]) -> NDArray[np.float64]:
    """Orthonormal rows orthogonal to those of A (m, k), shape (k - m, k)."""
    m, k = A.shape
    return np.asarray(np.linalg.qr(A.T, mode="complete")[0].T[m:]) if m < k else np.zeros((0, k))


def _canonical_basis(columns: NDArray[np.float64]) -> NDArray[np.float64]:
    """Orthonormal rows, the same whatever basis of their span is given: the projected axes, one after another."""
    rows: list[NDArray[np.float64]] = []
    for axis in columns @ columns.T:
        for row in rows * 2:  # twice is enough for orthogonality to rounding
            axis = axis - row * (row @ axis)  # noqa: PLW2901
        length = float(np.linalg.norm(axis))
        if length > 1e-6 and len(rows) < columns.shape[1]:
            rows.append(axis / length)
    return np.array(rows)


def signs_of_largest(rows: NDArray[Any]) -> NDArray[Any]:
    """Sign of the first entry that is as large as any; entries that differ by rounding alone count as equal."""
    sizes = np.abs(rows)
    first = np.argmax(sizes >= (1 - 1e-5) * np.max(sizes, axis=1, keepdims=True), axis=1)
    return np.asarray(np.sign(rows[np.arange(len(rows)), first])[:, None])


Vector = NDArray[np.float64]

ENOUGH_ROWS = 1500
"""About as many witnesses are asked: more would not change the verdict."""

MARKED = 6.0
"""Standard errors by which the curvature of a pair has to differ from that of its atoms to be believed."""

RELEVANT = 1.3
"""Times the error bar of independent codes from which dependence counts; below, chance explains it."""

MOST_P = 3.0
"""Exponent beyond which a few codes decide on means over few samples."""

ROUNDING = 1e-6
"""Errors below which an answer is exact, and a ratio of errors is one of rounding."""

LEAST_CURVATURE = 0.02
MOST_VARIANCE = 0.25
"""Share of the curvature of independent codes below which a pair is not told apart, and the variance of its angle."""


def dependent_errors(rows: Array, A: Array, p: float, model: SpikeSlab, *, refined: bool, n_samples: float) -> Vector:
    """Error of each atom (m,) where the dependence of codes makes it larger than it would be otherwise, else zero.

    `rows` (b, k) are samples inside the frame. The answer is that of l_p, or refined by the likelihood of `model`. Both
    are asked: a few large codes can make codes seem dependent to l_p, and blurred zeros to the likelihood.
    """
    backend = Backend.of(A)
    Z = _asked(rows, backend) @ A.T
    objectives = [_lp(Z, min(p, MOST_P), backend), _likelihood(Z, model, backend)]
    own, other = reversed(objectives) if refined else objectives
    apart, errors = _errors(Z, *own, n_samples, backend)
    counts = _more(errors, apart)
    if np.any(counts):
        apart, together = _errors(Z, *other, n_samples, backend)
        counts &= _more(together, apart)
    return np.where(counts, np.minimum(errors, 1.0), 0.0)


def correlated_errors(rows: Array, A: Array, scatter: Vector, n_samples: float) -> Vector:
    """Error of each atom (m,) that the correlation of codes shows, or zeros if chance explains it.

    Atoms that are not orthogonal but sought as if they were leave their codes correlated: two with a cosine of c come
    out turned away from each other by c/2 each. `scatter` (k, k) is that of all samples, in the frame of A.
    """
    m = int(A.shape[0])
    scale = float(np.trace(scatter)) / len(scatter)
    uneven = float(np.sum((scatter / scale - np.eye(len(scatter))) ** 2)) / 2  # bounds what correlations can sum up to
    if m < 2 or uneven < m * m / n_samples:
        return np.zeros(m)
    backend = Backend.of(A)
    C = to_numpy(A @ backend.asarray(scatter, "float64") @ A.T)
    strength = np.sqrt(np.diag(C))
    squares = (C / np.outer(strength, strength)) ** 2
    np.fill_diagonal(squares, 0.0)
    chance = _loudness(_asked(rows, backend) @ A.T, backend) / n_samples
    n_pairs = m * (m - 1) / 2
    if np.sum(squares) / 2 < chance * n_pairs * (2 + MARKED * math.sqrt(2 / n_pairs)):
        return np.zeros(m)
    return np.asarray(np.maximum(np.sum(squares, axis=1) - (m - 1) * chance, 0.0) / 2)


def _asked(rows: Array, backend: Backend) -> Array:
    return backend.asarray(rows[:: max(1, round(int(rows.shape[0]) / ENOUGH_ROWS)), :], "float64")


def _loudness(Z: Array, backend: Backend) -> float:
    """Mean of E z_i^2 z_j^2 over pairs of codes of unit variance: one if they are independent, more if they are not."""
    z2 = Z * Z
    z2 = z2 / backend.xp.mean(z2, axis=0)
    b, m = (int(size) for size in Z.shape)
    whole = float(backend.xp.sum(backend.xp.sum(z2, axis=1) ** 2)) - float(backend.xp.sum(z2 * z2))
    return max(1.0, whole / (b * m * (m - 1)))


def _more(errors: Vector, apart: Vector) -> NDArray[np.bool_]:
    return (errors > RELEVANT * apart) & (errors > ROUNDING)


def _errors(Z: Array, g: Array, slope: Array, n_samples: float, backend: Backend) -> list[Vector]:
    """Errors of the atoms, for independent codes and as they are."""
    parts = _variances(Z, g, slope, n_samples, backend)
    return [2 * to_numpy(backend.xp.sum(part, axis=1)) for part in parts]


def _lp(Z: Array, p: float, backend: Backend) -> tuple[Array, Array]:
    """Derivatives g and g' of the contrast |z|^p / p."""
    weight = backend.xp.abs(Z) ** (p - 2)
    return weight * Z, (p - 1) * weight


def _likelihood(Z: Array, model: SpikeSlab, backend: Backend) -> tuple[Array, Array]:
    """g, the best guess of the code behind z, and g'."""
    noise = np.full_like(model.power, model.noise)
    (offset, rate), (_, kept, _, _) = Coefficients.rows(model.density, model.power, noise, np)
    offset, rate, kept = (backend.asarray(row, "float64") for row in (offset, rate, kept))
    activity = 1 + backend.xp.tanh(offset + rate * Z * Z)  # twice the probability, as `kept` is half of the share
    return kept * activity * Z, kept * activity * (1 + 2 * rate * Z * Z * (2 - activity))


def _variances(Z: Array, g: Array, slope: Array, n_samples: float, backend: Backend) -> tuple[Array, Array]:
    """Variance (m, m) of the angle between each two atoms: for independent codes with these moments, and as it is."""
    xp, b = backend.xp, int(Z.shape[0])
    z2, gz = Z * Z, g * Z
    mean_z2, mean_gz, mean_slope, mean_g2 = (xp.mean(part, axis=0) for part in (z2, gz, slope, g * g))
    curvature = CodeMoments(gz=mean_gz, g2=mean_g2, slope=mean_slope, z2=mean_z2).curvatures()
    noise = mean_g2[:, None] * mean_z2[None, :]
    power = noise + noise.T - 2 * mean_gz[:, None] * mean_gz[None, :]
    crossed = slope.T @ z2 / b
    seen_curvature = mean_gz[:, None] + mean_gz[None, :] - crossed - crossed.T
    noise = (g * g).T @ z2 / b
    seen_power = noise + noise.T - 2 * (gz.T @ gz) / b
    blur = xp.mean(slope * slope, axis=0)[:, None] * xp.mean(z2 * z2, axis=0)[None, :] / b
    others = 1 - xp.eye(int(Z.shape[1]), dtype=Z.dtype, device=backend.device)
    common = curvature * _of_both(seen_curvature, curvature, others, xp)
    marked = xp.abs(seen_curvature - common) > MARKED * xp.sqrt(blur + blur.T)
    together = _angles(
        xp.where(marked, seen_power, power * _of_both(seen_power, power, others, xp)),
        xp.where(marked, seen_curvature, common),
        curvature,
        n_samples,
        xp,
    )
    return _angles(power, curvature, curvature, n_samples, xp) * others, together * others


def _of_both(seen: Array, expected: Array, others: Array, xp: Any) -> Array:
    """What is seen over what is expected, for two atoms the mean of what it is for each: chance blurs that less."""
    found, asked = xp.sum(seen * others, axis=1), xp.sum(expected * others, axis=1)
    of_atoms = xp.where(asked > 0, found / xp.where(asked > 0, asked, xp.ones_like(asked)), xp.ones_like(asked))
    return (of_atoms[:, None] + of_atoms[None, :]) / 2


def _angles(power: Array, curvature: Array, expected: Array, n_samples: float, xp: Any) -> Array:
    """Variance of each angle, power / (r curvature^2), and no more than where atoms are not told apart."""
    lost = curvature <= LEAST_CURVATURE * xp.abs(expected)
    variance = power / (n_samples * xp.where(lost, xp.ones_like(curvature), curvature) ** 2)
    most = xp.full_like(variance, MOST_VARIANCE)
    return xp.where(lost, most, xp.minimum(xp.maximum(variance, xp.zeros_like(variance)), most))


WARN_CORRELATION_ERROR = 0.003
"""Mean error, shown by correlated codes, of which a user is warned."""

WARN_ATOM_ERROR = 0.05
"""Error of an atom, due to codes that depend on each other, of which a user is warned."""

WHITE_ENOUGH = 10.0
"""Condition number of the covariance, beyond what chance gives, that atoms of unequal strength still explain."""


def warn_of_samples(statistics: SampleStatistics, *, whiten: bool, stacklevel: int) -> bool:
    """Warn of samples from which an orthogonal dictionary cannot be learned as asked; whether there was reason to."""
    doubts = list(_doubts(statistics, whiten=whiten))
    for category, message in doubts:
        warnings.warn(message, category, stacklevel=stacklevel)
    return bool(doubts)


def _doubts(statistics: SampleStatistics, *, whiten: bool) -> Iterator[tuple[type[Warning], str]]:
    r, n, k = statistics.n_samples, statistics.n_features, statistics.rank
    if r <= n:
        yield (
            NotIdentifiableWarning,
            f"X has {r} samples of {n} features: a dictionary is not identifiable from so few. Give at least a few "
            f"times n_features = {n} samples.",
        )
    elif k < n:
        remedy = "" if whiten else ", or set whiten=True to learn that many components"
        yield (
            RankWarning,
            f"X varies in {k} of {n} directions only; in the others it is zero, or smaller than rounding beside the "
            "largest. Atoms are learned where it varies; any others asked for are filled up. Drop constant or repeated "
            f"features and outliers, bring features to like units{remedy}.",
        )
    limit = WHITE_ENOUGH * chance.sampling_condition(r, k)
    mean_share = (
        0.0 if statistics.centred else statistics.whitened_mean_share if whiten and r > n else statistics.mean_share
    )
    if mean_share > 1 + WHITE_ENOUGH * n / r:
        yield (
            NotWhiteWarning,
            f"X is far from centred: the square of its mean is {mean_share:.3g} times its variance in a direction. "
            "Set center=True, unless the mean is that of codes which are never negative, and belongs to them.",
        )
    elif not whiten and not statistics.is_well_conditioned(limit) and statistics.condition_number > limit:
        yield (
            NotWhiteWarning,
            f"X is far from white: the condition number of its covariance is {statistics.condition_number:.3g}, "
            f"expected {limit:.3g} at most. Set whiten=True, unless the dictionary is orthogonal and its atoms differ "
            "in strength.",
        )


def unfinished_error(history: Sequence[Iteration]) -> float:
    """Error of a fit that was cut off: it may have had twice the way of its last step to go."""
    return min(1.0, 2 * (2 * history[-1].step) ** 2) if history else 1.0


def warn_of_answer(
    estimate: Estimate, order: NDArray[np.intp], statistics: SampleStatistics, *, doubted: bool, stacklevel: int
) -> None:
    """Warn of a fit that did not converge, of atoms that chance explains, and of codes that are not independent.

    `order` says which row became which atom. Where samples were `doubted`, codes are not what they should be for that
    reason already.
    """
    if not estimate.converged and not estimate.stopped:
        warnings.warn(
            f"The fit did not converge ({estimate.status}). Raise max_iter or tol.",
            ConvergenceWarning,
            stacklevel=stacklevel,
        )
    _warn_of_mixed_atoms(estimate, order, stacklevel)
    if estimate.converged and not doubted:
        _warn_of_dependent_atoms(estimate, order, stacklevel)
        _warn_of_correlated_codes(estimate, stacklevel)
    doubtful = np.flatnonzero(doubtful_rows(estimate.stats, statistics.rank)[order])
    if len(doubtful) and statistics.n_samples > statistics.n_features:  # too few samples were warned of before
        warnings.warn(
            f"{len(doubtful)} of {len(order)} atoms are not identifiable: {_listed(doubtful)}. Their codes are not "
            "sparser than Gaussian noise looks after the same search, or they are sub-Gaussian, as sine waves are, "
            "which maximising a norm with p > 2 cannot find and FastICA can. Give more samples, lower n_components, or "
            "use these atoms as a basis only.",
            NotIdentifiableWarning,
            stacklevel=stacklevel,
        )


def _warn_of_mixed_atoms(estimate: Estimate, order: NDArray[np.intp], stacklevel: int) -> None:
    mixed = [pair for pair in estimate.mixed if not pair.nearly_apart]
    if not mixed:
        return
    rank = np.argsort(order)
    pairs = sorted(tuple(sorted((int(rank[pair.first]), int(rank[pair.second])))) for pair in mixed)
    listed = ", ".join(f"{first} with {second}" for first, second in pairs[:10])
    warnings.warn(
        f"{len(pairs)} pairs of atoms seem to be mixed with each other, because their codes are active together: "
        f"{listed}. Give more samples, try n_init=5 or another random_state, or smaller exponents, p=(3, 2.5, 2.2).",
        NotIdentifiableWarning,
        stacklevel=stacklevel + 1,
    )


def _warn_of_dependent_atoms(estimate: Estimate, order: NDArray[np.intp], stacklevel: int) -> None:
    if estimate.dependent is None:
        return
    mixed = {atom for pair in estimate.mixed for atom in (pair.first, pair.second)}  # warned of already
    lost = np.array([error > WARN_ATOM_ERROR and row not in mixed for row, error in enumerate(estimate.dependent)])
    atoms = np.flatnonzero(lost[order])
    if len(atoms):
        warnings.warn(
            f"{len(atoms)} of {len(order)} atoms are hardly told apart by these samples, because their codes depend on "
            f"each other: {_listed(atoms)}. atom_error_ says how far each may be off. This is common where all codes "
            "are large in the same samples, as in images and sounds: if samples differ in loudness, divide each by its "
            "length; otherwise use these atoms as a basis only.",
            NotIdentifiableWarning,
            stacklevel=stacklevel + 1,
        )


def _warn_of_correlated_codes(estimate: Estimate, stacklevel: int) -> None:
    error = 0.0 if estimate.correlated is None else float(np.mean(estimate.correlated))
    if error > WARN_CORRELATION_ERROR:
        warnings.warn(
            f"The codes of X are correlated, as if its atoms were not orthogonal: an orthogonal dictionary is off by "
            f"about {100 * error:.2g} % for that alone. Set whiten=True, unless the dictionary is orthogonal and its "
            "codes depend on each other.",
            NotWhiteWarning,
            stacklevel=stacklevel + 1,
        )


def doubtful_rows(stats: Statistics, n_directions: int) -> NDArray[np.bool_]:
    """Rows of A whose codes could be those of Gaussian or sub-Gaussian sources.

    Two reasons to doubt: codes no sparser than chance makes them, and kappa = E g z - E z^2 E g' <= 0, where the
    objective does not even have a maximum at the source.
    """
    gz, slope, z2, magnitude = (
        to_numpy(total) / stats.weight for total in (stats.value, stats.slope, stats.z2, stats.extra["magnitude"])
    )
    score = chance.sparsity_score(magnitude, z2, stats.weight)
    return np.asarray((score < chance.chance_score(n_directions)) | (gz - z2 * slope <= 0))


def _listed(atoms: NDArray[np.intp], most: int = 10) -> str:
    shown = ", ".join(str(atom) for atom in atoms[:most])
    return shown if len(atoms) <= most else f"{shown}, ... ({len(atoms) - most} more)"
