"""Diagnostics: every component of the error bar, and every warning of a fit."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning

from elldict.backend.base import to_numpy, total
from elldict.data.statistics import SampleStatistics, Whitening
from elldict.exceptions import NotIdentifiableWarning, NotWhiteWarning, RankWarning
from elldict.result import Estimate, FitResult
from elldict.solver.evaluate import Statistics, find_unidentifiable
from elldict.solver.mixed_atoms import MixedPair
from elldict.theory.error_bars import (
    atom_errors,
    sampling_condition,
    subspace_errors,
    whitening_errors,
    with_small_sample_correction,
)

Vector = NDArray[np.float64]

MIXED_ERROR, NEARLY_SEPARATE_ERROR = 0.5, 5e-5
"""Error of an atom that is the sum of two, and of one that is mixed with another by less than can be seen."""

WARN_ATOM_ERROR = 0.05
"""Error of an atom, due to codes that depend on each other, of which a user is warned."""

WARN_CORRELATION_ERROR = 0.003
"""Mean error, shown by correlated codes, of which a user is warned."""

WHITE_CONDITION = 10.0
"""Condition number of the covariance, beyond what chance gives, that atoms of unequal strength still explain."""

MIXTURE_OPTIMISM = 100.0
"""Times the directions a sample by which a law fitted to the codes themselves makes error bars too small, found with
Laplace codes, whose law is the sharpest; tests/test_robust.py holds stated and true errors together."""


def estimate_atom_errors(
    estimate: Estimate,
    whitening: Whitening,
    statistics: SampleStatistics,
    *,
    dependent: Vector | None = None,
    correlated: Vector | None = None,
    least: float = 0.0,
    inflation: float = 1.0,
) -> Vector:
    """Error bar of each row of A (m,): sampling, mixtures, dependence, correlation, whitening, an early end.

    Samples that depend on each other count as fewer, by the factor of `inflation`.
    """
    assert estimate.lp_stats is not None
    r, moments = estimate.lp_stats.weight / inflation, estimate.stats.moments
    m, k = estimate.A.shape  # k directions are sought, which may be fewer than samples vary in
    n_unsought, variance = find_unsought(estimate) if m < k else (0, 0.0)
    unidentifiable = _find_unidentifiable(estimate, statistics)
    first_order = atom_errors(moments, r, n_unsought, variance, unidentifiable) * estimate.cleaning_factor
    errors = np.array(to_numpy(with_small_sample_correction(first_order, k, r)))
    if estimate.refined == "mixture":
        errors = errors * (1 + MIXTURE_OPTIMISM * k / r)
    if np.any(unidentifiable):  # a law fitted to Gaussian codes is never quite Gaussian; l_p has nothing to fit
        for each in (moments, estimate.lp_stats.moments):
            among_all = to_numpy(atom_errors(each, r, n_unsought, variance))
            errors[unidentifiable] = np.maximum(errors, np.minimum(among_all, 1.0))[unidentifiable]
    for pair in estimate.mixed:  # moments do not show it: half of each is the other, or it is not known how much
        at_least = NEARLY_SEPARATE_ERROR if pair.nearly_separate else MIXED_ERROR
        errors[[pair.first, pair.second]] = np.maximum(errors[[pair.first, pair.second]], at_least)
    for least_errors in (dependent, estimate.competing):
        if least_errors is not None:
            errors = np.maximum(errors, least_errors)
    if correlated is not None:
        errors = errors + correlated
    if whitening.whitened:
        # an atom that is lost already stays so, although errors that cancel each other in part may be added
        errors = np.where(errors < 1, errors + to_numpy(whitening_errors(moments, r, n_unsought)), errors)
    if whitening.n_discarded:
        variances, directions = statistics.principal
        atoms = whitening.components(to_numpy(estimate.A)) @ directions[:, :k]
        errors = errors + subspace_errors(variances[: k + whitening.n_discarded], atoms, r)
    return np.asarray(np.clip(errors, least, 1.0))


def find_unsought(estimate: Estimate) -> tuple[int, float]:
    """Number of the k directions that belong to no atom, and their variance in whitened coordinates."""
    m, k = estimate.A.shape
    left = k - total(estimate.stats.moments.z2)
    return k - m, max(0.0, left) / max(k - m, 1)


def find_rest(
    estimate: Estimate, whitening: Whitening, statistics: SampleStatistics
) -> tuple[NDArray[np.float64], float]:
    """Rows (any, n) for the directions in which samples vary and that belong to no atom, and the std along them.

    One for all, the root mean square: directions that were discarded are taken for noise, as probabilistic PCA does.
    """
    m, k = estimate.A.shape
    if not whitening.n_discarded:  # orthonormal rows orthogonal to those of A
        rest = np.linalg.qr(to_numpy(estimate.A).T, mode="complete")[0].T[m:]
        std = math.sqrt(find_unsought(estimate)[1])
        return whitening.unmixing(rest), std if whitening.whitened else std / whitening.scale
    span = statistics.eigenvectors[:, : k + whitening.n_discarded].T
    rest = np.linalg.qr(span @ to_numpy(whitening.to_white).T, mode="complete")[0].T[k:] @ span
    return rest, statistics.unit * math.sqrt(float(np.sum((rest @ statistics.scatter) * rest)) / len(rest))


def make_result(
    estimate: Estimate,
    order: NDArray[np.intp],
    errors: Vector,
    atoms: tuple[NDArray[np.float64], NDArray[np.float64]],
    whitening: Whitening,
    statistics: SampleStatistics,
) -> FitResult:
    """What a user gets of an estimate whose rows become atoms in this order; `atoms` are components and unmixing."""
    law, lp_stats = estimate.law, estimate.lp_stats
    assert law is not None
    assert lp_stats is not None
    components, unmixing = atoms
    n_filled = len(components) - len(order)  # atoms beyond the rank have no codes
    unit = 1.0 if whitening.whitened else whitening.scale
    rest, rest_std = np.zeros((0, statistics.n_features)), 1.0
    if len(order) < estimate.A.shape[1] or whitening.n_discarded:
        rest, rest_std = find_rest(estimate, whitening, statistics)
    mixture = estimate.mixture
    if mixture is not None:
        A = to_numpy(estimate.A)[order]
        signs = np.sign(np.sum(whitening.unmixing(A) * unmixing[: len(order)], axis=1))
        mixture = mixture.reorder(order, signs)
        mixture = replace(mixture, std=mixture.std / unit)
    result = FitResult(
        components=components,
        unmixing=unmixing,
        mean=np.zeros(statistics.n_features) if whitening.mean is None else whitening.mean,
        density=np.append(law.density[order], np.zeros(n_filled)),
        scale=np.append(np.sqrt(law.power[order]) / unit, np.zeros(n_filled)),
        noise_std=0.0 if law.noise <= 4 * law.least_noise else float(np.sqrt(law.noise)) / unit,
        atom_error=np.append(errors[order], np.full(n_filled, np.nan)),
        expected_error=float(np.mean(errors[order])),
        rest=rest,
        rest_std=rest_std,
        mixture=mixture,
        objective=lp_stats.mean_value,
        converged=estimate.converged,
        status=estimate.status,
        refined=estimate.refined,
        n_iter=estimate.n_iter,
    )
    if estimate.corruption is None:
        return result
    corruption = estimate.corruption
    return replace(result, corruption_rate=corruption.rate, corruption_scale=math.sqrt(corruption.size) / unit)


Doubt = tuple[type[Warning], str]

CENTRE, WHITEN = (f"Set {name}=True (LpICA: whiten='unit-variance')" for name in ("center", "whiten"))
"""Remedies, in the words of either estimator."""

COMPETING = (
    "Two bases compete: the entries of X themselves, in which a few large values are sparse, and another one, in which "
    "X is sparse once its large entries are limited. The atoms are the entries; if those values are errors, all atoms "
    "are wrong. Look at the largest entries of X, and limit them or leave out their samples if they are errors; or set "
    "refine='sparse-corruption' or normalize='samples'."
)
"""Warning where atoms lie along the entries and another basis was found."""


def doubt_samples(statistics: SampleStatistics, whitening: Whitening) -> Iterator[Doubt]:
    """Reasons why an orthogonal dictionary cannot be learned from these samples as asked."""
    r, n, k, whiten = statistics.n_samples, statistics.n_features, statistics.rank, whitening.whitened
    if whitening.n_discarded:
        pass  # samples vary in all directions that are left, which are fewer than samples
    elif r <= n:
        yield (
            NotIdentifiableWarning,
            f"X has {r} samples of {n} features: a dictionary is not identifiable from so few. Give at least a few "
            f"times n_features = {n} samples.",
        )
    elif k < n:
        remedy = "" if whiten else ", or whiten X to learn that many components"
        yield (
            RankWarning,
            f"X varies in {k} of {n} directions only; in the others it is zero, or smaller than rounding beside the "
            "largest. Atoms are learned where it varies; any others asked for are filled up. Drop constant or repeated "
            f"features and outliers, bring features to like units{remedy}.",
        )
    limit = WHITE_CONDITION * sampling_condition(r, k)
    mean_share = 0.0
    if not statistics.centred:
        mean_share = statistics.whitened_mean_share if whiten and r > n else statistics.mean_share
    if mean_share > 1 + WHITE_CONDITION * n / r:
        yield (
            NotWhiteWarning,
            f"X is far from centred: the square of its mean is {mean_share:.3g} times its variance in a direction. "
            f"{CENTRE}, unless the mean is that of codes which are never negative, and belongs to them.",
        )
    elif not whiten and not statistics.is_well_conditioned(limit) and statistics.condition_number > limit:
        yield (
            NotWhiteWarning,
            f"X is far from white: the condition number of its covariance is {statistics.condition_number:.3g}, "
            f"expected {limit:.3g} at most. {WHITEN}, unless the dictionary is orthogonal and its atoms differ in "
            "strength.",
        )


def doubt_estimate(
    estimate: Estimate,
    order: NDArray[np.intp],
    statistics: SampleStatistics,
    dependent: Vector | None,
    correlated: Vector | None,
) -> Iterator[Doubt]:
    """Reasons to doubt an estimate whose rows become atoms in this order.

    Atoms are not orthogonal, another basis competes, it did not converge, atoms are mixed, codes depend on each other,
    or chance explains them.
    `dependent` and `correlated` are None where samples were doubted before, and codes are not what they should be for
    that reason.
    """
    stats = estimate.lp_stats
    assert stats is not None
    error = 0.0 if correlated is None else float(np.mean(correlated))
    if error > WARN_CORRELATION_ERROR:  # first, because it may be the cause of all others
        yield (
            NotWhiteWarning,
            f"The codes of X are not independent, as if its atoms were not orthogonal: orthogonal ones are off by "
            f"about {100 * error:.2g} % for that alone. {WHITEN}, unless the dictionary is orthogonal and its codes "
            "depend on each other.",
        )
    if estimate.competing is not None:
        yield NotIdentifiableWarning, COMPETING
    gaussian = _find_unidentifiable(estimate, statistics)[order]
    if np.any(gaussian):
        yield NotIdentifiableWarning, _describe_gaussian(gaussian, stats)
    if estimate.mixed and not all(pair.nearly_separate for pair in estimate.mixed):
        yield NotIdentifiableWarning, _describe_mixed(estimate.mixed, np.argsort(order))
    if dependent is not None:
        lost = dependent > WARN_ATOM_ERROR
        for pair in estimate.mixed:  # warned of already
            lost[[pair.first, pair.second]] = False
        if np.any(lost):
            yield NotIdentifiableWarning, _describe_dependent(np.flatnonzero(lost[order]), len(order))
    if not estimate.converged and not estimate.stopped:
        # atoms that samples do not tell from their mixtures never come to rest
        remedy = "More iterations would not help." if np.any(gaussian) else "Raise max_iter or tol."
        status = estimate.status.removeprefix("converged: ")  # of a part of the fit: not said of the whole
        yield ConvergenceWarning, f"The fit did not converge ({status}). {remedy}"


def _find_unidentifiable(estimate: Estimate, statistics: SampleStatistics) -> NDArray[np.bool_]:
    """Rows of A (m,) to be named; if samples are too few, from which all atoms suffer, that was warned of before."""
    assert estimate.lp_stats is not None
    found, k = find_unidentifiable(estimate.lp_stats, int(estimate.A.shape[1])), statistics.rank
    too_few = k == estimate.A.shape[1] and statistics.n_samples <= statistics.n_features
    return np.zeros_like(found) if too_few else found


def _describe_gaussian(gaussian: NDArray[np.bool_], stats: Statistics) -> str:
    atoms = np.flatnonzero(gaussian)
    reason, remedy = "Their codes cannot be told from Gaussian noise after the same search", ""
    if stats.signs is None:
        reason += ", or they are less sparse than that, as sine waves are"
        remedy = " set solver='auto' with p <= 6, which finds less sparse sources too,"
    others = "" if len(atoms) == len(gaussian) else " The other atoms do not suffer from it."
    return (
        f"{len(atoms)} of {len(gaussian)} atoms are not identifiable among themselves: {_list(atoms)}. {reason}, and "
        f"any rotation of such atoms is as good.{others} Give more samples,{remedy} lower n_components, or use these "
        "atoms as a basis of what they span."
    )


def _describe_mixed(mixed: Sequence[MixedPair], rank: NDArray[np.intp]) -> str:
    mixed = [pair for pair in mixed if not pair.nearly_separate]
    pairs = sorted(tuple(sorted((int(rank[pair.first]), int(rank[pair.second])))) for pair in mixed)
    listed = ", ".join(f"{first} with {second}" for first, second in pairs[:10])
    return (
        f"{len(pairs)} pairs of atoms seem to be mixed with each other, because their codes are active together: "
        f"{listed}. Give more samples, try n_init=5 or another random_state, or smaller exponents, p=(3, 2.5, 2.2)."
    )


def _describe_dependent(atoms: NDArray[np.intp], n_atoms: int) -> str:
    return (
        f"{len(atoms)} of {n_atoms} atoms are hardly told apart by these samples, because their codes depend on "
        f"each other: {_list(atoms)}. atom_error_ says how far each may be off. This is common where all codes "
        "are large in the same samples, as in images and sounds: if samples differ in loudness, divide each by its "
        "length; otherwise use these atoms as a basis only."
    )


def _list(atoms: NDArray[np.intp], most: int = 10) -> str:
    shown = ", ".join(str(atom) for atom in atoms[:most])
    return shown if len(atoms) <= most else f"{shown}, ... ({len(atoms) - most} more)"
