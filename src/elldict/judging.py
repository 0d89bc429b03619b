"""The judge: what a fit has to say about itself before it is believed."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning

from elldict.exceptions import NotIdentifiableWarning, NotWhiteWarning, RankWarning
from elldict.samples.survey import Survey
from elldict.solver.refine import Answer
from elldict.solver.result import Iteration
from elldict.solver.sums import Sums
from elldict.space import to_numpy
from elldict.theory import chance

TILTED = 0.003
"""Mean error, shown by correlated codes, of which a user is warned."""

LOST = 0.05
"""Error of an atom, due to codes that depend on each other, of which a user is warned."""

WHITE_ENOUGH = 10.0
"""Condition number of the covariance, beyond what chance gives, that atoms of unequal strength still explain."""


def warn_of_samples(survey: Survey, *, whiten: bool, stacklevel: int) -> bool:
    """Warn of samples from which an orthogonal dictionary cannot be learned as asked; whether there was reason to."""
    doubts = list(_doubts(survey, whiten=whiten))
    for category, message in doubts:
        warnings.warn(message, category, stacklevel=stacklevel)
    return bool(doubts)


def _doubts(survey: Survey, *, whiten: bool) -> Iterator[tuple[type[Warning], str]]:
    r, n, k = survey.n_samples, survey.n_features, survey.rank
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
    mean_share = 0.0 if survey.centred else survey.whitened_mean_share if whiten and r > n else survey.mean_share
    if mean_share > 1 + WHITE_ENOUGH * n / r:
        yield (
            NotWhiteWarning,
            f"X is far from centred: the square of its mean is {mean_share:.3g} times its variance in a direction. "
            "Set center=True, unless the mean is that of codes which are never negative, and belongs to them.",
        )
    elif not whiten and not survey.surely_conditioned(limit) and survey.condition_number > limit:
        yield (
            NotWhiteWarning,
            f"X is far from white: the condition number of its covariance is {survey.condition_number:.3g}, "
            f"expected {limit:.3g} at most. Set whiten=True, unless the dictionary is orthogonal and its atoms differ "
            "in strength.",
        )


def unfinished_error(history: Sequence[Iteration]) -> float:
    """Error of a fit that was cut off: it may have had twice the way of its last step to go."""
    return min(1.0, 2 * (2 * history[-1].step) ** 2) if history else 1.0


def warn_of_answer(answer: Answer, order: NDArray[np.intp], survey: Survey, *, doubted: bool, stacklevel: int) -> None:
    """Warn of a fit that did not converge, of atoms that chance explains, and of codes that are not independent.

    `order` says which row became which atom. Where samples were `doubted`, codes are not what they should be for that
    reason already.
    """
    if not answer.converged and not answer.stopped:
        warnings.warn(
            f"The fit did not converge ({answer.status}). Raise max_iter or tol.",
            ConvergenceWarning,
            stacklevel=stacklevel,
        )
    _warn_of_mixed_atoms(answer, order, stacklevel)
    if answer.converged and not doubted:
        _warn_of_dependent_atoms(answer, order, stacklevel)
        _warn_of_correlated_codes(answer, stacklevel)
    doubtful = np.flatnonzero(doubtful_rows(answer.sums, survey.rank)[order])
    if len(doubtful) and survey.n_samples > survey.n_features:  # too few samples were warned of before
        warnings.warn(
            f"{len(doubtful)} of {len(order)} atoms are not identifiable: {_listed(doubtful)}. Their codes are not "
            "sparser than Gaussian noise looks after the same search, or they are sub-Gaussian, as sine waves are, "
            "which maximising a norm with p > 2 cannot find and FastICA can. Give more samples, lower n_components, or "
            "use these atoms as a basis only.",
            NotIdentifiableWarning,
            stacklevel=stacklevel,
        )


def _warn_of_mixed_atoms(answer: Answer, order: NDArray[np.intp], stacklevel: int) -> None:
    mixed = [pair for pair in answer.mixed if not pair.nearly_apart]
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


def _warn_of_dependent_atoms(answer: Answer, order: NDArray[np.intp], stacklevel: int) -> None:
    if answer.dependent is None:
        return
    mixed = {atom for pair in answer.mixed for atom in (pair.first, pair.second)}  # warned of already
    lost = np.array([error > LOST and row not in mixed for row, error in enumerate(answer.dependent)])
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


def _warn_of_correlated_codes(answer: Answer, stacklevel: int) -> None:
    error = 0.0 if answer.correlated is None else float(np.mean(answer.correlated))
    if error > TILTED:
        warnings.warn(
            f"The codes of X are correlated, as if its atoms were not orthogonal: an orthogonal dictionary is off by "
            f"about {100 * error:.2g} % for that alone. Set whiten=True, unless the dictionary is orthogonal and its "
            "codes depend on each other.",
            NotWhiteWarning,
            stacklevel=stacklevel + 1,
        )


def doubtful_rows(sums: Sums, n_directions: int) -> NDArray[np.bool_]:
    """Rows of A whose codes could be those of Gaussian or sub-Gaussian sources.

    Two reasons to doubt: codes no sparser than chance makes them, and kappa = E g z - E z^2 E g' <= 0, where the
    objective does not even have a maximum at the source.
    """
    gz, slope, z2, magnitude = (
        to_numpy(total) / sums.weight for total in (sums.value, sums.slope, sums.z2, sums.extra["magnitude"])
    )
    score = chance.sparsity_score(magnitude, z2, sums.weight)
    return np.asarray((score < chance.chance_score(n_directions)) | (gz - z2 * slope <= 0))


def _listed(atoms: NDArray[np.intp], most: int = 10) -> str:
    shown = ", ".join(str(atom) for atom in atoms[:most])
    return shown if len(atoms) <= most else f"{shown}, ... ({len(atoms) - most} more)"
