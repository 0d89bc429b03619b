"""What to do next: steps that follow from a fit and its doubts, each with the lines of code for it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from elldict._old.backend.base import to_numpy
from elldict._old.report.assumptions import END, LINEAR, RANK, SAMPLES, STEADY, WHITE, Check, find_said
from elldict._old.summary import EXACT, read_atoms, read_errors

GOOD_ERROR, POOR_ERROR = 0.01, 0.3
"""Errors of atoms whose numbers can be used, and of atoms that other samples would not give again."""

ALIGNED = 1 - 1e-6
"""Share of the square of a direction from which it is called one in which samples do not vary: rounding explains the
rest, of float32 too."""


@dataclass(frozen=True)
class Step:
    """Something to do, why, and how."""

    name: str
    why: str
    code: str


def advise(model: Any, checks: Sequence[Check]) -> Iterator[Step]:
    """Steps, the most urgent first; the last ones are worth while after any fit."""
    errors = read_errors(model)
    sure = int(np.sum(errors <= POOR_ERROR))
    if find_said(model, WHITE) and not model.whiten:
        yield _advise_whitening(model)
    elif find_said(model, WHITE) and not getattr(model, "center", True):
        why = "The mean is large beside what varies, and no code has one."
        yield Step("Centre", why, "model.set_params(center=True).fit(X)")
    if find_said(model, LINEAR):
        why = "Values at the limits of a sensor show as equal numbers at both ends."
        yield Step("Look at the largest values", why, "np.percentile(X, [0, 0.1, 1, 99, 99.9, 100], axis=0)")
    if find_said(model, STEADY):
        why = "Atoms change along the samples; parts of them may have atoms of their own."
        yield Step(
            "Fit parts", why, "half = len(X) // 2\nfirst, last = clone(model).fit(X[:half]), clone(model).fit(X[half:])"
        )
    if find_said(model, RANK) and np.any(to_numpy(model.density_) == 0):
        yield _advise_leaving_out(model)
    if find_said(model, SAMPLES) and 0 < sure < len(errors):
        why = f"{len(errors) - sure} atoms would not come back from other samples; fewer may be easier to tell apart."
        yield Step("Ask for fewer atoms", why, f"model.set_params(n_components={sure}).fit(X)")
    if find_said(model, END) and not find_said(model, SAMPLES):
        why = "The last step was not small."
        yield Step("Let it run longer", why, f"model.set_params(max_iter={10 * model.max_iter}).fit(X)")
    why = "It fits random halves of the samples and says which atoms come back, and how many are worth asking for."
    yield Step("Find out which atoms come back", why, "found = elldict.stability(model, X)\nprint(found)\nfound.plot()")
    if model.expected_error_ > GOOD_ERROR and not any(check.doubted for check in checks):
        needed = float(f"{model.n_samples_seen_ * model.expected_error_ / GOOD_ERROR:.2g}")
        why = f"Errors shrink with the number of samples: about {needed:g} would make it 1 %, or 4 degrees."
        yield Step("Give more samples", why, "model.fit(np.concatenate([X, more]))")
    if model.expected_error_ < EXACT or sure == len(errors):
        yield Step("Use them", "Codes are the samples in terms of the atoms.", "codes = model.transform(X)")


def _advise_whitening(model: Any) -> Step:
    """Whitened codes have other units, to which a threshold of the model would not belong."""
    why = "The fit doubts that atoms are orthogonal and samples centred; whitened ones need neither."
    if _are_free_of_means(model):
        why += (
            " Not for patches of images that are to be cleaned: that they vary in some directions far more than in"
            " others is normal, and whitening makes noise as large as all else."
        )
    changes = "center=True, whiten=True"
    if getattr(model, "transform_algorithm", "") in ("threshold", "hard_threshold") and _is_number(model):
        why += " Codes have unit variance then, so that the threshold has to be another one."
        changes += ', transform_alpha="auto"'
    return Step("Centre and whiten", why, f"model.set_params({changes}).fit(X)")


def _is_number(model: Any) -> bool:
    return isinstance(model.transform_alpha, (int, float))


def _advise_leaving_out(model: Any) -> Step:
    """What to do about directions in which samples do not vary, which atoms without codes span."""
    unused = _find_unused(model)
    constant = np.flatnonzero(np.sum(unused**2, axis=0) > ALIGNED)
    if len(constant) == len(unused):
        return Step("Drop features that do not vary", "They add nothing.", "X = X[:, X.std(axis=0) > 0]")
    if _are_free_of_means(model):
        why = "All samples have a mean of zero over their features, as patches without their means have: no fault."
    else:
        why = "Some features are sums of others, or copies, and do not vary on their own."
    code = "used = model.density_ > 0\natoms, codes = model.mixing_.T[used], model.transform(X)[:, used]"
    return Step("Leave out atoms without codes", why, code)


def _find_unused(model: Any) -> NDArray[np.float64]:
    """Orthonormal rows (any, n) that span the atoms without codes."""
    atoms = read_atoms(model)[np.asarray(to_numpy(model.density_)) == 0]
    return np.asarray(np.linalg.qr(atoms.T)[0].T)


def _are_free_of_means(model: Any) -> bool:
    """Whether samples do not vary along the mean of their features."""
    return bool(np.sum(np.mean(_find_unused(model), axis=1) ** 2) * model.n_features_in_ > ALIGNED)
