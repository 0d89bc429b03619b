"""Diagnostics: every component of the error bar, and every warning of a fit."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning

from elldict._old.backend.base import NUMPY, to_numpy, total
from elldict._old.data.statistics import SampleStatistics
from elldict._old.data.whitening import Whitening
from elldict._old.result import Estimate, FitResult
from elldict._old.solver.evaluate import Statistics, find_unidentifiable
from elldict._old.solver.mixed_atoms import MixedPair
from elldict._old.theory.error_bars import (
    atom_errors,
    sampling_condition,
    subspace_errors,
    whitening_errors,
    with_small_sample_correction,
)
from elldict.exceptions import (
    DataChangedWarning,
    NotIdentifiableWarning,
    NotLinearWarning,
    NotWhiteWarning,
    RankWarning,
)

Vector = NDArray[np.float64]

MIXED_ERROR, NEARLY_SEPARATE_ERROR = 0.5, 5e-5
"""Error of an atom that is the sum of two, and of one that is mixed with another by less than can be seen."""

WARN_ATOM_ERROR = 0.05
"""Error of an atom, due to codes that depend on each other, of which a user is warned."""

WARN_CORRELATION_ERROR = 0.0025
"""Mean error, shown by correlated codes, of which a user is warned."""

WHITE_CONDITION = 10.0
"""Condition number of the covariance, beyond what chance gives, that atoms of unequal strength still explain."""

MIXTURE_OPTIMISM = 70.0
"""Times the directions a sample, or less where the error is less (their geometric mean), by which a law fitted to the
codes themselves makes error bars too small; tests/test_robust.py holds stated and true errors together."""

FEW_PER_DIRECTION, FEW_OPTIMISM = 20, 5.0
"""Samples a direction up to which l_p that could not be refined is further off than its formula says, and times the
directions a sample by which."""

LOST_ERROR = 0.1
"""Error of atoms that look Gaussian from which the law of their codes does not tell them apart either."""


@dataclass(frozen=True)
class Errors:
    """Error bars of the rows of A, (m,) each, and why they are what they are."""

    atoms: Vector  # in all
    dependent: Vector | None = None  # because codes depend on each other
    correlated: Vector | None = None  # because true atoms are not orthogonal
    saturated: Vector | None = None  # because large values of features are too small
    drifts: bool = False  # atoms change from the beginning of the samples to their end
    inflation: float = 1.0  # samples count as fewer, by this factor, because they depend on each other
    split_halves: bool = False  # fits to two halves of the samples were compared


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
    unidentifiable = _find_unidentifiable(estimate, statistics, inflation)
    first_order = atom_errors(moments, r, n_unsought, variance, unidentifiable) * estimate.cleaning_factor
    errors = np.array(to_numpy(with_small_sample_correction(first_order, k, r)))
    if estimate.refined == "mixture":
        # laws of samples that come again are sharper than they should be
        share = min(k / r, float(np.mean(errors))) if inflation == 1 else k / r
        errors = errors * (1 + MIXTURE_OPTIMISM * math.sqrt(share * k / r))
    elif estimate.refined is None and r <= FEW_PER_DIRECTION * k:
        errors = np.minimum(errors * (1 + FEW_OPTIMISM * k / r), 1.0)
    if np.any(unidentifiable):  # a law fitted to Gaussian codes is never quite Gaussian; l_p has nothing to fit
        for each in (moments, estimate.lp_stats.moments):
            among_all = to_numpy(atom_errors(each, r, n_unsought, variance))
            errors[unidentifiable] = np.maximum(errors, np.minimum(among_all, 1.0))[unidentifiable]
        lost = unidentifiable & (errors > LOST_ERROR)
        errors[lost] = np.maximum(errors[lost], score_of_rotation(int(np.sum(lost))))
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


def score_of_rotation(n_directions: int) -> float:
    """Mean error of atoms that are rotated among so many directions at random: the fourth moment of an entry."""
    return 1 - 3 / (n_directions + 2)


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
        kept = unmixing[: len(order)]
        kept = kept / np.max(np.abs(kept), axis=1, keepdims=True)  # products of tiny units would overflow
        signs = np.sign(np.sum(whitening.unmixing(A) * kept, axis=1))
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
        code_std=_measure_codes(unmixing, statistics),
        mixture=mixture,
        objective=lp_stats.mean_value,
        converged=estimate.converged,
        status=estimate.status,
        refined=estimate.refined,
        n_iter=estimate.n_iter,
    )
    if estimate.competing is not None or (estimate.uncleaned and estimate.cleaning is None):
        return replace(result, corruption_rate=math.nan, corruption_scale=math.nan)
    if estimate.cleaning is None:
        return result
    cleaning = estimate.cleaning.reorder(order, unit)
    return replace(result, cleaning=cleaning, corruption_rate=cleaning.rate, corruption_scale=math.sqrt(cleaning.size))


def _measure_codes(unmixing: NDArray[np.float64], statistics: SampleStatistics) -> Vector:
    """Root mean square (m,) of the codes of all samples."""
    backend = statistics.backend if statistics.backend.prefers_products else NUMPY
    xp, rows = backend.xp, backend.asarray(unmixing, "float64")
    size = float(xp.max(xp.abs(rows)))  # in units of which squares do not overflow
    rows = rows / size
    squares = to_numpy(xp.sum((rows @ backend.asarray(statistics.scatter, "float64")) * rows, axis=1))
    return np.asarray(np.sqrt(np.maximum(squares, 0.0)) * (size * statistics.unit))


Doubt = tuple[type[Warning], str]

CENTRE, WHITEN = (f"Set {name}=True (LpICA: whiten='unit-variance')" for name in ("center", "whiten"))
"""Remedies, in the words of either estimator."""

DRIFT = (
    "The atoms of X change from its first samples to its last. What is learned is a mean over all of them, and error "
    "bars say how far the atoms of a part of X may be from it. Fit parts of X on their own, or use partial_fit with a "
    "half_life, which follows them."
)
"""What is said of samples whose dictionary drifts."""

COMPETING = (
    "Two bases compete: the entries of X themselves, in which a few large values are sparse, and another one, in which "
    "X is sparse once its large entries are limited. The atoms are the entries; if those values are errors, all atoms "
    "are wrong. Look at the largest entries of X, and limit them or leave out their samples if they are errors; or set "
    "refine='sparse-corruption' or normalize='samples'."
)
"""Warning where atoms lie along the entries and another basis was found."""

UNCLEANED = (
    "X looks corrupted in some of its entries, or is said to be, and could not be cleaned. corruption_rate_ is NaN, "
    "and denoise removes noise only. Give more samples, which vary in all directions, and leave n_components=None; "
    "refine='sparse-corruption' keeps atoms of samples that are cleaned in part."
)
"""Warning where refine='sparse-corruption' was asked for and could not be, or looked right and did not come to rest."""


def doubt_samples(statistics: SampleStatistics, whitening: Whitening, n_asked: int | None = None) -> Iterator[Doubt]:
    """Reasons why an orthogonal dictionary cannot be learned from these samples with as many atoms as asked."""
    r, n, k, whiten = statistics.n_samples, statistics.n_features, statistics.rank, whitening.whitened
    if whitening.n_discarded:
        pass  # samples vary in all directions that are left, which are fewer than samples
    elif r <= n:
        yield (
            NotIdentifiableWarning,
            f"X has {r} samples of {n} features: a dictionary is not identifiable from so few. Give at least a few "
            f"times n_features = {n} samples.",
        )
    elif k < n and not (whiten and n_asked == k):
        remedy = "" if whiten else ", or whiten X to learn that many components"
        yield (
            RankWarning,
            f"X varies in {k} of {n} directions only; in the others it is zero, or smaller than rounding beside the "
            "largest. Atoms are learned where it varies; any others asked for are filled up. Drop constant or repeated "
            f"features and outliers, bring features to like units{remedy}.",
        )
    if is_far_from_centred(statistics, whitening):
        mean_share = _measure_mean_share(statistics, whitening)
        yield (
            NotWhiteWarning,
            f"X is far from centred: the square of its mean is {mean_share:.3g} times its variance in a direction. "
            f"{CENTRE}, unless the mean is that of codes which are never negative, and belongs to them.",
        )
    elif is_far_from_white(statistics, whitening):
        limit = WHITE_CONDITION * sampling_condition(r, k)
        yield (
            NotWhiteWarning,
            f"X is far from white: the condition number of its covariance is {statistics.condition_number:.3g}, "
            f"expected {limit:.3g} at most. {WHITEN}, unless the dictionary is orthogonal and its atoms differ in "
            "strength.",
        )


def is_far_from_centred(statistics: SampleStatistics, whitening: Whitening) -> bool:
    """Whether the mean of samples that are not centred is too large."""
    limit = 1 + WHITE_CONDITION * statistics.n_features / statistics.n_samples
    return not statistics.centred and _measure_mean_share(statistics, whitening) > limit


def _measure_mean_share(statistics: SampleStatistics, whitening: Whitening) -> float:
    """Square of the mean in units of the variance in a direction."""
    if whitening.whitened and statistics.n_samples > statistics.n_features:
        return statistics.whitened_mean_share
    return statistics.mean_share


def is_far_from_white(statistics: SampleStatistics, whitening: Whitening) -> bool:
    """Whether samples that are not whitened vary in some directions far more than in others."""
    limit = WHITE_CONDITION * sampling_condition(statistics.n_samples, statistics.rank)
    uneven = not whitening.whitened and not statistics.is_well_conditioned(limit)
    return uneven and statistics.condition_number > limit


def doubt_estimate(
    estimate: Estimate,
    order: NDArray[np.intp],
    statistics: SampleStatistics,
    errors: Errors,
    *,
    doubted: bool,
) -> Iterator[Doubt]:
    """Reasons to doubt an estimate whose rows become atoms in this order.

    Atoms are not orthogonal, another basis competes, it did not converge, atoms are mixed, codes depend on each other,
    or chance explains them. Where samples were `doubted` before, codes are not what they should be for that reason.
    """
    stats = estimate.lp_stats
    assert stats is not None
    correlated = None if doubted else errors.correlated
    dependent = None if doubted or not estimate.converged else errors.dependent
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
    elif estimate.uncleaned and estimate.cleaning is None:
        yield NotIdentifiableWarning, UNCLEANED
    if errors.saturated is not None:
        yield NotLinearWarning, _describe_saturated(errors.saturated)
    if errors.drifts:
        yield DataChangedWarning, DRIFT
    gaussian = _find_unidentifiable(estimate, statistics, errors.inflation)[order]
    if np.any(gaussian):
        yield NotIdentifiableWarning, _describe_gaussian(gaussian, stats)
    if estimate.mixed and not all(pair.nearly_separate for pair in estimate.mixed):
        yield NotIdentifiableWarning, _describe_mixed(estimate.mixed, np.argsort(order))
    if dependent is not None:
        lost = dependent > WARN_ATOM_ERROR
        for pair in (pair for pair in estimate.mixed if not pair.nearly_separate):  # warned of already
            lost[[pair.first, pair.second]] = False
        if np.any(lost):
            yield NotIdentifiableWarning, _describe_dependent(np.flatnonzero(lost[order]), len(order))
    if not estimate.converged and not estimate.stopped:
        # atoms that samples do not tell from their mixtures never come to rest
        status = estimate.status.removeprefix("converged: ")  # of a part of the fit: not said of the whole
        in_vain = np.any(gaussian) or status.startswith("stopped after")
        remedy = "More iterations would not help." if in_vain else "Raise max_iter or tol."
        yield ConvergenceWarning, f"The fit did not converge ({status}). {remedy}"


def _find_unidentifiable(estimate: Estimate, statistics: SampleStatistics, inflation: float = 1.0) -> NDArray[np.bool_]:
    """Rows of A (m,) to be named; if samples are too few, from which all atoms suffer, that was warned of before."""
    assert estimate.lp_stats is not None
    found, k = find_unidentifiable(estimate.lp_stats, int(estimate.A.shape[1]), inflation), statistics.rank
    too_few = k == estimate.A.shape[1] and statistics.n_samples <= statistics.n_features
    return np.zeros_like(found) if too_few else found


def _describe_saturated(errors: Vector) -> str:
    return (
        "Large values of the features are smaller than codes explain, as if they had been clipped or bent by a sensor: "
        f"atoms are off by about {100 * float(np.mean(errors)):.2g} % for that alone, however many samples there are. "
        "Look at histograms of the features, and leave out samples at their limits, or undo what bends them."
    )


def _describe_gaussian(gaussian: NDArray[np.bool_], stats: Statistics) -> str:
    atoms = np.flatnonzero(gaussian)
    reason, remedy = "Their codes cannot be told from Gaussian noise after the same search", ""
    if stats.signs is None:
        reason += ", or they are less sparse than that, as sine waves are"
        remedy = " set solver='auto' with p <= 6, which finds less sparse sources too,"
    others = "" if len(atoms) == len(gaussian) else " The other atoms do not suffer from it."
    return (
        f"{len(atoms)} of {len(gaussian)} atoms are not identifiable among themselves: {list_atoms(atoms)}. {reason}, "
        f"and any rotation of such atoms is as good.{others} Give more samples,{remedy} lower n_components, or use "
        "these atoms as a basis of what they span."
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
        f"each other: {list_atoms(atoms)}. atom_error_ says how far each may be off. This is common where all codes "
        "are large in the same samples, as in images and sounds: if samples differ in loudness, divide each by its "
        "length; otherwise use these atoms as a basis only."
    )


def list_atoms(atoms: NDArray[np.intp], most: int = 10) -> str:
    """The first atoms, and how many more there are."""
    shown = ", ".join(str(atom) for atom in atoms[:most])
    return shown if len(atoms) <= most else f"{shown}, ... ({len(atoms) - most} more)"
