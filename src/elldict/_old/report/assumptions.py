"""What a fit assumes, and whether it holds: the warnings of the fit, and what a few thousand codes show."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from elldict._old.backend.base import to_numpy
from elldict._old.summary import read_atoms

Matrix = NDArray[np.float64]
Said = tuple[tuple[str, str], ...]

VISIBLE, TOGETHER = 0.01, 0.05
"""Correlation of the sizes of two codes that is worth a number, and from which they are called dependent: less is
within the chance of samples that depend on each other."""

LOUDER = 1.5
"""Times the root mean square of codes in the fit from which samples are called louder, or one over it quieter."""

SAMPLES, LINEAR, STEADY, RANK, END, WHITE = (
    "NotIdentifiableWarning",
    "NotLinearWarning",
    "DataChangedWarning",
    "RankWarning",
    "ConvergenceWarning",
    "NotWhiteWarning",
)
KNOWN = (SAMPLES, LINEAR, STEADY, RANK, END, WHITE)


@dataclass(frozen=True)
class Check:
    """One assumption: what it is, what was found, what the fit said of it."""

    name: str
    found: str
    doubted: bool
    said: Said = ()


def check_assumptions(model: Any, codes: Matrix) -> list[Check]:
    """Every assumption, in the order in which they matter; `codes` (r, m) are linear ones of drawn samples."""
    checks = [
        _check_said(model, END, "The fit converged", model.status_, doubted=not model.converged_),
        _check_said(model, SAMPLES, "Atoms can be told apart", "no atom has codes that chance explains"),
        _check_independence(model, codes),
        _check_orthogonality(model),
        _check_said(model, LINEAR, "Samples are sums of atoms", "no feature looks clipped or bent"),
        _check_said(model, STEADY, "All samples have the same atoms", "no change was found"),
        _check_said(model, RANK, "Samples vary in every direction", "they do"),
        _check_loudness(model, codes),
    ]
    others = tuple(pair for pair in model.warnings_ if pair[0] not in KNOWN)
    if others:
        checks.append(Check("What else the fit said", "see below", doubted=True, said=others))
    return checks


def find_said(model: Any, category: str) -> Said:
    """Warnings of the fit of one category."""
    return tuple(pair for pair in model.warnings_ if pair[0] == category)


def _check_said(model: Any, category: str, name: str, otherwise: str, *, doubted: bool = False) -> Check:
    """An assumption that the fit has looked at itself."""
    said = find_said(model, category)
    return Check(name, "the fit doubts it" if said else otherwise, doubted=doubted or bool(said), said=said)


def measure_together(codes: Matrix) -> float:
    """Correlation of the sizes of two codes, as a root mean square over all pairs, without what chance adds."""
    sizes = np.abs(codes)
    spread = np.std(sizes, axis=0)
    sizes = ((sizes - np.mean(sizes, axis=0)) / np.where(spread > 0, spread, 1.0))[:, spread > 0]
    r, m = sizes.shape
    if m < 2 or r < 2:
        return 0.0
    correlations = (sizes.T @ sizes / r)[np.triu_indices(m, 1)]
    return float(np.sqrt(max(np.mean(correlations**2) - 1 / r, 0.0)))  # 1 / r: that of independent numbers


def _check_independence(model: Any, codes: Matrix) -> Check:
    name = "Codes are independent of each other"
    if model.n_components_ < 2:
        return Check(name, "there is one atom", doubted=False)
    together = measure_together(codes)
    if together < VISIBLE:
        return Check(name, "the sizes of two codes have no correlation beyond chance", doubted=False)
    found = f"the sizes of two codes have a correlation of {together:.2f}; independent ones have none"
    if together <= TOGETHER:
        return Check(name, found, doubted=False)
    counted = "include" if model._split_halves else "do not include"
    remedy = "" if model._split_halves else ": set halves=True"
    return Check(name, f"{found}. Error bars {counted} a comparison of split halves{remedy}", doubted=True)


def _check_orthogonality(model: Any) -> Check:
    said = find_said(model, WHITE)
    if not model.whiten:
        found = "the fit doubts it" if said else "atoms were sought at right angles, and codes do not contradict it"
    else:
        found = "not assumed: X was whitened"
        cosines = _compare_atoms(read_atoms(model))
        if len(cosines) > 1:
            first, second = np.unravel_index(np.argmax(cosines), cosines.shape)
            found += f". The two atoms most alike, {first} and {second}, have a cosine of {np.max(cosines):.2f}"
    name = "Mixing columns may be oblique" if model.whiten else "Atoms are orthogonal, samples centred"
    return Check(name, found, doubted=bool(said), said=said)


def _compare_atoms(atoms: Matrix) -> Matrix:
    """Size of the cosine of each two atoms (m, m), the first of which comes before the second."""
    lengths = np.linalg.norm(atoms, axis=1, keepdims=True)
    unit = atoms / np.where(lengths > 0, lengths, 1.0)
    return np.abs(np.triu(unit @ unit.T, 1))


def _check_loudness(model: Any, codes: Matrix) -> Check:
    """Whether the samples of the report are like those of the fit, by the sizes of their codes."""
    name = "These samples are like those of the fit"
    density, scale = (np.asarray(to_numpy(law), dtype=np.float64) for law in (model.density_, model.scale_))
    used, of_what = density > 0, "as those of the fit"
    if model._code_std is not None:
        stated = np.asarray(to_numpy(model._code_std))
    else:  # a model of an older file
        stated, of_what = np.sqrt(density * scale**2 + model.noise_std_**2), "as the law fitted to codes says"
    ratios = np.sqrt(np.mean(codes**2, axis=0))[used] / np.where(stated[used] > 0, stated[used], 1.0)
    ratio = float(np.median(ratios)) if np.any(used) else 1.0
    found = f"their codes are {ratio:.2f} times as large {of_what}"
    return Check(name, found, doubted=not 1 / LOUDER < ratio < LOUDER)
