"""From the solver's A to the atoms a user gets: back from the frame, in a fixed order, with fixed signs."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from elldict.samples.frame import Frame
from elldict.samples.survey import Survey
from elldict.solver.refine import Answer
from elldict.space import to_numpy, total
from elldict.theory.accuracy import atom_errors, whitening_error, with_small_sample_correction


@dataclass(frozen=True)
class Dictionary:
    """Atoms (m, n) and the rows that make their codes, on the host."""

    components: NDArray[np.float64]
    unmixing: NDArray[np.float64]
    order: NDArray[np.intp]  # which row of the solver became which atom


def canonical_dictionary(answer: Answer, frame: Frame, survey: Survey, n_components: int) -> Dictionary:
    """Atoms by decreasing share of the objective, the largest entry of each positive.

    Atoms beyond the rank of the samples, whose codes are all zero, come last.
    """
    order = np.argsort(-to_numpy(answer.sums.value), kind="stable")
    A = to_numpy(answer.A)[order]
    components, unmixing = frame.components(A), frame.unmixing(A)
    missing = n_components - len(A)
    if missing:
        unused = _canonical_basis(survey.eigenvectors[:, survey.rank :])[:missing]
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


def laws_of(answer: Answer, dictionary: Dictionary, frame: Frame, survey: Survey) -> Laws:
    """What the codes say of themselves, in the order of the atoms; atoms beyond the rank have no codes."""
    order, r = dictionary.order, answer.sums.weight
    n_filled = len(dictionary.components) - len(order)
    unit = 1.0 if frame.whitened else frame.unit
    model = answer.model
    unsought = survey.rank - len(order)
    rest = max(0.0, survey.rank - total(answer.moments.z2)) / max(unsought, 1)
    errors = np.array(
        to_numpy(with_small_sample_correction(atom_errors(answer.moments, r, unsought, rest), survey.rank, r))
    )
    for pair in answer.mixed:  # moments do not show it: half of each is the other, or it is not known how much
        least = NEARLY_APART_ERROR if pair.nearly_apart else MIXED_ERROR
        errors[[pair.first, pair.second]] = np.maximum(errors[[pair.first, pair.second]], least)
    if answer.dependent is not None:
        errors = np.maximum(errors, answer.dependent)
    if answer.correlated is not None:
        errors = errors + answer.correlated
    if frame.whitened:
        errors = errors + whitening_error(survey.rank, r)
    errors = np.clip(errors, answer.least_error, 1.0)[order]
    return Laws(
        density=np.append(model.density[order], np.zeros(n_filled)),
        scale=np.append(np.sqrt(model.power[order]) / unit, np.zeros(n_filled)),
        noise_std=0.0 if model.noise <= 4 * model.least_noise else float(np.sqrt(model.noise)) / unit,
        atom_error=np.append(errors, np.full(n_filled, np.nan)),
        expected_error=float(np.mean(errors)),
        corruption_rate=0.0 if answer.corruption is None else answer.corruption.rate,
        corruption_scale=0.0 if answer.corruption is None else math.sqrt(answer.corruption.size) / unit,
        rest=frame.unmixing(_complement(to_numpy(answer.A))),
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
